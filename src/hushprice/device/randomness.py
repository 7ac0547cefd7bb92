"""A device's sources of randomness: the operating system, or an unsafe seed in tests."""

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
        """Return the next n words for a purpose.

        Parameters
        ----------
        n : int
            Number of words.
        purpose : str
            What they are for.

        Returns
        -------
        list of int
            Words of 64 bits.
        """
        ...


class SystemWords:
    """The operating system's generator, for every price experiment and report outside tests."""

    def draw(self, n: int, purpose: Purpose) -> list[int]:
        """Return the next n words of the operating system, whatever the purpose.

        Parameters
        ----------
        n : int
            Number of words.
        purpose : str
            Not used.

        Returns
        -------
        list of int
            Words of 64 bits.
        """
        raw = os.urandom(8 * n)
        return [int.from_bytes(raw[8 * i : 8 * i + 8], "little") for i in range(n)]


class UnsafeWords:
    """Words from a seed, for tests only.

    Anyone who knows the seed can recompute the noise and with it the customer's data.

    Parameters
    ----------
    seed : int
        Seed of one stream of words per purpose.
    **streams : iterable of int
        Words for a purpose ("price", "report" or "id") in place of the seed's, as in ``UnsafeWords(7, report=words)``.

    Examples
    --------
    >>> UnsafeWords(7).draw(2, "price") == UnsafeWords(7).draw(2, "price") != UnsafeWords(7).draw(2, "report")
    True
    """

    def __init__(self, seed: int = 0, **streams: Iterable[int]) -> None:
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**64:
            raise InvalidInput("An unsafe seed must be a whole number of at least 0 and below 2^64.")
        if not set(streams) <= set(PURPOSES):
            raise InvalidInput(f"There are streams of words for {', '.join(PURPOSES)} only.")
        self._streams = {name: iter(streams.get(name, _stream(seed, k))) for k, name in enumerate(PURPOSES)}

    def draw(self, n: int, purpose: Purpose) -> list[int]:
        """Return the next n words for a purpose.

        Parameters
        ----------
        n : int
            Number of words.
        purpose : str
            What they are for.

        Returns
        -------
        list of int
            Words of 64 bits.
        """
        words = list(islice(self._streams[purpose], n))
        if len(words) < n:
            raise InvalidInput(f"The stream of words for each {purpose} is used up.")
        return words

    def __repr__(self) -> str:
        return "<UnsafeWords: noise that can be undone, for tests>"


def _stream(seed: int, k: int) -> Iterator[int]:
    for i in count():
        yield from philox((seed, k), (i, 0, 0, 0))
