"""The prior of look-ahead pricing, from the features and from the estimate.

Centred prices have coefficients alpha - mid beta and half beta, with mid and half those of the price range; each
coefficient is divided by the size of its feature. Features are numbers, indicators (0 or one other value) or constants,
and each kind has a variance of its own, the one that explains its coefficients best (MacKay's fixed point). Where some
combination of indicators is 1 for every customer, as with the segments of a one-hot group, they share a value, and
their variance is that of the deviations from it.
"""

import math

import numpy as np

from hushprice.kernels.glm import LINEAR
from hushprice.kernels.jit import compiled
from hushprice.kernels.newton import cholesky, dot, solve

NUMBER, INDICATOR, CONSTANT = 0, 1, 2  # kinds of features
SUM, SQUARE, COUNT, VALUE = 0, 1, 2, 3  # of a feature where it is not 0; VALUE is NaN if it has several
TOTAL, REVISION, DISPERSION, BELIEF, FOLDED, SQUARES, OUTCOMES = 0, 1, 2, 3, 4, 5, 6  # of the tally
TRIALS = 20  # records before a feature can count as an indicator or a constant
TIED = 0.25  # a level lower by 1 lets one expect a slope larger by this much
SLOPE, SLOPE_RIDGE = 0.7, 1e-3  # see _usual_slopes
PSEUDO = 2.0  # of the expected size: indicators, a given prior's coefficients, records for the dispersion
FIRM = 8.0  # the same for numbers and constants: small coefficients seen early should not narrow their prior
DEVIATION = 0.1  # expected square of an indicator's coefficient; of the others 1
LEAST_VARIANCE, LARGEST_VARIANCE = 1e-3, 1e2
CONTRADICTION = 3.0  # standard errors at which the sales contradict a given prior
LEAST_SQUARE = 1e-200  # of a feature: a smaller one counts as 0
LEAST_BELIEF = 1e-12  # factor on a given prior's precision; 1 at most


@compiled
def survey(state, x, y):
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
def kinds_of(state):
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
def shared_value(state, kinds):
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
def prior_precision(variances, c, size):
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

    Without them, customers who never buy would look like flat demand, for which the highest price is best.
    """
    return nearest_to_constant(state, SLOPE * math.sqrt(_squared_unit(state)))


@compiled
def nearest_to_constant(state, target):
    """The coefficients of the features whose combination is nearest to a number, by least squares."""
    features, moments, total = state.features, state.moments, state.tally[TOTAL]
    d = moments.shape[0]
    slopes, matrix, factor = np.zeros(d), np.zeros((d, d)), np.zeros((d, d))
    if not total > 0.0:
        return slopes
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
def given(plan):
    """Whether the policy was given a prior."""
    return plan.centre.size > 0


@compiled
def write_prior(plan, state, centre, precision):
    """Write centre and precision of the prior, the latter times the dispersion."""
    tally, m = state.tally, centre.size
    d = m // 2
    if given(plan):
        for i in range(m):
            centre[i] = plan.centre[i]
            for j in range(m):
                precision[i, j] = tally[BELIEF] * plan.precision[i, j]
    else:
        kinds = kinds_of(state)
        c = shared_value(state, kinds)
        W = prior_precision(_prior_variances(plan, state, kinds), c, _size(plan, state, c))
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
def learn_variances(plan, state):
    """One step of MacKay's fixed point for the variance of each kind, and of the value that indicators share."""
    theta, P, phi = state.estimate.theta, state.estimate.P, state.tally[DISPERSION]
    kinds = kinds_of(state)
    d = kinds.size
    mid, half = 0.5 * (plan.low + plan.high), 0.5 * (plan.high - plan.low)
    sizes, variances, c = _sizes(state, kinds), _prior_variances(plan, state, kinds), shared_value(state, kinds)
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
def learn_belief(plan, state):
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
