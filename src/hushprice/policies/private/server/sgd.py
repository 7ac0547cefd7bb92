"""Projected SGD over decoded reports: theta = Pi_Theta(theta + w / (zeta t)) with the t-th of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushprice.kernels import sgd as kernel
from hushprice.kernels.state import SGDRate
from hushprice.policies.base import ReportsT
from hushprice.policies.private.reports import PrivateReports
from hushprice.policies.private.server.base import ScheduledServer

if TYPE_CHECKING:
    from hushprice.policies.private.ball import BallPolicy


class SGDServer(ScheduledServer[ReportsT]):
    """Takes one SGD step of size 1 / (zeta t) per report.

    Parameters
    ----------
    policy : BallPolicy
        The policy, with its rate of SGD and its ball Theta.
    """

    def __init__(self, policy: BallPolicy) -> None:
        super().__init__(policy)
        self.rate = SGDRate(policy.zeta, *policy.price_scale, *policy.ball)

    def learn(self, reports: PrivateReports) -> None:
        kernel.absorb_rows(self.mechanism.code, self.mechanism.scale, reports.rows, self.t, self.rate, self.theta)

    @property
    def steps(self) -> int:
        return self.t
