"""L2Ball and PrivUnit: a report is a public seed and the index of a direction that tends to agree with the data.

A seed stands for J pairs of opposite directions +-v_0 .. +-v_(J-1), uniform on the sphere and independent of the data
(see ``kernels/philox.py``). For g of length r <= C:

    with probability (1 - r/C) / 2 replace g by -g
    S = the m directions that agree most with g, at most one per pair
    with probability q send the index of a uniform member of S, else of a uniform one of the other 2 J - m directions

    q / m = e^epsilon (1 - q) / (2 J - m), rounded toward m / 2 J;   decode: B times the direction, |B| fixed

S always has m members, so rounding in the products with g cannot change a probability: the report is epsilon-LDP as
computed in floating point, not only in exact arithmetic. L2Ball (Duchi, Jordan & Wainwright 2018; the paper's
mechanism) is J = m = 1: one private bit. PrivUnit (Bhowmick et al. 2018) is the limit of many pairs, where S becomes a
spherical cap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.device.coin import WORD, fair_coin, odds
from hushprice.errors import InvalidInput, positive_int
from hushprice.kernels import report as kernel
from hushprice.kernels.sgd import DIRECTION_REPORT
from hushprice.kernels.state import ReportSpec
from hushprice.privacy.caps import LARGEST_PAIRS, best_cap, mean_product, top_products
from hushprice.privacy.mechanism import VectorMechanism
from hushprice.privacy.wire import Rows


def _ceil_part(k: int, size: int) -> int:
    """ceil(k 2^64 / size)."""
    return -(-k * WORD // size)


@dataclass(frozen=True, kw_only=True)
class _Directions(VectorMechanism):
    """A mechanism whose report is a seed and an index."""

    kind: ClassVar[str] = "directions"
    coin: int = field(init=False, repr=False)  # the coin lands on S with probability coin / 2^64
    length: float = field(init=False, repr=False)  # B, the length of every decoded report

    def _derive(self, pairs: int, top: int) -> None:
        coin = fair_coin(self.epsilon, inside=top, outside=2 * pairs - top)
        q = coin / WORD
        product = top_products(pairs, top, self.dim) * (q / top - (WORD - coin) / WORD / (2 * pairs - top))
        object.__setattr__(self, "coin", coin)
        object.__setattr__(self, "length", self.clip / product)

    @property
    def shape(self) -> tuple[int, int]:
        """(J, m): the number of pairs of directions, and of directions in S."""
        raise NotImplementedError

    @property
    def words(self) -> int:
        return 3 if self.shape[0] == 1 else 4

    @property
    def width(self) -> int:
        return 2

    @property
    def spec(self) -> ReportSpec:
        pairs, top = self.shape
        return ReportSpec(DIRECTION_REPORT, pairs, top, np.uint64(self.coin), self.clip, self.length)

    def squared_error(self, norm: float) -> float:
        """B^2 - |g|^2: every decoded report has length B and mean g."""
        return self.length**2 - min(norm, self.clip) ** 2

    @property
    def worst_squared_error(self) -> float:
        """B^2, at g = 0."""
        return self.length**2

    def probabilities(self, seed: int, g: Array) -> list[Fraction]:
        """Return P(index = k | seed, g) for k = 0 .. 2 J - 1, exactly, by counting random words.

        Parameters
        ----------
        seed : int
            The public seed.
        g : Array
            The input.

        Returns
        -------
        list of Fraction
        """
        pairs, top = self.shape
        x = self.inputs(g, many=False)[0]
        dots, chosen = np.empty(pairs), np.empty(pairs, dtype=np.int64)
        workspace = np.empty(self.dim + 3, dtype=np.uint64)
        kernel.sides(x, np.uint64(seed % WORD), pairs, top, dots, chosen, np.empty(self.dim), workspace)
        inside = {int(k) for k in chosen if k >= 0}
        outside = set(range(2 * pairs)) - inside
        chances = [Fraction(0)] * (2 * pairs)
        for coin, group in ((self.coin, inside), (WORD - self.coin, outside)):
            for place, k in enumerate(sorted(group)):
                words = _ceil_part(place + 1, len(group)) - _ceil_part(place, len(group))  # that select this place
                chances[k] = Fraction(coin * words, WORD * WORD)
        largest, root = kernel.size(x)
        flip = Fraction(math.ceil(Fraction(0.5 * (1.0 - min(largest * root / self.clip, 1.0))) * 2**53), 2**53)
        return [(1 - flip) * chances[k] + flip * chances[k ^ 1] for k in range(2 * pairs)]

    def possible(self, rows: Rows) -> npt.NDArray[np.bool_]:
        good: npt.NDArray[np.bool_] = (rows[:, 1] >= 0) & (rows[:, 1] < 2 * self.shape[0])
        return good

    def evidence(self, rows: Rows, first: Array, second: Array) -> Array:
        """1 if a report agrees with the first input only, -1 if with the second only, else 0."""
        score = np.zeros(len(rows))
        for sign, g in ((1.0, first), (-1.0, second)):
            agrees = np.empty(len(rows), dtype=np.bool_)
            kernel.agreements(np.ascontiguousarray(g), rows, *self.shape, agrees)
            score += sign * agrees
        return score


@dataclass(frozen=True, kw_only=True)
class L2Ball(_Directions):
    """The paper's mechanism in one private bit: B s v, with s = +-1 and v the direction of a public seed.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of one report.
    clip : float
        Bound C on the length of the input; longer inputs are clipped.
    dim : int
        Length n of the input.

    Notes
    -----
    B = C (e^epsilon + 1) / (e^epsilon - 1) sqrt(pi) Gamma((n + 1) / 2) / Gamma(n / 2).

    Examples
    --------
    >>> mechanism = L2Ball(epsilon=1.0, clip=1.0, dim=2)
    >>> report = mechanism.privatize([0.6, 0.8])
    >>> sorted(report.to_dict()), mechanism.decode(report).shape
    (['index', 'seed'], (2,))
    >>> round(mechanism.length, 4)
    3.3991
    """

    name: ClassVar[str] = "l2-ball"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._derive(1, 1)

    @property
    def shape(self) -> tuple[int, int]:
        return 1, 1


@dataclass(frozen=True, kw_only=True)
class PrivUnit(_Directions):
    """The spherical cap: much less noise than L2Ball once epsilon is above about 1.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of one report.
    clip : float
        Bound on the length of the input; longer inputs are clipped.
    dim : int
        Length of the input, at least 2.
    pairs : int, optional
        Number J of pairs of directions that the device compares. Default: the smallest power of two whose squared error
        is within 5% of the ideal cap's, and at most 1024 (enough up to about epsilon = 9).

    Attributes
    ----------
    top : int
        Number m of directions in S, chosen for the least squared error.

    Examples
    --------
    >>> ball, cap = (kind(epsilon=4.0, clip=1.0, dim=12) for kind in (L2Ball, PrivUnit))
    >>> cap.pairs, cap.top, round(ball.worst_squared_error / cap.worst_squared_error, 2)
    (32, 5, 3.36)
    """

    name: ClassVar[str] = "privunit"
    pairs: int | None = None
    top: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim < 2:
            raise InvalidInput("PrivUnit needs dim >= 2: on a line there is no cap. Use L2Ball.")
        if self.pairs is None:
            pairs, top = best_cap(self.epsilon, self.dim)
        else:
            pairs = positive_int("pairs", self.pairs, maximum=LARGEST_PAIRS)
            top = mean_product(self.epsilon, self.dim, pairs)[1]
        object.__setattr__(self, "pairs", pairs)
        object.__setattr__(self, "top", top)
        self._derive(pairs, top)

    @property
    def shape(self) -> tuple[int, int]:
        assert self.pairs is not None
        return self.pairs, self.top


__all__ = ["WORD", "L2Ball", "PrivUnit", "fair_coin", "odds"]
