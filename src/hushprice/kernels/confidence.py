"""Prices from confidence bounds: what x = (z, -p z) may be worth when theta is known up to a norm of V^-1.

V = ridge I + sum of x x' over the records of a stage. It is held as a root W of its inverse, V^-1 = W W', which keeps
twice the digits that V^-1 itself would. With u = W'(z, 0) and v = W'(0, z) the squared length of an arm is a quadratic
in its price, |x|^2 = |u - p v|^2 = r2 + q2 (p - vertex)^2, so that three numbers a customer and stage serve all prices.
They are also the covariance of (z.alpha, z.beta) when theta has covariance V^-1: z.beta has variance q2, and z.alpha is
vertex times z.beta plus an independent part of variance r2.
"""

import math

import numpy as np

from hushprice.kernels.glm import best_price, best_profit, outcome, profit
from hushprice.kernels.jit import compiled
from hushprice.kernels.newton import dot
from hushprice.kernels.phases import INDEX, SAMPLE, STAGES
from hushprice.kernels.quote import arm_price
from hushprice.kernels.running import HELD, USED, append, update
from hushprice.kernels.special import normal_quantile
from hushprice.kernels.ucb_price import STACK, length, optimistic_price

# -- the root of V^-1 -------------------------------------------------------------------------------------------


@compiled
def _dot(x, y):
    """x.y as four running sums, which the processor can add at once: for the long rows of W."""
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
def weigh(x, root, work):
    """Add x to V: W becomes W (I - gamma f f') with f = W'x (Potter's form of the rank-one step)."""
    m = x.size
    f = work[:m]
    _project(root, 0, x, f)
    share = 1.0 / (1.0 + _dot(f, f))
    gamma = share / (1.0 + math.sqrt(share))
    for i in range(m):
        row = root[i]
        c = gamma * _dot(row, f)
        for j in range(m):
            row[j] -= c * f[j]


@compiled
def forms(root, z, work):
    """(r2, vertex, q2): x = (z, -p z) has squared length r2 + q2 (p - vertex)^2 in V^-1. ``work`` holds 4 d numbers.

    In this form nothing cancels: at the vertex, where a policy has sold most, the width is small and exact.
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
def sampled_price(code, a, b, alpha, r2, vertex, q2, uniforms, cost, low, high):
    """Thompson sampling: the best price of one draw of (z.alpha, z.beta) ~ N((a, b), alpha^2 covariance)."""
    # a uniform of 0 has no normal quantile
    n0, n1 = normal_quantile(max(uniforms[0], 1e-300)), normal_quantile(max(uniforms[1], 1e-300))
    along = alpha * math.sqrt(q2) * n0
    return best_price(code, a + vertex * along + alpha * math.sqrt(r2) * n1, b + along, cost, low, high)


@compiled
def luckiest_price(code, a, b, alpha, r2, vertex, q2, d, uniforms, cost, low, high):
    """The best price of the most profitable of several points of the confidence set |theta - theta_hat|_V <= alpha.

    The points are uniform in that ellipsoid of dimension 2 d. Of a uniform point of the unit ball, any two coordinates
    have squared length 1 - U^(1/d) and a uniform angle, which is all that (z.alpha, z.beta) needs.
    """
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
def staged_price(code, z, theta, root, alpha, floor, arms, cost, low, high, alive, reward, work):
    """supCB's decision for one customer: (price, stage), stage 0 when nothing is to be learned from the outcome.

    Stage s = 1, 2, ... estimates each arm's revenue r up to its width w = alpha |x|_{V^-1}, from its own records only.
    II: if some w > 2^-s, the arm of the largest. III: if all w <= floor, the arm of the largest r.
    IV: otherwise on to stage s + 1 with the arms whose r is within 2 2^-s of the best.
    The width is convex in the price, so its largest value is at the lowest or the highest arm that is left.
    """
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
        while not alive[first]:  # the best arm is left, so both ends are found
            first += 1
        while not alive[last]:
            last -= 1
    return arm_price(first, arms, low, high), 0  # not reached: the last stage decides


@compiled
def decide(rule, code, z, theta, root, alpha, floor, arms, uniforms, cost, low, high, alive, reward, work, stack):
    """(price, stage) for one customer under one of the rules."""
    if rule == STAGES:
        return staged_price(code, z, theta, root, alpha, floor, arms, cost, low, high, alive, reward, work)
    d = z.size
    r2, vertex, q2 = forms(root[0], z, work)
    a, b = dot(z, theta[0, :d]), dot(z, theta[0, d:])
    if rule == INDEX:
        return optimistic_price(code, a, b, alpha, r2, vertex, q2, cost, low, high, stack), 1
    if rule == SAMPLE:
        return sampled_price(code, a, b, alpha, r2, vertex, q2, uniforms, cost, low, high), 1
    return luckiest_price(code, a, b, alpha, r2, vertex, q2, d, uniforms, cost, low, high), 1


@compiled
def decisions(rule, code, theta, root, alpha, floor, arms, z, uniforms, cost, low, high, prices, stages):
    """:func:`decide` for customers under the same published bounds."""
    alive, reward = np.empty(arms, np.bool_), np.empty(arms)
    work, stack = np.empty(2 * theta.shape[1]), np.empty((STACK, 2))
    for i in range(len(z)):
        prices[i], stages[i] = decide(
            rule, code, z[i], theta, root, alpha, floor, arms, uniforms[i], cost, low, high,
            alive, reward, work, stack,
        )  # fmt: skip


@compiled
def catch_up(code, ridge, s, x, y, start, theta, P, counts, pace, anchor, root, inside, work):
    """Bring the estimate and the root of V^-1 of stage s up to its records."""
    n = counts[s, HELD]
    if counts[s, USED] == n and inside[s] == n:
        return
    rows = x[start[s] : start[s + 1]]
    update(code, ridge, rows, y[start[s] : start[s + 1]], theta[s], P[s], counts[s], pace[s], anchor[s])
    for k in range(inside[s], n):
        weigh(rows[k], root[s], work)
    inside[s] = n


@compiled
def sell_block(
    rule, code, ridge, alpha, floor, arms, cost, low, high, z, uniforms,
    x, y, start, theta, P, counts, pace, anchor, root, inside,
    demand, prices, stages,
):  # fmt: skip
    """Decide, sell, record and re-estimate, one customer after another. The same steps as a live round."""
    alive, reward = np.empty(arms, np.bool_), np.empty(arms)
    work, stack = np.empty(2 * theta.shape[1]), np.empty((STACK, 2))
    for i in range(len(z)):
        for s in range(len(theta)):
            catch_up(code, ridge, s, x, y, start, theta, P, counts, pace, anchor, root, inside, work)
        prices[i], stages[i] = decide(
            rule, code, z[i], theta, root, alpha, floor, arms, uniforms[i], cost, low, high,
            alive, reward, work, stack,
        )  # fmt: skip
        s = stages[i] - 1
        if s >= 0:
            rows = slice(start[s], start[s + 1])
            append(x[rows], y[rows], counts[s], pace[s], z[i], prices[i], outcome(demand, i, prices[i]))
