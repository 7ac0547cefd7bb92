"""What was learned, folded anew from the log; and the check that it is what the snapshots say."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from itertools import islice
from typing import NamedTuple

from sqlalchemy.engine import Connection

from hushprice.errors import HushpriceError
from hushprice.policies.snapshot import pack, unpack
from hushprice.service.core.events import Event
from hushprice.service.core.fingerprint import digest
from hushprice.service.core.learner import Core, Learner
from hushprice.service.core.learner_state import STATE_FORMAT
from hushprice.service.errors import DamagedLog, NotFound
from hushprice.service.storage.key_index import misplaced
from hushprice.service.storage.store import PAGE, Product, Store
from hushprice.version import __version__

log = logging.getLogger("hushprice.service.storage.replay")


class Verdict(NamedTuple):
    """Whether the snapshots say what the log gives."""

    ok: bool
    events: int  # in the log
    rebuilt: str  # digest of the state after all of them, folded from the first on
    compared: int | None  # event of the newest snapshot that could be compared; None: there was none
    kept: str | None  # digest of that snapshot
    folded: str | None  # digest of the state after the same event, folded from the first on
    problems: tuple[str, ...]  # what differs
    notes: tuple[str, ...]  # what could not be compared


def rebuild(store: Store, name: str, upto: int | None = None, snapshots: bool = False) -> Learner:
    """The learner of a product after event ``upto`` (all unless given), from the log; with ``snapshots``, from the
    newest one that can be trusted on."""
    product = store.product(name)
    if product is None:
        raise NotFound(f"There is no product {name}.")
    with store.read() as connection:
        return fold(store, product, connection, upto=upto, snapshots=snapshots)


def verify(store: Store, name: str) -> Verdict:
    """Fold the log from its start, and compare with every snapshot as the fold comes by, whatever release wrote it.

    The state holds a fingerprint of all events, so that an edit which changed nothing learned is noticed too.
    """
    product = store.product(name)
    if product is None:
        raise NotFound(f"There is no product {name}.")
    with store.read() as connection:
        kept = store.snapshots(product.id, connection=connection)  # before the head, which only grows
        head = store.head(product.id, connection)
        problems = [_ahead(head, kept[0][0])] if kept and kept[0][0] > head else []
        learner, digests = Learner(product.definition), dict[int, str]()
        stops = [seq for seq, _ in kept]
        catch_up(store, product, learner, connection, upto=head, snapshots=False, stops=stops, digests=digests)
        twice, lost = misplaced(store, product.id, connection)
        if twice:
            problems.append(f"{twice} keys stand in the log more than once: they were counted as often")
        if lost:
            problems.append(f"{lost} keys are missing in the index of keys, or out of place: retries would count again")
        notes: list[str] = []
        compared: list[tuple[int, str, str]] = []
        for seq, told in (snapshot for snapshot in kept if snapshot[0] <= head):
            problem, comparable = _compared(store.snapshot(product.id, seq, connection), seq, told, digests[seq])
            (problems if comparable else notes).extend(problem)
            if comparable:
                compared.append((seq, told, digests[seq]))
    at, told_then, folded = compared[0] if compared else (None, None, None)
    return Verdict(not problems, head, learner.digest(), at, told_then, folded, tuple(problems), tuple(notes))


def _ahead(head: int, seq: int) -> str:
    return f"the log ends at {head}, a snapshot knows {seq}: the end of the log is lost"


def _compared(data: bytes | None, seq: int, told: str, folded: str) -> tuple[list[str], bool]:
    """What is wrong with a snapshot, and whether it could be compared."""
    try:
        plain = unpack(data or b"")
        release, form = str(plain["release"])[:40], plain["state"]["format"]
        if form != STATE_FORMAT:
            return [f"the snapshot at {seq} has the layout of release {release}, which cannot be compared"], False
        whole = digest(plain["state"]) == told
    except (HushpriceError, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return [f"the snapshot at {seq} is damaged"], True
    if told != folded:
        return [f"after event {seq} the state differs from what release {release} knew"], True
    return ([] if whole else [f"the snapshot at {seq} is damaged"]), True


def fold(
    store: Store, product: Product, connection: Connection, *, upto: int | None = None, snapshots: bool = True
) -> Learner:
    """The learner after event ``upto``, within a transaction."""
    learner = (snapshots and newest(store, product, connection, upto)) or Learner(product.definition)
    catch_up(store, product, learner, connection, upto=upto, snapshots=snapshots)
    return learner


def catch_up(
    store: Store,
    product: Product,
    learner: Learner,
    connection: Connection,
    *,
    upto: int | None = None,
    snapshots: bool = True,
    stops: Collection[int] = (),
    digests: dict[int, str] | None = None,
) -> int:
    """Apply the events that the learner has not seen: how many there were. ``digests`` takes those at ``stops``."""
    start = learner.seq
    events = store.events(product.id, learner.seq, upto, connection=connection)
    past = Past(store, product, connection, snapshots=snapshots)
    first = list(islice(events, PAGE))
    if first:
        past.expect(learner, upto)
    for page in _pages(first, events):
        for piece in past.pieces(page, stops):
            learner.apply(piece, past)
            past.pass_by(learner)
            if digests is not None and learner.seq in stops:
                digests[learner.seq] = learner.digest()
    return learner.seq - start


def _pages(first: list[Event], events: Iterable[Event]) -> Iterable[list[Event]]:
    source, page = iter(events), first
    while page:
        yield page
        page = list(islice(source, PAGE))


class Past:
    """Cores of earlier events, for rollbacks.

    In one pass over the log each core that a later rollback goes back to is kept as it goes by. Only those of before
    the first event of the pass are folded for themselves.
    """

    def __init__(self, store: Store, product: Product, connection: Connection, *, snapshots: bool = True) -> None:
        self.store, self.product, self.connection, self.snapshots = store, product, connection, snapshots
        self.wanted: list[int] = []  # events still to come whose core will be needed
        self.cores: dict[int, Core] = {}

    def expect(self, learner: Learner, upto: int | None) -> None:
        """Find out which cores the rollbacks after the learner's last event need."""
        changes = self.store.changes(self.product.id, upto, self.connection)
        targets = {e.body["version"] for e in changes if e.kind == "rollback" and e.seq > learner.seq}
        self.wanted = sorted((version for version in targets if version >= learner.seq), reverse=True)
        self.pass_by(learner)

    def pieces(self, page: list[Event], stops: Collection[int] = ()) -> Iterable[list[Event]]:
        """The page, cut after each event whose core will be needed, and after the stops."""
        start = 0
        for version in sorted({*self.wanted, *stops}):
            cut = version - page[0].seq + 1
            if start < cut < len(page):
                yield page[start:cut]
                start = cut
        yield page[start:]

    def pass_by(self, learner: Learner) -> None:
        """Keep the learner's core if it will be needed."""
        if self.wanted and self.wanted[-1] == learner.seq:
            self.cores[self.wanted.pop()] = learner.core()

    def __call__(self, version: int) -> Core:
        if version not in self.cores:
            earlier = fold(self.store, self.product, self.connection, upto=version, snapshots=self.snapshots)
            self.cores[version] = earlier.core()
        return self.cores[version]


def newest(store: Store, product: Product, connection: Connection, upto: int | None = None) -> Learner | None:
    """The learner of the newest snapshot that is whole and of this product; the others are passed over.

    A snapshot of events that the log has not got is no matter of the cache: acknowledged events are lost, and to go on
    would bury that. One whose last event is another one in the log is of another course of things: none is trusted.
    """
    kept = store.snapshots(product.id, connection=connection)  # before the head, which only grows
    head = store.head(product.id, connection)
    if kept and kept[0][0] > head:
        raise DamagedLog(
            f"The product {product.name} is not served: {_ahead(head, kept[0][0])}. Bring back the whole database from "
            f"a copy; or, to go on without what is lost, delete the snapshots of this product."
        )
    for seq, told in kept:
        if upto is not None and seq > upto:
            continue
        data = store.snapshot(product.id, seq, connection)
        learner = None if data is None else _read(product, data)
        if learner is None or learner.seq != seq or learner.digest() != told:
            continue
        if store.event(product.id, seq, connection) != (learner.key, learner.at):
            log.warning("a snapshot of %s is not of this log: all events are folded anew", product.name)
            return None
        return learner
    return None


def _read(product: Product, data: bytes) -> Learner | None:
    learner = Learner(product.definition)
    try:
        told = unpack(data)
        if told["release"] != __version__:  # which may fold otherwise
            return None
        learner.restore(told["state"])
    except (HushpriceError, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None
    return learner


def keep(store: Store, product: Product, learner: Learner) -> int:
    """Write a snapshot: its size."""
    state = learner.state()
    data = pack({"release": __version__, "state": state})
    store.add_snapshot(product.id, learner.seq, (learner.key, learner.at), digest(state), data)
    return len(data)
