"""Sources of randomness for reports: the operating system, or an unsafe seed in simulations and tests."""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hushprice.errors import InvalidInput

Words = npt.NDArray[np.uint64]


class Entropy(Protocol):
    """A source of random 64-bit words."""

    def words(self, n: int) -> Words:
        """Return the next n words.

        Parameters
        ----------
        n : int
            Number of words.
        """
        ...


class SystemEntropy:
    """The operating system's generator, for every report outside simulations and tests."""

    def words(self, n: int) -> Words:
        """Return the next n words of the operating system.

        Parameters
        ----------
        n : int
            Number of words.
        """
        return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)


class UnsafeSeed:
    """Words from a seed, for simulations and tests.

    Anyone who knows the seed can recompute the noise and with it the customer's data: such a report protects nobody.

    Parameters
    ----------
    seed : int or SeedSequence
        Seed of a PCG64 generator.

    Examples
    --------
    >>> bool((UnsafeSeed(7).words(3) == UnsafeSeed(7).words(3)).all())
    True
    """

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        try:
            if seed is None or isinstance(seed, bool):
                raise TypeError
            self.bits = np.random.PCG64(seed)
        except (TypeError, ValueError):
            raise InvalidInput(f"An unsafe seed must be a whole number of at least 0, got {seed!r}.") from None

    def words(self, n: int) -> Words:
        """Return the next n words of the seed.

        Parameters
        ----------
        n : int
            Number of words.
        """
        return self.bits.random_raw(n)

    def __repr__(self) -> str:
        return "<UnsafeSeed: noise that can be undone, for tests>"


def as_entropy(source: Any) -> Entropy:
    """Check a source of randomness; None means the operating system. Ordinary generators are refused."""
    if source is None:
        return SystemEntropy()
    if isinstance(source, (SystemEntropy, UnsafeSeed)):
        return source
    raise InvalidInput(
        f"The randomness of a report must be the operating system's (leave rng out) or, in simulations and tests, "
        f"hushprice.privacy.UnsafeSeed(seed), not {type(source).__name__}."
    )
