"""The device's half of a dithered round: the price that a coin chooses, and the report of the score."""

import numpy as np

from hushprice.kernels.dither.prices import expected, price_pair, weighted
from hushprice.kernels.glm import utility_of
from hushprice.kernels.jit import compiled
from hushprice.kernels.report import privatize, workspace


@compiled
def dithered_quotes(rule, z, uniforms, terms, prices):
    """Prices for a block of customers: the lower one where the uniform is below 1/2."""
    cost, low, high, ladder, _, _, _ = terms
    for i in range(prices.size):
        a, b = utility_of(rule.theta, z[i])
        lower, upper = price_pair(rule, a, b, cost[i], low[i], high[i], ladder)
        prices[i] = lower if uniforms[i] < 0.5 else upper


@compiled
def dithered_score(rule, z, price, y, limits, room, g):
    """Write the score of one customer; False if the price is neither of the two.

    ``limits`` is (cost, low, high, ladder) of the customer. ``room`` holds 2 d numbers.
    """
    cost, low, high, ladder = limits
    d = z.size
    a, b = utility_of(rule.theta, z)
    lower, upper = price_pair(rule, a, b, cost, low, high, ladder)
    g[:] = 0.0
    if price != lower and price != upper:
        return False
    m, D = expected(rule, a, b, lower, upper)
    level, slope = room[:d], room[d:]
    weighted(rule, z, m, D, level, slope)
    outcome = min(max(y, rule.least), rule.most)
    centred = outcome - 0.5 * (rule.least + rule.most)
    tilt = (centred if price == upper else -centred) - D if lower < upper else 0.0
    for j in range(d):
        g[j] = (outcome - m) * level[j]
        g[d + j] = -tilt * slope[j]
    return True


@compiled
def dithered_reports(rule, z, price, y, terms, spec, words, rows):
    """Write the reports of customers under the same rule; the score of a price that it cannot have made counts as 0."""
    cost, low, high, ladder, _, _, _ = terms
    m = rule.theta.size
    g, room = np.empty(m), np.empty(m)
    dots, chosen, v, spare = workspace(spec.pairs, m)
    for i in range(len(z)):
        dithered_score(rule, z[i], price[i], y[i], (cost[i], low[i], high[i], ladder), room, g)
        privatize(spec, g, words[i], rows[i], dots, chosen, v, spare)


@compiled
def dithered_propensities(rule, z, prices, terms, value):
    """The probability of each price, as :func:`dithered_quotes` quotes them."""
    cost, low, high, ladder, _, _, _ = terms
    for i in range(prices.size):
        a, b = utility_of(rule.theta, z[i])
        lower, upper = price_pair(rule, a, b, cost[i], low[i], high[i], ladder)
        value[i] = 0.5 * (prices[i] == lower) + 0.5 * (prices[i] == upper)
