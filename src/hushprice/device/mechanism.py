"""How a device randomises a score: a small implementation of the mechanisms of ``hushprice.privacy``.

    directions (l2-ball, privunit)   a seed of J pairs of directions, and the index of one of them
    grid (gaussian)                  floor(g_i / h + 64 N_i + 1/2), h = sd / 64

Reports have the same bits as those of the compiled kernels. Of the published parameters, only epsilon, clip and (for
Gaussian noise) delta and sd affect privacy. J and m do not, because the coin is derived from them here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from hushprice.device.coin import fair_coin
from hushprice.device.guarantee import Guarantee, Loss, as_epsilon
from hushprice.device.philox import direction, normal, uniform
from hushprice.errors import LARGEST_VALUE, InvalidInput, finite, positive_int, unknown

Name = Literal["l2-ball", "privunit", "gaussian"]
NAMES: tuple[str, ...] = get_args(Name)
LARGEST_REPORT_DIM, LARGEST_PAIRS = 2000, 1024
MAX_WORK = 1 << 17  # pairs times dim that a server may ask for: half a second per report in Python
CELLS = 64.0  # grid cells per standard deviation of the noise
SLACK = 1e-12  # total variation distance per coordinate from an exact rounded Gaussian: see privacy/gaussian.py
_CLIP_ROUNDING = 1.0 + 1e-12  # a clipped vector may be longer than C by rounding


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """A mechanism that makes reports. Noise that does not provide (epsilon, delta) at the clip bound is refused.

    Parameters
    ----------
    name : {"l2-ball", "privunit", "gaussian"}
        Which mechanism.
    epsilon, delta : float
        The guarantee of one report; delta is for Gaussian noise only.
    clip : float
        Bound on the length of the score; longer scores are clipped.
    dim : int
        Length of the score.
    pairs, top : int
        J and m of privunit; 1 for the others.
    sd : float
        Standard deviation of Gaussian noise; 0 for the others.

    Examples
    --------
    >>> mechanism = Mechanism(name="l2-ball", epsilon=1.0, clip=2.0, dim=2)
    >>> mechanism.words, mechanism.report([0.3, -0.1], [7, 2**63, 0])
    (3, {'seed': '0000000000000007', 'index': 0})
    """

    name: str
    epsilon: float
    clip: float
    dim: int
    delta: float = 0.0
    pairs: int = 1
    top: int = 1
    sd: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in NAMES:
            raise unknown("mechanism", self.name, NAMES)
        put = object.__setattr__
        put(self, "epsilon", as_epsilon(self.epsilon))
        put(self, "clip", finite("clip", self.clip, minimum=1e-100, maximum=LARGEST_VALUE))
        put(self, "dim", positive_int("dim", self.dim, maximum=LARGEST_REPORT_DIM))
        put(self, "delta", finite("delta", self.delta, minimum=0.0, maximum=0.5))
        put(self, "pairs", positive_int("pairs", self.pairs, maximum=LARGEST_PAIRS))
        put(self, "top", positive_int("top", self.top, maximum=self.pairs))
        put(self, "sd", finite("sd", self.sd, minimum=0.0, maximum=1e100))
        if self.pairs * self.dim > MAX_WORK:
            raise InvalidInput(f"{self.pairs} pairs of {self.dim} numbers are too much: {MAX_WORK} at most.")
        if self.name == "l2-ball" and self.pairs != 1:
            raise InvalidInput("l2-ball has one pair of directions; more of them are privunit.")
        if self.name != "gaussian":
            if self.delta or self.sd:
                raise InvalidInput(f"{self.name} is epsilon-private and has neither a delta nor an sd.")
        elif not self.sd > 0.0 or not self.loss.within(Guarantee(self.epsilon, self.delta)):
            raise InvalidInput(
                f"Gaussian noise of standard deviation {self.sd:g} does not keep epsilon = {self.epsilon:g}, delta = "
                f"{self.delta:g} for vectors of length up to {self.clip:g}."
            )

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one report."""
        return Guarantee(self.epsilon, self.delta)

    @property
    def loss(self) -> Loss:
        """The privacy loss of one report, in a form that adds up over reports."""
        if self.name == "gaussian":
            return Loss(mu=2.0 * self.clip * _CLIP_ROUNDING / self.sd, slack=SLACK * self.dim)
        return Loss(epsilon=self.epsilon)

    @property
    def words(self) -> int:
        """Number of random 64-bit words per report."""
        if self.name == "gaussian":
            return self.dim
        return 3 if self.pairs == 1 else 4

    @cached_property
    def coin(self) -> int:
        """The report agrees with the data if a random word is below this number."""
        return fair_coin(self.epsilon, inside=self.top, outside=2 * self.pairs - self.top)

    def report(self, g: Sequence[float], words: Sequence[int]) -> dict[str, Any]:
        """Make a report of a score from random words.

        Parameters
        ----------
        g : sequence of float
            The score, which is clipped here. A score that is not finite counts as 0.
        words : sequence of int
            ``self.words`` random 64-bit words.

        Returns
        -------
        dict
            The report as plain data for JSON.
        """
        if len(g) != self.dim or len(words) != self.words:
            raise InvalidInput(f"A report of {self.name} takes {self.dim} numbers and {self.words} random words.")
        if not all(map(math.isfinite, g)):
            g = [0.0] * self.dim
        largest, root = _size(g)
        if self.name == "gaussian":
            return {"grid": self._grid(g, words, largest, root)}
        seed, flip, coin = words[:3]
        best = self._agreeing(g, seed, largest)
        inside = coin < self.coin
        choices = best if inside else sorted(set(range(2 * self.pairs)).difference(best))
        index = choices[words[3] * len(choices) >> 64 if self.pairs > 1 else 0]
        if uniform(flip) < 0.5 * (1.0 - min(largest * root / self.clip, 1.0)):
            index ^= 1
        return {"seed": f"{seed:016x}", "index": index}

    def _agreeing(self, g: Sequence[float], seed: int, largest: float) -> list[int]:
        """Indices of the ``top`` directions that agree most with g, at most one per pair."""
        dots = []
        for i in range(self.pairs):
            dot = 0.0
            if largest > 0.0:
                for x, v in zip(g, direction(seed, i, self.dim), strict=True):
                    dot += (x / largest) * v
            dots.append(dot)
        best = sorted(range(self.pairs), key=lambda i: (-abs(dots[i]), i))[: self.top]
        return sorted(2 * i + (dots[i] < 0.0) for i in best)

    def _grid(self, g: Sequence[float], words: Sequence[int], largest: float, root: float) -> list[int]:
        step, outside = self.sd / CELLS, not largest * root <= self.clip
        cut = [(x / largest) * (self.clip / root) for x in g] if outside else g
        return [math.floor(x / step + CELLS * normal(word) + 0.5) for x, word in zip(cut, words, strict=True)]


def _size(g: Sequence[float]) -> tuple[float, float]:
    """(L, R) with L = max |g_i| and |g| = L R, without overflow."""
    largest = max(map(abs, g))
    if largest == 0.0:
        return 0.0, 0.0
    total = 0.0
    for x in g:
        total += (x / largest) * (x / largest)
    return largest, math.sqrt(total)
