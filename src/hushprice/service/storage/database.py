"""Database URLs, the settings of connections, and the translation of database errors."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from hushprice.errors import InvalidInput
from hushprice.service.errors import Rejected, Unavailable

WAL_SECONDS = 10.0  # to wait for another process that sets the journal mode
IDLE_SECONDS = 1.0  # a connection to PostgreSQL idle for longer is tested before its next use


def database_url(url: str) -> URL:
    """Parse a URL for SQLAlchemy.

    Parameters
    ----------
    url : str
        "sqlite:///file" or "postgresql://user@host/name".

    Raises
    ------
    InvalidInput
        If it is neither, or if the folder of a SQLite file does not exist.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, AttributeError, ValueError):
        raise InvalidInput("The database must be given as sqlite:///file or postgresql://user@host/name.") from None
    if parsed.get_backend_name() == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise InvalidInput(
                "The database must be a file, as in sqlite:///hushprice.db: data in memory would be lost."
            )
        if not Path(str(parsed.database)).absolute().parent.is_dir():
            raise InvalidInput("There is no folder to put the database file in: make it first.")
        return parsed.set(drivername="sqlite")
    if parsed.get_backend_name() in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise InvalidInput("The database must be SQLite (sqlite:///file) or PostgreSQL (postgresql://user@host/name).")


def configure_sqlite(connection: Any, record: Any) -> None:
    """Set up a SQLite connection: commits are synced to disk, and the driver begins no transactions by itself."""
    connection.isolation_level = None
    _use_wal(connection)
    for setting in (
        "synchronous = FULL",
        "foreign_keys = ON",
        "wal_autocheckpoint = 10000",  # pages; pages of the index change often and are copied back once
        "cache_size = -65536",  # KiB
    ):
        connection.execute(f"PRAGMA {setting}").close()


def _use_wal(connection: Any) -> None:
    """Set the journal mode. SQLite does not wait if another process is doing the same to a new file, so this does."""
    deadline = time.monotonic() + WAL_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


# pool_pre_ping would test a connection before every use: a round trip per transaction, 0.1 ms on a local socket (7% of
# a single offer) and more over a network. Only a connection that has been idle is tested here.
def ping_idle(connection: Any, record: Any, proxy: Any) -> None:
    """Test an idle connection when the pool hands it out: the server may have been restarted since its last use."""
    if time.monotonic() - record.info.get("returned", -IDLE_SECONDS) < IDLE_SECONDS:
        return
    try:
        with closing(connection.cursor()) as cursor:
            cursor.execute("SELECT 1")
        connection.rollback()
    except psycopg.Error:
        raise sa.exc.DisconnectionError from None  # the pool opens another


def note_return(connection: Any, record: Any) -> None:
    """Record when a connection went back to the pool."""
    record.info["returned"] = time.monotonic()


def begin(connection: Connection) -> None:
    """Begin a transaction; one that writes locks the file immediately."""
    writes = connection.get_execution_options().get("hushprice_writes", False)
    with closing(connection.connection.cursor()) as cursor:
        cursor.execute("BEGIN IMMEDIATE" if writes else "BEGIN")


_CONNECTION_ERRORS = (sqlite3.OperationalError, psycopg.OperationalError, psycopg.InterfaceError)


# Reasons why a database cannot be opened. Only these words of a driver's message are shown: the rest contains names and
# addresses, and may contain a password.
_REASONS = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry|authentication failed|"
    r"connection refused|no such file or directory|timeout expired|could not translate host name|"
    r"failed to resolve host|network is unreachable|no route to host|too many clients|too many connections|"
    r"permission denied|(?:database|role) (?=\"[^\"]*\" does not exist)|certificate verify failed|does not support ssl|"
    r"starting up|shutting down|unable to open database file|readonly database|database is locked|disk i/o error|"
    r"database or disk is full|not a database|malformed",
    re.IGNORECASE,
)


def _reason(problem: BaseException) -> str:
    """Why a database cannot be opened: the part of the driver's message that contains no names.

    >>> _reason(psycopg.OperationalError('FATAL: password authentication failed for user "ann"'))
    'password authentication failed'
    >>> _reason(psycopg.OperationalError('FATAL: database "shop" does not exist'))
    'the database does not exist'
    """
    driver = getattr(problem, "orig", None) or problem
    match = _REASONS.search(str(driver))
    if match is None:
        return type(driver).__name__
    words = match[0].lower()
    if words in ("database ", "role "):
        return f"the {words}does not exist"
    return words + _HINTS.get(words, "")


_HINTS = {
    "unable to open database file": ": may this user read and write the file and its folder, and who owns them",
    "readonly database": ": may this user write the file and its folder, and who owns them",
    "does not support ssl": ": set ssl = on there, or leave sslmode out where nobody can listen in",
}


@contextmanager
def translated(opening: bool) -> Iterator[None]:
    """Raise database errors as :class:`Unavailable`, without statements and values; with a reason if ``opening``."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, psycopg.Error) as problem:
        if opening:
            raise Unavailable(f"The database cannot be opened: {_reason(problem)}.") from None
        raise _as_unavailable(problem) from None


def _as_unavailable(problem: Exception) -> Unavailable:
    if isinstance(problem, (OperationalError, InterfaceError, *_CONNECTION_ERRORS)):
        return Unavailable("The database does not answer, or is busy. Nothing was acknowledged: try again.")
    if isinstance(problem, DBAPIError):
        if problem.connection_invalidated:
            return Unavailable("The database does not answer. Nothing was acknowledged: try again.")
        return Rejected(f"The database did not take it ({type(problem.orig).__name__}).")
    if isinstance(problem, SQLAlchemyError):
        return Unavailable(f"The database cannot be used: {type(problem).__name__}.")
    return Rejected(f"The database did not take it ({type(problem).__name__}).")
