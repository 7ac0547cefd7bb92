"""The service: methods that any thread may call, and the writer's thread, which carries out their commands.

The writer's thread takes all commands that wait at once, and carries them out in rounds (``rounds.py``) on the products
that it has loaded (``loaded.py``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np

from hushprice.errors import HushpriceError, InvalidInput
from hushprice.service.core.events import Mode
from hushprice.service.core.learner import Learner
from hushprice.service.core.offers import OfferRequest
from hushprice.service.definition import Definition
from hushprice.service.errors import Unavailable
from hushprice.service.guardrails import Guardrails
from hushprice.service.settings import RECENT_KEYS, SNAPSHOT_EVERY
from hushprice.service.storage.store import Store
from hushprice.service.writer.commands import (
    Change,
    Command,
    Create,
    Offer,
    Outcomes,
    Products,
    ReadLearner,
    Reports,
)
from hushprice.service.writer.loaded import LoadedProducts, log_problem
from hushprice.service.writer.messages import Accepted, OfferAnswer, OutcomeItem, Reported, ReportItem, View
from hushprice.service.writer.queue import CommandQueue
from hushprice.service.writer.rounds import Rounds

T = TypeVar("T")
ROOM = 50_000  # items that may wait in the queue
ROUND = 5_000  # items in one transaction
FRESH = 0.1  # seconds for which the last read of a log counts as current


class Service:
    """The pricing service over a :class:`~hushprice.service.storage.store.Store`.

    Any thread may call any method. Commands return futures.

    Parameters
    ----------
    store : Store
        The database.
    snapshot_every : int
        Events between two snapshots of a product.
    recent_keys : int
        Event keys of all products that may be in memory before they go into SQLite's index.
    clock : callable, optional
        Returns seconds since 1970; the database's clock by default.
    rng : numpy.random.Generator, optional
        Draws the prices of experiments; seeded from the system's entropy by default.
    room : int
        Items that may wait in the queue.
    tick : float
        Seconds between two searches for expired offers.
    """

    def __init__(
        self,
        store: Store,
        *,
        snapshot_every: int = SNAPSHOT_EVERY,
        recent_keys: int = RECENT_KEYS,
        clock: Callable[[], float] | None = None,
        rng: np.random.Generator | None = None,
        room: int = ROOM,
        tick: float = 1.0,
    ) -> None:
        self.store = store
        self.clock = store.clock if clock is None else clock
        self.rng = np.random.default_rng() if rng is None else rng
        self.tick = tick
        self._queue: CommandQueue[Command[Any]] = CommandQueue(room)
        self.loaded = LoadedProducts(store, snapshot_every=snapshot_every, recent_keys=recent_keys)
        self._rounds = Rounds(self.loaded, self.clock)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._alive = False

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Fold all logs and start the writer's thread. A second call does nothing."""
        with self._starting:
            if self._thread is not None:
                return
            for name in self.store.names():
                self.loaded.find_unless_damaged(name)
            self._thread = threading.Thread(target=self._work, name="hushprice-writer", daemon=True)
            self._alive = True
            self._thread.start()

    def stop(self) -> None:
        """Carry out waiting commands, write snapshots, close the database. A second call does nothing."""
        with self._starting:
            self._queue.close()
            if self._thread is not None:
                self._thread.join()
            self.store.close()

    def __enter__(self) -> Service:
        self.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop()

    def check(self) -> None:
        """Raise Unavailable if commands cannot be carried out."""
        if self._thread is None or not self._thread.is_alive():
            raise Unavailable("The service is not running.")
        self.store.ping()

    def queued(self) -> int:
        """The number of waiting commands."""
        return len(self._queue)

    # -- views ----------------------------------------------------------------------------------------------------

    def view(self, name: str) -> View:
        """A product's state as this process last read it; NotFound or DamagedLog if there is none.

        Parameters
        ----------
        name : str
            Name of the product.
        """
        return self.loaded.view(name)

    def products(self) -> list[View]:
        """The states of all products as this process last read them."""
        return self.loaded.views()

    # -- commands -------------------------------------------------------------------------------------------------

    def reports(self, name: str, items: list[ReportItem]) -> Future[Accepted]:
        """Accept reports of private customers: all or, if one is refused, none.

        Parameters
        ----------
        name : str
            Name of the product.
        items : list of ReportItem
            The reports.

        Returns
        -------
        Future of Accepted
            Done when they are on disk.
        """
        try:
            checked = [item.checked() for item in items]
        except InvalidInput as problem:
            refused: Future[Accepted] = Future()
            refused.set_exception(problem)
            return refused
        return self.checked_reports(name, checked)

    def checked_reports(self, name: str, items: Sequence[Reported]) -> Future[Accepted]:
        """As :meth:`reports`, for items whose shape has been checked; the mechanism still checks their values.

        Parameters
        ----------
        name : str
            Name of the product.
        items : sequence of mapping
            The reports.

        Returns
        -------
        Future of Accepted
            Done when they are on disk.
        """
        return self._ask(Reports(name, items))

    def offer(self, name: str, request: OfferRequest) -> Future[OfferAnswer]:
        """Quote a price to a customer of a plain product.

        Parameters
        ----------
        name : str
            Name of the product.
        request : OfferRequest
            The customer, and the id of the offer.

        Returns
        -------
        Future of OfferAnswer
            Done when the offer is on disk.
        """
        return self._ask(Offer(name, request, self.rng))

    def outcomes(self, name: str, items: list[OutcomeItem]) -> Future[Accepted]:
        """Accept outcomes of offers: all or, if one is refused, none.

        Parameters
        ----------
        name : str
            Name of the product.
        items : list of OutcomeItem
            The outcomes.

        Returns
        -------
        Future of Accepted
            Done when they are on disk.
        """
        return self._ask(Outcomes(name, items))

    def set_mode(self, name: str, mode: Mode, *, by: str) -> Future[int]:
        """Set the mode; the result is the new version.

        Parameters
        ----------
        name : str
            Name of the product.
        mode : str
            "live", "shadow" or "frozen".
        by : str
            Who asks for it, for the history.
        """
        return self._ask(Change(name, "mode", {"mode": mode}, by))

    def set_guardrails(self, name: str, guardrails: Guardrails | Mapping[str, Any], *, by: str) -> Future[int]:
        """Replace the guardrails; the result is the new version.

        Parameters
        ----------
        name : str
            Name of the product.
        guardrails : Guardrails or mapping
            The new guardrails.
        by : str
            Who asks for it, for the history.
        """
        plain = guardrails.config() if isinstance(guardrails, Guardrails) else guardrails
        return self._ask(Change(name, "guardrails", plain, by))

    def roll_back(self, name: str, version: int, *, by: str) -> Future[int]:
        """Restore the estimate as it was after event ``version``; the result is the new version.

        Parameters
        ----------
        name : str
            Name of the product.
        version : int
            Number of the event.
        by : str
            Who asks for it, for the history.
        """
        return self._ask(Change(name, "rollback", {"version": version}, by))

    def forget(self, name: str, half_life: float, *, by: str) -> Future[int]:
        """Let old outcomes of a plain product count less; the result is the new version.

        Parameters
        ----------
        name : str
            Name of the product.
        half_life : float
            Age in outcomes at which an outcome counts half.
        by : str
            Who asks for it, for the history.
        """
        return self._ask(Change(name, "forget", {"half_life": half_life}, by))

    def create(self, definition: Definition) -> Future[bool]:
        """Create a product; the result is whether it is new. An existing one with another definition is refused.

        Parameters
        ----------
        definition : Definition
            The product.
        """
        return self._ask(Create(definition))

    def refresh(self, name: str | None = None) -> Future[None]:
        """Read what other processes wrote to a log, unless that was just done; without a name, find new products.

        Parameters
        ----------
        name : str, optional
            Name of the product.
        """
        if name is not None and time.monotonic() - self.loaded.seen.get(name, -FRESH) < FRESH:
            done: Future[None] = Future()
            done.set_result(None)
            return done
        return self._ask(ReadLearner(name, lambda learner: None) if name is not None else Products())

    def run(self, name: str, fn: Callable[[Learner], T]) -> Future[T]:
        """Call ``fn`` with the learner in the writer's thread. It must be quick and must not change the learner.

        Parameters
        ----------
        name : str
            Name of the product.
        fn : callable
            Takes the learner.

        Returns
        -------
        Future
            The value that ``fn`` returns.
        """
        return self._ask(ReadLearner(name, fn))

    def _ask(self, command: Command[T]) -> Future[T]:
        try:
            if not self._alive:
                raise Unavailable("The service is not running. Nothing was acknowledged: try again.")
            self._queue.put(command)
        except HushpriceError as problem:
            command.future.set_exception(problem)
        return command.future

    # -- the writer's thread --------------------------------------------------------------------------------------

    def _work(self) -> None:
        ticked = time.monotonic()
        while not self._queue.over:
            commands: list[Command[Any]] = []
            try:
                commands = self._queue.take(most=ROUND, timeout=self.tick)
                self._rounds.carry_out([c for c in commands if c.future.set_running_or_notify_cancel()])
                if time.monotonic() - ticked >= self.tick:
                    ticked = time.monotonic()
                    self._rounds.expire()
            except BaseException as problem:  # the thread continues in any case; waiting callers get an error
                log_problem(problem)
                self.loaded.learners.clear()
                for command in commands:
                    if not command.future.done():
                        command.future.set_exception(Unavailable("Something went wrong. Nothing was acknowledged."))
        self._alive = False
        for name, learner in list(self.loaded.learners.items()):
            self.loaded.keep_snapshot(name, learner, last=True)
