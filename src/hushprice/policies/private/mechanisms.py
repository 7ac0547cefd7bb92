"""The mechanisms of the epsilon-LDP policies: L2Ball or PrivUnit. (ETCLDPApprox uses ``privacy.Gaussian``.)"""

from __future__ import annotations

from typing import Literal, get_args

from hushprice.errors import InvalidInput
from hushprice.privacy import L2Ball, PrivUnit, VectorMechanism

PureMechanism = Literal["l2-ball", "privunit"]


def as_pure(noise: PureMechanism) -> PureMechanism:
    """Check the option ``noise`` of the epsilon-LDP policies."""
    if not isinstance(noise, str) or noise not in get_args(PureMechanism):
        raise InvalidInput(
            f"noise must be one of {', '.join(get_args(PureMechanism))}, got {noise!r}. For Gaussian noise "
            f"take ETCLDPApprox."
        )
    return noise


def pure(noise: PureMechanism, *, epsilon: float, clip: float, dim: int) -> VectorMechanism:
    """Build an epsilon-LDP mechanism.

    Parameters
    ----------
    noise : {"l2-ball", "privunit"}
        L2Ball, as in the paper, or PrivUnit, which has less noise.
    epsilon, clip, dim : float, float, int
        Arguments of the mechanism.

    Examples
    --------
    >>> pure("privunit", epsilon=1.0, clip=2.0, dim=4).name
    'privunit'
    """
    kind = PrivUnit if noise == "privunit" else L2Ball
    return kind(epsilon=epsilon, clip=clip, dim=dim)
