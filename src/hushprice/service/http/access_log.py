"""Structured logs on standard error: a line of JSON an event, or text for people, without what is only looked at.

A line holds what the service knows by itself: time, level, event, route template, status, milliseconds, name of the
key. It never holds a path, a query, a header, a body or the text of an exception, any of which may hold a customer's
data. Of a failure it tells the type and the place in the code.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
import traceback
from typing import Any, TextIO

from hushprice.service.settings import LogFormat

FLUSH = 0.1  # seconds: lines of requests are written together


class Log:
    """Where events are told."""

    def __init__(self, form: LogFormat = "json", stream: TextIO | None = None) -> None:
        self.form = form
        self._stream = stream
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None

    def event(self, event: str, *, level: str = "info", **told: Any) -> None:
        """Tell an event, now."""
        if self.form != "none":
            self._keep(self._line(event, level, told))
            self.flush()

    def failure(self, event: str, problem: BaseException, **told: Any) -> None:
        """Tell of an exception: its type and where it was raised, not its text."""
        frames = traceback.extract_tb(problem.__traceback__)
        places = [f"{frame.filename.rpartition('site-packages/')[2]}:{frame.lineno}" for frame in frames[-4:]]
        if problem.__cause__ is not None:
            told["cause"] = type(problem.__cause__).__name__
        self.event(event, level="error", error=type(problem).__name__, at=places, **told)

    def request(self, method: str, route: str, status: int, seconds: float, key: str | None) -> None:
        """Tell of a request; written within ``FLUSH`` seconds, together with others."""
        looked = method in ("GET", "HEAD") and status < 400  # as the page does every other second
        if self.form == "none" or (self.form == "text" and looked):
            return
        milliseconds = round(seconds * 1e3, 2)
        if self.form == "json":  # by hand, since there may be thousands a second; nothing here needs quoting
            who = "" if key is None else f', "key": "{key}"'
            line = (
                f'{{"time": "{_now()}", "level": "{_level(status)}", "event": "request", "method": "{method}", '
                f'"route": "{route}", "status": {status}, "ms": {milliseconds}{who}}}\n'
            )
        else:
            who = "" if key is None else f" key={key}"
            line = f"{_now()} {_level(status):7} {method} {route} {status} {milliseconds} ms{who}\n"
        self._keep(line)
        if self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(FLUSH, self.flush)
            except RuntimeError:
                self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        with self._lock:
            lines, self._lines, self._timer = self._lines, [], None
        if lines:
            stream = sys.stderr if self._stream is None else self._stream
            stream.write("".join(lines))
            stream.flush()

    def _keep(self, line: str) -> None:
        with self._lock:
            self._lines.append(line)

    def _line(self, event: str, level: str, told: dict[str, Any]) -> str:
        if self.form == "json":
            return json.dumps({"time": _now(), "level": level, "event": event, **told}) + "\n"
        rest = " ".join(f"{name}={value}" for name, value in told.items())
        return f"{_now()} {level:7} {event} {rest}".rstrip() + "\n"


# What uvicorn says of itself. It also logs texts of exceptions, which are not passed on.
KNOWN = (
    "Started ", "Finished ", "Stopping ", "Shutting down", "Waiting for ", "Application ", "Uvicorn running on ",
    "Received SIG", "Child process ", "New child process ", "Terminated child process ", "Cancel ",
    "Invalid HTTP request", "Unsupported upgrade request", "Exceeded concurrency limit",
)  # fmt: skip


class Forward(logging.Handler):
    """What other libraries log (uvicorn, SQLAlchemy), in our format and without the texts of exceptions."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.INFO)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on."""
        problem = record.exc_info[1] if record.exc_info else None
        name, level = "server" if record.name.startswith("uvicorn") else record.name, record.levelname.lower()
        if problem is not None:
            self.log.failure(name, problem)
        elif name.startswith("hushprice.") or (
            name == "server" and isinstance(record.msg, str) and record.msg.startswith(KNOWN)
        ):  # our own texts hold no values
            self.log.event(name, level=level, message=record.getMessage())
        else:  # could hold values of a statement, or the text of an exception
            self.log.event(name, level=level, at=f"{record.module}:{record.lineno}")


def forward(log: Log) -> None:
    """Hand everything that libraries log to ours, warnings and worse, and uvicorn's news."""
    handler = Forward(log)
    root = logging.getLogger()
    root.handlers[:] = [handler]
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


def _level(status: int) -> str:
    return "info" if status < 400 else "warning" if status < 500 else "error"


_second = (0, "")


def _now() -> str:
    """UTC to the millisecond; the text of the second is made once."""
    global _second
    now = time.time()
    whole = int(now)
    if whole != _second[0]:
        _second = (whole, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)))
    return f"{_second[1]}.{int((now - whole) * 1e3):03d}Z"
