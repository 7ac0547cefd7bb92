"""The formulas of private look-ahead against enumeration, finite differences, numerical integration and NumPy."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from hushprice.arrays import Array
from hushprice.demand import Terms, as_family
from hushprice.kernels.dither import design, expected, posterior, prices, score
from hushprice.kernels.glm import LINEAR, LOGISTIC, POISSON, PROBIT, utility_of
from hushprice.kernels.state import DitherRule

D = 3
BOUNDS = {LOGISTIC: (0.0, 1.0), PROBIT: (0.0, 1.0), POISSON: (0.0, 3.0), LINEAR: (-1.0, 3.0)}
CODES = list(BOUNDS)


def rule_of(code: int, rng: np.random.Generator, **changes: Any) -> DitherRule:
    """A rule with random weights."""
    least, most = BOUNDS[code]
    theta = np.concatenate([rng.uniform(0.2, 1.0, D), rng.uniform(0.1, 0.6, D)])
    rule = DitherRule(
        code,
        theta,
        rng.uniform(0.05, 0.9),
        0.0,
        0.0,
        rng.normal(size=(D, D)),
        rng.normal(size=(D, D)),
        least,
        most,
        0.7,
    )
    return rule._replace(**changes)


def terms_of(n: int, *, ladder: Array | None = None) -> Terms:
    """Terms of n customers with prices from 0 to 3."""
    plain = Terms.of(None, (0.0, 3.0), n, cost=0.0)
    return plain if ladder is None else plain._replace(ladder=ladder)


def mean_of(code: int, eta: float, scale: float) -> Any:
    """The distribution of an outcome."""
    if code == LINEAR:
        return stats.norm(eta, scale)
    if code == POISSON:
        return stats.poisson(math.exp(eta))
    return stats.bernoulli(as_family("logistic" if code == LOGISTIC else "probit").mean(eta))


def bounded(code: int, eta: float, scale: float, least: float, most: float) -> float:
    """E min(max(y, least), most) by definition."""
    if code == LINEAR:
        inside = integrate.quad(lambda y: y * stats.norm.pdf(y, eta, scale), least, most)[0]
        below, above = stats.norm.cdf(least, eta, scale), stats.norm.sf(most, eta, scale)
        return float(inside + least * below + most * above)
    counts = np.arange(200)
    return float((np.clip(counts, least, most) * mean_of(code, eta, scale).pmf(counts)).sum())


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("eta", [-6.0, -1.0, 0.0, 0.4, 2.0, 4.0])
def test_bounded_mean_and_its_slope(code: int, eta: float) -> None:
    least, most = BOUNDS[code]
    mean = prices.bounded_mean(code, 0.7, eta, least, most)
    assert mean == pytest.approx(bounded(code, eta, 0.7, least, most), abs=1e-9)
    step = 1e-5
    ends = [prices.bounded_mean(code, 0.7, eta + s, least, most) for s in (-step, step)]
    slope = prices.bounded_slope(code, 0.7, eta, least, most)
    assert slope == pytest.approx((ends[1] - ends[0]) / (2 * step), abs=1e-7)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("eta", [-1e8, -800.0, 800.0, 1e8])
def test_bounded_means_far_out(code: int, eta: float) -> None:
    least, most = BOUNDS[code]
    mean, slope = (f(code, 0.7, eta, least, most) for f in (prices.bounded_mean, prices.bounded_slope))
    assert mean == pytest.approx(most if eta > 0 else least, abs=1e-6)
    assert slope == pytest.approx(0.0, abs=1e-9)


def scores(rule: DitherRule, z: Array, outcomes: list[float]) -> dict[tuple[int, float], Array]:
    """The score of a customer for each coin and outcome."""
    terms = terms_of(1)
    limits = (terms.cost[0], terms.low[0], terms.high[0], terms.ladder)
    a, b = utility_of(rule.theta, z)
    pair, found = prices.price_pair(rule, a, b, *limits), {}
    for k, y in product(range(2), outcomes):
        g = np.empty(2 * D)
        assert score.dithered_score(rule, z, pair[k], y, limits, np.empty(2 * D), g)
        found[k, y] = g
    return found


@pytest.mark.parametrize("code", CODES)
def test_scores_have_a_length_of_at_most_one(code: int) -> None:
    """It is reached at an end of the outcomes."""
    rng = np.random.default_rng(code)
    for _ in range(50):
        rule, z = rule_of(code, rng), rng.normal(size=D) * 10.0 ** rng.uniform(-3, 3)
        least, most = BOUNDS[code]
        outcomes = [-1e9, least, 0.5 * (least + most), most, 1e9]
        lengths = [np.linalg.norm(g) for g in scores(rule, z, outcomes).values()]
        assert max(lengths) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("code", [LOGISTIC, PROBIT, POISSON])
def test_scores_have_mean_zero_where_theta_is_true(code: int) -> None:
    """Whatever else is published."""
    rng = np.random.default_rng(10 + code)
    for _ in range(20):
        rule, z = rule_of(code, rng, pull=0.5, target=2.5), rng.uniform(0.2, 1.0, D)
        counts = [float(y) for y in range(2 if code != POISSON else 60)]
        found, mean = scores(rule, z, counts), np.zeros(2 * D)
        a, b = utility_of(rule.theta, z)
        terms = terms_of(1)
        pair = prices.price_pair(rule, a, b, terms.cost[0], terms.low[0], terms.high[0], terms.ladder)
        for (k, y), g in found.items():
            mean += 0.5 * mean_of(code, a - b * pair[k], 0.7).pmf(y) * g
        assert np.abs(mean).max() < 1e-9


def test_a_price_of_another_rule_has_no_score() -> None:
    rule, terms = rule_of(LOGISTIC, np.random.default_rng(1)), terms_of(1)
    limits = (terms.cost[0], terms.low[0], terms.high[0], terms.ladder)
    assert not score.dithered_score(rule, np.ones(D), 0.123, 1.0, limits, np.empty(2 * D), np.empty(2 * D))


def test_one_price_of_a_ladder_tells_nothing_of_the_slope() -> None:
    rule = rule_of(LOGISTIC, np.random.default_rng(2), delta=0.01)
    terms, g = terms_of(1, ladder=np.array([1.0, 2.0])), np.empty(2 * D)
    limits = (terms.cost[0], terms.low[0], terms.high[0], terms.ladder)
    a, b = utility_of(rule.theta, np.ones(D))
    lower, upper = prices.price_pair(rule, a, b, *limits)
    assert lower == upper
    assert score.dithered_score(rule, np.ones(D), lower, 1.0, limits, np.empty(2 * D), g)
    assert (g[D:] == 0.0).all()
    assert (g[:D] != 0.0).any()


def stage_of(rule: DitherRule, points: Array) -> Array:
    """The table of a stage."""
    table = np.empty((len(points), 4 + 2 * D))
    expected.tabulate(rule, points, terms_of(len(points)), table)
    return table


@pytest.mark.parametrize("code", [LOGISTIC, PROBIT, POISSON])
def test_expected_scores_are_those_of_all_outcomes(code: int) -> None:
    """At a theta that was not published."""
    rng = np.random.default_rng(20 + code)
    rule, points = rule_of(code, rng), rng.uniform(0.2, 1.0, (7, D))
    shares = rng.dirichlet(np.ones(7))
    theta, f = rule.theta + rng.normal(size=2 * D) * 0.3, np.empty(2 * D)
    demand = (code, 0.7, *BOUNDS[code])
    expected.mean_score(demand, theta, points, shares, stage_of(rule, points), f)
    mean = np.zeros(2 * D)
    for z, share in zip(points, shares, strict=True):
        a, b = utility_of(rule.theta, z)
        terms = terms_of(1)
        pair = prices.price_pair(rule, a, b, terms.cost[0], terms.low[0], terms.high[0], terms.ladder)
        true_a, true_b = utility_of(theta, z)
        counts = [float(y) for y in range(2 if code != POISSON else 60)]
        for (k, y), g in scores(rule, z, counts).items():
            mean += share * 0.5 * mean_of(code, true_a - true_b * pair[k], 0.7).pmf(y) * g
    assert f == pytest.approx(mean, abs=1e-9)


@pytest.mark.parametrize("code", CODES)
def test_derivatives_of_expected_scores(code: int) -> None:
    rng = np.random.default_rng(30 + code)
    rule, points = rule_of(code, rng), rng.uniform(0.2, 1.0, (9, D))
    shares, table = np.full(9, 1 / 9), stage_of(rule, points)
    theta, demand = rule.theta + 0.1, (code, 0.7, *BOUNDS[code])
    f, J = np.empty(2 * D), np.empty((2 * D, 2 * D))
    expected.linearise(demand, theta, points, shares, table, f, J)
    ends = np.empty((2, 2 * D))
    expected.mean_score(demand, theta, points, shares, table, ends[0])
    assert f == pytest.approx(ends[0], abs=1e-15)
    for j in range(2 * D):
        for k, step in enumerate((-1e-5, 1e-5)):
            expected.mean_score(demand, theta + step * np.eye(2 * D)[j], points, shares, table, ends[k])
        assert J[:, j] == pytest.approx((ends[1] - ends[0]) / 2e-5, abs=1e-8)


def problem(seed: int) -> Any:
    """Three stages with noisy means, and two priors."""
    rng = np.random.default_rng(seed)
    points, shares = rng.uniform(0.2, 1.0, (12, D)), np.full(12, 1 / 12)
    rules = [rule_of(LOGISTIC, rng) for _ in range(3)]
    tables = np.array([stage_of(rule, points) for rule in rules])
    demand, truth = (LOGISTIC, 1.0, 0.0, 1.0), rng.uniform(0.2, 0.8, 2 * D)
    means = np.empty((3, 2 * D))
    for k in range(3):
        expected.mean_score(demand, truth, points, shares, tables[k], means[k])
    means += rng.normal(size=means.shape) * 0.01
    worth = np.array([50.0, 300.0, 2000.0])
    centres, precisions = rng.uniform(0.0, 1.0, (2, 2 * D)), np.array([np.eye(2 * D), 4.0 * np.eye(2 * D)])
    return demand, (points, shares, tables, means, worth), centres, precisions


def test_the_estimate_is_the_minimum() -> None:
    """As another optimiser finds it, and with the Hessian of Gauss and Newton."""
    demand, stages, centres, precisions = problem(1)
    points, shares, tables, means, worth = stages

    def minus_log_posterior(theta: Array) -> float:
        value = 0.5 * (theta - centres[0]) @ precisions[0] @ (theta - centres[0])
        for k in range(3):
            f = np.empty(2 * D)
            expected.mean_score(demand, theta, points, shares, tables[k], f)
            value += 0.5 * worth[k] * ((means[k] - f) ** 2).sum()
        return float(value)

    best = optimize.minimize(minus_log_posterior, centres[0], method="BFGS", options={"gtol": 1e-9})
    theta, H = centres[0].copy(), np.empty((2 * D, 2 * D))
    value = posterior.maximise(demand, stages, 3, centres[0], precisions[0], theta, H)
    assert value == pytest.approx(best.fun, abs=1e-6)
    assert theta == pytest.approx(best.x, abs=2e-3)
    own = precisions[0].copy()
    for k in range(3):
        f, J = np.empty(2 * D), np.empty((2 * D, 2 * D))
        expected.linearise(demand, theta, points, shares, tables[k], f, J)
        own += worth[k] * J.T @ J
    np.testing.assert_allclose(H, own, rtol=1e-9)


def test_priors_are_weighed_by_their_evidence() -> None:
    demand, stages, centres, precisions = problem(2)
    first, weights = np.log([0.7, 0.3]), np.empty(2)
    thetas, H = centres.copy(), np.empty((2, 2 * D, 2 * D))
    posterior.update(demand, stages, 3, (centres, precisions, first), thetas, H, weights)
    logs = []
    for c in range(2):
        theta, own = centres[c].copy(), np.empty((2 * D, 2 * D))
        value = posterior.maximise(demand, stages, 3, centres[c], precisions[c], theta, own)
        logs.append(first[c] - value + 0.5 * (np.linalg.slogdet(precisions[c])[1] - np.linalg.slogdet(own)[1]))
    assert weights == pytest.approx(np.exp(logs) / np.exp(logs).sum(), rel=1e-9)


def test_the_price_of_a_design() -> None:
    """By NumPy, from its definition."""
    rng = np.random.default_rng(3)
    points, shares = rng.uniform(0.2, 1.0, (12, D)), np.full(12, 1 / 12)
    rule, terms, m = rule_of(LOGISTIC, rng), terms_of(12), 2 * D
    G, H = np.eye(m) * 0.1, np.array([np.eye(m), 9.0 * np.eye(m)])
    weights, count, later, variance = np.array([0.4, 0.6]), 700.0, 9000.0, 6.0
    room = np.empty((12, 4 + m)), np.empty(m), np.empty((m, m)), np.empty((m, m)), np.zeros((m, m)), np.empty((m, m))
    price = design.price_of_design(rule, (points, shares), terms, (G, H, weights, count, later, variance), room)
    table, f, J = stage_of(rule, points), np.empty(m), np.empty((m, m))
    expected.linearise((LOGISTIC, 0.7, 0.0, 1.0), rule.theta, points, shares, table, f, J)
    lost, family = 0.0, as_family("logistic")
    for z, row in zip(points, table, strict=True):
        a, b = z @ rule.theta[:D], z @ rule.theta[D:]
        best = family.optimal_price(a, b, (0.0, 3.0))
        lost += (family.revenue(best, a, b) - 0.5 * (family.revenue(row[0], a, b) + family.revenue(row[1], a, b))) / 12
    spread = sum(
        w * np.trace(G @ np.linalg.inv(h + count / variance * J.T @ J)) for w, h in zip(weights, H, strict=True)
    )
    assert price == pytest.approx(count * lost + 0.5 * later * spread, rel=1e-9)
