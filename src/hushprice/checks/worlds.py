"""Checks that every market and every demand family must pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hushprice.checks.families import check_family_complete
from hushprice.demand import Family
from hushprice.markets import Market


def market_checks() -> list[Callable[[Market], None]]:
    """The checks for a market."""
    return [check_market_draws, check_market_moments, check_market_optimum]


def family_checks() -> list[Callable[[Family], None]]:
    """The checks for a demand family."""
    return [check_family_complete, check_family_derivatives, check_family_optimal_price, check_family_sampling]


def check_market_draws(market: Market) -> None:
    """Contexts have the stated shape, are finite and repeat with the seed; blocks add up to the horizon.

    Parameters
    ----------
    market : Market
        The market to check.
    """
    first, again = (market.draw(np.random.default_rng(1), 500) for _ in range(2))
    assert first.shape == (500, market.dim)
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)
    sizes = [len(block.z) for block in market.blocks(np.random.default_rng(1), np.random.default_rng(2), 10_000)]
    assert sum(sizes) == 10_000


def check_market_moments(market: Market) -> None:
    """Every customer of a run has the parameters of its moment (:meth:`~hushprice.markets.Market.theta_at`).

    Parameters
    ----------
    market : Market
        The market to check.
    """
    t, horizon, d = 0, 10_000, market.dim
    for block in market.blocks(np.random.default_rng(1), np.random.default_rng(2), horizon):
        for row in (1, len(block.z) // 2, len(block.z) - 1):
            theta = market.theta_at(t + row + 1, horizon=horizon)
            expected = block.z[row] @ theta[:d], block.z[row] @ theta[d:]
            np.testing.assert_allclose((block.a[row], block.b[row]), expected, rtol=1e-9, atol=1e-9)
        t += len(block.z)


def check_market_optimum(market: Market) -> None:
    """No price on a fine grid earns more than the optimal price; where demand drifts, at the start of a run."""
    z = market.draw(np.random.default_rng(1), 200)
    a, b = z @ market.alpha, z @ market.beta
    best = market.family.optimal_revenue(a, b, market.prices, cost=market.cost)
    for price in np.linspace(*market.prices, 301):
        assert (market.family.revenue(price, a, b, cost=market.cost) <= best + 1e-12).all()
    optimal = market.optimal_price(z)
    at_optimum = market.family.revenue(optimal, a, b, cost=market.cost)
    np.testing.assert_allclose(at_optimum, best, rtol=1e-12, atol=1e-12)


def check_family_derivatives(family: Family) -> None:
    """psi', psi'' and psi''' are the derivatives of the function before them."""
    eta, h = np.linspace(-6, 6, 97), 1e-5
    for f, derivative in (
        (family.psi, family.mean),
        (family.mean, family.curvature),
        (family.curvature, family.skewness),
    ):
        numeric = (f(eta + h) - f(eta - h)) / (2 * h)
        np.testing.assert_allclose(derivative(eta), numeric, rtol=1e-6, atol=1e-8)


def check_family_optimal_price(family: Family) -> None:
    """The optimal price earns at least as much as the best of 20 001 prices, for all costs and signs of b."""
    grid = np.linspace(0.0, 3.0, 20_001)
    for cost in (0.0, 0.7, 4.0):
        for a in (-30.0, -2.0, 0.0, 1.0, 5.0, 40.0):
            for b in (-2.0, -1e-9, 0.0, 1e-12, 0.3, 1.0, 20.0):
                price = family.optimal_price(a, b, (0.0, 3.0), cost=cost)
                assert 0.0 <= price <= 3.0
                best = family.revenue(grid, a, b, cost=cost).max()
                got = family.revenue(price, a, b, cost=cost)
                assert got >= best - 1e-9 * (1 + abs(best)), f"a={a}, b={b}, cost={cost}: {got} < {best}"


def check_family_sampling(family: Family) -> None:
    """Sampled outcomes are possible and have the stated mean (z test, two-sided error rate 1e-6 per point)."""
    rng = np.random.default_rng(11)
    for eta in (-2.0, 0.0, 1.5):
        y = family.sample(np.full(200_000, eta), rng)
        family.check_outcome(y)
        gap = (y.mean() - family.mean(eta)) / (y.std() / np.sqrt(y.size))
        assert abs(gap) < 4.9, f"the mean of samples at eta = {eta} is {gap:.1f} standard errors off"
