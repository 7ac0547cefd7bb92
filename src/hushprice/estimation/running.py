"""The running estimator: the penalised MLE of a growing set of weighted records, updated at O(m^2) per record.

Between exact refits each record is added by a rank-one step: an exact step for its own loss plus a quadratic model of
all others. Exact refits follow a geometric schedule, at the latest after 25% more records. Each refit measures the
drift that it removes, and the schedule adapts to it.

**Bound.** With H the penalised information, ``|theta - MLE|_H <= DRIFT_BOUND = 0.2``: the running estimate of any
linear function of theta (for example a customer's utility at some price) differs from the exact one by at most a fifth
of its standard error. The estimator enforces the bound by tracking the second-order error of the steps since the last
refit, at most ``1/2 max_i |x_i.way| |way|_H`` with ``way`` the change of theta since then; above 0.15 it refits
immediately. (The maximum is over the contexts since the refit, the largest context so far and all prices on record, not
over all records, and for Probit ``kernels.glm.steepness`` is a heuristic in the tail, so the bound is tested rather
than proved.) In stationary markets the measured drift is below a fifth of the bound; for linear demand the steps are
exact. The first 200 records are always fitted exactly.

Every record has weight 1 until :meth:`RunningEstimator.reweigh` replaces it, for example to forget old records.

Floating point requires features in ordinary units: the information must not exceed the prior's precision by more than
about 1e12, roughly |x|^2 n / ridge <= 1e12. Beyond that the estimator works, but the bound may not hold: standardise
the features or raise the ridge.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array, array
from hushprice.demand import Family
from hushprice.errors import InvalidInput, SnapshotError
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
        The prior of theta; ``Prior.ridge`` for a ridge.
    dense : bool
        Whether the penalty is stored as a matrix even for a ridge, so that a kernel can change it in place. The kernel
        then notes the prices, too.

    Examples
    --------
    >>> from hushprice.demand import Logistic
    >>> estimator = RunningEstimator(Logistic(), prior=Prior.ridge(1, 1.0))
    >>> estimator.absorb(np.array([[1.0]]), np.array([2.0]), np.array([0.0]))
    >>> estimator.theta().round(3)
    array([-0.236,  0.471])
    """

    def __init__(self, family: Family, *, prior: Prior, dense: bool = False) -> None:
        m = prior.centre.size
        self.family, self.dim = family, prior.dim
        self._given, self._penalty = prior, prior.dense_penalty if dense else prior.penalty
        self._prices_later = dense  # the kernel notes prices record by record, as it takes them in
        self.x, self.y, self.weight = np.zeros((64, m)), np.zeros(64), np.ones(64)
        self._theta, self.P = prior.centre.copy(), prior.covariance
        self.counts = np.zeros(4, dtype=np.int64)
        self.pace = np.array([running.START_GROWTH, 0.0, 0.0, np.inf, -np.inf])
        self.anchor = np.zeros((3, m))
        self.anchor[0] = prior.centre
        self._ahead: RunningEstimator | None = None  # see estimate

    @property
    def prior(self) -> Prior:
        """The prior in force."""
        penalty = self._penalty
        return Prior(penalty.centre, penalty.precision) if penalty.precision.size else self._given

    def begin(self) -> None:
        """Start at the prior in force, after a kernel changed it; there must be no record."""
        prior = self.prior
        self._theta[:], self.P[:], self.anchor[0] = prior.centre, prior.covariance, prior.centre

    def move(self, theta: Array, P: Array, counts: Any, pace: Array, anchor: Array) -> None:
        """Move the state into these arrays, for example into one row per array of a stack of estimators.

        Parameters
        ----------
        theta, P, counts, pace, anchor : ndarray
            Arrays of the shapes that the state has.
        """
        own = (self._theta, self.P, self.counts, self.pace, self.anchor)
        for old, new in zip(own, (theta, P, counts, pace, anchor), strict=True):
            new[...] = old
        self._theta, self.P, self.counts, self.pace, self.anchor = theta, P, counts, pace, anchor

    @property
    def records(self) -> int:
        """Number of records."""
        return int(self.counts[running.HELD])

    @property
    def refits(self) -> int:
        """Number of exact refits."""
        return int(self.counts[running.REFITS])

    def reserve(self, more: int) -> None:
        """Allocate room for this many more records.

        Parameters
        ----------
        more : int
            Number of records.
        """
        need = self.records + more
        if need > len(self.y):
            capacity = max(need, 2 * len(self.y))
            self.move_records(np.zeros((capacity, self.x.shape[1])), np.zeros(capacity), np.ones(capacity))

    def move_records(self, x: Array, y: Array, weight: Array) -> None:
        """Move the records into these arrays. ``weight`` holds ones.

        Parameters
        ----------
        x, y, weight : ndarray
            Arrays for rows, outcomes and weights, of at least as many records.
        """
        n = self.records
        x[:n], y[:n], weight[:n] = self.x[:n], self.y[:n], self.weight[:n]
        self.x, self.y, self.weight = x, y, weight

    def absorb(self, z: Array, price: Array, y: Array) -> None:
        """Add records; the next call of :meth:`theta` updates the estimate.

        Parameters
        ----------
        z : ndarray of shape (n, d)
            Contexts.
        price, y : ndarray of shape (n,)
            Prices and outcomes.
        """
        self.reserve(len(y))
        n = self.records
        rows = slice(n, n + len(y))
        self.x[rows, : self.dim] = z
        np.multiply(-price[:, None], z, out=self.x[rows, self.dim :])
        self.y[rows] = y
        if not self._prices_later:
            self.pace[running.LOWEST] = min(self.pace[running.LOWEST], price.min(initial=np.inf))
            self.pace[running.HIGHEST] = max(self.pace[running.HIGHEST], price.max(initial=-np.inf))
        self.counts[running.HELD] += len(y)

    def reweigh(self, weights: npt.ArrayLike) -> None:
        """Replace the weights of all records; the next estimate is an exact refit.

        A record of weight w counts like w records. Later records have weight 1.

        Parameters
        ----------
        weights : array_like of shape (records,)
            At least 0, in the order of the records.

        Raises
        ------
        InvalidInput
            Unless there is one finite weight of at least 0 per record.

        Examples
        --------
        >>> from hushprice.demand import Linear
        >>> estimator = RunningEstimator(Linear(), prior=Prior.ridge(1, 1.0))
        >>> estimator.absorb(np.ones((2, 1)), np.array([1.0, 3.0]), np.array([2.0, 0.0]))
        >>> estimator.reweigh([0.5, 1.0])
        >>> estimator.theta().round(3)
        array([0.5  , 0.071])
        """
        values = array("weights", weights, shape=(self.records,))
        if (values < 0.0).any():
            raise InvalidInput(f"weights must be at least 0, got {values.min():g}.")
        self.weight[: self.records] = values
        self.counts[[running.USED, running.FITTED]] = 0
        self._ahead = None

    def forget(self, half_life: float) -> None:
        """Halve the weight of a record per ``half_life`` later records, once.

        Parameters
        ----------
        half_life : float
            Age in records, above 0.
        """
        n = self.records
        self.reweigh(self.weight[:n] * 0.5 ** (np.arange(n - 1, -1, -1) / half_life))

    def arrays(self) -> EstimatorState:
        """The state as kernels take it."""
        return EstimatorState(
            self.family.code, self._penalty, self.x, self.y, self.weight, self._theta, self.P, self.counts, self.pace,
            self.anchor,
        )  # fmt: skip

    def theta(self) -> Array:
        """The estimate from all records."""
        running.update(self.arrays())
        return self._theta.copy()

    @property
    def published(self) -> Array:
        """The result of the last call of :meth:`theta`, without later records."""
        return self._theta.copy()

    def estimate(self) -> tuple[Array, Array]:
        """The result of the last call of :meth:`theta`, and its covariance. The state does not change.

        If :meth:`theta` was never called, a copy fits the records; the copy is cached until there are more records.

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
        """(theta, penalised information) of an exact fit of the same records. The state does not change."""
        n, m = self.records, 2 * self.dim
        theta, information = np.zeros(m), np.empty((m, m))
        records = self.x[:n], self.y[:n], self.weight[:n]
        newton.newton(self.family.code, *records, self._penalty, theta, information, 1e-8, 500)
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
            "weight": self.weight[:n],
            "theta": self._theta,
            "P": self.P,
            "counts": self.counts,
            "pace": self.pace,
            "anchor": self.anchor,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the state by one that :meth:`state` returned; SnapshotError if it is malformed.

        Parameters
        ----------
        state : mapping
            The state.
        """
        for key, own in self.state().items():
            value = state.get(key)
            any_length = key in ("x", "y", "weight")
            if (
                not isinstance(value, np.ndarray)
                or value.dtype != own.dtype
                or value.ndim != own.ndim
                or value.shape[any_length:] != own.shape[any_length:]
                or (key != "pace" and not np.isfinite(value).all())
            ):
                raise SnapshotError(f"The snapshot's estimator lacks a usable {key!r}.")
        held, used, fitted, refits = (int(n) for n in state["counts"])
        lengths = {held, *(len(state[key]) for key in ("x", "y", "weight"))}
        if not (0 <= fitted <= used <= held and len(lengths) == 1 and refits >= 0):
            raise SnapshotError("The snapshot's estimator does not hold the number of records it says.")
        if np.isnan(state["pace"]).any() or not 0.0 < state["pace"][running.GROWTH] <= running.MAX_GROWTH:
            raise SnapshotError("The snapshot's estimator has a schedule that makes no sense.")
        if (state["weight"] < 0.0).any():
            raise SnapshotError("The snapshot's estimator has a record of negative weight.")
        self.family.check_outcome(state["y"])
        self.counts[:] = 0
        self._ahead = None
        self.reserve(held)
        self.x[:held], self.y[:held] = state["x"], state["y"]
        self.weight[:held], self.weight[held:] = state["weight"], 1.0
        self._theta[:], self.P[:], self.pace[:] = state["theta"], state["P"], state["pace"]
        self.anchor[:], self.counts[:] = state["anchor"], state["counts"]
