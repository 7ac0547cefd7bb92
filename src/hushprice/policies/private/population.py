"""The customers that a private policy reckons with: points made from a public description of the features."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import qmc

from hushprice.arrays import Array, array
from hushprice.errors import LARGEST_VALUE, InvalidInput, finite, positive_int

LEAST_POINTS, POINTS_PER_ENTRY = 128, 16  # of a population made of public features
MOST, ORDER = 512, 0  # of a sample, and the seed of their order


@dataclass(frozen=True)
class FeatureKind:
    """What is publicly known about one or several entries of a context.

    Parameters
    ----------
    entries : int
        How many entries of the context it describes.
    low, high : float
        The range of a number; the value of a constant is both. A group of entries, of which one is 1 and all others
        are 0, has the range (0, 1).
    whole : bool
        Whether only the two ends are possible, as for yes or no.
    """

    entries: int
    low: float
    high: float
    whole: bool

    @classmethod
    def of(cls, plain: Any) -> FeatureKind:
        """Read one description: a range [low, high], a value, "yes/no", or {"group": number of categories}.

        Parameters
        ----------
        plain : Any
            The description.
        """
        if isinstance(plain, FeatureKind):
            return plain
        if isinstance(plain, str) and plain == "yes/no":
            return cls(1, 0.0, 1.0, True)
        if isinstance(plain, Mapping) and set(plain) == {"group"}:
            return cls(positive_int("group", plain["group"], minimum=2, maximum=1000), 0.0, 1.0, True)
        if isinstance(plain, (int, float, np.number)) and not isinstance(plain, bool):
            value = finite("a constant feature", plain, minimum=-LARGEST_VALUE, maximum=LARGEST_VALUE)
            return cls(1, value, value, False)
        if isinstance(plain, Sequence) and not isinstance(plain, str) and len(plain) == 2:
            low, high = (finite("a feature's range", end, minimum=-1e6, maximum=1e6) for end in plain)
            if low < high:
                return cls(1, low, high, False)
        raise InvalidInput(
            "A feature is described by its range [low, high], by a number if it is a constant, by 'yes/no', or by "
            "{'group': number of categories} for entries of which one is 1 and all others are 0."
        )

    def config(self) -> Any:
        """The description as plain data; :meth:`of` reads it back."""
        if self.entries > 1:
            return {"group": self.entries}
        if self.whole:
            return "yes/no"
        return self.low if self.low == self.high else [self.low, self.high]


@dataclass(frozen=True, eq=False)
class Population:
    """Points that stand for the customers, each with its share of them.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Contexts.
    shares : ndarray of shape (n,)
        Their shares, with sum 1.
    """

    points: Array
    shares: Array

    @classmethod
    def of(cls, features: Sequence[FeatureKind]) -> Population:
        """Make the population of features that are independent and uniform on what is possible.

        Parameters
        ----------
        features : sequence of FeatureKind
            The features, in order.

        Examples
        --------
        >>> Population.of([FeatureKind.of(1.0), FeatureKind.of([0, 4])]).points[:2].round(2)
        array([[1.  , 0.02],
               [1.  , 2.02]])
        """
        free = [feature for feature in features if feature.low < feature.high]
        d = sum(feature.entries for feature in features)
        n = 2 ** math.ceil(math.log2(max(LEAST_POINTS, POINTS_PER_ENTRY * d))) if free else 1
        spread = iter(_even(n, max(len(free), 1)).T)
        columns = []
        for feature in features:
            if feature.low == feature.high:
                columns.append(np.full((n, 1), feature.low))
                continue
            u = next(spread)
            if feature.entries > 1:
                columns.append(np.eye(feature.entries)[np.floor(u * feature.entries).astype(np.int64)])
            elif feature.whole:
                columns.append((u >= 0.5).astype(np.float64)[:, None])
            else:
                columns.append((feature.low + (feature.high - feature.low) * u)[:, None])
        return cls(np.ascontiguousarray(np.hstack(columns)), np.full(n, 1.0 / n))

    @classmethod
    def sample(cls, contexts: Any) -> Population:
        """Make the population of a sample of contexts that the seller has anyway, for example those of a log.

        Parameters
        ----------
        contexts : array_like of shape (n, d)
            The contexts. Of more than MOST, evenly spaced rows are taken.
        """
        if not np.size(contexts):
            raise InvalidInput("A sample of customers needs at least one context.")
        z = array("contexts", contexts, shape=(None, None), limit=LARGEST_VALUE)
        rows = np.unique(np.linspace(0, len(z) - 1, min(len(z), MOST)).astype(np.int64))
        rows = np.random.default_rng(ORDER).permutation(rows)  # the first ones stand for all, too
        return cls(np.ascontiguousarray(z[rows]), np.full(len(rows), 1.0 / len(rows)))

    def config(self) -> dict[str, Any]:
        """The points and shares as plain data; :meth:`from_config` reads it back."""
        return {"points": self.points.tolist(), "shares": self.shares.tolist()}

    @classmethod
    def from_config(cls, plain: Any) -> Population:
        """Read what :meth:`config` returned, or a list of contexts.

        Parameters
        ----------
        plain : Any
            A population, its plain data, or contexts.
        """
        if isinstance(plain, Population):
            return plain
        if not isinstance(plain, Mapping):
            return cls.sample(plain)
        if set(plain) != {"points", "shares"}:
            raise InvalidInput("A population has points and shares.")
        points = array("points", plain["points"], shape=(None, None), limit=LARGEST_VALUE)
        shares = array("shares", plain["shares"], shape=(len(points),))
        if not len(points) or not (shares >= 0.0).all() or not abs(shares.sum() - 1.0) < 1e-6:
            raise InvalidInput("The shares of a population are not negative, and their sum is 1.")
        return cls(np.ascontiguousarray(points), shares / shares.sum())

    def moments(self) -> tuple[Array, Array]:
        """Return the mean of z z' and that of z."""
        weighted = self.points * self.shares[:, None]
        return weighted.T @ self.points, weighted.sum(axis=0)


def _even(n: int, dims: int) -> Array:
    """n evenly spread points of the unit cube, those of Sobol'."""
    points: Array = qmc.Sobol(dims, scramble=False).random(n) + 0.5 / n
    return points
