"""The limit on the size of a product's state, which is held in memory and stored as one snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hushprice.errors import InvalidInput
from hushprice.service.core.learner import Learner
from hushprice.service.definition import Definition

MAX_STATE_BYTES = 2**28


def fits(definition: Definition) -> None:
    """Raise :class:`InvalidInput` if a product's state would be too large; called before the product is stored."""
    try:
        size = weight(Learner(definition).state())
    except MemoryError:
        size = MAX_STATE_BYTES + 1
    if size > MAX_STATE_BYTES:
        raise InvalidInput(
            f"What would be learned of {definition.name} takes more than {MAX_STATE_BYTES // 2**20} MiB: "
            "give it a smaller dim."
        )


def weight(value: Any) -> int:
    """Bytes of all arrays in nested plain data.

    >>> weight({"a": np.zeros(3), "b": [np.zeros((2, 2)), 1.0]})
    56
    """
    if isinstance(value, Mapping):
        return sum(map(weight, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(weight, value))
    return value.nbytes if isinstance(value, np.ndarray) else 0
