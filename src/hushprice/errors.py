"""What can go wrong, and the checks that say so at the edge of the package.

Every refusal is a :class:`HushpriceError` (a ``ValueError``) whose text says what was wrong and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class HushpriceError(ValueError):
    """Base of every refusal by hushprice."""


class InvalidInput(HushpriceError):
    """An argument is out of its domain; nothing was changed."""


class NoMLE(HushpriceError):
    """The maximum likelihood estimate does not exist (separable records)."""


class SnapshotError(HushpriceError):
    """A snapshot file is corrupt, foreign or of an unknown version."""


def unknown(kind: str, name: object, known: Iterable[str]) -> InvalidInput:
    """The error for a name that is not in a registry, with the nearest ones."""
    names = sorted(known)
    close = get_close_matches(str(name).lower(), names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return InvalidInput(f"There is no {kind} called {name!r}.{hint} Known: {', '.join(names)}.")


def positive_int(name: str, value: Any, *, minimum: int = 1) -> int:
    """A whole number of at least ``minimum``."""
    whole = isinstance(value, (int, np.integer)) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, (bool, np.bool_)) or not whole or int(value) < minimum:
        raise InvalidInput(f"{name} must be a whole number of at least {minimum}, got {value!r}.")
    return int(value)


def finite(name: str, value: Any, *, minimum: float = -math.inf, strict: bool = False) -> float:
    """A finite real number, at least (or, if strict, above) ``minimum``."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be a number, got {value!r}.") from None
    too_small = number <= minimum if strict else number < minimum
    if not math.isfinite(number) or too_small:
        bound = "" if minimum == -math.inf else f" {'above' if strict else 'of at least'} {minimum:g}"
        raise InvalidInput(f"{name} must be a finite number{bound}, got {value!r}.")
    return number


def price_range(value: Any) -> tuple[float, float]:
    """A pair (low, high) with 0 <= low < high."""
    try:
        low, high = value
    except (TypeError, ValueError):
        raise InvalidInput(f"prices must be a pair (low, high), got {value!r}.") from None
    low, high = finite("the lowest price", low, minimum=0.0), finite("the highest price", high, minimum=0.0)
    if low >= high:
        hint = f" Did you mean ({high:g}, {low:g})?" if low > high else ""
        raise InvalidInput(f"prices must be (low, high) with low < high, got ({low:g}, {high:g}).{hint}")
    return low, high


def array(name: str, value: Any, *, shape: tuple[int | None, ...]) -> Array:
    """A finite, C-contiguous float array of the given shape; ``None`` leaves a length free."""
    try:
        result = np.ascontiguousarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be numbers, got {type(value).__name__}.") from None
    if result.ndim == 0 and len(shape) == 1:
        result = result.reshape(1)
    fits = len(shape) == result.ndim and all(w in (None, h) for w, h in zip(shape, result.shape, strict=True))
    if not fits or np.ndim(value) != len(shape):
        want = "(" + ", ".join("any" if s is None else str(s) for s in shape) + ("," if len(shape) == 1 else "") + ")"
        raise InvalidInput(f"{name} must have shape {want}, got {np.shape(value)}.")
    bad = np.count_nonzero(~np.isfinite(result))
    if bad:
        raise InvalidInput(f"{name} must be finite, but {bad} of its {result.size} values are NaN or infinite.")
    return result
