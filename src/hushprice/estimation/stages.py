"""Estimates with confidence widths, in stages that share no record.

Each stage s = 1 .. S has a running estimate theta from its own records. Its design matrix is V = precision of the prior
+ sum of w x x', with w the weight of a record; the class stores a root W of the inverse, V^-1 = W W'. Policies with one
estimate are the case S = 1. The arrays of all stages are stacked and their records share one block of memory, stage
after stage, so that a compiled loop can access every stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.demand import Family
from hushprice.errors import SnapshotError
from hushprice.estimation.prior import Prior
from hushprice.estimation.running import RunningEstimator
from hushprice.kernels import confidence as kernel
from hushprice.kernels.state import StagesState


class StageEstimators:
    """S running estimators, each with a root of its V^-1.

    Parameters
    ----------
    family : Family
        The demand family.
    prior : Prior
        The prior of every stage; V without records is its precision.
    stages : int
        S, at least 1.

    Examples
    --------
    >>> from hushprice.demand import Linear
    >>> stages = StageEstimators(Linear(), prior=Prior.ridge(1, 1.0), stages=2)
    >>> stages.absorb(2, np.array([[1.0]]), np.array([2.0]), np.array([3.0]))
    >>> theta, root = stages.bounds()
    >>> theta
    array([[ 0. ,  0. ],
           [ 0.5, -1. ]])
    >>> np.allclose(root[1] @ root[1].T, np.linalg.inv(np.eye(2) + np.outer([1, -2], [1, -2])))
    True
    """

    def __init__(self, family: Family, *, prior: Prior, stages: int) -> None:
        S, m = stages, prior.centre.size
        self.family, self.prior, self.dim = family, prior, prior.dim
        self._penalty = prior.penalty
        self.theta, self.P, self.anchor = np.empty((S, m)), np.empty((S, m, m)), np.empty((S, 3, m))
        self.counts, self.pace = np.empty((S, 4), dtype=np.int64), np.empty((S, 5))
        self.root = np.tile(prior.root, (S, 1, 1))
        self.inside = np.zeros(S, dtype=np.int64)  # records in V
        self.members = tuple(RunningEstimator(family, prior=prior) for _ in range(S))
        for s, member in enumerate(self.members):
            member.move(self.theta[s], self.P[s], self.counts[s], self.pace[s], self.anchor[s])
        self.x, self.y, self.weight = np.empty((0, m)), np.empty(0), np.ones(0)
        self.start = np.zeros(S + 1, dtype=np.int64)
        self.reserve(0)

    @property
    def records(self) -> list[int]:
        """Number of records per stage."""
        return [member.records for member in self.members]

    def absorb(self, stage: int, z: Array, price: Array, y: Array) -> None:
        """Add records to a stage, counted from 1.

        Parameters
        ----------
        stage : int
            The stage.
        z : ndarray
            Contexts, one per row.
        price, y : ndarray
            Prices and outcomes, one per context.
        """
        self.members[stage - 1].absorb(z, price, y)

    def reserve(self, more: int) -> None:
        """Allocate room for this many more records per stage, all in one block.

        Parameters
        ----------
        more : int
            Number of records.
        """
        if all(len(e.y) >= e.records + more and e.x.base is self.x for e in self.members):
            return
        room = [max(e.records + more, 2 * e.records, 64) for e in self.members]
        self.start = np.concatenate([[0], np.cumsum(room)]).astype(np.int64)
        self.x, self.y, self.weight = np.empty((sum(room), 2 * self.dim)), np.empty(sum(room)), np.ones(sum(room))
        for s, e in enumerate(self.members):
            rows = slice(int(self.start[s]), int(self.start[s + 1]))
            e.move_records(self.x[rows], self.y[rows], self.weight[rows])

    def reweigh(self, stage: int, weights: npt.ArrayLike) -> None:
        """Replace the weights of all records of a stage, counted from 1, in its estimate and its V.

        See :meth:`RunningEstimator.reweigh`, which by itself does not change V.

        Parameters
        ----------
        stage : int
            The stage.
        weights : array_like
            One weight per record of the stage.
        """
        self.members[stage - 1].reweigh(weights)
        self.root[stage - 1], self.inside[stage - 1] = self.prior.root, 0

    def forget(self, half_life: float) -> None:
        """Halve the weight of a record per ``half_life`` later records of its stage, once, in the estimates and in V.

        Parameters
        ----------
        half_life : float
            Age in records, above 0.
        """
        for s, member in enumerate(self.members):
            member.forget(half_life)
            self.root[s], self.inside[s] = self.prior.root, 0

    def arrays(self) -> StagesState:
        """The state as kernels take it."""
        return StagesState(
            self.family.code, self._penalty, self.x, self.y, self.weight, self.start, self.theta, self.P, self.counts,
            self.pace, self.anchor, self.root, self.inside,
        )  # fmt: skip

    def bounds(self) -> tuple[Array, Array]:
        """(theta, root of V^-1) of all stages, from all records."""
        self.reserve(0)
        work, state = np.empty(4 * self.dim), self.arrays()
        for s in range(len(self.members)):
            kernel.catch_up(state, s, work)
        return self.theta.copy(), self.root.copy()

    def state(self) -> dict[str, Any]:
        """The whole state as plain data."""
        stages = {str(s + 1): member.state() for s, member in enumerate(self.members)}
        return {"stages": stages, "root": self.root, "inside": self.inside}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the state by one that :meth:`state` returned; SnapshotError if it is malformed.

        Parameters
        ----------
        state : mapping
            The state.
        """
        for key, own in (("root", self.root), ("inside", self.inside)):
            value = state.get(key)
            if (
                not isinstance(value, np.ndarray)
                or (value.dtype, value.shape) != (own.dtype, own.shape)
                or not np.isfinite(value).all()
            ):
                raise SnapshotError(f"The snapshot lacks a usable {key!r}.")
        stages = state.get("stages")
        if not isinstance(stages, dict) or set(stages) != {str(s + 1) for s in range(len(self.members))}:
            raise SnapshotError("The snapshot does not hold the stages of this policy.")
        for s, member in enumerate(self.members):
            member.restore(stages[str(s + 1)])
            if not 0 <= state["inside"][s] <= member.records:
                raise SnapshotError("The snapshot's design matrix holds more records than there are.")
        self.root[:], self.inside[:] = state["root"], state["inside"]
