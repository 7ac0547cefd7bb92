"""Regret paths, box plots, and both side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from hushprice import theory
from hushprice.arrays import Array
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.simulation import DUST, Result

Results = Mapping[str, Result]
# Okabe & Ito's palette, readable without colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5F4690", "#8C8C8C", "#000000")
REFERENCE = "#555555"
PICTURE_FORMATS = (".png", ".svg", ".pdf")
WIDELY = 5.0  # ratio of mean regrets above which axes are logarithmic


def check_file(path: str | PathLike[str]) -> Path:
    """The path of a picture, checked before any work is done.

    Parameters
    ----------
    path : path
        Name that ends in .png, .svg or .pdf, in an existing folder.

    Returns
    -------
    Path
        The path.

    Raises
    ------
    InvalidInput
        If a picture cannot be written there.
    """
    target = Path(path)
    if target.suffix.lower() not in PICTURE_FORMATS:
        raise InvalidInput(f"A picture's name must end in {', '.join(PICTURE_FORMATS)}, got {target.name!r}.")
    if not target.absolute().parent.is_dir():
        raise InvalidInput(f"There is no folder {target.absolute().parent} to put {target.name} in.")
    if target.is_dir():
        raise InvalidInput(f"{target} is a folder; give the picture another name.")
    return target


def save(figure: Figure, path: str | PathLike[str], *, dpi: int = 160) -> Path:
    """Write a figure as PNG, SVG or PDF.

    Parameters
    ----------
    figure : Figure
        The Matplotlib figure.
    path : path
        File name; its suffix decides the format.
    dpi : int
        Dots per inch of a PNG.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    HushpriceError
        If the file cannot be written.
    """
    target = check_file(path)
    try:
        figure.savefig(target, dpi=dpi, metadata={"Date": None} if target.suffix.lower() == ".svg" else None)
    except OSError as problem:
        raise HushpriceError(f"The picture {target} cannot be written: {problem.strerror}.") from problem
    return target


Rate = str | Callable[..., Array]


def bound_of(rate: Rate) -> tuple[str, Callable[..., Array]]:
    """Legend text and function of (d, T) of a bound of :mod:`hushprice.theory` or of a function."""
    if isinstance(rate, str):
        return f"shape of the {rate} rate", theory.plain_rate(rate)
    if not callable(rate):
        raise InvalidInput(f"rate must be the name of a bound or a function of (d, T), got {rate!r}.")
    return "reference", rate


def regret_paths(results: Results, axes: Axes, *, log: bool = False, rate: Rate | None = None) -> None:
    """Draw mean cumulative regret over the rounds with bands of three standard errors, as in the paper.

    Parameters
    ----------
    results : mapping of str to Result
        Results by label.
    axes : Axes
        Matplotlib axes to draw in.
    log : bool
        Whether both axes are logarithmic, so that regrets of order sqrt(T) and T have slopes 1/2 and 1.
    rate : str or callable, optional
        A bound of :mod:`hushprice.theory` by name, or a function of (d, T); dotted and scaled to meet the first policy.
    """
    for colour, (label, result) in zip(_colours(results), results.items(), strict=True):
        mean = np.where(result.path_mean() > DUST, result.path_mean(), 0.0)
        rounds = result.checkpoints
        axes.plot(rounds, mean, color=colour, label=label, linewidth=1.8)
        if result.replications > 1:
            reach = 3.0 * result.path_sd() / np.sqrt(result.replications)
            low = np.maximum(mean - reach, 0.05 * mean)
            axes.fill_between(rounds, low, mean + reach, color=colour, alpha=0.2, linewidth=0)
    if rate is not None:
        name, bound = bound_of(rate)
        first = next(iter(results.values()))
        rounds = first.checkpoints[first.checkpoints >= 3]
        if len(rounds):
            meets = first.path_mean()[-1] / bound(first.dim, rounds[-1])
            axes.plot(rounds, meets * bound(first.dim, rounds), ":", color=REFERENCE, label=name)
    axes.set_xlabel("customers")
    axes.set_ylabel("regret (revenue lost so far)")
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlim(0 if not log else None, max(int(r.checkpoints[-1]) for r in results.values()))
    for axis in (axes.xaxis, axes.yaxis):
        short_ticks(axis, log)
    finish(axes)


def broken(label: str, *, indent: str = "") -> str:
    """A policy's word with a line break before each option."""
    return label.replace(":", f":\n{indent}").replace(",", f",\n{indent}")


def box_plots(results: Results, axes: Axes, *, log: bool = False) -> None:
    """Draw horizontal box plots of the regret at the horizon over replications.

    Parameters
    ----------
    results : mapping of str to Result
        Results by label.
    axes : Axes
        Matplotlib axes to draw in.
    log : bool
        Whether the axis is logarithmic.
    """
    boxes = axes.boxplot(
        [np.where(r.regret > DUST, r.regret, 0.0) for r in results.values()],
        orientation="horizontal",
        patch_artist=True,
        widths=0.6,
        medianprops={"color": "black"},
        flierprops={"markersize": 2.5, "markeredgecolor": "#888888"},
    )
    for box, colour in zip(boxes["boxes"], _colours(results), strict=True):
        box.set(facecolor=colour, edgecolor=colour, alpha=0.75)
    axes.set_yticks(range(1, len(results) + 1), [broken(label) for label in results])
    axes.invert_yaxis()
    axes.set_xlabel("regret at the horizon")
    if log:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    short_ticks(axes.xaxis, log)
    finish(axes)


def overview(results: Results, *, title: str | None = None, rate: Rate | None = None) -> Figure:
    """A figure with regret paths on the left and box plots on the right.

    Axes are logarithmic if the regrets differ widely.

    Parameters
    ----------
    results : mapping of str to Result
        Results by label.
    title : str, optional
        Title; by default the market, the dimension and the number of replications.
    rate : str or callable, optional
        Reference rate; see :func:`regret_paths`.

    Returns
    -------
    Figure
        The Matplotlib figure.

    Raises
    ------
    InvalidInput
        If there are no results.
    """
    if not results:
        raise InvalidInput("There are no results to draw.")
    final = [float(r.regret.mean()) for r in results.values()]
    # A logarithmic scale cannot show a policy without regret (the clairvoyant).
    log = max(final) > WIDELY * min(final) and min(final) > 1e-6 * max(final)
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    regret_paths(results, left, log=log, rate=rate)
    left.legend(frameon=False, loc="best")
    box_plots(results, right, log=log)
    one = next(iter(results.values()))
    runs = f"{one.replications} replication{'s' * (one.replications != 1)}"
    words = title or f"market {one.market}, d = {one.dim}, {runs} (band: 3 standard errors)"
    figure.suptitle(words, x=0.01, ha="left", fontsize=12)
    return figure


def _colours(results: Results) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(len(results))]


def short(value: float, _position: int | None = None) -> str:
    """A short number, such as 20k for 20000."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e4 else f"{value:g}"


def short_ticks(axis: Axis, log: bool) -> None:
    """Few ticks with short labels."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if log else MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(short))
    axis.set_minor_formatter(NullFormatter())


def finish(axes: Axes) -> None:
    """Add a light grid and remove the frame."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
