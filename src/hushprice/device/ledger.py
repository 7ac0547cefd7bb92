"""What one customer has spent over many reports, kept on the customer's own device."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from os import PathLike
from typing import NoReturn, Protocol

from hushprice.device import ledger_file as pages
from hushprice.device.guarantee import Guarantee, Loss
from hushprice.device.ledger_file import Page
from hushprice.errors import BudgetSpent, InvalidInput, LedgerError, finite

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


class Ledger:
    """A budget (epsilon, delta) for all the reports of one customer, which is never exceeded.

    Pure mechanisms add up (basic composition), Gaussian ones by the exact curve of their sum. With a ``path`` each
    spending is on disk before the report is made, so that a crash or a restart can only make the customer safer, and
    several processes share one budget. It is written twice, to the file and to a log beside it (``.log``), and
    whichever says more counts: setting the file back wins nothing. (Of a long log only the end is kept.) A file that is
    damaged or has vanished stops reports; it is never taken for a fresh one. The cap is kept with it and can be
    lowered, not raised. Without a path the ledger lives and dies with this object, in one process.

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
        self.path = None if path is None else pages.resolved(path)
        self._page, self._thread, self._process = Page(cap, Loss(), 0), threading.RLock(), os.getpid()
        with self._alone():
            if self.path is None:
                return
            if not self.path.exists() and not pages.logged(self.path):
                self._write(self._page)
                return
            kept = self._kept()
            if cap.epsilon > kept.cap.epsilon or cap.delta > kept.cap.delta:
                raise InvalidInput(
                    f"The ledger {self.path} has a cap of epsilon = {kept.cap.epsilon:g}, delta = {kept.cap.delta:g}, "
                    f"which can be lowered but not raised."
                )
            self._write(Page(cap, kept.spent, kept.reports))

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
            self._write(Page(self.cap, total, page.reports + 1))

    def __repr__(self) -> str:
        page = self._latest()
        spent = page.spent.guarantee(self.cap.delta).epsilon
        return f"<Ledger: {page.reports} reports, epsilon {spent:.4g} of {self.cap.epsilon:g} spent>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A ledger cannot be copied or sent elsewhere: two of them would spend one budget twice.")

    def _fits(self, total: Loss) -> bool:
        return total.within(Guarantee(self.cap.epsilon * _ROUNDING, self.cap.delta))

    def _latest(self) -> Page:
        with self._alone():
            return self._read_again()

    def _read_again(self) -> Page:
        """The ledger as it is now, under the lowest cap it was ever given."""
        if self.path is not None:
            kept, ours = self._kept(), self._page.cap
            cap = Guarantee(min(ours.epsilon, kept.cap.epsilon), min(ours.delta, kept.cap.delta))
            self._page = Page(cap, kept.spent, kept.reports)
        return self._page

    def _kept(self) -> Page:
        """What the file says, or its log or this object if they know of more reports, under the lowest cap written."""
        assert self.path is not None
        written = [pages.read(self.path), *pages.logged(self.path)]
        most = max(*written, self._page, key=lambda page: page.reports)
        cap = Guarantee(min(page.cap.epsilon for page in written), min(page.cap.delta for page in written))
        return Page(cap, most.spent, most.reports)

    def _write(self, page: Page) -> None:
        if self.path is not None:
            pages.write(self.path, page)
        self._page = page

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Alone with the ledger, among all threads and all processes that keep to this."""
        if self._process != os.getpid() and self.path is None:
            raise LedgerError("A ledger without a file cannot be shared by processes: give it a path.")
        with self._thread, pages.folder_held(self.path):
            yield


def _loss(mechanism: Spending) -> Loss:
    loss = getattr(mechanism, "loss", None)
    if not isinstance(loss, Loss) or not isinstance(getattr(mechanism, "name", None), str):
        raise InvalidInput(
            f"A ledger is charged with a mechanism, such as policy.mechanism, not {type(mechanism).__name__}."
        )
    return loss
