"""The writer: failures of commands and of the database, several processes, the queue, the end."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hushprice.errors import InvalidInput
from hushprice.service import Failed, NotFound, OfferRequest, OutcomeItem, Service, Store, Unavailable
from hushprice.service.core.learner import Learner
from hushprice.service.storage import replay as rebuilding
from tests.support.postgres import Postgres
from tests.support.products import define, live_digest, log_of, opened, refused, report


def test_the_writer_survives_the_unforeseen(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = opened(url, define("etc-ldp"))

    def broken(*args: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(service._rounds, "_committed", broken)
    refused(Unavailable, service.reports("coffee", [report(1)]))
    monkeypatch.undo()
    done = service.reports("coffee", [report(1), report(2)]).result(20)  # the first had been committed all the same
    assert (done.accepted, done.known) == (1, 1)
    assert live_digest(service) == rebuilding.rebuild(service.store, "coffee").digest()
    service.check()
    service.stop()
    with pytest.raises(Unavailable):
        service.check()


def all_at_once(*work: Callable[[], None]) -> None:
    """Run in threads; the first failure is raised."""
    failures: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=run, args=(task,)) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_two_services_on_one_database(either: str) -> None:
    definitions = define("etc-ldp-doubling"), define("semi-myopic", name="tea")
    services = [opened(either, *definitions, snapshot_every=200) for _ in range(2)]

    def devices(service: Service, start: int) -> None:
        for i in range(start, start + 200, 4):
            version = service.view("coffee").version
            batch = [report(k, version=version) for k in range(i, i + 4)]
            assert service.reports("coffee", batch).result(60).accepted == 4

    def shop(service: Service, start: int) -> None:
        for i in range(start, start + 80):
            offer = service.offer("tea", OfferRequest(context=[1.0, 0.01 * i], id=f"o{i}")).result(60)
            assert services[i % 2].outcomes("tea", [OutcomeItem(offer.offer, float(i % 3 == 0))]).result(60).late == 0

    def same(service: Service) -> None:  # both are sent the same ids: each counts once
        for i in range(5_000, 5_100):
            service.reports("coffee", [report(i, version=0)]).result(60)

    all_at_once(
        *(lambda s=s, k=k: devices(s, 1_000 * k) for k, s in enumerate(services)),
        *(lambda s=s, k=k: shop(s, 1_000 * k) for k, s in enumerate(services)),
        *(lambda s=s: same(s) for s in services),
    )
    digests = {name: {live_digest(service, name) for service in services} for name in ("coffee", "tea")}
    store = services[0].store
    for name, expected in (("coffee", 500), ("tea", 320)):
        log = log_of(store, name)
        assert [event.seq for event in log] == list(range(1, expected + 1))
        assert len({event.key for event in log}) == expected
        assert [event.at for event in log] == sorted(event.at for event in log)
        assert digests[name] == {rebuilding.rebuild(store, name).digest()}
    for service in services:
        service.stop()


def test_what_another_process_made_is_found(either: str) -> None:
    first, second = (opened(either) for _ in range(2))
    first.create(define("etc-ldp")).result(20)
    with pytest.raises(NotFound):
        second.view("coffee")
    assert second.reports("coffee", [report(1)]).result(20).accepted == 1
    threading.Event().wait(0.11)
    first.refresh("coffee").result(20)
    assert first.view("coffee").seq == 1
    first.create(define("etc-ldp", name="tea")).result(20)
    second.refresh().result(20)
    assert [view.name for view in second.products()] == ["coffee", "tea"]
    for service in (first, second):
        service.stop()


def test_the_writer_outlives_a_database_that_goes_away(server: Postgres) -> None:
    service = opened(server.url("gone"), define("etc-ldp-doubling"), define("greedy", name="tea"))
    service.reports("coffee", [report(1)]).result(20)
    offer = service.offer("tea", OfferRequest(context=[1.0, 0.5])).result(20)
    server.stop()
    refused(Unavailable, service.reports("coffee", [report(2)]))
    refused(Unavailable, service.offer("tea", OfferRequest(context=[1.0, 0.5])))
    with pytest.raises(Unavailable):
        service.check()
    server.start()
    assert service.reports("coffee", [report(2), report(1)]).result(20).accepted == 1
    assert service.outcomes("tea", [OutcomeItem(offer.offer, 1.0)]).result(20).accepted == 1
    service.check()
    for name in ("coffee", "tea"):
        assert live_digest(service, name) == rebuilding.rebuild(service.store, name).digest()
    service.stop()


def test_a_command_that_fails_half_way_fails_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = opened(url, define("semi-myopic"), define("etc-ldp", name="tea"))
    quote = Learner.quote

    def poisoned(learner: Learner, asked: Any, rng: Any) -> dict[str, Any]:
        body = quote(learner, asked, rng)
        if asked.cost == 0.625:
            raise ZeroDivisionError
        return body

    monkeypatch.setattr(Learner, "quote", poisoned)
    gate = threading.Event()
    service.run("tea", lambda learner: gate.wait(20))  # so that the rest waits and goes into one transaction
    good = [service.offer("coffee", OfferRequest(context=[1.0, 0.1 * i], id=f"g{i}")) for i in range(5)]
    bad = service.offer("coffee", OfferRequest(context=[1.0, 0.5], cost=0.625, id="bad"))
    more = [service.offer("coffee", OfferRequest(context=[1.0, 0.1 * i], id=f"h{i}")) for i in range(5)]
    reports = service.reports("tea", [report(1)])
    gate.set()
    assert "ZeroDivision" not in refused(Failed, bad)
    assert [future.result(20).offer for future in good + more] == [f"g{i}" for i in range(5)] + [
        f"h{i}" for i in range(5)
    ]
    assert reports.result(20).accepted == 1
    monkeypatch.undo()
    assert [event.key for event in log_of(service.store)] == [f"o:{future.result().offer}" for future in good + more]
    assert live_digest(service) == rebuilding.rebuild(service.store, "coffee").digest()
    service.stop()


@pytest.mark.parametrize("kind", [ZeroDivisionError, InvalidInput])
def test_what_fails_once_is_tried_again_and_what_fails_twice_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: type[Exception]
) -> None:
    service = opened(url, define("semi-myopic"))
    quote, failures, tries = Learner.quote, 1, 0

    def brittle(learner: Learner, asked: Any, rng: Any) -> dict[str, Any]:
        nonlocal tries
        body = quote(learner, asked, rng)
        tries += 1
        if tries <= failures:
            raise kind("customer seventeen")
        return body

    monkeypatch.setattr(Learner, "quote", brittle)
    assert not service.offer("coffee", OfferRequest(context=[1.0, 0.5], id="a")).result(20).known
    assert tries == 2
    assert caplog.text == ""
    failures = 100
    for again in (4, 6):  # 500 at once each time, not "try again" for ever
        assert "seventeen" not in refused(Failed, service.offer("coffee", OfferRequest(context=[1.0, 0.5], id="b")))
        assert tries == again
    assert caplog.text.count(f"the writer met {kind.__name__}") == 2
    assert "seventeen" not in caplog.text
    monkeypatch.undo()
    assert service.offer("coffee", OfferRequest(context=[1.0, 0.5], id="b")).result(20).offer == "b"
    assert live_digest(service) == rebuilding.rebuild(service.store, "coffee").digest()
    service.stop()


def test_what_the_database_rejects_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = opened(url, define("etc-ldp"))
    add, text = Store.add_events, '"index":0'

    def strict(store: Store, rows: Any, connection: Any) -> None:
        if any(text in row[5] for row in rows):
            raise sqlite3.DataError
        add(store, rows, connection)

    monkeypatch.setattr(Store, "add_events", strict)
    gate = threading.Event()
    service.run("coffee", lambda learner: gate.wait(20))
    both = service.reports("coffee", [report(1)]), service.reports("coffee", [report(2, index=0)])
    gate.set()
    assert both[0].result(20).accepted == 1
    refused(Failed, both[1])
    refused(Failed, service.reports("coffee", [report(2, index=0)]))
    service.stop()


def test_a_look_that_fails_harms_nobody(url: str) -> None:
    service = opened(url, define("etc-ldp"))
    refused(Failed, service.run("coffee", lambda learner: 1 // 0))
    assert service.run("coffee", lambda learner: learner.seq).result(20) == 0
    service.stop()


def test_the_queue_is_bounded_and_given_up_commands_are_not_carried_out(url: str) -> None:
    service = opened(url, define("etc-ldp"), room=10)
    gate, busy = threading.Event(), threading.Event()

    def hold(learner: Learner) -> None:
        busy.set()
        gate.wait(20)

    held = service.run("coffee", hold)
    busy.wait(20)
    waiting = [service.reports("coffee", [report(i)]) for i in range(10)]
    assert service.queued() == 10
    refused(Unavailable, service.reports("coffee", [report(99)]))
    assert waiting[3].cancel()
    gate.set()
    held.result(20)
    assert [future.result(20).accepted for i, future in enumerate(waiting) if i != 3] == [1] * 9
    assert "r:" + f"{3:032x}" not in {event.key for event in log_of(service.store)}
    service.stop()


def test_stopping_does_what_waits_and_keeps_a_snapshot(url: str) -> None:
    service = opened(url, define("etc-ldp"))
    futures = [service.reports("coffee", [report(i)]) for i in range(300)]
    service.stop()
    service.stop()
    assert sum(future.result(0).accepted for future in futures) == 300
    refused(Unavailable, service.reports("coffee", [report(999)]))
    store = Store.open(url)
    product = store.product("coffee")
    assert product is not None
    assert [seq for seq, _ in store.snapshots(product.id)] == [300]
    again = opened(url)
    assert again.view("coffee").counts["reports"] == 300
    again.stop()
    store.close()
