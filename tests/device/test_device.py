"""The device library: the same bits as the kernels, its promise, its ledger and what it sends."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp
from protocol.device_vectors import device_vectors, flat
from protocol.session_vectors import published as document

from hushprice.demand import FAMILIES as KERNEL_FAMILIES
from hushprice.device import (
    Answer,
    BrokenPromise,
    Device,
    HttpTransport,
    Ledger,
    Mechanism,
    Params,
    Promise,
    Retry,
    ServiceRefused,
    SystemWords,
    Unreachable,
    UnsafeWords,
    context,
    demand,
    ledger_file,
    numbers,
    philox,
    quote,
    report,
)
from hushprice.device.coin import fair_coin
from hushprice.device.guarantee import log_normal_cdf
from hushprice.errors import HushpriceError, InvalidInput, LedgerError
from hushprice.kernels import glm, special
from hushprice.kernels import quote as quote_kernel
from hushprice.kernels import state as phases
from hushprice.kernels.report import privatize_rows
from hushprice.kernels.score import score as score_kernel
from hushprice.privacy import Gaussian, L2Ball, PrivUnit, Report, UnsafeSeed, VectorMechanism
from tests.support.paths import ROOT

FILES = ROOT / "protocol" / "vectors"
VECTORS: dict[str, Any] = json.loads((FILES / "device.json").read_text(encoding="utf-8"))
OLD: dict[str, Any] = json.loads((FILES / "privacy.json").read_text(encoding="utf-8"))
GENEROUS = Promise(epsilon=4.0, delta=1e-3, clip=30.0)
SEGMENTS = Promise(epsilon=2.0, clip=4.0, segments=("adult", "student"))
PHASES = {"explore": phases.EXPLORE, "exploit": phases.EXPLOIT, "fixed": phases.FIXED}


def bits(value: Any) -> Any:
    """Numbers as text, equal only if all bits are equal."""
    if isinstance(value, (list, tuple)):
        return [bits(item) for item in value]
    return value.hex() if isinstance(value, float) else value


def words_of(case: Mapping[str, Any]) -> list[int]:
    return [int(word, 16) for word in case["words"]]


# -- test vectors -----------------------------------------------------------------------------------


def test_the_kernels_reproduce_the_vectors() -> None:
    assert (FILES / "device.json").read_text(encoding="utf-8") == flat(device_vectors()) + "\n"


Compute = Callable[..., Any]
SECTIONS: dict[str, tuple[Compute, str]] = {
    "exp": (lambda x: numbers.exp(x), "value"),
    "log": (lambda x: numbers.log(x), "value"),
    "omega": (lambda x: numbers.omega(x), "value"),
    "omega_table": (lambda cell: numbers.omega_cell(cell), "coefficients"),
    "mean": (lambda family, eta: demand.mean(family, eta), "value"),
    "best_price": (demand.best_price, "price"),
    "score": (demand.score, "g"),
    "coin": (lambda epsilon, inside, outside: f"{fair_coin(epsilon, inside=inside, outside=outside):016x}", "coin"),
    "quote_on_terms": (demand.price_on_terms, "price"),
}


@pytest.mark.parametrize("section", SECTIONS)
def test_vectors(section: str) -> None:
    compute, key = SECTIONS[section]
    for case in VECTORS[section]:
        arguments = {name: value for name, value in case.items() if name != key}
        assert bits(compute(**arguments)) == bits(case[key]), arguments


def test_vectors_of_noise_levels() -> None:
    for case in VECTORS["gaussian"]:
        options = {key: value for key, value in case.items() if key != "holds"}
        if case["holds"]:
            assert Mechanism(name="gaussian", **options).loss.mu > 0.0
        else:
            with pytest.raises(InvalidInput, match="does not keep"):
                Mechanism(name="gaussian", **options)


def customers_of(document: Mapping[str, Any]) -> Promise:
    """A promise for customers of this document, with any report."""
    return replace(GENEROUS, family=document["family"], segments=document["segments"])


def test_vectors_of_sessions() -> None:
    for session in VECTORS["sessions"]:
        params = Params.read(session["params"], customers_of(session["params"]))
        for customer in session["customers"]:
            words = words_of(customer)
            u = philox.uniform(words.pop(0)) if params.experiment else 0.0
            price = quote(params, customer["z"], segment=customer["segment"], cost=customer["cost"], uniform=u)
            assert bits(price) == bits(customer["price"])
            assert params.experiment == customer["experiment"]
            if params.learn:
                assert report(params, customer["z"], price, customer["y"], words) == customer["report"]


def test_vectors_of_the_shops_own_prices() -> None:
    """Accepted in shadow mode within the range of quotes. A refusal names no range, as it may be a segment's."""
    for case in VECTORS["own_price"]:
        params = Params.read(case["params"], customers_of(case["params"]))
        if case["taken"]:
            assert quote(params, Z, segment=case["segment"], price=case["price"]) == case["price"]
            continue
        with pytest.raises(InvalidInput, match=r"within the range|shadow mode only") as problem:
            quote(params, Z, segment=case["segment"], price=case["price"])
        assert not re.search("[0-9]|student|adult", str(problem.value))


def test_vectors_of_refusals() -> None:
    """The document itself is accepted; each change of one field is refused."""
    for case in VECTORS["refused"]:
        promise = Promise(**case["promise"])
        try:
            Params.read(case["params"], promise)
            taken = True
        except BrokenPromise:
            taken = False
        assert taken == (case["why"] is None), case["why"]


def test_the_older_vectors_of_mechanisms() -> None:
    for case in OLD["philox4x64_10"]:
        key, counter = ([int(word, 16) for word in case[name]] for name in ("key", "counter"))
        words = philox.philox((key[0], key[1]), (counter[0], counter[1], counter[2], counter[3]))
        assert [f"{word:016x}" for word in words] == case["words"]
    for case in OLD["normal"]:
        assert bits(philox.normal(int(case["word"], 16))) == bits(case["value"])
    for case in OLD["direction"]:
        assert bits(philox.direction(int(case["seed"], 16), case["number"], len(case["v"]))) == bits(case["v"])
    for case in OLD["report"]:
        params = case["mechanism"]
        if params["name"] != "randomized-response":
            options = {
                key: params[key] for key in ("epsilon", "clip", "dim", "delta", "pairs", "top", "sd") if key in params
            }
            assert Mechanism(name=params["name"], **options).report(case["g"], words_of(case)) == case["report"]


# -- random cases against the kernels -----------------------------------------------------------------


def test_numbers_have_the_bits_of_the_kernels() -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=3000) * scale for scale in (0.01, 1.0, 30.0, 500.0)])
    assert [numbers.exp(v) for v in x.tolist()] == KERNEL_FAMILIES["poisson"]().mean(x).tolist()
    probit = KERNEL_FAMILIES["probit"]()
    assert [numbers.normal_cdf(v) for v in x.tolist()] == probit.mean(x).tolist()
    assert [numbers.log_normal_cdf(v) for v in x.tolist()] == probit.loglik(x, 1.0).tolist()
    for spread in (rng.uniform(-8.0, 24.0, 6000), rng.uniform(-800.0, -8.0, 500), np.exp(rng.uniform(3.2, 60.0, 2000))):
        values = spread.copy()
        special.omegas(values)
        assert [numbers.omega(v) for v in spread.tolist()] == values.tolist()


@pytest.mark.parametrize("family", KERNEL_FAMILIES)
def test_prices_and_scores_have_the_bits_of_the_kernels(family: str) -> None:
    rng, code = np.random.default_rng(2), KERNEL_FAMILIES[family]().code
    for _ in range(1500):
        d = int(rng.integers(1, 7))
        theta, z = rng.normal(size=2 * d), rng.normal(size=d) * 10.0 ** rng.uniform(-2, 2)
        ladder = np.unique(rng.uniform(0.0, 6.0, 12)) if rng.random() < 0.5 else np.empty(0)
        low, high = np.sort(rng.choice(ladder, 2, replace=False)) if ladder.size else np.sort(rng.uniform(0, 6, 2))
        level, u, cost = rng.uniform(0, 6), rng.random(), rng.choice([0.0, rng.uniform(0, 4), 9.0])
        a, b = np.empty(1), np.empty(1)
        glm.utility(z[None, :], theta, a, b)
        assert demand.utility(theta.tolist(), z.tolist()) == (a[0], b[0])
        for name, phase in PHASES.items():
            price = demand.price_on_terms(
                name, family, float(a[0]), float(b[0]), level=float(level), u=float(u), cost=float(cost),
                low=float(low), high=float(high), ladder=ladder.tolist(),
            )  # fmt: skip
            kernel = quote_kernel.quote_on_terms(phase, code, a[0], b[0], level, u, cost, low, high, ladder)
            assert bits(price) == bits(float(kernel))
        g, y = np.empty(2 * d), float(rng.integers(0, 3))
        shift, factor = rng.uniform(0, 5), rng.uniform(0.1, 3)
        score_kernel(code, theta, z, price, y, shift, factor, g)
        mine = demand.score(family, theta.tolist(), z.tolist(), price, y, shift=float(shift), factor=float(factor))
        assert bits(mine) == bits(g.tolist())


MECHANISMS: tuple[VectorMechanism, ...] = (
    L2Ball(epsilon=0.5, clip=2.0, dim=2),
    L2Ball(epsilon=6.0, clip=1e-3, dim=13),
    PrivUnit(epsilon=1.0, clip=2.0, dim=4),
    PrivUnit(epsilon=5.0, clip=40.0, dim=6),
    PrivUnit(epsilon=2.0, clip=1.0, dim=3, pairs=7),
    Gaussian(epsilon=1.0, delta=1e-3, clip=2.0, dim=4),
    Gaussian(epsilon=7.0, delta=1e-6, clip=0.1, dim=9),
)


def twin(mechanism: VectorMechanism) -> Mechanism:
    """The device's own version of a mechanism."""
    return Mechanism(**document(mechanism, KERNEL_FAMILIES["linear"](), "explore", 0, [0.0])["mechanism"])


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: f"{mechanism.name}-{mechanism.dim}")
def test_reports_have_the_bits_of_the_kernels(mechanism: VectorMechanism) -> None:
    rng, source, mine, n = np.random.default_rng(3), UnsafeSeed(4), twin(mechanism), 400
    assert (mine.words, mine.loss) == (mechanism.words, mechanism.loss)
    g = rng.normal(size=(n, mechanism.dim)) * mechanism.clip * 10.0 ** rng.uniform(-4, 4, size=(n, 1))
    g[:5] = 0.0
    g[5, 0], g[6, 1], g[7] = math.nan, math.inf, 1e308  # not finite, and a length that overflows
    words = source.words(n * mechanism.words).reshape(n, -1)
    rows = np.zeros((n, mechanism.width), dtype=np.int64)
    privatize_rows(mechanism.spec, g.copy(), words, rows)
    kernel = [Report(mechanism.kind, tuple(row)).to_dict() for row in rows.tolist()]
    assert [mine.report(list(x), [int(w) for w in row]) for x, row in zip(g.tolist(), words, strict=True)] == kernel


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=4, max_size=4),
    st.lists(st.integers(0, 2**64 - 1), min_size=4, max_size=4),
)
def test_every_score_gives_a_report_of_the_kernels(g: list[float], words: list[int]) -> None:
    for mechanism in (MECHANISMS[2], MECHANISMS[5]):
        rows = np.zeros((1, mechanism.width), dtype=np.int64)
        privatize_rows(mechanism.spec, np.array([g]), np.array([words], dtype=np.uint64), rows)
        assert twin(mechanism).report(g, words) == Report(mechanism.kind, tuple(rows[0].tolist())).to_dict()


def test_the_normal_distribution_function_in_the_tails() -> None:
    with mp.workdps(40):
        for x in (*np.linspace(-60.0, 9.0, 277).tolist(), -13.999, -14.0, -14.001, -1e-9, 0.0, 1e-9, -1e4):
            exact = mp.log(mp.erfc(-mp.mpf(x) / mp.sqrt(2)) / 2)
            assert abs(mp.mpf(log_normal_cdf(x)) - exact) <= 1e-15 * (1.0 + x * x), x


# -- the package ------------------------------------------------------------------------------------------


def test_a_device_is_light() -> None:
    code = (
        "import sys, time; import hushprice.device\n"
        "took = time.process_time()\n"
        "heavy = {'numpy', 'numba', 'scipy', 'pyarrow', 'matplotlib', 'starlette', 'msgspec', 'sqlalchemy', 'pandas'}\n"
        "heavy &= set(sys.modules)\n"
        "print(sorted(heavy), took)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    heavy, took = runs[-1].stdout.rsplit(" ", 1)
    assert heavy == "[]"
    assert float(took) < 1.0


# -- a device and a service in memory -----------------------------------------------------------------


def published(**changes: Any) -> dict[str, Any]:
    """A document as it is published, with some fields changed."""
    whole = document(L2Ball(epsilon=2.0, clip=4.0, dim=6), KERNEL_FAMILIES["logistic"](), "explore", 7, [0.1] * 6)
    return whole | changes


class Service:
    """A service in memory that records every request."""

    def __init__(self, *documents: dict[str, Any], age: str = "no-cache") -> None:
        self.documents, self.age = list(documents or (published(),)), age
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.reports: dict[str, Any] = {}
        self.statuses: list[int] = []  # of the next posts; 0: no answer, -1: accepted, but the answer is lost
        self.away = False
        self.tags = True  # whether it supports If-None-Match
        self.extra_headers: dict[str, str] = {}  # of its answers

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        self.requests.append((method, path, dict(headers), body or b""))
        if self.away:
            raise Unreachable("nobody there")
        if method == "GET":
            document = self.documents.pop(0) if len(self.documents) > 1 else self.documents[0]
            if self.tags and headers.get("If-None-Match") == f'"{document["version"]}"':
                return Answer(304, {"cache-control": self.age}, b"")
            return Answer(200, {"cache-control": self.age}, json.dumps(document).encode())
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 0:
            raise Unreachable("nobody there")
        if status in (200, -1):
            plain = json.loads(body or b"")
            items = plain.get("reports", [plain])
            for item in items:
                assert set(item) == {"id", "version", "report"}
                known = self.reports.setdefault(item["id"], item)
                assert known == item, "one id, one report"
            if status == -1:
                raise Unreachable("the answer was lost")
            return Answer(200, {}, json.dumps({"accepted": len(items), "known": 0, "version": 7}).encode())
        return Answer(status, self.extra_headers, b'{"error": {"code": "no", "message": "No."}}')

    def close(self) -> None:
        pass


class Always(Service):
    """A service with one answer to everything."""

    def __init__(self, status: int, body: bytes = b"") -> None:
        super().__init__()
        self.answer = Answer(status, {}, body)

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        return self.answer


def device_of(service: Service, **options: Any) -> Device:
    defaults: dict[str, Any] = {
        "url": "http://shop", "key": "hp_device_0123456789", "product": "coffee", "transport": service,
        "promise": Promise(epsilon=2.0, clip=4.0), "words": UnsafeWords(1), "retry": Retry(sleep=lambda _: None),
        "ledger": None,
    }  # fmt: skip
    return Device(**defaults | options)


Z = [1.0, 0.73125, -0.40625]


def test_nothing_leaves_but_the_report() -> None:
    """Every byte that is sent, for customers whose numbers are recognisable by their digits."""
    service = Service()
    device = device_of(service, ledger=Ledger(epsilon=5.0), words=SystemWords())
    rng, private = np.random.default_rng(5), set()
    for _ in range(40):
        z = [1.0, *rng.random(2).tolist()]
        offer = device.offer({"loyalty": z[1], "distance": z[2]} if rng.random() < 0.5 else z, cost=float(rng.random()))
        private |= {repr(x) for x in (*z[1:], offer.price)}
        assert device.sold(offer, float(rng.integers(2)))
    sent = b"".join(f"{m} {p} {sorted(h.items())}".encode() + body for m, p, h, body in service.requests).decode()
    assert not [number for number in private if number in sent or number[:10] in sent]
    for method, path, headers, body in service.requests:
        if method == "GET":
            assert body == b""
            assert set(headers) <= {"Authorization", "If-None-Match"}
            assert headers.get("If-None-Match", '"7"') == '"7"'
        else:
            assert path == "/v1/products/coffee/reports"
            assert set(headers) == {"Authorization", "Content-Type"}
            plain = json.loads(body)
            assert set(plain) == {"id", "version", "report"}
            assert len(plain["id"]) == 32
            assert plain["report"] is None or set(plain["report"]) == {"seed", "index"}
    reports = [item["report"] for item in service.reports.values()]
    assert len(reports) == 40
    assert sum(made is not None for made in reports) == 2, "after two reports of 2 the budget of 5 is spent; then null"


def test_reports_follow_the_promise_and_are_charged() -> None:
    service, ledger = Service(), Ledger(epsilon=100.0)
    device = device_of(service, ledger=ledger)
    offer = device.offer(Z)
    assert offer.experiment
    assert ledger.reports == 0
    device.sold(offer, 1, send=False)
    assert ledger.spent.epsilon == 2.0
    assert service.reports == {}
    assert device.flush() == 0
    (sent,) = service.reports.values()
    words = UnsafeWords(1)
    price = 1.0 + 4.0 * philox.uniform(words.draw(1, "price")[0])
    g = demand.score("logistic", [0.1] * 6, Z, price, 1.0, shift=3.0, factor=0.8660254037844386)
    assert offer.price == price
    assert sent["report"] == Mechanism(name="l2-ball", epsilon=2.0, clip=4.0, dim=6).report(g, words.draw(3, "report"))
    assert device.sold(offer, 1), "the same again is nothing new"
    assert device.sold(offer, True)
    with pytest.raises(InvalidInput, match="reported with another outcome"):
        device.sold(offer, 0)
    assert list(service.reports.values()) == [sent]
    with pytest.raises(InvalidInput, match="an offer of this device"):
        device_of(Service(published(product="tea")), product="tea").sold(offer, 1)
    assert ledger.reports == 1


def test_no_report_unless_one_is_requested() -> None:
    service, ledger = Service(published(learn=False, phase="exploit")), Ledger(epsilon=1e-3)
    device = device_of(service, ledger=ledger)
    assert device.sold(device.offer(Z), 1)
    assert [item["report"] for item in service.reports.values()] == [None]
    assert ledger.reports == 0


@pytest.mark.parametrize(
    "change",
    [
        {"mechanism": published()["mechanism"] | {"epsilon": 2.5}},
        {
            "mechanism": published()["mechanism"] | {"epsilon": 1.0}
        },  # not even a stronger guarantee: a product never changes
        {"mechanism": published()["mechanism"] | {"clip": 3.0}},
        {"mechanism": published()["mechanism"] | {"name": "privunit", "pairs": 4, "top": 2}},
        {"features": []},
        {"family": "linear"},
        {"score": {"shift": 3.0, "factor": 2.0}},
        {"theta": [50.0] * 6},
        {"theta": [math.nan] * 6},
        {"version": 6, "cost": 1.0},  # not even after a restored backup
        {"version": 7, "mechanism": published()["mechanism"] | {"epsilon": 1.0}},
        {"product": "tea"},
        {"protocol": 2},
        {"dim": 2},
    ],
)
def test_a_server_that_changes_a_product_is_refused(change: dict[str, Any]) -> None:
    ledger = Ledger(epsilon=100.0)
    service = Service(published(), published(**{"version": 8} | change))
    if change.get("version") == 7:  # an ETag would hide it
        service.documents[1], service.tags = published(**change), False
    device = device_of(service, ledger=ledger)
    device.offer(Z)
    for _ in range(2):
        with pytest.raises(BrokenPromise):
            device.offer(Z)
    assert ledger.reports == 0
    assert service.reports == {}
    assert all(method == "GET" for method, *_ in service.requests)


def test_a_device_refuses_a_server_from_the_start() -> None:
    for body in (b"[]", b"{", b"NaN", b'{"format": "hushprice params"}', b"\xff", b"[" * 100_000):
        with pytest.raises(BrokenPromise):
            device_of(Always(200, body)).offer(Z)
    for status, text in ((401, "key"), (404, "no such product"), (409, "not a private one"), (302, "302")):
        with pytest.raises(ServiceRefused, match=text):
            device_of(Always(status)).offer(Z)


def test_parameters_of_a_lagging_worker_are_fetched_again() -> None:
    service = Service(published(version=8), published(version=7), published(version=9))
    device = device_of(service)
    assert [device.offer(Z).version for _ in range(2)] == [8, 9]


def test_a_service_restored_from_a_backup_is_accepted() -> None:
    """An earlier version, then another document of that version: each is fetched three times, and then accepted."""
    pauses: list[float] = []
    service, ledger = Service(published()), Ledger(epsilon=100.0)
    device = device_of(service, ledger=ledger, retry=Retry(sleep=pauses.append))
    service.tags = False
    device.offer(Z)
    for change in ({"version": 3}, {"version": 3, "phase": "exploit", "theta": [0.2] * 6}):
        service.documents, before = [published(**change)], len(service.requests)
        offer = device.offer(Z)
        assert (offer.version, offer.experiment) == (3, "phase" not in change)
        assert len(service.requests) - before == 3
        assert device.sold(offer, 1)
        assert device.offer(Z).version == 3
        assert len(service.requests) - before == 5, "it is the one to follow from now on"
    assert pauses == [0.2] * 4
    assert [item["version"] for item in service.reports.values()] == [3, 3]
    assert ledger.reports == 2


def test_params_are_cached_as_long_as_the_server_says() -> None:
    service = Service(age="public, max-age=60")
    device = device_of(service)
    for _ in range(3):
        device.offer(Z)
    assert len(service.requests) == 1
    service = Service()
    device = device_of(service)
    for _ in range(3):
        device.offer(Z)
    assert [headers.get("If-None-Match") for _, _, headers, _ in service.requests] == [None, '"7"', '"7"']
    service.away = True
    assert device.offer(Z).version == 7, "parameters at hand serve while the service is away"
    with pytest.raises(Unreachable):
        device_of(service).offer(Z)
    eager = device_of(Service(), stale=0.0)
    eager.offer(Z)
    eager._transport.away = True  # type: ignore[attr-defined]
    with pytest.raises(Unreachable):
        eager.offer(Z)


def test_a_report_survives_a_crash_and_is_the_same(tmp_path: Path) -> None:
    service = Service()
    device = device_of(service, folder=tmp_path, ledger=Ledger(epsilon=100.0, path=tmp_path / "ledger.json"))
    service.statuses = [-1] * 4  # the service accepts it, but no answer arrives
    assert not device.sold(device.offer(Z), 1)
    assert device.waiting == 1
    assert "lost" in str(device.problem)
    service.statuses = [0] * 4
    assert not device.sold(device.offer(Z), 0)
    (folder,) = (tmp_path / "coffee").iterdir()
    (folder / ("9" * 12 + "-" + "f" * 32 + ".json")).write_text("{", encoding="utf-8")  # torn by a crash
    again = device_of(service, folder=tmp_path, words=UnsafeWords(2))  # after a restart
    assert again.waiting == 2
    assert again.damaged == 1
    assert again.flush() == 0
    assert len(service.reports) == 2
    last = json.loads(service.requests[-1][3])
    assert [item["id"] for item in last["reports"]] == list(service.reports), "several go together, in order"
    assert device_of(service, folder=tmp_path).waiting == 0
    assert Ledger(epsilon=100.0, path=tmp_path / "ledger.json").reports == 2


def test_reports_go_to_the_service_they_were_made_for(tmp_path: Path) -> None:
    """Two services with the same product and one folder; and files of a release that did not record the address."""
    away, other, back = Service(), Service(), Service()
    device = device_of(away, folder=tmp_path, url="https://shop-a.example")
    offer = device.offer(Z)
    away.away = True
    assert not device.sold(offer, 1)
    (file,) = (tmp_path / "coffee").glob("*/*.json")
    elsewhere = device_of(other, folder=tmp_path, url="https://shop-b.example")
    assert (elsewhere.waiting, elsewhere.damaged, elsewhere.flush()) == (0, 0, 0)
    assert other.requests == []
    old = tmp_path / "coffee" / ("0" * 12 + "-" + "f" * 32 + ".json")
    old.write_bytes(file.read_bytes())
    again = device_of(back, folder=tmp_path, url="https://SHOP-A.example:443/")  # the same address
    assert (again.waiting, again.damaged) == (1, 1)
    assert again.flush() == 0
    assert list(back.reports) == [offer.id]
    assert old.exists()


def test_a_device_that_dies_while_sending_sends_the_same_report(tmp_path: Path) -> None:
    """The process ends in the middle of the request, without closing the connection."""
    code = (
        "import json, os, sys\n"
        "from hushprice.device import Answer, Device, Ledger, Promise\n"
        "class Service:\n"
        "    def send(self, method, path, headers, body):\n"
        "        if method == 'POST':\n"
        "            sys.stdout.write(body.decode()); sys.stdout.flush(); os._exit(9)\n"
        "        return Answer(200, {}, sys.argv[2].encode())\n"
        "device = Device(url='http://shop', key='key', product='coffee', promise=Promise(epsilon=2.0, clip=4.0),\n"
        "    folder=sys.argv[1], ledger=Ledger(epsilon=5.0, path=sys.argv[1] + '/ledger.json'), transport=Service())\n"
        "device.sold(device.offer([1.0, 0.5, 0.25]), 1)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), json.dumps(published())]
    dead = subprocess.run(command, capture_output=True, text=True, check=False)
    assert dead.returncode == 9, dead.stderr
    sent = json.loads(dead.stdout)
    assert sent["report"] is not None
    service = Service()
    again = device_of(service, folder=tmp_path, ledger=Ledger(epsilon=5.0, path=tmp_path / "ledger.json"))
    assert again.flush() == 0
    assert service.reports == {sent["id"]: sent}
    assert again.ledger is not None
    assert again.ledger.reports == 1, "charged once"


def test_retries_back_off_and_respect_retry_after() -> None:
    pauses: list[float] = []
    service = Service()
    device = device_of(service, retry=Retry(attempts=3, first=0.2, most=5.0, sleep=pauses.append))
    service.statuses = [503, 0, 200]
    assert device.sold(device.offer(Z), 1)
    assert 0.1 <= pauses[0] <= 0.3
    assert 0.2 <= pauses[1] <= 0.6
    posts = [body for method, _, _, body in service.requests if method == "POST"]
    assert len(posts) == 3
    assert len(set(posts)) == 1, "the same report with the same id"
    service.statuses = [429] * 3
    service.extra_headers = {"retry-after": "2"}
    pauses.clear()
    assert not device.sold(device.offer(Z), 1)
    assert pauses == [2.0, 2.0]


def test_a_report_that_is_refused_for_good_does_not_block_the_others() -> None:
    service = Service()
    device = device_of(service)
    for _ in range(3):
        device.sold(device.offer(Z), 1, send=False)
    service.statuses = [422, 422, 200, 200]  # the batch, then one by one
    assert device.flush() == 0
    assert device.refused == 1
    assert len(service.reports) == 2
    service.statuses = [422]
    assert not device.sold(device.offer(Z), 1)  # dropped: the service does not have it
    assert (device.refused, device.waiting) == (2, 0)
    service.statuses = [401]
    assert not device.sold(device.offer(Z), 1)
    assert device.waiting == 1
    assert "key" in str(device.problem)
    assert device.flush() == 0
    assert device.problem is None


@pytest.mark.parametrize("status", [400, 409, 413, 422])
def test_only_the_service_can_refuse_a_report_for_good(status: int) -> None:
    """A hotel's page refuses every request; the report stays."""
    service = Service()
    device = device_of(service)
    for _ in range(2):
        device.sold(device.offer(Z), 1, send=False)
    for body in (b"<html>", b"", b"{}", b"[]", b'{"error": "no"}', b'{"error": {"code": 3, "message": "no"}}'):
        device._transport = Always(status, body)
        assert device.flush() == 2
        assert str(status) in str(device.problem)
    assert device.refused == 0
    device._transport = service
    assert device.flush() == 0
    assert len(service.reports) == 2


def test_only_the_service_can_acknowledge_a_report() -> None:
    """A network's welcome page answers 200 to every request; the report stays."""
    for body in (b"<html>", b"{}", b"[]", b'{"accepted": 0, "known": 0}', b'{"accepted": true, "known": 0}'):
        service = Service()
        device = device_of(service)
        device.sold(device.offer(Z), 1, send=False)
        device._transport = Always(200, body)
        assert device.flush() == 1
        assert "is it the service?" in str(device.problem)
        device._transport = service
        assert device.flush() == 0
        assert len(service.reports) == 1


def test_a_ledger_that_cannot_be_written_stops_reports(tmp_path: Path) -> None:
    ledger = Ledger(epsilon=100.0, path=tmp_path / "ledger.json")
    service = Service()
    device = device_of(service, ledger=ledger)
    offer = device.offer(Z)
    content = (tmp_path / "ledger.json").read_bytes()
    (tmp_path / "ledger.json").write_text("{}", encoding="utf-8")
    with pytest.raises(LedgerError):
        device.sold(offer, 1)
    assert service.reports == {}
    (tmp_path / "ledger.json").write_bytes(content)
    assert device.sold(offer, 1), "the same offer, once the ledger is whole again"


def test_nobody_else_reads_a_ledger(tmp_path: Path) -> None:
    file, log, before = tmp_path / "ledger.json", tmp_path / "ledger.json.log", os.umask(0)
    try:
        Ledger(epsilon=100.0, path=file).spend(SMALL)
        assert [path.stat().st_mode & 0o777 for path in (file, log)] == [0o600, 0o600]
        for path in (file, log):
            path.chmod(0o644)  # as an earlier release left the log
        Ledger(epsilon=100.0, path=file).spend(SMALL)
        assert [path.stat().st_mode & 0o777 for path in (file, log)] == [0o600, 0o600]
    finally:
        os.umask(before)


class _Watched:
    """Counts the bytes that are read from logs of ledgers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes, real = 0, ledger_file._end

        def watched(path: Path, most: int | None = None) -> bytes:
            end = real(path, most)
            self.bytes += len(end)
            return end

        monkeypatch.setattr(ledger_file, "_end", watched)


SMALL = Mechanism(name="l2-ball", epsilon=0.5, clip=1.0, dim=2)


def test_a_ledger_reads_the_end_of_its_log_and_keeps_it_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, log = tmp_path / "ledger.json", tmp_path / "ledger.json.log"
    ledger = Ledger(epsilon=100.0, path=file)
    early = file.read_bytes()
    monkeypatch.setattr(ledger_file, "LONGEST_LOG", 3 * ledger_file.TAIL)
    watched, largest = _Watched(monkeypatch), 0
    for spent in range(1, 81):
        ledger.spend(SMALL)
        largest = max(largest, log.stat().st_size)
        if spent % 9 == 0:
            file.write_bytes(early)  # an old copy: the log has more reports, even after it was cut
            assert Ledger(epsilon=100.0, path=file).reports == spent
    assert 2 * ledger_file.TAIL < largest <= 3 * ledger_file.TAIL, "it grew, and was cut"
    assert watched.bytes <= 110 * ledger_file.TAIL, "the end at each look, and when it is cut"
    assert sorted(os.listdir(tmp_path)) == ["ledger.json", "ledger.json.log"]


def test_a_log_with_a_damaged_end_is_read_from_the_start(tmp_path: Path) -> None:
    file, log = tmp_path / "ledger.json", tmp_path / "ledger.json.log"
    ledger = Ledger(epsilon=100.0, path=file)
    early = file.read_bytes()
    for _ in range(3):
        ledger.spend(SMALL)
    with log.open("ab") as end:
        end.write(b"\0" * (2 * ledger_file.TAIL))  # as a file system may leave it after a power cut
    file.write_bytes(early)
    again = Ledger(epsilon=100.0, path=file)
    assert again.reports == 3
    again.spend(SMALL)
    file.write_bytes(early)
    assert Ledger(epsilon=100.0, path=file).reports == 4


def test_a_log_that_cannot_be_cut_costs_the_customer_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write of a cut log and of the file fails once, and the process starts afresh after each failure."""
    file = tmp_path / "ledger.json"
    ledger, granted, failed = Ledger(epsilon=1000.0, path=file), 0, 0
    early = file.read_bytes()
    monkeypatch.setattr(ledger_file, "LONGEST_LOG", 0)  # cut at every write
    for name in ("fsync", "replace"):
        for moment in range(5):
            calls, real = [0], getattr(os, name)

            def failing(*arguments: Any, calls: list[int] = calls, real: Any = real, moment: int = moment) -> Any:
                calls[0] += 1
                if calls[0] == moment + 1:
                    raise OSError(5, "input/output error")
                return real(*arguments)

            with monkeypatch.context() as patch:
                patch.setattr(os, name, failing)
                try:
                    ledger.spend(SMALL)
                    granted += 1
                except LedgerError:
                    failed += 1
            file.write_bytes(early)
            ledger = Ledger(epsilon=1000.0, path=file)
            assert ledger.reports >= granted
    assert failed == 6
    assert granted == 4


def test_threads_share_a_device() -> None:
    service, ledger = Service(), Ledger(epsilon=20.0)
    device = device_of(service, ledger=ledger, words=SystemWords())
    failures: list[BaseException] = []

    def shop() -> None:
        try:
            for _ in range(10):
                device.sold(device.offer(Z), 1)
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=shop) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert device.flush() == 0
    assert len(service.reports) == 60
    assert sum(item["report"] is not None for item in service.reports.values()) == ledger.reports == 10


def test_rules_segments_and_shadow_mode() -> None:
    params = Params.read(
        published(segments=["adult", "student"], ranges={"student": [1.0, 2.0]}, guardrails={"low": 1.5, "high": None}),
        SEGMENTS,
    )
    assert params.range("student") == (1.5, 2.0)
    assert params.range("adult") == (1.5, 5.0)
    for segment in (None, "child"):
        with pytest.raises(InvalidInput, match="adult, student"):
            quote(params, Z, segment=segment)
    with pytest.raises(InvalidInput, match="no segments"):
        device_of(Service()).offer(Z, segment="adult")
    shadow = device_of(Service(published(mode="shadow", phase="fixed", level=3.0)))
    assert shadow.offer(Z).price == 3.0
    own = shadow.offer(Z, price=2.25)
    assert own.price == 2.25
    assert shadow.sold(own, 1)
    with pytest.raises(InvalidInput, match="must lie within"):
        shadow.offer(Z, price=7.0)
    with pytest.raises(InvalidInput, match="shadow mode only"):
        device_of(Service()).offer(Z, price=2.25)
    segments = {"segments": ["adult", "student"], "ranges": {"student": [1.0, 2.0]}}
    both = device_of(Service(published(mode="shadow", phase="fixed", level=3.0, **segments)), promise=SEGMENTS)
    assert both.offer(Z, segment="adult", price=2.25).price == 2.25
    with pytest.raises(InvalidInput, match="must lie within"):
        both.offer(Z, segment="student", price=2.25)


def test_contexts_by_name() -> None:
    params = Params.read(published(), GENEROUS)
    by_name = context(params, {"loyalty": Z[1], "distance": Z[2]})
    assert by_name == tuple(Z)
    assert context(params, [7.0, *Z[1:]]) == (7.0, *Z[1:]), "a list is taken as it is, whatever is said to be constant"
    nameless = Params.read(published(features=[]), GENEROUS)
    for wrong, which in (
        ({"loyalty": 1.0}, params),
        ({"loyalty": 1.0, "distance": 1.0, "age": 1.0}, params),
        ({"constant": 2.0, "loyalty": 1.0, "distance": 1.0}, params),
        ({"constant": 1.0, "loyalty": 1.0, "distance": 1.0}, params),
        ({"constant": 1.0, "loyalty": 1.0}, params),
        ({"loyalty": 1.0}, nameless),
    ):
        with pytest.raises(InvalidInput):
            context(which, wrong)


def test_whom_a_device_refuses_reveals_nothing() -> None:
    """Each document once separated some customers from others. Both must send the same requests."""
    constant, loyalty, distance = published()["features"]
    asked: tuple[tuple[dict[str, Any], tuple[Any, Any], type[HushpriceError]], ...] = (
        ({"features": [constant, {"name": "loyalty", "value": 0.4}, distance]}, (0.4, 0.7), InvalidInput),
        ({"segments": ["gold"]}, ("gold", "silver"), BrokenPromise),
        ({"family": "poisson"}, (1, 3), BrokenPromise),
    )
    for change, customers, refusal in asked:
        sent = []
        for one in customers:
            service = Service(published(**change))
            device = device_of(service)
            z = {"loyalty": one if change.get("features") else 0.5, "distance": 0.1}
            with pytest.raises(refusal):
                device.sold(device.offer(z, segment=one if isinstance(one, str) else None), one)
            sent.append([(method, path, body) for method, path, _, body in service.requests])
        assert sent[0] == sent[1], change
    pinned = (("constant", 1.0), "loyalty", "distance")
    for features in ([constant, {"name": "loyalty", "value": 0.4}, distance], [constant, distance, loyalty], []):
        with pytest.raises(BrokenPromise, match="features"):
            Params.read(published(features=features), replace(GENEROUS, features=pinned))
    assert Params.read(published(), replace(GENEROUS, features=pinned)).dim == 3


def test_the_ranges_of_features_may_change() -> None:
    constant, loyalty, distance = published()["features"]
    service = Service(published(), published(version=8, features=[constant, loyalty | {"high": 9.0}, distance]))
    device = device_of(service)
    assert [device.offer(Z).version for _ in range(2)] == [7, 8]


def test_a_promise_of_a_document_allows_what_it_asks_for() -> None:
    document = published(family="poisson", segments=["adult", "student"])
    promise = Promise.of(json.loads(json.dumps(document)))
    assert promise == Promise(
        epsilon=2.0, clip=4.0, mechanisms=["l2-ball"], prices=(1.0, 5.0), family="poisson",
        segments=["student", "adult"], features=[("constant", 1), "loyalty", "distance"],
    )  # fmt: skip
    assert Params.read(document, promise).family == "poisson"
    assert Promise.of(published(features=[])).features is None
    for nothing in (None, {}, published(mechanism={}), published(features=3), published(segments=3)):
        with pytest.raises(BrokenPromise):
            Promise.of(nothing)


def test_texts_of_a_broken_promise_have_few_digits() -> None:
    """Or as many as it takes to distinguish two numbers."""
    mechanism = published()["mechanism"]
    for change, promise, text in (
        ({"clip": 3.9999999999999996}, Promise(epsilon=2.0, clip=3.5), r"clip = 4; 3\.5 is promised"),
        ({"epsilon": 2.0000000000000004}, GENEROUS, None),
        ({"epsilon": 2.0000000000000004}, SEGMENTS, r"epsilon = 2\.0000000000000004; 2\.0 is promised"),
    ):
        document = published(mechanism=mechanism | change, segments=list(promise.segments))
        if text is None:
            assert Params.read(document, promise).mechanism.epsilon > 2.0
            continue
        with pytest.raises(BrokenPromise, match=text):
            Params.read(document, promise)


def test_a_report_costs_no_more_than_a_moment() -> None:
    most = Mechanism(name="privunit", epsilon=1.0, clip=1.0, dim=128, pairs=1024)
    began = time.process_time()
    most.report([0.1] * 128, [1, 2, 3, 4])
    assert time.process_time() - began < 5.0
    with pytest.raises(InvalidInput, match="131072 at most"):
        Mechanism(name="privunit", epsilon=1.0, clip=1.0, dim=130, pairs=1024)


SECRETS = ([8.7512, 1.0], [8.7512, math.nan, 1.0], [8.7512, "x", 1.0], [8.7512e200, 1.0, 1.0], 8.7512, "8.7512", None)


@pytest.mark.parametrize("z", SECRETS)
def test_refusals_reveal_nothing_about_the_customer(z: Any) -> None:
    device = device_of(Service())
    with pytest.raises(InvalidInput) as problem:
        device.offer(z)
    assert "8.75" not in _whole_text(problem.value)
    offer = device.offer(Z)
    for y in (8.7512, math.nan, "8.7512", None, [8.7512]):
        with pytest.raises(InvalidInput) as problem:
            device.sold(offer, y)  # type: ignore[arg-type]
        assert "8.75" not in _whole_text(problem.value)
    with pytest.raises(InvalidInput) as problem:
        device.offer(Z, cost=-8.7512)
    assert "8.75" not in _whole_text(problem.value)
    for number in map(repr, Z[1:]):
        assert number not in repr(offer)
        assert number not in repr(device)
    assert "0123456789" not in repr(device)


def _whole_text(problem: BaseException | None) -> str:
    """Everything that a traceback shows of an error and its causes."""
    text = ""
    while problem is not None:
        text, problem = (
            text + repr(problem),
            problem.__cause__ or (None if problem.__suppress_context__ else problem.__context__),
        )
    return text


def test_the_arguments_of_a_device_are_checked() -> None:
    for wrong in (
        {"url": "prices.example.com", "transport": None},
        {"url": "ftp://prices.example.com", "transport": None},
        {"url": "http://key@prices.example.com", "transport": None},
        {"url": "http://prices.example.com:port", "transport": None},
        {"url": "shop"},  # required with any transport: the outbox is named by the address
        {"key": ""},
        {"key": "a b"},
        {"product": "../coffee"},
        {"promise": {"epsilon": 1.0}},
        {"ledger": 1.0},
        {"words": np.random.default_rng(1)},
        {"stale": -1.0},
    ):
        with pytest.raises(InvalidInput):
            device_of(Service(), **wrong)
    for options in (
        {"epsilon": 0.0}, {"epsilon": 31.0}, {"delta": -1.0}, {"delta": 0.6}, {"clip": 0.0}, {"mechanisms": ()},
        {"mechanisms": "l2-ball"}, {"mechanisms": ("l2",)}, {"prices": (3.0, 1.0)}, {"family": "tobit"},
        {"segments": "ab"}, {"segments": ("a", "a")}, {"segments": ("",)}, {"segments": 3}, {"features": ()},
        {"features": "ab"}, {"features": ("a", "a")}, {"features": ("a", ("a", 1.0))}, {"features": (("a",),)},
        {"features": (("a", math.nan),)}, {"features": (1,)}, {"features": 3},
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            Promise(**{"epsilon": 1.0, "clip": 1.0} | options)
    with pytest.raises(TypeError, match="ledger"):  # there is no default: the caller decides whether to count
        Device(url="http://shop", key="key", product="coffee", promise=GENEROUS)  # type: ignore[call-arg]
    assert issubclass(BrokenPromise, HushpriceError)
    with pytest.raises(InvalidInput):
        UnsafeWords(-1)
    with pytest.raises(InvalidInput, match="used up"):
        UnsafeWords(0, price=[1]).draw(2, "price")


def test_a_service_that_does_not_answer() -> None:
    transport = HttpTransport("http://127.0.0.1:9", timeout=0.5)
    began = time.monotonic()
    with pytest.raises(Unreachable, match="does not answer"):
        transport.send("GET", "/", {}, None)
    assert time.monotonic() - began < 5.0


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("drip", [OK + b"X-A: ", OK + b"Content-Length: 99999\r\n\r\n", b""])
def test_a_server_that_never_ends_cannot_hold_a_device(drip: bytes) -> None:
    """Bytes of a header or a body now and then, or endless interim answers: each resets a socket's timeout."""
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        while not over.is_set():
            with suppress(OSError), listener.accept()[0] as line:
                line.sendall(drip)
                while not over.wait(0.1):
                    line.sendall(b"x" if drip else b"HTTP/1.1 100 Continue\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        transport = HttpTransport(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.5)
        began = time.monotonic()
        with pytest.raises(Unreachable):
            transport.send("GET", "/", {}, None)
        assert 0.4 < time.monotonic() - began < 5.0
        transport.close()
        over.set()
        listener.close()
