"""The running estimator: the ridge MLE of a growing set of records, kept up at O(m^2) a record.

Between exact refits each record is taken in by one rank-one step: an exact step for its own loss plus a quadratic
model of all the others. Exact refits come on a geometric schedule, at the latest after 25% more records; every refit
measures the drift it removes and the schedule adapts to it.

**Bound.** With H the penalised information, ``|theta - MLE|_H <= DRIFT_BOUND = 0.2``: the running estimate of any
linear function of theta (a customer's utility at any price, say) is within a fifth of that function's own standard
error of the exact one. It is kept by watching the second-order error of the steps since the last refit, at most
``1/2 max_i |x_i.way| |way|_H`` with ``way`` the distance gone since; when that passes 0.15 an exact refit comes at
once. (The maximum is taken over the contexts that arrived since the refit, the largest context so far and all prices on
record, not over every record, so the bound is tested rather than proved.) In stationary markets the drift found is
below a fifth of the bound; for linear demand the steps are exact. The first 200 records are always fitted exactly.

In floating point this needs features in ordinary units: the information must not exceed the ridge by more than about
1e12, say |x|^2 n / ridge <= 1e12. Beyond that nothing breaks, but the bound is not kept: standardise the features, or
raise the ridge.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import Family
from hushprice.errors import SnapshotError
from hushprice.estimation.prior import Prior
from hushprice.kernels import newton, running
from hushprice.kernels.state import EstimatorState

DRIFT_BOUND = 0.2


class RunningEstimator:
    """Penalised MLE of all records absorbed so far, re-estimated on demand.

    It minimises the loss of the records plus the prior's 1/2 (theta - centre)' precision (theta - centre).

    Parameters
    ----------
    family : Family
        The demand family.
    prior : Prior
        Where theta is expected before any record; ``Prior.ridge`` for a ridge.

    Examples
    --------
    >>> from hushprice.demand import Logistic
    >>> estimator = RunningEstimator(Logistic(), prior=Prior.ridge(1, 1.0))
    >>> estimator.absorb(np.array([[1.0]]), np.array([2.0]), np.array([0.0]))
    >>> estimator.theta().round(3)
    array([-0.236,  0.471])
    """

    def __init__(self, family: Family, *, prior: Prior) -> None:
        m = prior.centre.size
        self.family, self.prior, self.dim = family, prior, prior.dim
        self._penalty = prior.penalty
        self.x, self.y = np.empty((64, m)), np.empty(64)
        self._theta, self.P = prior.centre.copy(), prior.covariance
        self.counts = np.zeros(4, dtype=np.int64)
        self.pace = np.array([running.START_GROWTH, 0.0, 0.0, np.inf, -np.inf])
        self.anchor = np.zeros((3, m))
        self.anchor[0] = prior.centre
        self._ahead: RunningEstimator | None = None  # see estimate

    def move(self, theta: Array, P: Array, counts: Any, pace: Array, anchor: Array) -> None:
        """Keep the state in these arrays from now on (one row each of a stack of estimators)."""
        mine = (self._theta, self.P, self.counts, self.pace, self.anchor)
        for old, new in zip(mine, (theta, P, counts, pace, anchor), strict=True):
            new[...] = old
        self._theta, self.P, self.counts, self.pace, self.anchor = theta, P, counts, pace, anchor

    @property
    def records(self) -> int:
        """Records held."""
        return int(self.counts[running.HELD])

    @property
    def refits(self) -> int:
        """Exact refits so far."""
        return int(self.counts[running.REFITS])

    def reserve(self, more: int) -> None:
        """Make room for so many more records."""
        need = self.records + more
        if need > len(self.y):
            capacity = max(need, 2 * len(self.y))
            x, y = np.empty((capacity, self.x.shape[1])), np.empty(capacity)
            x[: self.records], y[: self.records] = self.x[: self.records], self.y[: self.records]
            self.x, self.y = x, y

    def absorb(self, z: Array, price: Array, y: Array) -> None:
        """Add records; the estimate follows when :meth:`theta` is next asked for."""
        self.reserve(len(y))
        n = self.records
        rows = slice(n, n + len(y))
        self.x[rows, : self.dim] = z
        np.multiply(-price[:, None], z, out=self.x[rows, self.dim :])
        self.y[rows] = y
        self.pace[running.LOWEST] = min(self.pace[running.LOWEST], price.min(initial=np.inf))
        self.pace[running.HIGHEST] = max(self.pace[running.HIGHEST], price.max(initial=-np.inf))
        self.counts[running.HELD] += len(y)

    def arrays(self) -> EstimatorState:
        """The state as the kernels take it."""
        return EstimatorState(
            self.family.code, self._penalty, self.x, self.y, self._theta, self.P, self.counts, self.pace, self.anchor
        )

    def theta(self) -> Array:
        """The estimate from all records held."""
        running.update(self.arrays())
        return self._theta.copy()

    @property
    def published(self) -> Array:
        """The estimate as last asked for, without the records that came since."""
        return self._theta.copy()

    def estimate(self) -> tuple[Array, Array]:
        """The estimate as last asked for, and its covariance. The state stays as it is.

        If :meth:`theta` was never called, the records are fitted by a copy, which is kept until there are more.

        Returns
        -------
        theta : ndarray of shape (2 d,)
        covariance : ndarray of shape (2 d, 2 d)

        Examples
        --------
        >>> from hushprice.demand import Linear
        >>> estimator = RunningEstimator(Linear(), prior=Prior.ridge(1, 1.0))
        >>> estimator.absorb(np.array([[1.0]]), np.array([2.0]), np.array([3.0]))
        >>> estimator.estimate()[0], estimator.published
        (array([ 0.5, -1. ]), array([0., 0.]))
        """
        source = self
        if not self.records or self.counts[running.USED]:
            self._ahead = None
        elif self._ahead is None or self._ahead.records != self.records:
            self._ahead = None
            self._ahead = copy.deepcopy(self)
            self._ahead.theta()
        if self._ahead is not None:
            source = self._ahead
        return source.published, self.family.scale**2 * source.P

    def exact(self) -> tuple[Array, Array]:
        """(theta, penalised information) of a fresh exact fit of the same records; changes nothing."""
        n, m = self.records, 2 * self.dim
        theta, information, no_weights = np.zeros(m), np.empty((m, m)), np.empty(0)
        newton.newton(
            self.family.code, self.x[:n], self.y[:n], no_weights, self._penalty, theta, information, 1e-8, 500
        )
        return theta, np.tril(information) + np.tril(information, -1).T

    def drift(self) -> float:
        """Distance of the running estimate from the exact one, in standard errors; at most DRIFT_BOUND."""
        exact, information = self.exact()
        gap = self.theta() - exact
        return float(np.sqrt(gap @ information @ gap))

    def state(self) -> dict[str, Any]:
        """The whole state as plain data."""
        n = self.records
        return {
            "x": self.x[:n],
            "y": self.y[:n],
            "theta": self._theta,
            "P": self.P,
            "counts": self.counts,
            "pace": self.pace,
            "anchor": self.anchor,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state given by :meth:`state`, if it is one."""
        own = self.state()
        for key, mine in own.items():
            theirs = state.get(key)
            rows_free = key in ("x", "y")
            if (
                not isinstance(theirs, np.ndarray)
                or theirs.dtype != mine.dtype
                or theirs.ndim != mine.ndim
                or theirs.shape[rows_free:] != mine.shape[rows_free:]
                or (key != "pace" and not np.isfinite(theirs).all())
            ):
                raise SnapshotError(f"The snapshot's estimator lacks a usable {key!r}.")
        held, used, fitted, refits = (int(n) for n in state["counts"])
        if not (0 <= fitted <= used <= held == len(state["x"]) == len(state["y"]) and refits >= 0):
            raise SnapshotError("The snapshot's estimator does not hold the number of records it says.")
        if np.isnan(state["pace"]).any() or not 0.0 < state["pace"][running.GROWTH] <= running.MAX_GROWTH:
            raise SnapshotError("The snapshot's estimator has a schedule that makes no sense.")
        self.family.check_outcome(state["y"])
        self.counts[:] = 0
        self._ahead = None
        self.reserve(held)
        self.x[:held], self.y[:held] = state["x"], state["y"]
        self._theta[:], self.P[:], self.pace[:] = state["theta"], state["P"], state["pace"]
        self.anchor[:], self.counts[:] = state["anchor"], state["counts"]
