"""Where a device's randomness comes from: the operating system, unless an unsafe source is asked for by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import Literal, Protocol

from hushprice.device.philox import philox
from hushprice.errors import InvalidInput

Purpose = Literal["price", "report", "id"]
PURPOSES: tuple[Purpose, ...] = ("price", "report", "id")


class Words(Protocol):
    """A source of random 64-bit words."""

    def draw(self, n: int, purpose: Purpose) -> list[int]:
        """The next n words."""
        ...


class SystemWords:
    """The operating system's generator: what every price experiment and report outside tests is made from."""

    def draw(self, n: int, purpose: Purpose) -> list[int]:
        raw = os.urandom(8 * n)
        return [int.from_bytes(raw[8 * i : 8 * i + 8], "little") for i in range(n)]


class UnsafeWords:
    """Words that anyone who knows the seed can recompute, and with them the customer's data. For tests alone.

    A stream for each purpose comes from the seed, or is given: ``UnsafeWords(7, report=words)``.

    >>> UnsafeWords(7).draw(2, "price") == UnsafeWords(7).draw(2, "price") != UnsafeWords(7).draw(2, "report")
    True
    """

    def __init__(self, seed: int = 0, **streams: Iterable[int]) -> None:
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**64:
            raise InvalidInput("An unsafe seed must be a whole number of at least 0 and below 2^64.")
        if not set(streams) <= set(PURPOSES):
            raise InvalidInput(f"Streams of words can be given for {', '.join(PURPOSES)}.")
        self._streams = {name: iter(streams.get(name, _stream(seed, k))) for k, name in enumerate(PURPOSES)}

    def draw(self, n: int, purpose: Purpose) -> list[int]:
        words = list(islice(self._streams[purpose], n))
        if len(words) < n:
            raise InvalidInput(f"The words given for each {purpose} are used up.")
        return words

    def __repr__(self) -> str:
        return "<UnsafeWords: noise that can be undone, for tests>"


def _stream(seed: int, k: int) -> Iterator[int]:
    for i in count():
        yield from philox((seed, k), (i, 0, 0, 0))
