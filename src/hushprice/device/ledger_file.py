"""A ledger on disk: one page in a file, and the last pages in a log beside it.

Both are written and synced before a report is made, the log first. The file is replaced as a whole. The log is appended
to; when it is long, its last part replaces it, so that a till which reports for years reads and stores a few KiB. After
a crash at any moment, each of them is complete or the log has a torn last line. A torn line does not count: its report
was not made yet. Only the owner may read the files.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from hushprice.device.guarantee import Guarantee, Loss
from hushprice.errors import LedgerError, finite

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows has no such locks: use one process per ledger there)
    fcntl = None  # type: ignore[assignment]

LEDGER_FORMAT = "hushprice-ledger"
TAIL = 4096  # bytes at the end of a log that are read, and retained when it is cut: a dozen pages
LONGEST_LOG = 1 << 16  # bytes
_HELP = "No report is made. Restore the file from a copy, however old: the log beside it knows what was spent since."


@dataclass(frozen=True)
class Page:
    """The state of a ledger.

    Attributes
    ----------
    cap : Guarantee
        The budget.
    spent : Loss
        Loss of all reports so far.
    reports : int
        Number of reports so far.
    """

    cap: Guarantee
    spent: Loss
    reports: int


def resolved(path: str | PathLike[str]) -> Path:
    """Return the path of the file with all links resolved."""
    link = Path(path)
    try:
        real = link.resolve()
        if link.is_symlink() and not real.exists():
            raise LedgerError(f"The ledger {link} is a link to nothing. {_HELP}")
    except (OSError, ValueError, RuntimeError) as problem:
        if isinstance(problem, LedgerError):
            raise
        raise LedgerError(f"The ledger {link!r} is no usable path.") from problem
    return real


@contextlib.contextmanager
def folder_locked(path: Path | None) -> Iterator[None]:
    """Lock the file's folder, which unlike a lock file cannot be deleted meanwhile."""
    if path is None or fcntl is None:
        yield
        return
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as problem:
        raise LedgerError(f"The ledger {path} cannot be kept: {problem.strerror}. No report is made.") from problem
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)  # a child process may hold a copy of the descriptor
        os.close(folder)


def write(path: Path, page: Page) -> None:
    """Write a page to the log and to the file. On return, both are on disk."""
    text = _text(page)
    _append(_log(path), f"\n{text}\n".encode())
    _replace(path, text.encode())


def read(path: Path) -> Page:
    """Read the page in the file.

    Raises
    ------
    LedgerError
        If the file is damaged or missing, or has a second name (a hard link).
    """
    try:
        if path.stat().st_nlink > 1:
            raise LedgerError(f"The ledger {path} has a second name, under which it could be spent twice. {_HELP}")
        return _page(path.read_text(encoding="utf-8"))
    except LedgerError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise LedgerError(f"The ledger {path} is damaged, missing or not a ledger. {_HELP}") from problem


def logged(path: Path) -> list[Page]:
    """Return the last readable page of the log, if any, as a list. A torn last line does not count."""
    try:
        return _last(_end(_log(path), TAIL)) or _last(_end(_log(path)))  # read the whole log only if its end is damaged
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise LedgerError(f"The ledger's log {_log(path)} cannot be read: {problem.strerror}. {_HELP}") from problem


def _log(path: Path) -> Path:
    return path.with_name(path.name + ".log")


def _end(path: Path, most: int | None = None) -> bytes:
    """The last bytes of a file, or all of them."""
    with path.open("rb") as file:
        if most is not None:
            file.seek(max(file.seek(0, os.SEEK_END) - most, 0))
        return file.read()


def _last(lines: bytes) -> list[Page]:
    for line in reversed(lines.splitlines()):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            return [_page(line.decode())]
    return []


def _page(text: str) -> Page:
    outer: Any = json.loads(text)
    body = outer["ledger"]
    reports = body["reports"]
    if outer["format"] != LEDGER_FORMAT or outer["version"] != 1 or outer["checksum"] != _checksum(body):
        raise ValueError
    if not isinstance(reports, int) or reports < 0:
        raise ValueError
    cap = Guarantee(*(finite(key, body["cap"][key], minimum=0.0) for key in ("epsilon", "delta")))
    spent = Loss(**{key: finite(key, body["spent"][key], minimum=0.0) for key in ("epsilon", "mu", "slack")})
    return Page(cap, spent, reports)


def _text(page: Page) -> str:
    body = {
        "cap": {"epsilon": page.cap.epsilon, "delta": page.cap.delta},
        "spent": {"epsilon": page.spent.epsilon, "mu": page.spent.mu, "slack": page.spent.slack},
        "reports": page.reports,
    }
    return json.dumps({"format": LEDGER_FORMAT, "version": 1, "ledger": body, "checksum": _checksum(body)})


def _append(log: Path, line: bytes) -> None:
    """Append a line to the log. A log that is too long is replaced by its end and the line."""
    try:
        if log.exists() and log.stat().st_size + len(line) > LONGEST_LOG:
            _replace(log, _end(log, TAIL) + line)
            return
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
            if os.stat(file.fileno()).st_mode & 0o077 and hasattr(os, "fchmod"):  # written by an earlier release
                os.fchmod(file.fileno(), 0o600)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise LedgerError(
            f"The ledger's log {log} cannot be written: {problem.strerror}. No report is made."
        ) from problem


def _replace(path: Path, content: bytes) -> None:
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if fcntl is not None:  # systems with these locks can sync folders too
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as problem:
        raise LedgerError(f"The ledger {path} cannot be written: {problem.strerror}. No report is made.") from problem


def _checksum(body: Any) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())
