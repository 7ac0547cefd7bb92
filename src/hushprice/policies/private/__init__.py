"""Policies whose server learns from randomised reports only."""

from hushprice.policies.private.ball import BallPolicy
from hushprice.policies.private.base import PrivatePolicy
from hushprice.policies.private.etc_ldp import (
    ETCLDP,
    ETCLDPApprox,
    ETCLDPApproxDoubling,
    ETCLDPDoubling,
)
from hushprice.policies.private.learner import PrivateLearner
from hushprice.policies.private.look_ahead_ldp import LookAheadLDP
from hushprice.policies.private.look_ahead_mixed import LookAheadMixed
from hushprice.policies.private.mixed import ETCLDPMixed, ETCLDPMixedDoubling
from hushprice.policies.private.population import Population
from hushprice.policies.private.reports import MixedReports, PrivateReports
from hushprice.policies.private.server import ScheduledServer

__all__ = [
    "ETCLDP",
    "BallPolicy",
    "ETCLDPApprox",
    "ETCLDPApproxDoubling",
    "ETCLDPDoubling",
    "ETCLDPMixed",
    "ETCLDPMixedDoubling",
    "LookAheadLDP",
    "LookAheadMixed",
    "MixedReports",
    "Population",
    "PrivateLearner",
    "PrivatePolicy",
    "PrivateReports",
    "ScheduledServer",
]
