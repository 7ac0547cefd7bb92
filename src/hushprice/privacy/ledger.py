"""What one customer has spent over many reports, kept on the customer's own device."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from hushprice.errors import BudgetSpent, InvalidInput, LedgerError, finite
from hushprice.privacy.guarantee import Guarantee, Loss
from hushprice.privacy.mechanism import Mechanism

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows has no such locks: one process a ledger there)
    fcntl = None  # type: ignore[assignment]

FORMAT = "hushprice-ledger"
_ROUNDING = 1.0 + 1e-12  # so that three reports of 0.1 fit under a cap of 0.3
_KEPT = b"a ledger has been kept here\n"


@dataclass(frozen=True)
class _Page:
    """What the file says: the cap, what has been spent, and in how many reports."""

    cap: Guarantee
    spent: Loss
    reports: int


class Ledger:
    """A budget (epsilon, delta) for all the reports of one customer, which is never exceeded.

    Pure mechanisms add up (basic composition), Gaussian ones by the exact curve of their sum. With a ``path`` each
    spending is on disk before the report is made, so that a crash or a restart can only make the customer safer, and
    several processes share one budget. A file that is damaged, has vanished (its ``.lock`` remembers that there was
    one) or says less than is known stops reports: it is never taken for a fresh one. The cap is kept with it and can be
    lowered, not raised. Without a path the ledger lives and dies with this object, in one process.

    >>> from hushprice.privacy import L2Ball
    >>> ledger, mechanism = Ledger(epsilon=1.0), L2Ball(epsilon=0.5, clip=1.0, dim=2)
    >>> ledger.spend(mechanism); ledger.spend(mechanism)
    >>> ledger.allows(mechanism), ledger
    (False, <Ledger: 2 reports, epsilon 1 of 1 spent>)
    """

    def __init__(self, *, epsilon: float, delta: float = 0.0, path: str | PathLike[str] | None = None) -> None:
        cap = Guarantee(
            finite("epsilon", epsilon, minimum=0.0, maximum=1e6, strict=True),
            finite("delta", delta, minimum=0.0, maximum=1.0),
        )
        self.path = None if path is None else _resolved(path)
        self._page, self._thread, self._process = _Page(cap, Loss(), 0), threading.RLock(), os.getpid()
        with self._alone() as first:
            if self.path is None:
                return
            if first:
                self._write(self._page)
                return
            kept = _read(self.path)
            if cap.epsilon > kept.cap.epsilon or cap.delta > kept.cap.delta:
                raise InvalidInput(
                    f"The ledger {self.path} has a cap of epsilon = {kept.cap.epsilon:g}, delta = {kept.cap.delta:g}, "
                    f"which can be lowered but not raised."
                )
            self._write(_Page(cap, kept.spent, kept.reports))

    @property
    def cap(self) -> Guarantee:
        """What must not be exceeded."""
        return self._page.cap

    @property
    def spent(self) -> Loss:
        """All that has been spent."""
        return self._latest().spent

    @property
    def reports(self) -> int:
        """Reports charged so far."""
        return self._latest().reports

    @property
    def guarantee(self) -> Guarantee:
        """What all reports so far give away together, at the cap's delta."""
        return self.spent.guarantee(self.cap.delta)

    def allows(self, mechanism: Mechanism) -> bool:
        """Whether one more report by this mechanism fits."""
        return self._fits(self.spent + _loss(mechanism))

    def spend(self, mechanism: Mechanism) -> None:
        """Charge one report, or refuse with :class:`BudgetSpent` and charge nothing."""
        loss = _loss(mechanism)
        with self._alone():
            page = self._read_again()
            total = page.spent + loss
            if not self._fits(total):
                raise BudgetSpent(
                    f"One more report by {mechanism.name} would exceed this customer's budget of epsilon = "
                    f"{self.cap.epsilon:g}, delta = {self.cap.delta:g} after {page.reports} reports. None is sent."
                )
            self._write(_Page(self.cap, total, page.reports + 1))

    def __repr__(self) -> str:
        page = self._latest()
        spent = page.spent.guarantee(self.cap.delta).epsilon
        return f"<Ledger: {page.reports} reports, epsilon {spent:.4g} of {self.cap.epsilon:g} spent>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A ledger cannot be copied or sent elsewhere: two of them would spend one budget twice.")

    def _fits(self, total: Loss) -> bool:
        return total.within(Guarantee(self.cap.epsilon * _ROUNDING, self.cap.delta))

    def _latest(self) -> _Page:
        with self._alone():
            return self._read_again()

    def _read_again(self) -> _Page:
        """The file as it is now, which must know at least as much as we do."""
        if self.path is not None:
            page, known = _read(self.path), self._page
            if (
                page.reports < known.reports
                or page.spent.epsilon < known.spent.epsilon
                or page.spent.mu < known.spent.mu
            ):
                raise LedgerError(f"The ledger {self.path} was set back: it tells of less than was spent. {_HELP}")
            self._page = _Page(known.cap, page.spent, page.reports)
        return self._page

    def _write(self, page: _Page) -> None:
        if self.path is not None:
            _write(self.path, page)
        self._page = page

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Alone with the ledger, among all threads and all processes that keep to this; tells whether it is new."""
        if self._process != os.getpid() and self.path is None:
            raise LedgerError("A ledger without a file cannot be shared by processes: give it a path.")
        with self._thread:
            if self.path is None:
                yield False
                return
            lock = self.path.with_name(self.path.name + ".lock")
            with _held(lock) as handle:
                first = os.fstat(handle).st_size == 0 and not self.path.exists()
                yield first
                if os.fstat(handle).st_size == 0:
                    os.write(handle, _KEPT)
                    os.fsync(handle)


_HELP = "No report is made. Restore it from a backup; a new file would forget what has been spent."


def _loss(mechanism: Mechanism) -> Loss:
    if not isinstance(mechanism, Mechanism):
        raise InvalidInput(
            f"A ledger is charged with a mechanism, such as policy.mechanism, not {type(mechanism).__name__}."
        )
    return mechanism.loss


def _resolved(path: str | PathLike[str]) -> Path:
    """The file itself, whatever links lead to it."""
    given = Path(path)
    try:
        real = given.resolve()
        if given.is_symlink() and not real.exists():
            raise LedgerError(f"The ledger {given} is a link to nothing. {_HELP}")
    except (OSError, ValueError, RuntimeError) as problem:
        if isinstance(problem, LedgerError):
            raise
        raise LedgerError(f"The ledger {given!r} is no usable path.") from problem
    return real


@contextlib.contextmanager
def _held(lock: Path) -> Iterator[int]:
    """The lock file, locked, and still the one that others will find under its name."""
    try:
        while True:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
            if fcntl is None:
                break
            fcntl.flock(handle, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(handle).st_ino == lock.stat().st_ino:
                    break
            os.close(handle)
    except OSError as problem:
        raise LedgerError(
            f"The ledger's lock {lock} cannot be taken: {problem.strerror}. No report is made."
        ) from problem
    try:
        yield handle
    finally:
        os.close(handle)


def _read(path: Path) -> _Page:
    try:
        outer: Any = json.loads(path.read_text(encoding="utf-8"))
        body = outer["ledger"]
        if outer["format"] != FORMAT or outer["version"] != 1 or outer["checksum"] != _checksum(body):
            raise ValueError
        cap = Guarantee(*(finite(key, body["cap"][key], minimum=0.0) for key in ("epsilon", "delta")))
        spent = Loss(**{key: finite(key, body["spent"][key], minimum=0.0) for key in ("epsilon", "mu", "slack")})
        if not isinstance(body["reports"], int) or body["reports"] < 0:
            raise ValueError
        return _Page(cap, spent, body["reports"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise LedgerError(f"The ledger {path} is damaged, missing or not a ledger. {_HELP}") from problem


def _write(path: Path, page: _Page) -> None:
    spent = {"epsilon": page.spent.epsilon, "mu": page.spent.mu, "slack": page.spent.slack}
    body = {
        "cap": {"epsilon": page.cap.epsilon, "delta": page.cap.delta},
        "spent": spent,
        "reports": page.reports,
    }
    text = json.dumps({"format": FORMAT, "version": 1, "ledger": body, "checksum": _checksum(body)})
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if fcntl is not None:  # where there are such locks, folders can be synced too
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as problem:
        raise LedgerError(f"The ledger {path} cannot be written: {problem.strerror}. No report is made.") from problem


def _checksum(body: Any) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())
