"""Limits on callers: requests per second, bytes per body, seconds per answer."""

from __future__ import annotations

import asyncio
import ipaddress
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from hushprice.service.http.responses import Problem, retry_later

T = TypeVar("T")
MOST_BUCKETS = 20_000
BODY_SECONDS = 30.0  # until a body must have arrived


class Buckets:
    """A token bucket per key or address.

    Parameters
    ----------
    rate : float
        Tokens per second; 0 for no limit.
    burst : float
        Tokens in a full bucket.
    clock : callable
        Returns seconds; for tests.

    Examples
    --------
    >>> buckets = Buckets(rate=2.0, burst=1.0, clock=iter([0.0, 0.0, 0.5]).__next__)
    >>> buckets.take("a"), buckets.take("a"), buckets.take("a")
    (0.0, 0.5, 0.0)
    """

    def __init__(self, *, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst = rate, max(1.0, burst)
        self._clock = clock
        self._levels: dict[str, tuple[float, float]] = {}  # tokens, when

    def take(self, who: str) -> float:
        """Take a token: 0.0 if there was one, otherwise the seconds until there is."""
        if self.rate == 0.0:
            return 0.0
        now = self._clock()
        level, since = self._levels.get(who, (self.burst, now))
        level = min(self.burst, level + self.rate * (now - since))
        if level < 1.0:
            return (1.0 - level) / self.rate
        self._levels[who] = (level - 1.0, now)
        if len(self._levels) > MOST_BUCKETS:
            self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        """Drop full buckets; if none is full, the older half."""
        full = [who for who, (level, since) in self._levels.items() if level + self.rate * (now - since) >= self.burst]
        for who in full or list(self._levels)[: MOST_BUCKETS // 2]:
            del self._levels[who]


class Rates:
    """Limits on the requests per key in this process.

    Everyone who opens the shop has its device key, so its rate applies per address: no single address can exhaust it
    for the others. All addresses together may make ``CROWD`` times as many requests, which limits the abuse of a leaked
    key.
    """

    CROWD = 10.0

    def __init__(self, *, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._own = Buckets(rate=rate, burst=burst, clock=clock)
        self._crowd = Buckets(rate=self.CROWD * rate, burst=self.CROWD * burst, clock=clock)

    def check(self, key: str, address: str, *, shared: bool) -> None:
        """Raise a :class:`Problem` if a key exceeds its rate; ``shared`` for the key of devices."""
        check_rate(self._own, f"{key} {address}" if shared else key)
        if shared:
            check_rate(self._crowd, key)


def address_group(host: str) -> str:
    """The part of an address that is counted: of IPv6 the /64 network, in which one host can use any address.

    >>> address_group("203.0.113.7"), address_group("2001:db8:1:2:3:4:5:6")
    ('203.0.113.7', '2001:db8:1:2::/64')
    """
    return _network(host) if ":" in host else host


@lru_cache(maxsize=4_096)
def _network(host: str) -> str:
    try:
        return str(ipaddress.IPv6Network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


def check_rate(buckets: Buckets, who: str) -> None:
    """Raise a :class:`Problem` if the rate is exceeded."""
    seconds = buckets.take(who)
    if seconds > 0.0:
        raise retry_later(
            429, "too_many", "Too many requests: wait, and send reports and outcomes in batches.", seconds
        )


async def receive_body(scope: Scope, receive: Receive, limit: int, seconds: float = BODY_SECONDS) -> bytes:
    """Read a body of at most ``limit`` bytes; 408 if it does not arrive in time, 413 if it is larger."""
    try:
        async with asyncio.timeout(seconds):
            return await _receive_body(scope, receive, limit)
    except TimeoutError:
        text = f"The body did not come within {seconds:g} seconds: send it again."
        raise Problem(408, "too_slow", text, headers={"Connection": "close"}) from None


async def _receive_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-length" and (not value.isdigit() or len(value) > 18 or int(value) > limit):
            raise _too_large(limit)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False) and len(body) <= limit:
        return body  # in one piece, as almost always
    parts, size = [body], len(body)
    while message.get("more_body", False) and size <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
    if size > limit:
        raise _too_large(limit)
    return b"".join(parts)


def _too_large(limit: int) -> Problem:
    text = f"The body has more than {limit} bytes: send smaller batches."
    return Problem(413, "too_large", text, headers={"Connection": "close"})


class Waiter:
    """Waits on the event loop for results of the writer's thread.

    The writer sets the results of all commands of a transaction in a row. ``asyncio.wrap_future`` would wake the loop
    for each of them; here the first one wakes the loop, which then handles all of them.

    Parameters
    ----------
    patience : float
        Seconds to wait at most.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._finished: _Finished | None = None

    async def result(self, future: Future[T]) -> T:
        """Return the result; 503 if it does not come in time. (The command may still run: retries are harmless.)"""
        if not future.done():
            loop = asyncio.get_running_loop()
            finished = self._finished
            if finished is None or finished.loop is not loop:  # a process has one loop; tests use several in turn
                finished = self._finished = _Finished(loop)
            waiting: asyncio.Future[None] = loop.create_future()
            future.add_done_callback(partial(finished.put, waiting))
            timer = loop.call_later(self.patience, _resolve, waiting)
            try:
                await waiting
            finally:
                timer.cancel()
            if not future.done():
                future.cancel()
                raise retry_later(
                    503, "busy", "The database did not answer in time. The same ids can be sent again.", 2
                )
        return future.result()


class _Finished:
    """Waiting futures whose results are ready, but which the event loop has not resolved yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._lock = threading.Lock()
        self._waiting: list[asyncio.Future[None]] = []

    def put(self, waiting: asyncio.Future[None], _: Future[Any]) -> None:
        """Called by the writer's thread."""
        with self._lock:
            self._waiting.append(waiting)
            first = len(self._waiting) == 1
        if first:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self.loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        with self._lock:
            ready, self._waiting = self._waiting, []
        for waiting in ready:
            _resolve(waiting)


def _resolve(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
