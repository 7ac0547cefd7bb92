"""Modes, guardrails and rollbacks: what they change in prices, in what is learned, and in what is published."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hushprice import policies
from hushprice.errors import InvalidInput
from hushprice.service import Guardrails, NotFound, OfferRequest, OutcomeItem, Store
from hushprice.service.core.events import Event
from hushprice.service.core.learner import Learner
from hushprice.service.storage import replay as rebuilding
from tests.support.products import define, live_digest, log_of, opened, refused, report

NAMES = sorted(name for name, kind in policies.REGISTRY.items() if not kind.not_served)


def test_frozen_learns_and_counts_nothing(url: str) -> None:
    service = opened(url, define("etc-ldp-doubling", baseline=1.25))
    service.set_mode("coffee", "frozen", by="anna").result(20)
    document = service.view("coffee").document
    assert document is not None
    assert (document["phase"], document["level"], document["learn"]) == ("fixed", 1.25, False)
    service.reports("coffee", [report(1, version=0), report(2, version=1)]).result(20)
    assert service.view("coffee").counts["stale"] == 1
    assert service.view("coffee").counts["unasked"] == 1
    state = service.run("coffee", lambda learner: learner.server.state()).result(20)
    assert (state["offset"], state["t"]) == (0, 0)
    version = service.set_mode("coffee", "live", by="anna").result(20)
    service.reports("coffee", [report(i, version=version) for i in range(10, 13)]).result(20)
    frozen = service.set_mode("coffee", "frozen", by="anna").result(20)
    document = service.view("coffee").document
    assert document is not None
    assert (document["phase"], document["version"]) == ("exploit", frozen)
    assert document["theta"] == service.run("coffee", lambda learner: learner.server.state()["theta"].tolist()).result()
    assert [event.body["mode"] for event in service.store.changes(1)] == ["frozen", "live", "frozen"]
    service.stop()


def test_frozen_plain_prices_at_what_is_known(url: str) -> None:
    service = opened(url, define("etc", of={"horizon": 700}, baseline=1.25))
    for i in range(40):
        offer = service.offer("coffee", OfferRequest(context=[1.0, 0.02 * i])).result(20)
        service.outcomes("coffee", [OutcomeItem(offer.offer, float(offer.price < 1.5))]).result(20)
    before = service.view("coffee").counts["learned"]
    service.set_mode("coffee", "frozen", by="anna").result(20)
    offers = [service.offer("coffee", OfferRequest(context=[1.0, 0.5])).result(20) for _ in range(2)]
    assert offers[0].price == offers[1].price != 1.25
    assert not offers[0].experiment
    service.outcomes("coffee", [OutcomeItem(offer.offer, 1.0) for offer in offers]).result(20)
    assert service.view("coffee").counts["learned"] == before
    server = service.run("coffee", lambda learner: learner.server.state()).result(20)
    assert server["offset"] == 40
    theta, covariance = service.run("coffee", lambda learner: learner.server.estimate()).result(20)
    assert covariance is not None
    assert np.linalg.eigvalsh(covariance).min() > 0.0
    exact = service.run("coffee", lambda learner: learner.server.estimators[0].exact()[0]).result(20)
    np.testing.assert_allclose(theta, exact, rtol=1e-6)
    service.stop()


def test_shadow_quotes_the_baseline_and_learns_anyway(url: str) -> None:
    service = opened(url, define("etc", of={"horizon": 10_000}, mode="shadow", baseline=1.25))
    first = service.offer("coffee", OfferRequest(context=[1.0, 0.5])).result(20)
    own = service.offer("coffee", OfferRequest(context=[1.0, 0.5], price=2.0, id="own")).result(20)
    assert (first.price, own.price, own.experiment, own.propensity, own.discrete) == (1.25, 2.0, False, 1.0, True)
    service.outcomes("coffee", [OutcomeItem(first.offer, 1.0), OutcomeItem("own", 0.0)]).result(20)
    records = service.run("coffee", lambda learner: learner.server.estimators[0].state()["x"].tolist()).result(20)
    assert records == [[1.0, 0.5, -1.25, -0.625], [1.0, 0.5, -2.0, -1.0]]
    refused(InvalidInput, service.offer("coffee", OfferRequest(context=[1.0, 0.5], price=9.0)))
    would = [event.body["would"] for event in log_of(service.store) if event.kind == "offer"]
    assert all(0.0 <= price <= 3.0 for price in would)
    assert len(set(would)) == 2
    service.set_mode("coffee", "live", by="anna").result(20)
    again = service.offer("coffee", OfferRequest(context=[1.0, 0.5], price=2.0, id="own")).result(20)
    assert (again.known, again.price) == (True, 2.0)  # answered in another mode, and answered again
    service.stop()


def test_shadow_of_a_private_product_publishes_the_baseline(url: str) -> None:
    service = opened(url, define("etc-ldp", mode="shadow", baseline=1.25))
    document = service.view("coffee").document
    assert document is not None
    assert (document["phase"], document["level"], document["learn"]) == ("fixed", 1.25, True)
    service.reports("coffee", [report(1)]).result(20)
    assert service.view("coffee").counts["learned"] == 1
    service.stop()


@pytest.mark.parametrize("name", ["random-price", "semi-myopic", "supcb", "ucb", "ts-wtl", "fixed-price"])
def test_guardrails_bind_every_quote(name: str, url: str) -> None:
    definition = define(name)
    service = opened(url, definition)
    rng = np.random.default_rng(2)

    def prices(n: int) -> list[float]:
        quoted = []
        for _ in range(n):
            offer = service.offer("coffee", OfferRequest(context=rng.random(2).tolist())).result(20)
            service.outcomes("coffee", [OutcomeItem(offer.offer, float(rng.random() < 0.5))]).result(20)
            quoted.append(offer.price)
        return quoted

    prices(30)
    version = service.set_guardrails("coffee", Guardrails(low=1.0, high=2.0), by="anna").result(20)
    assert service.view("coffee").version == version
    assert all(1.0 <= price <= 2.0 for price in prices(60))
    service.set_guardrails("coffee", {"low": 0.5, "high": 2.0, "ladder": [0.6, 1.1, 1.5, 2.9]}, by="anna").result(20)
    assert set(prices(60)) <= {0.6, 1.1, 1.5}
    service.set_guardrails("coffee", Guardrails(high=0.4, largest_step=0.1), by="anna").result(20)
    steps = prices(60)
    assert max(steps) <= 0.4
    assert max(abs(a - b) for a, b in pairwise(steps)) <= 0.1 * (1.0 + 1e-6)
    for wrong in ({"low": 2.0, "high": 1.0}, {"high": 7.0}, {"ladder": [9.0]}, {"largest_step": 0.0}, {"top": 1.0}):
        refused(InvalidInput, service.set_guardrails("coffee", wrong, by="anna"))
    service.set_guardrails("coffee", {}, by="anna").result(20)
    assert service.view("coffee").guardrails == Guardrails()
    live = live_digest(service)
    service.stop()
    assert rebuilding.rebuild(Store.open(url), "coffee").digest() == live


def test_guardrails_only_narrow_the_rules(url: str) -> None:
    rules: dict[str, Any] = {"ladder": [0.5, 1.0, 1.5, 2.0, 2.5], "largest_step": 0.5}
    service = opened(url, define("random-price", rules=rules, baseline=1.0))

    def limits(**rails: Any) -> tuple[tuple[float, ...], float | None]:
        service.set_guardrails("coffee", rails, by="anna").result(20)
        rules = service.run("coffee", lambda learner: learner.limits.rules).result(20)
        return rules.ladder, rules.largest_step

    assert limits(largest_step=2.0) == (tuple(rules["ladder"]), 0.5)  # the rules' own is smaller
    assert limits(ladder=[1.0, 1.5, 2.0]) == ((1.0, 1.5, 2.0), 0.5)
    assert limits() == (tuple(rules["ladder"]), 0.5)
    text = refused(InvalidInput, service.set_guardrails("coffee", {"ladder": [1.0, 1.25]}, by="anna"))
    assert "1.25" in text
    assert "its own prices" in text
    service.stop()
    loose = opened(f"{url}2", define("random-price", rules={"largest_step": 0.5}))
    loose.set_guardrails("coffee", {"largest_step": 0.25}, by="anna").result(20)
    assert loose.run("coffee", lambda learner: learner.limits.rules.largest_step).result(20) == 0.25
    loose.stop()


def test_guardrails_of_a_private_product_are_published(url: str) -> None:
    service = opened(url, define("etc-ldp", of={"experiment_prices": (1.0, 2.0)}))
    service.set_guardrails("coffee", Guardrails(low=0.5, ladder=(1.5, 0.5)), by="anna").result(20)
    document = service.view("coffee").document
    assert document is not None
    assert document["guardrails"] == {"low": 0.5, "high": 3.0}
    assert document["ladder"] == [0.5, 1.5]
    refused(InvalidInput, service.set_guardrails("coffee", Guardrails(largest_step=0.5), by="anna"))
    refused(InvalidInput, service.set_guardrails("coffee", Guardrails(low=2.5), by="anna"))  # no experiments there
    service.stop()


def test_rollback_brings_back_what_was_known(url: str) -> None:
    service = opened(url, define("etc-ldp-doubling", of={"horizon": 700}), snapshot_every=7)
    cores = {}
    for i in range(60):
        version = service.view("coffee").version
        service.reports("coffee", [report(i, version=version)]).result(20)
        cores[service.view("coffee").seq] = service.run("coffee", lambda learner: learner.core()).result(20)
    for target in (10, 59, 0, 33):
        before = service.view("coffee")
        version = service.roll_back("coffee", target, by="anna").result(20)
        core = service.run("coffee", lambda learner: learner.core()).result(20)
        assert version == before.seq + 1
        if target:
            np.testing.assert_array_equal(core["server"]["theta"], cores[target]["server"]["theta"])
            assert core["server"]["offset"] == cores[target]["server"]["offset"]
        assert core["learned"] == cores[target]["learned"] if target else core["learned"] == 0
        stale = service.view("coffee").counts["stale"] + service.view("coffee").counts["unasked"]
        service.reports("coffee", [report(1000 + version, version=before.version)]).result(20)  # of before
        assert service.view("coffee").counts["stale"] + service.view("coffee").counts["unasked"] == stale + 1
    refused(NotFound, service.roll_back("coffee", 10_000, by="anna"))
    refused(InvalidInput, service.roll_back("coffee", -1, by="anna"))
    live = live_digest(service)
    service.stop()
    store = Store.open(url)
    assert rebuilding.rebuild(store, "coffee").digest() == live
    assert rebuilding.rebuild(store, "coffee", snapshots=True).digest() == live


def test_many_rollbacks_take_one_pass(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = opened(url, define("etc-ldp"), snapshot_every=10_000)
    for i in range(60):  # each goes back to just before itself: folding each for itself would double the work 60 times
        service.reports("coffee", [report(i, version=service.view("coffee").version)]).result(20)
        service.roll_back("coffee", service.view("coffee").version, by="anna").result(20)
    live = live_digest(service)
    service.stop()
    store = Store.open(url)
    fold, folds = rebuilding.fold, []

    def counted(*args: Any, **kwargs: Any) -> Learner:
        folds.append(kwargs)
        return fold(*args, **kwargs)

    monkeypatch.setattr(rebuilding, "fold", counted)
    assert rebuilding.rebuild(store, "coffee").digest() == live
    assert len(folds) == 1
    store.close()


def test_open_offers_of_before_the_target_survive_a_rollback(url: str) -> None:
    service = opened(url, define("supcb"))
    offers = [service.offer("coffee", OfferRequest(context=[1.0, 0.1 * i], id=f"o{i}")).result(20) for i in range(6)]
    service.outcomes("coffee", [OutcomeItem("o0", 1.0), OutcomeItem("o1", 0.0)]).result(20)
    stages = service.run("coffee", lambda learner: {key: o.stage for key, o in learner.open_offers.items()}).result(20)
    service.roll_back("coffee", 4, by="anna").result(20)  # o0 to o3 were made by then, o0 and o1 have their outcomes
    open_stages = service.run(
        "coffee", lambda learner: {key: o.stage for key, o in learner.open_offers.items()}
    ).result(20)
    assert open_stages == {key: stages[key] for key in ("o2", "o3")}
    assert service.run("coffee", lambda learner: learner.learned).result(20) == 0
    done = service.outcomes("coffee", [OutcomeItem(offer.offer, 1.0) for offer in offers[2:]]).result(20)
    assert (done.accepted, done.late) == (4, 2)
    assert (
        service.run("coffee", lambda learner: learner.learned).result(20) == sum(stages[o] > 0 for o in open_stages) > 0
    )
    live = live_digest(service)
    service.stop()
    assert rebuilding.rebuild(Store.open(url), "coffee").digest() == live


def steps(learner: Learner) -> int:
    """Reports that SGD has taken in since it began afresh."""
    return int(learner.server.state()["t"])


def test_the_learner_knows_which_reports_were_of_experiments(url: str) -> None:
    service = opened(url, define("etc-ldp", mode="shadow", baseline=1.25))

    def send(numbers: range, version: int) -> tuple[int, int, int]:
        service.reports("coffee", [report(i, version=version) for i in numbers]).result(20)
        return service.run("coffee", lambda learner: (learner.explored, learner.learned, steps(learner))).result(20)

    assert send(range(3), 0) == (0, 3, 3)
    live = service.set_mode("coffee", "live", by="anna").result(20)
    assert send(range(10, 12), live) == (2, 5, 5)
    assert send(range(20, 21), 0) == (2, 6, 6)  # late, and at the shop's own price
    shadow = service.set_mode("coffee", "shadow", by="anna").result(20)
    assert send(range(30, 31), shadow) == (2, 7, 7)
    assert send(range(40, 41), shadow - 1) == (3, 8, 8)
    service.roll_back("coffee", live, by="anna").result(20)
    assert service.run("coffee", lambda learner: (learner.explored, learner.learned)).result(20) == (0, 3)
    digest = live_digest(service)
    service.stop()
    assert rebuilding.rebuild(Store.open(url), "coffee").digest() == digest


def test_what_was_explored_begins_afresh_with_the_estimate() -> None:
    learner, restarts, most = Learner(define("etc-ldp-doubling", of={"restart": True})), 0, 0
    for i in range(1, 1_000):
        body = {"version": learner.version, "report": {"seed": f"{i:016x}", "index": i % 2}}
        learner.apply([Event(i, float(i), "report", f"r:{i}", body)])
        assert learner.explored == steps(learner)
        restarts += learner.explored < most
        most = learner.explored if learner.explored < most else max(most, learner.explored)
    assert restarts > 2
    assert learner.learned > learner.explored > 5


def test_the_learner_knows_what_was_learned_under_the_guardrails_of_today(url: str) -> None:
    service = opened(url, define("etc-ldp"))

    def since() -> tuple[int, int]:
        return service.run("coffee", lambda learner: (learner.learned_before_guardrails, learner.learned)).result(20)

    def send(numbers: range) -> int:
        version = service.view("coffee").version
        service.reports("coffee", [report(i, version=version) for i in numbers]).result(20)
        return service.view("coffee").version

    first = send(range(4))
    assert since() == (0, 4)
    service.set_guardrails("coffee", Guardrails(low=0.5), by="anna").result(20)
    assert since() == (4, 4)
    second = send(range(10, 16))
    service.set_guardrails("coffee", Guardrails(low=0.5), by="anna").result(20)  # the same again
    assert since() == (4, 10)
    service.roll_back("coffee", first, by="anna").result(20)  # guardrails stay: nothing was learned under them then
    assert since() == (4, 4)
    service.roll_back("coffee", 2, by="anna").result(20)
    assert since() == (2, 2)
    send(range(20, 25))
    assert since() == (2, 7)
    service.roll_back("coffee", second, by="anna").result(20)
    assert since() == (4, 10)
    digest = live_digest(service)
    service.stop()
    store = Store.open(url)
    assert rebuilding.rebuild(store, "coffee").digest() == digest
    assert rebuilding.rebuild(store, "coffee", snapshots=True).digest() == digest


def test_stale_reports(url: str) -> None:
    service = opened(url, define("etc-ldp", max_lag=5))
    for i in range(8):
        service.reports("coffee", [report(i, version=i)]).result(20)
    counts = service.view("coffee").counts
    assert (counts["learned"], counts["stale"]) == (8, 0)
    service.reports("coffee", [report(20, version=2), report(21, version=3), report(22, version=500)]).result(20)
    counts = service.view("coffee").counts
    assert (counts["learned"], counts["stale"]) == (9, 2)  # 3 is 5 behind 8, 2 is 6 behind, 500 is yet to come
    service.stop()
