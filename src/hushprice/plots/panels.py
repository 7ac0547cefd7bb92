"""Panels of the paper's figures, and figures that show several panels in a row.

A panel draws cells, which are pairs of a label and a result; its legend shows how they differ:

>>> from hushprice import markets, policies, simulate
>>> cells = []
>>> for T in (500, 1000):
...     policy = policies.ETC(family="logistic", dim=2, prices=(0, 3), horizon=T)
...     cells.append(("ETC", simulate(policy, markets.s1(dim=2), horizon=T, replications=3)))
>>> row = figure([lambda axes: mean_regret(cells, axes), lambda axes: boxes(cells, axes, by="horizon")], title="ETC")
>>> len(row.axes)
2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from textwrap import fill
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, unknown
from hushprice.plots.figures import COLOURS, REFERENCE, finish, regret_paths, short, short_ticks
from hushprice.plots.scaling import MARKERS, bars, slopes_text
from hushprice.simulation import DUST, Result, fit_scaling

Cells = Sequence[tuple[str, Result]]
Line = Literal["-", "--", ":", "-."]
LINES: tuple[Line, ...] = ("-", "--", ":", "-.")
MARK = "#C00000"
LONG_TAIL = 30.0  # ratio of largest regret to smallest median above which boxes have a logarithmic axis
PANEL_WIDTH, PANEL_HEIGHT = 4.6, 4.2  # size of a panel, in inches


class _Curve(NamedTuple):
    """The results of one label in one dimension by horizon, with their colour, line style and marker."""

    label: str
    dim: int
    colour: str
    line: Line
    marker: str
    results: list[Result]

    def draw(self, axes: Axes, samples: Callable[[Result], Array], *, points: bool = False) -> None:
        """Draw means over the horizons with bars of three standard errors, joined by lines unless ``points``."""
        data = [samples(r) for r in self.results]
        fmt = self.marker if points else self.marker + self.line
        bars(axes, self.horizons, np.array([x.mean() for x in data]), data, fmt=fmt, color=self.colour)

    @property
    def horizons(self) -> Array:
        """T of each result."""
        return np.array([r.horizon for r in self.results], dtype=float)


def mean_regret(cells: Cells, axes: Axes, *, log: bool = False, title: str | None = None) -> None:
    """Draw mean regret at T over T with bars of three standard errors.

    Colours distinguish dimensions and line styles labels.

    Parameters
    ----------
    cells : sequence of (str, Result)
        Labels and results.
    axes : Axes
        Matplotlib axes to draw in.
    log : bool
        Whether the axes are logarithmic.
    title : str, optional
        Title of the panel.
    """
    for curve in _curves(cells):
        curve.draw(axes, _regret)
    _horizon_axis(cells, axes, log=log)
    _value_axis(axes, "mean regret at T", log=log)
    _end(axes, title, _legend(cells))


def fitted_lines(cells: Cells, axes: Axes, *, offset: float, title: str | None = None) -> None:
    """Draw mean regret over T on log-log axes with the lines that ``fit_scaling`` fits.

    Parameters
    ----------
    cells : sequence of (str, Result)
        Results of one label; a single result is drawn without a line.
    axes : Axes
        Matplotlib axes to draw in.
    offset : float
        Coefficient of log log T in the fit.
    title : str, optional
        Title of the panel.

    Raises
    ------
    InvalidInput
        If the cells have more than one label.
    """
    curves = _curves(cells)
    if len(labels := _labels(cells)) > 1:
        raise InvalidInput(f"Fitted lines are for one label, got {len(labels)}: {', '.join(labels)}.")
    fit = fit_scaling([r for _, r in cells], offset=offset) if len(cells) > 1 else None
    for curve in curves:
        curve.draw(axes, _regret, points=True)
        if fit is not None:
            smooth = np.geomspace(curve.horizons[0], curve.horizons[-1], 50)
            axes.plot(smooth, fit.predict(curve.dim, smooth), color=curve.colour, linewidth=1.2)
    _horizon_axis(cells, axes, log=True)
    _value_axis(axes, "mean regret at T", log=True)
    entries = [Line2D([], [], color=c.colour, marker=c.marker, linewidth=1.2, label=f"d = {c.dim}") for c in curves]
    _end(axes, title, [entries], heading="" if fit is None else slopes_text(fit))


def boxes(cells: Cells, axes: Axes, *, by: str, log: bool | None = None, title: str | None = None) -> None:
    """Draw box plots of the regret at the horizon, with one colour per label.

    Parameters
    ----------
    cells : sequence of (str, Result)
        Labels and results.
    axes : Axes
        Matplotlib axes to draw in.
    by : {"horizon", "dim", "label"}
        Groups of the boxes.
    log : bool, optional
        Whether the axis is logarithmic; by default, if the largest regret exceeds 30 times the smallest positive
        median.
    title : str, optional
        Title of the panel.

    Raises
    ------
    InvalidInput
        If two results of one label are in the same group.
    """
    groups, labels = _groups(cells, by), _labels(cells)
    colours = {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(labels)}
    room = 1 if by == "label" else len(labels)  # boxes side by side in a group
    for place, group in enumerate(groups.values()):
        for label, result in group.items():
            shift = 0.0 if by == "label" else (labels.index(label) - (room - 1) / 2) * 0.8 / room
            _box(axes, result, place + shift, 0.55 if room == 1 else 0.68 / room, colours[label])
    _value_axis(axes, "regret at the horizon", log=_long_tailed(cells) if log is None else log)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    _group_ticks(axes, by, list(groups))
    entries = [Patch(facecolor=colour, alpha=0.75, label=label) for label, colour in colours.items()]
    _end(axes, title, [entries] if by != "label" and len(labels) > 1 else [])
    axes.grid(visible=False, axis="x")


def paths(cells: Cells, axes: Axes, *, log: bool = False, title: str | None = None) -> None:
    """Draw mean regret over the customers with bands of three standard errors, with one colour per curve.

    Parameters
    ----------
    cells : sequence of (str, Result)
        Labels and results.
    axes : Axes
        Matplotlib axes to draw in.
    log : bool
        Whether the axes are logarithmic.
    title : str, optional
        Title of the panel.
    """
    named = _named(cells)
    before = len(axes.lines)
    regret_paths(named, axes, log=log)
    for i, line in enumerate(axes.lines[before:]):
        line.set_linestyle(LINES[i // len(COLOURS) % len(LINES)])
    _end(axes, title, [axes.lines[before:]] if len(named) > 1 else [])


def seconds(cells: Cells, axes: Axes, *, title: str | None = None) -> None:
    """Draw mean seconds per replication over T with bars of three standard errors, on a logarithmic axis.

    Parameters
    ----------
    cells : sequence of (str, Result)
        Labels and results.
    axes : Axes
        Matplotlib axes to draw in.
    title : str, optional
        Title of the panel.
    """
    for curve in _curves(cells):
        curve.draw(axes, lambda result: result.seconds)
    _horizon_axis(cells, axes, log=False)
    _value_axis(axes, "seconds per replication", log=True)
    _end(axes, title, _legend(cells))


def histogram(values: Any, axes: Axes, *, xlabel: str, marks: Sequence[float] = (), title: str | None = None) -> None:
    """Draw a histogram of numbers, with labelled red lines at the marks.

    Parameters
    ----------
    values : array-like
        Finite numbers.
    axes : Axes
        Matplotlib axes to draw in.
    xlabel : str
        Label of the horizontal axis.
    marks : sequence of float
        Positions of the lines.
    title : str, optional
        Title of the panel.

    Raises
    ------
    InvalidInput
        If there are no numbers or some are not finite.
    """
    data = np.asarray(values, dtype=float).ravel()
    if not data.size or not np.isfinite(data).all():
        raise InvalidInput("A histogram needs at least one number, and finite ones only.")
    counts, _, _ = axes.hist(data, bins=min(60, max(10, round(data.size**0.5))), color=COLOURS[0], alpha=0.75)
    top = float(np.max(counts))
    axes.set_ylim(0, top * (1.25 if len(marks) else 1.05))
    for i, mark in enumerate(sorted(marks)):
        axes.axvline(mark, color=MARK, linewidth=1.4)
        axes.annotate(
            f"{mark:.4g}", (mark, top * (1.17 - 0.09 * (i % 2))), (4, 0), textcoords="offset points", color=MARK,
            fontsize=9, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip
    axes.set_xlabel(xlabel)
    axes.set_ylabel("count")
    for axis in (axes.xaxis, axes.yaxis):
        short_ticks(axis, False)
    _end(axes, title, [])


Panel = Callable[..., None]
PANELS: dict[str, Panel] = {
    "mean-regret": mean_regret,
    "fitted-lines": fitted_lines,
    "boxes": boxes,
    "paths": paths,
    "seconds": seconds,
}


def figure(panels: Sequence[Callable[[Axes], None]], *, title: str, note: str | None = None) -> Figure:
    """A figure with one to four panels in a row.

    Parameters
    ----------
    panels : sequence of callables
        Each draws in the axes passed to it.
    title : str
        Title of the figure.
    note : str, optional
        Small text below the panels.

    Returns
    -------
    Figure
        The Matplotlib figure.

    Raises
    ------
    InvalidInput
        If there are no panels, or more than four.
    """
    if not 1 <= len(panels) <= 4:
        raise InvalidInput(f"A figure takes one to four panels, got {len(panels)}.")
    width = PANEL_WIDTH * len(panels)
    row = Figure(figsize=(width, PANEL_HEIGHT), layout="constrained")
    for panel, axes in zip(panels, np.ravel(row.subplots(1, len(panels), squeeze=False)), strict=True):
        panel(axes)
    row.suptitle(fill(title, round(11 * width)), x=0.01, ha="left", fontsize=12)
    if note:
        row.supxlabel(fill(note, round(16 * width)), x=0.01, ha="left", fontsize=8, color="#777777")
    return row


def _regret(result: Result) -> Array:
    """Regret at the horizon; rounding errors become zero."""
    return np.where(result.regret > DUST, result.regret, 0.0)


def _labels(cells: Cells) -> list[str]:
    """Labels in order of first appearance."""
    return list(dict.fromkeys(label for label, _ in cells))


def _values(cells: Cells, name: str) -> list[int]:
    """The values of "dim" or "horizon", sorted."""
    return sorted({getattr(result, name) for _, result in cells})


def _check(cells: Cells) -> None:
    """Refuse no results, and two with the same label, d and T."""
    if not cells:
        raise InvalidInput("There are no results to draw.")
    keys = set()
    for label, r in cells:
        if (label, r.dim, r.horizon) in keys:
            worlds = sorted({result.market for _, result in cells})
            several = f" A panel shows one market, not {' and '.join(worlds)}." if len(worlds) > 1 else ""
            raise InvalidInput(f"There are two results for {label!r} at d = {r.dim}, T = {r.horizon}.{several}")
        keys.add((label, r.dim, r.horizon))


def _curves(cells: Cells) -> list[_Curve]:
    """One line style and marker per label; one colour per dimension, or per label if there is one dimension."""
    _check(cells)
    curves = []
    dims = _values(cells, "dim")
    for (i, label), (j, d) in product(enumerate(_labels(cells)), enumerate(dims)):
        points = sorted((r for name, r in cells if name == label and r.dim == d), key=lambda r: r.horizon)
        if points:
            colour = COLOURS[(j if len(dims) > 1 else i) % len(COLOURS)]
            curves.append(_Curve(label, d, colour, LINES[i % len(LINES)], MARKERS[i % len(MARKERS)], points))
    return curves


def _legend(cells: Cells) -> list[list[Artist]]:
    """Legend entries of the colours, and of the line styles and markers; none if there is only one."""
    curves = _curves(cells)
    dims, labels = {c.dim: c.colour for c in curves}, {c.label: c for c in curves}
    colours: list[Artist] = [Line2D([], [], color=dims[d], label=f"d = {d}") for d in sorted(dims)]
    styles: list[Artist] = [
        Line2D([], [], color=REFERENCE if len(dims) > 1 else c.colour, linestyle=c.line, marker=c.marker, label=c.label)
        for c in labels.values()
    ]
    return [entries for entries in (colours, styles) if len(entries) > 1]


def _groups(cells: Cells, by: str) -> dict[Any, dict[str, Result]]:
    """Results by group and label; raises if two coincide."""
    _check(cells)
    if by not in ("horizon", "dim", "label"):
        raise unknown("grouping of boxes", by, ("horizon", "dim", "label"))
    groups: dict[Any, dict[str, Result]] = {}
    for label, result in cells:
        group = groups.setdefault(label if by == "label" else getattr(result, by), {})
        if label in group:
            raise InvalidInput(f"There are several results for {label!r} in one group by {by}: choose one to draw.")
        group[label] = result
    return groups if by == "label" else dict(sorted(groups.items()))


def _box(axes: Axes, result: Result, place: float, width: float, colour: str) -> None:
    axes.boxplot(
        [_regret(result)],
        positions=[place],
        widths=width,
        manage_ticks=False,
        patch_artist=True,
        boxprops={"facecolor": colour, "edgecolor": colour, "alpha": 0.75},
        medianprops={"color": "black"},
        whiskerprops={"color": REFERENCE},
        capprops={"color": REFERENCE},
        flierprops={"markersize": 2.5, "markeredgecolor": "#888888"},
    )


def _long_tailed(cells: Cells) -> bool:
    medians = [m for _, r in cells if (m := float(np.median(r.regret))) > DUST]
    return bool(medians) and max(float(r.regret.max()) for _, r in cells) > LONG_TAIL * min(medians)


def _group_ticks(axes: Axes, by: str, groups: list[Any]) -> None:
    """Write the names of the groups below the axis, rotated if they are long."""
    places = range(len(groups))
    if by != "label":
        axes.set_xticks(places, [short(value) for value in groups])
        axes.set_xlabel("horizon T" if by == "horizon" else "dimension d")
        return
    names = [fill(name.replace(" = ", "\u00a0=\u00a0"), 20) for name in groups]  # no line ends at an equals sign
    if max(map(len, names)) * len(names) > 40:
        axes.set_xticks(places, names, rotation=35, ha="right", rotation_mode="anchor", fontsize=9)
    else:
        axes.set_xticks(places, names)


def _named(cells: Cells) -> dict[str, Result]:
    """Results by the parts of label, dimension and horizon that distinguish them."""
    _check(cells)
    many = {name: len(_values(cells, name)) > 1 for name in ("dim", "horizon")}
    labels = len(_labels(cells)) > 1
    named = {}
    for label, r in cells:
        parts = [label] if labels or not any(many.values()) else []
        parts += [f"d = {r.dim}"] if many["dim"] else []
        parts += [f"T = {r.horizon:,}"] if many["horizon"] else []
        named[", ".join(parts)] = r
    return named


def _horizon_axis(cells: Cells, axes: Axes, *, log: bool) -> None:
    axes.set_xlabel("horizon T")
    if log:
        axes.set_xscale("log")
    horizons = _values(cells, "horizon")
    if len(horizons) == 1:
        axes.set_xlim(0.5 * horizons[0], (2.0 if log else 1.5) * horizons[0])
        axes.set_xticks(horizons, [short(horizons[0])])
        axes.set_xticks([], minor=True)
    else:
        _ticks(axes.xaxis, log)


def _value_axis(axes: Axes, name: str, *, log: bool) -> None:
    axes.set_ylabel(name)
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    _ticks(axes.yaxis, log)


def _ticks(axis: Axis, log: bool) -> None:
    """Short tick labels, and at least a few of them on a short logarithmic axis."""
    short_ticks(axis, log)
    low, high = axis.get_view_interval()
    if log and sum(low <= tick <= high for tick in axis.get_majorticklocs()) < 3:
        axis.set_major_locator(MaxNLocator(5))


def _end(axes: Axes, title: str | None, groups: Sequence[Sequence[Artist]], *, heading: str = "") -> None:
    """Add grid, title and legend; the legend has its own strip above the data."""
    finish(axes)
    if title:
        axes.set_title(fill(title, 44), loc="left", fontsize=10.5)
    if any(groups):
        rows, entries = _columns(groups)
        axes.legend(
            handles=entries, title=heading or None, ncols=-(-len(entries) // rows), loc="upper left", alignment="left",
            frameon=False, fontsize=8.5, title_fontsize=8.5, markerscale=0.8, columnspacing=1.2, handlelength=2.4,
            borderaxespad=0.1,
        )  # fmt: skip
        _make_room(axes, (0.17 * (rows + bool(heading)) + 0.1) / 3.2)


def _columns(groups: Sequence[Sequence[Artist]]) -> tuple[int, list[Artist]]:
    """The fewest rows that fit across a panel, and the entries, each group padded to whole columns."""
    widths = [0.5 + 0.075 * max(len(str(entry.get_label())) for entry in group) for group in groups]
    for rows in range(1, max(map(len, groups)) + 1):
        if sum(-(-len(group) // rows) * width for group, width in zip(groups, widths, strict=True)) <= 3.7:
            blanks = [[Patch(visible=False, label="")] * (-len(group) % rows) for group in groups]
            return rows, [entry for group, rest in zip(groups, blanks, strict=True) for entry in (*group, *rest)]
    everything = [entry for group in groups for entry in group]
    return len(everything), everything


def _make_room(axes: Axes, share: float) -> None:
    """Raise the upper end of the y-axis, so that this share of its length is free."""
    scale = axes.yaxis.get_transform()
    low, high = scale.transform(np.array(axes.get_ylim()))
    axes.set_ylim(top=float(scale.inverted().transform(np.array([high + (high - low) * share / (1 - share)]))[0]))
