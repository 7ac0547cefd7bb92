"""Shared by the tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings

from hushprice import markets, policies
from hushprice.policies import Policy

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

FAMILIES = ("linear", "logistic", "poisson")


def make_policy(name: str, *, family: str = "logistic", dim: int = 3, **options: Any) -> Policy:
    """Any registered policy, with what it needs to run in S1."""
    theta = markets.s1(dim=dim).theta
    arguments: dict[str, Any] = {
        "family": family,
        "dim": dim,
        "prices": (0, 3),
        "theta": theta,
        "price": 1.5,
    }
    if "horizon" in policies.needed(policies.get(name)):
        arguments["horizon"] = 700
    if policies.get(name).private:
        arguments |= {"epsilon": 4.0, "z_max": 2.0}  # so much that 700 rounds see both phases
        arguments |= {"demand_max": 20.0} if family == "poisson" else {}
    if name in ("look-ahead-ldp", "look-ahead-mixed"):
        arguments |= {"features": [[1 / dim**0.5, 2 / dim**0.5]] * dim}
        arguments |= {"demand_max": 3.0} if family in ("linear", "poisson") else {}
    return policies.build(name, **{**arguments, **options})


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    """A PostgreSQL server for all tests of this process; each makes a database of a name of its own."""
    from tests.support.postgres import postgres

    with postgres() as running:
        yield running


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20_261_116)
