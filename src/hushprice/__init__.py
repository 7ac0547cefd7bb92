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

from hushprice.errors import BrokenPromise, BudgetSpent, HushpriceError, InvalidInput, LedgerError, NoMLE, SnapshotError
from hushprice.version import __version__

if TYPE_CHECKING:
    from hushprice import (
        checks,
        device,
        estimation,
        evaluation,
        fitting,
        markets,
        planning,
        plots,
        policies,
        privacy,
        service,
        theory,
    )
    from hushprice.demand import Family, Rules
    from hushprice.demand.families import *  # noqa: F403 - every family of that file
    from hushprice.evaluation.evaluate import evaluate
    from hushprice.evaluation.result import Evaluation
    from hushprice.fitting import DemandModel, fit
    from hushprice.markets import Market
    from hushprice.planning.plan import plan
    from hushprice.policies import Pricer
    from hushprice.simulation.record import record
    from hushprice.simulation.results import Comparison, Result
    from hushprice.simulation.scaling import Scaling, fit_scaling, scale
    from hushprice.simulation.simulate import compare, simulate

_MODULES = (
    "checks", "device", "estimation", "evaluation", "fitting", "markets", "planning", "plots", "policies", "privacy",
    "service", "theory",
)  # fmt: skip
_HOMES = {
    "demand": ("Family", "Rules"),
    "evaluation": ("Evaluation", "evaluate"),
    "fitting": ("DemandModel", "fit"),
    "markets": ("Market",),
    "planning": ("plan",),
    "policies": ("Pricer",),
    "simulation": ("Comparison", "Result", "Scaling", "compare", "fit_scaling", "record", "scale", "simulate"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Everything comes when it is first asked for: a device needs neither Numba nor Matplotlib."""
    if name in _MODULES:
        return import_module(f"hushprice.{name}")
    if name == "logs":  # the name of ``fitting`` in releases up to 0.1
        return import_module("hushprice.fitting")
    if name in _HOME:
        value = getattr(import_module(f"hushprice.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name[:1].isupper() and name in (families := import_module("hushprice.demand.families")).__all__:
        return getattr(families, name)
    raise AttributeError(f"module 'hushprice' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *import_module("hushprice.demand.families").__all__])


__all__ = [
    "BrokenPromise",
    "BudgetSpent",
    "Comparison",
    "DemandModel",
    "Evaluation",
    "Family",
    "HushpriceError",
    "InvalidInput",
    "LedgerError",
    "Market",
    "NoMLE",
    "Pricer",
    "Result",
    "Rules",
    "Scaling",
    "SnapshotError",
    "__version__",
    "checks",
    "compare",
    "device",
    "estimation",
    "evaluate",
    "evaluation",
    "fit",
    "fit_scaling",
    "fitting",
    "markets",
    "plan",
    "planning",
    "plots",
    "policies",
    "privacy",
    "record",
    "scale",
    "service",
    "simulate",
    "theory",
]
