"""Maximum likelihood for GLM demand, by damped Newton.

Minimises ``F(theta) = sum_i w_i loss(x_i.theta, y_i) + ridge/2 |theta|^2``, the loss being the negative log-likelihood
without its constants: ``psi(eta) - y eta`` where that is canonical.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from scipy import linalg

from hushprice.arrays import Array, array
from hushprice.demand import Family, as_family
from hushprice.errors import HushpriceError, InvalidInput, NoMLE, finite, positive_int
from hushprice.kernels import newton as kernel
from hushprice.kernels.state import Penalty, ridge_penalty

_SUBSAMPLE = 16  # the first fit is on one record in so many
_LARGE = 8  # ... if at least so many records per coefficient remain
_CHUNK = 16_384  # records per thread and task
_SUSPECT = 1e-5  # a smaller fitted psi'' triggers the test whether the MLE exists


def design(z: npt.ArrayLike, price: npt.ArrayLike) -> Array:
    """The rows x = (z, -p z) of the paper's regression.

    Parameters
    ----------
    z : array_like of shape (n, d)
        Contexts.
    price : float or array_like of shape (n,)
        Prices.

    Returns
    -------
    ndarray of shape (n, 2 d)

    Examples
    --------
    >>> design([[1.0, 2.0]], [3.0])
    array([[ 1.,  2., -3., -6.]])
    """
    contexts = array("z", z, shape=(None, None))
    if np.ndim(price) == 0:
        price = np.full(len(contexts), price)
    prices = array("price", price, shape=(len(contexts),))
    return np.hstack([contexts, -prices[:, None] * contexts])


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A fitted model.

    Attributes
    ----------
    family : Family
        The demand family.
    theta : ndarray of shape (m,)
        The estimate.
    covariance : ndarray of shape (m, m)
        ``H^-1 I H^-1`` times the dispersion, with H the penalised and I the plain information; NaN for coefficients
        that the records do not identify.
    loglik : float
        Weighted log-likelihood at the estimate.
    ridge : float
        The penalty is ridge/2 |theta|^2.
    dispersion : float
        Residual variance of linear demand; 1 for other families.
    rank : int
        Number of identified coefficients.
    records : int
        Number of records with positive weight.
    passes : int
        Newton passes over the records.
    """

    family: Family
    theta: Array
    covariance: Array
    loglik: float
    ridge: float
    dispersion: float
    rank: int
    records: int
    passes: int

    @property
    def standard_errors(self) -> Array:
        """Standard errors; infinite for a coefficient that the records do not identify."""
        variance = np.diag(self.covariance)
        return np.sqrt(np.where(np.isnan(variance), np.inf, variance))

    def utility(self, z: npt.ArrayLike) -> tuple[Array, Array]:
        """(a, b) = (z.alpha, z.beta) per context, for a fit on :func:`design` rows.

        Parameters
        ----------
        z : array_like
            Contexts, one per row.

        Returns
        -------
        tuple of ndarray
            a and b, one number per context.
        """
        d = self.theta.size // 2
        contexts = array("z", z, shape=(None, d))
        return contexts @ self.theta[:d], contexts @ self.theta[d:]


def fit(
    family: Family | str,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    ridge: float = 0.0,
    weights: npt.ArrayLike | None = None,
    tolerance: float = 1e-6,
    max_passes: int = 200,
) -> Fit:
    """Maximum likelihood estimate of theta.

    Parameters
    ----------
    family : Family or str
        The demand family.
    x : array_like of shape (n, m)
        One row per record, as from :func:`design`.
    y : array_like of shape (n,)
        Outcomes.
    ridge : float
        Penalty ridge/2 |theta|^2.
    weights : array_like of shape (n,), optional
        A record of weight w counts like w records; the dispersion of a linear model counts records.
    tolerance : float
        Largest length of the last Newton step, in standard errors. The step is taken, so the remaining error is of the
        order of its square.
    max_passes : int
        Most Newton passes over the records.

    Returns
    -------
    Fit

    Raises
    ------
    NoMLE
        If ``ridge`` is 0 and the records are separable.
    HushpriceError
        If Newton's method does not converge.

    Notes
    -----
    Rank-deficient rows with ``ridge=0`` give the estimate of smallest norm (with columns on one scale) and infinite
    standard errors for the coefficients that are not identified.

    References
    ----------
    McCullagh & Nelder, *Generalized Linear Models*; existence: Albert & Anderson (1984).

    Examples
    --------
    >>> import numpy as np
    >>> x = design(np.ones((6, 1)), [1, 1, 1, 2, 2, 2])
    >>> fit("poisson", x, [4, 4, 4, 2, 2, 2]).theta.round(6)  # log 4 = a - b, log 2 = a - 2 b
    array([2.079442, 0.693147])
    """
    family = as_family(family)
    rows = array("x", x, shape=(None, None))
    n, m = rows.shape
    outcomes = np.ascontiguousarray(family.check_outcome(array("y", y, shape=(n,))))
    ridge = finite("ridge", ridge, minimum=0.0)
    tolerance = finite("tolerance", tolerance, minimum=0.0, strict=True)
    max_passes = positive_int("max_passes", max_passes)
    w, unit = np.empty(0), 1.0
    if weights is not None:
        w = array("weights", weights, shape=(n,))
        if (w < 0).any():
            raise InvalidInput("weights must not be negative.")
        counted = w > 0  # ignore records of weight 0
        rows, outcomes, w = np.ascontiguousarray(rows[counted]), outcomes[counted], w[counted]
        n = len(w)
        unit = float(w.mean()) if n else 1.0
        w = w / unit  # the estimate depends on the weights and the ridge in proportion only
    if m == 0 or (n == 0 and ridge == 0.0):
        raise InvalidInput("There is nothing to fit: x needs a column and a record, or a ridge above 0.")

    ridge_unit = ridge / unit
    penalty = ridge_penalty(ridge_unit)
    theta, information, passes, status = _solve(family, rows, outcomes, w, penalty, tolerance, max_passes)
    basis: Array | None = None
    if status == kernel.SINGULAR:
        basis = _identified(rows)
        reduced = np.ascontiguousarray(rows @ basis)
        if basis.shape[1]:
            theta, information, passes, status = _solve(family, reduced, outcomes, w, penalty, tolerance, max_passes)
        else:  # every row is zero
            theta, information, status = np.zeros(0), np.zeros((0, 0)), kernel.CONVERGED
        theta = basis @ theta
    eta = rows @ theta
    if ridge == 0.0:
        _require_existence(family, rows if basis is None else reduced, outcomes, eta)
    if status != kernel.CONVERGED:
        raise HushpriceError(
            f"Newton's method did not converge in {passes} passes. "
            "Check the scale of x (centre and scale its columns) or pass a ridge above 0."
        )

    rank = m if basis is None else basis.shape[1]
    dispersion = _dispersion(family, outcomes, eta, w, rank)
    covariance = dispersion * _covariance(information, ridge_unit) / (unit if not family.estimates_scale else 1.0)
    if basis is not None:
        covariance = basis @ covariance @ basis.T
        unidentified = ~_in_row_space(rows, basis)
        covariance[unidentified, :] = np.nan
        covariance[:, unidentified] = np.nan
    each = family.loglik(eta, outcomes) if n else np.zeros(0)
    return Fit(
        family=family,
        theta=theta,
        covariance=covariance,
        loglik=float(unit * (each @ w) if w.size else each.sum()),
        ridge=ridge,
        dispersion=dispersion,
        rank=rank,
        records=n,
        passes=passes,
    )


def _solve(
    family: Family, rows: Array, y: Array, w: Array, penalty: Penalty, tolerance: float, max_passes: int
) -> tuple[Array, Array, int, int]:
    """Newton's method from zero, or with many records from a fit on a systematic subsample."""
    n, m = rows.shape
    theta = np.zeros(m)
    if n >= _SUBSAMPLE * _LARGE * m:
        some = slice(None, None, _SUBSAMPLE)
        start, _, _, status = _solve(
            family, np.ascontiguousarray(rows[some]), y[some].copy(), w[some].copy(), penalty, 0.1, max_passes
        )
        theta = start if status == kernel.CONVERGED else theta
    information = np.empty((m, m))
    newton = kernel.newton if n <= _CHUNK else _newton_threaded
    status, passes = newton(family.code, rows, y, w, penalty, theta, information, tolerance, max_passes)
    if status != kernel.CONVERGED and n >= _SUBSAMPLE * _LARGE * m:  # the subsample may have been a bad start
        theta[:] = 0.0
        status, passes = newton(family.code, rows, y, w, penalty, theta, information, tolerance, max_passes)
    return theta, np.tril(information) + np.tril(information, -1).T, passes, status


def _newton_threaded(
    code: int,
    rows: Array,
    y: Array,
    w: Array,
    penalty: Penalty,
    theta: Array,
    information: Array,
    tolerance: float,
    max_passes: int,
) -> tuple[int, int]:
    """The kernel's :func:`newton` with each pass over the records split between threads.

    The chunks are fixed and their sums are added in order, so that the result does not depend on the number of threads.
    """
    m = theta.size
    parts = [slice(i, i + _CHUNK) for i in range(0, len(y), _CHUNK)]
    gradients, hessians = np.empty((len(parts), m)), np.empty((len(parts), m, m))
    gradient, direction, trial, factor = np.empty(m), np.empty(m), theta.copy(), np.zeros((m, m))
    state = np.array([np.inf, 1.0, np.inf])

    def evaluate(k: int) -> float:
        rows_k, y_k, w_k = rows[parts[k]], y[parts[k]], w[parts[k]]
        return float(kernel.evaluate(code, rows_k, y_k, w_k, trial, gradients[k], hessians[k]))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for passes in range(1, max_passes + 1):
            value = sum(pool.map(evaluate, range(len(parts))))
            gradient[:], information[:] = gradients.sum(axis=0), hessians.sum(axis=0)
            status = kernel.step(
                value, penalty, theta, trial, direction, gradient, information, factor, state, tolerance
            )
            if status != kernel.RUNNING:
                return status, passes
    return kernel.STALLED, max_passes


def _scales(rows: Array) -> Array:
    """Root mean square per column; 1 for a column of zeros."""
    scale = np.sqrt(np.mean(rows**2, axis=0)) if len(rows) else np.zeros(rows.shape[1])
    return np.where(scale > 0, scale, 1.0)


def _identified(rows: Array) -> Array:
    """A basis (m, rank) of the coefficients that the records identify.

    ``rows @ basis`` has orthogonal columns of mean square 1. The rank is the number of nonzero singular values of the
    rows with columns on one scale, so that neither units nor nearly parallel columns hide a direction.
    """
    scale = _scales(rows)
    _, values, vectors = linalg.svd(rows / scale, full_matrices=False)
    nonzero = values > values[:1].sum() * max(rows.shape) * np.finfo(float).eps
    basis: Array = vectors[nonzero].T / values[nonzero] * np.sqrt(len(rows)) / scale[:, None]
    return basis


def _in_row_space(rows: Array, basis: Array) -> npt.NDArray[np.bool_]:
    """Which single coefficients lie in the span of the basis."""
    unit = linalg.orth(basis * _scales(rows)[:, None]) if basis.shape[1] else basis
    return np.asarray(np.abs(unit @ unit.T - np.eye(len(unit))).max(axis=0) < 1e-8)


def _covariance(information: Array, ridge: float) -> Array:
    """H^-1 (H - ridge) H^-1, by the kernel's Cholesky, which is insensitive to the columns' scales."""
    factor, inverse = np.zeros_like(information), np.empty_like(information)
    kernel.cholesky(information, factor)
    kernel.invert(factor, inverse)
    return inverse - ridge * inverse @ inverse


def _dispersion(family: Family, y: Array, eta: Array, w: Array, rank: int) -> float:
    """Residual variance where the noise has a scale of its own; 1 elsewhere."""
    freedom = y.size - rank
    if not family.estimates_scale or freedom <= 0:
        return 1.0
    squares = (y - eta) ** 2
    return float((squares @ w if w.size else squares.sum()) / freedom)


def _require_existence(family: Family, rows: Array, y: Array, eta: Array) -> None:
    """Raise NoMLE for separable records.

    The likelihood has no maximum if and only if there is a direction v along which it never falls and somewhere
    rises: with s = ``Family.signs``, s x.v >= 0 for all records and x.v = 0 where s = 0, not all zero. A linear
    program searches for v, but only if some fitted predictions are nearly certain.
    """
    if family.outcomes == "real" or y.size == 0 or rows.size == 0 or family.curvature(eta).min() > _SUSPECT:
        return
    rows = rows / _scales(rows)
    sign = family.signs(y)
    signed, equal = rows[sign != 0] * sign[sign != 0, None], rows[sign == 0]
    objective: Any = -signed.sum(axis=0)
    solution = scipy.optimize.linprog(
        objective,
        A_ub=-signed,
        b_ub=np.zeros(len(signed)),
        A_eq=equal if len(equal) else None,
        b_eq=np.zeros(len(equal)) if len(equal) else None,
        bounds=(-1, 1),
        method="highs",
    )
    if solution.status == 0 and solution.fun is not None and -solution.fun > 1e-7:
        raise NoMLE(
            "The records are separable: some combination of the features tells the outcomes apart without error, "
            "so the maximum likelihood estimate is infinite. Pass ridge > 0 (1.0 is a good start) or add records."
        )
