"""What sellers look at: products, summary, curve, log, history."""

from __future__ import annotations

import asyncio
import hashlib
import math
from typing import Any

from starlette.responses import Response, StreamingResponse

from hushprice.service.core.events import Event
from hushprice.service.core.learner import Learner
from hushprice.service.dashboard.bands import Facts
from hushprice.service.dashboard.curve import curve as draw
from hushprice.service.dashboard.summary import summary as summarise
from hushprice.service.errors import NotFound
from hushprice.service.http.bodies.answers import HistoryAnswer, ProductAnswer, ProductsAnswer, StateAnswer
from hushprice.service.http.bodies.figures import CurveAnswer, SummaryAnswer
from hushprice.service.http.endpoint import PRODUCT, ApiRequest, Endpoint
from hushprice.service.http.responses import Problem, answer, encoded, encoded_answer, matches
from hushprice.service.http.routes.log_export import EVENTS_PER_PIECE, csv_lines
from hushprice.service.storage.store import Product
from hushprice.service.writer.messages import View

MOST_FEATURES = 10_000


async def products(request: ApiRequest) -> Response:
    """All products."""
    return answer(
        {
            "products": [
                {
                    "name": view.name,
                    "kind": _kind(view),
                    "version": view.version,
                    "mode": view.mode,
                    "currency": view.definition.currency,
                }
                for view in await request.app.reads.products()
            ]
        }
    )


def _kind(view: View) -> str:
    return "private" if view.private else "plain"


def guarantee(view: View) -> str:
    """The privacy guarantee in words."""
    policy = view.definition.private_policy
    if policy is not None:
        return f"{policy.guarantee}. Contexts, prices and sales never reach this server."
    return "None: contexts, prices and outcomes are kept in the log as they are."


async def product(request: ApiRequest) -> Response:
    """One product: its definition and its present state."""
    view = await request.app.reads.view(request.product_name)
    return answer(
        {
            "name": view.name,
            "kind": _kind(view),
            "definition": view.definition.config(),
            "mode": view.mode,
            "guardrails": view.guardrails.config(),
            "version": view.version,
            "seq": view.seq,
            "phase": view.phase,
            "counts": dict(view.counts),
            "open_offers": view.waiting,
            "guarantee": guarantee(view),
        }
    )


async def summary(request: ApiRequest) -> Response:
    """All figures of a product that the dashboard shows."""
    view = await request.app.reads.view(request.product_name)
    body = encoded(await request.app.result(request.app.service.run(view.name, summarise)))
    headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()[:24]}"', "Cache-Control": "private, no-cache"}
    if matches(request.http.headers.get("if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return encoded_answer(body, 200, headers)


async def curve(request: ApiRequest) -> Response:
    """The demand and revenue curve of a hypothetical customer, with bands."""
    context = _numbers(request.http.query_params.getlist("context"))
    view = await request.app.reads.view(request.product_name)
    facts = await request.app.result(request.app.service.run(view.name, Facts.of))
    return answer(await asyncio.to_thread(draw, facts, context))  # slow, so not in the writer's thread


def _numbers(values: list[str]) -> list[float]:
    """``1,0.3,2`` as numbers."""
    problem = Problem(422, "invalid", "Give the customer once, as ?context=1,0.3,... with one number per feature.")
    if len(values) != 1 or len(values[0]) > 50 * MOST_FEATURES or "_" in values[0]:
        raise problem
    try:
        numbers = [float(part) for part in values[0].split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(map(math.isfinite, numbers)):
        raise problem
    return numbers


async def log(request: ApiRequest) -> Response:
    """The log as CSV.

    Plain products: one line per offer with its outcome, readable by `hushprice fit`. Private products: the reports of
    devices, as the log holds nothing else.
    """
    view = await request.app.reads.view(request.product_name)
    store = request.app.service.store
    on_record = await asyncio.to_thread(_on_record, request, view.name)

    def fetch(after: int, upto: int) -> list[Event]:
        return list(store.events(on_record.id, after, upto, limit=EVENTS_PER_PIECE))

    return StreamingResponse(
        csv_lines(fetch, view),
        media_type="text/csv",
        headers={
            "Cache-Control": "no-store",
            "Content-Disposition": f'attachment; filename="{view.name}.csv"',
        },
    )


def _on_record(request: ApiRequest, name: str) -> Product:
    product = request.app.service.store.product(name)
    if product is None:
        raise NotFound("There is no such product.")
    return product


async def history(request: ApiRequest) -> Response:
    """Changes made by admins, and versions to roll back to.

    Any version up to the current one is possible; listed are some of them, with their times and the number of customers
    served until then.
    """
    view = await request.app.reads.view(request.product_name)

    def admin_changes() -> list[Event]:
        return request.app.service.store.changes(_on_record(request, view.name).id, view.seq)

    def points(learner: Learner) -> list[dict[str, Any]]:
        earlier = (point for point in learner.statistics.points if point.seq <= learner.version)
        return [{"version": p.seq, "at": p.at, "customers": p.customers} for p in earlier]

    changes = await asyncio.to_thread(admin_changes)
    versions = await request.app.result(request.app.service.run(view.name, points))
    events = [{"seq": e.seq, "at": e.at, "kind": e.kind, **e.body} for e in changes]
    return answer({"events": events, "versions": [{"version": 0, "at": None, "customers": 0}, *versions]})


async def state(request: ApiRequest) -> Response:
    """How far the log is folded, and the SHA-256 of the learner's state."""
    view = await request.app.reads.view(request.product_name)

    def progress(learner: Learner) -> dict[str, Any]:
        return {"seq": learner.seq, "version": learner.version, "digest": learner.digest()}

    return answer(await request.app.result(request.app.service.run(view.name, progress)))


_CONTEXT = {
    "name": "context",
    "in": "query",
    "required": True,
    "description": "The features of a hypothetical customer, in order, with commas.",
    "schema": {"type": "string", "examples": ["1,0.3,0.7"]},
}
ENDPOINTS = (
    Endpoint(method="GET", path="/v1/products", run=products, role="device", answer=ProductsAnswer, tag="products"),
    Endpoint(method="GET", path=PRODUCT, run=product, role="seller", answer=ProductAnswer, tag="products"),
    Endpoint(
        method="GET", path=f"{PRODUCT}/summary", run=summary, role="seller", answer=SummaryAnswer, refusals=(304,),
        tag="products",
    ),
    Endpoint(
        method="GET", path=f"{PRODUCT}/curve", run=curve, role="seller", answer=CurveAnswer, refusals=(409, 422),
        parameters=(_CONTEXT,), tag="products",
    ),
    Endpoint(method="GET", path=f"{PRODUCT}/log", run=log, role="seller", media_type="text/csv", tag="products"),
    Endpoint(
        method="GET", path=f"{PRODUCT}/history", run=history, role="seller", answer=HistoryAnswer, tag="products"
    ),
    Endpoint(method="GET", path=f"{PRODUCT}/state", run=state, role="admin", answer=StateAnswer, tag="products"),
)  # fmt: skip
