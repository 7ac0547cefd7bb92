"""The server of private look-ahead where some customers send raw records, which enter the posterior as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, SnapshotError
from hushprice.estimation import Prior, RunningEstimator
from hushprice.policies.exchange import Records
from hushprice.policies.private.reports import MixedReports, PrivateReports
from hushprice.policies.private.server.dithered import DitheredServer
from hushprice.policies.private.server.mixed import checked_records
from hushprice.policies.snapshot import whole

if TYPE_CHECKING:
    from hushprice.policies.private.look_ahead_ldp import LookAheadLDP


class MixedDitheredServer(DitheredServer[MixedReports]):
    """Learns from sums of reports, and from the raw records of public customers.

    The records' likelihood is taken as quadratic around the estimate from them and the loosest prior. With each prior
    it makes another normal distribution, under which the reports are then explained.

    Parameters
    ----------
    policy : LookAheadLDP
        The policy.

    Attributes
    ----------
    public : RunningEstimator
        The estimate from the raw records.
    publics : int
        Raw records of this stage.
    """

    def __init__(self, policy: LookAheadLDP) -> None:
        centres, precisions, _ = policy.priors
        loosest = int(np.argmin(np.linalg.slogdet(precisions)[1]))
        self.base = (centres[loosest], precisions[loosest])
        scale = policy.family.scale**2
        self.public = RunningEstimator(policy.family, prior=Prior(self.base[0], self.base[1] * scale))
        self.publics = 0
        super().__init__(policy)

    @property
    def absorbed(self) -> int:
        return super().absorbed + self.public.records

    @property
    def in_stage(self) -> int:
        return super().in_stage + self.publics

    def settle(self) -> None:
        stage = self.stage
        super().settle()
        if self.stage > stage:
            self.publics = 0

    def _known(self) -> tuple[Array, Array]:
        """The information H of the records, and H theta less the gradient: their likelihood without the prior."""
        centre, precision = self.base
        theta, information = self.public.exact()
        information = information / self.policy.family.scale**2
        return information - precision, information @ theta - precision @ centre

    def _priors(self) -> tuple[Array, Array, Array]:
        if not self.public.records:
            return super()._priors()
        information, pull = self._known()
        centres, precisions, first = np.empty_like(self.centres), self.precisions + information, self.first.copy()
        for c, (centre, precision) in enumerate(zip(self.centres, self.precisions, strict=True)):
            centres[c] = np.linalg.solve(precisions[c], precision @ centre + pull)
            first[c] += 0.5 * (centres[c] @ precisions[c] @ centres[c] - centre @ precision @ centre)
            first[c] += 0.5 * (np.linalg.slogdet(precision)[1] - np.linalg.slogdet(precisions[c])[1])
        return centres, precisions, first

    @property
    def private_share(self) -> float:
        return 1.0 - self.public.records / max(self.absorbed, 1)

    def absorb(self, reports: MixedReports) -> None:
        parts = (reports.private, reports.public) if isinstance(reports, MixedReports) else (None, None)
        if not isinstance(parts[0], PrivateReports) or not isinstance(parts[1], Records):
            raise InvalidInput("This server takes MixedReports only. What it was handed was not looked at.")
        private, public = self._checked(parts[0]), checked_records(self.policy, parts[1])
        self._add(private)
        self.public.absorb(public.z, public.price, public.y)
        self.publics += len(public.y) if private.stage == self.stage else 0

    def state(self) -> dict[str, Any]:
        self.public.theta()
        return super().state() | {"publics": self.publics, "public": self.public.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        publics = whole(state.get("publics"))
        if not isinstance(state.get("public"), Mapping):
            raise SnapshotError("The snapshot lacks the records of public customers.")
        self.public.restore(state["public"])
        super().restore(state)
        self.publics = publics
