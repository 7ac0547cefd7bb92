"""Look-ahead pricing: formulas against independent references, prior, memory, and that units do not matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import hushprice as hp
from hushprice.arrays import Array
from hushprice.demand import as_family
from hushprice.errors import InvalidInput, SnapshotError
from hushprice.estimation import Prior
from hushprice.kernels import look_ahead as kernel
from hushprice.kernels.glm import draw_ufunc
from hushprice.kernels.newton import newton
from hushprice.policies import LookAhead, Phase, Records
from hushprice.policies.look_ahead import AheadServer
from hushprice.simulation import replicate

EVERY = ("logistic", "poisson", "linear", "probit")
LOW, HIGH = 0.0, 6.0
LOGISTIC = as_family("logistic")


def _policy(family: str = "logistic", dim: int = 2, **options: Any) -> LookAhead:
    return LookAhead(**{"family": family, "dim": dim, "prices": (LOW, HIGH), **options})


def _best(family: str, a: float, b: float, cost: float) -> float:
    """The best price by golden section."""
    mean = as_family(family).mean
    found = minimize_scalar(
        lambda p: -(p - cost) * float(mean(a - b * p)), bounds=(LOW, HIGH), method="bounded", options={"xatol": 1e-11}
    )
    return float(found.x)


def _learn(policy: LookAhead, z: Array, price: Array, y: Array) -> AheadServer:
    """A server that has learned from these sales, one at a time."""
    server = policy.server()
    for i in range(len(z)):
        server.advance(1)
        server.absorb(Records(z[i : i + 1], price[i : i + 1], y[i : i + 1]))
        _ = server.params
    return server


def _sales(family: str, z: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Prices at random, and outcomes of alpha = beta = 1."""
    n, d = z.shape
    price = rng.uniform(0.5, 2.0, n)
    eta = z @ np.ones(d) * (1.0 - price) if family != "linear" else z @ np.ones(d) * (2.0 - 0.5 * price)
    mean = as_family(family).mean(eta)
    y: Array = draw_ufunc(as_family(family).code, 1.0, mean, rng.random(n))
    return np.asarray(price), y


# -- formulas -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", EVERY)
@pytest.mark.parametrize(("a", "b", "cost"), [(1.6, 1.0, 0.0), (0.3, 0.7, 0.4), (2.5, 1.5, 0.2)])
def test_gains_are_derivatives_of_the_best_price_and_of_the_profit(
    family: str, a: float, b: float, cost: float
) -> None:
    """By central differences, whose error is below 1e-4 of the value."""
    code, mean, h = as_family(family).code, as_family(family).mean, 1e-4
    r2, pa, pb = kernel.gains(code, a, b, cost, LOW, HIGH)

    def best(a: float, b: float) -> float:
        return float(as_family(family).optimal_price(a, b, (LOW, HIGH), cost=cost))

    p = best(a, b)
    assert p == pytest.approx(_best(family, a, b, cost), abs=1e-5)

    def profit(p: float) -> float:
        return (p - cost) * float(mean(a - b * p))

    assert r2 == pytest.approx(-(profit(p + 0.01) - 2 * profit(p) + profit(p - 0.01)) / 0.01**2, rel=1e-3)
    assert pa == pytest.approx((best(a + h, b) - best(a - h, b)) / (2 * h), rel=1e-4, abs=1e-8)
    assert pb == pytest.approx((best(a, b + h) - best(a, b - h)) / (2 * h), rel=1e-4)


@pytest.mark.parametrize("family", EVERY)
def test_a_price_at_an_end_or_without_sensitivity_teaches_nothing_about_itself(family: str) -> None:
    code = as_family(family).code
    assert kernel.gains(code, 1.0, -0.5, 0.0, LOW, HIGH) == (0.0, 0.0, 0.0)
    assert kernel.gains(code, 1.0, 0.05, 0.0, 0.0, 1.0) == (0.0, 0.0, 0.0)


def test_mean_gains_average_over_the_posterior() -> None:
    """Against 20 000 draws: the rule has nine nodes, so that 3% are allowed besides five standard errors."""
    q, phi = (0.04, 0.02, 0.03), 1.0
    rng = np.random.default_rng(5)
    draws = rng.multivariate_normal([1.6, 1.0], [[0.04, 0.02], [0.02, 0.03]], size=20_000)
    values = np.array([kernel.gains(1, a, b, 0.1, LOW, HIGH) for a, b in draws])
    products = np.stack([values[:, 0] * values[:, 1] ** 2, values.prod(axis=1), values[:, 0] * values[:, 2] ** 2])
    mean = np.array(kernel.mean_gains(1, 1.6, 1.0, phi, q, 0.1, LOW, HIGH))
    error = products.std(axis=1) / np.sqrt(len(draws))
    np.testing.assert_allclose(mean, products.mean(axis=1), rtol=0.03, atol=5 * error.max())


@pytest.mark.parametrize("family", EVERY)
def test_the_worth_of_a_price_is_profit_plus_what_the_outcome_teaches(family: str, rng: np.random.Generator) -> None:
    """J by dense matrices, with G from the records and the customer's own gains."""
    d, policy = 3, _policy(family, 3, cost=0.1)
    z = rng.uniform(0.2, 0.8, (60, d))
    server = _learn(policy, z, *_sales(family, z, rng))
    params = server.params
    outlook = params.outlook
    assert outlook is not None
    assert params.phase is Phase.AHEAD
    rule = policy.device()._outlook(params, outlook)
    customer = rng.uniform(0.2, 0.8, d)
    a, b, q, m = kernel.project(rule, customer, 0.1, np.empty(5 * d))
    P, (g00, g01, g11) = outlook.covariance, outlook.gains
    G = np.block([[g00, g01], [g01, g11]])
    own = kernel.mean_gains(rule.code, a, b, outlook.dispersion, q, 0.1, LOW, HIGH)
    zz = np.outer(customer, customer)
    G = (1 - outlook.own) * G + outlook.own * np.block([[own[0] * zz, own[1] * zz], [own[1] * zz, own[2] * zz]])
    assert outlook.own == pytest.approx(3 / 64)
    many = 0.5 * outlook.later * outlook.dispersion
    assert outlook.later == 61.0
    for p in (0.4, 1.1, 2.0, 5.0):
        x = np.r_[customer, -p * customer]
        eta = float(x @ params.theta)
        mu = float(as_family(family).mean(eta))
        h = 1e-4
        slope = float(as_family(family).mean(eta + h) - as_family(family).mean(eta - h)) / (2 * h)
        w = slope**2 / (mu * (1 - mu)) if family == "probit" else slope
        expected = (p - 0.1) * mu + many * w * (x @ P @ G @ P @ x) / (1 + w * (x @ P @ x))
        assert kernel.worth(rule.code, a, b, q, m, many, p, 0.1) == pytest.approx(expected, rel=1e-6)


def test_the_price_is_near_the_maximum_of_its_worth(rng: np.random.Generator) -> None:
    policy = _policy(spread=0.0)
    z = np.ones((40, 2)) * [1.0, 0.5]
    server = _learn(policy, z, *_sales("logistic", z, rng))
    params = server.params
    assert params.outlook is not None
    rule, work = policy.device()._outlook(params, params.outlook), np.empty(10)
    centre, reach, known = kernel.span(rule, z[0], 0.0, LOW, HIGH, np.empty(0), work)
    a, b, q, m = kernel.project(rule, z[0], 0.0, work)
    grid = np.linspace(LOW, HIGH, 20_001)
    many = 0.5 * rule.later * rule.dispersion
    worth = [kernel.worth(rule.code, a, b, q, m, many, p, 0.0) for p in grid]
    assert reach == 0.0
    assert centre == pytest.approx(grid[int(np.argmax(worth))], abs=(HIGH - LOW) / 32 / 2**6)
    assert known == (a, b)


@pytest.mark.parametrize("family", EVERY)
def test_the_estimate_and_g_are_those_of_the_records(family: str, rng: np.random.Generator) -> None:
    z = np.c_[np.ones(150), rng.standard_normal(150)] if family != "linear" else rng.uniform(0.2, 1.0, (150, 2))
    price, y = _sales(family, z, rng)
    server = _learn(_policy(family), z, price, y)
    estimator = server.estimator
    theta, information, rows = np.zeros(4), np.empty((4, 4)), np.c_[z, -price[:, None] * z]
    newton(
        as_family(family).code, rows, y, np.ones(150), server.learned().estimate.penalty, theta, information, 1e-10, 500
    )
    np.testing.assert_allclose(estimator.published, theta, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", EVERY)
def test_g_averages_gains_and_recent_customers_count_more(family: str, rng: np.random.Generator) -> None:
    """The recursion by dense matrices, with the posterior after each sale."""
    z = np.c_[np.ones(40), rng.uniform(0.2, 1.0, 40)]
    price, y = _sales(family, z, rng)
    policy = _policy(family, cost=0.1)
    server, G, d = policy.server(), np.zeros((3, 2, 2)), 2
    for i in range(len(z)):
        server.absorb(Records(z[i : i + 1], price[i : i + 1], y[i : i + 1]))
        _ = server.params
        theta, P, phi = server.estimator.published, server.estimator.P, float(server.tally[kernel.DISPERSION])
        x0, x1 = np.r_[z[i], 0, 0], np.r_[0, 0, z[i]]
        q = (x0 @ P @ x0, x0 @ P @ x1, x1 @ P @ x1)
        a, b = z[i] @ theta[:d], z[i] @ theta[d:]
        gains = kernel.mean_gains(policy.family.code, a, b, phi, q, 0.1, LOW, HIGH)
        share = 3.0 / (i + 1 + 3.0)
        G = (1.0 - share) * G + share * np.array(gains)[:, None, None] * np.outer(z[i], z[i])
    np.testing.assert_allclose(server.gains, G, rtol=1e-9, atol=1e-12)
    assert (server.gains[0] > 0.0).any()


# -- the prior ------------------------------------------------------------------------------------------------


def _groups(rng: np.random.Generator, n: int, d: int) -> Array:
    return np.eye(d)[rng.integers(d, size=n)]


def test_kinds_of_features_are_recognised(rng: np.random.Generator) -> None:
    z = np.c_[np.full(60, 2.0), rng.standard_normal(60), 0.5 * _groups(rng, 60, 3)]
    server = _learn(_policy(dim=5), z, *_sales("logistic", z, rng))
    kinds = kernel.kinds_of(server.learned())
    assert kinds.tolist() == [kernel.CONSTANT, kernel.NUMBER] + [kernel.INDICATOR] * 3
    np.testing.assert_allclose(kernel.shared_value(server.learned(), kinds), [0, 0, 2, 2, 2], rtol=1e-4)
    z[7, 2:] = 0.0  # a customer of no group: the indicators no longer share a value
    server = _learn(_policy(dim=5), z, *_sales("logistic", z, rng))
    assert not kernel.shared_value(server.learned(), kernel.kinds_of(server.learned())).any()


def test_two_complete_groups_share_one_value(rng: np.random.Generator) -> None:
    z = np.c_[_groups(rng, 100, 3), _groups(rng, 100, 2)]
    server = _learn(_policy(dim=5), z, *_sales("logistic", z, rng))
    c = kernel.shared_value(server.learned(), kernel.kinds_of(server.learned()))
    np.testing.assert_allclose(z @ c, np.ones(100), atol=1e-5)


def test_the_prior_precision_is_the_inverse_of_variances_and_shared_value(rng: np.random.Generator) -> None:
    variances, c, size = rng.uniform(0.1, 2.0, 4), np.array([0.0, 1.0, 1.0, 2.0]), 0.7
    precision = kernel.prior_precision(variances, c, size)
    np.testing.assert_allclose(precision, np.linalg.inv(np.diag(variances) + size * np.outer(c, c)))


def _usual_slopes(z: Array) -> Array:
    """Least squares of SLOPE on the features, which are scaled to a sum of squares of 1 and have a ridge of 0.001."""
    root = np.sqrt((z**2).sum(axis=0))
    scaled = z / root
    solution = np.linalg.solve(scaled.T @ scaled + 1e-3 * np.eye(z.shape[1]), scaled.sum(axis=0))
    return np.asarray(kernel.SLOPE * solution / root)


@pytest.mark.parametrize("family", EVERY)
def test_the_prior_mean_is_a_usual_slope_in_the_unit_of_demand(family: str, rng: np.random.Generator) -> None:
    z = np.c_[np.ones(80), rng.standard_normal(80)]
    server = _learn(_policy(family), z, *(sales := _sales(family, z, rng)))
    unit = np.sqrt((1.0 + (sales[1] ** 2).sum()) / 81.0) if family == "linear" else 1.0
    centre, precision = np.zeros(4), np.empty((4, 4))
    kernel.write_prior(server.plan, server.learned(), centre, precision)
    half = 0.5 * (HIGH - LOW)
    np.testing.assert_allclose(half * centre[2:], unit * _usual_slopes(z), rtol=1e-8)
    np.testing.assert_allclose(centre[:2], half * centre[2:], rtol=1e-8)  # a level of 0 at the middle price
    prior = server.prior
    np.testing.assert_allclose(prior.precision, precision / server.tally[kernel.DISPERSION])


def test_variances_follow_mackay(rng: np.random.Generator) -> None:
    """One step, by dense matrices: means and variances of the deviations and of the shared value, given the sales."""
    d, mid, half = 5, 3.0, 3.0
    z = np.c_[rng.standard_normal(200), rng.standard_normal(200) * 3.0, _groups(rng, 200, 3)]
    server = _learn(_policy(dim=d), z, *_sales("logistic", z, rng))
    learned = server.learned()
    before, P, theta = server.variances.copy(), server.estimator.P, server.estimator.published
    kinds = kernel.kinds_of(learned)
    sizes = np.r_[2 * (z[:, 0] ** 2).mean(), 2 * (z[:, 1] ** 2).mean(), 1.0, 1.0, 1.0]
    V, c, size = np.diag(before[kinds] / sizes), np.array([0, 0, 1.0, 1.0, 1.0]), before[2]
    known, squares = np.array([8.0, 2.0, 8.0]), np.array([8.0, 0.2, 8.0])
    eye, usual = np.eye(d), _usual_slopes(z)
    tied = np.c_[kernel.TIED * eye, (half - kernel.TIED * mid) * eye]
    for change, centre in ((np.c_[eye, -mid * eye], np.zeros(d)), (tied, usual)):
        t, C = change @ theta - centre, change @ P @ change.T
        k = size * np.linalg.solve(V + size * np.outer(c, c), c)
        rest = size - size * c @ k
        keep = eye - np.outer(c, k)
        variance = keep @ C @ keep.T + rest * np.outer(c, c)
        deviation = keep @ t
        for j in range(d):
            known[kinds[j]] += max(1 - variance[j, j] / V[j, j], 0)
            squares[kinds[j]] += sizes[j] * deviation[j] ** 2
        known[2] += max(1 - (k @ C @ k + rest) / size, 0)
        squares[2] += (k @ t) ** 2
    kernel.learn_variances(server.plan, learned)
    np.testing.assert_allclose(server.variances, squares / known, rtol=1e-4)
    assert (server.variances != before).all()


def test_segments_that_are_alike_share_what_they_learn() -> None:
    """Nine equal segments: 100 lost with a shared value, 340 without, by the standard errors of 12 runs about 7."""
    market = hp.markets.s2(dim=9)
    result = hp.simulate(
        LookAhead(family=LOGISTIC, dim=9, prices=(0, 3)), market, horizon=20_000, replications=12, seed=3, workers=1
    )
    assert result.summary().mean < 150


@pytest.mark.parametrize("family", ["linear", "poisson"])
def test_the_dispersion_is_that_of_the_outcomes(family: str, rng: np.random.Generator) -> None:
    """Noise of scale 3 within 15% after 2000 sales, and counts with a customer's own random factor within 30%."""
    z = rng.uniform(0.5, 1.0, (2000, 2))
    price = rng.uniform(0.5, 2.0, 2000)
    eta = z @ [2.0, 2.0] - price * (z @ [0.5, 0.5])
    if family == "linear":
        y, expected = eta + 3.0 * rng.standard_normal(2000), 9.0
    else:
        mean = np.exp(eta)
        y = rng.poisson(mean * rng.gamma(2.0, 0.5, 2000)).astype(np.float64)
        expected = 1.0 + 0.5 * float((mean**2).mean() / mean.mean())
    server = _learn(_policy(family), z, price, y)
    assert server.tally[kernel.DISPERSION] == pytest.approx(expected, rel=0.3 if family == "poisson" else 0.15)
    _, covariance = server.estimate()
    assert covariance is not None
    np.testing.assert_allclose(covariance, server.tally[kernel.DISPERSION] * server.estimator.P)


# -- units, memory, horizon ------------------------------------------------------------------------------------


def test_the_unit_of_linear_demand_does_not_matter() -> None:
    """Sold in pieces or in thousands, with the noise stated in the same unit: the same money."""
    market, losses = hp.markets.s1(dim=2, family="linear"), []
    for unit in (1.0, 1e-3, 1e3):
        family = hp.Linear(unit)
        other = replace(market, alpha=unit * market.alpha, beta=unit * market.beta, family=family)
        policy = LookAhead(family=family, dim=2, prices=(0, 3))
        outcome = replicate(policy, other, horizon=2000, seed=3, replication=0, checkpoints=np.array([2000]))
        losses.append(float(outcome.path[-1]) / unit)
    np.testing.assert_allclose(losses, losses[0], rtol=1e-6)


@pytest.mark.parametrize("market", [hp.markets.s1(dim=3), hp.markets.s2(dim=3), hp.markets.s1(dim=2, family="probit")])
def test_units_do_not_matter(market: hp.Market) -> None:
    """Prices in hundredths and features in thousandths earn the same money."""
    factor, feature = 100.0, 1000.0
    contexts = market.contexts
    d = market.dim

    def lost(prices: float, features: float) -> float:
        other = replace(
            market,
            alpha=market.alpha / features,
            beta=market.beta / (features * prices),
            prices=(market.prices[0] * prices, market.prices[1] * prices),
            contexts=lambda rng, n: contexts(rng, n) * features,
        )
        policy = LookAhead(family=other.family, dim=d, prices=other.prices)
        return float(
            replicate(policy, other, horizon=3000, seed=2, replication=0, checkpoints=np.array([3000])).path[-1]
        )

    usual = lost(1.0, 1.0)
    assert lost(factor, 1.0) / factor == pytest.approx(usual, rel=1e-6)
    assert lost(1.0, feature) == pytest.approx(usual, rel=1e-6)
    assert lost(1.0, 1.0 / feature) == pytest.approx(usual, rel=1e-6)


def test_memory_is_bounded_and_nothing_is_forgotten() -> None:
    """Folded records count as before: the estimate is that of all records, within 0.15 standard errors."""
    market, policy = hp.markets.s1(dim=1), LookAhead(family=LOGISTIC, dim=1, prices=(0, 3))
    n = 2 * kernel.MOST_RECORDS + 5000
    rng = np.random.default_rng(4)
    z = market.contexts(rng, n)
    price = rng.uniform(0, 3, n)
    y = (rng.random(n) < 1 / (1 + np.exp(-(1.6 * z[:, 0] - price * z[:, 0])))).astype(np.float64)
    server = policy.server()
    for i in range(0, n, 4096):
        part = slice(i, min(i + 4096, n))
        server.advance(len(y[part]))
        server.absorb(Records(z[part], price[part], y[part]))
        _ = server.params
    assert server.tally[kernel.FOLDED] > 0
    assert server.estimator.records <= kernel.MOST_RECORDS
    assert len(server.estimator.y) <= 2 * kernel.MOST_RECORDS
    fitted = hp.estimation.fit(as_family("logistic"), hp.estimation.design(z, price), y, ridge=1e-6)
    gap = server.estimate()[0] - fitted.theta
    information = np.linalg.inv(server.estimator.P)
    assert np.sqrt(gap @ information @ gap) < 0.15
    twin = policy.server()
    twin.restore(server.state())
    for one in (server, twin):  # more sales after the fold
        one.absorb(Records(z[:500], price[:500], y[:500]))
    before, after = server.params, twin.params
    assert before.outlook is not None
    assert after.outlook is not None
    np.testing.assert_array_equal(before.theta, after.theta)
    np.testing.assert_array_equal(before.outlook.covariance, after.outlook.covariance)
    np.testing.assert_array_equal(before.outlook.gains, after.outlook.gains)
    prior = server.prior  # without the folded records
    assert np.sqrt(np.diag(prior.covariance)).min() > 0.1


def test_a_known_horizon_ends_in_greedy_prices() -> None:
    server = _policy(horizon=100).server()
    rounds = (1.0, 50.0, 100.0, 150.0)
    assert [kernel.later(server.plan, server.learned(), t) for t in rounds] == [1.98, 50.0, 0.0, 0.0]
    endless = _policy().server()
    assert kernel.later(endless.plan, endless.learned(), 50.0) == 50.0


def test_without_spread_prices_are_certain(rng: np.random.Generator) -> None:
    pricer = _policy(spread=0.0).start(seed=1)
    pricer.observe(pricer.offer([1.0, 0.5]), 1)
    offer = pricer.offer([1.0, 0.5])
    assert (offer.propensity, offer.discrete) == (1.0, True)


@pytest.mark.parametrize("options", [{"spread": -1.0}, {"spread": np.nan}, {"horizon": 0}, {"dim": 2000}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        _policy(**options)


def test_a_coarse_ladder_gets_the_rung_that_pays() -> None:
    """Of 1.0 and 2.7 the second earns more, although the best price, 1.9, is as near to the first."""
    rules = hp.Rules(ladder=(1.0, 2.7))
    prior = Prior([1.6, 1.0], 1e6 * np.eye(2))
    pricer = LookAhead(family=LOGISTIC, dim=1, prices=(0, 3), rules=rules, prior=prior).start(seed=1)
    assert {pricer.offer([1.0]).price for _ in range(20)} == {2.7}


@pytest.mark.parametrize("value", [1e-155, 1e-170, 5e-324])
def test_a_tiny_feature_is_no_feature(value: float) -> None:
    """One whose square is no number leaves the estimate of the others as it is."""
    server, other = _policy().server(), _policy().server()
    rng = np.random.default_rng(1)
    z = np.c_[np.ones(120), np.zeros(120)]
    price, y = _sales("logistic", z[:, :1], rng)
    for one, tiny in ((server, value), (other, 0.0)):
        z[60, 1] = tiny
        for i in range(0, 120, 20):
            one.absorb(Records(z[i : i + 20], price[i : i + 20], y[i : i + 20]))
            _ = one.params
    np.testing.assert_allclose(server.estimate()[0][[0, 2]], other.estimate()[0][[0, 2]])
    _policy().server().restore(server.state())


def test_a_huge_count_leaves_no_gap_in_the_gains() -> None:
    server = _policy("poisson").server()
    rng = np.random.default_rng(2)
    z = np.c_[np.ones(60), rng.uniform(0.2, 1.0, 60)]
    price, y = _sales("poisson", z, rng)
    z[20:, 1][:1] = 1e6
    for i in range(60):
        server.absorb(Records(z[i : i + 1], price[i : i + 1], y[i : i + 1]))
        _ = server.params
    assert np.isfinite(server.gains).all()
    _policy("poisson").server().restore(server.state())


@pytest.mark.parametrize("prices", [(1e6, 1e6 + 1.0), (100.0, 100.00001)])
def test_a_range_that_rounding_would_spoil_is_refused(prices: tuple[float, float]) -> None:
    with pytest.raises(InvalidInput, match="too narrow"):
        LookAhead(family=LOGISTIC, dim=1, prices=prices)


@pytest.mark.parametrize(
    "name", ["gains", "tally", "features", "moments", "variances", "folded", "centre", "precision"]
)
def test_a_snapshot_that_lacks_something_is_refused(name: str, rng: np.random.Generator) -> None:
    z = rng.uniform(0.2, 0.8, (30, 2))
    state = _learn(_policy(), z, *_sales("logistic", z, rng)).state()
    for value in (None, np.zeros(3), np.full_like(state[name], np.inf)):
        if name != "features" or value is None:
            with pytest.raises(SnapshotError):
                _policy().server().restore(state | {name: value})


def test_a_snapshot_that_makes_no_sense_is_refused_and_changes_nothing(rng: np.random.Generator) -> None:
    z = rng.uniform(0.2, 0.8, (30, 2))
    server = _learn(_policy(), z, *_sales("logistic", z, rng))
    state = server.state()
    theta = server.params.theta.copy()

    def wrong(name: str, place: object, value: float) -> dict[str, Any]:
        array = state[name].copy()
        array[place] = value
        return state | {name: array}

    for broken in (
        wrong("tally", kernel.DISPERSION, 0.0),
        wrong("tally", kernel.BELIEF, 0.0),
        wrong("tally", kernel.BELIEF, 9.0),
        wrong("tally", kernel.TOTAL, 1e9),
        wrong("precision", (0, 1), 5.0),
        wrong("precision", (0, 0), -1.0),
        wrong("features", (kernel.SUM, 0), np.nan),
        wrong("features", (kernel.SQUARE, 0), -1.0),
        wrong("variances", 0, 0.0),
    ):
        with pytest.raises(SnapshotError):
            server.restore(broken)
        np.testing.assert_array_equal(server.params.theta, theta)


# -- what is known before the first sale -----------------------------------------------------------------------


def _known(market: hp.Market, theta: Array, precision: float) -> Prior:
    return Prior(theta, precision * np.eye(2 * market.dim))


def test_a_right_prior_saves_most_of_the_loss_and_a_wrong_one_is_recovered_from() -> None:
    """S1, 5000 customers, 8 runs: the truth as a prior, nothing, and a prior that is off by 40 standard errors."""
    market = hp.markets.s1(dim=2)
    policy = LookAhead(family=LOGISTIC, dim=2, prices=(0, 3))
    wrong = market.theta + np.array([-1.0, -1.0, 0.8, 0.8])

    def lost(policy: LookAhead) -> float:
        result = hp.simulate(policy, market, horizon=5000, replications=8, seed=5, workers=1)
        return float(result.summary().mean)

    nothing = lost(policy)
    assert lost(replace(policy, prior=_known(market, market.theta, 400.0))) < 0.5 * nothing
    assert lost(replace(policy, prior=_known(market, wrong, 1600.0))) < 4.0 * nothing
    server = replace(policy, prior=_known(market, wrong, 1600.0)).server()
    assert server.params.phase is Phase.AHEAD
    rng = np.random.default_rng(1)
    z = market.contexts(rng, 2000)
    price = rng.uniform(0, 3, 2000)
    y = (rng.random(2000) < 1 / (1 + np.exp(-(z @ market.alpha - price * (z @ market.beta))))).astype(np.float64)
    for i in range(0, 2000, 50):
        part = slice(i, i + 50)
        server.absorb(Records(z[part], price[part], y[part]))
        _ = server.params
    assert server.tally[kernel.BELIEF] < 0.01


@pytest.mark.parametrize("precision", [1e4, 1e7, 1e10])
def test_even_a_very_precise_wrong_prior_loses_its_weight(precision: float) -> None:
    """After 3000 sales they outweigh it. A right one of the same precision keeps the estimate where it is."""
    rng = np.random.default_rng(3)
    z = np.c_[np.ones(3000), rng.standard_normal(3000)]
    price = rng.uniform(0, 6, 3000)
    y = (rng.random(3000) < 1 / (1 + np.exp(price - 3.0 - 0.3 * z[:, 1]))).astype(np.float64)
    truth = np.array([3.0, 0.3, 1.0, 0.0])
    for centre, nearest in ((truth, 0.05), (np.array([-1.0, 0.0, 1.5, 0.0]), 0.5)):
        server = _policy(prior=Prior(centre, precision * np.eye(4))).server()
        for i in range(0, 3000, 20):
            server.absorb(Records(z[i : i + 20], price[i : i + 20], y[i : i + 20]))
            _ = server.params
        assert np.abs(server.estimate()[0] - truth).max() < nearest
