"""hushprice: prices that learn, and can keep quiet about who taught them.

>>> import hushprice as hp
>>> market = hp.markets.s1(dim=4)
>>> policy = hp.policies.ETCDoubling(family=hp.Logistic(), dim=4, prices=(0, 3))
>>> result = hp.simulate(policy, market, horizon=5_000, replications=4, seed=7)
>>> 0 < result.summary().mean < 2_000
True
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from hushprice import checks, estimation, markets, policies, privacy, theory
from hushprice.demand import Family, Linear, Logistic, Poisson
from hushprice.errors import BudgetSpent, HushpriceError, InvalidInput, LedgerError, NoMLE, SnapshotError
from hushprice.estimation import fit
from hushprice.markets import Market
from hushprice.policies import Pricer
from hushprice.simulation import Comparison, Result, Scaling, compare, fit_scaling, scale, simulate
from hushprice.version import __version__

if TYPE_CHECKING:
    from hushprice import plots


def __getattr__(name: str) -> ModuleType:
    """Matplotlib is slow to import: ``hushprice.plots`` comes when it is first asked for."""
    if name == "plots":
        return import_module("hushprice.plots")
    raise AttributeError(f"module 'hushprice' has no attribute {name!r}")


__all__ = [
    "BudgetSpent",
    "Comparison",
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
    "Scaling",
    "SnapshotError",
    "__version__",
    "checks",
    "compare",
    "estimation",
    "fit",
    "fit_scaling",
    "markets",
    "plots",
    "policies",
    "privacy",
    "scale",
    "simulate",
    "theory",
]
