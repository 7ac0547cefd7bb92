"""Products, event logs, keys, and snapshots, which are a cache of the fold. (Transactions: ``connections.py``.)"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from hushprice.errors import HushpriceError
from hushprice.service.core.events import CHANGES, Event, decode, encode
from hushprice.service.core.size_limits import fits
from hushprice.service.definition import Definition
from hushprice.service.errors import Conflict
from hushprice.service.storage.connections import Connections
from hushprice.service.storage.schema import (
    ADD,
    ADD_MANY,
    NEXT,
    ONE,
    READ_POSTGRES,
    READ_SQLITE,
    events,
    keys,
    products,
    snapshots,
)

PAGE = 5_000  # events per query
LAST = 2**62
SMALL_BATCH = 20  # events up to which INSERT is faster than COPY in PostgreSQL
KEPT_SNAPSHOTS = 3

Row = tuple[int, int, float, str, str, str]
"""(product id, seq, at, kind, key, body as text)"""


@dataclass(frozen=True, kw_only=True)
class Product:
    """A product in the database."""

    id: int
    definition: Definition
    created: float

    @property
    def name(self) -> str:
        return self.definition.name


@dataclass(frozen=True, kw_only=True)
class Key:
    """An API key without its secret."""

    id: int
    name: str
    role: str
    sha256: str
    created: float
    revoked: float | None


class Store(Connections):
    """An open database with the tables of this release."""

    @classmethod
    def open(cls, url: str, *, create: bool = True) -> Store:
        """Open the database at "sqlite:///file" or "postgresql://user@host/name".

        Parameters
        ----------
        url : str
            The URL.
        create : bool
            Whether to create the file and the tables, and to migrate older tables. With False, a database that is not
            ready is refused.
        """
        return cls(url, create=create)

    # -- products -------------------------------------------------------------------------------------------------

    def products(self, connection: Connection | None = None) -> list[Product]:
        """All products, in the order of their creation.

        Parameters
        ----------
        connection : Connection, optional
            A transaction to read in. Default: one of its own.
        """
        return [_product(row) for row in self._rows(sa.select(products).order_by(products.c.id), connection)]

    def names(self) -> list[str]:
        """The names of all products, in the order of their creation, including unreadable ones."""
        return [name for (name,) in self._rows(sa.select(products.c.name).order_by(products.c.id), None)]

    def product(self, name: str, connection: Connection | None = None) -> Product | None:
        """The product of that name; None if there is none.

        Parameters
        ----------
        name : str
            Name of the product.
        connection : Connection, optional
            A transaction to read in. Default: one of its own.
        """
        rows = self._rows(sa.select(products).where(products.c.name == name), connection)
        return _product(rows[0]) if rows else None

    def add_product(self, definition: Definition) -> bool:
        """Add a product, or update the currency, ``max_age`` and the low and high of features of an existing one.

        Parameters
        ----------
        definition : Definition
            The product.

        Returns
        -------
        bool
            Whether the product is new.

        Raises
        ------
        Conflict
            If a product of that name has another definition.
        """
        mine = products.c.name == definition.name
        plain = encode(definition.config())
        with self.write() as connection:
            self._lock_tables(connection)
            rows = self._rows(sa.select(products).where(mine), connection)
            if not rows:
                fits(definition)
                row = {"name": definition.name, "definition": plain, "created": time.time()}
                connection.execute(products.insert().values(row))
                return True
            try:
                stored = _product(rows[0]).definition.fixed()
            except (HushpriceError, ValueError, TypeError, KeyError, AttributeError):
                return False  # unreadable: the service reports it and serves the other products
            differ = [key for key, value in definition.fixed().items() if stored.get(key) != value]
            if not differ:
                if rows[0].definition != plain:
                    connection.execute(products.update().where(mine).values(definition=plain))
                return False
        raise Conflict(
            f"There is a product {definition.name} that was defined otherwise: {', '.join(differ)} differs, on which "
            f"what was learned depends. To start over, give the new one another name or use another database; mode and "
            f"guardrails can be changed while a product is sold."
        )

    # -- events ---------------------------------------------------------------------------------------------------

    def events(
        self,
        product_id: int,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        connection: Connection | None = None,
    ) -> Iterator[Event]:
        """Yield events in order, read page by page.

        Parameters
        ----------
        product_id : int
            The product.
        after, upto : int
            The events with ``after`` < seq <= ``upto``; all after ``after`` if ``upto`` is None.
        limit : int, optional
            At most so many.
        connection : Connection, optional
            A transaction to read in; otherwise each page is read in one of its own.
        """
        last, left = LAST if upto is None else upto, LAST if limit is None else limit
        while left > 0:
            page = min(PAGE, left)
            rows = self._next(product_id, after, last, page, connection)
            for seq, at, kind, key, body in rows:
                yield Event(seq, at, kind, key, decode(body), text=body)
            if len(rows) < page:
                return
            after, left = rows[-1][0], left - len(rows)

    def _next(self, product_id: int, after: int, upto: int, page: int, connection: Connection | None) -> list[Any]:
        if connection is not None:
            return self.ask(connection, NEXT, product_id, after, upto, page)
        with self.read() as own:
            return self.ask(own, NEXT, product_id, after, upto, page)

    def changes(self, product_id: int, upto: int | None = None, connection: Connection | None = None) -> list[Event]:
        """The changes of mode and guardrails and the rollbacks, in order.

        Parameters
        ----------
        product_id : int
            Id of the product.
        upto : int, optional
            Number of the last event to consider. Default: all.
        connection : Connection, optional
            A transaction to read in. Default: one of its own.
        """
        columns = (events.c.seq, events.c.at, events.c.kind, events.c.key, events.c.body)
        mine = (events.c.product_id == product_id, events.c.kind.in_(CHANGES))
        query = sa.select(*columns).where(*mine, *(() if upto is None else (events.c.seq <= upto,)))
        rows = self._rows(query.order_by(events.c.seq), connection)
        return [Event(seq, at, kind, key, decode(body)) for seq, at, kind, key, body in rows]

    def event(self, product_id: int, seq: int, connection: Connection) -> tuple[str, float] | None:
        """Key and time of one event; None if it does not exist.

        Parameters
        ----------
        product_id : int
            Id of the product.
        seq : int
            Number of the event.
        connection : Connection
            A transaction to read in.
        """
        rows = self.ask(connection, ONE, product_id, seq)
        return (rows[0][0], rows[0][1]) if rows else None

    def head(self, product_id: int, connection: Connection | None = None) -> int:
        """The number of the last event; 0 if there is none.

        Parameters
        ----------
        product_id : int
            Id of the product.
        connection : Connection, optional
            A transaction to read in. Default: one of its own.
        """
        query = sa.select(sa.func.max(events.c.seq)).where(events.c.product_id == product_id)
        return int(self._rows(query, connection)[0][0] or 0)

    def bodies(self, product_id: int, seqs: Sequence[int], connection: Connection) -> dict[str, str]:
        """The bodies of these events, as text, by key.

        Parameters
        ----------
        product_id : int
            Id of the product.
        seqs : sequence of int
            Numbers of the events.
        connection : Connection
            A transaction to read in.
        """
        if not seqs:
            return {}
        if self.sqlite:
            return dict(self.ask(connection, READ_SQLITE, product_id, str(list(seqs))))
        return dict(self.ask(connection, READ_POSTGRES, product_id, list(seqs)))

    def add_events(self, rows: Sequence[Row], connection: Connection) -> None:
        """Insert events.

        Parameters
        ----------
        rows : sequence of Row
            The events as rows of their table.
        connection : Connection
            The transaction to write in.
        """
        if not rows:
            return
        with closing(connection.connection.cursor()) as cursor:
            if self.sqlite:
                insert(cursor, ADD, rows)
            elif len(rows) <= SMALL_BATCH:
                cursor.executemany(ADD.replace("?", "%s"), rows)
            else:
                with cursor.copy(ADD_MANY) as copy:
                    for row in rows:
                        copy.write_row(row)

    # -- snapshots ------------------------------------------------------------------------------------------------

    def snapshots(
        self, product_id: int, upto: int | None = None, connection: Connection | None = None
    ) -> list[tuple[int, str]]:
        """Number and digest of the snapshots, newest first.

        Parameters
        ----------
        product_id : int
            Id of the product.
        upto : int, optional
            Largest number to consider. Default: all.
        connection : Connection, optional
            A transaction to read in. Default: one of its own.
        """
        query = sa.select(snapshots.c.seq, snapshots.c.digest).where(snapshots.c.product_id == product_id)
        if upto is not None:
            query = query.where(snapshots.c.seq <= upto)
        return [(seq, digest) for seq, digest in self._rows(query.order_by(snapshots.c.seq.desc()), connection)]

    def snapshot(self, product_id: int, seq: int, connection: Connection | None = None) -> bytes | None:
        """The data of a snapshot; None if it does not exist.

        Parameters
        ----------
        product_id : int
            Id of the product.
        seq : int
            Number of the last event that it covers.
        connection : Connection, optional
            A transaction to read in. Default: one of its own.
        """
        mine = (snapshots.c.product_id == product_id, snapshots.c.seq == seq)
        rows = self._rows(sa.select(snapshots.c.data).where(*mine), connection)
        return bytes(rows[0][0]) if rows else None

    def add_snapshot(self, product_id: int, seq: int, last: tuple[str, float], digest: str, data: bytes) -> None:
        """Store a snapshot and delete all but the newest few.

        Parameters
        ----------
        product_id : int
            The product.
        seq : int
            Number of the last event that the state includes.
        last : tuple
            Key and time of that event. If the log has another one there, nothing is stored.
        digest : str
            The digest of the state.
        data : bytes
            The state.
        """
        with self.write([product_id]) as connection:
            if self.event(product_id, seq, connection) != last:
                return
            mine = snapshots.c.product_id == product_id
            connection.execute(snapshots.delete().where(mine, snapshots.c.seq == seq))
            row = {"product_id": product_id, "seq": seq, "digest": digest, "data": data}
            connection.execute(snapshots.insert().values(row))
            newest = [number for number, _ in self.snapshots(product_id, connection=connection)][:KEPT_SNAPSHOTS]
            connection.execute(snapshots.delete().where(mine, snapshots.c.seq.not_in(newest)))

    # -- keys -----------------------------------------------------------------------------------------------------

    def keys(self) -> list[Key]:
        """All keys, including revoked ones."""
        return [Key(**row._mapping) for row in self._rows(sa.select(keys).order_by(keys.c.id), None)]

    def add_key(self, name: str, role: str, sha256: str) -> int:
        """Add a key and return its id. Only the SHA-256 of its secret is stored.

        The history names who made a change by the name of the key, so names of keys in use are unique.

        Parameters
        ----------
        name : str
            Name of the access key.
        role : str
            What it allows.
        sha256 : str
            SHA-256 of the secret, in hexadecimal digits.
        """
        with self.write() as connection:
            self._lock_tables(connection)
            same = sa.select(keys.c.id).where(keys.c.name == name, keys.c.revoked.is_(None))
            if connection.execute(same).first() is not None:
                raise Conflict("There is a key of that name. Revoke it first, or give the new one another name.")
            row = {"name": name, "role": role, "sha256": sha256, "created": time.time()}
            made: Any = connection.execute(keys.insert().values(row)).inserted_primary_key
        return int(made[0])

    def revoke_key(self, key_id: int) -> bool:
        """Revoke a key; return whether there was such a key in use.

        Parameters
        ----------
        key_id : int
            Id of the access key.
        """
        with self.write() as connection:
            mine = (keys.c.id == key_id, keys.c.revoked.is_(None))
            return connection.execute(keys.update().where(*mine).values(revoked=time.time())).rowcount > 0


def pieces(n: int) -> Iterator[tuple[int, int]]:
    """Split n rows into pieces of 512, 64, 8 and 1 rows: (start, size) of each.

    Few different sizes mean few statements, which stay prepared. The driver releases Python's lock per statement, so
    with one statement per row a busy thread would take the lock each time.

    >>> list(pieces(523))
    [(0, 512), (512, 8), (520, 1), (521, 1), (522, 1)]
    """
    start = 0
    for size in (512, 64, 8, 1):
        while n - start >= size:
            yield start, size
            start += size


def insert(cursor: Any, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """INSERT ... VALUES (?, ...) for many rows, in SQLite."""
    more = ", (" + ", ".join("?" * len(rows[0])) + ")" if rows else ""
    for start, size in pieces(len(rows)):
        cursor.execute(statement + more * (size - 1), list(chain.from_iterable(rows[start : start + size])))


def _product(row: Any) -> Product:
    return Product(id=row.id, definition=Definition.of(row.name, decode(row.definition)), created=row.created)
