"""Generic checks that every family, market, mechanism and policy must pass.

``make test`` runs them on everything registered; a researcher can run them on a policy of their own:

>>> from hushprice import checks, policies
>>> policy = policies.ETCDoubling(family="logistic", dim=2, prices=(0, 3))
>>> for check in checks.policy_checks():
...     check(policy)
"""

from __future__ import annotations

import json
import pickle
import struct
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from hushprice import markets
from hushprice.demand import Family
from hushprice.errors import Array, HushpriceError
from hushprice.estimation import DRIFT_BOUND
from hushprice.markets import Block, Market
from hushprice.policies import Policy, Pricer, Records
from hushprice.privacy import Mechanism, Report, UnsafeSeed, VectorMechanism, audit
from hushprice.simulation import Trace, replicate, simulate, streams

HORIZON = 700
PolicyCheck = Callable[[Policy], None]


def policy_checks() -> list[PolicyCheck]:
    """The checks for a policy, of any family and dim, with prices within [0, 3]."""
    return [
        check_batch_equals_live,
        check_same_seed_same_run,
        check_prices_in_range,
        check_snapshot_resumes_exactly,
        check_late_repeated_and_missing_outcomes,
        check_estimates_do_not_drift,
        check_private_server_sees_no_raw_data,
        check_config_round_trip,
        check_refuses_bad_input,
    ]


def market_checks() -> list[Callable[[Market], None]]:
    """The checks for a market."""
    return [check_market_draws, check_market_optimum]


def family_checks() -> list[Callable[[Family], None]]:
    """The checks for a demand family."""
    return [check_family_derivatives, check_family_optimal_price, check_family_sampling]


def mechanism_checks() -> list[Callable[[Mechanism], None]]:
    """The checks for a privacy mechanism."""
    return [
        check_mechanism_is_unbiased,
        check_mechanism_squared_error,
        check_mechanism_survives_an_audit,
        check_mechanism_reports,
        check_mechanism_refuses_bad_input,
    ]


# -- policies -------------------------------------------------------------------------------------------------


def world_for(policy: Policy) -> Market:
    """A market that fits the policy."""
    return markets.s1(dim=policy.dim, family=policy.family, cost=policy.cost, public=0.3)


def run_batch(policy: Policy, market: Market, *, horizon: int = HORIZON, seed: int = 5) -> Trace:
    """One replication by the simulation engine, with every price and outcome."""
    trace = Trace(np.empty(horizon), np.empty(horizon))
    last = np.array([horizon], dtype=np.int64)
    replicate(policy, market, horizon=horizon, seed=seed, replication=0, checkpoints=last, trace=trace)
    return trace


class LiveLoop:
    """The same customers as :func:`run_batch`, sold to one at a time."""

    def __init__(self, policy: Policy, market: Market, *, horizon: int = HORIZON, seed: int = 5) -> None:
        contexts, demand, exploration, privacy, choices = streams(seed, 0)
        who, what, agree = (np.random.default_rng(s) for s in (contexts, demand, choices))
        blocks = list(market.blocks(who, what, horizon, choices=agree))
        self.z = np.concatenate([block.z for block in blocks])
        self.uniforms = np.concatenate([block.uniforms for block in blocks])
        self.public = np.concatenate([block.public for block in blocks])
        self.market, self.pricer = market, policy.start(seed=exploration, unsafe_privacy_seed=privacy)

    def outcome(self, t: int, price: float) -> float:
        """What customer t buys at this price."""
        one = Block(self.market, self.z[t : t + 1], self.uniforms[t : t + 1])
        return float(one.buy(slice(0, 1), np.array([price]))[0])

    def run(self, start: int, stop: int) -> tuple[Array, Array]:
        """Offer and observe at once, customers start to stop."""
        prices, y = np.empty(stop - start), np.empty(stop - start)
        for t in range(start, stop):
            offer = self.pricer.offer(self.z[t], public=bool(self.public[t]))
            prices[t - start], y[t - start] = offer.price, self.outcome(t, offer.price)
            self.pricer.observe(offer, y[t - start])
        return prices, y


def check_batch_equals_live(policy: Policy) -> None:
    """The simulation and a live loop give the same prices and outcomes, to the last bit."""
    market = world_for(policy)
    batch = run_batch(policy, market)
    prices, y = LiveLoop(policy, market).run(0, HORIZON)
    np.testing.assert_array_equal(batch.prices, prices)
    np.testing.assert_array_equal(batch.y, y)


def check_same_seed_same_run(policy: Policy) -> None:
    """The same seed gives the same run; another gives other customers."""
    market = world_for(policy)
    first, second = (simulate(policy, market, horizon=HORIZON, replications=2, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.paths, second.paths)
    other = simulate(policy, market, horizon=HORIZON, replications=2, seed=4)
    assert not np.array_equal(first.revenue, other.revenue), "another seed gave the same customers"


def check_prices_in_range(policy: Policy) -> None:
    """No price leaves the policy's range, whatever the outcomes."""
    low, high = policy.prices
    prices = run_batch(policy, world_for(policy)).prices
    assert ((prices >= low) & (prices <= high)).all(), f"a price left [{low}, {high}]"
    extreme = 1e3 * np.random.default_rng(0).standard_normal((50, policy.dim))
    pricer = policy.start(seed=1)
    for z in extreme:
        offer = pricer.offer(z)
        assert low <= offer.price <= high, f"a price left [{low}, {high}] for an extreme context"
        pricer.observe(offer, 1.0)


def check_snapshot_resumes_exactly(policy: Policy) -> None:
    """Saved and loaded at several points, the future prices are those of a run never interrupted."""
    market = world_for(policy)
    whole, _ = LiveLoop(policy, market).run(0, HORIZON)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pricer.hush"
        for stop in (0, 1, 37, 300):
            loop = LiveLoop(policy, market)
            loop.run(0, stop)
            loop.pricer.save(file)
            loop.pricer = Pricer.load(file)
            rest, _ = loop.run(stop, HORIZON)
            np.testing.assert_array_equal(rest, whole[stop:])


def check_late_repeated_and_missing_outcomes(policy: Policy) -> None:
    """Outcomes may come late, out of order, twice or never; each counts at most once."""
    market = world_for(policy)
    loop = LiveLoop(policy, market)
    rng = np.random.default_rng(0)
    waiting: list[tuple[Any, float]] = []
    counted = 0
    for t in range(300):
        offer = loop.pricer.offer(loop.z[t])
        if rng.random() < 0.8:
            waiting.append((offer, loop.outcome(t, offer.price)))
        if len(waiting) > 20:
            late, y = waiting.pop(int(rng.integers(len(waiting))))
            assert loop.pricer.observe(late, y) is True, "a late outcome was not counted"
            assert loop.pricer.observe(late.id, y) is False, "a repeated outcome was counted"
            counted += 1
    assert loop.pricer.waiting == 300 - counted


def check_estimates_do_not_drift(policy: Policy) -> None:
    """At random times of a run each running estimate is within the stated bound of a fresh exact fit of its records."""
    loop = LiveLoop(policy, world_for(policy))
    times = np.sort(np.random.default_rng(8).choice(HORIZON, size=5, replace=False))
    for start, stop in zip((0, *times), (*times, HORIZON), strict=True):
        loop.run(int(start), int(stop))
        for estimator in loop.pricer._server.estimators:
            drift = estimator.drift()
            assert drift <= DRIFT_BOUND, f"after {stop} rounds an estimate is {drift:.2f} standard errors off"


def check_private_server_sees_no_raw_data(policy: Policy) -> None:
    """Nothing a private policy's server holds, saves or says has a context, price or outcome of a private customer."""
    if not policy.private:
        return
    loop = LiveLoop(policy, world_for(policy))
    secrets: list[float] = []
    for t in range(300):
        offer = loop.pricer.offer(loop.z[t], public=bool(loop.public[t]))
        if not loop.public[t]:
            secrets += [*loop.z[t], offer.price]
        loop.pricer.observe(offer, loop.outcome(t, offer.price))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pricer.hush"
        waiting = loop.pricer.offer(loop.z[300])
        secrets += [*loop.z[300], waiting.price]
        loop.pricer.save(file)
        saved = file.read_bytes()
    server = loop.pricer._server
    held = pickle.dumps((server, server.state(), server.params, loop.pricer._open))
    for place, content in (("its snapshot", saved), ("its memory", held)):
        for value in set(secrets) - set(policy.prices):  # the ends of the range are public
            for form in (struct.pack("<d", value), struct.pack(">d", value), repr(float(value)).encode()):
                assert form not in content, f"{place} holds the number {value!r} of a private customer"
    raw = Records(loop.z[:1], np.ones(1), np.ones(1))
    for wrong in (raw, None, loop.z):
        _refused(server.absorb, wrong)


def check_config_round_trip(policy: Policy) -> None:
    """The configuration survives as plain data."""
    again = type(policy).from_config(policy.config())
    assert again.config() == policy.config()


def check_refuses_bad_input(policy: Policy) -> None:
    """Bad contexts and outcomes are refused with a text, and change nothing."""
    market = world_for(policy)
    loop = LiveLoop(policy, market)
    clean = LiveLoop(policy, market)
    loop.run(0, 100)
    clean.run(0, 100)
    offer = loop.pricer.offer(loop.z[100])
    clean_offer = clean.pricer.offer(clean.z[100])
    d = policy.dim
    contexts: tuple[Any, ...] = (
        np.full(d, np.nan), np.full(d, np.inf), np.ones(d + 1), np.ones((1, d)), ["a"] * d, None, [],
    )  # fmt: skip
    for z in contexts:
        _refused(loop.pricer.offer, z)
    for y in (np.nan, np.inf, "yes", None, [0, 1]):
        _refused(loop.pricer.observe, offer, y)
    for key in (0, -1, 10**9, "1", None, 1.5):
        _refused(loop.pricer.observe, key, 0)
    y = loop.outcome(100, offer.price)
    assert loop.pricer.observe(offer, y)
    assert clean.pricer.observe(clean_offer, y)
    np.testing.assert_array_equal(loop.run(101, 300)[0], clean.run(101, 300)[0])
    options = policy.config() | {"family": policy.family}
    wrong_options: tuple[dict[str, Any], ...] = (
        {"prices": (3, 0)}, {"prices": (1,)}, {"prices": (0, np.nan)}, {"dim": 0}, {"dim": 1.5}, {"ridge": -1},
    )  # fmt: skip
    for wrong in wrong_options:
        _refused(type(policy), **(options | wrong))
    _refused(policy.start, seed=-1)
    run: dict[str, Any] = {"horizon": 10, "replications": 1}
    wrong_runs: tuple[dict[str, Any], ...] = (
        {"horizon": -5}, {"horizon": 0}, {"replications": 0}, {"workers": 0}, {"checkpoints": [0]}, {"seed": -1},
    )  # fmt: skip
    for wrong in wrong_runs:
        _refused(simulate, policy, market, **(run | wrong))


def _refused(call: Callable[..., object], *args: Any, **options: Any) -> str:
    """The text of the refusal that this call must end in."""
    try:
        call(*args, **options)
    except HushpriceError as refusal:
        text = str(refusal)
    else:
        raise AssertionError(f"bad input was accepted: {args} {options}")
    assert len(text) > 20, f"the refusal says too little: {text}"
    return text


# -- markets --------------------------------------------------------------------------------------------------


def check_market_draws(market: Market) -> None:
    """Contexts have the stated shape, are finite, repeat with the seed, and blocks join without a seam."""
    first, again = (market.draw(np.random.default_rng(1), 500) for _ in range(2))
    assert first.shape == (500, market.dim)
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)
    sizes = [len(block.z) for block in market.blocks(np.random.default_rng(1), np.random.default_rng(2), 10_000)]
    assert sum(sizes) == 10_000


def check_market_optimum(market: Market) -> None:
    """No price on a fine grid earns more than the optimal one, and regret is never negative."""
    z = market.draw(np.random.default_rng(1), 200)
    a, b = z @ market.alpha, z @ market.beta
    best = market.family.optimal_revenue(a, b, market.prices, cost=market.cost)
    for price in np.linspace(*market.prices, 301):
        assert (market.family.revenue(price, a, b, cost=market.cost) <= best + 1e-12).all()
    optimal = market.optimal_price(z)
    at_optimum = market.family.revenue(optimal, a, b, cost=market.cost)
    np.testing.assert_allclose(at_optimum, best, rtol=1e-12, atol=1e-12)


# -- mechanisms -----------------------------------------------------------------------------------------------


def _inputs(mechanism: Mechanism) -> list[Array]:
    """Inputs inside the ball, on it, outside and at its centre; or both answers."""
    if not isinstance(mechanism, VectorMechanism):
        return [np.array([0.0]), np.array([1.0])]
    rng = np.random.default_rng(3)
    directions = rng.standard_normal((4, mechanism.dim))
    directions *= (mechanism.clip / np.linalg.norm(directions, axis=1))[:, None]
    return [0.3 * directions[0], directions[1], 7.0 * directions[2], 0.0 * directions[3]]


def _sampled(mechanism: Mechanism, g: Array, n: int) -> tuple[Array, Array]:
    """(the clipped input, n decoded reports of it)."""
    vectors = isinstance(mechanism, VectorMechanism)
    rows = mechanism.privatize_many(np.tile(g, (n, 1)) if vectors else np.full(n, g[0]), UnsafeSeed(17))
    return (mechanism.clipped(g) if isinstance(mechanism, VectorMechanism) else g), mechanism.decode_many(rows)


def check_mechanism_is_unbiased(mechanism: Mechanism) -> None:
    """Decoded reports have the (clipped) input as their mean (z tests, together two-sided error rate below 1e-4)."""
    n = 60_000
    for g in _inputs(mechanism):
        target, values = _sampled(mechanism, g, n)
        gaps = (values.mean(axis=0) - target) / (values.std(axis=0) / np.sqrt(n))
        assert np.abs(gaps).max() < 5.5, f"the mean is {np.abs(gaps).max():.1f} standard errors off"


def check_mechanism_squared_error(mechanism: Mechanism) -> None:
    """E |report - g|^2 is as stated (z test, two-sided error rate below 1e-4), and never above the stated worst."""
    n = 60_000
    for g in _inputs(mechanism):
        target, values = _sampled(mechanism, g, n)
        errors = ((values - target) ** 2).sum(axis=1)
        stated = mechanism.squared_error(float(np.linalg.norm(target)))
        gap = errors.mean() - stated
        assert abs(gap) < 5.0 * errors.std() / np.sqrt(n) + 1e-9 * stated, f"stated {stated}, found {errors.mean()}"
        assert stated <= mechanism.worst_squared_error * (1.0 + 1e-12)


def check_mechanism_survives_an_audit(mechanism: Mechanism) -> None:
    """A short attack does not break the claim (error rate 1e-4)."""
    found = audit(mechanism, samples=4000, confidence=1.0 - 1e-4, rng=UnsafeSeed(5))
    assert found.passed, found.verdict
    assert mechanism.loss.within(mechanism.guarantee), "the loss it is charged for exceeds the guarantee"


def check_mechanism_reports(mechanism: Mechanism) -> None:
    """Reports are whole numbers that survive JSON; what cannot be a report is refused; noise is fresh each time."""
    g = _inputs(mechanism)[-1]
    one = g if isinstance(mechanism, VectorMechanism) else bool(g[0])
    report = mechanism.privatize(one)
    again = Report.from_dict(json.loads(json.dumps(report.to_dict())))
    assert again == report
    np.testing.assert_array_equal(mechanism.decode(report), mechanism.decode(again))
    assert mechanism.decode(report).shape == (mechanism.dim,)
    many = np.tile(g, (5000, 1)) if isinstance(mechanism, VectorMechanism) else np.full(5000, g[0])
    assert len(np.unique(mechanism.privatize_many(many, UnsafeSeed(1)), axis=0)) > 1, "the report does not vary"
    assert mechanism.privatize(one, UnsafeSeed(1)) == mechanism.privatize(one, UnsafeSeed(1))
    wrong: tuple[Any, ...] = (
        None, "report", Report("other", report.values), Report(report.kind, (*report.values, 0)),
        Report(report.kind, tuple(2**62 for _ in report.values)),
    )  # fmt: skip
    for bad in wrong:
        _refused(mechanism.decode, bad)


def check_mechanism_refuses_bad_input(mechanism: Mechanism) -> None:
    """Bad inputs are refused with a text that tells nothing of them; ordinary generators are not accepted."""
    bad: tuple[Any, ...] = (
        np.full(mechanism.dim, np.nan), np.full(mechanism.dim, np.inf), np.full(mechanism.dim + 1, 0.123456),
        ["a"] * mechanism.dim, None, 0.123456,
    )  # fmt: skip
    for g in bad:
        assert "0.123456" not in _refused(mechanism.privatize, g), "the refusal tells the private input"
    good = _inputs(mechanism)[-1]
    one = good if isinstance(mechanism, VectorMechanism) else bool(good[0])
    for source in (np.random.default_rng(1), 7, "seed"):
        _refused(mechanism.privatize, one, source)
    for wrong in ({"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": np.nan}, {"epsilon": 1e3}):
        options = {f.name: getattr(mechanism, f.name) for f in fields(mechanism) if f.init}  # type: ignore[arg-type]
        _refused(type(mechanism), **(options | wrong))


# -- families -------------------------------------------------------------------------------------------------


def check_family_derivatives(family: Family) -> None:
    """psi', psi'' and psi''' are the derivatives of the function before them."""
    eta, h = np.linspace(-6, 6, 97), 1e-5
    for f, derivative in (
        (family.psi, family.mean),
        (family.mean, family.curvature),
        (family.curvature, family.skewness),
    ):
        numeric = (f(eta + h) - f(eta - h)) / (2 * h)
        np.testing.assert_allclose(derivative(eta), numeric, rtol=1e-6, atol=1e-8)


def check_family_optimal_price(family: Family) -> None:
    """The closed form is at least as good as the best of 20 001 prices, costs and odd signs included."""
    grid = np.linspace(0.0, 3.0, 20_001)
    for cost in (0.0, 0.7, 4.0):
        for a in (-30.0, -2.0, 0.0, 1.0, 5.0, 40.0):
            for b in (-2.0, -1e-9, 0.0, 1e-12, 0.3, 1.0, 20.0):
                price = family.optimal_price(a, b, (0.0, 3.0), cost=cost)
                assert 0.0 <= price <= 3.0
                best = family.revenue(grid, a, b, cost=cost).max()
                got = family.revenue(price, a, b, cost=cost)
                assert got >= best - 1e-9 * (1 + abs(best)), f"a={a}, b={b}, cost={cost}: {got} < {best}"


def check_family_sampling(family: Family) -> None:
    """Sampled outcomes are possible and have the stated mean (z test, two-sided error rate 1e-6 a point)."""
    rng = np.random.default_rng(11)
    for eta in (-2.0, 0.0, 1.5):
        y = family.sample(np.full(200_000, eta), rng)
        family.check_outcome(y)
        gap = (y.mean() - family.mean(eta)) / (y.std() / np.sqrt(y.size))
        assert abs(gap) < 4.9, f"the mean of samples at eta = {eta} is {gap:.1f} standard errors off"
