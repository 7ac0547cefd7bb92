"""Exact maximum likelihood over a log of any length: Newton's method, one pass over the rows a step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import special

from hushprice.demand import Family, as_family
from hushprice.errors import Array, HushpriceError, InvalidInput, array, finite
from hushprice.kernels import LINEAR, LOGISTIC, POISSON, newton
from hushprice.kernels import streamed as kernel
from hushprice.logs.ahead import in_order
from hushprice.logs.design import Design, Rows, held_out
from hushprice.logs.separation import separable
from hushprice.logs.source import Batch
from hushprice.logs.survey import Progress

__all__ = ["Design", "Rows", "StreamedFit", "held_out", "stream_fit"]

RIDGE = 1.0  # where the records alone do not decide
_MOST_PASSES = 100
_DOUBT = 10  # passes after which separable records are the likeliest reason
_MANY = 1_000_000  # records from which on a pass that is not needed is spared
_SHARP = 3e-4  # a Newton decrement that falls by this factor in one step; what is left is relative to its square
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
        variance = np.diag(self.covariance)
        return np.sqrt(np.where(np.isnan(variance), np.inf, np.maximum(variance, 0.0)))


def stream_fit(
    design: Design,
    family: Family | str,
    *,
    ridge: float = 0.0,
    start: npt.ArrayLike | None = None,
    tolerance: float = 1e-6,
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

    Records that do not identify every coefficient, or that are separable, are fitted with a ridge of 1.0 if none was
    asked for: ``rank``, ``separable`` and ``ridge`` of the result say so.

    Reference: McCullagh & Nelder, *Generalized Linear Models*; existence: Albert & Anderson (1984).

    >>> from hushprice.logs.survey import survey
    >>> log = {"p": [1.0, 1, 1, 2, 2, 2], "y": [4, 4, 4, 2, 2, 2]}
    >>> fit = stream_fit(Design.of(survey(log, price="p", outcome="y", features=[])), "poisson")
    >>> fit.theta.round(6)  # log 4 = a - b, log 2 = a - 2 b
    array([2.079442, 0.693147])
    """
    family = as_family(family)
    ridge = finite("ridge", ridge, minimum=0.0)
    tolerance = finite("tolerance", tolerance, minimum=0.0, strict=True)
    scale = _Scale.of(design)
    if start is not None:
        first = scale.inner(array("start", start, shape=(2 * design.dim,)))
    else:
        first = _from_sample(design, family, scale, ridge)
    run = _Newton(design, family, scale, tolerance, progress)
    unsure = ridge == 0.0 and family.code != LINEAR
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
    return run.result(ridge, separated)


@dataclass(frozen=True, eq=False)
class _Scale:
    """theta = map t: from coefficients in standard units of price, without those that are not sensitive, to theta."""

    map: Array
    sensitive: npt.NDArray[np.intp]

    @classmethod
    def of(cls, design: Design) -> _Scale:
        d, sensitive = design.dim, np.flatnonzero(np.asarray(design.sensitive))
        matrix = np.zeros((2 * d, d + sensitive.size))
        matrix[:d, :d] = np.eye(d)
        for k, i in enumerate(sensitive):
            matrix[i, d + k] = design.centre / design.spread
            matrix[d + i, d + k] = 1.0 / design.spread
        return cls(matrix, sensitive)

    def inner(self, theta: Array) -> Array:
        """The t of a theta."""
        return np.asarray(np.linalg.lstsq(self.map, theta, rcond=None)[0])

    def split(self, t: Array) -> tuple[Array, Array]:
        """t as (alpha, beta) of length d each, still in standard units."""
        d = self.map.shape[0] // 2
        beta = np.zeros(d)
        beta[self.sensitive] = t[d:]
        return t[:d].copy(), beta

    def information(self, blocks: Array) -> Array:
        """The information of t from the lower triangles of sum h z z', sum h q z z' and sum h q^2 z z'."""
        one, two, three = blocks + np.tril(blocks, -1).transpose(0, 2, 1)
        some = self.sensitive
        return np.block([[one, -two[:, some]], [-two[some], three[np.ix_(some, some)]]])

    def unidentified(self, lost: Array, size: Array) -> npt.NDArray[np.bool_]:
        """Which entries of theta change along directions of t (in units 1 / size) that the records do not see."""
        return np.asarray(np.abs((self.map / size) @ lost).max(axis=1) > 1e-6 * np.abs(self.map / size).max(axis=1))


@dataclass(eq=False)
class _Sums:
    """What a pass adds up."""

    loss: float = 0.0
    smallest: float = np.inf
    records: int = 0
    weight: float = 0.0
    gradient: Array = field(default_factory=lambda: np.zeros(0))
    blocks: Array = field(default_factory=lambda: np.zeros(0))

    def add(self, other: _Sums) -> None:
        self.loss += other.loss
        self.smallest = min(self.smallest, other.smallest)
        self.records += other.records
        self.weight += other.weight
        self.gradient = self.gradient + other.gradient if self.gradient.size else other.gradient
        self.blocks = self.blocks + other.blocks if self.blocks.size else other.blocks


@dataclass(eq=False)
class _Newton:
    """Newton's method over the passes; keeps the point reached and the sums at the last point seen."""

    design: Design
    family: Family
    scale: _Scale
    tolerance: float
    progress: Progress | None = None
    passes: int = 0
    theta: Array = field(init=False)
    decrement: float = np.inf
    sums: _Sums = field(init=False)
    plain: Array = field(init=False)
    constant: float = 0.0

    def minimise(self, start: Array, ridge: float, most: int) -> int:
        """Minimise from a start; the last status of :func:`hushprice.kernels.newton.step`."""
        m = start.size
        theta, trial, direction, factor = start.copy(), start.copy(), np.empty(m), np.zeros((m, m))
        state = np.array([np.inf, 1.0, np.inf])
        status: int = newton.RUNNING
        while status == newton.RUNNING and most > 0:
            most -= 1
            sums = self.sweep(trial)
            gradient = np.concatenate([sums.gradient[0], sums.gradient[1][self.scale.sensitive]])
            self.plain = self.scale.information(sums.blocks)
            shrinking = np.isfinite(state[2]) and state[1] == 1.0 and sums.records >= _MANY
            sharp = min(1e-3, _SHARP * state[2]) if shrinking else 0.0
            status = newton.step(
                sums.loss, ridge, theta, trial, direction, gradient, self.plain.copy(), factor, state,
                max(self.tolerance, sharp),
            )  # fmt: skip
            self.sums, self.theta, self.decrement = sums, theta, float(state[2])
        return status

    def sweep(self, t: Array) -> _Sums:
        """One pass: loss, gradient and information at t, each batch's added in order."""
        self.passes += 1
        total, read = _Sums(), 0
        for sums, rows, constant in in_order(lambda item: self._batch(item, t), self.design.numbered()):
            total.add(sums)
            self.constant += constant
            read += rows
            if self.progress is not None:
                self.progress(f"pass {self.passes}", read)
        if total.records == 0:
            raise InvalidInput(f"{self.design.source.name} has no complete rows in the part {self.design.part!r}.")
        return total

    def _batch(self, item: tuple[Batch, int], t: Array) -> tuple[_Sums, int, float]:
        """The sums over one batch, its rows, and in the first pass the constant of its log-likelihood."""
        design, code, d = self.design, self.family.code, self.design.dim
        batch, _ = design.choose(item)
        y, price = batch.numbers(design.outcome), batch.numbers(design.price)
        w = np.empty(0) if design.weights is None else batch.numbers(design.weights)
        constant = 0.0
        if self.passes == 1:
            self.family.check_outcome(y)
            if code == POISSON:
                each = special.gammaln(y + 1.0)
                constant = float((each * w if w.size else each).sum())
        sums = _Sums(
            records=y.size,
            weight=float(w.sum()) if w.size else float(y.size),
            gradient=np.empty((2, d)),
            blocks=np.empty((3, d, d)),
        )
        sums.loss, sums.smallest = kernel.evaluate(
            code, design.encoding.by_columns(batch), price, design.centre, design.spread, y, w,
            *self.scale.split(t), sums.gradient, sums.blocks,
        )  # fmt: skip
        return sums, item[0].rows, constant

    def overlap(self, status: int) -> bool:
        """Whether the fit proves that the records are not separable.

        Along a separating direction v let a_i = |x_i.v| and r_i = |y_i - psi'_i|, which is at least psi''_i where
        a_i > 0. The squared Newton decrement is at least (g.v)^2 / v'Hv = (sum w r a)^2 / sum w psi'' a^2, and so at
        least sum w r a / max a, and so w psi'' of the record with the largest a. If every w psi'' is larger, there
        is no such v.
        """
        return status == newton.CONVERGED and self.sums.smallest > 4.0 * self.decrement**2

    def result(self, ridge: float, separated: bool) -> StreamedFit:
        """The fit at the point reached."""
        sums, m, d = self.sums, self.theta.size, self.design.dim
        size = np.sqrt(np.where(np.diag(self.plain) > 0.0, np.diag(self.plain), 1.0))
        values, vectors = np.linalg.eigh(self.plain / np.outer(size, size))
        seen = values > _SINGULAR * m * max(values[-1], 0.0)
        rank = int(seen.sum())
        linear, freedom = self.family.code == LINEAR, sums.weight - rank
        dispersion = 2.0 * sums.loss / freedom if linear and freedom > 0 else 1.0
        covariance = self.scale.map @ (dispersion * _covariance(self.plain, ridge)) @ self.scale.map.T
        if rank < m:
            blind = self.scale.unidentified(vectors[:, ~seen], size)
            covariance[blind, :] = covariance[:, blind] = np.nan
            rest = np.concatenate([np.zeros(d, dtype=np.bool_), ~np.asarray(self.design.sensitive)])
            covariance[rest, :] = covariance[:, rest] = 0.0
        loglik = -sums.loss - self.constant
        if linear:
            scaled = max(dispersion, np.finfo(float).tiny)
            loglik = -0.5 * sums.weight * np.log(2.0 * np.pi * scaled) - sums.loss / scaled
        return StreamedFit(
            theta=self.scale.map @ self.theta,
            covariance=covariance,
            loglik=float(loglik),
            dispersion=float(dispersion),
            rank=rank,
            coefficients=m,
            records=sums.records,
            weight=sums.weight,
            passes=self.passes,
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


def _from_sample(design: Design, family: Family, scale: _Scale, ridge: float) -> Array:
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
    run = _Newton(some, family, scale, 0.01)
    return run.theta if run.minimise(t, max(ridge, RIDGE), 50) == newton.CONVERGED else t
