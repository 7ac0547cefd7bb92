"""The service as an ASGI application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hushprice.service.http.bodies.answers import OpenAnswer
from hushprice.service.http.context import AppContext
from hushprice.service.http.endpoint import REQUEST_INFO, ApiRequest, Endpoint, RequestInfo, routes
from hushprice.service.http.openapi import describe
from hushprice.service.http.responses import STATUSES, Problem, answer, refusal
from hushprice.service.http.routes import admin, pages, products, sales
from hushprice.service.settings import Settings

if TYPE_CHECKING:
    from hushprice.service.writer.service import Service

METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")
SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


def create_app(service: Service, settings: Settings, *, started: Callable[[], None] = lambda: None) -> Starlette:
    """Make the application over a service, which it starts and, when it is shut down, stops.

    Parameters
    ----------
    service : Service
        The service; not started yet.
    settings : Settings
        Keys, limits, origins and the format of the log.
    started : callable
        Called when the service is ready, before the first request.

    Returns
    -------
    Starlette
        The application.
    """
    context = AppContext.of(service, settings)
    app = Starlette(
        routes=routes(context, ENDPOINTS),
        middleware=[Middleware(Outermost, context=context), *_cors(settings)],
        exception_handlers={HTTPException: _unrouted},
        lifespan=_lifespan(context, started),
    )
    app.router.redirect_slashes = False
    app.state.context = context
    return app


def _cors(settings: Settings) -> list[Middleware]:
    if not settings.origins:
        return []
    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(settings.origins),
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type", "If-None-Match"],
        expose_headers=["ETag", "Retry-After"],
        max_age=600,
    )
    return [cors]


class NotStarted(Exception):
    """The service could not start; the log says where it failed."""


def _lifespan(context: AppContext, started: Callable[[], None]) -> Any:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            context.service.start()
        except Exception as problem:  # its text may contain what was read, and uvicorn would log that
            context.log.failure("not_started", problem)
            raise NotStarted from None
        refreshing = asyncio.create_task(context.keys.keep_fresh(context.settings.keys_every, context.log))
        started()
        context.log.event("started", products=len(context.service.products()))
        try:
            yield
        finally:
            refreshing.cancel()
            with suppress(asyncio.CancelledError):
                await refreshing
            await asyncio.to_thread(context.service.stop)  # writes what was accepted, and a snapshot
            context.log.event("stopped")

    return lifespan


async def _unrouted(_: Request, problem: Exception) -> Response:
    """Refuse a path or method that does not exist."""
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "invalid")
    nowhere = "There is nothing at this address: /openapi.json says what there is."
    text = nowhere if status == 404 else STATUSES.get(status)
    headers = problem.headers if isinstance(problem, HTTPException) else None
    return Problem(status, code, text or "This cannot be answered.", headers=headers).response()


async def openapi(_: ApiRequest) -> Response:
    """This description."""
    return answer(DESCRIPTION)


class Outermost:
    """The outermost middleware: counts and logs each request, adds security headers, and answers any exception."""

    def __init__(self, app: ASGIApp, context: AppContext) -> None:
        self.app, self.context = app, context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        info = RequestInfo(head=method == "HEAD")
        scope = {**scope, REQUEST_INFO: info, "method": "GET" if info.head else scope["method"]}
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *SECURITY_HEADERS]
            elif info.head:
                message = {**message, "body": b""}
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except ClientDisconnect:
            status = status or 499
        except Exception as problem:
            if status == 0:
                await refusal(problem, self.context.log, info.route).response()(scope, receive, send_with_headers)
            else:  # the answer is half sent: the server closes the connection, so that the client sees it broken
                self.context.log.failure("failure", problem, route=info.route)
                raise ConnectionAbortedError from None
        finally:
            seconds = time.perf_counter() - began
            self.context.metrics.request(info.route, method, status, seconds)
            self.context.log.request(method, info.route, status, seconds, info.key)


ENDPOINTS = (
    *sales.ENDPOINTS,
    *products.ENDPOINTS,
    *admin.ENDPOINTS,
    *pages.ENDPOINTS,
    Endpoint(method="GET", path="/openapi.json", run=openapi, answer=OpenAnswer, tag="operation"),
)
DESCRIPTION = describe(ENDPOINTS)
