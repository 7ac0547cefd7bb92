"""The prior of an estimate: expected value and precision of theta before any record.

Estimates minimise loss(theta) + 1/2 (theta - centre)' precision (theta - centre). A ridge is the simplest prior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from os import PathLike
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array, array
from hushprice.demand import Family, as_family
from hushprice.errors import LARGEST_VALUE, InvalidInput, finite, positive_int
from hushprice.kernels import newton as kernel
from hushprice.kernels.state import Penalty, ridge_penalty


class Fitted(Protocol):
    """What :meth:`Prior.from_model` needs of a fitted model."""

    theta_: Array
    covariance_: Array
    family_: Family


@dataclass(frozen=True, eq=False)
class Prior:
    """A normal prior of theta, as a penalty of the loss.

    Parameters
    ----------
    centre : array_like of shape (m,)
        The estimate without any record.
    precision : array_like of shape (m, m)
        Symmetric and positive definite; the inverse of the prior covariance (times the variance of linear demand).
    family : str, optional
        Name of the demand family that it is about. Default: any.

    Raises
    ------
    InvalidInput
        If the shapes do not fit, or the precision is not symmetric and positive definite.

    Examples
    --------
    >>> prior = Prior([1.0, 0.5], [[4.0, 1.0], [1.0, 4.0]])
    >>> prior.covariance.round(3)
    array([[ 0.267, -0.067],
           [-0.067,  0.267]])
    >>> Prior.ridge(1, 2.0).precision
    array([[2., 0.],
           [0., 2.]])
    """

    centre: Array
    precision: Array
    family: str | None
    _ridge: float | None = field(init=False, repr=False)  # the prior is ridge/2 |theta|^2

    def __init__(self, centre: npt.ArrayLike, precision: npt.ArrayLike, *, family: str | None = None) -> None:
        middle = array("centre", centre, shape=(None,), limit=LARGEST_VALUE).copy()
        if middle.size % 2 or not middle.size:
            raise InvalidInput(
                f"The centre of a prior is theta = (alpha, beta), of length 2 d, got {middle.size} numbers."
            )
        matrix = array("precision", precision, shape=(middle.size, middle.size)).copy()
        for name, value in (("centre", middle), ("precision", matrix)):
            value.flags.writeable = False
            object.__setattr__(self, name, value)
        object.__setattr__(self, "family", None if family is None else as_family(family).name)
        object.__setattr__(self, "_ridge", _ridge_of(middle, matrix))
        if self._ridge is None:
            self._require_definite()

    @classmethod
    def ridge(cls, dim: int, ridge: float) -> Prior:
        """The prior ridge/2 |theta|^2.

        Parameters
        ----------
        dim : int
            The length d of contexts; theta has 2 d entries.
        ridge : float
            Greater than 0.

        Returns
        -------
        Prior
        """
        ridge, dim = finite("ridge", ridge, minimum=0.0, strict=True), positive_int("dim", dim)
        return cls(np.zeros(2 * dim), ridge * np.eye(2 * dim))

    def _require_definite(self) -> None:
        if not np.array_equal(self.precision, self.precision.T):
            raise InvalidInput("The precision of a prior must be symmetric: pass (precision + precision.T) / 2.")
        if not kernel.cholesky(self.precision.copy(), np.zeros(self.precision.shape)):
            raise InvalidInput("The precision of a prior must be positive definite: add a ridge to its diagonal.")

    @classmethod
    def of_estimate(cls, theta: npt.ArrayLike, covariance: npt.ArrayLike, *, scale: float = 1.0) -> Prior:
        """The prior that an earlier estimate stands for.

        Parameters
        ----------
        theta : array_like of shape (m,)
            The estimate.
        covariance : array_like of shape (m, m)
            Its covariance. Coefficients whose variance is NaN were not identified: they have a ridge of 1 around 0.
        scale : float
            Noise of linear demand; the precision is multiplied by its square.

        Returns
        -------
        Prior
        """
        centre = array("theta", theta, shape=(None,)).copy()
        m = centre.size
        matrix = np.array(covariance, dtype=np.float64)
        if matrix.shape != (m, m):
            raise InvalidInput(f"The covariance of {m} coefficients must have the shape {(m, m)}, got {matrix.shape}.")
        known = np.isfinite(np.diag(matrix)) & (np.diag(matrix) > 0.0)
        precision = np.eye(m)
        block = np.ix_(known, known)
        if known.any():
            spread = np.sqrt(np.diag(matrix)[known])
            try:
                inverse = np.linalg.inv(matrix[block] / np.outer(spread, spread)) / np.outer(spread, spread)
            except np.linalg.LinAlgError:
                raise InvalidInput(
                    "The covariance is singular: fit with a ridge, or leave out features that others determine."
                ) from None
            precision[block] = scale**2 * 0.5 * (inverse + inverse.T)
        fixed = np.diag(matrix) == 0.0  # known exactly, for example 0 where the price sensitivity does not depend on it
        precision[fixed, fixed] = 100.0 * max(float(np.diag(precision).max()), 1.0)
        centre[~known & ~fixed] = 0.0
        return cls(centre, precision)

    @classmethod
    def from_model(cls, model: Fitted | str | PathLike[str], trust: float = 1.0) -> Prior:
        """What a fitted demand model knows: its estimate, with the precision of the estimate.

        A policy with this prior starts at the model's prices and goes on learning. Its contexts must be those of the
        model (``model.contexts``), and its ``dim`` theirs (``model.encoding_.dim``).

        Parameters
        ----------
        model : DemandModel or path-like
            A fitted ``hushprice.DemandModel`` or the file that its ``save`` wrote.
        trust : float
            Share of the log's weight that counts, above 0 and at most 1. Below 1 the prior is wider: 0.25 doubles the
            standard errors. Lower it if the log is old, from another season, or its prices were chosen for reasons
            that the features do not show.

        Returns
        -------
        Prior

        Examples
        --------
        >>> from hushprice import DemandModel
        >>> rng = np.random.default_rng(1)
        >>> price = rng.uniform(1, 3, 5000)
        >>> sold = rng.random(5000) < 1 / (1 + np.exp(price - 2))
        >>> model = DemandModel(price="price").fit({"price": price}, sold)
        >>> Prior.from_model(model).centre.round(0)
        array([2., 1.])
        """
        trust = finite("trust", trust, minimum=0.0, maximum=1.0, strict=True)
        if isinstance(model, (str, PathLike)):
            fitted: Fitted = import_module("hushprice.fitting").DemandModel.load(model)  # a layer above this one
        else:
            fitted = model
        missing = [name for name in ("theta_", "covariance_", "family_") if not hasattr(fitted, name)]
        if missing:
            raise InvalidInput(
                f"Prior.from_model takes a fitted DemandModel or its file: this one has no {', '.join(missing)}."
            )
        prior = cls.of_estimate(fitted.theta_, fitted.covariance_, scale=fitted.family_.scale)
        return cls(prior.centre, trust * prior.precision, family=fitted.family_.name)

    @property
    def dim(self) -> int:
        """The length d of contexts."""
        return self.centre.size // 2

    @property
    def covariance(self) -> Array:
        """The inverse of the precision."""
        m = self.centre.size
        if self._ridge is not None:
            return np.eye(m) / self._ridge
        inverse = np.empty((m, m))
        kernel.invert(self._factor(), inverse)
        return inverse

    @property
    def root(self) -> Array:
        """A root W of the covariance: W W' is the inverse of the precision."""
        if self._ridge is not None:
            return np.asarray(np.eye(self.centre.size) / np.sqrt(self._ridge))
        return np.ascontiguousarray(kernel.invert_factor(self._factor()).T)

    def _factor(self) -> Array:
        factor = np.zeros(self.precision.shape)
        kernel.cholesky(self.precision.copy(), factor)
        return factor

    @property
    def penalty(self) -> Penalty:
        """The prior as kernels take it. (Arrays are copied: Numba compiles separate code for read-only arrays.)"""
        if self._ridge is not None:
            return ridge_penalty(self._ridge)
        return self.dense_penalty

    @property
    def dense_penalty(self) -> Penalty:
        """The prior as kernels take it, with a precision matrix also for a ridge."""
        return Penalty(0.0, self.centre.copy(), self.precision.copy())

    def config(self) -> dict[str, Any]:
        """The prior as plain data; :meth:`of` reads it back."""
        plain = {"centre": self.centre.tolist(), "precision": self.precision.tolist()}
        return plain if self.family is None else plain | {"family": self.family}

    @classmethod
    def of(cls, config: Prior | Mapping[str, Any]) -> Prior:
        """A prior from the plain data of :meth:`config`.

        Parameters
        ----------
        config : Prior or mapping
            A prior, which is returned as it is, or what :meth:`config` returned.
        """
        if isinstance(config, Prior):
            return config
        keys = {"centre", "precision"}
        if not isinstance(config, Mapping) or not keys <= set(config) <= keys | {"family"}:
            raise InvalidInput("A prior is made of its centre and its precision, and perhaps its family.")
        return cls(config["centre"], config["precision"], family=config.get("family"))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Prior):
            return NotImplemented
        same = self.family == other.family and np.array_equal(self.centre, other.centre)
        return same and np.array_equal(self.precision, other.precision)

    def __hash__(self) -> int:
        return hash((self.centre.tobytes(), self.precision.tobytes()))


def _ridge_of(centre: Array, precision: Array) -> float | None:
    """The ridge of a prior ridge/2 |theta|^2; None for any other prior."""
    if not precision.size:
        return None
    ridge = float(precision[0, 0])
    plain = not centre.any() and np.count_nonzero(precision) == centre.size and (np.diag(precision) == ridge).all()
    return ridge if plain and ridge > 0.0 else None
