"""Where the keys of events stand in a product's log: what tells a retry from something new.

PostgreSQL has a unique index of keys. In SQLite that would be dear: keys are random, so that each is somewhere else in
the index and costs a page of it, written and synced. There, every process keeps the keys of the last events in memory.
When there are too many, they are sorted and go into the index, several for each event that is written, in the same
transactions; neighbours then share a page:

    events    1 ........ since ............ target ............ upto
    keys      in the index | on their way, sorted | only in memory

Nothing hangs on that but time. An event's number is the primary key of the log, so that whoever writes event n has read
the n - 1 before it; their keys are in the index up to the event that is on record as ``placed``, and in memory from
there on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from hushprice.service.storage.schema import FIND_POSTGRES, FIND_SQLITE, KEYS, PLACE, PLACED, events, placed, places
from hushprice.service.storage.store import Product, Store, insert

PACE = 4  # keys that go into the index for each event, while any are on their way


class KeyIndex:
    """By the unique index of PostgreSQL."""

    def __init__(self, store: Store, product: Product) -> None:
        self.store, self.product_id = store, product.id

    def find(self, wanted: Collection[str], upto: int, connection: Connection) -> list[int]:
        """The events with these keys, as far as there are any, in a log locked after event ``upto``."""
        return [seq for (seq,) in self.store.ask(connection, FIND_POSTGRES, list(wanted), self.product_id)]

    def keep(self, upto: int, room: int, connection: Connection) -> None:
        """Do what the index needs, in a transaction that writes the events up to this one."""

    def committed(self, keys: Collection[str], upto: int) -> None:
        """The keys of the last events up to this one, in order, and what :meth:`keep` did are on record now."""


class RecentKeyIndex(KeyIndex):
    """Those of the events up to ``since`` by an index of SQLite, those after it in memory."""

    def __init__(self, store: Store, product: Product, since: int, head: int) -> None:
        super().__init__(store, product)
        self.since = self.upto = since
        self._seqs: dict[str, int] = {}
        self._going: list[tuple[str, int]] = []  # on their way into the index, sorted
        self._target = since  # the last event among them
        self._gone = 0  # how many of them are there
        self._kept = 0  # how many this transaction puts there
        self._paced = head  # the event up to which the pace was kept

    def find(self, wanted: Collection[str], upto: int, connection: Connection) -> list[int]:
        if self.upto < upto:  # another process was here, and may have filled the index too
            self._forget(on_record(self.product_id, connection))
            self._seqs.update(_keys(self.store, self.product_id, self.upto, upto, connection))
            self.upto = upto
        found = [seq for seq in map(self._seqs.get, wanted) if seq is not None]
        others = [key for key in wanted if key not in self._seqs] if found else wanted
        if others:
            given = "[" + ",".join(f'"{key}"' for key in others) + "]"  # keys hold no quotes
            found += [seq for (seq,) in self.store.ask(connection, FIND_SQLITE, given, self.product_id)]
        return found

    def keep(self, upto: int, room: int, connection: Connection) -> None:
        """Put some keys into the index; begins when there are more than ``room`` in memory."""
        if not self._going and len(self._seqs) > room:
            self._going, self._target, self._gone = sorted(self._seqs.items()), self.upto, 0
        some = self._going[self._gone : self._gone + PACE * (upto - self._paced)]
        self._kept = len(some)
        if some:
            last = self._gone + len(some) == len(self._going)
            _place(self.store, self.product_id, some, self._target if last else None, connection)

    def committed(self, keys: Collection[str], upto: int) -> None:
        if self.upto + len(keys) == upto:  # or else there are others between, and all are left to find
            self._seqs.update(zip(keys, range(self.upto + 1, upto + 1), strict=True))
            self.upto = upto
        self._gone += self._kept
        self._kept, self._paced = 0, upto
        if self._going and self._gone == len(self._going):
            self._forget(self._target)

    def _forget(self, since: int) -> None:
        """All keys up to this event are in the index."""
        if since > self.since:
            self.since, self.upto = since, max(since, self.upto)
            self._seqs = {key: seq for key, seq in self._seqs.items() if seq > since}
        if since >= self._target:
            self._going = []


def open_key_index(store: Store, product: Product, room: int) -> KeyIndex:
    """The places of a product's keys, as its kind of database has them.

    If more keys than ``room`` are not in SQLite's index, as when it was lost, they are put there first, so many at a
    time. A log that was cut off, or goes on otherwise than when its index was made, gets a new one: what is left in it
    of other events names numbers of events that have other keys, and is not taken for anything.
    """
    if not store.sqlite:
        return KeyIndex(store, product)
    with store.write([product.id]) as connection:
        since = on_record(product.id, connection)
        if since == 0:
            connection.execute(placed.delete().where(placed.c.product_id == product.id))
        head = store.head(product.id, connection)
    while head - since > room:
        upto = min(since + room, head)
        with store.write([product.id]) as connection:
            some = sorted(_keys(store, product.id, since, upto, connection))
            _place(store, product.id, some, upto, connection)
        since = upto
    return RecentKeyIndex(store, product, since, head)


def on_record(product_id: int, connection: Connection) -> int:
    """The event up to which all keys are in SQLite's index; 0 if that is not known."""
    last = (events.c.product_id == product_id, events.c.seq == placed.c.upto, events.c.key == placed.c.key)
    found = connection.execute(sa.select(placed.c.upto).where(placed.c.product_id == product_id, *last)).scalar()
    return int(found or 0)


def misplaced(store: Store, product_id: int, connection: Connection) -> tuple[int, int]:
    """How many keys stand in the log more than once, and how many of those that ought to be in SQLite's index are not
    there, or with another event. (PostgreSQL sees to both.)"""
    if not store.sqlite:
        return 0, 0
    mine = events.c.product_id == product_id
    twice = sa.select(events.c.key).where(mine).group_by(events.c.key).having(sa.func.count() > 1)
    place = sa.and_(places.c.product_id == events.c.product_id, places.c.key == events.c.key)
    elsewhere = sa.or_(places.c.seq.is_(None), places.c.seq != events.c.seq)
    due = events.c.seq <= on_record(product_id, connection)
    lost = sa.select(sa.func.count()).select_from(events.outerjoin(places, place)).where(mine, due, elsewhere)
    again = sa.select(sa.func.count()).select_from(twice.subquery())
    return int(connection.execute(again).scalar_one()), int(connection.execute(lost).scalar_one())


def _keys(store: Store, product_id: int, after: int, upto: int, connection: Connection) -> list[tuple[str, int]]:
    """(key, seq) of the events ``after`` < seq <= ``upto``, in order."""
    return store.ask(connection, KEYS, product_id, after, upto)


def _place(
    store: Store, product_id: int, some: Sequence[tuple[str, int]], upto: int | None, connection: Connection
) -> None:
    """Put (key, seq) into SQLite's index; with ``upto``, all keys up to that event are there then."""
    with closing(connection.connection.cursor()) as cursor:
        insert(cursor, PLACE, [(product_id, key, seq) for key, seq in some])
        if upto is not None:
            cursor.execute(PLACED, (product_id, upto))
