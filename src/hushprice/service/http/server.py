"""Run the service in this process, or in several worker processes behind one port.

A single worker is this process. Several are started by uvicorn, which replaces a worker that dies; they read their
settings from the environment (``Settings.environment``). SIGTERM and SIGINT shut the service down gracefully: it
accepts no new connections, answers requests under way, commits accepted events, and writes a snapshot.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.supervisors import Multiprocess

from hushprice.errors import InvalidInput
from hushprice.service.definition import Definition, read_products
from hushprice.service.demo.products import COFFEE
from hushprice.service.http.access_log import Log, log_libraries
from hushprice.service.http.app import create_app
from hushprice.service.http.metrics import MULTIPROCESS
from hushprice.service.http.protocol_limits import Connection, concurrent
from hushprice.service.settings import Settings, StartKey, new_secret, redacted_url
from hushprice.service.storage.store import Store
from hushprice.service.writer.service import Service

Say = Callable[[str], None]
TOY = "demo-coffee"  # the product of a service that has none; an unlikely name for a real one
SHUTDOWN_GRACE = 20  # seconds for requests under way


def serve(settings: Settings, *, say: Say = print, as_json: bool = False) -> None:
    """Run the service until it is stopped; print its addresses.

    Parameters
    ----------
    settings : Settings
        How the service runs.
    say : callable
        Prints a line.
    as_json : bool
        Whether to print one JSON object instead of text.

    Raises
    ------
    InvalidInput
        If the port is taken, or the settings do not fit the database.
    """
    load(settings)
    with closing(listen(settings.host, [settings.port])) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        with closing(Store.open(settings.database)) as store:
            check_workers(settings, store)
            messages = prepare(settings, store)
            settings, key = _session(settings, store)
        start = _started(settings, key, messages)
        announce: Callable[[], None] = (
            partial(say, json.dumps(start)) if as_json else partial(_announce, start, settings, say)
        )
        if settings.workers > 1:
            _many(settings, listener, announce)
        else:
            with patience((lambda _: None) if as_json else say) as ready:

                def started() -> None:
                    ready()
                    announce()

                _one(settings, listener, started)
    if not as_json:
        say("Stopped. Everything that was acknowledged is in the database.")


def load(settings: Settings) -> None:
    """Run the file that registers the user's own policies, if the settings name one. Every process must call this."""
    if settings.load is not None:
        from hushprice.studies.spec_strings import load_policies

        load_policies(Path(settings.load))


@contextmanager
def patience(say: Say, seconds: float = 2.0) -> Iterator[Callable[[], None]]:
    """Print what takes so long, unless the yielded function is called within ``seconds``."""
    timer = threading.Timer(seconds, say, ["Getting ready: the first time, compiling takes up to half a minute ..."])
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


def check_workers(settings: Settings, store: Store) -> None:
    """Refuse several workers on a database that does not support them."""
    if settings.workers > 1 and not store.shared:
        raise InvalidInput(
            "Several workers need a database that can take them: PostgreSQL, as in --database "
            "postgresql://user:password@host/name. With SQLite use --workers 1, which is the default."
        )


def prepare(settings: Settings, store: Store) -> list[str]:
    """Add the products of the file to the database, or a demo product if it has none; return messages for the user."""
    messages = []
    if settings.products is not None:
        for definition in read_products(settings.products):
            if store.add_product(definition):
                messages.append(f"New product {definition.name}.")
    elif not store.names():
        store.add_product(Definition.of(TOY, COFFEE))
        messages.append(f"No products yet, so here is one to play with: {TOY} (private). Define yours with --products.")
    return messages


def _session(settings: Settings, store: Store) -> tuple[Settings, str | None]:
    """Settings with the keys of this session, and the secret of its admin key (None if there is an admin key already).

    The demo shop has a device key. It is open if requested, and if the only product is the demo product and only this
    machine can connect.
    """
    demo_only = settings.local and store.names() == [TOY]
    if (settings.shop or demo_only) and settings.shop_key is None:
        settings = settings.with_shop()
    table = store.keys()
    stored = any(key.role == "admin" and key.revoked is None for key in table)
    if stored or any(key.role == "admin" for key in settings.keys):
        return settings, None
    secret = new_secret("admin")
    return replace(settings, keys=(*settings.keys, StartKey.of("session", "admin", secret))), secret


def listen(host: str, ports: Sequence[int]) -> socket.socket:
    """Open a socket on the first free one of these ports; :class:`InvalidInput` if none is free."""
    for port in ports:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as problem:
            listener.close()
            if problem.errno not in (98, 48, 10048):  # EADDRINUSE on Linux, macOS, Windows
                raise InvalidInput(
                    f"Cannot listen on {host}, port {port}: {problem.strerror}. See --host and --port."
                ) from None
        except OverflowError:
            listener.close()
            raise InvalidInput("port must be between 0 and 65535; 0 takes any that is free.") from None
        else:
            listener.set_inheritable(True)
            return listener
    taken = f"Port {ports[0]} of {host} is" if len(ports) == 1 else f"Ports {ports[0]} to {ports[-1]} of {host} are all"
    raise InvalidInput(f"{taken} taken: choose another with --port, or --port 0 for any that is free.")


def _started(settings: Settings, key: str | None, messages: list[str]) -> dict[str, Any]:
    host = "127.0.0.1" if settings.host == "0.0.0.0" else "[::1]" if settings.host == "::" else settings.host
    url = f"http://[{host}]:{settings.port}" if ":" in host and "[" not in host else f"http://{host}:{settings.port}"
    return {
        "url": url,
        "port": settings.port,
        "pid": os.getpid(),
        "database": redacted_url(settings.database),
        "workers": settings.workers,
        "key": key,
        "shop": f"{url}/shop" if settings.shop else None,
        "said": messages,
    }


def _announce(start: dict[str, Any], settings: Settings, say: Say) -> None:
    for line in start["said"]:
        say(line)
    workers = "" if settings.workers == 1 else f", {settings.workers} workers"
    say(f"hushprice serves {start['database']}{workers}.")
    if start["key"] is None:
        say(f"Open      {start['url']}/ and give one of your keys.")
    else:
        say(f"Open      {start['url']}/#key={start['key']}")
        say("          (an admin key for this session; 'hushprice keys add' makes lasting ones)")
    if start["shop"]:
        say(f"Shop      {start['shop']}")
    say(f"API       {start['url']}/openapi.json")
    if not settings.local:
        say("Careful   this is reachable from other machines without encryption: put an HTTPS proxy in front.")
    say("Stop      Ctrl+C")


def _config(settings: Settings, app: Starlette | str) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        workers=settings.workers,
        loop="uvloop" if find_spec("uvloop") else "asyncio",
        http=Connection,
        limit_concurrency=concurrent(),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_GRACE,
        timeout_keep_alive=65,  # longer than proxies keep theirs, so that these close first
    )


class _Server(uvicorn.Server):
    """A server that calls ``announce`` when it listens."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self.announce, self.interrupted = announce, False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully; before it listens, at once, as nothing was acknowledged and compiling takes a while."""
        if not self.started:
            self.interrupted = True
            raise KeyboardInterrupt
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then announce it."""
        await super().startup(sockets)
        if self.started:
            self.announce()


def build(settings: Settings, *, started: Callable[[], None] = lambda: None) -> Starlette:
    """Make the application over the database of the settings; ``started`` is called when it is ready."""
    store = Store.open(settings.database)
    service = Service(store, snapshot_every=settings.snapshot_every, recent_keys=settings.recent_keys)
    return create_app(service, settings, started=started)


def settle() -> None:
    """Freeze long-lived objects so that the garbage collector skips them, and let it run less often: batches of reports
    hold thousands of objects and no cycle."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def worker() -> Starlette:
    """What each worker process runs: ``uvicorn --factory hushprice.service.http.server:worker``."""
    settings = Settings.from_environment()
    load(settings)
    log_libraries(Log(settings.log_format))
    return build(settings, started=settle)


def _one(settings: Settings, listener: socket.socket, announce: Callable[[], None]) -> None:
    log_libraries(Log(settings.log_format))
    with _signals_ignored():
        server = _Server(_config(settings, build(settings, started=settle)), announce)
        try:
            server.run([listener])
        except (SystemExit, KeyboardInterrupt):  # raised by uvicorn for the same reason
            if server.started:
                raise
    if not server.started and not server.interrupted:
        raise InvalidInput(
            "The service did not start: the log above says where it failed. 'hushprice verify' checks what is in the "
            "database."
        )


def _many(settings: Settings, listener: socket.socket, announce: Callable[[], None]) -> None:
    folder = tempfile.mkdtemp(prefix="hushprice-metrics-")
    before = dict(os.environ)
    os.environ.update({**settings.environment(), MULTIPROCESS: folder})
    log_libraries(Log(settings.log_format))
    try:
        listener.listen(2_048)  # connections wait in this queue until the workers are up
        announce()
        with _signals_ignored():
            Multiprocess(_config(settings, "hushprice.service.http.server:worker"), [listener]).run()
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM outside uvicorn, which raises the signal that stopped it again after its shutdown."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: None) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
