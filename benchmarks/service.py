"""The service under load, next to bare FastAPI endpoints that do one insert in the same database, in the same run."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from tests.support.postgres import postgres

from benchmarks.common import Rows, report
from benchmarks.load import Load, Requests, drive, joined, post

app = typer.Typer()
KEY = "hp_admin_" + secrets.token_urlsafe(32)
BATCH = 500
PRODUCTS = """
[products.coffee]
policy = "etc-ldp"
family = "logistic"
dim = 3
prices = [1.0, 5.0]
horizon = 1000000000
epsilon = 2.0
z_max = 2.0
max_lag = 1000000000
[products.tea]
policy = "mle-cycle"
family = "logistic"
dim = 3
prices = [1.0, 5.0]
"""
Seconds = Annotated[float, typer.Option(help="Of load for each figure and round.")]
Rounds = Annotated[int, typer.Option(help="Turns of the service and the bare endpoint.")]
Kinds = Annotated[str, typer.Option(help="sqlite, postgresql or both.")]


@contextmanager
def databases(kinds: str) -> Iterator[dict[str, Callable[[str], str]]]:
    """Per kind of database, a function that makes a new one with this name and returns its URL."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        makers: dict[str, Callable[[str], str]] = {}
        if kinds in ("sqlite", "both"):
            makers["SQLite"] = lambda name: f"sqlite:///{folder}/{name}.db"
        if kinds in ("postgresql", "both"):
            makers["PostgreSQL"] = stack.enter_context(postgres()).url
        yield makers


@contextmanager
def started(program: list[str], port: int) -> Iterator[int]:
    """A server process, from when it answers until it is stopped."""
    environment = {**os.environ, "HUSHPRICE_ADMIN_KEY": KEY, "HUSHPRICE_RATE": "0"}
    process = subprocess.Popen([sys.executable, *program], env=environment, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def service(url: str, *, workers: int = 1) -> Iterator[int]:
    """The service with its two products."""
    port = _free()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "products.toml"
        file.write_text(PRODUCTS)
        words = ["-m", "hushprice", "serve", "--database", url, "--products", str(file), "--port", str(port)]
        with started([*words, "--workers", str(workers), "--rate", "0", "--log-format", "none"], port):
            yield port


@contextmanager
def bare(url: str) -> Iterator[int]:
    """The yardstick."""
    port = _free()
    with started(["-m", "benchmarks.bare", url, str(port)], port):
        yield port


def _free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _report() -> str:
    return json.dumps(
        {"id": secrets.token_hex(16), "version": 0, "report": {"seed": secrets.token_hex(8), "index": 1}},
        separators=(",", ":"),
    )


def singles(path: str) -> Requests:
    """One report a request."""

    def requests() -> Iterator[bytes]:
        while True:
            yield post(path, KEY, _report())

    return requests


def batches(path: str) -> Requests:
    """500 reports per request."""

    def requests() -> Iterator[bytes]:
        while True:
            yield post(path, KEY, '{"reports":[' + ",".join(_report() for _ in range(BATCH)) + "]}")

    return requests


def offers(path: str) -> Requests:
    """One customer a request."""

    def requests() -> Iterator[bytes]:
        while True:
            yield post(path, KEY, f'{{"id":"{secrets.token_hex(8)}","context":[1.0,0.25,0.5]}}')

    return requests


FIGURES: tuple[tuple[str, int, int, Callable[[str], Requests], str, tuple[str, ...]], ...] = (
    # what, connections, items per request, requests, path of the service, paths of the bare endpoints
    ("reports, single", 32, 1, singles, "/v1/products/coffee/reports", ("/reports", "/direct")),
    ("reports, batches of 500", 4, BATCH, batches, "/v1/products/coffee/reports", ("/batches", "/keyed")),
    ("offers, 32 at once", 32, 1, offers, "/v1/products/tea/offers", ("/offers",)),
    ("offers, 1 at a time", 1, 1, offers, "/v1/products/tea/offers", ("/offers",)),
)


def _row(database: str, what: str, who: str, together: Load, items: int) -> dict[str, Any]:
    return {
        "database": database,
        "what": what,
        "who": who,
        "a second": items * together.rate,
        "p50 ms": together.percentile(0.5),
        "p99 ms": together.percentile(0.99),
        "refused": sum(together.refused.values()),
    }


@app.command()
def load(seconds: Seconds = 5.0, rounds: Rounds = 3, database: Kinds = "both") -> None:
    """Durable reports and offers per second, next to a bare FastAPI endpoint with one insert, turn by turn."""
    rows: Rows = []
    with databases(database) as kinds:
        for kind, make in kinds.items():
            with service(make("ours")) as ours, bare(make("bare")) as yardstick:
                for what, connections, items, requests, path, others in FIGURES:
                    measured: dict[str, list[Load]] = {}
                    for turn in range(rounds + 1):  # the first warms up
                        for who, port, where in (("service", ours, path), *(("bare", yardstick, o) for o in others)):
                            done = drive(port, requests(where), connections=connections, seconds=seconds)
                            if turn:
                                measured.setdefault(f"{who} {where}" if who == "bare" else who, []).append(done)
                    together = {who: joined(loads) for who, loads in measured.items()}
                    best = max(one.rate for who, one in together.items() if who != "service")
                    for who, one in together.items():
                        rows.append({**_row(kind, what, who, one, items), "of the best bare": one.rate / best})
    report("load", "The service under load; each figure from turns of the same run", rows)


@app.command()
def workers(seconds: Seconds = 5.0, rounds: Rounds = 3) -> None:
    """One worker and two on PostgreSQL, turn by turn: reports and offers per second."""
    rows: Rows = []
    with databases("postgresql") as kinds:
        make = kinds["PostgreSQL"]
        with service(make("one")) as one, service(make("two"), workers=2) as two:
            for what, connections, items, requests, path, _ in FIGURES[:3]:
                measured: dict[str, list[Load]] = {}
                for turn in range(rounds + 1):
                    for who, port in (("one worker", one), ("two workers", two)):
                        done = drive(port, requests(path), connections=connections, seconds=seconds)
                        if turn:
                            measured.setdefault(who, []).append(done)
                rows += [_row("PostgreSQL", what, who, joined(loads), items) for who, loads in measured.items()]
    report("workers", "One worker and two, PostgreSQL, two cores with the load on them too", rows)
