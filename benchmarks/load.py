"""A load of HTTP requests over persistent connections, with little work per request, so that the server is measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

Requests = Callable[[], Iterator[bytes]]
"""The requests of one connection, one after the other, each made when it is to be sent."""


@dataclass
class Load:
    """What came of it."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    refused: dict[int, int] = field(default_factory=dict)  # answers other than 2xx, by status

    @property
    def rate(self) -> float:
        """Requests answered well, a second."""
        return len(self.latencies) / self.seconds

    def percentile(self, q: float) -> float:
        """Milliseconds that a share q of the requests waited at most."""
        return 1e3 * float(np.quantile(self.latencies, q))


def joined(loads: list[Load]) -> Load:
    """Several turns as one."""
    together = Load()
    for load in loads:
        together.seconds += load.seconds
        together.latencies += load.latencies
        for status, n in load.refused.items():
            together.refused[status] = together.refused.get(status, 0) + n
    return together


def post(path: str, key: str, body: str) -> bytes:
    """A POST request with a JSON body."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


async def _drive(port: int, requests: Iterator[bytes], until: float, load: Load) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in requests:
        began = time.perf_counter()
        if began >= until:
            break
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        place = head.lower().index(b"content-length:") + 15
        await reader.readexactly(int(head[place : head.index(b"\r\n", place)]))
        if status < 300:
            load.latencies.append(time.perf_counter() - began)
        else:
            load.refused[status] = load.refused.get(status, 0) + 1
    writer.close()


def drive(port: int, requests: Requests, *, connections: int, seconds: float) -> Load:
    """Send requests over so many connections at once, each waiting for an answer before its next."""

    async def all_of_them() -> Load:
        load = Load()
        began = time.perf_counter()
        await asyncio.gather(*(_drive(port, requests(), began + seconds, load) for _ in range(connections)))
        load.seconds = time.perf_counter() - began
        return load

    try:
        import uvloop

        return uvloop.run(all_of_them())
    except ImportError:  # not on Windows
        return asyncio.run(all_of_them())
