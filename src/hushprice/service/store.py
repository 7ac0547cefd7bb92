"""The database: products, their logs, keys, and snapshots as a cache of what the logs give.

SQLite (write-ahead log, synced at every commit) or PostgreSQL. A write transaction holds the products it is about:
SQLite's are one at a time by ``BEGIN IMMEDIATE``, PostgreSQL's lock the rows of the products, in order of id. What was
committed is on disk, whatever a PostgreSQL server's defaults are.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from hushprice.errors import InvalidInput
from hushprice.service.definition import Definition
from hushprice.service.events import CHANGES, Event, decode, encode
from hushprice.service.refusals import Conflict, Rejected, Unavailable
from hushprice.service.tables import (
    ADD,
    ADD_MANY,
    BEGIN_POSTGRES,
    FIND_POSTGRES,
    FIND_SQLITE,
    MORE,
    NEXT,
    SCHEMA,
    events,
    keys,
    products,
    schema,
    snapshots,
    tables,
)

BUSY_SECONDS = 10.0  # that a writer waits for another
QUIET = 1.0  # seconds after which a line to PostgreSQL is tried before it is used
PAGE = 5_000  # events read at once
LAST = 2**62
FEW = 20  # events that PostgreSQL takes sooner one by one than as a stream
KEPT_SNAPSHOTS = 3
_LOCK = 0x68757368  # of PostgreSQL, while tables are made

Row = tuple[int, int, float, str, str, str]
"""(product id, seq, at, kind, key, body as text)"""


@dataclass(frozen=True, kw_only=True)
class Product:
    """A product on record."""

    id: int
    definition: Definition
    created: float

    @property
    def name(self) -> str:
        return self.definition.name


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key for the API, without its secret."""

    id: int
    name: str
    role: str
    sha256: str
    created: float
    revoked: float | None


class Store:
    """A database that was opened and has the tables.

    Whatever goes wrong in it comes out as :class:`~hushprice.service.Unavailable`.
    """

    def __init__(self, url: str) -> None:
        self.url = database_url(url)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        options: dict[str, Any] = {"timeout": BUSY_SECONDS} if self.sqlite else {"connect_timeout": 5}
        self._epoch = 0.0  # the server's clock when this machine's monotonic one was 0
        self.engine = sa.create_engine(self.url, connect_args=options, pool_recycle=3600)
        if self.sqlite:
            sa.event.listen(self.engine, "connect", _durable)
            sa.event.listen(self.engine, "begin", _begin)
        else:
            sa.event.listen(self.engine, "checkout", _ring)
            sa.event.listen(self.engine, "checkin", _note)
        try:
            self._prepare()
        except BaseException:
            self.engine.dispose()
            raise

    @classmethod
    def open(cls, url: str) -> Store:
        """The database at "sqlite:///file" or "postgresql://user@host/name"; its tables are made if need be."""
        return cls(url)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def _prepare(self) -> None:
        with self._begun() as connection:
            if not self.sqlite:
                if connection.execute(sa.text("SHOW fsync")).scalar() != "on":
                    raise InvalidInput(
                        "The PostgreSQL server runs with fsync = off: it would lose what was acknowledged when its "
                        "machine fails. Set fsync = on in its configuration, reload it and start again."
                    )
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            tables.create_all(connection)
            found = connection.execute(sa.select(schema.c.version)).scalar()
            if found is None:
                connection.execute(schema.insert().values(version=SCHEMA))
            elif found != SCHEMA:
                raise InvalidInput(
                    f"The database has tables of version {found}; this release of hushprice knows version {SCHEMA}. "
                    f"Use the release that made it, or see docs/deploy.md on upgrades."
                )
        with self.write():  # to know the time
            pass

    # -- transactions ---------------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that changes nothing and waits for nobody."""
        with _translated(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self, product_ids: Iterable[int] = ()) -> Iterator[Connection]:
        """A transaction that has these products for itself. It is committed, and on disk, when the block is left."""
        with self._begun() as connection:
            if not self.sqlite:
                ((_, now, _),) = self._ask(connection, BEGIN_POSTGRES, list(product_ids))
                self._epoch = now - time.monotonic()
            yield connection

    @contextmanager
    def _begun(self) -> Iterator[Connection]:
        with _translated(), self._connect(hushprice_writes=True) as connection, connection.begin():
            yield connection

    def clock(self) -> float:
        """Seconds since 1970 by the clock that all who write here share: PostgreSQL's own, or with SQLite, where all
        are on one machine, the machine's."""
        return time.time() if self.sqlite else self._epoch + time.monotonic()

    def _connect(self, **options: Any) -> Connection:
        return self.engine.connect().execution_options(**options)

    @property
    def shared(self) -> bool:
        """Whether it is made for several processes. (They are safe on one SQLite file too, but wait for each other.)"""
        return not self.sqlite

    def ping(self) -> None:
        """Ask the database for something; Unavailable if it is gone."""
        with self.read() as connection:
            connection.execute(sa.select(schema.c.version)).scalar()

    # -- products -------------------------------------------------------------------------------------------------

    def products(self, connection: Connection | None = None) -> list[Product]:
        """All products, in the order of their making."""
        return [_product(row) for row in self._rows(sa.select(products).order_by(products.c.id), connection)]

    def product(self, name: str, connection: Connection | None = None) -> Product | None:
        """The product of that name."""
        found = self._rows(sa.select(products).where(products.c.name == name), connection)
        return _product(found[0]) if found else None

    def add_product(self, definition: Definition) -> bool:
        """Put a product on record: whether it is new. One that was defined otherwise is refused."""
        with self.write() as connection:
            if not self.sqlite:  # two workers may want to make it at once
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            known = self.product(definition.name, connection)
            if known is None:
                plain = encode(definition.config())
                row = {"name": definition.name, "definition": plain, "created": time.time()}
                connection.execute(products.insert().values(row))
                return True
        if known.definition != definition:
            raise Conflict(
                f"There is a product {definition.name} that was defined otherwise, and a definition does not change. "
                f"Give the new one another name; modes and guardrails can be changed while a product is sold."
            )
        return False

    # -- events ---------------------------------------------------------------------------------------------------

    def events(
        self,
        product_id: int,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        connection: Connection | None = None,
    ) -> Iterator[Event]:
        """Events ``after`` < seq <= ``upto``, at most ``limit`` of them, in order; read page by page."""
        last, left = LAST if upto is None else upto, LAST if limit is None else limit
        while left > 0:
            page = min(PAGE, left)
            rows = self._next(product_id, after, last, page, connection)
            for seq, at, kind, key, body in rows:
                yield Event(seq, at, kind, key, decode(body))
            if len(rows) < page:
                return
            after, left = rows[-1][0], left - len(rows)

    def _next(self, product_id: int, after: int, upto: int, page: int, connection: Connection | None) -> list[Any]:
        if connection is not None:
            return self._ask(connection, NEXT, product_id, after, upto, page)
        with self.read() as own:
            return self._ask(own, NEXT, product_id, after, upto, page)

    def _ask(self, connection: Connection, statement: str, *given: Any) -> list[Any]:
        """Ask the driver; ``?`` stands for what is given."""
        cursor = connection.connection.cursor()
        cursor.execute(statement if self.sqlite else statement.replace("?", "%s"), given)
        found = list(cursor.fetchall())
        cursor.close()
        return found

    def changes(self, product_id: int, upto: int | None = None, connection: Connection | None = None) -> list[Event]:
        """Modes, guardrails and rollbacks, in order."""
        columns = (events.c.seq, events.c.at, events.c.kind, events.c.key, events.c.body)
        mine = (events.c.product_id == product_id, events.c.kind.in_(CHANGES))
        query = sa.select(*columns).where(*mine, *(() if upto is None else (events.c.seq <= upto,)))
        rows = self._rows(query.order_by(events.c.seq), connection)
        return [Event(seq, at, kind, key, decode(body)) for seq, at, kind, key, body in rows]

    def head(self, product_id: int, connection: Connection | None = None) -> int:
        """The number of the last event."""
        query = sa.select(sa.func.max(events.c.seq)).where(events.c.product_id == product_id)
        return int(self._rows(query, connection)[0][0] or 0)

    def find(self, product_id: int, wanted: Sequence[str], connection: Connection) -> dict[str, str]:
        """The bodies, as text, of the events that have one of these keys, by key."""
        if not wanted:
            return {}
        if self.sqlite:
            given = "[" + ",".join(f'"{key}"' for key in wanted) + "]"  # keys hold no quotes
            rows = self._ask(connection, FIND_SQLITE, given, product_id)
        else:
            rows = self._ask(connection, FIND_POSTGRES, list(wanted), product_id)
        return dict(rows)

    def add_events(self, rows: Sequence[Row], connection: Connection) -> None:
        """Write events down."""
        if not rows:
            return
        with closing(connection.connection.cursor()) as cursor:
            if self.sqlite:
                for start, size in pieces(len(rows)):
                    cursor.execute(ADD + MORE * (size - 1), list(chain.from_iterable(rows[start : start + size])))
                return
            if len(rows) <= FEW:
                cursor.executemany(ADD.replace("?", "%s"), rows)
                return
            with cursor.copy(ADD_MANY) as copy:
                for row in rows:
                    copy.write_row(row)

    # -- snapshots ------------------------------------------------------------------------------------------------

    def snapshots(
        self, product_id: int, upto: int | None = None, connection: Connection | None = None
    ) -> list[tuple[int, str]]:
        """(seq, digest) of the snapshots kept, the newest first."""
        query = sa.select(snapshots.c.seq, snapshots.c.digest).where(snapshots.c.product_id == product_id)
        if upto is not None:
            query = query.where(snapshots.c.seq <= upto)
        return [(seq, digest) for seq, digest in self._rows(query.order_by(snapshots.c.seq.desc()), connection)]

    def snapshot(self, product_id: int, seq: int, connection: Connection | None = None) -> bytes | None:
        """The data of one."""
        mine = (snapshots.c.product_id == product_id, snapshots.c.seq == seq)
        rows = self._rows(sa.select(snapshots.c.data).where(*mine), connection)
        return bytes(rows[0][0]) if rows else None

    def add_snapshot(self, product_id: int, seq: int, digest: str, data: bytes) -> None:
        """Keep a snapshot, and of the older ones only the last few."""
        with self.write([product_id]) as connection:
            mine = snapshots.c.product_id == product_id
            connection.execute(snapshots.delete().where(mine, snapshots.c.seq == seq))
            row = {"product_id": product_id, "seq": seq, "digest": digest, "data": data}
            connection.execute(snapshots.insert().values(row))
            kept = [found for found, _ in self.snapshots(product_id, connection=connection)][:KEPT_SNAPSHOTS]
            connection.execute(snapshots.delete().where(mine, snapshots.c.seq.not_in(kept)))

    # -- keys -----------------------------------------------------------------------------------------------------

    def keys(self) -> list[Key]:
        """All keys, revoked ones too."""
        return [Key(**row._mapping) for row in self._rows(sa.select(keys).order_by(keys.c.id), None)]

    def add_key(self, name: str, role: str, sha256: str) -> int:
        """Put a key on record: its id. The secret stays with whoever made it; what is kept is its SHA-256."""
        with self.write() as connection:
            row = {"name": name, "role": role, "sha256": sha256, "created": time.time()}
            made: Any = connection.execute(keys.insert().values(row)).inserted_primary_key
        return int(made[0])

    def revoke_key(self, key_id: int) -> bool:
        """Refuse a key from now on: whether there was one that was not revoked yet."""
        with self.write() as connection:
            mine = (keys.c.id == key_id, keys.c.revoked.is_(None))
            return connection.execute(keys.update().where(*mine).values(revoked=time.time())).rowcount > 0

    def _rows(self, query: Any, connection: Connection | None) -> Sequence[Any]:
        if connection is not None:
            return connection.execute(query).all()
        with self.read() as own:
            return own.execute(query).all()


def pieces(n: int) -> Iterator[tuple[int, int]]:
    """(start, size) of pieces of 512, 64, 8 and 1 that make up n rows: few different statements, which stay prepared.

    One statement of many rows, since the driver gives up Python's lock for each: row by row, a busy thread beside it
    would take the lock every time.

    >>> list(pieces(523))
    [(0, 512), (512, 8), (520, 1), (521, 1), (522, 1)]
    """
    start = 0
    for size in (512, 64, 8, 1):
        while n - start >= size:
            yield start, size
            start += size


def database_url(url: str) -> URL:
    """The URL as SQLAlchemy takes it, refused if it is of neither kind."""
    try:
        parsed = make_url(url)
    except (ArgumentError, AttributeError, ValueError):
        raise InvalidInput("The database must be given as sqlite:///file or postgresql://user@host/name.") from None
    if parsed.get_backend_name() == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise InvalidInput("The database must be a file, as in sqlite:///hushprice.db: what is kept must last.")
        if not Path(str(parsed.database)).absolute().parent.is_dir():
            raise InvalidInput("There is no folder to put the database file in: make it first.")
        return parsed.set(drivername="sqlite")
    if parsed.get_backend_name() in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise InvalidInput("The database must be SQLite (sqlite:///file) or PostgreSQL (postgresql://user@host/name).")


def _product(row: Any) -> Product:
    return Product(id=row.id, definition=Definition.of(row.name, decode(row.definition)), created=row.created)


def _durable(connection: Any, record: Any) -> None:
    """Each commit on disk before it is told; transactions begin where we say, not where the driver thinks."""
    connection.isolation_level = None
    for setting in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "wal_autocheckpoint = 10000",  # pages: random keys touch many, and copying them back costs more than writing
        "cache_size = -65536",  # KiB
    ):
        connection.execute(f"PRAGMA {setting}").close()


def _ring(connection: Any, record: Any, proxy: Any) -> None:
    """See whether the server is still there, if the line has been quiet: it may have been started anew."""
    if time.monotonic() - record.info.get("used", -QUIET) < QUIET:
        return
    try:
        with closing(connection.cursor()) as cursor:
            cursor.execute("SELECT 1")
        connection.rollback()
    except psycopg.Error:
        raise sa.exc.DisconnectionError from None  # the pool opens another


def _note(connection: Any, record: Any) -> None:
    record.info["used"] = time.monotonic()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("hushprice_writes", False)
    with closing(connection.connection.cursor()) as cursor:
        cursor.execute("BEGIN IMMEDIATE" if writes else "BEGIN")


_AWAY = (sqlite3.OperationalError, psycopg.OperationalError, psycopg.InterfaceError)


@contextmanager
def _translated() -> Iterator[None]:
    """The database's troubles in our words, which hold no statement and no values."""
    try:
        yield
    except (OperationalError, InterfaceError, *_AWAY):
        raise Unavailable("The database does not answer, or is busy. Nothing was acknowledged: try again.") from None
    except DBAPIError as problem:
        if problem.connection_invalidated:
            raise Unavailable("The database does not answer. Nothing was acknowledged: try again.") from None
        raise Rejected(f"The database did not take it ({type(problem.orig).__name__}).") from None
    except (sqlite3.Error, psycopg.Error) as problem:
        raise Rejected(f"The database did not take it ({type(problem).__name__}).") from None
    except SQLAlchemyError as problem:
        raise Unavailable(f"The database cannot be used: {type(problem).__name__}.") from None
