"""Products of the service for its tests: their definitions, a running service, their logs."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from hushprice.errors import HushpriceError
from hushprice.service import Definition, ReportItem, Service, Store
from hushprice.service.core.events import Event
from hushprice.service.core.learner import Learner
from tests.conftest import make_policy


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


def refused(kind: type[HushpriceError], future: Future[Any]) -> str:
    with pytest.raises(kind) as caught:
        future.result(20)
    assert type(caught.value) is kind
    return str(caught.value)


def report(i: int, *, version: int = 0, index: int = 1) -> ReportItem:
    return ReportItem(f"{i:032x}", version, {"seed": f"{i * 7919:016x}", "index": index})
