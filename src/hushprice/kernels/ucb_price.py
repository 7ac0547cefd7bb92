"""The price of the UCB policy: the global maximum over [l, u] of F(p) = (p - cost) psi'(g(p)),

    g(p) = a - b p + alpha sqrt(r2 + q2 (p - vertex)^2),

with the numbers of a :class:`~hushprice.kernels.state.Belief`. The family's mean is the identity, or positive.

g is convex (a line plus a norm), so F rises, may fall, and may rise again: there can be several local maxima. Every
one of them is found. An interval of prices is put aside when F cannot exceed the best value seen there, or when its
slope has one sign, or when the slope can only rise (no maximum inside). When the slope can only fall there is at most
one maximum, found by Newton's method. Otherwise the interval is halved. All enclosures are exact up to rounding because
g is convex and its derivatives are monotone or have their extremes at the vertex of the quadratic.
"""

import math

import numpy as np

from hushprice.kernels.glm import identity, log_bend, log_slope, logmean
from hushprice.kernels.jit import compiled, inlined

NARROW = 1e-13  # of its prices: an interval as narrow as that is as good as a point
PATIENCE = 2_000  # intervals looked into; more than any index has needed by far
STACK = 128  # intervals that can wait


@inlined
def length(r2, vertex, q2, p):
    """|x|_{V^-1} of x = (z, -p z), from the three numbers of z."""
    return math.sqrt(r2 + q2 * (p - vertex) * (p - vertex))


@inlined
def _index(belief, p):
    """(g, g', g'') at p."""
    a, b, alpha, r2, vertex, q2 = belief
    s = length(r2, vertex, q2, p)
    if s == 0.0:
        return a - b * p, -b, 0.0
    return a - b * p + alpha * s, -b + alpha * q2 * (p - vertex) / s, alpha * q2 * r2 / (s * s * s)


@inlined
def _worth(code, g, p, cost):
    """An increasing function of F(p); for positive demand its logarithm, which neither over- nor underflows."""
    if identity(code):
        return (p - cost) * g
    if p > cost:
        return math.log(p - cost) + logmean(code, g)
    return -math.log(cost - p) - logmean(code, g) if p < cost else math.inf


@inlined
def _slope(code, g, g1, g2, gap):
    """(A function with the sign of F'(p), its derivative); gap = p - cost."""
    if identity(code):
        return g + gap * g1, 2.0 * g1 + gap * g2
    rho = log_slope(code, g)
    kappa = log_bend(code, g, rho)
    return 1.0 + gap * rho * g1, rho * (g1 + gap * (g2 - g1 * g1 * kappa))


@inlined
def _span(x0, x1, y0, y1):
    """The interval [x0, x1] times [y0, y1]."""
    c0, c1, c2, c3 = x0 * y0, x0 * y1, x1 * y0, x1 * y1
    return min(min(c0, c1), min(c2, c3)), max(max(c0, c1), max(c2, c3))


@compiled
def _peak(code, belief, cost, left, right):
    """The root of the falling slope in [left, right]: Newton steps while they shrink by half in two, else bisection.

    After a Newton step below 1e-10 of p - cost the next would be rounding, so it is the last.
    """
    p = 0.5 * (left + right)
    last = before = right - left
    for _ in range(400):
        g, g1, g2 = _index(belief, p)
        slope, bend = _slope(code, g, g1, g2, p - cost)
        if slope > 0.0:
            left = p
        else:
            right = p
        step = -slope / bend if bend < 0.0 else np.inf
        if left < p + step < right and abs(step) <= 0.5 * before:
            before, last = last, abs(step)
            p += step
            if last <= 1e-10 * abs(p - cost):
                return p
        else:
            before, last = last, 0.5 * (right - left)
            p = 0.5 * (left + right)
            if not left < p < right:
                return p
    return p


DROP, CLIMB, HALVE = 0, 1, 2


@compiled
def _judge(code, belief, cost, left, right, best):
    """What the interval can hold: no new maximum (DROP), at most one (CLIMB), or not known yet (HALVE)."""
    linear = identity(code)
    _, _, alpha, r2, vertex, q2 = belief
    g_left, g1_left, _ = _index(belief, left)
    g_right, g1_right, _ = _index(belief, right)
    g_high = max(g_left, g_right)
    if left >= cost:
        gap = right - cost if g_high > 0.0 or not linear else left - cost
        if (gap * g_high if linear else math.log(gap) + logmean(code, g_high)) <= best:
            return DROP
    if g1_left >= 0.0:
        g_low = g_left
    elif g1_right <= 0.0:
        g_low = g_right
    else:  # where the tangents of the two ends meet
        meet = (g_right - g_left + g1_left * left - g1_right * right) / (g1_left - g1_right)
        g_low = min(g_left + g1_left * (meet - left), g_high)
    rho_low, rho_high = (1.0, 1.0) if linear else (log_slope(code, g_high), log_slope(code, g_low))
    rise_low, rise_high = (g1_left, g1_right) if linear else _span(rho_low, rho_high, g1_left, g1_right)
    slope_low, slope_high = _span(left - cost, right - cost, rise_low, rise_high)
    if linear:
        slope_low, slope_high = slope_low + g_low, slope_high + g_high
    else:
        slope_low, slope_high = slope_low + 1.0, slope_high + 1.0
    if slope_low >= 0.0 or slope_high <= 0.0:
        return DROP
    s_left, s_right = length(r2, vertex, q2, left), length(r2, vertex, q2, right)
    s_low = math.sqrt(r2) if left < vertex < right else min(s_left, s_right)
    s_high = max(s_left, s_right)
    if not s_low > 0.0:
        return HALVE
    g2_low, g2_high = alpha * q2 * r2 / (s_high**3), alpha * q2 * r2 / (s_low**3)
    if linear:
        bend_low, bend_high = _span(left - cost, right - cost, g2_low, g2_high)
        bend_low, bend_high = bend_low + 2.0 * g1_left, bend_high + 2.0 * g1_right
    else:
        square_high = max(g1_left * g1_left, g1_right * g1_right)
        square_low = 0.0 if g1_left < 0.0 < g1_right else min(g1_left * g1_left, g1_right * g1_right)
        kappa_low, kappa_high = log_bend(code, g_low, rho_high), log_bend(code, g_high, rho_low)
        bend_low, bend_high = _span(
            left - cost, right - cost, g2_low - square_high * kappa_high, g2_high - square_low * kappa_low
        )
        bend_low, bend_high = bend_low + g1_left, bend_high + g1_right
    if bend_low >= 0.0:
        return DROP
    if bend_high < 0.0:
        return CLIMB
    # From the middle the slope cannot change by more than half the length times the largest bend.
    g, g1, g2 = _index(belief, 0.5 * (left + right))
    slope, _ = _slope(code, g, g1, g2, 0.5 * (left + right) - cost)
    change = 0.5 * (right - left) * max(-bend_low, bend_high) * rho_high
    return DROP if abs(slope) > change else HALVE


@inlined
def _between(left, right, vertex, breadth):
    """Where to halve an interval: at the vertex of the quadratic if it is inside, else nearer to it.

    g bends within about ``breadth`` of the vertex and is nearly straight further out, so the geometric mean of the
    distances, each plus the breadth, divides the bending evenly.
    """
    if left < vertex < right:
        middle = vertex
    elif vertex <= left:
        middle = vertex - breadth + math.sqrt((left - vertex + breadth) * (right - vertex + breadth))
    else:
        middle = vertex + breadth - math.sqrt((vertex - left + breadth) * (vertex - right + breadth))
    return middle if left < middle < right else 0.5 * (left + right)


@compiled
def optimistic_price(code, belief, cost, low, high, stack):
    """The price in [low, high] of the largest F. ``stack`` is scratch of shape (STACK, 2)."""
    r2, vertex, q2 = belief.r2, belief.vertex, belief.q2
    linear = identity(code)
    if high > cost and not linear:
        low = max(low, cost)  # below cost F is negative
    price = high
    best = _worth(code, _index(belief, high)[0], high, cost)
    if low != cost or linear:
        worth = _worth(code, _index(belief, low)[0], low, cost)
        if worth > best:
            best, price = worth, low
    breadth = math.sqrt(r2 / q2) + NARROW * high if q2 > 0.0 else np.inf
    stack[0, 0], stack[0, 1] = low, high
    held, seen = 1, 0
    while held:
        held -= 1
        left, right = stack[held, 0], stack[held, 1]
        seen += 1
        verdict = _judge(code, belief, cost, left, right, best)
        if verdict == DROP:
            continue
        if verdict == CLIMB:
            p = _peak(code, belief, cost, left, right)
        else:
            p = _between(left, right, vertex, breadth)
        worth = _worth(code, _index(belief, p)[0], p, cost)
        if worth > best:
            best, price = worth, p
        if verdict == HALVE and right - left > NARROW * right and held < STACK - 2 and seen < PATIENCE:
            stack[held, 0], stack[held, 1] = p, right
            stack[held + 1, 0], stack[held + 1, 1] = left, p
            held += 2
    return price
