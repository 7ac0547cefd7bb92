"""ETC, explore then commit (the paper's Algorithm 1), for a known horizon T.

rounds 1..tau:      p_t ~ Uniform[l, u],  tau = ceil(sqrt(d T log T))
after round tau:    theta = MLE of the tau experiments
rounds tau+1..T:    p_t = p*(theta, z_t)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hushprice.errors import positive_int
from hushprice.policies.episodes import FOREVER, EpisodePolicy


@dataclass(frozen=True, kw_only=True)
class ETC(EpisodePolicy):
    """Explore then commit. Regret of order sqrt(d T log T).

    Parameters
    ----------
    horizon : int
        Number of customers T.
    **options
        Those of :class:`Policy`.

    Examples
    --------
    >>> ETC(family="logistic", dim=4, prices=(0, 3), horizon=10_000).tau
    607
    """

    name: ClassVar[str] = "etc"
    use: ClassVar[str] = "Experiments first, fixed rules afterwards: for a trial with a date on which it ends."
    horizon: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("horizon", positive_int("horizon", self.horizon))

    @property
    def tau(self) -> int:
        """Number of price experiments."""
        T = self.horizon
        return max(1, min(T, math.ceil(math.sqrt(self.dim * T * math.log(T)))))

    def episode(self, q: int) -> tuple[int, int]:
        return (self.tau, FOREVER) if q == 1 else (0, FOREVER)
