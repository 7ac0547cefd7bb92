"""Prices on terms: a unit cost and a range per customer, a ladder of allowed prices, a largest step.

``terms`` is a ``hushprice.demand.Terms``. The step functions of :mod:`hushprice.kernels.quote` and
:mod:`hushprice.kernels.confidence` take the cost and range of one customer; the functions here compute both from the
terms of a block of customers, one customer at a time.
"""

import numpy as np

from hushprice.kernels.confidence import decide, scratch
from hushprice.kernels.glm import best_price, draw, mean, profit, utility
from hushprice.kernels.jit import compiled
from hushprice.kernels.quote import better_rung, greedy_price, nearest_rung, quote_on_terms, rungs, window
from hushprice.kernels.state import EXPLOIT, EXPLORE, GRID, PERTURB


@compiled
def quotes_on_terms(rule, z, uniforms, terms, prices):
    """Prices for a block of customers. ``terms.last``, the last price of each segment, is updated."""
    phase, code, theta, level = rule
    cost, low, high, ladder, segment, step, last = terms
    n = prices.size
    a, b = np.zeros(n), np.zeros(n)
    if phase in (EXPLOIT, PERTURB):
        utility(z, theta, a, b)
    for i in range(n):
        s = segment[i]
        lowest, highest = window(low[i], high[i], last[s], step)
        u = uniforms[i] if uniforms.size else 0.0
        prices[i] = quote_on_terms(phase, code, a[i], b[i], level, u, cost[i], lowest, highest, ladder)
        last[s] = prices[i]


@compiled
def decisions_on_terms(rule, z, uniforms, terms, prices, numbers):
    """:func:`decide` for customers under the same published bounds, each on separate terms."""
    cost, low, high, ladder, segment, step, last = terms
    room = scratch(rule)
    for i in range(len(z)):
        s = segment[i]
        lowest, highest = window(low[i], high[i], last[s], step)
        p, numbers[i] = decide(rule, z[i], uniforms[i], cost[i], lowest, highest, room)
        if ladder.size:
            first, top = rungs(ladder, lowest, highest)
            p = nearest_rung(p, ladder, first, top)
        prices[i] = p
        last[s] = p


@compiled
def propensities(rule, z, prices, terms, density, discrete):
    """The density of each price, or its probability where ``discrete``, as :func:`quotes_on_terms` quotes them."""
    phase, code, theta, level = rule
    cost, low, high, ladder, segment, step, last = terms
    n = prices.size
    a, b = np.zeros(n), np.zeros(n)
    if phase == PERTURB:
        utility(z, theta, a, b)
    for i in range(n):
        s = segment[i]
        lowest, highest = window(low[i], high[i], last[s], step)
        discrete[i] = True
        density[i] = 1.0
        if phase in (EXPLORE, GRID):
            if ladder.size:
                first, top = rungs(ladder, lowest, highest)
                density[i] = 1.0 / (top - first + 1)
            elif highest > lowest:
                discrete[i] = phase == GRID
                density[i] = 1.0 / level if phase == GRID else 1.0 / (highest - lowest)
        elif phase == PERTURB and level > 0.0:
            up = quote_on_terms(phase, code, a[i], b[i], level, 0.0, cost[i], lowest, highest, ladder)
            down = quote_on_terms(phase, code, a[i], b[i], level, 1.0, cost[i], lowest, highest, ladder)
            density[i] = 1.0 if up == down else 0.5
        last[s] = prices[i]


@compiled
def greedy_on_terms(code, theta, z, terms, quoted, prices):
    """The prices that ``theta`` makes best, on the terms on which the prices ``quoted`` were quoted."""
    cost, low, high, ladder, segment, step, last = terms
    n = prices.size
    a, b = np.zeros(n), np.zeros(n)
    utility(z, theta, a, b)
    for i in range(n):
        s = segment[i]
        lowest, highest = window(low[i], high[i], last[s], step)
        prices[i] = greedy_price(code, a[i], b[i], cost[i], lowest, highest, ladder)
        last[s] = quoted[i]


@compiled
def best_on_terms(code, a, b, cost, low, high, ladder):
    """The best allowed price, regardless of the largest step."""
    p = best_price(code, a, b, cost, low, high)
    if ladder.size:
        first, last = rungs(ladder, low, high)
        p = better_rung(code, a, b, cost, p, ladder, first, last)
    return p


@compiled
def best_prices_on_terms(code, a, b, cost, low, high, ladder, prices):
    """:func:`best_on_terms` of every customer."""
    for i in range(prices.size):
        prices[i] = best_on_terms(code, a[i], b[i], cost[i], low[i], high[i], ladder)


@compiled
def sell_on_terms(demand, terms, prices, y, regret):
    """Sell at ``prices``: write outcomes, and regret against the best allowed price of each customer."""
    code, scale, a, b, uniforms = demand
    cost, low, high, ladder = terms.cost, terms.low, terms.high, terms.ladder
    for i in range(prices.size):
        best = profit(code, a[i], b[i], best_on_terms(code, a[i], b[i], cost[i], low[i], high[i], ladder), cost[i])
        mu = mean(code, a[i] - b[i] * prices[i])
        regret[i] = max(best - (prices[i] - cost[i]) * mu, 0.0)
        y[i] = draw(code, scale, mu, uniforms[i])
