"""Arguments of kernels: named tuples that are passed whole.

Python classes build these tuples from their own arrays, which kernels change in place.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

# Numbers of the phases, the ways in which a device prices. ``policies.Phase`` has their properties.
EXPLORE, EXPLOIT, PERTURB, FIXED, GRID = 0, 1, 2, 3, 4  # from theta: hushprice.kernels.quote
INDEX, SAMPLE, SET, STAGES = 5, 6, 7, 8  # from confidence bounds: hushprice.kernels.confidence
AHEAD = 9  # from what a price teaches: hushprice.kernels.look_ahead
DITHER = 10  # plus or minus a private deviation: hushprice.kernels.dither


class SimulatedDemand(NamedTuple):
    """Demand of a block of simulated customers, for ``hushprice.kernels.glm.outcome``."""

    code: int  # of the family
    scale: float  # of its noise
    a: Array  # (n,), z.alpha of each customer
    b: Array  # (n,), z.beta
    uniforms: Array  # (n,), one per outcome


class ReportSpec(NamedTuple):
    """Parameters with which a mechanism of ``hushprice.privacy`` makes a report."""

    kind: int  # DIRECTION_REPORT or GRID_REPORT of hushprice.kernels.sgd
    pairs: int  # J, pairs of directions
    top: int  # m, the number of directions that count as agreeing
    coin: np.uint64  # the coin names one of these with probability coin / 2^64
    clip: float  # C, the bound on the norm of the reported vector
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


class MyopicPlan(NamedTuple):
    """When a myopic policy deviates and records."""

    kappa: float  # the deviation in round t is kappa t^(-1/4)
    every: int  # one round in so many is recorded
    warmup: int  # records at uniform prices before the first greedy price


class BoundRule(NamedTuple):
    """How devices price from confidence bounds: the width of x at stage s is alpha |x|_{V^-1}."""

    phase: int
    code: int  # of the family
    theta: Array  # (S, 2 d), the estimate of each stage
    root: Array  # (S, 2 d, 2 d), a root W of its V^-1 = W W'
    alpha: float
    floor: float  # a width that counts as zero (STAGES)
    arms: int  # K, equispaced prices to choose from (STAGES)


class BoundSales(NamedTuple):
    """What a compiled loop of decisions from bounds writes, one entry per customer."""

    prices: Array
    stages: Counts  # the stage that learns the outcome, from 1; 0 for none
    greedy: Array  # the best price by the estimate with the most records


class Belief(NamedTuple):
    """The estimate for one customer: (z.alpha, z.beta), and the width alpha sqrt(r2 + q2 (p - vertex)^2) at p."""

    a: float
    b: float
    alpha: float
    r2: float
    vertex: float
    q2: float


class Scratch(NamedTuple):
    """Working memory of a decision: ``hushprice.kernels.confidence.scratch``."""

    alive: npt.NDArray[np.bool_]  # (K,)
    reward: Array  # (K,)
    work: Array  # (4 d,)
    stack: Array  # (STACK, 2)


class Penalty(NamedTuple):
    """1/2 (theta - centre)' precision (theta - centre); where ``precision`` is empty, ridge/2 |theta|^2."""

    ridge: float
    centre: Array  # (m,)
    precision: Array  # (m, m)


def ridge_penalty(ridge: float) -> Penalty:
    """The penalty ridge/2 |theta|^2, which may be 0."""
    return Penalty(ridge, np.empty(0), np.empty((0, 0)))


class EstimatorState(NamedTuple):
    """A running estimate and its records: ``hushprice.kernels.running``."""

    code: int  # of the family
    penalty: Penalty
    x: Array  # (capacity, m), the rows (z, -p z)
    y: Array  # (capacity,)
    weight: Array  # (capacity,), of each record; 1 for new records and unused rows
    theta: Array  # (m,)
    P: Array  # (m, m), the inverse of the penalised Hessian
    counts: Counts  # records HELD, in the estimate (USED), at the last exact refit (FITTED); exact REFITS
    pace: Array  # GROWTH allowed between refits, DRIFT at the last one, largest utility change since (MOVED),
    # LOWEST and HIGHEST price on record
    anchor: Array  # (3, m): theta at the last refit; the Hessian times the way from it to theta;
    # the largest context in the estimate, with its squared length behind it


class StagesState(NamedTuple):
    """S running estimates, each with a root of V^-1. The records of stage s are rows start[s] .. start[s + 1]."""

    code: int
    penalty: Penalty
    x: Array
    y: Array
    weight: Array
    start: Counts  # (S + 1,)
    theta: Array  # from here on one row of EstimatorState per stage
    P: Array
    counts: Counts
    pace: Array
    anchor: Array
    root: Array  # (S, m, m), W with V^-1 = W W'
    inside: Counts  # (S,), records in V


class AheadPlan(NamedTuple):
    """The configuration of a look-ahead policy."""

    cost: float
    low: float  # the policy's range of prices
    high: float
    horizon: float  # T, infinite if it is not known
    spread: float  # of the random part of a price, in standard errors of the greedy price
    ridge: float  # divides the prior variances
    centre: Array  # (m,) and
    precision: Array  # (m, m) of a given prior; both empty without one
    lengths: Array  # (K,), memories in outcomes, beside the estimate that remembers everything
    adaptive: bool  # whether the memory that predicts best is used, instead of the only one


class AheadRule(NamedTuple):
    """How devices price by looking ahead."""

    code: int  # of the family
    theta: Array  # (m,)
    P: Array  # (m, m), the inverse of the penalised Hessian
    gains: Array  # (3, d, d), mean of r'' p_a^2 z z', r'' p_a p_b z z' and r'' p_b^2 z z' over customers
    seen: Array  # (d,), 1 for features that some customer had; 0 for those that were 0 so far
    dispersion: float  # phi: the covariance of theta is phi P
    later: float  # N, how many later customers an outcome informs
    own: float  # share of the customer's own gains in the mean
    spread: float  # as in AheadPlan
    low: float  # the policy's range of prices
    high: float


class DitherRule(NamedTuple):
    """How devices price and report under private look-ahead: :mod:`hushprice.kernels.dither`."""

    code: int  # of the family
    theta: Array  # (m,)
    delta: float  # prices are the centre plus or minus delta
    pull: float  # share of the way from the best price to the target that the centre is moved
    target: float
    level: Array  # (d, d), L: weights of the score's first half
    slope: Array  # (d, d), S: weights of its second half
    least: float  # an outcome counts as at least and at most these
    most: float
    scale: float  # of the noise of linear demand


class Memories(NamedTuple):
    """K estimates that forget, and the weights with which they and the lasting estimate predict."""

    theta: Array  # (K, m)
    P: Array  # (K, m, m)
    weight: Array  # (K + 1 + number of shifts,), that of the lasting estimate first; the sum is 1
    due: Counts  # (K,), outcomes until the estimate forgets next; -1 while it equals the lasting one
    prior: Array  # (m, m), precision of the prior in every P
    tally: Array  # ORIGIN, IN_USE, CHANGES_FOUND, FOUND, BEGAN, ODDS of hushprice.kernels.look_ahead
    level: Array  # (d,), coefficients of the combination of features that is nearest to 1
    shifts: Array  # (number of shifts, 2), shifts of the lasting estimate's utilities, and their information
    before: Array  # (m,), the lasting estimate before the last change


class MisfitCells(NamedTuple):
    """Residuals in tenths of the price and of each feature: rows are the price, feature 1, feature 2, ..."""

    edges: Array  # (1 + d, TENTHS - 1), upper ends of the cells but the last; NaN in rows that are not watched
    offset: Array  # (1 + d, TENTHS), how far utilities are off in the cell
    information: Array  # (1 + d, TENTHS), of the offset
    evidence: Array  # (1 + d, TENTHS), logarithm of the Shiryaev-Roberts statistic
    sums: Array  # (3, 1 + d, TENTHS): outcomes, what was bought, what was expected
    tally: Array  # offset of all cells and its information; NEXT_REVIEW, the next outcome at which edges are set


class AheadState(NamedTuple):
    """What a look-ahead policy has learned."""

    estimate: EstimatorState  # its penalty is dense and changes in place
    gains: Array  # (3, d, d)
    tally: Array  # TOTAL, REVISION, DISPERSION, TRUST, FOLDED, SQUARES of hushprice.kernels.look_ahead
    features: Array  # (4, d): SUM, SQUARE, COUNT, VALUE of each feature
    moments: Array  # (d, d), sum of z z'
    variances: Array  # (3,), prior variance of NUMBER, INDICATOR and CONSTANT features
    folded: Array  # (m + 1, m), Hessian and linear term of records that are no longer held
    memories: Memories
    misfit: MisfitCells


class StreamedRows(NamedTuple):
    """A block of rows of a log, for :mod:`hushprice.kernels.streamed`."""

    z: Array  # (d, n), contexts by columns: y.size rows, and zeros up to a multiple of TILE
    price: Array
    y: Array
    weights: Array  # empty for unit weights
