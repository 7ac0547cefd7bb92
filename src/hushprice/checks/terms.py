"""Checks that every policy must pass: prices meet business rules and have the stated propensities."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy

from hushprice.arrays import Array
from hushprice.checks.live import HORIZON, LiveLoop, run_batch, world_for
from hushprice.checks.refusal import refused
from hushprice.demand import Rules, Terms
from hushprice.markets import Market, Resample
from hushprice.policies import Phase, Policy, Pricer
from hushprice.policies.exchange import Propensity
from hushprice.simulation import record

RULED_SEGMENTS = ("few", "many")


def on_rules(policy: Policy, **more: Any) -> tuple[Policy, Market]:
    """The policy under rules of every kind, and a market with two segments and a unit cost per customer.

    Parameters
    ----------
    policy : Policy
        The policy.
    **more
        Fields of the rules to replace.
    """
    low, high = policy.prices
    width = high - low
    rules = Rules(
        ladder=tuple((low + width * np.linspace(0.0, 1.0, 31) ** 1.2).tolist()),
        largest_step=None if policy.private else 0.3 * width,
        segments=RULED_SEGMENTS,
        ranges={"few": (low + 0.2 * width, low + 0.8 * width)},
    )
    rules = replace(rules, **more)
    world = world_for(policy)
    rng = np.random.default_rng(3)
    who = Resample(
        world.draw(rng, 400),
        costs=0.3 * low + 0.3 * width * rng.random(400),
        segments=(rng.random(400) < 0.7).astype(np.int64),
    )
    market = replace(world, contexts=who, segments=RULED_SEGMENTS, rules=rules)
    return replace(policy, rules=rules), market


def check_rules_are_met(policy: Policy) -> None:
    """Under business rules, batch and live agree to the last bit and every price is allowed.

    Parameters
    ----------
    policy : Policy
        The policy to check.
    """
    for more in ({}, {"ladder": ()}):
        ruled, market = on_rules(policy, **more)
        trace = run_batch(ruled, market)
        loop = LiveLoop(ruled, market)
        prices, y = loop.run(0, HORIZON)
        np.testing.assert_array_equal(trace.prices, prices)
        np.testing.assert_array_equal(trace.y, y)
        assert ruled.rules is not None
        assert loop.segment is not None
        for number, name in enumerate(RULED_SEGMENTS):
            quoted = prices[loop.segment == number]
            low, high = ruled.rules.ranges.get(name, ruled.prices)
            assert ((quoted >= low) & (quoted <= high)).all(), f"a price left the range of the segment {name}"
            if ruled.rules.largest_step is not None:
                step = np.abs(np.diff(quoted)).max()
                assert step <= ruled.rules.largest_step * (1.0 + 1e-8), f"a step of {step} in the segment {name}"
        if ruled.rules.ladder:
            assert np.isin(prices, ruled.rules.ladder).all(), "a price is not on the ladder"
        refused(loop.pricer.offer, loop.z[0])  # without its segment
        refused(loop.pricer.offer, loop.z[0], segment="others")
        refused(loop.pricer.offer, loop.z[0], segment=RULED_SEGMENTS[0], cost=-1.0)


def check_propensities(policy: Policy) -> None:
    """Frequencies of prices match the stated propensities, in many quotes to one customer at several times of a run.

    Discrete prices are tested one by one (exact tests), the others in three intervals chosen by separate draws
    (z tests), each at a two-sided error rate of 1e-6.

    Parameters
    ----------
    policy : Policy
        The policy to check.
    """
    for ruled, market in ((policy, world_for(policy)), on_rules(policy, largest_step=None)):
        loop = LiveLoop(ruled, market)
        for start, stop in ((0, 5), (5, 120), (120, 500)):
            loop.run(start, stop)
            prices, propensity = _repeated_quotes(loop.pricer, loop, stop)
            if np.isnan(propensity.value).all():
                assert ruled.name not in WITH_PROPENSITIES, f"{ruled.name} no longer states its propensities"
                continue
            assert (propensity.value > 0.0).all(), "a quoted price has a stated propensity of 0"
            _check_frequencies(prices, propensity)
    table = record(policy, world_for(policy), horizon=HORIZON, seed=5)
    np.testing.assert_array_equal(table["price"].to_numpy(), run_batch(policy, world_for(policy)).prices)


WITH_PROPENSITIES = (
    "look-ahead", "etc", "etc-doubling", "mle-cycle", "semi-myopic", "ts-wtl", "ucb", "etc-ldp", "random-price",
    "fixed-price",
)  # fmt: skip


def _repeated_quotes(pricer: Pricer, loop: LiveLoop, t: int) -> tuple[Array, Propensity]:
    """Many quotes to customer t, and their stated propensities."""
    params = pricer.params
    times = 1_500 if params.phase is Phase.SAMPLE else 12_000  # a sampled price takes an integral
    device, rng = pricer._device, np.random.default_rng(9)

    def customers(n: int) -> tuple[Array, tuple[Terms, ...]]:
        cost = None if loop.cost is None else loop.cost[t]
        segment = None if loop.segment is None else np.repeat(loop.segment[t : t + 1], n)
        terms = pricer.policy.terms(n, cost=cost, segment=segment)
        return np.repeat(loop.z[t : t + 1], n, axis=0), () if terms is None else (terms,)

    z, terms = customers(times)
    quotes = device.quote(params, z, rng, *terms)
    prices, inverse = np.unique(quotes.price, return_inverse=True)
    z, terms = customers(len(prices))
    stated = device.propensity(params, z, prices, *terms)
    return quotes.price, Propensity(stated.value[inverse], stated.discrete[inverse])


def _check_frequencies(prices: Array, propensity: Propensity) -> None:
    n = len(prices)
    for price in np.unique(prices[propensity.discrete]):
        stated = propensity.value[prices == price][0]
        count = int(np.count_nonzero(prices == price))
        pvalue = scipy.stats.binomtest(count, n, min(stated, 1.0)).pvalue
        assert pvalue > 1e-6, f"{price}: stated {stated}, measured {count / n}"
    drawn, density = prices[~propensity.discrete], propensity.value[~propensity.discrete]
    if not len(drawn):
        return
    half = len(drawn) // 2
    ends = np.quantile(drawn[:half], [0.1, 0.4, 0.6, 0.9])
    rest, density, draws = drawn[half:], density[half:], n * (len(drawn) - half) / len(drawn)
    for low, high in pairwise(ends):
        inverse = np.where(
            (rest > low) & (rest < high), 1.0 / density, 0.0
        )  # summed over all draws: the interval's length
        mean = inverse.sum() / draws
        gap = (mean - (high - low)) / np.sqrt((np.square(inverse).sum() / draws - mean**2) / draws)
        assert abs(gap) < 4.9, f"densities between {low} and {high} are off: {mean} for {high - low}"
