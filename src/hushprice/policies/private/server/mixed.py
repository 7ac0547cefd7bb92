"""SGD over the reports of private customers, then one pass over the raw records of public ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hushprice.arrays import Array, array
from hushprice.errors import LARGEST_VALUE, InvalidInput, SnapshotError
from hushprice.kernels import public_sgd as kernel
from hushprice.policies.exchange import Records
from hushprice.policies.private.reports import MixedReports, PrivateReports
from hushprice.policies.private.schedules import MixedSchedule
from hushprice.policies.private.server.sgd import SGDServer
from hushprice.policies.snapshot import whole

if TYPE_CHECKING:
    from hushprice.policies.base import Policy
    from hushprice.policies.private.ball import BallPolicy


def checked_records(policy: Policy, records: Records) -> Records:
    """Return raw records of public customers if all are valid, else raise :class:`InvalidInput`."""
    z = array("public contexts", records.z, shape=(None, policy.dim), limit=LARGEST_VALUE)
    price = array("public prices", records.price, shape=(len(z),), limit=LARGEST_VALUE)
    low, high = policy.prices
    if not ((price >= low) & (price <= high)).all():
        raise InvalidInput(f"A public price lies outside {policy.prices}.")
    y = policy.family.check_outcome(array("public outcomes", records.y, shape=(len(z),)))
    return Records(z, price, y, records.stage)


class MixedServer(SGDServer[MixedReports]):
    """Learns from each randomised report at once, and from the raw records of public customers at the end.

    Stage I of an episode estimates the share of public customers, which determines the length of stage II.

    Parameters
    ----------
    policy : BallPolicy
        The policy, whose schedule is a :class:`MixedSchedule`.

    Attributes
    ----------
    publics : int
        Number of raw records of public customers.
    """

    schedule: MixedSchedule

    def __init__(self, policy: BallPolicy) -> None:
        self._final: Array | None = None  # theta after the pass over the public records, computed on demand
        super().__init__(policy)

    def start_afresh(self) -> None:
        super().start_afresh()
        self._public_records: list[Records] = []  # in order of arrival
        self.publics = 0

    def _begin(self, q: int) -> None:
        super()._begin(q)
        self._decided = False
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
            self.explore = max(self.explore, self.schedule.experiments(self.q, self.share))
        return super().exploring

    @property
    def records(self) -> Records:
        """All raw records of public customers, as one block."""
        nothing = Records(np.empty((0, self.policy.dim)), np.empty(0), np.empty(0))
        blocks = (nothing, *self._public_records)
        z, price, y = (np.concatenate([getattr(block, key) for block in blocks]) for key in ("z", "price", "y"))
        self._public_records = [Records(z, price, y)]
        return self._public_records[0]

    def committed(self) -> Array:
        """The private estimate, then one pass of plain SGD over the public records."""
        if self._final is None:
            self._final, records = self.theta.copy(), self.records
            worth = self.t * self.schedule.worth
            kernel.plain_pass(
                self.policy.family.code, records.z, records.price, records.y, worth, self.rate, self._final
            )
        return self._final.copy()

    def absorb(self, reports: MixedReports) -> None:
        parts = (reports.private, reports.public) if isinstance(reports, MixedReports) else (None, None)
        if not isinstance(parts[0], PrivateReports) or not isinstance(parts[1], Records):
            raise InvalidInput("This server takes MixedReports only. What it was handed was not looked at.")
        private, public = self.checked(parts[0]), checked_records(self.policy, parts[1])
        self.take(private)
        if not self.schedule.restarts or public.stage == self.q:
            self.store(public)

    def count(self, n: int) -> None:
        super().count(n)
        self._final = None

    def store(self, records: Records) -> None:
        """Store raw records of public customers."""
        self._public_records.append(records)
        self.publics += len(records.y)
        self.absorbed += len(records.y)
        self._final = None

    def state(self) -> dict[str, Any]:
        records = self.records
        explore = self.explore if self._decided else 0
        public = {"z": records.z, "price": records.price, "y": records.y}
        return super().state() | {"explore": explore, "public": public}

    def restore(self, state: Mapping[str, Any]) -> None:
        explore, public = whole(state.get("explore")), state["public"]
        records = checked_records(self.policy, Records(public["z"], public["price"], public["y"]))
        super().restore(state)
        if explore > self.length:
            raise SnapshotError(f"The snapshot explores for {explore} rounds of an episode of {self.length}.")
        self._public_records, self.publics, absorbed = [], 0, self.absorbed
        self.store(records)
        self.absorbed, self._decided = absorbed, explore > 0
        self.explore = explore or self.explore
