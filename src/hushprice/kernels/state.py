"""What kernels take: one named tuple per thing, passed whole.

The Python classes build these tuples; the arrays in them are the classes' own and are changed in place.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class SimulatedDemand(NamedTuple):
    """What a block of simulated customers buys: ``hushprice.kernels.glm.outcome``."""

    code: int  # of the family
    scale: float  # of its noise
    a: Array  # (n,), z.alpha of each customer
    b: Array  # (n,), z.beta
    uniforms: Array  # (n,), the uniform that each outcome is drawn from


class ReportSpec(NamedTuple):
    """How a mechanism of ``hushprice.privacy`` makes a report."""

    kind: int  # DIRECTIONS or GRID of hushprice.kernels.sgd
    pairs: int  # J, pairs of directions
    top: int  # m, how many directions count as agreeing
    coin: np.uint64  # the coin names one of these with probability coin / 2^64
    clip: float  # C, the bound on the norm of what is reported
    scale: float  # the length B of a decoded direction, or the step of the grid


class SGDRate(NamedTuple):
    """Projected SGD: step t has size 1 / (zeta t) and ends in the ball Theta."""

    zeta: float
    shift: float  # c: a score holds the price as f (p - c)
    factor: float  # f
    centre: Array  # of Theta
    radius: float


class PriceRule(NamedTuple):
    """How devices price from theta alone."""

    phase: int
    code: int  # of the family
    theta: Array  # (2 d,)
    level: float  # size of the deviation (PERTURB), the price (FIXED), the number of prices (GRID)
