"""The families of demand that come with the package. To add one, see "A new family" in CONTRIBUTING.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from hushprice.arrays import Array
from hushprice.demand.family import BinaryFamily, Family, Numbers, Outcomes, register
from hushprice.errors import finite
from hushprice.kernels.glm import LINEAR, LOGISTIC, POISSON, PROBIT
from hushprice.kernels.normal import mills_inverse_ufunc

_TINY = 1e-300
_LARGEST_LOGIT, _LARGEST_PROBIT = 30.0, 8.0  # beyond these a double hardly tells the mean from 1


@register
@dataclass(frozen=True)
class Linear(Family):
    """Linear demand with Gaussian noise: psi(eta) = eta^2 / 2, y = a - b p + sigma N(0, 1).

    The best price is (a / b + cost) / 2.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise.

    Examples
    --------
    >>> Linear().optimal_price(2.0, 1.0, (0.0, 3.0))
    1.0
    """

    name: ClassVar[str] = "linear"
    code: ClassVar[int] = LINEAR
    outcomes: ClassVar[Outcomes] = "real"
    estimates_scale: ClassVar[bool] = True
    sigma: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", finite("sigma", self.sigma, minimum=0.0, strict=True))

    @property
    def scale(self) -> float:
        return self.sigma

    def unit(self) -> Family:
        return Linear()

    def with_scale(self, scale: float) -> Family:
        return Linear(sigma=scale)

    def link(self, mean: float, floor: float | None = None) -> float:
        return float(mean)

    def saturated(self, y: Array) -> Array:
        return np.asarray(self.loglik(y, y))

    def signs(self, y: Array) -> Array:
        return np.zeros(len(y))

    def best_utility(self, slope: Array, price: float, cost: float) -> tuple[Array, Array]:
        """a = b (2 p - c)."""
        return slope * (2.0 * price - cost), 2.0 * slope

    def end_utility(self, slope: Array, low: float, high: float, cost: float) -> Array:
        return slope * (high + low - cost)


@register
@dataclass(frozen=True)
class Logistic(BinaryFamily):
    """A customer buys one or none: psi(eta) = log(1 + e^eta), P(y = 1) = 1 / (1 + e^(b p - a)).

    The best price is cost + (1 + W(exp(a - b cost - 1))) / b, with Lambert's W.

    >>> Logistic().mean(0.0)
    0.5
    """

    name: ClassVar[str] = "logistic"
    code: ClassVar[int] = LOGISTIC

    def link(self, mean: float, floor: float | None = None) -> float:
        inside = mean if floor is None else min(max(mean, floor), 1.0 - floor)
        return float(np.clip(special.logit(inside), -_LARGEST_LOGIT, _LARGEST_LOGIT))

    def best_utility(self, slope: Array, price: float, cost: float) -> tuple[Array, Array]:
        """a = b p + log(b (p - c) - 1), where b (p - c) > 1."""
        room = np.maximum(slope * (price - cost) - 1.0, _TINY)
        return slope * price + np.log(room), slope + slope / room

    def least_slope(self, margin: float) -> float:
        return 1.0 / margin

    def end_utility(self, slope: Array, low: float, high: float, cost: float) -> Array:
        ratio, width = (cost - low) / (cost - high), high - low
        room = np.maximum(-np.expm1(np.log(ratio) + slope * width), _TINY)  # 1 - ratio e^(b (h - l))
        return np.asarray(slope * low + np.log(room) - np.log(ratio - 1.0))

    def end_slope(self, low: float, high: float, cost: float) -> float:
        return float(-np.log((cost - low) / (cost - high)) / (high - low))


@register
@dataclass(frozen=True)
class Poisson(Family):
    """A customer buys a number of units: psi(eta) = e^eta, y ~ Poisson(e^(a - b p)).

    The best price is cost + 1 / b.

    >>> Poisson().optimal_price(1.0, 0.5, (0.0, 3.0))
    2.0
    """

    name: ClassVar[str] = "poisson"
    code: ClassVar[int] = POISSON
    outcomes: ClassVar[Outcomes] = "counts"
    price_depends_on_level: ClassVar[bool] = False

    def largest_mean(self, eta: float) -> float:
        return math.exp(eta) if eta < 700.0 else math.inf

    def residual_bound(self, mean: float, outcomes: int) -> float:
        """2 (mean + sqrt(mean log n))."""
        return 2.0 * (mean + math.sqrt(mean * math.log(max(outcomes, 4))))

    def link(self, mean: float, floor: float | None = None) -> float:
        return float(np.log(max(mean, 1e-13 if floor is None else floor)))

    def saturated(self, y: Array) -> Array:
        return np.asarray(special.xlogy(y, y) - y - special.gammaln(y + 1.0))

    def omitted(self, y: Array) -> Array:
        return np.asarray(special.gammaln(y + 1.0))

    def signs(self, y: Array) -> Array:
        return np.asarray(-1.0 * (y == 0.0))

    def end_utility(self, slope: Array, low: float, high: float, cost: float) -> Array:
        return np.where(slope < self.end_slope(low, high, cost), np.inf, -np.inf)

    def end_slope(self, low: float, high: float, cost: float) -> float:
        return float(-np.log((cost - low) / (cost - high)) / (high - low))


@register
@dataclass(frozen=True)
class Probit(BinaryFamily):
    """A customer buys one or none: P(y = 1) = Phi(a - b p), Phi the standard normal distribution function.

    The customer buys if a - b p + N(0, 1) > 0. The link is not canonical. Estimates maximise the likelihood, whose
    residual is phi(eta) (y - Phi(eta)) / (Phi(eta) (1 - Phi(eta))), unbounded in eta; standard errors are from the
    observed information. Private scores are (y - Phi(eta)) x: bounded by |x|, with mean zero at the truth, and minus
    the gradient of the convex loss psi(eta) - y eta, psi(eta) = eta Phi(eta) + phi(eta) (the matching loss of Phi).

    The best price is cost + s / b, where Phi(eta) = s phi(eta) at eta = a - b cost - s.

    Examples
    --------
    >>> Probit().mean(0.0)
    0.5
    >>> round(Probit().optimal_price(1.0, 1.0, (0.0, 3.0)), 3)
    1.132
    """

    name: ClassVar[str] = "probit"
    code: ClassVar[int] = PROBIT

    def variance(self, eta: Numbers) -> Any:
        """Phi(eta) (1 - Phi(eta))."""
        return self.mean(eta) * self.mean(np.negative(eta))

    def residual(self, eta: Numbers, y: Numbers) -> Any:
        """Minus the derivative of -log Phi((2 y - 1) eta)."""
        sign = 2.0 * np.asarray(y, dtype=np.float64) - 1.0
        return sign * self.curvature(eta) / self.mean(sign * np.asarray(eta, dtype=np.float64))

    def link(self, mean: float, floor: float | None = None) -> float:
        inside = mean if floor is None else min(max(mean, floor), 1.0 - floor)
        return float(np.clip(special.ndtri(inside), -_LARGEST_PROBIT, _LARGEST_PROBIT))

    def constant_loglik(self, at_zero: float, weight: float, total: float, eta: float) -> float:
        return float(total * self.loglik(eta, 1.0) + (weight - total) * self.loglik(eta, 0.0))

    def best_utility(self, slope: Array, price: float, cost: float) -> tuple[Array, Array]:
        """a = b p + eta, where Phi(eta) / phi(eta) = s = b (p - c)."""
        s = slope * (price - cost)
        eta = np.asarray(mills_inverse_ufunc(s))
        return slope * price + eta, slope + slope / (s * (eta + 1.0 / s))

    def end_utility(self, slope: Array, low: float, high: float, cost: float) -> Array:
        """Where log Phi(a - b h) - log Phi(a - b l), which falls with a, is log((c - l) / (c - h)): by bisection."""
        ratio, rise = (cost - low) / (cost - high), -slope * (high - low)
        left = -rise - np.log(ratio) / rise
        right = np.full_like(left, special.ndtri(1.0 / ratio))
        for _ in range(100):
            middle = 0.5 * (left + right)
            above = special.log_ndtr(middle + rise) - special.log_ndtr(middle) > np.log(ratio)
            left, right = np.where(above, middle, left), np.where(above, right, middle)
        return np.asarray(slope * low + 0.5 * (left + right))


__all__ = ["Linear", "Logistic", "Poisson", "Probit"]
