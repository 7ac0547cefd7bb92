"""Estimates with a prior and with weighted records, against scipy.optimize on the penalised loss."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import optimize

import hushprice as hp
from hushprice.arrays import Array
from hushprice.demand import Family
from hushprice.errors import InvalidInput, SnapshotError
from hushprice.estimation import DRIFT_BOUND, Prior, RunningEstimator, StageEstimators, design
from hushprice.kernels import look_ahead
from hushprice.policies import Policy
from tests.conftest import make_policy

FAMILIES = [hp.Linear(), hp.Logistic(), hp.Poisson()]
D = 2
each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
Sales = tuple[Array, Array, Array]


def _prior(rng: np.random.Generator, dim: int = D) -> Prior:
    """A prior with a centre of its own, in correlated directions of different firmness."""
    factor = rng.normal(size=(2 * dim, 2 * dim)) * np.geomspace(0.3, 3.0, 2 * dim)
    return Prior(rng.normal(0.5, 0.5, 2 * dim), factor @ factor.T + 0.1 * np.eye(2 * dim))


def _sales(family: Family, n: int, rng: np.random.Generator) -> Sales:
    market = hp.markets.s1(dim=D, family=family)
    z, price = market.draw(rng, n), rng.uniform(0, 3, n)
    return z, price, family.sample(design(z, price) @ market.theta, rng)


def _information(family: Family, prior: Prior, sales: Sales, weights: Array, theta: Array) -> Array:
    x = design(sales[0], sales[1])
    return np.asarray((x.T * (weights * family.curvature(x @ theta))) @ x + prior.precision)


def _reference(family: Family, prior: Prior, sales: Sales, weights: Array) -> Array:
    """The minimum of the penalised loss, by an independent optimiser."""
    x, y = design(sales[0], sales[1]), sales[2]

    def loss(theta: Array) -> float:
        way, eta = theta - prior.centre, x @ theta
        return float(weights @ (family.psi(eta) - y * eta) + 0.5 * way @ prior.precision @ way)

    def gradient(theta: Array) -> Array:
        residual = weights * (family.mean(x @ theta) - y)
        return np.asarray(x.T @ residual + prior.precision @ (theta - prior.centre))

    def hessian(theta: Array) -> Array:
        return _information(family, prior, sales, weights, theta)

    minimize: Any = optimize.minimize
    minimum = minimize(loss, prior.centre, jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-8})
    assert np.abs(gradient(minimum.x)).max() < 1e-4  # where the loss itself is all rounding
    return np.asarray(minimum.x)


def _gap(family: Family, prior: Prior, sales: Sales, weights: Array, theta: Array) -> float:
    """Distance from the reference in standard errors."""
    exact = _reference(family, prior, sales, weights)
    way = theta - exact
    return float(np.sqrt(way @ _information(family, prior, sales, weights, exact) @ way))


# -- the prior itself -----------------------------------------------------------------------------------------


def test_the_covariance_and_its_root_invert_the_precision(rng: np.random.Generator) -> None:
    for prior in (_prior(rng), Prior.ridge(D, 0.3)):
        np.testing.assert_allclose(prior.covariance @ prior.precision, np.eye(2 * D), atol=1e-10)
        np.testing.assert_allclose(prior.root @ prior.root.T, prior.covariance, rtol=1e-10, atol=1e-12)
    assert prior.dim == D


def test_a_ridge_written_out_gives_the_same_bits() -> None:
    rng = np.random.default_rng(4)
    sales = _sales(hp.Logistic(), 500, rng)
    results = []
    for prior in (Prior.ridge(D, 0.7), Prior(np.zeros(2 * D), np.diag([0.7] * 2 * D))):
        estimator = RunningEstimator(hp.Logistic(), prior=prior)
        for i in range(500):
            estimator.absorb(*(part[i : i + 1] for part in sales))
            estimator.theta()
        results.append(estimator.theta())
    np.testing.assert_array_equal(results[0], results[1])


def test_a_prior_cannot_be_changed_behind_an_estimator() -> None:
    centre = np.zeros(2)
    prior = Prior(centre, np.diag([1.0, 2.0]))
    centre[0] = 5.0
    assert prior.centre[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        prior.precision[0, 0] = 3.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        prior.centre = centre  # type: ignore[misc]


@pytest.mark.parametrize(
    ("centre", "precision", "text"),
    [
        ([0.0, 0.0], [[1.0]], "shape"),
        ([0.0, np.nan], np.eye(2), "finite"),
        ([0.0, 0.0], [[1.0, 0.5], [0.4, 1.0]], "symmetric"),
        ([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], "positive definite"),
        ([0.0, 0.0], np.zeros((2, 2)), "positive definite"),
        ([0.0, 0.0], -np.eye(2), "positive definite"),
    ],
)
def test_what_is_no_prior_is_refused(centre: Any, precision: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        Prior(centre, precision)
    with pytest.raises(InvalidInput, match="ridge"):
        Prior.ridge(D, 0.0)


# -- estimates ------------------------------------------------------------------------------------------------


@each_family
@pytest.mark.parametrize("n", [0, 1, 5, 150])
def test_few_records_give_the_exact_penalised_estimate(family: Family, n: int, rng: np.random.Generator) -> None:
    prior, sales = _prior(rng), _sales(family, n, rng)
    estimator = RunningEstimator(family, prior=prior)
    estimator.absorb(*sales)
    np.testing.assert_allclose(estimator.theta(), _reference(family, prior, sales, np.ones(n)), rtol=1e-5, atol=1e-5)
    exact, information = estimator.exact()
    np.testing.assert_allclose(exact, _reference(family, prior, sales, np.ones(n)), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(information, _information(family, prior, sales, np.ones(n), exact), rtol=1e-5, atol=1e-8)


@each_family
def test_the_running_estimate_stays_near_the_reference(family: Family, rng: np.random.Generator) -> None:
    prior, sales = _prior(rng), _sales(family, 1500, rng)
    estimator = RunningEstimator(family, prior=prior)
    for i in range(1500):
        estimator.absorb(*(part[i : i + 1] for part in sales))
        theta = estimator.theta()
        if i % 100 == 57:
            so_far = tuple(part[: i + 1] for part in sales)
            assert _gap(family, prior, so_far, np.ones(i + 1), theta) <= DRIFT_BOUND  # type: ignore[arg-type]
    assert estimator.refits < 1500 / 4
    assert estimator.drift() <= DRIFT_BOUND


def test_stages_begin_with_the_prior(rng: np.random.Generator) -> None:
    prior, sales = _prior(rng), _sales(hp.Logistic(), 300, rng)
    stages = StageEstimators(hp.Logistic(), prior=prior, stages=2)
    theta, root = stages.bounds()
    np.testing.assert_array_equal(theta, [prior.centre] * 2)
    for s in range(2):
        np.testing.assert_allclose(root[s] @ root[s].T, np.linalg.inv(prior.precision), rtol=1e-9, atol=1e-12)
    stages.absorb(2, *sales)
    theta, root = stages.bounds()
    x = design(sales[0], sales[1])
    np.testing.assert_allclose(root[1] @ root[1].T, np.linalg.inv(prior.precision + x.T @ x), rtol=1e-8)
    assert _gap(hp.Logistic(), prior, sales, np.ones(300), theta[1]) <= DRIFT_BOUND


# -- weights --------------------------------------------------------------------------------------------------


@each_family
@pytest.mark.parametrize("n", [5, 150, 900])
def test_a_weighted_estimate_is_the_weighted_penalised_one(family: Family, n: int, rng: np.random.Generator) -> None:
    prior, sales, weights = _prior(rng), _sales(family, n, rng), rng.uniform(0, 2, n) * (rng.random(n) < 0.8)
    estimator = RunningEstimator(family, prior=prior)
    estimator.absorb(*sales)
    estimator.theta()
    estimator.reweigh(weights)
    theta, exact = estimator.theta(), _reference(family, prior, sales, weights)
    np.testing.assert_allclose(theta, exact, rtol=1e-5, atol=1e-5)
    information = _information(family, prior, sales, weights, exact)
    np.testing.assert_allclose(estimator.P, np.linalg.inv(information), rtol=1e-3, atol=1e-6)
    assert estimator.drift() < 1e-3


@each_family
def test_weights_agree_with_the_fit(family: Family, rng: np.random.Generator) -> None:
    sales, weights = _sales(family, 400, rng), rng.uniform(0.1, 2, 400)
    estimator = RunningEstimator(family, prior=Prior.ridge(D, 0.5))
    estimator.absorb(*sales)
    estimator.reweigh(weights)
    fitted = hp.estimation.fit(family, design(sales[0], sales[1]), sales[2], ridge=0.5, weights=weights)
    np.testing.assert_allclose(estimator.theta(), fitted.theta, rtol=1e-6, atol=1e-6)


@each_family
def test_forgetting_keeps_the_estimate_near_the_reference(family: Family, rng: np.random.Generator) -> None:
    """Weights that fall with age, replaced every 200 records; the records in between are taken in one by one."""
    prior, n = _prior(rng), 1200
    sales, weights = _sales(family, n, rng), np.ones(n)
    estimator = RunningEstimator(family, prior=prior)
    for i in range(n):
        estimator.absorb(*(part[i : i + 1] for part in sales))
        estimator.theta()
        if i % 200 == 199:
            weights[: i + 1] *= 0.7
            estimator.reweigh(weights[: i + 1])
        if i % 100 == 57 or i % 200 == 199:
            so_far = tuple(part[: i + 1] for part in sales)
            assert _gap(family, prior, so_far, weights[: i + 1], estimator.theta()) <= DRIFT_BOUND  # type: ignore[arg-type]
    assert estimator.refits < n / 2  # every one of the first 200 is a refit


@each_family
@pytest.mark.parametrize("weight", [0.0, 0.3, 2.0])
def test_a_rank_one_step_takes_the_weight_of_its_record(family: Family, weight: float) -> None:
    """One record of that weight moves the estimate as far as an exact refit does, up to the second order."""
    rng = np.random.default_rng(8)
    prior, sales = Prior.ridge(D, 1.0), _sales(family, 801, rng)
    estimator = RunningEstimator(family, prior=prior)
    estimator.absorb(*(part[:800] for part in sales))
    before, refits = estimator.theta(), estimator.refits
    estimator.absorb(*(part[800:] for part in sales))
    estimator.weight[800] = weight
    theta = estimator.theta()
    assert estimator.refits == refits
    moved = _reference(family, prior, sales, np.append(np.ones(800), weight)) - before
    np.testing.assert_allclose(theta - before, moved, atol=2e-2 * np.abs(moved).max() + 1e-6)


def test_unit_weights_change_no_bit() -> None:
    rng = np.random.default_rng(9)
    sales = _sales(hp.Logistic(), 700, rng)
    one, other = (RunningEstimator(hp.Logistic(), prior=Prior.ridge(D, 1.0)) for _ in range(2))
    for estimator in (one, other):
        estimator.absorb(*sales)
    other.reweigh(np.ones(700))
    np.testing.assert_array_equal(one.theta(), other.theta())
    np.testing.assert_array_equal(one.P, other.P)


def test_stages_weigh_their_design_matrix(rng: np.random.Generator) -> None:
    prior, sales, weights = _prior(rng), _sales(hp.Poisson(), 250, rng), rng.uniform(0, 2, 250)
    stages = StageEstimators(hp.Poisson(), prior=prior, stages=2)
    stages.absorb(2, *sales)
    stages.bounds()
    stages.reweigh(2, weights)
    more = _sales(hp.Poisson(), 20, rng)
    stages.absorb(2, *more)
    theta, root = stages.bounds()
    joined: Any = tuple(np.concatenate(pair) for pair in zip(sales, more, strict=True))
    x, all_weights = design(joined[0], joined[1]), np.append(weights, np.ones(20))
    V = prior.precision + (x.T * all_weights) @ x
    np.testing.assert_allclose(root[1] @ root[1].T, np.linalg.inv(V), rtol=1e-8)
    np.testing.assert_allclose(root[0] @ root[0].T, np.linalg.inv(prior.precision), rtol=1e-9, atol=1e-12)
    assert _gap(hp.Poisson(), prior, joined, all_weights, theta[1]) <= DRIFT_BOUND


def test_a_snapshot_keeps_the_weights(rng: np.random.Generator) -> None:
    sales, weights = _sales(hp.Logistic(), 300, rng), rng.uniform(0, 2, 300)
    one, other = (RunningEstimator(hp.Logistic(), prior=Prior.ridge(D, 1.0)) for _ in range(2))
    one.absorb(*sales)
    one.reweigh(weights)
    one.theta()
    other.absorb(*(np.concatenate([part] * 3) for part in sales))  # weights beyond the records restored must go
    other.reweigh(np.full(900, 0.1))
    other.restore(one.state())
    more = _sales(hp.Logistic(), 40, rng)
    for estimator in (one, other):
        estimator.absorb(*more)
    np.testing.assert_array_equal(one.theta(), other.theta())
    np.testing.assert_array_equal(other.weight[:340], np.append(weights, np.ones(40)))
    with pytest.raises(SnapshotError, match="weight"):
        other.restore(one.state() | {"weight": -np.ones(340)})
    with pytest.raises(SnapshotError, match="number of records"):
        other.restore(one.state() | {"weight": np.ones(3)})
    with pytest.raises(SnapshotError, match="'weight'"):
        other.restore({key: value for key, value in one.state().items() if key != "weight"})


@pytest.mark.parametrize("weights", [np.ones(4), [1.0, np.nan, 1.0], [1.0, -0.1, 1.0]])
def test_weights_that_do_not_fit_are_refused(weights: Any, rng: np.random.Generator) -> None:
    estimator = RunningEstimator(hp.Linear(), prior=Prior.ridge(D, 1.0))
    estimator.absorb(*_sales(hp.Linear(), 3, rng))
    with pytest.raises(InvalidInput, match="weights"):
        estimator.reweigh(weights)
    np.testing.assert_array_equal(estimator.weight, np.ones(64))


# -- policies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, kind in hp.policies.REGISTRY.items() if not kind.private])
def test_every_policy_takes_its_estimators_from_the_factory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ridge, a given prior, and a prior that a policy overrides reach every estimate it prices from."""
    policy = make_policy(name, dim=D, ridge=2.0)
    low, high = policy.prices
    mid, half = 0.5 * (low + high), 0.5 * (high - low)
    level, slope = np.array([1.0, -mid]), np.array([0.0, half])  # of (alpha, beta), in centred prices for look-ahead
    centred = np.kron([level, slope + look_ahead.TIED * level], np.eye(D))
    change = centred if name == "look-ahead" else np.eye(2 * D)
    for estimator in policy.server().estimators:
        np.testing.assert_allclose(estimator.prior.precision, 2.0 * change.T @ change)
    prior = Prior(np.ones(2 * D), np.diag(np.arange(1.0, 5.0)))
    if policy.takes_prior:
        for estimator in make_policy(name, dim=D, prior=prior).server().estimators:
            assert estimator.prior == prior
    if name != "look-ahead":
        monkeypatch.setattr(Policy, "initial_prior", property(lambda self: prior))
        for estimator in policy.server().estimators:
            assert estimator.prior == prior
