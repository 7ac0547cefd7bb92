"""Estimates against statsmodels, on data where the MLE exists and on data where it does not."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

import hushprice as hp
from hushprice import demand
from hushprice.demand import Family
from hushprice.estimation import DRIFT_BOUND, Prior, RunningEstimator, design, fit
from tests.support.paths import KARLAN_ZINMAN

SM_FAMILIES = {"linear": sm.families.Gaussian, "logistic": sm.families.Binomial, "poisson": sm.families.Poisson}
FAMILIES = [family() for family in demand.FAMILIES.values()]


def _data(family: Family, n: int, d: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    market = hp.markets.s1(dim=d, family=family)
    x = design(market.draw(rng, n), rng.uniform(0, 3, n))
    return x, family.sample(x @ market.theta, rng)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
@pytest.mark.parametrize(("n", "d"), [(60, 1), (700, 3), (40_000, 5)])
def test_agrees_with_statsmodels(family: Family, n: int, d: int) -> None:
    x, y = _data(family, n, d, seed=n)
    ours = fit(family, x, y)
    if family.name == "probit":  # by the observed information, as ours
        theirs = sm.Probit(y, x).fit(method="newton", tol=1e-14, maxiter=200, disp=0)
    else:
        theirs = sm.GLM(y, x, family=SM_FAMILIES[family.name]()).fit(tol=1e-14, maxiter=200)
    np.testing.assert_allclose(ours.theta, theirs.params, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(ours.standard_errors, theirs.bse, rtol=1e-6)
    if family.name != "linear":  # statsmodels plugs in its own estimate of sigma there
        assert ours.loglik == pytest.approx(theirs.llf, rel=1e-10)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_weights_count_as_repeated_records(family: Family, rng: np.random.Generator) -> None:
    x, y = _data(family, 300, 2, seed=1)
    times = rng.integers(0, 4, 300)
    weighted = fit(family, x, y, weights=times, ridge=0.3)
    repeated = fit(family, np.repeat(x, times, axis=0), np.repeat(y, times), ridge=0.3)
    np.testing.assert_allclose(weighted.theta, repeated.theta, rtol=1e-9)
    assert weighted.loglik == pytest.approx(repeated.loglik)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_ridge_estimate_has_zero_penalised_gradient(family: Family) -> None:
    x, y = _data(family, 400, 4, seed=2)
    theta = fit(family, x, y, ridge=2.5).theta
    gradient = -x.T @ family.residual(x @ theta, y) + 2.5 * theta
    assert np.abs(gradient).max() < 1e-9


def test_ridge_standard_errors_are_those_of_repeated_samples() -> None:
    """The spread of the ridge estimate over 2000 samples, against the formula; 10% is 6 se of an sd from 2000."""
    family, rng = hp.Logistic(), np.random.default_rng(5)
    x, _ = _data(family, 200, 1, seed=3)
    truth = np.array([1.6, 1.0])
    draws = np.array([fit(family, x, family.sample(x @ truth, rng), ridge=5.0).theta for _ in range(2000)])
    stated = fit(family, x, family.sample(x @ truth, rng), ridge=5.0)
    np.testing.assert_allclose(draws.std(axis=0), stated.standard_errors, rtol=0.10)


def test_rank_deficient_rows_give_the_smallest_estimate_and_say_what_is_unknown() -> None:
    x, y = _data(hp.Logistic(), 500, 2, seed=4)
    doubled = np.hstack([x, x[:, :1]])  # column 4 repeats column 0
    ours = fit("logistic", doubled, y)
    plain = fit("logistic", x, y)
    assert ours.rank == 4
    np.testing.assert_allclose(doubled @ ours.theta, x @ plain.theta, atol=1e-8)
    assert ours.theta[0] == pytest.approx(ours.theta[4])  # the split of smallest norm
    assert np.isinf(ours.standard_errors[[0, 4]]).all()
    np.testing.assert_allclose(ours.standard_errors[1:4], plain.standard_errors[1:4], rtol=1e-6)
    with_ridge = fit("logistic", doubled, y, ridge=1.0)
    assert with_ridge.theta[0] == pytest.approx(with_ridge.theta[4])


@pytest.mark.parametrize("quasi", [False, True])
def test_separable_records_have_no_mle_but_a_ridge_estimate(quasi: bool) -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(80, 3))
    y = (x[:, 0] > 0).astype(float)
    if quasi:  # records on the separating plane, with both outcomes
        x[:10, 0] = 0.0
        y[:10] = np.arange(10) % 2
    with pytest.raises(hp.NoMLE, match="ridge"):
        fit("logistic", x, y)
    theta = fit("logistic", x, y, ridge=1.0).theta
    gradient = x.T @ (hp.Logistic().mean(x @ theta) - y) + theta
    assert np.abs(gradient).max() < 1e-9


def test_poisson_without_a_sale_in_a_direction_has_no_mle() -> None:
    x = np.array([[1.0, 0.0]] * 20 + [[1.0, 1.0]] * 20)
    y = np.array([1.0, 2.0] * 10 + [0.0] * 20)
    with pytest.raises(hp.NoMLE):
        fit("poisson", x, y)


def test_nearly_separable_records_do_have_an_mle() -> None:
    """One crossing record is enough: the check must not cry wolf on large but finite estimates."""
    x = np.linspace(-3, 3, 200).reshape(-1, 1) * np.array([[1.0]])
    x = np.hstack([np.ones((200, 1)), 20 * x])
    y = (x[:, 1] > 0).astype(float)
    y[99], y[100] = 1.0, 0.0
    theirs = sm.GLM(y, x, family=sm.families.Binomial()).fit(tol=1e-14, maxiter=200)
    np.testing.assert_allclose(fit("logistic", x, y).theta, theirs.params, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_columns_of_very_different_scale(family: Family) -> None:
    x, y = _data(family, 2000, 2, seed=7)
    scales = np.array([1e-4, 1.0, 1e4, 1e2])
    plain, scaled = fit(family, x, y), fit(family, x * scales, y)
    np.testing.assert_allclose(scaled.theta * scales, plain.theta, rtol=1e-7)


def test_poisson_survives_a_terrible_start() -> None:
    """Newton's first step from zero overshoots by hundreds; halving saves it."""
    x = np.array([[1.0, 50.0], [1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    y = np.array([100000.0, 0.0, 1.0, 0.0])
    theta = fit("poisson", x, y).theta
    np.testing.assert_allclose(x.T @ (np.exp(x @ theta) - y), 0, atol=1e-4)


def test_the_number_of_threads_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = _data(hp.Logistic(), 50_000, 3, seed=9)
    estimates = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(os, "cpu_count", lambda threads=threads: threads)
        estimates.append(fit("logistic", x, y).theta)
    np.testing.assert_array_equal(estimates[0], estimates[1])
    np.testing.assert_array_equal(estimates[0], estimates[2])


@pytest.mark.parametrize(
    ("x", "y", "options"),
    [
        ([[np.nan, 1.0]], [1.0], {}),
        ([[1.0, 1.0]], [1.0, 0.0], {}),
        ([1.0, 1.0], [1.0, 0.0], {}),
        ([[1.0], [2.0]], [0.5, 1.0], {}),
        ([[1.0], [2.0]], [0.0, 1.0], {"ridge": -1}),
        ([[1.0], [2.0]], [0.0, 1.0], {"weights": [1.0, -1.0]}),
        (np.empty((0, 2)), [], {}),
        (np.empty((2, 0)), [0.0, 1.0], {"ridge": 1.0}),
        ([[1j], [2.0]], [0.0, 1.0], {}),
        ([[1.0], [2.0]], [0.0, 1.0], {"tolerance": "x"}),
        ([[1.0], [2.0]], [0.0, 1.0], {"max_passes": 0}),
        ([[10**400], [2.0]], [0.0, 1.0], {}),
    ],
)
def test_bad_records_are_refused(x: Any, y: Any, options: dict[str, Any]) -> None:
    with pytest.raises(hp.InvalidInput):
        fit("logistic", x, y, **options)


def test_fit_gives_utilities_to_price_with() -> None:
    x, y = _data(hp.Logistic(), 5000, 2, seed=10)
    a, b = fit("logistic", x, y).utility([[0.8, 0.9]])
    assert 0 < hp.Logistic().optimal_price(a, b, (0, 3))[0] < 3


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
@pytest.mark.parametrize("unit", [1e-16, 1e-6, 1e6])
def test_the_scale_of_the_weights_does_not_matter(family: Family, unit: float, rng: np.random.Generator) -> None:
    x, y = _data(family, 300, 2, seed=1)
    weights = rng.uniform(0.5, 2, 300)
    plain, scaled = fit(family, x, y, weights=weights), fit(family, x, y, weights=unit * weights)
    np.testing.assert_allclose(plain.theta, scaled.theta, rtol=1e-9)
    assert scaled.loglik == pytest.approx(unit * plain.loglik)


def test_records_of_weight_zero_are_no_records(rng: np.random.Generator) -> None:
    x = np.linspace(-1, 1, 40).reshape(-1, 1)
    y = (x[:, 0] > 0).astype(float)
    crossed, flipped = np.vstack([x, [[0.9]]]), np.append(y, 0.0)
    assert np.isfinite(fit("logistic", crossed, flipped).theta).all()
    with pytest.raises(hp.NoMLE):
        fit("logistic", crossed, flipped, weights=np.append(np.ones(40), 0.0))
    with pytest.raises(hp.InvalidInput, match="nothing to fit"):
        fit("logistic", x, y, weights=np.zeros(40))


def test_nearly_parallel_columns_are_distinguished() -> None:
    x = np.column_stack([np.ones(50), 1e9 + np.arange(50.0)])
    ours = fit("linear", x, np.arange(50.0))
    assert ours.rank == 2
    assert ours.theta[1] == pytest.approx(1.0, abs=1e-6)


def test_a_repeated_column_in_other_units() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=50)
    y = (rng.random(50) < 0.5).astype(float)
    plain = fit("logistic", np.column_stack([np.ones(50), x]), y)
    both = fit("logistic", np.column_stack([np.ones(50), x, 1e8 * x]), y)
    assert both.rank == 2
    assert both.loglik == pytest.approx(plain.loglik, rel=1e-10)
    assert both.theta[0] == pytest.approx(plain.theta[0], rel=1e-6)
    assert both.standard_errors[0] == pytest.approx(plain.standard_errors[0], rel=1e-6)
    assert np.isinf(both.standard_errors[1:]).all()


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1e6])
def test_separability_does_not_depend_on_units(unit: float) -> None:
    x = np.linspace(-1, 1, 100)
    with pytest.raises(hp.NoMLE):
        fit("logistic", np.column_stack([np.ones(100), unit * x]), (x > 0).astype(float))


def test_rows_of_zeros_identify_nothing() -> None:
    result = fit("logistic", np.zeros((5, 2)), [0, 1, 0, 1, 1])
    assert result.rank == 0
    np.testing.assert_array_equal(result.theta, 0)
    assert np.isinf(result.standard_errors).all()


# -- the running estimator ------------------------------------------------------------------------------------


def _stream(
    estimator: RunningEstimator, market: hp.markets.Market, rng: np.random.Generator, n: int, style: str
) -> float:
    """Feed n records one by one, re-estimating after each; the largest drift at random moments."""
    worst = 0.0
    for i in range(n):
        z = market.draw(rng, 1)
        if style == "uniform":
            price = rng.uniform(*market.prices)
        elif style == "drifting":  # the market moves under the policy: prices and contexts shift half-way
            z = z * (1.0 if i < n // 2 else np.linspace(0.2, 3.0, market.dim))
            price = rng.uniform(0, 1) if i < n // 2 else rng.uniform(2, 3)
        else:  # greedy: prices that follow the estimate, hardly varied
            theta = estimator.theta()
            d = market.dim
            price = market.family.optimal_price(z[0] @ theta[:d], z[0] @ theta[d:], market.prices)
            price = float(np.clip(price + rng.choice([-0.1, 0.1]), *market.prices))
        y = market.family.sample(z @ market.alpha - (z @ market.beta) * price, rng)
        estimator.absorb(z, np.array([price]), y)
        estimator.theta()
        if rng.random() < 0.05:
            worst = max(worst, estimator.drift())
    return worst


@pytest.mark.parametrize("style", ["uniform", "greedy", "drifting"])
@pytest.mark.parametrize("ridge", [1e-3, 1.0])
@pytest.mark.parametrize("market", ["s1", "s2", "wide"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_the_running_estimate_stays_within_its_bound(family: Family, market: str, ridge: float, style: str) -> None:
    rng = np.random.default_rng(21)
    for dim in (1, 6):
        estimator = RunningEstimator(family, prior=Prior.ridge(dim, ridge))
        world = hp.markets.get(market)(dim=dim, family=family)
        assert _stream(estimator, world, rng, 1500, style) <= DRIFT_BOUND
        assert estimator.refits < 1500 / 4  # or it would be no running estimate


def test_linear_rank_one_steps_are_exact() -> None:
    rng = np.random.default_rng(22)
    estimator = RunningEstimator(hp.Linear(), prior=Prior.ridge(4, 0.5))
    assert _stream(estimator, hp.markets.s1(dim=4, family="linear"), rng, 600, "uniform") < 1e-6


def test_outliers_do_not_throw_the_running_estimate_off() -> None:
    """A record the model holds impossible: an explicit Newton step would jump to infinity."""
    rng = np.random.default_rng(23)
    estimator = RunningEstimator(hp.Logistic(), prior=Prior.ridge(1, 1e-4))
    z = np.ones((200, 1))
    price = rng.uniform(0, 3, 200)
    estimator.absorb(z, price, (price < 1.5).astype(float))
    estimator.theta()
    estimator.absorb(np.array([[40.0]]), np.array([3.0]), np.array([1.0]))
    assert np.isfinite(estimator.theta()).all()
    assert estimator.drift() <= DRIFT_BOUND


def test_a_ridge_lost_in_rounding_still_gives_an_estimate() -> None:
    """Two equal features in large units: the information is singular but for a ridge far below its rounding."""
    rng = np.random.default_rng(0)
    z, price = np.full((2000, 2), 1e5), rng.uniform(0, 3, 2000)
    for ridge in (1e-6, 1.0):
        estimator = RunningEstimator(hp.Linear(), prior=Prior.ridge(2, ridge))
        estimator.absorb(z, price, 1.0 - 0.8 * price + rng.normal(size=2000))
        theta = 2e5 * estimator.theta()
        np.testing.assert_allclose(theta, [1, 1, 0.8, 0.8], atol=0.15)
        np.testing.assert_allclose(theta[[0, 2]], theta[[1, 3]], rtol=1e-2)


@pytest.mark.parametrize("size", [1e3, 1e8, 1e12])
def test_one_enormous_context_does_not_spoil_the_estimate_for_ever(size: float) -> None:
    rng = np.random.default_rng(1)
    for family in FAMILIES:
        estimator = RunningEstimator(family, prior=Prior.ridge(1, 1.0))
        for i in range(600):
            z = np.array([[size if i == 250 else 1.0]])
            price = rng.uniform(0, 3, 1)
            y = family.sample(1.0 - 0.8 * price, rng) if i != 250 else np.zeros(1)
            estimator.absorb(z, price, y)
            assert np.isfinite(estimator.theta()).all()


@pytest.mark.parametrize("seed", [39, 58])
def test_outliers_of_every_size_keep_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    poisson = RunningEstimator(hp.Poisson(), prior=Prior.ridge(1, 1e-3))
    logistic = RunningEstimator(hp.Logistic(), prior=Prior.ridge(5, 1.0))
    truth = rng.normal(size=10)
    for i in range(600):
        z, y = np.array([[1 + rng.random()]]) * (30 if i % 50 == 49 else 1), float(rng.poisson(1.0))
        y += rng.integers(0, 1000) if rng.random() < 0.05 else 0
        poisson.absorb(z, rng.uniform(2.9, 3, 1), np.array([y]))
        z, p = rng.normal(size=(1, 5)) * 10 ** rng.uniform(-2, 1.5), rng.uniform(0, 3, 1)
        logistic.absorb(z, p, hp.Logistic().sample(z @ truth[:5] - p * (z @ truth[5:]), rng))
        for estimator in (poisson, logistic):
            estimator.theta()
            if i % 7 == 0:
                assert estimator.drift() <= DRIFT_BOUND


def test_the_estimate_does_not_depend_on_how_records_arrive_in_memory() -> None:
    """Growing the store and reading it back changes no bit."""
    rng = np.random.default_rng(24)
    one, other = (RunningEstimator(hp.Logistic(), prior=Prior.ridge(2, 1.0)) for _ in range(2))
    other.reserve(5000)
    for _ in range(500):
        z, price = rng.random((1, 2)), rng.uniform(0, 3, 1)
        y = (rng.random(1) < 0.5).astype(float)
        for estimator in (one, other):
            estimator.absorb(z, price, y)
            estimator.theta()
    np.testing.assert_array_equal(one.theta(), other.theta())


@pytest.mark.skipif(not KARLAN_ZINMAN.exists(), reason="the Karlan-Zinman experiment is not part of the project")
def test_real_experiment_agrees_with_statsmodels() -> None:
    import polars as pl

    frame = (
        pl.read_csv(KARLAN_ZINMAN, infer_schema_length=None).select("offer4", "applied", "risk", "wave").drop_nulls()
    )
    risk = np.stack([(frame["risk"] == level).to_numpy() for level in ("MEDIUM", "HIGH")], axis=1)
    wave = np.stack([(frame["wave"] == w).to_numpy() for w in (2, 3)], axis=1)
    z = np.hstack([np.ones((len(frame), 1)), risk, wave]).astype(float)
    x, y = design(z, frame["offer4"].to_numpy()), frame["applied"].to_numpy().astype(float)
    ours = fit("logistic", x, y)
    theirs = sm.GLM(y, x, family=sm.families.Binomial()).fit(tol=1e-14)
    np.testing.assert_allclose(ours.theta, theirs.params, atol=1e-6)
    np.testing.assert_allclose(ours.standard_errors, theirs.bse, rtol=1e-6)


def test_a_subsample_that_leads_astray_does_no_harm() -> None:
    rng = np.random.default_rng(76)  # in a sixteenth of these rows hardly anything is sold
    z = np.column_stack([np.ones(2000), rng.normal(size=(2, 2000)).T])
    price = rng.uniform(0.5, 3, 2000)
    y = rng.poisson(np.exp(-2 - 0.8 * price))
    x = design(z, price)
    theirs = sm.GLM(y, x, family=sm.families.Poisson()).fit(tol=1e-12)
    np.testing.assert_allclose(fit("poisson", x, y).theta, theirs.params, atol=1e-6)
