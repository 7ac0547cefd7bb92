"""Bring a database to the revision of the tables that this release uses."""

from __future__ import annotations

import threading
from functools import cache

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from hushprice.errors import InvalidInput
from hushprice.service.storage.schema import SCHEMA, schema

RECORD = "hushprice_revision"  # the table of the revision; "alembic_version" may be another application's
FIRST = "0001"  # of databases that were made before they recorded a revision

_one_thread = threading.Lock()  # Alembic hands env.py its connection through a global variable


def head() -> str:
    """The revision that this release uses."""
    revision = _scripts().get_current_head()
    assert revision is not None
    return revision


def revision_of(connection: Connection) -> str | None:
    """The revision of a database; None if it has no tables of hushprice."""
    recorded = _recorded(connection)
    if recorded is None and sa.inspect(connection).has_table(schema.name):
        return FIRST
    return recorded


def _recorded(connection: Connection) -> str | None:
    return MigrationContext.configure(connection, opts={"version_table": RECORD}).get_current_revision()


def migrate(connection: Connection, *, create: bool = True) -> None:
    """Create the tables, or change them to the revision of this release.

    Parameters
    ----------
    connection
        In a transaction that no other process can enter; everything is undone if the transaction fails.
    create
        Whether tables may be created and changed. A command that only reads passes False, so that it is safe next to
        a running service of an older release.

    Raises
    ------
    InvalidInput
        If the database was opened by a newer release; or, with ``create=False``, has no tables or older ones.
    """
    revision = revision_of(connection)
    if revision is None and not create:
        raise InvalidInput("This is no database of hushprice: it has none of the tables.")
    if revision is not None:
        _refuse_newer(connection, revision)
    if revision == head() and (not create or _recorded(connection) == revision):
        return
    if not create:
        raise InvalidInput(
            f"The database has tables of revision {revision}; this release of hushprice uses {head()}. Start the "
            f"service of this release once: it changes them."
        )
    config = _config()
    config.attributes |= {"connection": connection, "version_table": RECORD}
    with _one_thread:
        if revision is not None:
            command.stamp(config, revision)  # changes nothing if the database has recorded it
        command.upgrade(config, "head")


def _refuse_newer(connection: Connection, revision: str) -> None:
    version = connection.execute(sa.select(schema.c.version)).scalar()
    if version != SCHEMA:
        raise InvalidInput(
            f"The database has tables of version {version}; this release of hushprice knows version {SCHEMA}. "
            f"Use the release that made it, or see docs/deploy.md on upgrades."
        )
    known = {script.revision for script in _scripts().walk_revisions()}
    if revision not in known:
        raise InvalidInput(
            f"The database has tables of revision {revision}, which this release of hushprice does not know: a newer "
            f"release changed them. Use that release, or restore an older backup: see docs/deploy.md on upgrades."
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "hushprice.service.storage:migrations")
    return config


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())
