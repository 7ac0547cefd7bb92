"""The numbers themselves: results kept in a store are found again by what they depend on, and on NUMBERS.

If this test fails because a policy, market or stream was changed on purpose, raise ``hushprice.studies.spec.NUMBERS``
and write the numbers anew: ``python -m tests.test_numbers``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hushprice as hp
from hushprice.studies.spec import NUMBERS
from tests.conftest import make_policy

KEPT = Path(__file__).parent / "numbers.json"
WORLDS = ("s1", "s2", "wide", "a1", "a2")


def numbers() -> dict[str, float]:
    """Regret of one short replication of every policy in S1, and of ETC in the other markets."""
    found = {}
    for name in hp.policies.REGISTRY:
        policy = make_policy(name, dim=2)
        found[f"{name} in s1"] = _regret(policy, hp.markets.s1(dim=2))
    for world in WORLDS:
        market = hp.markets.build(world, dim=2, horizon=700)
        found[f"etc in {world}"] = _regret(make_policy("etc", dim=2), market)
    loans = hp.markets.autoloan(public=0.1)
    policy = hp.policies.ETCLDPMixed(
        family=hp.Logistic(), dim=5, prices=(0, 10), horizon=700, epsilon=4.0, z_max=loans.z_max()
    )
    found["etc-ldp-mixed in autoloan"] = _regret(policy, loans)
    return found


def _regret(policy: hp.policies.Policy, market: hp.Market) -> float:
    return float(hp.simulate(policy, market, horizon=700, replications=1, seed=3).regret[0])


def test_the_same_words_give_the_same_numbers() -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert kept["NUMBERS"] == NUMBERS
    assert numbers() == pytest.approx(kept["regret"], rel=1e-9)


if __name__ == "__main__":
    KEPT.write_text(json.dumps({"NUMBERS": NUMBERS, "regret": numbers()}, indent=1) + "\n", encoding="utf-8")
