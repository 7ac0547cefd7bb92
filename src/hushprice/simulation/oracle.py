"""What a simulation may know and no seller does: Theta near the truth, as in the paper's auto loan study."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hushprice.errors import InvalidInput, finite
from hushprice.policies import Policy, PrivatePolicy


@dataclass(frozen=True)
class NearTruth:
    """A private policy whose Theta is centred anew in each replication.

    The centre is uniform in the ball of radius ``reach`` around the policy's own: of a direction that is uniform and a
    length reach U^(1/2d), U uniform.
    """

    policy: PrivatePolicy
    reach: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.policy, PrivatePolicy):
            raise InvalidInput("Only a private policy has a Theta whose centre can be drawn.")
        object.__setattr__(self, "reach", finite("reach", self.reach, minimum=0.0))

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.policy.name

    def config(self) -> dict[str, Any]:
        """The policy's configuration, and how far its centre strays."""
        return self.policy.config() | {"centre_drawn_within": self.reach}

    def draw(self, rng: np.random.Generator) -> Policy:
        """The policy of one replication."""
        n = 2 * self.policy.dim
        direction = rng.standard_normal(n)
        length = self.reach * rng.random() ** (1.0 / n) / np.sqrt((direction * direction).sum())
        centre = np.array(self.policy.centre) + length * direction
        return replace(self.policy, centre=tuple(centre.tolist()), start_at=None)


Simulated = Policy | NearTruth
"""What can be simulated: a policy, or one that is drawn anew in each replication."""


def plain(policy: Simulated) -> Policy:
    """The policy that stands for all replications."""
    return policy.policy if isinstance(policy, NearTruth) else policy
