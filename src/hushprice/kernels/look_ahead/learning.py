"""Learning of look-ahead pricing: estimate, prior, gains and memories, brought up to the records, and the loop."""

import math

import numpy as np

from hushprice.kernels.glm import binary, curvature, information, mean, outcome, residual
from hushprice.kernels.jit import compiled, inlined
from hushprice.kernels.look_ahead.prices import draw_price, mean_gains, span
from hushprice.kernels.look_ahead.prior import (
    COUNT,
    DISPERSION,
    FOLDED,
    PSEUDO,
    REVISION,
    SQUARES,
    TOTAL,
    TRIALS,
    given,
    learn_belief,
    learn_variances,
    penalise,
    survey,
)
from hushprice.kernels.newton import dot
from hushprice.kernels.quote import greedy_price, nearest_rung, quote_on_terms, rungs, window
from hushprice.kernels.running import HELD, USED, append, assimilated, refit
from hushprice.kernels.state import EXPLORE, AheadRule

KAPPA = 1.0  # N = KAPPA t if the horizon is not known
GAINS_PACE = 3.0  # the newest of t customers has weight GAINS_PACE / (t + GAINS_PACE) in G
REVISION_GROWTH = 1.3  # of the records between two revisions of the prior
LARGEST_GAIN = 1e200  # a customer with a larger one is left out of G
MOST_RECORDS, MOST_HELD_NUMBERS = 65_536, 2**24  # held, before they are folded into a quadratic


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
    if given(plan):
        learn_belief(plan, state)
    elif state.tally[TOTAL] >= TRIALS:
        learn_variances(plan, state)
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
        fresh = survey(state, x[i], y[i]) or fresh
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
        seen[j] = 1.0 if state.features[COUNT, j] > 0.0 or given(plan) else 0.0
    own = GAINS_PACE / (tally[TOTAL] + 1.0 + GAINS_PACE)
    return AheadRule(
        estimate.code, estimate.theta, estimate.P, state.gains, seen, tally[DISPERSION], later(plan, t), own,
        plan.spread, plan.low, plan.high,
    )  # fmt: skip


@compiled
def warming(plan, state):
    """Whether prices are uniform: until there is a record, or a given prior."""
    return not given(plan) and state.tally[TOTAL] + state.estimate.counts[HELD] == 0.0


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
            p = draw_price(centre, reach, uniforms[i], lowest, highest)
            if ladder.size:
                first, top = rungs(ladder, lowest, highest)
                p = nearest_rung(p, ladder, first, top)
        greedy[i] = greedy_price(code, *known, cost[i], lowest, highest, ladder)
        prices[i] = last[s] = p
        append(x, y, counts, pace, z[i], p, outcome(demand, i, p))
