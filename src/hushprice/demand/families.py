"""The GLM families of demand.

A customer with utility ``a = z.alpha`` and price sensitivity ``b = z.beta`` who is offered the price ``p`` has
``eta = a - b p`` and buys ``y`` with mean ``psi'(eta)`` and variance proportional to ``psi''(eta)``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, finite, price_range
from hushprice.kernels import LINEAR, LOGISTIC, POISSON
from hushprice.kernels import glm as kernel

Numbers = npt.ArrayLike


def _apply(function: Any, code: int, *values: Numbers) -> Any:
    """A kernel over scalars or arrays; floats for scalars, NaN for NaN. Overflow is part of the kernels' plan."""
    try:
        arrays = [np.asarray(v, dtype=np.float64) for v in values]
        unknown = functools.reduce(np.logical_or, map(np.isnan, arrays))
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("Demand functions take numbers, or arrays of numbers that fit together.") from None
    with np.errstate(all="ignore"):
        result = function(code, *arrays)
    if np.any(unknown):
        result = np.where(unknown, np.nan, result)
    return float(result) if np.ndim(result) == 0 else result


@dataclass(frozen=True)
class Family:
    """What every family offers. Each function takes scalars or arrays and broadcasts."""

    name: ClassVar[str]
    code: ClassVar[int]

    @property
    def scale(self) -> float:
        """Standard deviation of the noise where the family has one of its own; 1 otherwise."""
        return 1.0

    def psi(self, eta: Numbers) -> Any:
        """psi(eta), the cumulant function."""
        return _apply(kernel.psi_ufunc, self.code, eta)

    def mean(self, eta: Numbers) -> Any:
        """psi'(eta), the expected demand."""
        return _apply(kernel.mean_ufunc, self.code, eta)

    def curvature(self, eta: Numbers) -> Any:
        """psi''(eta)."""
        return _apply(kernel.curvature_ufunc, self.code, eta)

    def skewness(self, eta: Numbers) -> Any:
        """psi'''(eta)."""
        return _apply(kernel.skewness_ufunc, self.code, eta)

    def loglik(self, eta: Numbers, y: Numbers) -> Any:
        """Log-density of the outcome y, with every constant."""
        return _apply(kernel.loglik_ufunc, self.code, self.scale, eta, y)

    def quantile(self, eta: Numbers, u: Numbers) -> Any:
        """The outcome that the uniform u stands for, by inversion of the distribution function."""
        return _apply(kernel.draw_ufunc, self.code, self.scale, self.mean(eta), u)

    def sample(self, eta: Numbers, rng: np.random.Generator) -> Any:
        """Random outcomes, one uniform each."""
        return self.quantile(eta, rng.random(np.shape(eta)))

    def optimal_price(self, a: Numbers, b: Numbers, prices: tuple[float, float], *, cost: float = 0.0) -> Any:
        """The price in [low, high] that maximises (p - cost) psi'(a - b p).

        ========  =====================================================
        logistic  cost + (1 + W(exp(a - b cost - 1))) / b   (Lambert W)
        linear    (a / b + cost) / 2
        Poisson   cost + 1 / b
        ========  =====================================================

        clipped to the range. For b <= 0 demand does not fall with the price and the better end of the range is
        returned, which is the upper one unless the family is linear with negative demand or every price is
        below cost.

        >>> round(Logistic().optimal_price(1.0, 1.0, (0.0, 3.0)), 3)
        1.567
        """
        low, high = price_range(prices)
        cost = finite("cost", cost)
        return _apply(kernel.best_price_ufunc, self.code, a, b, cost, low, high)

    def optimal_revenue(self, a: Numbers, b: Numbers, prices: tuple[float, float], *, cost: float = 0.0) -> Any:
        """The revenue, net of cost, at :meth:`optimal_price`."""
        low, high = price_range(prices)
        cost = finite("cost", cost)
        return _apply(kernel.best_profit_ufunc, self.code, a, b, cost, low, high)

    def revenue(self, p: Numbers, a: Numbers, b: Numbers, *, cost: float = 0.0) -> Any:
        """(p - cost) psi'(a - b p)."""
        return _apply(kernel.profit_ufunc, self.code, a, b, p, finite("cost", cost))

    def largest_mean(self, eta: float) -> float:
        """The largest |psi'| over [-eta, eta]."""
        return abs(float(self.mean(eta)))

    def residual_bound(self, mean: float, outcomes: int) -> float:
        """A bound on |y - psi'| for expected demand up to ``mean``, that hardly any of so many outcomes exceeds.

        2 (mean + sigma sqrt(log n)), sigma the standard deviation of the noise (the paper's, for its clip bound C_g).
        """
        return 2.0 * (mean + self.scale * math.sqrt(math.log(max(outcomes, 4))))

    def check_outcome(self, y: Any) -> Array:
        """Outcomes as floats, refused if the family cannot produce them."""
        try:
            if np.asarray(y).dtype.kind not in "biuf":
                raise TypeError
            outcomes: Array = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InvalidInput(f"An outcome must be a number, got {type(y).__name__}.") from None
        if not np.isfinite(outcomes).all():
            raise InvalidInput("An outcome must be finite, got NaN or infinity.")
        possible = self._possible(outcomes)
        if not possible.all():
            wrong = outcomes.flat[np.argmin(possible)]
            raise InvalidInput(f"{self.name} demand must be {self._domain}, got {wrong:g}.")
        return outcomes

    _domain: ClassVar[str] = "a finite number"

    def _possible(self, y: Array) -> npt.NDArray[np.bool_]:
        return np.isfinite(y)


@dataclass(frozen=True)
class Linear(Family):
    """Linear demand with Gaussian noise: psi(eta) = eta^2 / 2, y = a - b p + sigma N(0, 1).

    >>> Linear().optimal_price(2.0, 1.0, (0.0, 3.0))
    1.0
    """

    name: ClassVar[str] = "linear"
    code: ClassVar[int] = LINEAR
    sigma: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", finite("sigma", self.sigma, minimum=0.0, strict=True))

    @property
    def scale(self) -> float:
        return self.sigma


@dataclass(frozen=True)
class Logistic(Family):
    """A customer buys one or none: psi(eta) = log(1 + e^eta), P(y = 1) = 1 / (1 + e^(b p - a)).

    >>> Logistic().mean(0.0)
    0.5
    """

    name: ClassVar[str] = "logistic"
    code: ClassVar[int] = LOGISTIC
    _domain: ClassVar[str] = "0 or 1"

    def residual_bound(self, mean: float, outcomes: int) -> float:
        """1, always."""
        return 1.0

    def _possible(self, y: Array) -> npt.NDArray[np.bool_]:
        possible: npt.NDArray[np.bool_] = (y == 0.0) | (y == 1.0)
        return possible


@dataclass(frozen=True)
class Poisson(Family):
    """A customer buys a number of units: psi(eta) = e^eta, y ~ Poisson(e^(a - b p)).

    >>> Poisson().optimal_price(1.0, 0.5, (0.0, 3.0))
    2.0
    """

    name: ClassVar[str] = "poisson"
    code: ClassVar[int] = POISSON
    _domain: ClassVar[str] = "a whole number of at least 0"

    def largest_mean(self, eta: float) -> float:
        return math.exp(eta) if eta < 700.0 else math.inf

    def residual_bound(self, mean: float, outcomes: int) -> float:
        """2 (mean + sqrt(mean log n))."""
        return 2.0 * (mean + math.sqrt(mean * math.log(max(outcomes, 4))))

    def _possible(self, y: Array) -> npt.NDArray[np.bool_]:
        whole: npt.NDArray[np.bool_] = y == np.floor(y)
        return whole & (y >= 0.0)
