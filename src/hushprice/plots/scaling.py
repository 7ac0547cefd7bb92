"""Plots of regret and computing time over the horizon and the dimension."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hushprice.arrays import Array
from hushprice.errors import InvalidInput
from hushprice.plots.figures import COLOURS, REFERENCE, Rate, bound_of, finish, short_ticks
from hushprice.simulation import Result, Scaling

Studies = Mapping[str, Scaling]
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")


def _lines(studies: Studies) -> list[tuple[str, int, str, str, list[Result]]]:
    """(label, d, colour, marker, results by T), with one colour per policy and one marker per dimension."""
    dims = sorted({r.dim for study in studies.values() for r in study.results})
    lines = []
    for (i, (label, study)), (j, d) in product(enumerate(studies.items()), enumerate(dims)):
        cells = sorted((r for r in study.results if r.dim == d), key=lambda r: r.horizon)
        if cells:
            lines.append((label, d, COLOURS[i % len(COLOURS)], MARKERS[j % len(MARKERS)], cells))
    return lines


def scaling_fit(studies: Studies, axes: Axes, *, rate: Rate | None = None) -> None:
    """Draw mean regret over T on log-log axes with bars of three standard errors and the fitted lines.

    Parameters
    ----------
    studies : mapping of str to Scaling
        Scaling fits by policy.
    axes : Axes
        Matplotlib axes to draw in.
    rate : str or callable, optional
        A bound of :mod:`hushprice.theory` by name, or a function of (d, T). It is dotted, and scaled to meet the first
        policy at its last point of each dimension.
    """
    dims = set()
    for label, d, colour, marker, cells in _lines(studies):
        T, mean = np.array([r.horizon for r in cells]), np.array([r.regret.mean() for r in cells])
        bars(axes, T, mean, [r.regret for r in cells], fmt=marker, color=colour)
        smooth = np.geomspace(T[0], T[-1], 50)
        axes.plot(smooth, studies[label].predict(d, smooth), color=colour, linewidth=1.2)
        if rate is not None and d not in dims:
            dims.add(d)
            bound = bound_of(rate)[1]
            axes.plot(smooth, mean[-1] * bound(d, smooth) / bound(d, T[-1]), ":", color=REFERENCE, linewidth=1.4)
    axes.set_ylabel("mean regret at T")
    _log_axes(axes)


def slopes_text(study: Scaling) -> str:
    """The slopes as text, such as "slope 0.48 in d, 0.49 in T"."""
    return "slope " + ", ".join(f"{slope:.2f} in {name}" for name, slope, _ in study.slopes())


def computation_time(studies: Studies, axes: Axes) -> None:
    """Draw mean seconds per replication over T on log-log axes with bars of three standard errors.

    Parameters
    ----------
    studies : mapping of str to Scaling
        Scaling fits by policy.
    axes : Axes
        Matplotlib axes to draw in.
    """
    for _, _, colour, marker, cells in _lines(studies):
        T, mean = np.array([r.horizon for r in cells]), np.array([r.seconds.mean() for r in cells])
        bars(axes, T, mean, [r.seconds for r in cells], fmt=f"{marker}-", color=colour)
    axes.set_ylabel("seconds per replication")
    _log_axes(axes)


def legend(studies: Studies, *, rate: Rate | None = None) -> list[Line2D]:
    """Legend entries for the colours, markers and dotted lines."""
    handles = [
        Line2D([], [], color=COLOURS[i % len(COLOURS)], label=f"{label}: {slopes_text(study)}")
        for i, (label, study) in enumerate(studies.items())
    ]
    markers = {d: marker for _, d, _, marker, _ in _lines(studies)}
    handles += [
        Line2D([], [], color=REFERENCE, linestyle="", marker=marker, label=f"d = {d}") for d, marker in markers.items()
    ]
    if rate is not None:
        handles.append(Line2D([], [], color=REFERENCE, linestyle=":", label=bound_of(rate)[0]))
    return handles


def bars(axes: Axes, T: Any, mean: Any, samples: list[Array], *, fmt: str, color: str) -> None:
    """Draw points with bars of three standard errors; the lower end stays above zero for a logarithmic axis."""
    reach = np.array([3.0 * x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else 0.0 for x in samples])
    both = np.stack([np.minimum(reach, 0.95 * mean), reach])
    axes.errorbar(T, mean, yerr=both, fmt=fmt, color=color, markersize=5, linewidth=1)


def growth(studies: Studies, *, rate: Rate | None = None, title: str | None = None) -> Figure:
    """A figure of the regret with its scaling fit on the left and the computing time on the right.

    Parameters
    ----------
    studies : mapping of str to Scaling
        Scaling fits by policy.
    rate : str or callable, optional
        Reference rate; see :func:`scaling_fit`.
    title : str, optional
        Title; by default the market and the number of replications.

    Returns
    -------
    Figure
        The Matplotlib figure.
    """
    if not studies:
        raise InvalidInput("There are no results to draw.")
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    scaling_fit(studies, left, rate=rate)
    computation_time(studies, right)
    figure.legend(handles=legend(studies, rate=rate), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    one = next(iter(studies.values())).results[0]
    words = title or f"market {one.market}, {one.replications} replications (bars: 3 standard errors)"
    figure.suptitle(words, x=0.01, ha="left", fontsize=12)
    return figure


def _log_axes(axes: Axes) -> None:
    axes.set_xlabel("horizon T")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        short_ticks(axis, True)
    finish(axes)
