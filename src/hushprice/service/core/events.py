"""The events of a log, and their encoding.

A product's log holds events numbered 1, 2, ... in the order in which they took effect. An event contains all random
values and times that went into it, so the learner's state is a function of the events.

    report      r:<id>        {"version", "report"}            a private customer was served; null: no report
    offer       o:<id>        {"z", "price", "stage", ...}     a plain customer was quoted a price
    outcome     y:<offer id>  {"y"}                            what they bought
    expire      x:<uuid>      {"now"}                          closes offers that waited too long
    mode        a:<uuid>      {"mode", "by"}
    guardrails  a:<uuid>      {"low", "high", "ladder", "largest_step", "by"}
    rollback    a:<uuid>      {"version", "by"}                restores the estimate as it was after that event
    forget      a:<uuid>      {"half_life", "by"}              lets old outcomes count less

Keys are unique in a product's log, which makes retries harmless.
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

Kind = Literal["report", "offer", "outcome", "expire", "mode", "guardrails", "rollback", "forget"]
CHANGES: tuple[Kind, ...] = ("mode", "guardrails", "rollback", "forget")  # events that an admin caused
Mode = Literal["live", "shadow", "frozen"]
MODES: tuple[Mode, ...] = ("live", "shadow", "frozen")

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False).encode
_REPORT_ID = re.compile(r"[0-9a-f]{32}")
_OFFER_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class Event(NamedTuple):
    """One line of a product's log.

    Attributes
    ----------
    seq : int
        Number of the event in the log, from 1.
    at : float
        When it was written, in seconds since 1970 (whole ones for private products); never decreasing.
    kind : str
        What happened.
    key : str
        The event key, which identifies it.
    body : mapping
        The contents, which depend on the kind.
    row : sequence of int, optional
        The report as a server absorbs it, if it is already decoded.
    text : str, optional
        The encoded body, if it is already encoded.
    """

    seq: int
    at: float
    kind: str
    key: str
    body: Mapping[str, Any]
    row: Sequence[int] | None = None
    text: str | None = None


def encode(body: Mapping[str, Any]) -> str:
    """Encode a body; equal bodies give equal text.

    >>> encode({"version": 3, "report": None})
    '{"report":null,"version":3}'
    """
    return _encode(body)


def chained(chain: bytes, event: Event) -> bytes:
    """The fingerprint of a log after one more event, from its number, time, kind, key and encoded body.

    >>> first = chained(b"", Event(1, 0.0, "report", "r:00", {"version": 0, "report": None}))
    >>> first == chained(b"", Event(1, 0.0, "report", "r:01", {"version": 0, "report": None}))
    False
    """
    text = encode(event.body) if event.text is None else event.text
    content = f"{event.kind}\n{event.key}\n{text}".encode()  # kinds and keys contain no line breaks
    return hashlib.sha256(chain + struct.pack("<qd", event.seq, event.at) + content).digest()


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
    """Decode a body that :func:`encode` wrote."""
    body: dict[str, Any] = json.loads(text)
    return body


def fingerprint(plain: Mapping[str, Any]) -> str:
    """SHA-256 of plain data, to compare a request with an earlier one."""
    return hashlib.sha256(encode(plain).encode()).hexdigest()


def report_id(value: Any) -> str:
    """Check the id of a report: exactly 32 hexadecimal digits, so that it can carry no other data."""
    if not isinstance(value, str) or not _REPORT_ID.fullmatch(value):
        raise InvalidInput("The id of a report must be 32 random hexadecimal digits in lower case.")
    return value


def offer_id(value: Any) -> str:
    """Check the id of an offer."""
    if not isinstance(value, str) or not _OFFER_ID.fullmatch(value):
        raise InvalidInput("The id of an offer must be 1 to 64 letters, digits or any of . _ : -")
    return value
