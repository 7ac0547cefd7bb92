"""supCB (the paper's supplement): prices are eliminated in stages that share no record, for a known horizon T.

S = floor(log2 T) stages, K = ceil(sqrt(T/d) / log T) equispaced prices, alpha = width_scale log log(T) sqrt(log(3 T^1.5 K S)).
First tau = ceil(sqrt(d T)) rounds per stage: a random price of the grid.
Then per customer, from stage s = 1 with all K prices: r_a = (p_a - cost) psi'(x_a.theta_s), w_a = alpha |x_a|_{V_s^-1};
  some w_a > 2^-s:       the price of the largest w_a; the record goes to stage s
  all w_a <= 1/sqrt(T):  the price of the largest r_a; nothing is recorded
  otherwise:             on to stage s + 1 with the prices whose r_a >= max r - 2 2^-s

Whether a record goes to stage s depends on earlier stages and on the widths of stage s, never on the outcomes in stage
s, so that these are independent given their x.
"""  # noqa: E501

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hushprice.policies.bounds import BoundPolicy, KnownHorizon, Plan, loglog
from hushprice.policies.exchange import FOREVER
from hushprice.policies.phases import Phase


def _plan(T: int, *, dim: int, width_scale: float, explore: bool, length: int) -> Plan:
    """The parameters for horizon T; at least one stage and two prices."""
    T = max(T, 2)
    S = max(1, math.floor(math.log2(T)))
    K = max(2, math.ceil(math.sqrt(T / dim) / math.log(T)))
    return Plan(
        length=length,
        alpha=width_scale * loglog(T) * math.sqrt(math.log(3.0 * T**1.5 * K * S)),
        stages=S,
        tau=math.ceil(math.sqrt(dim * T)) if explore else 0,
        arms=K,
        floor=1.0 / math.sqrt(T),
    )


@dataclass(frozen=True, kw_only=True)
class SupCB(KnownHorizon):
    """Elimination of prices in stages. Regret of order sqrt(d T) log(T)^(3/2), even without a unique optimal price.

    Parameters
    ----------
    horizon : int
        Number of customers T.
    width_scale : float
        Factor on the width of the bounds; 1 is the width in the paper.
    **options
        Those of :class:`Policy`.

    Notes
    -----
    At the paper's width the bounds exceed the revenues for most of any practical horizon, so supCB quotes extreme
    prices and has tens of times the regret of ETC. With ``width_scale=0.01`` it has 3 to 5 times that regret in the
    paper's markets, where the paper reports 3 to 4 (docs/measurements.md).

    Examples
    --------
    >>> plan = SupCB(family="logistic", dim=4, prices=(0, 3), horizon=10_000).plan(1)
    >>> plan.stages, plan.tau, plan.arms, round(plan.alpha, 2)
    (13, 200, 6, 9.75)
    """

    name: ClassVar[str] = "supcb"
    use: ClassVar[str] = "For theory: a guarantee without a unique best price. It experiments much."
    phase: ClassVar[Phase] = Phase.STAGES

    def plan(self, k: int) -> Plan:
        return _plan(self.horizon, dim=self.dim, width_scale=self.width_scale, explore=True, length=FOREVER)


@dataclass(frozen=True, kw_only=True)
class SupCBDoubling(BoundPolicy):
    """supCB for an unknown horizon: it restarts with T = 2^k in episode k = 1, 2, ...

    Parameters
    ----------
    width_scale : float
        As for :class:`SupCB`.
    **options
        Those of :class:`Policy`.
    """

    name: ClassVar[str] = "supcb-doubling"
    use: ClassVar[str] = "As supcb, for an unknown number of customers."
    phase: ClassVar[Phase] = Phase.STAGES

    def plan(self, k: int) -> Plan:
        T = 2**k
        return _plan(T, dim=self.dim, width_scale=self.width_scale, explore=True, length=T)


@dataclass(frozen=True, kw_only=True)
class SupCBAdversarial(KnownHorizon):
    """supCB for adversarial contexts: the ridge estimate and V + ridge I replace the experiments.

    Parameters
    ----------
    horizon, width_scale
        As for :class:`SupCB`.
    **options
        Those of :class:`Policy`.
    """

    name: ClassVar[str] = "supcb-adversarial"
    use: ClassVar[str] = "As supcb, for customers in an order that somebody chose."
    phase: ClassVar[Phase] = Phase.STAGES

    def plan(self, k: int) -> Plan:
        return _plan(self.horizon, dim=self.dim, width_scale=self.width_scale, explore=False, length=FOREVER)
