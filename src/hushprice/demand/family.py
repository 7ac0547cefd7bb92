"""What a demand family is, and the registry of families.

A customer with utility ``a = z.alpha`` and price sensitivity ``b = z.beta`` who is offered the price ``p`` has
``eta = a - b p`` and buys ``y`` with mean ``psi'(eta)`` and variance proportional to ``psi''(eta)``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, finite, price_range
from hushprice.kernels import glm as kernel

Numbers = npt.ArrayLike
Outcomes = Literal["binary", "counts", "real"]
F = TypeVar("F", bound="type[Family]")


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
    """What every family offers. Each function takes scalars or arrays and broadcasts.

    A family of one's own derives from this class or from :class:`BinaryFamily`, sets the class variables, implements
    the methods that raise ``NotImplementedError`` here, and is registered with :func:`register`.

    Attributes
    ----------
    name : str
        The name by which the family is chosen, as in ``family="logistic"``.
    code : int
        The code by which kernels know it.
    outcomes : {"binary", "counts", "real"}
        What outcomes can be: 0 or 1, whole numbers of at least 0, or any number.
    estimates_scale : bool
        Whether the noise has a scale of its own, which is estimated from residuals.
    price_depends_on_level : bool
        Whether the best price depends on a, and not on b and the cost alone.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    outcomes: ClassVar[Outcomes]
    estimates_scale: ClassVar[bool] = False
    price_depends_on_level: ClassVar[bool] = True

    @property
    def scale(self) -> float:
        """Standard deviation of the noise where the family has one of its own; 1 otherwise."""
        return 1.0

    @property
    def canonical(self) -> bool:
        """Whether the negative log-likelihood is psi(eta) - y eta plus what does not depend on eta."""
        return bool(kernel.canonical.py_func(self.code))

    @property
    def positive(self) -> bool:
        """Whether expected demand is above 0 at every price."""
        return bool(kernel.positive.py_func(self.code))

    def unit(self) -> Family:
        """The same family with noise of scale 1."""
        return self

    def with_scale(self, scale: float) -> Family:
        """The same family with noise of this scale, if it has one.

        Parameters
        ----------
        scale : float
            Standard deviation of the noise.
        """
        return self

    def psi(self, eta: Numbers) -> Any:
        """psi(eta), whose derivative is the expected demand; the cumulant function of a canonical family.

        Parameters
        ----------
        eta : array_like
            Linear predictors a - b p.

        Returns
        -------
        ndarray or float
            One value per eta.
        """
        return _apply(kernel.psi_ufunc, self.code, eta)

    def mean(self, eta: Numbers) -> Any:
        """psi'(eta), the expected demand.

        Parameters
        ----------
        eta : array_like
            Linear predictors a - b p.

        Returns
        -------
        ndarray or float
            One value per eta.
        """
        return _apply(kernel.mean_ufunc, self.code, eta)

    def curvature(self, eta: Numbers) -> Any:
        """psi''(eta), the slope of the expected demand.

        Parameters
        ----------
        eta : array_like
            Linear predictors a - b p.

        Returns
        -------
        ndarray or float
            One value per eta.
        """
        return _apply(kernel.curvature_ufunc, self.code, eta)

    def skewness(self, eta: Numbers) -> Any:
        """psi'''(eta).

        Parameters
        ----------
        eta : array_like
            Linear predictors a - b p.

        Returns
        -------
        ndarray or float
            One value per eta.
        """
        return _apply(kernel.skewness_ufunc, self.code, eta)

    def loglik(self, eta: Numbers, y: Numbers) -> Any:
        """Log-density of the outcome y, with every constant.

        Parameters
        ----------
        eta : array_like
            Linear predictors a - b p.
        y : array_like
            Outcomes.

        Returns
        -------
        ndarray or float
            One value per outcome.
        """
        return _apply(kernel.loglik_ufunc, self.code, self.scale, eta, y)

    def variance(self, eta: Numbers) -> Any:
        """The variance of an outcome.

        Parameters
        ----------
        eta : array_like
            Linear predictors a - b p.

        Returns
        -------
        ndarray or float
            One value per eta.
        """
        return self.scale**2 * self.curvature(eta)

    def residual(self, eta: Numbers, y: Numbers) -> Any:
        """Minus the derivative of the loss in eta: y - psi'(eta) of a canonical family.

        Parameters
        ----------
        eta : array_like
            Linear predictors a - b p.
        y : array_like
            Outcomes.

        Returns
        -------
        ndarray or float
            One value per outcome.
        """
        return y - self.mean(eta)

    def link(self, mean: float, floor: float | None = None) -> float:
        """The eta with this mean; the mean is first moved inside its domain by ``floor``.

        Parameters
        ----------
        mean : float
            Expected demand.
        floor : float, optional
            Least distance of the mean from the ends of its domain.
        """
        raise NotImplementedError

    def saturated(self, y: Array) -> Array:
        """Log-density of every outcome under the model that predicts it exactly.

        Parameters
        ----------
        y : ndarray
            Outcomes.

        Returns
        -------
        ndarray
            One value per outcome.
        """
        raise NotImplementedError

    def omitted(self, y: Array) -> Array | None:
        """The terms of the negative log-likelihood that the kernels' loss omits; None where it omits none.

        Parameters
        ----------
        y : ndarray
            Outcomes.

        Returns
        -------
        ndarray or None
            One value per outcome.
        """
        return None

    def constant_loglik(self, at_zero: float, weight: float, total: float, eta: float) -> float:
        """Log-likelihood of outcomes of this weight and total at one eta, from that at 0.

        Parameters
        ----------
        at_zero : float
            Log-likelihood of the outcomes at eta = 0.
        weight, total : float
            Sum of the weights, and weighted sum of the outcomes.
        eta : float
            The linear predictor of all outcomes.

        Returns
        -------
        float
            The log-likelihood.
        """
        return float(at_zero + self.psi(0.0) * weight + eta * total - self.psi(eta) * weight)

    def signs(self, y: Array) -> Array:
        """1 where the likelihood of an outcome rises with eta without a maximum, -1 where it falls, 0 elsewhere.

        Parameters
        ----------
        y : ndarray
            Outcomes.

        Returns
        -------
        ndarray
            One sign per outcome.
        """
        raise NotImplementedError

    def quantile(self, eta: Numbers, u: Numbers) -> Any:
        """The outcome that the uniform u stands for, by inversion of the distribution function.

        Parameters
        ----------
        eta : array_like
            Linear predictors a - b p.
        u : array_like
            Uniform numbers in (0, 1).

        Returns
        -------
        ndarray or float
            One outcome per uniform number.
        """
        return _apply(kernel.draw_ufunc, self.code, self.scale, self.mean(eta), u)

    def sample(self, eta: Numbers, rng: np.random.Generator) -> Any:
        """Random outcomes, one uniform each.

        Parameters
        ----------
        eta : array_like
            Linear predictors a - b p.
        rng : Generator
            The source of randomness.

        Returns
        -------
        ndarray or float
            One outcome per eta.
        """
        return self.quantile(eta, rng.random(np.shape(eta)))

    def optimal_price(self, a: Numbers, b: Numbers, prices: tuple[float, float], *, cost: float = 0.0) -> Any:
        """The price in [low, high] that maximises (p - cost) psi'(a - b p).

        For b > 0 the class of each family states the formula; the price is clipped to the range. For b <= 0 demand
        does not fall with the price and the better end of the range is returned, which is the upper one unless the
        family is linear with negative demand or every price is below cost.

        Parameters
        ----------
        a, b : array_like
            Utility at price 0, and price sensitivity, of each customer.
        prices : tuple of float
            The range (low, high).
        cost : float
            Unit cost.

        Returns
        -------
        ndarray or float
            One price per customer.

        Examples
        --------
        >>> from hushprice.demand import Logistic
        >>> round(Logistic().optimal_price(1.0, 1.0, (0.0, 3.0)), 3)
        1.567
        """
        low, high = price_range(prices)
        cost = finite("cost", cost)
        return _apply(kernel.best_price_ufunc, self.code, a, b, cost, low, high)

    def optimal_revenue(self, a: Numbers, b: Numbers, prices: tuple[float, float], *, cost: float = 0.0) -> Any:
        """The revenue, net of cost, at :meth:`optimal_price`.

        Parameters
        ----------
        a, b : array_like
            Utility at price 0, and price sensitivity, of each customer.
        prices : tuple of float
            The range (low, high).
        cost : float
            Unit cost.

        Returns
        -------
        ndarray or float
            One value per customer.
        """
        low, high = price_range(prices)
        cost = finite("cost", cost)
        return _apply(kernel.best_profit_ufunc, self.code, a, b, cost, low, high)

    def revenue(self, p: Numbers, a: Numbers, b: Numbers, *, cost: float = 0.0) -> Any:
        """(p - cost) psi'(a - b p).

        Parameters
        ----------
        p : array_like
            Prices.
        a, b : array_like
            Utility at price 0, and price sensitivity, of each customer.
        cost : float
            Unit cost.

        Returns
        -------
        ndarray or float
            The expected revenue of each quote, net of cost.
        """
        return _apply(kernel.profit_ufunc, self.code, a, b, p, finite("cost", cost))

    def best_utility(self, slope: Array, price: float, cost: float) -> tuple[Array, Array]:
        """The a for which ``price`` is the best of all prices, for each b > 0, and its derivative in the price.

        Parameters
        ----------
        slope : ndarray
            Price sensitivities b.
        price : float
            The price.
        cost : float
            Unit cost.

        Returns
        -------
        tuple of ndarray
            The a and their derivatives, one per b.
        """
        raise NotImplementedError

    def least_slope(self, margin: float) -> float:
        """The b from which on :meth:`best_utility` exists, for a price above cost by ``margin``.

        Parameters
        ----------
        margin : float
            Price minus cost.
        """
        return 0.0

    def end_utility(self, slope: Array, low: float, high: float, cost: float) -> Array:
        """The a below which the lower end of a range of prices is better than the upper one, for each b <= 0.

        Families with positive demand are asked only for costs above the range, where every sale makes a loss.

        Parameters
        ----------
        slope : ndarray
            Price sensitivities b.
        low, high : float
            The range of prices.
        cost : float
            Unit cost.

        Returns
        -------
        ndarray
            One a per b.
        """
        raise NotImplementedError

    def end_slope(self, low: float, high: float, cost: float) -> float:
        """The b up to which the lower end can be better, where every sale makes a loss.

        Parameters
        ----------
        low, high : float
            The range of prices.
        cost : float
            Unit cost.
        """
        return 0.0

    def largest_mean(self, eta: float) -> float:
        """The largest |psi'| over [-eta, eta].

        Parameters
        ----------
        eta : float
            Largest absolute value of the linear predictor.
        """
        return abs(float(self.mean(eta)))

    def residual_bound(self, mean: float, outcomes: int) -> float:
        """A bound on |y - psi'| for expected demand up to ``mean``, that hardly any of so many outcomes exceeds.

        2 (mean + sigma sqrt(log n)), sigma the standard deviation of the noise (the paper's, for its clip bound C_g).

        Parameters
        ----------
        mean : float
            Largest expected demand.
        outcomes : int
            Number of outcomes.
        """
        return 2.0 * (mean + self.scale * math.sqrt(math.log(max(outcomes, 4))))

    def check_outcome(self, y: Any) -> Array:
        """Outcomes as floats, refused if the family cannot produce them.

        Parameters
        ----------
        y : array_like
            Outcomes.
        """
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
            raise InvalidInput(f"{self.name} demand must be {DOMAINS[self.outcomes]}, got {wrong:g}.")
        return outcomes

    def _possible(self, y: Array) -> npt.NDArray[np.bool_]:
        if self.outcomes == "binary":
            return np.asarray((y == 0.0) | (y == 1.0))
        return np.asarray((y == np.floor(y)) & (y >= 0.0)) if self.outcomes == "counts" else np.isfinite(y)


@dataclass(frozen=True)
class BinaryFamily(Family):
    """A family whose customers buy one or none: what follows from outcomes of 0 and 1 alone."""

    outcomes: ClassVar[Outcomes] = "binary"

    def residual_bound(self, mean: float, outcomes: int) -> float:
        """1, always."""
        return 1.0

    def saturated(self, y: Array) -> Array:
        return np.zeros(len(y))

    def signs(self, y: Array) -> Array:
        return np.asarray(2.0 * y - 1.0)


DOMAINS: dict[Outcomes, str] = {
    "binary": "0 or 1", "counts": "a whole number of at least 0", "real": "a finite number",
}  # fmt: skip

FAMILIES: dict[str, type[Family]] = {}
_METHODS = ("link", "saturated", "signs", "end_utility")


def missing_parts(family: type[Family]) -> list[str]:
    """What a family class lacks, in words.

    Parameters
    ----------
    family : type of Family
        The class to look at. Kernels and devices are not looked at; see ``hushprice.checks.check_family_complete``.

    Returns
    -------
    list of str
        One entry per missing part, empty if there is none.

    Examples
    --------
    >>> class Nothing(Family):
    ...     name = "nothing"
    >>> missing_parts(Nothing)[:2]
    ["class variable 'code' (a whole number)", "class variable 'outcomes' ('binary', 'counts' or 'real')"]
    """
    missing = []
    if not isinstance(getattr(family, "name", None), str):
        missing.append("class variable 'name' (text)")
    if not isinstance(getattr(family, "code", None), int):
        missing.append("class variable 'code' (a whole number)")
    if getattr(family, "outcomes", None) not in get_args(Outcomes):
        missing.append("class variable 'outcomes' ('binary', 'counts' or 'real')")
    needed = (*_METHODS, "best_utility") if family.price_depends_on_level else _METHODS
    return missing + [f"method {name!r}" for name in needed if getattr(family, name) is getattr(Family, name)]


def register(family: F) -> F:
    """Add a family to the registry, so that it can be chosen by its name. Use it as a class decorator.

    Parameters
    ----------
    family : type of Family
        A complete family with a name and a code of its own.

    Returns
    -------
    type of Family
        The same class.

    Raises
    ------
    InvalidInput
        If parts are missing (the message lists all of them), or the name or the code is taken.

    Examples
    --------
    >>> register(type("Half", (Family,), {"name": "half", "code": 17}))
    Traceback (most recent call last):
    ...
    hushprice.errors.InvalidInput: The family Half is incomplete. It lacks: class variable 'outcomes' ...
    """
    if missing := missing_parts(family):
        raise InvalidInput(f"The family {family.__name__} is incomplete. It lacks: {'; '.join(missing)}.")
    for other in FAMILIES.values():
        if other is not family and (other.name == family.name or other.code == family.code):
            raise InvalidInput(f"The name {family.name!r} or the code {family.code} is taken by {other.__name__}.")
    FAMILIES[family.name] = family
    return family
