"""The service as an ASGI application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hushprice.service.http.access_log import Log
from hushprice.service.http.auth import Keys
from hushprice.service.http.endpoint import REQUEST_INFO, Call, Endpoint, Parts, ProductReads, RequestInfo, add, refusal
from hushprice.service.http.metrics import Metrics
from hushprice.service.http.rate_limits import Buckets, Rates, Waiter
from hushprice.service.http.request_bodies import schemas
from hushprice.service.http.responses import STATUSES, OpenAnswer, Problem, answer
from hushprice.service.http.routes import admin, pages, products, sales
from hushprice.service.settings import Settings
from hushprice.version import __version__

if TYPE_CHECKING:
    from hushprice.service.writer.service import Service

METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
ABOUT = """Prices that learn, and can keep quiet about who taught them.

Private products: a device gets `params`, prices by itself and posts a randomised report. Plain products: `offers`
quotes a price for a context, `outcomes` tells what was bought. What is acknowledged is on disk; the same id again
changes nothing. Refusals never repeat what was sent."""


def create_app(service: Service, settings: Settings, *, started: Callable[[], None] = lambda: None) -> FastAPI:
    """The application over a service, which the application starts and, when it is shut down, stops.

    ``started`` is called when the service is ready, before the first request."""
    log = Log(settings.log_format)
    waiter = Waiter(settings.patience)
    parts = Parts(
        service=service,
        settings=settings,
        keys=Keys(service.store.keys, settings.keys),
        rates=Rates(rate=settings.rate, burst=settings.burst),
        strangers=Buckets(rate=settings.stranger_rate, burst=settings.stranger_burst),
        waiter=waiter,
        looks=ProductReads(service, waiter),
        metrics=Metrics(service.products, service.queued),
        log=log,
    )
    parts.keys.refresh()
    app = FastAPI(
        title="hushprice",
        version=__version__,
        description=ABOUT,
        openapi_url=None,  # served below, like all the rest
        docs_url=None,  # pages that would load scripts from elsewhere
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        lifespan=_lifespan(parts, started),
        redirect_slashes=False,
    )
    app.state.parts = parts
    for endpoints in (sales.ENDPOINTS, products.ENDPOINTS, admin.ENDPOINTS, pages.ENDPOINTS):
        add(app, parts, endpoints)
    add(app, parts, [Endpoint(method="GET", path="/openapi.json", run=openapi, answer=OpenAnswer, tag="operation")])
    app.add_exception_handler(HTTPException, _unrouted)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "If-None-Match"],
            expose_headers=["ETag", "Retry-After"],
            max_age=600,
        )
    app.add_middleware(Outermost, parts=parts)
    return app


class NotStarted(Exception):
    """The service could not start; the log says where it failed."""


def _lifespan(parts: Parts, started: Callable[[], None]) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            parts.service.start()
        except Exception as problem:  # what was read may be in its text, and uvicorn would log that
            parts.log.failure("not_started", problem)
            raise NotStarted from None
        fresh = asyncio.create_task(parts.keys.keep_fresh(parts.settings.keys_every, parts.log))
        started()
        parts.log.event("started", products=len(parts.service.products()))
        try:
            yield
        finally:
            fresh.cancel()
            with suppress(asyncio.CancelledError):
                await fresh
            await asyncio.to_thread(parts.service.stop)  # what was accepted is written, and the state kept
            parts.log.event("stopped")

    return lifespan


async def _unrouted(_: Request, problem: Exception) -> Response:
    """A path or method that is not there."""
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "invalid")
    nowhere = "There is nothing at this address: /openapi.json says what there is."
    text = nowhere if status == 404 else STATUSES.get(status)
    headers = problem.headers if isinstance(problem, HTTPException) else None
    return Problem(status, code, text or "This cannot be answered.", headers=headers).response()


async def openapi(call: Call) -> Response:
    """This description."""
    return answer(call.request.app.openapi())


class Outermost:
    """Around everything: counts and logs each request, adds headers, and lets no exception out."""

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self.app, self.parts = app, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        told = RequestInfo(head=method == "HEAD")
        scope = {
            **scope,
            REQUEST_INFO: told,
            "method": "GET" if told.head else scope["method"],
        }  # HEAD: as GET, but unsent
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS]
            elif told.head:
                message = {**message, "body": b""}
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except ClientDisconnect:
            status = status or 499
        except Exception as problem:
            if status == 0:
                await refusal(problem, self.parts.log, told.route).response()(scope, receive, sending)
            else:  # half sent: the server closes the connection, so that the client sees it broken
                self.parts.log.failure("failure", problem, route=told.route)
                raise ConnectionAbortedError from None
        finally:
            seconds = time.perf_counter() - began
            self.parts.metrics.request(told.route, method, status, seconds)
            self.parts.log.request(method, told.route, status, seconds, told.key)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The description: FastAPI's, with the bodies and the key that it cannot see."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = schema.setdefault("components", {})
        components.setdefault("schemas", {}).update(schemas())
        components["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer", "description": "hp_device_..., hp_seller_... or hp_admin_..."}
        }
        app.openapi_schema = schema
    return app.openapi_schema
