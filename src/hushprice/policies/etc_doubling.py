"""ETC-Doubling (the paper's Algorithm 2), for an unknown horizon.

episode q = 1, 2, ... of length E = 2^q:
first tau_q rounds: p_t ~ Uniform[l, u],  tau_q = min(E, factor sqrt(d E log E)), rounded up
then:               theta = MLE of the experiments of all episodes so far,  p_t = p*(theta, z_t)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hushprice.errors import finite
from hushprice.policies.episodes import EpisodePolicy


@dataclass(frozen=True, kw_only=True)
class ETCDoubling(EpisodePolicy):
    """Explore then commit in episodes of doubling length, for an unknown horizon.

    Parameters
    ----------
    factor : float
        Factor on the number of experiments. The default sqrt(2) - 1 is that of the paper's simulations, where the
        total is about that of ETC with a known horizon; the paper's theorem has 1.
    **options
        Those of :class:`Policy`.

    Examples
    --------
    >>> ETCDoubling(family="logistic", dim=1, prices=(0, 3)).episode(10)
    (35, 989)
    """

    name: ClassVar[str] = "etc-doubling"
    use: ClassVar[str] = "As etc, without a known end: short trials, each twice as far from the last."
    factor: float = math.sqrt(2.0) - 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("factor", finite("factor", self.factor, minimum=0.0, maximum=1e6, strict=True))

    def episode(self, q: int) -> tuple[int, int]:
        E = 2**q
        tau = min(E, math.ceil(self.factor * math.sqrt(self.dim * E * math.log(E))))
        return tau, E - tau
