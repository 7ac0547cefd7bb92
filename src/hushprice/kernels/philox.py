"""Philox4x64-10, a counter-based generator, and the normals and directions expanded from a public seed.

The algorithm uses only 64-bit integer arithmetic and the IEEE operations + - * / sqrt in a fixed order, so that any
language reproduces it to the last bit. ``docs/privacy.md`` specifies it, with test vectors.
Reference: Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

import math

import numpy as np

from hushprice.kernels.jit import compiled, inlined
from hushprice.kernels.special import normal_centre, normal_quantile

_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_SIGN, _DROP, _BITS = np.uint64(63), np.uint64(11), np.uint64(2**52 - 1)
_ULP = 2.0**-53


@inlined
def high_product(a, b):
    """The upper 64 bits of the 128-bit product a b."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    other = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _HALF) + (other >> _HALF)


@inlined
def philox(key0, key1, c0, c1, c2, c3):
    """Four random words from a key of two words and a counter of four."""
    for _ in range(10):
        h0, l0 = high_product(_M0, c0), _M0 * c0
        h1, l1 = high_product(_M1, c2), _M1 * c2
        c0, c1, c2, c3 = h1 ^ c1 ^ key0, l1, h0 ^ c3 ^ key1, l0
        key0, key1 = key0 + _W0, key1 + _W1
    return c0, c1, c2, c3


@inlined
def tail(word):
    """(m + 1/2) 2^-53 in (0, 1/2), m the 52 bits after the first."""
    return (float((word >> _DROP) & _BITS) + 0.5) * _ULP


@inlined
def normal(word):
    """A standard normal number from one random word: the first bit its sign, the rest the mass of its tail."""
    value = normal_quantile(tail(word))
    return -value if word >> _SIGN else value


@inlined
def normals(words, v):
    """:func:`normal` of every word: all by the branch-free formula for the centre, then those in the tails again."""
    for i in range(v.size):
        value = normal_centre(tail(words[i]) - 0.5)
        v[i] = -value if words[i] >> _SIGN else value
    for i in range(v.size):
        if tail(words[i]) - 0.5 < -0.425:
            v[i] = normal(words[i])


@compiled
def direction(seed, number, v, words):
    """Write direction ``number`` of a seed into v: uniform on the unit sphere.

    Block j of Philox with key (seed, 0) and counter (j, number, 0, 0) gives the normals 4 j .. 4 j + 3; they are
    divided by the root of the sum of their squares, added in order. ``words`` is scratch space for n + 3 words.
    """
    zero, n = np.uint64(0), v.size
    for j in range((n + 3) // 4):
        w0, w1, w2, w3 = philox(np.uint64(seed), zero, np.uint64(j), np.uint64(number), zero, zero)
        words[4 * j], words[4 * j + 1], words[4 * j + 2], words[4 * j + 3] = w0, w1, w2, w3
    normals(words, v)
    total = 0.0
    for i in range(n):
        total += v[i] * v[i]
    length = math.sqrt(total)
    for i in range(n):
        v[i] /= length
