"""Probit demand: numbers, best prices, estimates, and what does not hold as for canonical families."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import optimize, special, stats

import hushprice as hp
from hushprice.device import demand as device
from hushprice.estimation import design, fit
from hushprice.kernels import glm, normal, score
from hushprice.markets.twin.check import check_twin

PROBIT = hp.Probit()
ETAS = np.concatenate([np.linspace(-37.0, 9.0, 931), [0.0, -0.0, 1e-300, -1e-300]])


def test_the_distribution_function_is_good_in_both_tails() -> None:
    relative = 1e-15 * (3.0 + 0.5 * ETAS**2)
    assert (np.abs(PROBIT.mean(ETAS) / stats.norm.cdf(ETAS) - 1.0) <= relative + 1e-13).all()
    np.testing.assert_allclose(PROBIT.loglik(ETAS, 1.0), special.log_ndtr(ETAS), rtol=1e-13, atol=2.3e-16)
    assert (np.diff(PROBIT.mean(np.sort(ETAS))) >= 0.0).all()
    assert PROBIT.mean(0.0) == 0.5
    assert (PROBIT.mean(np.inf), PROBIT.mean(-np.inf) < 1e-300) == (1.0, True)


def test_loss_has_the_derivatives_that_newton_takes() -> None:
    h = 1e-5
    for eta in (-30.0, -8.0, -1.0, 0.0, 0.7, 3.0, 6.0):
        for y in (0.0, 1.0):
            value, first, second = glm.loss(PROBIT.code, eta, y)
            (up, first_up, _), (down, first_down, _) = (glm.loss(PROBIT.code, eta + e, y) for e in (h, -h))
            assert value == pytest.approx(-special.log_ndtr((2.0 * y - 1.0) * eta), rel=1e-12, abs=1e-15)
            assert first == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-8)
            assert second == pytest.approx((first_up - first_down) / (2 * h), rel=1e-6, abs=1e-8)
            assert 0.0 < second < 1.0
            assert -first == pytest.approx(float(PROBIT.residual(eta, y)), rel=1e-9)


def test_steepness_bounds_the_ratio_of_derivatives_of_the_loss_up_to_1_97() -> None:
    m = np.linspace(-30.0, 12.0, 4201)
    hazard = np.array([normal.hazard(v) for v in m])
    ratio = 1.0 / (hazard + m) - (2.0 * hazard + m)
    bound = [glm.steepness(PROBIT.code, abs(v)) for v in m]
    inside = (m > -25.0) & (m < 1.97)  # beyond it is a heuristic
    assert (np.abs(ratio[inside]) <= np.array(bound)[inside]).all()


@pytest.mark.parametrize("cost", [0.0, 1.3])
def test_best_price_satisfies_the_first_order_condition(cost: float) -> None:
    for a in (-20.0, -1.0, 0.0, 1.2533141373155001, 1.3, 4.0, 30.0, 1e6):
        for b in (1e-3, 0.7, 12.0):
            p = PROBIT.optimal_price(a, b, (0.0, 1e12), cost=cost)
            level = a - b * cost
            root = optimize.brentq(
                lambda s, level=level: np.log(s) + stats.norm.logpdf(level - s) - special.log_ndtr(level - s),
                1e-9, max(1.0, level + 5.0), xtol=1e-14, rtol=1e-14,
            )  # fmt: skip
            assert p == pytest.approx(cost + root / b, rel=1e-9)


def test_a_best_utility_belongs_to_its_price() -> None:
    slopes = np.array([0.01, 0.4, 1.0, 7.0])
    for price, cost in ((1.0, 0.0), (2.0, 1.9), (50.0, 3.0)):
        a, slant = PROBIT.best_utility(slopes, price, cost)
        np.testing.assert_allclose(PROBIT.optimal_price(a, slopes, (0.0, 1e9), cost=cost), price, rtol=1e-9)
        h = 1e-6 * price
        rise = PROBIT.best_utility(slopes, price + h, cost)[0] - PROBIT.best_utility(slopes, price - h, cost)[0]
        np.testing.assert_allclose(slant, rise / (2.0 * h), rtol=1e-4)


def test_the_private_score_is_the_gradient_of_the_matching_loss_and_bounded() -> None:
    rng, h = np.random.default_rng(1), 1e-6
    for y in (0.0, 1.0):
        theta, z, p, g = rng.normal(size=4), rng.normal(size=2), 1.3, np.empty(4)
        x = np.concatenate([z, -p * z])
        score.score(PROBIT.code, theta, z, p, y, 0.0, 1.0, g)
        numeric = [
            -(_matching(x @ (theta + h * e), y) - _matching(x @ (theta - h * e), y)) / (2 * h) for e in np.eye(4)
        ]
        np.testing.assert_allclose(g, numeric, rtol=1e-6, atol=1e-9)
        score.score(PROBIT.code, 1e6 * theta, z, p, y, 0.0, 1.0, g)
        assert np.linalg.norm(g) <= np.linalg.norm(x) * (1.0 + 1e-12)
    assert PROBIT.residual_bound(0.3, 10**6) == 1.0


def _matching(eta: Any, y: float) -> float:
    return float(PROBIT.psi(eta) - y * eta)


def test_standard_errors_are_those_of_the_observed_information() -> None:
    rng = np.random.default_rng(5)
    x = design(np.column_stack([np.ones(900), rng.normal(size=900)]), rng.uniform(0.5, 3.0, 900))
    y = PROBIT.sample(x @ np.array([1.0, 0.3, 0.8, 0.1]), rng)
    ours, theirs = fit("probit", x, y), sm.Probit(y, x).fit(disp=0, tol=1e-12)
    np.testing.assert_allclose(ours.theta, theirs.params, rtol=1e-7)
    np.testing.assert_allclose(ours.standard_errors, theirs.bse, rtol=1e-7)
    assert ours.loglik == pytest.approx(theirs.llf, rel=1e-12)


def test_separable_records_have_no_estimate() -> None:
    x = design(np.ones((40, 1)), np.linspace(1.0, 3.0, 40))
    with pytest.raises(hp.NoMLE, match="separable"):
        fit("probit", x, (np.arange(40) < 20).astype(float))
    model = hp.fit({"p": np.linspace(1.0, 3.0, 40), "y": (np.arange(40) < 20) * 1}, price="p", outcome="y",
                   features=[], family="probit")  # fmt: skip
    assert any(finding.code == "separable" for finding in model.findings_)


@pytest.fixture(scope="module")
def log() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    age, price = rng.normal(size=4000), rng.uniform(0.5, 3.0, 4000)
    y = PROBIT.sample(1.0 + 0.4 * age - 0.9 * price, rng)
    return {"age": age, "price": price, "sold": y}


def test_a_log_is_fitted_and_its_twin_agrees_with_it(log: dict[str, Any]) -> None:
    model = hp.fit(log, price="price", outcome="sold", features=["age"], family="probit")
    exact = fit("probit", design(np.column_stack([np.ones(4000), log["age"]]), log["price"]), log["sold"])
    assert model.family_ == PROBIT
    eta = model.family_.mean(exact.utility(np.column_stack([np.ones(4000), log["age"]]))[0] - 0.0)
    assert np.isfinite(eta).all()
    assert model.report_.held_out is not None
    assert model.report_.held_out.scores[0].auc is not None
    own = check_twin(model, log)
    assert own.same_rows
    assert own.holds
    rng = np.random.default_rng(8)
    other = {"age": rng.normal(size=4000), "price": rng.uniform(0.5, 3.0, 4000)}
    other["sold"] = PROBIT.sample(1.0 + 0.4 * other["age"] - 0.9 * other["price"], rng)
    new = check_twin(model, other)
    assert not new.same_rows
    assert new.holds


def test_devices_price_to_the_same_bits() -> None:
    rng = np.random.default_rng(2)
    for _ in range(3000):
        a, b = rng.normal() * 10 ** rng.uniform(-3, 4), rng.normal() * 10 ** rng.uniform(-6, 3)
        cost = rng.uniform(0.0, 4.0)
        assert PROBIT.optimal_price(a, b, (0.5, 3.0), cost=cost) == device.best_price("probit", a, b, cost, 0.5, 3.0)
        assert PROBIT.mean(a) == device.mean("probit", a)
