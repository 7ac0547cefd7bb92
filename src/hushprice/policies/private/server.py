"""The seller's side: projected SGD over decoded reports. It imports nothing that makes one (import-linter)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hushprice.arrays import Array, array
from hushprice.errors import LARGEST_VALUE, InvalidInput, SnapshotError
from hushprice.kernels import sgd as kernel
from hushprice.kernels.state import SGDRate
from hushprice.policies.base import Params, Progress, Records, ReportsT, Server
from hushprice.policies.phases import Phase
from hushprice.policies.private.reports import MixedReports, PrivateReports
from hushprice.policies.snapshot import whole

if TYPE_CHECKING:
    from hushprice.policies.private.etc_ldp import EpisodesLDP, MixedLDP


class SGDServer(Server[ReportsT]):
    """Counts rounds and reports; explores and commits in episodes."""

    only_experiments: ClassVar[bool] = True

    def __init__(self, policy: EpisodesLDP) -> None:
        self.policy, self.mechanism = policy, policy.mechanism
        self.centre, self.radius = policy.ball
        self.rate = SGDRate(policy.zeta, *policy.price_scale, self.centre, self.radius)
        self.theta: Array = np.array(policy.start_at)
        self.t = 0  # private reports absorbed: the steps of SGD
        self.absorbed = 0  # reports absorbed in all
        self._begin(1)

    def _begin(self, q: int) -> None:
        """Start episode q."""
        self.q, self.offset = q, 0
        self.explore, self.length = self.policy.episode(q)
        if self.policy.restarts and q > 1:
            self.theta, self.t = np.array(self.policy.start_at), 0

    @property
    def reports(self) -> int:
        """How much there is to commit to."""
        return self.t

    @property
    def exploring(self) -> bool:
        """Whether the next customer is an experiment. Without a single report there is nothing to commit to."""
        self.settle()
        return self.offset < self.explore or self.reports == 0

    def settle(self) -> None:
        """Begin the next episode if this one is over: only now, so that its last reports still count for it."""
        if self.offset >= self.length:
            self._begin(self.q + 1)

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
            stage=self.q if self.policy.restarts else 1,
        )

    def committed(self) -> Array:
        """The estimate to exploit."""
        return self.theta.copy()

    def estimate(self) -> tuple[Array, Array | None]:
        return self.committed(), None

    def progress(self) -> Progress:
        return Progress.of_episode(self.q, offset=self.offset, explore=self.explore, length=self.length)

    @property
    def span(self) -> int:
        return 1 if self.exploring else self.left

    def advance(self, n: int) -> None:
        self.offset += n

    def step(self, reports: PrivateReports) -> None:
        """One step of SGD a report; those of an episode before a restart come too late."""
        if self.policy.restarts and reports.stage != self.q:
            return
        rows, mechanism = reports.rows, self.mechanism
        kernel.absorb_rows(mechanism.code, mechanism.scale, rows, self.t, self.rate, self.theta)
        self.count(len(rows))

    def count(self, n: int) -> None:
        """So many reports have been absorbed."""
        self.t += n
        self.absorbed += n

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


class PrivateServer(SGDServer[PrivateReports]):
    """Learns from randomised reports alone."""

    def absorb(self, reports: PrivateReports) -> None:
        if not isinstance(reports, PrivateReports):
            raise InvalidInput("This server takes randomised reports only. What it was handed was not looked at.")
        self.step(PrivateReports(self.mechanism.check_rows(reports.rows), reports.stage))


class MixedServer(SGDServer[MixedReports]):
    """Learns from randomised reports as they come, and from the raw records of public customers at the end.

    Stage I of an episode finds the share of public customers; stage II lasts as long as that share calls for.
    """

    policy: MixedLDP

    def __init__(self, policy: MixedLDP) -> None:
        self._kept: list[Records] = []  # of public customers, as they came
        self.publics = 0
        self._final: Array | None = None
        super().__init__(policy)

    def _begin(self, q: int) -> None:
        super()._begin(q)
        self._decided = False
        if self.policy.restarts and q > 1:
            self._kept, self.publics = [], 0
        self._final = None

    @property
    def reports(self) -> int:
        return self.t + self.publics

    @property
    def share(self) -> float:
        """The share of public customers among those who reported."""
        return self.publics / self.reports if self.reports else 0.0

    @property
    def exploring(self) -> bool:
        self.settle()
        if not self._decided and self.offset >= self.explore and self.reports > 0:
            self._decided = True
            self.explore = max(self.explore, self.policy.experiments(self.q, self.share))
        return super().exploring

    @property
    def records(self) -> Records:
        """What public customers have sent, as one block."""
        nothing = Records(np.empty((0, self.policy.dim)), np.empty(0), np.empty(0))
        z, price, y = (
            np.concatenate([getattr(block, key) for block in (nothing, *self._kept)]) for key in ("z", "price", "y")
        )
        self._kept = [Records(z, price, y)]
        return self._kept[0]

    def committed(self) -> Array:
        """The private estimate, then one pass of plain SGD over the public records."""
        if self._final is None:
            self._final, kept = self.theta.copy(), self.records
            worth = self.t * self.policy.worth
            kernel.plain_pass(self.policy.family.code, kept.z, kept.price, kept.y, worth, self.rate, self._final)
        return self._final.copy()

    def absorb(self, reports: MixedReports) -> None:
        parts = (reports.private, reports.public) if isinstance(reports, MixedReports) else (None, None)
        if not isinstance(parts[0], PrivateReports) or not isinstance(parts[1], Records):
            raise InvalidInput("This server takes MixedReports only. What it was handed was not looked at.")
        private = PrivateReports(self.mechanism.check_rows(parts[0].rows), parts[0].stage)
        public = self._checked(parts[1])
        self.step(private)
        if not self.policy.restarts or public.stage == self.q:
            self.keep(public)

    def _checked(self, records: Records) -> Records:
        """Raw records of public customers that can be learned from; others are refused whole."""
        z = array("public contexts", records.z, shape=(None, self.policy.dim), limit=LARGEST_VALUE)
        price = array("public prices", records.price, shape=(len(z),), limit=LARGEST_VALUE)
        low, high = self.policy.prices
        if not ((price >= low) & (price <= high)).all():
            raise InvalidInput(f"A public price lies outside {self.policy.prices}.")
        y = self.policy.family.check_outcome(array("public outcomes", records.y, shape=(len(z),)))
        return Records(z, price, y, records.stage)

    def count(self, n: int) -> None:
        super().count(n)
        self._final = None

    def keep(self, records: Records) -> None:
        """Store raw records of public customers."""
        self._kept.append(records)
        self.publics += len(records.y)
        self.absorbed += len(records.y)
        self._final = None

    def state(self) -> dict[str, Any]:
        kept = self.records
        explore = self.explore if self._decided else 0
        public = {"z": kept.z, "price": kept.price, "y": kept.y}
        return super().state() | {"explore": explore, "public": public}

    def restore(self, state: Mapping[str, Any]) -> None:
        explore, public = whole(state.get("explore")), state["public"]
        records = self._checked(Records(public["z"], public["price"], public["y"]))
        super().restore(state)
        if explore > self.length:
            raise SnapshotError(f"The snapshot explores for {explore} rounds of an episode of {self.length}.")
        self._kept, self.publics, absorbed = [], 0, self.absorbed
        self.keep(records)
        self.absorbed, self._decided = absorbed, explore > 0
        self.explore = explore or self.explore
