"""Confidence bounds: the kernels against dense references, the policies against their listings."""

from __future__ import annotations

import dataclasses
import math
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

import hushprice as hp
from hushprice import checks
from hushprice.demand import FAMILIES, Family
from hushprice.estimation import DRIFT_BOUND, Prior, StageEstimators
from hushprice.kernels import confidence as kernel
from hushprice.kernels.state import Belief, BoundRule
from hushprice.kernels.ucb_price import STACK, length, optimistic_price
from hushprice.markets import Block
from hushprice.policies import Bounds, Params, Phase, Plan
from tests.conftest import make_policy

KINDS = [cls() for cls in FAMILIES.values()]
BOUND_POLICIES = ("supcb", "supcb-doubling", "supcb-adversarial", "ucb", "ts-wtl", "ucb-wtl")


def _root(rng: np.random.Generator, m: int) -> Any:
    """A root W of a random V^-1 = W W'."""
    x = rng.standard_normal((m, m + 2))
    return np.linalg.cholesky(np.linalg.inv(x @ x.T))


# -- V^-1 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 7])
def test_three_forms_serve_every_price(d: int, rng: np.random.Generator) -> None:
    root, z = _root(rng, 2 * d), rng.standard_normal(d)
    r2, vertex, q2 = kernel.forms(root, z, np.empty(4 * d))
    for p in np.linspace(0, 3, 13):
        x = np.concatenate([z, -p * z])
        assert r2 + q2 * (p - vertex) ** 2 == pytest.approx(x @ root @ root.T @ x, rel=1e-11)


def test_rank_one_steps_do_not_drift(rng: np.random.Generator) -> None:
    """10 000 steps, in directions of very different size: as good as a fresh inverse at any moment."""
    stages = StageEstimators(hp.Linear(), prior=Prior.ridge(4, 0.3), stages=1)
    sizes = np.array([1e-2, 1.0, 1.0, 1e2])
    for n in range(10_000):
        stages.absorb(1, sizes * rng.standard_normal((1, 4)), rng.uniform(0, 3, 1), rng.standard_normal(1))
        if rng.random() < 0.3:
            stages.bounds()
        if n % 997 == 0:
            _, root = stages.bounds()
            x = stages.members[0].x[: n + 1]
            fresh = np.linalg.inv(0.3 * np.eye(8) + x.T @ x)
            scale = np.sqrt(np.outer(np.diag(fresh), np.diag(fresh)))
            assert np.abs((root[0] @ root[0].T - fresh) / scale).max() < 1e-8


@pytest.mark.parametrize("unit", [1.0, 1e3, 1e5, 1e6])
def test_widths_are_right_in_any_unit(unit: float, rng: np.random.Generator) -> None:
    """Contexts in raw units, all at the price 3: known widths there, none elsewhere. Against rational arithmetic.

    V is then so ill-conditioned that its inverse in floating point would be wrong in every digit.
    """
    stages = StageEstimators(hp.Linear(), prior=Prior.ridge(1, 1.0), stages=1)
    n = 3000
    z = unit * rng.uniform(0.5, 1.5, (n, 1))
    for k in range(n):
        stages.absorb(1, z[k : k + 1], np.array([3.0]), np.zeros(1))
        if k % 7 == 0:
            stages.bounds()
    _, root = stages.bounds()
    total = sum(Fraction(float(value)) ** 2 for value in z[:, 0])
    for p in (1.0, 2.5, 3.0):
        r2, vertex, q2 = kernel.forms(root[0], np.array([unit]), np.empty(4))
        a, b, c = 1 + total, -3 * total, 1 + 9 * total  # V = [[a, b], [b, c]]
        one, other = Fraction(unit), Fraction(-p * unit)
        exact = float((c * one * one - 2 * b * one * other + a * other * other) / (a * c - b * b))
        assert length(r2, vertex, q2, p) == pytest.approx(math.sqrt(exact), rel=1e-5)


def test_stages_share_nothing(rng: np.random.Generator) -> None:
    """Each stage's estimate is the MLE of its own records, wherever the others' records lie."""
    stages = StageEstimators(hp.Logistic(), prior=Prior.ridge(2, 1.0), stages=3)
    stored: dict[int, list[Any]] = {1: [], 2: [], 3: []}
    for _ in range(900):
        s = int(rng.choice([1, 1, 1, 2, 2, 3]))
        record = rng.standard_normal((1, 2)), rng.uniform(0, 3, 1), rng.integers(0, 2, 1).astype(float)
        stages.absorb(s, *record)
        stored[s].append(record)
        if rng.random() < 0.1:
            stages.reserve(int(rng.integers(200)))
            stages.bounds()
    theta, _ = stages.bounds()
    for s, records in stored.items():
        z, price, y = (np.concatenate(column) for column in zip(*records, strict=True))
        exact = hp.estimation.fit("logistic", hp.estimation.design(z, price), y, ridge=1.0)
        gap = theta[s - 1] - exact.theta
        assert math.sqrt(gap @ np.linalg.solve(exact.covariance, gap)) <= DRIFT_BOUND
        assert stages.members[s - 1].drift() <= DRIFT_BOUND


# -- the price of the largest index -------------------------------------------------------------------------------


def _index_profit(family: Family, a: float, b: float, alpha: float, q: Any, p: Any, cost: float) -> Any:
    """log of the index for positive demand above cost, else the index itself."""
    p = np.asarray(p, dtype=float)
    r2, vertex, q2 = q
    g = a - b * p + alpha * np.sqrt(r2 + q2 * (p - vertex) ** 2)
    if family.name == "linear":
        return (p - cost) * g
    log_mean = {"poisson": g, "logistic": -np.logaddexp(0.0, -g), "probit": special.log_ndtr(g)}[family.name]
    with np.errstate(divide="ignore"):
        worth = np.log(np.abs(p - cost)) + log_mean
    return np.where(p > cost, worth, -np.inf) if cost < 3.0 else -worth


def _chosen(family: Family, a: float, b: float, alpha: float, q: Any, cost: float = 0.0) -> float:
    return float(optimistic_price(family.code, Belief(a, b, alpha, *q), cost, 0.0, 3.0, np.empty((STACK, 2))))


def _best_on_grid(family: Family, a: float, b: float, alpha: float, q: Any, cost: float) -> float:
    """The best of a grid, refined eightfold around its best points."""
    grid = np.linspace(0.0, 3.0, 6001)
    for _ in range(3):
        worth = _index_profit(family, a, b, alpha, q, grid, cost)
        k = int(np.argmax(worth))
        grid = np.linspace(grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)], 801)
    return float(np.max(_index_profit(family, a, b, alpha, q, grid, cost)))


def _quadratic(l00: float, l10: float, l11: float) -> tuple[float, float, float]:
    """(r2, vertex, q2) of the covariance with the Cholesky factor [[l00, 0], [l10, l11]]."""
    q2 = l10 * l10 + l11 * l11
    return (l00 * l11) ** 2 / q2, l00 * l10 / q2, q2


@st.composite
def _indices(draw: st.DrawFn) -> tuple[float, float, float, tuple[float, float, float]]:
    """(a, b, alpha, (q0, q1, q2)) with a positive definite quadratic, from round to nearly degenerate."""
    a, b = draw(st.floats(-8, 8)), draw(st.floats(-3, 8))
    alpha = draw(st.sampled_from([0.0, 0.1, 1.0, 5.0, 30.0]))
    l00, l11 = 10.0 ** draw(st.floats(-4, 1)), 10.0 ** draw(st.floats(-5, 1))
    return a, b, alpha, _quadratic(l00, draw(st.floats(-8, 8)), l11)


@pytest.mark.parametrize("family", KINDS, ids=lambda f: f.name)
@given(index=_indices(), cost=st.sampled_from([0.0, 0.0, 0.8, 3.5]))
@settings(max_examples=400)
def test_the_global_maximum_of_the_index_is_found(family: Family, index: Any, cost: float) -> None:
    """At least as good as a refined grid, whatever the shape of the index, costs above every price included."""
    a, b, alpha, q = index
    price = _chosen(family, a, b, alpha, q, cost)
    assert 0.0 <= price <= 3.0
    got, best = float(_index_profit(family, a, b, alpha, q, price, cost)), _best_on_grid(family, a, b, alpha, q, cost)
    assert got >= best - 1e-9 * (1.0 + abs(best))


@pytest.mark.parametrize(
    ("a", "b", "q", "peaks", "end", "highest"),
    [
        (3.826, 2.518, _quadratic(2.988, 1.097, 0.0263), 1, True, "first"),
        (1.413, 3.941, _quadratic(0.7496, 1.2925, 0.0184), 1, True, "end"),
        (-2.87, 4.02, _quadratic(0.8496, 1.2262, 0.0812), 2, False, "first"),
    ],
)
def test_an_index_with_two_peaks(a: float, b: float, q: Any, peaks: int, end: bool, highest: str) -> None:
    """Two local maxima, inside the range or at its end: whichever is higher is taken, so no local search would do."""
    grid = np.linspace(0.001, 3.0, 30_001)
    worth = _index_profit(hp.Logistic(), a, b, 3.0, q, grid, 0.0)
    maxima = np.flatnonzero((worth[1:-1] > worth[:-2]) & (worth[1:-1] > worth[2:])) + 1
    assert (len(maxima), worth[-1] > worth[-2]) == (peaks, end)
    best = -1 if highest == "end" else maxima[0]
    assert worth[best] == worth.max()
    assert _chosen(hp.Logistic(), a, b, 3.0, q) == pytest.approx(grid[best], abs=2e-4)


@pytest.mark.parametrize(
    ("a", "b", "alpha", "q", "high"),
    [
        (4.13, 0.653, 0.0, (1.0, 0.0, 1.0), 100.0),
        (3.9955, 1.0, 0.1, (1.0, 0.0, 0.01), 100.0),
        (4.0835, 20.0, 0.05, (0.775, 1.5, 0.1), 3.0),
        (18.0, 2.99, 1e-6, (1.0, 0.0, 1e-20), 1e12),
        (20.6, 8.4, 1e-6, (1.0, 0.0, 1e-20), 1e10),
    ],
)
def test_newton_neither_circles_nor_stops_early(a: float, b: float, alpha: float, q: Any, high: float) -> None:
    """Steps that would go back and forth for ever, and ranges so wide that a small part of them is a large price."""
    price = float(optimistic_price(1, Belief(a, b, alpha, *q), 0.0, 0.0, high, np.empty((STACK, 2))))
    grid = np.geomspace(1e-4, 30.0, 400_001)
    best = grid[int(np.argmax(_index_profit(hp.Logistic(), a, b, alpha, q, grid, 0.0)))]
    assert price == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("high", [3.0, 100.0, 1e6])
def test_without_a_width_the_search_agrees_with_the_closed_form(high: float, rng: np.random.Generator) -> None:
    """Over two hundred thousand values of (a, b), a fine sweep through the places where Newton's method has trouble."""
    family = hp.Logistic()
    a, b = rng.uniform(-5, 30, 70_000), 10.0 ** rng.uniform(-1.5, 1.5, 70_000)
    stack = np.empty((STACK, 2))
    prices = [
        float(optimistic_price(1, Belief(x, y, 0.0, 1.0, 0.0, 1.0), 0.0, 0.0, high, stack))
        for x, y in zip(a, b, strict=True)
    ]
    np.testing.assert_allclose(prices, family.optimal_price(a, b, (0.0, high)), rtol=1e-7)


@pytest.mark.parametrize("family", KINDS, ids=lambda f: f.name)
def test_a_flat_index_costs_no_search(family: Family) -> None:
    """z = 0: with linear demand every price is worth the same."""
    _chosen(family, 0.0, 0.0, 1.0, (0.0, 0.0, 0.0))
    began = time.perf_counter()
    for _ in range(2000):
        assert _chosen(family, 0.0, 0.0, 1.0, (0.0, 0.0, 0.0)) == 3.0
    assert time.perf_counter() - began < 1.0


def test_without_a_width_the_index_price_is_the_greedy_one(rng: np.random.Generator) -> None:
    for family in KINDS:
        for a, b in rng.normal(1.0, 1.5, (200, 2)):
            greedy = float(family.optimal_price(a, b, (0.0, 3.0)))
            price = _chosen(family, a, b, 0.0, (1.0, 0.1, 1.0))
            assert family.revenue(price, a, b) == pytest.approx(family.revenue(greedy, a, b), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("family", KINDS, ids=lambda f: f.name)
def test_ucb_follows_its_listing(family: Family) -> None:
    """Estimate, V and index as the listing has them, recomputed from scratch at every round."""
    policy = make_policy("ucb", family=family.name, dim=2, horizon=400)
    loop = checks.LiveLoop(policy, checks.world_for(policy), horizon=400)
    alpha = math.sqrt(2 * math.log(400)) * math.log(math.log(400)) / 10
    records: list[Any] = []
    for t in range(400):
        offer = loop.pricer.offer(loop.z[t])
        y = loop.outcome(t, offer.price)
        loop.pricer.observe(offer, y)
        z = loop.z[t]
        if t % 13 == 5:
            x = np.array([r[0] for r in records])
            theta = hp.estimation.fit(family, x, [r[1] for r in records], ridge=1.0).theta
            running = loop.pricer._server.estimators[0].published
            information = (
                np.eye(4) + x[:-1].T @ (family.curvature(x[:-1] @ theta)[:, None] * x[:-1]) if len(x) > 1 else np.eye(4)
            )
            gap = running - theta
            assert math.sqrt(gap @ information @ gap) <= DRIFT_BOUND + 1e-6
            inverse = np.linalg.inv(np.eye(4) + x.T @ x)
            A, B, C = inverse[:2, :2], inverse[2:, :2], inverse[2:, 2:]
            q2 = z @ C @ z
            q = (z @ A @ z - (z @ B @ z) ** 2 / q2, z @ B @ z / q2, q2)
            a, b = z @ running[:2], z @ running[2:]
            got = float(_index_profit(family, a, b, alpha, q, offer.price, 0.0))
            assert got >= _best_on_grid(family, a, b, alpha, q, 0.0) - 1e-7
        records.append((np.concatenate([z, -offer.price * z]), y))


# -- the Wang-Talluri-Li policies -----------------------------------------------------------------------------------


def _published(rng: np.random.Generator, d: int, alpha: float, phase: Phase) -> Params:
    theta = np.concatenate([np.full(d, 1.6), np.ones(d)]) / math.sqrt(d) + 0.1 * rng.standard_normal(2 * d)
    bounds = Bounds(theta=theta[None], root=_root(rng, 2 * d)[None], alpha=alpha)
    return Params(version=1, phase=phase, theta=theta, learn=True, bounds=bounds)


@pytest.mark.parametrize("d", [1, 3, 8])
def test_thompson_in_two_dimensions_has_the_prices_of_the_whole_vector(d: int, rng: np.random.Generator) -> None:
    """The device's prices against those of theta ~ N(theta_hat, alpha^2 V^-1) in 2 d dimensions.

    The pair (z.alpha, z.beta) is a linear image of theta, so both are normal with the same mean; the covariances are
    compared to rounding, and the prices by a two-sample Kolmogorov-Smirnov test at an error rate of 1e-4 each.
    """
    params = _published(rng, d, 0.7, Phase.SAMPLE)
    assert params.bounds is not None
    policy = make_policy("ts-wtl", dim=d)
    root = params.bounds.root[0]
    inverse = root @ root.T
    for _ in range(3):
        z = rng.uniform(0.5, 2.0, d) / math.sqrt(d)
        project = np.zeros((2, 2 * d))
        project[0, :d], project[1, d:] = z, z
        r2, vertex, q2 = kernel.forms(root, z, np.empty(4 * d))
        covariance = [[r2 + vertex**2 * q2, vertex * q2], [vertex * q2, q2]]
        np.testing.assert_allclose(project @ inverse @ project.T, covariance, rtol=1e-10)
        n = 100_000
        theta = rng.multivariate_normal(params.theta, 0.49 * inverse, size=n)
        whole = policy.family.optimal_price(theta[:, :d] @ z, theta[:, d:] @ z, (0, 3))
        ours = policy.device().quote(params, np.tile(z, (n, 1)), rng).price
        assert stats.ks_2samp(whole, ours).pvalue > 1e-4


@pytest.mark.parametrize("d", [1, 3, 8])
def test_the_confidence_set_is_sampled_uniformly(d: int, rng: np.random.Generator) -> None:
    """One point of the set: the price has the distribution of that of a uniform point of the ellipsoid (KS, 1e-4)."""
    params = _published(rng, d, 0.7, Phase.SET)
    assert params.bounds is not None
    policy = make_policy("ucb-wtl", dim=d, samples=1)
    z, n, m = rng.uniform(0.5, 2.0, d) / math.sqrt(d), 100_000, 2 * d
    ball = rng.standard_normal((n, m))
    ball *= (rng.random(n) ** (1 / m) / np.linalg.norm(ball, axis=1))[:, None]
    theta = params.theta + 0.7 * ball @ params.bounds.root[0].T
    whole = policy.family.optimal_price(theta[:, :d] @ z, theta[:, d:] @ z, (0, 3))
    ours = policy.device().quote(params, np.tile(z, (n, 1)), rng).price
    assert stats.ks_2samp(whole, ours).pvalue > 1e-4


def test_more_samples_of_the_set_are_more_optimistic(rng: np.random.Generator) -> None:
    """The best sampled theta approaches the best of the set, computed by a fine search of its edge."""
    params = _published(rng, 2, 1.5, Phase.SET)
    assert params.bounds is not None
    z = np.array([0.9, 0.6])
    r2, vertex, q2 = kernel.forms(params.bounds.root[0], z, np.empty(8))
    root = np.linalg.cholesky([[r2 + vertex**2 * q2, vertex * q2], [vertex * q2, q2]])
    angle = np.linspace(0, 2 * np.pi, 10_001)
    a, b = (params.theta.reshape(2, 2) @ z)[:, None] + 1.5 * root @ np.stack([np.cos(angle), np.sin(angle)])
    family = hp.Logistic()
    k = int(np.argmax(family.optimal_revenue(a, b, (0, 3))))
    target = float(family.optimal_price(a[k], b[k], (0, 3)))
    far = [
        abs(make_policy("ucb-wtl", dim=2, samples=M).device().quote(params, np.tile(z, (200, 1)), rng).price - target)
        for M in (1, 10, 5000)
    ]
    assert far[2].mean() < far[1].mean() < far[0].mean()
    assert far[2].mean() < 0.05


# -- supCB --------------------------------------------------------------------------------------------------------


def _listing(
    family: Family, z: Any, theta: Any, inverse: Any, alpha: float, T: int, K: int, cost: float
) -> tuple[float, int]:
    """Steps I to IV of the paper's listing, word for word, with dense algebra: (price, stage), stage 0 for Psi_0."""
    prices = np.linspace(0.0, 3.0, K)
    A, s = list(range(K)), 1
    while True:
        x = {a: np.concatenate([z, -prices[a] * z]) for a in A}
        r = {a: (prices[a] - cost) * float(family.mean(x[a] @ theta[s - 1])) for a in A}
        w = {a: alpha * math.sqrt(x[a] @ inverse[s - 1] @ x[a]) for a in A}
        if any(w[a] > 2.0**-s for a in A):
            return prices[max(A, key=lambda a: w[a])], s
        if all(w[a] <= 1 / math.sqrt(T) for a in A):
            return prices[max(A, key=lambda a: r[a])], 0
        A = [a for a in A if r[a] >= max(r.values()) - 2 * 2.0**-s]
        s += 1


@pytest.mark.parametrize("cost", [0.0, 0.7])
@pytest.mark.parametrize("family", KINDS, ids=lambda f: f.name)
def test_stages_decide_as_in_the_listing(family: Family, cost: float, rng: np.random.Generator) -> None:
    """Random bounds, from none to very sure, so that every stage and both kinds of ending occur."""
    T, K, S, d = 100_000, 7, 9, 2
    seen = set()
    for _ in range(2000):
        theta = np.array([1.2, 1.2, 0.8, 0.8]) + 0.3 * rng.standard_normal((S, 4))
        root = np.stack([_root(rng, 4) for _ in range(S)])
        alpha = 10.0 ** rng.uniform(-3.5, 0.0)
        root *= 2.0 ** -np.minimum(np.arange(S), rng.integers(S))[:, None, None]
        inverse = root @ root.transpose(0, 2, 1)
        z = rng.uniform(0.1, 0.5, d)
        want = _listing(family, z, theta, inverse, alpha, T, K, cost)
        rule = BoundRule(Phase.STAGES.value, family.code, theta, root, alpha, 1 / math.sqrt(T), K)
        got = kernel.staged_price(rule, z, cost, 0.0, 3.0, kernel.scratch(rule))
        assert got[1] == want[1]
        assert got[0] == pytest.approx(want[0], abs=1e-12)
        seen.add(got[1])
    assert len(seen) >= 7


def test_supcb_follows_its_listing_from_beginning_to_end() -> None:
    """Linear demand, where the running estimate is the exact one: every price and every stage of a run."""
    T, d = 400, 1
    policy = make_policy("supcb", family="linear", dim=d, horizon=T, width_scale=0.1)
    S, tau, K = math.floor(math.log2(T)), math.ceil(math.sqrt(d * T)), math.ceil(math.sqrt(T / d) / math.log(T))
    alpha = 0.1 * math.log(math.log(T)) * math.sqrt(math.log(3 * T**1.5 * K * S))
    loop = checks.LiveLoop(policy, checks.world_for(policy), horizon=T)
    x: list[list[Any]] = [[] for _ in range(S)]
    y: list[list[float]] = [[] for _ in range(S)]
    ended = []
    for t in range(T):
        offer = loop.pricer.offer(loop.z[t])
        outcome = loop.outcome(t, offer.price)
        loop.pricer.observe(offer, outcome)
        if t < S * tau:
            s = t // tau + 1
            assert np.abs(np.linspace(0, 3, K) - offer.price).min() < 1e-12
        else:
            V = [np.eye(2 * d) + np.array(rows).T @ np.array(rows) for rows in x]
            theta = [np.linalg.solve(V[s], np.array(x[s]).T @ np.array(y[s])) for s in range(S)]
            price, s = _listing(policy.family, loop.z[t], theta, [np.linalg.inv(v) for v in V], alpha, T, K, 0.0)
            assert offer.price == pytest.approx(price, abs=1e-12)
        assert offer.stage == s
        assert offer.experiment == (s > 0)
        ended.append(s)
        if s:
            x[s - 1].append(np.concatenate([loop.z[t], -offer.price * loop.z[t]]))
            y[s - 1].append(outcome)
    assert [e.records for e in loop.pricer._server.estimators] == [len(rows) for rows in x]
    assert len(set(ended[S * tau :])) >= 3


@pytest.mark.parametrize("family", KINDS, ids=lambda f: f.name)
def test_what_joins_a_stage_does_not_depend_on_its_outcomes(family: Family, rng: np.random.Generator) -> None:
    """The independence supCB rests on: change the outcomes (so the estimate) of stage s and of later ones at will;
    who ends in stage s, and at which price, stays the same."""
    K, S, joined = 6, 5, 0
    for _ in range(1500):
        theta = np.array([1.2, 0.8]) + 0.3 * rng.standard_normal((S, 2))
        root = np.stack([_root(rng, 2) for _ in range(S)])
        root *= 10.0 ** rng.uniform(-2.5, 0.5, S)[:, None, None]
        z = rng.uniform(0.1, 1.5, 1)

        def decide(theta: Any, root: Any = root, z: Any = z) -> tuple[float, int]:
            rule = BoundRule(Phase.STAGES.value, family.code, theta, root, 1.0, 0.01, K)
            decision: tuple[float, int] = kernel.staged_price(rule, z, 0.0, 0.0, 3.0, kernel.scratch(rule))
            return decision

        price, s = decide(theta)
        if s == 0:
            continue
        joined += s > 1
        other = theta.copy()
        other[s - 1 :] = rng.standard_normal((S - s + 1, 2))
        assert decide(other) == (price, s)
    assert joined > 100


def test_estimates_beyond_all_numbers_give_a_price_of_the_grid() -> None:
    """Rewards that are not numbers must not eliminate the last arm."""
    theta, root = np.full((3, 2), 1e308), np.full((3, 2, 2), 1e-20)
    rule = BoundRule(Phase.STAGES.value, 0, theta, root, 1e-6, 1e-9, 5)
    price, stage = kernel.staged_price(rule, np.array([1e12]), 0.0, 1.0, 3.0, kernel.scratch(rule))
    assert stage == 0
    assert 1.0 <= price <= 3.0


def test_a_span_never_leaves_its_episode() -> None:
    server = make_policy("supcb-doubling", dim=4).server()
    for k in range(1, 6):
        assert (server.k, server.t) == (k, 0)  # type: ignore[attr-defined]
        while server.k == k:  # type: ignore[attr-defined]
            server.advance(server.span)


def test_doubling_starts_afresh() -> None:
    policy = make_policy("supcb-doubling", dim=1, width_scale=0.02)
    loop = checks.LiveLoop(policy, checks.world_for(policy))
    for k in range(1, 8):
        server = loop.pricer._server
        assert (server.k, server.t, sum(server.stages.records)) == (k, 0, 0)  # type: ignore[attr-defined]
        assert len(server.estimators) == k
        loop.run(2**k - 2, 2 ** (k + 1) - 2)


def test_outcomes_of_an_earlier_episode_come_too_late() -> None:
    policy = make_policy("supcb-doubling", dim=1)
    pricer = policy.start(seed=1)
    offers = [pricer.offer([1.0]) for _ in range(7)]  # episodes of 2 and 4 rounds, and one round of the third
    assert all(pricer.observe(offer, 1) for offer in offers)
    assert sum(pricer._server.stages.records) == 1  # type: ignore[attr-defined]


def test_adversarial_supcb_has_no_experiments() -> None:
    params = make_policy("supcb-adversarial").start(seed=1).params
    assert params.phase is Phase.STAGES
    assert params.bounds is not None
    np.testing.assert_array_equal(params.bounds.root, np.tile(np.eye(6), (9, 1, 1)))


@pytest.mark.parametrize("name", ["supcb", "supcb-adversarial", "ucb", "ts-wtl", "ucb-wtl"])
@pytest.mark.parametrize("horizon", [1, 2, 3, 5])
def test_tiny_horizons(name: str, horizon: int) -> None:
    policy = make_policy(name, horizon=horizon)
    result = hp.simulate(policy, hp.markets.s1(dim=3), horizon=horizon, replications=1)
    assert np.isfinite(result.regret).all()
    loop = checks.LiveLoop(policy, checks.world_for(policy), horizon=50)
    loop.run(0, 50)  # and beyond it


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *((name, {"width_scale": value}) for name in BOUND_POLICIES for value in (-1, math.nan, True, "wide")),
        *((name, {"horizon": 0}) for name in BOUND_POLICIES if name != "supcb-doubling"),
        *((name, {"dim": 5000}) for name in BOUND_POLICIES),
        ("ucb-wtl", {"samples": 0}),
        ("ucb-wtl", {"samples": 10**6}),
    ],
)
def test_bad_options_are_refused(name: str, wrong: dict[str, Any]) -> None:
    options: dict[str, Any] = {"family": "logistic", "dim": 3, "prices": (0, 3)}
    if name != "supcb-doubling":
        options["horizon"] = 700
    with pytest.raises(hp.InvalidInput):
        hp.policies.get(name)(**(options | wrong))


def test_open_offers_do_not_hold_the_bounds() -> None:
    """A hundred thousand waiting offers must not mean as many matrices."""
    offer = make_policy("ucb").start(seed=1).offer([1.0, 0.5, 0.2])
    assert offer.params.bounds is None


# -- regret ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ucb", "ts-wtl", "ucb-wtl"])
def test_bounds_learn_under_adversarial_contexts(name: str) -> None:
    """On A1 the regret per customer falls: four times the customers, far less than four times the regret.

    20 replications; the ratio is about 2 with a standard error below 0.15, so 3 is over six standard errors away.
    """
    market = hp.markets.a1(dim=4)
    regret = [
        hp.simulate(make_policy(name, dim=4, horizon=T), market, horizon=T, replications=20, seed=5).regret.mean()
        for T in (1500, 6000)
    ]
    assert regret[1] < 3.0 * regret[0]
    random = hp.simulate(make_policy("random-price", dim=4), market, horizon=6000, replications=2, seed=5)
    assert regret[1] < 0.3 * random.regret.mean()


# -- no estimate drifts ---------------------------------------------------------------------------------------------

LEARNERS = ("etc", "etc-doubling", "mle-cycle", "semi-myopic", "greedy", *BOUND_POLICIES)


@pytest.mark.parametrize("market", ["s1", "s2", "a1"])
@pytest.mark.parametrize("name", LEARNERS)
def test_no_estimate_drifts(name: str, market: str) -> None:
    """At random times of a run the running estimate is within the stated bound of a fresh exact fit of its records."""
    rng = np.random.default_rng(31)
    for family in ("logistic", "poisson") if name in ("ucb", "supcb", "semi-myopic") else ("logistic",):
        horizon = 6000
        options = {"width_scale": 0.03} if name.startswith("supcb") else {}
        policy = make_policy(name, family=family, dim=4, horizon=horizon, **options)
        world = hp.markets.build(market, dim=4, family=family, horizon=horizon)
        z = world.draw(rng, horizon)
        loop, t, worst = policy.loop(), 0, 0.0
        while t < horizon:
            n = min(int(rng.integers(1, 600)), horizon - t)
            loop.sell(Block(world, z[t : t + n], rng.random(n)), rng)
            t += n
            worst = max(worst, *(e.drift() for e in loop.server.estimators))
        assert worst <= DRIFT_BOUND


# -- policies of one's own --------------------------------------------------------------------------------------------


def _own(**members: Any) -> hp.policies.Policy:
    """A bound policy with these members instead of UCB's."""
    namespace: dict[str, Any] = {
        "phase": Phase.INDEX,
        "plan": lambda self, k: Plan(length=100, alpha=1.0),
        "name": "own",
    }
    own: Any = type("Own", (hp.policies.BoundPolicy,), namespace | members)
    cls = dataclasses.dataclass(frozen=True, kw_only=True)(own)
    policy: hp.policies.Policy = cls(family="logistic", dim=2, prices=(0, 3))
    return policy


@pytest.mark.parametrize("phase", [Phase.INDEX, Phase.SAMPLE, Phase.STAGES])
def test_a_bound_policy_of_ones_own(phase: Phase) -> None:
    policy = _own(phase=phase)
    result = hp.simulate(policy, hp.markets.s1(dim=2), horizon=700, replications=1)
    assert np.isfinite(result.regret).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"stages": 0}, {"length": 0}, {"alpha": math.nan}, {"alpha": -1.0}, {"arms": 1}, {"tau": -1},
        {"floor": math.inf}, {"stages": 3}, {"arms": 10**9}, {"length": 2.5},
    ],
)  # fmt: skip
def test_plans_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(hp.InvalidInput):
        _own(plan=lambda self, k: Plan(**({"length": 100, "alpha": 1.0} | wrong)))


@pytest.mark.parametrize("phase", [Phase.EXPLORE, Phase.EXPLOIT, Phase.GRID, Phase.SET])
def test_phases_that_cannot_price_from_bounds_are_refused(phase: Phase) -> None:
    with pytest.raises(hp.InvalidInput):
        _own(phase=phase)


# -- snapshots ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("k", 0), ("k", 10**9), ("k", "1"), ("k", True), ("t", -1), ("t", 2.0), ("first", 0), ("version", None),
        ("stages", {}), ("stages.root", np.zeros((1, 6, 6))), ("stages.root", np.full((9, 6, 6), np.nan)),
        ("stages.inside", np.full(9, 10**6)), ("stages.inside", np.zeros(9)), ("stages.stages", {"1": {}}),
    ],
)  # fmt: skip
def test_states_that_make_no_sense_are_refused(key: str, value: Any) -> None:
    policy = make_policy("supcb", horizon=700)
    loop = checks.LiveLoop(policy, checks.world_for(policy))
    loop.run(0, 600)
    state = loop.pricer._server.state()
    policy.server().restore(state)  # as it is, it is fine
    *outer, last = key.split(".")
    place = state
    for name in outer:
        place = place[name]
    place[last] = value
    with pytest.raises(hp.HushpriceError):
        policy.server().restore(state)


def test_a_context_beyond_reason_does_not_spoil_the_snapshot(tmp_path: Path) -> None:
    """A step so long that it overflows is replaced by an exact refit."""
    rng = np.random.default_rng(3)
    pricer = make_policy("ucb", family="poisson", dim=2, horizon=100, width_scale=0.01).start(seed=1)
    odd = (np.array([1e12, -1e12]), np.zeros(2), np.array([1.0, 0.0]))
    for i in range(260):
        k = int(rng.integers(4)) if i >= 230 else 3
        pricer.observe(pricer.offer(rng.random(2) if k == 3 else odd[k]), float(rng.integers(2)))
        if i >= 230:
            pricer.save(tmp_path / "pricer.hush")
            pricer = hp.Pricer.load(tmp_path / "pricer.hush")
            assert np.isfinite(pricer.params.theta).all()


def test_many_samples_are_drawn_a_few_customers_at_a_time() -> None:
    """The block size must not multiply with the samples; and what is drawn in parts is the same."""
    policy = make_policy("ucb-wtl", dim=2, samples=2000)
    assert policy.loop().max_block * 4000 <= 2**20
    loop = checks.LiveLoop(policy, checks.world_for(policy), horizon=600)
    live, _ = loop.run(0, 600)
    np.testing.assert_array_equal(checks.run_batch(policy, checks.world_for(policy), horizon=600).prices, live)
