"""The core of the service: what was learned is a function of the log, and nothing acknowledged is lost or twice."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from hushprice import policies
from hushprice.checks.live import LiveLoop, run_batch, world_for
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.policies import Phase, PrivatePolicy, PrivateReports, snapshot
from hushprice.policies.private.mixed import MixedLDP
from hushprice.privacy import Report, UnsafeSeed
from hushprice.service import (
    Conflict,
    Definition,
    Failed,
    Guardrails,
    NotFound,
    OfferRequest,
    OutcomeItem,
    ReportItem,
    Service,
    Store,
    Unavailable,
    read_products,
)
from hushprice.service.core.events import Event, Mode
from hushprice.service.core.learner import Learner
from hushprice.service.core.statistics import POINTS
from hushprice.service.storage import replay as rebuilding
from hushprice.service.storage.schema import events as event_table
from hushprice.service.storage.schema import snapshots as snapshot_table
from hushprice.service.writer.messages import Reported
from hushprice.simulation import streams
from tests.conftest import make_policy
from tests.support.postgres import Postgres

NAMES = sorted(name for name, kind in policies.REGISTRY.items() if not issubclass(kind, MixedLDP))
PRIVATE = [name for name in NAMES if policies.get(name).private]
PLAIN = [name for name in NAMES if not policies.get(name).private]


class Clock:
    """Time as the tests have it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def define(policy: str, *, name: str = "coffee", of: dict[str, Any] | None = None, **more: Any) -> Definition:
    """A product with a registered policy, and what that needs."""
    config = make_policy(policy, dim=2, **(of or {})).config()
    return Definition.of(name, {"policy": policy, **config, **more})


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'hushprice.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'hushprice.db'}"
    running: Postgres = request.getfixturevalue("server")
    return running.url(f"t{abs(hash(request.node.nodeid)) % 10**12}")


def opened(url: str, *definitions: Definition, **options: Any) -> Service:
    """A running service with these products."""
    service = Service(Store.open(url), **options)
    service.start()
    for definition in definitions:
        service.create(definition).result(20)
    return service


def live_digest(service: Service, name: str = "coffee") -> str:
    return service.run(name, Learner.digest).result(20)


def log_of(store: Store, name: str = "coffee") -> list[Event]:
    product = store.product(name)
    assert product is not None
    return list(store.events(product.id))


class Player:
    """Random traffic, changes of mode and all, from a seed."""

    def __init__(self, service: Service, definition: Definition, clock: Clock, seed: int) -> None:
        self.service, self.definition, self.clock = service, definition, clock
        self.rng = np.random.default_rng(seed)
        self.sent: list[Any] = []  # reports or outcomes, to be sent again
        self.offers: list[str] = []
        self.changes = 0

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.clock.now += float(self.rng.exponential(20.0))
            if self.rng.random() < 0.08:
                self._change()
            elif self.definition.private:
                self._reports()
            elif self.rng.random() < 0.55:
                self._offer()
            elif self.offers:
                self._outcomes()

    def _change(self) -> None:
        name, version = self.definition.name, self.service.view(self.definition.name).version
        self.changes += 1
        what = self.changes % 4  # so that none is missing
        low, high = self.definition.policy.prices
        rails = Guardrails(low=low + 0.3, high=high - 0.2, ladder=() if what == 2 else (0.5, 1.0, 1.7, 2.5))
        if what == 0:
            modes: tuple[Mode, ...] = ("live", "shadow", "frozen", "live")
            self.service.set_mode(name, modes[self.rng.integers(4)], by="test").result(20)
        elif what == 1:
            back = int(self.rng.integers(version + 1))
            self.service.roll_back(name, back, by="test").result(20)
        else:
            self.service.set_guardrails(name, rails if self.rng.random() < 0.6 else {}, by="test").result(20)

    def _reports(self) -> None:
        policy, version = self.definition.policy, self.service.view(self.definition.name).version
        assert isinstance(policy, PrivatePolicy)
        items = []
        for _ in range(int(self.rng.integers(1, 8))):
            if self.sent and self.rng.random() < 0.15:
                items.append(self.sent[self.rng.integers(len(self.sent))])
                continue
            g = self.rng.normal(size=policy.mechanism.dim)
            report = policy.mechanism.privatize(g, UnsafeSeed(int(self.rng.integers(2**60)))).to_dict()
            made = max(0, version - int(self.rng.choice([0, 0, 0, 3, 50])))
            items.append(ReportItem(self.rng.bytes(16).hex(), made, None if self.rng.random() < 0.2 else report))
            self.sent.append(items[-1])
        self.service.reports(self.definition.name, items).result(20)

    def _offer(self) -> None:
        own = float(self.rng.uniform(0.5, 2.5)) if self.rng.random() < 0.3 else None
        shadow = self.service.view(self.definition.name).mode == "shadow"
        cost = 0.2 if self.rng.random() < 0.2 else None
        z = self.rng.uniform(0.0, 1.0, self.definition.dim).tolist()
        request = OfferRequest(context=z, cost=cost, price=own if shadow else None)
        self.offers.append(self.service.offer(self.definition.name, request).result(20).offer)

    def _outcomes(self) -> None:
        items = []
        for _ in range(int(self.rng.integers(1, 4))):
            if self.sent and self.rng.random() < 0.2:
                items.append(self.sent[self.rng.integers(len(self.sent))])
                continue
            offer = self.offers[self.rng.integers(len(self.offers))]
            known = {item.offer: item for item in self.sent + items}
            items.append(known.get(offer, OutcomeItem(offer, float(self.rng.integers(2)))))
            self.sent.append(items[-1])
        self.service.outcomes(self.definition.name, items).result(20)


# -- the fold -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_rebuilt_from_the_log_is_live_to_the_last_bit(name: str, url: str) -> None:
    then = "no-sale" if len(name) % 2 else "left-out"
    definition = define(name, max_lag=20, outcomes={"wait": 300.0, "then": then})
    clock = Clock()
    service = opened(url, definition, clock=clock, rng=np.random.default_rng(3), snapshot_every=60, tick=100.0)
    Player(service, definition, clock, seed=len(name)).play(150)
    live = live_digest(service)
    service.stop()
    store = Store.open(url)
    log = log_of(store)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert len({event.key for event in log}) == len(log)
    kinds = {event.kind for event in log}
    assert kinds >= {"mode", "guardrails", "rollback"}
    assert kinds >= ({"report"} if definition.private else {"offer", "outcome", "expire"})
    assert rebuilding.rebuild(store, "coffee").digest() == live
    assert rebuilding.rebuild(store, "coffee", snapshots=True).digest() == live
    verdict = rebuilding.verify(store, "coffee")
    assert verdict.ok
    assert (verdict.events, verdict.compared, verdict.kept, verdict.rebuilt) == (len(log), len(log), live, live)
    for seed in range(3):
        assert in_pieces(store, definition, log, np.random.default_rng(seed)) == live
    store.close()


def in_pieces(store: Store, definition: Definition, log: list[Event], rng: np.random.Generator) -> str:
    """The log folded in random pieces, by learners that are saved and restored in between."""
    learner, start = Learner(definition), 0

    def core(version: int) -> Any:
        return rebuilding.rebuild(store, "coffee", upto=version).core()

    while start < len(log):
        stop = start + int(rng.integers(1, 60))
        learner.apply(log[start:stop], core)
        start = stop
        if rng.random() < 0.5:
            state = snapshot.unpack(snapshot.pack(learner.state()))
            learner = Learner(definition)
            learner.restore(state)
    return learner.digest()


@pytest.mark.parametrize("name", PRIVATE)
def test_a_run_of_reports_is_the_same_in_one_call_or_one_by_one(name: str) -> None:
    definition = define(name, of={"restart": True} if "doubling" in name else {})
    policy = definition.policy
    assert isinstance(policy, PrivatePolicy)
    rows = policy.mechanism.privatize_many(np.zeros((3_000, 4)), UnsafeSeed(5))
    whole, single, plain = Learner(definition), Learner(definition), policy.server()
    events = []
    for i, row in enumerate(rows):
        params = plain.params
        plain.advance(1)
        report = Report(policy.mechanism.kind, tuple(row.tolist())).to_dict() if params.learn else None
        if params.learn:
            plain.absorb(PrivateReports(row[None, :], params.stage))
        body = {"version": single.version, "report": report}
        events.append(Event(i + 1, float(i), "report", f"r:{i}", body))
        single.apply(events[-1:])
    whole.apply(events)
    assert whole.digest() == single.digest()
    np.testing.assert_array_equal(whole.params.theta, plain.params.theta)
    assert whole.learned == sum(event.body["report"] is not None for event in events) > 100
    assert {point.phase for point in whole.statistics.points} == {Phase.EXPLORE, Phase.EXPLOIT}
    assert len(whole.statistics.points) < POINTS
    assert whole.statistics.customers == 3_000


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_product_quotes_the_prices_of_the_simulation(name: str, url: str) -> None:
    definition = define(name)
    market, T = world_for(definition.policy), 250
    exploration = streams(5, 0)[2]
    rng = np.random.Generator(np.random.PCG64(exploration))
    loop = LiveLoop(definition.policy, market, horizon=T)
    service = opened(url, definition, rng=rng)
    prices = np.empty(T)
    for t in range(T):
        offer = service.offer("coffee", OfferRequest(context=loop.z[t].tolist())).result(20)
        y = loop.outcome(t, offer.price)
        service.outcomes("coffee", [OutcomeItem(offer.offer, y)]).result(20)
        prices[t] = offer.price
    theta = service.run("coffee", lambda learner: learner.server.params.theta).result(20)
    service.stop()
    np.testing.assert_array_equal(prices, run_batch(definition.policy, market, horizon=T).prices)
    loop.run(0, T)
    np.testing.assert_array_equal(theta, loop.pricer.params.theta)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_private_product_learns_what_the_simulation_learns(name: str, url: str) -> None:
    definition = define(name)
    policy = definition.policy
    assert isinstance(policy, PrivatePolicy)
    market, T = world_for(policy), 400
    exploration, privacy = streams(5, 0)[2:4]
    rng, device = np.random.Generator(np.random.PCG64(exploration)), policy.device(UnsafeSeed(privacy))
    loop = LiveLoop(policy, market, horizon=T)
    service = opened(url, definition)
    prices = np.empty(T)
    for t in range(T):
        view = service.view("coffee")
        quote = device.quote(view.params, loop.z[t : t + 1], rng)
        prices[t] = quote.price[0]
        report = None
        if view.params.learn:
            y = np.array([loop.outcome(t, float(prices[t]))])
            made = device.report(view.params, loop.z[t : t + 1], quote.price, y, view.params.stage)
            assert isinstance(made, PrivateReports)
            report = policy.mechanism.reports(made.rows)[0].to_dict()
        service.reports("coffee", [ReportItem(f"{t:032x}", view.version, report)]).result(20)
    theta = service.view("coffee").params.theta
    service.stop()
    np.testing.assert_array_equal(prices, run_batch(policy, market, horizon=T).prices)
    loop.run(0, T)
    np.testing.assert_array_equal(theta, loop.pricer.params.theta)


COLD = """
import importlib, json, pkgutil, sys
import numpy as np
from hushprice import kernels
from hushprice.service import Definition, OfferRequest, OutcomeItem, ReportItem, Service, Store

def compiled():
    modules = [importlib.import_module(f"hushprice.kernels.{m.name}") for m in pkgutil.iter_modules(kernels.__path__)]
    found = {f"{m.__name__}.{k}": v for m in modules for k, v in vars(m).items() if hasattr(v, "overloads")}
    return {k: len(v.overloads) for k, v in found.items()}

url, *given = sys.argv[1:]
store = Store.open(url)
for text in given:
    store.add_product(Definition.of(**json.loads(text)))
service = Service(store)
service.start()
before = compiled()
for view in service.products():
    for i in range(30):
        if view.private:
            item = ReportItem(f"{i:032x}", service.view(view.name).version, {"seed": f"{i:016x}", "index": 1})
            service.reports(view.name, [item]).result(60)
        else:
            offer = service.offer(view.name, OfferRequest(context=[0.5, 0.5])).result(60)
            service.outcomes(view.name, [OutcomeItem(offer.offer, float(i % 2))]).result(60)
service.stop()
after = compiled()
print(json.dumps({"ready": sum(before.values()), "late": sorted(k for k in after if after[k] > before[k])}))
"""


def test_nothing_is_left_to_be_compiled_when_the_service_is_ready(url: str) -> None:
    names = "semi-myopic", "etc-doubling", "etc-ldp-doubling"
    texts = [json.dumps({"name": name, "plain": {"policy": name, **define(name).policy.config()}}) for name in names]
    done = subprocess.run([sys.executable, "-c", COLD, url, *texts], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert result["late"] == []
    assert result["ready"] > 3


# -- ids, conflicts, lateness ----------------------------------------------------------------------------------------


def refused(kind: type[HushpriceError], future: Future[Any]) -> str:
    with pytest.raises(kind) as caught:
        future.result(20)
    assert type(caught.value) is kind
    return str(caught.value)


def report(i: int, *, version: int = 0, index: int = 1) -> ReportItem:
    return ReportItem(f"{i:032x}", version, {"seed": f"{i * 7919:016x}", "index": index})


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


# -- modes, guardrails, rollback --------------------------------------------------------------------------------------


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


# -- snapshots, the database ------------------------------------------------------------------------------------------


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


def test_a_definition_does_not_change(url: str) -> None:
    service = opened(url, define("etc"))
    assert service.create(define("etc")).result(20) is False
    refused(Conflict, service.create(define("etc", baseline=2.0)))
    service.stop()
    with pytest.raises(Unavailable):
        service.create(define("etc")).result(20)


def test_definitions_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "products.toml"
    file.write_text(
        """
        [products.coffee]
        policy = "etc-ldp-doubling"
        family = "logistic"
        dim = 2
        prices = [1.0, 5.0]
        epsilon = 2.0
        z_max = 2.0
        currency = "EUR"
        [products.coffee.outcomes]
        wait = 60
        then = "no-sale"
        [products.coffee.rules]
        ladder = [1.99, 2.99, 3.99]
        [products.coffee.guardrails]
        low = 1.5
        [[products.coffee.features]]
        name = "constant"
        value = 1.0
        [[products.coffee.features]]
        name = "loyalty"
        low = 0.0
        high = 1.0
        [products.tea]
        policy = "etc"
        family = { name = "linear", sigma = 2.0 }
        dim = 1
        horizon = 1000
        prices = [1, 2]
        """
    )
    coffee, tea = read_products(file)
    assert (coffee.name, coffee.private, coffee.baseline, coffee.wait, coffee.then) == (
        "coffee", True, 2.99, 60.0, "no-sale",
    )  # fmt: skip
    assert (tea.private, tea.baseline, tea.policy.family.scale) == (False, 1.5, 2.0)
    np.testing.assert_array_equal(coffee.context({"loyalty": 0.5}), [1.0, 0.5])
    for definition in (coffee, tea):
        assert Definition.of(definition.name, json.loads(json.dumps(definition.config()))) == definition
    with pytest.raises(InvalidInput, match="exactly loyalty"):
        coffee.context({"loyal": 0.5})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"policy": "etc-ldp-mixed"}, "raw records"),
        ({"policy": "etcc"}, "Did you mean 'etc'"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"prices": [3, 1]}, "Did you mean"),
        ({"horizon": 10}, "no option"),
        ({"baseline": 9.0}, "baseline"),
        ({"mode": "asleep"}, "mode"),
        ({"outcomes": {"wait": -1}}, "wait"),
        ({"outcomes": {"then": "never"}}, "no way"),
        ({"features": [{"name": "a"}]}, "feature"),
        ({"features": [{"name": "a", "value": 1.0}]}, "2 features"),
        ({"guardrails": {"largest_step": 1.0}}, "largest step"),
        ({"guardrails": {"low": 0.5}}, "must lie within"),
        ({"rules": {"ladder": [2.0]}, "baseline": 2.5}, "ladder"),
        ({"family": {"name": "logistic", "sigma": 1.0}}, "no options"),
        ({"z_max": [1]}, "z_max"),
        ({"rules": 3}, "rules"),
        ({"currency": 3}, "currency"),
    ],
)
def test_definitions_that_make_no_sense_are_refused(wrong: dict[str, Any], words: str) -> None:
    plain: dict[str, Any] = {
        "policy": "etc-ldp-doubling", "family": "logistic", "dim": 2, "prices": [1, 5], "epsilon": 2, "z_max": 2,
    }  # fmt: skip
    Definition.of("coffee", plain)
    with pytest.raises(InvalidInput, match=words):
        Definition.of("coffee", plain | wrong)


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


# -- several at once --------------------------------------------------------------------------------------------------


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
def test_what_fails_once_is_tried_again_and_what_fails_twice_is_told_so(
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


def test_what_the_database_will_not_take_is_told_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
