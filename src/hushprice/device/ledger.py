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
from typing import Any, NoReturn, Protocol

from hushprice.device.guarantee import Guarantee, Loss
from hushprice.errors import BudgetSpent, InvalidInput, LedgerError, finite

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows has no such locks: one process a ledger there)
    fcntl = None  # type: ignore[assignment]

FORMAT = "hushprice-ledger"
_ROUNDING = 1.0 + 1e-12  # so that three reports of 0.1 fit under a cap of 0.3


class Spending(Protocol):
    """What a ledger can be charged with: a mechanism, here or in :mod:`hushprice.privacy`."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def loss(self) -> Loss:
        """What one report costs."""
        ...


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
    several processes share one budget. It is written twice, to the file and to a log beside it (``.log``), and
    whichever says more counts: setting the file back wins nothing. A file that is damaged or has vanished stops
    reports; it is never taken for a fresh one. The cap is kept with it and can be lowered, not raised. Without a path
    the ledger lives and dies with this object, in one process.

    >>> from hushprice.device import Mechanism
    >>> ledger, mechanism = Ledger(epsilon=1.0), Mechanism(name="l2-ball", epsilon=0.5, clip=1.0, dim=2)
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
        with self._alone():
            if self.path is None:
                return
            if not self.path.exists() and not _logged(self.path):
                self._write(self._page)
                return
            kept = self._kept()
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

    def allows(self, mechanism: Spending) -> bool:
        """Whether one more report by this mechanism fits."""
        return self._fits(self.spent + _loss(mechanism))

    def spend(self, mechanism: Spending) -> None:
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
        """The ledger as it is now, under the lowest cap it was ever given."""
        if self.path is not None:
            kept, ours = self._kept(), self._page.cap
            cap = Guarantee(min(ours.epsilon, kept.cap.epsilon), min(ours.delta, kept.cap.delta))
            self._page = _Page(cap, kept.spent, kept.reports)
        return self._page

    def _kept(self) -> _Page:
        """What the file says, or its log or this object if they know of more reports, under the lowest cap written."""
        assert self.path is not None
        written = [_read(self.path), *_logged(self.path)]
        most = max(*written, self._page, key=lambda page: page.reports)
        cap = Guarantee(min(page.cap.epsilon for page in written), min(page.cap.delta for page in written))
        return _Page(cap, most.spent, most.reports)

    def _write(self, page: _Page) -> None:
        if self.path is not None:
            text = _text(page)
            _append(_log(self.path), text)
            _replace(self.path, text)
        self._page = page

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Alone with the ledger, among all threads and all processes that keep to this."""
        if self._process != os.getpid() and self.path is None:
            raise LedgerError("A ledger without a file cannot be shared by processes: give it a path.")
        with self._thread, _folder_held(self.path):
            yield


_HELP = "No report is made. Restore the file from a copy, however old: the log beside it knows what was spent since."


def _loss(mechanism: Spending) -> Loss:
    loss = getattr(mechanism, "loss", None)
    if not isinstance(loss, Loss) or not isinstance(getattr(mechanism, "name", None), str):
        raise InvalidInput(
            f"A ledger is charged with a mechanism, such as policy.mechanism, not {type(mechanism).__name__}."
        )
    return loss


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
def _folder_held(path: Path | None) -> Iterator[None]:
    """The file's folder, locked: unlike a lock file it cannot be cleaned away."""
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


def _log(path: Path) -> Path:
    return path.with_name(path.name + ".log")


def _logged(path: Path) -> list[_Page]:
    """The last page of the log that can be read, if there is one; a torn last line does not count."""
    try:
        lines = _log(path).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise LedgerError(f"The ledger's log {_log(path)} cannot be read: {problem.strerror}. {_HELP}") from problem
    for line in reversed(lines):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            return [_page(line.decode())]
    return []


def _read(path: Path) -> _Page:
    try:
        if path.stat().st_nlink > 1:
            raise LedgerError(f"The ledger {path} has a second name, under which it could be spent twice. {_HELP}")
        return _page(path.read_text(encoding="utf-8"))
    except LedgerError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise LedgerError(f"The ledger {path} is damaged, missing or not a ledger. {_HELP}") from problem


def _page(text: str) -> _Page:
    outer: Any = json.loads(text)
    body = outer["ledger"]
    reports = body["reports"]
    if outer["format"] != FORMAT or outer["version"] != 1 or outer["checksum"] != _checksum(body):
        raise ValueError
    if not isinstance(reports, int) or reports < 0:
        raise ValueError
    cap = Guarantee(*(finite(key, body["cap"][key], minimum=0.0) for key in ("epsilon", "delta")))
    spent = Loss(**{key: finite(key, body["spent"][key], minimum=0.0) for key in ("epsilon", "mu", "slack")})
    return _Page(cap, spent, reports)


def _text(page: _Page) -> str:
    body = {
        "cap": {"epsilon": page.cap.epsilon, "delta": page.cap.delta},
        "spent": {"epsilon": page.spent.epsilon, "mu": page.spent.mu, "slack": page.spent.slack},
        "reports": page.reports,
    }
    return json.dumps({"format": FORMAT, "version": 1, "ledger": body, "checksum": _checksum(body)})


def _append(path: Path, text: str) -> None:
    try:
        with path.open("ab") as file:
            file.write(f"\n{text}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise LedgerError(
            f"The ledger's log {path} cannot be written: {problem.strerror}. No report is made."
        ) from problem


def _replace(path: Path, text: str) -> None:
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
