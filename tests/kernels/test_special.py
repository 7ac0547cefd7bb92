"""Special functions against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from scipy import special, stats

from hushprice.kernels.special import X_MAX, X_MIN, exp, normal_quantile, omega, omegas, poisson_quantile


@njit
def _map_omega(x, out):  # type: ignore[no-untyped-def]
    for i in range(x.size):
        out[i] = omega(x[i])


@njit
def _map_exp(x, out):  # type: ignore[no-untyped-def]
    for i in range(x.size):
        out[i] = exp(x[i])


def test_omega_agrees_with_scipy_everywhere() -> None:
    x = np.concatenate([np.linspace(-40, 60, 200_001), [-1e4, -700.0, X_MIN, X_MAX, 1e4, 1e8]])
    got = np.empty_like(x)
    _map_omega(x, got)
    want = special.wrightomega(x).real
    np.testing.assert_allclose(got, want, rtol=4e-15, atol=1e-300)


def test_omega_of_a_block_has_the_same_bits_as_one_by_one() -> None:
    for x in (np.linspace(-30, 60, 5001), np.linspace(-5, 20, 5001)):
        one = np.empty_like(x)
        _map_omega(x, one)
        block = x.copy()
        omegas(block)
        np.testing.assert_array_equal(one, block)


def test_exp_is_within_two_units_in_the_last_place() -> None:
    x = np.concatenate([np.linspace(-699, 699, 300_001), np.linspace(-3, 3, 300_001)])
    got = np.empty_like(x)
    _map_exp(x, got)
    assert np.abs(got / np.exp(x) - 1).max() <= 2 * np.finfo(float).eps


@pytest.mark.parametrize("x", [1e4, np.inf, -1e4, -np.inf, np.nan])
def test_exp_saturates_and_never_reads_outside_its_table(x: float) -> None:
    got = np.empty(1)
    _map_exp(np.array([x]), got)
    assert got[0] == pytest.approx(np.exp(700.0 if x > 0 else -700.0), rel=1e-13)


def test_normal_quantile_agrees_with_scipy() -> None:
    u = np.concatenate([np.linspace(1e-6, 1 - 1e-6, 20_001), 10.0 ** -np.arange(7, 300, 20)])
    got = np.array([normal_quantile(v) for v in u])
    np.testing.assert_allclose(got, special.ndtri(u), rtol=2e-14, atol=2e-14)


@pytest.mark.parametrize("mu", [1e-9, 0.3, 2.0, 17.5, 400.0, 1e5])
def test_poisson_quantile_agrees_with_scipy(mu: float) -> None:
    u = np.random.default_rng(3).random(3000)
    got = np.array([poisson_quantile(v, mu) for v in u])
    np.testing.assert_array_equal(got, stats.poisson.ppf(u, mu))


@pytest.mark.parametrize("mu", [3.0, 30.0, 1e3, 1e5, 1e6])
def test_poisson_quantile_far_in_the_tails(mu: float) -> None:
    """Against SciPy's own tails; one unit is what rounding of the sums allows there."""
    for tail in (1e-6, 1e-10, 1e-13):
        assert abs(poisson_quantile(1 - tail, mu) - stats.poisson.isf(1 - (1 - tail), mu)) <= 1
        assert abs(poisson_quantile(tail, mu) - stats.poisson.ppf(tail, mu)) <= 1
    assert poisson_quantile(0.0, mu) == 0.0
    assert abs(poisson_quantile(1 - 2**-53, mu) - stats.poisson.isf(2**-53, mu)) <= 1


def test_poisson_quantile_of_a_huge_mean_is_right_to_its_expansion() -> None:
    u = np.linspace(0.001, 0.999, 99)
    got = np.array([poisson_quantile(v, 4e8) for v in u])
    want = stats.gamma.ppf(u, 4e8)  # the Poisson quantile is within a few units of the gamma's
    assert np.abs(got - want).max() <= 5
