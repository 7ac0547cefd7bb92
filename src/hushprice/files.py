"""Files that are whole or not there: written aside, synced to the disk and moved into place."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hushprice.errors import InvalidInput


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A path beside the target to write to. It takes the target's place if all went well, and is removed otherwise.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "told.txt"
    ...     with replacing(file) as aside:
    ...         _ = aside.write_text("whole")
    ...     file.read_text(), len(os.listdir(folder))
    ('whole', 1)
    """
    folder = target.absolute().parent
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{target.name}.", suffix=".part")
    os.close(handle)
    aside = Path(name)
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
