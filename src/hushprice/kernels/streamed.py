"""Sums over streamed blocks of rows: moments of columns, and the GLM's gradient and information for x = (z, -q z).

A block of contexts is stored by columns, z (d, n) with n a multiple of :data:`TILE`, so that every sum is a dot product
of two columns over a tile. LLVM may not vectorise such a sum, since that changes the order of additions; :func:`dots`
defines the order with vectors of four lanes, which is five times faster and keeps strict IEEE arithmetic.
"""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hushprice.kernels.glm import LOGISTIC, squared_loss
from hushprice.kernels.jit import compiled

TILE = 64
_LANES = 4


@compiled
def row_hash(number, purpose):
    """A fixed hash of each row number, different for each purpose (splitmix64)."""
    hashes = np.empty(number.size, np.uint64)
    start = (np.uint64(purpose) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for i in range(number.size):
        x = np.uint64(number[i]) + start
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes[i] = x ^ (x >> np.uint64(31))
    return hashes


@compiled
def moments(values):
    """(count, mean, sum of squared deviations, smallest, largest) of the finite values."""
    count, total, low, high = 0, 0.0, np.inf, -np.inf
    for v in values:
        if math.isfinite(v):
            count += 1
            total += v
            low = min(low, v)
            high = max(high, v)
    if count == 0:
        return 0, 0.0, 0.0, low, high
    mean = total / count
    rest, squares = 0.0, 0.0  # rest: the rounding error of the mean
    for v in values:
        if math.isfinite(v):
            rest += v - mean
            squares += (v - mean) * (v - mean)
    return count, mean + rest / count, squares - rest * rest / count, low, high


@compiled
def outcome_facts(y):
    """(whether all are 0 or 1, whether all are whole numbers of at least 0)."""
    binary, whole = True, True
    for v in y:
        binary &= (v == 0.0) | (v == 1.0)
        whole &= (v >= 0.0) & (v == math.floor(v))
    return binary, whole


@compiled
def standardise(values, mean, sd, out):
    """out = (values - mean) / sd, and 0 where a value is not finite."""
    for i in range(values.size):
        v = values[i]
        out[i] = (v - mean) / sd if math.isfinite(v) else 0.0


@compiled
def indicate(places, out):
    """out[k - 1] = 1 where places are k, for k of at least 1, and 0 elsewhere."""
    for k in range(out.shape[0]):
        for i in range(places.size):
            out[k, i] = 0.0
    for i in range(places.size):
        if places[i] > 0:
            out[places[i] - 1, i] = 1.0


@intrinsic
def dots(typingctx, c, z, j, start):
    """The dot products of three columns c (3, TILE) with z[j, start : start + TILE].

    Row r is added to lane r mod 8; the lanes are added at the end, k and k + 4 first.
    """
    signature = types.UniTuple(types.float64, 3)(c, z, j, start)

    def generate(context, builder, signature, args):
        whole, vector = ir.IntType(64), ir.VectorType(ir.DoubleType(), _LANES)

        def number(value):
            return ir.Constant(whole, value)

        def load(data, place):
            return builder.load(builder.bitcast(builder.gep(data, [place]), vector.as_pointer()), align=8)

        columns, rows = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:2], args[:2], strict=True)
        )
        width = cgutils.unpack_tuple(builder, rows.shape)[1]
        first = builder.add(builder.mul(args[2], width), args[3])
        sums = [cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * _LANES)) for _ in range(6)]
        with cgutils.for_range(builder, number(TILE // (2 * _LANES)), intp=whole) as loop:
            for half in range(2):
                place = builder.add(builder.mul(loop.index, number(2 * _LANES)), number(half * _LANES))
                value = load(rows.data, builder.add(first, place))
                for k in range(3):
                    product = builder.fmul(load(columns.data, builder.add(place, number(k * TILE))), value)
                    total = sums[2 * k + half]
                    builder.store(builder.fadd(builder.load(total), product), total)
        results = []
        for k in range(3):
            lanes = builder.fadd(builder.load(sums[2 * k]), builder.load(sums[2 * k + 1]))
            s = [builder.extract_element(lanes, ir.Constant(ir.IntType(32), i)) for i in range(_LANES)]
            results.append(builder.fadd(builder.fadd(s[0], s[1]), builder.fadd(s[2], s[3])))
        return context.make_tuple(builder, signature.return_type, results)

    return signature, generate


@compiled
def _indices(z, q, start, alpha, beta, eta):
    """eta = z.alpha - q (z.beta) of a tile."""
    for r in range(TILE):
        eta[r] = 0.0
    for j in range(alpha.size):
        a, b, row = alpha[j], beta[j], z[j, start : start + TILE]
        for r in range(TILE):
            eta[r] += (a - q[r] * b) * row[r]


@compiled
def _logistic(eta, y, w, unit, residual, h, odds):
    """Loss of a tile; writes w times its first and second derivatives. Unit weights need one logarithm per tile."""
    for r in range(TILE):
        odds[r] = math.exp(-abs(eta[r]))
    for r in range(TILE):
        mu = 1.0 / (1.0 + odds[r])
        residual[r] = w[r] * ((mu if eta[r] >= 0.0 else odds[r] * mu) - y[r])
        h[r] = w[r] * odds[r] * mu * mu
    loss, product = 0.0, 1.0
    if unit:
        for r in range(TILE):
            loss += max(eta[r], 0.0) - y[r] * eta[r]
            product *= 1.0 + odds[r]
        return loss + math.log(product)
    for r in range(TILE):
        loss += w[r] * (max(eta[r], 0.0) - y[r] * eta[r] + math.log1p(odds[r]))
    return loss


@compiled
def _general(code, eta, y, w, residual, h):
    """As :func:`_logistic` for the other families; the loss of linear demand is half the squared residual."""
    loss = 0.0
    for r in range(TILE):
        value, first, second = squared_loss(code, eta[r], y[r])
        residual[r] = w[r] * first
        h[r] = w[r] * second
        loss += w[r] * value
    return loss


@compiled
def _add_tile(z, start, q, residual, h, c, gradient, blocks):
    """Add a tile to the gradient and to the lower triangles of the blocks."""
    d = z.shape[0]
    c0, c1, c2 = c[0], c[1], c[2]
    for r in range(TILE):
        c0[r] = residual[r]
        c1[r] = -residual[r] * q[r]
    for i in range(d):
        g0, g1, _ = dots(c, z, i, start)
        gradient[0, i] += g0
        gradient[1, i] += g1
    for i in range(d):
        row = z[i, start : start + TILE]
        for r in range(TILE):
            value = h[r] * row[r]
            c0[r] = value
            c1[r] = value * q[r]
            c2[r] = value * q[r] * q[r]
        for j in range(i + 1):
            s0, s1, s2 = dots(c, z, j, start)
            blocks[0, i, j] += s0
            blocks[1, i, j] += s1
            blocks[2, i, j] += s2


@compiled
def evaluate(code, rows, centre, spread, alpha, beta, gradient, blocks):
    """The loss of a block, its gradient (2, d) and the three blocks (3, d, d) of its information.

    With q = (price - centre) / spread, x = (z, -q z), so the information is made of sum h z z', sum h q z z' and
    sum h q^2 z z', h = w loss'', whose lower triangles are written (the second without its sign). ``rows`` is a
    :class:`~hushprice.kernels.state.StreamedRows`. Returns (loss, smallest h).
    """
    z, price, y, weights = rows
    n = y.size
    gradient[:, :] = 0.0
    blocks[:, :, :] = 0.0
    eta, h, residual, odds = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    q, outcome, w, c = np.zeros(TILE), np.zeros(TILE), np.ones(TILE), np.zeros((3, TILE))
    loss, smallest = 0.0, np.inf
    for start in range(0, n, TILE):
        count = min(TILE, n - start)
        for r in range(count):
            q[r] = (price[start + r] - centre) / spread
            outcome[r] = y[start + r]
        if weights.size:
            for r in range(count):
                w[r] = weights[start + r]
        for r in range(count, TILE):  # only in the last tile
            q[r], outcome[r], w[r] = 0.0, 0.0, 0.0
        _indices(z, q, start, alpha, beta, eta)
        if code == LOGISTIC:
            loss += _logistic(eta, outcome, w, weights.size == 0 and count == TILE, residual, h, odds)
        else:
            loss += _general(code, eta, outcome, w, residual, h)
        for r in range(count):
            smallest = min(smallest, h[r])
        _add_tile(z, start, q, residual, h, c, gradient, blocks)
    return loss, smallest
