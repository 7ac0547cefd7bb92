"""What a simulation may know and no policy does: Theta near the truth (the paper's auto loan study), today's prices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, overload

import numpy as np

from hushprice.errors import InvalidInput, finite
from hushprice.markets import Block, Market
from hushprice.policies import BallPolicy, Policy
from hushprice.policies.loop import Sold
from hushprice.privacy import Entropy


@dataclass(frozen=True)
class NearTruth:
    """A private policy whose Theta is centred anew in each replication.

    The centre is uniform in the ball of radius ``reach`` around the policy's own: of a direction that is uniform and a
    length reach U^(1/2d), U uniform.
    """

    policy: BallPolicy
    reach: float = 1.0

    def __post_init__(self) -> None:
        if self.policy.as_ball() is None:
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


@dataclass(frozen=True)
class Today:
    """The prices customers get today: those that come with them, or one for each segment.

    They need not be allowed: where such a price earns more than the best allowed one, its regret is less than nothing.
    Not a policy, as nobody but the market knows what a customer is quoted today; but it is simulated like one.
    """

    prices: Mapping[str, float] | None = None
    name: ClassVar[str] = "today"

    def __post_init__(self) -> None:
        if self.prices is not None:
            prices = {name: finite(f"today's price of {name!r}", p, minimum=0.0) for name, p in self.prices.items()}
            object.__setattr__(self, "prices", prices)

    def config(self) -> dict[str, Any]:
        """Today's prices by segment, or None."""
        return {"prices": self.prices}

    def loop(self, entropy: Entropy | None = None) -> TodayLoop:
        """What sells at today's prices."""
        return TodayLoop(self)

    def check(self, market: Market) -> None:
        """Refuse a market that does not say what its customers are quoted today."""
        if self.prices is None:
            if getattr(market.contexts, "today", None) is None:
                raise InvalidInput(f"Nothing is known of today's prices in the market {market.name}.")
        elif missing := set(market.segments) - set(self.prices):
            raise InvalidInput(f"Today's price of the segment {sorted(missing)[0]!r} is missing.")
        elif not market.segments:
            raise InvalidInput(f"The market {market.name} has no segments to give today's prices for.")


class TodayLoop:
    """Sells at today's prices and learns nothing."""

    def __init__(self, policy: Today) -> None:
        self.policy = policy

    def sell(self, customers: Block, rng: np.random.Generator) -> Sold:
        """Today's prices."""
        prices, segment = customers.today, customers.segment
        if self.policy.prices is not None and segment is not None:
            prices = np.array([self.policy.prices[name] for name in customers.market.segments])[segment]
        assert prices is not None
        customers.buy(slice(0, len(prices)), prices)
        customers.regret[:] = customers.lost(prices)  # they may be better than any that is allowed
        return Sold(prices, 0, math.nan, math.nan)  # without an estimate no price is known to be best


Simulated = Policy | NearTruth | Today
"""What can be simulated: a policy, one that is drawn anew in each replication, or today's prices."""


@overload
def plain(policy: Policy | NearTruth) -> Policy: ...
@overload
def plain(policy: Today) -> Today: ...
def plain(policy: Simulated) -> Policy | Today:
    """The policy that stands for all replications."""
    return policy.policy if isinstance(policy, NearTruth) else policy
