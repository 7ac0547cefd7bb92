"""The baselines of Wang, Talluri and Li, *On Dynamic Pricing with Covariates* (Operations Research, 2025).

theta_hat, V and alpha as in UCB.
TS-WTL:   theta ~ N(theta_hat, alpha^2 V^-1),  p_t = p*(theta, z_t)
UCB-WTL:  theta_1 .. theta_M uniform in |theta - theta_hat|_V <= alpha,  p_t = p*(theta_k, z_t) of the most profitable k

A price depends on theta only through (z.alpha, z.beta), so the device draws these two numbers per theta instead of 2 d;
their distribution is that of the projected 2 d-vector (``kernels/confidence.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hushprice.errors import positive_int
from hushprice.policies.phases import Phase
from hushprice.policies.ucb import AdversarialPolicy


@dataclass(frozen=True, kw_only=True)
class ThompsonWTL(AdversarialPolicy):
    """Thompson sampling: the greedy price of a theta drawn around the estimate.

    Parameters
    ----------
    horizon, width_scale
        As for :class:`UCB`.
    **options
        Those of :class:`Policy`.
    """

    name: ClassVar[str] = "ts-wtl"
    use: ClassVar[str] = "As ucb, with random prices of known density."
    phase: ClassVar[Phase] = Phase.SAMPLE


@dataclass(frozen=True, kw_only=True)
class UCBWTL(AdversarialPolicy):
    """Optimism by Monte Carlo: the greedy price of the most profitable of several points of the confidence set.

    Parameters
    ----------
    samples : int
        Number of points M.
    horizon, width_scale
        As for :class:`UCB`.
    **options
        Those of :class:`Policy`.
    """

    name: ClassVar[str] = "ucb-wtl"
    use: ClassVar[str] = "As ucb, by several guesses of demand instead of a bound."
    phase: ClassVar[Phase] = Phase.SET
    samples: int = 100

    def __post_init__(self) -> None:
        self._set("samples", positive_int("samples", self.samples, maximum=10_000))
        super().__post_init__()

    @property
    def uniforms(self) -> int:
        return 2 * self.samples
