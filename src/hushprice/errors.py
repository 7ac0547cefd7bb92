"""What can go wrong, and the checks that say so at the edge of the package.

Every refusal is a :class:`HushpriceError` (a ``ValueError``) whose text says what was wrong and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from numbers import Integral
from typing import Any, TypeVar


class HushpriceError(ValueError):
    """Base of every refusal by hushprice."""


class InvalidInput(HushpriceError):
    """An argument is out of its domain; nothing was changed."""


class MissingOption(InvalidInput):
    """Something that has no default was not given."""


class NoMLE(HushpriceError):
    """The maximum likelihood estimate does not exist (separable records)."""


class BudgetSpent(HushpriceError):
    """One more report would exceed a customer's privacy budget; none was made."""


class BrokenPromise(HushpriceError):
    """A server asks a device for more than it promised its customer; no price and no report is made."""


class LedgerError(HushpriceError):
    """A ledger cannot be read or kept, so that no report may be made."""


class SnapshotError(HushpriceError):
    """A snapshot file is corrupt, foreign or of an unknown version."""


def unknown(kind: str, name: object, known: Iterable[str]) -> InvalidInput:
    """The error for a name that is not in a registry, with the nearest ones."""
    names = sorted(known)
    return InvalidInput(f"There is no {kind} called {name!r}.{nearest(name, names)} Known: {', '.join(names)}.")


def nearest(name: object, names: Iterable[str]) -> str:
    """The question whether another name was meant, or nothing if none is near."""
    close = get_close_matches(str(name).lower(), list(names), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


T = TypeVar("T")


def discreetly(check: Callable[[], T], text: str) -> T:
    """The outcome of a check on private values. A refusal tells nothing of them, not even in its chain of causes."""
    try:
        return check()
    except (HushpriceError, TypeError, ValueError, OverflowError):
        pass
    raise InvalidInput(f"{text} What was given is not told, as it is private.")


LARGEST_COUNT = 2**53  # beyond it a float no longer counts by ones
LARGEST_DIM = 10_000  # an estimator holds (2 d)^2 numbers
LARGEST_VALUE = 1e12  # beyond it squares and sums of squares lose what the small values say


def positive_int(name: str, value: Any, *, minimum: int = 1, maximum: int = LARGEST_COUNT) -> int:
    """A whole number between ``minimum`` and ``maximum``."""
    whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    if _is_truth(value) or not whole or not minimum <= int(value) <= maximum:
        most = "" if maximum == LARGEST_COUNT else f" and at most {maximum}"
        raise InvalidInput(f"{name} must be a whole number of at least {minimum}{most}, got {shown(value)}.")
    return int(value)


def finite(
    name: str, value: Any, *, minimum: float = -math.inf, maximum: float = math.inf, strict: bool = False
) -> float:
    """A finite real number between ``minimum`` (excluded if strict) and ``maximum``."""
    try:
        if isinstance(value, (str, bytes)) or _is_truth(value):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"{name} must be a number, got {shown(value)}.") from None
    too_small = number <= minimum if strict else number < minimum
    if not math.isfinite(number) or too_small or number > maximum:
        bound = "" if minimum == -math.inf else f" {'above' if strict else 'of at least'} {minimum:g}"
        bound += "" if maximum == math.inf else f" and at most {maximum:g}"
        raise InvalidInput(f"{name} must be a finite number{bound}, got {shown(value)}.")
    return number


def _is_truth(value: Any) -> bool:
    """Whether it is true or false, Python's or NumPy's (which devices need not have)."""
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def shown(value: Any) -> str:
    """A value in an error text, cut short."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number too long to show"
    return text if len(text) <= 60 else text[:57] + "..."


def price_range(value: Any) -> tuple[float, float]:
    """A pair (low, high) with 0 <= low < high."""
    try:
        low, high = value
    except (TypeError, ValueError):
        raise InvalidInput(f"prices must be a pair (low, high), got {value!r}.") from None
    low, high = (
        finite(f"the {end} price", p, minimum=0.0, maximum=LARGEST_VALUE)
        for end, p in (("lowest", low), ("highest", high))
    )
    if low >= high:
        hint = f" Did you mean ({high:g}, {low:g})?" if low > high else ""
        raise InvalidInput(f"prices must be (low, high) with low < high, got ({low:g}, {high:g}).{hint}")
    return low, high
