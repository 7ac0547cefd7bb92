"""The estimate of theta from sums of reports, under several priors, and the weights of these.

Stage k has m_k reports with mean W_k. A decoded report is the score plus noise with variance V per coordinate, so that

    F_c(theta) = 1/2 |theta - centre_c|^2_{Q_c} + sum_k (t_k / t)^f m_k / (2 V) |W_k - f_k(theta)|^2

is, but for a constant, minus the log of the posterior density under prior c; t_k is the number of reports at the end of
stage k, and f > 0 lets early stages count less, as their prices were far from those of today. It is minimised by
Levenberg-Marquardt steps, each of which must lower F_c. All stages are linearised again at every step: an early
one linearised once, far from the truth, would mislead for ever.

Prior c has a weight in proportion to its own times the evidence sqrt(det Q_c / det H_c) e^(-F_c), H_c the Hessian.
"""

import math

import numpy as np

from hushprice.kernels.dither.expected import add_information, linearise, mean_score
from hushprice.kernels.jit import compiled
from hushprice.kernels.newton import add_penalty, cholesky, penalised, solve
from hushprice.kernels.state import Penalty

MOST_STEPS = 25
FIRST_DAMPING, MORE_DAMPING, LESS_DAMPING, NO_DAMPING = 0.01, 6.0, 0.2, 1e-4
SETTLED_WITHIN = 1e-6  # a fall of F that is not worth another step


@compiled
def _value(demand, theta, stages, count, prior):
    """F at theta."""
    points, shares, tables, means, worth = stages
    value = penalised(prior, theta)
    f = np.empty(theta.size)
    for k in range(count):
        if worth[k] > 0.0:
            mean_score(demand, theta, points, shares, tables[k], f)
            gap = 0.0
            for j in range(f.size):
                gap += (means[k, j] - f[j]) ** 2
            value += 0.5 * worth[k] * gap
    return value


@compiled
def _expand(demand, theta, stages, count, prior, gradient, H):
    """F at theta, its gradient, and the lower triangle of its Hessian without second derivatives of f."""
    points, shares, tables, means, worth = stages
    m = theta.size
    f, J = np.empty(m), np.empty((m, m))
    gradient[:] = 0.0
    H[:] = 0.0
    add_penalty(prior, theta, gradient, H)
    value = penalised(prior, theta)
    for k in range(count):
        if worth[k] > 0.0:
            linearise(demand, theta, points, shares, tables[k], f, J)
            for j in range(m):
                gap = means[k, j] - f[j]
                value += 0.5 * worth[k] * gap * gap
                for i in range(m):
                    gradient[i] -= worth[k] * gap * J[j, i]
            add_information(J, worth[k], H)
    return value


@compiled
def maximise(demand, stages, count, centre, precision, theta, H):
    """Move theta to the minimum of F; H receives the Hessian there, both triangles. F at the end."""
    m = theta.size
    gradient, way, damped, factor = np.empty(m), np.empty(m), np.empty((m, m)), np.zeros((m, m))
    prior = Penalty(0.0, centre, precision)
    value = _expand(demand, theta, stages, count, prior, gradient, H)
    damping = 0.0
    for _ in range(MOST_STEPS):
        damped[:] = H
        for i in range(m):
            damped[i, i] *= 1.0 + damping
        trial, lower = theta, np.inf
        if cholesky(damped, factor):
            solve(factor, gradient, way)
            trial = theta - way
            lower = _value(demand, trial, stages, count, prior)
        if lower <= value:
            settled = value - lower < SETTLED_WITHIN
            theta[:] = trial
            value = _expand(demand, theta, stages, count, prior, gradient, H)
            if settled:
                break
            damping = LESS_DAMPING * damping if damping > NO_DAMPING else 0.0
        else:
            damping = MORE_DAMPING * damping if damping > 0.0 else FIRST_DAMPING
    for i in range(m):
        for j in range(i):
            H[j, i] = H[i, j]
    return value


@compiled
def log_determinant(matrix):
    """Of a positive definite matrix; -inf if it is numerically singular."""
    factor = np.zeros(matrix.shape)
    if not cholesky(matrix, factor):
        return -np.inf
    total = 0.0
    for i in range(len(factor)):
        total += 2.0 * math.log(factor[i, i])
    return total


@compiled
def update(demand, stages, count, priors, thetas, H, weights):
    """Estimate theta under every prior, and weigh the priors."""
    centre, precision, first = priors
    evidence = np.empty(weights.size)
    for c in range(weights.size):
        value = maximise(demand, stages, count, centre[c], precision[c], thetas[c], H[c])
        evidence[c] = first[c] - value + 0.5 * (log_determinant(precision[c]) - log_determinant(H[c]))
    top = evidence.max()
    for c in range(weights.size):
        weights[c] = math.exp(evidence[c] - top) if evidence[c] > -np.inf else 0.0
    weights /= weights.sum()
