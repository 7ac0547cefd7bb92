"""A twin: a market calibrated to a seller's own log.

    demand        the fitted model: family, theta = (alpha, beta), and its covariance
    customers     rows of the log, drawn with replacement, each with its cost, segment and today's price
    truth         in replication i of a simulation, theta_i ~ N(theta, covariance): what the log leaves open

so that what a policy earns on it is an average over what the log leaves open, and not over one guess. Where the log is
larger than ``rows`` the customers are a uniform sample of its rows, always the same one; rows with weights are repeated
in proportion to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hushprice.demand import Rules, Terms
from hushprice.errors import Array, InvalidInput, finite, positive_int, price_range
from hushprice.kernels.rules import best_prices_on_terms
from hushprice.logs import Source
from hushprice.markets.market import Market, Resample
from hushprice.markets.twincheck import TwinCheck
from hushprice.markets.twinrows import (
    Rows,
    Today,
    by_weight,
    check_today,
    rows_of,
    sample_rows,
    segment_index,
    weights_of,
)

Findings = tuple[Mapping[str, str], ...]
STOP = "stop"


@dataclass(frozen=True, kw_only=True, eq=False)
class About:
    """Where a twin comes from.

    log: its name; log_rows: complete rows in it; left_out: the others; seen: lowest and highest price in the log;
    price, outcome: its columns; today: in words; findings: of the model (and of the twin) and the model itself, as
    plain data; check: the replay of the log, once it was made.
    """

    log: str
    log_rows: int
    left_out: int
    seen: tuple[float, float]
    price: str
    outcome: str
    today: str
    findings: Findings = ()
    model: Mapping[str, Any] | None = None
    check: TwinCheck | None = None

    def found(self, *codes: str) -> Findings:
        """The findings with one of these codes."""
        return tuple(finding for finding in self.findings if finding["code"] in codes)


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

    def with_check(self, check: TwinCheck) -> Twin:
        """The same twin, with what came of replaying the log."""
        return replace(self, about=replace(self.about, check=check))

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
    """A market calibrated to a log by a fitted :class:`~hushprice.logs.DemandModel`.

    prices: the range to price in (the model's unless given); cost: of a unit, a number or a column of the log; today:
    what customers pay now, a column, a number, or ``{segment: price}`` (the logged price unless given); segment,
    weights: columns (the model's unless given); rules: business rules; rows: at most so many customers to draw from;
    uncertain: draw the truth anew in each replication, from the model's covariance; anyway: although the model has
    findings that say prices must not be set from it.

    The twin holds the customers' encoded features, and is as confidential as the log.
    """
    rows = positive_int("rows", rows)
    column = model.segments_ if segment is None else segment
    findings = tuple({"code": f.code, "severity": f.severity, "text": f.text} for f in model.findings_)
    refuse(findings, anyway=anyway)
    chosen = price_range(model.prices_ if prices is None else prices)
    source, today = Source.open(log), check_today(today, column)
    unit = cost if cost is None or isinstance(cost, str) else finite("cost", cost, minimum=0.0)
    sample = sample_rows(
        rows_of(model, source, segment=column, cost=unit, today=today, weights=weights_of(model, weights)), most=rows
    )
    if not sample.kept:
        raise InvalidInput(f"No row of {source.name} is complete: each misses a price, an outcome or something else.")
    customers = by_weight(sample.rows, rows)
    about = About(
        log=source.name,
        log_rows=sample.kept,
        left_out=sample.seen - sample.kept,
        seen=tuple(model.seen_),
        price=model.price_,
        outcome=model.outcome_ or "demand",
        today=_today_told(today, model.price_),
        findings=findings + _beyond(chosen, model),
        model=model.to_dict(),
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


def refuse(findings: Iterable[Mapping[str, str]], *, anyway: bool) -> None:
    """Refuse a model from which prices must not be set, unless told to go on anyway."""
    stops = [finding["text"] for finding in findings if finding["severity"] == STOP]
    if stops and not anyway:
        raise InvalidInput(
            f"Prices must not be set from this model: {' '.join(stops)} To go on all the same, say anyway (--anyway)."
        )


def _contexts(
    rows: Rows, cost: float | str | None, segment: str | None, rules: Rules | None
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


def _beyond(prices: tuple[float, float], model: Any) -> Findings:
    """A finding of the twin's own, if its prices leave those seen and the model does not say so already."""
    (low, high), (lowest, highest) = prices, model.seen_
    told = any(f.code == "extrapolation" for f in model.findings_) and prices == tuple(model.prices_)
    reach = max(lowest - low, high - highest)
    if told or reach <= 1e-9 * max(1.0, abs(highest)) or not math.isfinite(reach):
        return ()
    text = (
        f"The prices [{low:g}, {high:g}] leave those seen, [{lowest:g}, {highest:g}]: what happens out there is the "
        f"model's guess."
    )
    return ({"code": "extrapolation", "severity": "care", "text": text},)


def _today_told(today: Today, price: str) -> str:
    if today is None:
        return f"the logged price ({price})"
    if isinstance(today, str):
        return f"the column {today}"
    if isinstance(today, Mapping):
        return ", ".join(f"{name}: {value:g}" for name, value in today.items())
    return f"{today:g} for everyone"
