"""How an endpoint is declared, and what is checked before it runs: the key, the rate, the type and size of the body.

An endpoint is a coroutine that takes an :class:`ApiRequest`, and an :class:`Endpoint` that declares its method, path,
role, body and answer. Starlette routes to it; :mod:`hushprice.service.http.openapi` describes it. A sale is handled in
the event loop's thread, except for the command that the writer's thread carries out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from hushprice.service.http.auth import Caller, check_role
from hushprice.service.http.bodies.reader import BodyReader
from hushprice.service.http.context import AppContext
from hushprice.service.http.rate_limits import address_group, check_rate, receive_body
from hushprice.service.http.responses import Problem, refusal
from hushprice.service.settings import Role

REQUEST_INFO = "hushprice"  # key in an ASGI scope

PRODUCT = "/v1/products/{name}"


@dataclass(slots=True)
class RequestInfo:
    """What the access log and the metrics may record of a request."""

    route: str = "unmatched"
    key: str | None = None
    head: bool = False  # whether only the headers are requested


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request that passed the checks."""

    app: AppContext
    http: Request
    caller: Caller | None
    body: Any  # as the endpoint's reader returns it

    @property
    def product_name(self) -> str:
        """The name in the path; the product need not exist."""
        name: str = self.http.path_params["name"]
        return name

    @property
    def key_name(self) -> str:
        """The name of the caller's key, for the history."""
        return "" if self.caller is None else self.caller.name


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The declaration of an endpoint."""

    method: str
    path: str
    run: Callable[[ApiRequest], Awaitable[Response]]
    role: Role | None = None  # None: no key is needed
    unlimited: bool = False  # no limit on the rate either (health)
    body: BodyReader | None = None
    answer: type[Any] | None = None
    media_type: str = "application/json"  # of an answer without a type
    status: int = 200  # of success
    creates: bool = False  # 201 is possible too
    parameters: Sequence[dict[str, Any]] = ()  # of the query and the headers, for the description
    refusals: Sequence[int] = ()  # statuses beyond those that every endpoint has
    headers: dict[str, str] = field(default_factory=dict)  # of the answer, for the description
    tag: str = "service"
    echo: bool = False  # refusals may repeat what an admin configured; never for what devices send

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.run.__name__


class EndpointApp:
    """The ASGI application of one endpoint."""

    def __init__(self, endpoint: Endpoint, app: AppContext) -> None:
        self.endpoint, self.app = endpoint, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        info: RequestInfo = scope[REQUEST_INFO]
        info.route = self.endpoint.path
        try:
            response = await self._answer(Request(scope, receive, send), info)
        except ClientDisconnect:
            raise
        except Exception as problem:
            response = refusal(problem, self.app.log, self.endpoint.path, echo=self.endpoint.echo).response()
        await response(scope, receive, send)

    async def _answer(self, http: Request, info: RequestInfo) -> Response:
        endpoint, app = self.endpoint, self.app
        caller = self._caller(http)
        if caller is not None:
            info.key = caller.name
            app.rates.check(caller.sha256, _address(http), shared=caller.role == "device")
            check_role(caller, endpoint.role or "admin")
        body = None
        if endpoint.body is not None:
            _check_media_type(http.headers.get("content-type", ""))
            body = endpoint.body.read(await receive_body(http.scope, http.receive, app.settings.body_limit))
        response = await endpoint.run(ApiRequest(app, http, caller, body))
        return _without_stream(response) if info.head and isinstance(response, StreamingResponse) else response

    def _caller(self, http: Request) -> Caller | None:
        if self.endpoint.role is None:
            if not self.endpoint.unlimited:
                check_rate(self.app.anonymous, _address(http))
            return None
        try:
            return self.app.keys.caller(http.headers.get("authorization"))
        except Problem:
            check_rate(self.app.anonymous, _address(http))
            raise


def routes(app: AppContext, endpoints: Sequence[Endpoint]) -> list[Route]:
    """Make the routes to endpoints."""
    return [
        Route(endpoint.path, EndpointApp(endpoint, app), methods=[endpoint.method], name=endpoint.name)
        for endpoint in endpoints
    ]


def _without_stream(response: StreamingResponse) -> Response:
    """The headers of a streamed answer, whose stream need not even start for HEAD."""
    bare = Response(status_code=response.status_code, headers=response.headers)
    del bare.headers["content-length"]
    return bare


def _address(http: Request) -> str:
    return address_group(http.client.host) if http.client else ""


def _check_media_type(content_type: str) -> None:
    if content_type == "application/json":
        return
    kind, _, rest = content_type.partition(";")
    charset = rest.replace(" ", "").replace('"', "").lower()
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        raise Problem(415, "unsupported_media", "Send the body as JSON, with 'Content-Type: application/json'.")
