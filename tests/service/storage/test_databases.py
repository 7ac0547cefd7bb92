"""What the tables hold, and what a database must offer: durable commits, a clock, access keys."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from hushprice.errors import InvalidInput
from hushprice.service import OfferRequest, OutcomeItem, ReportItem, Store, Unavailable
from tests.support.postgres import Postgres
from tests.support.products import Clock, define, log_of, opened, report


def test_the_tables_of_a_private_product_hold_reports_only(tmp_path: Path) -> None:
    file = tmp_path / "hushprice.db"
    clock = Clock()
    clock.now += 7.734375
    service = opened(f"sqlite:///{file}", define("etc-ldp"), clock=clock)
    service.reports("coffee", [report(1), ReportItem("f" * 32, 1, None)]).result(20)
    service.stop()
    with sqlite3.connect(file) as connection:
        rows = connection.execute("SELECT kind, key, body FROM events ORDER BY seq").fetchall()
        times = connection.execute("SELECT at FROM events").fetchall()
        mode = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()
    assert rows == [
        ("report", "r:" + f"{1:032x}", '{"report":{"index":1,"seed":"0000000000001eef"},"version":0}'),
        ("report", "r:" + "f" * 32, '{"report":null,"version":1}'),
    ]
    assert mode == ("wal",)
    assert times == [(1_000_007.0,)] * 2  # the second, and nothing finer that network logs could be matched with


def test_databases_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    for url in ("mysql://localhost/x", "sqlite://", "nonsense", f"sqlite:///{tmp_path}/no/such/folder.db"):
        with pytest.raises(InvalidInput):
            Store.open(url)
    with pytest.raises(Unavailable):
        Store.open(f"postgresql://nobody@/none?host={tmp_path}")
    store = Store.open(f"sqlite:///{tmp_path}/new.db")
    with store.write() as connection:
        connection.execute(sa.text("UPDATE schema SET version = 99"))
    store.close()
    with pytest.raises(InvalidInput, match="version 99"):
        Store.open(f"sqlite:///{tmp_path}/new.db")


def test_commits_are_on_disk_with_sqlite(url: str) -> None:
    store = Store.open(url)
    for begin in (store.write, store.read, store.write):  # whichever connection of the pool it is
        with begin() as one, store.read() as two:
            for connection in (one, two):
                assert connection.execute(sa.text("PRAGMA synchronous")).scalar() == 2  # FULL
                assert connection.execute(sa.text("PRAGMA journal_mode")).scalar() == "wal"
    store.close()


@pytest.mark.parametrize(("default", "in_force"), [("off", "on"), ("on", "on"), ("remote_apply", "remote_apply")])
def test_commits_are_on_disk_with_postgresql(server: Postgres, default: str, in_force: str) -> None:
    url = server.url(f"sync-{default}")
    server.run(f'ALTER DATABASE "sync-{default}" SET synchronous_commit = {default}')
    store = Store.open(url)
    store.add_product(define("etc-ldp"))
    for ids in ((), (1,), (1,)):
        with store.write(ids) as connection:
            assert connection.execute(sa.text("SHOW synchronous_commit")).scalar() == in_force
    store.close()


def test_a_server_that_does_not_sync_is_refused(server: Postgres) -> None:
    url = server.url("unsafe")
    server.set("fsync", "off")
    try:
        with pytest.raises(InvalidInput, match="fsync = on"):
            Store.open(url)
    finally:
        server.set("fsync", "on")
    Store.open(url).close()


def test_workers_share_the_clock_of_the_database(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = define("greedy", outcomes={"wait": 600.0, "then": "no-sale"})
    behind = opened(server.url("clock"), definition)
    began = time.time()
    offer = behind.offer("coffee", OfferRequest(context=[1.0, 0.5])).result(20)
    url = behind.store.url.render_as_string(hide_password=False)
    with monkeypatch.context() as patched:  # a machine whose clock is an hour ahead
        patched.setattr(time, "time", lambda: began + 3_600.0)
        ahead = opened(url)
        ahead.offer("coffee", OfferRequest(context=[1.0, 0.5])).result(20)
        assert behind.outcomes("coffee", [OutcomeItem(offer.offer, 1.0)]).result(20).late == 0
    assert [event.kind for event in log_of(behind.store)] == ["offer", "offer", "outcome"]
    assert all(began - 60.0 < event.at < began + 60.0 for event in log_of(behind.store))
    for service in (ahead, behind):
        service.stop()


def test_keys(either: str) -> None:
    store = Store.open(either)
    first = store.add_key("till", "seller", "a" * 64)
    second = store.add_key("phone", "device", "b" * 64)
    assert store.revoke_key(first)
    assert not store.revoke_key(first)
    assert not store.revoke_key(77)
    stored = store.keys()
    keys = {key.id: key for key in stored}
    assert keys[second].revoked is None
    assert keys[first].revoked is not None
    assert (keys[first].name, keys[first].role, keys[first].sha256) == ("till", "seller", "a" * 64)
    with pytest.raises(Unavailable):
        store.add_key("again", "device", "b" * 64)
    store.close()
