"""Endpoints that shops and devices call for every customer: params, reports, offers, outcomes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from starlette.responses import Response

from hushprice.service.core.offers import OfferRequest
from hushprice.service.http.bodies.answers import AcceptedOutcomes, AcceptedReports, OfferAnswer, ParamsAnswer
from hushprice.service.http.bodies.reader import BodyReader
from hushprice.service.http.bodies.requests import OfferBody, OutcomeBody, OutcomesBody, ReportBody, ReportsBody
from hushprice.service.http.endpoint import PRODUCT, ApiRequest, Endpoint
from hushprice.service.http.responses import Problem, answer, encoded, encoded_answer, matches
from hushprice.service.writer.messages import OutcomeItem, Reported, View


class EncodedParams(NamedTuple):
    """A params document as it is sent."""

    document: object  # the document that was encoded
    body: bytes
    headers: dict[str, str]


def _encoded_params(request: ApiRequest, view: View) -> EncodedParams:
    """The params document of a view, encoded once."""
    cached = request.app.encoded_params.get(view.name)
    if cached is None or cached.document is not view.document:
        age = view.definition.max_age
        # public: the same for every device, and independent of any single customer
        caching = f"public, max-age={int(age)}" if age >= 1 else "public, no-cache"
        headers = {"ETag": view.etag, "Cache-Control": caching}
        cached = EncodedParams(view.document, encoded(view.document), headers)
        request.app.encoded_params[view.name] = cached
    return cached


async def params(request: ApiRequest) -> Response:
    """Get the params from which devices compute prices.

    They are public and versioned. With the current ETag in If-None-Match the answer is 304.
    """
    view = await request.app.reads.view(request.product_name)
    if not view.private:
        raise Problem(409, "conflict", "This product is plain: ask for a price with POST offers.")
    document = _encoded_params(request, view)
    if matches(request.http.headers.get("if-none-match"), view.etag):
        return Response(status_code=304, headers=document.headers)
    return encoded_answer(document.body, 200, document.headers)


async def reports(request: ApiRequest) -> Response:
    """Send one randomised report, or up to 1000.

    The answer comes when they are on disk. All are accepted or none; a report with a known id is not counted again.
    """
    items: list[Reported] = msgspec.to_builtins(request.body)
    view = await request.app.reads.view(request.product_name, fresh=False)
    done = await request.app.result(request.app.service.checked_reports(view.name, items))
    request.app.metrics.events(view.name, "report", done.accepted)
    request.app.metrics.events(view.name, "known", done.known)
    return answer({"accepted": done.accepted, "known": done.known, "version": done.version})


async def offers(request: ApiRequest) -> Response:
    """Request a price for one customer of a plain product.

    The answer comes when the offer is on disk. The same id with the same request gives the same answer.
    """
    body: OfferBody = request.body
    view = await request.app.reads.view(request.product_name, fresh=False)
    offer = OfferRequest(**msgspec.structs.asdict(body))
    quoted = await request.app.result(request.app.service.offer(view.name, offer))
    request.app.metrics.events(view.name, "known" if quoted.known else "offer", 1)
    return answer(
        {
            "offer": quoted.offer,
            "price": quoted.price,
            "experiment": quoted.experiment,
            "propensity": quoted.propensity,
            "discrete": quoted.discrete,
            "version": quoted.version,
        }
    )


async def outcomes(request: ApiRequest) -> Response:
    """Send the outcomes of one offer, or of up to 1000.

    The answer comes when they are on disk. All are accepted or none. Outcomes may come in any order, late, or twice.
    """
    items = [OutcomeItem(item.offer, item.y) for item in request.body]
    view = await request.app.reads.view(request.product_name, fresh=False)
    done = await request.app.result(request.app.service.outcomes(view.name, items))
    request.app.metrics.events(view.name, "outcome", done.accepted)
    request.app.metrics.events(view.name, "known", done.known)
    return answer({"accepted": done.accepted, "known": done.known, "late": done.late})


_CACHED = {"ETag": "The version, in quotes.", "Cache-Control": "For how long it may be kept."}
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": '^"[0-9]{1,15}"$', "examples": ['"12"']},
}
ENDPOINTS = (
    Endpoint(
        method="POST", path=f"{PRODUCT}/reports", run=reports, role="device", body=BodyReader(ReportBody, ReportsBody),
        answer=AcceptedReports, refusals=(409,), tag="private",
    ),
    Endpoint(
        method="GET", path=f"{PRODUCT}/params", run=params, role="device", answer=ParamsAnswer, refusals=(304, 409),
        headers=_CACHED, parameters=(_IF_NONE_MATCH,), tag="private",
    ),
    Endpoint(
        method="POST", path=f"{PRODUCT}/offers", run=offers, role="seller", body=BodyReader(OfferBody),
        answer=OfferAnswer, refusals=(409,), tag="plain",
    ),
    Endpoint(
        method="POST", path=f"{PRODUCT}/outcomes", run=outcomes, role="seller",
        body=BodyReader(OutcomeBody, OutcomesBody), answer=AcceptedOutcomes, refusals=(409,), tag="plain",
    ),
)  # fmt: skip
