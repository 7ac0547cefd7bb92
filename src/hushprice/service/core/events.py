"""The log's events, and how they are written down.

A product's log holds events numbered 1, 2, ... in the order in which they took effect. Whatever was random or came from
the clock when an event was made is in it, so that what was learned is a function of the events.

    report      r:<id>        {"version", "report"}            a private customer was served; null: nothing reported
    offer       o:<id>        {"z", "price", "stage", ...}     a plain customer was quoted a price
    outcome     y:<offer id>  {"y"}                            what they bought
    expire      x:<uuid>      {"now"}                          offers that waited too long are closed
    mode        a:<uuid>      {"mode", "by"}
    guardrails  a:<uuid>      {"low", "high", "ladder", "largest_step", "by"}
    rollback    a:<uuid>      {"version", "by"}                what was learned is again what it was after that event

Keys are unique in a product's log: that is what makes retries harmless.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from hushprice.errors import InvalidInput
from hushprice.privacy import wire

Kind = Literal["report", "offer", "outcome", "expire", "mode", "guardrails", "rollback"]
CHANGES: tuple[Kind, ...] = ("mode", "guardrails", "rollback")  # what an admin did
Mode = Literal["live", "shadow", "frozen"]
MODES: tuple[Mode, ...] = ("live", "shadow", "frozen")

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False).encode
_REPORT_ID = re.compile(r"[0-9a-f]{32}")
_OFFER_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class Event(NamedTuple):
    """One line of a product's log."""

    seq: int
    at: float  # seconds since 1970, whole ones for private products; never before the event in front of it
    kind: str
    key: str
    body: Mapping[str, Any]
    row: Sequence[int] | None = None  # of a report, as a server takes it, where that is known already
    text: str | None = None  # the body as it is written down, where that is known already


def encode(body: Mapping[str, Any]) -> str:
    """A body as text: the same body always gives the same text.

    >>> encode({"version": 3, "report": None})
    '{"report":null,"version":3}'
    """
    return _encode(body)


def chained(chain: bytes, event: Event) -> bytes:
    """The running fingerprint of a log after one more event: of its number, time, kind, key and body as written.

    >>> first = chained(b"", Event(1, 0.0, "report", "r:00", {"version": 0, "report": None}))
    >>> first == chained(b"", Event(1, 0.0, "report", "r:01", {"version": 0, "report": None}))
    False
    """
    text = encode(event.body) if event.text is None else event.text
    told = f"{event.kind}\n{event.key}\n{text}".encode()  # neither a kind nor a key holds the end of a line
    return hashlib.sha256(chain + struct.pack("<qd", event.seq, event.at) + told).digest()


def encode_report(version: int, report: Mapping[str, Any] | None) -> str:
    """The body of a checked report, as :func:`encode` would write it, but faster.

    >>> made = {"seed": "00ff00ff00ff00ff", "index": 1}
    >>> encode_report(7, made) == encode({"version": 7, "report": made})
    True
    """
    if report is None:
        return f'{{"report":null,"version":{version}}}'
    return f'{{"report":{wire.encode(report)},"version":{version}}}'


def decode(text: str) -> dict[str, Any]:
    """The body that :func:`encode` wrote."""
    body: dict[str, Any] = json.loads(text)
    return body


def fingerprint(plain: Mapping[str, Any]) -> str:
    """SHA-256 of plain data, to tell whether a request is the same as one before."""
    return hashlib.sha256(encode(plain).encode()).hexdigest()


def report_id(value: Any) -> str:
    """The id of a report: 32 hexadecimal digits, so that nothing else fits in."""
    if not isinstance(value, str) or not _REPORT_ID.fullmatch(value):
        raise InvalidInput("The id of a report must be 32 random hexadecimal digits in lower case.")
    return value


def offer_id(value: Any) -> str:
    """The id of an offer."""
    if not isinstance(value, str) or not _OFFER_ID.fullmatch(value):
        raise InvalidInput("The id of an offer must be 1 to 64 letters, digits or any of . _ : -")
    return value
