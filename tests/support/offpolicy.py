"""Off-policy evaluation where the truth is known: coverage of the 95% intervals, and bias.

``python -m benchmarks offpolicy --logs 200``: each world makes so many logs; each log is evaluated for several
targets; the truth comes from the known demand of 300 000 other customers. In ``kinked`` demand is no GLM at all, in
``steered`` and ``strata`` customers who buy more were quoted higher prices, so that nothing but the propensities sets
it right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.special import ndtr

import hushprice as hp
from hushprice.arrays import Array
from hushprice.estimation import design
from hushprice.evaluation import evaluate

LOW, HIGH = 0.0, 3.0
Draw = Callable[[np.random.Generator, Array], tuple[Array, dict[str, Any]]]
"""Prices for contexts, and the input of ``evaluate`` for them: columns of the log (arrays), and options."""


@dataclass(frozen=True, kw_only=True)
class World:
    """Customers, their demand and how they were priced."""

    name: str
    rows: int
    dim: int
    draw: Draw
    family: str = "logistic"
    kinked: bool = False

    def customers(self, rng: np.random.Generator, n: int) -> Array:
        return hp.markets.s1(dim=self.dim).draw(rng, n)

    def mean(self, z: Array, p: Array) -> Array:
        if self.kinked:  # flat, then falling fast from a customer's own price on
            limit = 0.6 + 0.6 * z[:, 0]
            kink = 0.9 - 0.04 * p - 0.55 * np.maximum(p - limit, 0.0)
            return np.asarray(np.maximum(kink, 0.05) * ndtr(2.0 + 0.3 * z[:, 1]))
        market = hp.markets.s1(dim=self.dim, family=self.family)
        return np.asarray(market.family.mean(z @ market.alpha - (z @ market.beta) * p))

    def outcome(self, rng: np.random.Generator, mean: Array) -> Array:
        if self.family == "poisson":
            return rng.poisson(mean).astype(float)
        if self.family == "linear":
            return np.asarray(mean + rng.normal(size=len(mean)))
        return np.asarray(rng.random(len(mean)) < mean, dtype=np.float64)

    def log(self, seed: int, n: int | None = None) -> tuple[dict[str, Array], dict[str, Any]]:
        """A log of n rows, and the options that evaluate it."""
        rng = np.random.default_rng([seed, 77])
        z = self.customers(rng, self.rows if n is None else n)
        p, extras = self.draw(rng, z)
        y = self.outcome(rng, self.mean(z, p))
        columns = {f"z{j}": z[:, j] for j in range(self.dim)} | {"price": p, "outcome": y}
        columns |= {key: value for key, value in extras.items() if isinstance(value, np.ndarray)}
        return columns, {key: value for key, value in extras.items() if not isinstance(value, np.ndarray)}


def even(rng: np.random.Generator, z: Array) -> tuple[Array, dict[str, Any]]:
    """Evenly from the range."""
    p = rng.uniform(LOW, HIGH, len(z))
    return p, {"propensity": np.full(len(z), 1.0 / (HIGH - LOW)), "discrete": np.zeros(len(z), dtype=bool)}


def steered(rng: np.random.Generator, z: Array) -> tuple[Array, dict[str, Any]]:
    """A third evenly, the others around a price that rises with the customer's first feature."""
    centre, width = 0.5 + 2.0 * (z[:, 0] - z[:, 0].min()) / np.ptp(z[:, 0]), 1.2
    near = rng.triangular(-width, 0.0, width, len(z)) + centre
    near = np.where((near < LOW) | (near > HIGH), 2.0 * centre - near, near)  # no more than one end is reached
    near = np.clip(near, LOW, HIGH)
    p = np.where(rng.random(len(z)) < 1.0 / 3.0, rng.uniform(LOW, HIGH, len(z)), near)

    def bump(x: Array) -> Array:
        inside: Array = np.maximum(1.0 - np.abs(x - centre) / width, 0.0) / width
        return inside

    mirrored = 2.0 * centre - p
    density = bump(p) + np.where((mirrored < LOW) | (mirrored > HIGH), bump(mirrored), 0.0)
    return p, {"propensity": 1.0 / 3.0 / (HIGH - LOW) + 2.0 / 3.0 * density, "discrete": False}


def ladder(points: int, tilt: float) -> Draw:
    """From equispaced prices, the higher ones more likely for customers with a large first feature."""

    def draw(rng: np.random.Generator, z: Array) -> tuple[Array, dict[str, Any]]:
        prices = np.linspace(LOW, HIGH, points)
        level = tilt * (z[:, :1] - z[:, 0].mean()) / z[:, 0].std()
        odds = np.exp(level * (prices - 1.5) / 1.5)
        chance = odds / odds.sum(axis=1, keepdims=True)
        k = np.minimum((chance.cumsum(axis=1) < rng.random((len(z), 1))).sum(axis=1), points - 1)
        own = chance[np.arange(len(z)), k]
        return prices[k], {"propensity": own, "discrete": np.ones(len(z), dtype=bool)}

    return draw


def strata(points: int) -> Draw:
    """Within two strata of the first feature, cheaper in one: from a ladder, or if that has no points from a
    density."""

    def draw(rng: np.random.Generator, z: Array) -> tuple[Array, dict[str, Any]]:
        rich = z[:, 0] > np.median(z[:, 0])
        u = rng.random(len(z))
        even_and_sloped = np.where(
            rich, np.sqrt(u + 0.25 * (1.0 - u)) * 2.0 - 1.0, 1.0 - (np.sqrt(1.0 - 0.75 * u) * 2.0 - 1.0)
        )
        p = LOW + (HIGH - LOW) * even_and_sloped
        if points:
            p = LOW + (HIGH - LOW) * np.round(even_and_sloped * (points - 1)) / (points - 1)
        return p, {"stratum": np.where(rich, 1.0, 0.0), "randomised_within": ("stratum",), "propensity": None}

    return draw


WORLDS = (
    World(name="s1, 5 000 rows", rows=5_000, dim=2, draw=even),
    World(name="s1, 20 000 rows", rows=20_000, dim=4, draw=even),
    World(name="s1, poisson", rows=10_000, dim=3, draw=even, family="poisson"),
    World(name="s1, linear", rows=10_000, dim=3, draw=even, family="linear"),
    World(name="s1, ladder of 7", rows=10_000, dim=2, draw=ladder(7, 0.5)),
    World(name="s1, ladder of 61", rows=10_000, dim=2, draw=ladder(61, 0.5)),
    World(name="s1, steered", rows=10_000, dim=2, draw=steered),
    World(name="s1, strata, density", rows=10_000, dim=2, draw=strata(0)),
    World(name="s1, strata, ladder", rows=10_000, dim=2, draw=strata(31)),
    World(name="kinked", rows=5_000, dim=2, draw=even, kinked=True),
    World(name="kinked, 20 000 rows", rows=20_000, dim=2, draw=even, kinked=True),
    World(name="kinked, steered", rows=10_000, dim=2, draw=steered, kinked=True),
)


class Greedy:
    """The best price by a GLM fitted to another log."""

    def __init__(self, world: World) -> None:
        columns, _ = world.log(987_654)
        z = np.column_stack([columns[f"z{j}"] for j in range(world.dim)])
        fit = hp.estimation.fit(world.family, design(z, columns["price"]), columns["outcome"])
        self.family, self.alpha, self.beta = fit.family, fit.theta[: world.dim], fit.theta[world.dim :]

    def __call__(self, z: Array) -> Array:
        return np.asarray(self.family.optimal_price(z @ self.alpha, z @ self.beta, (LOW, HIGH)))


@dataclass(frozen=True)
class Aim:
    """A target: the arguments of ``evaluate``, and the prices it draws for contexts."""

    policy: Any
    prices: Callable[[Array], Array]
    options: dict[str, Any]


def fixed(price: float) -> Aim:
    return Aim(f"fixed-price:price={price:g}", lambda z: np.full(len(z), price), {})


def targets(world: World) -> dict[str, Aim]:
    """By name."""
    greedy = Greedy(world)
    drawn = Aim("random-price", lambda z: np.random.default_rng(9).uniform(1.0, 2.0, len(z)), {"prices": (1.0, 2.0)})
    return {"price 1.5": fixed(1.5), "greedy": Aim(greedy, greedy, {}), "top price": fixed(3.0), "random 1 to 2": drawn}


def truth(world: World, target: Aim, customers: int = 300_000) -> tuple[float, float]:
    """What the target and the logged prices earn per customer, by the known demand."""
    z = world.customers(np.random.default_rng(5), customers)
    logged, _ = world.draw(np.random.default_rng(6), z)
    price = target.prices(z)
    return float(np.mean(price * world.mean(z, price))), float(np.mean(logged * world.mean(z, logged)))


Estimates = dict[str, dict[str, tuple[float, ...]]]


def one(world: World, aims: dict[str, Aim], seed: int) -> Estimates:
    """Of one log, by target and estimator: value, se, interval, that of the difference, and effective sample size."""
    columns, options = world.log(seed)
    estimates: Estimates = {}
    for name, target in aims.items():
        result = evaluate(columns, target.policy, **{**options, **target.options})
        every = [result.logged, *result.estimates.values()]
        estimates[name] = {e.name: (e.value, e.se, *e.interval, *e.difference_interval, e.effective) for e in every}
    return estimates


def summary(
    world: World, logs: int, *, first: int = 0, only: tuple[str, ...] = (), workers: int = 1, customers: int = 300_000
) -> list[dict[str, Any]]:
    """Bias and coverage in one world, one row per target (or only some) and estimator; seeds begin at ``first``."""
    aims = {name: target for name, target in targets(world).items() if not only or name in only}
    runs = Parallel(n_jobs=workers)(delayed(one)(world, aims, first + i) for i in range(logs))
    rows: list[dict[str, Any]] = []
    for name, target in aims.items():
        value, logged = truth(world, target, customers)
        for estimator in runs[0][name]:
            estimate, se, low, high, less, more, effective = np.array([run[name][estimator] for run in runs]).T
            right = logged if estimator == "logged prices" else value
            off, gain = estimate - right, right - logged
            rows.append(
                {
                    "world": world.name, "target": name, "estimator": estimator, "truth": right,
                    "bias": float(off.mean()), "bias / se": float(off.mean() / se.mean()), "sd": float(estimate.std()),
                    "mean se": float(se.mean()), "coverage": float(((low <= right) & (right <= high)).mean()),
                    "coverage of difference": float(((less <= gain) & (gain <= more)).mean()),
                    "effective": float(effective.mean()),
                }
            )  # fmt: skip
    return rows
