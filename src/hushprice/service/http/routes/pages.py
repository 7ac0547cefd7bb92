"""Pages and their files, health, metrics: for everyone, without a key."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from starlette.responses import Response

from hushprice.service.http.bodies.answers import HealthAnswer, ShopAnswer
from hushprice.service.http.endpoint import ApiRequest, Endpoint
from hushprice.service.http.metrics import CONTENT_TYPE
from hushprice.service.http.responses import Problem, answer, matches, retry_later

PAGES = Path(str(files("hushprice.service") / "static"))
DEVICE = PAGES / "device"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Page(NamedTuple):
    """A file that is sent as it is."""

    body: bytes
    kind: str
    etag: str


@lru_cache(maxsize=256)
def _read(path: Path, _: int) -> Page:
    body = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    if path.suffix in (".js", ".mjs"):
        kind = "text/javascript"
    if kind.startswith("text/"):
        kind += "; charset=utf-8"
    return Page(body, kind, f'"{hashlib.sha256(body).hexdigest()[:24]}"')


def page(name: str, folder: Path = PAGES) -> Page:
    """A file of the folder of pages; anything else is not found."""
    path = folder / name
    try:
        if Path(name).name != name or name.startswith(".") or not path.is_file():
            raise FileNotFoundError
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        raise Problem(404, "not_found", "There is no such page.") from None


def _send(request: ApiRequest, name: str, folder: Path = PAGES) -> Response:
    found = page(name, folder)
    headers = {"ETag": found.etag, "Cache-Control": "no-cache", "Content-Security-Policy": CSP}
    if matches(request.http.headers.get("if-none-match"), found.etag):
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers={**headers, "Content-Type": found.kind})


async def dashboard(request: ApiRequest) -> Response:
    """The dashboard."""
    return _send(request, "index.html")


async def shop(request: ApiRequest) -> Response:
    """The demo shop; only if it is switched on."""
    _check_shop(request)
    return _send(request, "shop.html")


async def page_file(request: ApiRequest) -> Response:
    """A file of the pages."""
    return _send(request, request.http.path_params["file"])


async def device_file(request: ApiRequest) -> Response:
    """A file of the JavaScript device, the npm package ``hushprice-device``."""
    return _send(request, request.http.path_params["file"], DEVICE)


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
    """Whether the process lives."""
    return answer({"status": "ok"})


async def readyz(request: ApiRequest) -> Response:
    """Whether the writer lives and the database answers."""
    try:
        await asyncio.wait_for(asyncio.to_thread(request.app.service.check), 5.0)
    except Exception as problem:
        request.app.log.failure("readyz", problem)
        raise retry_later(503, "busy", "The database or the writer does not answer.", 5) from None
    return answer({"status": "ok"})


async def metrics(request: ApiRequest) -> Response:
    """Numbers for Prometheus."""
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
