"""Pictures of a demand model: calibration on held-out rows, and demand and revenue over the price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hushprice.errors import InvalidInput
from hushprice.fitting import Curve, DemandModel, Report, Tenth
from hushprice.plots.figures import COLOURS, REFERENCE, finish

BAND = 1.96  # standard errors
MAX_DRAWN_SEGMENTS = 6  # largest number of segments drawn
SHORT = 24  # longest name of a segment, in characters


def demand_overview(model: DemandModel, *, title: str | None = None) -> Figure:
    """A figure of calibration, demand and revenue side by side; without held-out rows, the last two.

    Parameters
    ----------
    model : DemandModel
        A fitted model.
    title : str, optional
        Title; by default the log, the family and the number of rows.

    Returns
    -------
    Figure
        The Matplotlib figure.

    Raises
    ------
    InvalidInput
        If the model has neither held-out rows nor demand curves.
    """
    report = model.report_
    held = report.held_out
    if held is None and not report.curves:
        raise InvalidInput("There is nothing to draw: the log has too few rows to hold any out, and one price only.")
    width = (1 if held else 0) + (2 if report.curves else 0)
    figure = Figure(figsize=(1.5 + 3.6 * width, 4.3), layout="constrained")
    axes = list(np.atleast_1d(np.asarray(figure.subplots(1, width))))
    if held is not None:
        calibration(held.calibration, axes.pop(0))
    if report.curves:
        chosen = largest(report)
        logged = {s.name: (s.low, s.high) for s in (report.everyone, *report.segments)}
        curves(chosen, axes[0], logged=logged)
        curves(chosen, axes[1], revenue=True, logged=logged)
        for each in axes:
            each.set_xlabel(f"price ({model.price_})")
        if len(chosen) > 1:
            axes[0].legend(frameon=False, title=report.by[: 2 * SHORT], fontsize=8, title_fontsize=8)
    log = f"{model.log_}, " if model.log_ else ""
    words = (
        title
        or f"{log}{model.family_.name} demand, {model.records_:,} rows (bands and bars: 95%; dotted: prices not seen)"
    )
    figure.suptitle(words, x=0.01, ha="left", fontsize=12)
    return figure


def calibration(tenths: Sequence[Tenth], axes: Axes) -> None:
    """Draw observed over predicted demand in tenths of held-out rows, with 95% intervals."""
    predicted, observed = np.array([t.predicted for t in tenths]), np.array([t.seen for t in tenths])
    reach = np.abs(np.array([[t.seen - t.low for t in tenths], [t.high - t.seen for t in tenths]]))
    low, high = float(min(predicted.min(), observed.min())), float(max(predicted.max(), observed.max()))
    axes.plot([low, high], [low, high], ":", color=REFERENCE, label="perfect")
    axes.errorbar(predicted, observed, yerr=reach, fmt="o", color=COLOURS[0], markersize=4.5, linewidth=1.2, capsize=2)
    axes.set_xlabel("predicted demand")
    axes.set_ylabel("demand seen, rows held out")
    finish(axes)


def curves(
    drawn: Sequence[Curve],
    axes: Axes,
    *,
    revenue: bool = False,
    logged: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Draw mean demand of each segment, or with ``revenue`` price times demand, over the price, with 95% bands.

    Lines are dotted beyond the range of a segment's ``logged`` prices.
    """
    for colour, curve in zip(COLOURS, drawn, strict=False):
        prices = np.array(curve.prices)
        times = prices if revenue else np.ones(len(prices))
        mean, reach = times * np.array(curve.demand), times * BAND * np.array(curve.demand_se)
        low, high = (logged or {}).get(curve.name, (prices[0], prices[-1]))
        inside = np.linspace(max(low, prices[0]), min(high, prices[-1]), 50) if low <= prices[-1] else prices[:0]
        axes.plot(prices, mean, ":", color=colour, linewidth=1.4)
        axes.plot(inside, np.interp(inside, prices, mean), color=colour, linewidth=1.8, label=_short(curve.name))
        if np.isfinite(reach).all():
            axes.fill_between(prices, mean - reach, mean + reach, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlim(drawn[0].prices[0], drawn[0].prices[-1])
    axes.set_xlabel("price")
    axes.set_ylabel("revenue per customer" if revenue else "mean demand")
    finish(axes)


def largest(report: Report) -> list[Curve]:
    """The curves of the largest segments in their order, or of all customers if there are no segments."""
    size = {segment.name: segment.weight for segment in report.segments}
    chosen = sorted(size, key=lambda name: -size[name])[:MAX_DRAWN_SEGMENTS]
    chosen_curves = [curve for curve in report.curves[1:] if curve.name in chosen]
    return chosen_curves or list(report.curves[:1])


def _short(name: str) -> str:
    return name if len(name) <= SHORT else name[: SHORT - 3] + "..."
