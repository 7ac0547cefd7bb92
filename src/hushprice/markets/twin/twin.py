"""A twin: a market calibrated to a seller's own log.

    demand        the fitted model: family, theta = (alpha, beta), and its covariance
    customers     rows of the log, drawn with replacement, each with its cost, segment and today's price
    truth         in replication i of a simulation, theta_i ~ N(theta, covariance): what the log leaves open

so that what a policy earns on it is an average over what the log leaves open, and not over one guess. Where the log is
larger than ``rows`` the customers are a uniform sample of its rows, always the same one; rows with weights are repeated
in proportion to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import Rules, Terms
from hushprice.errors import InvalidInput, finite, positive_int, price_range
from hushprice.fitting import Finding, Source
from hushprice.fitting.diagnosis.findings import at_ends, boundary, extrapolation, percent, severest
from hushprice.kernels.terms import best_prices_on_terms
from hushprice.markets.market import Market, Resample
from hushprice.markets.twin.check import TwinCheck, replay
from hushprice.markets.twin.rows import (
    NEGLIGIBLE_SHARE,
    Range,
    Sample,
    Today,
    TwinRows,
    by_weight,
    categories_of,
    check_today,
    rows_of,
    sample_rows,
    segment_index,
    unknown_levels,
)

STOP = "stop"
OF_THE_RANGE = ("boundary-optimum", "extrapolation")  # findings that a twin makes itself, for its own range and costs
ROUNDING = 1e-9  # so much, relatively, two prices may differ and be the same


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """What is known of the log and the model.

    log: its name; log_rows: complete rows in it; left_out: the others; seen: lowest and highest price that the model
    has seen; price, outcome, segment: columns; today: in words; findings: of the model, but for those that depend on
    the range of prices, which :attr:`Twin.findings` has; check: the replay of the log, if the model knows its outcomes.
    """

    log: str
    log_rows: int
    left_out: int
    seen: Range
    price: str
    outcome: str
    today: str
    segment: str | None = None
    findings: tuple[Finding, ...] = ()
    check: TwinCheck | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class About(Facts):
    """Where a twin comes from. seen_by: the prices seen in each segment; model: itself, as plain data."""

    seen_by: Mapping[str, Range] = field(default_factory=dict)
    model: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Twin(Market):
    """A market calibrated to a log. It holds the customers' encoded features: as confidential as the log itself."""

    about: About

    def __repr__(self) -> str:
        low, high = self.prices
        return (
            f"<Twin of {self.about.log}: {self.family.name} demand, d={self.dim}, {len(self.contexts.rows):,} "
            f"customers, prices {low:g} to {high:g}>"
        )

    @property
    def costs(self) -> Array:
        """The unit cost of each customer it draws from."""
        own = self.contexts.costs
        return np.full(len(self.contexts.rows), self.cost) if own is None else own

    @property
    def today(self) -> Array:
        """Today's price of each customer it draws from."""
        prices: Array = self.contexts.today
        return prices

    def best_prices(self) -> Array:
        """The allowed price that earns most of each customer it draws from, by the fitted demand."""
        a, b = self.contexts.rows @ self.alpha, self.contexts.rows @ self.beta
        terms, best = self._terms, np.empty(len(a))
        best_prices_on_terms(self.family.code, a, b, terms.cost, terms.low, terms.high, terms.ladder, best)
        return best

    def ends(self) -> tuple[Array, Array]:
        """The lowest and the highest allowed price of each customer it draws from."""
        terms = self._terms
        if not terms.ladder.size:
            return terms.low, terms.high
        first = np.searchsorted(terms.ladder, terms.low)
        last = np.searchsorted(terms.ladder, terms.high, side="right") - 1
        return terms.ladder[first], terms.ladder[last]

    def ranges(self) -> dict[str, Range]:
        """The lowest and highest allowed price of each segment, or of "everyone" where that is the same for all."""
        lowest, highest = self.ends()
        everyone, index = (float(lowest.min()), float(highest.max())), self.contexts.segments
        if index is None or (lowest.max() == everyone[0] and highest.min() == everyone[1]):
            return {"everyone": everyone}
        first = {self.segments[i]: k for i, k in zip(*np.unique(index, return_index=True), strict=True)}
        return {name: (float(lowest[k]), float(highest[k])) for name, k in first.items()}

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What to be careful about: findings of the model, and of the twin's own range, costs, segments and rules."""
        (lowest, highest), about = self.ends(), self.about
        everyone = (float(lowest.min()), float(highest.max()))
        allowed, index = self.ranges(), self.contexts.segments
        shares: Any = () if index is None else np.bincount(index, minlength=len(self.segments)) / len(index)
        segments = {
            name: (allowed.get(name, everyone), about.seen_by[name])
            for name, share in zip(self.segments, shares, strict=False)
            if share >= NEGLIGIBLE_SHARE and name in about.seen_by
        }  # fmt: skip
        own = [
            *boundary(*at_ends(self.best_prices(), lowest, highest), lowest, highest),
            *extrapolation(everyone, about.seen, by=about.segment or "", segments=segments),
            *self._today_allowed(),
        ]
        return tuple(severest([*about.findings, *own]))

    def _today_allowed(self) -> Iterator[Finding]:
        """Care if today's prices leave what each customer may be quoted; a note if they are only off the ladder."""
        (lowest, highest), today, ladder = self.ends(), self.today, self._terms.ladder
        slack = ROUNDING * np.abs(today)
        outside = (today < lowest - slack) | (today > highest + slack)
        off = np.zeros_like(outside)
        if ladder.size:
            above = np.searchsorted(ladder, today)
            gaps = [np.abs(today - ladder[i.clip(0, ladder.size - 1)]) for i in (above - 1, above)]
            off = ~outside & (np.minimum(*gaps) > slack)
        where = ((outside, "outside of the prices allowed to them"), (off, "between the prices of the ladder"))
        if told := [
            f"{percent(float(rows.mean()))} of customers pay one {words}" for rows, words in where if rows.any()
        ]:
            yield Finding(
                "today-not-allowed", "warning" if outside.mean() > NEGLIGIBLE_SHARE else "note",
                f"Today's prices are not all allowed: {', '.join(told)}. What is gained or lost against today's prices "
                "is then partly the price of leaving them.",
            )  # fmt: skip

    @property
    def _terms(self) -> Terms:
        """On what terms all the customers it draws from can be quoted."""
        who = self.contexts
        return Terms.of(self.rules, self.prices, len(who.rows), cost=self.costs, segment=who.segments)


def twin(
    model: Any,
    log: Any,
    *,
    prices: tuple[float, float] | None = None,
    cost: float | str | None = None,
    today: Today = None,
    segment: str | None = None,
    weights: str | None = None,
    rules: Rules | None = None,
    rows: int = 100_000,
    uncertain: bool = True,
    anyway: bool = False,
) -> Twin:
    """A market calibrated to a log by a fitted :class:`~hushprice.fitting.DemandModel`.

    prices: the range to price in (the model's unless given); cost: of a unit, a number or a column of the log; today:
    what customers pay now, a column, a number, or ``{segment: price}`` (the logged price unless given); segment,
    weights: columns (the model's unless given); rules: business rules; rows: at most so many customers to draw from;
    uncertain: draw the truth anew in each replication, from the model's covariance; anyway: although the model has
    findings that say prices must not be set from it.

    The log is read twice: to sample it, and to replay the logged prices (:func:`check_twin`).

    The twin holds the customers' encoded features, and is as confidential as the log.
    """
    rows = positive_int("rows", rows)
    column, weights = model.segments_ if segment is None else segment, model.weights_ if weights is None else weights
    refuse(model.findings_, anyway=anyway)
    chosen = price_range(model.prices_ if prices is None else prices)
    source, today = Source.open(log), check_today(today, column)
    unit = cost if cost is None or isinstance(cost, str) else finite("cost", cost, minimum=0.0)
    sample = sample_rows(rows_of(model, source, segment=column, cost=unit, today=today, weights=weights), most=rows)
    if not sample.kept:
        raise InvalidInput(f"No row of {source.name} is complete: each misses a price, an outcome or something else.")
    customers = by_weight(sample.rows, rows)
    check = None
    if model.outcome_ is not None:
        again = rows_of(model, source, segment=column, weights=weights)
        check = replay(model, again, sample.rows, segment=column)
    about = About(
        log=source.name,
        log_rows=sample.kept,
        left_out=sample.seen - sample.kept,
        seen=tuple(model.seen_),
        price=model.price_,
        outcome=model.outcome_ or "demand",
        today=_today_told(today, model.price_),
        segment=column,
        seen_by={} if column is None else _seen_by(model, column, sample),
        findings=(
            *(f for f in model.findings_ if f.code not in OF_THE_RANGE),
            *unknown_levels(categories_of(model), sample.unknown, sample.kept),
        ),
        model=model.to_dict(),
        check=check,
    )
    named, contexts = _contexts(customers, unit, column, rules)
    return Twin(
        name="twin",
        alpha=np.array(model.alpha_),
        beta=np.array(model.beta_),
        family=model.family_,
        prices=chosen,
        cost=0.0 if unit is None or isinstance(unit, str) else unit,
        contexts=contexts,
        rules=rules,
        segments=named,
        names=tuple(model.encoding_.names),
        covariance=_covariance(model) if uncertain else None,
        about=about,
    )


def refuse(findings: Iterable[Finding], *, anyway: bool) -> None:
    """Refuse a model from which prices must not be set, unless told to go on anyway."""
    stops = [finding.text for finding in findings if finding.severity == STOP]
    if stops and not anyway:
        raise InvalidInput(
            f"Prices must not be set from this model: {' '.join(stops)} To go on all the same, say anyway (--anyway)."
        )


def _contexts(
    rows: TwinRows, cost: float | str | None, segment: str | None, rules: Rules | None
) -> tuple[tuple[str, ...], Resample]:
    """The segments' names, and who comes."""
    wanted = () if rules is None else rules.segments
    if wanted and segment is None:
        raise InvalidInput(
            f"The rules have segments ({', '.join(wanted)}): name the column that tells them, as segment."
        )
    named, index = ((), None) if segment is None else segment_index(rows.segment)
    costs = rows.cost if isinstance(cost, str) else None
    return named, Resample(rows.z, costs=costs, segments=index, today=rows.today)


def _covariance(model: Any) -> Array:
    covariance = np.asarray(model.covariance_, dtype=np.float64)
    if not np.isfinite(covariance).all():
        raise InvalidInput(
            "Some coefficients of the model have no finite standard error, so that the truth cannot be drawn around "
            "them: pass uncertain=False, and read the results as those of one guess."
        )
    return covariance


def _seen_by(model: Any, segment: str, sample: Sample) -> dict[str, Range]:
    """The prices seen in each segment: by the model where it tells them, or else in this log."""
    told = model.report_.segments if model.report_.by == segment else ()
    return {**sample.prices, **{one.name: (one.low, one.high) for one in told if one.name in sample.prices}}


def _today_told(today: Today, price: str) -> str:
    if today is None:
        return f"the logged price ({price})"
    if isinstance(today, str):
        return f"the column {today}"
    if isinstance(today, Mapping):
        return ", ".join(f"{name}: {value:g}" for name, value in today.items())
    return f"{today:g} for everyone"
