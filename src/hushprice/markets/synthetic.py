"""The paper's synthetic markets S1 and S2, and a market in which context matters more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import Family
from hushprice.errors import LARGEST_DIM, positive_int
from hushprice.kernels.glm import affine
from hushprice.markets.drifting import with_options
from hushprice.markets.market import Market

PAPER_PRICES = (0.0, 3.0)


class _Uniform:
    """z_i iid Uniform(1, 2) / sqrt(d)."""

    trusted = True
    smallest, norm = 1.0, 2.0

    def __init__(self, dim: int) -> None:
        self.dim = dim

    @property
    def features(self) -> list[Any]:
        return [[self.smallest / math.sqrt(self.dim), self.norm / math.sqrt(self.dim)]] * self.dim

    def __call__(self, rng: np.random.Generator, n: int) -> Array:
        z = rng.random((n, self.dim))
        affine(z.reshape(-1), 1.0, 1.0 / math.sqrt(self.dim))
        return z


class UnitVectors:
    """z uniform over the d unit vectors.

    Parameters
    ----------
    dim : int
        Length d of a context.
    """

    trusted = True
    norm = 1.0

    def __init__(self, dim: int) -> None:
        self.dim = dim

    @property
    def features(self) -> list[Any]:
        return [{"group": self.dim}] if self.dim > 1 else [1.0]

    def __call__(self, rng: np.random.Generator, n: int) -> Array:
        z = np.zeros((n, self.dim))
        z[np.arange(n), rng.integers(self.dim, size=n)] = 1.0
        return z


class _Wide(_Uniform):
    """S1's contexts times the size of the customer, log-uniform on [0.3, 3]."""

    smallest, norm = 0.3, 6.0

    def __call__(self, rng: np.random.Generator, n: int) -> Array:
        size = 0.3 * 10.0 ** rng.random(n)
        return super().__call__(rng, n) * size[:, None]


def s1(*, dim: int, family: Family | str = "logistic", **options: Any) -> Market:
    """S1: alpha = 1.6/sqrt(d), beta = 1/sqrt(d) in every entry, z_i iid Uniform(1/sqrt d, 2/sqrt d), prices [0, 3].

    Parameters
    ----------
    dim : int
        Length d of a context.
    family : Family or str
        The demand family.
    **options
        Those of :class:`Market`; ``intercept``: whether contexts begin with a constant that demand does not have;
        ``drift``, with the options of :func:`drifting`.

    Examples
    --------
    >>> s1(dim=4).alpha
    array([0.8, 0.8, 0.8, 0.8])
    """
    d = positive_int("dim", dim, maximum=LARGEST_DIM)
    ones = np.full(d, 1.0 / math.sqrt(d))
    return paper_market("s1", 1.6 * ones, ones, _Uniform(d), family, options)


def s2(*, dim: int, family: Family | str = "logistic", **options: Any) -> Market:
    """S2: alpha = beta = 1 in every entry, z uniform over the unit vectors, prices [0, 3]; optimal price 1.567.

    Parameters
    ----------
    dim : int
        Length d of a context.
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
    d = positive_int("dim", dim, maximum=LARGEST_DIM)
    return paper_market("s2", np.ones(d), np.ones(d), UnitVectors(d), family, options)


def wide(*, dim: int, family: Family | str = "logistic", **options: Any) -> Market:
    """Wide: like S1, but customers differ in size, so that optimal prices cover most of [0, 3].

    alpha = 0.5/sqrt(d), beta = 1/sqrt(d) in every entry; z = s v with v as in S1 and s log-uniform on [0.3, 3]. In S1
    and S2 one price for everyone is nearly optimal; here it loses much of the revenue.

    Parameters
    ----------
    dim : int
        Length d of a context.
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
    d = positive_int("dim", dim, maximum=LARGEST_DIM)
    ones = np.full(d, 1.0 / math.sqrt(d))
    return paper_market("wide", 0.5 * ones, ones, _Wide(d), family, options)


def paper_market(
    name: str, alpha: Array, beta: Array, contexts: Any, family: Family | str, options: dict[str, Any]
) -> Market:
    """A market at the prices of the paper's simulations, unless the options say otherwise.

    The options ``intercept`` and ``drift`` are those of :func:`with_options`.
    """
    settings: dict[str, Any] = {"prices": PAPER_PRICES, **options}
    fixed: dict[str, Any] = {"name": name, "alpha": alpha, "beta": beta, "contexts": contexts, "family": family}
    return with_options(lambda **rest: Market(**fixed, **rest), settings)
