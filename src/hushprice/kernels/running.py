"""The running estimator's steps: one record at a time between exact refits.

``estimate`` is an :class:`~hushprice.kernels.state.EstimatorState`, whose arrays are changed in place.
"""

import math

import numpy as np

from hushprice.kernels.glm import canonical, implicit_gap, information, quadratic, residual, steepness
from hushprice.kernels.jit import compiled
from hushprice.kernels.newton import CONVERGED, cholesky, dot, invert, newton

HELD, USED, FITTED, REFITS = 0, 1, 2, 3
GROWTH, DRIFT, MOVED, LOWEST, HIGHEST = 0, 1, 2, 3, 4

MAX_GROWTH = 0.25  # refit at the latest after a quarter more records
ALARM = 0.15  # refit at once when expected_drift passes this; the stated bound, 0.2, leaves a margin
TARGET_DRIFT = 0.05  # the geometric schedule aims at this drift between refits
START_GROWTH = 0.05  # growth between refits before the first measurement of drift
NEWTON_TOLERANCE = 1e-4  # in standard errors; the error after the last step is about its square
WARM_PASSES, COLD_PASSES = 25, 500
EXACT_RECORDS, FEW = 3, 200  # with fewer records per coefficient, or in all, every estimate is an exact refit


@compiled
def implicit_residual(code, eta, leverage, y):
    """The s that solves s = -loss'(eta + leverage s): the residual after the step, by safeguarded Newton.

    The loss is convex, so that s lies between 0 and the residual before the step.
    """
    s = residual(code, eta, y)
    low, high = min(s, 0.0), max(s, 0.0)
    s = s / (1.0 + leverage * information(code, eta, y))
    for _ in range(60):
        f = implicit_gap(code, s, eta + leverage * s, y)
        if f > 0.0:
            high = s
        else:
            low = s
        step = f / (1.0 + leverage * information(code, eta + leverage * s, y))
        t = s - step
        if not low <= t <= high:
            t = 0.5 * (low + high)
        if abs(t - s) <= 1e-13 * (1.0 + abs(s)):
            return t
        s = t
    return s


@compiled
def _moved(z, theta, pace, anchor):
    """The largest change of a context's utility since the last refit, over the prices on record."""
    d = theta.size // 2
    a = b = 0.0
    for j in range(d):
        a += z[j] * (theta[j] - anchor[0, j])
        b += z[j] * (theta[d + j] - anchor[0, d + j])
    return max(abs(a - pace[LOWEST] * b), abs(a - pace[HIGHEST] * b))


@compiled
def _steepest(code, z, theta, pace, moved):
    """The :func:`steepness` at the utilities of a context over the prices on record, and ``moved`` beyond."""
    if canonical(code):
        return 1.0
    d = theta.size // 2
    a, b = dot(z[:d], theta[:d]), dot(z[:d], theta[d:])
    return steepness(code, max(abs(a - pace[LOWEST] * b), abs(a - pace[HIGHEST] * b)) + moved)


@compiled
def _keep_largest(x, anchor):
    """Store the context if it is the largest so far."""
    d = x.size // 2
    length = dot(x[:d], x[:d])
    if length > anchor[2, d]:
        anchor[2, :d] = x[:d]
        anchor[2, d] = length


@compiled
def _track(code, x, s, w, theta, pace, anchor):
    """Update the inputs of :func:`expected_drift`: the Hessian times the way, and the largest change of a utility.

    The change is maximised over all prices on record, for this record's context and the largest context so far. It is
    multiplied by the family's :func:`steepness`.
    """
    m = theta.size
    d = m // 2
    along = 0.0
    for j in range(d):
        along += x[j] * (theta[j] - anchor[0, j]) + x[d + j] * (theta[d + j] - anchor[0, d + j])
    for i in range(m):  # the Hessian gained w x x', the way s P x
        anchor[1, i] += (s + w * along) * x[i]
    _keep_largest(x, anchor)
    here, there = _moved(x, theta, pace, anchor), _moved(anchor[2], theta, pace, anchor)
    here *= _steepest(code, x, theta, pace, here)
    there *= _steepest(code, anchor[2], theta, pace, there)
    finite = here < np.inf and there < np.inf  # and not NaN: else a refit is due
    pace[MOVED] = max(pace[MOVED], here, there) if finite else np.inf


@compiled
def assimilate(code, x, y, weight, theta, P, Px, pace, anchor):
    """Add one record: minimise its weighted loss plus 1/2 |theta - old|^2 in P^-1, a quadratic model of the others."""
    m = theta.size
    for i in range(m):
        Px[i] = dot(P[i], x)
    leverage = dot(x, Px)
    eta = dot(x, theta)
    s = implicit_residual(code, eta, weight * leverage, y)
    w = weight * information(code, eta + weight * leverage * s, y)
    s *= weight
    c = w / (1.0 + w * leverage)
    for i in range(m):
        theta[i] += s * Px[i]
        row, k = P[i], c * Px[i]
        for j in range(m):
            row[j] -= k * Px[j]
    _track(code, x, s, w, theta, pace, anchor)


@compiled
def refit(estimate):
    """Exact penalised MLE of all records, started at the running estimate; measures the drift of that estimate."""
    code, penalty, x, y, weight, theta, P, counts, pace, anchor = estimate
    n, m = counts[HELD], theta.size
    running = theta.copy()
    information, factor = np.empty((m, m)), np.zeros((m, m))
    status, _ = newton(code, x[:n], y[:n], weight[:n], penalty, theta, information, NEWTON_TOLERANCE, WARM_PASSES)
    if status != CONVERGED:  # the running estimate was a bad start: from zero Newton always arrives
        theta[:] = 0.0
        newton(code, x[:n], y[:n], weight[:n], penalty, theta, information, NEWTON_TOLERANCE, COLD_PASSES)
    if cholesky(information, factor):
        invert(factor, P)
    if counts[USED] == n and n > counts[FITTED] + 1:  # every record was assimilated: the gap is drift
        total = 0.0
        for i in range(m):
            for j in range(i + 1):
                twice = 1.0 if i == j else 2.0
                total += twice * information[i, j] * (running[i] - theta[i]) * (running[j] - theta[j])
        pace[DRIFT] = math.sqrt(max(total, 0.0))
        # Drift grows about linearly in the growth between refits: aim at half the target, change by at most two.
        factor_wanted = 0.5 * TARGET_DRIFT / max(pace[DRIFT], 1e-12)
        pace[GROWTH] = min(pace[GROWTH] * min(max(factor_wanted, 0.5), 1.5), MAX_GROWTH)
    for i in range(counts[USED], n):  # those that were never assimilated
        _keep_largest(x[i], anchor)
    pace[MOVED] = 0.0
    anchor[0] = theta
    anchor[1] = 0.0
    counts[USED] = n
    counts[FITTED] = n
    counts[REFITS] += 1


@compiled
def expected_drift(theta, pace, anchor):
    """Second-order error of the steps since the last refit, in standard errors; infinite when they were too long.

    The gradient left over is sum_i loss'''(.) (x_i.way)^2 x_i / 2. With |loss'''| <= k loss'' its length is at most
    (e^r - 1 - r) / r |way| with r = k max_i |x_i.way|: about r/2 |way| for the small r of a quadratic model that
    holds. k is the family's :func:`steepness`: 1 where the loss is psi(eta) - y eta; for Probit the inequality need not
    hold far in the tail, so that there the result is an estimate of the length, not a bound.
    """
    r = pace[MOVED]
    if not r < 1.0:
        return np.inf
    square = 0.0
    for i in range(theta.size):
        square += (theta[i] - anchor[0, i]) * anchor[1, i]
    return 0.5 * r * (1.0 + r / 3.0 + r * r / 9.0) * math.sqrt(max(square, 0.0))


@compiled
def refit_due(code, theta, counts, pace, anchor):
    """Whether there are too many records since the last exact refit, or the steps since then were too long."""
    if counts[HELD] < max(EXACT_RECORDS * theta.size, FEW):
        return True
    if quadratic(code):  # the quadratic model is the truth: only rounding can drift
        return counts[HELD] > (1.0 + MAX_GROWTH) * counts[FITTED]
    return counts[HELD] > (1.0 + pace[GROWTH]) * counts[FITTED] or expected_drift(theta, pace, anchor) > ALARM


@compiled
def assimilated(code, x, y, weight, theta, P, counts, pace, anchor):
    """Take the records held into the estimate by rank-one steps; False if an exact refit is due."""
    n, m = counts[HELD], theta.size
    if counts[USED] == n:
        return True
    if counts[FITTED] < max(EXACT_RECORDS * m, FEW) - 1 or n - counts[USED] > MAX_GROWTH * counts[FITTED]:
        return False
    Px = np.empty(m)
    for i in range(counts[USED], n):
        assimilate(code, x[i], y[i], weight[i], theta, P, Px, pace, anchor)
    counts[USED] = n
    return not refit_due(code, theta, counts, pace, anchor)


@compiled
def update(estimate):
    """Update the estimate to all records: by rank-one steps, or by an exact refit if one is due."""
    code, _, x, y, weight, theta, P, counts, pace, anchor = estimate
    if not assimilated(code, x, y, weight, theta, P, counts, pace, anchor):
        refit(estimate)


@compiled
def append(x, y, counts, pace, z, price, outcome):
    """Store the record x = (z, -p z), y with weight 1, the weight of every unused row, and note its price."""
    store(x, y, counts, z, price, outcome)
    note_price(pace, price)


@compiled
def note_price(pace, price):
    """Extend the range of prices on record."""
    pace[LOWEST], pace[HIGHEST] = min(pace[LOWEST], price), max(pace[HIGHEST], price)


@compiled
def store(x, y, counts, z, price, outcome):
    """Store the record alone."""
    n, d = counts[HELD], z.size
    row = x[n]
    for j in range(d):
        row[j] = z[j]
        row[d + j] = -price * z[j]
    y[n] = outcome
    counts[HELD] = n + 1
