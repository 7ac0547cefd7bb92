"""What was learned, folded anew from the log; and the check that it is what the snapshots say."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from sqlalchemy.engine import Connection

from hushprice.errors import HushpriceError
from hushprice.policies.snapshot import pack, unpack
from hushprice.service.events import Event
from hushprice.service.learner import Core, Learner
from hushprice.service.refusals import NotFound
from hushprice.service.state import digest
from hushprice.service.store import PAGE, Product, Store
from hushprice.version import __version__


class Verdict(NamedTuple):
    """Whether snapshots and log agree, and the digest of each way to the same state."""

    ok: bool
    kept: str  # from the newest snapshot on
    rebuilt: str  # from the first event on


def rebuild(store: Store, name: str, upto: int | None = None, snapshots: bool = False) -> Learner:
    """The learner of a product after event ``upto`` (all unless given), from the log; with ``snapshots``, from the
    newest one that can be trusted on."""
    product = store.product(name)
    if product is None:
        raise NotFound(f"There is no product {name}.")
    with store.read() as connection:
        return fold(store, product, connection, upto=upto, snapshots=snapshots)


def verify(store: Store, name: str) -> Verdict:
    """Fold the log from its start, and from the newest snapshot on: the same bits, or the snapshot is wrong."""
    product = store.product(name)
    if product is None:
        raise NotFound(f"There is no product {name}.")
    with store.read() as connection:
        head = store.head(product.id, connection)
        kept = fold(store, product, connection, upto=head, snapshots=True).digest()
        rebuilt = fold(store, product, connection, upto=head, snapshots=False).digest()
    return Verdict(kept == rebuilt, kept, rebuilt)


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
) -> int:
    """Apply the events that the learner has not seen: how many there were."""
    start = learner.seq
    events = store.events(product.id, learner.seq, upto, connection=connection)
    past = Past(store, product, connection, snapshots=snapshots)
    first = list(islice(events, PAGE))
    if first:
        past.expect(learner, upto)
    for page in _pages(first, events):
        for piece in past.pieces(page):
            learner.apply(piece, past)
            past.pass_by(learner)
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

    def pieces(self, page: list[Event]) -> Iterable[list[Event]]:
        """The page, cut after each event whose core will be needed."""
        start = 0
        for version in self.wanted[::-1]:
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
    """The learner of the newest snapshot that is whole and of this product; the others are passed over."""
    head = store.head(product.id, connection)
    for seq, told in store.snapshots(product.id, head if upto is None else min(upto, head), connection):
        data = store.snapshot(product.id, seq, connection)
        learner = None if data is None else _read(product, data)
        if learner is not None and learner.seq == seq and learner.digest() == told:
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
    store.add_snapshot(product.id, learner.seq, digest(state), data)
    return len(data)
