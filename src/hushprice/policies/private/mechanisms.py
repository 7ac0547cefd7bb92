"""The mechanisms of private policies and the options that choose them: each base class below defines ``_mechanism``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from hushprice.errors import InvalidInput, finite
from hushprice.policies.private.ball import BallPolicy
from hushprice.privacy import Gaussian, L2Ball, PrivUnit, VectorMechanism
from hushprice.privacy.gaussian import Calibration

PureMechanism = Literal["l2-ball", "privunit"]


@dataclass(frozen=True, kw_only=True)
class PureLDP(BallPolicy):
    """Base class of the epsilon-LDP policies.

    Parameters
    ----------
    noise : {"l2-ball", "privunit"}
        The mechanism: L2Ball, as in the paper, or PrivUnit, which has less noise.
    **options
        Those of :class:`BallPolicy`.
    """

    noise: PureMechanism = "l2-ball"

    def __post_init__(self) -> None:
        if not isinstance(self.noise, str) or self.noise not in get_args(PureMechanism):
            raise InvalidInput(
                f"noise must be one of {', '.join(get_args(PureMechanism))}, got {self.noise!r}. For Gaussian noise "
                f"take ETCLDPApprox."
            )
        super().__post_init__()

    def _mechanism(self) -> VectorMechanism:
        kind = PrivUnit if self.noise == "privunit" else L2Ball
        return kind(epsilon=self.epsilon, clip=self.clip, dim=2 * self.dim)


@dataclass(frozen=True, kw_only=True)
class ApproximateLDP(BallPolicy):
    """Base class of the (epsilon, delta)-LDP policies, which add Gaussian noise.

    Parameters
    ----------
    delta : float
        The delta of the guarantee.
    calibration : {"analytic", "classical", "paper"}
        How the noise follows from the guarantee. "paper" is for the paper's figures; ``guarantee`` then says what it
        gives in fact.
    **options
        Those of :class:`BallPolicy`.
    """

    delta: float = 1e-3
    calibration: Calibration = "analytic"

    def __post_init__(self) -> None:
        self._set("delta", finite("delta", self.delta))
        super().__post_init__()

    def _mechanism(self) -> VectorMechanism:
        return Gaussian(
            epsilon=self.epsilon, delta=self.delta, clip=self.clip, dim=2 * self.dim, calibration=self.calibration
        )
