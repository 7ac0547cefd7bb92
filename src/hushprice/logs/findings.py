"""What a good analyst would say of a log before prices are set from it.

A finding has a code, a severity and a text in plain words. "stop" means that prices must not be set from the model,
"care" that its answers need a second look, "note" is for the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from scipy.spatial import cKDTree

from hushprice.errors import Array
from hushprice.logs.diagnostics import Report, Segment

Severity = Literal["stop", "care", "note"]
SEVERITIES: tuple[Severity, ...] = ("stop", "care", "note")

FUNCTION = 0.01  # a price with less variance of its own than this share is a function of the features
LITTLE = 0.2  # with less than this, there is little to tell its effect apart by
RISING = 0.05  # share of customers with rising demand that needs care
AT_END = 0.1  # share of best prices at an end of the range that needs care
BEYOND = 0.05  # of the width of the prices seen: so far beyond them is not extrapolation yet
ODD = 3.0  # a price so many widths of the middle 98% outside of them is odd
SURE = 1.96  # standard errors from 0 at which an effect is taken to be there
ROWS_PER_COEFFICIENT = 10.0
NEIGHBOURS, ASKED = 20_000, 2_000  # rows among which neighbours are sought, and for how many of them
PAIRS = 12  # features up to which every pair is looked at
Places = Mapping[str, Sequence[int]]  # of each feature's entries in z


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
            "odd-prices", "care",
            f"98% of prices lie between {first:g} and {last:g}, but they reach from {low:g} to {high:g}. Check the "
            f"odd ones for mistakes and units, or set the range with prices ({first:g}, {last:g}).",
        )  # fmt: skip


def price_from_features(price: str, z: Array, prices: Array, features: Places) -> Iterator[Finding]:
    """Stops at a price that is a function of the features, linear or not; care if little else is in it."""
    share, how = own_variation(z, prices, features)
    if share < FUNCTION:
        yield Finding(
            "price-from-features", "stop",
            f"The price {price} follows from the features ({how}): knowing them leaves {_percent(share)} of its "
            "variance, so its effect cannot be told apart from theirs. Leave out features that only set the price, or "
            "log prices that were varied at random.",
        )  # fmt: skip
    elif share < LITTLE:
        yield Finding(
            "price-from-features", "care",
            f"The features tell most of the price {price} ({how}): {_percent(share)} of its variance is its own. "
            "The price effect rests on that part, so make sure that it was chosen at random and not for a reason that "
            "also moves demand.",
        )  # fmt: skip


def own_variation(z: Array, prices: Array, features: Places) -> tuple[float, str]:
    """The share of the price's variance that the features do not tell, as the least of several views, and which one.

    Views: least squares on z, and the price of each row next to those of its neighbours in z: half the mean square of
    the difference to the nearest one, or the error of a plane through several (as in the Gamma test of Stefánsson,
    Končar and Jones, 1997). Where there is a suspicion, neighbours in every feature and pair of features too, since
    in many dimensions nobody is near.

    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2_000)
    >>> z = np.column_stack([np.ones(2_000), x])
    >>> own_variation(z, np.where(x > 0, 2.0, 3.0), {"x": [1]})[0] < 0.01
    True
    >>> own_variation(z, rng.uniform(1, 2, 2_000), {"x": [1]})[0] > 0.8
    True
    """
    rng = np.random.default_rng(0)  # neighbours must not depend on the order of the log
    some = rng.permutation(len(z))[:NEIGHBOURS]
    z, prices = z[some], prices[some]
    variance = float(prices.var())
    if variance == 0.0 or not features:
        return 1.0, "no features"
    fitted, _, rank, _ = np.linalg.lstsq(z, prices, rcond=None)
    freedom = len(z) - int(rank)
    if freedom < 10:
        return 1.0, "too few rows to tell"
    views = {"a linear formula": float(((prices - z @ fitted) ** 2).sum() / freedom / variance)}
    everything = [j for places in features.values() for j in places]
    views["all features together"] = _between_neighbours(z[:, everything], prices, rng) / variance
    if FUNCTION <= min(views.values()) < 0.5 and len(features) <= PAIRS:
        for count in (1, 2):
            for names in combinations(features, count):
                columns = [j for name in names for j in features[name]]
                views[" and ".join(names)] = _between_neighbours(z[:, columns], prices, rng) / variance
    how = min(views, key=lambda view: views[view])
    return min(views[how], 1.0), how


def _between_neighbours(x: Array, prices: Array, rng: np.random.Generator) -> float:
    """The variance of prices among neighbours in x; indicators keep levels apart, ties are broken at random."""
    indicator = ((x == 0.0) | (x == 1.0)).all(axis=0)
    points = np.where(indicator, 4.0 * x, x) + 1e-7 * rng.standard_normal(x.shape)
    numbers = x[:, ~indicator]
    count = min(len(x) - 1, max(8, 2 * (numbers.shape[1] + 1)))
    asked = min(ASKED, len(x))
    near = np.asarray(cKDTree(points).query(points[:asked], k=count + 1)[1])[:, 1:]
    half = 0.5 * float(np.mean((prices[:asked] - prices[near[:, 0]]) ** 2))
    if not 1 <= numbers.shape[1] <= 10:
        return half
    planes = np.dstack([np.ones((asked, count, 1)), numbers[near] - numbers[:asked, None, :]])
    foretold = (np.linalg.pinv(planes, rcond=1e-6)[:, 0, :] * prices[near]).sum(axis=1)
    return min(half, float(np.mean((prices[:asked] - foretold) ** 2)))


def separable(culprits: Sequence[str]) -> Iterator[Finding]:
    """Stops at a log where some combination of columns tells the outcomes without error."""
    where = f"Look at {', '.join(culprits)}. " if culprits else ""
    yield Finding(
        "separable", "stop",
        "Some combination of the columns tells outcomes without error, so that the best coefficients are infinite. "
        f"{where}Is a feature known only after the sale? If not, join rare levels, drop the feature or add rows. The "
        "estimate shown is held in bounds by a ridge of 1.",
    )  # fmt: skip


def not_identified(missing: int, coefficients: int) -> Iterator[Finding]:
    """Stops when some coefficients cannot be told apart."""
    if missing > 0:
        yield Finding(
            "not-identified", "stop",
            f"{missing} of {coefficients} coefficients cannot be told apart by this log: some columns are sums of "
            "others, or their effect on the price sensitivity never shows. Leave out columns that say the same, or let "
            "fewer of them change the price sensitivity (sensitivity='none'). A ridge of 1 holds the estimate.",
        )  # fmt: skip


def demand_falls(report: Report) -> Iterator[Finding]:
    """Stops if demand rises with the price on the whole; care if it does for some, or if the effect is not sure."""
    mean, se, share = report.sensitivity, report.sensitivity_se, report.everyone.rising
    interval = f"{mean:.3g} with standard error {se:.2g}"
    if mean <= 0.0:
        yield Finding(
            "rising-demand", "stop",
            f"Demand does not fall with the price: the mean price sensitivity is {interval}. Prices were probably high "
            "where demand was high. Add the features that prices were set by, or log prices varied at random.",
        )  # fmt: skip
        return
    if share > RISING:
        yield Finding(
            "rising-demand", "care",
            f"For {_percent(share)} of customers the fitted demand rises with the price, and their best price is the "
            "highest there is. Let fewer features change the price sensitivity (sensitivity='none' for none).",
        )  # fmt: skip
    if not mean > SURE * se:
        yield Finding(
            "unsure-price-effect", "care",
            f"The price effect is not surely there: the mean price sensitivity is {interval}, within {SURE} standard "
            "errors of 0. Best prices from it are a guess. More rows, or prices that vary more, would tell.",
        )  # fmt: skip


def boundary(report: Report, prices: tuple[float, float]) -> Iterator[Finding]:
    """Care if many best prices lie at an end of the range."""
    low, high = report.everyone.at_low, report.everyone.at_high
    if low + high > AT_END:
        parts = [f"{_percent(s)} at {end:g}" for s, end in zip((low, high), prices, strict=True) if s > 0.0]
        why = ""
        if high > low and report.everyone.elasticity > -1.0:
            why = f" Demand is inelastic ({report.everyone.elasticity:.2f}): a higher price loses less than it earns."
        yield Finding(
            "boundary-optimum",
            "care",
            f"For {_percent(low + high)} of customers the best price is an end of the range ({', '.join(parts)}), so "
            f"that the range decides and not the model.{why} Make sure that its ends are meant.",
        )  # fmt: skip


def extrapolation(report: Report, prices: tuple[float, float]) -> Iterator[Finding]:
    """Care if the range asked for goes beyond the prices seen, by everyone or in a segment."""
    if _beyond(report.everyone, prices):
        seen = f"{report.everyone.low:g} to {report.everyone.high:g}"
        yield Finding(
            "extrapolation", "care",
            f"The range {prices[0]:g} to {prices[1]:g} goes beyond the prices seen, {seen}. What happens there is the "
            "model's guess. Narrow the range, or try such prices on a few customers first.",
        )  # fmt: skip
        return
    parts = [f"{s.name} {s.low:g} to {s.high:g}" for s in report.segments if _beyond(s, prices)]
    if parts:
        more = f" and {len(parts) - 5} more" if len(parts) > 5 else ""
        yield Finding(
            "extrapolation", "care",
            f"The range {prices[0]:g} to {prices[1]:g} goes beyond the prices seen in some segments ({report.by}): "
            f"{', '.join(parts[:5])}{more}. What happens beyond is the model's guess there.",
        )  # fmt: skip


def _beyond(seen: Segment, prices: tuple[float, float]) -> bool:
    slack = BEYOND * (seen.high - seen.low)
    return prices[0] < seen.low - slack or prices[1] > seen.high + slack


def no_gain(report: Report) -> Iterator[Finding]:
    """Notes that the price does not help to foretell held-out rows."""
    if report.held_out and report.held_out.scores[0].loglik <= report.held_out.scores[1].loglik:
        yield Finding(
            "no-gain", "note",
            "On held-out rows the model foretells no better than one without the price: the price effect is small next "
            "to what else moves demand.",
        )  # fmt: skip


def few_rows(events: float, what: str, *, coefficients: int) -> Iterator[Finding]:
    """Care if there are few rows (or buyers) for each coefficient."""
    if events < ROWS_PER_COEFFICIENT * coefficients:
        yield Finding(
            "few-rows", "care",
            f"There are {events:,.0f} {what} for {coefficients} coefficients; {ROWS_PER_COEFFICIENT:.0f} for each are "
            "a fair minimum. Use fewer features, or let fewer of them change the price sensitivity.",
        )  # fmt: skip


def calibration(report: Report) -> Iterator[Finding]:
    """Care if held-out demand lies outside of its interval in half of the tenths or more."""
    tenths = report.held_out.calibration if report.held_out else ()
    wrong = sum(not tenth.agrees for tenth in tenths)
    if len(tenths) >= 5 and 2 * wrong >= len(tenths):
        yield Finding(
            "calibration", "care",
            f"Predicted demand lies outside of the 95% interval of the demand seen in {wrong} of {len(tenths)} groups "
            "of held-out rows. The family or the features do not fit: try another family, or add features. Counts "
            "that vary more than Poisson ones do this too; standard errors are then too small.",
        )  # fmt: skip


def notes(
    *, left_out: Mapping[str, int], rows: int, constant: Sequence[str], missing: Mapping[str, int],
    joined: Mapping[str, int],
) -> Iterator[Finding]:  # fmt: skip
    """What was done with rows and columns, for the record."""
    if gone := {reason: count for reason, count in left_out.items() if count}:
        parts = ", ".join(f"{count:,} {reason}" for reason, count in gone.items())
        total = sum(gone.values())
        severity: Severity = "care" if total > 0.2 * (rows + total) else "note"
        yield Finding("rows-left-out", severity, f"{total:,} of {rows + total:,} rows were left out: {parts}.")
    if constant:
        yield Finding(
            "constant-feature", "note", f"Left out, as they are the same in every row: {', '.join(constant)}."
        )
    if missing:
        parts = ", ".join(f"{name} in {count:,}" for name, count in missing.items())
        yield Finding(
            "missing-values", "note",
            f"Missing values ({parts} rows) took the mean, with an indicator where 1% or more are missing; a missing "
            "category is a level of its own.",
        )  # fmt: skip
    if joined:
        parts = ", ".join(f"{name} ({count:,} rows)" for name, count in joined.items())
        yield Finding("joined-levels", "note", f"Rare levels were joined into '(other)': {parts}.")


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.095 else f"{share:.1%}" if share >= 0.00095 else "less than 0.1%"
