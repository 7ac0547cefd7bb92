"""Markets that make learning hard: adversarial contexts, and the instance of the lower bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hushprice.arrays import Array, array
from hushprice.demand import Family, Linear, as_family
from hushprice.errors import LARGEST_DIM, InvalidInput, finite, positive_int
from hushprice.markets.market import Market
from hushprice.markets.synthetic import UnitVectors, paper_market
from hushprice.theory import separation


class _HalfFixed:
    """Half of z is Uniform(0, 3)/sqrt(d), the other half 1.5/sqrt(d); with ``switches`` they swap after T/2 rounds.

    At any time the contexts vary in d/2 directions only.
    """

    trusted = True
    norm = math.sqrt((3.0**2 + 1.5**2) / 2.0)

    def __init__(self, dim: int, *, switches: bool, horizon: int | None) -> None:
        self.dim, self.switches, self.horizon = dim, switches, horizon

    def rounds(self, rng: np.random.Generator, n: int, *, start: int, horizon: int) -> Array:
        half, scale = self.dim // 2, 1.0 / math.sqrt(self.dim)
        z = np.full((n, self.dim), 1.5 * scale)
        free = 3.0 * scale * rng.random((n, half))
        switch = (self.horizon or horizon) // 2 if self.switches else start + n
        early = min(max(switch - start, 0), n)
        z[:early, :half], z[early:, half:] = free[:early], free[early:]
        return z


def a1(*, dim: int, family: Family | str = "logistic", horizon: int | None = None, **options: Any) -> Market:
    """A1: S1's demand; half of z is Uniform(0, 3)/sqrt(d), half fixed at 1.5/sqrt(d), swapped after T/2 rounds.

    Parameters
    ----------
    dim : int
        Length d of a context, even.
    family : Family or str
        The demand family.
    horizon : int, optional
        T. Default: the horizon of the run.
    **options
        Those of :class:`Market`; ``intercept``: whether contexts begin with a constant that demand does not have;
        ``drift``, with the options of :func:`drifting`.

    Examples
    --------
    >>> z = a1(dim=2).draw(np.random.default_rng(0), 4)
    >>> (z == 1.5 / np.sqrt(2)).astype(int).tolist()
    [[0, 1], [0, 1], [1, 0], [1, 0]]
    """
    return _adversarial("a1", dim, family, horizon, options)


def a2(*, dim: int, family: Family | str = "logistic", **options: Any) -> Market:
    """A2: S1's demand; half of z is Uniform(0, 3)/sqrt(d), half fixed at 1.5/sqrt(d), always.

    Parameters
    ----------
    dim : int
        Length d of a context, even.
    family : Family or str
        The demand family.
    **options
        Those of :class:`Market`; ``intercept``: whether contexts begin with a constant that demand does not have;
        ``drift``, with the options of :func:`drifting`.

    Returns
    -------
    Market
        The market.
    """
    return _adversarial("a2", dim, family, None, options)


def _adversarial(name: str, dim: int, family: Family | str, horizon: int | None, options: dict[str, Any]) -> Market:
    d = positive_int("dim", dim, maximum=LARGEST_DIM)
    if d % 2:
        raise InvalidInput(f"The market {name} needs an even dim, as half of a context is fixed. Got {d}: try {d + 1}.")
    if horizon is not None:
        horizon = positive_int("horizon", horizon)
    ones = np.full(d, 1.0 / math.sqrt(d))
    contexts = _HalfFixed(d, switches=name == "a1", horizon=horizon)
    return paper_market(name, 1.6 * ones, ones, contexts, family, options)


def lower_bound(
    *,
    dim: int,
    horizon: int = 10_000,
    v: Any = None,
    delta: float | None = None,
    family: Family | str = "linear",
    **options: Any,
) -> Market:
    """The lower-bound instance: z a uniform unit vector, y ~ N(2 - p + Delta v_i (1 - p), 1), prices [1/3, 3/2].

    Parameters
    ----------
    dim : int
        Length d of a context.
    horizon : int
        The horizon T of the run.
    v : int or array_like of shape (d,), optional
        One of the 2^d patterns: d numbers, each 0 or 1, or the integer with these bits. Default: 0, 1, 0, 1, ...
    delta : float, optional
        Delta. By default it follows from d and T (:func:`hushprice.theory.separation`), so that T rounds do not suffice
        to distinguish the patterns at low cost.
    family : Family or str
        Linear demand.
    **options
        Those of :class:`Market`; ``intercept``: whether contexts begin with a constant that demand does not have;
        ``drift``, with the options of :func:`drifting`.

    Examples
    --------
    >>> market = lower_bound(dim=2, horizon=1_000_000, v=[0, 1])
    >>> market.optimal_price(np.eye(2)).round(4)
    array([1.    , 0.9894])
    """
    d = positive_int("dim", dim, maximum=LARGEST_DIM)
    T = positive_int("horizon", horizon)
    Delta = float(separation(d, T)) if delta is None else finite("delta", delta, minimum=0.0, maximum=0.5)
    demand = as_family(family)
    if not isinstance(demand, Linear):
        raise InvalidInput(f"The lower-bound instance has linear demand, not {demand.name}.")
    pattern = Delta * _pattern(v, d)
    settings: dict[str, Any] = {"prices": (1.0 / 3.0, 1.5), **options}
    return paper_market("lower-bound", 2.0 + pattern, 1.0 + pattern, UnitVectors(d), demand, settings)


def _pattern(v: Any, d: int) -> Array:
    """A pattern as an array of 0s and 1s."""
    if v is None:
        return np.arange(d, dtype=np.float64) % 2.0
    if isinstance(v, (int, np.integer)) and not isinstance(v, bool):
        if not 0 <= v < 2**d:
            raise InvalidInput(f"v must be a number from 0 to 2^{d} - 1 or {d} numbers, each 0 or 1; got {v}.")
        return np.array([float(int(v) >> i & 1) for i in range(d)])
    bits = array("v", v, shape=(d,))
    if not np.isin(bits, (0.0, 1.0)).all():
        raise InvalidInput(f"v must be {d} numbers, each 0 or 1, or one number from 0 to 2^{d} - 1.")
    return bits
