"""The server killed without warning, under load: nothing acknowledged is lost, nothing counts twice.

Three kills on SQLite, and on PostgreSQL two of one process, and two of two: first of a worker, then of all there is.
``python -m benchmarks crash`` does a hundred of each.
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.support import crash
from tests.support.postgres import Postgres

WORKER_THEN_ALL = 5  # a seed: see the last test


def check(verdict: crash.Verdict, kills: int) -> None:
    assert (verdict.lost, verdict.twice, verdict.changed, verdict.strange) == (0, 0, 0, 0)
    assert verdict.same_bits
    assert verdict.verified
    assert verdict.kills == kills
    assert verdict.acknowledged > 50


def test_kills_on_sqlite(tmp_path: Path) -> None:
    check(crash.run(3, f"sqlite:///{tmp_path / 'crash.db'}", seed=11), kills=3)


def test_kills_on_postgresql(server: Postgres) -> None:
    check(crash.run(2, server.url("crash-one"), seed=12), kills=2)


def test_kills_of_two_workers_on_postgresql(server: Postgres) -> None:
    draws = random.Random(WORKER_THEN_ALL)
    one = [(draws.random(), draws.random() < 0.75)[1] for _ in range(2)]  # each after how long, and whether one of them
    assert one == [True, False]
    check(crash.run(2, server.url("crash-two"), seed=WORKER_THEN_ALL, workers=2), kills=2)
