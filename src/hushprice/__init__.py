"""hushprice: prices that learn, and can keep quiet about who taught them.

>>> import hushprice as hp
>>> market = hp.markets.s1(dim=4)
>>> policy = hp.policies.ETCDoubling(family=hp.Logistic(), dim=4, prices=(0, 3))
>>> result = hp.simulate(policy, market, horizon=5_000, replications=4, seed=7)
>>> 0 < result.summary().mean < 2_000
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hushprice import checks, estimation, evaluation, logs, markets, policies, privacy, theory
from hushprice.demand import Family, Linear, Logistic, Poisson, Rules
from hushprice.errors import BudgetSpent, HushpriceError, InvalidInput, LedgerError, NoMLE, SnapshotError
from hushprice.evaluation import Evaluation, evaluate
from hushprice.logs import DemandModel, fit
from hushprice.markets import Market
from hushprice.policies import Pricer
from hushprice.simulation import Comparison, Result, Scaling, compare, fit_scaling, record, scale, simulate
from hushprice.version import __version__

if TYPE_CHECKING:
    from hushprice import planning, plots
    from hushprice.planning import plan


def __getattr__(name: str) -> Any:
    """Matplotlib is slow to import: ``plots``, ``planning`` and ``plan`` come when they are first asked for."""
    if name in ("plots", "planning"):
        return import_module(f"hushprice.{name}")
    if name == "plan":
        return import_module("hushprice.planning").plan
    raise AttributeError(f"module 'hushprice' has no attribute {name!r}")


__all__ = [
    "BudgetSpent",
    "Comparison",
    "DemandModel",
    "Evaluation",
    "Family",
    "HushpriceError",
    "InvalidInput",
    "LedgerError",
    "Linear",
    "Logistic",
    "Market",
    "NoMLE",
    "Poisson",
    "Pricer",
    "Result",
    "Rules",
    "Scaling",
    "SnapshotError",
    "__version__",
    "checks",
    "compare",
    "estimation",
    "evaluate",
    "evaluation",
    "fit",
    "fit_scaling",
    "logs",
    "markets",
    "plan",
    "planning",
    "plots",
    "policies",
    "privacy",
    "record",
    "scale",
    "simulate",
    "theory",
]
