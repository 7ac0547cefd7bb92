"""Look-ahead pricing: the profit of a sale plus the worth of what its outcome teaches.

A context z and a price p give the row x = (z, -p z). The posterior of theta is normal with covariance phi P. If the
best price of a later customer is set from the estimate, that customer loses 1/2 r'' (best price - set price)^2, on
average 1/2 phi tr(P G) with

    G = mean over customers of r'' g g',   g = (p_a z, p_b z),

where r'' is the curvature of the profit at the best price and p_a, p_b are the derivatives of the best price in
a = z.alpha and b = z.beta. An outcome of information w at x takes phi w P x x' P / (1 + w x'P x) off the covariance, so
that with N later customers the price p is worth

    J(p) = (p - c) psi'(a - b p) + N/2 phi w (m00 - 2 p m01 + p^2 m11) / (1 + w (q00 - 2 p q01 + p^2 q11)),

with q and m the products of (z, 0) and (0, z) in P and in P G P. G is held as three d x d blocks, the means of
r'' p_a^2 z z', r'' p_a p_b z z' and r'' p_b^2 z z'.
"""

import math

import numpy as np

from hushprice.kernels.glm import LOGISTIC, best_price, curvature, mean_and_information, skewness
from hushprice.kernels.jit import compiled, inlined
from hushprice.kernels.quote import nearest_rung, rungs, window
from hushprice.kernels.special import omega

FLOOR, CEILING = 0.002, 0.1  # least and largest reach of the random part, in ranges of prices
PRICES_TRIED, HALVINGS = 33, 6  # prices tried, and halvings of their distance around the best
_NODE = math.sqrt(3.0)  # Gauss-Hermite: nodes -sqrt 3, 0, sqrt 3 of weight 1/6, 2/3, 1/6


@compiled
def gains(code, a, b, cost, low, high):
    """(r'', p_a, p_b) of one customer; zeros if the best price is an end of the range, where it does not move."""
    if not b > 0.0:
        return 0.0, 0.0, 0.0
    if code == LOGISTIC:
        k = omega(a - b * cost - 1.0)
        p = cost + (1.0 + k) / b
        if not low < p < high:
            return 0.0, 0.0, 0.0
        s = k / (1.0 + k)
        return b * s, s / b, -((1.0 + k) / b + cost * s) / b
    p = best_price(code, a, b, cost, low, high)
    if not low < p < high:
        return 0.0, 0.0, 0.0
    eta, margin = a - b * p, p - cost
    slope, bend = curvature(code, eta), skewness(code, eta)
    along = slope - margin * b * bend
    r2 = b * (slope + along)
    if not r2 > 0.0:
        return 0.0, 0.0, 0.0
    return r2, along / r2, -(margin * slope + p * along) / r2


@compiled
def mean_gains(code, a, b, phi, q, cost, low, high):
    """Means of r'' p_a^2, r'' p_a p_b, r'' p_b^2 over (a, b) of covariance phi q, by 3 x 3 Gauss-Hermite nodes."""
    q00, q01, q11 = q
    first = math.sqrt(max(phi * q00, 0.0))
    across = phi * q01 / first if first > 0.0 else 0.0
    second = math.sqrt(max(phi * q11 - across * across, 0.0))
    g00 = g01 = g11 = 0.0
    for i in range(-1, 2):
        for j in range(-1, 2):
            weight = (2.0 / 3.0 if i == 0 else 1.0 / 6.0) * (2.0 / 3.0 if j == 0 else 1.0 / 6.0)
            u, v = i * _NODE, j * _NODE
            r2, pa, pb = gains(code, a + first * u, b + across * u + second * v, cost, low, high)
            g00 += weight * r2 * pa * pa
            g01 += weight * r2 * pa * pb
            g11 += weight * r2 * pb * pb
    return g00, g01, g11


@compiled
def project(rule, z, cost, work):
    """(a, b), q = (q00, q01, q11) and m = (m00, m01, m11) of a customer; ``work`` has room for 5 d numbers.

    A feature that nobody had so far has no known size: it counts as 1 or -1.
    """
    theta, P, G, own = rule.theta, rule.P, rule.gains, rule.own
    d = z.size
    row, u0, u1 = work[:d], work[d : 3 * d], work[3 * d : 5 * d]
    a = b = 0.0
    for j in range(d):
        row[j] = z[j] if rule.seen[j] > 0.0 else float(np.sign(z[j]))
        a += row[j] * theta[j]
        b += row[j] * theta[d + j]
    for i in range(2 * d):
        s = t = 0.0
        line = P[i]
        for j in range(d):
            s += line[j] * row[j]
            t += line[d + j] * row[j]
        u0[i], u1[i] = s, t
    q00 = q01 = q11 = 0.0
    for j in range(d):
        q00 += row[j] * u0[j]
        q01 += row[j] * u1[j]
        q11 += row[j] * u1[d + j]
    m00 = m01 = m11 = 0.0
    for i in range(d):
        s0 = s1 = t0 = t1 = 0.0  # rows i and d + i of G times u0, and of G times u1
        g0, g1, g2 = G[0, i], G[1, i], G[2, i]
        for j in range(d):
            s0 += g0[j] * u0[j] + g1[j] * u0[d + j]
            t0 += g1[j] * u0[j] + g2[j] * u0[d + j]
            s1 += g0[j] * u1[j] + g1[j] * u1[d + j]
            t1 += g1[j] * u1[j] + g2[j] * u1[d + j]
        m00 += u0[i] * s0 + u0[d + i] * t0
        m01 += u1[i] * s0 + u1[d + i] * t0
        m11 += u1[i] * s1 + u1[d + i] * t1
    q = (q00, q01, q11)
    g00, g01, g11 = mean_gains(rule.code, a, b, rule.dispersion, q, cost, rule.low, rule.high)
    m00 = (1.0 - own) * m00 + own * (g00 * q00 * q00 + 2.0 * g01 * q00 * q01 + g11 * q01 * q01)
    m01 = (1.0 - own) * m01 + own * (g00 * q00 * q01 + g01 * (q00 * q11 + q01 * q01) + g11 * q01 * q11)
    m11 = (1.0 - own) * m11 + own * (g00 * q01 * q01 + 2.0 * g01 * q01 * q11 + g11 * q11 * q11)
    return a, b, q, (m00, m01, m11)


@inlined
def worth(code, a, b, q, m, many, p, cost):
    """J(p); ``many`` is N/2 phi."""
    mu, w = mean_and_information(code, a - b * p)
    gain = m[0] + p * (p * m[2] - 2.0 * m[1])
    spread = q[0] + p * (p * q[2] - 2.0 * q[1])
    return (p - cost) * mu + many * w * gain / (1.0 + w * spread)


@compiled
def span(rule, z, cost, low, high, ladder, work):
    """(centre, reach, (a, b)): the price is uniform within the reach of the centre; the utility is a - b p.

    The reach follows from the standard error of the greedy price, and is 0 without a spread.
    """
    code = rule.code
    a, b, q, m = project(rule, z, cost, work)
    greedy = best_price(code, a, b, cost, low, high)
    many = 0.5 * rule.later * rule.dispersion
    p, top = greedy, worth(code, a, b, q, m, many, greedy, cost)
    step = (high - low) / (PRICES_TRIED - 1)
    for k in range(PRICES_TRIED):
        trial = low + step * k if k < PRICES_TRIED - 1 else high
        value = worth(code, a, b, q, m, many, trial, cost)
        if value > top:
            p, top = trial, value
    for _ in range(HALVINGS):
        step *= 0.5
        below, above = max(p - step, low), min(p + step, high)
        at_below, at_above = worth(code, a, b, q, m, many, below, cost), worth(code, a, b, q, m, many, above, cost)
        if at_below > top:
            p, top = below, at_below
        if at_above > top:
            p, top = above, at_above
    if ladder.size:
        first, last = rungs(ladder, low, high)
        if last - first >= PRICES_TRIED:  # so many that one of the two around the best price is best
            last = min(max(np.searchsorted(ladder, p), first), last)
            first = max(last - 1, first)
        p, top = ladder[first], worth(code, a, b, q, m, many, ladder[first], cost)
        for k in range(first + 1, last + 1):
            value = worth(code, a, b, q, m, many, ladder[k], cost)
            if value > top:
                p, top = ladder[k], value
    if not rule.spread > 0.0:
        return p, 0.0, (a, b)
    _, pa, pb = gains(code, a, b, cost, low, high)
    error = math.sqrt(max(rule.dispersion * (pa * pa * q[0] + 2.0 * pa * pb * q[1] + pb * pb * q[2]), 0.0))
    width = high - low
    reach = min(max(FLOOR * width, min(rule.spread * _NODE * error, CEILING * width)), 0.5 * width)
    if ladder.size:
        return p, reach, (a, b)  # drawn prices beyond the ends are at the last rung
    return min(max(p, low + reach), high - reach), reach, (a, b)


@inlined
def draw_price(centre, reach, u, low, high):
    """The price at u of the uniform distribution within the reach of the centre."""
    return min(max(centre + reach * (2.0 * u - 1.0), low), high)


@compiled
def ahead_quotes(rule, z, uniforms, terms, prices):
    """Prices for a block of customers under the same params. ``terms.last`` is updated."""
    cost, low, high, ladder, segment, step, last = terms
    work = np.empty(5 * z.shape[1])
    for i in range(prices.size):
        s = segment[i]
        lowest, highest = window(low[i], high[i], last[s], step)
        centre, reach, _ = span(rule, z[i], cost[i], lowest, highest, ladder, work)
        p = draw_price(centre, reach, uniforms[i], lowest, highest)
        if ladder.size:
            first, top = rungs(ladder, lowest, highest)
            p = nearest_rung(p, ladder, first, top)
        prices[i] = last[s] = p


@compiled
def ahead_propensities(rule, z, prices, terms, density, discrete):
    """The density of each price, or its probability where ``discrete``, as :func:`ahead_quotes` quotes them."""
    cost, low, high, ladder, segment, step, last = terms
    work = np.empty(5 * z.shape[1])
    for i in range(prices.size):
        s = segment[i]
        lowest, highest = window(low[i], high[i], last[s], step)
        centre, reach, _ = span(rule, z[i], cost[i], lowest, highest, ladder, work)
        discrete[i] = ladder.size > 0 or not reach > 0.0
        if not discrete[i]:
            density[i] = 0.5 / reach
        elif ladder.size and reach > 0.0:
            first, top = rungs(ladder, lowest, highest)
            k = np.searchsorted(ladder, prices[i])
            left = 0.5 * (ladder[k - 1] + ladder[k]) if k > first else -np.inf
            right = 0.5 * (ladder[k] + ladder[k + 1]) if k < top else np.inf
            density[i] = max(min(centre + reach, right) - max(centre - reach, left), 0.0) / (2.0 * reach)
        else:
            density[i] = 1.0
        last[s] = prices[i]
