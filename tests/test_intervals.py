"""Intervals against SciPy's and statsmodels', and their coverage counted out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.rates import confint_poisson

from hushprice.intervals import binomial, poisson, student


@pytest.mark.parametrize("tail", [0.025, 0.05, 1e-6])
@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (3, 100), (50, 100), (100, 100), (7, 100_000)])
def test_binomial(k: int, n: int, tail: float) -> None:
    exact = stats.binomtest(k, n).proportion_ci(1 - 2 * tail, method="exact")
    assert np.array(binomial(k, n, tail)) == pytest.approx([exact.low, exact.high], abs=1e-11)  # SciPy searches
    assert np.array(binomial(k, n, tail)) == pytest.approx(proportion_confint(k, n, 2 * tail, method="beta"), rel=1e-9)


def test_binomial_of_arrays() -> None:
    k, n = np.array([0, 3, 10]), np.array([10, 20, 10])
    each = np.transpose([binomial(one, many, 0.025) for one, many in zip(k, n, strict=True)])
    assert np.array_equal(np.array(binomial(k, n, 0.025)), each)


def test_binomial_bounds_are_each_wrong_as_rarely_as_stated() -> None:
    n, k = 30, np.arange(31)
    low, high = binomial(k, n, 0.025)
    for p in np.linspace(0.01, 0.99, 99):
        chance = stats.binom.pmf(k, n, p)
        assert chance[low > p].sum() <= 0.025
        assert chance[high < p].sum() <= 0.025


@pytest.mark.parametrize("tail", [0.025, 0.05])
@pytest.mark.parametrize("count", [0, 1, 4, 250])
def test_poisson(count: int, tail: float) -> None:
    low, high = poisson(count, tail)
    assert [low, high] == pytest.approx(confint_poisson(count, 1.0, method="exact-c", alpha=2 * tail), rel=1e-9)
    assert low == pytest.approx(stats.chi2.ppf(tail, 2 * count) / 2 if count else 0.0)
    assert high == pytest.approx(stats.chi2.ppf(1 - tail, 2 * count + 2) / 2)


@pytest.mark.parametrize("freedom", [0.5, 1, 2, 49, 1e6])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_student(freedom: float, level: float) -> None:
    assert student(freedom, level) == pytest.approx(stats.t.ppf(0.5 + level / 2, freedom), rel=1e-9)


def test_nothing_is_known_of_the_spread_of_one_value() -> None:
    assert np.isnan(student(0))
    assert np.isnan(student(-1.0))
    assert np.isnan(student(float("nan")))
