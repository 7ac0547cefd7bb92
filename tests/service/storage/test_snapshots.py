"""Snapshots of a product, and logs with a gap."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hushprice.policies import snapshot
from hushprice.service import OfferRequest, OutcomeItem, Store, Unavailable
from hushprice.service.core.learner import Learner
from hushprice.service.storage import replay as rebuilding
from hushprice.service.storage.schema import events as event_table
from hushprice.service.storage.schema import snapshots as snapshot_table
from tests.support.products import define, opened, report


def test_damaged_and_foreign_snapshots_are_passed_over(url: str) -> None:
    service = opened(url, define("semi-myopic"), define("semi-myopic", name="tea"), snapshot_every=10)
    for name in ("coffee", "tea"):
        for i in range(40):
            offer = service.offer(name, OfferRequest(context=[1.0, 0.1 * (i % 7)])).result(20)
            service.outcomes(name, [OutcomeItem(offer.offer, float(i % 2))]).result(20)
    service.stop()
    store = Store.open(url)
    live = rebuilding.rebuild(store, "coffee").digest()
    product, other = store.product("coffee"), store.product("tea")
    assert product is not None
    assert other is not None
    stored = store.snapshots(product.id)
    assert len(stored) == 3  # the older ones are gone
    assert stored[0][0] == store.head(product.id)
    foreign = store.snapshot(other.id, stored[0][0])
    whole = store.snapshot(product.id, stored[0][0])
    assert foreign is not None
    assert whole is not None
    forged, older = snapshot.unpack(whole), snapshot.unpack(whole)
    forged["state"]["core"]["server"]["estimator"]["theta"] += 1e-12
    older["release"] = "0.0.1"
    strange = snapshot.pack({"release": older["release"]}), snapshot.pack({})
    for data in (b"", whole[:-10], foreign, snapshot.pack(forged), snapshot.pack(older), *strange):
        with store.write() as connection:
            mine = snapshot_table.c.product_id == product.id
            connection.execute(snapshot_table.update().where(mine).values(data=data))
        with store.read() as connection:
            assert rebuilding.newest(store, product, connection) is None
        assert rebuilding.rebuild(store, "coffee", snapshots=True).digest() == live
    store.close()


def test_a_snapshot_takes_the_state_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = opened(url, define("etc-ldp"))
    service.reports("coffee", [report(1)]).result(20)
    service.stop()
    store = Store.open(url)
    product, state, taken = store.product("coffee"), Learner.state, 0
    assert product is not None
    learner = rebuilding.rebuild(store, "coffee")

    def counted(learner: Learner) -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return state(learner)

    monkeypatch.setattr(Learner, "state", counted)
    assert rebuilding.write_snapshot(store, product, learner) > 0
    assert taken == 1
    assert store.snapshots(product.id)[0] == (1, learner.digest())
    store.close()


def test_a_log_with_a_gap_is_refused_and_harms_no_other_product(url: str) -> None:
    service = opened(url, define("etc-ldp"), define("etc-ldp", name="tea"))
    service.reports("coffee", [report(i) for i in range(5)]).result(20)
    with service.store.write() as connection:  # by other hands: 6 is missing
        row = {"product_id": 1, "seq": 7, "at": 2e9, "kind": "report", "key": "r:x", "body": '{"report":null}'}
        connection.execute(event_table.insert().values(row))
    gate = threading.Event()
    service.run("tea", lambda learner: gate.wait(20))
    both = service.reports("coffee", [report(9)]), service.reports("tea", [report(9)])  # in one transaction
    gate.set()
    with pytest.raises(Unavailable, match="has event 7 where 6 belongs"):
        both[0].result(20)
    assert both[1].result(20).accepted == 1
    with pytest.raises(Unavailable, match="has event 7 where 6 belongs"):
        rebuilding.rebuild(service.store, "coffee")
    service.stop()
