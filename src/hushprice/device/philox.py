"""Random words, normals and directions from a public seed by Philox4x64-10, as in ``hushprice.kernels.philox``.

Reference: Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

import math

from hushprice.device.numbers import lower_quantile

_MASK = 2**64 - 1
_M0, _M1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_W0, _W1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B


def philox(key: tuple[int, int], counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Return four random words from a key of two words and a counter of four.

    Examples
    --------
    >>> [f"{word:016x}" for word in philox((0, 0), (0, 0, 0, 0))][:2]
    ['16554d9eca36314c', 'db20fe9d672d0fdc']
    """
    (key0, key1), (c0, c1, c2, c3) = key, counter
    for _ in range(10):
        first, second = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (second >> 64) ^ c1 ^ key0, second & _MASK, (first >> 64) ^ c3 ^ key1, first & _MASK
        key0, key1 = (key0 + _W0) & _MASK, (key1 + _W1) & _MASK
    return c0, c1, c2, c3


def uniform(word: int) -> float:
    """Return a number in [0, 1) from the upper 53 bits of a word.

    Examples
    --------
    >>> uniform(2**63)
    0.5
    """
    return (word >> 11) * 2.0**-53


def normal(word: int) -> float:
    """Return a standard normal number from one word: the first bit is its sign, the others its tail probability."""
    value = lower_quantile((((word >> 11) & (2**52 - 1)) + 0.5) * 2.0**-53)
    return -value if word >> 63 else value


def direction(seed: int, number: int, n: int) -> list[float]:
    """Return direction ``number`` of a seed, uniform on the unit sphere of n dimensions.

    Notes
    -----
    Philox with key (seed, 0) and counter (j, number, 0, 0) gives the normals 4 j .. 4 j + 3. They are divided by the
    square root of the sum of their squares, added in order.
    """
    words = [word for j in range((n + 3) // 4) for word in philox((seed, 0), (j, number, 0, 0))]
    v = [normal(word) for word in words[:n]]
    total = 0.0
    for x in v:
        total += x * x
    length = math.sqrt(total)
    return [x / length for x in v]
