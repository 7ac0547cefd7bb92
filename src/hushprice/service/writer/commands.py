"""The commands that the writer carries out.

``prepare`` checks what can be checked without the log. ``wanted`` returns the keys to look up in it. ``decide`` refuses
the command, or appends events and returns a function that gives the answer once they are applied. A command that
refuses has appended no event.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from uuid import uuid4

import numpy as np

from hushprice.errors import LARGEST_VALUE, HushpriceError, InvalidInput
from hushprice.policies.base import checked_half_life
from hushprice.privacy import VectorMechanism, wire
from hushprice.service.core import offers
from hushprice.service.core.events import MODES, decode, encode, encode_report, offer_id
from hushprice.service.core.learner import Learner
from hushprice.service.definition import Definition
from hushprice.service.errors import Conflict, NotFound, about
from hushprice.service.guardrails import Guardrails, Limits
from hushprice.service.writer.messages import Accepted, OfferAnswer, OutcomeItem, Reported
from hushprice.service.writer.transaction import ProductTransaction

if TYPE_CHECKING:
    from hushprice.service.writer.loaded import LoadedProducts

A = TypeVar("A")


class Spoiled(Exception):
    """A command failed after it had changed the learner."""


class Command(Generic[A]):
    """A request about a product, with a future for the answer."""

    writes: ClassVar[bool] = True
    weight: int = 1

    def __init__(self, name: str) -> None:
        self.name = name
        self.future: Future[A] = Future()

    def prepare(self, definition: Definition) -> None:
        """Check the command without the log. Called again if the log was rewound."""
        return

    def wanted(self) -> list[str]:
        """Keys to look up in the log."""
        return []

    @abstractmethod
    def decide(self, transaction: ProductTransaction) -> Callable[[], A]:
        """Stage events; return a function that gives the answer once they are applied."""


class Reports(Command[Accepted]):
    """Reports of private customers, whose shape has been checked."""

    def __init__(self, name: str, items: Sequence[Reported]) -> None:
        super().__init__(name)
        self.items, self.weight = items, len(items)
        self.events: list[tuple[str, Reported, str, list[int] | None]] = []

    def prepare(self, definition: Definition) -> None:
        policy = definition.private_policy
        if policy is None:
            raise Conflict("This product is plain: it takes offers and outcomes, not reports.")
        rows = _report_rows(policy.mechanism, [item["report"] for item in self.items])
        self.events = [
            (f"r:{item['id']}", item, encode_report(item["version"], item["report"]), row)
            for item, row in zip(self.items, rows, strict=True)
        ]

    def wanted(self) -> list[str]:
        return [event[0] for event in self.events]

    def decide(self, transaction: ProductTransaction) -> Callable[[], Accepted]:
        new: dict[str, tuple[Reported, str, list[int] | None]] = {}
        for i, (key, item, text, row) in enumerate(self.events):
            before = new[key][1] if key in new else transaction.known(key)
            if before is None:
                new[key] = item, text, row
            elif before != text:
                other = Conflict("A report with the same id but other contents is on record: each needs its own.")
                raise about(other, "reports", i, self.weight)
        for key, (item, text, row) in new.items():
            transaction.append("report", key, {"version": item["version"], "report": item["report"]}, text, row)
        known = len(self.events) - len(new)
        return lambda: Accepted(accepted=len(new), known=known, version=transaction.learner.version)


def _report_rows(mechanism: VectorMechanism, reports: Sequence[Mapping[str, Any] | None]) -> list[list[int] | None]:
    """Each report as a server takes it (None stays None); an error if the mechanism cannot produce one of them."""
    numbers = wire.rows(mechanism, [report for report in reports if report is not None])
    if numbers is None:
        wrong = (i for i, report in enumerate(reports) if report and wire.rows(mechanism, [report]) is None)
        problem = InvalidInput(f"A report is none that {mechanism.name} as set up for this product can make.")
        raise about(problem, "reports", next(wrong, 0), len(reports))
    rows = iter(numbers.tolist())
    return [None if report is None else next(rows) for report in reports]


class Offer(Command[OfferAnswer]):
    """A price for a customer of a plain product."""

    checked: offers.CheckedRequest

    def __init__(self, name: str, request: offers.OfferRequest, rng: np.random.Generator) -> None:
        super().__init__(name)
        self.request, self.id = request, uuid4().hex if request.id is None else request.id
        self.rng = rng

    def prepare(self, definition: Definition) -> None:
        if definition.private:
            raise Conflict("This product is private: devices price by themselves, from its params.")
        offer_id(self.id)
        self.checked = offers.prepare(definition, self.request)

    def wanted(self) -> list[str]:
        return [f"o:{self.id}"]

    def decide(self, transaction: ProductTransaction) -> Callable[[], OfferAnswer]:
        learner, key = transaction.apply(), f"o:{self.id}"
        known = transaction.known(key)
        if known is not None:
            body = decode(known)
            if body["asked"] != self.checked.fingerprint:
                raise Conflict("An offer with the same id answered another request: each needs an id of its own.")
            return lambda: _answer(self.id, body, known=True)
        offers.allow(learner, self.checked)
        transaction.touched = True  # from here on, since a quote may update the policy's estimate
        try:
            body = learner.quote(self.checked, self.rng)
        except HushpriceError as problem:  # not a refusal: the learner is ahead of the log
            raise Spoiled from problem
        transaction.append("offer", key, body)
        transaction.apply()
        return lambda: _answer(self.id, body, known=False)


def _answer(key: str, body: Mapping[str, Any], *, known: bool) -> OfferAnswer:
    fields = {name: body[name] for name in ("price", "experiment", "propensity", "discrete", "version")}
    return OfferAnswer(offer=key, known=known, **fields)


class Outcomes(Command[Accepted]):
    """Outcomes of offers."""

    def __init__(self, name: str, items: list[OutcomeItem]) -> None:
        super().__init__(name)
        self.items, self.weight = items, len(items)
        self.events: list[tuple[str, dict[str, Any], str]] = []

    def prepare(self, definition: Definition) -> None:
        if definition.private:
            raise Conflict("This product is private: outcomes stay on the device, and reports are sent.")
        family, self.events = definition.policy.family, []  # ``prepare`` may be called again
        for i, item in enumerate(self.items):
            try:
                body = {"y": _outcome(family, item.y)}
                self.events.append((offer_id(item.offer), body, encode(body)))
            except InvalidInput as problem:
                raise about(problem, "outcomes", i, self.weight) from None

    def wanted(self) -> list[str]:
        return [
            f"{kind}:{key}" for key, _, _ in self.events for kind in "oy"
        ]  # the offer may be closed before this command's turn

    def decide(self, transaction: ProductTransaction) -> Callable[[], Accepted]:
        learner = transaction.apply()
        new: dict[str, tuple[dict[str, Any], str]] = {}
        for i, (key, body, text) in enumerate(self.events):
            if key not in learner.open_offers and transaction.known(f"o:{key}") is None:
                never = NotFound("An outcome is for an offer that was never made. None of the outcomes was kept.")
                raise about(never, "outcomes", i, self.weight)
            before = new[key][1] if key in new else transaction.known(f"y:{key}")
            if before is None:
                new[key] = body, text
            elif before != text:
                other = Conflict("Another outcome of the same offer is on record. None of the outcomes was kept.")
                raise about(other, "outcomes", i, self.weight)
        late = sum(key not in learner.open_offers for key in new)
        for key, (body, text) in new.items():
            transaction.append("outcome", f"y:{key}", body, text)
        known = len(self.events) - len(new)
        return lambda: Accepted(accepted=len(new), known=known, late=late, version=transaction.learner.version)


def _outcome(family: Any, y: Any) -> float:
    try:
        outcome = family.check_outcome(y)
        if outcome.shape == () and abs(outcome) <= LARGEST_VALUE:
            return float(outcome) + 0.0  # no negative zero
    except InvalidInput:
        pass
    raise InvalidInput(
        f"An outcome must be one number that {family.name} demand can have, at most {LARGEST_VALUE:g} in size."
    )


class Change(Command[int]):
    """A mode, guardrails, a rollback or forgetting; the answer is the new version."""

    def __init__(self, name: str, kind: str, body: Mapping[str, Any], by: str) -> None:
        super().__init__(name)
        self.kind, self.body, self.by = kind, dict(body), by

    def prepare(self, definition: Definition) -> None:
        if self.kind == "mode" and self.body["mode"] not in MODES:
            raise InvalidInput(f"The mode must be one of {', '.join(MODES)}.")
        if self.kind == "guardrails":
            guardrails = Guardrails.of(self.body)
            Limits(definition.policy, guardrails)
            self.body = guardrails.config()
        if self.kind == "forget":
            self.body = {"half_life": checked_half_life(self.body["half_life"])}
            if definition.private:
                raise Conflict("This product is private: its reports cannot be made to count less.")
            definition.policy.server().forget(1.0)  # an error if the policy cannot forget
        if self.kind == "rollback":
            version = self.body["version"]
            if isinstance(version, bool) or not isinstance(version, int) or version < 0:
                raise InvalidInput("The event to roll back to must be given by its number (as version), 0 or more.")

    def decide(self, transaction: ProductTransaction) -> Callable[[], int]:
        learner = transaction.apply()
        if self.kind == "rollback" and self.body["version"] > learner.seq:
            raise NotFound(f"There is no such event yet: the last one is {learner.seq}.")
        seq = transaction.append(self.kind, f"a:{uuid4().hex}", {**self.body, "by": self.by})
        try:
            transaction.apply()
        except HushpriceError as problem:  # not a refusal: the event is in the transaction
            raise Spoiled from problem
        return lambda: seq


class ReadLearner(Command[A]):
    """Computes a result from the learner without changing it."""

    writes = False

    def __init__(self, name: str, fn: Callable[[Learner], A]) -> None:
        super().__init__(name)
        self.fn = fn

    def decide(self, transaction: ProductTransaction) -> Callable[[], A]:
        result = self.fn(transaction.apply())
        return lambda: result


class Expire(Command[None]):
    """Close offers that waited too long (which every writing command does first)."""

    def decide(self, transaction: ProductTransaction) -> Callable[[], None]:
        return lambda: None


class Apart(Command[A]):
    """A command that concerns no product's log and runs outside a transaction over logs."""

    @abstractmethod
    def run(self, loaded: LoadedProducts) -> Callable[[], A]:
        """Carry it out."""

    def decide(self, transaction: ProductTransaction) -> Callable[[], A]:
        raise AssertionError("it has no place in a transaction over logs")


class Create(Apart[bool]):
    """Create a product."""

    def __init__(self, definition: Definition) -> None:
        super().__init__(definition.name)
        self.definition = definition

    def run(self, loaded: LoadedProducts) -> Callable[[], bool]:
        new = loaded.store.add_product(self.definition)
        loaded.find(self.definition.name)
        loaded.renew(self.definition.name)
        return lambda: new


class Products(Apart[None]):
    """Load products that other processes have created."""

    def __init__(self) -> None:
        super().__init__("")

    def run(self, loaded: LoadedProducts) -> Callable[[], None]:
        for name in loaded.store.names():
            loaded.find_unless_damaged(name)
        return lambda: None
