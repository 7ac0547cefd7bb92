"""Private reports as they are sent, kept in the log and handed to a server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hushprice.errors import InvalidInput
from hushprice.policies import PrivatePolicy
from hushprice.privacy import VectorMechanism
from hushprice.service.errors import about

_SEED = re.compile("[0-9a-f]{16}")


def plain_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report as it is kept; whether the product's mechanism can have made it is seen to later."""
    if len(report) == 1 and "grid" in report:
        grid = report["grid"]
        if isinstance(grid, list) and all(type(k) is int for k in grid):
            return {"grid": grid}
    elif len(report) == 2 and "seed" in report and "index" in report:
        seed, index = report["seed"], report["index"]
        if isinstance(seed, str) and _SEED.fullmatch(seed) and type(index) is int:
            return {"seed": seed, "index": index}
    raise InvalidInput("A report must read {'seed': 16 hexadecimal digits, 'index': k} or {'grid': [whole numbers]}.")


def report_row(report: Mapping[str, Any]) -> list[int]:
    """A report of an event as the whole numbers that a server takes."""
    if "grid" in report:
        return list(report["grid"])
    word = int(report["seed"], 16)
    return [word - (word >> 63 << 64), report["index"]]


def report_rows(policy: PrivatePolicy, reports: Sequence[Mapping[str, Any] | None]) -> list[list[int] | None]:
    """Each report as a server takes it (None stays None); those that the policy's mechanism cannot have made are
    refused."""
    made = [report for report in reports if report is not None]
    numbers = _possible(policy.mechanism, made)
    if numbers is None:
        wrong = (i for i, report in enumerate(reports) if report and _possible(policy.mechanism, [report]) is None)
        problem = InvalidInput(f"A report is none that {policy.mechanism.name} as set up for this product can make.")
        raise about(problem, "reports", next(wrong, 0), len(reports))
    rows = iter(numbers.tolist())
    return [None if report is None else next(rows) for report in reports]


Numbers = np.ndarray[Any, np.dtype[np.int64]]


def _possible(mechanism: VectorMechanism, reports: Sequence[Mapping[str, Any]]) -> Numbers | None:
    """Reports in numbers; None if one of them is none that the mechanism can have made."""
    try:
        numbers = _numbers(reports, mechanism.kind == "grid").reshape(len(reports), mechanism.width)
    except (TypeError, ValueError, KeyError, OverflowError):
        return None
    return numbers if mechanism.possible(numbers).all() else None


def _numbers(reports: Sequence[Mapping[str, Any]], grids: bool) -> Numbers:
    """:func:`report_row` of many."""
    if grids:
        return np.array([report["grid"] for report in reports], dtype=np.int64)
    words = np.frombuffer(bytes.fromhex("".join([report["seed"] for report in reports])), dtype=">i8")
    return np.column_stack([words, np.array([report["index"] for report in reports], dtype=np.int64)]).astype(np.int64)
