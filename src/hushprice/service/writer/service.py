"""The writer: one thread through which everything is written, many commands in one transaction.

All commands that wait are taken at once. In one transaction: the products they are about are locked, events that other
processes committed are applied, the commands' keys are looked up, each command is decided on, and the new events are
written and committed; only then is anybody answered. If anything fails on the way, the learners that had gone ahead of
the log are thrown away and folded anew from it.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from hushprice.errors import HushpriceError, InvalidInput
from hushprice.service.core.events import Mode
from hushprice.service.core.learner import Learner
from hushprice.service.core.offers import OfferRequest
from hushprice.service.core.warmup import warm_up
from hushprice.service.definition import Definition
from hushprice.service.errors import DamagedLog, Failed, LogRewound, NotFound, Rejected, Unavailable
from hushprice.service.guardrails import Guardrails
from hushprice.service.settings import RECENT_KEYS, SNAPSHOT_EVERY
from hushprice.service.storage import replay
from hushprice.service.storage.key_index import KeyIndex, open_key_index
from hushprice.service.storage.store import Product, Store
from hushprice.service.writer.commands import (
    Apart,
    Change,
    Command,
    Create,
    Expire,
    Offer,
    Outcomes,
    Products,
    ReadLearner,
    Reports,
)
from hushprice.service.writer.messages import Accepted, OfferAnswer, OutcomeItem, Reported, ReportItem, View
from hushprice.service.writer.queue import CommandQueue
from hushprice.service.writer.transaction import ProductTransaction

T = TypeVar("T")
ROOM = 50_000  # items that may wait
ROUND = 5_000  # items in one transaction
FRESH = 0.1  # seconds for which a look at the log is taken to be current
AGAIN = 10.0  # seconds after which a learner that could not be folded is tried again by itself
log = logging.getLogger("hushprice.service.writer.service")


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
        self.store, self.snapshot_every = store, snapshot_every
        self.recent_keys = recent_keys  # that may wait in memory for their place in the index, of all products
        self.clock = store.clock if clock is None else clock
        self.rng = np.random.default_rng() if rng is None else rng
        self.tick = tick  # seconds between two looks for offers that waited too long
        self._queue: CommandQueue[Command[Any]] = CommandQueue(room)
        self._products: dict[str, Product] = {}
        self._learners: dict[str, Learner] = {}  # the writer's own
        self._key_indexes: dict[str, KeyIndex] = {}  # of keys in their logs
        self._views: dict[str, View] = {}
        self._shown: dict[str, Learner] = {}  # of which the views are
        self._seen: dict[str, float] = {}  # when the log was last looked at
        self._tried: dict[str, float] = {}  # when a lost learner was last folded anew for its offers
        self._broken: dict[str, tuple[float, str]] = {}  # products that cannot be served: since when, and why
        self._kept: dict[str, tuple[int, int]] = {}  # event of the last snapshot, and events until the next
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
                self.tried(name)
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

    # -- what can be told at once ---------------------------------------------------------------------------------

    def view(self, name: str) -> View:
        """A product as last seen by this process."""
        view = self._views.get(name)
        if view is None:
            if name in self._broken:
                raise DamagedLog(self._broken[name][1])
            raise NotFound("There is no such product.")
        return view

    def products(self) -> list[View]:
        """All products as last seen by this process."""
        return sorted(self._views.values(), key=lambda view: view.name)

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
        if name is not None and time.monotonic() - self._seen.get(name, -FRESH) < FRESH:
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
                self._round([c for c in commands if c.future.set_running_or_notify_cancel()])
                if time.monotonic() - ticked >= self.tick:
                    ticked = time.monotonic()
                    self._expire()
            except BaseException as problem:  # the thread goes on whatever happens; those who wait are told
                self._trouble(problem)
                self._learners.clear()
                for command in commands:
                    if not command.future.done():
                        command.future.set_exception(Unavailable("Something went wrong. Nothing was acknowledged."))
        self._alive = False
        for name, learner in list(self._learners.items()):
            self._snapshot(name, learner, last=True)

    def _round(self, commands: list[Command[Any]]) -> None:
        """Carry out commands, together if possible."""
        ready = []
        for command in commands:
            try:
                if isinstance(command, Apart):
                    _answer(command, command.run(self))
                    continue
                command.prepare(self.find(command.name).definition)
                ready.append(command)
            except Exception as problem:
                self._refuse(command, problem)
        if not ready:
            return
        try:
            done = self._transact(ready)
        except LogRewound as problem:
            self._set_back(str(problem), ready)
        except Unavailable as problem:
            if isinstance(problem, Rejected) or (isinstance(problem, DamagedLog) and len(ready) > 1):
                self._one_by_one(ready)
                return
            for command in ready:  # the database is away: it would be so for each of them
                self._refuse(command, problem)
        except Exception:
            self._one_by_one(ready)
        else:
            self._committed(*done)

    def _set_back(self, name: str, commands: list[Command[Any]]) -> None:
        """The database was brought back to an earlier state while it was in use: the product in question is taken up
        again. What cannot be served any more is refused then."""
        log.warning("the log of %s is not what it was: it is read again", name)
        del self._products[name]
        self._round(commands)

    def _one_by_one(self, commands: list[Command[Any]]) -> None:
        """One of the commands makes trouble: the others shall not suffer for it.

        Each is carried out for itself, by learners folded anew where they were spoiled. What fails then would fail
        however often it is tried.
        """
        for command in commands:
            try:
                done = self._transact([command])
            except LogRewound as problem:
                self._set_back(str(problem), [command])
            except Rejected as problem:
                self._trouble(problem)
                self._refuse(command, Failed(str(problem)))
            except Exception as problem:
                self._refuse(command, problem)
            else:
                self._committed(*done)

    def _transact(
        self, commands: list[Command[Any]]
    ) -> tuple[dict[str, ProductTransaction], list[tuple[Command[Any], Any]]]:
        """Carry out commands in one transaction: the transactions, and what each is to be answered. It is committed."""
        names = dict.fromkeys(command.name for command in commands)
        for name in names:
            if name not in self._learners:  # thrown away, and with it whatever else was known of the log
                self._read(self._products[name])
        wanted = {name: self._products[name] for name in names}
        writes = {command.name for command in commands if command.writes}
        transactions: dict[str, ProductTransaction] = {}
        answers: list[tuple[Command[Any], Any]] = []
        opening = ""  # the product whose learner is being brought up to date
        try:
            ids = [wanted[name].id for name in writes]
            with self.store.write(ids) if writes else self.store.read() as connection:
                now = self.clock()
                for name, product in wanted.items():
                    opening = name
                    key_index = self._key_indexes[name]
                    transaction = transactions[name] = ProductTransaction(
                        self.store, product, self._learners[name], key_index, connection, now
                    )
                    opening = ""
                    if name in writes and not product.definition.private:
                        transaction.expire()
                    mine = (command for command in commands if command.name == name)
                    transaction.look_up(key for command in mine for key in command.wanted())
                for command in commands:
                    answers.append((command, _decided(command, transactions[command.name])))
                for transaction in transactions.values():
                    transaction.close(self._room)
        except BaseException:
            ahead = {name for name, transaction in transactions.items() if transaction.touched} | {opening}
            for name in ahead & set(self._learners):  # they are not what the log says any more
                del self._learners[name]
            raise
        return transactions, answers

    def _committed(self, transactions: dict[str, ProductTransaction], answers: list[tuple[Command[Any], Any]]) -> None:
        for name, transaction in transactions.items():
            transaction.committed()
            self._publish(name, transaction.learner)
        for command, answer in answers:
            if isinstance(answer, Exception):
                self._refuse(command, answer)
            else:
                _answer(command, answer)
        for name, transaction in transactions.items():
            self._snapshot(name, transaction.learner)

    def _expire(self) -> None:
        """Close the offers of products that nobody asks about; a learner that was lost is folded anew for that."""
        due: list[Command[Any]] = []
        for name, product in self._products.items():
            learner = self._learners.get(name)
            if product.definition.private or (learner is not None and not learner.open_offers.due(self.clock())):
                continue
            if learner is None:
                if time.monotonic() - self._tried.get(name, -AGAIN) < AGAIN:
                    continue
                self._tried[name] = time.monotonic()
            due.append(Expire(name))
        for command in due:
            command.future.set_running_or_notify_cancel()
        self._round(due)

    def find(self, name: str) -> Product:
        """A product, taken up if it is new to this process. For the writer's thread."""
        if name not in self._products:
            since, why = self._broken.get(name, (-AGAIN, ""))
            if time.monotonic() - since < AGAIN:
                raise DamagedLog(why)
            try:
                product = self.store.product(name)
                if product is None:
                    raise NotFound("There is no such product.")
                self._load(product)
            except Exception as problem:
                if isinstance(problem, (NotFound, Unavailable)) and not isinstance(problem, (DamagedLog, Rejected)):
                    raise
                self._trouble(problem)
                self._views.pop(name, None)
                self._broken[name] = time.monotonic(), _why(name, problem)
                raise DamagedLog(self._broken[name][1]) from None
            self._broken.pop(name, None)
        return self._products[name]

    def renew(self, name: str) -> None:
        """Take up what may change in the definition of a product. For the writer's thread."""
        product = self.store.product(name)
        if product is not None and product.definition != self._products[name].definition:
            self._load(product)

    def tried(self, name: str) -> None:
        """:meth:`find`, for whom one damaged product must not stop the others."""
        with suppress(DamagedLog):  # whoever asks about it is told; it is in the log
            self.find(name)

    @property
    def _room(self) -> int:
        """Keys of one product that may wait in memory for their place in the index."""
        return max(1, self.recent_keys // max(1, len(self._products)))

    def _load(self, product: Product) -> None:
        """Take up a product: read its log, and do once what a first customer would wait for."""
        self._read(product)
        try:
            warm_up(product.definition)
        except Exception as problem:  # whoever asks will be told; what is on record can still be looked at
            self._trouble(problem)
        self._publish(product.name, self._learners[product.name])

    def _read(self, product: Product) -> None:
        """Fold a product's log, and open its index of keys."""
        with self.store.read() as connection:
            learner = replay.fold(self.store, product, connection)
            newest = self.store.snapshots(product.id, connection=connection)
        self._key_indexes[product.name] = open_key_index(self.store, product, self._room)
        self._products[product.name], self._learners[product.name] = product, learner
        self._kept[product.name] = newest[0][0] if newest else 0, self.snapshot_every

    def _publish(self, name: str, learner: Learner) -> None:
        """Let everybody see the learner as it stands."""
        self._seen[name] = time.monotonic()
        before = self._views.get(name)
        if self._shown.get(name) is not learner:
            before = None  # something for show has changed, or the log was read again
        self._shown[name] = learner
        if before is not None and before.seq == learner.seq:
            return
        same = before is not None and before.version == learner.version
        document = before.document if before is not None and same else None
        if document is None and learner.definition.private:
            document = learner.document()
        self._views[name] = View(
            definition=learner.definition,
            seq=learner.seq,
            version=learner.version,
            at=learner.at,
            mode=learner.mode,
            guardrails=learner.guardrails,
            params=learner.params,
            document=document,
            counts=learner.statistics.counts,
            waiting=len(learner.open_offers),
        )

    def _snapshot(self, name: str, learner: Learner, *, last: bool = False) -> None:
        """Keep a snapshot if one is due; without one, a restart only takes longer."""
        seq, pause = self._kept[name]
        if learner.seq - seq < (1 if last else pause):
            return
        try:
            product = self._products[name]
            others = self.store.snapshots(product.id)
            if not others or learner.seq - others[0][0] >= (1 if last else pause):
                size = replay.keep(self.store, product, learner)
                pause = max(self.snapshot_every, size // 1_000)  # a large one is not written for a few events
            self._kept[name] = learner.seq, pause
        except Exception as problem:
            self._kept[name] = learner.seq, pause
            self._trouble(problem)

    def _refuse(self, command: Command[Any], problem: BaseException) -> None:
        """Tell who asked that it was not done, and why if that is for them to know."""
        if not isinstance(problem, HushpriceError):
            self._trouble(problem)
            problem = Failed("Something went wrong here, and would again. Nothing was acknowledged.")
        if not command.future.done():
            command.future.set_exception(problem)

    def _trouble(self, problem: BaseException) -> None:
        """Log what happened and where, without any value."""
        problem = problem.__cause__ or problem  # of a spoiled command, what spoiled it
        frames = traceback.extract_tb(problem.__traceback__)
        where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames[-6:]))
        log.error("the writer met %s in %s", type(problem).__name__, where)


def _why(name: str, problem: Exception) -> str:
    """Why a product is not served; without the text of what nobody foresaw, which may hold a customer's data."""
    if isinstance(problem, DamagedLog):
        return str(problem)
    told = str(problem) if isinstance(problem, HushpriceError) else f"({type(problem).__name__})"
    return f"The product {name} is not served: what is on record of it cannot be read here. {told}"


def _decided(command: Command[T], transaction: ProductTransaction) -> Callable[[], T] | Exception:
    """What a command decides on: its answer, or its refusal."""
    try:
        return command.decide(transaction)
    except Unavailable:
        raise
    except HushpriceError as refusal:
        return refusal
    except Exception as problem:
        if command.writes:
            raise
        return problem  # it only looked


def _answer(command: Command[T], answer: Callable[[], T]) -> None:
    if not command.future.done():
        command.future.set_result(answer())
