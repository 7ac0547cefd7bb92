"""Generic checks that every family, market, mechanism and policy must pass.

``make test`` runs them on every registered object. To run them on your own policy:

>>> from hushprice import checks, policies
>>> policy = policies.ETCDoubling(family="logistic", dim=2, prices=(0, 3))
>>> for check in checks.policy_checks():
...     check(policy)
"""

from hushprice.checks.families import check_family_complete, family_gaps
from hushprice.checks.live import HORIZON, LiveLoop, run_batch, world_for
from hushprice.checks.mechanisms import mechanism_checks
from hushprice.checks.policies import (
    PolicyCheck,
    check_batch_equals_live,
    check_prices_in_range,
    check_private_server_sees_no_raw_data,
    numbers_in,
    policy_checks,
)
from hushprice.checks.service import check_service
from hushprice.checks.terms import check_propensities, check_rules_are_met
from hushprice.checks.worlds import check_market_draws, check_market_moments, family_checks, market_checks

__all__ = [
    "HORIZON",
    "LiveLoop",
    "PolicyCheck",
    "check_batch_equals_live",
    "check_family_complete",
    "check_market_draws",
    "check_market_moments",
    "check_prices_in_range",
    "check_private_server_sees_no_raw_data",
    "check_propensities",
    "check_rules_are_met",
    "check_service",
    "family_checks",
    "family_gaps",
    "market_checks",
    "mechanism_checks",
    "numbers_in",
    "policy_checks",
    "run_batch",
    "world_for",
]
