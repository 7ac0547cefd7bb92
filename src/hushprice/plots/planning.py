"""Pictures of a plan: losses with intervals, losses over customers, the price of privacy, prices, demand curves.

They take plain numbers, in money, so that a plan and a notebook draw the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hushprice.arrays import Array
from hushprice.plots.figures import COLOURS, REFERENCE, finish, short, short_ticks

TODAY_COLOUR = "#8C8C8C"
WIDE = (7.6, 4.2)


@dataclass(frozen=True)
class Bar:
    """An option with its mean and the 95% interval of it; ``colour`` counts through the palette, None for today's."""

    label: str
    mean: float
    low: float
    high: float
    colour: int | None = 0


def loss_by_option(bars: Sequence[Bar], *, unit: str = "") -> Figure:
    """Draw the loss of each option as a point with its interval, the smallest first."""
    ordered = sorted(bars, key=lambda bar: bar.mean)
    figure = Figure(figsize=(7.6, 1.3 + 0.34 * len(ordered)), layout="constrained")
    axes = figure.subplots()
    for y, bar in enumerate(ordered):
        colour = _colour(bar.colour)
        axes.plot([bar.low, bar.high], [y, y], color=colour, linewidth=3, alpha=0.45, solid_capstyle="butt")
        axes.plot(bar.mean, y, "o", color=colour, markersize=6)
        if bar.colour is None:
            axes.axvline(bar.mean, color=TODAY_COLOUR, linestyle=":", linewidth=1.2, zorder=0)
    axes.set_yticks(range(len(ordered)), [bar.label for bar in ordered], parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(left=min(0.0, *(bar.low for bar in ordered if bar.low == bar.low), 0.0))
    axes.set_xlabel(_with("lost against knowing demand", unit))
    short_ticks(axes.xaxis, False)
    finish(axes)
    return figure


@dataclass(frozen=True, eq=False)
class Path:
    """Cumulative loss of an option at some rounds: mean, and the half-length of the band."""

    label: str
    rounds: Any
    mean: Array
    reach: Array
    colour: int | None = 0


def loss_paths(paths: Sequence[Path], *, unit: str = "") -> Figure:
    """Draw cumulative loss over the customers, with 95% bands of the mean."""
    figure = Figure(figsize=WIDE, layout="constrained")
    axes = figure.subplots()
    for path in sorted(paths, key=lambda one: -float(one.mean[-1])):  # the legend in the order of the lines
        colour = _colour(path.colour)
        axes.plot(path.rounds, path.mean, color=colour, linewidth=1.8, label=path.label)
        axes.fill_between(path.rounds, path.mean - path.reach, path.mean + path.reach, color=colour, alpha=0.15, lw=0)
    axes.set_xlabel("customers")
    axes.set_ylabel(_with("lost so far", unit))
    axes.set_xlim(left=0)
    for axis in (axes.xaxis, axes.yaxis):
        short_ticks(axis, False)
    finish(axes)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
    return figure


def privacy_price(curves: Mapping[str, Sequence[Bar]], *, unit: str = "", x_label: str, x: Sequence[float]) -> Figure:
    """Draw the price of privacy over epsilon or the share that opts out, with 95% intervals; 0 is no privacy."""
    figure = Figure(figsize=(6.2, 3.9), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(x), dtype=np.float64)
    for k, (label, bars) in enumerate(curves.items()):
        at = places[: len(bars)]
        axes.fill_between(at, [b.low for b in bars], [b.high for b in bars], color=COLOURS[k], alpha=0.18, lw=0)
        axes.plot(at, [b.mean for b in bars], "o-", color=COLOURS[k], linewidth=1.8, markersize=5, label=label)
    axes.axhline(0.0, color=REFERENCE, linewidth=0.8)
    axes.set_xticks(places, [_tick(value, x_label) for value in x])
    axes.set_xlabel(x_label)
    axes.set_ylabel(_with("price of privacy", unit))
    lows = [bar.low for bars in curves.values() for bar in bars if bar.low == bar.low]
    axes.set_ylim(bottom=min(0.0, *lows, 0.0))
    short_ticks(axes.yaxis, False)
    finish(axes)
    if len(curves) > 1:
        axes.legend(frameon=False)
    return figure


def _tick(value: float, label: str) -> str:
    return f"{value:.0%}" if label.startswith("share") else f"{value:g}"


@dataclass(frozen=True)
class PricePair:
    """A segment: mean price today and by the model, the range of nine of ten model prices, and the allowed range."""

    label: str
    today: float
    best: float
    low: float
    high: float
    ends: tuple[float, float]


def prices_by_segment(pairs: Sequence[PricePair]) -> Figure:
    """Draw today's prices and the model's, one line per segment; the ends of the allowed range are dotted."""
    figure = Figure(figsize=(7.0, 1.5 + 0.42 * len(pairs)), layout="constrained")
    axes = figure.subplots()
    for y, pair in enumerate(pairs):
        axes.plot([pair.low, pair.high], [y, y], color=COLOURS[0], linewidth=7, alpha=0.2, solid_capstyle="butt")
        axes.plot([pair.today, pair.best], [y, y], color=REFERENCE, linewidth=1, alpha=0.7)
        for end in pair.ends:
            axes.plot([end, end], [y - 0.5, y + 0.5], color=REFERENCE, linestyle=":", linewidth=1)
        axes.plot(pair.today, y, "s", color=TODAY_COLOUR, markersize=7, label="today" if y == 0 else None)
        axes.plot(pair.best, y, "o", color=COLOURS[0], markersize=7, label="by the model" if y == 0 else None)
    axes.set_yticks(range(len(pairs)), [pair.label for pair in pairs], parse_math=False)  # $ is money
    axes.set_ylim(len(pairs) - 0.4, -0.6)
    axes.set_xlabel("price (mean over customers; band: nine of ten of the model's)")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    finish(axes)
    figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=9)
    return figure


@dataclass(frozen=True, eq=False)
class Band:
    """A mean over customers at each price, with its 95% band."""

    price: Array
    mean: Array
    low: Array
    high: Array


def demand_curve(demand: Band, revenue: Band, *, seen: tuple[float, float], today: float, unit: str = "") -> Figure:
    """Draw demand and revenue per customer if all get the same price; grey beyond the logged prices."""
    figure = Figure(figsize=(9.4, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    panels: tuple[tuple[Axes, Band, str, str], ...] = (
        (left, demand, "demand per customer", COLOURS[2]),
        (right, revenue, _with("revenue per customer", unit), COLOURS[0]),
    )
    for axes, band, label, colour in panels:
        low, high = float(band.price[0]), float(band.price[-1])
        for start, stop in ((low, min(seen[0], high)), (max(seen[1], low), high)):
            if stop > start:
                axes.axvspan(start, stop, color="#999999", alpha=0.15, lw=0)
        axes.fill_between(band.price, band.low, band.high, color=colour, alpha=0.2, lw=0)
        axes.plot(band.price, band.mean, color=colour, linewidth=1.8)
        if low <= today <= high:
            axes.axvline(today, color=TODAY_COLOUR, linestyle=":", linewidth=1.4)
            axes.annotate(
                "today", (today, 1.0), xycoords=("data", "axes fraction"), xytext=(3, -3), textcoords="offset points",
                va="top", fontsize=9, color="#555555",
            )  # fmt: skip
        axes.set_xlabel("price, the same for everyone")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=min(0.0, float(band.low.min())))
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_formatter(FuncFormatter(short))
        finish(axes)
    return figure


def _colour(number: int | None) -> str:
    return TODAY_COLOUR if number is None else COLOURS[number % len(COLOURS)]


def _with(label: str, unit: str) -> str:
    return f"{label} ({unit.strip()})" if unit.strip() else label
