"""The ledger: the privacy budget of one customer over many reports, stored on the customer's own device."""

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

_CAP_TOLERANCE = 1.0 + 1e-12  # lets three reports of 0.1 fit under a cap of 0.3


class Spending(Protocol):
    """A mechanism, here or in :mod:`hushprice.privacy`, whose reports can be charged to a ledger."""

    @property
    def name(self) -> str:
        """Its name, for error texts."""
        ...

    @property
    def loss(self) -> Loss:
        """The privacy loss of one report."""
        ...


class Ledger:
    """A privacy budget (epsilon, delta) for all reports of one customer, which is never exceeded.

    Parameters
    ----------
    epsilon : float
        Cap on the epsilon of all reports together.
    delta : float
        Cap on their delta.
    path : path, optional
        File of the ledger. Default: in memory, for one process and the lifetime of this object.

    Notes
    -----
    Losses of pure mechanisms add (basic composition); those of Gaussian mechanisms combine exactly.

    With a ``path``, every charge is on disk before the report is made, so a crash or a restart can only make the
    customer safer, and several processes share one budget. Every charge is written to the file and to a log beside it
    (``.log``); the one with more reports counts, so restoring an old copy of the file gains nothing. Only the end of a
    long log is retained. A damaged or missing file stops reports; it never counts as a new ledger. The cap is stored in
    the file and can be lowered but not raised.

    Examples
    --------
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
        with self._locked():
            if self.path is None:
                return
            if not self.path.exists() and not pages.logged(self.path):
                self._write(self._page)
                return
            stored = self._stored()
            if cap.epsilon > stored.cap.epsilon or cap.delta > stored.cap.delta:
                raise InvalidInput(
                    f"The ledger {self.path} has a cap of epsilon = {stored.cap.epsilon:g}, delta = "
                    f"{stored.cap.delta:g}, which can be lowered but not raised."
                )
            self._write(Page(cap, stored.spent, stored.reports))

    @property
    def cap(self) -> Guarantee:
        """The budget."""
        return self._page.cap

    @property
    def spent(self) -> Loss:
        """The loss of all reports so far."""
        return self._latest().spent

    @property
    def reports(self) -> int:
        """Number of reports charged so far."""
        return self._latest().reports

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all reports so far together, at the cap's delta."""
        return self.spent.guarantee(self.cap.delta)

    def allows(self, mechanism: Spending) -> bool:
        """Return whether the budget allows one more report by this mechanism.

        Parameters
        ----------
        mechanism : Mechanism
            The mechanism that would make the report.
        """
        return self._fits(self.spent + _loss(mechanism))

    def spend(self, mechanism: Spending) -> None:
        """Charge one report by a mechanism.

        Parameters
        ----------
        mechanism : Mechanism
            The mechanism that makes the report.

        Raises
        ------
        BudgetSpent
            If the report would exceed the budget; nothing is charged.
        LedgerError
            If the ledger cannot be read or written.
        """
        loss = _loss(mechanism)
        with self._locked():
            page = self._reload()
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
        return total.within(Guarantee(self.cap.epsilon * _CAP_TOLERANCE, self.cap.delta))

    def _latest(self) -> Page:
        with self._locked():
            return self._reload()

    def _reload(self) -> Page:
        """The current page, with the lowest cap of the file and of this object."""
        if self.path is not None:
            stored, ours = self._stored(), self._page.cap
            cap = Guarantee(min(ours.epsilon, stored.cap.epsilon), min(ours.delta, stored.cap.delta))
            self._page = Page(cap, stored.spent, stored.reports)
        return self._page

    def _stored(self) -> Page:
        """The page with most reports in the file, its log and this object, with the lowest cap on disk."""
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
    def _locked(self) -> Iterator[None]:
        """Exclude all other threads and processes that use this ledger."""
        if self._process != os.getpid() and self.path is None:
            raise LedgerError("A ledger without a file cannot be shared by processes: give it a path.")
        with self._thread, pages.folder_locked(self.path):
            yield


def _loss(mechanism: Spending) -> Loss:
    loss = getattr(mechanism, "loss", None)
    if not isinstance(loss, Loss) or not isinstance(getattr(mechanism, "name", None), str):
        raise InvalidInput(
            f"A ledger is charged with a mechanism, such as policy.mechanism, not {type(mechanism).__name__}."
        )
    return loss
