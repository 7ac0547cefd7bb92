"""Fold a product's log into its learner, and verify that snapshots agree with the fold."""

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
from hushprice.service.storage.key_index import count_misplaced
from hushprice.service.storage.store import PAGE, Product, Store
from hushprice.version import __version__

log = logging.getLogger(__name__)


class Verdict(NamedTuple):
    """The result of :func:`verify`.

    Attributes
    ----------
    ok : bool
        Whether there are no problems.
    events : int
        Number of events in the log.
    rebuilt : str
        Digest of the state after all events, folded from the first one.
    compared : int or None
        Event of the newest snapshot that could be compared; None if there was none.
    kept : str or None
        Digest of that snapshot.
    folded : str or None
        Digest of the state after the same event, folded from the first one.
    problems : tuple of str
        Differences.
    notes : tuple of str
        Snapshots that could not be compared.
    """

    ok: bool
    events: int
    rebuilt: str
    compared: int | None
    kept: str | None
    folded: str | None
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def rebuild(store: Store, name: str, upto: int | None = None, snapshots: bool = False) -> Learner:
    """Rebuild the learner of a product from its log.

    Parameters
    ----------
    store : Store
        The database.
    name : str
        The name of the product.
    upto : int, optional
        The last event to apply; all events by default.
    snapshots : bool
        Whether to start from the newest valid snapshot.
    """
    product = store.product(name)
    if product is None:
        raise NotFound(f"There is no product {name}.")
    with store.read() as connection:
        return fold(store, product, connection, upto=upto, snapshots=snapshots)


def verify(store: Store, name: str) -> Verdict:
    """Fold the log from its start and compare the state with every snapshot, whichever release wrote it.

    The state contains a fingerprint of all events, so edits of the log are detected even if the estimate is the same.

    Parameters
    ----------
    store : Store
        The database.
    name : str
        The name of the product.
    """
    product = store.product(name)
    if product is None:
        raise NotFound(f"There is no product {name}.")
    with store.read() as connection:
        stored = store.snapshots(product.id, connection=connection)  # before the head, which only grows
        head = store.head(product.id, connection)
        problems = [_ahead(head, stored[0][0])] if stored and stored[0][0] > head else []
        learner, digests = Learner(product.definition), dict[int, str]()
        stops = [seq for seq, _ in stored]
        catch_up(store, product, learner, connection, upto=head, snapshots=False, stops=stops, digests=digests)
        twice, lost = count_misplaced(store, product.id, connection)
        if twice:
            problems.append(f"{twice} keys stand in the log more than once: they were counted as often")
        if lost:
            problems.append(f"{lost} keys are missing in the index of keys, or out of place: retries would count again")
        notes: list[str] = []
        compared: list[tuple[int, str, str]] = []
        for seq, recorded in (snapshot for snapshot in stored if snapshot[0] <= head):
            problem, comparable = _compared(store.snapshot(product.id, seq, connection), seq, recorded, digests[seq])
            (problems if comparable else notes).extend(problem)
            if comparable:
                compared.append((seq, recorded, digests[seq]))
    at, kept, folded = compared[0] if compared else (None, None, None)
    return Verdict(not problems, head, learner.digest(), at, kept, folded, tuple(problems), tuple(notes))


def _ahead(head: int, seq: int) -> str:
    return f"the log ends at {head}, a snapshot knows {seq}: the end of the log is lost"


def _compared(data: bytes | None, seq: int, recorded: str, folded: str) -> tuple[list[str], bool]:
    """The problems or notes about a snapshot, and whether it could be compared."""
    try:
        plain = unpack(data or b"")
        release, form = str(plain["release"])[:40], plain["state"]["format"]
        if form != STATE_FORMAT:
            return [f"the snapshot at {seq} has the layout of release {release}, which cannot be compared"], False
        intact = digest(plain["state"]) == recorded
    except (HushpriceError, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return [f"the snapshot at {seq} is damaged"], True
    if recorded != folded:
        return [f"after event {seq} the state differs from what release {release} knew"], True
    return ([] if intact else [f"the snapshot at {seq} is damaged"]), True


def fold(
    store: Store, product: Product, connection: Connection, *, upto: int | None = None, snapshots: bool = True
) -> Learner:
    """Fold the log up to event ``upto`` within a transaction."""
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
    """Apply the events after the learner's last one; return their number. ``digests`` receives those at ``stops``."""
    start = learner.seq
    events = store.events(product.id, learner.seq, upto, connection=connection)
    earlier = EarlierCores(store, product, connection, snapshots=snapshots)
    first = list(islice(events, PAGE))
    if first:
        earlier.expect(learner, upto)
    for page in _pages(first, events):
        for piece in earlier.pieces(page, stops):
            learner.apply(piece, earlier)
            earlier.collect(learner)
            if digests is not None and learner.seq in stops:
                digests[learner.seq] = learner.digest()
    return learner.seq - start


def _pages(first: list[Event], events: Iterable[Event]) -> Iterable[list[Event]]:
    source, page = iter(events), first
    while page:
        yield page
        page = list(islice(source, PAGE))


class EarlierCores:
    """The learner's cores after earlier events, for rollbacks.

    During one pass over the log each core to which a later rollback returns is collected on the way. Only cores from
    before the first event of the pass need a fold of their own.
    """

    def __init__(self, store: Store, product: Product, connection: Connection, *, snapshots: bool = True) -> None:
        self.store, self.product, self.connection, self.snapshots = store, product, connection, snapshots
        self.wanted: list[int] = []  # later events whose core will be needed, last first
        self.cores: dict[int, Core] = {}

    def expect(self, learner: Learner, upto: int | None) -> None:
        """Determine which cores the rollbacks after the learner's last event need."""
        changes = self.store.changes(self.product.id, upto, self.connection)
        targets = {e.body["version"] for e in changes if e.kind == "rollback" and e.seq > learner.seq}
        self.wanted = sorted((version for version in targets if version >= learner.seq), reverse=True)
        self.collect(learner)

    def pieces(self, page: list[Event], stops: Collection[int] = ()) -> Iterable[list[Event]]:
        """Split a page after each event whose core will be needed, and after the stops."""
        start = 0
        for version in sorted({*self.wanted, *stops}):
            cut = version - page[0].seq + 1
            if start < cut < len(page):
                yield page[start:cut]
                start = cut
        yield page[start:]

    def collect(self, learner: Learner) -> None:
        """Store the learner's core if a rollback will need it."""
        if self.wanted and self.wanted[-1] == learner.seq:
            self.cores[self.wanted.pop()] = learner.core()

    def __call__(self, version: int) -> Core:
        if version not in self.cores:
            earlier = fold(self.store, self.product, self.connection, upto=version, snapshots=self.snapshots)
            self.cores[version] = earlier.core()
        return self.cores[version]


def newest(store: Store, product: Product, connection: Connection, upto: int | None = None) -> Learner | None:
    """The learner of the newest intact snapshot of this product, or None.

    A snapshot of events that the log does not have means that acknowledged events are lost, so it raises DamagedLog. If
    the last event of a snapshot differs from the log's, the snapshots belong to another log and none is used.
    """
    stored = store.snapshots(product.id, connection=connection)  # before the head, which only grows
    head = store.head(product.id, connection)
    if stored and stored[0][0] > head:
        raise DamagedLog(
            f"The product {product.name} is not served: {_ahead(head, stored[0][0])}. Bring back the whole database "
            f"from a copy; or, to go on without what is lost, delete the snapshots of this product."
        )
    for seq, recorded in stored:
        if upto is not None and seq > upto:
            continue
        data = store.snapshot(product.id, seq, connection)
        learner = None if data is None else _read(product, data)
        if learner is None or learner.seq != seq or learner.digest() != recorded:
            continue
        if store.event(product.id, seq, connection) != (learner.key, learner.at):
            log.warning("a snapshot of %s is not of this log: all events are folded anew", product.name)
            return None
        return learner
    return None


def _read(product: Product, data: bytes) -> Learner | None:
    learner = Learner(product.definition)
    try:
        plain = unpack(data)
        if plain["release"] != __version__:  # another release may fold differently
            return None
        learner.restore(plain["state"])
    except (HushpriceError, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None
    return learner


def write_snapshot(store: Store, product: Product, learner: Learner) -> int:
    """Store a snapshot of the learner and return its size in bytes."""
    state = learner.state()
    data = pack({"release": __version__, "state": state})
    store.add_snapshot(product.id, learner.seq, (learner.key, learner.at), digest(state), data)
    return len(data)
