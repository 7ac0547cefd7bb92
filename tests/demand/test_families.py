"""Families beyond the generic checks: extreme arguments, references, refusals."""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats
from tools.source import modules

import hushprice as hp
from hushprice.demand import FAMILIES, Family, as_family
from tests.support.paths import ROOT

ALL = [cls() for cls in FAMILIES.values()]


def _log_abs_profit(family: Family, p: np.ndarray, a: float, b: float, cost: float) -> Any:
    """log |(p - cost) mean(a - b p)| in log space, so that no |a| overflows (families with positive demand)."""
    eta = a - b * p
    if family.name == "logistic":
        log_mean = -np.logaddexp(0, -eta)
    else:
        log_mean = special.log_ndtr(eta) if family.name == "probit" else eta
    with np.errstate(divide="ignore"):
        return np.log(np.abs(p - cost)) + log_mean


@settings(max_examples=300, deadline=None)
@given(
    family=st.sampled_from(ALL),
    a=st.floats(-1e4, 1e4),
    b=st.one_of(st.floats(-50, 50), st.sampled_from([0.0, -0.0, 1e-300, 1e-12, -1e-12, 1e4])),
    low=st.floats(0, 5),
    width=st.floats(1e-3, 20),
    cost=st.sampled_from([0.0, 0.5, 3.0]),
)
def test_the_closed_form_beats_a_grid_for_every_a_and_b(
    family: Family, a: float, b: float, low: float, width: float, cost: float
) -> None:
    high = low + width
    price = family.optimal_price(a, b, (low, high), cost=cost)
    assert low <= price <= high
    grid = np.linspace(low, high, 4001)
    if family.name == "linear":
        values, got = (grid - cost) * (a - b * grid), (price - cost) * (a - b * price)
        assert got >= values.max() - 1e-9 * (1 + np.abs(values).max())
    elif high > cost:  # some price earns: compare the logs of the earnings
        earn = grid[grid > cost]
        got = _log_abs_profit(family, np.array([price]), a, b, cost)[0]
        assert price > cost
        assert got >= _log_abs_profit(family, earn, a, b, cost).max() - 1e-9
    else:  # every price loses: the smallest loss
        got = _log_abs_profit(family, np.array([price]), a, b, cost)[0]
        assert got <= _log_abs_profit(family, grid, a, b, cost).min() + 1e-9


def test_families_are_names_of_the_package() -> None:
    names: dict[str, Any] = {}
    exec("from hushprice import *", names)
    for family in FAMILIES.values():
        assert names[family.__name__] is family is getattr(hp, family.__name__)
    assert set(dir(hp)) <= set(names)


def test_no_text_of_the_package_lists_the_families() -> None:
    """A help text or docstring with such a list would not follow when a family is added."""
    lists = [
        f"{path}:{node.lineno}"
        for path, tree in modules(ROOT)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        and set(FAMILIES) <= set(re.findall(r"\w+", node.value.lower()))
    ]  # fmt: skip
    assert lists == []


def test_logistic_price_is_the_lambert_w_formula() -> None:
    a, b = np.meshgrid(np.linspace(-5, 5, 41), np.linspace(0.2, 4, 31))
    want = (1 + special.lambertw(np.exp(a - 1).tolist()).real) / b
    np.testing.assert_allclose(hp.Logistic().optimal_price(a, b, (0, 1e6)), want, rtol=1e-13)


def test_optimal_revenue_is_the_revenue_at_the_optimal_price() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=500) * 3, rng.normal(size=500)
    for family in ALL:
        for cost in (0.0, 1.0):
            p = family.optimal_price(a, b, (0.5, 4), cost=cost)
            want = family.revenue(p, a, b, cost=cost)
            np.testing.assert_allclose(family.optimal_revenue(a, b, (0.5, 4), cost=cost), want, rtol=1e-12, atol=1e-13)


def test_scalars_give_floats_and_arrays_broadcast() -> None:
    family = hp.Logistic()
    assert isinstance(family.optimal_price(1.0, 1, (0, 3)), float)
    assert isinstance(family.mean(0), float)
    assert family.optimal_price(np.zeros((2, 1)), np.ones(3), (0, 3)).shape == (2, 3)
    assert family.revenue(1.0, np.zeros(4), 1.0).shape == (4,)


def test_log_likelihoods_against_scipy() -> None:
    eta = np.linspace(-3, 3, 25)
    np.testing.assert_allclose(
        hp.Logistic().loglik(eta, 1.0), stats.bernoulli.logpmf(1, special.expit(eta)), rtol=1e-12
    )
    np.testing.assert_allclose(hp.Poisson().loglik(eta, 4.0), stats.poisson.logpmf(4, np.exp(eta)), rtol=1e-12)
    np.testing.assert_allclose(hp.Linear(sigma=2.0).loglik(eta, 1.0), stats.norm.logpdf(1.0, eta, 2.0), rtol=1e-12)


def test_log_likelihood_is_finite_far_out() -> None:
    assert hp.Logistic().loglik(1e4, 0.0) == -1e4
    assert hp.Logistic().loglik(-1e4, 0.0) == 0.0


def test_samples_have_the_stated_distribution() -> None:
    """Kolmogorov-Smirnov for the normal, chi-square for the Poisson; error rate 1e-4 each, fixed seed."""
    rng = np.random.default_rng(8)
    normal = hp.Linear(sigma=3.0).sample(np.full(20_000, 1.0), rng)
    assert stats.kstest(normal, stats.norm(1.0, 3.0).cdf).pvalue > 1e-4
    counts = np.bincount(hp.Poisson().sample(np.full(20_000, 1.0), rng).astype(int), minlength=9)
    expected = 20_000 * stats.poisson.pmf(np.arange(len(counts)), np.e)
    keep = expected > 5
    observed = np.append(counts[keep], counts[~keep].sum())
    assert stats.chisquare(observed, np.append(expected[keep], 20_000 - expected[keep].sum())).pvalue > 1e-4


@pytest.mark.parametrize("word", [hp.Logistic(), hp.Logistic, "logistic", "Logistic"])
def test_a_family_is_known_by_instance_class_or_name(word: Any) -> None:
    assert as_family(word) == hp.Logistic()


@pytest.mark.parametrize("word", ["logit", 3, None, int, Family])
def test_other_families_are_refused(word: Any) -> None:
    with pytest.raises(hp.InvalidInput, match="family"):
        as_family(word)


@pytest.mark.parametrize(
    ("family", "y"), [(hp.Logistic(), 2), (hp.Poisson(), -1), (hp.Poisson(), 0.5), (hp.Linear(), np.nan)]
)
def test_impossible_outcomes_are_refused(family: Family, y: float) -> None:
    with pytest.raises(hp.InvalidInput):
        family.check_outcome(y)


def test_nan_in_nan_out_and_words_refused() -> None:
    for family in ALL:
        assert np.isnan(family.mean(np.nan))
        assert np.isnan(family.optimal_price(1.0, np.nan, (0, 3)))
        assert np.isnan(family.optimal_price([1.0, np.nan], 1.0, (0, 3))).tolist() == [False, True]
        with pytest.raises(hp.InvalidInput):
            family.mean("high")
        for y in ("1", b"1", None, [[1], [1, 2]], 10**400):
            with pytest.raises(hp.InvalidInput):
                family.check_outcome(y)


def test_reversed_range_names_the_fix() -> None:
    with pytest.raises(hp.InvalidInput, match=r"Did you mean \(0, 3\)"):
        hp.Logistic().optimal_price(1, 1, (3, 0))
    with pytest.raises(hp.InvalidInput):
        hp.Linear(sigma=0)
