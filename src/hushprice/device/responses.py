"""How a device interprets the service's answers."""

from __future__ import annotations

import json
from typing import Any

from hushprice.device.promise import NO_MORE
from hushprice.device.transport import Answer
from hushprice.errors import BrokenPromise

PERMANENT = (400, 409, 413, 422)  # statuses of a refusal that no retry can change
LONGEST_AGE = 3600.0  # seconds: the longest time for which a server may have its params cached


def plain(body: bytes) -> Any:
    """Decode a params document as plain data."""

    def no_constant(_: str) -> float:
        raise ValueError

    try:
        return json.loads(body, parse_constant=no_constant)
    except (ValueError, RecursionError):
        raise BrokenPromise(f"The server's answer is not JSON. {NO_MORE}") from None


def acknowledged(answer: Answer, n: int) -> bool:
    """Return whether the service acknowledges all of n reports. (A login page of a network in between does not.)

    Examples
    --------
    >>> acknowledged(Answer(200, {}, b'{"accepted": 1, "known": 1, "version": 9}'), 2)
    True
    >>> acknowledged(Answer(200, {}, b"<html>Welcome to our wireless network</html>"), 2)
    False
    """
    try:
        body = json.loads(answer.body) if 200 <= answer.status < 300 else None
    except (ValueError, RecursionError):
        return False
    counts: list[Any] = [body.get("accepted"), body.get("known")] if isinstance(body, dict) else []
    return len(counts) == 2 and all(type(count) is int for count in counts) and sum(counts) == n


def refused_for_good(answer: Answer) -> bool:
    """Return whether the service itself refuses for good. (An error page of a network in between does not count.)

    Examples
    --------
    >>> refused_for_good(Answer(422, {}, b'{"error": {"code": "invalid", "message": "No such report."}}'))
    True
    >>> refused_for_good(Answer(400, {}, b"<html>Blocked by your hotel</html>"))
    False
    """
    try:
        body = json.loads(answer.body) if answer.status in PERMANENT else None
    except (ValueError, RecursionError):
        return False
    error = body.get("error") if isinstance(body, dict) else None
    return isinstance(error, dict) and all(isinstance(error.get(name), str) for name in ("code", "message"))


def max_age(caching: str) -> float:
    """Return for how many seconds an answer stays fresh, by its Cache-Control header.

    Examples
    --------
    >>> max_age("public, max-age=5"), max_age("public, no-cache")
    (5.0, 0.0)
    """
    parts = [part.strip().lower() for part in caching.split(",")]
    if "no-store" in parts or "no-cache" in parts:
        return 0.0
    age = next((part[8:] for part in parts if part.startswith("max-age=")), "0")
    return min(float(age), LONGEST_AGE) if age.isdecimal() and len(age) < 10 else 0.0


def refusal(status: int) -> str:
    """Explain an HTTP status to the user of a device."""
    causes = {
        401: "check the key",
        403: "the key's role may not do this",
        404: "there is no such product",
        409: "the product is not a private one",
    }
    if 200 <= status < 300:
        return "What answers at this address does not acknowledge reports: is it the service?"
    if status in (400, 413, 422):
        return f"What answers at this address (status {status}) is not the service, or another release of it."
    return f"The service refused (status {status}): {causes.get(status, 'see its log')}."
