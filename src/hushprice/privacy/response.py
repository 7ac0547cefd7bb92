"""Randomised response: a yes or no that is flipped with a known probability (Warner 1965)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.device.coin import WORD, fair_coin
from hushprice.errors import discreetly
from hushprice.privacy.entropy import Words
from hushprice.privacy.guarantee import as_epsilon
from hushprice.privacy.mechanism import Mechanism
from hushprice.privacy.wire import Rows


@dataclass(frozen=True, kw_only=True)
class RandomizedResponse(Mechanism):
    """Report the true bit with probability q = e^epsilon / (1 + e^epsilon), rounded toward 1/2.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of one report.

    Notes
    -----
    The estimate is (bit - 1 + q) / (2 q - 1).

    Examples
    --------
    >>> mechanism = RandomizedResponse(epsilon=2.0)
    >>> report = mechanism.privatize(True)
    >>> report.to_dict() in ({"bit": 0}, {"bit": 1})
    True
    """

    name: ClassVar[str] = "randomized-response"
    kind: ClassVar[str] = "bit"
    epsilon: float
    dim: int = field(init=False, repr=False, default=1)
    coin: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", as_epsilon(self.epsilon))
        object.__setattr__(self, "coin", fair_coin(self.epsilon))

    @property
    def words(self) -> int:
        return 1

    @property
    def width(self) -> int:
        return 1

    def squared_error(self, norm: float) -> float:
        """q (1 - q) / (2 q - 1)^2, for yes and for no."""
        q = self.coin / WORD
        return q * (1.0 - q) / (2.0 * q - 1.0) ** 2

    @property
    def worst_squared_error(self) -> float:
        return self.squared_error(1.0)

    def inputs(self, g: Any, *, many: bool) -> Array:
        def checked() -> Array:
            bits = np.asarray(g)
            fits = bits.ndim == 1 or (bits.ndim == 2 and bits.shape[1] == 1) if many else bits.shape in ((), (1,))
            if bits.dtype.kind not in "biuf" or not fits or not np.isin(bits, (0, 1)).all():
                raise TypeError
            return bits.astype(np.float64).reshape(-1, 1)

        return discreetly(checked, "randomized-response takes True or False, 1 or 0; for many inputs, one per row.")

    def report_rows(self, g: Array, words: Words) -> Rows:
        flip = words >= np.uint64(self.coin)
        rows: Rows = (g != flip).astype(np.int64)
        return rows

    def decode_rows(self, rows: Rows) -> Array:
        q = self.coin / WORD
        return (rows.astype(np.float64) - (1.0 - q)) / (2.0 * q - 1.0)

    def possible(self, rows: Rows) -> npt.NDArray[np.bool_]:
        return np.isin(rows[:, 0], (0, 1))

    def evidence(self, rows: Rows, first: Array, second: Array) -> Array:
        score: Array = rows[:, 0] * (first[0] - second[0])
        return score

    def extremes(self) -> list[tuple[str, Array, Array]]:
        yes, no = np.array([1.0]), np.array([0.0])
        return [("yes against no", yes, no), ("no against yes", no, yes)]
