"""What a device promises its customer: the most that a server may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hushprice.device.guarantee import Guarantee, as_epsilon
from hushprice.device.mechanism import NAMES, Mechanism
from hushprice.errors import LARGEST_VALUE, BrokenPromise, HushpriceError, InvalidInput, finite, price_range, unknown

NO_MORE = "No price and no report is made."
_CLIP_ROUNDING = 1.0 + 1e-9  # a clip bound comes out of a square root; what is promised of epsilon holds whatever it is
_FIELDS = ("name", "epsilon", "delta", "clip", "dim", "pairs", "top", "sd")


@dataclass(frozen=True, kw_only=True)
class Promise:
    """Fixed on the device, by whoever writes the shop's app, and shown to the customer.

    epsilon, delta: of one report, at most; clip: bound on the length of the score a report is about; mechanisms: those
    that may be used; prices: (low, high) that a price may never leave (any unless given).

    >>> print(Promise(epsilon=1.0, clip=4.0).guarantee)
    epsilon = 1: no report is more than 2.72 times as likely from one customer as from another
    """

    epsilon: float
    clip: float
    delta: float = 0.0
    mechanisms: tuple[str, ...] = NAMES
    prices: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "epsilon", as_epsilon(self.epsilon))
        put(self, "clip", finite("clip", self.clip, minimum=1e-100, maximum=LARGEST_VALUE))
        put(self, "delta", finite("delta", self.delta, minimum=0.0, maximum=0.5))
        if isinstance(self.mechanisms, str) or not self.mechanisms:
            raise InvalidInput("mechanisms must be a list of names, as in mechanisms=('l2-ball', 'privunit').")
        for name in self.mechanisms:
            if name not in NAMES:
                raise unknown("mechanism", name, NAMES)
        put(self, "mechanisms", tuple(self.mechanisms))
        if self.prices is not None:
            put(self, "prices", price_range(self.prices))

    @property
    def guarantee(self) -> Guarantee:
        """What one report gives away at most."""
        return Guarantee(self.epsilon, self.delta)

    def mechanism(self, asked: Any) -> Mechanism:
        """The mechanism a server asks for, if it is within the promise."""
        if not isinstance(asked, Mapping) or any(key not in asked for key in _FIELDS):
            raise BrokenPromise(f"The server does not say how reports are to be randomised. {NO_MORE}")
        if not isinstance(asked["name"], str) or asked["name"] not in self.mechanisms:
            raise BrokenPromise(f"The server asks for a mechanism other than {', '.join(self.mechanisms)}. {NO_MORE}")
        try:
            mechanism = Mechanism(**{key: asked[key] for key in _FIELDS})
        except HushpriceError as problem:
            raise BrokenPromise(f"The server asks for reports that keep no promise: {problem} {NO_MORE}") from None
        for name in ("epsilon", "delta", "clip"):
            most, wanted = getattr(self, name), getattr(mechanism, name)
            if wanted > most * (_CLIP_ROUNDING if name == "clip" else 1.0):
                raise BrokenPromise(f"The server asks for {name} = {wanted}; {most} is promised. {NO_MORE}")
        return mechanism

    def check_prices(self, low: float, high: float) -> None:
        """Refuse prices outside the promised range."""
        if self.prices is not None and (low < self.prices[0] or high > self.prices[1]):
            raise BrokenPromise(
                f"The server's prices [{low:g}, {high:g}] leave the promised range [{self.prices[0]:g}, "
                f"{self.prices[1]:g}]. {NO_MORE}"
            )
