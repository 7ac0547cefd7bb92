"""Offers that wait for their outcome: one set of rules for the fold and for the export of the log.

An offer leaves the set when its outcome comes, when it has waited too long, or when a rollback goes back to an event
before it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from hushprice.arrays import Array


class Numbered(Protocol):
    """What an event made, with the number and the time of that event."""

    @property
    def seq(self) -> int: ...
    @property
    def at(self) -> float: ...


class OpenOffer(NamedTuple):
    """What a learner needs of an offer to learn from its outcome."""

    seq: int  # of the event
    z: Array
    price: float
    stage: int  # the estimate that the outcome is for; 0 if it is not learned from
    cost: float
    at: float


OfferT = TypeVar("OfferT", bound=Numbered)


class OpenOffers(Generic[OfferT]):
    """Open offers by id, in the order in which they were made.

    Parameters
    ----------
    wait : float
        How many seconds an offer waits for its outcome.

    Examples
    --------
    >>> class Made(NamedTuple):
    ...     seq: int
    ...     at: float
    >>> offers = OpenOffers(wait=10.0)
    >>> for seq in (1, 2, 3):
    ...     offers.add(f"offer-{seq}", Made(seq, at=float(seq)))
    >>> offers.close("offer-1"), offers.close("offer-1")
    (Made(seq=1, at=1.0), None)
    >>> list(offers.expire(12.5)), offers.undo(2), len(offers)
    ([Made(seq=2, at=2.0)], [Made(seq=3, at=3.0)], 0)
    """

    def __init__(self, wait: float) -> None:
        self.wait = wait
        self._offers: OrderedDict[str, OfferT] = OrderedDict()

    def add(self, key: str, offer: OfferT) -> None:
        """Add an offer."""
        self._offers[key] = offer

    def close(self, key: str) -> OfferT | None:
        """Remove and return the offer with this id; None if it is not open."""
        return self._offers.pop(key, None)

    def due(self, now: float) -> bool:
        """Whether an offer has waited too long. (Only the oldest one, which comes first, is checked.)"""
        return bool(self._offers) and next(iter(self._offers.values())).at + self.wait <= now

    def expire(self, now: float) -> Iterator[OfferT]:
        """Close the offers that have waited too long, oldest first."""
        while self.due(now):
            yield self._offers.popitem(last=False)[1]

    def undo(self, seq: int) -> list[OfferT]:
        """Close the offers made after event ``seq``."""
        later = [key for key, offer in self._offers.items() if offer.seq > seq]
        return [self._offers.pop(key) for key in later]

    def items(self) -> list[tuple[str, OfferT]]:
        """(id, offer), oldest first."""
        return list(self._offers.items())

    def __contains__(self, key: object) -> bool:
        return key in self._offers

    def __len__(self) -> int:
        return len(self._offers)
