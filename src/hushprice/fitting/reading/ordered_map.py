"""Map a function over a stream by several threads, in order and in bounded memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(function: Callable[[T], R], items: Iterable[T], *, workers: int | None = None) -> Iterator[R]:
    """``map`` by threads: results in the order of the items, only a few of which are in memory at a time.

    The caller's thread iterates over the items while the other threads work.

    Examples
    --------
    >>> list(in_order(lambda x: x * x, range(5)))
    [0, 1, 4, 9, 16]
    """
    threads = workers or os.cpu_count() or 1
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                while len(waiting) > threads + 1 or (waiting and waiting[0].done()):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
