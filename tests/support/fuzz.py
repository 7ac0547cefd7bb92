"""``python -m benchmarks fuzz``: requests that nobody should send, made from the OpenAPI description and by hand.

Of each case: no 5xx; the status and the answer are as described; and if it was refused, nothing at all has changed: not
the log, not what was learned, not the products, not the keys.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import httpx
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from hushprice.service import Definition
from hushprice.service.demo.products import COFFEE
from hushprice.service.http.app import DESCRIPTION, create_app
from hushprice.service.settings import Settings, StartKey
from hushprice.service.storage.store import Store
from hushprice.service.writer.service import Service

KEY = "key-of-the-fuzzing-admin"
URL = "http://fuzz.test"
PLAIN = {"policy": "etc-doubling", "family": "logistic", "dim": 2, "prices": [1.0, 5.0]}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

# 31337.625 stands for a customer's number: no answer and no log line may repeat it.
MALFORMED: list[bytes | str] = [
    "",
    "{",
    "null",
    "[]",
    '"text"',
    "31337.625",
    '{"context": [1, NaN]}',
    '{"context": [1, Infinity]}',
    '{"context": [1, 1e999]}',
    '{"context": [1, 31337.625], "context": [1, 2]}',
    '{"context": [1, "31337.625"]}',
    '{"context": [1, true]}',
    '{"context": [1, 31337.625, 2]}',
    '{"context": {"31337.625": 1}}',
    '{"context": {"\\ud800": 31337.625}}',
    '{"context": [1, 2], "id": "\\ud83d"}',
    '{"context": [1, 2], "id": "a\\u0000b"}',
    '{"context": [1, 2], "id": "31337.625 and more"}',
    '{"context": [1, 2], "segment": "31337.625"}',
    '{"context": [1, 2], "segment": "\\u0000"}',
    '{"context": [1, 2], "price": 31337.625}',
    '{"context": [1, 2], "cost": -31337.625}',
    '{"context": [1, 2], "31337.625": 1}',
    '{"context": [1, 1' + "0" * 5_000 + "]}",
    '{"context": [1, 1' + "0" * 400 + "]}",
    '{"context": [1, 31337.625e300]}',
    "[" * 50_000,
    '{"context": ' + "[" * 200 + "31337.625" + "]" * 200 + "}",
    '{"a":' * 5_000 + "1" + "}" * 5_000,
    b'{"context": [1, 2], "id": "\xff\xfe"}',
    b"\xef\xbb\xbf{}",
    b"\x00",
    b'{"context": [1, 2]}\x00',
    '{"offer": "a", "y": 31337.625}',
    '{"outcomes": [{"offer": "a", "y": "31337.625"}]}',
    '{"outcomes": 31337.625}',
    '{"reports": []}',
    '{"id": "31337.625", "version": 0, "report": null}',
    '{"id": "0123456789abcdef0123456789abcdef", "version": 31337.625, "report": null}',
    '{"id": "0123456789abcdef0123456789abcdef", "version": 1e3, "report": null}',
    '{"id": "0123456789abcdef0123456789abcdef", "version": 9007199254740993, "report": null}',
    '{"id": "0123456789abcdef0123456789abcdef", "version": 0, "report": {"bit": 1}}',
    '{"id": "0123456789abcdef0123456789abcdef", "version": 0, "report": {"grid": [1, 2]}}',
    '{"id": "0123456789abcdef0123456789abcdef", "version": 0, "report": {"seed": "31337.625", "index": 0}}',
    '{"id": "0123456789ABCDEF0123456789ABCDEF", "version": 0, "report": null}',
]

REPORT = {"id": "0123456789abcdef0123456789abcdef", "version": 0, "report": {"seed": "09af3c5577e1d2b4", "index": 1}}
GOOD: dict[str, list[Any]] = {  # bodies to spoil
    "/v1/products/coffee/reports": [REPORT, {"reports": [REPORT, REPORT]}],
    "/v1/products/tea/offers": [{"id": "a", "context": [1.0, 0.5], "cost": 0.5}],
    "/v1/products/tea/outcomes": [{"offer": "a", "y": 1.0}, {"outcomes": [{"offer": "a", "y": 0.0}]}],
    "/v1/products": [{"name": "new", "definition": COFFEE}, {"name": "new", "definition": PLAIN}],
    "/v1/products/tea/mode": [{"mode": "live"}],
    "/v1/products/tea/guardrails": [{"low": 2.0, "high": 4.0, "ladder": [2.0, 3.0], "largest_step": 1.0}],
    "/v1/products/tea/rollback": [{"version": 0}],
    "/v1/keys": [{"name": "k", "role": "device"}],
}
ODD: list[Any] = [
    None, True, -1, 0, 1e308, -1e308, 5e-324, 2**53, 2**63, 2**64, -(2**63), 10**30, 0.1, "", "0", "\ud800", "\0",
    "NaN", "x" * 300, [], [[]], {}, {"": 0}, [None], [1e308] * 3, {"constant": 1.0}, "live", "etc", "logistic", "ü",
    "\u202e",
]  # fmt: skip


def spoil(value: Any, path: int, odd: Any) -> Any:
    """The value with one of its parts, the ``path``-th, replaced, left out or named otherwise."""
    places = list(_places(value, ()))
    where = places[path % len(places)]
    if not where:
        return odd
    copy = json.loads(json.dumps(value))
    inner = copy
    for step in where[:-1]:
        inner = inner[step]
    if path % 5 == 0 and isinstance(inner, dict):
        del inner[where[-1]]
    elif path % 7 == 0 and isinstance(inner, dict):
        inner[str(odd)[:50]] = inner.pop(where[-1])
    else:
        inner[where[-1]] = odd
    return copy


def _places(value: Any, here: tuple[Any, ...]) -> Any:
    yield here
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _places(inner, (*here, key))


class World:
    """A service with two products, and what has to stay the same."""

    def __init__(self, database: str) -> None:
        self.service = Service(Store.open(database))
        self.service.store.add_product(Definition.of("coffee", COFFEE))
        self.service.store.add_product(Definition.of("tea", PLAIN))
        key = StartKey.of("fuzz", "admin", KEY)
        self.service.start()
        self.app = create_app(
            self.service, Settings(keys=(key,), rate=0.0, stranger_rate=0.0, log_format="none", shop=True, shop_key=KEY)
        )
        self.loop = asyncio.new_event_loop()
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=URL)
        self.statuses: Counter[int] = Counter()
        self.problems: list[str] = []
        self.unsent = self.changed = 0
        self.before = self.fingerprint()

    def close(self) -> None:
        """End it all."""
        self.loop.run_until_complete(self.client.aclose())
        self.loop.close()
        self.service.stop()

    def fingerprint(self) -> Any:
        """Everything that a request could change: digests, and how many events, products and keys there are."""
        asked = [self.service.run(name, lambda learner: learner.digest()) for name in ("coffee", "tea")]
        counts = "count(*) FROM events", "count(*) FROM products", "count(*) FROM keys", "count(revoked) FROM keys"
        with self.service.store.read() as connection:
            sizes = connection.exec_driver_sql(f"SELECT {', '.join(f'(SELECT {count})' for count in counts)}").one()
        return [future.result() for future in asked], tuple(sizes)

    def send(self, method: str, url: str, headers: dict[str, str], body: bytes | None) -> httpx.Response:
        """Send a request as it is, and look what it did."""
        with_key = {"Authorization": f"Bearer {KEY}", **headers}
        call = self.client.request(method, url, headers=with_key, content=body)
        answer = self.loop.run_until_complete(call)
        self.statuses[answer.status_code] += 1
        after = self.fingerprint()
        if answer.status_code >= 500:
            self.problems.append(f"{method} {url[:80]} gave {answer.status_code} for {(body or b'')[:200]!r}")
        if answer.status_code >= 400 and after != self.before:
            self.changed += 1
            self.problems.append(f"{method} {url[:80]} was refused but changed something: {(body or b'')[:200]!r}")
        self.before = after
        return answer


def _examples(strategy: Any, run: Callable[[Any], None], cases: int, number: int) -> None:
    """Run on so many examples; the same ones every time."""

    @seed(number)
    @settings(
        max_examples=cases, database=None, deadline=None, derandomize=False, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def over(example: Any) -> None:
        run(example)

    over()


def described(world: World, cases: int, number: int) -> None:
    """Cases that schemathesis makes from the description, good ones and bad ones."""
    schema = schemathesis.openapi.from_dict(DESCRIPTION)
    operations: list[Any] = [result.ok() for result in cast(Any, schema.get_all_operations())]

    def run(case: Any) -> None:
        try:
            prepared = requests.Request(**case.as_transport_kwargs(base_url=URL)).prepare()
            headers = {k: str(v) for k, v in prepared.headers.items() if k.lower() != "authorization"}
            raw: Any = prepared.body
            body: bytes | None = raw.encode() if isinstance(raw, str) else raw
            answer = world.send(str(prepared.method), str(prepared.url), headers, body)
        except (requests.RequestException, httpx.InvalidURL, httpx.LocalProtocolError, UnicodeError, ValueError):
            world.unsent += 1  # a client cannot even write it down
            return
        try:
            case.validate_response(answer, checks=CHECKS)
        except AssertionError as problem:
            world.problems.append(f"{case.method} {case.path}: {problem}"[:2_000])
        except Exception as problem:  # schemathesis gathers several failures into a group
            world.problems.append(f"{case.method} {case.path}: {problem!r}"[:2_000])

    plans = []
    for operation in operations:
        modes = [GenerationMode.POSITIVE]
        if operation.body or operation.query or operation.path_parameters or operation.headers:
            modes.append(GenerationMode.NEGATIVE)
        names: list[Any] = [{"name": "coffee"}, {"name": "tea"}, None] if "{name}" in operation.path else [None]
        plans += [(operation, mode, name) for mode in modes for name in names]
    share = max(1, cases // len(plans))
    for k, (operation, mode, name) in enumerate(plans):
        options = {} if name is None else {"path_parameters": name}
        _examples(operation.as_strategy(generation_mode=mode, **options), run, share, number + k)


def by_hand(world: World, cases: int, number: int) -> None:
    """Malformed bodies: a list of known troubles, good bodies with a part spoiled, and noise."""
    paths = list(GOOD)

    def post(path: str, body: bytes, kind: str = "application/json") -> None:
        answer = world.send("POST", path, {"Content-Type": kind}, body)
        if answer.status_code >= 400 and "error" not in answer.json():
            world.problems.append(f"{path}: a refusal of another form")

    for path in paths:
        for body in MALFORMED:
            post(path, body.encode() if isinstance(body, str) else body)
    left = max(2, cases - len(paths) * len(MALFORMED))
    pick = st.tuples(st.sampled_from(paths), st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(ODD))

    def spoiled(drawn: tuple[str, int, int, Any]) -> None:
        path, which, place, odd = drawn
        bodies = GOOD[path]
        post(path, json.dumps(spoil(bodies[which % len(bodies)], place, odd)).encode())

    _examples(pick, spoiled, left * 2 // 3, number)
    kinds = st.sampled_from(["application/json", "text/plain", "application/json; charset=utf-16", "", "x"])
    noise = st.tuples(st.sampled_from(paths), st.binary(max_size=200), kinds)
    _examples(noise, lambda drawn: post(*drawn), left - left * 2 // 3, number + 1)


def fuzz(cases: int, number: int = 7, database: str | None = None) -> dict[str, Any]:
    """Send so many cases, about half of them from the description, and return the outcome; on SQLite by default."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(f"sqlite:///{Path(folder) / 'fuzz.db'}" if database is None else database)
        try:
            described(world, cases // 2, number)
            by_hand(world, cases - sum(world.statuses.values()), number)
        finally:
            world.close()
    total = sum(world.statuses.values())
    return {
        "cases": total,
        "refused": sum(n for status, n in world.statuses.items() if 400 <= status < 500),
        "server errors": sum(n for status, n in world.statuses.items() if status >= 500),
        "refused but changed": world.changed,
        "not sendable": world.unsent,
        "statuses": dict(sorted(world.statuses.items())),
        "problems": world.problems,
    }
