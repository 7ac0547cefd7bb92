"""One product in one transaction: its learner, what is on record, and the events that are about to be."""

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
from hushprice.service.storage.replay import Past, catch_up
from hushprice.service.storage.store import Product, Row, Store


class ProductTransaction:
    """Events are decided on one after the other, applied in runs, and written at the end.

    ``touched`` says that the learner has gone beyond what is committed: should the transaction fail, it is thrown away.
    """

    def __init__(
        self, store: Store, product: Product, learner: Learner, key_index: KeyIndex, connection: Connection, now: float
    ) -> None:
        self.store, self.product, self.learner, self.connection = store, product, learner, connection
        self.key_index, self.touched = key_index, False
        if learner.seq and store.event(product.id, learner.seq, connection) != (learner.key, learner.at):
            raise LogRewound(product.name)
        catch_up(store, product, learner, connection)
        # of private customers whole seconds are kept: a finer time would point to one line in a network's log
        self.now = max(float(math.floor(now)) if product.definition.private else now, learner.at)
        self._found: dict[str, str] = {}
        self._new: dict[str, str] = {}  # bodies as text, by key
        self._staged: list[Event] = []  # decided on, not applied yet
        self._rows: list[Row] = []  # not written yet
        self._seq = learner.seq

    def look_up(self, keys: Iterable[str]) -> None:
        """Find out which of these keys are on record, and under what bodies."""
        wanted = dict.fromkeys(keys)
        if wanted:
            found = self.key_index.find(wanted, self.learner.seq, self.connection)
            self._found = self.store.bodies(self.product.id, found, self.connection)

    def known(self, key: str) -> str | None:
        """The body on record under this key, as text; None if there is none."""
        found = self._new.get(key)
        return self._found.get(key) if found is None else found

    def stage(
        self,
        kind: str,
        key: str,
        body: Mapping[str, Any],
        text: str | None = None,
        row: Sequence[int] | None = None,
    ) -> int:
        """The next event: its number."""
        self.touched = True
        self._seq += 1
        text = encode(body) if text is None else text
        self._new[key] = text
        self._staged.append(Event(self._seq, self.now, kind, key, body, row, text))
        self._rows.append((self.product.id, self._seq, self.now, kind, key, text))
        return self._seq

    def apply(self) -> Learner:
        """The learner with all events decided on so far."""
        if self._staged:
            staged, self._staged = self._staged, []
            if any(event.kind == "rollback" for event in staged):
                self.write()  # it goes back to what is on record
            self.learner.apply(staged, Past(self.store, self.product, self.connection))
        return self.learner

    def write(self) -> None:
        """Write the events down; they are committed with the transaction."""
        rows, self._rows = self._rows, []
        self.store.add_events(rows, self.connection)

    def close(self, room: int) -> None:
        """All is decided: apply and write the rest. ``room`` is how many keys may wait for their place in the index."""
        self.apply()
        self.write()
        self.key_index.maintain(self.learner.seq, room, self.connection)

    def committed(self) -> None:
        """All this is on record now."""
        self.key_index.committed(self._new, self.learner.seq)

    def expire(self) -> None:
        """Close offers that waited too long, if there are any."""
        if self.apply().open_offers.due(self.now):
            self.stage("expire", f"x:{uuid4().hex}", {"now": self.now})
