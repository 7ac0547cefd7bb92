"""A connection that cannot be used to fill the memory or to hold a place for ever, by anyone, before any key is asked.

uvicorn bounds neither the headers of a request nor the time that it may take to come in. Here both are bounded, and the
connections that a process takes at once.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 1 << 16  # bytes of a request's line, headers and trailers, and of anything else that is no body
EACH = 32  # bytes that a header counts for beyond its own: what it takes to keep
HEADER_SECONDS = 15.0  # seconds until the headers are here
REQUEST_SECONDS = 45.0  # seconds until the whole request is here; ``rate_limits.receive_body`` gives up earlier
CONCURRENT = 2_000  # connections to a process; one more is answered with 503
SPARE_CONNECTIONS = (
    64  # connections beyond, which are told so, or that wait with their first request; the next is hung up on
)
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b"
)
_WORDS = b'{"error":{"code":"too_large","message":"The address and the headers may have 65536 bytes together."}}'


class TooLong(Exception):
    """More than ``MAX_HEAD_BYTES`` bytes that are no body."""


class Connection(HttpToolsProtocol):
    """uvicorn's, with limits."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._head = 0  # bytes of this request's line and headers that were told
        self._untold = 0  # bytes that came in since the parser last told anything
        self._heading = True  # before a request's headers are complete
        self._open = False  # in the midst of a request
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or hang up if there are too many."""
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency + SPARE_CONNECTIONS:
            transport.abort()
            return
        self._arm(HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came; refuse what is too long; start and stop the clock."""
        self._untold += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            self._disarm()
            return
        if self._untold > MAX_HEAD_BYTES:  # a header, or the like, without an end
            self._refuse()
            return
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and not self._open:
            self._disarm()
        elif self._timer is None:
            self._arm((HEADER_SECONDS if self._heading else REQUEST_SECONDS) if self._open else self.timeout_keep_alive)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._told()
        self._head, self._heading, self._open = 0, True, True
        self._disarm()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A piece of the address."""
        self._told(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        self._told(len(name) + len(value) + EACH)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The headers are here."""
        self._told()
        self._heading = False
        self._disarm()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body, which is counted where it is read."""
        self._told()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is here."""
        self._told()
        self._open = False
        self._disarm()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, and what is too long."""
        if self._head > MAX_HEAD_BYTES:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _told(self, size: int = 0) -> None:
        self._untold = 0
        self._head += size
        if self._head > MAX_HEAD_BYTES:
            raise TooLong  # ends the parsing, see send_400_response

    def _refuse(self) -> None:
        self._disarm()
        if self.cycle is None or self.cycle.response_complete:  # otherwise it would come in the middle of an answer
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
        if self.pipeline:  # reading is paused until the request before is answered
            self._arm(REQUEST_SECONDS)
        elif not self.transport.is_closing():
            self.transport.close()


def concurrent() -> int:
    """How many connections this process can take: CONCURRENT, or fewer if the system gives it fewer files."""
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows
        return CONCURRENT
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONCURRENT + 2 * SPARE_CONNECTIONS
    if files != resource.RLIM_INFINITY and files < wanted:
        files = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    return CONCURRENT if files == resource.RLIM_INFINITY else max(16, min(CONCURRENT, files - 2 * SPARE_CONNECTIONS))
