"""Limits on a connection that apply before a key is checked: size of the headers, time, number of connections.

uvicorn limits neither the size of a request's headers nor the time in which it must arrive. Without these limits anyone
could fill the memory or hold connections open for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 1 << 16  # bytes of a request's line, headers and trailers, and of anything else that is no body
HEADER_OVERHEAD = 32  # bytes counted per header beyond its own, for the memory of the objects
HEADER_SECONDS = 15.0  # until all headers must have arrived
REQUEST_SECONDS = 45.0  # until the whole request must have arrived; ``rate_limits.receive_body`` gives up earlier
CONCURRENT = 2_000  # connections per process; requests on further ones are answered with 503
SPARE_CONNECTIONS = 64  # further connections, which can receive the 503; beyond them connections are closed at once
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b"
)
_WORDS = b'{"error":{"code":"too_large","message":"The address and the headers may have 65536 bytes together."}}'


class TooLong(Exception):
    """More than ``MAX_HEAD_BYTES`` bytes outside the body."""


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol with limits on the size of the headers and on time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0  # bytes of this request's line and headers that the parser has reported
        self._unparsed_bytes = 0  # bytes received since the parser's last callback
        self._in_head = True  # before a request's headers are complete
        self._in_request = False  # between the first and the last byte of a request
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or close it if there are too many."""
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency + SPARE_CONNECTIONS:
            transport.abort()
            return
        self._arm(HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data; refuse a request that is too long; start and stop the timer."""
        self._unparsed_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            self._disarm()
            return
        if self._unparsed_bytes > MAX_HEAD_BYTES:  # such as a header without an end
            self._refuse()
            return
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and not self._in_request:
            self._disarm()
        elif self._timer is None:
            in_request = HEADER_SECONDS if self._in_head else REQUEST_SECONDS
            self._arm(in_request if self._in_request else self.timeout_keep_alive)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._count()
        self._head_bytes, self._in_head, self._in_request = 0, True, True
        self._disarm()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the URL arrives."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header or a trailer arrives."""
        self._count(len(name) + len(value) + HEADER_OVERHEAD)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The headers are complete."""
        self._count()
        self._in_head = False
        self._disarm()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body arrives; ``receive_body`` counts its bytes."""
        self._count()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._count()
        self._in_request = False
        self._disarm()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not HTTP, and a request that is too long."""
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _count(self, size: int = 0) -> None:
        self._unparsed_bytes = 0
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise TooLong  # ends the parsing, see send_400_response

    def _refuse(self) -> None:
        self._disarm()
        if self.cycle is None or self.cycle.response_complete:  # otherwise it would end up inside a response
            self.transport.write(_REFUSAL % (len(_WORDS), _WORDS))
        self.transport.close()

    def _arm(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._too_late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        if self.pipeline:  # reading is paused until the previous request is answered
            self._arm(REQUEST_SECONDS)
        elif not self.transport.is_closing():
            self.transport.close()


def concurrent() -> int:
    """The number of connections that this process accepts: CONCURRENT, or fewer if the limit on open files is low."""
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows
        return CONCURRENT
    files, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONCURRENT + 2 * SPARE_CONNECTIONS
    if files != resource.RLIM_INFINITY and files < wanted:
        files = wanted if hard_limit == resource.RLIM_INFINITY else min(wanted, hard_limit)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard_limit))
    return CONCURRENT if files == resource.RLIM_INFINITY else max(16, min(CONCURRENT, files - 2 * SPARE_CONNECTIONS))
