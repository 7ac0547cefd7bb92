"""A shop with simulated customers, over real HTTP: for ``hushprice demo --live``, and for tests of the pages.

Coffee is private: customers' devices (:class:`hushprice.device.Device`) price for themselves and send reports. Tea is
plain: the shop asks for offers and tells outcomes, of which some come late, some twice and some never. The customers
are simulated, so their true demand is known, here and to nobody else.
"""

from __future__ import annotations

import heapq
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import uvicorn

from hushprice.arrays import Array
from hushprice.device import Device, HttpTransport, Promise
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.service.definition import Definition
from hushprice.service.demo.products import COFFEE as COFFEE
from hushprice.service.demo.products import TEA as TEA
from hushprice.service.http.protocol_limits import Connection
from hushprice.service.http.server import build, listen
from hushprice.service.settings import ROLES, Role, Settings, StartKey, new_secret
from hushprice.service.storage.store import Store

PORTS = range(8000, 8050)  # that are tried where none is given
TRUTH: dict[str, Array] = {
    "coffee": np.array([2.6, 0.9, 0.5, 1.0, -0.25, 0.2]),
    "tea": np.array([2.2, 0.7, 1.2, -0.3]),
}


def definitions() -> list[Definition]:
    """The two products."""
    return [Definition.of("coffee", COFFEE), Definition.of("tea", TEA)]


def promise(definition: Definition) -> Promise:
    """What a device of the shop agrees to: exactly what this product asks for."""
    policy = definition.private_policy
    assert policy is not None
    promised = policy.guarantee
    return Promise(
        epsilon=promised.epsilon, delta=promised.delta, clip=policy.clip, mechanisms=(policy.mechanism.name,)
    )


# -- the service in a thread --------------------------------------------------------------------------------------


@contextmanager
def running(
    settings: Settings, products: Sequence[Definition], *, port: int | None = 0, stop: threading.Event | None = None
) -> Iterator[str]:
    """The service with these products in a thread of this process; gives its address.

    ``stop``, set before it is ready, is as Ctrl+C: compiling may take half a minute."""
    with closing(listen(settings.host, PORTS if port is None else [port])) as listener:
        number = listener.getsockname()[1]
        with closing(Store.open(settings.database)) as store:
            for definition in products:
                store.add_product(definition)
        app = build(replace(settings, port=number))
        config = uvicorn.Config(
            app, http=Connection, log_config=None, access_log=False, lifespan="on", ws="none",
            timeout_graceful_shutdown=5,
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), name="service", daemon=True)
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise InvalidInput("The service did not start; its log says why.")
                if stop is not None and stop.is_set():
                    raise KeyboardInterrupt
                time.sleep(0.01)
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            yield f"http://{host}:{number}"
        finally:
            server.should_exit = True
            thread.join(30.0 if server.started else 0.0)  # one that never started has nothing to finish


# -- customers ----------------------------------------------------------------------------------------------------


class Crowd:
    """Simulated customers, in a thread for each product, who come at random moments at this rate in all."""

    def __init__(self, url: str, *, device_key: str, seller_key: str, rate: float, seed: int | None = None) -> None:
        self.url, self.rate = url, rate
        self.served: dict[str, int] = {"coffee": 0, "tea": 0}
        self._stop = threading.Event()
        seeds = np.random.SeedSequence(seed).spawn(2)
        self._threads = [
            threading.Thread(target=self._come, args=(work, np.random.default_rng(child), share), daemon=True)
            for work, child, share in (
                (_Coffee(url, device_key), seeds[0], 0.6),
                (_Tea(url, seller_key), seeds[1], 0.4),
            )
        ]

    def start(self) -> None:
        """Open the doors."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Close them, and wait for the customers inside."""
        self._stop.set()
        for thread in self._threads:
            thread.join(15.0)

    def _come(self, shop: _Coffee | _Tea, rng: np.random.Generator, share: float) -> None:
        due = time.monotonic()
        with closing(shop):
            while True:
                due += rng.exponential(1.0 / (share * self.rate))
                if self._stop.wait(max(0.0, due - time.monotonic())):
                    return
                due = max(due, time.monotonic() - 1.0)  # no rush after a pause
                try:
                    shop.serve(rng, time.monotonic())
                    self.served[shop.name] += 1
                except HushpriceError:  # unreachable, or refused by an admin's hand: the next customer tries again
                    self._stop.wait(0.5)


def _bought(name: str, z: list[float], price: float, rng: np.random.Generator) -> float:
    theta, d = TRUTH[name], len(z)
    eta = float(np.dot(z, theta[:d]) - price * np.dot(z, theta[d:]))
    return float(rng.random() < 1.0 / (1.0 + math.exp(-eta)))


class _Coffee:
    """Customers with devices. One in twenty makes up their mind later, one in fifty leaves without a word."""

    name = "coffee"

    def __init__(self, url: str, key: str) -> None:
        definition = Definition.of(self.name, COFFEE)
        self.device = Device(url=url, key=key, product=self.name, promise=promise(definition), ledger=None)
        self.thinking: list[tuple[float, int, Callable[[], Any]]] = []  # due, a number, what to do then
        self.count = 0

    def serve(self, rng: np.random.Generator, now: float) -> None:
        """One customer, and those who have made up their minds."""
        while self.thinking and self.thinking[0][0] <= now:
            heapq.heappop(self.thinking)[2]()
        z = [1.0, *rng.uniform(-1.0, 1.0, 2).tolist()]
        offer = self.device.offer(z)
        y, luck = _bought(self.name, z, offer.price, rng), rng.random()
        if luck < 0.05:
            self.count += 1
            later = now + rng.uniform(1.0, 10.0)
            heapq.heappush(self.thinking, (later, self.count, lambda: self.device.sold(offer, y)))
        elif luck < 0.98:
            self.device.sold(offer, y)

    def close(self) -> None:
        """Send what waits."""
        for _, _, act in self.thinking:
            try:
                act()
            except HushpriceError:
                break
        self.device.close()


class _Tea:
    """Customers of a shop. Of the outcomes some are told late, too late, twice or never."""

    name = "tea"

    def __init__(self, url: str, key: str) -> None:
        self.transport = HttpTransport(url)
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self.late: list[tuple[float, int, dict[str, Any]]] = []
        self.count = 0

    def _post(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.transport.send("POST", f"/v1/products/tea/{what}", self.headers, json.dumps(body).encode())
        if answer.status >= 300:
            raise HushpriceError(f"The service answered {answer.status}.")
        told: dict[str, Any] = json.loads(answer.body)
        return told

    def serve(self, rng: np.random.Generator, now: float) -> None:
        """One customer, and the outcomes that come late."""
        while self.late and self.late[0][0] <= now:
            self._post("outcomes", heapq.heappop(self.late)[2])
        z = [1.0, float(rng.uniform(-1.0, 1.0))]
        offer = self._post("offers", {"context": {"loyalty": z[1]}})
        outcome = {"offer": offer["offer"], "y": _bought(self.name, z, offer["price"], rng)}
        luck = rng.random()
        if luck < 0.05:
            return  # never
        if luck < 0.15:
            self.count += 1
            heapq.heappush(self.late, (now + rng.uniform(2.0, 26.0), self.count, outcome))
            return
        for _ in range(2 if luck < 0.18 else 1):
            self._post("outcomes", outcome)

    def close(self) -> None:
        """Hang up."""
        self.transport.close()


def keys() -> tuple[dict[Role, str], tuple[StartKey, ...]]:
    """A key of each role that ends with this process: the secrets, and what the service is told."""
    secrets = {role: new_secret(role) for role in ROLES}
    return secrets, tuple(StartKey.of(f"demo {role}", role, secret) for role, secret in secrets.items())
