"""Learning of look-ahead pricing: estimate, prior, gains and memories, brought up to the records, and the loop."""

import math

import numpy as np

from hushprice.kernels.glm import binary, information, outcome, residual
from hushprice.kernels.jit import borrowed, compiled, inlined
from hushprice.kernels.look_ahead.memories import (
    IN_USE,
    ORIGIN,
    begin,
    choose,
    follow_prior,
    forget_by,
    pearson,
    remove,
    restart,
    start_weights,
    weigh,
)
from hushprice.kernels.look_ahead.misfit import price_of, watch
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
    nearest_to_constant,
    penalise,
    survey,
    write_prior,
)
from hushprice.kernels.newton import dot
from hushprice.kernels.quote import greedy_price, nearest_rung, quote_on_terms, rungs, window
from hushprice.kernels.running import HELD, USED, assimilated, note_price, refit, store
from hushprice.kernels.state import EXPLORE, AheadRule

KAPPA = 1.0  # N = KAPPA t if the horizon is not known
GAINS_PACE = 3.0  # the newest of t customers has weight GAINS_PACE / (t + GAINS_PACE) in G
REVISION_GROWTH = 1.3  # of the records between two revisions of the prior
LARGEST_GAIN = 1e200  # a customer with a larger one is left out of G
MOST_RECORDS, MOST_HELD_NUMBERS = 65_536, 2**24  # held, before they are folded into a quadratic


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
    tally[DISPERSION] = max((tally[SQUARES] + pearson(estimate, estimate.counts[HELD])) / freedom, 1e-12)


@compiled
def _revise(plan, state):
    """Revise dispersion and prior, refit, and set when this happens next."""
    _learn_dispersion(state)
    if given(plan):
        learn_belief(plan, state)
    elif state.tally[TOTAL] >= TRIALS:
        learn_variances(plan, state)
    _refit(plan, state)
    state.memories.level[:] = nearest_to_constant(state, 1.0)
    total, origin = state.tally[TOTAL], state.memories.tally[ORIGIN]
    state.tally[REVISION] = origin + math.floor(REVISION_GROWTH * (total - origin)) + 1.0


@compiled
def _refit(plan, state):
    penalise(plan, state)
    state.estimate.counts[USED] = 0  # the estimate moves because the prior does: that is no drift
    refit(state.estimate)
    if plan.lengths.size:
        m = state.estimate.theta.size
        centre, precision = np.empty(m), np.empty((m, m))
        write_prior(plan, state, centre, precision)
        follow_prior(state.memories, precision)


@compiled
def _fold(plan, state, end):
    """Replace the records held by their quadratic approximation at the estimate; those up to ``end`` move up."""
    estimate, folded = state.estimate, state.folded
    code, _, x, y, weight, theta, _, counts, _, _ = estimate
    m, n = theta.size, counts[HELD]
    state.tally[SQUARES] += pearson(estimate, n) if not binary(code) else 0.0
    for r in range(n):
        row, eta = x[r], dot(x[r], theta)
        w = weight[r] * information(code, eta, y[r])
        pull = w * eta + weight[r] * residual(code, eta, y[r])
        for i in range(m):
            folded[m, i] += pull * row[i]
            c = w * row[i]
            for j in range(i + 1):
                folded[i, j] += c * row[j]
    for i in range(m):
        for j in range(i):
            folded[j, i] = folded[i, j]
    state.tally[FOLDED] += n
    remove(estimate, n, end)
    penalise(plan, state)


@compiled
def most_records(m):
    """How many records of m numbers are held."""
    return min(MOST_RECORDS, MOST_HELD_NUMBERS // m)


@compiled
def catch_up(plan, state):
    """Bring the estimates, the prior and G up to the records, one record at a time."""
    estimate, tally = state.estimate, state.tally
    end, i = estimate.counts[HELD], int(tally[TOTAL] - tally[FOLDED])
    while i < end:
        estimate.counts[HELD] = i + 1
        gone = _learn(plan, state, i, end)
        i, end = i + 1 - gone, end - gone
    estimate.counts[HELD] = end


@compiled
def _learn(plan, state, i, end):
    """Learn record i, the last of those held; the number of records that are no longer held."""
    estimate, tally = state.estimate, state.tally
    code, _, x, y, weight, theta, P, counts, pace, anchor = estimate
    begin(plan, state)
    eta, spread = weigh(plan, state, x[i], y[i])
    price = price_of(x[i])
    if price == price:
        note_price(pace, price)
    watch(state, x[i], y[i], price, eta, spread)
    gone = 0
    fresh = survey(state, x[i], y[i])
    if fresh:
        _refit(plan, state)
    elif not assimilated(code, x, y, weight, theta, P, counts, pace, anchor):
        refit(estimate)
    changed = choose(plan, state)
    if changed:
        gone = restart(plan, state, changed, end)
        _refit(plan, state)
    full = counts[HELD] >= most_records(theta.size)
    if fresh or full or changed or tally[TOTAL] >= tally[REVISION]:
        _revise(plan, state)
    if gone <= i:
        _count_gains(plan, state, x[i - gone])
    if counts[HELD] >= most_records(theta.size):
        gone += counts[HELD]
        _fold(plan, state, end - gone + counts[HELD])
    return gone


@compiled
def in_use(state):
    """(theta, P) of the estimate that prices follow from."""
    k = int(state.memories.tally[IN_USE])
    if k == 0:
        return state.estimate.theta, state.estimate.P
    return state.memories.theta[k - 1], state.memories.P[k - 1]


@inlined
def _remembered(plan, state, t):
    """How many of the first t outcomes the estimate in use remembers."""
    tally = state.memories.tally
    k, remembered = int(tally[IN_USE]), max(t - tally[ORIGIN], 1.0)
    return remembered if k == 0 else min(remembered, plan.lengths[k - 1])


@compiled
def _count_gains(plan, state, x):
    """Take the newest customer into G."""
    estimate, G = state.estimate, state.gains
    theta, P = in_use(state)
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
    share = GAINS_PACE / (_remembered(plan, state, state.tally[TOTAL]) + GAINS_PACE)
    keep = 1.0 - share
    for i in range(d):
        for j in range(d):
            product = share * (x[i] * x[j])
            G[0, i, j] = keep * G[0, i, j] + g00 * product
            G[1, i, j] = keep * G[1, i, j] + g01 * product
            G[2, i, j] = keep * G[2, i, j] + g11 * product


@compiled
def forget(plan, state, half_life):
    """Let an outcome that is ``half_life`` outcomes old count half, in every estimate, once.

    Folded outcomes count as if they were as old as the oldest that is held.
    """
    catch_up(plan, state)
    estimate, tally, memories = state.estimate, state.tally, state.memories
    n, weight, own = estimate.counts[HELD], estimate.weight, memories.tally
    oldest = 0.5 ** (n / half_life)
    effective = oldest * max(tally[TOTAL] - own[ORIGIN] - weight[:n].sum(), 0.0)
    for i in range(n):
        weight[i] *= 0.5 ** ((n - 1 - i) / half_life)
        effective += weight[i]
    state.folded[:] = oldest * state.folded
    own[ORIGIN] = tally[TOTAL] - effective
    for k in range(plan.lengths.size):
        forget_by(memories, k, 1.0 / (1.0 + plan.lengths[k] * math.log(2.0) / half_life))
    start_weights(plan, state)
    _revise(plan, state)


@inlined
def later(plan, state, t):
    """N in round t: how many later customers an outcome informs, less those who would learn it anyway.

    It is in proportion to the outcomes that the estimate in use remembers, and for one that forgets no more than those.
    """
    total = state.tally[TOTAL]
    share = _remembered(plan, state, total) / total if total > 0.0 else 1.0
    remembered = t * min(share, 1.0)
    if plan.horizon < np.inf:
        known = max(2.0 * remembered * (1.0 - t / plan.horizon), 0.0)
        return known if state.memories.tally[IN_USE] == 0.0 else min(known, remembered)
    return KAPPA * remembered


@compiled
def rule_of(plan, state, t):
    """The rule of round t, up to date."""
    catch_up(plan, state)
    tally = state.tally
    theta, P = in_use(state)
    d = state.moments.shape[0]
    seen = np.empty(d)
    for j in range(d):
        seen[j] = 1.0 if state.features[COUNT, j] > 0.0 or given(plan) else 0.0
    own = GAINS_PACE / (_remembered(plan, state, tally[TOTAL] + 1.0) + GAINS_PACE)
    return AheadRule(
        state.estimate.code, theta, P, state.gains, seen, tally[DISPERSION], later(plan, state, t), own,
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
    _sell(borrowed(plan), borrowed(state), t, borrowed(z), uniforms, borrowed(terms), demand, prices, greedy)


@compiled
def _sell(plan, state, t, z, uniforms, terms, demand, prices, greedy):
    cost, low, high, ladder, segment, step, last = terms
    code, _, x, y, _, _, _, counts, _, _ = state.estimate
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
        store(x, y, counts, z[i], p, outcome(demand, i, p))
