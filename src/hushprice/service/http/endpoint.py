"""How an endpoint is declared, and what happens around each: who calls, how often, what was sent, what went wrong.

An endpoint is a coroutine over a :class:`Call` and a line that says its method, path, role, body and answer. FastAPI
routes it and describes it in OpenAPI; the body is read here, by readers of ``bodies``, since FastAPI's takes NaN and
repeated keys and puts values into its refusals. Nothing on the way of a sale leaves the event loop's thread but the
command for the writer.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from hushprice.errors import InvalidInput
from hushprice.service.errors import Conflict, NotFound, Unavailable
from hushprice.service.http.access_log import Log
from hushprice.service.http.auth import Caller, Keys, check_role
from hushprice.service.http.metrics import Metrics
from hushprice.service.http.openapi import extra, prose, responses
from hushprice.service.http.rate_limits import Buckets, Rates, Waiter, check_rate, place, read_body
from hushprice.service.http.request_bodies import parse
from hushprice.service.http.responses import Problem, wait
from hushprice.service.settings import Role, Settings
from hushprice.service.writer.messages import View

if TYPE_CHECKING:
    from hushprice.service.writer.service import Service

REQUEST_INFO = "hushprice"  # in an ASGI scope: what the log and the metrics are told of a request

PRODUCT = "/v1/products/{name}"


@dataclass(slots=True)
class RequestInfo:
    """What may be known of a request outside of it."""

    route: str = "unmatched"
    key: str | None = None
    head: bool = False  # whether only the headers are wanted


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the endpoints of one app share."""

    service: Service
    settings: Settings
    keys: Keys
    rates: Rates
    strangers: Buckets
    waiter: Waiter
    looks: ProductReads
    metrics: Metrics
    log: Log
    kept: dict[str, Any] = field(default_factory=dict)  # params documents as they are sent, by product


class ProductReads:
    """How fresh what is told of a product is: another process may have written since.

    A look at the log costs the writer a query. :meth:`Service.refresh` makes none if the last one was a moment ago, and
    here those who want the same look at the same time share one.
    """

    ALL = 1.0  # seconds between two looks at the logs of all products

    def __init__(self, service: Service, waiter: Waiter) -> None:
        self._service, self._waiter = service, waiter
        self._under_way: dict[str | None, asyncio.Task[None]] = {}
        self._all_at = -self.ALL  # when the logs of all products had been looked at

    async def view(self, name: str, *, fresh: bool = True) -> View:
        """A product as it stands, without what is older than a tenth of a second if ``fresh``."""
        try:
            view = self._service.view(name)
        except NotFound:
            await self._look(None)  # another process may have made it
            return self._service.view(name)
        if not fresh:
            return view
        await self._look(name)
        return self._service.view(name)

    async def products(self) -> list[View]:
        """All products there are, as they stood at most a second ago."""
        await self._look(None)
        if time.monotonic() - self._all_at >= self.ALL:
            began = time.monotonic()
            await asyncio.gather(*(self._look(view.name) for view in self._service.products()))
            self._all_at = began
        return self._service.products()

    async def _look(self, name: str | None) -> None:
        """Look at a product's log, or without a name at which products there are; together with who is about to."""
        task = self._under_way.get(name)
        if task is None:
            future = self._service.refresh(name)
            if future.done():
                return future.result()
            task = self._under_way[name] = asyncio.create_task(self._waiter.result(future))
            task.add_done_callback(partial(self._looked, name))
        await asyncio.shield(task)  # who hangs up does not take the others along
        return None

    def _looked(self, name: str | None, task: asyncio.Task[None]) -> None:
        del self._under_way[name]
        if not task.cancelled():
            task.exception()  # whoever waited has been told


@dataclass(frozen=True, slots=True)
class Call:
    """One request, let in."""

    parts: Parts
    request: Request
    caller: Caller | None
    value: Any  # the body as plain data

    @property
    def product(self) -> str:
        """The name in the path; it need not exist."""
        name: str = self.request.path_params["name"]
        return name

    @property
    def by(self) -> str:
        """The name of the key, for the history."""
        return "" if self.caller is None else self.caller.name


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A line of the API."""

    method: str
    path: str
    run: Callable[[Call], Awaitable[Response]]
    role: Role | None = None  # None: for everyone
    free: bool = False  # not even limited by address (health)
    body: Sequence[type[Any]] = ()  # one of these
    read: Callable[[bytes], Any] = parse  # how it is read
    answer: type[BaseModel] | None = None
    kind: str = "application/json"  # of an answer without a model
    status: int = 200  # of success
    created: bool = False  # 201 is possible too
    query: Sequence[dict[str, Any]] = ()
    refusals: Sequence[int] = ()  # beyond those every endpoint has
    headers: dict[str, str] = field(default_factory=dict)  # of the answer, for the description
    tag: str = "service"
    frank: bool = False  # refusals may repeat what an admin configured; never for what customers' devices send

    @property
    def name(self) -> str:
        """Of the operation."""
        return self.run.__name__


class Direct(APIRoute):
    """A route whose coroutine is called with the request and nothing else, and answers with a response.

    FastAPI's own way there (dependencies, exit stacks, models of answers) takes as long as all the rest together.
    """

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[Response]], **options: Any) -> None:
        super().__init__(path, endpoint, **options)

        async def direct(scope: Scope, receive: Receive, send: Send) -> None:
            response = await endpoint(Request(scope, receive, send))
            await response(scope, receive, send)

        self.app = direct


def add(app: FastAPI, parts: Parts, endpoints: Sequence[Endpoint]) -> None:
    """Put endpoints into an app."""
    for endpoint in endpoints:
        app.router.add_api_route(
            endpoint.path,
            _around(endpoint, parts),
            methods=[endpoint.method],
            operation_id=endpoint.name,
            name=endpoint.name,
            summary=(endpoint.run.__doc__ or "").partition("\n")[0].rstrip("."),
            description=prose(endpoint),
            response_model=None,
            status_code=endpoint.status,
            response_class=Response,
            responses=responses(endpoint),
            openapi_extra=extra(endpoint),
            tags=[endpoint.tag],
            route_class_override=Direct,
        )


def _around(endpoint: Endpoint, parts: Parts) -> Callable[[Request], Awaitable[Response]]:
    """The coroutine that FastAPI calls."""

    async def run(request: Request) -> Response:
        told: RequestInfo = request.scope[REQUEST_INFO]
        told.route = endpoint.path
        try:
            caller = _caller(endpoint, parts, request)
            value = None
            if caller is not None:
                told.key = caller.name
                parts.rates.check(caller.sha256, _address(request), shared=caller.role == "device")
                check_role(caller, endpoint.role or "admin")
            if endpoint.body:
                _check_type(request.headers.get("content-type", ""))
                value = endpoint.read(await read_body(request.scope, request.receive, parts.settings.body_limit))
            response = await endpoint.run(Call(parts, request, caller, value))
            return _unread(response) if told.head and isinstance(response, StreamingResponse) else response
        except ClientDisconnect:
            raise
        except Exception as problem:
            return refusal(problem, parts.log, endpoint.path, frank=endpoint.frank).response()

    run.__name__ = endpoint.name
    return run


def _unread(response: StreamingResponse) -> Response:
    """A long answer of which only the headers are wanted: it need not even begin."""
    bare = Response(status_code=response.status_code, headers=response.headers)
    del bare.headers["content-length"]
    return bare


def _caller(endpoint: Endpoint, parts: Parts, request: Request) -> Caller | None:
    if endpoint.role is None:
        if not endpoint.free:
            check_rate(parts.strangers, _address(request))
        return None
    try:
        return parts.keys.caller(request.headers.get("authorization"))
    except Problem:
        check_rate(parts.strangers, _address(request))
        raise


def _address(request: Request) -> str:
    return place(request.client.host) if request.client else ""


def _check_type(content_type: str) -> None:
    if content_type == "application/json":
        return
    kind, _, rest = content_type.partition(";")
    charset = rest.replace(" ", "").replace('"', "").lower()
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        raise Problem(415, "unsupported_media", "Send the body as JSON, with 'Content-Type: application/json'.")


def refusal(problem: Exception, log: Log, route: str, *, frank: bool = False) -> Problem:
    """What to answer to an exception; what is not a refusal of ours goes to the log, without its text."""
    if isinstance(problem, Problem):
        return problem
    if isinstance(problem, Unavailable):
        return wait(503, "busy", "The service is busy: try again. The same ids can be sent again.", 2)
    text = str(problem)[:1_000] if frank else discreet(str(problem))
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
    """A refusal without what it says it got.

    >>> discreet("cost must be a finite number of at least 0, got -3.25. Give another.")
    'cost must be a finite number of at least 0.'
    >>> discreet("There is no segment called 'x'. Known: new, old.")
    'There is no such segment. Known: new, old.'
    """
    text = re.sub(r"^There is no ([a-z ]+?) called .*?\.(?= Known: |$)", r"There is no such \1.", text, flags=re.DOTALL)
    head, got, _ = text.partition(", got ")
    return f"{head}."[:1_000] if got else text[:1_000]
