"""Commands on their way to the writer: any thread puts them in, one takes all that wait."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, Protocol, TypeVar

from hushprice.service.errors import Unavailable


class Weighty(Protocol):
    """Something that counts as so many items."""

    @property
    def weight(self) -> int: ...


W = TypeVar("W", bound=Weighty)


class CommandQueue(Generic[W]):
    """A queue with room for so many items; who finds it full is told to come back."""

    def __init__(self, room: int) -> None:
        self._room, self._items, self._closed = room, 0, False
        self._waiting: deque[W] = deque()
        self._changed = threading.Condition()

    def put(self, command: W) -> None:
        """Leave a command; Unavailable if there is no room, or no writer any more."""
        with self._changed:
            if self._closed:
                raise Unavailable("The service is being stopped. Nothing was acknowledged: try again.")
            if self._waiting and self._items + command.weight > self._room:
                raise Unavailable("More is waiting to be written than there is room for. Try again in a moment.")
            self._items += command.weight
            self._waiting.append(command)
            self._changed.notify()

    def take(self, *, most: int, timeout: float) -> list[W]:
        """All that waits, up to so many items; nothing if nothing comes in time, or the queue is closed and empty."""
        with self._changed:
            if not self._waiting and not self._closed:
                self._changed.wait(timeout)
            taken: list[W] = []
            items = 0
            while self._waiting and (not taken or items + self._waiting[0].weight <= most):
                taken.append(self._waiting.popleft())
                items += taken[-1].weight
            self._items -= items
            return taken

    def close(self) -> None:
        """Take nothing in any more; what waits can still be taken out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Whether it is closed and empty."""
        with self._changed:
            return self._closed and not self._waiting

    def __len__(self) -> int:
        return len(self._waiting)
