"""SGD over the raw records of public customers. It is apart from ``sgd.py``, which sees reports only."""

import numpy as np

from hushprice.kernels.jit import compiled
from hushprice.kernels.score import score
from hushprice.kernels.sgd import move


@compiled
def plain_pass(code, z, price, y, before, rate, theta):
    """One pass of plain SGD over public records, step k of size 1 / (zeta (before + k))."""
    g = np.empty(theta.size)
    for k in range(len(z)):
        score(code, theta, z[k], price[k], y[k], rate.shift, rate.factor, g)
        move(theta, g, 1.0 / (rate.zeta * (before + k + 1.0)), rate)
