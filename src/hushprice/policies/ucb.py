"""UCB for adversarial contexts (the paper's supplement), for a known horizon T.

theta = argmin sum_i [psi(x_i.theta) - y_i x_i.theta] + ridge/2 |theta|^2,   V = ridge I + sum_i x_i x_i'
p_t = argmax over p in [l, u] of (p - cost) psi'(x.theta + alpha |x|_{V^-1}),   x = (z_t, -p z_t)
alpha = width_scale sqrt(d log T) log log(T) / 10
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hushprice.policies.bounds import KnownHorizon, Plan, loglog
from hushprice.policies.exchange import FOREVER
from hushprice.policies.phases import Phase


@dataclass(frozen=True, kw_only=True)
class AdversarialPolicy(KnownHorizon):
    """One estimate from all sales and no experiments, for contexts in any order, with the paper's width."""

    @property
    def alpha(self) -> float:
        """Factor of the confidence widths."""
        T = max(self.horizon, 2)
        return self.width_scale * math.sqrt(self.dim * math.log(T)) * loglog(T) / 10.0

    def plan(self, k: int) -> Plan:
        return Plan(length=FOREVER, alpha=self.alpha)


@dataclass(frozen=True, kw_only=True)
class UCB(AdversarialPolicy):
    """The price of the largest upper confidence bound on revenue. Regret of order d sqrt(T) log T for any contexts.

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
    The regret needs valid bounds. The paper's width is meant for yes/no sales. With noisier demand, or with a theta
    that is large relative to the width, UCB can settle on a wrong price: raise ``width_scale`` or lower ``ridge``.

    The bound can have several local maxima in the price; ``kernels/ucb_price.py`` computes the global one.

    Examples
    --------
    >>> round(UCB(family="logistic", dim=4, prices=(0, 3), horizon=10_000).alpha, 3)
    1.348
    """

    name: ClassVar[str] = "ucb"
    use: ClassVar[str] = "No randomness and a guarantee for any order of customers. It needs their number."
    phase: ClassVar[Phase] = Phase.INDEX
