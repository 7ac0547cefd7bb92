"""Planning: which policy to run on one's own market, what it earns, and what privacy would cost."""

from hushprice.planning.option_results import Interval, Line
from hushprice.planning.options import EPSILONS, LEARNING, OPT_OUT, Option, options
from hushprice.planning.plan import Plan, plan
from hushprice.planning.recommendation import Recommendation, Situation, recommend

__all__ = [
    "EPSILONS",
    "LEARNING",
    "OPT_OUT",
    "Interval",
    "Line",
    "Option",
    "Plan",
    "Recommendation",
    "Situation",
    "options",
    "plan",
    "recommend",
]
