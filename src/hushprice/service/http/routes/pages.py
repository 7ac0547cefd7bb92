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

from hushprice.service.http.endpoint import Call, Endpoint
from hushprice.service.http.metrics import CONTENT_TYPE
from hushprice.service.http.responses import HealthAnswer, Problem, ShopAnswer, answer, wait

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


def matches(header: str | None, etag: str) -> bool:
    """Whether an ``If-None-Match`` header names this ETag: a list, weak ones too, or ``*``.

    >>> [matches(header, '"12"') for header in ('"12"', 'W/"12", "3"', "*", '"1"', "12", None)]
    [True, True, True, False, False, False]
    """
    if not header:
        return False
    return any(part.strip().removeprefix("W/") in (etag, "*") for part in header.split(","))


def _send(call: Call, name: str, folder: Path = PAGES) -> Response:
    found = page(name, folder)
    headers = {"ETag": found.etag, "Cache-Control": "no-cache", "Content-Security-Policy": CSP}
    if matches(call.request.headers.get("if-none-match"), found.etag):
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers={**headers, "Content-Type": found.kind})


async def dashboard(call: Call) -> Response:
    """The dashboard."""
    return _send(call, "index.html")


async def shop(call: Call) -> Response:
    """The demo shop; only if it is switched on."""
    _check_shop(call)
    return _send(call, "shop.html")


async def page_file(call: Call) -> Response:
    """A file of the pages."""
    return _send(call, call.request.path_params["file"])


async def device_file(call: Call) -> Response:
    """A file of the JavaScript device, the npm package ``hushprice-device``."""
    return _send(call, call.request.path_params["file"], DEVICE)


def _check_shop(call: Call) -> None:
    if not call.parts.settings.shop or call.parts.settings.shop_key is None:
        raise Problem(404, "not_found", "The demo shop is not open: start the service with --shop.")


async def shop_config(call: Call) -> Response:
    """What the demo shop needs: names of the private products and a device key.

    Only if the demo shop is switched on.
    """
    _check_shop(call)
    names = [view.name for view in await call.parts.looks.products() if view.private]
    return answer({"products": names, "key": call.parts.settings.shop_key})


async def healthz(_: Call) -> Response:
    """Whether the process lives."""
    return answer({"status": "ok"})


async def readyz(call: Call) -> Response:
    """Whether the writer lives and the database answers."""
    try:
        await asyncio.wait_for(asyncio.to_thread(call.parts.service.check), 5.0)
    except Exception as problem:
        call.parts.log.failure("readyz", problem)
        raise wait(503, "busy", "The database or the writer does not answer.", 5) from None
    return answer({"status": "ok"})


async def metrics(call: Call) -> Response:
    """Numbers for Prometheus."""
    text = await asyncio.to_thread(call.parts.metrics.page)
    return Response(text, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


ENDPOINTS = (
    Endpoint(method="GET", path="/healthz", run=healthz, free=True, answer=HealthAnswer, tag="operation"),
    Endpoint(method="GET", path="/readyz", run=readyz, answer=HealthAnswer, refusals=(503,), tag="operation"),
    Endpoint(method="GET", path="/metrics", run=metrics, kind="text/plain", tag="operation"),
    Endpoint(method="GET", path="/", run=dashboard, kind="text/html", refusals=(304, 404), tag="pages"),
    Endpoint(method="GET", path="/shop", run=shop, kind="text/html", refusals=(304, 404), tag="pages"),
    Endpoint(method="GET", path="/shop/config", run=shop_config, answer=ShopAnswer, refusals=(404,), tag="pages"),
    Endpoint(method="GET", path="/pages/{file}", run=page_file, kind="*/*", refusals=(304,), tag="pages"),
    Endpoint(method="GET", path="/pages/device/{file}", run=device_file, kind="*/*", refusals=(304,), tag="pages"),
)
