"""Both halves of private price experiments over a block of simulated customers."""

import numpy as np

from hushprice.kernels.glm import outcome, utility
from hushprice.kernels.jit import compiled
from hushprice.kernels.quote import greedy_price
from hushprice.kernels.report import privatize, workspace
from hushprice.kernels.score import score
from hushprice.kernels.sgd import DIRECTION_REPORT, decode, move, stretch


@compiled
def experiments(code, rate, spec, z, public, words, sales, theta, t, greedy):
    """Sell; make the report of each private customer and absorb it as number t + 1, t + 2, ...

    ``sales`` is (demand, prices, terms). ``greedy`` receives the best known price of each customer. The steps and their
    order are those of a live round.
    """
    demand, prices, terms = sales
    cost, low, high, ladder, _, _, _ = terms
    a, b = np.empty(1), np.empty(1)
    g, w = np.empty(theta.size), np.empty(theta.size)
    row = np.empty(max(2, theta.size), np.int64)
    dots, chosen, v, room = workspace(spec.pairs, theta.size)
    used = 0
    for i in range(len(z)):
        utility(z[i : i + 1], theta, a, b)
        greedy[i] = greedy_price(code, a[0], b[0], cost[i], low[i], high[i], ladder)
        if public[i]:
            continue
        y = outcome(demand, i, prices[i])
        score(code, theta, z[i], prices[i], y, rate.shift, rate.factor, g)
        privatize(spec, g, words[used], row, dots, chosen, v, room)
        if spec.kind == DIRECTION_REPORT and spec.pairs == 1:  # the direction is at hand
            stretch(row[1], spec.scale, v, w)
        else:
            decode(spec.kind, spec.scale, row, w, room)
        used += 1
        move(theta, w, 1.0 / (rate.zeta * (t + used)), rate)
