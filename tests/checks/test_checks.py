"""The generic checks over everything registered, and proof that the checks can fail."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hushprice as hp
from hushprice import checks, markets, policies
from hushprice.demand import FAMILIES, Family, Logistic
from hushprice.markets import Market
from hushprice.policies import ETC, Policy
from hushprice.privacy import Entropy
from tests.conftest import make_policy
from tests.support.own_posterior import Diagonal, DiagonalServer

policies.REGISTRY.pop(Diagonal.name)  # importing it registered it, for this process only

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("etc-ldp", {"noise": "privunit", "experiment_prices": (0.5, 2)}),
    ("etc-ldp-doubling", {"restart": True, "radius": 3.0, "centre": [0.5] * 6, "start_at": [0.0] * 6}),
    ("etc-ldp-mixed", {"noise": "privunit", "epsilon": 1.0}),
    ("etc-ldp-mixed-doubling", {"restart": True}),
    ("etc-ldp-approx", {"delta": 1e-5, "cost": 0.2}),
    ("mle-cycle", {"variant": "original"}),
    ("semi-myopic", {"variant": "original"}),
    ("etc", {"cost": 0.4, "ridge": 0.1}),
    ("semi-myopic", {"cost": 0.4, "ridge": 1e-3}),
    ("supcb", {"width_scale": 0.03, "horizon": 400}),
    ("supcb-doubling", {"width_scale": 0.03, "cost": 0.4}),
    ("supcb-adversarial", {"width_scale": 0.03}),
    ("ucb", {"width_scale": 5.0, "cost": 0.4, "ridge": 1e-3}),
    ("ts-wtl", {"cost": 0.4}),
    ("ucb-wtl", {"samples": 3}),
]
EVERY = [*((name, {}) for name in policies.REGISTRY), *VARIANTS]
# These depend little on family and dim: each policy passes them in one family, and each family is some policy's.
IN_ONE_FAMILY = {
    "check_same_seed_same_run", "check_snapshot_resumes_exactly", "check_late_repeated_and_missing_outcomes",
    "check_config_round_trip", "check_refuses_bad_input", "check_service",
}  # fmt: skip


def _cases() -> Iterator[Any]:
    """(policy, options, family, check): registered policies in every family, their variants in one of them."""
    every = list(FAMILIES)
    for k, (name, options) in enumerate(EVERY):
        for check in checks.policy_checks():
            one = bool(options) or check.__name__ in IN_ONE_FAMILY
            for family in every[k % len(every) :][:1] if one else every:
                yield pytest.param(name, options, family, check, id=f"{name}-{options}-{family}-{check.__name__}")


@pytest.mark.parametrize(("name", "options", "family", "check"), list(_cases()))
def test_policy(name: str, options: dict[str, Any], family: str, check: checks.PolicyCheck) -> None:
    check(make_policy(name, family=family, **options))


@pytest.mark.parametrize("check", checks.policy_checks(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_policy_with_a_posterior_of_its_own(
    family: str, check: checks.PolicyCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no running estimator, and passes every check of a policy, the service's too."""
    monkeypatch.setitem(policies.REGISTRY, "diagonal", Diagonal)
    check(Diagonal(family=FAMILIES[family](), dim=2, prices=(0, 3)))


@pytest.mark.parametrize(
    "check", [c for c in checks.policy_checks() if c.__name__ not in IN_ONE_FAMILY], ids=lambda c: c.__name__
)
@pytest.mark.parametrize("name", policies.REGISTRY)
@pytest.mark.parametrize("dim", [1, 11])
def test_policy_in_other_dimensions(name: str, dim: int, check: checks.PolicyCheck) -> None:
    check(make_policy(name, dim=dim))


@pytest.mark.parametrize("check", checks.market_checks(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dim", [1, 4])
@pytest.mark.parametrize(
    "name", [name for name in markets.REGISTRY if name != "twin"]
)  # tests/markets/test_twin.py has those
def test_market(name: str, dim: int, family: str, check: Any) -> None:
    if (name == "lower-bound" and family != "linear") or (name in ("a1", "a2") and dim % 2) or name == "autoloan":
        with pytest.raises(hp.InvalidInput):
            markets.get(name)(dim=dim, family=family)
        return
    check(markets.get(name)(dim=dim, family=family))
    check(markets.get(name)(dim=dim, family=family, cost=0.5))
    for drift in markets.DRIFTS:
        check(markets.get(name)(dim=dim, family=family, drift=drift).truth(np.random.default_rng(3)))


@pytest.mark.parametrize("check", checks.family_checks(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("family", [cls() for cls in FAMILIES.values()], ids=lambda f: f.name)
def test_family(family: Family, check: Any) -> None:
    check(family)


# -- the checks can fail ------------------------------------------------------------------------------------


class _LeakyDevice(policies.Device):
    """Draws one number too many for every block, so that batch and live part ways; and leaves the range."""

    def quote(self, params: policies.Params, z: Any, rng: np.random.Generator, terms: Any = None) -> policies.Quotes:
        rng.random()
        quotes = super().quote(params, z, rng, terms)
        return dataclasses.replace(quotes, price=quotes.price + 3.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _BrokenPolicy(ETC):
    name = "broken"

    def device(self, entropy: Entropy | None = None) -> policies.Device:
        return _LeakyDevice(self)


@pytest.mark.parametrize("check", [checks.check_batch_equals_live, checks.check_prices_in_range])
def test_a_broken_policy_is_caught(check: checks.PolicyCheck) -> None:
    policy: Policy = _BrokenPolicy(family="logistic", dim=2, prices=(0, 3), horizon=700)  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        check(policy)


def _broken_diagonal(fault: str) -> Policy:
    """A policy whose server has one fault."""

    class Faulty(DiagonalServer):
        def estimate(self) -> tuple[Any, Any]:
            if fault == "raises":
                raise AttributeError("no estimate")
            if fault == "changes":
                self.theta += 1e-9
            theta, covariance = super().estimate()
            return (theta[:-1] if fault == "short" else theta), covariance

        def state(self) -> dict[str, Any]:
            state = super().state()
            return state | {"precision": np.ones_like(self.precision)} if fault == "loses" else state

        def absorb(self, reports: policies.Records) -> None:
            super().absorb(reports)
            if fault == "forgets":  # something that state() leaves out
                self.outcomes = getattr(self, "outcomes", 0) + 1
                self.theta += 1e-9 * self.outcomes

        def progress(self) -> Any:
            self.t += fault == "counts"
            return None

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Broken(Diagonal):
        name = "broken-diagonal"

        def server(self) -> Any:
            return Faulty(self)

    return Broken(family=Logistic(), dim=2, prices=(0, 3))


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("raises", "the service failed at the estimate"),
        ("changes", "changed the server's state"),
        ("counts", "changed the server's state"),
        ("short", "theta of shape"),
        ("loses", "after a rollback the estimate is not what it was"),
        ("forgets", "the log gives another state than the snapshots hold"),
    ],
)
def test_a_policy_that_the_service_cannot_run_is_caught(fault: str, text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        checks.check_service(_broken_diagonal(fault))
    assert "broken-diagonal" not in policies.REGISTRY


def test_a_policy_that_is_refused_for_another_reason_is_caught() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Unserved(Diagonal):
        name = "unserved"
        not_served = "it is a yardstick."

    policy = Unserved(family=Logistic(), dim=2, prices=(0, 3))
    checks.check_service(policy)
    object.__setattr__(policy, "not_served", "something else")
    with pytest.raises(AssertionError, match="not for its reason"):
        checks.check_service(policy)


class _BrokenFamily(Logistic):
    def mean(self, eta: Any) -> Any:
        return 0.9 * super().mean(eta)

    def quantile(self, eta: Any, u: Any) -> Any:
        return super().quantile(np.asarray(eta) + 0.1, u)

    def optimal_price(self, a: Any, b: Any, prices: Any, *, cost: float = 0.0) -> Any:
        return super().optimal_price(a, np.asarray(b) + 0.1, prices, cost=cost)


class _IncompleteFamily(Logistic):
    code = 99  # for which no kernel has a branch


@pytest.mark.parametrize("check", checks.family_checks(), ids=lambda c: c.__name__)
def test_a_broken_family_is_caught(check: Any) -> None:
    broken = _IncompleteFamily() if check is checks.check_family_complete else _BrokenFamily()
    with pytest.raises(AssertionError):
        check(broken)


class _LateMarket(Market):
    """Its demand drifts one block later than it says."""

    def utility(self, z: Any, *, start: int = 0, horizon: int | None = None) -> Any:
        return super().utility(z, start=max(0, start - len(z)), horizon=horizon)


def test_a_market_whose_demand_does_not_follow_its_drift_is_caught() -> None:
    good = markets.s1(dim=2)
    late = _LateMarket(alpha=good.alpha, beta=good.beta, contexts=good.contexts, prices=(0, 3))
    checks.check_market_moments(late)
    with pytest.raises(AssertionError):
        checks.check_market_moments(markets.drifting(late, "wave"))


def test_a_broken_market_is_caught() -> None:
    good = markets.s1(dim=2)
    shifted = Market(alpha=good.alpha, beta=good.beta, contexts=lambda rng, n: np.full((n, 2), np.nan), prices=(0, 3))
    with pytest.raises((AssertionError, hp.InvalidInput)):
        checks.check_market_draws(shifted)
