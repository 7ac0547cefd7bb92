"""MLE-Cycle (Broder & Rusmevichientong 2012; Ban & Keskin 2021; the paper's supplement).

cycle c = 1, 2, ...:
k rounds:       p_t ~ Uniform[l, u],  original k = 2, modified k = sqrt(d log(2 c)) to the nearest integer
then c rounds:  theta = MLE of all experiments so far,  p_t = p*(theta, z_t)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hushprice.policies.episodes import EpisodePolicy
from hushprice.policies.exchange import Variant, as_variant


@dataclass(frozen=True, kw_only=True)
class MLECycle(EpisodePolicy):
    """Cycles of a few experiments and a growing number of greedy rounds.

    Parameters
    ----------
    variant : {"modified", "original"}
        The original explores too little in high dimension: its regret is of order d sqrt(T), that of the modified
        variant of order sqrt(d T log T).
    **options
        Those of :class:`Policy`.

    Examples
    --------
    >>> [MLECycle(family="logistic", dim=9, prices=(0, 3)).episode(c) for c in (1, 10, 100)]
    [(2, 1), (5, 10), (7, 100)]
    """

    name: ClassVar[str] = "mle-cycle"
    use: ClassVar[str] = "A few uniform experiments again and again: when experiments must be few and clearly marked."
    variant: Variant = "modified"

    def __post_init__(self) -> None:
        super().__post_init__()
        as_variant(self.variant)

    def episode(self, q: int) -> tuple[int, int]:
        c = q
        if self.variant == "original":
            return 2, c
        return max(1, round(math.sqrt(self.dim * math.log(2 * c)))), c
