"""Damped Newton: F(theta) = sum_i w_i loss(x_i.theta, y_i) + penalty(theta), the loss that of :mod:`~.glm`.

``penalty`` is a :class:`~hushprice.kernels.state.Penalty`.
"""

import math

import numpy as np

from hushprice.kernels.glm import loss
from hushprice.kernels.jit import compiled

CONVERGED, SINGULAR, STALLED, RUNNING = 0, 1, 2, 3
NEWTON_TILE = 8


@compiled
def _add_tile(x, start, weight, residual, gradient, hessian):
    """Add eight records to the gradient and to the lower triangle of the Hessian."""
    m = x.shape[1]
    x0, x1, x2, x3 = x[start], x[start + 1], x[start + 2], x[start + 3]
    x4, x5, x6, x7 = x[start + 4], x[start + 5], x[start + 6], x[start + 7]
    for i in range(m):
        gradient[i] += (
            residual[0] * x0[i] + residual[1] * x1[i] + residual[2] * x2[i] + residual[3] * x3[i]
            + residual[4] * x4[i] + residual[5] * x5[i] + residual[6] * x6[i] + residual[7] * x7[i]
        )  # fmt: skip
        c0, c1, c2, c3 = weight[0] * x0[i], weight[1] * x1[i], weight[2] * x2[i], weight[3] * x3[i]
        c4, c5, c6, c7 = weight[4] * x4[i], weight[5] * x5[i], weight[6] * x6[i], weight[7] * x7[i]
        row = hessian[i]
        for j in range(i + 1):
            row[j] += (c0 * x0[j] + c1 * x1[j] + c2 * x2[j] + c3 * x3[j]) + (
                c4 * x4[j] + c5 * x5[j] + c6 * x6[j] + c7 * x7[j]
            )


@compiled
def _add_row(x, weight, residual, gradient, hessian):
    """Add one record to the gradient and to the lower triangle of the Hessian."""
    for i in range(x.size):
        gradient[i] += residual * x[i]
        c = weight * x[i]
        row = hessian[i]
        for j in range(i + 1):
            row[j] += c * x[j]


@compiled
def _tile_index(x, start, theta, eta):
    """eta = x.theta of eight records, as eight independent running sums."""
    e0 = e1 = e2 = e3 = e4 = e5 = e6 = e7 = 0.0
    for j in range(theta.size):
        t = theta[j]
        e0 += x[start, j] * t
        e1 += x[start + 1, j] * t
        e2 += x[start + 2, j] * t
        e3 += x[start + 3, j] * t
        e4 += x[start + 4, j] * t
        e5 += x[start + 5, j] * t
        e6 += x[start + 6, j] * t
        e7 += x[start + 7, j] * t
    eta[0], eta[1], eta[2], eta[3] = e0, e1, e2, e3
    eta[4], eta[5], eta[6], eta[7] = e4, e5, e6, e7


@compiled
def dot(x, theta):
    total = 0.0
    for j in range(theta.size):
        total += x[j] * theta[j]
    return total


@compiled
def evaluate(code, x, y, weights, theta, gradient, hessian):
    """Unpenalised objective; its gradient and the lower triangle of its Hessian are written in place.

    ``weights`` is empty for unit weights.
    """
    n = y.size
    gradient[:] = 0.0
    hessian[:, :] = 0.0
    objective = 0.0
    eta, weight, residual = np.empty(NEWTON_TILE), np.empty(NEWTON_TILE), np.empty(NEWTON_TILE)
    full = n - n % NEWTON_TILE
    for start in range(0, full, NEWTON_TILE):
        _tile_index(x, start, theta, eta)
        for r in range(NEWTON_TILE):
            w = weights[start + r] if weights.size else 1.0
            value, first, second = loss(code, eta[r], y[start + r])
            objective += w * value
            weight[r] = w * second
            residual[r] = w * first
        _add_tile(x, start, weight, residual, gradient, hessian)
    for i in range(full, n):
        e = dot(x[i], theta)
        w = weights[i] if weights.size else 1.0
        value, first, second = loss(code, e, y[i])
        objective += w * value
        _add_row(x[i], w * second, w * first, gradient, hessian)
    return objective


@compiled
def cholesky(hessian, factor):
    """Lower Cholesky factor of a symmetric matrix given by its lower triangle; False if numerically singular."""
    m = hessian.shape[0]
    for i in range(m):
        for j in range(i + 1):
            s = hessian[i, j]
            for k in range(j):
                s -= factor[i, k] * factor[j, k]
            if i == j:
                if not s > 1e-13 * m * hessian[i, i]:
                    return False
                factor[i, i] = math.sqrt(s)
            else:
                factor[i, j] = s / factor[j, j]
    return True


@compiled
def solve(factor, rhs, out):
    """out = (L L')^-1 rhs."""
    m = rhs.size
    for i in range(m):
        s = rhs[i]
        for k in range(i):
            s -= factor[i, k] * out[k]
        out[i] = s / factor[i, i]
    for i in range(m - 1, -1, -1):
        s = out[i]
        for k in range(i + 1, m):
            s -= factor[k, i] * out[k]
        out[i] = s / factor[i, i]


@compiled
def invert_factor(factor):
    """L^-1."""
    m = factor.shape[0]
    inverse = np.zeros((m, m))
    for i in range(m):
        inverse[i, i] = 1.0 / factor[i, i]
        for j in range(i):
            s = 0.0
            for k in range(j, i):
                s -= factor[i, k] * inverse[k, j]
            inverse[i, j] = s / factor[i, i]
    return inverse


@compiled
def invert(factor, out):
    """out = (L L')^-1, symmetric."""
    m, inverse = factor.shape[0], invert_factor(factor)
    for i in range(m):
        for j in range(i + 1):
            s = 0.0
            for k in range(i, m):
                s += inverse[k, i] * inverse[k, j]
            out[i, j] = s
            out[j, i] = s


@compiled
def _make_definite(information, factor):
    """Raise the diagonal by the least power of ten of rounding that lets the factorisation through.

    With a penalty the matrix is positive definite, but next to large entries the penalty can be lost in rounding.
    """
    lift = 1e-13 * information.shape[0]
    for _ in range(12):
        for i in range(information.shape[0]):
            information[i, i] += lift * information[i, i]
        if cholesky(information, factor):
            return True
        lift *= 10.0
    return False


@compiled
def penalised(penalty, theta):
    """The penalty at theta."""
    if penalty.precision.size == 0:
        return 0.5 * penalty.ridge * dot(theta, theta)
    way = theta - penalty.centre
    total = 0.0
    for i in range(theta.size):
        total += way[i] * dot(penalty.precision[i], way)
    return 0.5 * total


@compiled
def add_penalty(penalty, theta, gradient, information):
    """Add the penalty's gradient, and its Hessian to the lower triangle of the information."""
    m = theta.size
    if penalty.precision.size == 0:
        for i in range(m):
            gradient[i] += penalty.ridge * theta[i]
            information[i, i] += penalty.ridge
        return
    way = theta - penalty.centre
    for i in range(m):
        row = penalty.precision[i]
        gradient[i] += dot(row, way)
        for j in range(i + 1):
            information[i, j] += row[j]


@compiled
def step(value, penalty, theta, trial, direction, gradient, information, factor, state, tolerance):
    """What to do with the unpenalised objective, gradient and information at ``trial``.

    Takes the trial point over into ``theta`` if F went down, and sets the next one a Newton step further;
    otherwise halves the step. ``state`` = (F at theta, length of the step tried, Newton decrement).
    """
    m = theta.size
    value += penalised(penalty, trial)
    if not value <= state[0] + 1e-12 * abs(state[0]):  # a rise within rounding is not a rise
        state[1] *= 0.5
        for i in range(m):
            trial[i] = theta[i] + state[1] * direction[i]
        return STALLED if state[1] < 1e-12 else RUNNING
    theta[:] = trial
    add_penalty(penalty, theta, gradient, information)
    free = penalty.ridge == 0.0 and penalty.precision.size == 0
    if not cholesky(information, factor) and (free or not _make_definite(information, factor)):
        return SINGULAR
    solve(factor, gradient, direction)
    state[0], state[1], state[2] = value, 1.0, math.sqrt(max(dot(gradient, direction), 0.0))
    for i in range(m):
        direction[i] = -direction[i]
        trial[i] = theta[i] + direction[i]
    if state[2] <= tolerance:
        theta[:] = trial
        return CONVERGED
    return RUNNING


@compiled
def newton(code, x, y, weights, penalty, theta, information, tolerance, max_passes):
    """Minimise F from ``theta`` (in place) by Newton steps, halved until F decreases.

    Stops when the Newton decrement (the length of the step in standard errors) is below ``tolerance``; that last
    step is still taken, so the error left is of the order of its square. ``information`` receives the lower
    triangle of the penalised Hessian at the last point evaluated.

    Returns (status, passes over the data).
    """
    m = theta.size
    gradient, direction, trial, factor = np.empty(m), np.empty(m), theta.copy(), np.zeros((m, m))
    state = np.array([np.inf, 1.0, np.inf])
    for k in range(max_passes):
        value = evaluate(code, x, y, weights, trial, gradient, information)
        status = step(value, penalty, theta, trial, direction, gradient, information, factor, state, tolerance)
        if status != RUNNING:
            return status, k + 1
    return STALLED, max_passes
