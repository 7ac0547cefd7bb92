"""Arrays of numbers, checked at the edge. (In a file of its own, since a device has no NumPy.)"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from hushprice.errors import InvalidInput, shown

Array = npt.NDArray[np.float64]


def array(name: str, value: Any, *, shape: tuple[int | None, ...], limit: float = math.inf) -> Array:
    """A finite, C-contiguous float array of the given shape; ``None`` leaves a length free.

    ``limit`` bounds the size of its values.
    """
    try:
        raw = np.asarray(value)
        if raw.size and raw.dtype.kind not in "biufO":
            raise TypeError
        result = np.ascontiguousarray(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"{name} must be numbers, got {shown(value)}.") from None
    if len(shape) != raw.ndim or any(w not in (None, h) for w, h in zip(shape, raw.shape, strict=True)):
        want = "(" + ", ".join("any" if s is None else str(s) for s in shape) + ("," if len(shape) == 1 else "") + ")"
        raise InvalidInput(f"{name} must have shape {want}, got {raw.shape}.")
    if not np.isfinite(result).all():
        bad = np.count_nonzero(~np.isfinite(result))
        raise InvalidInput(f"{name} must be finite, but {bad} of its {result.size} values are NaN or infinite.")
    if limit < math.inf and result.size and (largest := np.abs(result).max()) > limit:
        raise InvalidInput(f"{name} must not exceed {limit:g} in size, got {largest:g}: give it in larger units.")
    return result
