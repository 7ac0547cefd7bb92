"""Requests that nobody should send: no 5xx, answers as described, and whatever is refused changes nothing."""

from __future__ import annotations

from typing import Any

from tests.support.fuzz import GOOD, MALFORMED, fuzz
from tests.support.postgres import postgres

CASES = 900  # 10 000 by: python -m benchmarks fuzz
LISTED = len(GOOD) * len(MALFORMED)  # sent whatever the number of cases


def _sound(found: dict[str, Any], cases: int) -> None:
    assert found["problems"] == []
    assert (found["server errors"], found["refused but changed"]) == (0, 0)
    assert found["cases"] >= cases
    assert found["not sendable"] < cases // 20
    assert found["refused"] > cases // 2  # most of them are wrong,
    assert {400, 404, 409, 422} <= set(found["statuses"])


def test_fuzz() -> None:
    found = fuzz(CASES)
    _sound(found, CASES)
    assert 415 in found["statuses"]
    assert found["statuses"][200] > CASES // 10  # but what is right is taken


def test_fuzz_on_postgres() -> None:
    """Another database: it takes no NUL, and is strict about encodings and the ranges of numbers."""
    with postgres() as server:
        found = fuzz(LISTED + 100, 8, server.url("fuzz"))
    _sound(found, LISTED + 100)
    assert found["statuses"][200] > 20
