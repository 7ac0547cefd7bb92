"""What was learned is a function of the log, and is what the simulation learns, to the last bit."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from hushprice import policies
from hushprice.checks.live import LiveLoop, run_batch, world_for
from hushprice.policies import Phase, PrivatePolicy, PrivateReports, snapshot
from hushprice.privacy import Report, UnsafeSeed
from hushprice.service import Definition, Guardrails, OfferRequest, OutcomeItem, ReportItem, Service, Store
from hushprice.service.core.events import Event, Mode
from hushprice.service.core.learner import Learner
from hushprice.service.core.offers import prepare
from hushprice.service.core.statistics import POINTS
from hushprice.service.storage import replay as rebuilding
from hushprice.simulation import streams
from tests.support.products import Clock, define, live_digest, log_of, opened

NAMES = sorted(name for name, kind in policies.REGISTRY.items() if not kind.not_served)
PRIVATE = [name for name in NAMES if policies.get(name).private]
PLAIN = [name for name in NAMES if not policies.get(name).private]


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
        what = (self.changes - 1) % 5  # so that none is missing
        low, high = self.definition.policy.prices
        rails = Guardrails(low=low + 0.3, high=high - 0.2, ladder=() if what == 2 else (0.5, 1.0, 1.7, 2.5))
        if what == 0:
            modes: tuple[Mode, ...] = ("live", "shadow", "frozen", "live")
            self.service.set_mode(name, modes[self.rng.integers(4)], by="test").result(20)
        elif what == 4 and self._can_forget():
            self.service.forget(name, float(self.rng.uniform(5.0, 500.0)), by="test").result(20)
        elif what == 1:
            back = int(self.rng.integers(version + 1))
            self.service.roll_back(name, back, by="test").result(20)
        else:
            self.service.set_guardrails(name, rails if self.rng.random() < 0.6 else {}, by="test").result(20)

    def _can_forget(self) -> bool:
        return not self.definition.private and bool(self.definition.policy.server().estimators)

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


@pytest.mark.parametrize("name", NAMES)
def test_rebuilt_from_the_log_is_live_to_the_last_bit(name: str, url: str) -> None:
    then = "no-sale" if len(name) % 2 else "left-out"
    definition = define(name, max_lag=20, outcomes={"wait": 300.0, "then": then})
    clock = Clock()
    service = opened(url, definition, clock=clock, rng=np.random.default_rng(3), snapshot_every=60, tick=100.0)
    Player(service, definition, clock, seed=len(name)).play(180)
    live = live_digest(service)
    service.stop()
    store = Store.open(url)
    log = log_of(store)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert len({event.key for event in log}) == len(log)
    kinds = {event.kind for event in log}
    assert kinds >= {"mode", "guardrails", "rollback"}
    if definition.policy.server().estimators:
        assert definition.private or "forget" in kinds
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


@pytest.mark.parametrize("name", ["look-ahead", "etc-doubling", "restarting"])
def test_a_change_of_demand_is_part_of_the_fold(name: str) -> None:
    """Found, rolled back and found again; the log in pieces gives the same bits, with saved states in between."""
    definition, rng = define(name), np.random.default_rng(6)
    live, events = Learner(definition), list[Event]()

    def core(version: int) -> Any:
        learner = Learner(definition)
        learner.apply(events[:version])
        return learner.core()

    def append(kind: str, key: str, body: dict[str, Any]) -> None:
        events.append(Event(len(events) + 1, float(len(events)), kind, key, body))
        live.apply(events[-1:], core)

    def sell(n: int, level: float) -> None:
        for _ in range(n):
            key = str(len(events))
            request = prepare(definition, OfferRequest(context=[1.0, float(rng.random())]))
            append("offer", f"o:{key}", live.quote(request, rng))
            y = float(rng.random() < 1.0 / (1.0 + np.exp(events[-1].body["price"] - level)))
            append("outcome", f"y:{key}", {"y": y})

    sell(700, 1.0)
    before = len(events)
    assert live.change is None
    sell(500, 4.0)
    assert live.change is not None
    assert 700 < live.change.found < 1000
    append("rollback", "a:1", {"version": before, "by": "test"})
    assert live.change is None
    append("forget", "a:2", {"half_life": 400.0, "by": "test"})
    sell(500, -2.0)
    assert live.change is not None
    for seed in range(2):
        pieces, start, cut = Learner(definition), 0, np.random.default_rng(seed)
        while start < len(events):
            stop = start + int(cut.integers(1, 400))
            pieces.apply(events[start:stop], core)
            start = stop
            state = snapshot.unpack(snapshot.pack(pieces.state()))
            pieces = Learner(definition)
            pieces.restore(state)
        assert pieces.digest() == live.digest()


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
