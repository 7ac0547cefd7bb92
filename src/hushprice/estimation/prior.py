"""The prior of an estimate: expected value and precision of theta before any record.

Estimates minimise loss(theta) + 1/2 (theta - centre)' precision (theta - centre). A ridge is the simplest prior.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array, array
from hushprice.errors import InvalidInput, finite
from hushprice.kernels import newton as kernel
from hushprice.kernels.state import Penalty, ridge_penalty


@dataclass(frozen=True, eq=False)
class Prior:
    """A normal prior of theta, as a penalty of the loss.

    Parameters
    ----------
    centre : array_like of shape (m,)
        The estimate without any record.
    precision : array_like of shape (m, m)
        Symmetric and positive definite; the inverse of the prior covariance (times the variance of linear demand).

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
    _ridge: float | None = field(init=False, repr=False)  # the prior is ridge/2 |theta|^2

    def __init__(self, centre: npt.ArrayLike, precision: npt.ArrayLike) -> None:
        middle = array("centre", centre, shape=(None,)).copy()
        matrix = array("precision", precision, shape=(middle.size, middle.size)).copy()
        for name, value in (("centre", middle), ("precision", matrix)):
            value.flags.writeable = False
            object.__setattr__(self, name, value)
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
        ridge = finite("ridge", ridge, minimum=0.0, strict=True)
        return cls(np.zeros(2 * dim), ridge * np.eye(2 * dim))

    def _require_definite(self) -> None:
        if not np.array_equal(self.precision, self.precision.T):
            raise InvalidInput("The precision of a prior must be symmetric: pass (precision + precision.T) / 2.")
        if not kernel.cholesky(self.precision.copy(), np.zeros(self.precision.shape)):
            raise InvalidInput("The precision of a prior must be positive definite: add a ridge to its diagonal.")

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
        return Penalty(0.0, self.centre.copy(), self.precision.copy())


def _ridge_of(centre: Array, precision: Array) -> float | None:
    """The ridge of a prior ridge/2 |theta|^2; None for any other prior."""
    if not precision.size:
        return None
    ridge = float(precision[0, 0])
    plain = not centre.any() and np.count_nonzero(precision) == centre.size and (np.diag(precision) == ridge).all()
    return ridge if plain and ridge > 0.0 else None
