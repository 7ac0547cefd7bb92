"""What a command can be refused with, next to :class:`~hushprice.errors.InvalidInput` (422 over HTTP).

Texts never hold a value that a device or a customer sent.
"""

from __future__ import annotations

from typing import TypeVar

from hushprice.errors import HushpriceError

P = TypeVar("P", bound=HushpriceError)


def about(problem: P, key: str, number: int, count: int) -> P:
    """The same refusal, which says of how many items sent under a key it is about which one (if there are several)."""
    if count > 1:
        problem.where = [key, number]  # type: ignore[attr-defined]
    return problem


class NotFound(HushpriceError):
    """There is no such product, offer or version (404)."""


class Conflict(HushpriceError):
    """It contradicts what is on record: the same id with other contents, or another kind of product (409)."""


class Unavailable(HushpriceError):
    """The database, or room in the queue, is missing for now: nothing was acknowledged, try again (503)."""


class Rejected(Unavailable):
    """The database refused a statement: something is wrong with one of the commands in it."""


class Failed(HushpriceError):
    """Something went wrong here and would again: it is in the log, and to try again is of no use (500)."""


class LogRewound(Exception):
    """The log of the product named is not what it was: its last event known here is gone, or another one, as after a
    restore."""


class DamagedLog(Unavailable):
    """The log has gaps or events that mean nothing: it was changed by other hands, or by a newer hushprice."""
