"""The two halves of a private step: a clipped gradient into a report, and a report into a step of SGD.

Kinds of report, each a row of 64-bit integers:

    DIRECTIONS  (seed, index): one of the 2 J directions +-v_0 .. +-v_(J-1) of a public seed
    GRID        one integer a coordinate: the value on a grid, noise included
"""

import math

import numpy as np

from hushprice.kernels.glm import draw, mean
from hushprice.kernels.jit import compiled, inlined
from hushprice.kernels.philox import direction, high_product, normals

DIRECTIONS, GRID = 0, 1
CELLS = 64.0  # grid cells in one standard deviation of the noise
_LARGEST = 1e100  # a residual beyond it is clipped before anything overflows
_ULP, _DROP, _ONE = 2.0**-53, np.uint64(11), np.uint64(1)


@compiled
def gradient(code, theta, z, price, y, shift, factor, g):
    """The score (y - psi'(a - b p)) (z, -f (p - c) z), c = shift and f = factor: the paper's for c = 0 and f = 1."""
    d = z.size
    a, b = z[0] * theta[0], z[0] * theta[d]
    for j in range(1, d):
        a += z[j] * theta[j]
        b += z[j] * theta[d + j]
    residual = min(max(y - mean(code, a - b * price), -_LARGEST), _LARGEST)
    for j in range(d):
        g[j] = residual * z[j]
        g[d + j] = -factor * (price - shift) * g[j]


@inlined
def size(g):
    """(L, R) with L = max |g_i| and |g| = L R, without overflow."""
    largest = 0.0
    for i in range(g.size):
        largest = max(largest, abs(g[i]))
    if largest == 0.0:
        return 0.0, 0.0
    total = 0.0
    for i in range(g.size):
        total += (g[i] / largest) * (g[i] / largest)
    return largest, math.sqrt(total)


@compiled
def sides(g, seed, pairs, top, dots, chosen, v, room):
    """Which of a seed's directions agree best with g.

    Of each pair the one whose product with g is not negative, and of these the ``top`` with the largest product (the
    first ones where equal): chosen[i] is its index 2 i or 2 i + 1, or -1. There are always exactly ``top`` of them,
    however the products are rounded.
    """
    largest, _ = size(g)
    for i in range(pairs):
        direction(seed, i, v, room)
        dot = 0.0
        if largest > 0.0:
            for k in range(g.size):
                dot += (g[k] / largest) * v[k]
        dots[i] = abs(dot)
        chosen[i] = 2 * i + (1 if dot < 0.0 else 0)
    for i in range(pairs):
        better = 0
        for j in range(pairs):
            better += dots[j] > dots[i] or (dots[j] == dots[i] and j < i)
        if better >= top:
            chosen[i] = -1


@inlined
def flipped(ratio, word):
    """Whether -g stands for g: with probability (1 - ratio) / 2, ratio = |g| / C."""
    return float(np.int64(word >> _DROP)) * _ULP < 0.5 * (1.0 - ratio)


@inlined
def pick(chosen, inside, place):
    """Index number ``place`` of the chosen ones, or of all the others, in rising order."""
    for i in range(chosen.size):
        for sign in range(2):
            if (chosen[i] == 2 * i + sign) == inside:
                if place == 0:
                    return 2 * i + sign
                place -= 1
    return -1


@inlined
def workspace(pairs, n):
    """Room for one report after another: dots, chosen, a vector and words."""
    return np.empty(pairs), np.empty(pairs, np.int64), np.empty(n), np.empty(n + 3, np.uint64)


@compiled
def privatize(kind, pairs, top, coin, clip, step, g, words, row, dots, chosen, v, room):
    """The report of g, from random words, written into ``row``; the last four are a :func:`workspace`.

    DIRECTIONS takes the words (seed, flip, coin, place), the last one only if there is more than one pair. GRID takes
    one word a coordinate.
    """
    largest, root = size(g)
    norm = largest * root
    if kind == GRID:
        normals(words, v)
        for i in range(g.size):
            value = g[i] if norm <= clip else (g[i] / largest) * (clip / root)
            row[i] = math.floor(value / step + CELLS * v[i] + 0.5)
        return
    seed = words[0]
    sides(g, seed, pairs, top, dots, chosen, v, room)
    inside = words[2] < coin
    place = np.int64(0)
    if pairs > 1:
        place = np.int64(high_product(words[3], np.uint64(top if inside else 2 * pairs - top)))
    index = pick(chosen, inside, place)
    if flipped(min(norm / clip, 1.0), words[1]):
        index ^= 1
    row[0], row[1] = np.int64(seed), index


@inlined
def stretch(index, scale, v, w):
    """w = B v for an even index, -B v for an odd one."""
    signed = -scale if index & 1 else scale
    for i in range(w.size):
        w[i] = v[i] * signed


@compiled
def decode(kind, scale, row, w, room):
    """The vector a report stands for. ``scale`` is the length B of a direction or the step of the grid."""
    if kind == GRID:
        for i in range(w.size):
            w[i] = scale * row[i]
        return
    direction(np.uint64(row[0]), row[1] >> 1, w, room)
    stretch(row[1], scale, w, w)


@compiled
def move(theta, w, eta, shift, factor, centre, radius):
    """theta = Pi_Theta(theta + eta w'), Theta the ball of that centre and radius.

    w = (w_1, w_2) is a score at shift c and factor f, so that in theta's coordinates w' = (w_1 + c f w_2, f w_2).
    """
    d = theta.size // 2
    for j in range(d):
        slope = factor * w[d + j]
        theta[j] += eta * (w[j] + shift * slope)
        theta[d + j] += eta * slope
    total = 0.0
    for i in range(theta.size):
        total += (theta[i] - centre[i]) * (theta[i] - centre[i])
    if total > radius * radius:
        shrink = radius / math.sqrt(total)
        for i in range(theta.size):
            theta[i] = centre[i] + shrink * (theta[i] - centre[i])


@compiled
def privatize_rows(kind, pairs, top, coin, clip, step, g, words, rows):
    """Reports of many vectors."""
    dots, chosen, v, room = workspace(pairs, g.shape[1])
    for i in range(len(g)):
        privatize(kind, pairs, top, coin, clip, step, g[i], words[i], rows[i], dots, chosen, v, room)


@compiled
def decode_rows(kind, scale, rows, w):
    """The vectors of many reports."""
    room = np.empty(w.shape[1] + 3, np.uint64)
    for i in range(len(rows)):
        decode(kind, scale, rows[i], w[i], room)


@compiled
def report_rows(code, theta, z, price, y, shift, factor, kind, pairs, top, coin, clip, step, words, rows):
    """The device's reports of customers who were quoted under the same theta."""
    g = np.empty(theta.size)
    dots, chosen, v, room = workspace(pairs, theta.size)
    for i in range(len(z)):
        gradient(code, theta, z[i], price[i], y[i], shift, factor, g)
        privatize(kind, pairs, top, coin, clip, step, g, words[i], rows[i], dots, chosen, v, room)


@compiled
def absorb_rows(kind, scale, rows, t, zeta, shift, factor, theta, centre, radius):
    """The server's steps 1 / (zeta t) over reports, the first of them number t + 1."""
    w, room = np.empty(theta.size), np.empty(theta.size + 3, np.uint64)
    for i in range(len(rows)):
        decode(kind, scale, rows[i], w, room)
        move(theta, w, 1.0 / (zeta * (t + 1.0 + i)), shift, factor, centre, radius)


@compiled
def plain_pass(code, z, price, y, before, zeta, shift, factor, theta, centre, radius):
    """One pass of plain SGD over public records, step k of size 1 / (zeta (before + k))."""
    g = np.empty(theta.size)
    for k in range(len(z)):
        gradient(code, theta, z[k], price[k], y[k], shift, factor, g)
        move(theta, g, 1.0 / (zeta * (before + k + 1.0)), shift, factor, centre, radius)


@compiled
def experiments(
    code, low, high, zeta, shift, factor, centre, radius, kind, pairs, top, coin, clip, step, scale, z, uniforms,
    public, words, true_code, noise, true_a, true_b, demand, theta, t, prices,
):  # fmt: skip
    """Price experiments over a block of customers: quote, sell, and for the private ones report and absorb.

    The same steps as a live round, in the same order; gives the number of reports absorbed.
    """
    g, w = np.empty(theta.size), np.empty(theta.size)
    row = np.empty(max(2, theta.size), np.int64)
    dots, chosen, v, room = workspace(pairs, theta.size)
    used = 0
    for i in range(len(z)):
        prices[i] = low + (high - low) * uniforms[i]
        if public[i]:
            continue
        y = draw(true_code, noise, mean(true_code, true_a[i] - true_b[i] * prices[i]), demand[i])
        gradient(code, theta, z[i], prices[i], y, shift, factor, g)
        privatize(kind, pairs, top, coin, clip, step, g, words[used], row, dots, chosen, v, room)
        if kind == DIRECTIONS and pairs == 1:  # the direction is at hand
            stretch(row[1], scale, v, w)
        else:
            decode(kind, scale, row, w, room)
        used += 1
        move(theta, w, 1.0 / (zeta * (t + used)), shift, factor, centre, radius)
    return used


@compiled
def agreements(g, rows, pairs, top, agrees):
    """Whether each report names one of its seed's directions that agree best with g."""
    dots, chosen, v, room = workspace(pairs, g.size)
    for i in range(len(rows)):
        sides(g, np.uint64(rows[i, 0]), pairs, top, dots, chosen, v, room)
        agrees[i] = chosen[rows[i, 1] >> 1] == rows[i, 1]
