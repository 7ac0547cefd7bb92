"""Rules that report problems of a log and of the model fitted to it.

A finding has a code, a severity and a text. "stop" means that prices must not be set from the model, "warning" that its
answers need a second look, and "note" is for the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.fitting.diagnosis.price_variation import FUNCTION, Places, own_variation
from hushprice.fitting.diagnosis.report import Constancy, Report
from hushprice.fitting.passes.design import Discount

Severity = Literal["stop", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("stop", "warning", "note")

LITTLE = 0.2  # share of own variance of the price below which its effect is hard to identify
RISING = 0.05  # share of customers with rising demand above which to warn
AT_END = 0.1  # share of best prices at an end of the range above which to warn
BEYOND = 0.05  # distance from the logged prices, as a share of their width, that is not yet extrapolation
ODD = 3.0  # a price is odd if it lies so many widths of the middle 98% outside of them
SIGNIFICANT = 1.96  # standard errors from 0 at which an effect is significant
ROWS_PER_COEFFICIENT = 10.0
HEAVY = 2.0  # factor by which the mean weight may differ from 1 without a finding
UNEVEN = 0.1  # ratio of effective rows to rows below which weights are uneven
CHANGE_LEVEL = 0.01  # probability of the finding that demand changed where it did not
SINCE = 4  # the half-life that is advised is so many times shorter than the time since a change
SPREAD_OUT = 1.5  # multiple of a Poisson variance above which to warn
Range = tuple[float, float]


@dataclass(frozen=True)
class Finding:
    """A problem of a log or of a model.

    Attributes
    ----------
    code : str
        Identifier of the rule, such as "no-price-variation".
    severity : {"stop", "warning", "note"}
        How serious it is.
    text : str
        What is wrong and what to do.
    """

    code: str
    severity: Severity
    text: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.text} [{self.code}]"


def severest(findings: Sequence[Finding]) -> list[Finding]:
    """Findings with the most severe first, otherwise in their order."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def outcome_variation(outcome: str, low: float, high: float) -> Iterator[Finding]:
    """Stop if all outcomes are the same."""
    if low == high:
        yield Finding(
            "no-outcome-variation", "stop",
            f"Every row has the same outcome, {outcome} = {low:g}: what moves demand cannot be told from this log. "
            "Does it hold those who did not buy, and is this the column of what was bought?",
        )  # fmt: skip


def two_values(outcome: str, low: float, high: float, family: str) -> Iterator[Finding]:
    """Note that an outcome with two values other than 0 and 1 is taken for an amount."""
    if low < high:
        yield Finding(
            "two-values", "note",
            f"The outcome {outcome} is {low:g} or {high:g} in every row and is taken for an amount ({family} demand). "
            "If it says who bought, write it as 0 and 1.",
        )  # fmt: skip


def price_variation(price: str, low: float, high: float) -> Iterator[Finding]:
    """Stop if all prices are the same."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        yield Finding(
            "no-price-variation", "stop",
            f"Every row has the same price, {price} = {low:g}: what another price would do cannot be told from this "
            "log. Try different prices on some customers, chosen at random, and log them.",
        )  # fmt: skip


def negative_prices(price: str, low: float) -> Iterator[Finding]:
    """Stop if a price is below 0."""
    if low < 0.0:
        yield Finding(
            "negative-price", "stop",
            f"The price {price} goes down to {low:g}, and no price can be below 0. Leave out returns, mend mistakes, "
            "or give the price itself and not a difference of prices.",
        )  # fmt: skip


def odd_prices(price: str, low: float, high: float, first: float, last: float) -> Iterator[Finding]:
    """Warn of prices far outside of the middle 98%, which go from ``first`` to ``last``."""
    width = last - first
    if width > 0.0 and max(first - low, high - last) > ODD * width:
        yield Finding(
            "odd-prices", "warning",
            f"98% of prices lie between {first:g} and {last:g}, but they reach from {low:g} to {high:g}. Check the "
            f"odd ones for mistakes and units, or set the range with prices ({first:g}, {last:g}).",
        )  # fmt: skip


def price_from_features(price: str, z: Array, prices: Array, features: Places) -> Iterator[Finding]:
    """Stop if the price is a function of the features, linear or not; warn if it has little other variation."""
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
    """Stop if some combination of columns predicts the outcomes without error."""
    where = f"Look at {', '.join(culprits)}. " if culprits else ""
    yield Finding(
        "separable", "stop",
        "Some combination of the columns tells outcomes without error, so that the best coefficients are infinite. "
        f"{where}Is a feature known only after the sale? If not, join rare levels, drop the feature or add rows. The "
        "estimate shown is held in bounds by a ridge of 1.",
    )  # fmt: skip


def not_identified(missing: int, coefficients: int, entries: Sequence[str]) -> Iterator[Finding]:
    """Stop if some coefficients are not identified; ``entries`` are their entries of z."""
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
    """Stop if demand rises with the price; warn if the sign is not significant, or if demand rises for some.

    mean, se: the mean price sensitivity and its standard error, infinite if a coefficient is not identified, which
    has a finding of its own; share: share of customers whose fitted demand rises.
    """
    fitted = f"the mean price sensitivity is {mean:.3g} with standard error {se:.2g}"
    some = f" By the estimate, demand rises for {percent(share)} of customers." if share > RISING else ""
    if mean < -SIGNIFICANT * se:
        yield Finding(
            "rising-demand", "stop",
            f"Demand rises with the price: {fitted}. Prices were probably high where demand was high. Add the features "
            "that prices were set by, or log prices varied at random.",
        )  # fmt: skip
    elif mean <= SIGNIFICANT * se < np.inf:
        yield Finding(
            "unsure-price-effect", "warning",
            f"The log does not show whether demand falls or rises with the price: {fitted}, within {SIGNIFICANT} "
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
    """Warn if many best prices are ends of the range.

    ``low`` and ``high`` are the same for all customers or one per customer. The shares are those of :func:`at_ends`;
    ``elasticity`` is that of total demand at the logged prices, NaN if unknown.
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


def slack(logged: Range) -> float:
    """The distance from the logged prices that is not yet extrapolation."""
    return BEYOND * (logged[1] - logged[0])


def beyond(prices: Range, logged: Range) -> bool:
    """Whether a range of prices exceeds the logged prices by more than the slack.

    >>> beyond((1.0, 4.1), (1.0, 4.0)), beyond((1.0, 5.0), (1.0, 4.0))
    (False, True)
    """
    return prices[0] < logged[0] - slack(logged) or prices[1] > logged[1] + slack(logged)


def extrapolation(
    prices: Range, logged: Range, *, by: str = "", segments: Mapping[str, tuple[Range, Range]] | None = None
) -> Iterator[Finding]:
    """Warn if allowed prices exceed the logged prices, of all customers or of a segment.

    ``segments`` maps each segment to its allowed and its logged prices; ``by`` says what the segments are.
    """
    if beyond(prices, logged):
        yield Finding(
            "extrapolation", "warning",
            f"The range {_span(prices)} goes beyond the prices seen, {_span(logged)}. What happens there is the "
            "model's guess. Narrow the range, or try such prices on a few customers first.",
        )  # fmt: skip
        return
    parts = [
        f"{name} {_span(observed)}" + (f" (allowed {_span(allowed)})" if allowed != prices else "")
        for name, (allowed, observed) in (segments or {}).items() if beyond(allowed, observed)
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
    """Note that the price does not improve prediction on held-out rows."""
    if report.held_out and report.held_out.scores[0].loglik <= report.held_out.scores[1].loglik:
        yield Finding(
            "no-gain", "note",
            "On held-out rows, adding the price does not improve prediction: the price effect is small next "
            "to what else moves demand.",
        )  # fmt: skip


def few_rows(events: float, what: str, *, coefficients: int) -> Iterator[Finding]:
    """Warn if there are few rows (or buyers) per coefficient."""
    if events < ROWS_PER_COEFFICIENT * coefficients:
        yield Finding(
            "few-rows", "warning",
            f"There are {events:,.0f} {what} for {coefficients} coefficients; {ROWS_PER_COEFFICIENT:.0f} for each are "
            "a fair minimum. Use fewer features, or let fewer of them change the price sensitivity.",
        )  # fmt: skip


def weights(total: float, rows: int, *, counts: bool) -> Iterator[Finding]:
    """Note that weights count like rows, if that makes a difference; warn if they are not whole numbers."""
    if not rows / HEAVY <= total <= HEAVY * rows:
        yield Finding(
            "weights", "note" if counts else "warning",
            f"The weights add up to {total:,.0f} over {rows:,} rows and count like repeated rows: standard "
            f"errors are those of {total:,.0f} rows. If they are no counts, divide them by their mean, "
            f"{total / rows:.4g}.",
        )  # fmt: skip


def uneven_weights(effective: float, rows: int) -> Iterator[Finding]:
    """Warn if a few rows have nearly all the weight; ``effective`` is (sum w)^2 / sum w^2."""
    if effective < UNEVEN * rows:
        yield Finding(
            "uneven-weights", "warning",
            f"A few rows have nearly all the weight: the {rows:,} rows tell as much as {effective:,.3g} of equal "
            "weight. Check the largest weights for mistakes; unless they count rows, standard errors are too small.",
        )  # fmt: skip


def overdispersed(dispersion: float, mean: float, rows: float) -> Iterator[Finding]:
    """Warn if counts vary more than Poisson ones, by more than three standard errors of the dispersion."""
    if dispersion > max(SPREAD_OUT, 1.0 + 3.0 * float(np.sqrt((2.0 + 1.0 / mean) / rows))):
        yield Finding(
            "overdispersed", "warning",
            f"The variance of the counts is {dispersion:.3g} times that of Poisson ones, so standard errors should be "
            f"about {np.sqrt(dispersion):.2g} times as large as they are told. Add features that tell who buys much, "
            "and take what rests on the standard errors (intervals, the twin's truths) with care.",
        )  # fmt: skip


def changed(found: Constancy, discount: Discount | None) -> Iterator[Finding]:
    """Warn if demand changed in the course of the log; ``discount`` is that of the fit."""
    if found.p_value >= CHANGE_LEVEL:
        return
    since, before, after = found.rows - found.row, found.before, found.after
    span = "" if found.first == 0 else f" among the last {found.rows - found.first:,} rows, which count"
    half_life = max(since // SINCE, 1)  # 0.5^4 at the change, and the test then looks at the rows after it only
    advice = f"follow it with half_life={half_life} (--half-life {half_life}: old rows count less)"
    if discount is not None:
        advice = f"take a shorter half-life, such as {half_life}"
    yield Finding(
        "demand-changed", "warning",
        f"Demand has changed in the course of the log{span}, most likely near row {found.row:,} of {found.rows:,}: "
        f"{', '.join(found.what)}. Where demand is constant this is said once in "
        f"{1.0 / CHANGE_LEVEL:.0f} logs at most (here p {_pvalue(found.p_value)}). From before to after, the average "
        f"customer's demand at {found.mean_price:.4g} went from {before.demand:.3g} to {after.demand:.3g}, the price "
        f"sensitivity from {before.sensitivity:.3g} to {after.sensitivity:.3g} and the best price from "
        f"{before.best_price:.4g} to {after.best_price:.4g}; the old one now loses {percent(max(found.loss, 0.0))} of "
        f"revenue. If the rows are in order of time and this was a jump, fit the rows after {found.row:,} alone. Or "
        f"{advice}, or make a drifting twin (--drift). Prices that changed "
        "do not cause this by themselves, but together with a model that does not fit they can.",
    )  # fmt: skip


def _pvalue(p: float) -> str:
    return f"= {p:.2g}" if p >= 1e-6 else "below 1e-6"


def calibration(report: Report) -> Iterator[Finding]:
    """Warn if the prediction lies outside of the interval of held-out demand in half of the tenths or more."""
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
    """A share as text with two digits."""
    return f"{share:.0%}" if share >= 0.095 else f"{share:.1%}" if share >= 0.00095 else "less than 0.1%"
