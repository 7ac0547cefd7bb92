"""The snapshot file: plain, versioned, checked, without pickle.

A zip archive with ``snapshot.json`` (format, version, SHA-256 of each array, and every number by name) and one
NumPy ``.npy`` file per array. It is written to a temporary file first, so that a crash leaves the old file intact.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from hushprice.errors import SnapshotError
from hushprice.files import replacing

SNAPSHOT_FORMAT = "hushprice snapshot"
SNAPSHOT_VERSION = 5
_HEADER = "snapshot.json"


def write(path: str | PathLike[str], state: dict[str, Any]) -> None:
    """Write a state to a file.

    Parameters
    ----------
    path : path-like
        The file, which is replaced if it exists.
    state : dict
        Nested dictionaries of numbers, strings, lists and arrays.

    Raises
    ------
    SnapshotError
        If the file cannot be written.
    """
    target = Path(path)
    try:
        with replacing(target, mode=0o600) as aside, aside.open("wb") as file:
            _write(file, state)
    except (OSError, ValueError) as problem:
        raise SnapshotError(f"The snapshot {target} cannot be written: {problem}") from problem


def read(path: str | PathLike[str]) -> dict[str, Any]:
    """Read a state that :func:`write` wrote.

    Raises
    ------
    SnapshotError
        If the file is missing, damaged or no snapshot.
    """
    try:
        with open(path, "rb") as file:
            return _read(file, str(path))
    except FileNotFoundError:
        raise SnapshotError(f"There is no file {path}.") from None
    except OSError as problem:
        raise SnapshotError(f"{path} is not a readable hushprice snapshot: {problem}") from problem


def pack(state: dict[str, Any]) -> bytes:
    """The bytes of the file that :func:`write` would write.

    Examples
    --------
    >>> unpack(pack({"n": 1, "theta": np.ones(2)}))
    {'n': 1, 'theta': array([1., 1.])}
    """
    buffer = io.BytesIO()
    _write(buffer, state)
    return buffer.getvalue()


def unpack(data: bytes, *, name: str = "The snapshot") -> dict[str, Any]:
    """The state that :func:`pack` turned into ``data``; :class:`SnapshotError` if the bytes are damaged."""
    return _read(io.BytesIO(data), name)


def _write(file: IO[bytes], state: dict[str, Any]) -> None:
    arrays: dict[str, bytes] = {}
    body = _detach(state, "", arrays)
    header = {
        "format": SNAPSHOT_FORMAT,
        "version": SNAPSHOT_VERSION,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in arrays.items()},
        "body_sha256": _digest(body),
        "body": body,
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_HEADER, json.dumps(header, indent=1))
        for name, data in arrays.items():
            archive.writestr(f"{name}.npy", data)


def _read(file: IO[bytes], path: str) -> dict[str, Any]:
    """The state that :func:`_write` wrote; error messages call the file ``path``."""
    try:
        with zipfile.ZipFile(file) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise SnapshotError(f"{path} is not a hushprice snapshot: those are not compressed.")
            header = json.loads(archive.read(_HEADER))
            if not isinstance(header, dict) or header.get("format") != SNAPSHOT_FORMAT:
                raise SnapshotError(f"{path} is not a hushprice snapshot.")
            if header.get("version") != SNAPSHOT_VERSION:
                raise SnapshotError(
                    f"{path} has snapshot version {header.get('version')!r}; this release reads version "
                    f"{SNAPSHOT_VERSION}. Load it with the release that wrote it."
                )
            if _digest(header["body"]) != header["body_sha256"]:
                raise SnapshotError(f"{path} is damaged: its header does not match its checksum.")
            arrays = {name: _array(archive, path, name, digest) for name, digest in header["sha256"].items()}
            body: dict[str, Any] = dict(_attach(header["body"], arrays))
    except SnapshotError:
        raise
    except Exception as problem:  # any other fault of the file
        raise SnapshotError(f"{path} is not a readable hushprice snapshot: {problem}") from problem
    return body


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _array(archive: zipfile.ZipFile, path: str, name: str, digest: str) -> Any:
    data = archive.read(f"{name}.npy")
    if hashlib.sha256(data).hexdigest() != digest:
        raise SnapshotError(f"{path} is damaged: the array {name!r} does not match its checksum.")
    return np.load(io.BytesIO(data), allow_pickle=False)


def _detach(value: Any, name: str, arrays: dict[str, bytes]) -> Any:
    """Replace arrays by references and store their bytes in ``arrays``."""
    if isinstance(value, dict):
        return {key: _detach(item, f"{name}.{key}".lstrip("."), arrays) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        buffer = io.BytesIO()
        np.save(buffer, np.ascontiguousarray(value), allow_pickle=False)
        arrays[name] = buffer.getvalue()
        return {"$array": name}
    return value


def _attach(value: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"$array"}:
            return arrays[value["$array"]]
        return {key: _attach(item, arrays) for key, item in value.items()}
    return value


def whole(value: Any) -> int:
    """Check a count from a snapshot: a whole number of at least 0 that fits a 64-bit counter."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise SnapshotError("The snapshot does not say which round it is in.")
    return value
