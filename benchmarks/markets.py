"""The markets in which policies are compared: the paper's, and some in which a policy can fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

import hushprice as hp
from hushprice.arrays import Array
from hushprice.demand import as_family
from hushprice.markets.synthetic import UnitVectors


def _redrawn(market: hp.Market, alpha: float, beta: float) -> hp.Market:
    """The market with coefficients that each replication draws anew, with these standard deviations."""
    d = market.dim
    return replace(market, covariance=np.diag(np.repeat([alpha**2, beta**2], d)))


def s1_redrawn(dim: int) -> hp.Market:
    """S1 with alpha_j = (1.6 + .8 N) / sqrt d and beta_j = (1 + .4 N) / sqrt d."""
    return _redrawn(hp.markets.s1(dim=dim), 0.8 / math.sqrt(dim), 0.4 / math.sqrt(dim))


def s2_redrawn(dim: int) -> hp.Market:
    """S2 with segments that differ: coefficients 1 + .4 N."""
    return _redrawn(hp.markets.s2(dim=dim), 0.4, 0.4)


def _s1_like(dim: int, alpha: float, beta: float, family: str = "logistic") -> hp.Market:
    root = math.sqrt(dim)
    contexts = hp.markets.s1(dim=dim).contexts
    return hp.Market(
        alpha=np.full(dim, alpha / root),
        beta=np.full(dim, beta / root),
        contexts=contexts,
        prices=(0, 3),
        family=as_family(family),
    )


def poisson(dim: int) -> hp.Market:
    """Counts, with S1's customers."""
    return _s1_like(dim, 0.7, 0.6, "poisson")


def boundary(dim: int) -> hp.Market:
    """S1 with a small price sensitivity: for a third of the customers the highest price is best."""
    return _s1_like(dim, 1.6, 0.62)


def low(dim: int) -> hp.Market:
    """S1 with a large price sensitivity: the best prices are near the low end."""
    return _s1_like(dim, 1.6, 3.0)


def standard(dim: int) -> hp.Market:
    """An intercept and dim - 1 standard normal features."""

    def contexts(rng: np.random.Generator, n: int) -> Array:
        return np.hstack([np.ones((n, 1)), rng.standard_normal((n, dim - 1))])

    others, root = np.ones(dim - 1), math.sqrt(max(dim - 1, 1))
    alpha, beta = np.r_[1.6, 0.8 * others / root], np.r_[1.0, 0.3 * others / root]
    return hp.Market(alpha=alpha, beta=beta, contexts=contexts, prices=(0, 3))


def mixed(dim: int) -> hp.Market:
    """A one-hot group of dim segments that differ, and two standard normal features."""
    group = UnitVectors(dim)

    def contexts(rng: np.random.Generator, n: int) -> Array:
        return np.hstack([group(rng, n), rng.standard_normal((n, 2))])

    alpha, beta = np.r_[np.ones(dim), 0.4, -0.3], np.r_[np.ones(dim), 0.2, 0.0]
    market = hp.Market(alpha=alpha, beta=beta, contexts=contexts, prices=(0, 3))
    spread = np.r_[np.full(dim, 0.3), 0.0, 0.0]
    return replace(market, covariance=np.diag(np.tile(spread**2, 2)))


def dummies(dim: int) -> hp.Market:
    """As :func:`mixed`, coded as an intercept and a column per segment but the first."""
    market = mixed(dim)

    def contexts(rng: np.random.Generator, n: int) -> Array:
        z = np.asarray(market.contexts(rng, n), dtype=np.float64)
        z[:, 0] = 1.0
        return z

    def coded(theta: Array) -> Array:
        return np.concatenate([theta[:1], theta[1:dim] - theta[0], theta[dim:]])

    change = np.eye(dim + 2)
    change[1:dim, 0] = -1.0
    both = np.kron(np.eye(2), change)
    assert market.covariance is not None
    return replace(
        market, alpha=coded(market.alpha), beta=coded(market.beta), contexts=contexts,
        covariance=both @ market.covariance @ both.T,
    )  # fmt: skip


KZ_FEATURES = ("risk", "wave", "dormancy", "trcount", "female", "age", "edhi")


def kz_twin(log: Path) -> hp.Market:
    """The twin of the price experiment of docs/tutorial.md, at the same prices for everyone."""
    model = hp.fit(log, price="offer4", outcome="tookup", features=list(KZ_FEATURES), categories=["wave"])
    twin: hp.Market = hp.markets.twin(model, log)
    return twin


MARKETS: dict[str, Callable[[int], hp.Market]] = {
    "s1": lambda dim: hp.markets.s1(dim=dim),
    "s1 redrawn": s1_redrawn,
    "s2": lambda dim: hp.markets.s2(dim=dim),
    "s2 redrawn": s2_redrawn,
    "wide": lambda dim: hp.markets.build("wide", dim=dim),
    "a1": lambda dim: hp.markets.build("a1", dim=dim),
    "a2": lambda dim: hp.markets.build("a2", dim=dim),
    "lower-bound": lambda dim: hp.markets.build("lower-bound", dim=dim),
    "poisson": poisson,
    "boundary": boundary,
    "low": low,
    "standard": standard,
    "mixed": mixed,
    "dummies": dummies,
    "s1 with intercept": lambda dim: hp.markets.s1(dim=dim, intercept=True),
    "wide with intercept": lambda dim: hp.markets.build("wide", dim=dim, intercept=True),
}
