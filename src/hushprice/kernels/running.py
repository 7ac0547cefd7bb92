"""The running estimator's steps: one record at a time between exact refits.

State, all in place: records ``x`` (capacity, m) and ``y``; ``theta``; ``P``, the inverse of the penalised Hessian;
``counts`` = (records held, records in the estimate, records at the last exact refit, exact refits, updates);
``pace`` = (growth allowed between refits, drift found at the last refit, squared length of the path since then and
largest leverage seen on it, both in standard errors).
"""

import math

import numpy as np

from hushprice.kernels.jit import compiled
from hushprice.kernels.glm import LINEAR, curvature, mean
from hushprice.kernels.newton import cholesky, dot, invert, newton

HELD, USED, FITTED, REFITS, UPDATES = 0, 1, 2, 3, 4
GROWTH, DRIFT, PATH, LEVERAGE = 0, 1, 2, 3

MAX_GROWTH = 0.25  # refit at the latest after a quarter more records
TARGET_DRIFT = 0.05  # what the schedule steers to; the stated bound is twice this
START_GROWTH = 0.05  # pace before any drift has been measured
NEWTON_TOLERANCE = 1e-4  # in standard errors; the step after it leaves about its square
NEWTON_PASSES = 200


@compiled
def implicit_residual(code, eta, leverage, y):
    """The s that solves s = y - psi'(eta + leverage s): the residual after the step, by safeguarded Newton."""
    s = y - mean(code, eta)
    low, high = min(s, 0.0), max(s, 0.0)
    s = s / (1.0 + leverage * curvature(code, eta))
    for _ in range(60):
        f = s - y + mean(code, eta + leverage * s)
        if f > 0.0:
            high = s
        else:
            low = s
        step = f / (1.0 + leverage * curvature(code, eta + leverage * s))
        t = s - step
        if not low <= t <= high:
            t = 0.5 * (low + high)
        if abs(t - s) <= 1e-13 * (1.0 + abs(s)):
            return t
        s = t
    return s


@compiled
def assimilate(code, x, y, theta, P, Px, pace):
    """Add one record: minimise its loss exactly plus the quadratic model 1/2 |theta - old|^2 in P^-1 of the others."""
    m = theta.size
    for i in range(m):
        Px[i] = dot(P[i], x)
    leverage = dot(x, Px)
    eta = dot(x, theta)
    s = implicit_residual(code, eta, leverage, y)
    w = curvature(code, eta + leverage * s)
    c = w / (1.0 + w * leverage)
    pace[PATH] += s * s * leverage
    pace[LEVERAGE] = max(pace[LEVERAGE], leverage)
    for i in range(m):
        theta[i] += s * Px[i]
        row, k = P[i], c * Px[i]
        for j in range(m):
            row[j] -= k * Px[j]


@compiled
def refit(code, ridge, x, y, theta, P, counts, pace):
    """Exact ridge MLE of all records held, from the running estimate; measures how far that had drifted."""
    n, m = counts[HELD], theta.size
    running = theta.copy()
    information, factor = np.empty((m, m)), np.zeros((m, m))
    no_weights = np.empty(0)
    newton(code, x[:n], y[:n], no_weights, ridge, theta, information, NEWTON_TOLERANCE, NEWTON_PASSES)
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
    pace[PATH] = pace[LEVERAGE] = 0.0
    counts[USED] = n
    counts[FITTED] = n
    counts[REFITS] += 1


@compiled
def expected_drift(pace, m):
    """Second-order error of the rank-one steps: 1/2 |path|^2 times the utility a unit of path moves.

    A unit step moves the utility x.theta by at most sqrt(leverage of x), and by 1/sqrt(m) of that when the path
    has no preferred direction among m.
    """
    return 0.5 * pace[PATH] * math.sqrt(pace[LEVERAGE] / m)


@compiled
def refit_due(code, counts, pace, m):
    """Whether the records held have outgrown the last exact refit, or the steps since have been too long."""
    if counts[FITTED] == 0:
        return True
    if code == LINEAR:  # the quadratic model is the truth: only rounding can drift
        return counts[HELD] > (1.0 + MAX_GROWTH) * counts[FITTED]
    return counts[HELD] > (1.0 + pace[GROWTH]) * counts[FITTED] or expected_drift(pace, m) > TARGET_DRIFT


@compiled
def update(code, ridge, x, y, theta, P, counts, pace):
    """Bring the estimate up to the records held: by rank-one steps, or by an exact refit when one is due."""
    n, m = counts[HELD], theta.size
    if counts[USED] == n:
        return
    if counts[FITTED] > 0 and n - counts[USED] <= m + MAX_GROWTH * counts[FITTED]:
        Px = np.empty(m)
        for i in range(counts[USED], n):
            assimilate(code, x[i], y[i], theta, P, Px, pace)
        counts[USED] = n
    if counts[USED] < n or refit_due(code, counts, pace, m):
        refit(code, ridge, x, y, theta, P, counts, pace)
    counts[UPDATES] += 1


@compiled
def append(x, y, counts, z, price, outcome):
    """Store the record x = (z, -p z), y."""
    n, d = counts[HELD], z.size
    row = x[n]
    for j in range(d):
        row[j] = z[j]
        row[d + j] = -price * z[j]
    y[n] = outcome
    counts[HELD] = n + 1
