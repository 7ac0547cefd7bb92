"""The index of event keys, which distinguishes retries from new events.

PostgreSQL has a unique index of keys. In SQLite such an index would be slow: keys are random, so each new key changes
another page of the index, which must be written and synced. Instead, every process holds the keys of the last events in
memory. When there are too many, it sorts them and inserts them into the index, several per event written, in the same
transactions; neighbouring keys then share a page:

    events    1 ........ since ......... pending_upto ......... upto
    keys      in the index | pending, sorted    | only in memory

This affects speed only. The number of an event is the primary key of the log, so a process that writes event n has read
the n - 1 events before it. Their keys are in the index up to the event recorded in the table ``placed``, and in memory
after it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from hushprice.service.storage.schema import FIND_POSTGRES, FIND_SQLITE, KEYS, PLACE, PLACED, events, placed, places
from hushprice.service.storage.store import Product, Store, insert

PACE = 4  # pending keys that go into the index per event


class KeyIndex:
    """The key index of a product in PostgreSQL: the unique index of the table of events."""

    def __init__(self, store: Store, product: Product) -> None:
        self.store, self.product_id = store, product.id

    def find(self, wanted: Collection[str], upto: int, connection: Connection) -> list[int]:
        """Return the numbers of the events with these keys; the log is locked and ends at ``upto``."""
        return [seq for (seq,) in self.store.ask(connection, FIND_POSTGRES, list(wanted), self.product_id)]

    def maintain(self, upto: int, room: int, connection: Connection) -> None:
        """Maintain the index in a transaction that writes the events up to ``upto``.

        Parameters
        ----------
        upto : int
            Number of the last event that the transaction writes.
        room : int
            How many keys may be in memory.
        connection : Connection
            The connection with the transaction.
        """

    def committed(self, keys: Collection[str], upto: int) -> None:
        """Note that the transaction was committed; ``keys`` are those of its events, in order, up to ``upto``."""


class RecentKeyIndex(KeyIndex):
    """The key index of a product in SQLite: a table for events up to ``since``, memory for those after it.

    Parameters
    ----------
    store : Store
        The database.
    product : Product
        The product.
    since : int
        The event up to which all keys are in the table.
    head : int
        The number of the last event.
    """

    def __init__(self, store: Store, product: Product, since: int, head: int) -> None:
        super().__init__(store, product)
        self.since = self.upto = since
        self._seqs: dict[str, int] = {}
        self._pending: list[tuple[str, int]] = []  # (key, number) to be inserted into the table, sorted
        self._pending_upto = since  # the last event among them
        self._inserted = 0  # how many of them are in the table
        self._inserting = 0  # how many the current transaction inserts
        self._paced_upto = head  # the last event for which PACE keys were inserted

    def find(self, wanted: Collection[str], upto: int, connection: Connection) -> list[int]:
        if self.upto < upto:  # another process has written events, and perhaps keys
            self._drop(indexed_upto(self.product_id, connection))
            self._seqs.update(_keys(self.store, self.product_id, self.upto, upto, connection))
            self.upto = upto
        seqs = [seq for seq in map(self._seqs.get, wanted) if seq is not None]
        others = [key for key in wanted if key not in self._seqs] if seqs else wanted
        if others:
            json_list = "[" + ",".join(f'"{key}"' for key in others) + "]"  # keys contain no quotes
            seqs += [seq for (seq,) in self.store.ask(connection, FIND_SQLITE, json_list, self.product_id)]
        return seqs

    def maintain(self, upto: int, room: int, connection: Connection) -> None:
        """Insert some pending keys; start a new list of pending keys when more than ``room`` are in memory."""
        if not self._pending and len(self._seqs) > room:
            self._pending, self._pending_upto, self._inserted = sorted(self._seqs.items()), self.upto, 0
        some = self._pending[self._inserted : self._inserted + PACE * (upto - self._paced_upto)]
        self._inserting = len(some)
        if some:
            last = self._inserted + len(some) == len(self._pending)
            _insert_keys(self.store, self.product_id, some, self._pending_upto if last else None, connection)

    def committed(self, keys: Collection[str], upto: int) -> None:
        if self.upto + len(keys) == upto:  # otherwise events of others are in between, and ``find`` reads all of them
            self._seqs.update(zip(keys, range(self.upto + 1, upto + 1), strict=True))
            self.upto = upto
        self._inserted += self._inserting
        self._inserting, self._paced_upto = 0, upto
        if self._pending and self._inserted == len(self._pending):
            self._drop(self._pending_upto)

    def _drop(self, since: int) -> None:
        """Drop keys that are in the index: those of events up to ``since``."""
        if since > self.since:
            self.since, self.upto = since, max(since, self.upto)
            self._seqs = {key: seq for key, seq in self._seqs.items() if seq > since}
        if since >= self._pending_upto:
            self._pending = []


def open_key_index(store: Store, product: Product, room: int) -> KeyIndex:
    """Open the key index of a product.

    If more than ``room`` keys are missing in SQLite's index, for instance because it was lost, they are inserted first,
    ``room`` at a time. If the log was cut off or continues differently than when the index was made, the index is built
    again. Stale entries do no harm: the event with their number has another key.

    Parameters
    ----------
    store : Store
        The database.
    product : Product
        The product.
    room : int
        How many keys may be in memory.
    """
    if not store.sqlite:
        return KeyIndex(store, product)
    with store.write([product.id]) as connection:
        since = indexed_upto(product.id, connection)
        if since == 0:
            connection.execute(placed.delete().where(placed.c.product_id == product.id))
        head = store.head(product.id, connection)
    while head - since > room:
        upto = min(since + room, head)
        with store.write([product.id]) as connection:
            some = sorted(_keys(store, product.id, since, upto, connection))
            _insert_keys(store, product.id, some, upto, connection)
        since = upto
    return RecentKeyIndex(store, product, since, head)


def indexed_upto(product_id: int, connection: Connection) -> int:
    """The event up to which all keys are in SQLite's index; 0 if unknown."""
    last = (events.c.product_id == product_id, events.c.seq == placed.c.upto, events.c.key == placed.c.key)
    upto = connection.execute(sa.select(placed.c.upto).where(placed.c.product_id == product_id, *last)).scalar()
    return int(upto or 0)


def count_misplaced(store: Store, product_id: int, connection: Connection) -> tuple[int, int]:
    """Count the keys that are in the log more than once, and those missing or with a wrong number in SQLite's index.

    Both are 0 in PostgreSQL, whose unique index excludes them.
    """
    if not store.sqlite:
        return 0, 0
    mine = events.c.product_id == product_id
    twice = sa.select(events.c.key).where(mine).group_by(events.c.key).having(sa.func.count() > 1)
    place = sa.and_(places.c.product_id == events.c.product_id, places.c.key == events.c.key)
    elsewhere = sa.or_(places.c.seq.is_(None), places.c.seq != events.c.seq)
    due = events.c.seq <= indexed_upto(product_id, connection)
    lost = sa.select(sa.func.count()).select_from(events.outerjoin(places, place)).where(mine, due, elsewhere)
    again = sa.select(sa.func.count()).select_from(twice.subquery())
    return int(connection.execute(again).scalar_one()), int(connection.execute(lost).scalar_one())


def _keys(store: Store, product_id: int, after: int, upto: int, connection: Connection) -> list[tuple[str, int]]:
    """Return (key, seq) of the events with ``after`` < seq <= ``upto``, in order."""
    return store.ask(connection, KEYS, product_id, after, upto)


def _insert_keys(
    store: Store, product_id: int, some: Sequence[tuple[str, int]], upto: int | None, connection: Connection
) -> None:
    """Insert (key, seq) into SQLite's index; ``upto`` records that all keys up to that event are there."""
    with closing(connection.connection.cursor()) as cursor:
        insert(cursor, PLACE, [(product_id, key, seq) for key, seq in some])
        if upto is not None:
            cursor.execute(PLACED, (product_id, upto))
