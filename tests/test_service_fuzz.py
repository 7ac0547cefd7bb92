"""Requests that nobody should send: no 5xx, answers as described, and whatever is refused changes nothing."""

from __future__ import annotations

from benchmarks.fuzz import GOOD, MALFORMED, fuzz, spoil

CASES = 900  # 10 000 by: python -m benchmarks fuzz


def test_fuzz() -> None:
    found = fuzz(CASES)
    assert found["problems"] == []
    assert (found["server errors"], found["refused but changed"]) == (0, 0)
    assert found["cases"] >= CASES
    assert found["not sendable"] < CASES // 20
    assert found["refused"] > CASES // 2  # most of them are wrong,
    assert found["statuses"][200] > CASES // 10  # but what is right is taken
    assert {400, 404, 409, 415, 422} <= set(found["statuses"])


def test_spoiled_bodies_are_not_good_ones() -> None:
    good = GOOD["/v1/products/tea/outcomes"][1]
    spoiled = [spoil(good, k, None) for k in range(20)]
    assert all(body != good for body in spoiled)
    assert len({repr(body) for body in spoiled}) > 4


def test_the_list_of_troubles_is_long() -> None:
    assert len(MALFORMED) == len(set(MALFORMED)) > 40
