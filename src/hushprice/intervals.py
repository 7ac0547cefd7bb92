"""Exact confidence intervals for shares and counts, and Student's t for means: written once, used by every report."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betaincinv, gammaincinv, stdtrit

from hushprice.arrays import Array


def binomial(successes: Any, n: Any, tail: float) -> tuple[Array, Array]:
    """Bounds of a probability by Clopper and Pearson (1934).

    Parameters
    ----------
    successes : float or array
        How often the event happened; effective counts of weighted data need not be whole numbers.
    n : float or array
        In how many trials.
    tail : float
        The probability, at most, that one bound is wrong; 0.025 gives an interval of 95%.

    Returns
    -------
    low, high : arrays
        The bounds, of the shape of ``successes``; 0 without a success and 1 without a failure.

    Examples
    --------
    >>> low, high = binomial(3, 100, 0.025)
    >>> print(f"{low:.4f} to {high:.4f}")
    0.0062 to 0.0852
    """
    k, n = np.asarray(successes, dtype=np.float64), np.asarray(n, dtype=np.float64)
    low = np.where(k > 0.0, betaincinv(np.where(k > 0.0, k, 1.0), n - k + 1.0, tail), 0.0)
    high = np.where(k < n, betaincinv(k + 1.0, np.where(k < n, n - k, 1.0), 1.0 - tail), 1.0)
    return low, high


def poisson(count: Any, tail: float) -> tuple[Array, Array]:
    """Bounds of an expected count by Garwood (1936).

    Parameters
    ----------
    count : float or array
        How many events there were.
    tail : float
        The probability, at most, that one bound is wrong.

    Returns
    -------
    low, high : arrays
        The bounds, of the shape of ``count``.

    Examples
    --------
    >>> low, high = poisson(4, 0.025)
    >>> print(f"{low:.2f} to {high:.2f}")
    1.09 to 10.24
    """
    k = np.asarray(count, dtype=np.float64)
    low = np.where(k > 0.0, gammaincinv(np.where(k > 0.0, k, 1.0), tail), 0.0)
    return low, np.asarray(gammaincinv(k + 1.0, 1.0 - tail))


def student(freedom: float, level: float = 0.95) -> float:
    """Standard errors from a mean to the ends of its interval, by Student's t.

    Parameters
    ----------
    freedom : float
        Degrees of freedom: of a mean of n independent values, n - 1.
    level : float
        How often the interval holds the true mean.

    Returns
    -------
    float
        The factor; NaN without a degree of freedom.

    Examples
    --------
    >>> round(student(2), 2), round(student(999), 2)
    (4.3, 1.96)
    """
    return float(stdtrit(freedom, 0.5 + level / 2)) if freedom > 0.0 else float("nan")
