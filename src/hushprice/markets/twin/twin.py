"""A twin: a market fitted to a seller's log.

    demand        the fitted model: family, theta = (alpha, beta), and its covariance
    customers     rows of the log, drawn with replacement, each with its cost, segment and today's price
    truth         in replication i of a simulation, theta_i ~ N(theta, covariance)

A twin of a model with a half-life draws rows by their discount, so that its customers are the latest too. A drifting
twin follows the demand of ten consecutive parts of the log, which the model knows as its path.

Results on a twin thus average over the uncertainty of the fitted demand. If the log has more than ``rows`` rows, the
customers are a reproducible uniform sample of them; rows with weights are repeated in proportion to their weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from hushprice.arrays import Array, array
from hushprice.demand import Rules, Terms
from hushprice.errors import LARGEST_VALUE, InvalidInput, finite, positive_int, price_range
from hushprice.fitting import Finding, Source
from hushprice.fitting.diagnosis.findings import at_ends, boundary, extrapolation, percent, severest
from hushprice.kernels.terms import best_prices_on_terms
from hushprice.markets.drifting import drifting
from hushprice.markets.market import Market, Resample
from hushprice.markets.twin.check import TwinCheck, discount_of, replay
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
OF_THE_RANGE = ("boundary-optimum", "extrapolation")  # findings that a twin computes for its own range and costs
ROUNDING = 1e-9  # prices with a smaller relative difference are equal


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """Facts about the log and the model.

    Attributes
    ----------
    log : str
        Name of the log.
    log_rows, left_out : int
        Number of complete rows, and of other rows.
    seen : (float, float)
        Lowest and highest price that the model was fitted to.
    price, outcome, segment : str
        Columns.
    today : str
        Description of today's prices.
    findings : tuple of Finding
        Findings of the model, except those that depend on the price range (see :attr:`Twin.findings`).
    check : TwinCheck or None
        The replay of the log, if the model names the outcome column.
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
    """Origin of a twin.

    Attributes
    ----------
    seen_by : mapping of str to (float, float)
        Lowest and highest observed price per segment.
    model : mapping or None
        The model as plain data.
    """

    seen_by: Mapping[str, Range] = field(default_factory=dict)
    model: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Twin(Market):
    """A market fitted to a log. It contains customers' encoded features and is as confidential as the log.

    Parameters
    ----------
    about : About
        Origin of the twin.
    **options
        Those of :class:`Market`.
    """

    about: About

    def __repr__(self) -> str:
        low, high = self.prices
        moves = "" if self.drift is None else f", {self.drift.text}"
        return (
            f"<Twin of {self.about.log}: {self.family.name} demand, d={self.dim}, {len(self.contexts.rows):,} "
            f"customers, prices {low:g} to {high:g}{moves}>"
        )

    @property
    def costs(self) -> Array:
        """Unit cost per customer."""
        own = self.contexts.costs
        return np.full(len(self.contexts.rows), self.cost) if own is None else own

    @property
    def today(self) -> Array:
        """Today's price per customer."""
        prices: Array = self.contexts.today
        return prices

    def best_prices(self) -> Array:
        """The best allowed price per customer under the fitted demand."""
        a, b = self.contexts.rows @ self.alpha, self.contexts.rows @ self.beta
        terms, best = self._terms, np.empty(len(a))
        best_prices_on_terms(self.family.code, a, b, terms.cost, terms.low, terms.high, terms.ladder, best)
        return best

    def ends(self) -> tuple[Array, Array]:
        """Lowest and highest allowed price per customer."""
        terms = self._terms
        if not terms.ladder.size:
            return terms.low, terms.high
        first = np.searchsorted(terms.ladder, terms.low)
        last = np.searchsorted(terms.ladder, terms.high, side="right") - 1
        return terms.ladder[first], terms.ladder[last]

    def ranges(self) -> dict[str, Range]:
        """Lowest and highest allowed price per segment, or of "everyone" if they are the same for all."""
        lowest, highest = self.ends()
        everyone, index = (float(lowest.min()), float(highest.max())), self.contexts.segments
        if index is None or (lowest.max() == everyone[0] and highest.min() == everyone[1]):
            return {"everyone": everyone}
        first = {self.segments[i]: k for i, k in zip(*np.unique(index, return_index=True), strict=True)}
        return {name: (float(lowest[k]), float(highest[k])) for name, k in first.items()}

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about the model, and about the twin's range, costs, segments and rules, the most severe first."""
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
        """A warning if today's prices are outside the allowed range of many customers, else a note."""
        (lowest, highest), today, ladder = self.ends(), self.today, self._terms.ladder
        slack = ROUNDING * np.abs(today)
        outside = (today < lowest - slack) | (today > highest + slack)
        off = np.zeros_like(outside)
        if ladder.size:
            above = np.searchsorted(ladder, today)
            gaps = [np.abs(today - ladder[i.clip(0, ladder.size - 1)]) for i in (above - 1, above)]
            off = ~outside & (np.minimum(*gaps) > slack)
        where = ((outside, "outside of the prices allowed to them"), (off, "between the prices of the ladder"))
        if sentences := [
            f"{percent(float(rows.mean()))} of customers pay one {words}" for rows, words in where if rows.any()
        ]:
            yield Finding(
                "today-not-allowed", "warning" if outside.mean() > NEGLIGIBLE_SHARE else "note",
                f"Today's prices are not all allowed: {', '.join(sentences)}. What is gained or lost against today's "
                "prices is then partly the price of leaving them.",
            )  # fmt: skip

    @property
    def _terms(self) -> Terms:
        """The terms of all customers."""
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
    drift: bool = False,
) -> Twin:
    """A market from a fitted :class:`~hushprice.fitting.DemandModel` and its log.

    The log is read twice: to sample it, and to replay the logged prices (:func:`check_twin`). The twin contains
    customers' encoded features and is as confidential as the log.

    Parameters
    ----------
    model : DemandModel
        The fitted model.
    log : path, data frame or other log
        The log, as for :func:`hushprice.fit`.
    prices : (float, float), optional
        Price range of the twin. Default: the model's.
    cost : float or str, optional
        Unit cost, or its column in the log. Default: 0.
    today : float, str or mapping, optional
        Today's price, its column, or ``{segment: price}``. Default: the logged price.
    segment, weights : str, optional
        Columns. Default: the model's.
    rules : Rules, optional
        Business rules.
    rows : int
        Most customers to draw from.
    uncertain : bool
        Whether each replication draws its truth from the model's covariance.
    anyway : bool
        Whether to accept a model with findings that forbid setting prices from it.
    drift : bool
        Whether demand moves over a run as it did over the log, from its first rows to its last: see :func:`follow`.

    Returns
    -------
    Twin

    Raises
    ------
    InvalidInput
        If the model is refused, the log has no complete row, or an option does not fit the log.
    """
    if drift and model.path_ is None:
        raise InvalidInput(NO_PATH)
    rows = positive_int("rows", rows)
    column, weights = model.segments_ if segment is None else segment, model.weights_ if weights is None else weights
    refuse(model.findings_, anyway=anyway)
    chosen = price_range(model.prices_ if prices is None else prices)
    source, today = Source.open(log), check_today(today, column)
    unit = cost if cost is None or isinstance(cost, str) else finite("cost", cost, minimum=0.0)
    sample = sample_rows(rows_of(model, source, segment=column, cost=unit, today=today, weights=weights), most=rows)
    if not sample.complete:
        raise InvalidInput(f"No row of {source.name} is complete: each misses a price, an outcome or something else.")
    discount = discount_of(model, sample.seen)
    latest = sample.rows
    if discount is not None:
        latest = replace(latest, w=latest.w * discount.of(latest.number))
    customers = by_weight(latest, rows)
    check = None
    if model.outcome_ is not None:
        again = rows_of(model, source, segment=column, weights=weights)
        check = replay(model, again, sample.rows, segment=column, discount=discount)
    about = About(
        log=source.name,
        log_rows=sample.complete,
        left_out=sample.seen - sample.complete,
        seen=tuple(model.seen_),
        price=model.price_,
        outcome=model.outcome_ or "demand",
        today=_today_description(today, model.price_),
        segment=column,
        seen_by={} if column is None else _seen_by(model, column, sample),
        findings=(
            *(f for f in model.findings_ if f.code not in OF_THE_RANGE),
            *unknown_levels(categories_of(model), sample.unknown, sample.complete),
        ),
        model=model.to_dict(),
        check=check,
    )
    names, contexts = _contexts(customers, unit, column, rules)
    made = Twin(
        name="twin",
        alpha=np.array(model.alpha_),
        beta=np.array(model.beta_),
        family=model.family_,
        prices=chosen,
        cost=0.0 if unit is None or isinstance(unit, str) else unit,
        contexts=contexts,
        rules=rules,
        segments=names,
        names=tuple(model.encoding_.names),
        covariance=_covariance(model) if uncertain else None,
        about=about,
    )
    return follow(made, model.path_) if drift else made


NO_PATH = (
    "The model does not know the course of demand, so that no twin can drift by it: its log had too few rows, or did "
    "not identify every coefficient, or an older hushprice fitted it. Fit it again, or take a twin without drift."
)


def follow(base: Twin, path: Array | None = None) -> Twin:
    """A twin whose demand moves over a run as it did over the log.

    The smoothed theta of each part holds in the middle of its tenth of the run, with straight lines between them. What
    does not tell the moment, such as best prices and findings, is of the start of the run, which is the oldest demand.
    Where the log shows no change of demand, the twin stays as it is but for a note.

    Parameters
    ----------
    base : Twin
        The twin.
    path : ndarray of shape (k, 2 d), optional
        theta of consecutive parts of the log. Default: that of the twin's model.

    Returns
    -------
    Twin
        The drifting twin; a twin that drifts already is returned unchanged.

    Raises
    ------
    InvalidInput
        If the model has no path.
    """
    if base.drift is not None:
        return base
    rows = (base.about.model or {}).get("path") if path is None else path
    if rows is None:
        raise InvalidInput(NO_PATH)
    parts = array("path", rows, shape=(None, 2 * base.dim), limit=LARGEST_VALUE)
    size = np.abs(parts).max(axis=0)
    if (np.ptp(parts, axis=0) <= ROUNDING * size).all():
        text = "The log shows no change of demand, so that the twin does not drift either."
        if (base.about.model or {}).get("half_life") is not None:
            text = (
                "The rows as this model weighs them show no change of demand, so that the twin does not drift either. "
                "To let it drift as demand did over the whole log, fit without a half-life."
            )
        return _noted(base, Finding("no-drift", "note", text))
    middles = (np.arange(len(parts)) + 0.5) / len(parts)
    moments = np.linspace(0.0, 1.0, 2 * len(parts) + 1)
    between = np.array([np.interp(moments, middles, column) for column in parts.T]).T
    text = (
        "Over a run demand moves as it did over the log. Best prices, coefficients and what else does not tell the "
        "moment are of the start of a run, which is the oldest demand."
    )
    return drifting(_noted(base, Finding("drifting-twin", "note", text)), "path", path=between)


def _noted(base: Twin, finding: Finding) -> Twin:
    return replace(base, about=replace(base.about, findings=(*base.about.findings, finding)))


def refuse(findings: Iterable[Finding], *, anyway: bool) -> None:
    """Raise InvalidInput for findings that forbid setting prices, unless ``anyway``."""
    stops = [finding.text for finding in findings if finding.severity == STOP]
    if stops and not anyway:
        raise InvalidInput(
            f"Prices must not be set from this model: {' '.join(stops)} To go on all the same, say anyway (--anyway)."
        )


def _contexts(
    rows: TwinRows, cost: float | str | None, segment: str | None, rules: Rules | None
) -> tuple[tuple[str, ...], Resample]:
    """Names of the segments, and the customers."""
    required = () if rules is None else rules.segments
    if required and segment is None:
        raise InvalidInput(
            f"The rules have segments ({', '.join(required)}): name the column that tells them, as segment."
        )
    names, index = ((), None) if segment is None else segment_index(rows.segment)
    costs = rows.cost if isinstance(cost, str) else None
    return names, Resample(rows.z, costs=costs, segments=index, today=rows.today)


def _covariance(model: Any) -> Array:
    covariance = np.asarray(model.covariance_, dtype=np.float64)
    if not np.isfinite(covariance).all():
        raise InvalidInput(
            "Some coefficients of the model have no finite standard error, so that the truth cannot be drawn around "
            "them: pass uncertain=False, and read the results as those of one guess."
        )
    return covariance


def _seen_by(model: Any, segment: str, sample: Sample) -> dict[str, Range]:
    """Observed price range per segment, from the model's report if it has segments, else from this log."""
    groups = model.report_.segments if model.report_.by == segment else ()
    return {**sample.prices, **{one.name: (one.low, one.high) for one in groups if one.name in sample.prices}}


def _today_description(today: Today, price: str) -> str:
    if today is None:
        return f"the logged price ({price})"
    if isinstance(today, str):
        return f"the column {today}"
    if isinstance(today, Mapping):
        return ", ".join(f"{name}: {value:g}" for name, value in today.items())
    return f"{today:g} for everyone"
