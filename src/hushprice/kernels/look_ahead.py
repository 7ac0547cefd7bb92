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

The prior follows from the data. Centred prices have coefficients alpha - mid beta and half beta, with mid and half
those of the price range; each coefficient is divided by the size of its feature. Features are numbers, indicators
(0 or one other value) or constants, and each kind has a variance of its own, the one that explains its coefficients
best (MacKay's fixed point). Where some combination of indicators is 1 for every customer, as with the segments of a
one-hot group, they share a value, and their variance is that of the deviations from it.
"""

import math

import numpy as np

from hushprice.kernels.glm import (
    LINEAR,
    LOGISTIC,
    best_price,
    binary,
    curvature,
    information,
    mean,
    mean_and_information,
    outcome,
    residual,
    skewness,
)
from hushprice.kernels.jit import compiled, inlined
from hushprice.kernels.newton import cholesky, dot, solve
from hushprice.kernels.quote import greedy_price, nearest_rung, quote_on_terms, rungs, window
from hushprice.kernels.running import HELD, USED, append, assimilated, refit
from hushprice.kernels.special import omega
from hushprice.kernels.state import EXPLORE, AheadRule

KAPPA = 1.0  # N = KAPPA t if the horizon is not known
GAINS_PACE = 3.0  # the newest of t customers has weight GAINS_PACE / (t + GAINS_PACE) in G
FLOOR, CEILING = 0.002, 0.1  # least and largest reach of the random part, in ranges of prices
PRICES_TRIED, HALVINGS = 33, 6  # prices tried, and halvings of their distance around the best

NUMBER, INDICATOR, CONSTANT = 0, 1, 2  # kinds of features
SUM, SQUARE, COUNT, VALUE = 0, 1, 2, 3  # of a feature where it is not 0; VALUE is NaN if it has several
TOTAL, REVISION, DISPERSION, BELIEF, FOLDED, SQUARES, OUTCOMES = 0, 1, 2, 3, 4, 5, 6  # of the tally
TRIALS = 20  # records before a feature can count as an indicator or a constant
REVISION_GROWTH = 1.3  # of the records between two revisions of the prior
TIED = 0.25  # a level lower by 1 lets one expect a slope larger by this much
SLOPE, SLOPE_RIDGE = 0.7, 1e-3  # see _usual_slopes
PSEUDO = 2.0  # of the expected size: indicators, a given prior's coefficients, records for the dispersion
FIRM = 8.0  # the same for numbers and constants: small coefficients seen early should not narrow their prior
DEVIATION = 0.1  # expected square of an indicator's coefficient; of the others 1
LEAST_VARIANCE, LARGEST_VARIANCE = 1e-3, 1e2
CONTRADICTION = 3.0  # standard errors at which the sales contradict a given prior
LEAST_SQUARE = 1e-200  # of a feature: a smaller one counts as 0
LARGEST_GAIN = 1e200  # a customer with a larger one is left out of G
LEAST_BELIEF = 1e-9  # factor on a given prior's precision; 1 at most
MOST_RECORDS, MOST_HELD_NUMBERS = 65_536, 2**24  # held, before they are folded into a quadratic
_NODE = math.sqrt(3.0)  # Gauss-Hermite: nodes -sqrt 3, 0, sqrt 3 of weight 1/6, 2/3, 1/6


# -- what a price is worth --------------------------------------------------------------------------------------


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
def _draw(centre, reach, u, low, high):
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
        p = _draw(centre, reach, uniforms[i], lowest, highest)
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


# -- the prior, from the features and from the estimate ---------------------------------------------------------


@compiled
def _survey(state, x, y):
    """Count a record and its features; True if one of them was never seen before."""
    features, moments = state.features, state.moments
    d = moments.shape[0]
    fresh = False
    for j in range(d):
        value = x[j]
        if not value * value > LEAST_SQUARE:
            continue
        if features[COUNT, j] == 0.0:
            fresh = True
            features[VALUE, j] = value
        elif features[VALUE, j] != value:
            features[VALUE, j] = np.nan
        features[SUM, j] += value
        features[SQUARE, j] += value * value
        features[COUNT, j] += 1.0
        for k in range(d):
            moments[j, k] += value * x[k]
    state.tally[TOTAL] += 1.0
    state.tally[OUTCOMES] += y * y
    return fresh


@compiled
def _kinds(state):
    """The kind of every feature."""
    features, total = state.features, state.tally[TOTAL]
    d = features.shape[1]
    kinds = np.zeros(d, dtype=np.int64)
    for j in range(d):
        if total >= TRIALS and features[COUNT, j] > 0.0 and features[VALUE, j] == features[VALUE, j]:
            kinds[j] = CONSTANT if features[COUNT, j] == total else INDICATOR
    return kinds


@compiled
def _sizes(state, kinds):
    """Per feature the number nu s^2 that a coefficient's square is multiplied by to count in units of its kind.

    s^2 is the mean square of the feature where it is not 0, nu how many features of its kind a customer has.
    """
    features, total = state.features, max(state.tally[TOTAL], 1.0)
    d = features.shape[1]
    number = np.zeros(3)
    for j in range(d):
        number[kinds[j]] += features[COUNT, j] / total
    sizes = np.ones(d)
    for j in range(d):
        if features[COUNT, j] > 0.0:
            sizes[j] = max(number[kinds[j]], 1.0) * features[SQUARE, j] / features[COUNT, j]
    return sizes


@compiled
def _shared(state, kinds):
    """The combination c of indicators with c.z = 1 for every customer; zeros if there is none."""
    features, moments, total = state.features, state.moments, state.tally[TOTAL]
    d = kinds.size
    c = np.zeros(d)
    chosen = np.flatnonzero(kinds == INDICATOR)
    n = chosen.size
    if n < 2:
        return c
    matrix, factor, rhs, solution = np.empty((n, n)), np.zeros((n, n)), np.empty(n), np.empty(n)
    for i in range(n):  # in units of the features
        size = features[VALUE, chosen[i]]
        rhs[i] = features[SUM, chosen[i]] / size
        for j in range(n):
            matrix[i, j] = moments[chosen[i], chosen[j]] / (size * features[VALUE, chosen[j]])
        matrix[i, i] += 1e-7 * matrix[i, i]  # two complete groups leave c free
    if not cholesky(matrix, factor):
        return c
    solve(factor, rhs, solution)
    miss = total
    for i in range(n):
        miss -= solution[i] * rhs[i]
    if abs(miss) > 1e-5 * total:
        return c
    for i in range(n):
        c[chosen[i]] = solution[i] / features[VALUE, chosen[i]]
    return c


@compiled
def _squared_unit(state):
    """The mean square of linear demand; 1 where the link has no unit.

    The variance that linear demand is stated to have counts as one outcome.
    """
    if state.estimate.code != LINEAR:
        return 1.0
    return state.tally[OUTCOMES] / (1.0 + state.tally[TOTAL])


@compiled
def _unit(plan, state):
    """The variance of a coefficient that counts as 1: the square of the unit of demand, divided by the ridge."""
    return _squared_unit(state) / plan.ridge


@compiled
def _prior_variances(plan, state, kinds):
    """Prior variance of every coefficient in centred prices, without the shared value."""
    sizes, variances, unit = _sizes(state, kinds), np.empty(kinds.size), _unit(plan, state)
    for j in range(kinds.size):
        variances[j] = unit * state.variances[kinds[j]] / sizes[j]
    return variances


@compiled
def _size(plan, state, c):
    """Prior variance of the value that indicators share; 0 without one."""
    return _unit(plan, state) * state.variances[CONSTANT] if c.any() else 0.0


@compiled
def _precision(variances, c, size):
    """The inverse of diag(variances) + size c c'."""
    d = variances.size
    inverse = np.zeros((d, d))
    total = 1.0
    for j in range(d):
        total += size * c[j] * c[j] / variances[j]
    for i in range(d):
        for j in range(i + 1):  # the same bits on both sides of the diagonal
            inverse[i, j] = inverse[j, i] = -size * (c[i] / variances[i]) * (c[j] / variances[j]) / total
        inverse[i, i] += 1.0 / variances[i]
    return inverse


@compiled
def _usual_slopes(state):
    """Slopes whose product with the features is SLOPE on average: the prior mean, per half range of prices.

    They are the least-squares coefficients of a constant on the features. Without them, customers who never buy would
    look like flat demand, for which the highest price is best.
    """
    features, moments, total = state.features, state.moments, state.tally[TOTAL]
    d = moments.shape[0]
    slopes, matrix, factor = np.zeros(d), np.zeros((d, d)), np.zeros((d, d))
    if not total > 0.0:
        return slopes
    target = SLOPE * math.sqrt(_squared_unit(state))
    root = np.ones(d)
    for i in range(d):
        if features[SQUARE, i] > 0.0:
            root[i] = 1.0 / math.sqrt(features[SQUARE, i])
    rhs, solution = np.empty(d), np.empty(d)
    for i in range(d):
        rhs[i] = features[SUM, i] * root[i]
        for j in range(d):
            matrix[i, j] = moments[i, j] * root[i] * root[j]
        matrix[i, i] = max(matrix[i, i], 1.0) + SLOPE_RIDGE
    if cholesky(matrix, factor):
        solve(factor, rhs, solution)
        for i in range(d):
            slopes[i] = target * solution[i] * root[i]
    return slopes


@compiled
def _given(plan):
    """Whether the policy was given a prior."""
    return plan.centre.size > 0


@compiled
def write_prior(plan, state, centre, precision):
    """Write centre and precision of the prior, the latter times the dispersion."""
    tally, m = state.tally, centre.size
    d = m // 2
    if _given(plan):
        for i in range(m):
            centre[i] = plan.centre[i]
            for j in range(m):
                precision[i, j] = tally[BELIEF] * plan.precision[i, j]
    else:
        kinds = _kinds(state)
        c = _shared(state, kinds)
        W = _precision(_prior_variances(plan, state, kinds), c, _size(plan, state, c))
        mid, half, phi = 0.5 * (plan.low + plan.high), 0.5 * (plan.high - plan.low), tally[DISPERSION]
        slopes, tilt = _usual_slopes(state), half - TIED * mid
        for i in range(d):
            centre[d + i] = slopes[i] / half
            centre[i] = mid * centre[d + i]
            for j in range(d):
                w = phi * W[i, j]
                precision[i, j] = (1.0 + TIED * TIED) * w
                precision[d + i, j] = precision[i, d + j] = (TIED * tilt - mid) * w
                precision[d + i, d + j] = (mid * mid + tilt * tilt) * w


@compiled
def penalise(plan, state):
    """Write the prior and the folded records into the estimate's penalty."""
    penalty = state.estimate.penalty
    precision, centre = penalty.precision, penalty.centre
    m = centre.size
    write_prior(plan, state, centre, precision)
    if not state.tally[FOLDED] > 0.0:
        return
    rhs, factor = np.empty(m), np.zeros((m, m))
    for i in range(m):
        rhs[i] = state.folded[m, i] + dot(precision[i], centre)
    for i in range(m):
        for j in range(m):
            precision[i, j] += state.folded[i, j]
    if cholesky(precision, factor):
        solve(factor, rhs, centre)


@compiled
def _learn_variances(plan, state):
    """One step of MacKay's fixed point for the variance of each kind, and of the value that indicators share."""
    theta, P, phi = state.estimate.theta, state.estimate.P, state.tally[DISPERSION]
    kinds = _kinds(state)
    d = kinds.size
    mid, half = 0.5 * (plan.low + plan.high), 0.5 * (plan.high - plan.low)
    sizes, variances, c = _sizes(state, kinds), _prior_variances(plan, state, kinds), _shared(state, kinds)
    size, unit = _size(plan, state, c), _unit(plan, state)
    total = 1.0
    for j in range(d):
        total += size * c[j] * c[j] / variances[j]
    known, squares = np.array([FIRM, PSEUDO, FIRM]), np.array([FIRM, PSEUDO * DEVIATION, FIRM])
    coefficients, covariance, cross, slopes = np.empty(d), np.empty((d, d)), np.empty(d), _usual_slopes(state)
    for part in range(2):  # level, and slope tied to it
        first, second = (1.0, -mid) if part == 0 else (TIED, half - TIED * mid)
        for i in range(d):
            coefficients[i] = first * theta[i] + second * theta[d + i] - part * slopes[i]
            for j in range(d):
                value = first * first * P[i, j] + second * second * P[d + i, d + j]
                covariance[i, j] = phi * (value + first * second * (P[i, d + j] + P[d + i, j]))
        value = uncertain = 0.0  # of the shared value: its mean is k.coefficients
        for i in range(d):
            k = size * c[i] / (variances[i] * total)
            value += k * coefficients[i]
            cross[i] = 0.0
            for j in range(d):
                cross[i] += covariance[i, j] * size * c[j] / (variances[j] * total)
            uncertain += k * cross[i]
        rest = size / total
        for j in range(d):
            deviation = coefficients[j] - value * c[j]
            variance = covariance[j, j] - 2.0 * c[j] * cross[j] + c[j] * c[j] * (uncertain + rest)
            known[kinds[j]] += max(1.0 - variance / variances[j], 0.0)
            squares[kinds[j]] += sizes[j] * deviation * deviation / unit
        if size > 0.0:
            known[CONSTANT] += max(1.0 - (uncertain + rest) / size, 0.0)
            squares[CONSTANT] += value * value / unit
    for kind in range(3):
        state.variances[kind] = min(max(squares[kind] / known[kind], LEAST_VARIANCE), LARGEST_VARIANCE)


@compiled
def _learn_belief(plan, state):
    """One step of the same fixed point for the factor on a given prior's precision, at most 1.

    ``square`` / phi is about ``known`` if the prior is right. If it is larger by some standard errors, the step is
    taken without pseudo-coefficients, which would hold a very precise prior in place.
    """
    theta, P = state.estimate.theta, state.estimate.P
    tally = state.tally
    m = theta.size
    gap = theta - plan.centre
    known = square = 0.0
    for i in range(m):
        known += 1.0 - tally[BELIEF] * dot(plan.precision[i], P[i])
        square += gap[i] * dot(plan.precision[i], gap)
    known, square = max(known, 0.0), square / tally[DISPERSION]
    contradicted = square > known * (1.0 + CONTRADICTION * math.sqrt(2.0 / m)) and known > 0.0
    pseudo = 0.0 if contradicted else PSEUDO
    tally[BELIEF] = min(max((known + pseudo) / (square + pseudo), LEAST_BELIEF), 1.0)


@compiled
def _pearson(estimate):
    """Sum of squared residuals of the records held, each divided by its variance for phi = 1."""
    code, x, y, theta = estimate.code, estimate.x, estimate.y, estimate.theta
    total = 0.0
    for i in range(estimate.counts[HELD]):
        eta = dot(x[i], theta)
        total += (y[i] - mean(code, eta)) ** 2 / max(curvature(code, eta), 1e-12)
    return total


@compiled
def _learn_dispersion(state):
    """Pearson's estimate of phi, from PSEUDO records of the expected noise and all others; 1 for binary outcomes."""
    estimate, tally = state.estimate, state.tally
    if binary(estimate.code):
        return
    m = estimate.theta.size
    known = 0.0
    for i in range(m):
        known += 1.0 - dot(estimate.penalty.precision[i], estimate.P[i])
    freedom = PSEUDO + max(tally[TOTAL] - max(known, 0.0), 0.0)
    tally[DISPERSION] = max((tally[SQUARES] + _pearson(estimate)) / freedom, 1e-12)


@compiled
def _revise(plan, state):
    """Revise dispersion and prior, and refit."""
    _learn_dispersion(state)
    if _given(plan):
        _learn_belief(plan, state)
    elif state.tally[TOTAL] >= TRIALS:
        _learn_variances(plan, state)
    _refit(plan, state)


@compiled
def _refit(plan, state):
    penalise(plan, state)
    state.estimate.counts[USED] = 0  # the estimate moves because the prior does: that is no drift
    refit(state.estimate)


@compiled
def _fold(plan, state):
    """Replace the records held by their quadratic approximation at the estimate."""
    estimate, folded = state.estimate, state.folded
    code, x, y, theta, counts = estimate.code, estimate.x, estimate.y, estimate.theta, estimate.counts
    m, n = theta.size, counts[HELD]
    state.tally[SQUARES] += _pearson(estimate) if not binary(code) else 0.0
    for r in range(n):
        row, eta = x[r], dot(x[r], theta)
        w = information(code, eta, y[r])
        pull = w * eta + residual(code, eta, y[r])
        for i in range(m):
            folded[m, i] += pull * row[i]
            c = w * row[i]
            for j in range(i + 1):
                folded[i, j] += c * row[j]
    for i in range(m):
        for j in range(i):
            folded[j, i] = folded[i, j]
    state.tally[FOLDED] += n
    counts[:3] = 0  # HELD, USED, FITTED
    penalise(plan, state)


@compiled
def most_records(m):
    """How many records of m numbers are held."""
    return min(MOST_RECORDS, MOST_HELD_NUMBERS // m)


@compiled
def catch_up(plan, state):
    """Bring the estimate, the prior and G up to the records."""
    estimate, tally = state.estimate, state.tally
    code, _, x, y, weight, theta, P, counts, pace, anchor = estimate
    n, old = counts[HELD], int(tally[TOTAL] - tally[FOLDED])
    if old == n:
        return
    fresh = False
    for i in range(old, n):
        fresh = _survey(state, x[i], y[i]) or fresh
    if fresh:
        _refit(plan, state)
    elif not assimilated(code, x, y, weight, theta, P, counts, pace, anchor):
        refit(estimate)
    full = n >= most_records(theta.size)
    if fresh or full or tally[TOTAL] >= tally[REVISION]:
        _revise(plan, state)
        tally[REVISION] = math.floor(REVISION_GROWTH * tally[TOTAL]) + 1.0
    for i in range(old, n):
        _count_gains(plan, state, x[i], tally[TOTAL] - (n - 1 - i))
    if full:
        _fold(plan, state)


@compiled
def _count_gains(plan, state, x, t):
    """Take customer t into G."""
    estimate, G = state.estimate, state.gains
    theta, P = estimate.theta, estimate.P
    d = G.shape[1]
    a = b = q00 = q01 = q11 = 0.0
    for i in range(d):
        a += x[i] * theta[i]
        b += x[i] * theta[d + i]
        s = r = v = 0.0
        for j in range(d):
            s += P[i, j] * x[j]
            r += P[i, d + j] * x[j]
            v += P[d + i, d + j] * x[j]
        q00 += x[i] * s
        q01 += x[i] * r
        q11 += x[i] * v
    phi, q = state.tally[DISPERSION], (q00, q01, q11)
    g00, g01, g11 = mean_gains(estimate.code, a, b, phi, q, plan.cost, plan.low, plan.high)
    if not (g00 + g11) * dot(x[:d], x[:d]) < LARGEST_GAIN:
        return
    share = GAINS_PACE / (t + GAINS_PACE)
    keep = 1.0 - share
    for i in range(d):
        for j in range(d):
            product = share * (x[i] * x[j])
            G[0, i, j] = keep * G[0, i, j] + g00 * product
            G[1, i, j] = keep * G[1, i, j] + g01 * product
            G[2, i, j] = keep * G[2, i, j] + g11 * product


@inlined
def later(plan, t):
    """N in round t: how many later customers an outcome informs, less those who would learn it anyway."""
    if plan.horizon < np.inf:
        return max(2.0 * t * (1.0 - t / plan.horizon), 0.0)
    return KAPPA * t


@compiled
def rule_of(plan, state, t):
    """The rule of round t, up to date."""
    catch_up(plan, state)
    estimate, tally = state.estimate, state.tally
    d = state.moments.shape[0]
    seen = np.empty(d)
    for j in range(d):
        seen[j] = 1.0 if state.features[COUNT, j] > 0.0 or _given(plan) else 0.0
    own = GAINS_PACE / (tally[TOTAL] + 1.0 + GAINS_PACE)
    return AheadRule(
        estimate.code, estimate.theta, estimate.P, state.gains, seen, tally[DISPERSION], later(plan, t), own,
        plan.spread, plan.low, plan.high,
    )  # fmt: skip


@compiled
def warming(plan, state):
    """Whether prices are uniform: until there is a record, or a given prior."""
    return not _given(plan) and state.tally[TOTAL] + state.estimate.counts[HELD] == 0.0


@compiled
def ahead_block(plan, state, t, z, uniforms, terms, demand, prices, greedy):
    """Sell to a block of customers, rounds t + 1, t + 2, ...: quote, sell, record, learn.

    The steps are those of a live round. ``greedy`` receives the best known price of each customer.
    """
    cost, low, high, ladder, segment, step, last = terms
    code, _, x, y, _, _, _, counts, pace, _ = state.estimate
    work, known = np.empty(5 * z.shape[1]), (0.0, 0.0)
    for i in range(len(z)):
        t += 1
        s = segment[i]
        lowest, highest = window(low[i], high[i], last[s], step)
        if warming(plan, state):
            p = quote_on_terms(EXPLORE, code, 0.0, 0.0, 0.0, uniforms[i], cost[i], lowest, highest, ladder)
        else:
            rule = rule_of(plan, state, float(t))
            centre, reach, known = span(rule, z[i], cost[i], lowest, highest, ladder, work)
            p = _draw(centre, reach, uniforms[i], lowest, highest)
            if ladder.size:
                first, top = rungs(ladder, lowest, highest)
                p = nearest_rung(p, ladder, first, top)
        greedy[i] = greedy_price(code, *known, cost[i], lowest, highest, ladder)
        prices[i] = last[s] = p
        append(x, y, counts, pace, z[i], p, outcome(demand, i, p))
