"""Nothing that was acknowledged is lost or counts twice: event keys, conflicts, late outcomes."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hushprice.errors import InvalidInput
from hushprice.service import Conflict, NotFound, OfferRequest, OutcomeItem, ReportItem, Unavailable
from hushprice.service.storage import replay as rebuilding
from hushprice.service.writer.messages import Reported
from tests.support.products import Clock, define, live_digest, opened, refused, report


def test_reports_count_once_and_batches_are_all_or_nothing(either: str) -> None:
    service = opened(either, define("etc-ldp-doubling"), define("etc", name="tea"))
    done = service.reports("coffee", [report(1), report(2), report(1)]).result(20)
    assert (done.accepted, done.known, done.version) == (2, 1, 2)
    done = service.reports("coffee", [report(2), report(3)]).result(20)
    assert (done.accepted, done.known) == (1, 1)
    before = live_digest(service)
    refused(Conflict, service.reports("coffee", [report(4), report(2, index=0)]))
    refused(Conflict, service.reports("coffee", [report(5), report(5, version=1)]))
    refused(Conflict, service.reports("tea", [report(1)]))
    refused(Conflict, service.offer("coffee", OfferRequest(context=[1.0, 1.0])))
    refused(Conflict, service.outcomes("coffee", [OutcomeItem("a", 1.0)]))
    refused(NotFound, service.reports("cocoa", [report(1)]))
    for wrong in (
        ReportItem("1" * 31, 0, None), ReportItem("G" * 32, 0, None), ReportItem("a" * 32, -1, None),
        ReportItem("a" * 32, True, None), ReportItem("a" * 32, 0, {"seed": "77", "index": 1}),
        ReportItem("a" * 32, 0, {"seed": "7" * 16, "index": 2}), ReportItem("a" * 32, 0, {"grid": [1, 2, 3, 4]}),
        ReportItem("a" * 32, 0, {"seed": "7" * 16, "index": True}), ReportItem("a" * 32, 0, {"seed": "7" * 16}),
        ReportItem("a" * 32, 0, {"seed": "7" * 16, "index": 1, "z": 0.12345}), ReportItem("a" * 32, 0, {"bit": 1}),
        ReportItem("a" * 32, 0, {"grid": [1, 1]}),
    ):  # fmt: skip
        text = refused(InvalidInput, service.reports("coffee", [report(6), wrong]))
        assert "777" not in text
        assert "12345" not in text
    assert live_digest(service) == before
    service.stop()


def test_reports_of_a_checked_shape_are_the_same_reports(url: str) -> None:
    service = opened(url, define("etc-ldp-doubling"), define("etc-ldp-approx", name="tea"))
    items = [report(i, index=i % 2) for i in range(20)] + [ReportItem("f" * 32, 0, None)]
    plain: list[Reported] = [{"id": item.id, "version": item.version, "report": item.report} for item in items]
    done = service.checked_reports("coffee", plain).result(20)
    assert (done.accepted, done.known) == (21, 0)
    done = service.reports("coffee", items).result(20)
    assert (done.accepted, done.known) == (0, 21)
    strange: tuple[Any, ...] = (
        {"seed": "7" * 16, "index": 2}, {"grid": [1, 1]}, {"seed": "7" * 16}, {"seed": "7" * 17, "index": 0},
        {"grid": [[1], 2, 3, 4]}, {"grid": [1, 2, 3, 2**70]}, {"grid": [1, 2, 3]}, {"grid": []},
    )  # fmt: skip
    for product in ("coffee", "tea"):  # what the mechanism cannot have made is refused all the same
        for wrong in strange:
            refused(InvalidInput, service.checked_reports(product, [{"id": "a" * 32, "version": 0, "report": wrong}]))
    assert service.checked_reports("tea", [{"id": "a" * 32, "version": 0, "report": None}]).result(20).accepted == 1
    live = live_digest(service)  # by the rows that were checked
    assert rebuilding.rebuild(service.store, "coffee").digest() == live  # by those in the log
    service.stop()


def test_offers_and_outcomes_can_be_repeated(either: str) -> None:
    service = opened(either, define("semi-myopic"))
    asked = OfferRequest(context=[0.5, 0.25], id="cart-17")
    first = service.offer("coffee", asked).result(20)
    again = service.offer("coffee", asked).result(20)
    assert not first.known
    assert again.known
    assert (again.price, again.offer, again.version) == (first.price, "cart-17", first.version)
    refused(Conflict, service.offer("coffee", OfferRequest(context=[0.5, 0.26], id="cart-17")))
    other = service.offer("coffee", OfferRequest(context=[0.5, 0.25])).result(20)
    assert other.offer != first.offer
    done = service.outcomes("coffee", [OutcomeItem("cart-17", 1.0), OutcomeItem("cart-17", 1.0)]).result(20)
    assert (done.accepted, done.known, done.late) == (1, 1, 0)
    before = live_digest(service)
    refused(Conflict, service.outcomes("coffee", [OutcomeItem(other.offer, 1.0), OutcomeItem("cart-17", 0.0)]))
    refused(NotFound, service.outcomes("coffee", [OutcomeItem(other.offer, 1.0), OutcomeItem("never-made", 0.0)]))
    refused(InvalidInput, service.outcomes("coffee", [OutcomeItem(other.offer, 0.5)]))
    wrong: tuple[OfferRequest, ...] = (
        OfferRequest(context=[0.5, float("nan")]), OfferRequest(context=[0.5]), OfferRequest(context={"a": 0.123}),
        OfferRequest(context=[0.5, 1e300]), OfferRequest(context=[0.5, 0.5], segment="vip"),
        OfferRequest(context=[0.5, 0.5], cost=-1.0), OfferRequest(context=[0.5, 0.5], price=1.0),
        OfferRequest(context=[0.5, 0.5], id="no spaces"), OfferRequest(context=[0.5, "x"]),  # type: ignore[list-item]
    )  # fmt: skip
    for request in wrong:
        refused(InvalidInput, service.offer("coffee", request))
    assert live_digest(service) == before
    service.stop()


@pytest.mark.parametrize("then", ["no-sale", "left-out"])
def test_an_outcome_that_never_comes(url: str, then: str) -> None:
    clock = Clock()
    definition = define("greedy", outcomes={"wait": 100.0, "then": then})
    service = opened(url, definition, clock=clock, tick=0.01)
    offers = [service.offer("coffee", OfferRequest(context=[1.0, 0.5])).result(20).offer for _ in range(3)]
    clock.now += 99.0
    assert service.outcomes("coffee", [OutcomeItem(offers[0], 1.0)]).result(20).late == 0
    clock.now += 1.0
    for _ in range(500):  # the writer closes them by itself
        if service.view("coffee").waiting == 0:
            break
        threading.Event().wait(0.01)
    assert service.view("coffee").counts["expired"] == 2
    late = service.outcomes("coffee", [OutcomeItem(offers[1], 1.0)]).result(20)
    assert (late.accepted, late.late) == (1, 1)
    assert service.outcomes("coffee", [OutcomeItem(offers[1], 1.0)]).result(20).known == 1
    learned, quantity = service.run("coffee", lambda learner: (learner.learned, learner.statistics.quantity)).result(20)
    assert learned == (3 if then == "no-sale" else 1)
    assert quantity == 1.0
    service.stop()


def test_offers_of_quiet_products_are_closed_whatever_happened_to_the_writer(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    definitions = define("etc-ldp", name="tea"), define("greedy", outcomes={"wait": 100.0, "then": "no-sale"})
    service = opened(url, *definitions, clock=clock, tick=0.01)
    service.offer("coffee", OfferRequest(context=[1.0, 0.5])).result(20)

    def broken(*args: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(service._rounds, "_committed", broken)
        refused(Unavailable, service.reports("tea", [report(1)]))  # all learners are lost
    clock.now += 101.0
    for _ in range(500):  # and nobody asks about coffee
        if service.view("coffee").waiting == 0:
            break
        threading.Event().wait(0.01)
    assert service.view("coffee").counts["expired"] == 1
    assert live_digest(service) == rebuilding.rebuild(service.store, "coffee").digest()
    service.stop()
