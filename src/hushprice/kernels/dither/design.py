"""What the next stage publishes: how far its prices are dithered, and how its scores weigh level and slope.

For a stage of m customers after t, of which a design loses c each by its dither and takes the information J'J m / V,
the price of the design is

    m c + N/2 sum over priors of w tr(G (H + m J'J / V)^-1),   N = 2 (t + m),

the dither's loss plus what the estimate then costs N later customers; G is the mean over the population of
r'' g g', g = (p_a z, p_b z), as :mod:`hushprice.kernels.look_ahead.prices` has it.

Weights are searched among L = e^{x0} A + e^{x1} B and S = e^{x2} A + e^{x3} B. With R'R = S^-1, S the mean of z z', the
features R z are uncorrelated; A + B = R, and A = v v'R for the direction v of the combination of features that is
nearest to 1. So the four numbers say how much of a report tells of what customers share, and how much of how they
differ, in level and in slope.
"""

import math

import numpy as np

from hushprice.kernels.dither.expected import add_information, linearise, loss_of_prices, tabulate
from hushprice.kernels.glm import utility_of
from hushprice.kernels.jit import compiled
from hushprice.kernels.look_ahead.prices import mean_gains
from hushprice.kernels.newton import cholesky, dot, invert
from hushprice.kernels.state import DitherRule

LARGEST_DELTA, SMALLEST_DELTA = 0.3, 1e-3  # of the price range
DELTAS, STEP = 18, 0.78  # tried from the largest down, each STEP times the last
NEGLIGIBLE = 1e-3  # weight of a prior that a design leaves out
WANDERING = 0.15  # of the price range: with a larger delta, other centres are tried
PULLS, TARGETS, WANDERERS = (0.5, 1.0), (0.25, 0.6), (0.3, 0.18)
STARTS = np.array([[-1.2, -2.0, 0.0, -1.0], [-0.5, -1.0, 0.0, -1.0]])  # of the search
ROUNDS, FIRST_MOVE, LAST_MOVE, MOVE_OF_DELTA = 10, 1.0, 0.2, 0.3  # of the search, in logarithms
LEAST_LEVEL, MOST_LEVEL = math.log(0.1), math.log(1.5)  # of the level's weight, relative to the slope's
LEAST_DIFFERENCE, MOST_DIFFERENCE = -4.0, 3.0  # of the weight of what differs, relative to what is shared


@compiled
def gains_of(rule, points, shares, terms, H, weights, G):
    """The matrix G, for a theta as uncertain as under the heaviest prior."""
    cost, low, high, _, _, _, _ = terms
    m = rule.theta.size
    d = m // 2
    P, factor = np.empty((m, m)), np.zeros((m, m))
    G[:] = 0.0
    if not cholesky(H[np.argmax(weights)], factor):
        return
    invert(factor, P)
    for i in range(len(points)):
        z = points[i]
        a, b = utility_of(rule.theta, z)
        q00 = q01 = q11 = 0.0
        for j in range(d):
            q00 += z[j] * dot(P[j, :d], z)
            q01 += z[j] * dot(P[j, d:], z)
            q11 += z[j] * dot(P[d + j, d:], z)
        g00, g01, g11 = mean_gains(rule.code, a, b, 1.0, (q00, q01, q11), cost[i], low[i], high[i])
        for j in range(d):
            for k in range(d):
                product = shares[i] * z[j] * z[k]
                G[j, k] += g00 * product
                G[j, d + k] += g01 * product
                G[d + j, k] += g01 * product
                G[d + j, d + k] += g11 * product


@compiled
def weigh(x, shared, differing, level, slope):
    """Write the matrices L and S of four numbers."""
    level[:] = math.exp(x[0]) * shared + math.exp(x[1]) * differing
    slope[:] = math.exp(x[2]) * shared + math.exp(x[3]) * differing


@compiled
def price_of_design(rule, population, terms, look, room):
    """The price of a design. ``look`` is (G, H, weights of priors, m, N, V)."""
    points, shares = population
    G, H, weights, m, later, variance = look
    table, f, J, information, factor, P = room
    tabulate(rule, points, terms, table)
    demand = (rule.code, rule.scale, rule.least, rule.most)
    linearise(demand, rule.theta, points, shares, table, f, J)
    information[:] = 0.0
    add_information(J, m / variance, information)
    n, spread = f.size, 0.0
    for c in range(weights.size):
        if weights[c] < NEGLIGIBLE:
            continue
        for i in range(n):
            for j in range(i + 1):
                P[i, j] = H[c, i, j] + information[i, j]
        if not cholesky(P, factor):
            return np.inf
        invert(factor, P)
        total = 0.0
        for i in range(n):
            total += dot(G[i], P[i])
        spread += weights[c] * total
    return m * loss_of_prices(rule, points, shares, terms, table) + 0.5 * later * spread


@compiled
def _allowed(x, width):
    """Whether weights and delta lie within bounds, so that no part of theta is left to guesses."""
    fair = LEAST_LEVEL <= x[0] - x[2] <= MOST_LEVEL
    for i in range(0, 4, 2):
        fair = fair and LEAST_DIFFERENCE <= x[i + 1] - x[i] <= MOST_DIFFERENCE
    return fair and SMALLEST_DELTA * width <= math.exp(x[4]) <= LARGEST_DELTA * width * (1.0 + 1e-9)


@compiled
def _price(x, pull, target, setting):
    """The price of the design of these numbers, whose weights are left in the rule."""
    rule, population, terms, basis, look, room = setting
    weigh(x, basis[0], basis[1], rule.level, rule.slope)
    tried = DitherRule(
        rule.code, rule.theta, math.exp(x[4]), pull, target, rule.level, rule.slope, rule.least, rule.most, rule.scale
    )  # fmt: skip
    return price_of_design(tried, population, terms, look, room)


@compiled
def _descend(x, width, setting):
    """Move the five numbers to a local minimum of the price, from the best delta for the weights in ``x``."""
    trial, lowest = x.copy(), np.inf
    for i in range(DELTAS):
        trial[4] = math.log(LARGEST_DELTA * width * STEP**i)
        price = _price(trial, 0.0, 0.0, setting)
        if price < lowest:
            lowest = price
            x[4] = trial[4]
    move, moved = FIRST_MOVE, True
    for _ in range(ROUNDS):
        move *= 1.0 if moved else 0.5
        if move < LAST_MOVE:
            break
        moved = False
        for i in range(5):
            for sign in (1.0, -1.0):
                trial[:] = x
                trial[i] += sign * move * (1.0 if i < 4 else MOVE_OF_DELTA)
                if _allowed(trial, width):
                    price = _price(trial, 0.0, 0.0, setting)
                    if price < lowest * (1.0 - 1e-4):
                        lowest, moved = price, True
                        x[:] = trial
                        break
    return lowest


@compiled
def choose(rule, population, terms, basis, look, width, low, x):
    """(delta, pull, target) of the next stage. ``x`` receives the numbers of its weights, and log delta."""
    m, n = rule.theta.size, len(population[0])
    room = np.empty((n, 4 + m)), np.empty(m), np.empty((m, m)), np.empty((m, m)), np.zeros((m, m)), np.empty((m, m))
    setting = (rule, population, terms, basis, look, room)
    lowest, trial = np.inf, np.empty(5)
    for start in STARTS:
        trial[:4], trial[4] = start, 0.0
        price = _descend(trial, width, setting)
        if price < lowest:
            lowest = price
            x[:] = trial
    delta, pull, target = math.exp(x[4]), 0.0, low
    if delta > WANDERING * width:
        for toward in PULLS:
            for place in TARGETS:
                for reach in WANDERERS:
                    trial[:], trial[4] = x, math.log(reach * width)
                    price = _price(trial, toward, low + place * width, setting)
                    if price < lowest:
                        lowest, delta, pull, target = price, reach * width, toward, low + place * width
    return delta, pull, target
