"""Requests that nobody should send: no 5xx, answers as described, and whatever is refused changes nothing."""

from __future__ import annotations

from typing import Any

from tests.support.fuzz import GOOD, MALFORMED, fuzz
from tests.support.postgres import postgres

CASES = 900  # 10 000 by: python -m benchmarks fuzz
LISTED = len(GOOD) * len(MALFORMED)  # sent whatever the number of cases


def _sound(result: dict[str, Any], cases: int) -> None:
    assert result["problems"] == []
    assert (result["server errors"], result["refused but changed"]) == (0, 0)
    assert result["cases"] >= cases
    assert result["not sendable"] < cases // 20
    assert result["refused"] > cases // 2  # most of them are wrong,
    assert {400, 404, 409, 422} <= set(result["statuses"])


def test_fuzz() -> None:
    result = fuzz(CASES)
    _sound(result, CASES)
    assert 415 in result["statuses"]
    assert result["statuses"][200] > CASES // 10  # but what is right is taken


def test_fuzz_on_postgres() -> None:
    """Another database: it takes no NUL, and is strict about encodings and the ranges of numbers."""
    with postgres() as server:
        result = fuzz(LISTED + 100, 8, server.url("fuzz"))
    _sound(result, LISTED + 100)
    assert result["statuses"][200] > 20
