"""Exceptions of the service, in addition to :class:`~hushprice.errors.InvalidInput` (422 over HTTP).

Their texts never contain a value that a device or a customer sent.
"""

from __future__ import annotations

from typing import TypeVar

from hushprice.errors import HushpriceError

P = TypeVar("P", bound=HushpriceError)


def about(problem: P, key: str, number: int, count: int) -> P:
    """Annotate an error with the index of the item of a batch that caused it.

    Parameters
    ----------
    problem : HushpriceError
        The error.
    key : str
        The key of the batch in the body, such as "reports".
    number : int
        The index of the item.
    count : int
        How many items the batch has; for a single one nothing is annotated.

    Returns
    -------
    HushpriceError
        The same error; ``where`` is its place in the body.
    """
    if count > 1:
        problem.where = [key, number]  # type: ignore[attr-defined]
    return problem


class NotFound(HushpriceError):
    """There is no such product, offer or version (404)."""


class Conflict(HushpriceError):
    """The request contradicts the log: the same id with different contents, or the other kind of product (409)."""


class Unavailable(HushpriceError):
    """The database is unreachable or the queue is full. Nothing was acknowledged: try again (503)."""


class Rejected(Unavailable):
    """The database refused a statement because of one of the commands in the transaction."""


class Failed(HushpriceError):
    """An error of the service itself, recorded in its log; trying again does not help (500)."""


class LogRewound(Exception):
    """The last event that this process has read is missing from the product's log or differs, as after a restore."""


class DamagedLog(Unavailable):
    """The log has gaps or unreadable events: someone changed it, or a newer hushprice wrote it."""
