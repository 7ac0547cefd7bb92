"""The revisions of the tables: they make the tables of the schema, and no release opens a newer one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext

from hushprice.errors import InvalidInput
from hushprice.service import Store, Unavailable
from hushprice.service.storage import migrate
from hushprice.service.storage.database import database_url
from hushprice.service.storage.schema import schema, sqlite_tables, tables
from tests.support.postgres import Postgres

NewDatabase = Callable[[], str]


@pytest.fixture(params=["sqlite", "postgresql"])
def new(request: pytest.FixtureRequest, tmp_path: Path) -> NewDatabase:
    """Gives the address of another new database each time."""
    made: list[str] = []

    def database() -> str:
        made.append(f"m{abs(hash(request.node.nodeid)) % 10**12}x{len(made)}")
        if request.param == "sqlite":
            return f"sqlite:///{tmp_path / made[-1]}.db"
        running: Postgres = request.getfixturevalue("server")
        return running.url(made[-1])

    return database


def before_revisions(url: str) -> None:
    """A database as it was made before databases recorded a revision, with a key in it."""
    store = Store.open(url)
    with store.write() as connection:
        tables.drop_all(connection)
        sqlite_tables.drop_all(connection)
        connection.execute(sa.text(f"DROP TABLE {migrate.RECORD}"))
        tables.create_all(connection)
        if store.sqlite:
            sqlite_tables.create_all(connection)
        connection.execute(schema.insert().values(version=1))
    store.add_key("till", "seller", "a" * 64)
    store.close()


def names(store: Store) -> list[str]:
    keys = store.keys()
    return [key.name for key in keys]


def recorded(url: str) -> str | None:
    engine = Store.open(url, create=False).engine
    with engine.connect() as connection:
        return MigrationContext.configure(connection, opts={"version_table": migrate.RECORD}).get_current_revision()


def described(url: str) -> list[tuple[Any, ...]]:
    """Every table and index as the database itself describes them."""
    store = Store.open(url)
    if store.sqlite:
        query = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
    else:
        query = (
            "SELECT table_name, ordinal_position, column_name, data_type, character_maximum_length, is_nullable, "
            "column_default, '' FROM information_schema.columns WHERE table_schema = 'public' "
            "UNION ALL SELECT tablename, 0, indexname, indexdef, 0, '', '', '' FROM pg_indexes "
            "WHERE schemaname = 'public' "
            "UNION ALL SELECT conrelid::regclass::text, 0, conname, pg_get_constraintdef(oid), 0, '', '', '' "
            "FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2, 3, 4"
        )
    with store.read() as connection:
        rows = [tuple(row) for row in connection.execute(sa.text(query)) if migrate.RECORD not in str(row)]
    store.close()
    return [tuple(" ".join(str(value).split()) for value in row) for row in rows]


def test_the_revisions_make_the_tables_of_the_schema(new: NewDatabase) -> None:
    by_revisions, by_schema = new(), new()
    before_revisions(by_schema)
    assert described(by_revisions) == described(by_schema)
    assert recorded(by_revisions) == recorded(by_schema) == migrate.head()
    store = Store.open(by_revisions)
    with store.read() as connection:
        whole = [tables, sqlite_tables] if store.sqlite else [tables]
        # The comparison does not know that PostgreSQL alone has this index.
        options = {
            "version_table": migrate.RECORD,
            "include_object": lambda _, name, kind, *more: not (store.sqlite and (name, kind) == ("places", "index")),
        }
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, whole) == []  # type: ignore[arg-type]
    store.close()


def test_a_database_without_a_revision_gets_one_and_keeps_its_rows(new: NewDatabase) -> None:
    url = new()
    before_revisions(url)
    with pytest.raises(InvalidInput, match="tables of revision 0001"):
        Store.open(url, create=False)
    store = Store.open(url)
    assert names(store) == ["till"]
    store.close()
    assert recorded(url) == migrate.head()


@pytest.mark.parametrize("theirs", ["0001", "1f2e3d4c5b6a"])
@pytest.mark.parametrize("before", [before_revisions, None])
def test_the_revision_of_another_application_in_the_database_is_left_alone(
    new: NewDatabase, before: Callable[[str], None] | None, theirs: str
) -> None:
    url = new()
    if before is not None:
        before(url)
    engine = sa.create_engine(database_url(url))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(sa.text(f"INSERT INTO alembic_version VALUES ('{theirs}')"))
    Store.open(url).close()
    assert recorded(url) == migrate.head()
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).all() == [(theirs,)]
    engine.dispose()


def test_a_database_of_a_newer_release_is_refused(new: NewDatabase) -> None:
    url = new()
    store = Store.open(url)
    with store.write() as connection:
        connection.execute(sa.text(f"UPDATE {migrate.RECORD} SET version_num = '9999'"))
    store.close()
    for create in (True, False):
        with pytest.raises(InvalidInput, match=r"revision 9999, .* a newer release changed them"):
            Store.open(url, create=create)


def test_an_empty_database_is_no_database_to_read(new: NewDatabase) -> None:
    url = new()
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///")).touch()
    with pytest.raises(InvalidInput, match="none of the tables"):
        Store.open(url, create=False)


REVISION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "{revision}", "{before}"

def upgrade():
    op.add_column("keys", sa.Column("{column}", sa.Text))
    {more}
"""


def later(monkeypatch: pytest.MonkeyPatch, folder: Path, *sources: str) -> None:
    """A release that has these revisions too."""
    folder.mkdir(exist_ok=True)
    for number, source in enumerate(sources):
        (folder / f"later{number}.py").write_text(source)
    config = migrate._config

    def with_more() -> Config:
        both = config()
        both.set_main_option("path_separator", "newline")
        both.set_main_option("version_locations", f"hushprice.service.storage:migrations/versions\n{folder}")
        return both

    monkeypatch.setattr(migrate, "_config", with_more)
    migrate._scripts.cache_clear()


@pytest.fixture
def present(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Forget other releases afterwards."""
    yield
    monkeypatch.undo()
    migrate._scripts.cache_clear()


@pytest.mark.usefixtures("present")
@pytest.mark.parametrize("old", [before_revisions, lambda url: Store.open(url).add_key("till", "seller", "a" * 64)])
def test_an_older_database_is_changed_when_a_service_opens_it(
    new: NewDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, old: Callable[[str], None]
) -> None:
    url = new()
    old(url)
    later(monkeypatch, tmp_path / "more", REVISION.format(revision="0003", before="0002", column="note", more=""))
    with pytest.raises(InvalidInput, match=r"tables of revision 000[12]; this release of hushprice uses 0003"):
        Store.open(url, create=False)
    store = Store.open(url)
    with store.read() as connection:
        assert connection.execute(sa.text("SELECT name, note FROM keys")).all() == [("till", None)]
    store.close()
    assert recorded(url) == "0003"
    monkeypatch.undo()
    migrate._scripts.cache_clear()
    with pytest.raises(InvalidInput, match="revision 0003, which this release of hushprice does not know"):
        Store.open(url)


@pytest.mark.usefixtures("present")
def test_a_revision_that_fails_changes_nothing(
    new: NewDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = new()
    before_revisions(url)
    later(
        monkeypatch,
        tmp_path / "more",
        REVISION.format(revision="0003", before="0002", column="note", more=""),
        REVISION.format(
            revision="0004", before="0003", column="more", more='op.execute("SELECT nothing FROM nowhere")'
        ),
    )
    with pytest.raises(Unavailable, match="cannot be opened"):
        Store.open(url)
    monkeypatch.undo()
    migrate._scripts.cache_clear()
    store = Store.open(url)
    with store.read() as connection:
        assert {column["name"] for column in sa.inspect(connection).get_columns("keys")} == set(
            tables.tables["keys"].c.keys()
        )
    assert names(store) == ["till"]
    store.close()


def _open(url: str, barrier: Any, results: Any) -> None:
    barrier.wait(60)
    try:
        Store.open(url).close()
        results.put("opened")
    except Exception as problem:
        results.put(repr(problem))


def test_processes_open_an_empty_database_at_once(new: NewDatabase) -> None:
    url, spawn = new(), multiprocessing.get_context("spawn")
    barrier, results = spawn.Barrier(3), spawn.Queue()
    processes = [spawn.Process(target=_open, args=(url, barrier, results)) for _ in range(3)]
    for process in processes:
        process.start()
    assert [results.get(timeout=120) for _ in processes] == ["opened"] * 3
    for process in processes:
        process.join(60)
    assert recorded(url) == migrate.head()
