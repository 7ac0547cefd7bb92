"""The service over HTTP: roles, ids, caches, limits, and that no answer and no log line repeats what was sent."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families
from starlette.routing import compile_path
from typer.testing import CliRunner

from hushprice import fitting
from hushprice.cli.commands import serve as commands
from hushprice.errors import InvalidInput
from hushprice.service import Definition
from hushprice.service.dashboard.bands import MIN_OUTCOMES
from hushprice.service.demo.products import COFFEE
from hushprice.service.errors import Unavailable
from hushprice.service.http import server as run
from hushprice.service.http.access_log import Log
from hushprice.service.http.app import ENDPOINTS as DECLARED
from hushprice.service.http.app import create_app
from hushprice.service.http.bodies import answers, figures
from hushprice.service.http.rate_limits import Rates
from hushprice.service.http.responses import Problem
from hushprice.service.http.routes import admin as routes_admin
from hushprice.service.http.routes import products as routes_look
from hushprice.service.http.server import TOY, check_workers, prepare
from hushprice.service.settings import ROLES, Settings, StartKey, hash_of, redacted_url
from hushprice.service.storage.replay import verify
from hushprice.service.storage.store import Store
from hushprice.service.writer.service import FRESH, Service
from tests.support.fuzz import MALFORMED
from tests.support.postgres import postgres

KEYS: dict[str, str] = {role: f"test-key-of-a-{role}" for role in ROLES}
PLAIN = {"policy": "etc-doubling", "family": "logistic", "dim": 2, "prices": [1.0, 5.0], "cost": 0.25}


class Shop:
    """An app over a fresh database, and a client of it that waits for answers."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.url = f"sqlite:///{folder / 'shop.db'}"
        self.service = Service(Store.open(self.url))
        for name, definition in {"coffee": COFFEE, "tea": PLAIN}.items():
            self.service.store.add_product(Definition.of(name, definition))
        options: dict[str, Any] = {"stranger_rate": 0.0, "rate": 0.0, "log_format": "json"} | settings
        keys = tuple(StartKey.of(f"my-{role}", role, KEYS[role]) for role in ROLES)
        self.settings = Settings(database=self.url, keys=keys, **options)
        self.service.start()
        self.app = create_app(self.service, self.settings)
        self.context = self.app.state.context
        self.logged = io.StringIO()
        self.context.log.handler.stream = self.logged
        self.loop = asyncio.new_event_loop()
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://shop.test")

    def __call__(self, method: str, path: str, role: str | None = "admin", **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if role is not None:
            headers["Authorization"] = f"Bearer {KEYS[role]}"
        answer = self.loop.run_until_complete(self.client.request(method, path, headers=headers, **options))
        check_type(answer)
        return answer

    def raw(self, path: str, body: bytes | str, role: str = "admin", kind: str = "application/json") -> httpx.Response:
        return self("POST", path, role, content=body, headers={"Content-Type": kind})

    def state(self, product: str) -> tuple[int, str]:
        state = self("GET", f"/v1/products/{product}/state").json()
        return state["seq"], state["digest"]

    def log(self) -> str:
        self.context.log.flush()
        return self.logged.getvalue()

    def close(self) -> None:
        self.loop.run_until_complete(self.client.aclose())
        self.loop.close()
        self.service.stop()


def check_type(answer: httpx.Response) -> None:
    """Check that an answer in JSON has exactly the fields that its endpoint declares, in the declared types."""
    if not answer.content or not answer.headers["Content-Type"].startswith("application/json"):
        return
    request = answer.request
    kind: type[Any] | None = answers.ErrorAnswer
    if answer.is_success:
        declared = (endpoint for endpoint in DECLARED if endpoint.method == request.method.replace("HEAD", "GET"))
        kind = next(one.answer for one in declared if compile_path(one.path)[0].match(request.url.path))
    msgspec.convert(answer.json(), kind)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.close()


def report(version: int = 0, **more: Any) -> dict[str, Any]:
    return {"id": uuid.uuid4().hex, "version": version, "report": {"seed": "09af3c5577e1d2b4", "index": 1}} | more


PRODUCT = "/v1/products/coffee"
ENDPOINTS: list[tuple[str, str, str | None]] = [
    ("GET", "/v1/products", "device"),
    ("POST", "/v1/products", "admin"),
    ("GET", PRODUCT, "seller"),
    ("GET", f"{PRODUCT}/params", "device"),
    ("POST", f"{PRODUCT}/reports", "device"),
    ("POST", f"{PRODUCT}/offers", "seller"),
    ("POST", f"{PRODUCT}/outcomes", "seller"),
    ("GET", f"{PRODUCT}/summary", "seller"),
    ("GET", f"{PRODUCT}/curve", "seller"),
    ("GET", f"{PRODUCT}/log", "seller"),
    ("GET", f"{PRODUCT}/history", "seller"),
    ("GET", f"{PRODUCT}/state", "admin"),
    ("POST", f"{PRODUCT}/mode", "admin"),
    ("POST", f"{PRODUCT}/guardrails", "admin"),
    ("POST", f"{PRODUCT}/rollback", "admin"),
    ("POST", f"{PRODUCT}/forget", "admin"),
    ("GET", "/v1/keys", "admin"),
    ("POST", "/v1/keys", "admin"),
    ("DELETE", "/v1/keys/1", "admin"),
    ("GET", "/healthz", None),
    ("GET", "/readyz", None),
    ("GET", "/metrics", None),
    ("GET", "/openapi.json", None),
    ("GET", "/shop/config", None),
]


class TestRoles:
    def test_each_endpoint_is_open_to_its_role_and_above_only(self, shop: Shop) -> None:
        for method, path, role in ENDPOINTS:
            for caller in (None, *ROLES):
                status = shop(method, path, caller).status_code
                if role is None:
                    assert status in (200, 404), (method, path, caller)
                elif caller is None:
                    assert status == 401, (method, path)
                elif ROLES.index(caller) < ROLES.index(role):
                    assert status == 403, (method, path, caller)
                else:
                    assert status in (200, 404, 409, 415, 422), (method, path, caller, status)

    def test_the_table_of_endpoints_is_complete(self, shop: Shop) -> None:
        paths = shop("GET", "/openapi.json", None).json()["paths"]
        described = {(method.upper(), path) for path, item in paths.items() for method in item}
        known = {
            (method, path.replace("coffee", "{name}").replace("keys/1", "keys/{id}")) for method, path, _ in ENDPOINTS
        }
        files = {("GET", "/pages/{file}"), ("GET", "/pages/device/{file}")}
        assert described - known == {("GET", "/"), ("GET", "/shop"), *files}
        assert known <= described

    @pytest.mark.parametrize(
        "header", ["", "Bearer", "Bearer ", "Basic eDp5", "Bearer wrong-key-altogether", f"Token {KEYS['admin']}"]
    )
    def test_without_a_key_that_is_known(self, shop: Shop, header: str) -> None:
        answer = shop("GET", "/v1/products", None, headers={"Authorization": header})
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert "wrong-key" not in answer.text

    def test_keys_of_the_table(self, shop: Shop) -> None:
        made = shop("POST", "/v1/keys", json={"name": "till-3", "role": "device"})
        assert made.status_code == 201
        secret = made.json()["secret"]
        assert re.fullmatch(r"hp_device_[A-Za-z0-9_-]{43}", secret)
        headers = {"Authorization": f"Bearer {secret}"}
        assert shop("GET", "/v1/products", None, headers=headers).status_code == 200
        assert shop("GET", "/v1/keys", None, headers=headers).status_code == 403
        listed = shop("GET", "/v1/keys")
        assert [key["name"] for key in listed.json()["keys"]] == ["till-3"]
        assert secret not in listed.text
        assert hash_of(secret) not in listed.text
        assert shop("DELETE", f"/v1/keys/{made.json()['id']}").status_code == 204
        assert shop("GET", "/v1/products", None, headers=headers).status_code == 401
        assert shop("DELETE", f"/v1/keys/{made.json()['id']}").status_code == 404
        assert secret not in shop.log()

    def test_a_key_revoked_by_another_process_stops_working_at_the_next_look(self, shop: Shop) -> None:
        other = Store.open(shop.url)
        key = other.add_key("elsewhere", "seller", hash_of("a-secret-of-another"))
        headers = {"Authorization": "Bearer a-secret-of-another"}
        assert shop("GET", PRODUCT, None, headers=headers).status_code == 401
        shop.context.keys.refresh()
        assert shop("GET", PRODUCT, None, headers=headers).status_code == 200
        other.revoke_key(key)
        shop.context.keys.refresh()
        assert shop("GET", PRODUCT, None, headers=headers).status_code == 401
        other.close()

    def test_nobody_of_a_table_that_cannot_be_read_for_long_is_let_in(self, shop: Shop) -> None:
        shop.service.store.add_key("x", "admin", hash_of("a-secret-of-another"))
        shop.context.keys.refresh()
        shop.context.keys._read_at -= 60.0
        answer = shop("GET", PRODUCT, None, headers={"Authorization": "Bearer a-secret-of-another"})
        assert answer.status_code == 503
        assert shop("GET", PRODUCT).status_code == 200  # given at the start


class TestPrivate:
    def test_params(self, shop: Shop) -> None:
        answer = shop("GET", f"{PRODUCT}/params", "device")
        document = msgspec.convert(answer.json(), answers.ParamsAnswer)
        assert (document.product, document.phase, document.learn) == ("coffee", "explore", True)
        assert answer.headers["ETag"] == '"0"'
        assert answer.headers["Cache-Control"] == "public, max-age=1"

    @pytest.mark.parametrize(
        ("header", "status"),
        [('"0"', 304), ('W/"0"', 304), ('"7", "0"', 304), ("*", 304), ('"7"', 200), ("0", 200), ("", 200)],
    )
    def test_etag(self, shop: Shop, header: str, status: int) -> None:
        answer = shop("GET", f"{PRODUCT}/params", "device", headers={"If-None-Match": header})
        assert answer.status_code == status
        assert answer.headers["ETag"] == '"0"'
        assert bool(answer.content) == (status == 200)

    def test_a_new_version_has_another_etag(self, shop: Shop) -> None:
        done = shop("POST", f"{PRODUCT}/reports", "device", json=report())
        assert done.json() == {"accepted": 1, "known": 0, "version": 1}
        answer = shop("GET", f"{PRODUCT}/params", "device", headers={"If-None-Match": '"0"'})
        assert (answer.status_code, answer.headers["ETag"], answer.json()["version"]) == (200, '"1"', 1)

    def test_params_are_small_and_can_be_kept_out_of_caches(self, shop: Shop) -> None:
        wide = {"dim": 8, "features": [], "max_age": 0, "centre": [0.0] * 16}
        definition = {**COFFEE, **wide}
        assert shop("POST", "/v1/products", json={"name": "cocoa", "definition": definition}).status_code == 201
        rng = np.random.default_rng(1)
        batch = [report(report={"seed": rng.bytes(8).hex(), "index": int(rng.integers(2))}) for _ in range(20)]
        assert shop("POST", "/v1/products/cocoa/reports", json={"reports": batch}).status_code == 200
        answer = shop("GET", "/v1/products/cocoa/params")
        assert any(answer.json()["theta"])
        assert len(answer.content) < 4_000
        assert answer.headers["Cache-Control"] == "public, no-cache"

    def test_the_same_report_again_is_not_counted_twice(self, shop: Shop) -> None:
        one = report()
        first = shop("POST", f"{PRODUCT}/reports", "device", json=one).json()
        before = shop.state("coffee")
        again = shop("POST", f"{PRODUCT}/reports", "device", json=one).json()
        assert (first["accepted"], again["accepted"], again["known"]) == (1, 0, 1)
        batch = {"reports": [one, report(), report(report=None)]}
        assert shop("POST", f"{PRODUCT}/reports", json=batch).json() == {"accepted": 2, "known": 1, "version": 2}
        assert shop.state("coffee")[0] == before[0] + 2

    def test_a_key_given_twice_is_refused(self, shop: Shop) -> None:
        before, text = shop.state("coffee"), json.dumps(report())
        for twice in ('"version": 0', '"index": 1', '"report": null'):
            spoiled = (
                text.replace('"version": 0', f'"version": 0, {twice}')
                if "index" not in twice
                else text.replace('"index": 1', f'"index": 1, {twice}')
            )
            for body in (spoiled, f'{{"reports": [{spoiled}]}}'):
                answer = shop.raw(f"{PRODUCT}/reports", body)
                assert (answer.status_code, "twice" in answer.json()["error"]["message"]) == (400, True), body
        assert shop.state("coffee") == before

    def test_refusals_say_where(self, shop: Shop) -> None:
        for bad, where in (
            ({"id": "x"}, ["reports", 1, "id"]),
            ({"report": {"seed": "x", "index": 1}}, ["reports", 1, "report", "seed"]),
            ({"report": {"seed": "0" * 16, "index": -1}}, ["reports", 1, "report", "index"]),
            ({"report": {"grid": [1, 0.5]}}, ["reports", 1, "report", "grid", 1]),
            ({"more": 1}, ["reports", 1, "(unknown)"]),
        ):
            answer = shop("POST", f"{PRODUCT}/reports", json={"reports": [report(), report(**bad)]})
            assert answer.json()["error"]["where"] == where, bad

    def test_refusals_say_what_and_how_much(self, shop: Shop) -> None:
        for body, message in (
            ({"context": [1.0, "x"]}, "context.1 must be a number."),
            (
                {"context": [1.0, 0.5], "colour": "31337"},
                "The body has a key that is not known here (/openapi.json has",
            ),
            ({"context": [1.0, "x"], "cost": -1}, "(2 things are wrong with the body.)"),
        ):
            answer = shop("POST", OFFERS, json=body)
            text = answer.json()["error"]["message"]
            assert (answer.status_code, message in text, "31337" in text) == (422, True, False), text
            assert ("things are wrong" in text) == ("things" in message)

    def test_one_bad_report_refuses_all(self, shop: Shop) -> None:
        before = shop.state("coffee")
        impossible = {"seed": "09af3c5577e1d2b4", "index": 2**30}
        for bad in ({"version": -1}, {"id": "short"}, {"report": impossible}, {"x": 1}):
            batch = {"reports": [report(), report(**bad)]}
            refused = shop("POST", f"{PRODUCT}/reports", json=batch)
            assert (refused.status_code, refused.json()["error"]["where"][:2]) == (422, ["reports", 1]), bad
        assert shop.state("coffee") == before

    def test_a_report_that_contradicts_one_on_record_is_named(self, shop: Shop) -> None:
        first = report()
        shop("POST", f"{PRODUCT}/reports", json=first)
        for other in ({**first, "version": 7}, {**first, "report": None}):
            refused = shop("POST", f"{PRODUCT}/reports", json={"reports": [report(), report(), other]})
            assert (refused.status_code, refused.json()["error"]["where"]) == (409, ["reports", 2])
        assert shop.state("coffee")[0] == 1

    def test_kinds_are_not_mixed_up(self, shop: Shop) -> None:
        assert shop("GET", "/v1/products/tea/params").status_code == 409
        assert shop("POST", "/v1/products/tea/reports", json=report()).status_code == 409
        assert shop("POST", f"{PRODUCT}/offers", json={"context": [1, 2, 3]}).status_code == 409
        assert shop("GET", "/v1/products/cocoa/params").status_code == 404
        assert shop("POST", "/v1/products/cocoa/reports", json=report()).status_code == 404


OFFERS, OUTCOMES = "/v1/products/tea/offers", "/v1/products/tea/outcomes"


class TestPlain:
    def test_offer_and_outcome(self, shop: Shop) -> None:
        asked = {"id": "a:1", "context": [1.0, 0.5]}
        quoted = shop("POST", OFFERS, "seller", json=asked)
        offer = msgspec.convert(quoted.json(), answers.OfferAnswer)
        assert offer.offer == "a:1"
        assert 1.0 <= offer.price <= 5.0
        assert shop("POST", OFFERS, "seller", json=asked).json() == quoted.json()
        assert shop("POST", OFFERS, "seller", json={**asked, "context": [1.0, 0.6]}).status_code == 409
        sold = {"offer": "a:1", "y": 1}
        assert shop("POST", OUTCOMES, "seller", json=sold).json() == {"accepted": 1, "known": 0, "late": 0}
        assert shop("POST", OUTCOMES, "seller", json=sold).json() == {"accepted": 0, "known": 1, "late": 0}
        assert shop("POST", OUTCOMES, "seller", json={**sold, "y": 0}).status_code == 409
        assert shop.state("tea")[0] == 2

    def test_unknown_offer_stores_nothing(self, shop: Shop) -> None:
        made = shop("POST", OFFERS, json={"context": [1.0, 0.5]}).json()["offer"]
        before = shop.state("tea")
        batch = {"outcomes": [{"offer": made, "y": 1.0}, {"offer": "nobody", "y": 1.0}]}
        refused = shop("POST", OUTCOMES, json=batch)
        assert (refused.status_code, refused.json()["error"]["where"]) == (404, ["outcomes", 1])
        batch = {"outcomes": [{"offer": made, "y": 1.0}, {"offer": made, "y": 0.5}]}  # a sale is 0 or 1
        refused = shop("POST", OUTCOMES, json=batch)
        assert (refused.status_code, refused.json()["error"]["where"]) == (422, ["outcomes", 1])
        assert "where" not in shop("POST", OUTCOMES, json={"offer": made, "y": 0.5}).json()["error"]
        assert shop.state("tea") == before

    def test_the_log_can_be_fitted(self, shop: Shop, tmp_path: Path) -> None:
        rng = np.random.default_rng(3)
        sold = []
        for _ in range(60):
            z = [1.0, float(rng.random())]
            offer = shop("POST", OFFERS, json={"context": z}).json()
            sold.append({"offer": offer["offer"], "y": float(rng.random() < 0.5)})
        shop("POST", OUTCOMES, json={"outcomes": sold[:50]})
        answer = shop("GET", "/v1/products/tea/log", "seller")
        assert answer.headers["content-type"].startswith("text/csv")
        lines = answer.text.splitlines()
        assert lines[0].startswith("z0,z1,price,outcome,propensity,discrete,cost,offer,time,version")
        assert len(lines) == 61
        (tmp_path / "tea.csv").write_bytes(answer.content)
        model = fitting.fit(tmp_path / "tea.csv", price="price", outcome="outcome", features=["z1"])
        assert model.records_ == 50

    def test_the_log_of_a_private_product_is_what_was_sent(self, shop: Shop) -> None:
        one = report()
        shop("POST", f"{PRODUCT}/reports", json={"reports": [one, report(report=None)]})
        lines = shop("GET", f"{PRODUCT}/log", "seller").text.splitlines()
        assert lines == ["seq,version,report", '1,0,"{""index"": 1, ""seed"": ""09af3c5577e1d2b4""}"', "2,0,"]


class TestAdmin:
    def test_create(self, shop: Shop) -> None:
        body = {"name": "cocoa", "definition": PLAIN}
        assert shop("POST", "/v1/products", json=body).status_code == 201
        assert shop("POST", "/v1/products", json=body).json() == {"name": "cocoa", "created": False}
        other = {"name": "cocoa", "definition": {**PLAIN, "dim": 3}}
        assert shop("POST", "/v1/products", json=other).status_code == 409
        wrong = shop("POST", "/v1/products", json={"name": "x", "definition": {**PLAIN, "policy": "etc-doublin"}})
        assert wrong.status_code == 422
        assert "Did you mean 'etc-doubling'?" in wrong.json()["error"]["message"]
        names = [line["name"] for line in shop("GET", "/v1/products", "device").json()["products"]]
        assert names == ["cocoa", "coffee", "tea"]

    def test_nobody_waits_while_a_new_product_is_compiled(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        compiling, done = threading.Event(), threading.Event()

        def slow(_: Definition) -> None:
            compiling.set()
            assert done.wait(20)

        monkeypatch.setattr(routes_admin, "warm_up", slow)
        headers = {"Authorization": f"Bearer {KEYS['admin']}"}

        async def together() -> tuple[int, bool, int]:
            body = {"name": "cocoa", "definition": COFFEE}
            made = asyncio.create_task(shop.client.request("POST", "/v1/products", headers=headers, json=body))
            while not compiling.is_set():
                await asyncio.sleep(0.01)
            offer = await shop.client.request("POST", OFFERS, headers=headers, json={"context": [1.0, 0.5]})
            waiting = not made.done()
            done.set()
            return offer.status_code, waiting, (await made).status_code

        assert shop.loop.run_until_complete(together()) == (200, True, 201)

    def test_modes_guardrails_and_rolling_back(self, shop: Shop) -> None:
        shop("POST", f"{PRODUCT}/reports", json=report())
        learned = shop("GET", f"{PRODUCT}/params").json()
        assert shop("POST", f"{PRODUCT}/mode", json={"mode": "frozen"}).json() == {"version": 2}
        assert shop("GET", f"{PRODUCT}/params").json()["learn"] is False
        assert shop("POST", f"{PRODUCT}/mode", json={"mode": "live"}).json() == {"version": 3}
        rails = {"low": 2.0, "high": 4.0, "ladder": [], "largest_step": None}
        changed = shop("POST", f"{PRODUCT}/guardrails", json={"low": 2.0, "high": 4.0})
        assert changed.json() == {"version": 4, "guardrails": rails}
        assert shop("POST", f"{PRODUCT}/guardrails", json={"low": 0.5}).status_code == 422
        assert shop("POST", f"{PRODUCT}/rollback", json={"version": 0}).json() == {"version": 5}
        assert shop("POST", f"{PRODUCT}/rollback", json={"version": 99}).status_code in (404, 422)
        now = shop("GET", f"{PRODUCT}/params").json()
        assert learned["theta"] != COFFEE["centre"]
        assert now["theta"] == COFFEE["centre"]
        body = shop("GET", PRODUCT, "seller").json()
        msgspec.convert(body, answers.ProductAnswer)
        assert (body["mode"], body["guardrails"]["low"]) == ("live", 2.0)
        assert body["guarantee"].startswith("epsilon = 4")
        history = shop("GET", f"{PRODUCT}/history", "seller").json()
        assert [event["kind"] for event in history["events"]] == ["mode", "mode", "guardrails", "rollback"]
        assert {event["by"] for event in history["events"]} == {"my-admin"}
        assert [point["version"] for point in history["versions"]] == [0, 1]

    def test_summary_and_curve(self, shop: Shop) -> None:
        answer = shop("GET", f"{PRODUCT}/summary", "seller")
        assert answer.json()["product"] == "coffee"
        etag = answer.headers["ETag"]
        assert shop("GET", f"{PRODUCT}/summary", headers={"If-None-Match": etag}).status_code == 304
        assert shop("GET", f"{PRODUCT}/curve?context=1,0.5,0.25", "seller").status_code == 200
        for query in ("", "?context=", "?context=1,2", "?context=1,nan,2", "?context=1,x,2", "?context=1_0,2,3"):
            assert shop("GET", f"{PRODUCT}/curve{query}", "seller").status_code == 422, query

    def test_figures_of_a_plain_product(self, shop: Shop) -> None:
        """All fields that there can be, whose types :func:`check_type` compares with the declared ones."""
        scone = "/v1/products/scone"
        shop("POST", "/v1/products", json={"name": "scone", "definition": {**PLAIN, "policy": "greedy"}})
        for k in range(MIN_OUTCOMES + 20):
            price = shop("POST", f"{scone}/offers", json={"id": f"{k}", "context": [1.0, k % 7 / 7]}).json()["price"]
            shop("POST", f"{scone}/outcomes", json={"offer": f"{k}", "y": float(price < 2.0 + k % 3)})
        earned = shop("GET", f"{scone}/summary").json()["earned"]
        assert earned["more"]["low"] < earned["more"]["high"]
        curve = shop("GET", f"{scone}/curve?context=1,0.5").json()
        assert curve["bands"]["level"] == 0.95
        assert len(curve["prices"]) == len(curve["demand_low"]) == len(curve["revenue_high"])
        assert curve["best"]["more_low"] < curve["best"]["more_high"]
        changes: tuple[tuple[str, dict[str, Any]], ...] = (
            ("mode", {"mode": "frozen"}),
            ("guardrails", {"low": 2.0}),
            ("forget", {"half_life": 20}),
            ("rollback", {"version": 3}),
        )
        for path, change in changes:
            assert shop("POST", f"{scone}/{path}", json=change).status_code == 200
        assert len(shop("GET", f"{scone}/history").json()["events"]) == 4

    def test_forgetting_is_for_plain_products_and_half_lives_above_0(self, shop: Shop) -> None:
        assert shop("POST", f"{PRODUCT}/forget", json={"half_life": 100}).status_code == 409
        shop("POST", "/v1/products", json={"name": "scone", "definition": {**PLAIN, "policy": "greedy"}})
        for half_life in (0, -1, "a", None, 1e300):
            assert shop("POST", "/v1/products/scone/forget", json={"half_life": half_life}).status_code == 422
        shop("POST", "/v1/products", json={"name": "bun", "definition": {**PLAIN, "policy": "random-price"}})
        assert shop("POST", "/v1/products/bun/forget", json={"half_life": 9}).status_code == 422
        assert shop("GET", "/v1/products/scone/state").json()["seq"] == 0

    def test_the_summary_says_what_was_found(self, shop: Shop) -> None:
        """Outcomes that turn around half way, at random prices."""
        definition = {**PLAIN, "policy": "random-price"}
        shop("POST", "/v1/products", json={"name": "roll", "definition": definition})
        for k in range(1100):
            price = shop("POST", "/v1/products/roll/offers", json={"id": f"{k}", "context": [1.0, k % 7 / 7]}).json()
            y = float((price["price"] < 2.5) == (k < 700))
            shop("POST", "/v1/products/roll/outcomes", json={"offer": f"{k}", "y": y})
        body = shop("GET", "/v1/products/roll/summary").json()
        msgspec.convert(body, figures.SummaryAnswer)
        assert 700 < body["change"]["found"] < 1100
        assert "Demand changed" in body["change"]["words"]
        assert body["change"]["price_before"] != body["change"]["price_now"]
        assert shop("GET", f"{PRODUCT}/summary").json()["change"] is None


class TestStrictBodies:
    @pytest.mark.parametrize(
        ("path", "body", "where"),
        [
            (OFFERS, '{"context": [1, 2], "id": "a%s"}', ["id"]),
            (OUTCOMES, '{"outcomes": [{"offer": "a%s", "y": 1}]}', ["outcomes", 0, "offer"]),
            ("/v1/keys", '{"name": "till%s", "role": "device"}', ["name"]),
            ("/v1/products", '{"name": "cocoa%s", "definition": {}}', ["name"]),
        ],
    )
    def test_a_newline_at_the_end_is_no_part_of_a_name(
        self, shop: Shop, path: str, body: str, where: list[str | int]
    ) -> None:
        for newline in ("\\n", "\\u000a"):
            answer = shop.raw(path, body % newline)
            error = answer.json()["error"]
            assert (answer.status_code, error["where"]) == (422, where), (path, newline)
            assert re.search(r"must match \^\S+\$\.$", error["message"])

    @pytest.mark.parametrize(
        ("path", "body", "where"),
        [
            (OFFERS, '{"context": [1, 1e999]}', ["context", 1]),
            (OFFERS, '{"context": {"a": -1e999}}', ["context", "(unknown)"]),
            (OFFERS, '{"context": [1, 2], "cost": 1e999}', ["cost"]),
            (OUTCOMES, '{"offer": "a", "y": 1e999}', ["y"]),
            ("/v1/products/coffee/offers", '{"context": [1e999]}', ["context", 0]),
        ],
    )
    def test_numbers_beyond_the_largest_are_refused(
        self, shop: Shop, path: str, body: str, where: list[str | int]
    ) -> None:
        answer = shop.raw(path, body)
        error = answer.json()["error"]
        assert (answer.status_code, error["where"]) == (422, where)
        assert error["message"].endswith("must be finite.")


class TestNothingIsRepeated:
    @pytest.mark.parametrize("path", [f"{PRODUCT}/reports", OFFERS, OUTCOMES])
    def test_malformed_bodies(self, shop: Shop, path: str) -> None:
        before = shop.state("coffee"), shop.state("tea")
        for body in MALFORMED:
            answer = shop.raw(path, body)
            assert 400 <= answer.status_code < 500, (body[:60], answer.status_code)
            error = msgspec.convert(answer.json(), answers.ErrorAnswer).error
            assert error.message
            assert "31337" not in answer.text, body[:60]
        assert (shop.state("coffee"), shop.state("tea")) == before
        assert "31337" not in shop.log()

    def test_paths_and_queries(self, shop: Shop) -> None:
        for path in (
            "/v1/products/31337.625", "/v1/products/31337/params?x=31337.625", f"{PRODUCT}/curve?context=31337.625",
            f"{PRODUCT}/curve?context=31337.625,1,x", "/v1/keys/31337", "/31337.625", "/pages/31337.625", "/pages/%00",
            "/pages/..%2f..%2f31337", "/v1/products/%00%ff31337",
        ):  # fmt: skip
            for method in ("GET", "POST", "DELETE", "PUT", "BREW31337"):
                answer = shop(method, path)
                assert 400 <= answer.status_code < 500, (method, path)
                assert "31337" not in answer.text
        metrics = shop("GET", "/metrics", None).text
        assert "31337" not in metrics
        assert "31337" not in shop.log()

    def test_a_customer_leaves_no_trace_in_logs_and_metrics(self, shop: Shop) -> None:
        offer = shop("POST", OFFERS, json={"id": "customer-31337", "context": [1.0, 31337.625]}).json()
        shop("POST", OUTCOMES, json={"offer": "customer-31337", "y": 1.0})
        written = shop.log() + shop("GET", "/metrics", None).text
        assert "31337" not in written
        assert str(offer["price"]) not in written

    def test_failures_are_reported_by_type_and_place(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: Any) -> Any:
            raise RuntimeError("the customer said 31337.625")

        monkeypatch.setattr(shop.service, "offer", broken)
        answer = shop("POST", OFFERS, json={"context": [1.0, 31337.625]})
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "internal"
        assert "31337" not in answer.text + shop.log()
        (line,) = [json.loads(line) for line in shop.log().splitlines() if '"failure"' in line]
        assert (line["error"], line["route"], line["level"]) == ("RuntimeError", "/v1/products/{name}/offers", "error")

    def test_lines_of_the_log(self, shop: Shop) -> None:
        shop("GET", PRODUCT, "seller")
        shop("GET", PRODUCT, None)
        lines = [json.loads(line) for line in shop.log().splitlines()]
        assert [(line["route"], line["status"], line.get("key")) for line in lines] == [
            ("/v1/products/{name}", 200, "my-seller"),
            ("/v1/products/{name}", 401, None),
        ]
        assert all(line["ms"] >= 0.0 and line["event"] == "request" for line in lines)
        text = io.StringIO()
        Log("text", text).request("GET", "/healthz", 200, 0.0015, None)
        assert text.getvalue() == ""
        Log("text", text).request("POST", "/v1/keys", 201, 0.0015, None)
        Log("text", text).request("GET", "/healthz", 429, 0.0015, None)
        lines = text.getvalue().splitlines()
        assert re.fullmatch(r"\S+Z info    POST /v1/keys 201 1.5 ms", lines[0])
        assert re.fullmatch(r"\S+Z warning GET /healthz 429 1.5 ms", lines[1])


class TestSeveralProcesses:
    """What another process wrote is seen: two services over one database, as two workers are."""

    @pytest.fixture
    def other(self, shop: Shop) -> Iterator[Service]:
        with Service(Store.open(shop.url)) as service:
            yield service

    def views(self, shop: Shop, n: int, path: str = PRODUCT) -> list[httpx.Response]:
        """So many looks at the same time."""

        async def all_of_them() -> list[httpx.Response]:
            key = {"Authorization": f"Bearer {KEYS['seller']}"}
            return await asyncio.gather(*(shop.client.get(path, headers=key) for _ in range(n)))

        return shop.loop.run_until_complete(all_of_them())

    def forget(self, shop: Shop) -> None:
        """As if the last look at the log had been a while ago."""
        shop.service.loaded.seen.clear()

    def test_those_who_look_at_the_same_time_see_the_same(self, shop: Shop, other: Service) -> None:
        self.views(shop, 1)
        other.set_mode("coffee", "frozen", by="elsewhere").result(10)
        self.forget(shop)
        assert [answer.json()["mode"] for answer in self.views(shop, 5)] == ["frozen"] * 5

    def test_they_share_one_look(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str | None] = []
        refresh = shop.service.refresh

        def counted(name: str | None = None) -> Future[None]:
            asked.append(name)
            return refresh(name)

        monkeypatch.setattr(shop.service, "refresh", counted)
        self.forget(shop)
        assert {answer.status_code for answer in self.views(shop, 20)} == {200}
        assert asked == ["coffee"]
        assert {answer.status_code for answer in self.views(shop, 20, "/v1/products/nowhere")} == {404}
        assert asked == ["coffee", None]

    def test_a_look_that_failed_is_none(self, shop: Shop, other: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        other.set_mode("coffee", "shadow", by="elsewhere").result(10)
        self.forget(shop)
        away: Future[None] = Future()
        away.set_exception(Unavailable("The database is away."))
        with monkeypatch.context() as patched:
            patched.setattr(shop.service, "refresh", lambda _=None: away)
            assert [answer.status_code for answer in self.views(shop, 2)] == [503, 503]
        assert self.views(shop, 1)[0].json()["mode"] == "shadow"

    def test_one_who_hangs_up_takes_nobody_along(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        slow: Future[None] = Future()
        monkeypatch.setattr(shop.service, "refresh", lambda _=None: slow)

        async def two() -> Any:
            impatient, patient = (asyncio.create_task(shop.context.reads.view("coffee")) for _ in range(2))
            await asyncio.sleep(0)
            impatient.cancel()
            await asyncio.sleep(0)
            slow.set_result(None)
            return await patient

        assert shop.loop.run_until_complete(two()).name == "coffee"

    def test_a_product_made_elsewhere_is_there_at_once(self, shop: Shop, other: Service) -> None:
        assert self.views(shop, 1, "/v1/products/cocoa")[0].status_code == 404
        assert other.create(Definition.of("cocoa", PLAIN)).result(10)
        assert self.views(shop, 1, "/v1/products/cocoa")[0].status_code == 200
        assert other.create(Definition.of("milk", PLAIN)).result(10)
        names = [line["name"] for line in shop("GET", "/v1/products", "device").json()["products"]]
        assert names == ["cocoa", "coffee", "milk", "tea"]

    def test_the_list_is_at_most_a_second_old(self, shop: Shop, other: Service) -> None:
        shop("GET", "/v1/products", "device")
        other.set_mode("tea", "frozen", by="elsewhere").result(10)
        self.forget(shop)
        shop.context.reads._all_at -= 1.0
        modes = {line["name"]: line["mode"] for line in shop("GET", "/v1/products", "device").json()["products"]}
        assert modes == {"coffee": "live", "tea": "frozen"}


class TestHead:
    def test_head_is_get_without_the_body(self, shop: Shop) -> None:
        shop("POST", f"{PRODUCT}/reports", json=report())
        paths = [path for method, path, _ in ENDPOINTS if method == "GET" and path != "/metrics"]
        for path in [*paths, f"{PRODUCT}/curve?context=1,0,0", "/", "/nowhere"]:
            full, bare = shop("GET", path), shop("HEAD", path)
            assert (bare.status_code, bare.content) == (full.status_code, b""), path
            assert dict(bare.headers) == dict(full.headers), path
        assert shop("HEAD", "/metrics", None).status_code == 200
        assert shop("HEAD", PRODUCT, None).status_code == 401
        assert shop("HEAD", f"{PRODUCT}/reports").status_code == 405
        etag = shop("HEAD", f"{PRODUCT}/params").headers["ETag"]
        assert shop("HEAD", f"{PRODUCT}/params", headers={"If-None-Match": etag}).status_code == 304
        assert '"method":"HEAD"' in shop.log().replace(" ", "")

    def test_the_log_is_not_read_for_it(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        begun: list[bool] = []

        async def lines(*_: Any) -> AsyncIterator[str]:
            begun.append(True)
            yield "seq,version,report"

        monkeypatch.setattr(routes_look, "csv_lines", lines)
        answer = shop("HEAD", f"{PRODUCT}/log", "seller")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/csv; charset=utf-8")
        assert "content-length" not in answer.headers
        assert begun == []
        assert (shop("GET", f"{PRODUCT}/log", "seller").status_code, begun) == (200, [True])


class TestLimits:
    def test_body(self, tmp_path: Path) -> None:
        shop = Shop(tmp_path, body_limit=2_000)

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(5):
                yield b" " * 500

        assert shop.raw(OFFERS, b" " * 2_001).status_code == 413
        assert shop("POST", OFFERS, content=pieces(), headers={"Content-Type": "application/json"}).status_code == 413
        padded = json.dumps({"context": [1.0, 2.0]}).ljust(2_000)
        assert shop.raw(OFFERS, padded).status_code == 200
        shop.close()

    @pytest.mark.parametrize(
        "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "a/b/c"]
    )
    def test_content_type(self, shop: Shop, kind: str) -> None:
        assert shop.raw(OFFERS, '{"context": [1.0, 2.0]}', kind=kind).status_code == 415

    def test_content_type_with_charset(self, shop: Shop) -> None:
        answer = shop.raw(OFFERS, '{"context": [1.0, 2.0]}', kind="Application/JSON; charset=UTF-8")
        assert answer.status_code == 200

    def test_batches(self, shop: Shop) -> None:
        assert shop("POST", f"{PRODUCT}/reports", json={"reports": [report() for _ in range(1_001)]}).status_code == 422
        full = shop("POST", f"{PRODUCT}/reports", json={"reports": [report() for _ in range(1_000)]})
        assert full.json()["accepted"] == 1_000

    def test_rate_of_a_key(self, tmp_path: Path) -> None:
        shop = Shop(tmp_path, rate=0.5, burst=3.0)
        replies = [shop("GET", "/v1/products", "device") for _ in range(5)]
        assert [answer.status_code for answer in replies] == [200, 200, 200, 429, 429]
        assert replies[-1].headers["Retry-After"] == "2"
        assert shop("GET", "/v1/products", "seller").status_code == 200
        shop.close()

    def test_nobody_can_use_up_the_rate_of_all_devices(self, tmp_path: Path) -> None:
        """The device key is in every customer's hands, so its rate is for an address; a seller's key has one rate."""
        shop = Shop(tmp_path, rate=0.5, burst=3.0)

        def calls(address: str, role: str, n: int) -> list[int]:
            there = httpx.AsyncClient(
                transport=httpx.ASGITransport(shop.app, client=(address, 5_000)), base_url="http://shop.test"
            )
            key = {"Authorization": f"Bearer {KEYS[role]}"}

            async def all_of_them() -> list[int]:
                async with there:
                    return [(await there.get("/v1/products", headers=key)).status_code for _ in range(n)]

            return shop.loop.run_until_complete(all_of_them())

        assert calls("203.0.113.7", "device", 50) == [200] * 3 + [429] * 47
        assert calls("203.0.113.8", "device", 2) == [200, 200]
        assert calls("2001:db8::1", "device", 3) == [200, 200, 200]
        assert calls("2001:db8::2", "device", 1) == [429]  # the same network
        assert calls("203.0.113.7", "seller", 3) == [200, 200, 200]
        assert calls("203.0.113.8", "seller", 1) == [429]
        shop.close()

    def test_all_devices_together_are_limited_too(self) -> None:
        rates = Rates(rate=1.0, burst=2.0, clock=lambda: 0.0)
        for k in range(20):
            rates.check("key", f"10.0.0.{k}", shared=True)
        with pytest.raises(Problem, match="Too many"):
            rates.check("key", "10.0.1.1", shared=True)
        rates.check("another", "10.0.1.1", shared=True)

    def test_help_says_for_whom_the_rate_is(self) -> None:
        said = " ".join(CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).stdout.split())
        assert "worker process" in said
        assert "each address" in said

    def test_rate_of_strangers(self, tmp_path: Path) -> None:
        shop = Shop(tmp_path, stranger_rate=0.1, stranger_burst=3.0)
        wrong = {"Authorization": "Bearer guess-after-guess"}
        statuses = [shop("GET", "/v1/products", None, headers=wrong).status_code for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        assert shop("GET", "/readyz", None).status_code == 429
        assert shop("GET", "/healthz", None).status_code == 200
        assert shop("GET", "/v1/products", "device").status_code == 200
        shop.close()

    def test_patience(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shop = Shop(tmp_path, patience=0.05)
        never: Future[Any] = Future()
        monkeypatch.setattr(shop.service, "checked_reports", lambda *_: never)
        answer = shop("POST", f"{PRODUCT}/reports", "device", json=report())
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "busy")
        assert int(answer.headers["Retry-After"]) >= 1
        assert never.cancelled()
        shop.close()

    def test_many_at_once(self, shop: Shop) -> None:
        async def all_of_them() -> list[httpx.Response]:
            key = {"Authorization": f"Bearer {KEYS['device']}"}
            calls = [shop.client.post(f"{PRODUCT}/reports", json=report(), headers=key) for _ in range(200)]
            return await asyncio.gather(*calls)

        answers = shop.loop.run_until_complete(all_of_them())
        assert {answer.status_code for answer in answers} == {200}
        assert shop.state("coffee")[0] == 200

    def test_ready(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        assert shop("GET", "/readyz", None).json() == {"status": "ok"}

        def gone() -> None:
            raise ConnectionError("no 31337")

        monkeypatch.setattr(shop.service, "check", gone)
        answer = shop("GET", "/readyz", None)
        assert (answer.status_code, "31337" in answer.text + shop.log()) == (503, False)


class TestCrossOrigin:
    def test_others_are_not_let_in_unless_named(self, shop: Shop) -> None:
        answer = shop("GET", f"{PRODUCT}/params", headers={"Origin": "https://shop.example"})
        assert "access-control-allow-origin" not in answer.headers

    def test_named_origins(self, tmp_path: Path) -> None:
        shop = Shop(tmp_path, origins=("https://shop.example",))
        mine, other = {"Origin": "https://shop.example"}, {"Origin": "https://elsewhere.example"}
        answer = shop("GET", f"{PRODUCT}/params", headers=mine)
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
        assert "etag" in answer.headers["access-control-expose-headers"].lower()
        assert "origin" in answer.headers["vary"].lower()
        assert "access-control-allow-origin" not in shop("GET", f"{PRODUCT}/params", headers=other).headers
        asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
        preflight = shop("OPTIONS", f"{PRODUCT}/reports", None, headers={**mine, **asks})
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://shop.example"
        assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
        assert shop("OPTIONS", f"{PRODUCT}/reports", None, headers={**other, **asks}).status_code == 400
        refused = shop("POST", f"{PRODUCT}/reports", headers=mine)
        assert refused.headers["access-control-allow-origin"] == "https://shop.example"
        shop.close()


class TestPages:
    def test_headers_and_etag(self, shop: Shop) -> None:
        answer = shop("GET", "/", None)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = shop("GET", "/", None, headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")

    @pytest.mark.parametrize("wanted", ["bytes=0-0", "bytes=0-0,2-2,4-4", "bytes=99999999-", "31337"])
    def test_files_are_sent_whole(self, shop: Shop, wanted: str) -> None:
        whole = shop("GET", "/pages/device/index.js", None)
        answer = shop("GET", "/pages/device/index.js", None, headers={"Range": wanted})
        assert (answer.status_code, answer.content) == (200, whole.content)
        assert "accept-ranges" not in answer.headers

    def test_every_file_a_page_names_is_there(self, tmp_path: Path) -> None:
        shop = Shop(tmp_path, shop=True, shop_key=KEYS["device"])
        for page in ("/", "/shop"):
            for name in re.findall(r'(?:src|href)="(/pages/[^"]+)"', shop("GET", page, None).text):
                assert shop("GET", name, None).status_code == 200, name
        for name in ("hushprice-device.js", "device/index.js"):
            device = shop("GET", f"/pages/{name}", None)
            assert device.headers["content-type"] == "text/javascript; charset=utf-8"
        assert shop("GET", "/pages/device/shop.js", None).status_code == 404
        assert shop("GET", "/shop/config", None).json() == {"products": ["coffee"], "key": KEYS["device"]}
        shop.close()

    def test_no_shop_unless_asked_for(self, shop: Shop) -> None:
        assert shop("GET", "/shop", None).status_code == 404
        assert shop("GET", "/shop/config", None).status_code == 404


class TestDescription:
    def test_metrics(self, shop: Shop) -> None:
        shop("POST", f"{PRODUCT}/reports", json={"reports": [report(), report()]})
        shop("POST", OFFERS, json={"context": [1.0, 0.5]})
        families = {f.name: f for f in text_string_to_metric_families(shop("GET", "/metrics", None).text)}
        counted = [s for s in families["hushprice_events"].samples if s.name.endswith("_total")]
        events = {(s.labels["kind"], s.labels["product"]): s.value for s in counted}
        assert events == {("report", "coffee"): 2.0, ("offer", "tea"): 1.0}
        versions = {s.labels["product"]: s.value for s in families["hushprice_version"].samples}
        assert versions["coffee"] == 2.0
        assert {s.labels["product"]: s.value for s in families["hushprice_open_offers"].samples}["tea"] == 1.0
        assert families["hushprice_queue_length"].samples[0].value == 0.0
        requests = families["hushprice_requests"].samples[0]
        assert set(requests.labels) == {"route", "method", "status"}
        assert families["hushprice_request_seconds"].type == "histogram"

    def test_every_operation_is_described(self, shop: Shop) -> None:
        schema = shop("GET", "/openapi.json", None).json()
        refs = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schema)))
        assert refs <= set(schema["components"]["schemas"])
        for path, item in schema["paths"].items():
            for method, operation in item.items():
                where = f"{method} {path}"
                assert operation["summary"], where
                assert ("401" in operation["responses"]) == ("security" in operation), where
                for status, response in operation["responses"].items():
                    if int(status) >= 400:
                        assert response["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorAnswer"), where
                if method == "post":
                    assert "requestBody" in operation, where
        assert schema["components"]["securitySchemes"]["key"]["scheme"] == "bearer"

    def test_unknown_methods(self, shop: Shop) -> None:
        answer = shop("PUT", "/v1/products")
        assert answer.status_code == 405
        assert answer.json()["error"]["code"] == "method_not_allowed"
        assert answer.headers["Allow"]


class TestSettings:
    def test_environment(self) -> None:
        variables = {
            "HUSHPRICE_DATABASE": "postgresql://me:secret@db/prices",
            "HUSHPRICE_PORT": "0",
            "HUSHPRICE_SHOP": "yes",
            "HUSHPRICE_RATE": "12.5",
            "HUSHPRICE_ORIGINS": "https://a.example, https://b.example",
            "HUSHPRICE_ADMIN_KEY": "a-long-admin-secret",
        }
        settings = Settings.from_environment(variables)
        assert (settings.port, settings.shop, settings.rate) == (0, True, 12.5)
        assert settings.origins == ("https://a.example", "https://b.example")
        assert [key.sha256 for key in settings.keys] == [hash_of("a-long-admin-secret")]
        assert Settings.from_environment(settings.with_shop().environment()).shop_key
        with pytest.raises(InvalidInput, match="HUSHPRICE_PORT"):
            Settings.from_environment({"HUSHPRICE_PORT": "eighty"})

    @pytest.mark.parametrize(
        "wrong",
        [{"port": 70_000}, {"workers": 0}, {"origins": ("shop.example",)}, {"log_format": "xml"}, {"rate": -1.0}],
    )
    def test_refusals(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            Settings(**wrong)

    def test_keys_are_not_shown(self) -> None:
        with pytest.raises(InvalidInput) as refused:
            StartKey.of("x", "admin", "31337")
        assert "31337" not in str(refused.value)
        assert redacted_url("postgresql://u:p@ss@h:5/n?password=x") == "postgresql://h:5/n"

    def test_the_product_to_play_with_is_that_of_the_demo(self, tmp_path: Path) -> None:
        store = Store.open(f"sqlite:///{tmp_path / 'x.db'}")
        assert "coffee" in prepare(Settings(), store)[0]
        assert [product.definition for product in store.products()] == [Definition.of(TOY, COFFEE)]
        assert run._session(Settings(), store)[0].shop  # with which to play
        assert not run._session(Settings(host="0.0.0.0"), store)[0].shop
        store.add_product(Definition.of("coffee", COFFEE))
        assert not run._session(Settings(), store)[0].shop
        store.close()

    def test_several_workers_need_postgres(self, tmp_path: Path) -> None:
        store = Store.open(f"sqlite:///{tmp_path / 'x.db'}")
        with pytest.raises(InvalidInput, match="postgresql://"):
            check_workers(Settings(workers=2), store)
        store.close()


app = typer.Typer()
app.command(name="serve")(commands.serve)
app.add_typer(commands.keys, name="keys")
app.command(name="verify")(commands.verify)


class TestCommands:
    def test_keys(self, tmp_path: Path) -> None:
        database = ["--database", f"sqlite:///{tmp_path / 'x.db'}"]
        run = CliRunner()
        made = json.loads(run.invoke(app, ["keys", "add", "till", "--role", "seller", "--json", *database]).stdout)
        assert made["secret"].startswith("hp_seller_")
        listed = run.invoke(app, ["keys", "list", *database])
        assert "till" in listed.stdout
        assert made["secret"] not in listed.stdout
        assert run.invoke(app, ["keys", "revoke", str(made["id"]), *database]).exit_code == 0
        (key,) = json.loads(run.invoke(app, ["keys", "list", "--json", *database]).stdout)
        assert key["revoked"] is not None
        for name in ("till", "2"):  # by name; and one whose name is another's id
            run.invoke(app, ["keys", "add", name, "--role", "seller", *database])
        for key, left in (("2", [3]), ("2", [])):  # the id, then the name
            assert run.invoke(app, ["keys", "revoke", key, *database]).exit_code == 0
            table = json.loads(run.invoke(app, ["keys", "list", "--json", *database]).stdout)
            assert [key["id"] for key in table if key["revoked"] is None] == left
        for wrong in (["revoke", "77"], ["revoke", "till"], ["add", "x", "--role", "king"], ["add", "a b"]):
            assert isinstance(run.invoke(app, ["keys", *wrong, *database]).exception, InvalidInput)

    def test_verify(self, tmp_path: Path) -> None:
        shop = Shop(tmp_path)
        shop("POST", f"{PRODUCT}/reports", json={"reports": [report() for _ in range(20)]})
        digest = shop.state("coffee")[1]
        shop.close()
        run = CliRunner()
        result = run.invoke(app, ["verify", "--json", "--database", shop.url])
        assert result.exit_code == 0
        assert {row["product"]: row["rebuilt"] for row in json.loads(result.stdout)}["coffee"] == digest
        with Store.open(shop.url).write() as connection:  # other hands
            connection.exec_driver_sql("""UPDATE events SET body = replace(body, '"index":1', '"index":0')""")
        changed = run.invoke(app, ["verify", "coffee", "--database", shop.url])
        assert (changed.exit_code, "DIFFERS" in changed.stdout) == (1, True)


def start(folder: Path, *options: str, **environment: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """A real process, and what it says first."""
    code = "from hushprice.cli.commands.serve import serve; import typer; typer.run(serve)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--port", "0", "--json", *options],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        pytest.fail(process.communicate(timeout=10)[1])
    return process, json.loads(line)


def _workers(parent: int) -> list[int]:
    """The worker processes that this process started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]


def _persistently(url: str, headers: dict[str, str], one: dict[str, Any]) -> Any:
    """Send a report until it is answered, as a device does; the same id makes that harmless."""
    for _ in range(100):
        try:
            answer = httpx.post(f"{url}/v1/products/{TOY}/reports", json=one, headers=headers, timeout=10.0)
        except httpx.TransportError:  # taken by the worker that died
            time.sleep(0.1)
            continue
        assert answer.status_code == 200
        return answer.json()
    raise AssertionError("never answered")


class TestProcess:
    def test_it_stops_in_order_and_keeps_what_it_acknowledged(self, tmp_path: Path) -> None:
        process, said = start(tmp_path, "--shop", "--rate", "0")
        assert said["database"] == "sqlite:///hushprice.db"
        assert "coffee" in said["said"][0]
        accepted: list[str] = []

        def send() -> None:
            with httpx.Client(base_url=said["url"], headers={"Authorization": f"Bearer {said['key']}"}) as client:
                while True:
                    one = report()
                    try:
                        if client.post(f"/v1/products/{TOY}/reports", json=one).status_code != 200:
                            return
                    except httpx.HTTPError:
                        return
                    accepted.append(one["id"])

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        while len(accepted) < 50:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        for thread in threads:
            thread.join(timeout=10)
        assert process.returncode == 0, errors
        lines = [json.loads(line) for line in errors.splitlines()]
        assert lines[-1]["event"] == "server" or "stopped" in {line["event"] for line in lines}
        assert said["key"] not in errors
        store = Store.open(f"sqlite:///{tmp_path / 'hushprice.db'}")
        product = store.product(TOY)
        assert product is not None
        stored = {event.key for event in store.events(product.id)}
        assert {f"r:{one}" for one in accepted} <= stored
        assert store.snapshots(product.id)[0][0] == len(stored)  # the state was kept
        store.close()

    def test_two_workers_on_postgres(self, tmp_path: Path) -> None:
        with postgres() as running:
            secret = "an-admin-key-for-two"
            url = running.url("two")
            process, said = start(
                tmp_path, "--workers", "2", "--rate", "0", HUSHPRICE_DATABASE=url, HUSHPRICE_ADMIN_KEY=secret
            )
            try:
                assert (said["workers"], said["key"]) == (2, None)  # there is an admin key already
                headers = {"Authorization": f"Bearer {secret}", "Connection": "close"}  # a worker anew each time
                sent = [report() for _ in range(16)]
                with httpx.Client(base_url=said["url"], headers=headers, timeout=60.0) as client:
                    for one in sent + sent[:6]:
                        assert client.post(f"/v1/products/{TOY}/reports", json=one).status_code == 200
                    state = client.get(f"/v1/products/{TOY}/state").json()
                    time.sleep(FRESH)  # a look at the log is taken to be current for so long
                    with ThreadPoolExecutor(8) as pool:
                        path = f"/v1/products/{TOY}/params"
                        versions = list(pool.map(lambda _: client.get(path).json()["version"], range(16)))
                    families = text_string_to_metric_families(client.get("/metrics").text)
                counted = {
                    sample.labels["kind"]: sample.value
                    for family in families
                    for sample in family.samples
                    if sample.name == "hushprice_events_total"
                }
                assert state["seq"] == 16
                assert versions == [16] * 16
                assert counted == {"report": 16.0, "known": 6.0}  # of both workers together
                os.kill(_workers(process.pid)[0], signal.SIGKILL)  # one of ours dies: uvicorn starts another
                for one in sent:
                    assert _persistently(said["url"], headers, one) == {"accepted": 0, "known": 1, "version": 16}
                until = time.monotonic() + 30.0
                while len(_workers(process.pid)) < 2:
                    assert time.monotonic() < until
                    time.sleep(0.1)
            finally:
                process.send_signal(signal.SIGTERM)
                _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
            assert secret not in errors
            store = Store.open(url)
            assert verify(store, TOY).ok
            assert verify(store, TOY).rebuilt == state["digest"]
            store.close()

    def test_it_can_be_stopped_while_it_gets_ready(self, tmp_path: Path) -> None:
        slow = (
            "import time, sys; from hushprice.service.writer import loaded as writer\n"
            "def warm_up(_):\n    print('waiting', flush=True); time.sleep(30)\n"
            "writer.warm_up = warm_up\n"
            "from hushprice.service.http.server import serve; from hushprice.service.settings import Settings\n"
            "serve(Settings(port=0))"
        )
        with subprocess.Popen(
            [sys.executable, "-c", slow], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=15)
        assert process.returncode == 0
        assert "Open " not in out
        assert out.endswith("Stopped. Everything that was acknowledged is in the database.\n")

    def test_a_taken_port(self, tmp_path: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            number = str(taken.getsockname()[1])
            database = f"sqlite:///{tmp_path / 'x.db'}"
            result = CliRunner().invoke(app, ["serve", "--port", number, "--database", database])
            assert isinstance(result.exception, InvalidInput)
            assert "--port" in str(result.exception)
            assert not list(tmp_path.iterdir())  # nothing was begun
