"""What anybody can do to the service without a key, and what it must not say when something goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import math
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hushprice.errors import InvalidInput
from hushprice.service import Definition
from hushprice.service.demo import shop as demo
from hushprice.service.demo.products import TEA
from hushprice.service.http import protocol_limits as connection
from hushprice.service.http import rate_limits as limits
from hushprice.service.http import responses as answers
from hushprice.service.http import server as run
from hushprice.service.http.access_log import Log
from hushprice.service.http.app import NotStarted, create_app
from hushprice.service.http.responses import Problem
from hushprice.service.http.routes import products as routes_look
from hushprice.service.settings import Settings, StartKey
from hushprice.service.storage.store import Store
from hushprice.service.writer.service import Service

ADMIN = "test-key-of-an-admin"


def settings(folder: Path, **more: Any) -> Settings:
    key = StartKey.of("admin", "admin", ADMIN)
    return Settings(database=f"sqlite:///{folder / 'edge.db'}", keys=(key,), log_format="none", **more)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with demo.running(settings(tmp_path), []) as url:
        yield int(url.rpartition(":")[2])


def exchange(port: int, *pieces: bytes, patience: float = 10.0) -> bytes:
    """What the service answers to these bytes, until it hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as caller:
        heard = b""
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                caller.sendall(piece)
            while more := caller.recv(65_536):
                heard += more
        return heard


class TestConnections:
    @pytest.mark.parametrize(
        "head",
        [
            b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 700_000,
            b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 70_000 + b"\r\n\r\n",
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 30_000,
            b"GET /" + b"a" * 700_000,
            b"GET /healthz?" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        ],
        ids=["header without an end", "long header", "many headers", "address without an end", "long address"],
    )
    def test_headers_are_bounded(self, port: int, head: bytes) -> None:
        heard = exchange(port, head)  # TimeoutError if nobody hangs up
        assert heard.startswith(b"HTTP/1.1 431 ") or heard == b""  # hanging up can overtake the answer

    def test_the_refusal_says_why(self, port: int) -> None:
        heard = exchange(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 3_000)
        assert heard.startswith(b"HTTP/1.1 431 ")
        assert json.loads(heard.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_large"

    def test_trailers_are_bounded(self, port: int) -> None:
        head = b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        heard = exchange(port, head, b"0\r\n", *[b"X-A: " + b"a" * 1_000 + b"\r\n"] * 100)  # TimeoutError if it is kept
        assert heard.count(b"200 OK") <= 1

    def test_what_fits_is_answered_and_the_connection_is_kept(self, port: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            for size in (10, 40_000, 10):
                assert client.get("/healthz", headers={"X-A": "a" * size}).status_code == 200
        plain = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert exchange(port, plain + plain[:9], plain[9:] + last).count(b"200 OK") == 3  # pipelined, in pieces

    @pytest.mark.parametrize(
        "start",
        [b"", b"GET /healthz HT", b"\r\n", b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"],
        ids=["nothing", "half a line", "empty lines", "half a body"],
    )
    def test_who_says_nothing_more_is_hung_up_on(
        self, port: int, start: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection, "HEADER_SECONDS", 0.3)
        monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.3)
        began = time.monotonic()
        exchange(port, start, patience=5.0)  # TimeoutError if nobody hangs up
        assert 0.2 < time.monotonic() - began < 4.0

    def test_a_slow_request_is_not_hung_up_on_before_time(self, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "HEADER_SECONDS", 1.0)
        with socket.create_connection(("127.0.0.1", port), timeout=5.0) as caller:
            for _ in range(2):
                for piece in (b"GET /healthz HTTP/1.1\r\n", b"Host: x\r\n", b"\r\n"):
                    caller.sendall(piece)
                    time.sleep(0.1)
                assert b"200 OK" in caller.recv(4_096)
                time.sleep(1.2)  # kept alive for longer than headers may take

    def test_connections_are_counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "SPARE_CONNECTIONS", 2)
        monkeypatch.setattr(run, "concurrent", lambda: 4)
        with _serving(settings(tmp_path)) as port, contextlib.ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            time.sleep(0.2)
            ask = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            assert exchange(port, ask).startswith(b"HTTP/1.1 503 ")
            for _ in range(2):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            time.sleep(0.2)
            assert exchange(port, ask) == b""

    def test_bodies_must_come_in_time(self) -> None:
        async def receive() -> Any:
            await asyncio.sleep(60.0)

        with pytest.raises(Problem) as refused:
            asyncio.run(limits.receive_body({"headers": []}, receive, 1_000, seconds=0.05))
        assert (refused.value.status, refused.value.code) == (408, "too_slow")


@contextlib.contextmanager
def _serving(settings: Settings) -> Iterator[int]:
    """As ``hushprice serve`` runs it, in a thread."""
    with contextlib.closing(run.listen("127.0.0.1", [0])) as listener:
        server = run._Server(run._config(settings, run.build(settings)), lambda: None)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            thread.join(20.0)


class TestSilence:
    SECRET = "customer-secret-0.31415926"

    def _failing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def start(_: Service) -> None:
            float(self.SECRET)

        monkeypatch.setattr(Service, "start", start)

    def test_a_start_that_fails_does_not_say_what_it_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._failing(monkeypatch)
        chosen = replace(settings(tmp_path), log_format="json")
        app = create_app(Service(Store.open(chosen.database)), chosen)
        stream = io.StringIO()
        app.state.context.log.handler.stream = stream

        async def start() -> None:
            async with app.router.lifespan_context(app):
                pass

        with pytest.raises(NotStarted) as failed:
            asyncio.run(start())
        app.state.context.service.stop()
        assert self.SECRET not in "".join(traceback.format_exception(failed.value))
        assert json.loads(stream.getvalue())["event"] == "not_started"
        assert self.SECRET not in stream.getvalue()

    def test_the_command_fails_too_and_says_what_to_do(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._failing(monkeypatch)
        monkeypatch.setattr(run, "log_libraries", lambda log: None)  # would change the loggers of all tests
        said: list[str] = []
        with pytest.raises(InvalidInput, match="did not start"):
            run.serve(replace(settings(tmp_path), port=0), say=said.append)
        assert not [line for line in said if "acknowledged" in line or "Open" in line]

    def test_of_uvicorn_only_what_is_known_is_passed_on(self) -> None:
        stream = io.StringIO()
        handler = Log("json", stream).handler
        for message in (f"Traceback: {self.SECRET}", "Application startup complete."):
            handler.emit(logging.LogRecord("uvicorn.error", logging.ERROR, "on.py", 1, message, (), None))
        handler.emit(logging.LogRecord("uvicorn.error", 40, "on.py", 1, ValueError(self.SECRET), (), None))
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        assert self.SECRET not in stream.getvalue()
        assert [line["event"] for line in lines] == ["server"] * 3
        assert [line.get("message") for line in lines] == [None, "Application startup complete.", None]


class TestNumbers:
    def test_what_is_not_finite_is_null(self) -> None:
        assert json.loads(answers.encoded({"a": [1.0, math.nan], "b": (math.inf,)})) == {"a": [1.0, None], "b": [None]}

    def test_a_summary_with_such_numbers_is_answered(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(routes_look, "summarise", lambda learner: {"mean": math.nan, "high": [math.inf, 1.0]})
        with demo.running(settings(tmp_path), [Definition.of("tea", TEA)]) as url:
            answer = httpx.get(f"{url}/v1/products/tea/summary", headers={"Authorization": f"Bearer {ADMIN}"})
        assert (answer.status_code, answer.json()) == (200, {"mean": None, "high": [None, 1.0]})
