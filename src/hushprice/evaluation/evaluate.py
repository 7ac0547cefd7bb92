"""What another policy would have earned from the customers of a log: V = E[(pi(z) - c) psi'(z, pi(z))]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import Family, Rules, as_family
from hushprice.errors import InvalidInput, finite
from hushprice.evaluation import findings, targets
from hushprice.evaluation.customers import Contexts, Customers, read
from hushprice.evaluation.estimators import CrossFit, Estimate, Scores, Weighed, compare, cross_fit
from hushprice.evaluation.propensity import Propensities
from hushprice.evaluation.propensity_source import Experiment
from hushprice.evaluation.result import Evaluation
from hushprice.evaluation.targets import Target
from hushprice.fitting import DemandModel, Outcomes
from hushprice.fitting.diagnosis.findings import Finding, severest
from hushprice.fitting.reading.source import Log, Source

BANDWIDTH_FACTOR = 3.0  # of h = BANDWIDTH_FACTOR sd(p) n^(-1/3)
MIN_ROWS = 50  # rows to estimate from


def evaluate(
    log: Log,
    policy: Any,
    *,
    price: str = "price",
    outcome: str = "outcome",
    propensity: str | None = "propensity",
    discrete: str | bool = "discrete",
    features: Sequence[str] | None = None,
    model: DemandModel | str | Path | None = None,
    randomised_within: Sequence[str] = (),
    uniform: tuple[float, float] | None = None,
    segment: str | None = None,
    cost: float | str = 0.0,
    prices: tuple[float, float] | None = None,
    rules: Rules | None = None,
    family: Family | str = "auto",
    bandwidth: float | None = None,
    worth: float = 1.0,
) -> Evaluation:
    """Estimate the profit per customer that a policy would have made, from a log of other prices.

    log: a path, data frame, Arrow table or mapping; the columns needed are read into memory. policy: see
    :mod:`hushprice.evaluation.targets`. price, outcome: their columns.

    How likely the logged prices were is one of: the column ``propensity``, a density, or a probability where the
    column ``discrete`` says so (or ``discrete`` is True); ``randomised_within``, columns within whose strata prices
    were drawn at random; ``uniform``, the range from which all were drawn evenly. Without any of these it cannot be
    done. Prices that were not drawn (probability 1) or whose propensity is not known are left out, and the customers
    who got them are taken to be like the others.

    features: number columns that the demand regression of the doubly robust estimate, and the policy, take as context,
    with a 1 before them; or model: a fitted :class:`DemandModel` or its file, whose encoding is taken. Default: the
    columns z0, z1, ... of a simulated log, or none. segment: the column by which the range of prices differs. cost: a
    unit cost, or its column. prices: the range of the policy's prices. rules: business rules that the best prices by a
    model must meet, but for the largest step, which depends on who came before. family: of the regression, found from
    the outcomes by default.

    bandwidth: h, the distance over which demand at one price stands for demand at another. By default
    h = 3 sd(p) n^(-1/3): bias, of the order of h^2, then goes to zero faster than the standard error, of the order
    of (n h)^(-1/2), so that intervals keep their coverage. With 0, logged prices from a ladder are only compared
    with equal ones. worth: what one unit of price times demand is in money.

    References: Kallus & Zhou (2018), Policy Evaluation and Optimization with Continuous Treatments; Colangelo & Lee
    (2020).

    >>> rng = np.random.default_rng(1)
    >>> p = rng.uniform(0, 2, 4000)
    >>> sold = rng.random(4000) < 1 - p / 2
    >>> found = evaluate({"price": p, "outcome": sold}, "fixed-price:price=1", uniform=(0, 2))
    >>> print(f"{found.best.value:.2f} plus or minus {1.96 * found.best.se:.2f}")   # 0.5 in truth; logged: 0.33
    0.48 plus or minus 0.05
    """
    source = Source.open(log)
    policy, model = targets.load(policy), None if model is None else targets.demand_model(model)
    contexts = Contexts.choose(source, model=model, features=features, target=policy)
    segment = "segment" if segment is None and "segment" in source.columns else segment
    experiment = Experiment.choose(source, propensity, discrete, tuple(randomised_within), uniform)
    encoded = policy.encoding_.columns if isinstance(policy, DemandModel) else ()
    needed = (*experiment.columns, *([segment] if segment else []), *encoded)
    customers = read(source, price=price, outcome=outcome, cost=cost, contexts=contexts, others=needed)
    drawn = experiment.propensities(customers, segment)
    if drawn.used.sum() < MIN_ROWS:
        raise _too_few(drawn, customers)
    target = targets.resolve(policy, customers, prices=prices, segment=segment, rules=rules)
    h = _bandwidth(customers.price, drawn) if bandwidth is None else finite("bandwidth", bandwidth, minimum=0.0)
    if h == 0.0 and any(support.continuous for support in drawn.supports):
        raise InvalidInput("A bandwidth of 0 needs logged prices from a ladder; these were drawn from a range.")
    demand = cross_fit(_family(family, model, customers.y), customers.z, customers.price, customers.y, drawn.used)
    money = finite("worth", worth, minimum=0.0, strict=True)
    work = Work(customers=customers, drawn=drawn, target=target, demand=demand, worth=money)
    notes = (*experiment.notes, *findings.of_columns(source, contexts, cost, asked=features is not None))
    return _evaluation(work, h, len(customers.complete), notes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """Everything but the bandwidth."""

    customers: Customers
    drawn: Propensities
    target: Target
    demand: CrossFit
    worth: float

    @property
    def earned(self) -> Array:
        """From each customer, in money."""
        value: Array = self.worth * self.customers.earned
        return value

    def weigh(self, h: float) -> Weighed:
        """The weights at a bandwidth."""
        n = len(self.customers.price)
        weight, price, part = np.zeros(n), np.zeros(n), np.zeros(n, dtype=bool)
        for support in self.drawn.supports:
            rows = support.rows
            spread, price[rows], part[rows] = self.target.on(support, self.customers.price, h)
            weight[rows] = spread / self.drawn.value[rows]
        margin = self.worth * (price - self.customers.cost)
        return Weighed(weight=weight, margin=margin, used=self.drawn.used, part=part)

    @cached_property
    def predicted(self) -> tuple[Array, Array]:
        """Demand at the logged price, and what the target earns, by the model."""
        target = self.worth * self.target.profit(self.demand, self.customers.cost)
        return self.demand.at(self.customers.price), target

    def scores(self, weighed: Weighed) -> list[Scores]:
        """Those of every estimator."""
        y = self.customers.y
        return [weighed.ips(y), weighed.self_normalised(y), weighed.doubly_robust(y, *self.predicted)]

    def estimates(self, scores: Sequence[Scores]) -> dict[str, Estimate]:
        """By name, next to what was earned from everyone, or from those it is about if these are not all."""
        everyone, earned = np.ones(len(self.customers.price), dtype=bool), self.earned
        whole = [bool((one.part == self.drawn.used).all()) for one in scores]
        return {
            one.name: compare(one, earned, everyone if all_ else one.part)
            for one, all_ in zip(scores, whole, strict=True)
        }


def _evaluation(work: Work, h: float, rows: int, notes: tuple[Finding, ...]) -> Evaluation:
    customers, drawn, target = work.customers, work.drawn, work.target
    weighed = work.weigh(h)
    if not weighed.part.any() or not weighed.weight.any():
        raise _nothing_near(work)
    everyone = np.ones(len(customers.price), dtype=bool)
    logged = Scores(name="logged prices", score=work.earned, part=everyone, effective=float(len(everyone)))
    by_width = {h: work.scores(weighed)}
    if h:
        by_width = {0.5 * h: work.scores(work.weigh(0.5 * h)), **by_width, 2.0 * h: work.scores(work.weigh(2.0 * h))}
    estimates = {width: work.estimates(scores) for width, scores in by_width.items()}
    listed = [*notes, *_found(work, weighed)]
    if h:
        listed += findings.of_bandwidth(by_width[h], by_width[2.0 * h], h)
    return Evaluation(
        target=target.name,
        logged=compare(logged, work.earned, everyone),
        estimates=estimates[h],
        rows=rows,
        used=int(drawn.used.sum()),
        left_out={**customers.left_out, **drawn.left_out},
        propensities=drawn.source,
        bandwidth=h,
        sensitivity=estimates,
        mean_weight=float(weighed.weight[weighed.part].mean()),
        findings=tuple(severest(listed)),
    )


def _nothing_near(work: Work) -> InvalidInput:
    seen, target = work.customers.price[work.drawn.used], work.target
    return InvalidInput(
        f"{target.name} quotes {target.prices.min():g} to {target.prices.max():g}, and no logged price that was drawn "
        f"at random is near: these go from {seen.min():g} to {seen.max():g}. The log tells nothing about such prices; "
        "a twin (hushprice twin) would answer by its model alone."
    )


def _found(work: Work, weighed: Weighed) -> Iterator[Finding]:
    yield from findings.of_rows(work.customers, work.drawn)
    yield from findings.of_overlap(weighed)
    yield from findings.of_supports(work.drawn)
    yield from findings.of_weights(weighed)
    if work.demand.penalised:
        yield Finding("ridge", "note", "The regression of the doubly robust estimate needed a ridge to settle.")
    if work.target.drawn:
        yield Finding("drawn", "note", f"{work.target.name} draws its prices; one was drawn for each customer.")


def _bandwidth(price: Array, drawn: Propensities) -> float:
    """h = 3 sd n^(-1/3), with the standard deviation of prices within the supports."""
    n = int(drawn.used.sum())
    squares = sum(float(np.var(price[s.rows])) * len(s.rows) for s in drawn.supports)
    return float(BANDWIDTH_FACTOR * np.sqrt(squares / n) * n ** (-1.0 / 3.0))


def _family(family: Family | str, model: DemandModel | None, y: Array) -> Family:
    """The family asked for, or the model's, or the one whose outcomes look like these."""
    if family != "auto":
        return as_family(family)
    return Outcomes.of(y).family if model is None else as_family(model.family_)


def _too_few(drawn: Propensities, customers: Customers) -> InvalidInput:
    left = "; ".join(f"{reason}: {count:,}" for reason, count in (customers.left_out | drawn.left_out).items())
    return InvalidInput(
        f"Only {int(drawn.used.sum()):,} of {len(customers.complete):,} rows can be used, and it takes {MIN_ROWS} "
        f"({left or 'there are no more'}). Only prices that were drawn at random tell what others would have earned."
    )
