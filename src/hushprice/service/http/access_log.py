"""Structured logs on standard error by the standard library's logging: one JSON object per event and line, or text.

A line holds what the service itself knows: time, level, event, route template, status, milliseconds, name of the key.
It never holds a path, a query, a header, a body or the text of an exception, any of which may contain a customer's
data. Of an exception it holds the type and the place in the code.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import nullcontext
from functools import lru_cache
from logging.handlers import BufferingHandler
from typing import Any, TextIO

import msgspec

from hushprice.service.settings import LogFormat

FLUSH = 0.1  # seconds: lines of requests are written together
CAPACITY = 1_000  # lines of requests that wait at most
# Messages of uvicorn about itself. It also logs texts of exceptions, which are not passed on.
KNOWN_MESSAGES = (
    "Started ", "Finished ", "Stopping ", "Shutting down", "Waiting for ", "Application ", "Uvicorn running on ",
    "Received SIG", "Child process ", "New child process ", "Terminated child process ", "Cancel ",
    "Invalid HTTP request", "Unsupported upgrade request", "Exceeded concurrency limit",
)  # fmt: skip


class Event(logging.LogRecord):
    """A record of our own, all of whose fields may be written.

    It holds what :class:`EventFormatter` reads. The constructor of ``LogRecord`` also asks for the thread, the process
    and the task, which takes half of the time of a line.
    """

    def __init__(self, event: str, level: int, fields: Mapping[str, Any]) -> None:
        self.name, self.msg, self.args, self.exc_info = "hushprice", event, (), None
        self.levelno, self.levelname = level, logging.getLevelName(level)
        self.created = time.time()
        self.fields = fields


class EventFormatter(logging.Formatter):
    """Writes the fields of a record that may be written, as JSON or as text."""

    def __init__(self, form: LogFormat) -> None:
        super().__init__()
        self.form = form

    def format(self, record: logging.LogRecord) -> str:
        """Write a line."""
        event, fields = _fields(record)
        when, level = _time(record.created), record.levelname.lower()
        if self.form == "json":
            return _encode({"time": when, "level": level, "event": event, **fields}).decode()
        if event == "request":
            key = f" key={fields['key']}" if "key" in fields else ""
            return f"{when} {level:7} {fields['method']} {fields['route']} {fields['status']} {fields['ms']} ms{key}"
        rest = " ".join(f"{name}={value}" for name, value in fields.items())
        return f"{when} {level:7} {event} {rest}".rstrip()


_encode = msgspec.json.Encoder().encode
_MILLISECONDS = [f".{k:03d}Z" for k in range(1_000)]  # a third of the time of formatting the number


def _time(created: float) -> str:
    """The time in ISO 8601.

    >>> _time(1_700_000_000.25)
    '2023-11-14T22:13:20.250Z'
    """
    second, millisecond = divmod(int(1e3 * created), 1_000)
    return _second(second) + _MILLISECONDS[millisecond]


@lru_cache(maxsize=4)
def _second(created: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))


def _fields(record: logging.LogRecord) -> tuple[str, Mapping[str, Any]]:
    """The name of an event and its fields; of a record from a library without texts that may contain values."""
    if isinstance(record, Event):
        return record.msg, record.fields
    event = "server" if record.name.startswith("uvicorn") else record.name
    if record.exc_info and record.exc_info[1] is not None:
        return event, _exception(record.exc_info[1])
    known = event == "server" and isinstance(record.msg, str) and record.msg.startswith(KNOWN_MESSAGES)
    if known or event.startswith("hushprice."):  # texts of our own contain no values
        return event, {"message": record.getMessage()}
    return event, {"at": f"{record.module}:{record.lineno}"}


def _exception(problem: BaseException) -> dict[str, Any]:
    """The type of an exception and where it was raised, not its text."""
    frames = traceback.extract_tb(problem.__traceback__)
    places = [f"{frame.filename.rpartition('site-packages/')[2]}:{frame.lineno}" for frame in frames[-4:]]
    fields = {"error": type(problem).__name__, "at": places}
    return fields if problem.__cause__ is None else {**fields, "cause": type(problem.__cause__).__name__}


class Buffer(BufferingHandler):
    """Holds lines of requests back for a moment and writes them together; writes everything else at once."""

    def __init__(self, form: LogFormat, stream: TextIO) -> None:
        super().__init__(CAPACITY)
        self.setFormatter(EventFormatter(form))
        self.stream = stream

    def shouldFlush(self, record: logging.LogRecord) -> bool:  # noqa: N802 (the standard library's name)
        """Whether to write now."""
        return not (isinstance(record, Event) and record.msg == "request") or len(self.buffer) >= self.capacity

    def flush(self) -> None:
        """Write what is held back."""
        with self.lock or nullcontext():
            lines = [self.format(record) + "\n" for record in self.buffer]
            self.buffer.clear()
            if lines:
                self.stream.write("".join(lines))
                self.stream.flush()


class Log:
    """The log of one application.

    Parameters
    ----------
    form : {"json", "text", "none"}
        How lines are written. Text leaves out requests that only read and succeed.
    stream : file, optional
        Where they are written; standard error unless given.
    """

    def __init__(self, form: LogFormat = "json", stream: TextIO | None = None) -> None:
        self.form = form
        self.handler = Buffer(form, sys.stderr if stream is None else stream)
        self._timer: asyncio.TimerHandle | None = None

    def event(self, event: str, *, level: int = logging.INFO, **fields: Any) -> None:
        """Log an event, now."""
        if self.form != "none":
            self.handler.handle(Event(event, level, fields))

    def failure(self, event: str, problem: BaseException, **fields: Any) -> None:
        """Log an exception."""
        self.event(event, level=logging.ERROR, **_exception(problem), **fields)

    def request(self, method: str, route: str, status: int, seconds: float, key: str | None) -> None:
        """Log a request; written within ``FLUSH`` seconds, together with others."""
        only_read = method in ("GET", "HEAD") and status < 400  # as the page does every other second
        if self.form == "none" or (self.form == "text" and only_read):
            return
        level = logging.INFO if status < 400 else logging.WARNING if status < 500 else logging.ERROR
        fields = {"method": method, "route": route, "status": status, "ms": round(seconds * 1e3, 2)}
        self.handler.handle(Event("request", level, fields if key is None else {**fields, "key": key}))
        if self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(FLUSH, self.flush)
            except RuntimeError:
                self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        self._timer = None
        self.handler.flush()


def log_libraries(log: Log) -> None:
    """Write what libraries log: warnings and worse, and uvicorn's news."""
    root = logging.getLogger()
    root.handlers[:] = [] if log.form == "none" else [log.handler]
    root.setLevel(logging.WARNING)
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.propagate = True
        logger.setLevel(logging.INFO)
    access = logging.getLogger("uvicorn.access")
    access.handlers[:] = []
    access.propagate = False
    access.disabled = True
