"""Checks that every policy must pass."""

from __future__ import annotations

import struct
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hushprice.checks.live import HORIZON, LiveLoop, run_batch, world_for
from hushprice.checks.refusal import refused
from hushprice.checks.service import check_service, service_is_installed
from hushprice.checks.terms import check_propensities, check_rules_are_met
from hushprice.estimation import DRIFT_BOUND
from hushprice.policies import Policy, Pricer, Records
from hushprice.policies.loop import Loop
from hushprice.privacy import UnsafeSeed
from hushprice.simulation import simulate, streams

PolicyCheck = Callable[[Policy], None]


def policy_checks() -> list[PolicyCheck]:
    """The checks for a policy, of any family and dim, with prices within [0, 3].

    They include :func:`~hushprice.checks.service.check_service` if the extra ``hushprice[service]`` is installed.
    """
    served = [check_service] if service_is_installed() else []
    return [
        check_batch_equals_live,
        check_deviation,
        check_same_seed_same_run,
        check_prices_in_range,
        check_snapshot_resumes_exactly,
        check_late_repeated_and_missing_outcomes,
        check_estimates_do_not_drift,
        check_private_server_sees_no_raw_data,
        check_config_round_trip,
        check_refuses_bad_input,
        check_rules_are_met,
        check_propensities,
        *served,
    ]


def check_batch_equals_live(policy: Policy) -> None:
    """The simulation and a live loop give the same prices and outcomes, to the last bit.

    Parameters
    ----------
    policy : Policy
        The policy to check.
    """
    market = world_for(policy)
    batch = run_batch(policy, market)
    prices, y = LiveLoop(policy, market).run(0, HORIZON)
    np.testing.assert_array_equal(batch.prices, prices)
    np.testing.assert_array_equal(batch.y, y)


def check_deviation(policy: Policy) -> None:
    """Greedy prices and experiments are counted alike by the policy's loop and by one that serves span by span.

    Parameters
    ----------
    policy : Policy
        The policy to check.
    """
    market = world_for(policy)
    contexts, demand, exploration, privacy, choices = streams(5, 0)[:5]
    counted = []
    for loop in (
        policy.loop(UnsafeSeed(privacy)),
        Loop(policy.device(UnsafeSeed(privacy)), policy.server()),
    ):
        who, what, agree, draws = (np.random.default_rng(s) for s in (contexts, demand, choices, exploration))
        blocks = market.blocks(who, what, HORIZON, choices=agree)
        sold = [loop.sell(block, draws) for block in blocks]
        counted.append(np.sum([(one.explored, one.far, one.deviation) for one in sold], axis=0))
    compiled, plain = counted
    np.testing.assert_allclose(compiled, plain, rtol=1e-9, err_msg="the policy's loop counts other greedy prices")
    explored, far, deviation = compiled.tolist()
    if not policy.server().params.personal:
        assert np.isnan([far, deviation]).all(), "without an estimate no price is known to be best"
        return
    assert 0 <= far <= HORIZON
    assert 0.0 <= deviation <= HORIZON
    assert explored or not deviation, "prices deviate although none is an experiment"


def check_same_seed_same_run(policy: Policy) -> None:
    """The same seed gives the same run; another gives other customers."""
    market = world_for(policy)
    first, second = (simulate(policy, market, horizon=HORIZON, replications=2, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.paths, second.paths)
    other = simulate(policy, market, horizon=HORIZON, replications=2, seed=4)
    assert not np.array_equal(first.revenue, other.revenue), "another seed gave the same customers"


def check_prices_in_range(policy: Policy) -> None:
    """No price leaves the policy's range, for ordinary and for extreme contexts.

    Parameters
    ----------
    policy : Policy
        The policy to check.
    """
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
    """A pricer that is saved and loaded at several points quotes the prices of an uninterrupted run."""
    market = world_for(policy)
    whole = run_batch(policy, market).prices
    loop = LiveLoop(policy, market)
    stops = (0, 1, 37, 300, HORIZON)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pricer.hush"
        for stop, then in pairwise(stops):  # one pricer through all stops, so that a loss at any of them shows
            loop.pricer.save(file)
            loop.pricer = Pricer.load(file, unsafe_privacy=True)
            np.testing.assert_array_equal(loop.run(stop, then)[0], whole[stop:then])


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
    """At random times of a run, every running estimate is within DRIFT_BOUND of an exact fit of its records."""
    loop = LiveLoop(policy, world_for(policy))
    times = np.sort(np.random.default_rng(8).choice(HORIZON, size=5, replace=False))
    for start, stop in zip((0, *times), (*times, HORIZON), strict=True):
        loop.run(int(start), int(stop))
        for estimator in loop.pricer._server.estimators:
            drift = estimator.drift()
            assert drift <= DRIFT_BOUND, f"after {stop} rounds an estimate is {drift:.2f} standard errors off"


def check_private_server_sees_no_raw_data(policy: Policy) -> None:
    """Neither a private policy's server nor a saved pricer contains a context or price of a private customer.

    Parameters
    ----------
    policy : Policy
        The policy to check; one that is not private passes.
    """
    if not policy.private:
        return
    fresh = policy.server()
    public = {*policy.prices, *numbers_in((fresh, fresh.params))}  # what follows from the configuration alone
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
    held = numbers_in((server, server.state(), server.params, loop.pricer._open))
    for value in set(secrets) - public:
        assert value not in held, f"its memory holds the number {value!r} of a private customer"
        for form in (struct.pack("<d", value), struct.pack(">d", value), repr(float(value)).encode()):
            assert form not in saved, f"its snapshot holds the number {value!r} of a private customer"
    raw = Records(loop.z[:1], np.ones(1), np.ones(1))
    for wrong in (raw, None, loop.z):
        refused(server.absorb, wrong)


def numbers_in(root: Any) -> set[float]:
    """All floating-point numbers in objects reachable from ``root``, except through classes and functions.

    Parameters
    ----------
    root : object
        Where to begin.

    Returns
    -------
    set of float
        The numbers.
    """
    visited: set[int] = set()
    numbers: set[float] = set()
    stack = [root]
    while stack:
        thing = stack.pop()
        if id(thing) in visited or callable(thing) or isinstance(thing, (str, bytes)):
            continue
        visited.add(id(thing))
        if isinstance(thing, float):
            numbers.add(float(thing))
        elif isinstance(thing, np.ndarray):
            numbers.update(thing.astype(np.float64).ravel().tolist())
            stack += [] if thing.base is None else [thing.base]
        elif isinstance(thing, Mapping):
            stack += [*thing.keys(), *thing.values()]
        elif isinstance(thing, (list, tuple, set, frozenset, deque)):
            stack += list(thing)
        else:
            slots = (name for kind in type(thing).__mro__ for name in kind.__dict__.get("__slots__", ()))
            stack += [getattr(thing, name, None) for name in slots]
            stack.append(getattr(thing, "__dict__", None))
    return numbers


def check_config_round_trip(policy: Policy) -> None:
    """``from_config`` restores the policy that ``config`` describes."""
    again = type(policy).from_config(policy.config())
    assert again.config() == policy.config()


def check_refuses_bad_input(policy: Policy) -> None:
    """Bad contexts and outcomes are refused by a message and change nothing."""
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
        refused(loop.pricer.offer, z)
    for y in (np.nan, np.inf, "yes", None, [0, 1]):
        refused(loop.pricer.observe, offer, y)
    for key in (0, -1, 10**9, "1", None, 1.5):
        refused(loop.pricer.observe, key, 0)
    y = loop.outcome(100, offer.price)
    assert loop.pricer.observe(offer, y)
    assert clean.pricer.observe(clean_offer, y)
    np.testing.assert_array_equal(loop.run(101, 300)[0], clean.run(101, 300)[0])
    options = policy.config() | {"family": policy.family}
    wrong_options: tuple[dict[str, Any], ...] = (
        {"prices": (3, 0)}, {"prices": (1,)}, {"prices": (0, np.nan)}, {"dim": 0}, {"dim": 1.5}, {"ridge": -1},
    )  # fmt: skip
    for wrong in wrong_options:
        refused(type(policy), **(options | wrong))
    refused(policy.start, seed=-1)
    run: dict[str, Any] = {"horizon": 10, "replications": 1}
    wrong_runs: tuple[dict[str, Any], ...] = (
        {"horizon": -5}, {"horizon": 0}, {"replications": 0}, {"workers": 0}, {"checkpoints": [0]}, {"seed": -1},
    )  # fmt: skip
    for wrong in wrong_runs:
        refused(simulate, policy, market, **(run | wrong))
