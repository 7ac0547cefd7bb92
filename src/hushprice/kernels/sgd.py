"""The server's half of a private step: reports into steps of projected SGD.

Kinds of report, each a row of 64-bit integers:

    DIRECTION_REPORT   (seed, index): one of the 2 J directions +-v_0 .. +-v_(J-1) of a public seed
    GRID_REPORT        one integer per coordinate: the value on a grid, noise included

``rate`` is a :class:`~hushprice.kernels.state.SGDRate`.
"""

import math

import numpy as np

from hushprice.kernels.jit import compiled, inlined
from hushprice.kernels.philox import direction

DIRECTION_REPORT, GRID_REPORT = 0, 1
CELLS = 64.0  # grid cells per standard deviation of the noise


@inlined
def stretch(index, scale, v, w):
    """w = B v for an even index, -B v for an odd one."""
    signed = -scale if index & 1 else scale
    for i in range(w.size):
        w[i] = v[i] * signed


@compiled
def decode(kind, scale, row, w, room):
    """Decode a report into the vector w. ``scale`` is the length B of a direction or the step of the grid."""
    if kind == GRID_REPORT:
        for i in range(w.size):
            w[i] = scale * row[i]
        return
    direction(np.uint64(row[0]), row[1] >> 1, w, room)
    stretch(row[1], scale, w, w)


@compiled
def decode_rows(kind, scale, rows, w):
    """The vectors of many reports."""
    room = np.empty(w.shape[1] + 3, np.uint64)
    for i in range(len(rows)):
        decode(kind, scale, rows[i], w[i], room)


ENTRY_UNITS = 2.0**32  # an entry of a direction is summed as a multiple of 1 / ENTRY_UNITS


@compiled
def sum_rows(kind, rows, sums):
    """Add many reports to whole numbers, whose order does not matter; :func:`mean_of_sums` decodes them."""
    w, room = np.empty(sums.size), np.empty(sums.size + 3, np.uint64)
    for i in range(len(rows)):
        row = rows[i]
        if kind == GRID_REPORT:
            for j in range(sums.size):
                sums[j] += row[j]
            continue
        direction(np.uint64(row[0]), row[1] >> 1, w, room)
        for j in range(sums.size):
            k = np.int64(math.floor(w[j] * ENTRY_UNITS + 0.5))
            sums[j] += -k if row[1] & 1 else k


@compiled
def mean_of_sums(kind, scale, sums, count, w):
    """The mean of decoded reports from their sums."""
    unit = scale if kind == GRID_REPORT else scale / ENTRY_UNITS
    for j in range(w.size):
        w[j] = unit * (sums[j] / count)


@compiled
def move(theta, w, eta, rate):
    """theta = Pi_Theta(theta + eta w'), with Theta the ball of the rate's centre and radius.

    w = (w_1, w_2) is a score at shift c and factor f, so that in theta's coordinates w' = (w_1 + c f w_2, f w_2).
    """
    _, shift, factor, centre, radius = rate
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
def absorb_rows(kind, scale, rows, t, rate, theta):
    """The server's steps over reports number t + 1, t + 2, ...: step t has size 1 / (zeta t)."""
    w, room = np.empty(theta.size), np.empty(theta.size + 3, np.uint64)
    for i in range(len(rows)):
        decode(kind, scale, rows[i], w, room)
        move(theta, w, 1.0 / (rate.zeta * (t + 1.0 + i)), rate)
