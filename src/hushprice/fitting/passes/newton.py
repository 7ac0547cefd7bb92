"""Newton's method over a log: each step is one pass, which accumulates sums batch by batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.demand import Family
from hushprice.errors import InvalidInput
from hushprice.fitting.passes.design import Design
from hushprice.fitting.passes.survey import OnProgress
from hushprice.fitting.reading.ordered_map import in_order
from hushprice.fitting.reading.source import Batch
from hushprice.kernels import newton
from hushprice.kernels import streamed as kernel
from hushprice.kernels.state import StreamedRows, ridge_penalty

_MANY = 1_000_000  # number of records from which an unnecessary last pass is skipped
_SHARP = 3e-4  # ratio of successive Newton decrements below which the remaining error is of the order of its square


@dataclass(frozen=True, eq=False)
class Scale:
    """theta = map t, where t holds coefficients in standard units of price, without those that are not sensitive."""

    map: Array
    sensitive: npt.NDArray[np.intp]

    @classmethod
    def of(cls, design: Design) -> Scale:
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
        index = self.sensitive
        return np.block([[one, -two[:, index]], [-two[index], three[np.ix_(index, index)]]])

    def unidentified(self, null: Array, size: Array) -> npt.NDArray[np.bool_]:
        """Mask of the entries of theta that the null directions of t (in units 1 / size) change."""
        return np.asarray(np.abs((self.map / size) @ null).max(axis=1) > 1e-6 * np.abs(self.map / size).max(axis=1))


@dataclass(eq=False)
class Sums:
    """The sums of a pass."""

    loss: float = 0.0
    smallest: float = np.inf
    records: int = 0
    weight: float = 0.0
    gradient: Array = field(default_factory=lambda: np.zeros(0))
    blocks: Array = field(default_factory=lambda: np.zeros(0))

    def add(self, other: Sums) -> None:
        self.loss += other.loss
        self.smallest = min(self.smallest, other.smallest)
        self.records += other.records
        self.weight += other.weight
        self.gradient = self.gradient + other.gradient if self.gradient.size else other.gradient
        self.blocks = self.blocks + other.blocks if self.blocks.size else other.blocks


@dataclass(eq=False)
class Newton:
    """Newton's method over the passes; stores the current point and the sums at the last point evaluated."""

    design: Design
    family: Family
    scale: Scale
    tolerance: float
    progress: OnProgress | None = None
    passes: int = 0
    theta: Array = field(init=False)
    decrement: float = np.inf
    sums: Sums = field(init=False)
    plain: Array = field(init=False)
    constant: float = 0.0

    def minimise(self, start: Array, ridge: float, most: int) -> int:
        """Minimise from a start; returns the last status of :func:`hushprice.kernels.newton.step`."""
        m, penalty = start.size, ridge_penalty(ridge)
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
                sums.loss, penalty, theta, trial, direction, gradient, self.plain.copy(), factor, state,
                max(self.tolerance, sharp),
            )  # fmt: skip
            self.sums, self.theta, self.decrement = sums, theta, float(state[2])
        return status

    def sweep(self, t: Array, *, power: int = 1) -> Sums:
        """One pass: loss, gradient and information at t, added batch by batch in order.

        The discount of old rows, if there is one, is taken to ``power``.
        """
        self.passes += 1
        total, read = Sums(), 0
        for sums, rows, constant in in_order(lambda item: self._batch(item, t, power), self.design.numbered()):
            total.add(sums)
            self.constant += constant
            read += rows
            if self.progress is not None:
                self.progress(f"pass {self.passes}", read)
        if total.records == 0:
            raise InvalidInput(f"{self.design.source.name} has no complete rows in the part {self.design.part!r}.")
        return total

    def _batch(self, item: tuple[Batch, int], t: Array, power: int) -> tuple[Sums, int, float]:
        """The sums over one batch, its rows, and in the first pass the constant of its log-likelihood."""
        design, code, d = self.design, self.family.code, self.design.dim
        batch, number = design.choose(item)
        y, price = batch.numbers(design.outcome), batch.numbers(design.price)
        w = design.weigh(batch, number, power=power)
        constant = 0.0
        if self.passes == 1:
            self.family.check_outcome(y)
            each = self.family.omitted(y)
            if each is not None:
                constant = float((each * w if w.size else each).sum())
        sums = Sums(
            records=y.size,
            weight=float(w.sum()) if w.size else float(y.size),
            gradient=np.empty((2, d)),
            blocks=np.empty((3, d, d)),
        )
        sums.loss, sums.smallest = kernel.evaluate(
            code, StreamedRows(design.encoding.by_columns(batch), price, y, w), design.centre, design.spread,
            *self.scale.split(t), sums.gradient, sums.blocks,
        )  # fmt: skip
        return sums, item[0].rows, constant

    def overlap(self, status: int) -> bool:
        """Whether the fit proves that the records are not separable.

        Along a separating direction v let a_i = |x_i.v| and r_i = |y_i - psi'_i|, which is at least psi''_i where
        a_i > 0. The squared Newton decrement is at least (g.v)^2 / v'Hv = (sum w r a)^2 / sum w psi'' a^2, and so at
        least sum w r a / max a, and so w psi'' of the record with the largest a. If every w psi'' is larger, there
        is no such v. Where the family is not canonical, r_i can be smaller than the curvature, and nothing is proved.
        """
        proves = self.family.canonical and status == newton.CONVERGED
        return proves and self.sums.smallest > 4.0 * self.decrement**2
