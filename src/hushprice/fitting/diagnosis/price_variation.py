"""The share of the price's variance that the features do not explain: the price effect is estimated from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from scipy.spatial import cKDTree

from hushprice.arrays import Array

FUNCTION = 0.01  # a price with less variance of its own than this share is a function of the features
NEIGHBOURS, QUERIES = 20_000, 2_000  # rows to search for neighbours, and rows whose neighbours are searched
PAIRS = 12  # largest number of features for which every pair is examined
LEVELS_APART = 4.0  # distance between two levels of a category, in standard deviations
Places = Mapping[str, Sequence[int]]  # of each feature's entries in z


def own_variation(z: Array, prices: Array, features: Places) -> tuple[float, str]:
    """The share of the price's variance that the features do not explain: the least of several views, with its name.

    Views: least squares on z, and the price of each row next to those of its neighbours in z: half the mean square of
    the difference to the nearest one, or the error of a plane through several (as in the Gamma test of Stefánsson,
    Končar and Jones, 1997). Neighbours are also searched in each feature, and in each pair if there are few features,
    since in many dimensions no rows are near each other.

    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2_000)
    >>> z = np.column_stack([np.ones(2_000), x])
    >>> own_variation(z, np.where(x > 0, 2.0, 3.0), {"x": [1]})[0] < 0.01
    True
    >>> own_variation(z, rng.uniform(1, 2, 2_000), {"x": [1]})[0] > 0.8
    True
    """
    rng = np.random.default_rng(0)
    order = rng.permutation(len(z))  # the choice of rows must not depend on the order of the log
    z, prices = z[order], prices[order]
    variance = float(prices.var())
    if variance == 0.0 or not features:
        return 1.0, "no features"
    fitted, _, rank, _ = np.linalg.lstsq(z, prices, rcond=None)
    freedom = len(z) - int(rank)
    if freedom < 10:
        return 1.0, "too few rows to tell"
    views = {"a linear formula": float(((prices - z @ fitted) ** 2).sum() / freedom / variance)}
    placed = {name: _placed(z[:, list(places)]) for name, places in features.items()}
    views["all features together"] = _between_neighbours(list(placed.values()), prices, rng)
    for count in (1, 2) if len(features) <= PAIRS else (1,):
        for names in combinations(features, count):
            views[" and ".join(names)] = _between_neighbours([placed[name] for name in names], prices, rng)
    how = min(views, key=lambda view: views[view])
    return min(views[how], 1.0), how


def _placed(x: Array) -> tuple[Array, Array]:
    """Coordinates of the rows from the entries of one feature, with levels apart on one axis; and its numbers."""
    indicator = ((x == 0.0) | (x == 1.0)).all(axis=0)
    level = LEVELS_APART * x[:, indicator] @ np.arange(1.0, 1.0 + np.count_nonzero(indicator))
    return np.column_stack([x[:, ~indicator], *([level] if indicator.any() else [])]), x[:, ~indicator]


def _between_neighbours(features: Sequence[tuple[Array, Array]], prices: Array, rng: np.random.Generator) -> float:
    """The share of variance among neighbours in some features; ties are broken at random."""
    points, numbers = (np.hstack([feature[k] for feature in features]) for k in (0, 1))
    points += 1e-7 * rng.standard_normal(points.shape)
    count = min(len(points) - 1, max(8, 2 * (numbers.shape[1] + 1)))
    queries = min(QUERIES, len(points))
    near = np.asarray(cKDTree(points).query(points[:queries], k=count + 1)[1])[:, 1:]
    variance = float(prices[:queries].var())  # of these rows only, so that an odd price elsewhere does not count
    if variance == 0.0:
        return 1.0
    half = 0.5 * float(np.mean((prices[:queries] - prices[near[:, 0]]) ** 2)) / variance
    if not 1 <= numbers.shape[1] <= 10:
        return half
    planes = np.dstack([np.ones((queries, count, 1)), numbers[near] - numbers[:queries, None, :]])
    predicted = (np.linalg.pinv(planes, rcond=1e-6)[:, 0, :] * prices[near]).sum(axis=1)
    return min(half, float(np.mean((prices[:queries] - predicted) ** 2)) / variance)
