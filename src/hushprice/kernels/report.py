"""The device's half of a private step: a score, clipped and randomised, into a report.

``spec`` is a :class:`~hushprice.kernels.state.ReportSpec`, which a mechanism of ``hushprice.privacy`` derives.
"""

import math

import numpy as np

from hushprice.kernels.jit import compiled, inlined
from hushprice.kernels.philox import direction, high_product, normals
from hushprice.kernels.score import score
from hushprice.kernels.sgd import CELLS, GRID_REPORT

_ULP, _DROP = 2.0**-53, np.uint64(11)


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

    From each pair the direction whose product with g is not negative, and of these the ``top`` with the largest product
    (the first ones in a tie): chosen[i] is the index 2 i or 2 i + 1, or -1. There are always exactly ``top`` of them,
    regardless of rounding.
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
    """Whether to report -g instead of g: with probability (1 - ratio) / 2, ratio = |g| / C."""
    return float(np.int64(word >> _DROP)) * _ULP < 0.5 * (1.0 - ratio)


@inlined
def pick(chosen, inside, place):
    """Index number ``place``, in rising order, among the chosen directions or among all others."""
    for i in range(chosen.size):
        for sign in range(2):
            if (chosen[i] == 2 * i + sign) == inside:
                if place == 0:
                    return 2 * i + sign
                place -= 1
    return -1


@inlined
def workspace(pairs, n):
    """Working memory for consecutive reports: dots, chosen, a vector and words."""
    return np.empty(pairs), np.empty(pairs, np.int64), np.empty(n), np.empty(n + 3, np.uint64)


@compiled
def privatize(spec, g, words, row, dots, chosen, v, room):
    """The report of g, from random words, written into ``row``; the last four are a :func:`workspace`.

    A g that is not finite counts as 0, and is overwritten.

    DIRECTION_REPORT takes the words (seed, flip, coin, place), the last one only if there is more than one pair.
    GRID_REPORT takes one word per coordinate.
    """
    kind, pairs, top, coin, clip, scale = spec
    for i in range(g.size):  # an invalid g is reported like any other vector
        if not math.isfinite(g[i]):
            g[:] = 0.0
    largest, root = size(g)
    norm = largest * root
    if kind == GRID_REPORT:
        normals(words, v)
        for i in range(g.size):
            value = g[i] if norm <= clip else (g[i] / largest) * (clip / root)
            row[i] = math.floor(value / scale + CELLS * v[i] + 0.5)
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


@compiled
def privatize_rows(spec, g, words, rows):
    """Reports of many vectors."""
    dots, chosen, v, room = workspace(spec.pairs, g.shape[1])
    for i in range(len(g)):
        privatize(spec, g[i], words[i], rows[i], dots, chosen, v, room)


@compiled
def report_rows(code, theta, z, price, y, shift, factor, spec, words, rows):
    """The device's reports of customers whose quotes used the same theta."""
    g = np.empty(theta.size)
    dots, chosen, v, room = workspace(spec.pairs, theta.size)
    for i in range(len(z)):
        score(code, theta, z[i], price[i], y[i], shift, factor, g)
        privatize(spec, g, words[i], rows[i], dots, chosen, v, room)


@compiled
def agreements(g, rows, pairs, top, agrees):
    """Whether each report names one of its seed's directions that agree best with g."""
    dots, chosen, v, room = workspace(pairs, g.size)
    for i in range(len(rows)):
        sides(g, np.uint64(rows[i, 0]), pairs, top, dots, chosen, v, room)
        agrees[i] = chosen[rows[i, 1] >> 1] == rows[i, 1]
