"""The device's price, for one customer or a block of them."""

import math

import numpy as np

from hushprice.kernels.glm import best_price, best_prices, outcome, profit, utility
from hushprice.kernels.jit import compiled, inlined
from hushprice.kernels.running import HELD, USED, append, assimilated, refit
from hushprice.kernels.state import EXPLOIT, EXPLORE, FIXED, GRID, PERTURB


@inlined
def arm_price(k, arms, low, high):
    """Price of arm k = 0 .. arms - 1 of the equispaced grid."""
    return low + (high - low) * k / (arms - 1) if k < arms - 1 else high


@inlined
def quote(phase, code, a, b, level, u, cost, low, high):
    """Price for a customer with estimated utility (a, b), from one uniform u."""
    if phase == EXPLORE:
        return low + (high - low) * u
    if phase == FIXED:
        return level
    if phase == GRID:
        return arm_price(math.floor(u * level), level, low, high)
    p = best_price(code, a, b, cost, low, high)
    if phase == PERTURB:
        p = min(max(p + level if u < 0.5 else p - level, low), high)
    return p


# -- on terms: a largest step, a ladder of allowed prices ---------------------------------------------------------

STEP_SLACK = 1.0 + 1e-9  # a step is a sum of rounded numbers


@compiled
def window(low, high, last, step):
    """The part of [low, high] within the largest step from the last price, which is NaN before the first."""
    if last == last:
        low, high = max(low, last - STEP_SLACK * step), min(high, last + STEP_SLACK * step)
    return low, high


@compiled
def rungs(ladder, low, high):
    """(first, last) of the ladder's prices within [low, high]; the last lies before the first if there are none."""
    return np.searchsorted(ladder, low), np.searchsorted(ladder, high, side="right") - 1


@compiled
def better_rung(code, a, b, cost, p, ladder, first, last):
    """The best of the ladder's prices first .. last; p is the best price of the whole range.

    For b > 0 the profit rises up to p and falls beyond it, so the best price is a neighbour of p; otherwise an end.
    """
    if b > 0.0:
        above = min(max(np.searchsorted(ladder, p), first), last)
        below = max(above - 1, first)
    else:
        below, above = first, last
    at_below, at_above = profit(code, a, b, ladder[below], cost), profit(code, a, b, ladder[above], cost)
    return ladder[above] if at_above > at_below else ladder[below]


@compiled
def nearest_rung(p, ladder, first, last):
    """The price nearest to p among the ladder's first .. last; the lower of two at equal distance."""
    above = min(max(np.searchsorted(ladder, p), first), last)
    below = max(above - 1, first)
    return ladder[above] if ladder[above] - p < p - ladder[below] else ladder[below]


@compiled
def quote_on_terms(phase, code, a, b, level, u, cost, low, high, ladder):
    """The price of :func:`quote` within the range and on the ladder, if any. Experiments draw from the ladder."""
    p = min(max(quote(phase, code, a, b, level, u, cost, low, high), low), high)
    if ladder.size == 0:
        return p
    first, last = rungs(ladder, low, high)
    if phase in (EXPLORE, GRID):
        return ladder[first + min(math.floor(u * (last - first + 1)), last - first)]
    if phase == EXPLOIT:
        return better_rung(code, a, b, cost, p, ladder, first, last)
    return nearest_rung(p, ladder, first, last)


@inlined
def best_known(code, a, b, cost, low, high):
    """The best price as far as it is known: the middle of the range while the estimate says nothing (a = b = 0)."""
    return best_price(code, a, b, cost, low, high) if a != 0.0 or b != 0.0 else 0.5 * (low + high)


@compiled
def greedy_price(code, a, b, cost, low, high, ladder):
    """:func:`best_known` on the ladder, if any."""
    p = best_known(code, a, b, cost, low, high)
    if ladder.size == 0:
        return p
    first, last = rungs(ladder, low, high)
    if a == 0.0 and b == 0.0:
        return nearest_rung(p, ladder, first, last)
    return better_rung(code, a, b, cost, p, ladder, first, last)


@compiled
def quotes(rule, z, uniforms, cost, low, high, prices):
    """Prices for a block of customers under the same published parameters.

    ``uniforms`` holds one number per customer in the phases that draw, and is empty in the others.
    """
    phase, code, theta, level = rule
    a, b = np.empty(prices.size), np.empty(prices.size)
    if phase == EXPLOIT:  # by far the most common case, so it has a loop of its own
        utility(z, theta, a, b)
        best_prices(code, a, b, cost, low, high, prices)
        return
    if phase == PERTURB:
        utility(z, theta, a, b)
    for i in range(prices.size):
        u = uniforms[i] if uniforms.size else 0.0
        prices[i] = quote(phase, code, a[i], b[i], level, u, cost, low, high)


@inlined
def deviation(kappa, t):
    """kappa t^(-1/4), the size of the price deviation in round t = 1, 2, ..."""
    return kappa / math.sqrt(math.sqrt(t))


@compiled
def perturb_block(plan, t, z, uniforms, terms, estimate, demand, prices, greedy):
    """Semi-Myopic over a block of customers, rounds t + 1, t + 2, ...: quote, sell, record some sales, re-estimate.

    The steps are those of a live round: the phase, :func:`quote_on_terms`, :func:`append`, :func:`update`. Without
    rules the terms are the same range for everyone, and no ladder. ``greedy`` receives the best known price of each
    customer.
    """
    kappa, every, warmup = plan
    cost, low, high, ladder, segment, step, last = terms
    code, _, x, y, weight, theta, P, counts, pace, anchor = estimate
    n = len(z)
    a, b = np.empty(1), np.empty(1)
    for i in range(n):
        t += 1
        s = segment[i]
        lowest, highest = window(low[i], high[i], last[s], step)
        if counts[HELD] < warmup:
            utility(z[i : i + 1], theta, a, b)
            prices[i] = quote_on_terms(EXPLORE, code, 0.0, 0.0, 0.0, uniforms[i], cost[i], lowest, highest, ladder)
        else:
            behind = counts[USED] < counts[HELD]  # asked here too: a call costs more than the question
            if behind and not assimilated(code, x, y, weight, theta, P, counts, pace, anchor):
                refit(estimate)
            utility(z[i : i + 1], theta, a, b)
            level = deviation(kappa, t)
            prices[i] = quote_on_terms(
                PERTURB, code, a[0], b[0], level, uniforms[i], cost[i], lowest, highest, ladder
            )  # fmt: skip
        greedy[i] = greedy_price(code, a[0], b[0], cost[i], lowest, highest, ladder)
        last[s] = prices[i]
        if t % every == 0:
            append(x, y, counts, pace, z[i], prices[i], outcome(demand, i, prices[i]))
