"""JSON answers, and refusals that never repeat what was sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from hushprice.errors import HushpriceError, InvalidInput
from hushprice.files import without_nan
from hushprice.service.errors import Conflict, NotFound, Unavailable

if TYPE_CHECKING:
    from hushprice.service.http.access_log import Log

STATUSES: dict[int, str] = {
    304: "Nothing has changed since the version you have.",
    400: "The body is not JSON, or not of the strict kind that is read here.",
    401: "There is no key, or none that is known.",
    403: "The key's role may not do this.",
    404: "There is no such product, offer or key.",
    405: "This address does not take this method.",
    408: "The body took too long to come in.",
    409: "It contradicts what is known already, or the product is of the other kind.",
    413: "The body is too large.",
    415: "The body must be JSON.",
    422: "Something in the body or the query is missing, of the wrong kind or out of range.",
    429: "Too many requests of this key or address: wait as Retry-After says.",
    500: "Something went wrong here; it is in the log.",
    503: "The database is busy or away: try again as Retry-After says. Ids make that harmless.",
}


class Problem(HushpriceError):
    """A refusal as it is sent.

    Parameters
    ----------
    status : int
        The HTTP status.
    code : str
        What is wrong, for programs.
    message : str
        What is wrong and what to do, for people.
    where : list of str or int, optional
        The part of the body that is wrong.
    headers : mapping, optional
        Further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        where: list[str | int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.where, self.headers = status, code, message, where, headers

    def response(self) -> Response:
        """Make the HTTP response."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.where is not None:
            error["where"] = self.where
        return answer({"error": error}, self.status, self.headers)


def retry_later(status: int, code: str, message: str, seconds: float) -> Problem:
    """Make a refusal with the header Retry-After."""
    return Problem(status, code, message, headers={"Retry-After": str(max(1, -int(-seconds // 1)))})


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encoded(value: Any) -> bytes:
    """Write JSON. Numbers that are not finite, which JSON does not have, become null."""
    try:
        return _encode(value).encode()
    except ValueError:
        return _encode(without_nan(value)).encode()


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Make a JSON response; caches do not store it unless the headers say so."""
    return encoded_answer(encoded(value), status, {"Cache-Control": "no-store", **(headers or {})})


def encoded_answer(body: bytes, status: int, headers: Mapping[str, str]) -> Response:
    """Make a response from JSON that is written already."""
    return Response(body, status_code=status, headers=dict(headers), media_type="application/json")


def matches(header: str | None, etag: str) -> bool:
    """Whether an ``If-None-Match`` header names this ETag: a list, weak ones too, or ``*``.

    >>> [matches(header, '"12"') for header in ('"12"', 'W/"12", "3"', "*", '"1"', "12", None)]
    [True, True, True, False, False, False]
    """
    if not header:
        return False
    return any(part.strip().removeprefix("W/") in (etag, "*") for part in header.split(","))


def refusal(problem: Exception, log: Log, route: str, *, echo: bool = False) -> Problem:
    """Turn an exception into a refusal; an unexpected one goes to the log, without its text.

    With ``echo`` the message may contain what was sent."""
    if isinstance(problem, Problem):
        return problem
    if isinstance(problem, Unavailable):
        return retry_later(503, "busy", "The service is busy: try again. The same ids can be sent again.", 2)
    text = str(problem)[:1_000] if echo else discreet(str(problem))
    where = getattr(problem, "where", None)
    if isinstance(problem, NotFound):
        return Problem(404, "not_found", text, where=where)
    if isinstance(problem, Conflict):
        return Problem(409, "conflict", text, where=where)
    if isinstance(problem, InvalidInput):
        return Problem(422, "invalid", text, where=where)
    log.failure("failure", problem, route=route)
    return Problem(500, "internal", "Something went wrong here; it is in the log.")


def discreet(text: str) -> str:
    """Remove from a message what it says was sent.

    >>> discreet("cost must be a finite number of at least 0, got -3.25. Give another.")
    'cost must be a finite number of at least 0.'
    >>> discreet("There is no segment called 'x'. Known: new, old.")
    'There is no such segment. Known: new, old.'
    """
    text = re.sub(r"^There is no ([a-z ]+?) called .*?\.(?= Known: |$)", r"There is no such \1.", text, flags=re.DOTALL)
    head, got, _ = text.partition(", got ")
    return f"{head}."[:1_000] if got else text[:1_000]
