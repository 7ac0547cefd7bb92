"""Estimates of several memories, and how a change of demand is found.

The lasting estimate weighs every outcome alike. Estimate k forgets: an outcome that is n outcomes old counts about
exp(-n / M_k). It starts as a copy of the lasting estimate after M_k outcomes, takes every later outcome by one implicit
step, and forgets every few outcomes: its information H_k beyond the prior's precision W shrinks,

    H_k <- W + (1 - 1/M_k)^n (H_k - W),   theta_k unchanged.

A shift is the lasting estimate with a number times v added to every utility, learned from the last outcomes. v = z.c is
the combination of features that is nearest to 1, which the lasting estimate could learn, too. Where prices are much
alike, a shift shows a change long before an estimate of all coefficients can.

Each of these has a weight, which every outcome multiplies by the likelihood that it gave to the outcome. Then a share
s = 1 / (outcomes remembered + SHARE) of all weight returns to where it began. Prices follow from the heaviest estimate;
no price follows from a shift.

Demand has changed where estimates that forget and shifts have together CHANGED times the weight of the lasting
estimate. The change began where the outcomes since are together most likely under the heaviest of them instead of the
lasting one. The lasting estimate then starts again, from where this likelihood is smaller by HARDLY_LESS: it should
keep no outcome from before.
"""

import math

import numpy as np

from hushprice.kernels.glm import curvature, information, log_predictive, loss, mean
from hushprice.kernels.jit import compiled
from hushprice.kernels.look_ahead.misfit import (
    KNOWN,
    LARGEST_GAIN_OF_ONE,
    OFFSET,
    forgive,
    learn_offset,
    precision_of_offset,
    shifted_by,
)
from hushprice.kernels.look_ahead.prior import DISPERSION, FOLDED, SQUARES, TOTAL, write_prior
from hushprice.kernels.newton import cholesky, dot, invert
from hushprice.kernels.running import FITTED, HELD, USED, implicit_residual

ORIGIN, IN_USE, CHANGES_FOUND, FOUND, BEGAN, ODDS = 0, 1, 2, 3, 4, 5  # of the tally of memories
# outcomes that the lasting estimate has left out; the estimate in use, 0 for the lasting one; changes found; of the
# last one: outcomes when it was found, outcomes when it began, and its odds
SHIFTS = np.array([100.0, 1000.0])  # memories of the shifts, in outcomes
USUAL_SHIFT = 1.0  # standard deviation of a shift
SHARE = 10.0
LASTING, LASTING_AGAIN = 0.9, 0.5  # weight of the lasting estimate at first, and after a change: more may come
CHANGED = 20.0  # odds at which demand has changed
HARDLY_LESS = 2.0  # by so much, in log-likelihood, a beginning of the change is hardly less likely than the best one
SETTLED = 2.0  # a memory can show a change after so many times its length
STEPS = 50.0  # times that a memory forgets per its length, at most
LEAST_GAIN = -30.0  # logarithm of the smallest factor on a weight per outcome; LARGEST_GAIN_OF_ONE that of the largest


@compiled
def take(code, x, y, phi, theta, P, Px):
    """Take one outcome by an implicit step; (eta, variance of eta over phi, log-likelihood) before it."""
    m = theta.size
    for i in range(m):
        Px[i] = dot(P[i], x)
    q, eta = max(dot(x, Px), 0.0), dot(x, theta)
    likely = log_predictive(code, eta, phi * q, phi, y)
    s = implicit_residual(code, eta, q, y)
    w = information(code, eta + q * s, y)
    c = w / (1.0 + w * q)
    for i in range(m):
        theta[i] += s * Px[i]
        row, k = P[i], c * Px[i]
        for j in range(m):
            row[j] -= k * Px[j]
    return eta, q, likely


@compiled
def _active(memories, k):
    """Whether memory k has started."""
    return memories.due[k] >= 0


@compiled
def _sound(memories, k, q):
    """Whether memory k is made of numbers, with variances above 0."""
    theta, P = memories.theta[k], memories.P[k]
    sound = q < np.inf
    for i in range(theta.size):
        sound = sound and abs(theta[i]) < np.inf and 0.0 < P[i, i] < np.inf
    return sound


@compiled
def _reshape(memories, k, factor, prior):
    """Multiply the information of memory k beyond the prior by a factor, and give it another precision of the prior.

    A memory whose information cannot be computed starts again.
    """
    P, W = memories.P[k], memories.prior
    m = P.shape[0]
    H, root = np.empty((m, m)), np.zeros((m, m))
    if not cholesky(P, root):
        memories.due[k] = -1
        return
    invert(root, H)
    for i in range(m):
        for j in range(m):
            H[i, j] = prior[i, j] + factor * (H[i, j] - W[i, j])
    if cholesky(H, root):
        invert(root, P)


@compiled
def forget_by(memories, k, factor):
    """Multiply the information of memory k beyond the prior by a factor."""
    if _active(memories, k):
        _reshape(memories, k, factor, memories.prior)


@compiled
def follow_prior(memories, prior):
    """Put another precision of the prior into every estimate."""
    for k in range(memories.due.size):
        if _active(memories, k):
            _reshape(memories, k, 1.0, prior)
    memories.prior[:] = prior


@compiled
def _steps(length, m):
    """Outcomes from one forgetting to the next."""
    return max(m, int(length / STEPS))


@compiled
def weigh(plan, state, x, y):
    """Take an outcome into the estimates that forget, and weigh all; (eta, variance of eta) of the one in use before.

    The lasting estimate takes it elsewhere.
    """
    estimate, memories, phi = state.estimate, state.memories, state.tally[DISPERSION]
    code, weight, tally = estimate.code, memories.weight, memories.tally
    m = x.size
    Px = np.empty(m)
    for i in range(m):
        Px[i] = dot(estimate.P[i], x)
    eta, spread = dot(x, estimate.theta), phi * max(dot(x, Px), 0.0)
    first = known = eta, spread
    lasting = log_predictive(code, eta, spread, phi, y)
    for k in range(plan.lengths.size):
        if not _active(memories, k):
            continue
        eta, q, likely = take(code, x, y, phi, memories.theta[k], memories.P[k], Px)
        if not _sound(memories, k, q):  # a step beyond what numbers can hold: it starts again
            memories.due[k] = -1
            continue
        if tally[IN_USE] == k + 1:
            known = eta, phi * q
        gain = likely - lasting
        if plan.adaptive and gain == gain:
            weight[k + 1] *= math.exp(min(max(gain, LEAST_GAIN), LARGEST_GAIN_OF_ONE))
        memories.due[k] -= 1
        if memories.due[k] == 0:
            n = _steps(plan.lengths[k], m)
            forget_by(memories, k, (1.0 - 1.0 / plan.lengths[k]) ** n)
            if _active(memories, k):
                memories.due[k] = n
    if plan.adaptive:
        _weigh_shifts(memories, code, x, y, first, phi, lasting)
        _share(memories, state.tally[TOTAL] - tally[ORIGIN])
    return known


@compiled
def _weigh_shifts(memories, code, x, y, first, phi, lasting):
    """Weigh and update the shifts of the lasting estimate; ``first`` is what it expects of the utility."""
    eta, spread = first
    K, v = memories.due.size, shifted_by(memories, x)
    for k in range(SHIFTS.size):
        shift = memories.shifts[k]
        uncertain = v * v / (shift[KNOWN] + precision_of_offset(code, phi, USUAL_SHIFT))
        gain = log_predictive(code, eta + v * shift[OFFSET], spread + uncertain, phi, y) - lasting
        if gain == gain:
            memories.weight[K + 1 + k] *= math.exp(min(max(gain, LEAST_GAIN), LARGEST_GAIN_OF_ONE))
        keep = 1.0 - 1.0 / SHIFTS[k]
        shift[OFFSET], shift[KNOWN] = learn_offset(code, eta, v, y, phi, shift[OFFSET], shift[KNOWN], keep, USUAL_SHIFT)


@compiled
def _first_weight(memories):
    """The weight that the lasting estimate begins with."""
    return LASTING if memories.tally[CHANGES_FOUND] == 0.0 else LASTING_AGAIN


@compiled
def _share(memories, remembered):
    """Let the weights sum to 1, and return a share of all to where it began."""
    weight = memories.weight
    K, total = weight.size - 1, weight.sum()
    s, lasting = 1.0 / (remembered + SHARE), _first_weight(memories)
    for k in range(K + 1):
        first = lasting if k == 0 else (1.0 - lasting) / K
        weight[k] = (1.0 - s) * weight[k] / total + s * first


@compiled
def begin(plan, state):
    """Start the memories that are due as copies of the lasting estimate."""
    memories, estimate = state.memories, state.estimate
    remembered = state.tally[TOTAL] - memories.tally[ORIGIN]
    for k in range(plan.lengths.size):
        if not _active(memories, k) and remembered >= plan.lengths[k]:
            memories.theta[k] = estimate.theta
            memories.P[k] = estimate.P
            memories.due[k] = _steps(plan.lengths[k], estimate.theta.size)


@compiled
def choose(plan, state):
    """Choose the estimate that prices follow from; the number of what shows a change best, or 0 without one."""
    memories = state.memories
    weight, tally = memories.weight, memories.tally
    K = plan.lengths.size
    if not plan.adaptive:
        tally[IN_USE] = 1.0 if K and _active(memories, 0) else 0.0
        return 0
    remembered = state.tally[TOTAL] - tally[ORIGIN]
    lasting, shown, best, top = weight[0], 0.0, 0, 0.0
    for k in range(K):
        if not _active(memories, k):
            lasting += weight[k + 1]
        elif weight[k + 1] > top:
            best, top = k + 1, weight[k + 1]
    showing, most = 0, 0.0
    for k in range(K + SHIFTS.size):
        length = plan.lengths[k] if k < K else SHIFTS[k - K]
        if remembered >= SETTLED * length and (k >= K or _active(memories, k)):
            shown += weight[k + 1]
            if weight[k + 1] > most:
                showing, most = k + 1, weight[k + 1]
    tally[IN_USE] = best if top > lasting else 0.0
    if shown > CHANGED * lasting:
        tally[ODDS] = shown / lasting
        return showing
    return 0


@compiled
def start_weights(plan, state):
    """Weigh the estimates as at first. Memories longer than what the lasting estimate remembers start later."""
    memories = state.memories
    K, remembered = plan.lengths.size, state.tally[TOTAL] - memories.tally[ORIGIN]
    for j in range(K):
        if remembered < plan.lengths[j]:
            memories.due[j] = -1
    lasting = _first_weight(memories)
    memories.weight[0], memories.weight[1:] = lasting, (1.0 - lasting) / (K + SHIFTS.size)
    memories.shifts[:] = 0.0
    choose(plan, state)


@compiled
def since(estimate, memories, theta, shift):
    """From which of the records held on ``theta`` and a shift explain the outcomes better, all together.

    Returns the most likely record, and the last one that is hardly less likely: what is kept should hold no outcome
    from before the change.
    """
    n = estimate.counts[HELD]
    gains = np.empty(n)
    first, total, top = n, 0.0, 0.0
    for i in range(n - 1, -1, -1):
        x, y = estimate.x[i], estimate.y[i]
        gain = (
            loss(estimate.code, dot(x, estimate.theta), y)[0]
            - loss(estimate.code, dot(x, theta) + shift * shifted_by(memories, x), y)[0]
        )
        gains[i] = estimate.weight[i] * gain
        total += gains[i]
        if total > top:
            first, top = i, total
    last, total = n, 0.0
    while last > first and total < top - HARDLY_LESS:
        last -= 1
        total += gains[last]
    return first, last


@compiled
def pearson(estimate, n):
    """Sum of squared residuals of the first n records held, each divided by its variance for phi = 1."""
    code, x, y, theta = estimate.code, estimate.x, estimate.y, estimate.theta
    total = 0.0
    for i in range(n):
        eta = dot(x[i], theta)
        total += (y[i] - mean(code, eta)) ** 2 / max(curvature(code, eta), 1e-12)
    return total


@compiled
def remove(estimate, first, end):
    """Remove the first records held; later ones, up to ``end``, move up. The next estimate is an exact refit."""
    x, y, weight, counts = estimate.x, estimate.y, estimate.weight, estimate.counts
    for i in range(first, end):
        x[i - first], y[i - first], weight[i - first] = x[i], y[i], weight[i]
    weight[end - first : end] = 1.0
    counts[HELD] -= first
    counts[USED] = counts[FITTED] = 0


@compiled
def leave_out(state, first, end):
    """Leave out the first records held, and all that were folded. The dispersion stays as it is."""
    tally = state.tally
    tally[SQUARES] += first * tally[DISPERSION]
    remove(state.estimate, first, end)
    tally[FOLDED] += first
    state.folded[:] = 0.0


@compiled
def _take_over(plan, state, k):
    """Fold what memory k knows: with the prior its estimate is that of the memory."""
    memories, folded = state.memories, state.folded
    m = folded.shape[1]
    H, factor, centre, prior = np.empty((m, m)), np.zeros((m, m)), np.empty(m), np.empty((m, m))
    if not cholesky(memories.P[k], factor):
        return
    invert(factor, H)
    write_prior(plan, state, centre, prior)
    for i in range(m):
        for j in range(m):
            folded[i, j] = H[i, j] - prior[i, j]
        folded[m, i] = dot(H[i], memories.theta[k]) - dot(prior[i], centre)


@compiled
def restart(plan, state, k, end):
    """Start the lasting estimate again after a change that memory or shift k shows; the number of records left out.

    If the change began before the records held, the lasting estimate takes over what the memory knows.
    """
    estimate, memories, tally = state.estimate, state.memories, state.tally
    total = tally[TOTAL]
    memories.before[:] = estimate.theta
    K = plan.lengths.size
    if k <= K:
        longest, (began, first) = plan.lengths[k - 1], since(estimate, memories, memories.theta[k - 1], 0.0)
    else:
        longest, shift = SHIFTS[k - 1 - K], memories.shifts[k - 1 - K, OFFSET]
        began, first = since(estimate, memories, estimate.theta, shift)
    taken = began == 0 and k <= K and state.folded.any()
    began += tally[FOLDED]
    origin = tally[FOLDED] + first
    if taken:
        first, origin = estimate.counts[HELD], total - longest
    leave_out(state, first, end)
    if taken:
        _take_over(plan, state, k - 1)
    mine = memories.tally
    mine[ORIGIN], mine[BEGAN], mine[FOUND] = origin, min(began, origin), total
    mine[CHANGES_FOUND] += 1.0
    start_weights(plan, state)
    forgive(state.misfit)
    return first
