"""An index of event keys distinguishes retries from new events, whether a key is in memory or in a table."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hushprice.service import Conflict, OfferRequest, OutcomeItem, ReportItem, Service, Store, Unavailable
from hushprice.service.core.learner import Learner
from hushprice.service.errors import DamagedLog
from hushprice.service.storage import key_index as module
from hushprice.service.storage import replay as rebuilding
from hushprice.service.storage.key_index import PACE, RecentKeyIndex, indexed_upto
from hushprice.service.writer.messages import Accepted
from tests.support.products import define, live_digest, log_of, opened, refused, report

ROOM = 10


def places(service: Service, name: str = "coffee") -> RecentKeyIndex:
    index = service.loaded.key_indexes[name]
    assert isinstance(index, RecentKeyIndex)
    return index


def placed(store: Store, name: str = "coffee") -> int:
    product = store.product(name)
    assert product is not None
    with store.read() as connection:
        return indexed_upto(product.id, connection)


def by_hand(file: Path, statement: str, *values: Any) -> list[Any]:
    with sqlite3.connect(file) as connection:
        rows = connection.execute(statement, values).fetchall()
    connection.close()
    return rows


def test_retries_are_known_wherever_their_keys_are(either: str) -> None:
    rng = random.Random(5)
    definitions = define("etc-ldp-doubling"), define("semi-myopic", name="tea")
    service = opened(either, *definitions, recent_keys=2 * ROOM, snapshot_every=40)
    sent: list[ReportItem] = []
    for turn in range(120):
        new = [report(len(sent) + k) for k in range(rng.randint(1, 6))]
        old = rng.sample(sent, min(len(sent), 3))
        mixed = rng.sample(new + old, len(new + old))
        done = service.reports("coffee", mixed).result(20)
        assert (done.accepted, done.known) == (len(new), len(old))
        sent += new
        other = ReportItem(rng.choice(sent).id, 0, None)
        refused(Conflict, service.reports("coffee", [report(10_000 + turn), other]))
        offer = service.offer("tea", OfferRequest(context=[1.0, 0.01 * turn], id=f"o{turn}")).result(20)
        again = rng.randrange(turn + 1)
        assert service.offer("tea", OfferRequest(context=[1.0, 0.01 * again], id=f"o{again}")).result(20).known
        outcomes = [OutcomeItem(offer.offer, 1.0), OutcomeItem(f"o{again}", 1.0)]
        done = service.outcomes("tea", outcomes).result(20)
        assert (done.accepted, done.known) == (1, 1)
        if turn % 17 == 16:  # another process
            service.stop()
            service = opened(either, recent_keys=2 * ROOM, snapshot_every=40)
    assert sorted(event.key for event in log_of(service.store)) == [f"r:{item.id}" for item in sent]
    assert live_digest(service) == rebuilding.rebuild(service.store, "coffee").digest()
    assert rebuilding.verify(service.store, "coffee").ok
    if service.store.sqlite:
        for name in ("coffee", "tea"):
            events = service.view(name).seq
            assert placed(service.store, name) > events - 3 * ROOM
            assert len(places(service, name)._seqs) <= 3 * ROOM  # memory is bounded
    service.stop()


def test_two_processes_fill_one_index(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'two.db'}"
    services = [opened(url, define("etc-ldp-doubling"), recent_keys=ROOM) for _ in range(2)]
    rng = random.Random(6)
    for i in range(0, 400, 2):
        one, other = rng.sample(services, 2)
        assert one.reports("coffee", [report(i), report(i + 1)]).result(20).accepted == 2
        known = [report(rng.randrange(i + 2)) for _ in range(4)]
        assert other.reports("coffee", known).result(20).known == 4
    assert len(log_of(services[0].store)) == 400
    assert rebuilding.verify(services[0].store, "coffee").ok
    assert placed(services[0].store) > 300
    for service in services:
        assert len(places(service)._seqs) <= 4 * ROOM
        service.stop()


def test_memory_is_bounded_whoever_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'many.db'}"
    services = [opened(url, define("etc-ldp-doubling"), recent_keys=ROOM) for _ in range(7)]
    number, most = 0, 0
    for turn in range(100):
        for k, service in enumerate(services):
            n = 12 if k == 0 else int(turn % 10 == k)  # one is busy, the others hardly
            if n:
                batch = [report(number + i) for i in range(n)]
                assert (
                    service.reports("coffee", [*batch, report(number // 2)][: n + (turn > 0)]).result(20).accepted == n
                )
                number += n
        most = max(most, *(len(places(service)._seqs) for service in services))
    assert number > 1_200
    assert most <= 20 * ROOM  # what came since a process last looked, at most
    assert len(places(services[0])._seqs) <= 4 * ROOM
    assert rebuilding.verify(services[0].store, "coffee").ok
    for service in services:
        service.stop()


def test_what_is_not_committed_is_not_in_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = opened(f"sqlite:///{tmp_path / 'fails.db'}", define("etc-ldp"), recent_keys=ROOM)
    for i in range(ROOM + 1):
        service.reports("coffee", [report(i)]).result(20)
    place, tries = module._insert_keys, 0

    def away(*args: Any) -> None:
        nonlocal tries
        place(*args)
        tries += 1
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(module, "_insert_keys", away)
    refused(Unavailable, service.reports("coffee", [report(500)]))
    monkeypatch.undo()
    assert tries == 1
    assert placed(service.store) == 0
    assert len(log_of(service.store)) == ROOM + 1
    for i in [*range(ROOM + 1), 500, *range(20, 40), *range(40)]:
        service.reports("coffee", [report(i)]).result(20)
    keys = [event.key for event in log_of(service.store)]
    assert len(keys) == len(set(keys)) == 41
    assert placed(service.store) >= ROOM
    assert rebuilding.verify(service.store, "coffee").ok
    service.stop()


def test_each_event_brings_few_keys_into_the_index(tmp_path: Path) -> None:
    file = tmp_path / "pace.db"
    service = opened(f"sqlite:///{file}", define("etc-ldp"), recent_keys=100)
    service.reports("coffee", [report(i) for i in range(150)]).result(20)
    for i in range(1, 4):
        service.reports("coffee", [report(1_000 + i)]).result(20)
        assert by_hand(file, "SELECT count(*) FROM places") == [(PACE * i,)]
    keys = [key for (key,) in by_hand(file, "SELECT key FROM places")]
    assert keys == sorted(f"r:{i:032x}" for i in range(150))[: 3 * PACE]  # neighbours
    service.stop()


def test_a_log_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "cut.db"
    url = f"sqlite:///{file}"

    def sell(numbers: range) -> None:
        service = opened(url, define("etc-ldp"), recent_keys=ROOM)
        for i in numbers:
            service.reports("coffee", [report(i)]).result(20)
        service.stop()

    sell(range(60))
    before = placed(Store.open(url))
    assert before > 30
    by_hand(file, "DELETE FROM events WHERE seq > 5")
    by_hand(file, "DELETE FROM snapshots")
    assert placed(Store.open(url)) == 0
    sell(range(40, 60))  # some of those that were lost are sent again, at other places
    sell(range(3, 60))
    sell(range(60))
    sell(range(100, 160))
    sell(range(160))
    store = Store.open(url)
    assert sorted(event.key for event in log_of(store)) == sorted(f"r:{i:032x}" for i in range(160))
    assert placed(store) > 100
    assert rebuilding.verify(store, "coffee").ok
    store.close()


def test_an_index_of_a_log_that_was_cut_off_is_never_valid_again(tmp_path: Path) -> None:
    file = tmp_path / "again.db"
    url = f"sqlite:///{file}"

    def sell(*numbers: int) -> int:
        service = opened(url, define("etc-ldp"), recent_keys=ROOM)
        new = sum(service.reports("coffee", [report(i)]).result(20).accepted for i in numbers)
        service.stop()
        return new

    sell(*range(60))
    ((upto, key),) = by_hand(file, "SELECT upto, key FROM placed")
    by_hand(file, "DELETE FROM events WHERE seq > ?", upto - 3)
    by_hand(file, "DELETE FROM snapshots")
    assert sell(1_000, 1_001, int(key[2:], 16)) == 3  # the last is the event it was
    assert sell(1_000, 1_001, *range(upto)) == 2  # those that were lost and not sent again yet
    assert rebuilding.verify(Store.open(url), "coffee").ok


def test_a_lost_index_is_made_before_anything_is_sold(tmp_path: Path) -> None:
    file = tmp_path / "lost.db"
    url = f"sqlite:///{file}"
    service = opened(url, define("etc-ldp"), recent_keys=1_000)
    service.reports("coffee", [report(i) for i in range(95)]).result(20)
    service.stop()
    assert by_hand(file, "SELECT count(*) FROM places") == [(0,)]
    service = opened(url, recent_keys=ROOM)
    assert placed(service.store) == 90  # pieces of ten
    assert service.reports("coffee", [report(i) for i in range(100)]).result(20).known == 95
    assert len(places(service)._seqs) <= 2 * ROOM
    assert rebuilding.verify(service.store, "coffee").ok
    service.stop()


def test_a_log_set_back_under_a_running_service_is_read_again(either: str) -> None:
    """As by a restore, or a replica that lagged behind: what is acknowledged afterwards can be folded."""
    definitions = define("etc-ldp-doubling"), define("semi-myopic", name="tea")
    service = opened(either, *definitions, recent_keys=ROOM, snapshot_every=10**6)
    for i in range(60):
        service.reports("coffee", [report(i)]).result(20)
        service.offer("tea", OfferRequest(context=[1.0, 0.5], id=f"o{i}")).result(20)

    def cut(last: int) -> None:
        with service.store.write() as connection:
            connection.exec_driver_sql(f"DELETE FROM events WHERE seq > {last}")

    cut(30)
    assert service.reports("coffee", [report(i) for i in (3, 29, 30, 59)]).result(20) == Accepted(
        accepted=2, known=2, version=32
    )
    assert not service.offer("tea", OfferRequest(context=[1.0, 0.7], id="o40")).result(20).known
    assert service.offer("tea", OfferRequest(context=[1.0, 0.5], id="o20")).result(20).known
    cut(25)
    done = service.outcomes("tea", [OutcomeItem(f"o{i}", 1.0) for i in (3, 4, 3)]).result(20)
    assert (done.accepted, done.known) == (2, 1)

    def forget(learner: Learner) -> None:  # as after any trouble half way: the learner is thrown away
        del service.loaded.learners["coffee"]

    assert service.reports("coffee", [report(3_000)]).result(20).known == 0
    service.run("coffee", forget).result(20)
    cut(20)
    for known in (0, 6):
        batch = [report(4_000 + i) for i in range(6)]  # so that there are as many events as before
        assert service.reports("coffee", batch).result(20).known == known
    assert service.view("coffee").document == service.run("coffee", Learner.document).result(20)
    cut(10)  # and somebody else goes on from there
    other = opened(either, recent_keys=ROOM)
    other.reports("coffee", [report(1_000 + i) for i in range(40)]).result(20)
    assert service.run("coffee", lambda learner: learner.seq).result(20) == 50  # who only looks notices too
    assert service.reports("coffee", [report(9), report(25), report(1_007)]).result(20).known == 2
    for name in ("coffee", "tea"):
        assert live_digest(service, name) == live_digest(other, name) == rebuilding.rebuild(other.store, name).digest()
        assert rebuilding.verify(service.store, name).ok
    other.stop()  # keeps a snapshot
    cut(8)
    why = refused(DamagedLog, service.reports("coffee", [report(2_000)]))
    assert "the end of the log is lost" in why
    with pytest.raises(DamagedLog, match="not served"):
        service.view("coffee")
    store = Store.open(either)
    tea = store.product("tea")
    assert tea is not None
    with store.write() as connection:
        connection.exec_driver_sql(f"DELETE FROM snapshots WHERE product_id = {tea.id}")
    service.stop()
    assert store.snapshots(tea.id) == []  # none of what the log has no more
    store.close()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM places WHERE seq = 7", "1 keys are missing in the index of keys"),
        ("UPDATE places SET seq = seq + 1 WHERE seq IN (7, 9)", "2 keys are missing in the index of keys"),
        (
            "UPDATE events SET key = (SELECT key FROM events WHERE seq = 3) WHERE seq = 60",
            "1 keys stand in the log more than once",
        ),
    ],
)
def test_verify_looks_at_the_index(tmp_path: Path, statement: str, words: str) -> None:
    file = tmp_path / "index.db"
    service = opened(f"sqlite:///{file}", define("etc-ldp"), recent_keys=ROOM)
    for i in range(60):
        service.reports("coffee", [report(i)]).result(20)
    service.stop()
    store = Store.open(f"sqlite:///{file}")
    assert rebuilding.verify(store, "coffee").ok
    by_hand(file, statement)
    verdict = rebuilding.verify(store, "coffee")
    assert not verdict.ok
    assert any(words in problem for problem in verdict.problems)
    by_hand(file, "DELETE FROM placed")  # as docs/deploy.md says
    opened(f"sqlite:///{file}", recent_keys=ROOM).stop()
    assert any(words in problem for problem in rebuilding.verify(store, "coffee").problems) == ("stand" in words)
    store.close()
