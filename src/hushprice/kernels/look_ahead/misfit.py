"""The misfit alarm: whether outcomes differ from what was expected of them, in tenths of the price and of each feature.

Cell c has an offset o_c of the utility, learned from the outcomes in it. Outcome by outcome, the likelihood with the
offset is compared with the one without, under the estimate before the outcome, and summed up as

    R_c <- (K R_c + 1) p(y | utility + o_c) / p(y | utility),

a Shiryaev-Roberts statistic: if the second likelihood is right, the mean of the ratio is 1, and the mean of R_c at most
the number of outcomes. An alarm at R_c >= RARE times the number of cells is therefore false once in RARE outcomes on
average, at most, however often one looks. The likelihood includes the uncertainty of theta; the offset of all cells,
the dispersion and the variances of the prior are used as they are estimated. The offset and the factor K < 1 forget
after about MISFIT_WINDOW outcomes in the cell.

A shift of all utilities by a combination of features that is nearly 1 (:func:`shifted_by`) is learned in the same way
and is part of the model: a change of demand as a whole is not a misfit. Without a constant there may be no such
combination; then a shift of demand is a misfit.
"""

import math

import numpy as np

from hushprice.kernels.glm import LINEAR, information, log_predictive, mean, residual
from hushprice.kernels.jit import compiled
from hushprice.kernels.look_ahead.prior import CONSTANT, DISPERSION, INDICATOR, TOTAL, kinds_of
from hushprice.kernels.newton import dot
from hushprice.kernels.running import HELD

TENTHS = 10
RARE = 1e6  # outcomes per false alarm, on average, at least
MISFIT_WINDOW = 5_000.0  # outcomes in a cell after which it has forgotten
OFFSET, KNOWN, NEXT_REVIEW = 0, 1, 2  # of the tally: the offset of all cells, its information, when edges are set next
FIRST_REVIEW, REVIEWS = 500.0, 8.0  # outcomes at which edges are set first, and the factor to the next time
USUAL = 0.5  # standard deviation of an offset, in units of utility
MOST_OFF = 4.0  # bound on an offset, in these units
MOST_WATCHED = 100  # features
ROUNDING = 1e-9  # prices are recovered from rows: so much above the end of a cell is still in it
LARGEST_GAIN_OF_ONE = 2.0  # of the log-likelihood that one outcome can count for: a typing error is no evidence


@compiled
def unit_of(code, phi):
    """The unit of utility: for linear demand that of the noise."""
    return math.sqrt(phi) if code == LINEAR else 1.0


@compiled
def set_edges(state):
    """Set the cells to tenths of the records held, and start the statistics afresh."""
    estimate, misfit = state.estimate, state.misfit
    n, kinds = estimate.counts[HELD], kinds_of(state)
    misfit.edges[:] = np.nan
    for row in range(misfit.edges.shape[0]):
        j = row - 1
        if row == 0:
            values = _prices(estimate, n)
        elif kinds[j] == CONSTANT:
            continue
        else:
            values = estimate.x[:n, j].copy()
            if kinds[j] == INDICATOR:  # one cell: those who have it
                misfit.edges[row] = np.inf
                continue
        values.sort()
        for c in range(TENTHS - 1):
            misfit.edges[row, c] = values[(c + 1) * values.size // TENTHS]
    forgive(misfit)


@compiled
def _prices(estimate, n):
    """The prices of the records held whose context is not 0."""
    prices, found = np.empty(n), 0
    for i in range(n):
        price = price_of(estimate.x[i])
        if price == price:
            prices[found] = price
            found += 1
    return prices[:found].copy() if found else np.zeros(1)


@compiled
def price_of(x):
    """The price of a row, from its largest feature; NaN for a context of zeros."""
    d = x.size // 2
    best = 0
    for j in range(1, d):
        if abs(x[j]) > abs(x[best]):
            best = j
    return -x[d + best] / x[best] if x[best] != 0.0 else np.nan


@compiled
def forgive(misfit):
    """Start the statistics afresh, with the same cells."""
    misfit.offset[:] = 0.0
    misfit.information[:] = 0.0
    misfit.evidence[:] = -np.inf
    misfit.sums[:] = 0.0
    misfit.tally[OFFSET] = misfit.tally[KNOWN] = 0.0


@compiled
def shifted_by(memories, x):
    """By how much a shift of 1 moves the utility: the combination of features that is nearest to 1."""
    level = memories.level
    return dot(x[: level.size], level)


@compiled
def precision_of_offset(code, phi, usual):
    """The precision of an offset before any outcome; ``usual`` is its standard deviation in units of utility."""
    return 1.0 / (unit_of(code, phi) * usual) ** 2


@compiled
def learn_offset(code, eta, v, y, phi, offset, known, keep, usual):
    """An offset and its information after one outcome, by a Newton step; earlier information counts ``keep``."""
    shifted, limit = eta + v * offset, MOST_OFF * unit_of(code, phi)
    known = keep * known + v * v * information(code, shifted, y) / phi
    step = v * residual(code, shifted, y) / phi / (known + precision_of_offset(code, phi, usual))
    return min(max(offset + step, -limit), limit), known


@compiled
def watch(state, x, y, price, eta, spread):
    """Take an outcome at a price, whose utility was expected to be normal with mean ``eta`` and variance ``spread``."""
    misfit, code, phi = state.misfit, state.estimate.code, state.tally[DISPERSION]
    tally = misfit.tally
    if state.tally[TOTAL] >= tally[NEXT_REVIEW]:
        set_edges(state)
        tally[NEXT_REVIEW] = REVIEWS * max(state.tally[TOTAL], FIRST_REVIEW)
    if not tally[NEXT_REVIEW] > FIRST_REVIEW:
        return
    keep = 1.0 - 1.0 / MISFIT_WINDOW
    v = shifted_by(state.memories, x)
    shifted = eta + v * tally[OFFSET]
    plain, expected = log_predictive(code, shifted, spread, phi, y), mean(code, shifted)
    tally[OFFSET], tally[KNOWN] = learn_offset(code, eta, v, y, phi, tally[OFFSET], tally[KNOWN], keep, USUAL)
    for row in range(misfit.edges.shape[0]):
        edges, value = misfit.edges[row], price if row == 0 else x[row - 1]
        if np.isnan(edges[0]) or np.isnan(value) or (row > 0 and edges[0] == np.inf and value == 0.0):
            continue
        c = 0
        while c < TENTHS - 1 and value > edges[c] + ROUNDING * abs(edges[c]):
            c += 1
        offset = misfit.offset[row, c]
        gain = log_predictive(code, shifted + offset, spread, phi, y) - plain
        before = misfit.evidence[row, c]
        if gain == gain:
            before = before + math.log(keep)
            total = max(before, 0.0) + math.log1p(math.exp(-abs(before)))  # log(1 + e^before)
            misfit.evidence[row, c] = total + min(gain, LARGEST_GAIN_OF_ONE)
        misfit.offset[row, c], misfit.information[row, c] = learn_offset(
            code, shifted, 1.0, y, phi, offset, misfit.information[row, c], keep, USUAL
        )
        sums = misfit.sums
        sums[0, row, c] = keep * sums[0, row, c] + 1.0
        sums[1, row, c] = keep * sums[1, row, c] + y
        sums[2, row, c] = keep * sums[2, row, c] + expected


@compiled
def least_evidence(misfit):
    """The logarithm of R at which a cell raises the alarm."""
    cells = 0
    for row in range(misfit.edges.shape[0]):
        if not np.isnan(misfit.edges[row, 0]):
            cells += 1 if misfit.edges[row, 0] == np.inf else TENTHS
    return math.log(RARE * max(cells, 1))
