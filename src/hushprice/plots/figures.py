"""Regret paths, box plots, and both side by side."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hushprice.errors import InvalidInput
from hushprice.simulation import Result

Results = Mapping[str, Result]
# Okabe & Ito's palette, readable without colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5F4690", "#8C8C8C", "#000000")
FORMATS = (".png", ".svg", ".pdf")


def check_file(path: str | PathLike[str]) -> Path:
    """The path of a picture, refused before any work is done if it cannot be written as one."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise InvalidInput(f"A picture's name must end in {', '.join(FORMATS)}, got {target.name!r}.")
    if not target.absolute().parent.is_dir():
        raise InvalidInput(f"There is no folder {target.absolute().parent} to put {target.name} in.")
    return target


def save(figure: Figure, path: str | PathLike[str]) -> Path:
    """Write a figure as PNG, SVG or PDF, by the ending of its name."""
    target = check_file(path)
    figure.savefig(target, dpi=160, metadata={"Date": None} if target.suffix.lower() == ".svg" else None)
    return target


def regret_paths(results: Results, axes: Axes, *, log: bool = False) -> None:
    """Mean cumulative regret over the rounds, with the paper's band of three standard errors.

    With ``log``, both axes are logarithmic, so that sqrt(T) and T show as slopes of one half and one.
    """
    for colour, (label, result) in zip(_colours(results), results.items(), strict=True):
        mean = result.path_mean()
        rounds = result.checkpoints
        axes.plot(rounds, mean, color=colour, label=label, linewidth=1.8)
        if result.replications > 1:
            reach = 3.0 * result.path_sd() / np.sqrt(result.replications)
            axes.fill_between(rounds, np.maximum(mean - reach, 0.0), mean + reach, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel("customers")
    axes.set_ylabel("regret (revenue lost so far)")
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, max(int(r.checkpoints[-1]) for r in results.values()))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(_short))
    _finish(axes)


def box_plots(results: Results, axes: Axes) -> None:
    """Distribution of the regret at the horizon over replications."""
    boxes = axes.boxplot(
        [r.regret for r in results.values()],
        orientation="horizontal",
        patch_artist=True,
        widths=0.6,
        medianprops={"color": "black"},
        flierprops={"markersize": 2.5, "markeredgecolor": "#888888"},
    )
    for box, colour in zip(boxes["boxes"], _colours(results), strict=True):
        box.set_facecolor(colour)
        box.set_alpha(0.75)
    axes.set_yticks(range(1, len(results) + 1), list(results))
    axes.invert_yaxis()
    axes.set_xlabel("regret at the horizon")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(_short))
    _finish(axes)


def overview(results: Results, *, title: str | None = None) -> Figure:
    """Regret paths on the left, box plots on the right."""
    if not results:
        raise InvalidInput("There are no results to draw.")
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    regret_paths(results, left)
    left.legend(frameon=False, loc="upper left")
    box_plots(results, right)
    one = next(iter(results.values()))
    figure.suptitle(
        title or f"market {one.market}, d = {one.dim}, {one.replications} replications (band: 3 standard errors)",
        x=0.01,
        ha="left",
        fontsize=12,
    )
    return figure


def _colours(results: Results) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(len(results))]


def _short(value: float, _position: int | None = None) -> str:
    """20000 as 20k."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e4 else f"{value:g}"


def _finish(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
