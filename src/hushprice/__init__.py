"""hushprice: prices that learn, and can keep quiet about who taught them.

>>> import hushprice as hp
>>> market = hp.markets.s1(dim=4)
>>> policy = hp.policies.LookAhead(family=hp.Logistic(), dim=4, prices=(0, 3))
>>> result = hp.simulate(policy, market, horizon=5_000, replications=4, seed=7)
>>> 0 < result.summary().mean < 200
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hushprice.errors import BrokenPromise as BrokenPromise
from hushprice.errors import BudgetSpent as BudgetSpent
from hushprice.errors import HushpriceError as HushpriceError
from hushprice.errors import InvalidInput as InvalidInput
from hushprice.errors import LedgerError as LedgerError
from hushprice.errors import NoMLE as NoMLE
from hushprice.errors import SnapshotError as SnapshotError
from hushprice.version import __version__ as __version__

if TYPE_CHECKING:
    from hushprice import checks as checks
    from hushprice import device as device
    from hushprice import estimation as estimation
    from hushprice import evaluation as evaluation
    from hushprice import fitting as fitting
    from hushprice import markets as markets
    from hushprice import planning as planning
    from hushprice import plots as plots
    from hushprice import policies as policies
    from hushprice import privacy as privacy
    from hushprice import service as service
    from hushprice import theory as theory
    from hushprice.demand import Family as Family
    from hushprice.demand import Rules as Rules
    from hushprice.demand.families import *  # noqa: F403 - every family of that file
    from hushprice.estimation.prior import Prior as Prior
    from hushprice.evaluation.evaluate import evaluate as evaluate
    from hushprice.evaluation.result import Evaluation as Evaluation
    from hushprice.fitting import DemandModel as DemandModel
    from hushprice.fitting import fit as fit
    from hushprice.markets import Market as Market
    from hushprice.planning.plan import plan as plan
    from hushprice.policies import Pricer as Pricer
    from hushprice.simulation.record import record as record
    from hushprice.simulation.results import Comparison as Comparison
    from hushprice.simulation.results import Result as Result
    from hushprice.simulation.scaling import Scaling as Scaling
    from hushprice.simulation.scaling import fit_scaling as fit_scaling
    from hushprice.simulation.scaling import scale as scale
    from hushprice.simulation.simulate import compare as compare
    from hushprice.simulation.simulate import simulate as simulate

_ERRORS = (
    "BrokenPromise", "BudgetSpent", "HushpriceError", "InvalidInput", "LedgerError", "NoMLE", "SnapshotError",
)  # fmt: skip
_MODULES = (
    "checks", "device", "estimation", "evaluation", "fitting", "markets", "planning", "plots", "policies", "privacy",
    "service", "theory",
)  # fmt: skip
_HOMES = {
    "demand": ("Family", "Rules"),
    "estimation": ("Prior",),
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
    if name in _MODULES or name == "logs":  # the former name of ``fitting``
        return import_module(f"hushprice.{name}")
    if name in _HOME:
        value = getattr(import_module(f"hushprice.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name == "__all__":  # for ``from hushprice import *``: the registered families are among the names
        return __dir__()
    if name[:1].isupper() and name in (families := import_module("hushprice.demand.families")).__all__:
        return getattr(families, name)
    raise AttributeError(f"module 'hushprice' has no attribute {name!r}")


def __dir__() -> list[str]:
    families = import_module("hushprice.demand.families").__all__
    return sorted([*_ERRORS, *_MODULES, *_HOME, *families, "__version__"])
