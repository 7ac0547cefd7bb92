"""The server killed without warning, under load: nothing acknowledged is lost, nothing counts twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import crash
from benchmarks.databases import Postgres, postgres

KILLS = 3  # python -m benchmarks crash does a hundred


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


def check(verdict: crash.Verdict) -> None:
    assert (verdict.lost, verdict.twice, verdict.changed, verdict.strange) == (0, 0, 0, 0)
    assert verdict.same_bits
    assert verdict.kills == KILLS
    assert verdict.acknowledged > 50


def test_kills_on_sqlite(tmp_path: Path) -> None:
    check(crash.run(KILLS, f"sqlite:///{tmp_path / 'crash.db'}", seed=11))


def test_kills_on_postgresql(server: Postgres) -> None:
    check(crash.run(KILLS, server.url("one"), seed=12))


def test_kills_of_two_workers_on_postgresql(server: Postgres) -> None:
    check(crash.run(KILLS, server.url("two"), seed=13, workers=2))
