"""Where demand does not follow its model, in words that live sales and the check of a log share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

ADVICE = "Add a feature or a constant, or narrow the range of prices."


def span(what: str, low: float, high: float) -> str:
    """A range in words; an end that is infinite is none.

    >>> span("prices", 4.1, math.inf), span("values of age", 20, 31), span("values of age", 18, 18)
    ('prices above 4.1', 'values of age between 20 and 31', 'values of age equal to 18')
    """
    if math.isinf(low):
        return f"{what} up to {high:.4g}"
    if math.isinf(high):
        return f"{what} above {low:.4g}"
    if low == high:
        return f"{what} equal to {low:.4g}"
    return f"{what} between {low:.4g} and {high:.4g}"


def gap_text(where: str, bought: float, expected: float) -> str:
    """What was bought and what the model expected, at a place in words.

    >>> gap_text("prices above 4.1", 0.31, 0.22)
    'Demand does not follow the model at prices above 4.1: customers there buy 0.31 on average, 0.22 was expected.'
    """
    return (
        f"Demand does not follow the model at {where}: customers there buy {bought:.3g} on average, {expected:.3g} was "
        f"expected."
    )


def runs(beyond: Any, gaps: Any) -> Iterator[slice]:
    """Neighbouring groups beyond chance whose gaps have the same sign; both are lists or arrays by group.

    >>> list(runs([True, True, True, False, True], [0.1, 0.2, -0.1, 0.1, 0.3]))
    [slice(0, 2, None), slice(2, 3, None), slice(4, 5, None)]
    """
    first = None
    for i in range(len(gaps) + 1):
        ends = i == len(gaps) or not beyond[i]
        if first is not None and (ends or (gaps[i] > 0.0) != (gaps[first] > 0.0)):
            yield slice(first, i)
            first = None
        if first is None and not ends:
            first = i
