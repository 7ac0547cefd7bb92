"""Where the demand of a log does not follow the model: places in the comparisons that fail.

A group is a place if its own gap is beyond chance, at a level so small that a true model has such a group in any
comparison no more often than the whole check may fail. Neighbours that err in the same direction are one place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scipy.special import ndtr

from hushprice.demand.misfit import ADVICE, gap_text, runs, span
from hushprice.markets.twin.replay import Group, Replay

MOST_PLACES = 5  # named in a text; the others are counted


@dataclass(frozen=True, kw_only=True)
class Place:
    """Customers of a log who buy more or less than the model predicts.

    Attributes
    ----------
    comparison : str
        The comparison that fails.
    where : str
        Which customers these are, such as "prices above 4.1".
    rows : float
        Number of rows, by weight.
    bought, expected : float
        What these customers bought on average, and what the model predicted.
    z : float
        The largest gap of a group, in standard errors.
    """

    comparison: str
    where: str
    rows: float
    bought: float
    expected: float
    z: float

    @property
    def text(self) -> str:
        """The place in words, with what to do."""
        return f"{gap_text(self.where, self.bought, self.expected)} {ADVICE}"

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"text": self.text}


def places_of(one: Replay, level: float) -> Iterator[Place]:
    """The places of a comparison: the groups whose own gap has a p-value below the level.

    Parameters
    ----------
    one : Replay
        The comparison.
    level : float
        The level.
    """
    groups = [g for g in one.groups if not one.ranges or (g.low is not None and g.high is not None)]
    if not one.where:
        return
    z = [0.0 if g.z is None else g.z for g in groups]
    beyond = [float(2.0 * ndtr(-abs(value))) < level for value in z]
    found = runs(beyond, z) if one.ranges else (slice(i, i + 1) for i, yes in enumerate(beyond) if yes)
    for run in found:
        there = groups[run]
        rows = sum(g.rows for g in there)
        if not rows > 0.0:
            continue
        yield Place(
            comparison=one.what,
            where=_range(one, groups, run) if one.ranges else f"{one.where} {there[0].name}",
            rows=rows,
            bought=sum(g.rows * g.seen for g in there) / rows,
            expected=sum(g.rows * g.predicted for g in there) / rows,
            z=max(z[run], key=abs),
        )


def _range(one: Replay, groups: list[Group], run: slice) -> str:
    """The range of neighbouring groups in words; those at an end of all values have one end only."""
    values = [(g.low, g.high) for g in groups if g.low is not None and g.high is not None]
    low, high = values[run.start][0], values[run.stop - 1][1]
    alone = low == high
    if not alone and low <= min(value for value, _ in values):
        low = -math.inf
    elif not alone and high >= max(value for _, value in values):
        low, high = values[run.start - 1][1] if run.start else low, math.inf
    return span(one.where, low, high)


def words_of(places: Sequence[Place], most: int = MOST_PLACES) -> str:
    """The first places in words, and the number of others; with what to do once, at the end."""
    if not places:
        return ""
    first, *others = places
    texts = [gap_text(first.where, first.bought, first.expected)]
    texts += [
        f"Nor at {place.where}: {place.bought:.3g} on average, {place.expected:.3g} was expected."
        for place in others[: most - 1]
    ]
    if (more := len(places) - most) > 0:
        texts.append(f"Nor at {more} more place{'s' if more > 1 else ''}.")
    return " ".join([*texts, ADVICE])
