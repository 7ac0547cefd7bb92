"""Whether records are separable, in bounded memory, by cutting planes.

The likelihood has no maximum if and only if it never falls and somewhere rises along some direction v: with
``Family.signs``, sign x.v >= 0 for all records, x.v = 0 where the sign is 0, and not all zero (Albert & Anderson
1984). Let s be the signed rows, so that s.v >= 0, and g the sum of those that may be positive. A linear program
searches for v:

    max g.v   over |v_j| <= 1   with s.v >= 0 for a working set of records.

If the maximum is 0, no direction separates the working set, and so none separates all records. Otherwise a pass over
the rows finds records with s.v < 0; the worst join the working set. If there are none, v separates the records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from hushprice.arrays import Array
from hushprice.demand import Family
from hushprice.fitting.passes.design import Design, Rows
from hushprice.fitting.reading.ordered_map import in_order
from hushprice.fitting.reading.source import Batch

_ROUNDS = 60  # of the linear program over one set of rows
_WORST = 100  # most records per batch that join the working set
_JOIN = 2_000  # most records per pass
_ZERO = 1e-7  # a mean margin or a cosine that is 0 within the tolerance of the linear program


def separable(design: Design, family: Family) -> bool:
    """Whether a direction separates the outcomes without error; first on the sample, then on all rows."""
    signs = _Signs.of(design, family)
    working = worst = np.zeros((0, signs.aim.size))
    for stage in filter(None, (design.on_sample(), design)):
        for _ in range(_ROUNDS):
            v = _direction(signs.aim, working)
            if v is None:
                return False
            worst = _contradictions(stage, signs, v)
            if not len(worst):
                break
            working = np.vstack([working, worst])
    return not len(worst)


@dataclass(frozen=True, eq=False)
class _Signs:
    """How records become signed rows: the family, the scale of the columns, and g per record (``aim``)."""

    design: Design
    family: Family
    scale: Array
    aim: Array

    @classmethod
    def of(cls, design: Design, family: Family) -> _Signs:
        one = cls(design, family, np.ones(1), np.zeros(0))
        count, total, squares = 0, np.zeros(1), np.zeros(1)

        def sums(item: tuple[Batch, int]) -> tuple[int, Array, Array]:
            rows = design.encode(item)
            x = one.columns(rows)
            return rows.y.size, family.signs(rows.y) @ x, np.einsum("ij,ij->j", x, x)

        for n, signed, square in in_order(sums, design.numbered()):
            count, total, squares = count + n, total + signed, squares + square
        scale = np.sqrt(np.where(squares > 0.0, squares, 1.0) / max(count, 1))
        return cls(design, family, scale, total / scale / max(count, 1))

    def columns(self, rows: Rows) -> Array:
        """x = (z, -q z) with the sensitive entries only, each column on the scale of its root mean square."""
        q = (rows.price - self.design.centre) / self.design.spread
        x = np.hstack([rows.z, -q[:, None] * rows.z[:, self.design.sensitive]])
        return np.asarray(x / self.scale)


def _direction(aim: Array, working: Array) -> Array | None:
    """The v of the linear program; None if its maximum is 0."""
    result = scipy.optimize.linprog(
        -aim,
        A_ub=-working if len(working) else None,
        b_ub=np.zeros(len(working)) if len(working) else None,
        bounds=(-1, 1),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
    )
    v = np.asarray(result.x if result.status == 0 else 0.0 * aim, dtype=np.float64)
    return v if aim @ v > _ZERO else None


def _contradictions(design: Design, signs: _Signs, v: Array) -> Array:
    """Signed rows of length 1 with s.v < 0: the worst of each batch, and the worst of these."""

    def worst(item: tuple[Batch, int]) -> tuple[Array, Array]:
        rows = design.encode(item)
        x = signs.columns(rows)
        length = np.sqrt(np.einsum("ij,ij->i", x, x))  # at least that of the intercept
        cosine = x @ v / length
        sign = signs.family.signs(rows.y)
        sign = np.where(sign == 0.0, -np.sign(cosine), sign)  # x.v = 0 is contradicted on either side
        margin = sign * cosine
        some = np.argsort(margin, kind="stable")[:_WORST]
        some = some[margin[some] < -_ZERO]
        return margin[some], x[some] * (sign[some] / length[some])[:, None]

    margins, rows = np.zeros(0), np.zeros((0, v.size))
    for margin, some in in_order(worst, design.numbered()):
        if margin.size:  # limits memory
            margins, rows = np.concatenate([margins, margin]), np.vstack([rows, some])
            order = np.argsort(margins, kind="stable")[:_JOIN]
            margins, rows = margins[order], rows[order]
    return rows
