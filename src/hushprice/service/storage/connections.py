"""A database that is open: its file, its connections and its transactions.

SQLite (write-ahead log, synced at every commit) or PostgreSQL. A write transaction locks its products: in SQLite
``BEGIN IMMEDIATE`` locks the whole file, in PostgreSQL the rows of the products are locked in order of id. Committed
data is on disk, regardless of the defaults of a PostgreSQL server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from hushprice.errors import InvalidInput
from hushprice.service.errors import Unavailable
from hushprice.service.storage.database import begin, configure_sqlite, database_url, note_return, ping_idle, translated
from hushprice.service.storage.migrate import migrate
from hushprice.service.storage.schema import BEGIN_POSTGRES, schema

BUSY_SECONDS = 10.0  # how long a writer waits for another one
_LOCK = 0x68757368  # number of the advisory lock of PostgreSQL


class Connections:
    """Connections to an open database with the tables of this release.

    Database errors are raised as :class:`~hushprice.service.Unavailable`.

    Parameters
    ----------
    url : str
        "sqlite:///file" or "postgresql://user@host/name".
    create : bool
        Whether to create the file and the tables, and to migrate older tables.
    """

    def __init__(self, url: str, *, create: bool = True) -> None:
        self.url = database_url(url)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        options: dict[str, Any] = {"timeout": BUSY_SECONDS} if self.sqlite else {"connect_timeout": 5}
        self._epoch = 0.0  # the server's time when this machine's monotonic clock was 0
        self.engine = sa.create_engine(self.url, connect_args=options, pool_recycle=3600)
        if self.sqlite:
            sa.event.listen(self.engine, "connect", configure_sqlite)
            sa.event.listen(self.engine, "begin", begin)
        else:
            sa.event.listen(self.engine, "checkout", ping_idle)
            sa.event.listen(self.engine, "checkin", note_return)
        self._file = Path(str(self.url.database)).absolute() if self.sqlite else None
        self._inode: tuple[int, int] | None = None  # of the file that was opened
        self._opening = True
        try:
            self._make_file(create)
            self._prepare(create)
            self._inode, self._opening = self._file_id(), False
        except BaseException:
            self.engine.dispose()
            raise

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def _make_file(self, create: bool) -> None:
        """Create the SQLite file, readable by its owner only, since it holds contexts of plain customers.

        SQLite gives the files next to it the same permissions. Those of an existing file are not changed.
        """
        if self._file is None or self._file.exists():
            return
        if not create:
            raise InvalidInput(f"There is no database file {self._file.name} in that folder.")
        try:
            os.close(os.open(self._file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            pass  # another process was faster
        except OSError as problem:
            raise Unavailable(f"The database file cannot be made: {problem.strerror}.") from None

    def _file_id(self) -> tuple[int, int] | None:
        """Device and inode of the file at the database's path."""
        if self._file is None:
            return None
        try:
            status = os.stat(self._file)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _check_file(self) -> None:
        """Raise Unavailable if the file is not the one that was opened: writes to that one would be lost."""
        if self._inode is not None and self._file_id() != self._inode:
            raise Unavailable(
                "The database file was deleted, moved or replaced while it was in use. Nothing was acknowledged: stop "
                "the service, put the file back and start again."
            )

    def _prepare(self, create: bool) -> None:
        with self._begun() as connection:
            if not self.sqlite and connection.execute(sa.text("SHOW fsync")).scalar() != "on":
                raise InvalidInput(
                    "The PostgreSQL server runs with fsync = off: it would lose what was acknowledged when its "
                    "machine fails. Set fsync = on in its configuration, reload it and start again."
                )
            self._lock_tables(connection)
            migrate(connection, create=create)
        with self.write():  # reads the clock
            pass

    # -- transactions ---------------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Begin a transaction that only reads; it waits for no other."""
        self._check_file()
        with translated(self._opening), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self, product_ids: Iterable[int] = ()) -> Iterator[Connection]:
        """Begin a transaction that locks these products; it is committed to disk when the block ends."""
        with self._begun() as connection:
            if not self.sqlite:
                ((_, now, _),) = self.ask(connection, BEGIN_POSTGRES, list(product_ids))
                self._epoch = now - time.monotonic()
            yield connection

    @contextmanager
    def _begun(self) -> Iterator[Connection]:
        self._check_file()
        with translated(self._opening), self._connect(hushprice_writes=True) as connection, connection.begin():
            yield connection
            self._check_file()  # an exception rolls the transaction back

    def _lock_tables(self, connection: Connection) -> None:
        """Keep other processes from creating tables, products or keys. (SQLite has one writer anyway.)"""
        if not self.sqlite:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})

    def clock(self) -> float:
        """Seconds since 1970 by the clock that all writers share: PostgreSQL's, or the machine's with SQLite."""
        return time.time() if self.sqlite else self._epoch + time.monotonic()

    def _connect(self, **options: Any) -> Connection:
        return self.engine.connect().execution_options(**options)

    @property
    def shared(self) -> bool:
        """Whether several workers may use it. (On a SQLite file they would be safe, but wait for each other.)"""
        return not self.sqlite

    def ping(self) -> None:
        """Query the database; raise Unavailable if it does not answer."""
        with self.read() as connection:
            connection.execute(sa.select(schema.c.version)).scalar()

    def ask(self, connection: Connection, statement: str, *values: Any) -> list[Any]:
        """Run a query by the driver itself; ``?`` stands for the values."""
        cursor = connection.connection.cursor()
        cursor.execute(statement if self.sqlite else statement.replace("?", "%s"), values)
        rows = list(cursor.fetchall())
        cursor.close()
        return rows

    def _rows(self, query: Any, connection: Connection | None) -> Sequence[Any]:
        if connection is not None:
            return connection.execute(query).all()
        with self.read() as own:
            return own.execute(query).all()
