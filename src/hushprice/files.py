"""Files: atomic replacement, checks of paths and versions, TOML, and JSON without NaN."""

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
    """Replace a file atomically: write to a temporary path beside it, which is synced and moved into place.

    Parameters
    ----------
    target : Path
        The file. It does not change if the block raises.
    mode : int
        Permissions of a new file, before the umask.

    Yields
    ------
    Path
        The temporary path to write to.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "note.txt"
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
    with suppress(OSError):  # some systems cannot sync folders
        _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_target(path: str | os.PathLike[str], *, what: str, example: str, is_one: Callable[[Path], bool]) -> Path:
    """Return a path that may be written to: a new file, an empty file, or a file of the same kind.

    Parameters
    ----------
    path : path
        The path.
    what : str
        The kind of file, for error texts.
    example : str
        Name of such a file, for error texts.
    is_one : callable
        Whether an existing file is of this kind.

    Raises
    ------
    InvalidInput
        If the path is a folder, or is in no folder, or is a file of another kind.
    """
    target = Path(path)
    if target.is_dir():
        raise InvalidInput(f"{target} is a folder; give the {what} a name, as in {target / example}.")
    if not target.absolute().parent.is_dir():
        raise InvalidInput(f"There is no folder {target.absolute().parent} to put {target.name} in.")
    if target.exists() and target.stat().st_size and not is_one(target):
        raise InvalidInput(f"{target} exists and is not a {what}, so it is left alone. Choose another name.")
    return target


def check_version(
    content: Mapping[str, Any], latest: int, *, path: str | os.PathLike[str], again: str, error: type[HushpriceError]
) -> None:
    """Raise an error if a file has no valid version, or one that is newer than this release reads.

    Parameters
    ----------
    content : mapping
        Content of the file as plain data.
    latest : int
        The latest version that can be read.
    path : path
        The file, for error texts.
    again : str
        How to make the file anew, for error texts.
    error : type of HushpriceError
        The error to raise.
    """
    version = content.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise error(f"{path} is damaged: its version is {version!r}. {again[0].upper()}{again[1:]}.")
    if version > latest:
        raise error(
            f"{path} has version {version}, written by a newer hushprice; this one reads up to {latest}. Update "
            f"hushprice, or {again}."
        )


def read_toml(path: str | os.PathLike[str], *, what: str) -> dict[str, Any]:
    """Read a TOML file; ``what`` names its content in error texts."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise InvalidInput(f"The {what} {path} cannot be read: {problem.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"The {what} {path} are not TOML: {problem}.") from None


def without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None in plain data.

    Examples
    --------
    >>> without_nan({"a": [1.0, math.nan]})
    {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
