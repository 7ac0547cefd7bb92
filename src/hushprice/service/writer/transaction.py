"""One product in one transaction: its learner, the keys in its log, and its new events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy.engine import Connection

from hushprice.service.core.events import Event, encode
from hushprice.service.core.learner import Learner
from hushprice.service.errors import LogRewound
from hushprice.service.storage.key_index import KeyIndex
from hushprice.service.storage.replay import EarlierCores, catch_up
from hushprice.service.storage.store import Product, Row, Store


class ProductTransaction:
    """Appends events one by one, applies them in runs, and writes them at the end.

    Attributes
    ----------
    touched : bool
        Whether the learner is ahead of the committed log. If the transaction fails, such a learner is discarded.
    """

    def __init__(
        self, store: Store, product: Product, learner: Learner, key_index: KeyIndex, connection: Connection, now: float
    ) -> None:
        self.store, self.product, self.learner, self.connection = store, product, learner, connection
        self.key_index, self.touched = key_index, False
        if learner.seq and store.event(product.id, learner.seq, connection) != (learner.key, learner.at):
            raise LogRewound(product.name)
        catch_up(store, product, learner, connection)
        # whole seconds for private customers: a finer time would identify a line of a network's log
        self.now = max(float(math.floor(now)) if product.definition.private else now, learner.at)
        self._stored: dict[str, str] = {}  # bodies in the log, by key
        self._new: dict[str, str] = {}  # bodies of new events, by key
        self._unapplied: list[Event] = []
        self._unwritten: list[Row] = []
        self._seq = learner.seq

    def look_up(self, keys: Iterable[str]) -> None:
        """Look up the bodies of events with these keys."""
        wanted = dict.fromkeys(keys)
        if wanted:
            seqs = self.key_index.find(wanted, self.learner.seq, self.connection)
            self._stored = self.store.bodies(self.product.id, seqs, self.connection)

    def known(self, key: str) -> str | None:
        """The encoded body of the event with this key; None if there is none."""
        body = self._new.get(key)
        return self._stored.get(key) if body is None else body

    def append(
        self,
        kind: str,
        key: str,
        body: Mapping[str, Any],
        text: str | None = None,
        row: Sequence[int] | None = None,
    ) -> int:
        """Append the next event, to be applied and written later, and return its number."""
        self.touched = True
        self._seq += 1
        text = encode(body) if text is None else text
        self._new[key] = text
        self._unapplied.append(Event(self._seq, self.now, kind, key, body, row, text))
        self._unwritten.append((self.product.id, self._seq, self.now, kind, key, text))
        return self._seq

    def apply(self) -> Learner:
        """Apply the events that are not applied yet, and return the learner."""
        if self._unapplied:
            events, self._unapplied = self._unapplied, []
            if any(event.kind == "rollback" for event in events):
                self.write()  # a rollback reads the log
            self.learner.apply(events, EarlierCores(self.store, self.product, self.connection))
        return self.learner

    def write(self) -> None:
        """Insert the applied events; they are committed with the transaction."""
        rows, self._unwritten = self._unwritten, []
        self.store.add_events(rows, self.connection)

    def close(self, room: int) -> None:
        """Apply and insert the remaining events. ``room`` is the number of keys that may be in memory."""
        self.apply()
        self.write()
        self.key_index.maintain(self.learner.seq, room, self.connection)

    def committed(self) -> None:
        """Note that the transaction was committed."""
        self.key_index.committed(self._new, self.learner.seq)

    def expire(self) -> None:
        """Close offers that waited too long, if there are any."""
        if self.apply().open_offers.due(self.now):
            self.append("expire", f"x:{uuid4().hex}", {"now": self.now})
