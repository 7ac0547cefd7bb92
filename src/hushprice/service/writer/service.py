"""The service: what any thread may ask for, and the one thread that carries it out.

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
ROOM = 50_000  # items that may wait
ROUND = 5_000  # items in one transaction
FRESH = 0.1  # seconds for which a look at the log is taken to be current


class Service:
    """Products that are sold, over a :class:`~hushprice.service.storage.store.Store`. Any thread may call any method.

    What is asked comes back as a future. ``clock`` gives seconds since 1970 (that of the database unless given) and
    ``rng`` the draws of price experiments (that of the system).
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
        self.tick = tick  # seconds between two looks for offers that waited too long
        self._queue: CommandQueue[Command[Any]] = CommandQueue(room)
        self.loaded = LoadedProducts(store, snapshot_every=snapshot_every, recent_keys=recent_keys)
        self._rounds = Rounds(self.loaded, self.clock)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._alive = False

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Fold all logs, and begin to take commands. Calling it again changes nothing."""
        with self._starting:
            if self._thread is not None:
                return
            for name in self.store.names():
                self.loaded.find_unless_damaged(name)
            self._thread = threading.Thread(target=self._work, name="hushprice-writer", daemon=True)
            self._alive = True
            self._thread.start()

    def stop(self) -> None:
        """Do what is waiting, keep snapshots, close the database. Calling it again changes nothing."""
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
        """Unavailable unless commands can be carried out."""
        if self._thread is None or not self._thread.is_alive():
            raise Unavailable("The service is not running.")
        self.store.ping()

    def queued(self) -> int:
        """Commands that wait."""
        return len(self._queue)

    # -- what is known at once -------------------------------------------------------------------------------------

    def view(self, name: str) -> View:
        """A product as last seen by this process."""
        return self.loaded.view(name)

    def products(self) -> list[View]:
        """All products as last seen by this process."""
        return self.loaded.views()

    # -- commands -------------------------------------------------------------------------------------------------

    def reports(self, name: str, items: list[ReportItem]) -> Future[Accepted]:
        """Take in reports of private customers: all or, if one is refused, none."""
        try:
            checked = [item.checked() for item in items]
        except InvalidInput as problem:
            refused: Future[Accepted] = Future()
            refused.set_exception(problem)
            return refused
        return self.checked_reports(name, checked)

    def checked_reports(self, name: str, items: Sequence[Reported]) -> Future[Accepted]:
        """:meth:`reports`, for a caller who has seen to their shape; whether the mechanism can have made them is seen
        to here."""
        return self._ask(Reports(name, items))

    def offer(self, name: str, request: OfferRequest) -> Future[OfferAnswer]:
        """Quote a price to a customer of a plain product."""
        return self._ask(Offer(name, request, self.rng))

    def outcomes(self, name: str, items: list[OutcomeItem]) -> Future[Accepted]:
        """Take in what customers bought: all or, if one is refused, none."""
        return self._ask(Outcomes(name, items))

    def set_mode(self, name: str, mode: Mode, *, by: str) -> Future[int]:
        """Live, shadow or frozen: the new version."""
        return self._ask(Change(name, "mode", {"mode": mode}, by))

    def set_guardrails(self, name: str, guardrails: Guardrails | Mapping[str, Any], *, by: str) -> Future[int]:
        """Other limits on prices, in place of those before: the new version."""
        plain = guardrails.config() if isinstance(guardrails, Guardrails) else guardrails
        return self._ask(Change(name, "guardrails", plain, by))

    def roll_back(self, name: str, version: int, *, by: str) -> Future[int]:
        """Know again what was known after event ``version``: the new version."""
        return self._ask(Change(name, "rollback", {"version": version}, by))

    def create(self, definition: Definition) -> Future[bool]:
        """A new product: whether it is new. One that is there and was defined otherwise is refused."""
        return self._ask(Create(definition))

    def refresh(self, name: str | None = None) -> Future[None]:
        """Look at what others wrote, unless that was done a moment ago; without a name, at which products there are."""
        if name is not None and time.monotonic() - self.loaded.seen.get(name, -FRESH) < FRESH:
            done: Future[None] = Future()
            done.set_result(None)
            return done
        return self._ask(ReadLearner(name, lambda learner: None) if name is not None else Products())

    def run(self, name: str, fn: Callable[[Learner], T]) -> Future[T]:
        """What ``fn`` makes of the learner as it stands. It must be quick, as the writer waits, and change nothing."""
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
            except BaseException as problem:  # the thread goes on whatever happens; those who wait are told
                log_problem(problem)
                self.loaded.learners.clear()
                for command in commands:
                    if not command.future.done():
                        command.future.set_exception(Unavailable("Something went wrong. Nothing was acknowledged."))
        self._alive = False
        for name, learner in list(self.loaded.learners.items()):
            self.loaded.keep_snapshot(name, learner, last=True)
