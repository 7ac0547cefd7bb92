"""Prices from confidence bounds: the possible revenue of x = (z, -p z) for theta within a norm of V^-1.

V = ridge I + sum of x x' over the records of a stage. It is stored as a root W of its inverse, V^-1 = W W', which has
twice the digits of V^-1 itself. With u = W'(z, 0) and v = W'(0, z) the squared length of an arm is quadratic in its
price, |x|^2 = |u - p v|^2 = r2 + q2 (p - vertex)^2, so that three numbers per customer and stage serve all prices. They
are also the covariance of (z.alpha, z.beta) when theta has covariance V^-1: z.beta has variance q2, and z.alpha is
vertex times z.beta plus an independent part of variance r2.

``rule`` is a :class:`~hushprice.kernels.state.BoundRule`, ``stages`` a :class:`~hushprice.kernels.state.StagesState`.
"""

import math

import numpy as np

from hushprice.kernels.glm import best_price, best_profit, outcome, profit, utility
from hushprice.kernels.jit import compiled, inlined
from hushprice.kernels.newton import dot
from hushprice.kernels.quote import arm_price, best_known
from hushprice.kernels.running import HELD, USED, append, assimilated, refit
from hushprice.kernels.special import normal_quantile
from hushprice.kernels.state import INDEX, SAMPLE, STAGES, Belief, EstimatorState, Scratch
from hushprice.kernels.ucb_price import STACK, length, optimistic_price

# -- the root of V^-1 -------------------------------------------------------------------------------------------


@compiled
def _dot(x, y):
    """x.y as four running sums, which the processor adds in parallel: for the long rows of W."""
    n = x.size
    s0 = s1 = s2 = s3 = 0.0
    full = n - n % 4
    for j in range(0, full, 4):
        s0 += x[j] * y[j]
        s1 += x[j + 1] * y[j + 1]
        s2 += x[j + 2] * y[j + 2]
        s3 += x[j + 3] * y[j + 3]
    for j in range(full, n):
        s0 += x[j] * y[j]
    return (s0 + s1) + (s2 + s3)


@compiled
def _project(root, first, z, out):
    """out = sum_i z_i root[first + i]."""
    for j in range(out.size):
        out[j] = 0.0
    for i in range(z.size):
        c, row = z[i], root[first + i]
        for j in range(out.size):
            out[j] += c * row[j]


@compiled
def add_to_design(x, weight, root, work):
    """Add weight x x' to V: W becomes W (I - gamma f f') with f = W'x (Potter's form of the rank-one step)."""
    m = x.size
    f = work[:m]
    _project(root, 0, x, f)
    share = 1.0 / (1.0 + weight * _dot(f, f))
    gamma = weight * share / (1.0 + math.sqrt(share))
    for i in range(m):
        row = root[i]
        c = gamma * _dot(row, f)
        for j in range(m):
            row[j] -= c * f[j]


@compiled
def forms(root, z, work):
    """(r2, vertex, q2): x = (z, -p z) has squared length r2 + q2 (p - vertex)^2 in V^-1. ``work`` holds 4 d numbers.

    This form has no cancellation: at the vertex, near most past prices, the width is small and accurate.
    """
    d = z.size
    u, v = work[: 2 * d], work[2 * d : 4 * d]
    _project(root, 0, z, u)
    _project(root, d, z, v)
    q2 = _dot(v, v)
    vertex = _dot(u, v) / q2 if q2 > 0.0 else 0.0
    for j in range(2 * d):
        u[j] -= vertex * v[j]
    return _dot(u, u), vertex, q2


# -- the rules ------------------------------------------------------------------------------------------------


@compiled
def sampled_price(code, belief, uniforms, cost, low, high):
    """Thompson sampling: the best price of one draw of (z.alpha, z.beta) ~ N((a, b), alpha^2 covariance)."""
    a, b, alpha, r2, vertex, q2 = belief
    # a uniform of 0 has no normal quantile
    n0, n1 = normal_quantile(max(uniforms[0], 1e-300)), normal_quantile(max(uniforms[1], 1e-300))
    along = alpha * math.sqrt(q2) * n0
    return best_price(code, a + vertex * along + alpha * math.sqrt(r2) * n1, b + along, cost, low, high)


@compiled
def luckiest_price(code, belief, d, uniforms, cost, low, high):
    """The best price of the most profitable of several points of the confidence set |theta - theta_hat|_V <= alpha.

    The points are uniform in that ellipsoid of dimension 2 d. Of a uniform point of the unit ball, any two coordinates
    have squared length 1 - U^(1/d) and a uniform angle, which is all that (z.alpha, z.beta) needs.
    """
    a, b, alpha, r2, vertex, q2 = belief
    best, best_a, best_b = -np.inf, a, b
    for k in range(uniforms.size // 2):
        radius = alpha * math.sqrt(max(1.0 - uniforms[2 * k] ** (1.0 / d), 0.0))
        angle = 2.0 * math.pi * uniforms[2 * k + 1]
        along = radius * math.cos(angle) * math.sqrt(q2)
        ak, bk = a + vertex * along + radius * math.sin(angle) * math.sqrt(r2), b + along
        worth = best_profit(code, ak, bk, cost, low, high)
        if worth > best:
            best, best_a, best_b = worth, ak, bk
    return best_price(code, best_a, best_b, cost, low, high)


@compiled
def staged_price(rule, z, cost, low, high, room):
    """supCB's decision for one customer: (price, stage), with stage 0 if the outcome is not recorded.

    Stage s = 1, 2, ... estimates each arm's revenue r up to its width w = alpha |x|_{V^-1}, from its own records only.
    II: if some w > 2^-s, the arm of the largest. III: if all w <= floor, the arm of the largest r.
    IV: otherwise on to stage s + 1 with the arms whose r is within 2 2^-s of the best.
    The width is convex in the price, so its largest value is at the lowest or highest remaining arm.
    """
    _, code, theta, root, alpha, floor, arms = rule
    alive, reward, work, _ = room
    S = len(theta)
    first, last = 0, arms - 1
    for k in range(arms):
        alive[k] = True
    scale = 1.0
    for s in range(S):
        scale *= 0.5
        r2, vertex, q2 = forms(root[s], z, work)
        at_first = alpha * length(r2, vertex, q2, arm_price(first, arms, low, high))
        at_last = alpha * length(r2, vertex, q2, arm_price(last, arms, low, high))
        widest = max(at_first, at_last)
        if widest > scale:
            return arm_price(first if at_first >= at_last else last, arms, low, high), s + 1
        d = z.size
        a, b = dot(z, theta[s, :d]), dot(z, theta[s, d:])
        best, top = -np.inf, first
        for k in range(first, last + 1):
            if alive[k]:
                reward[k] = profit(code, a, b, arm_price(k, arms, low, high), cost)
                if reward[k] > best:
                    best, top = reward[k], k
        if widest <= floor or s == S - 1:
            return arm_price(top, arms, low, high), 0
        for k in range(first, last + 1):
            alive[k] = k == top or (alive[k] and reward[k] >= best - 2.0 * scale)
        while not alive[first]:  # terminates: the best arm is alive
            first += 1
        while not alive[last]:
            last -= 1
    return arm_price(first, arms, low, high), 0  # not reached: the last stage decides


@compiled
def scratch(rule):
    """Working memory for consecutive decisions."""
    alive, reward = np.empty(rule.arms, np.bool_), np.empty(rule.arms)
    return Scratch(alive, reward, np.empty(2 * rule.theta.shape[1]), np.empty((STACK, 2)))


@compiled
def decide(rule, z, uniforms, cost, low, high, room):
    """(price, stage) for one customer in one of the phases; ``room`` is a :func:`scratch`."""
    if rule.phase == STAGES:
        return staged_price(rule, z, cost, low, high, room)
    d = z.size
    r2, vertex, q2 = forms(rule.root[0], z, room.work)
    theta = rule.theta[0]
    belief = Belief(dot(z, theta[:d]), dot(z, theta[d:]), rule.alpha, r2, vertex, q2)
    if rule.phase == INDEX:
        return optimistic_price(rule.code, belief, cost, low, high, room.stack), 1
    if rule.phase == SAMPLE:
        return sampled_price(rule.code, belief, uniforms, cost, low, high), 1
    return luckiest_price(rule.code, belief, d, uniforms, cost, low, high), 1


@compiled
def decisions(rule, z, uniforms, cost, low, high, prices, numbers):
    """:func:`decide` for customers under the same published bounds: their prices, and the numbers of their stages."""
    room = scratch(rule)
    for i in range(len(z)):
        prices[i], numbers[i] = decide(rule, z[i], uniforms[i], cost, low, high, room)


@compiled
def stage(stages, s):
    """The state of one stage, for the functions of :mod:`hushprice.kernels.running`."""
    rows = slice(stages.start[s], stages.start[s + 1])
    return EstimatorState(
        stages.code, stages.penalty, stages.x[rows], stages.y[rows], stages.weight[rows], stages.theta[s], stages.P[s],
        stages.counts[s], stages.pace[s], stages.anchor[s],
    )  # fmt: skip


@inlined
def behind(counts, inside, s):
    """Whether the estimate or the root of V^-1 of stage s lacks a record."""
    return counts[s, USED] < counts[s, HELD] or inside[s] < counts[s, HELD]


@compiled
def catch_up(stages, s, work):
    """Update the estimate and the root of V^-1 of stage s to all its records."""
    counts, inside = stages.counts, stages.inside
    if not behind(counts, inside, s):
        return
    n, root, rows = counts[s, HELD], stages.root[s], slice(stages.start[s], stages.start[s + 1])
    x, weight = stages.x[rows], stages.weight[rows]
    if not assimilated(
        stages.code, x, stages.y[rows], weight, stages.theta[s], stages.P[s], counts[s], stages.pace[s],
        stages.anchor[s],
    ):  # fmt: skip
        refit(stage(stages, s))
    for k in range(inside[s], n):
        add_to_design(x[k], weight[k], root, work)
    inside[s] = n


@compiled
def sell_block(rule, z, uniforms, cost, low, high, stages, demand, sales):
    """Decide, sell, record and re-estimate, one customer at a time, by the steps of a live round.

    ``rule`` shares the arrays theta and root with ``stages``; they change from customer to customer. ``sales`` is a
    :class:`~hushprice.kernels.state.BoundSales`.
    """
    prices, numbers, greedy = sales
    room, S, busiest = scratch(rule), len(rule.theta), int(np.argmax(stages.counts[:, HELD]))
    a, b = np.empty(1), np.empty(1)
    work, x, y, start = room.work, stages.x, stages.y, stages.start
    counts, pace, inside = stages.counts, stages.pace, stages.inside
    for i in range(len(z)):
        for s in range(S):
            if behind(counts, inside, s):  # asked here too: a call costs more than the question
                catch_up(stages, s, work)
        utility(z[i : i + 1], rule.theta[busiest], a, b)
        greedy[i] = best_known(rule.code, a[0], b[0], cost, low, high)
        prices[i], numbers[i] = decide(rule, z[i], uniforms[i], cost, low, high, room)
        s = numbers[i] - 1
        if s >= 0:
            rows = slice(start[s], start[s + 1])
            append(x[rows], y[rows], counts[s], pace[s], z[i], prices[i], outcome(demand, i, prices[i]))
            if counts[s, HELD] > counts[busiest, HELD] or (counts[s, HELD] == counts[busiest, HELD] and s < busiest):
                busiest = s
