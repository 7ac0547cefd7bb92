"""Both halves of private price experiments over a block of simulated customers."""

import numpy as np

from hushprice.kernels.glm import draw, mean
from hushprice.kernels.jit import compiled
from hushprice.kernels.report import privatize, workspace
from hushprice.kernels.score import score
from hushprice.kernels.sgd import DIRECTIONS, decode, move, stretch


@compiled
def experiments(code, rate, spec, scale, z, public, words, true_code, noise, true_a, true_b, demand, theta, t, prices):
    """Sell at the given prices; of each private customer make the report and absorb it as number t + 1, t + 2, ...

    The same steps as a live round, in the same order.
    """
    zeta, shift, factor, centre, radius = rate
    kind, pairs = spec[0], spec[1]
    g, w = np.empty(theta.size), np.empty(theta.size)
    row = np.empty(max(2, theta.size), np.int64)
    dots, chosen, v, room = workspace(pairs, theta.size)
    used = 0
    for i in range(len(z)):
        if public[i]:
            continue
        y = draw(true_code, noise, mean(true_code, true_a[i] - true_b[i] * prices[i]), demand[i])
        score(code, theta, z[i], prices[i], y, shift, factor, g)
        privatize(spec, g, words[used], row, dots, chosen, v, room)
        if kind == DIRECTIONS and pairs == 1:  # the direction is at hand
            stretch(row[1], scale, v, w)
        else:
            decode(kind, scale, row, w, room)
        used += 1
        move(theta, w, 1.0 / (zeta * (t + used)), shift, factor, centre, radius)
