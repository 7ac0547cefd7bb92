"""Where the keys of events stand in a product's log: what tells a retry from something new.

PostgreSQL has a unique index of keys. In SQLite that would be dear: keys are random, so that each is somewhere else in
the index and costs a page of it, written and synced. There, every process keeps the keys of the last events in memory,
and puts them into the index in sorted order, several for each event it writes, in the same transactions; neighbours
then share a page.

Nothing hangs on that but time. An event's number is the primary key of the log, so that whoever writes event n has read
the n - 1 before it; their keys are in the index up to the event that is on record as ``placed``, and in memory from
there on.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy.engine import Connection

from hushprice.service.store import Product, Store

PACE = 4  # keys put into the index for each event written, while any are to be


class Places:
    """The places of keys, by the database's own index."""

    def __init__(self, store: Store, product: Product) -> None:
        self.store, self.product_id = store, product.id

    @staticmethod
    def of(store: Store, product: Product, connection: Connection) -> Places:
        """As the kind of database has it."""
        if store.sqlite:
            return RecentPlaces(store, product, store.placed(product.id, connection))
        return Places(store, product)

    def find(self, wanted: Collection[str], upto: int, connection: Connection) -> list[int]:
        """The events with these keys, as far as there are any, in a log locked after event ``upto``."""
        return self.store.find(self.product_id, wanted, connection)

    def keep(self, n: int, room: int, connection: Connection) -> None:
        """Do what the index needs in a transaction that writes n events."""

    def committed(self, keys: Collection[str], upto: int) -> None:
        """The keys of the last events up to this one, in order, and what :meth:`keep` did are on record now."""


class RecentPlaces(Places):
    """Those of the events up to ``since`` are in an index, those after it in memory."""

    def __init__(self, store: Store, product: Product, since: int) -> None:
        super().__init__(store, product)
        self.since = self.upto = since
        self._seqs: dict[str, int] = {}
        self._going: list[tuple[str, int]] = []  # on their way into the index, sorted
        self._target, self._gone, self._kept = (
            0,
            0,
            0,
        )  # the last event among them; how many are there, and put there now

    def find(self, wanted: Collection[str], upto: int, connection: Connection) -> list[int]:
        if self.upto < upto:
            self._seqs.update(self.store.keys_of(self.product_id, self.upto, upto, connection))
            self.upto = upto
        found = [seq for seq in map(self._seqs.get, wanted) if seq is not None]
        others = [key for key in wanted if key not in self._seqs] if found else wanted
        return found + self.store.find(self.product_id, others, connection)

    def keep(self, n: int, room: int, connection: Connection) -> None:
        """Put some keys into the index; begins when there are more than ``room`` in memory."""
        self._kept = 0
        if not self._going and len(self._seqs) > room:
            self._going, self._target, self._gone = sorted(self._seqs.items()), self.upto, 0
        some = self._going[self._gone : self._gone + PACE * n]
        if some:
            last = self._gone + len(some) == len(self._going)
            self.store.place(self.product_id, some, self._target if last else None, connection)
            self._kept = len(some)

    def committed(self, keys: Collection[str], upto: int) -> None:
        if self.upto + len(keys) == upto:  # or else there are others between, and all are left to find
            self._seqs.update(zip(keys, range(self.upto + 1, upto + 1), strict=True))
            self.upto = upto
        self._gone += self._kept
        self._kept = 0
        if self._going and self._gone == len(self._going):
            self.since, self._going = self._target, []
            self._seqs = {key: seq for key, seq in self._seqs.items() if seq > self.since}
