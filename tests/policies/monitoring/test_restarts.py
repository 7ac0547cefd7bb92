"""Policies that start again on a change, and the monitor beside policies that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushprice as hp
from hushprice import policies
from hushprice.errors import InvalidInput, SnapshotError
from hushprice.policies import Monitor, Records, Restarting
from hushprice.policies.monitoring.restarts import REVIEW_EVERY, STAGE_NUMBERS
from hushprice.service.core.fingerprint import digest
from hushprice.simulation import replicate, streams
from hushprice.simulation.engine import Trace
from hushprice.studies import policy_from

JUMP = hp.markets.drifting(hp.markets.s1(dim=2), "jump", sensitivity=-0.5, at=2001)


def _build(name: str, **options: Any) -> policies.Policy:
    return policies.build(name, **{"family": "logistic", "dim": 2, "prices": (0, 3), "horizon": 4000, **options})


@pytest.mark.parametrize("name", ["etc-doubling", "semi-myopic", "ucb"])
def test_restarting_pays_after_a_jump(name: str) -> None:
    """In the mean of six runs it loses less than the same policy without restarts."""
    common: dict[str, Any] = {"horizon": 6000, "replications": 6, "seed": 5, "workers": 1}
    plain, again = (policy_from(name + word, JUMP, 6000) for word in ("", ":restart=on-change"))
    assert isinstance(again, Restarting)
    assert hp.simulate(again, JUMP, **common).regret.mean() < hp.simulate(plain, JUMP, **common).regret.mean()


@pytest.mark.parametrize("name", ["etc-doubling", "supcb-doubling"])
def test_without_a_change_it_is_the_policy_itself(name: str) -> None:
    market = hp.markets.s1(dim=2)
    common: dict[str, Any] = {"horizon": 1500, "replications": 2, "seed": 5, "workers": 1}
    plain, again = (_build(name, horizon=1500, **o) for o in ({}, {"restart": "on-change"}))
    np.testing.assert_array_equal(
        hp.simulate(again, market, **common).paths, hp.simulate(plain, market, **common).paths
    )


def test_live_it_restarts_and_ignores_outcomes_of_earlier_offers(tmp_path: Path) -> None:
    pricer = _build("semi-myopic", restart="on-change").start(seed=3)
    rng, old = np.random.default_rng(3), []
    for i in range(4000):
        z = rng.uniform(0.5, 1.0, 2)
        offer = pricer.offer(z)
        if i % 500 == 499:
            old.append(offer)
            continue
        b = z.sum() * (1.0 if i < 2000 else 0.4)
        pricer.observe(offer, float(rng.random() < 1 / (1 + np.exp(offer.price * b - 1.6 * z.sum()))))
        if i in (1000, 2500):
            pricer.save(tmp_path / "p.hush")
            pricer = hp.Pricer.load(tmp_path / "p.hush")
    server: Any = pricer._server
    assert pricer.change is not None
    assert 2000 < pricer.change.found < 2600
    assert server.number == 2
    held = server.inner.estimator.records
    assert held < 4000 / server.inner.policy.every
    assert old[0].stage // STAGE_NUMBERS == 1
    outcomes = server.monitor.outcomes
    pricer.observe(old[0].id, 1.0)  # of the first server
    assert (server.inner.estimator.records, server.monitor.outcomes) == (held, outcomes + 1)
    assert pricer.offer([1.0, 0.5]).stage // STAGE_NUMBERS == 2


@pytest.mark.parametrize("name", ["etc-doubling", "semi-myopic", "ucb"])
def test_batch_and_live_agree_through_a_restart(name: str, tmp_path: Path) -> None:
    n, policy, trace = 3500, _build(name, restart="on-change", horizon=3500), Trace(np.empty(3500), np.empty(3500))
    replicate(policy, JUMP, horizon=n, seed=4, replication=0, checkpoints=np.array([n]), trace=trace)
    seeds = streams(4, 0)
    contexts, demand = (np.random.default_rng(s) for s in seeds[:2])
    pricer, prices = policy.start(seed=seeds[2]), []
    for block in JUMP.blocks(contexts, demand, n):
        for i in range(len(block.z)):
            offer = pricer.offer(block.z[i])
            prices.append(offer.price)
            pricer.observe(offer, block.buy(slice(i, i + 1), np.array([offer.price]))[0])
            if len(prices) in (1950, 2950):
                pricer.save(tmp_path / "pricer.hush")
                pricer = hp.Pricer.load(tmp_path / "pricer.hush")
    np.testing.assert_array_equal(prices, trace.prices)
    server: Any = pricer._server
    assert server.number == 2


def test_a_range_in_which_demand_cannot_be_watched() -> None:
    """Prices from 10 000 to 10 002: the policy sells as ever, without a monitor."""
    pricer = _build("etc-doubling", prices=(10_000, 10_002)).start(seed=1)
    pricer.observe(pricer.offer([1.0, 0.5]), 1)
    assert pricer.change is None
    with pytest.raises(InvalidInput, match="Subtract a fixed amount"):
        _build("etc-doubling", prices=(10_000, 10_002), restart="on-change")


def test_forgetting_makes_a_new_version() -> None:
    pricer = _build("etc").start(seed=3)
    _sell(pricer, 800, 1.0, np.random.default_rng(8))
    before = pricer.params
    pricer.forget(half_life=20.0)
    after = pricer.params
    assert (before.theta != after.theta).any()
    assert after.version > before.version


def test_what_a_monitor_finds_does_not_depend_on_when_it_is_read() -> None:
    rng, policy = np.random.default_rng(4), _build("etc")
    read, unread = Monitor(policy), Monitor(policy)
    for i in range(1500):
        record = Records(rng.random((1, 2)), np.array([0.2 + i / 600]), np.array([float(rng.integers(2))]))
        read.absorb(record)
        unread.absorb(record)
        if i % 7 == 0:
            _ = read.misfits
    assert digest(read.state()) == digest(unread.state())


def test_reviews_are_at_fixed_customers() -> None:
    server = _build("etc-doubling", restart="on-change").server()
    server.advance(30)
    assert server.span <= REVIEW_EVERY - 30
    assert server.left <= REVIEW_EVERY - 30


@pytest.mark.parametrize("name", ["look-ahead", "etc-ldp", "fixed-price", "restarting"])
def test_policies_without_use_for_it_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        Restarting(family=hp.Logistic(), dim=2, prices=(0, 3), base=name)


@pytest.mark.parametrize("restart", ["always", True, 3, np.array([1.0, 2.0])])
def test_other_values_of_restart_are_refused(restart: Any) -> None:
    with pytest.raises(InvalidInput, match="restart"):
        _build("etc", restart=restart)


def test_options_reach_the_policy() -> None:
    policy = _build("etc-doubling", restart="on-change", factor=0.7, ridge=2.0)
    assert isinstance(policy, Restarting)
    inner: Any = policy.inner
    assert (inner.factor, inner.ridge) == (0.7, 2.0)
    assert policies.get(policy.name).from_config(policy.config()) == policy
    with pytest.raises(InvalidInput):
        _build("etc-doubling", restart="on-change", width=1.0)


@pytest.mark.parametrize("options", [{"prices": (0, 9)}, {"dim": 3}, {"ridge": 5.0}, {"restart": "on-change"}, {1: 2}])
def test_options_of_every_policy_belong_beside_the_others(options: Any) -> None:
    with pytest.raises(InvalidInput, match="beside them"):
        Restarting(family=hp.Logistic(), dim=2, prices=(0, 3), options=options)


def test_a_snapshot_of_another_shape_is_refused() -> None:
    server = _build("etc-doubling", restart="on-change").server()
    with pytest.raises(SnapshotError):
        server.restore(server.state() | {"number": 0})


# -- the monitor ----------------------------------------------------------------------------------------------


def _sell(pricer: hp.Pricer, n: int, slope: float, rng: np.random.Generator) -> None:
    for _ in range(n):
        z = np.array([1.0, rng.uniform(0.0, 1.0)])
        offer = pricer.offer(z)
        pricer.observe(offer, float(rng.random() < 1 / (1 + np.exp(offer.price * slope - 1.6))))


@pytest.mark.parametrize("name", ["etc-doubling", "random-price", "ucb"])
def test_every_plain_policy_is_watched(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    pricer = _build(name).start(seed=3)
    _sell(pricer, 1200, 1.0, rng)
    assert pricer.change is None
    assert pricer.misfits == ()
    pricer.save(tmp_path / "p.hush")
    pricer = hp.Pricer.load(tmp_path / "p.hush")
    _sell(pricer, 1200, 0.3, rng)
    assert pricer.change is not None
    assert 1200 < pricer.change.found < 2000


def test_a_private_policy_is_not_watched() -> None:
    pricer = _build("etc-ldp", epsilon=4.0, z_max=2.0).start(seed=1)
    assert pricer._monitor is None
    assert (pricer.change, pricer.misfits) == (None, ())
    with pytest.raises(InvalidInput, match="forget"):
        pricer.forget(half_life=10.0)


@pytest.mark.parametrize("name", ["etc-doubling", "ucb", "semi-myopic", "supcb-doubling"])
def test_policies_forget_by_hand(name: str) -> None:
    """The estimate moves as if the weights were those of the ages; the covariance grows."""
    pricer = _build(name).start(seed=3)
    _sell(pricer, 400, 1.0, np.random.default_rng(8))
    before = pricer._server.estimate()[1]
    pricer.forget(half_life=20.0)
    estimators = pricer._server.estimators
    for estimator in estimators:
        n = estimator.records
        np.testing.assert_allclose(estimator.weight[:n], 0.5 ** (np.arange(n - 1, -1, -1) / 20.0))
    pricer.offer([1.0, 0.5])
    after = pricer._server.estimate()[1]
    assert before is not None
    assert after is not None
    assert np.trace(after) > np.trace(before)


def test_a_context_of_absurd_size_is_not_looked_at() -> None:
    monitor = Monitor(_build("etc"))
    monitor.absorb(Records(np.array([[1e12, 1.0], [1.0, 1.0]]), np.ones(2), np.ones(2)))
    assert monitor.outcomes == 1
