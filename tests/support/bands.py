"""``python -m benchmarks bands``: how often the dashboard's bands hold the whole true curve, and how wide they are.

Private products are simulated with customers as the bands assume them (features spread evenly over their ranges), since
the server cannot know others. For each of three customers the curve is held if at every price of a grid it lies within
its band; the smallest share of the three is reported, next to that for the worst single price.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushprice import Market, markets, policies
from hushprice.arrays import Array
from hushprice.policies import BallPolicy, Policy
from hushprice.privacy import UnsafeSeed
from hushprice.service import Definition
from hushprice.service.core.learner import Learner
from hushprice.service.dashboard.bands import (
    QUANTILE,
    WHOLE,
    Design,
    Facts,
    allowed_prices,
    even_customers,
    private_covariance,
    spread,
)
from hushprice.service.definition import Feature
from hushprice.service.demo import shop as demo
from hushprice.service.guardrails import NO_GUARDRAILS, Limits

PRICES = 41  # of the grid on which a curve is looked at
CUSTOMERS = 3
SEED = 71_000  # other seeds than in the tests


class Box:
    """Contexts spread evenly over the ranges of features."""

    trusted = True

    def __init__(self, *features: Feature) -> None:
        self.low = np.array([f.value if f.low is None else f.low for f in features], dtype=np.float64)
        self.high = np.array([f.value if f.high is None else f.high for f in features], dtype=np.float64)
        self.norm = float(np.linalg.norm(np.maximum(np.abs(self.low), np.abs(self.high))))

    def __call__(self, rng: np.random.Generator, n: int) -> Array:
        z: Array = self.low + (self.high - self.low) * rng.random((n, len(self.low)))
        return z


@dataclass(frozen=True, kw_only=True)
class Case:
    """A product in its market, and after how many customers to look."""

    market: Market
    policy: str
    customers: int
    options: dict[str, Any]
    features: tuple[Feature, ...] = ()


def spread_evenly(alpha: list[float], beta: list[float], prices: tuple[float, float], *features: Feature) -> Market:
    """A market of customers as the bands assume them."""
    return Market(alpha=np.array(alpha), beta=np.array(beta), prices=prices, contexts=Box(*features))


def _positive(dim: int) -> tuple[Feature, ...]:
    """The paper's S1, where all features are positive and hardly vary."""
    return tuple(Feature(name=f"z{k}", low=math.sqrt(1.0 / dim), high=math.sqrt(4.0 / dim)) for k in range(dim))


APART = (Feature(name="constant", value=1.0), Feature(name="a", low=-1.0, high=1.0))
_COFFEE, _TEA = demo.definitions()
_MIDDLE = spread_evenly([1.6, 0.5], [1.0, 0.3], (0, 3), *APART)
_HIGH = spread_evenly([1.2, 0.8], [0.8, 0.3], (1, 5), *APART)
_SHOP = spread_evenly([2.6, 0.9, 0.5], [1.0, -0.25, 0.2], (1, 5), *_COFFEE.features)
_TEAS = spread_evenly([2.2, 0.7], [1.2, -0.3], (0.5, 4.0), *_TEA.features)
_OWN = {key: demo.COFFEE[key] for key in ("epsilon", "noise", "z_max", "centre", "radius", "zeta_scale")}

PRIVATE: dict[str, Case] = {
    "positive, d=2": Case(
        market=markets.s1(dim=2), policy="etc-ldp", customers=1_500, options={"epsilon": 4.0, "noise": "privunit"},
        features=_positive(2),
    ),
    "positive, d=3": Case(
        market=markets.s1(dim=3), policy="etc-ldp", customers=3_000, options={"epsilon": 4.0, "noise": "privunit"},
        features=_positive(3),
    ),
    "apart, d=2": Case(market=_MIDDLE, policy="etc-ldp", customers=1_500, options={"epsilon": 4.0}, features=APART),
    "apart, d=2, later": Case(
        market=_MIDDLE, policy="etc-ldp", customers=20_000, options={"epsilon": 4.0}, features=APART
    ),
    "gaussian, d=2": Case(
        market=_HIGH, policy="etc-ldp-approx", customers=1_500, options={"epsilon": 2.0}, features=APART
    ),
    "coffee, d=3": Case(
        market=_SHOP, policy="etc-ldp", customers=1_500, options=_OWN, features=_COFFEE.features
    ),
    "coffee, d=3, later": Case(
        market=_SHOP, policy="etc-ldp", customers=20_000, options=_OWN, features=_COFFEE.features
    ),
}  # fmt: skip
PLAIN: dict[str, Case] = {
    name: Case(market=_TEAS, policy=name, customers=n, options={"horizon": 10**6} if name in ("etc", "ucb") else {})
    for name, n in {
        "etc": 300,
        "etc-doubling": 1_500,
        "mle-cycle": 1_000,
        "semi-myopic": 2_000,
        "ucb": 300,
        "greedy": 300,
    }.items()
}


def build(case: Case) -> Policy:
    """The policy; a private one that is still exploring when we look."""
    market, options = case.market, dict(case.options)
    if case.features:
        options = {"horizon": 10**13, "z_max": market.z_max(), **options}
    return policies.build(
        case.policy, family=market.family, dim=len(market.theta) // 2, prices=market.prices, **options
    )


def private_spread(case: Case, policy: Policy) -> Callable[[Any], tuple[Array, Array]]:
    """(estimate, covariance) of a server, as the page has them."""
    assert isinstance(policy, BallPolicy)
    limits = Limits(policy, NO_GUARDRAILS)
    design = Design.of(policy, even_customers(case.features), *allowed_prices(policy, limits))
    return lambda server: (server.theta, private_covariance(policy, design, server.theta, case.customers))


def plain_spread(policy: Policy) -> Callable[[Any], tuple[Array, Array]]:
    """The same of a plain product."""
    learner = Learner(Definition.of("tea", {"policy": policy.name, **policy.config()}))

    def stated(server: Any) -> tuple[Array, Array]:
        learner.server = server
        learner.learned = max(estimator.records for estimator in server.estimators)
        facts = Facts.of(learner)
        covariance = spread(facts).covariance
        assert covariance is not None
        return facts.theta, covariance

    return stated


@dataclass(frozen=True)
class Held:
    """Over runs, customers and prices: errors of the curve, and standard errors as the page has them."""

    errors: Array
    widths: Array

    def whole(self, multiple: float = WHOLE) -> float:
        """The share of runs in which the whole curve is held, of the customer with the smallest."""
        inside = self.errors <= multiple * self.widths
        return float(inside.all(axis=2).mean(axis=0).min())

    def pointwise(self, multiple: float = QUANTILE) -> float:
        """The share of runs in which the curve is held at a price, of the worst customer and price."""
        return float((self.errors <= multiple * self.widths).mean(axis=0).min())

    @property
    def wide(self) -> float:
        """How many times as wide as standard errors should be: at most, over customers and prices."""
        return float((np.sqrt((self.widths**2).mean(axis=0)) / np.sqrt((self.errors**2).mean(axis=0))).max())


def measure(case: Case, runs: int, first: int = SEED) -> Held:
    """Sell to simulated customers so many times, and compare the bands with the truth."""
    market, policy = case.market, build(case)
    estimate = private_spread(case, policy) if case.features else plain_spread(policy)
    z = market.draw(np.random.default_rng(9), CUSTOMERS)
    x = np.array([[np.r_[one, -p * one] for p in np.linspace(*market.prices, PRICES)] for one in z])
    errors, widths = [], []
    for k in range(first, first + runs):
        loop, streams = policy.loop(UnsafeSeed(k)), [np.random.default_rng((k, j)) for j in range(3)]
        for block in market.blocks(streams[0], streams[1], case.customers):
            loop.sell(block, streams[2])
        theta, covariance = estimate(loop.server)
        errors.append(np.abs(x @ (theta - market.theta)))
        widths.append(np.sqrt(np.maximum(np.einsum("cpi,ij,cpj->cp", x, covariance, x), 0.0)))
    return Held(np.array(errors), np.array(widths))
