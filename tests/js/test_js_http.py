"""The JavaScript device against the real service, next to the Python device: the same bytes, the same learner."""

from __future__ import annotations

import csv
import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn

from hushprice.device import Answer, Device, HttpTransport, Ledger, Promise, UnsafeWords
from hushprice.service import Definition, Service, Store
from hushprice.service.http.app import create_app
from hushprice.service.settings import Settings, StartKey
from tests.support.node import run_node

KEYS = {"device": "hp_device_for_tests_only", "admin": "hp_admin_for_tests_only"}
FEATURES = [
    {"name": "constant", "value": 1.0},
    {"name": "loyalty", "low": 0.0, "high": 1.0},
    {"name": "hurry", "low": 0.0, "high": 1.0},
]
COMMON = {"family": "logistic", "dim": 3, "prices": [1.0, 5.0], "z_max": 2.0, "features": FEATURES, "max_age": 0}
PRODUCTS: dict[str, dict[str, Any]] = {
    "l2-ball": {"policy": "etc-ldp", "horizon": 80, "epsilon": 4.0, "noise": "l2-ball"},
    "privunit": {"policy": "etc-ldp-doubling", "epsilon": 4.0, "noise": "privunit"},
    "gaussian": {"policy": "etc-ldp-approx", "horizon": 80, "epsilon": 4.0, "delta": 1e-3},
}
PROMISE: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-3, "clip": 4.0}
BUDGET: dict[str, Any] = {"epsilon": 200.0, "delta": 0.01}


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The service on a free port, with the products."""
    folder.mkdir()
    service = Service(Store.open(f"sqlite:///{folder / 'shop.db'}"), clock=lambda: 1.8e9)  # times are in the state too
    for name, definition in PRODUCTS.items():
        service.store.add_product(Definition.of(name, COMMON | definition))
    keys = tuple(StartKey.of(role, role, secret) for role, secret in KEYS.items())  # type: ignore[arg-type]
    app = create_app(service, Settings(keys=keys, rate=0.0, stranger_rate=0.0, log_format="none"))
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        door.close()


class Recorder:
    """The network of a Python device, with every body that passes."""

    def __init__(self, url: str) -> None:
        self.inner, self.bodies = HttpTransport(url), list[str]()

    def send(self, method: str, path: str, headers: Any, body: bytes | None) -> Answer:
        if body is not None:
            self.bodies.append(body.decode())
        return self.inner.send(method, path, headers, body)

    def close(self) -> None:
        self.inner.close()


def asked(url: str, product: str, what: str) -> httpx.Response:
    answer = httpx.get(f"{url}/v1/products/{product}/{what}", headers={"Authorization": f"Bearer {KEYS['admin']}"})
    assert answer.status_code == 200
    return answer


def in_python(url: str, product: str, customers: list[dict[str, Any]], seed: int) -> tuple[list[Any], list[str]]:
    network = Recorder(url)
    offers = []
    with Device(
        url=url, key=KEYS["device"], product=product, promise=Promise(**PROMISE), ledger=Ledger(**BUDGET),
        transport=network, words=UnsafeWords(seed),
    ) as device:  # fmt: skip
        for customer in customers:
            offer = device.offer(customer["context"])
            offers.append((offer.price, offer.version, offer.experiment))
            assert device.sold(offer, customer["y"])
    return offers, network.bodies


def in_javascript(
    url: str, product: str, customers: list[dict[str, Any]], seed: int, folder: Path, lose: int
) -> dict[str, Any]:
    file = folder / f"{product}.json"
    options = {"url": url, "key": KEYS["device"], "product": product, "promise": PROMISE, "budget": BUDGET}
    file.write_text(json.dumps(options | {"seed": seed, "lose": lose, "customers": customers}))
    result: dict[str, Any] = json.loads(run_node("tools/shopper.mjs", file))
    return result


@pytest.mark.parametrize("product", PRODUCTS)
def test_both_devices_send_the_same_bytes(tmp_path: Path, product: str) -> None:
    """From the same words: price for price, byte for byte, and two services that have learned the same."""
    rng = np.random.default_rng(4)
    customers = [
        {"context": {"loyalty": float(rng.random()), "hurry": float(rng.random())}, "y": int(rng.integers(2))}
        for _ in range(80)
    ]
    with serving(tmp_path / "one") as first, serving(tmp_path / "two") as second:
        offers, bodies = in_python(first, product, customers, 17)
        result = in_javascript(second, product, customers, 17, tmp_path, lose=0)
        states = [asked(url, product, "state").json() for url in (first, second)]
    assert [(o["price"], o["version"], o["experiment"]) for o in result["offers"]] == offers
    assert [sent["body"] for sent in result["sent"] if sent["method"] == "POST"] == bodies
    assert len(bodies) == len(customers) == states[0]["seq"]
    assert states[0] == states[1]
    assert {o["experiment"] for o in result["offers"]} == {True, False}
    assert result["waiting"] == 0


def test_lost_answers_count_once_and_nothing_else_leaves(tmp_path: Path) -> None:
    """Every third answer is lost: the same reports go out again, and the log holds each of them once."""
    customers = [
        {"context": {"loyalty": 0.73425101 + i * 1e-3, "hurry": 0.28193702}, "y": i % 2} for i in range(40)
    ]  # fmt: skip
    with serving(tmp_path / "one") as url:
        result = in_javascript(url, "privunit", customers, 5, tmp_path, lose=3)
        rows = list(csv.DictReader(io.StringIO(asked(url, "privunit", "log").text)))
    posts = [sent["body"] for sent in result["sent"] if sent["method"] == "POST"]
    assert len(posts) > len(customers) == len(rows) == len({o["id"] for o in result["offers"]})
    assert result["waiting"] == 0
    assert [json.loads(row["report"] or "null") for row in rows] == [o["report"] for o in result["offers"]]
    asked_for = sum(offer["report"] is not None for offer in result["offers"])
    assert result["ledger"]["reports"] == asked_for
    everything = json.dumps(result["sent"])
    for secret in ("73425", "28193", "loyalty", "hurry"):
        assert secret not in everything
    assert all(set(json.loads(body)) == {"id", "version", "report"} for body in posts)
