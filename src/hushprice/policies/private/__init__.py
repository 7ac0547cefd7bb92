"""Policies whose server learns from randomised reports alone."""

from hushprice.policies.private.base import PrivatePolicy
from hushprice.policies.private.etc_ldp import (
    ETCLDP,
    ETCLDPApprox,
    ETCLDPApproxDoubling,
    ETCLDPDoubling,
    ETCLDPMixed,
    ETCLDPMixedDoubling,
)
from hushprice.policies.private.reports import MixedReports, PrivateReports

__all__ = [
    "ETCLDP",
    "ETCLDPApprox",
    "ETCLDPApproxDoubling",
    "ETCLDPDoubling",
    "ETCLDPMixed",
    "ETCLDPMixedDoubling",
    "MixedReports",
    "PrivatePolicy",
    "PrivateReports",
]
