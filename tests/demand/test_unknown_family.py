"""A family that is unknown, or incomplete, is refused wherever it turns up."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any, ClassVar

import numpy as np
import pytest

import hushprice as hp
from hushprice import checks, kernels
from hushprice.checks import families
from hushprice.demand import FAMILIES, Family, Terms, register
from hushprice.device import demand as device
from hushprice.kernels import glm, state
from hushprice.kernels.sgd import GRID_REPORT
from hushprice.policies import build

UNKNOWN = 99
DEMAND = state.SimulatedDemand(glm.LOGISTIC, 1.0, np.ones(3), np.ones(3), np.full(3, 0.5))
TERMS = Terms.of(None, (0.5, 3.0), 3, cost=0.1)
Z, X = np.ones((3, 2)), np.array([[1.0, 1.0, -1.0, -1.0]] * 3)

# A value for each parameter that a function with a code takes.
ARGUMENTS: dict[str, Any] = {
    "code": UNKNOWN, "eta": 0.3, "y": 1.0, "s": 0.1, "size": 1.0, "scale": 1.0, "mu": 0.5, "u": 0.25, "rho": 0.5,
    "a": 1.0, "b": 0.5, "p": 1.0, "price": 1.0, "cost": 0.1, "low": 0.5, "high": 3.0, "prices": np.empty(3), "g": 0.3,
    "g1": -1.0, "g2": 0.0, "gap": 1.0, "leverage": 0.1, "moved": 0.0, "alpha": 0.5, "r2": 0.1, "vertex": 1.0,
    "q2": 0.1, "left": 0.5, "right": 3.0, "best": 0.0, "d": 2, "level": 0.1, "phase": state.EXPLOIT, "first": 0,
    "last": 1, "ladder": np.array([1.0, 2.0]), "shift": 0.0, "factor": 1.0, "weights": np.empty(0), "ridge": 1.0,
    "gradient": np.empty(4), "hessian": np.empty((4, 4)), "information": np.empty((4, 4)), "tolerance": 1e-6,
    "max_passes": 3,
    "belief": state.Belief(1.0, 0.5, 0.5, 0.1, 1.0, 0.1), "penalty": state.ridge_penalty(1.0), "work": np.empty(16),
    "stack": np.empty((128, 2)), "uniforms": np.full(2, 0.4),
    "residual": np.empty(64), "h": np.empty(64), "x": X, "theta": np.full(4, 0.2), "z": Z, "before": 0.0,
    "centre": 0.0, "spread": 1.0, "blocks": np.empty((3, 2, 2)), "beta": np.full(2, 0.2),
    "pace": np.array([0.05, 0.0, 0.0, 0.5, 2.0]), "anchor": np.zeros((3, 4)), "P": np.eye(4), "Px": np.empty(4),
    "phi": 1.0, "q": (1.0, 0.0, 1.0), "m": (1.0, 0.0, 1.0), "many": 1.0,
    "w": 1.0, "weight": 1.0, "counts": np.array([300, 299, 299, 1]),  # one more than in the estimate
    "rate": state.SGDRate(1.0, 0.0, 1.0, np.zeros(4), 2.0), "t": 0, "public": np.zeros(3, np.bool_),
    "spec": state.ReportSpec(GRID_REPORT, 1, 1, np.uint64(0), 1.0, 0.1), "words": np.ones((3, 4), np.uint64),
    "rows": np.empty((3, 4), np.int64),
    "demand": DEMAND,
}  # fmt: skip
ONE = {"y": np.ones(3), "price": np.ones(3)}
BLOCK = {"a": np.ones(3), "b": np.ones(3)}
# ... and where one function's differs from the others'.
SPECIAL: dict[str, dict[str, Any]] = {
    "glm.best_prices": BLOCK,
    "newton.evaluate": ONE,
    "newton.newton": ONE,
    "streamed._general": {"eta": np.zeros(64), "y": np.ones(64), "w": np.ones(64)},
    "streamed.evaluate": {
        "rows": state.StreamedRows(np.ones((2, 64)), np.ones(3), np.ones(3), np.empty(0)),
        "alpha": np.full(2, 0.2),
        "gradient": np.empty((2, 2)),
    },
    "score.score": {"z": np.ones(2), "g": np.empty(4)},
    "terms.best_prices_on_terms": BLOCK | {"cost": np.zeros(3), "low": np.full(3, 0.5), "high": np.full(3, 3.0)},
    "running._steepest": {"z": np.ones(2)},
    "running._track": {"x": np.ones(4)},
    "running.assimilate": {"x": np.ones(4)},
    "running.assimilated": {"x": np.ones((300, 4)), "y": np.ones(300), "weight": np.ones(300)},
    "terms.greedy_on_terms": {"terms": TERMS, "quoted": np.ones(3)},
    "private_loop.experiments": {"sales": (DEMAND, np.ones(3), TERMS), "greedy": np.empty(3)},
    "public_sgd.plain_pass": ONE,
    "report.report_rows": ONE,
}


def _functions() -> dict[str, tuple[Any, list[str]]]:
    """Every compiled function with a parameter ``code``, and the names of its parameters."""
    functions = {}
    for module in pkgutil.iter_modules(kernels.__path__):
        home = f"hushprice.kernels.{module.name}"
        for name, function in vars(importlib.import_module(home)).items():
            if getattr(function, "py_func", None) is None or function.__module__ != home:
                continue
            parameters = list(inspect.signature(function.py_func).parameters)
            if "code" in parameters:
                functions[f"{module.name}.{name}"] = function, parameters
    return functions


FUNCTIONS = _functions()


@pytest.mark.parametrize("label", FUNCTIONS)
def test_a_compiled_function_raises_for_an_unknown_code(label: str) -> None:
    function, parameters = FUNCTIONS[label]
    values = ARGUMENTS | SPECIAL.get(label, {})
    missing = [name for name in parameters if name not in values]
    assert not missing, f"give {', '.join(missing)} of {label} a value in ARGUMENTS or SPECIAL"
    with pytest.raises(ValueError, match="unknown family"):
        function(*(values[name] for name in parameters))


def test_all_functions_that_branch_on_a_code_are_among_these() -> None:
    branching = {*families.EVERY_FAMILY, *families.POSITIVE_DEMAND}
    assert {f"glm.{name}" for name in branching} <= set(FUNCTIONS)
    assert set(SPECIAL) <= set(FUNCTIONS)
    assert len(FUNCTIONS) >= 50


class _Unknown(hp.Logistic):
    code: ClassVar[int] = UNKNOWN


@pytest.mark.parametrize("name", ["look-ahead", "greedy", "semi-myopic", "supcb", "ucb", "ts-wtl", "ucb-wtl", "etc"])
def test_a_policy_whose_family_is_unknown_to_the_kernels_raises(name: str) -> None:
    """This covers the kernels that hold the code in a named tuple."""
    policy = build(name, family=_Unknown(), dim=2, prices=(0.5, 3.0), horizon=400)
    with pytest.raises(ValueError, match="unknown family"):
        hp.simulate(policy, hp.markets.s1(dim=2), horizon=400, replications=1, seed=1, workers=1)


def test_a_market_whose_family_is_unknown_to_the_kernels_raises() -> None:
    market = hp.markets.s1(dim=2, family=_Unknown())
    policy = build("random-price", family="logistic", dim=2, prices=market.prices)
    with pytest.raises(ValueError, match="unknown family"):
        hp.simulate(policy, market, horizon=100, replications=1, seed=1, workers=1)


def test_universal_functions_raise_too() -> None:
    for call in (_Unknown().mean, _Unknown().psi, _Unknown().curvature, _Unknown().skewness):
        with pytest.raises(ValueError, match="unknown family"):
            call(np.ones(3))
    with pytest.raises(ValueError, match="unknown family"):
        _Unknown().optimal_price(1.0, 1.0, (0.0, 3.0))


@pytest.mark.parametrize("name", ["no-family", "linear "])
def test_a_device_knows_no_other_family(name: str) -> None:
    for call in (
        lambda: device.mean(name, 0.0),
        lambda: device.best_price(name, 1.0, 1.0, 0.0, 0.0, 3.0),
        lambda: device.best_price(name, 1.0, -1.0, 0.0, 0.0, 3.0),
        lambda: device.score(name, [0.0, 0.0], [1.0], 1.0, 1.0, shift=0.0, factor=1.0),
    ):
        with pytest.raises(KeyError):
            call()


def test_an_incomplete_family_is_refused_with_all_that_it_lacks() -> None:
    class Half(Family):
        name: ClassVar[str] = "half"
        code: ClassVar[int] = UNKNOWN

    with pytest.raises(hp.InvalidInput) as refusal:
        register(Half)
    for part in ("'outcomes'", "'link'", "'saturated'", "'signs'", "'best_utility'", "'end_utility'"):
        assert part in str(refusal.value)
    with pytest.raises(AssertionError) as missing:
        checks.check_family_complete(Half())
    for name in families.EVERY_FAMILY:
        assert f"glm.{name}" in str(missing.value)
    assert "device.demand" in str(missing.value)
    assert "half" not in FAMILIES


def test_a_name_or_a_code_is_taken_once() -> None:
    for changes in ({"name": "other"}, {"code": UNKNOWN}):
        with pytest.raises(hp.InvalidInput, match="taken by Logistic"):
            register(type("Again", (hp.Logistic,), changes))
    assert FAMILIES["logistic"] is hp.Logistic


def test_devices_and_kernels_know_the_same_families() -> None:
    assert set(device.FAMILIES) == set(FAMILIES)
    assert {glm.LINEAR, glm.LOGISTIC, glm.POISSON} <= {family.code for family in FAMILIES.values()}
