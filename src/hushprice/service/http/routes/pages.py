"""Endpoints that need no key: pages and their files, health, metrics."""

from __future__ import annotations

import asyncio
import mimetypes
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from hushprice.service.http.bodies.answers import HealthAnswer, ShopAnswer
from hushprice.service.http.endpoint import ApiRequest, Endpoint
from hushprice.service.http.metrics import CONTENT_TYPE
from hushprice.service.http.responses import Problem, answer, retry_later

mimetypes.add_type("text/javascript", ".js")  # overrides the machine's own table
FILES = StaticFiles(directory=str(files("hushprice.service") / "static"))
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}


async def _send(request: ApiRequest, path: str) -> Response:
    """Send a file of the folder of pages, or 304 if the client has it.

    It is sent whole: Starlette's refusals of ranges are not in our form, and some of its releases take minutes for a
    request of many ranges.
    """
    scope = request.http.scope
    scope["headers"] = [header for header in scope["headers"] if header[0] != b"range"]
    try:
        response = await FILES.get_response(path, scope)
    except (HTTPException, OSError, ValueError):  # ValueError: a NUL in the name
        raise Problem(404, "not_found", "There is no such page.") from None
    response.headers.update(HEADERS)
    del response.headers["accept-ranges"]
    return response


async def dashboard(request: ApiRequest) -> Response:
    """The dashboard."""
    return await _send(request, "index.html")


async def shop(request: ApiRequest) -> Response:
    """The demo shop; only if it is switched on."""
    _check_shop(request)
    return await _send(request, "shop.html")


async def page_file(request: ApiRequest) -> Response:
    """A file of the pages."""
    return await _send(request, request.http.path_params["file"])


async def device_file(request: ApiRequest) -> Response:
    """A file of the JavaScript device, the npm package ``hushprice-device``."""
    return await _send(request, f"device/{request.http.path_params['file']}")


def _check_shop(request: ApiRequest) -> None:
    if not request.app.settings.shop or request.app.settings.shop_key is None:
        raise Problem(404, "not_found", "The demo shop is not open: start the service with --shop.")


async def shop_config(request: ApiRequest) -> Response:
    """What the demo shop needs: names of the private products and a device key.

    Only if the demo shop is switched on.
    """
    _check_shop(request)
    names = [view.name for view in await request.app.reads.products() if view.private]
    return answer({"products": names, "key": request.app.settings.shop_key})


async def healthz(_: ApiRequest) -> Response:
    """Whether the process runs."""
    return answer({"status": "ok"})


async def readyz(request: ApiRequest) -> Response:
    """Whether the writer runs and the database answers."""
    try:
        await asyncio.wait_for(asyncio.to_thread(request.app.service.check), 5.0)
    except Exception as problem:
        request.app.log.failure("readyz", problem)
        raise retry_later(503, "busy", "The database or the writer does not answer.", 5) from None
    return answer({"status": "ok"})


async def metrics(request: ApiRequest) -> Response:
    """Metrics for Prometheus."""
    text = await asyncio.to_thread(request.app.metrics.page)
    return Response(text, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


ENDPOINTS = (
    Endpoint(method="GET", path="/healthz", run=healthz, unlimited=True, answer=HealthAnswer, tag="operation"),
    Endpoint(method="GET", path="/readyz", run=readyz, answer=HealthAnswer, refusals=(503,), tag="operation"),
    Endpoint(method="GET", path="/metrics", run=metrics, media_type="text/plain", tag="operation"),
    Endpoint(method="GET", path="/", run=dashboard, media_type="text/html", refusals=(304, 404), tag="pages"),
    Endpoint(method="GET", path="/shop", run=shop, media_type="text/html", refusals=(304, 404), tag="pages"),
    Endpoint(method="GET", path="/shop/config", run=shop_config, answer=ShopAnswer, refusals=(404,), tag="pages"),
    Endpoint(method="GET", path="/pages/{file}", run=page_file, media_type="*/*", refusals=(304,), tag="pages"),
    Endpoint(
        method="GET", path="/pages/device/{file}", run=device_file, media_type="*/*", refusals=(304,), tag="pages"
    ),
)
