"""What the service does about a database that other hands were at, or that is not what it was."""

from __future__ import annotations

import asyncio
import csv
import json
import logging
import os
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
import typer
from typer.testing import CliRunner

from hushprice import fitting
from hushprice.cli.commands import serve as commands
from hushprice.errors import InvalidInput
from hushprice.policies import snapshot
from hushprice.service import (
    Conflict,
    Definition,
    NotFound,
    OfferRequest,
    OutcomeItem,
    ReportItem,
    Service,
    Store,
    Unavailable,
)
from hushprice.service.core import size_limits
from hushprice.service.core.fingerprint import digest
from hushprice.service.core.learner import Learner
from hushprice.service.http.routes.log_export import csv_lines
from hushprice.service.storage import replay as rebuilding
from hushprice.service.storage.schema import snapshots as snapshot_table
from tests.support.postgres import Postgres

PRIVATE = {"policy": "etc-ldp-doubling", "family": "logistic", "dim": 2, "prices": [1, 5], "epsilon": 2.0, "z_max": 2.0}
PLAIN = {"policy": "semi-myopic", "family": "logistic", "dim": 2, "prices": [1, 5]}

app = typer.Typer()
app.add_typer(commands.keys, name="keys")
app.command(name="verify")(commands.verify)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "hushprice.db"


def url(file: Path) -> str:
    return f"sqlite:///{file}"


def opened(file: Path, *definitions: Definition, every: int = 10) -> Service:
    service = Service(Store.open(url(file)), snapshot_every=every)
    service.start()
    for definition in definitions:
        service.create(definition).result(20)
    return service


def reports(service: Service, start: int, stop: int, name: str = "coffee") -> None:
    for i in range(start, stop):
        made = {"seed": f"{i:016x}", "index": i % 2}
        service.reports(name, [ReportItem(f"{i:032x}", service.view(name).version, made)]).result(20)


def sold(file: Path, *, names: tuple[str, ...] = ("coffee",), n: int = 25) -> None:
    """A database with snapshots of private products."""
    service = opened(file, *(Definition.of(name, PRIVATE) for name in names))
    for name in names:
        reports(service, 0, n, name)
    service.stop()


def by_hand(file: Path, statement: str, *values: Any) -> list[Any]:
    with sqlite3.connect(file) as connection:
        rows = connection.execute(statement, values).fetchall()
    connection.close()
    return rows


def verified(file: Path) -> tuple[int, dict[str, Any], str]:
    """The exit code, and the output as JSON and as text."""
    run = CliRunner()
    plain = run.invoke(app, ["verify", "coffee", "--json", "--database", url(file)])
    text = run.invoke(app, ["verify", "--database", url(file)])
    assert plain.exit_code == text.exit_code
    return plain.exit_code, json.loads(plain.stdout)[0], text.stdout


# -- verify -----------------------------------------------------------------------------------------------------------


def test_verify_tells_what_it_compared(file: Path) -> None:
    sold(file)
    code, row, text = verified(file)
    assert (code, row["same"], row["events"], row["compared"]) == (0, True, 25, 25)
    assert row["kept"] == row["folded"] == row["rebuilt"]
    assert "rebuilt from 25 events; the same to the last bit as the snapshot at 25" in text
    assert f"snapshot at 25: {row['kept']}" in text


def test_verify_with_nothing_to_compare_with_says_so(file: Path) -> None:
    sold(file)
    by_hand(file, "DELETE FROM snapshots")
    code, row, text = verified(file)
    assert (code, row["same"], row["compared"], row["kept"]) == (0, True, None, None)
    assert "rebuilt from 25 events; no snapshot to compare with" in text
    assert "same" not in text


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET key = 'r:' || lower(hex(randomblob(16))) WHERE seq = 7",  # its retry would count twice
        "UPDATE events SET at = at + 5 WHERE seq = 7",
        """UPDATE events SET body = replace(body, '"index":0', '"index":1') WHERE seq = 7""",
        "UPDATE events SET body = body || ' ' WHERE seq = 7",
    ],
)
def test_verify_notices_every_edit(file: Path, statement: str) -> None:
    sold(file)
    by_hand(file, statement)
    code, row, text = verified(file)
    assert (code, row["same"]) == (1, False)
    assert "DIFFERS: after event 25 the state differs from what release" in text


def test_verify_compares_with_other_releases_where_it_can(file: Path) -> None:
    sold(file)
    store = Store.open(url(file))
    product = store.product("coffee")
    assert product is not None
    data = store.snapshot(product.id, 25)
    assert data is not None

    def put(plain: dict[str, Any]) -> None:
        with store.write() as connection:
            mine = snapshot_table.c.seq == 25
            connection.execute(snapshot_table.delete().where(~mine))
            connection.execute(snapshot_table.update().where(mine).values(data=snapshot.pack(plain)))

    plain = snapshot.unpack(data) | {"release": "0.0.1"}
    put(plain)
    assert rebuilding.verify(store, "coffee").compared == 25
    with store.write() as connection:
        connection.execute(snapshot_table.update().values(digest="0" * 64))
    assert "differs from what release 0.0.1 knew" in rebuilding.verify(store, "coffee").problems[0]
    plain["state"]["format"] = 1
    put(plain)
    verdict = rebuilding.verify(store, "coffee")
    assert (verdict.ok, verdict.compared) == (True, None)
    assert "layout of release 0.0.1, which cannot be compared" in verdict.notes[0]
    with store.write() as connection:
        connection.execute(snapshot_table.update().values(data=b"nothing"))
    assert rebuilding.verify(store, "coffee").problems == ("the snapshot at 25 is damaged",)
    store.close()


def test_a_log_that_ends_before_a_snapshot_is_reported_and_not_served(file: Path) -> None:
    sold(file, names=("coffee", "tea"))
    by_hand(file, "DELETE FROM events WHERE product_id = 1 AND seq > 22")
    code, _, text = verified(file)
    assert (code, "DIFFERS: the log ends at 22, a snapshot knows 25" in text) == (1, True)
    service = opened(file)
    for refused in (lambda: service.view("coffee"), lambda: reports(service, 90, 91)):
        with pytest.raises(Unavailable, match="coffee is not served: the log ends at 22, a snapshot knows 25"):
            refused()
    reports(service, 90, 91, "tea")
    service.refresh().result(20)
    assert [view.name for view in service.products()] == ["tea"]
    service.stop()
    assert by_hand(file, "SELECT max(seq) FROM events GROUP BY product_id") == [(22,), (26,)]


def test_a_snapshot_of_another_course_of_things_is_not_trusted(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    sold(file)
    stored = by_hand(file, "SELECT * FROM snapshots")
    by_hand(file, "DELETE FROM snapshots")
    by_hand(file, "DELETE FROM events WHERE seq > 5")  # as from an older copy
    service = opened(file, every=1000)
    reports(service, 40, 70)
    service.stop()
    by_hand(file, "DELETE FROM snapshots")
    for row in stored:
        by_hand(file, "INSERT INTO snapshots VALUES (?, ?, ?, ?)", *row)
    store = Store.open(url(file))
    with caplog.at_level(logging.WARNING):
        rebuilt = rebuilding.rebuild(store, "coffee", snapshots=True).digest()
    assert rebuilt == rebuilding.rebuild(store, "coffee").digest()
    assert "a snapshot of coffee is not of this log" in caplog.text
    assert not rebuilding.verify(store, "coffee").ok
    store.close()


# -- opening a database -----------------------------------------------------------------------------------------------


def test_looking_makes_no_database(file: Path) -> None:
    run = CliRunner()
    for command in (["verify"], ["keys", "list"], ["keys", "revoke", "1"]):
        problem = run.invoke(app, [*command, "--database", url(file)]).exception
        assert isinstance(problem, InvalidInput)
        assert "no database file hushprice.db" in str(problem)
        assert not file.exists()
    file.touch()
    with pytest.raises(InvalidInput, match="none of the tables"):
        Store.open(url(file), create=False)
    Store.open(url(file)).close()
    problem = run.invoke(app, ["verify", "--database", url(file)]).exception
    assert "no products" in str(problem)


def test_why_a_file_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be opened: unable to open database file"):
        Store.open(f"sqlite:///{tmp_path}")
    (tmp_path / "text.db").write_text("this is no database, whatever its name says " * 50)
    with pytest.raises(Unavailable, match="cannot be opened: not a database"):
        Store.open(f"sqlite:///{tmp_path / 'text.db'}")


def test_why_a_server_cannot_be_reached_is_reported(server: Postgres) -> None:
    with pytest.raises(Unavailable, match="cannot be opened: connection refused") as refused:
        Store.open("postgresql://annabel:hidden@127.0.0.1:1/shop")
    address = sa.make_url(server.url("tverify"))
    with pytest.raises(Unavailable, match="cannot be opened: the role does not exist") as unknown:
        Store.open(address.set(username="annabel").render_as_string(hide_password=False))
    for error in (refused, unknown):
        assert not any(word in str(error.value) for word in ("annabel", "hidden", "127.0.0.1", "shop"))


def test_the_file_is_for_its_owner_only(file: Path) -> None:
    before = os.umask(0o022)
    try:
        store = Store.open(url(file))
        with store.write():
            rights = {entry.name: entry.stat().st_mode & 0o777 for entry in file.parent.iterdir()}
    finally:
        os.umask(before)
    assert rights == dict.fromkeys(("hushprice.db", "hushprice.db-wal", "hushprice.db-shm"), 0o600)
    store.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_went_away_is_not_written_to(file: Path, replaced: bool) -> None:
    service = opened(file, Definition.of("coffee", PRIVATE))
    reports(service, 0, 5)
    file.rename(file.with_name("elsewhere.db"))
    if replaced:
        file.touch()
    with pytest.raises(Unavailable, match="deleted, moved or replaced"):
        reports(service, 5, 6)
    with pytest.raises(Unavailable, match="deleted, moved or replaced"):
        service.check()
    assert file.exists() is replaced
    file.with_name("elsewhere.db").rename(file)
    reports(service, 5, 6)
    service.stop()


# -- products, outcomes, keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE products SET definition = '{}' WHERE name = 'coffee'",
        """UPDATE events SET body = '{"z": ["secret"]}', kind = 'offer' WHERE product_id = 1 AND seq = 3""",
    ],
)
def test_a_damaged_product_harms_no_other(file: Path, statement: str, caplog: pytest.LogCaptureFixture) -> None:
    sold(file, names=("coffee", "tea"))
    by_hand(file, "DELETE FROM snapshots")
    by_hand(file, statement)
    service = opened(file)
    with pytest.raises(Unavailable, match="The product coffee is not served"):
        service.view("coffee")
    with pytest.raises(Unavailable, match="The product coffee is not served") as refused:
        service.run("coffee", Learner.digest).result(20)
    assert "secret" not in str(refused.value) + caplog.text
    reports(service, 90, 91, "tea")
    service.stop()
    code, row, text = verified(file)
    assert (code, row["same"], "secret" in text) == (1, False, False)
    assert "tea: rebuilt from 26 events" in text


def test_products_that_do_not_fit_are_refused_before_they_are_on_record(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="dim up to 1000, got 10000"):
        Definition.of("wide", {**PLAIN, "dim": 10_000})
    store = Store.open(url(file))
    monkeypatch.setattr(size_limits, "MAX_STATE_BYTES", 1000)
    with pytest.raises(InvalidInput, match="smaller dim"):
        store.add_product(Definition.of("wide", {**PLAIN, "dim": 50}))
    assert store.names() == []
    store.close()


@pytest.mark.parametrize(("family", "y"), [({"name": "linear", "sigma": 1.0}, -1e308), ("poisson", 1e300)])
def test_outcomes_beyond_all_measure_are_refused(file: Path, family: Any, y: float) -> None:
    service = opened(file, Definition.of("tea", {**PLAIN, "family": family}))
    offer = service.offer("tea", OfferRequest(context=[1.0, 0.5])).result(20).offer
    with pytest.raises(InvalidInput, match="at most 1e\\+12 in size") as refused:
        service.outcomes("tea", [OutcomeItem(offer, y)]).result(20)
    assert "308" not in str(refused.value)
    assert service.outcomes("tea", [OutcomeItem(offer, 3.0)]).result(20).accepted == 1
    service.stop()


def test_one_can_roll_back_to_any_event(file: Path) -> None:
    service = opened(file, Definition.of("tea", PLAIN))
    learned = []
    for i in range(12):
        offer = service.offer("tea", OfferRequest(context=[1.0, 0.1 * i])).result(20).offer
        service.outcomes("tea", [OutcomeItem(offer, float(i % 2))]).result(20)
        learned.append(service.run("tea", Learner.core).result(20))
    assert service.view("tea").version < service.view("tea").seq == 24  # the last event published nothing new
    with pytest.raises(NotFound, match="no such event yet: the last one is 24"):
        service.roll_back("tea", 25, by="me").result(20)
    assert service.roll_back("tea", 24, by="me").result(20) == 25
    assert service.roll_back("tea", 18, by="me").result(20) == 26
    now = service.run("tea", Learner.core).result(20)
    assert digest(now["server"]) == digest(learned[8]["server"]) != digest(learned[11]["server"])
    live = service.run("tea", Learner.digest).result(20)
    service.stop()
    store = Store.open(url(file))
    assert rebuilding.verify(store, "tea").rebuilt == live
    store.close()


def test_no_two_keys_in_use_have_the_same_name(file: Path) -> None:
    store = Store.open(url(file))
    first = store.add_key("till", "seller", "a" * 64)
    with pytest.raises(Conflict, match="There is a key of that name"):
        store.add_key("till", "device", "b" * 64)
    store.revoke_key(first)
    assert store.add_key("till", "device", "b" * 64) > first
    store.close()


def test_what_is_for_show_changes_in_place(file: Path) -> None:
    loyalty = {"name": "loyalty", "low": 0.0, "high": 1.0}
    constant = {"name": "constant", "value": 1.0}
    plain = {**PRIVATE, "features": [constant, loyalty]}
    service = opened(file, Definition.of("coffee", plain))
    reports(service, 0, 12)
    before = service.run("coffee", Learner.digest).result(20)
    wider = [constant, {**loyalty, "high": 9.0}]
    shown = Definition.of("coffee", {**plain, "currency": "EUR", "max_age": 5.0, "features": wider})
    assert service.create(shown).result(20) is False
    view = service.view("coffee")
    assert view.document is not None
    assert (view.definition, view.document["currency"], view.seq) == (shown, "EUR", 12)
    assert service.run("coffee", Learner.digest).result(20) == before
    for key, other in (("epsilon", 1.0), ("max_lag", 5), ("outcomes", {"wait": 5.0}), ("features", [])):
        with pytest.raises(Conflict, match=f"otherwise: {key} differs.*another name or use another database"):
            service.create(Definition.of("coffee", {**plain, key: other})).result(20)
    service.stop()
    again = opened(file)
    assert again.view("coffee").definition == shown
    again.stop()
    assert verified(file)[0] == 0


def test_the_log_tells_all_of_an_offer_and_can_be_fitted(file: Path, tmp_path: Path) -> None:
    clock = [1e9]
    rules = {"outcomes": {"wait": 100.0, "then": "no-sale"}}
    service = Service(Store.open(url(file)), clock=lambda: clock[0], rng=np.random.default_rng(1), tick=60.0)
    service.start()
    service.create(Definition.of("tea", {**PLAIN, **rules})).result(20)
    asks = [OfferRequest(id=f"a{i}", context=[1.0, 0.1 * (i % 9)]) for i in range(50)]
    for i, ask in enumerate(asks):
        service.offer("tea", ask).result(20)
        service.outcomes("tea", [OutcomeItem(f"a{i}", float(i % 3 == 0))]).result(20)
    service.offer("tea", OfferRequest(id="never", context=[1.0, 0.5])).result(20)
    clock[0] += 101.0
    service.set_mode("tea", "shadow", by="me").result(20)
    offer = service.offer("tea", OfferRequest(id="kept", context=[1.0, 0.5], price=2.0)).result(20)
    undone = service.offer("tea", OfferRequest(id="undone", context=[1.0, 0.5])).result(20)
    service.roll_back("tea", service.view("tea").seq - 1, by="me").result(20)
    late = [OutcomeItem("never", 1.0), OutcomeItem("undone", 0.0)]
    assert service.outcomes("tea", late).result(20).late == 2
    view, product = service.view("tea"), service.store.product("tea")
    assert product is not None
    events = list(service.store.events(product.id))
    service.stop()

    async def exported() -> bytes:
        fetch = lambda after, upto: [event for event in events if after < event.seq <= upto][:7]  # noqa: E731
        return b"".join([piece async for piece in csv_lines(fetch, view)])

    path = tmp_path / "tea.csv"
    path.write_bytes(asyncio.run(exported()))
    with path.open(newline="") as lines:
        rows = {row["offer"]: row for row in csv.DictReader(lines)}
    assert len(rows) == 53
    assert (rows["a3"]["outcome"], rows["a3"]["outcome_known"], rows["a3"]["would"]) == ("1.0", "1", "")
    assert rows["a3"]["time"] == "2001-09-09T01:46:40.000Z"
    assert (rows["never"]["outcome"], rows["never"]["outcome_known"]) == ("0.0", "0")
    assert [rows[offer]["late_outcome"] for offer in ("never", "undone", "kept", "a3")] == ["1.0", "0.0", "", ""]
    assert (rows["kept"]["price"], rows["kept"]["outcome"], rows["kept"]["outcome_known"]) == ("2.0", "", "0")
    assert 1.0 <= float(rows["kept"]["would"]) <= 5.0
    assert (rows["undone"]["outcome"], rows["undone"]["version"]) == ("", str(undone.version))
    assert list(rows)[-2:] == ["undone", "kept"]  # which still waits
    assert offer.price == 2.0
    fitted = fitting.fit(path, price="price", outcome="outcome", features=["z1"])
    assert fitted.records_ == 51
