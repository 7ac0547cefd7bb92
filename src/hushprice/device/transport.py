"""How a device talks to the service: HTTP by the standard library, and retries."""

from __future__ import annotations

import http.client
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from hushprice.errors import HushpriceError, InvalidInput, finite, positive_int

LARGEST_ANSWER = 1 << 22  # bytes
BUSY = (408, 425, 429, 500, 502, 503, 504)  # statuses after which the same request may succeed


class Unreachable(HushpriceError):
    """The service did not answer, or is busy. Reports wait for the next attempt."""


class Answer(NamedTuple):
    """An HTTP response.

    Attributes
    ----------
    status : int
        Status code.
    headers : mapping of str
        Headers, with names in lower case.
    body : bytes
        Body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Sends requests."""

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """Send a request.

        Parameters
        ----------
        method, path : str
            Method, and path below the address of the service.
        headers : mapping of str
            Headers.
        body : bytes or None
            Body.

        Returns
        -------
        Answer

        Raises
        ------
        Unreachable
            If there is no answer.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Address(NamedTuple):
    """The address of a service."""

    scheme: str
    host: str
    port: int
    base: str  # prefix of all paths, without a slash at the end

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}{self.base}"


def address_of(url: str) -> Address:
    """Parse an address. Different spellings of one address give equal results.

    Examples
    --------
    >>> str(address_of("https://Prices.example.com/")), str(address_of("https://prices.example.com:443"))
    ('https://prices.example.com:443', 'https://prices.example.com:443')
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except (TypeError, ValueError, AttributeError):
        parts, port = None, None
    if parts is None or parts.scheme not in ("http", "https") or not isinstance(parts.hostname, str):
        raise InvalidInput("url must be the address of a service, as in https://prices.example.com.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidInput("url must be an address alone: a key is given as key=, and nothing follows the path.")
    default = 443 if parts.scheme == "https" else 80
    return Address(parts.scheme, parts.hostname, default if port is None else port, parts.path.rstrip("/"))


class HttpTransport:
    """HTTP/1.1 over one persistent connection, with TLS for https addresses. It follows no redirects.

    Parameters
    ----------
    url : str
        Address of the service.
    timeout : float
        Seconds that a request may take in all.
    """

    def __init__(self, url: str, *, timeout: float = 10.0) -> None:
        scheme, self._host, self._port, self._base = address_of(url)
        self._secure = scheme == "https"
        self._timeout = finite("timeout", timeout, minimum=0.0, maximum=3600.0, strict=True)
        self._connection: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """Send a request and return the answer.

        Parameters
        ----------
        method, path : str
            Method, and path below the base URL.
        headers : mapping of str to str
            Headers.
        body : bytes or None
            Body, if the request has one.

        Returns
        -------
        Answer
            Status, headers and body.
        """
        with self._lock:
            if self._connection is not None:  # the server may have closed it meanwhile
                try:
                    return self._exchange(self._connection, method, path, headers, body)
                except (OSError, http.client.HTTPException):
                    self._close()
            self._connection = self._connect()
            try:
                return self._exchange(self._connection, method, path, headers, body)
            except (OSError, http.client.HTTPException) as problem:
                self._close()
                raise Unreachable(f"The service at {self._host} does not answer ({type(problem).__name__}).") from None

    def _connect(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Answer:
        with _deadline(connection, self._timeout):
            connection.request(method, self._base + path, body=body, headers=dict(headers))
            response = connection.getresponse()
            content = response.read(LARGEST_ANSWER + 1)
        if len(content) > LARGEST_ANSWER:
            raise http.client.HTTPException
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, content)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        with self._lock:
            self._close()

    def __repr__(self) -> str:
        return f"<HttpTransport to {self._host}>"


@contextmanager
def _deadline(connection: http.client.HTTPConnection, seconds: float) -> Iterator[None]:
    """Abort an exchange that takes longer in all.

    A socket's timeout applies to each read: a server that sends a byte now and then would block a device for ever.
    """
    over = threading.Event()

    def hang_up() -> None:
        over.set()
        if connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if over.is_set():
        raise TimeoutError


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Repeats a request, with exponential backoff or the service's Retry-After in between.

    Parameters
    ----------
    attempts : int
        Number of attempts.
    first : float
        Seconds to wait after the first attempt, up to a random factor between 0.5 and 1.5. The wait doubles each time.
    most : float
        Longest wait in seconds.
    sleep : callable
        Waits for a number of seconds.
    """

    attempts: int = 4
    first: float = 0.2
    most: float = 5.0
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        positive_int("attempts", self.attempts)
        finite("first", self.first, minimum=0.0)
        finite("most", self.most, minimum=0.0)

    def run(self, once: Callable[[], Answer]) -> Answer:
        """Return the first answer whose status is not one of ``BUSY``; raise :class:`Unreachable` if there is none.

        Parameters
        ----------
        once : callable
            Makes one attempt and returns its answer.
        """
        for attempt in range(self.attempts):
            try:
                answer = once()
            except Unreachable:
                if attempt + 1 == self.attempts:
                    raise
                self._wait(attempt, None)
                continue
            if answer.status not in BUSY:
                return answer
            if attempt + 1 < self.attempts:
                self._wait(attempt, answer.headers.get("retry-after"))
        raise Unreachable(f"The service is busy: status {answer.status} after {self.attempts} attempts.")

    def _wait(self, attempt: int, retry_after: str | None) -> None:
        pause = self.first * 2.0**attempt * (0.5 + random.random())  # jitter: devices that failed together spread out
        if retry_after is not None and retry_after.isdecimal() and len(retry_after) < 6:
            pause = max(pause, float(retry_after))
        self.sleep(min(pause, self.most))
