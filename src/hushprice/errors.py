"""The exceptions of hushprice, and the validation of arguments.

Every refusal is a :class:`HushpriceError` (a ``ValueError``) whose text says what was wrong and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from numbers import Integral
from typing import Any, TypeVar


class HushpriceError(ValueError):
    """Base class of all exceptions of hushprice."""


class InvalidInput(HushpriceError):
    """An argument is out of its domain. Nothing was changed."""


class MissingOption(InvalidInput):
    """An option without a default is missing."""


class NoMLE(HushpriceError):
    """The maximum likelihood estimate does not exist (separable records)."""


class BudgetSpent(HushpriceError):
    """One more report would exceed a customer's privacy budget. No report was made."""


class BrokenPromise(HushpriceError):
    """A server asks a device for more than the device promised its customer. No price and no report is made."""


class LedgerError(HushpriceError):
    """A ledger cannot be read or written, so no report may be made."""


class SnapshotError(HushpriceError):
    """A snapshot file is corrupt, not a snapshot, or of an unknown version."""


def unknown(kind: str, name: object, known: Iterable[str]) -> InvalidInput:
    """Return the error for a name that is not in a registry.

    Parameters
    ----------
    kind : str
        The kind of object, such as "policy".
    name : object
        The unknown name.
    known : iterable of str
        The names in the registry. The text suggests the closest one.
    """
    names = sorted(known)
    return InvalidInput(f"There is no {kind} called {name!r}.{nearest(name, names)} Known: {', '.join(names)}.")


def nearest(name: object, names: Iterable[str]) -> str:
    """Return the question whether the closest name was meant, or an empty text if none is close."""
    close = get_close_matches(str(name).lower(), list(names), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


T = TypeVar("T")


def discreetly(check: Callable[[], T], text: str) -> T:
    """Run a check on private values, and raise errors that do not reveal them.

    Parameters
    ----------
    check : callable
        Returns the checked values, or raises an error that may repeat them.
    text : str
        Text of the error in its place, which says what is allowed.

    Raises
    ------
    InvalidInput
        If the check fails. Neither the text nor the chain of causes repeats a value.
    """
    try:
        return check()
    except (HushpriceError, TypeError, ValueError, OverflowError):
        pass
    raise InvalidInput(f"{text} The value is private and is not repeated here.")


LARGEST_COUNT = 2**53  # beyond it floats skip integers
LARGEST_DIM = 10_000  # an estimator stores (2 d)^2 numbers
LARGEST_VALUE = 1e12  # beyond it small values vanish in sums of squares


def positive_int(name: str, value: Any, *, minimum: int = 1, maximum: int = LARGEST_COUNT) -> int:
    """Return a value as an int.

    Parameters
    ----------
    name : str
        Name of the argument, for error texts.
    value : Any
        The value; an integral float is accepted, a bool is not.
    minimum, maximum : int
        Least and largest allowed value.

    Raises
    ------
    InvalidInput
        If it is not such a number.
    """
    whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    if _is_bool(value) or not whole or not minimum <= int(value) <= maximum:
        most = "" if maximum == LARGEST_COUNT else f" and at most {maximum}"
        raise InvalidInput(f"{name} must be a whole number of at least {minimum}{most}, got {short_repr(value)}.")
    return int(value)


def finite(
    name: str, value: Any, *, minimum: float = -math.inf, maximum: float = math.inf, strict: bool = False
) -> float:
    """Return a value as a finite float.

    Parameters
    ----------
    name : str
        Name of the argument, for error texts.
    value : Any
        The value; a text or a bool is refused.
    minimum, maximum : float
        Least and largest allowed value.
    strict : bool
        Whether ``minimum`` itself is excluded.

    Raises
    ------
    InvalidInput
        If it is not such a number.
    """
    try:
        if isinstance(value, (str, bytes)) or _is_bool(value):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"{name} must be a number, got {short_repr(value)}.") from None
    too_small = number <= minimum if strict else number < minimum
    if not math.isfinite(number) or too_small or number > maximum:
        bound = "" if minimum == -math.inf else f" {'above' if strict else 'of at least'} {minimum:g}"
        bound += "" if maximum == math.inf else f" and at most {maximum:g}"
        raise InvalidInput(f"{name} must be a finite number{bound}, got {short_repr(value)}.")
    return number


def _is_bool(value: Any) -> bool:
    """Whether a value is a bool of Python or of NumPy, which devices need not have."""
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def short_repr(value: Any) -> str:
    """Return the repr of a value for an error text, at most 60 characters long."""
    try:
        text = repr(value)
    except ValueError:  # an int of thousands of digits
        return "a number too long to show"
    return text if len(text) <= 60 else text[:57] + "..."


def price_range(value: Any) -> tuple[float, float]:
    """Return a pair (low, high) with 0 <= low < high, or raise :class:`InvalidInput`."""
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
