"""Plain data: a copy of it that nothing else writes to, and a fingerprint of it to the last bit."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np


def copied(value: Any) -> Any:
    """Nested plain data with arrays of its own."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [copied(item) for item in value]
    return value.copy() if isinstance(value, np.ndarray) else value


def digest(value: Any) -> str:
    """SHA-256 of nested plain data: of every name, every number to the last bit, and the shape of every array.

    >>> digest({"a": 1, "b": [0.5]}) == digest({"b": [0.5], "a": 1})
    True
    >>> digest(0.0) == digest(-0.0)
    False
    """
    told = hashlib.sha256()
    _tell(value, told)
    return told.hexdigest()


def _tell(value: Any, told: Any) -> None:
    if isinstance(value, np.ndarray):
        _word(told, b"a", f"{value.dtype.str}{value.shape}".encode())
        told.update(np.ascontiguousarray(value).data)
    elif isinstance(value, Mapping):
        told.update(b"d" + struct.pack("<q", len(value)))
        for key in sorted(value):
            _word(told, b"k", key.encode())
            _tell(value[key], told)
    elif isinstance(value, (list, tuple)):
        told.update(b"l" + struct.pack("<q", len(value)))
        for item in value:
            _tell(item, told)
    elif isinstance(value, str):
        _word(told, b"s", value.encode())
    elif isinstance(value, float):
        told.update(b"f" + struct.pack("<d", value))
    elif value is None or isinstance(value, (bool, int)):
        _word(told, b"i", repr(value).encode())
    else:
        raise TypeError(f"{type(value).__name__} is not plain data")


def _word(told: Any, tag: bytes, text: bytes) -> None:
    """A text with its length in front, so that no two different ones run together."""
    told.update(tag + struct.pack("<q", len(text)))
    told.update(text)
