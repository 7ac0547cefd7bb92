"""Exact maximum likelihood over a log of any length: Newton's method with one pass over the rows per step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array, array
from hushprice.demand import Family, as_family
from hushprice.errors import HushpriceError, finite
from hushprice.fitting.diagnosis.report import standard_errors
from hushprice.fitting.passes.design import Design
from hushprice.fitting.passes.newton import Newton, Scale
from hushprice.fitting.passes.separation import separable
from hushprice.fitting.passes.survey import OnProgress
from hushprice.kernels import newton

RIDGE = 1.0  # used if the records do not identify the estimate
_MOST_PASSES = 100
_DOUBT = 10  # passes after which to check whether the records are separable
_SINGULAR = 1e-12  # an eigenvalue of the scaled information that is 0 within rounding


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamedFit:
    """A fit over all rows of a design.

    Attributes
    ----------
    theta : ndarray of shape (2 d,)
        Estimate; 0 at entries of beta that are not sensitive.
    covariance : ndarray of shape (2 d, 2 d)
        ``phi H^-1 I H^-1`` with H the penalised and I the plain information; NaN for coefficients that the records do
        not identify. With a half-life I is the information with squared discounts: see the notes of
        :func:`stream_fit`.
    loglik : float
        Log-likelihood with all constants; for linear demand at the estimated dispersion.
    dispersion : float
        Residual variance of linear demand; 1 otherwise.
    rank, coefficients : int
        Number of identified coefficients, and of all.
    records, weight : int, float
        Number of records and the sum of their weights.
    effective : float
        Number of records of equal weight that tell as much, ``(sum w)^2 / sum u f^2`` with weights w = u f, u those of
        the log and f the discounts; the weight if there is no half-life.
    passes : int
        Number of passes over the log.
    ridge : float
        Ridge used; 1 if none was requested and the records do not identify the estimate.
    separable : bool
        Whether the records are separable; not checked if a ridge was requested.
    """

    theta: Array
    covariance: Array
    loglik: float
    dispersion: float
    rank: int
    coefficients: int
    records: int
    weight: float
    effective: float
    passes: int
    ridge: float
    separable: bool

    @property
    def standard_errors(self) -> Array:
        """Standard errors; infinite for a coefficient that the records do not identify."""
        return standard_errors(self.covariance)


def stream_fit(
    design: Design,
    family: Family | str,
    *,
    ridge: float = 0.0,
    start: npt.ArrayLike | None = None,
    tolerance: float = 1e-6,
    overlapping: bool = False,
    progress: OnProgress | None = None,
) -> StreamedFit:
    """The maximum likelihood estimate of theta = (alpha, beta) from all rows of the design.

    Parameters
    ----------
    design : Design
        Log, columns and encoding.
    family : Family or str
        Demand family.
    ridge : float
        Penalty on theta in standard units. If it is 0 and the records are separable or do not identify every
        coefficient, a ridge of 1 is used: see ``rank``, ``separable`` and ``ridge`` of the result.
    start : array-like of shape (2 d,), optional
        Start of Newton's method; by default a fit on the design's sample.
    tolerance : float
        Length of the last step in standard errors. That step is taken, so the remaining error is of the order of its
        square.
    overlapping : bool
        Whether it is already certain that the records are not separable; skips the check.
    progress : callable, optional
        Called with the name of the pass and the number of rows read in it.

    Returns
    -------
    StreamedFit
        The estimate. It does not depend on the number of threads.

    Raises
    ------
    HushpriceError
        If Newton's method does not converge.

    Notes
    -----
    Minimises ``sum_i w_i loss(eta_i, y_i) + ridge/2 |t|^2`` with ``eta = z.alpha - (z.beta) p``, where t is
    theta in standard units: with (p - centre) / spread instead of p. Weights count like repeated records, in standard
    errors and dispersion too.

    With a half-life w_i = u_i f_i, u_i the weight of the log and f_i the discount. A score then has variance
    u_i f_i^2 phi psi'', not u_i f_i phi psi'', so that the covariance is the sandwich ``phi H^-1 I H^-1`` with
    ``I = sum u f^2 psi'' x x'``, which takes one pass more. The dispersion of linear demand is
    ``sum w r^2 / (sum w - tr H^-1 I)``, without bias. A discounted estimate follows demand that changes; its standard
    errors are those of chance, and do not tell how far demand has moved since the rows that it rests on.

    With a million records or more, a step shorter than 0.001, and shorter than 0.0003 times the one before, is the last
    as well: steps shrink quadratically, so the remaining error is 1e-10 standard errors, and the relative error of the
    covariance 1e-7.

    References
    ----------
    McCullagh & Nelder, *Generalized Linear Models*. Existence: Albert & Anderson (1984).

    Examples
    --------
    >>> from hushprice.fitting.passes.survey import survey
    >>> log = {"p": [1.0, 1, 1, 2, 2, 2], "y": [4, 4, 4, 2, 2, 2]}
    >>> fit = stream_fit(Design.of(survey(log, price="p", outcome="y", features=[])), "poisson")
    >>> fit.theta.round(6)  # log 4 = a - b, log 2 = a - 2 b
    array([2.079442, 0.693147])
    """
    family = as_family(family)
    ridge = finite("ridge", ridge, minimum=0.0)
    tolerance = finite("tolerance", tolerance, minimum=0.0, strict=True)
    scale = Scale.of(design)
    if start is not None:
        first = scale.inner(array("start", start, shape=(2 * design.dim,)))
    else:
        first = _from_sample(design, family, scale, ridge)
    run = Newton(design, family, scale, tolerance, progress)
    unsure = ridge == 0.0 and family.outcomes != "real" and not overlapping
    status = run.minimise(first, ridge, _DOUBT if unsure else _MOST_PASSES)
    separated = unsure and not run.overlap(status) and separable(design, family)
    if status == newton.RUNNING and not separated:
        status = run.minimise(run.theta, ridge, _MOST_PASSES)
    if ridge == 0.0 and (separated or status == newton.SINGULAR):
        ridge = RIDGE
        status = run.minimise(first, ridge, _MOST_PASSES)
    if status != newton.CONVERGED:
        raise HushpriceError(
            f"Newton's method did not converge in {run.passes} passes over {design.source.name}. Pass a ridge above 0."
        )
    return _result(run, ridge, separated)


def _result(run: Newton, ridge: float, separated: bool) -> StreamedFit:
    """The fit at the point reached."""
    sums, m, d = run.sums, run.theta.size, run.design.dim
    size = np.sqrt(np.where(np.diag(run.plain) > 0.0, np.diag(run.plain), 1.0))
    values, vectors = np.linalg.eigh(run.plain / np.outer(size, size))
    identified = values > _SINGULAR * m * max(values[-1], 0.0)
    rank = int(identified.sum())
    middle, effective, lost = None, sums.weight, float(rank)
    if run.design.discount is not None:
        squared = run.sweep(run.theta, power=2)
        middle, effective = run.scale.information(squared.blocks), sums.weight**2 / squared.weight
        lost = float(
            np.sum(np.linalg.pinv(run.plain / np.outer(size, size), hermitian=True) * (middle / np.outer(size, size)))
        )  # tr H^-1 I
    linear, freedom = run.family.estimates_scale, sums.weight - lost
    dispersion = 2.0 * sums.loss / freedom if linear and freedom > 0 else 1.0
    covariance = run.scale.map @ (dispersion * _covariance(run.plain, ridge, middle)) @ run.scale.map.T
    if rank < m:
        unidentified = run.scale.unidentified(vectors[:, ~identified], size)
        covariance[unidentified, :] = covariance[:, unidentified] = np.nan
        rest = np.concatenate([np.zeros(d, dtype=np.bool_), ~np.asarray(run.design.sensitive)])
        covariance[rest, :] = covariance[:, rest] = 0.0
    loglik = -sums.loss - run.constant
    if linear:
        scaled = max(dispersion, np.finfo(float).tiny)
        loglik = -0.5 * sums.weight * np.log(2.0 * np.pi * scaled) - sums.loss / scaled
    return StreamedFit(
        theta=run.scale.map @ run.theta,
        covariance=covariance,
        loglik=float(loglik),
        dispersion=float(dispersion),
        rank=rank,
        coefficients=m,
        records=sums.records,
        weight=sums.weight,
        effective=float(effective),
        passes=run.passes,
        ridge=ridge,
        separable=separated,
    )


def _covariance(information: Array, ridge: float, middle: Array | None = None) -> Array:
    """H^-1 M H^-1 with H = I + ridge, by the kernel's Cholesky, which tolerates columns of different scale.

    M is the information I itself by default.
    """
    m = len(information)
    factor, inverse, eye = np.zeros((m, m)), np.empty((m, m)), np.eye(m)
    if not newton.cholesky(information + ridge * eye, factor):  # the ridge is lost in rounding
        lift = 1e-12 * m * np.diag(np.diag(information))
        newton.cholesky(information + ridge * eye + lift, factor)
    newton.invert(factor, inverse)
    if middle is not None:
        return np.asarray(inverse @ middle @ inverse)
    return np.asarray(inverse - ridge * inverse @ inverse)


def _from_sample(design: Design, family: Family, scale: Scale, ridge: float) -> Array:
    """A start: the fit on the sample, with a ridge so that it exists; it starts from the mean outcome."""
    some = design.on_sample()
    t = np.zeros(scale.map.shape[1])
    if some is None:
        return t
    rows = [(rows.y, rows.w) for rows in some.blocks()]
    y, w = (np.concatenate([row[k] for row in rows]) for k in (0, 1))
    family.check_outcome(y)
    mean = float(np.average(y, weights=w))
    t[0] = family.link(mean, 0.5 / y.size)
    run = Newton(some, family, scale, 0.01)
    return run.theta if run.minimise(t, max(ridge, RIDGE), 50) == newton.CONVERGED else t
