"""The server of private look-ahead: a count and a sum of reports per stage, and the theta that explains them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array, array
from hushprice.errors import InvalidInput, SnapshotError
from hushprice.kernels.dither import design, expected, posterior
from hushprice.kernels.sgd import mean_of_sums, sum_rows
from hushprice.kernels.state import DitherRule
from hushprice.policies.base import ReportsT, Server
from hushprice.policies.exchange import Dither, Params, Progress
from hushprice.policies.phases import Phase
from hushprice.policies.private.reports import PrivateReports

if TYPE_CHECKING:
    from hushprice.policies.private.look_ahead_ldp import LookAheadLDP

FIRST_STAGE, STAGE_GROWTH = 500, 0.1  # reports of the first stage, and of a later one as a share of those before
AGEING = 0.1  # f: a stage that ended after a share s of the reports counts s^f
LATER = 2.0  # N, in reports so far
KEPT = 0.3  # a design is judged as if it was kept for this share of the reports so far, after its stage
LEAST_SKETCH, SKETCH_PER_ENTRY = 64, 8  # points that a design is judged by
LAST_STAGE = 1000


class Published(NamedTuple):
    """What a stage published: theta, delta, pull, target, and the five numbers that its weights were searched by."""

    theta: Array
    dither: Array  # delta, pull, target
    search: Array


class DitheredServer(Server[ReportsT]):
    """Learns from sums of reports, stage by stage.

    Parameters
    ----------
    policy : LookAheadLDP
        The policy, with its mechanism, population and priors.

    Attributes
    ----------
    counts : ndarray of int64
        Reports of each stage.
    sums : ndarray of int64
        Their sums, as whole numbers, so that reports of a stage may be added in any order.
    """

    def __init__(self, policy: LookAheadLDP) -> None:
        self.policy, self.mechanism = policy, policy.mechanism
        self.points, self.shares = policy.population.points, policy.population.shares
        self.terms = policy.population_terms
        few = slice(max(LEAST_SKETCH, SKETCH_PER_ENTRY * policy.dim))  # enough to judge a design by
        self.sketch = (self.points[few], self.shares[few] / self.shares[few].sum()), self.terms.rows(few)
        self.centres, self.precisions, first = policy.priors
        self.first = first
        self.variance = self.mechanism.squared_error(0.0) / self.mechanism.dim
        self.thetas, self.H = self.centres.copy(), self.precisions.copy()
        self.weights = np.full(len(first), 1.0 / len(first))
        self._clear()
        self._begin()

    def _clear(self) -> None:
        """Forget all stages."""
        m = 2 * self.policy.dim
        self.stages: list[Published] = []
        self.counts = np.zeros(0, dtype=np.int64)
        self.ends = np.zeros(0, dtype=np.int64)  # reports at the end of each stage
        self.sums = np.zeros((0, m), dtype=np.int64)
        self.tables = np.empty((0, len(self.points), 4 + m))

    @property
    def absorbed(self) -> int:
        """All reports absorbed so far."""
        return int(self.counts.sum())

    @property
    def theta(self) -> Array:
        """The estimate: the mean over priors, by their weights."""
        estimate: Array = self.weights @ self.thetas
        return estimate

    # -- stages -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Choose what the next stage publishes."""
        policy, d, t = self.policy, self.policy.dim, self.absorbed
        m = _length(t)
        low, high = policy.prices
        rule = DitherRule(
            policy.family.code, self.theta, 0.0, 0.0, low, np.empty((d, d)), np.empty((d, d)), *policy.outcomes,
            policy.family.scale,
        )  # fmt: skip
        G = np.empty((2 * d, 2 * d))
        (points, shares), terms = self.sketch
        design.gains_of(rule, points, shares, terms, self.H, self.weights, G)
        kept = m + KEPT * t
        share = self.private_share
        variance = self.variance / share if share > 0.0 else math.inf  # of the mean, times all customers
        look = (G, self.H, self.weights, kept, LATER * (t + m), variance)
        shared, differing, _ = policy.basis
        search = np.empty(5)
        dither = design.choose(rule, *self.sketch, (shared, differing), look, high - low, low, search)
        self._publish(Published(rule.theta, np.array(dither), search))

    @property
    def private_share(self) -> float:
        """Share of randomised reports among all so far."""
        return 1.0

    def _publish(self, published: Published) -> None:
        self.stages.append(published)
        m = 2 * self.policy.dim
        self.counts, self.ends = np.append(self.counts, 0), np.append(self.ends, 0)
        self.sums = np.vstack([self.sums, np.zeros((1, m), dtype=np.int64)])
        table = np.empty((1, len(self.points), 4 + m))
        expected.tabulate(self.policy.rule(self._params(published)), self.points, self.terms, table[0])
        self.tables = np.concatenate([self.tables, table])

    @property
    def stage(self) -> int:
        """The number of the stage, from 1."""
        return len(self.stages)

    @property
    def length(self) -> int:
        """Reports that end this stage."""
        return _length(self.absorbed - self.in_stage)

    @property
    def in_stage(self) -> int:
        """Reports of this stage so far."""
        return int(self.counts[-1])

    def settle(self) -> None:
        """Learn and begin the next stage if this one has its reports."""
        if self.in_stage >= self.length and self.stage < LAST_STAGE:
            self.ends[-1] = self.absorbed
            self._learn()
            self._begin()

    def _learn(self) -> None:
        policy, n = self.policy, self.stage
        total = self.absorbed
        worth, means = np.zeros(n), np.zeros((n, 2 * policy.dim))
        for k in range(n):
            if self.counts[k]:
                worth[k] = self.counts[k] * (self.ends[k] / total) ** AGEING / self.variance
                mean_of_sums(self.mechanism.code, self.mechanism.scale, self.sums[k], self.counts[k], means[k])
        demand = (policy.family.code, policy.family.scale, *policy.outcomes)
        stages = (self.points, self.shares, self.tables, means, worth)
        posterior.update(demand, stages, n, self._priors(), self.thetas, self.H, self.weights)

    def _priors(self) -> tuple[Array, Array, Array]:
        """Centres, precisions and log weights of the priors, with all that is known beside the reports."""
        return self.centres, self.precisions, self.first

    # -- the interface ------------------------------------------------------------------------------------------------

    def _params(self, published: Published, stage: int = 1) -> Params:
        shared, differing, _ = self.policy.basis
        level, slope = np.empty(shared.shape), np.empty(shared.shape)
        design.weigh(published.search, shared, differing, level, slope)
        delta, pull, target = published.dither.tolist()
        return Params(
            version=stage,
            phase=Phase.DITHER,
            theta=published.theta.copy(),
            learn=True,
            stage=stage,
            dither=Dither(delta=delta, pull=pull, target=target, level=level, slope=slope),
        )

    @property
    def params(self) -> Params:
        self.settle()
        return self._params(self.stages[-1], self.stage)

    @property
    def span(self) -> int:
        self.settle()
        return max(self.length - self.in_stage, 1)

    def advance(self, n: int) -> None:
        """Stages end by reports; who was quoted a price does not count."""

    def absorb(self, reports: ReportsT) -> None:
        self._add(self._checked(reports))

    def _checked(self, reports: object) -> PrivateReports:
        """Return reports that the mechanism can have made in a stage that there was; refuse others unread."""
        if not isinstance(reports, PrivateReports):
            raise InvalidInput("This server takes randomised reports only. What it was handed was not looked at.")
        if not 1 <= reports.stage <= self.stage:
            raise InvalidInput(f"There is no stage {reports.stage} yet: the last one is {self.stage}.")
        return PrivateReports(self.mechanism.check_rows(reports.rows), reports.stage)

    def _add(self, reports: PrivateReports) -> None:
        k = reports.stage - 1
        sum_rows(self.mechanism.code, reports.rows, self.sums[k])
        self.counts[k] += len(reports.rows)

    def estimate(self) -> tuple[Array, Array | None]:
        theta, m = self.theta, 2 * self.policy.dim
        covariance = np.zeros((m, m))
        for weight, own, H in zip(self.weights, self.thetas, self.H, strict=True):
            covariance += weight * (np.linalg.inv(H) + np.outer(own - theta, own - theta))
        return theta, covariance

    def progress(self) -> Progress:
        return Progress(done=self.in_stage, total=self.length, counted="reports of this stage", part=self.stage)

    # -- as plain data ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            "counts": self.counts.copy(),
            "ends": self.ends.copy(),
            "sums": self.sums.copy(),
            "published": np.array([np.concatenate(stage) for stage in self.stages]),
            "thetas": self.thetas.copy(),
            "H": self.H.copy(),
            "weights": self.weights.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        m, C = 2 * self.policy.dim, len(self.weights)
        published = array("published", state["published"], shape=(None, m + 8))
        n = len(published)
        counts, ends = _whole(state["counts"], (n,)), _whole(state["ends"], (n,))
        sums = _whole(state["sums"], (n, m))
        thetas = array("thetas", state["thetas"], shape=(C, m)).copy()
        H = array("H", state["H"], shape=(C, m, m)).copy()
        weights = array("weights", state["weights"], shape=(C,)).copy()
        if not n or (counts < 0).any() or not (weights >= 0.0).all() or not abs(weights.sum() - 1.0) < 1e-6:
            raise SnapshotError("The snapshot's stages or weights make no sense.")
        self._clear()
        for row in published:
            self._publish(Published(row[:m].copy(), row[m : m + 3].copy(), row[m + 3 :].copy()))
        self.counts, self.ends, self.sums = counts, ends, sums
        self.thetas, self.H, self.weights = thetas, H, weights


def _length(before: int) -> int:
    """How many reports a stage takes after so many."""
    return max(FIRST_STAGE, int(STAGE_GROWTH * before))


def _whole(values: Any, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """A copy of whole numbers of this shape."""
    numbers = np.asarray(values)
    if numbers.dtype != np.int64 or numbers.shape != shape:
        raise SnapshotError("The snapshot's counts or sums are no whole numbers of the right shape.")
    return numbers.copy()
