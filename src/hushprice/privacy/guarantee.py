"""Guarantees: those of :mod:`hushprice.device.guarantee`, and the noise level that a Gaussian guarantee requires.

Devices compute guarantees and losses without SciPy. Only the seller chooses a noise level.
"""

from __future__ import annotations

import math

import scipy
from scipy.special import log_ndtr

from hushprice.device.guarantee import (
    LARGEST_EPSILON,
    SMALLEST_EPSILON,
    Guarantee,
    Loss,
    as_epsilon,
    gaussian_delta,
)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest ratio of sensitivity to standard deviation that is (epsilon, delta)-private."""
    high = 1.0
    while _delta(epsilon, high) < delta:
        high *= 2.0
    return float(scipy.optimize.brentq(lambda mu: _delta(epsilon, mu) - delta, 1e-12, high, xtol=1e-15)) * (1.0 - 1e-10)


def _delta(epsilon: float, mu: float) -> float:
    """The curve of :func:`gaussian_delta` computed by SciPy. Tests pin noise levels to its last digits.

    ``Gaussian`` checks the resulting noise level with :func:`gaussian_delta`, as devices do.
    """
    shift = epsilon / mu
    log_first = float(log_ndtr(0.5 * mu - shift))
    first, second = math.exp(log_first), math.exp(epsilon + log_ndtr(-0.5 * mu - shift))
    rounding = 1e-13 * first * (1.0 - log_first) + 1e-300  # error bound, added to delta
    return min(max(first - second, 0.0) + rounding, 1.0)


__all__ = [
    "LARGEST_EPSILON", "SMALLEST_EPSILON", "Guarantee", "Loss", "as_epsilon", "gaussian_delta", "gaussian_mu",
]  # fmt: skip
