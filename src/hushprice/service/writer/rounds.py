"""Rounds of commands: many in one transaction, and one by one where a command among them fails.

In one transaction: the products they are about are locked, events that other processes committed are applied, the
commands' keys are looked up, each command is decided on, and the new events are written and committed; only then is
anybody answered. If anything fails on the way, the learners that had gone ahead of the log are thrown away and folded
anew from it.
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
log = logging.getLogger("hushprice.service.writer.service")


class Rounds:
    """Carries out commands for the writer's thread. ``clock`` gives seconds since 1970."""

    def __init__(self, loaded: LoadedProducts, clock: Callable[[], float]) -> None:
        self.loaded, self.clock = loaded, clock
        self._retried: dict[str, float] = {}  # when a lost learner was last folded anew for its offers

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
            for command in ready:  # the database is away: it would be so for each of them
                refuse(command, problem)
        except Exception:
            self._one_by_one(ready)
        else:
            self._committed(*done)

    def _read_again(self, name: str, commands: list[Command[Any]]) -> None:
        """Load a product again after its log was set back to an earlier state while in use, then retry."""
        log.warning("the log of %s is not what it was: it is read again", name)
        del self.loaded.products[name]
        self.carry_out(commands)

    def _one_by_one(self, commands: list[Command[Any]]) -> None:
        """Retry the commands one at a time, so that one failure does not affect the rest.

        Learners that were spoiled are folded anew first. A command that fails again would fail however often it is
        tried.
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
        """Carry out commands in one transaction and commit it: each product's part, and each command's answer."""
        names = dict.fromkeys(command.name for command in commands)
        for name in names:
            if name not in self.loaded.learners:  # thrown away, and with it whatever else was known of the log
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
            for name in ahead & set(self.loaded.learners):  # they are not what the log says any more
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
        """Close the offers of products that nobody asks about; a learner that was lost is folded anew for that."""
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
    """Set the command's error; for an error that is no refusal, one without its text, which may hold data."""
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
