"""The base class of all private learners' servers: it follows the schedule, checks and counts reports, saves its state.

A learner derives from :class:`ScheduledServer` and implements :meth:`~ScheduledServer.learn`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushprice.arrays import Array, array
from hushprice.errors import InvalidInput, SnapshotError
from hushprice.policies.base import ReportsT, Server
from hushprice.policies.exchange import Params, Progress
from hushprice.policies.phases import Phase
from hushprice.policies.private.reports import PrivateReports
from hushprice.policies.snapshot import whole

if TYPE_CHECKING:
    from hushprice.policies.private.ball import BallPolicy


class ScheduledServer(Server[ReportsT]):
    """Explores and commits in episodes, according to the policy's schedule.

    Parameters
    ----------
    policy : BallPolicy
        The policy, with its schedule and mechanism.

    Attributes
    ----------
    theta : Array
        The estimate, a point of Theta.
    t : int
        Private reports that went into ``theta``.
    absorbed : int
        All reports absorbed so far.
    """

    only_experiments: ClassVar[bool] = True

    def __init__(self, policy: BallPolicy) -> None:
        self.policy, self.schedule, self.mechanism = policy, policy.schedule, policy.mechanism
        self.absorbed = 0
        self.start_afresh()
        self._begin(1)

    # -- methods that a learner implements ------------------------------------------------------------------------

    @abstractmethod
    def learn(self, reports: PrivateReports) -> None:
        """Learn from valid reports: numbers t + 1, t + 2, ... of this estimate."""

    def start_afresh(self) -> None:
        """Discard the estimate and everything that it was learned from."""
        self.theta: Array = np.array(self.policy.start_at)
        self.t = 0

    def committed(self) -> Array:
        """The estimate to exploit."""
        return self.theta.copy()

    def estimate(self) -> tuple[Array, Array | None]:
        return self.committed(), None

    # -- the schedule ---------------------------------------------------------------------------------------------

    def _begin(self, q: int) -> None:
        """Start episode q."""
        self.q, self.offset = q, 0
        self.explore, self.length = self.schedule.episode(q)
        if self.schedule.restarts and q > 1:
            self.start_afresh()

    @property
    def reports(self) -> int:
        """Number of reports behind the estimate."""
        return self.t

    @property
    def exploring(self) -> bool:
        """Whether the next customer is an experiment. Without any report, the policy cannot commit."""
        self.settle()
        return self.offset < self.explore or self.reports == 0

    def settle(self) -> None:
        """Begin the next episode if this one is over. It is called late, so that the last reports count for it."""
        if self.offset >= self.length:
            self._begin(self.q + 1)

    @property
    def stage(self) -> int:
        """The stage that reports name: the episode if the estimate restarts with each, else 1."""
        return self.q if self.schedule.restarts else 1

    def progress(self) -> Progress:
        return Progress.of_episode(self.q, offset=self.offset, explore=self.explore, length=self.length)

    @property
    def left(self) -> int:
        """Rounds until the phase ends."""
        if self.exploring:
            return self.explore - self.offset if self.offset < self.explore else 1
        return self.length - self.offset

    @property
    def params(self) -> Params:
        exploring = self.exploring
        return Params(
            version=2 * self.q + (not exploring) + self.absorbed,
            phase=Phase.EXPLORE if exploring else Phase.EXPLOIT,
            theta=self.theta.copy() if exploring else self.committed(),
            learn=exploring,
            stage=self.stage,
        )

    @property
    def span(self) -> int:
        return 1 if self.exploring else self.left

    def advance(self, n: int) -> None:
        self.offset += n

    # -- reports --------------------------------------------------------------------------------------------------

    def absorb(self, reports: ReportsT) -> None:
        self.take(self.checked(reports))

    def checked(self, reports: object) -> PrivateReports:
        """Return randomised reports if the mechanism can have made them; anything else is refused unread."""
        if not isinstance(reports, PrivateReports):
            raise InvalidInput("This server takes randomised reports only. What it was handed was not looked at.")
        return PrivateReports(self.mechanism.check_rows(reports.rows), reports.stage)

    def take(self, reports: PrivateReports) -> None:
        """Learn from checked reports and count them. Reports of an episode before a restart are ignored."""
        if self.schedule.restarts and reports.stage != self.q:
            return
        self.learn(reports)
        self.count(len(reports.rows))

    def count(self, n: int) -> None:
        """Count reports after learning from them."""
        self.t += n
        self.absorbed += n

    # -- as plain data --------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        counts = {"q": self.q, "offset": self.offset, "t": self.t, "absorbed": self.absorbed}
        return counts | {"theta": self.theta.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        q, offset, t, absorbed = (whole(state.get(key)) for key in ("q", "offset", "t", "absorbed"))
        if not 1 <= q <= 62 or t > absorbed:
            raise SnapshotError("The snapshot does not say which round it is in.")
        theta = array("theta", state["theta"], shape=self.theta.shape).copy()
        if not self.policy.in_theta(theta):
            raise SnapshotError("The snapshot's estimate lies outside Theta.")
        self._begin(q)
        if offset > self.length:
            raise SnapshotError(f"The snapshot is at round {offset} of an episode of {self.length}.")
        self.offset, self.t, self.absorbed, self.theta = offset, t, absorbed, theta
