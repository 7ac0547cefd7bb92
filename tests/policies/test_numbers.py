"""The numbers themselves: a store looks up results by everything that they depend on, and by NUMBERS.

If this test fails because a policy, market or stream was changed on purpose, raise ``hushprice.studies.cells.NUMBERS``
and write the numbers anew: ``python -m tests.policies.test_numbers``.
"""

from __future__ import annotations

import json
from itertools import product

import pytest

import hushprice as hp
from hushprice.paper import Paper
from hushprice.simulation import Simulated
from hushprice.studies import market_from, policy_from
from hushprice.studies.cells import NUMBERS
from tests.conftest import make_policy
from tests.support.paths import ROOT

STORED = ROOT / "tests" / "data" / "numbers.json"
T = 700


def numbers() -> dict[str, float]:
    """Regret of one short replication: of every policy in S1, and of every policy of the paper in its market."""
    regrets = {
        f"{name} in s1": _regret(make_policy(name, dim=2), hp.markets.s1(dim=2)) for name in hp.policies.REGISTRY
    }
    for run in Paper(scale="full").study.runs.values():
        for world, word in product(run.market, run.policies.values()):
            market = market_from(world, dim=min(run.dims) if run.dims else None, horizon=T)
            regrets[f"{word} in {world}"] = _regret(policy_from(word, market, T), market)
    for world in ("wide", "lower-bound"):
        market = market_from(world, dim=2, horizon=T)
        regrets[f"etc in {world}"] = _regret(policy_from("etc", market, T), market)
    return regrets


def _regret(policy: Simulated, market: hp.Market) -> float:
    return float(hp.simulate(policy, market, horizon=T, replications=1, seed=3).regret[0])


def test_the_same_words_give_the_same_numbers() -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert stored["NUMBERS"] == NUMBERS
    assert numbers() == pytest.approx(stored["regret"], rel=1e-9)


if __name__ == "__main__":
    STORED.write_text(json.dumps({"NUMBERS": NUMBERS, "regret": numbers()}, indent=1) + "\n", encoding="utf-8")
