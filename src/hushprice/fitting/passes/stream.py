"""Exact maximum likelihood over a log of any length: Newton's method, one pass over the rows a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from hushprice.arrays import Array, array
from hushprice.demand import Family, as_family
from hushprice.errors import HushpriceError, finite
from hushprice.fitting.diagnosis.report import standard_errors
from hushprice.fitting.passes.design import Design
from hushprice.fitting.passes.newton import Newton, Scale
from hushprice.fitting.passes.separation import separable
from hushprice.fitting.passes.survey import Progress
from hushprice.kernels import LINEAR, LOGISTIC, newton

RIDGE = 1.0  # where the records alone do not decide
_MOST_PASSES = 100
_DOUBT = 10  # passes after which separable records are the likeliest reason
_SINGULAR = 1e-12  # an eigenvalue of the information, with columns on one scale, that is 0 but for rounding


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamedFit:
    """A fit over all rows of a design.

    ``theta`` (2 d) and ``covariance`` (2 d, 2 d) are 0 at entries of beta that are not sensitive. The covariance is
    ``phi H^-1 I H^-1`` with H the penalised and I the plain information, and NaN for coefficients that the records
    do not identify. ``rank`` counts what they identify, of ``coefficients``. ``ridge`` is the one used, which is
    above the one asked for where the records alone do not decide. ``weight`` is the sum of weights; the
    log-likelihood has every constant, and is at the estimated ``dispersion`` for linear demand. Whether records are
    ``separable`` is not asked of a fit with a ridge of its own.
    """

    theta: Array
    covariance: Array
    loglik: float
    dispersion: float
    rank: int
    coefficients: int
    records: int
    weight: float
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
    progress: Progress | None = None,
) -> StreamedFit:
    """The maximum likelihood estimate of theta = (alpha, beta) from all rows of the design.

    Minimises ``sum_i w_i [psi(eta_i) - y_i eta_i] + ridge/2 |t|^2`` with ``eta = z.alpha - (z.beta) p``, where t is
    theta in standard units: with (p - centre) / spread instead of p. Weights count like repeated records, in
    standard errors and dispersion too.

    Newton's method starts from ``start`` (2 d) or from a fit on the design's sample. ``tolerance`` is the length of
    the last step in standard errors; that step is taken, so what is left is of the order of its square. From a
    million records on, a step shorter than 0.001 and than 0.0003 of the one before is the last as well: steps shrink
    quadratically, so that 1e-10 standard errors are left, and a relative error of 1e-7 in the covariance. The result
    does not depend on the number of threads.

    ``overlapping`` says that the records are known not to be separable, which is then not asked again.

    Records that do not identify every coefficient, or that are separable, are fitted with a ridge of 1.0 if none was
    asked for: ``rank``, ``separable`` and ``ridge`` of the result say so.

    Reference: McCullagh & Nelder, *Generalized Linear Models*; existence: Albert & Anderson (1984).

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
    unsure = ridge == 0.0 and family.code != LINEAR and not overlapping
    status = run.minimise(first, ridge, _DOUBT if unsure else _MOST_PASSES)
    separated = unsure and not run.overlap(status) and separable(design, family.code)
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
    seen = values > _SINGULAR * m * max(values[-1], 0.0)
    rank = int(seen.sum())
    linear, freedom = run.family.code == LINEAR, sums.weight - rank
    dispersion = 2.0 * sums.loss / freedom if linear and freedom > 0 else 1.0
    covariance = run.scale.map @ (dispersion * _covariance(run.plain, ridge)) @ run.scale.map.T
    if rank < m:
        blind = run.scale.unidentified(vectors[:, ~seen], size)
        covariance[blind, :] = covariance[:, blind] = np.nan
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
        passes=run.passes,
        ridge=ridge,
        separable=separated,
    )


def _covariance(information: Array, ridge: float) -> Array:
    """H^-1 I H^-1 with H = I + ridge, by the kernel's Cholesky, which does not mind columns of different scale."""
    m = len(information)
    factor, inverse, eye = np.zeros((m, m)), np.empty((m, m)), np.eye(m)
    if not newton.cholesky(information + ridge * eye, factor):  # the ridge is lost in rounding
        lift = 1e-12 * m * np.diag(np.diag(information))
        newton.cholesky(information + ridge * eye + lift, factor)
    newton.invert(factor, inverse)
    return np.asarray(inverse - ridge * inverse @ inverse)


def _from_sample(design: Design, family: Family, scale: Scale, ridge: float) -> Array:
    """A start: the fit on the sample, with a ridge so that there is one; itself started from the mean outcome."""
    some = design.on_sample()
    t = np.zeros(scale.map.shape[1])
    if some is None:
        return t
    rows = [(rows.y, rows.w) for rows in some.blocks()]
    y, w = (np.concatenate([row[k] for row in rows]) for k in (0, 1))
    family.check_outcome(y)
    mean = float(np.average(y, weights=w))
    floor = 0.5 / y.size
    if family.code == LOGISTIC:
        t[0] = special.logit(min(max(mean, floor), 1.0 - floor))
    else:
        t[0] = mean if family.code == LINEAR else np.log(max(mean, floor))
    run = Newton(some, family, scale, 0.01)
    return run.theta if run.minimise(t, max(ridge, RIDGE), 50) == newton.CONVERGED else t
