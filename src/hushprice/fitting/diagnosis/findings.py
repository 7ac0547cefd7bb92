"""What a good analyst would say of a log before prices are set from it.

A finding has a code, a severity and a text in plain words. "stop" means that prices must not be set from the model,
"warning" that its answers need a second look, "note" is for the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.fitting.diagnosis.price_variation import FUNCTION, Places, own_variation
from hushprice.fitting.diagnosis.report import Report

Severity = Literal["stop", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("stop", "warning", "note")

LITTLE = 0.2  # with less than this, there is little to tell its effect apart by
RISING = 0.05  # share of customers with rising demand that needs a warning
AT_END = 0.1  # share of best prices at an end of the range that needs a warning
BEYOND = 0.05  # of the width of the prices seen: so far beyond them is not extrapolation yet
ODD = 3.0  # a price so many widths of the middle 98% outside of them is odd
SIGNIFICANT = 1.96  # standard errors from 0 at which an effect is taken to be there
ROWS_PER_COEFFICIENT = 10.0
HEAVY = 2.0  # weights whose mean is beyond this factor of 1 make another log of it
UNEVEN = 0.1  # share of the rows that the effective rows are, below which weights are uneven
SPREAD_OUT = 1.5  # multiple of a Poisson variance that needs a warning
Range = tuple[float, float]


@dataclass(frozen=True)
class Finding:
    """Something found in a log or a model."""

    code: str
    severity: Severity
    text: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.text} [{self.code}]"


def severest(findings: Sequence[Finding]) -> list[Finding]:
    """Findings with the most severe first, otherwise in their order."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def outcome_variation(outcome: str, low: float, high: float) -> Iterator[Finding]:
    """Stops at a log with one outcome."""
    if low == high:
        yield Finding(
            "no-outcome-variation", "stop",
            f"Every row has the same outcome, {outcome} = {low:g}: what moves demand cannot be told from this log. "
            "Does it hold those who did not buy, and is this the column of what was bought?",
        )  # fmt: skip


def two_values(outcome: str, low: float, high: float, family: str) -> Iterator[Finding]:
    """Notes that an outcome of two values is not taken for yes and no."""
    if low < high:
        yield Finding(
            "two-values", "note",
            f"The outcome {outcome} is {low:g} or {high:g} in every row and is taken for an amount ({family} demand). "
            "If it says who bought, write it as 0 and 1.",
        )  # fmt: skip


def price_variation(price: str, low: float, high: float) -> Iterator[Finding]:
    """Stops at a log with one price."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        yield Finding(
            "no-price-variation", "stop",
            f"Every row has the same price, {price} = {low:g}: what another price would do cannot be told from this "
            "log. Try different prices on some customers, chosen at random, and log them.",
        )  # fmt: skip


def negative_prices(price: str, low: float) -> Iterator[Finding]:
    """Stops at prices below 0."""
    if low < 0.0:
        yield Finding(
            "negative-price", "stop",
            f"The price {price} goes down to {low:g}, and no price can be below 0. Leave out returns, mend mistakes, "
            "or give the price itself and not a difference of prices.",
        )  # fmt: skip


def odd_prices(price: str, low: float, high: float, first: float, last: float) -> Iterator[Finding]:
    """Care for prices far outside of the middle 98%, from ``first`` to ``last``."""
    width = last - first
    if width > 0.0 and max(first - low, high - last) > ODD * width:
        yield Finding(
            "odd-prices", "warning",
            f"98% of prices lie between {first:g} and {last:g}, but they reach from {low:g} to {high:g}. Check the "
            f"odd ones for mistakes and units, or set the range with prices ({first:g}, {last:g}).",
        )  # fmt: skip


def price_from_features(price: str, z: Array, prices: Array, features: Places) -> Iterator[Finding]:
    """Stops at a price that is a function of the features, linear or not; warns if it has little other variation."""
    share, how = own_variation(z, prices, features)
    if share < FUNCTION:
        yield Finding(
            "price-from-features", "stop",
            f"The price {price} follows from the features ({how}): knowing them leaves {percent(share)} of its "
            "variance, so its effect cannot be told apart from theirs. Leave out features that only set the price, or "
            "log prices that were varied at random.",
        )  # fmt: skip
    elif share < LITTLE:
        yield Finding(
            "price-from-features", "warning",
            f"The features tell most of the price {price} ({how}): {percent(share)} of its variance is its own. "
            "The price effect rests on that part, so make sure that it was chosen at random and not for a reason that "
            "also moves demand.",
        )  # fmt: skip


def separable(culprits: Sequence[str]) -> Iterator[Finding]:
    """Stops at a log where some combination of columns tells the outcomes without error."""
    where = f"Look at {', '.join(culprits)}. " if culprits else ""
    yield Finding(
        "separable", "stop",
        "Some combination of the columns tells outcomes without error, so that the best coefficients are infinite. "
        f"{where}Is a feature known only after the sale? If not, join rare levels, drop the feature or add rows. The "
        "estimate shown is held in bounds by a ridge of 1.",
    )  # fmt: skip


def not_identified(missing: int, coefficients: int, entries: Sequence[str]) -> Iterator[Finding]:
    """Stops when some coefficients cannot be told apart: those of these entries of z."""
    if missing > 0:
        more = f" and {len(entries) - 10} more" if len(entries) > 10 else ""
        yield Finding(
            "not-identified", "stop",
            f"{missing} of {coefficients} coefficients cannot be told apart by this log. Involved are "
            f"{', '.join(entries[:10])}{more}: some of them say the same, or their effect on the price sensitivity "
            "never shows. Leave out columns that say the same, or let fewer of them change the price sensitivity "
            "(sensitivity='none'). A ridge of 1 holds the estimate.",
        )  # fmt: skip


def demand_falls(mean: float, se: float, share: float) -> Iterator[Finding]:
    """Stops if demand surely rises with the price; warns if its sign is not sure, or if demand rises for some.

    mean, se: the mean price sensitivity with its standard error, infinite where a coefficient is not identified, which
    is a finding of its own; share: of the customers whose fitted demand rises.
    """
    told = f"the mean price sensitivity is {mean:.3g} with standard error {se:.2g}"
    some = f" By the estimate, demand rises for {percent(share)} of customers." if share > RISING else ""
    if mean < -SIGNIFICANT * se:
        yield Finding(
            "rising-demand", "stop",
            f"Demand rises with the price: {told}. Prices were probably high where demand was high. Add the features "
            "that prices were set by, or log prices varied at random.",
        )  # fmt: skip
    elif mean <= SIGNIFICANT * se < np.inf:
        yield Finding(
            "unsure-price-effect", "warning",
            f"The log does not show whether demand falls or rises with the price: {told}, within {SIGNIFICANT} "
            f"standard errors of 0. Best prices are a guess: do not set them without a trial.{some} More rows, or "
            "prices that vary more, would tell.",
        )  # fmt: skip
    elif share > RISING:
        yield Finding(
            "rising-demand", "warning",
            f"For {percent(share)} of customers the fitted demand rises with the price, and their best price is the "
            "highest there is. Let fewer features change the price sensitivity (sensitivity='none' for none).",
        )  # fmt: skip


def at_ends(best: Array, low: Array, high: Array, weights: Array | None = None) -> tuple[float, float]:
    """Shares of customers whose best price is the lowest, and the highest, that they may be quoted.

    Customers who may be quoted one price only are in neither share.

    >>> at_ends(np.array([1.0, 2.0, 3.0, 3.0]), np.ones(4), np.full(4, 3.0))
    (0.25, 0.5)
    """
    w = np.ones(len(best)) if weights is None else weights
    free, total = w * (low < high), w.sum()
    return float(free @ (best <= low) / total), float(free @ (best >= high) / total)


def boundary(
    at_low: float, at_high: float, low: npt.ArrayLike, high: npt.ArrayLike, *, elasticity: float = np.nan
) -> Iterator[Finding]:
    """Care if many best prices are ends of the range; ``low`` and ``high`` are everyone's, or each customer's own.

    The shares are those of :func:`at_ends`, the elasticity that of all demand at the prices seen, if it is known.
    """
    if at_low + at_high <= AT_END:
        return
    ends = {"lowest": (at_low, np.unique(low)), "highest": (at_high, np.unique(high))}
    parts = [
        f"{percent(share)} at {prices[0]:g}" if len(prices) == 1 else f"{percent(share)} at the {end} of their segment"
        for end, (share, prices) in ends.items() if share > 0.0
    ]  # fmt: skip
    why = ""
    if at_high > at_low and -1.0 < elasticity < 0.0:
        why = f" Demand is inelastic ({elasticity:.2f}): a higher price loses less than it earns."
    yield Finding(
        "boundary-optimum", "warning",
        f"For {percent(at_low + at_high)} of customers the best price is an end of the range ({', '.join(parts)}), so "
        f"that the range decides and not the model.{why} Make sure that its ends are meant.",
    )  # fmt: skip


def slack(seen: Range) -> float:
    """How far beyond the prices seen is not extrapolation yet."""
    return BEYOND * (seen[1] - seen[0])


def beyond(prices: Range, seen: Range) -> bool:
    """Whether a range of prices leaves those seen by more than the slack.

    >>> beyond((1.0, 4.1), (1.0, 4.0)), beyond((1.0, 5.0), (1.0, 4.0))
    (False, True)
    """
    return prices[0] < seen[0] - slack(seen) or prices[1] > seen[1] + slack(seen)


def extrapolation(
    prices: Range, seen: Range, *, by: str = "", segments: Mapping[str, tuple[Range, Range]] | None = None
) -> Iterator[Finding]:
    """Care if allowed prices go beyond those seen, everyone's or a segment's.

    ``segments`` gives the prices allowed and the prices seen in each, ``by`` is what tells segments apart.
    """
    if beyond(prices, seen):
        yield Finding(
            "extrapolation", "warning",
            f"The range {_span(prices)} goes beyond the prices seen, {_span(seen)}. What happens there is the model's "
            "guess. Narrow the range, or try such prices on a few customers first.",
        )  # fmt: skip
        return
    parts = [
        f"{name} {_span(known)}" + (f" (allowed {_span(allowed)})" if allowed != prices else "")
        for name, (allowed, known) in (segments or {}).items() if beyond(allowed, known)
    ]  # fmt: skip
    if parts:
        more = f" and {len(parts) - 5} more" if len(parts) > 5 else ""
        yield Finding(
            "extrapolation", "warning",
            f"The range {_span(prices)} goes beyond the prices seen in some segments ({by}): {', '.join(parts[:5])}"
            f"{more}. What happens beyond is the model's guess there.",
        )  # fmt: skip


def _span(prices: Range) -> str:
    return f"{prices[0]:g} to {prices[1]:g}"


def no_gain(report: Report) -> Iterator[Finding]:
    """Notes that the price does not improve prediction on held-out rows."""
    if report.held_out and report.held_out.scores[0].loglik <= report.held_out.scores[1].loglik:
        yield Finding(
            "no-gain", "note",
            "On held-out rows, adding the price does not improve prediction: the price effect is small next "
            "to what else moves demand.",
        )  # fmt: skip


def few_rows(events: float, what: str, *, coefficients: int) -> Iterator[Finding]:
    """Care if there are few rows (or buyers) for each coefficient."""
    if events < ROWS_PER_COEFFICIENT * coefficients:
        yield Finding(
            "few-rows", "warning",
            f"There are {events:,.0f} {what} for {coefficients} coefficients; {ROWS_PER_COEFFICIENT:.0f} for each are "
            "a fair minimum. Use fewer features, or let fewer of them change the price sensitivity.",
        )  # fmt: skip


def weights(total: float, rows: int, *, counts: bool) -> Iterator[Finding]:
    """Notes that weights count like rows, where that makes a difference; warns if they are not whole numbers."""
    if not rows / HEAVY <= total <= HEAVY * rows:
        yield Finding(
            "weights", "note" if counts else "warning",
            f"The weights add up to {total:,.0f} over {rows:,} rows and count like repeated rows: standard "
            f"errors are those of {total:,.0f} rows. If they are no counts, divide them by their mean, "
            f"{total / rows:.4g}.",
        )  # fmt: skip


def uneven_weights(effective: float, rows: int) -> Iterator[Finding]:
    """Care if a few rows have nearly all the weight: (sum w)^2 / sum w^2 is the effective number of rows."""
    if effective < UNEVEN * rows:
        yield Finding(
            "uneven-weights", "warning",
            f"A few rows have nearly all the weight: the {rows:,} rows tell as much as {effective:,.3g} of equal "
            "weight. Check the largest weights for mistakes; unless they count rows, standard errors are too small.",
        )  # fmt: skip


def overdispersed(dispersion: float, mean: float, rows: int) -> Iterator[Finding]:
    """Care if counts surely vary more than Poisson ones; three standard errors of the dispersion are chance."""
    if dispersion > max(SPREAD_OUT, 1.0 + 3.0 * float(np.sqrt((2.0 + 1.0 / mean) / rows))):
        yield Finding(
            "overdispersed", "warning",
            f"The variance of the counts is {dispersion:.3g} times that of Poisson ones, so standard errors should be "
            f"about {np.sqrt(dispersion):.2g} times as large as they are told. Add features that tell who buys much, "
            "and take what rests on the standard errors (intervals, the twin's truths) with care.",
        )  # fmt: skip


def calibration(report: Report) -> Iterator[Finding]:
    """Care if held-out demand lies outside of its interval in half of the tenths or more."""
    tenths = report.held_out.calibration if report.held_out else ()
    wrong = sum(not tenth.agrees for tenth in tenths)
    if len(tenths) >= 5 and 2 * wrong >= len(tenths):
        yield Finding(
            "calibration", "warning",
            f"Predicted demand lies outside of the 95% interval of the demand seen in {wrong} of {len(tenths)} groups "
            "of held-out rows. The family or the features do not fit: try another family, or add features. Counts "
            "that vary more than Poisson ones do this too; standard errors are then too small.",
        )  # fmt: skip


def percent(share: float) -> str:
    """A share in words, with two digits."""
    return f"{share:.0%}" if share >= 0.095 else f"{share:.1%}" if share >= 0.00095 else "less than 0.1%"
