"""Devices over a real service: the private regret over HTTP is the simulated one, and what crosses the wire."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn

import hushprice as hp
from hushprice.device import BrokenPromise, Device, HttpTransport, Ledger, Promise, Retry, ServiceRefused, UnsafeWords
from hushprice.policies import PrivatePolicy
from hushprice.service import Definition
from hushprice.service.guardrails import Guardrails
from hushprice.service.http.app import create_app
from hushprice.service.settings import Settings, StartKey
from hushprice.service.storage.store import Store
from hushprice.service.writer.service import Service
from hushprice.simulation import engine
from hushprice.simulation.jobs import rounds_of

KEY = "hp_device_for_the_tests"


class Running:
    """A service on a port of its own, over a fresh database."""

    def __init__(self, folder: Path, products: dict[str, dict[str, Any]], port: int) -> None:
        url = f"sqlite:///{folder / 'shop.db'}"
        self.service = Service(Store.open(url))
        for name, plain in products.items():
            self.service.store.add_product(Definition.of(name, plain))
        keys = (StartKey.of("till", "device", KEY),)
        settings = Settings(database=url, keys=keys, rate=0.0, stranger_rate=0.0, log_format="none")
        config = uvicorn.Config(create_app(self.service, settings), host="127.0.0.1", port=port, log_config=None)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive(), "the service did not start"
            self.thread.join(0.01)
        self.port: int = self.server.servers[0].sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()


@contextlib.contextmanager
def running(folder: Path, *, port: int = 0, **products: dict[str, Any]) -> Iterator[Running]:
    service = Running(folder, products, port)
    try:
        yield service
    finally:
        service.stop()


def product(policy: PrivatePolicy, **more: Any) -> dict[str, Any]:
    """The definition of a product; devices ask for its parameters before every customer."""
    return {"policy": policy.name, **policy.config(), "max_age": 0} | more


# -- requirement: the private regret over HTTP equals the simulated one from the same draws ---------------


def policies(horizon: int) -> dict[str, PrivatePolicy]:
    shared: dict[str, Any] = {"family": "logistic", "dim": 2, "prices": (0.0, 3.0), "z_max": 2.0}
    known = shared | {"horizon": horizon}
    return {
        "etc-ldp": hp.policies.ETCLDP(epsilon=4.0, **known),
        "doubling": hp.policies.ETCLDPDoubling(epsilon=8.0, **shared),
        "doubling-restarts": hp.policies.ETCLDPDoubling(epsilon=8.0, restart=True, **shared),
        "doubling-privunit": hp.policies.ETCLDPDoubling(epsilon=6.0, noise="privunit", **shared),
        "approx": hp.policies.ETCLDPApprox(epsilon=3.0, delta=1e-3, **known),
        "probit": hp.policies.ETCLDP(epsilon=4.0, **known | {"family": "probit"}),
    }


HORIZON, SEED = 500, 11


@pytest.mark.parametrize("name", list(policies(HORIZON)))
def test_regret_over_http_is_the_simulated_one(name: str, tmp_path: Path) -> None:
    """Same customers, same experiments, same noise: every price and the regret are equal to the last bit."""
    policy = policies(HORIZON)[name]
    market = hp.markets.s1(dim=2, family=policy.family)
    trace = engine.Trace(np.empty(HORIZON), np.empty(HORIZON))
    rounds = rounds_of(100, HORIZON)
    simulated = engine.replicate(
        policy, market, horizon=HORIZON, seed=SEED, replication=0, checkpoints=rounds, trace=trace
    )
    assert 0.0 < simulated.exploration < 1.0, "both phases are reached"

    seeds = engine.streams(SEED, 0)
    contexts, demand = (np.random.Generator(np.random.PCG64(seeds[k])) for k in (engine.CONTEXTS, engine.DEMAND))
    exploration, privacy = (np.random.PCG64(seeds[k]) for k in (engine.EXPLORATION, engine.PRIVACY))
    words = UnsafeWords(0, price=iter(exploration.random_raw, None), report=iter(privacy.random_raw, None))
    promise = Promise(epsilon=policy.epsilon, delta=policy.guarantee.delta, clip=policy.clip, family=policy.family.name)
    prices = np.empty(HORIZON)
    (block,) = market.blocks(contexts, demand, HORIZON)
    with (
        running(tmp_path, coffee=product(policy)) as service,
        Device(url=service.url, key=KEY, product="coffee", promise=promise, ledger=None, words=words) as device,
    ):
        for i in range(HORIZON):
            offer = device.offer(block.z[i].tolist())
            prices[i] = offer.price
            (y,) = block.buy(slice(i, i + 1), prices[i : i + 1])
            assert device.sold(offer, float(y))
    assert prices.tolist() == trace.prices.tolist()
    assert block.y.tolist() == trace.y.tolist()
    parts = np.split(block.regret, rounds[:-1])
    regret = 0.0
    for part in parts:
        regret += float(part.sum())
    assert regret == simulated.path[-1]
    result = hp.simulate(policy, market, horizon=HORIZON, replications=1, seed=SEED, checkpoints=100)
    assert regret == result.regret[0]


# -- what crosses the wire ---------------------------------------------------------------------------------


class Wire:
    """A proxy that records every byte that a device sends."""

    def __init__(self, port: int) -> None:
        self.target, self.sent = port, bytearray()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                threading.Thread(target=self._pump, args=(near, far, self.sent), daemon=True).start()
                threading.Thread(target=self._pump, args=(far, near, bytearray()), daemon=True).start()

    def _pump(self, source: socket.socket, to: socket.socket, record: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                record += data
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.listener.close()


FEATURES = [{"name": "constant", "value": 1.0}, {"name": "loyalty", "low": 0.0, "high": 1.0}]


@pytest.mark.parametrize("name", ["doubling", "approx"])
def test_every_byte_on_the_wire(name: str, tmp_path: Path) -> None:
    """Everything that a device sends is one of two requests, and contains no number of the customer."""
    policy, rng, private = policies(400)[name], np.random.default_rng(1), []
    promise = Promise(epsilon=policy.epsilon, delta=policy.guarantee.delta, clip=policy.clip)
    ledger = Ledger(epsilon=20.0, delta=promise.delta, path=tmp_path / "ledger.json")
    with running(tmp_path, coffee=product(policy, features=FEATURES)) as service:
        wire = Wire(service.port)
        with Device(
            url=f"http://127.0.0.1:{wire.port}", key=KEY, product="coffee", promise=promise, ledger=ledger
        ) as device:
            for _ in range(25):
                loyalty = float(rng.random())
                offer = device.offer({"loyalty": loyalty})
                private += [loyalty, offer.price]
                assert device.sold(offer, float(rng.integers(2)))
        wire.close()
        assert service.service.view("coffee").seq == 25
    sent = wire.sent.decode("ascii")
    digits = [f"{number % 1.0:.16f}"[2:12] for number in private if number % 1.0]  # prices at an end are whole
    assert len(digits) > 25
    assert not [text for text in digits if text in sent]
    get = r"GET /v1/products/coffee/params HTTP/1\.1\r\n(?:[^\r\n]+\r\n)+\r\n"
    post = r"POST /v1/products/coffee/reports HTTP/1\.1\r\n(?:[^\r\n]+\r\n)+\r\n(\{[^\r\n]*?\}(?=GET|$))"
    assert re.fullmatch(f"(?:{get}(?:{post})?)+", sent), "nothing but these"
    headers = {line.split(":")[0] for line in re.findall(r"^[A-Za-z-]+: .*\r$", sent, re.M)}
    assert headers <= {"Host", "Accept-Encoding", "Content-Length", "Authorization", "Content-Type", "If-None-Match"}
    bodies = [json.loads(body) for body in re.findall(post, sent)]
    assert len(bodies) == 25
    for body in bodies:
        assert set(body) == {"id", "version", "report"}
        assert re.fullmatch("[0-9a-f]{32}", body["id"])
        assert body["report"] is None or set(body["report"]) in ({"seed", "index"}, {"grid"})


# -- failures -------------------------------------------------------------------------------------------


def test_a_service_that_goes_away_and_comes_back_counts_everyone_once(tmp_path: Path) -> None:
    policy = policies(400)["doubling"]
    promise = Promise(epsilon=policy.epsilon, clip=policy.clip)
    retry = Retry(attempts=2, first=0.01)
    with running(tmp_path, coffee=product(policy)) as service:
        port = service.port
        options: dict[str, Any] = {"key": KEY, "product": "coffee", "promise": promise, "ledger": None}
        options["folder"] = tmp_path / "device"
        device = Device(url=service.url, retry=retry, **options)
        assert device.sold(device.offer([1.0, 0.5]), 1)
    offers = [device.offer([1.0, 0.1 * i]) for i in range(5)]  # from the parameters at hand
    assert not any(device.sold(offer, 0) for offer in offers)
    assert device.waiting == 5
    assert str(port) not in str(device.problem)
    device.close()
    with running(tmp_path, port=port, coffee=product(policy)) as service:
        again = Device(url=service.url, **options)  # restarted too
        assert again.waiting == 5
        assert again.flush() == 0
        again.close()
        assert service.service.view("coffee").seq == 6


def test_a_service_restored_from_a_backup_goes_on_with_its_devices(tmp_path: Path) -> None:
    """The device has seen later versions than the restored service; it takes a price and is learned from again."""
    policy = policies(400)["etc-ldp"]
    promise = Promise(epsilon=policy.epsilon, clip=policy.clip)
    with running(tmp_path, coffee=product(policy)) as service:
        device = Device(url=service.url, key=KEY, product="coffee", promise=promise, ledger=None)
        assert device.sold(device.offer([1.0, 0.5]), 1)
    backup = (tmp_path / "shop.db").read_bytes()
    with running(tmp_path, coffee=product(policy)) as service:
        device.close()
        device._transport = HttpTransport(service.url)
        for _ in range(5):
            assert device.sold(device.offer([1.0, 0.5]), 0)
        latest = device.offer([1.0, 0.5]).version
    for rest in tmp_path.glob("shop.db*"):
        rest.unlink()
    (tmp_path / "shop.db").write_bytes(backup)
    with running(tmp_path, coffee=product(policy)) as service:
        device.close()
        device._transport = HttpTransport(service.url)
        offer = device.offer([1.0, 0.5])
        assert offer.experiment
        assert offer.version < latest
        assert device.sold(offer, 1)
        assert service.service.view("coffee").seq == 2
        assert service.service.run("coffee", lambda learner: learner.learned).result(10) == 2
        device.close()


def test_a_service_that_breaks_the_promise_gets_nothing(tmp_path: Path) -> None:
    policy = policies(400)["doubling"]
    plain = {"policy": "etc-doubling", "family": "logistic", "dim": 2, "prices": [0, 3]}
    with running(tmp_path, coffee=product(policy), tea=plain) as service:
        arguments: dict[str, Any] = {"url": service.url, "key": KEY, "product": "coffee", "ledger": None}
        careful = Device(**arguments, promise=Promise(epsilon=1.0, clip=policy.clip))
        with careful, pytest.raises(BrokenPromise, match=r"epsilon = 8; 1 is promised"):
            careful.offer([1.0, 0.5])
        promise = Promise(epsilon=8.0, clip=policy.clip)
        for wrong, text in (
            ({"key": "hp_device_another_key"}, "key"),
            ({"product": "milk"}, "no such product"),
            ({"product": "tea"}, "not a private one"),
        ):
            with Device(**arguments | wrong, promise=promise) as device, pytest.raises(ServiceRefused, match=text):
                device.offer([1.0, 0.5])
        assert service.service.view("coffee").seq == 0


def test_shadow_guardrails_freeze_and_rollback_reach_the_device(tmp_path: Path) -> None:
    policy = policies(400)["doubling"]
    with (
        running(tmp_path, coffee=product(policy, baseline=1.25)) as service,
        Device(
            url=service.url, key=KEY, product="coffee", promise=Promise(epsilon=8.0, clip=policy.clip), ledger=None
        ) as device,
    ):
        core = service.service

        def sell() -> Any:
            offer = device.offer([1.0, 0.5])
            assert device.sold(offer, 1)
            return offer

        versions = [sell().version for _ in range(4)]
        assert versions == sorted(versions)
        core.set_mode("coffee", "shadow", by="test").result(10)
        assert sell().price == 1.25
        core.set_mode("coffee", "live", by="test").result(10)
        core.set_guardrails("coffee", Guardrails(low=2.0, high=2.5), by="test").result(10)
        assert all(2.0 <= sell().price <= 2.5 for _ in range(10))
        core.set_mode("coffee", "frozen", by="test").result(10)
        frozen = sell()
        assert not frozen.experiment
        core.roll_back("coffee", versions[1], by="test").result(10)
        assert sell().version > frozen.version, "versions go on after a rollback"
