"""Rounds of commands: many in one transaction, and one by one where a command among them fails.

One transaction locks the products of the commands, applies events that other processes committed, looks up the
commands' keys, decides each command, and writes and commits the new events. Callers are answered only after the commit.
If anything fails on the way, the learners that are ahead of the log are discarded and folded again from it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from hushprice.errors import HushpriceError
from hushprice.service.errors import DamagedLog, Failed, LogRewound, Rejected, Unavailable
from hushprice.service.writer.commands import Apart, Command, Expire
from hushprice.service.writer.loaded import RETRY_AFTER, LoadedProducts, log_problem
from hushprice.service.writer.transaction import ProductTransaction

T = TypeVar("T")
log = logging.getLogger(__name__)


class Rounds:
    """Carries out commands for the writer's thread. ``clock`` gives seconds since 1970."""

    def __init__(self, loaded: LoadedProducts, clock: Callable[[], float]) -> None:
        self.loaded, self.clock = loaded, clock
        self._retried: dict[str, float] = {}  # when a discarded learner was last folded again for its offers

    def carry_out(self, commands: list[Command[Any]]) -> None:
        """Carry out commands, together if possible."""
        ready = []
        for command in commands:
            try:
                if isinstance(command, Apart):
                    _answer(command, command.run(self.loaded))
                    continue
                command.prepare(self.loaded.find(command.name).definition)
                ready.append(command)
            except Exception as problem:
                refuse(command, problem)
        if not ready:
            return
        try:
            done = self._transact(ready)
        except LogRewound as problem:
            self._read_again(str(problem), ready)
        except Unavailable as problem:
            if isinstance(problem, Rejected) or (isinstance(problem, DamagedLog) and len(ready) > 1):
                self._one_by_one(ready)
                return
            for command in ready:  # the database is unreachable for all of them
                refuse(command, problem)
        except Exception:
            self._one_by_one(ready)
        else:
            self._committed(*done)

    def _read_again(self, name: str, commands: list[Command[Any]]) -> None:
        """Load a product again after its log was rewound while in use, then retry."""
        log.warning("the log of %s is not what it was: it is read again", name)
        del self.loaded.products[name]
        self.carry_out(commands)

    def _one_by_one(self, commands: list[Command[Any]]) -> None:
        """Retry the commands one at a time, so that one failure does not affect the rest.

        Discarded learners are folded again first. A command that fails again would fail every time.
        """
        for command in commands:
            try:
                done = self._transact([command])
            except LogRewound as problem:
                self._read_again(str(problem), [command])
            except Rejected as problem:
                log_problem(problem)
                refuse(command, Failed(str(problem)))
            except Exception as problem:
                refuse(command, problem)
            else:
                self._committed(*done)

    def _transact(
        self, commands: list[Command[Any]]
    ) -> tuple[dict[str, ProductTransaction], list[tuple[Command[Any], Any]]]:
        """Carry out commands in one transaction and commit it; return the products' parts and the commands' answers."""
        names = dict.fromkeys(command.name for command in commands)
        for name in names:
            if name not in self.loaded.learners:  # discarded, together with the index of keys
                self.loaded.read(self.loaded.products[name])
        products = {name: self.loaded.products[name] for name in names}
        writes = {command.name for command in commands if command.writes}
        transactions: dict[str, ProductTransaction] = {}
        answers: list[tuple[Command[Any], Any]] = []
        opening = ""  # the product whose learner is being brought up to date
        try:
            ids = [products[name].id for name in writes]
            with self.loaded.store.write(ids) if writes else self.loaded.store.read() as connection:
                now = self.clock()
                for name, product in products.items():
                    opening = name
                    key_index = self.loaded.key_indexes[name]
                    transaction = transactions[name] = ProductTransaction(
                        self.loaded.store, product, self.loaded.learners[name], key_index, connection, now
                    )
                    opening = ""
                    if name in writes and not product.definition.private:
                        transaction.expire()
                    mine = (command for command in commands if command.name == name)
                    transaction.look_up(key for command in mine for key in command.wanted())
                for command in commands:
                    answers.append((command, _decided(command, transactions[command.name])))
                for transaction in transactions.values():
                    transaction.close(self.loaded.room)
        except BaseException:
            ahead = {name for name, transaction in transactions.items() if transaction.touched} | {opening}
            for name in ahead & set(self.loaded.learners):  # their state is ahead of the log
                del self.loaded.learners[name]
            raise
        return transactions, answers

    def _committed(self, transactions: dict[str, ProductTransaction], answers: list[tuple[Command[Any], Any]]) -> None:
        for name, transaction in transactions.items():
            transaction.committed()
            self.loaded.publish(name, transaction.learner)
        for command, answer in answers:
            if isinstance(answer, Exception):
                refuse(command, answer)
            else:
                _answer(command, answer)
        for name, transaction in transactions.items():
            self.loaded.keep_snapshot(name, transaction.learner)

    def expire(self) -> None:
        """Close expired offers of products without requests; a discarded learner is folded again for that."""
        due: list[Command[Any]] = []
        for name, product in self.loaded.products.items():
            learner = self.loaded.learners.get(name)
            if product.definition.private or (learner is not None and not learner.open_offers.due(self.clock())):
                continue
            if learner is None:
                if time.monotonic() - self._retried.get(name, -RETRY_AFTER) < RETRY_AFTER:
                    continue
                self._retried[name] = time.monotonic()
            due.append(Expire(name))
        for command in due:
            command.future.set_running_or_notify_cancel()
        self.carry_out(due)


def refuse(command: Command[Any], problem: BaseException) -> None:
    """Set the command's error; replace an unexpected one, whose text may contain data."""
    if not isinstance(problem, HushpriceError):
        log_problem(problem)
        problem = Failed("Something went wrong here, and would again. Nothing was acknowledged.")
    if not command.future.done():
        command.future.set_exception(problem)


def _decided(command: Command[T], transaction: ProductTransaction) -> Callable[[], T] | Exception:
    """A command's answer or its refusal."""
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
