"""A shop with simulated customers over real HTTP, for ``hushprice demo --live`` and for tests of the pages.

Coffee is private: customers' devices (:class:`hushprice.device.Device`) compute prices and send reports. Tea is plain:
the shop requests offers and sends outcomes, some late, some twice and some never. Only this module knows the true
demand of the customers.
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

PORTS = range(8000, 8050)  # tried in order if no port is specified
TRUTH: dict[str, Array] = {
    "coffee": np.array([2.6, 0.9, 0.5, 1.0, -0.25, 0.2]),
    "tea": np.array([2.2, 0.7, 1.2, -0.3]),
}


def definitions() -> list[Definition]:
    """The two products."""
    return [Definition.of("coffee", COFFEE), Definition.of("tea", TEA)]


def promise(definition: Definition) -> Promise:
    """The promise of the shop's devices: exactly the guarantee of this product."""
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
    """Run the service with these products in a thread of this process.

    Parameters
    ----------
    settings : Settings
        How the service runs.
    products : sequence of Definition
        The products to create.
    port : int, optional
        The port; None for the first free one of ``PORTS``.
    stop : threading.Event, optional
        If set before the service is ready, it stops as with Ctrl+C; compiling may take half a minute.

    Yields
    ------
    str
        The URL of the service.
    """
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
            thread.join(30.0 if server.started else 0.0)  # a server that never started has nothing to finish


# -- customers ----------------------------------------------------------------------------------------------------


class Crowd:
    """Simulated customers who arrive at random moments, with one thread per product.

    Parameters
    ----------
    url : str
        The URL of the service.
    device_key, seller_key : str
        Secrets of keys with these roles.
    rate : float
        Customers per second.
    seed : int, optional
        Seed of the customers.
    """

    def __init__(self, url: str, *, device_key: str, seller_key: str, rate: float, seed: int | None = None) -> None:
        self.url, self.rate = url, rate
        self.served: dict[str, int] = {"coffee": 0, "tea": 0}
        self._stop = threading.Event()
        seeds = np.random.SeedSequence(seed).spawn(2)
        self._threads = [
            threading.Thread(target=self._arrive, args=(shop, np.random.default_rng(child), share), daemon=True)
            for shop, child, share in (
                (_Coffee(url, device_key), seeds[0], 0.6),
                (_Tea(url, seller_key), seeds[1], 0.4),
            )
        ]

    def start(self) -> None:
        """Start the customers."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, and wait for the customers under way."""
        self._stop.set()
        for thread in self._threads:
            thread.join(15.0)

    def _arrive(self, shop: _Coffee | _Tea, rng: np.random.Generator, share: float) -> None:
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
                except HushpriceError:  # unreachable, or refused after an admin's change: the next customer tries again
                    self._stop.wait(0.5)


def _bought(name: str, z: list[float], price: float, rng: np.random.Generator) -> float:
    theta, d = TRUTH[name], len(z)
    eta = float(np.dot(z, theta[:d]) - price * np.dot(z, theta[d:]))
    return float(rng.random() < 1.0 / (1.0 + math.exp(-eta)))


class _Coffee:
    """Customers with devices. One in twenty decides later, one in fifty leaves without a report."""

    name = "coffee"

    def __init__(self, url: str, key: str) -> None:
        definition = Definition.of(self.name, COFFEE)
        self.device = Device(url=url, key=key, product=self.name, promise=promise(definition), ledger=None)
        self.undecided: list[tuple[float, int, Callable[[], Any]]] = []  # heap of (due, number, action)
        self.count = 0

    def serve(self, rng: np.random.Generator, now: float) -> None:
        """Serve one customer, and those whose decisions are due."""
        while self.undecided and self.undecided[0][0] <= now:
            heapq.heappop(self.undecided)[2]()
        z = [1.0, *rng.uniform(-1.0, 1.0, 2).tolist()]
        offer = self.device.offer(z)
        y, luck = _bought(self.name, z, offer.price, rng), rng.random()
        if luck < 0.05:
            self.count += 1
            later = now + rng.uniform(1.0, 10.0)
            heapq.heappush(self.undecided, (later, self.count, lambda: self.device.sold(offer, y)))
        elif luck < 0.98:
            self.device.sold(offer, y)

    def close(self) -> None:
        """Send the remaining outcomes."""
        for _, _, action in self.undecided:
            try:
                action()
            except HushpriceError:
                break
        self.device.close()


class _Tea:
    """Customers of a shop that sends some outcomes late, too late, twice or never."""

    name = "tea"

    def __init__(self, url: str, key: str) -> None:
        self.transport = HttpTransport(url)
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self.late: list[tuple[float, int, dict[str, Any]]] = []
        self.count = 0

    def _post(self, path: str, message: dict[str, Any]) -> dict[str, Any]:
        answer = self.transport.send("POST", f"/v1/products/tea/{path}", self.headers, json.dumps(message).encode())
        if answer.status >= 300:
            raise HushpriceError(f"The service answered {answer.status}.")
        body: dict[str, Any] = json.loads(answer.body)
        return body

    def serve(self, rng: np.random.Generator, now: float) -> None:
        """Serve one customer, and send the late outcomes that are due."""
        while self.late and self.late[0][0] <= now:
            self._post("outcomes", heapq.heappop(self.late)[2])
        z = [1.0, float(rng.uniform(-1.0, 1.0))]
        offer = self._post("offers", {"context": {"loyalty": z[1]}})
        outcome = {"offer": offer["offer"], "y": _bought(self.name, z, offer["price"], rng)}
        luck = rng.random()
        if luck < 0.05:
            return  # its outcome is never sent
        if luck < 0.15:
            self.count += 1
            heapq.heappush(self.late, (now + rng.uniform(2.0, 26.0), self.count, outcome))
            return
        for _ in range(2 if luck < 0.18 else 1):
            self._post("outcomes", outcome)

    def close(self) -> None:
        """Close the connection."""
        self.transport.close()


def keys() -> tuple[dict[Role, str], tuple[StartKey, ...]]:
    """Make a key per role that is valid while this process runs: the secrets, and the keys for the settings."""
    secrets = {role: new_secret(role) for role in ROLES}
    return secrets, tuple(StartKey.of(f"demo {role}", role, secret) for role, secret in secrets.items())
