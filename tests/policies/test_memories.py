"""Look-ahead's memories: formulas against references, changes found and false alarms, and that snapshots are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm

import hushprice as hp
from hushprice.arrays import Array
from hushprice.demand import as_family
from hushprice.errors import InvalidInput, SnapshotError
from hushprice.kernels import look_ahead as kernel
from hushprice.kernels.glm import log_predictive, loss
from hushprice.kernels.look_ahead import learning, memories
from hushprice.policies import LookAhead, Records
from hushprice.policies.look_ahead import AheadServer
from hushprice.simulation import replicate
from hushprice.simulation.engine import Trace

EVERY = ("logistic", "poisson", "linear", "probit")
LOGISTIC = as_family("logistic")


def _policy(family: str = "logistic", dim: int = 2, **options: Any) -> LookAhead:
    return LookAhead(**{"family": family, "dim": dim, "prices": (0.0, 3.0), **options})


def _sales(n: int, rng: np.random.Generator, theta: Array, family: str = "logistic") -> Records:
    """Outcomes at uniform prices."""
    d = theta.size // 2
    z, price = np.c_[np.ones(n), rng.uniform(0.5, 1.5, (n, d - 1))], rng.uniform(0.2, 2.8, n)
    return Records(z, price, as_family(family).sample(z @ theta[:d] - price * (z @ theta[d:]), rng))


def _learn(server: AheadServer, records: Records) -> AheadServer:
    server.absorb(records)
    server.catch_up()
    return server


BEFORE, AFTER = np.array([1.0, 0.5, 0.8, 0.4]), np.array([1.0, 0.5, 0.3, 0.2])


# -- formulas -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("eta", "spread"), [(0.3, 0.01), (-1.2, 0.5), (1.5, 2.0)])
def test_predictive_likelihoods_average_over_the_utility(eta: float, spread: float) -> None:
    """By numerical integration. Probit and linear demand are exact, logistic within 1%, counts in two moments."""

    def average(family: str, y: float) -> float:
        code = as_family(family).code

        def chance(u: float) -> float:
            return float(np.exp(-loss(code, u, y)[0])) * float(norm.pdf(u, eta, np.sqrt(spread)))

        return float(quad(chance, eta - 9 * np.sqrt(spread), eta + 9 * np.sqrt(spread))[0])

    for y in (0.0, 1.0):
        assert np.exp(log_predictive(as_family("probit").code, eta, spread, 1.0, y)) == pytest.approx(
            average("probit", y), rel=1e-6
        )
        assert np.exp(log_predictive(LOGISTIC.code, eta, spread, 1.0, y)) == pytest.approx(
            average("logistic", y), abs=0.01
        )
    phi = 2.5
    linear = np.exp(log_predictive(as_family("linear").code, eta, spread, phi, 0.7))
    assert linear == pytest.approx(norm.pdf(0.7, eta, np.sqrt(phi + spread)))
    counts = np.arange(4000.0)
    for overdispersion in (1.0, phi):
        p = np.exp([log_predictive(as_family("poisson").code, eta, spread, overdispersion, y) for y in counts])
        mu = np.exp(eta + spread / 2)
        assert p.sum() == pytest.approx(1.0, abs=1e-4)
        assert p @ counts == pytest.approx(mu, rel=1e-2)
        if spread < 1.0:
            variance = overdispersion * mu + mu**2 * np.expm1(spread)
            assert p @ (counts - mu) ** 2 == pytest.approx(variance, rel=2e-2)


@pytest.mark.parametrize("family", EVERY)
def test_a_memory_takes_an_outcome_by_an_implicit_step(family: str, rng: np.random.Generator) -> None:
    """The minimum of its loss plus half the squared way in the metric of the information, by scipy."""
    code, theta, x, y = as_family(family).code, BEFORE.copy(), rng.normal(size=4), 1.0
    H = np.eye(4) * 3.0 + np.outer(x, x) * 0.5
    P = np.linalg.inv(H)

    def objective(t: Array) -> float:
        way = t - BEFORE
        return float(loss(code, float(x @ t), y)[0] + 0.5 * way @ H @ way)

    found = minimize(objective, BEFORE, tol=1e-12)
    eta, q, _ = memories.take(code, x, y, 1.0, theta, P, np.empty(4))
    assert (eta, q) == (pytest.approx(x @ BEFORE), pytest.approx(x @ np.linalg.solve(H, x)))
    np.testing.assert_allclose(theta, found.x, atol=1e-5)
    w = loss(code, float(x @ theta), y)[2]
    np.testing.assert_allclose(np.linalg.inv(P), H + w * np.outer(x, x), rtol=1e-6, atol=1e-8)


def test_a_memory_forgets_its_information_but_not_its_estimate(rng: np.random.Generator) -> None:
    server = _learn(_policy(memory=100).server(), _sales(400, rng, BEFORE))
    own = server.memories
    H, theta, W = np.linalg.inv(own.P[0]), own.theta[0].copy(), own.prior.copy()
    memories.forget_by(own, 0, 0.25)
    np.testing.assert_allclose(np.linalg.inv(own.P[0]), W + 0.25 * (H - W), rtol=1e-8)
    np.testing.assert_array_equal(own.theta[0], theta)
    np.testing.assert_array_equal(own.P[0], own.P[0].T)
    prior = W + np.diag([1.0, 2.0, 3.0, 4.0])
    H = np.linalg.inv(own.P[0])
    memories.follow_prior(own, prior)
    np.testing.assert_allclose(np.linalg.inv(own.P[0]), H + np.diag([1.0, 2.0, 3.0, 4.0]), rtol=1e-8)


def test_a_memory_holds_about_so_many_outcomes(rng: np.random.Generator) -> None:
    """Its information beyond the prior is that of the last M outcomes, within 15%, however many there were."""
    length = 500.0
    server = _learn(_policy("linear", memory=length).server(), records := _sales(6000, rng, BEFORE, "linear"))
    x = np.c_[records.z, -records.price[:, None] * records.z]
    own = server.memories
    information = np.linalg.inv(own.P[0]) - own.prior
    expected = x.T @ x / len(x) * length
    assert np.trace(information) == pytest.approx(np.trace(expected), rel=0.15)
    assert own.tally[kernel.IN_USE] == 1.0
    assert kernel.later(server.plan, server.learned(), 6000.0) == length


def test_without_a_change_the_adaptive_memory_costs_nothing() -> None:
    """Most of the time prices follow from the lasting estimate: the same money as without other memories, within 5%."""
    market = hp.markets.s1(dim=4)
    common: dict[str, Any] = {"horizon": 10_000, "replications": 6, "seed": 11, "workers": 1}
    regret = {m: hp.simulate(_policy(dim=4, memory=m), market, **common).regret.mean() for m in ("adaptive", None)}
    assert regret["adaptive"] < 1.05 * regret[None]


# -- changes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", EVERY)
def test_a_change_is_found_and_dated(family: str, rng: np.random.Generator) -> None:
    """Within 400 outcomes, and dated within 200. At random prices the change is some 10 standard errors large."""
    server = _learn(_policy(family).server(), _sales(4000, rng, BEFORE, family))
    assert server.change is None
    _learn(server, _sales(2000, rng, AFTER, family))
    change = server.change
    assert change is not None
    assert change.count == 1
    assert 4000 < change.found <= 4400
    assert abs(change.began - 4000) <= 200
    assert change.odds >= memories.CHANGED
    assert change.probability == pytest.approx(change.odds / (1 + change.odds))
    assert f"{change.found:,}" in str(change)
    theta, covariance = server.estimate()
    assert covariance is not None
    gap = theta - AFTER
    assert gap @ np.linalg.solve(covariance, gap) < 30.0  # chi-squared of 4, beyond 1 in 100 000
    held = server.estimator.records
    assert 1600 <= held <= 2300
    assert server.outcomes == 6000


def test_nothing_is_found_where_nothing_changes(rng: np.random.Generator) -> None:
    """No false alarm in 200 000 outcomes at random prices; the benchmark `alarms` counts them over millions."""
    for _ in range(10):
        theta = BEFORE + 0.2 * rng.normal(size=4)
        server = _learn(_policy().server(), _sales(20_000, rng, theta))
        assert server.change is None
        assert server.misfits == ()


@pytest.mark.parametrize("kind", ["jump", "wave"])
def test_forgetting_pays_where_demand_drifts(kind: str) -> None:
    """Less than half of what is lost without forgetting, in the mean of six runs."""
    market = hp.markets.drifting(hp.markets.s1(dim=2), kind)
    common: dict[str, Any] = {"horizon": 10_000, "replications": 6, "seed": 12, "workers": 1}
    regret = {m: hp.simulate(_policy(memory=m), market, **common).regret.mean() for m in ("adaptive", None)}
    assert regret["adaptive"] < 0.5 * regret[None]


def test_a_change_after_records_were_folded_is_met(rng: np.random.Generator) -> None:
    """The lasting estimate takes over what a memory knows, if the change is older than the records held."""
    n = kernel.most_records(4)
    server = _learn(_policy().server(), _sales(n - 150, rng, BEFORE))
    for _ in range(12):
        _learn(server, _sales(50, rng, AFTER))
    change = server.change
    assert change is not None
    assert server.outcomes == n + 450
    _learn(server, _sales(3000, rng, AFTER))
    theta, covariance = server.estimate()
    assert covariance is not None
    gap = theta - AFTER
    assert gap @ np.linalg.solve(covariance, gap) < 50.0
    assert server.tally[kernel.TOTAL] - server.tally[kernel.FOLDED] == server.estimator.records


def _drifting() -> hp.Market:
    return hp.markets.drifting(hp.markets.s1(dim=2), "jump", sensitivity=-0.5, at=1500)


def _bits(value: Any) -> Any:
    """Nested plain data with arrays as bytes."""
    if isinstance(value, dict):
        return {key: _bits(item) for key, item in value.items()}
    return value.tobytes() if isinstance(value, np.ndarray) else value


def test_batch_and_live_agree_through_a_change(tmp_path: Any) -> None:
    """Prices are the same to the last bit; a snapshot before and one after the change go on exactly."""
    n, policy, trace = 3000, _policy(), Trace(np.empty(3000), np.empty(3000))
    replicate(policy, _drifting(), horizon=n, seed=4, replication=0, checkpoints=np.array([n]), trace=trace)
    seeds = hp.simulation.streams(4, 0)
    contexts, demand = (np.random.default_rng(s) for s in seeds[:2])
    pricer, prices = policy.start(seed=seeds[2]), []
    for block in _drifting().blocks(contexts, demand, n):
        for i in range(len(block.z)):
            offer = pricer.offer(block.z[i])
            prices.append(offer.price)
            y = block.buy(slice(i, i + 1), np.array([offer.price]))[0]
            pricer.observe(offer, y)
            if len(prices) in (1400, 1700, 2500):
                pricer.save(tmp_path / "pricer.hush")
                pricer = hp.Pricer.load(tmp_path / "pricer.hush")
    np.testing.assert_array_equal(prices, trace.prices)
    assert pricer.change is not None
    assert 1500 < pricer.change.found < 2000


def test_what_is_learned_does_not_depend_on_how_many_outcomes_come_at_once(rng: np.random.Generator) -> None:
    first, second = _sales(3000, rng, BEFORE), _sales(1500, rng, AFTER)
    together, apart = _policy().server(), _policy().server()
    for records in (first, second):
        _learn(together, records)
        for i in range(len(records.y)):
            _learn(apart, Records(records.z[i : i + 1], records.price[i : i + 1], records.y[i : i + 1]))
    assert apart.change is not None
    assert _bits(together.state()) == _bits(apart.state())


def test_it_does_not_matter_when_outcomes_are_looked_at_while_prices_rise(rng: np.random.Generator) -> None:
    """The range of prices on record, which steers refits, grows record by record."""
    records = _sales(2000, rng, BEFORE)
    rising = Records(records.z, np.linspace(0.2, 2.8, 2000), records.y)
    together, apart = _policy().server(), _policy().server()
    _learn(together, rising)
    for i in range(0, 2000, 7):
        _learn(apart, Records(rising.z[i : i + 7], rising.price[i : i + 7], rising.y[i : i + 7]))
    assert _bits(together.state()) == _bits(apart.state())


@pytest.mark.parametrize(("first", "second"), [(0.0, 100.0), (1e6, 1e6), (0.0, 1e4)])
def test_counts_of_any_size_leave_numbers(first: float, second: float, rng: np.random.Generator) -> None:
    """Nobody buys, then everybody buys much: a snapshot can be loaded."""
    server = _policy("poisson").server()
    for i in range(600):
        one = _sales(1, rng, BEFORE, "poisson")
        _learn(server, Records(one.z, one.price, np.array([first if i < 400 else second])))
    twin = _policy("poisson").server()
    twin.restore(server.state())
    assert _bits(twin.state()) == _bits(server.state())
    assert np.isfinite(server.estimate()[0]).all()


def test_a_memory_of_ones_own_survives_a_snapshot(rng: np.random.Generator) -> None:
    server = _learn(_policy(memory=300).server(), _sales(2000, rng, BEFORE))
    twin = _policy(memory=300).server()
    twin.restore(server.state())
    assert _bits(twin.state()) == _bits(server.state())


def test_one_odd_outcome_is_no_change(rng: np.random.Generator) -> None:
    """A typing error in linear demand, and a bulk order among counts."""
    for family, odd in (("linear", 300.0), ("poisson", 50.0)):
        server = _learn(_policy(family).server(), _sales(2000, rng, BEFORE, family))
        one = _sales(1, rng, BEFORE, family)
        _learn(server, Records(one.z, one.price, np.array([odd])))
        _learn(server, _sales(50, rng, BEFORE, family))
        assert server.change is None
        assert server.misfits == ()


def test_after_a_change_n_counts_rounds_in_proportion_to_the_outcomes_kept(rng: np.random.Generator) -> None:
    """Three of four offers have no outcome: N is the share of outcomes remembered, times the rounds."""
    server = _learn(_policy().server(), _sales(2000, rng, BEFORE))
    _learn(server, _sales(500, rng, AFTER))
    assert server.change is not None
    tally = server.memories.tally
    share = 1.0 - tally[kernel.ORIGIN] / 2500.0
    assert 0.1 < share < 0.25
    assert kernel.later(server.plan, server.learned(), 10_000.0) == pytest.approx(10_000.0 * share)


def test_a_memory_that_is_taken_over_keeps_its_estimate(rng: np.random.Generator) -> None:
    """Where all records held are from after the change, and others were folded. With a prior of much weight."""
    prior = hp.Prior(BEFORE + 0.3, 50.0 * np.eye(4))
    server = _learn(_policy(prior=prior).server(), _sales(3000, rng, BEFORE))
    learned = server.learned()
    learning._fold(server.plan, learned, server.estimator.records)
    learning._refit(server.plan, learned)
    server.memories.theta[0] = AFTER
    sold = _sales(8, rng, AFTER)
    _learn(server, Records(sold.z, sold.price, np.ones(8)))  # each of them likelier after the change
    theta, P = server.memories.theta[0].copy(), server.memories.P[0].copy()
    assert memories.restart(server.plan, server.learned(), 1, 8) == 8
    learning._refit(server.plan, server.learned())
    np.testing.assert_allclose(server.estimator.published, theta, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(server.estimator.P, P, rtol=1e-6)
    assert server.memories.tally[kernel.ORIGIN] == 3008 - 300


# -- forgetting by hand ---------------------------------------------------------------------------------------


def test_forgetting_weighs_outcomes_by_their_age(rng: np.random.Generator) -> None:
    """The estimate is that of discounted outcomes, and N is what they add up to."""
    server = _learn(_policy(memory=None).server(), _sales(900, rng, BEFORE))
    server.forget(200.0)
    weights = 0.5 ** (np.arange(899, -1, -1) / 200.0)
    np.testing.assert_allclose(server.estimator.weight[:900], weights)
    exact, information = server.estimator.exact()
    gap = server.estimate()[0] - exact
    assert np.sqrt(gap @ information @ gap) < 1e-3
    assert kernel.later(server.plan, server.learned(), 900.0) == pytest.approx(weights.sum())
    server.forget(200.0)
    np.testing.assert_allclose(server.estimator.weight[:900], weights**2)
    assert kernel.later(server.plan, server.learned(), 900.0) == pytest.approx((weights**2).sum())


def test_folded_outcomes_count_as_old_as_the_oldest_that_is_held(rng: np.random.Generator) -> None:
    server = _learn(_policy(memory=None).server(), _sales(2000, rng, BEFORE))
    learning._fold(server.plan, server.learned(), server.estimator.records)
    _learn(server, _sales(1000, rng, BEFORE))
    for times in (1, 2):
        server.forget(2000.0)
        held = 0.5 ** (times * np.arange(999, -1, -1) / 2000.0)
        folded = 2000.0 * 0.5 ** (times * 1000.0 / 2000.0)
        remembered = kernel.later(server.plan, server.learned(), 3000.0)
        assert remembered == pytest.approx(held.sum() + folded)


def test_memories_forget_what_they_hold(rng: np.random.Generator) -> None:
    server = _learn(_policy(memory=300).server(), _sales(2000, rng, BEFORE))
    own = server.memories
    H = np.linalg.inv(own.P[0]) - own.prior
    server.forget(100.0)
    after = np.linalg.inv(own.P[0]) - own.prior
    assert np.trace(after) == pytest.approx(np.trace(H) / (1.0 + 300.0 * np.log(2.0) / 100.0), rel=0.02)


@pytest.mark.parametrize("half_life", [0.0, -1.0, np.nan, np.inf, "day", True])
def test_a_half_life_that_makes_no_sense_changes_nothing(half_life: Any) -> None:
    pricer = _policy().start(seed=1)
    pricer.observe(pricer.offer([1.0, 0.5]), 1)
    before = _bits(pricer._server.state())
    with pytest.raises(InvalidInput):
        pricer.forget(half_life=half_life)
    assert _bits(pricer._server.state()) == before


@pytest.mark.parametrize("memory", ["adaptiv", 5, -300, np.nan, np.inf, True, [300], np.array([300.0, 1.0])])
def test_a_memory_that_makes_no_sense_is_refused(memory: Any) -> None:
    with pytest.raises(InvalidInput, match="memory"):
        _policy(memory=memory)


@pytest.mark.parametrize("memory", ["adaptive", None, 500.0])
def test_memory_is_part_of_the_configuration(memory: Any) -> None:
    policy = _policy(memory=memory)
    assert LookAhead.from_config(policy.config()) == policy
    assert policy.server().watches == (memory == "adaptive")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memories_weight", 0.0),
        ("memories_due", 0),
        ("memories_tally", -1.0),
        ("misfit_evidence", np.inf),
        ("misfit_sums", -1.0),
    ],
)
def test_a_snapshot_with_senseless_memories_is_refused(name: str, value: float, rng: np.random.Generator) -> None:
    server = _learn(_policy().server(), _sales(1000, rng, BEFORE))
    state = server.state()
    state[name] = np.full_like(state[name], value)
    with pytest.raises(SnapshotError):
        _policy().server().restore(state)


def test_adaptive_memories_are_long_enough_for_their_coefficients() -> None:
    assert _policy(dim=2).lengths.min() == 300
    assert _policy(dim=10).lengths.min() >= 40 * 20
    assert learning.most_records(4) == kernel.MOST_RECORDS
