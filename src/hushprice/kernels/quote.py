"""The device's price, for one customer or a block of them."""

import math

import numpy as np

from hushprice.kernels.glm import best_price, best_prices, draw, mean, utility
from hushprice.kernels.jit import compiled, inlined
from hushprice.kernels.running import HELD, USED, append, update

EXPLORE, EXPLOIT, PERTURB, FIXED, GRID = 0, 1, 2, 3, 4


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


@compiled
def quotes(phase, code, theta, level, z, uniforms, cost, low, high, a, b, prices):
    """Prices for a block of customers under the same published parameters.

    ``uniforms`` holds one number a customer in the phases that draw, and is empty in the others.
    """
    if phase == EXPLOIT:  # the common case by far, as a loop of its own
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
def perturb_block(
    code, ridge, cost, low, high, kappa, every, warmup, t, z, uniforms, x, y, theta, P, counts, pace, anchor,
    true_code, scale, true_a, true_b, demand, prices,
):  # fmt: skip
    """Semi-Myopic over a block of customers, rounds t + 1, t + 2, ...: quote, sell, record every so many, re-estimate.

    The same steps as a live round: the phase, :func:`quote`, :func:`append` and :func:`update`.
    """
    n = len(z)
    a, b = np.empty(1), np.empty(1)
    for i in range(n):
        t += 1
        if counts[HELD] < warmup:
            prices[i] = quote(EXPLORE, code, 0.0, 0.0, 0.0, uniforms[i], cost, low, high)
        else:
            if counts[USED] < counts[HELD]:
                update(code, ridge, x, y, theta, P, counts, pace, anchor)
            utility(z[i : i + 1], theta, a, b)
            level = deviation(kappa, t)
            prices[i] = quote(PERTURB, code, a[0], b[0], level, uniforms[i], cost, low, high)
        if t % every == 0:
            outcome = draw(true_code, scale, mean(true_code, true_a[i] - true_b[i] * prices[i]), demand[i])
            append(x, y, counts, pace, z[i], prices[i], outcome)
