"""Work on a stream by several threads, in order and in bounded memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(function: Callable[[T], R], items: Iterable[T], *, workers: int | None = None) -> Iterator[R]:
    """``map`` by threads: the results in the order of the items, of which only a few are held at a time.

    The items are drawn by the caller's thread while the others work.

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
