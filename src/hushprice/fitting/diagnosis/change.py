"""Whether demand changed in the course of a log: the fluctuation of the scores at the fitted theta.

Let s_i be the score of row i at the estimate, W_k the sum of the scores of the first k blocks of rows, H_k their
information, H = H_K and J the sum of w s s' over all rows. At the estimate

    B_k = W_k - H_k H^-1 W_K        has mean 0 and, if demand never changed and the model is right (J = H),
                                    Cov(B_m, B_k) = H_m - H_m H^-1 H_k,  m <= k.

For a direction c with c'Jc = 1 let g_k = c'H_k c. A Brownian bridge at the times g_k has the covariance
g_m - g_m g_k, and this minus that of c'B is c'H_m (H^-1 - c c') H_k c, again a covariance. So the bridge is c'B plus
something independent, and by Anderson's inequality sup |c'B| is, in distribution, at most the sup of a bridge,

    P(sup |bridge| > x) = 2 sum_j (-1)^(j+1) exp(-2 j^2 x^2),

however prices and customers changed over time. This is the fluctuation test of Zeileis & Hornik (2007) with the
double maximum over the m directions of J^(-1/2) and two more, the demand and the price sensitivity of the average
customer; the p-value is m + 2 times that of the largest (Bonferroni). J is that of the scores and not the
information, so that counts which vary more than Poisson ones do not look like a change.

The scores are those of all rows. H_k comes from ten parts of the log and J from all of it, by a fixed choice of rows
if the log is long. What changed is told by the fluctuation of e_j' H^-1 B, whose mean after a change of theta by
delta is proportional to delta_j.

Sizes before and after are one Newton step from the fit of all rows. That is wrong where the change is large, so that
they give way to fits of the rows before and after if a change is found and both can be fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import kolmogorov

from hushprice.arrays import Array
from hushprice.demand import Family
from hushprice.fitting.diagnosis.report import Constancy, Side, utility
from hushprice.fitting.passes.design import Design, Rows
from hushprice.fitting.passes.newton import Scale
from hushprice.kernels import streamed as kernel
from hushprice.kernels.glm import LINEAR
from hushprice.kernels.state import StreamedRows

LOG_PARTS = 10  # consecutive parts of the log whose information, and whose demand, is told apart
BLOCKS_PER_PART = 10  # blocks of rows of a part, at most
ROWS_PER_BLOCK = 20  # fewest rows of a block, if there are several in a part
WINDOW = 3.0  # half-lives in which changes are looked for, if there is a half-life
INFORMATION_ROWS = 65_536  # most rows that informations are summed over, as long as these times the coefficients are
INFORMATION_WORK = 1_310_720  # no more than this; but never fewer rows than
INFORMATION_LEAST = 60  # per coefficient
OWN_LEVEL = 0.05  # level at which a coefficient's own fluctuation is told, over all coefficients
NAMED_CHANGES = 5  # most coefficients that are named
HASH_PURPOSE = 3  # of the hash of row numbers; 0, 1 and 2 are used elsewhere


@dataclass(frozen=True, kw_only=True)
class Window:
    """The rows in which changes are looked for: the last ``rows`` of a log, from row ``first`` on, in blocks."""

    first: int
    rows: int
    blocks: int
    spacing: int

    @classmethod
    def of(cls, rows: int, coefficients: int, half_life: float | None) -> Window:
        """All rows of a log, or the last three half-lives of them."""
        length = rows if half_life is None else max(1, min(rows, int(np.ceil(WINDOW * half_life))))
        each = max(1, min(BLOCKS_PER_PART, length // (LOG_PARTS * ROWS_PER_BLOCK)))
        most = max(INFORMATION_LEAST * coefficients, min(INFORMATION_ROWS, INFORMATION_WORK // coefficients))
        spacing = -(-length // most)
        return cls(first=rows - length, rows=length, blocks=LOG_PARTS * each, spacing=spacing)

    def block(self, number: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The block of each row."""
        return (number - self.first) * self.blocks // self.rows


@dataclass(eq=False)
class ChangeSums:
    """Sums over a log at t = ``start`` in standard units: scores of all rows by blocks, informations of some rows."""

    design: Design
    family: Family
    theta: Array
    window: Window
    scale: Scale
    start: Array
    scores: Array = field(init=False)  # (blocks, 2, d)
    parts: dict[int, Array] = field(init=False, default_factory=dict)  # (3, d, d) of each part, as of a Newton step
    outer: Array = field(init=False)  # the same of J
    rows: Array = field(init=False)  # rows of each part
    used: Array = field(init=False)  # those that informations are summed over

    def __post_init__(self) -> None:
        d = self.design.dim
        self.scores, self.outer = np.zeros((self.window.blocks, 2, d)), np.zeros((3, d, d))
        self.rows, self.used = np.zeros(LOG_PARTS), np.zeros(LOG_PARTS)

    @classmethod
    def of(cls, design: Design, family: Family, theta: Array, window: Window) -> ChangeSums:
        """Sums at theta, over no rows yet."""
        scale = Scale.of(design)
        return cls(design, family, theta, window, scale, scale.inner(theta))

    def empty(self) -> ChangeSums:
        """Sums of the same kind over no rows."""
        return ChangeSums(self.design, self.family, self.theta, self.window, self.scale, self.start)

    def add(self, rows: Rows) -> None:
        """Add rows, in the order of the log; their discounts do not count."""
        inside = slice(int(np.searchsorted(rows.number, self.window.first)), None)
        z, price, y, w, number = (getattr(rows, name)[inside] for name in ("z", "price", "y", "own", "number"))
        if not len(y):
            return
        a, b = utility(z, self.theta)
        residual = self.family.residual(a - b * price, y)
        q = (price - self.design.centre) / self.design.spread
        pull = np.array([w * residual, -w * residual * q])
        block = self.window.block(number)
        for first, last in _runs(block):
            self.scores[block[first]] += np.einsum("ki,ij->kj", pull[:, first:last], z[first:last])
        chosen = np.flatnonzero(kernel.row_hash(number, HASH_PURPOSE) % np.uint64(self.window.spacing) == 0)
        part = block * LOG_PARTS // self.window.blocks
        self.rows += np.bincount(part, minlength=LOG_PARTS)
        self.used += np.bincount(part[chosen], minlength=LOG_PARTS)
        for first, last in _runs(part[chosen]):
            some = chosen[first:last]
            sums = self._information(self.family.code, z[some], price[some], y[some], w[some])
            k = int(part[some[0]])
            self.parts[k] = self.parts[k] + sums if k in self.parts else sums
            self.outer += self._information(LINEAR, z[some], price[some], y[some], w[some] * residual[some] ** 2)

    def _information(self, code: int, z: Array, price: Array, y: Array, w: Array) -> Array:
        """The blocks of a Newton step; those of linear demand are weighted squares of x."""
        n, d = z.shape
        columns = np.zeros((d, -(-n // kernel.TILE) * kernel.TILE))
        columns[:, :n] = z.T
        gradient, blocks = np.empty((2, d)), np.empty((3, d, d))
        kernel.evaluate(
            code, StreamedRows(columns, price, y, w), self.design.centre, self.design.spread,
            *self.scale.split(self.start), gradient, blocks,
        )  # fmt: skip
        return blocks

    def merge(self, other: ChangeSums) -> None:
        """Add the sums over other rows."""
        self.scores += other.scores
        self.outer += other.outer
        self.rows += other.rows
        self.used += other.used
        for k, sums in other.parts.items():
            self.parts[k] = self.parts[k] + sums if k in self.parts else sums

    def finish(self) -> Course | None:
        """Scores and informations in standard units; None if they do not identify every coefficient."""
        scale = self.scale
        scores = np.hstack([self.scores[:, 0], self.scores[:, 1][:, scale.sensitive]])
        parts = np.zeros((LOG_PARTS, scores.shape[1], scores.shape[1]))
        for k, sums in self.parts.items():
            parts[k] = scale.information(sums * (self.rows[k] / self.used[k]))
        outer = scale.information(self.outer * (self.rows.sum() / max(self.used.sum(), 1.0)))
        total = parts.sum(axis=0)
        for matrix in (total, outer):
            size = np.sqrt(np.diag(matrix))
            if not (size > 0.0).all() or np.linalg.eigvalsh(matrix / np.outer(size, size))[0] < 1e-9:
                return None
        rows = float(self.rows.sum())
        return Course(scale=scale, start=self.start, scores=scores, parts=parts, outer=outer, rows=rows)


def _runs(values: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """First and last (exclusive) place of each run of equal values."""
    ends = np.flatnonzero(np.r_[values[1:] != values[:-1], True]) + 1 if len(values) else np.zeros(0, dtype=np.int64)
    return list(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=False))


@dataclass(frozen=True, kw_only=True, eq=False)
class Course:
    """The course of demand over a log, in standard units of price: scores (blocks, m) at t = ``start``, informations.

    ``parts`` (10, m, m) are the informations of the parts, ``outer`` (m, m) is the sum of w s s', over so many rows.
    """

    scale: Scale
    start: Array
    scores: Array
    parts: Array
    outer: Array
    rows: float

    @property
    def dim(self) -> int:
        return len(self.scale.map) // 2

    @cached_property
    def information(self) -> Array:
        return np.asarray(self.parts.sum(axis=0))

    @cached_property
    def process(self) -> Array:
        """B, (blocks, m)."""
        way = np.linalg.solve(self.information, self.scores.sum(axis=0))
        ends = np.concatenate([np.zeros((1, len(way))), np.cumsum(self.parts @ way, axis=0)])
        places = np.arange(1, len(self.scores) + 1) * LOG_PARTS / len(self.scores)
        drift = np.array([np.interp(places, np.arange(LOG_PARTS + 1), column) for column in ends.T]).T
        return np.asarray(np.cumsum(self.scores, axis=0) - drift)

    def fluctuation(self, directions: Array) -> Array:
        """The sizes of c'B for the rows c of ``directions``, made to c'Jc = 1: (blocks, directions)."""
        size = np.sqrt(np.einsum("ij,jk,ik->i", directions, self.outer, directions, optimize=True))
        return np.asarray(np.abs(self.process @ (directions / size[:, None]).T))

    def average(self, mean: Array) -> Array:
        """The directions of the average customer's demand at the mean price, and of their price sensitivity."""
        aims = np.zeros((2, len(self.start)))
        aims[0, : self.dim], aims[1, self.dim :] = mean, mean[self.scale.sensitive]
        return np.asarray(np.linalg.solve(self.information, aims.T).T)

    def moved(self) -> npt.NDArray[np.intp]:
        """The coefficients whose own fluctuation is significant, the most certain first; at least one."""
        p = self.own_pvalues
        order = np.argsort(p, kind="stable")
        return np.asarray(order[: max(1, int(np.count_nonzero(p[order] * len(p) < OWN_LEVEL)))])

    @cached_property
    def own_pvalues(self) -> Array:
        """The p-value of each coefficient's own fluctuation."""
        return np.asarray(kolmogorov(self.fluctuation(np.asarray(np.linalg.inv(self.information))).max(axis=0)))

    def estimate(self, first: int, last: int) -> Array:
        """theta of some blocks, one Newton step from the fit, held to it by as much as one row a coefficient tells."""
        ends = [np.clip(end * LOG_PARTS / len(self.scores) - np.arange(LOG_PARTS), 0.0, 1.0) for end in (first, last)]
        own = np.einsum("s,sij->ij", ends[1] - ends[0], self.parts)
        hold = self.information * min(len(self.start) / self.rows, (last - first) / len(self.scores))
        step = np.linalg.solve(own + hold, self.scores[first:last].sum(axis=0))
        return np.asarray(self.scale.map @ (self.start + step))


def constancy(
    course: Course,
    names: Sequence[str],
    family: Family,
    mean: Array,
    window: Window,
    centre: float,
    prices: tuple[float, float],
) -> Constancy:
    """The test that demand did not change, and what it was before and after the most likely moment of a change.

    ``mean`` is the context of the average customer and ``centre`` the mean price.
    """
    size = np.sqrt(np.diag(course.outer))
    values, vectors = np.linalg.eigh(course.outer / np.outer(size, size))
    root = (vectors / np.sqrt(values)) @ vectors.T / size
    average = course.average(mean) if np.asarray(course.scale.sensitive).size else course.average(mean)[:1]
    sizes = course.fluctuation(np.vstack([root, average]))
    largest = sizes.max(axis=0)
    p = min(1.0, sizes.shape[1] * float(kolmogorov(largest.max())))
    k = int(np.argmax(sizes[:-1, int(np.argmax(largest))])) + 1
    before, after, loss = _sizes(course.estimate(0, k), course.estimate(k, len(sizes)), family, mean, centre, prices)
    return Constancy(
        p_value=p,
        first=window.first,
        row=window.first + round(k * window.rows / window.blocks),
        rows=window.first + window.rows,
        what=_names(course, names, average),
        mean_price=centre,
        before=before,
        after=after,
        loss=loss,
    )


def refitted(
    tested: Constancy, thetas: Sequence[Array], family: Family, mean: Array, prices: tuple[float, float]
) -> Constancy:
    """The test with the sizes of the change from theta of the rows before and after it."""
    before, after, loss = _sizes(thetas[0], thetas[1], family, mean, tested.mean_price, prices)
    return replace(tested, before=before, after=after, loss=loss)


def _sizes(
    first: Array, last: Array, family: Family, mean: Array, centre: float, prices: tuple[float, float]
) -> tuple[Side, Side, float]:
    """The average customer before and after, and the share of revenue that the best price from before loses."""
    before, after = (_side(theta, family, mean, centre, prices) for theta in (first, last))
    stale = _revenue(last, family, mean, np.array([before.best_price, after.best_price]))
    return before, after, float(1.0 - stale[0] / stale[1]) if stale[1] > 0.0 else 0.0


def _side(theta: Array, family: Family, mean: Array, centre: float, prices: tuple[float, float]) -> Side:
    """The average customer under theta."""
    a, b = float(mean @ theta[: len(mean)]), float(mean @ theta[len(mean) :])
    best = float(family.optimal_price(a, b, prices)) if prices[0] < prices[1] else prices[0]
    return Side(demand=float(family.mean(a - b * centre)), sensitivity=b, best_price=best)


def _revenue(theta: Array, family: Family, mean: Array, prices: Array) -> Array:
    """Revenue of the average customer at some prices."""
    a, b = float(mean @ theta[: len(mean)]), float(mean @ theta[len(mean) :])
    return np.asarray(prices * family.mean(a - b * prices))


def _names(course: Course, names: Sequence[str], average: Array) -> tuple[str, ...]:
    """What changed, in words, the most certain first."""
    d = course.dim
    words = ["demand at the mean price" if n == "1" else f"the effect of {n} on demand" for n in names]
    sensitive = [names[i] for i in course.scale.sensitive]
    words += ["the price sensitivity" if n == "1" else f"the effect of {n} on the price sensitivity" for n in sensitive]
    p = kolmogorov(course.fluctuation(average).max(axis=0))
    own = course.own_pvalues.copy()
    for k, j in enumerate((0, d)[: len(p)]):  # the average customer's stand for those of everyone, whichever is surer
        own[j] = min(own[j], p[k])
    order = np.argsort(own, kind="stable")
    sure = int(np.count_nonzero(own[order] * (len(own) + 2) < OWN_LEVEL))
    return tuple(words[j] for j in order[: min(max(1, sure), NAMED_CHANGES)])
