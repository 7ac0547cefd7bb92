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

BANDWIDTH_FACTOR = 3.0  # h = BANDWIDTH_FACTOR sd(p) n^(-1/3)
MIN_ROWS = 50  # fewest rows for an estimate


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

    Parameters
    ----------
    log : path, frame, Arrow table, mapping or Source
        The log. The columns needed are read into memory.
    policy : str, path, DemandModel, Policy, Pricer, callable or array-like
        The policy to evaluate; see :mod:`hushprice.evaluation.targets`.
    price, outcome : str
        Columns of the price and of the demand.
    propensity : str, optional
        Column of the propensities of the logged prices: densities, or probabilities where ``discrete`` is true. Rows
        whose propensity is missing or a probability of 1 are left out; the method assumes that their customers are
        like the others.
    discrete : str or bool
        Whether propensities are probabilities, or the column that says so for each row.
    features : sequence of str, optional
        Number columns that are the context of the demand regression and of the policy, after a constant. By default
        the columns z0, z1, ... of a simulated log, or none.
    model : DemandModel, str or Path, optional
        Fitted model or its file, whose encoding makes the contexts; instead of ``features``.
    randomised_within : sequence of str
        Columns within whose strata prices were drawn at random; instead of ``propensity``.
    uniform : tuple of float, optional
        Range from which all prices were drawn uniformly; instead of ``propensity``.
    segment : str, optional
        Column of the segments whose price ranges differ.
    cost : float or str
        Unit cost, or its column.
    prices : tuple of float, optional
        Range of the policy's prices.
    rules : Rules, optional
        Business rules for the best prices by a demand model. The largest step is ignored, as it depends on earlier
        customers.
    family : Family or str
        Family of the demand regression; "auto" chooses it from the outcomes.
    bandwidth : float, optional
        Distance h over which demand at one price stands for demand at another; 3 sd(p) n^(-1/3) by default. With 0,
        prices of a ladder are compared only with equal prices.
    worth : float
        Money per unit of price times demand.

    Returns
    -------
    Evaluation
        Estimates with 95% intervals, next to the profit of the logged prices, and findings.

    Raises
    ------
    InvalidInput
        If the propensities are unknown, fewer than 50 rows can be used, or no logged price is near the policy's.

    Notes
    -----
    With the default bandwidth the bias, of the order of h^2, vanishes faster than the standard error, of the order of
    (n h)^(-1/2), so that intervals keep their coverage.

    References
    ----------
    Kallus & Zhou (2018), Policy Evaluation and Optimization with Continuous Treatments. Colangelo & Lee (2020), Double
    Debiased Machine Learning Nonparametric Inference with Continuous Treatments.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> p = rng.uniform(0, 2, 4000)
    >>> sold = rng.random(4000) < 1 - p / 2
    >>> result = evaluate({"price": p, "outcome": sold}, "fixed-price:price=1", uniform=(0, 2))
    >>> print(f"{result.best.value:.2f} plus or minus {1.96 * result.best.se:.2f}")   # 0.5 in truth; logged: 0.33
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
    notes = (*experiment.notes, *findings.of_columns(source, contexts, cost, chosen=features is not None))
    return _evaluation(work, h, len(customers.complete), notes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """The inputs of the estimators, except for the bandwidth."""

    customers: Customers
    drawn: Propensities
    target: Target
    demand: CrossFit
    worth: float

    @property
    def earned(self) -> Array:
        """Profit from each customer at the logged price, in money."""
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
        """Predicted demand at the logged price, and predicted profit at the target price."""
        target = self.worth * self.target.profit(self.demand, self.customers.cost)
        return self.demand.at(self.customers.price), target

    def scores(self, weighed: Weighed) -> list[Scores]:
        """The scores of every estimator."""
        y = self.customers.y
        return [weighed.ips(y), weighed.self_normalised(y), weighed.doubly_robust(y, *self.predicted)]

    def estimates(self, scores: Sequence[Scores]) -> dict[str, Estimate]:
        """Estimates by name, compared with the logged profit from all customers or from those an estimate covers."""
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
    listed = [*notes, *_findings_of(work, weighed)]
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
    prices, target = work.customers.price[work.drawn.used], work.target
    return InvalidInput(
        f"{target.name} quotes {target.prices.min():g} to {target.prices.max():g}, and no logged price that was drawn "
        f"at random is near: these go from {prices.min():g} to {prices.max():g}. The log tells nothing about such "
        "prices; a twin (hushprice twin) would answer by its model alone."
    )


def _findings_of(work: Work, weighed: Weighed) -> Iterator[Finding]:
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
    """The chosen family; for "auto" the model's, or the one that suits the outcomes."""
    if family != "auto":
        return as_family(family)
    return Outcomes.of(y).family if model is None else as_family(model.family_)


def _too_few(drawn: Propensities, customers: Customers) -> InvalidInput:
    reasons = "; ".join(f"{reason}: {count:,}" for reason, count in (customers.left_out | drawn.left_out).items())
    return InvalidInput(
        f"Only {int(drawn.used.sum()):,} of {len(customers.complete):,} rows can be used, and it takes {MIN_ROWS} "
        f"({reasons or 'there are no more'}). Only prices that were drawn at random tell what others would have earned."
    )
