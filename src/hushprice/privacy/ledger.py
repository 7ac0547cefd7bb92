"""What one customer has spent over many reports, kept on the customer's own device."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from hushprice.errors import BudgetSpent, LedgerError, finite
from hushprice.privacy.guarantee import Guarantee, Loss
from hushprice.privacy.mechanism import Mechanism

try:
    import fcntl
except ImportError:  # pragma: no cover (no such locks on Windows)
    fcntl = None  # type: ignore[assignment]

FORMAT = "hushprice-ledger"
_ROUNDING = 1.0 + 1e-12  # so that three reports of 0.1 fit under a cap of 0.3


class Ledger:
    """A budget (epsilon, delta) for all the reports of one customer, which is never exceeded.

    Pure mechanisms add up (basic composition), Gaussian ones by the exact curve of their sum. With a ``path`` each
    spending is on disk before the report is made, so that a crash or a restart can only make the customer safer, and
    several processes share one budget. A damaged or vanished file stops reports: it is never taken for a fresh one.

    >>> from hushprice.privacy import L2Ball
    >>> ledger, mechanism = Ledger(epsilon=1.0), L2Ball(epsilon=0.5, clip=1.0, dim=2)
    >>> ledger.spend(mechanism); ledger.spend(mechanism)
    >>> ledger.allows(mechanism), ledger.guarantee.epsilon
    (False, 1.0)
    """

    def __init__(self, *, epsilon: float, delta: float = 0.0, path: str | PathLike[str] | None = None) -> None:
        self.cap = Guarantee(
            finite("epsilon", epsilon, minimum=0.0, maximum=1e6, strict=True),
            finite("delta", delta, minimum=0.0, maximum=1.0),
        )
        self.path = None if path is None else Path(path)
        self._spent, self._reports = Loss(), 0
        if self.path is not None:
            with self._locked():
                if self.path.exists():
                    self._spent, self._reports = _read(self.path)
                else:
                    _write(self.path, self._spent, self._reports)

    @property
    def spent(self) -> Loss:
        """All that has been spent."""
        return self._spent

    @property
    def reports(self) -> int:
        """Reports charged so far."""
        return self._reports

    @property
    def guarantee(self) -> Guarantee:
        """What all reports so far give away together, at the cap's delta."""
        return self._spent.guarantee(self.cap.delta)

    def allows(self, mechanism: Mechanism) -> bool:
        """Whether one more report by this mechanism fits."""
        return self._fits(self._spent + mechanism.loss)

    def spend(self, mechanism: Mechanism) -> None:
        """Charge one report, or refuse with :class:`BudgetSpent` and charge nothing."""
        with self._locked():
            if self.path is not None:
                self._spent, self._reports = _read(self.path)
            total = self._spent + mechanism.loss
            if not self._fits(total):
                raise BudgetSpent(
                    f"One more report by {mechanism.name} would exceed this customer's budget of epsilon = "
                    f"{self.cap.epsilon:g}, delta = {self.cap.delta:g} after {self._reports} reports. None is sent."
                )
            if self.path is not None:
                _write(self.path, total, self._reports + 1)
            self._spent, self._reports = total, self._reports + 1

    def _fits(self, total: Loss) -> bool:
        return total.within(Guarantee(self.cap.epsilon * _ROUNDING, self.cap.delta))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the file, among all processes that keep to this."""
        if self.path is None or fcntl is None:
            yield
            return
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as problem:
            raise LedgerError(f"The ledger {self.path} cannot be kept: {problem.strerror}.") from problem
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _read(path: Path) -> tuple[Loss, int]:
    try:
        text = path.read_text(encoding="utf-8")
        outer: Any = json.loads(text)
        body = outer["ledger"]
        if outer["format"] != FORMAT or outer["version"] != 1 or outer["checksum"] != _checksum(body):
            raise ValueError
        values = [finite(key, body[key], minimum=0.0) for key in ("epsilon", "mu", "slack")]
        reports = body["reports"]
        if not isinstance(reports, int) or reports < 0:
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise LedgerError(
            f"The ledger {path} is damaged, missing or not a ledger, so what was spent is not known and no report is "
            f"made. Restore it from a backup; a new file would forget what has been spent."
        ) from problem
    return Loss(epsilon=values[0], mu=values[1], slack=values[2]), reports


def _write(path: Path, spent: Loss, reports: int) -> None:
    body = {"epsilon": spent.epsilon, "mu": spent.mu, "slack": spent.slack, "reports": reports}
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
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as problem:
        raise LedgerError(f"The ledger {path} cannot be written: {problem.strerror}. No report is made.") from problem


def _checksum(body: Any) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())
