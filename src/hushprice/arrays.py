"""Validation of arrays. It is a module of its own because ``errors`` is also for devices, which have no NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from hushprice.errors import InvalidInput, short_repr

Array = npt.NDArray[np.float64]


def array(name: str, value: Any, *, shape: tuple[int | None, ...], limit: float = math.inf) -> Array:
    """Return a value as a finite, C-contiguous float array.

    Parameters
    ----------
    name : str
        Name of the argument, for error texts.
    value : array_like
        The value.
    shape : tuple of int or None
        The required shape; None allows any length.
    limit : float
        Largest absolute value.

    Raises
    ------
    InvalidInput
        If the value is not such an array.
    """
    try:
        raw = np.asarray(value)
        if raw.size and raw.dtype.kind not in "biufO":
            raise TypeError
        result = np.ascontiguousarray(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"{name} must be numbers, got {short_repr(value)}.") from None
    if len(shape) != raw.ndim or any(w not in (None, h) for w, h in zip(shape, raw.shape, strict=True)):
        want = "(" + ", ".join("any" if s is None else str(s) for s in shape) + ("," if len(shape) == 1 else "") + ")"
        raise InvalidInput(f"{name} must have shape {want}, got {raw.shape}.")
    if not np.isfinite(result).all():
        bad = np.count_nonzero(~np.isfinite(result))
        raise InvalidInput(f"{name} must be finite, but {bad} of its {result.size} values are NaN or infinite.")
    if limit < math.inf and result.size and (largest := np.abs(result).max()) > limit:
        raise InvalidInput(f"{name} must not exceed {limit:g} in size, got {largest:g}: give it in larger units.")
    return result
