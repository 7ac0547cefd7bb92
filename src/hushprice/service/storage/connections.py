"""A database that is open: its file, its connections and its transactions.

SQLite (write-ahead log, synced at every commit) or PostgreSQL. A write transaction holds the products it is about:
SQLite's are one at a time by ``BEGIN IMMEDIATE``, PostgreSQL's lock the rows of the products, in order of id. What was
committed is on disk, whatever a PostgreSQL server's defaults are.
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
from hushprice.service.storage.database import begin, database_url, durable, note_return, ping_idle, translated
from hushprice.service.storage.migrate import migrate
from hushprice.service.storage.schema import BEGIN_POSTGRES, schema

BUSY_SECONDS = 10.0  # that a writer waits for another
_LOCK = 0x68757368  # of PostgreSQL, while tables are made


class Connections:
    """Connections to a database that was opened and has the tables.

    Whatever goes wrong in it comes out as :class:`~hushprice.service.Unavailable`.
    """

    def __init__(self, url: str, *, create: bool = True) -> None:
        self.url = database_url(url)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        options: dict[str, Any] = {"timeout": BUSY_SECONDS} if self.sqlite else {"connect_timeout": 5}
        self._epoch = 0.0  # the server's clock when this machine's monotonic one was 0
        self.engine = sa.create_engine(self.url, connect_args=options, pool_recycle=3600)
        if self.sqlite:
            sa.event.listen(self.engine, "connect", durable)
            sa.event.listen(self.engine, "begin", begin)
        else:
            sa.event.listen(self.engine, "checkout", ping_idle)
            sa.event.listen(self.engine, "checkin", note_return)
        self._file = Path(str(self.url.database)).absolute() if self.sqlite else None
        self._inode: tuple[int, int] | None = None  # of the file that was opened
        self._opening = True
        try:
            self._make(create)
            self._prepare(create)
            self._inode, self._opening = self._found(), False
        except BaseException:
            self.engine.dispose()
            raise

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def _make(self, create: bool) -> None:
        """The file of SQLite, for nobody else's eyes: plain customers' contexts are kept in it. SQLite gives the files
        that it puts beside it the same rights. The rights of a file that is there are its owner's business."""
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

    def _found(self) -> tuple[int, int] | None:
        """Which file is at the database's path now."""
        if self._file is None:
            return None
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _same(self) -> None:
        """Unavailable if the file is not the one that was opened: what is written there would be kept nowhere."""
        if self._inode is not None and self._found() != self._inode:
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
            self._alone(connection)
            migrate(connection, create=create)
        with self.write():  # to know the time
            pass

    # -- transactions ---------------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that changes nothing and waits for nobody."""
        self._same()
        with translated(self._opening), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self, product_ids: Iterable[int] = ()) -> Iterator[Connection]:
        """A transaction that has these products for itself. It is committed, and on disk, when the block is left."""
        with self._begun() as connection:
            if not self.sqlite:
                ((_, now, _),) = self.ask(connection, BEGIN_POSTGRES, list(product_ids))
                self._epoch = now - time.monotonic()
            yield connection

    @contextmanager
    def _begun(self) -> Iterator[Connection]:
        self._same()
        with translated(self._opening), self._connect(hushprice_writes=True) as connection, connection.begin():
            yield connection
            self._same()  # or else it is rolled back

    def _alone(self, connection: Connection) -> None:
        """Nobody else makes tables, products or keys until the transaction ends. (SQLite has one writer anyway.)"""
        if not self.sqlite:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})

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

    def ask(self, connection: Connection, statement: str, *given: Any) -> list[Any]:
        """Ask the driver; ``?`` stands for what is given."""
        cursor = connection.connection.cursor()
        cursor.execute(statement if self.sqlite else statement.replace("?", "%s"), given)
        found = list(cursor.fetchall())
        cursor.close()
        return found

    def _rows(self, query: Any, connection: Connection | None) -> Sequence[Any]:
        if connection is not None:
            return connection.execute(query).all()
        with self.read() as own:
            return own.execute(query).all()
