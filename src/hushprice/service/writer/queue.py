"""The queue of commands: any thread adds them, the writer's thread takes all that wait."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, Protocol, TypeVar

from hushprice.service.errors import Unavailable


class Weighty(Protocol):
    """A command that counts as ``weight`` items."""

    @property
    def weight(self) -> int: ...


W = TypeVar("W", bound=Weighty)


class CommandQueue(Generic[W]):
    """A queue of commands that refuses further ones when it is full.

    Parameters
    ----------
    room : int
        How many items may wait.
    """

    def __init__(self, room: int) -> None:
        self._room, self._items, self._closed = room, 0, False
        self._waiting: deque[W] = deque()
        self._changed = threading.Condition()

    def put(self, command: W) -> None:
        """Add a command; raise Unavailable if the queue is full or closed."""
        with self._changed:
            if self._closed:
                raise Unavailable("The service is being stopped. Nothing was acknowledged: try again.")
            if self._waiting and self._items + command.weight > self._room:
                raise Unavailable("More is waiting to be written than there is room for. Try again in a moment.")
            self._items += command.weight
            self._waiting.append(command)
            self._changed.notify()

    def take(self, *, most: int, timeout: float) -> list[W]:
        """Take the waiting commands, up to ``most`` items; none after the timeout, or if closed and empty."""
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
        """Refuse further commands; waiting ones can still be taken."""
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
