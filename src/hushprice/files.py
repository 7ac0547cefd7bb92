"""Files that are whole or not there: written aside, synced to the disk and moved into place."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from hushprice.errors import HushpriceError, InvalidInput


@contextmanager
def replacing(target: Path, *, mode: int = 0o666) -> Iterator[Path]:
    """A path beside the target to write to. It takes the target's place if all went well, and is removed otherwise.

    ``mode`` is who may read and write it, but for the umask.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "told.txt"
    ...     with replacing(file) as aside:
    ...         _ = aside.write_text("whole")
    ...     file.read_text(), len(os.listdir(folder))
    ('whole', 1)
    """
    folder = target.absolute().parent
    aside = folder / f".{target.name}.{uuid4().hex}.part"
    os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    try:
        yield aside
        _sync(aside)
        os.replace(aside, target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # not every system syncs folders
        _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_target(path: str | os.PathLike[str], *, what: str, example: str, is_one: Callable[[Path], bool]) -> Path:
    """A path that something may be written to: a new file, an empty one, or one that is such a thing already."""
    target = Path(path)
    if target.is_dir():
        raise InvalidInput(f"{target} is a folder; give the {what} a name, as in {target / example}.")
    if not target.absolute().parent.is_dir():
        raise InvalidInput(f"There is no folder {target.absolute().parent} to put {target.name} in.")
    if target.exists() and target.stat().st_size and not is_one(target):
        raise InvalidInput(f"{target} exists and is not a {what}, so it is left alone. Choose another name.")
    return target


def check_version(
    told: Mapping[str, Any], known: int, *, path: str | os.PathLike[str], again: str, error: type[HushpriceError]
) -> None:
    """Refuse plain data whose version is none, or newer than the one known. ``again`` is how to make it afresh."""
    version = told.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise error(f"{path} is damaged: its version is {version!r}. {again[0].upper()}{again[1:]}.")
    if version > known:
        raise error(
            f"{path} has version {version}, written by a newer hushprice; this one reads up to {known}. Update "
            f"hushprice, or {again}."
        )


def read_toml(path: str | os.PathLike[str], *, what: str) -> dict[str, Any]:
    """What a TOML file holds; ``what`` is what it should hold, in words."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise InvalidInput(f"The {what} {path} cannot be read: {problem.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"The {what} {path} are not TOML: {problem}.") from None


def without_nan(value: Any) -> Any:
    """Plain data with None in place of NaN and infinity, which JSON does not have.

    >>> without_nan({"a": [1.0, math.nan]})
    {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
