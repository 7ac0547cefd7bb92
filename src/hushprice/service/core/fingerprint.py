"""Deep copies and exact fingerprints of nested plain data."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np


def copied(value: Any) -> Any:
    """Copy nested plain data, including its arrays."""
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
    sha = hashlib.sha256()
    _update(sha, value)
    return sha.hexdigest()


def _update(sha: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        _update_text(sha, b"a", f"{value.dtype.str}{value.shape}".encode())
        sha.update(np.ascontiguousarray(value).data)
    elif isinstance(value, Mapping):
        sha.update(b"d" + struct.pack("<q", len(value)))
        for key in sorted(value):
            _update_text(sha, b"k", key.encode())
            _update(sha, value[key])
    elif isinstance(value, (list, tuple)):
        sha.update(b"l" + struct.pack("<q", len(value)))
        for item in value:
            _update(sha, item)
    elif isinstance(value, str):
        _update_text(sha, b"s", value.encode())
    elif isinstance(value, float):
        sha.update(b"f" + struct.pack("<d", value))
    elif value is None or isinstance(value, (bool, int)):
        _update_text(sha, b"i", repr(value).encode())
    else:
        raise TypeError(f"{type(value).__name__} is not plain data")


def _update_text(sha: Any, tag: bytes, text: bytes) -> None:
    """Add a text after its length, so that adjacent texts cannot be confused."""
    sha.update(tag + struct.pack("<q", len(text)))
    sha.update(text)
