"""What shops and devices call for every customer: params, reports, offers, outcomes."""

from __future__ import annotations

from typing import NamedTuple, cast

from starlette.responses import Response

from hushprice.service.core.offers import OfferRequest
from hushprice.service.http.endpoint import PRODUCT, Call, Endpoint
from hushprice.service.http.request_bodies import (
    OfferBody,
    OutcomeBody,
    OutcomesBody,
    ReportBody,
    ReportsBody,
    check,
    one_or_many,
    read_reports,
)
from hushprice.service.http.responses import (
    AcceptedOutcomes,
    AcceptedReports,
    OfferAnswer,
    ParamsAnswer,
    Problem,
    answer,
    encoded,
    ready,
)
from hushprice.service.http.routes.pages import matches
from hushprice.service.writer.messages import OutcomeItem, Reported, View


class Document(NamedTuple):
    """A params document as it is sent."""

    of: object  # what it was written from
    body: bytes
    headers: dict[str, str]


def _document(call: Call, view: View) -> Document:
    """The document of a view, written once."""
    found: Document | None = call.parts.kept.get(view.name)
    if found is None or found.of is not view.document:
        age = view.definition.max_age
        # public: the same for every device, and nothing in it tells of anybody
        caching = f"public, max-age={int(age)}" if age >= 1 else "public, no-cache"
        headers = {"ETag": view.etag, "Cache-Control": caching}
        found = call.parts.kept[view.name] = Document(view.document, encoded(view.document), headers)
    return found


async def params(call: Call) -> Response:
    """What devices need to price by themselves.

    Public parameters of a private product, versioned: the ETag you have in If-None-Match gives 304 if it is current.
    """
    view = await call.parts.looks.view(call.product)
    if not view.private:
        raise Problem(409, "conflict", "This product is plain: ask for a price with POST offers.")
    document = _document(call, view)
    if matches(call.request.headers.get("if-none-match"), view.etag):
        return Response(status_code=304, headers=document.headers)
    return ready(document.body, 200, document.headers)


async def reports(call: Call) -> Response:
    """Hand in randomised reports, one or up to 1000.

    Answered when they are on disk. All are taken or none; the same id again is not counted twice.
    """
    items = cast(list[Reported], call.value)
    view = await call.parts.looks.view(call.product, fresh=False)
    done = await call.parts.waiter.result(call.parts.service.checked_reports(view.name, items))
    call.parts.metrics.events(view.name, "report", done.accepted)
    call.parts.metrics.events(view.name, "known", done.known)
    return answer({"accepted": done.accepted, "known": done.known, "version": done.version})


async def offers(call: Call) -> Response:
    """Ask for a price for one customer of a plain product.

    Answered when the offer is on disk. The same id with the same request gives the same answer.
    """
    body = check(call.value, OfferBody)
    view = await call.parts.looks.view(call.product, fresh=False)
    quoted = await call.parts.waiter.result(call.parts.service.offer(view.name, OfferRequest(**body)))
    call.parts.metrics.events(view.name, "known" if quoted.known else "offer", 1)
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


async def outcomes(call: Call) -> Response:
    """Tell what became of offers, one or up to 1000.

    Answered when they are on disk. All are taken or none. Outcomes may come in any order, late and more than once.
    """
    items = one_or_many(call.value, "outcomes", OutcomeBody, OutcomesBody)
    view = await call.parts.looks.view(call.product, fresh=False)
    found = [OutcomeItem(item["offer"], float(item["y"])) for item in items]
    done = await call.parts.waiter.result(call.parts.service.outcomes(view.name, found))
    call.parts.metrics.events(view.name, "outcome", done.accepted)
    call.parts.metrics.events(view.name, "known", done.known)
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
        method="POST", path=f"{PRODUCT}/reports", run=reports, role="device", body=(ReportBody, ReportsBody),
        read=read_reports, answer=AcceptedReports, refusals=(409,), tag="private",
    ),
    Endpoint(
        method="GET", path=f"{PRODUCT}/params", run=params, role="device", answer=ParamsAnswer, refusals=(304, 409),
        headers=_CACHED, query=(_IF_NONE_MATCH,), tag="private",
    ),
    Endpoint(
        method="POST", path=f"{PRODUCT}/offers", run=offers, role="seller", body=(OfferBody,), answer=OfferAnswer,
        refusals=(409,), tag="plain",
    ),
    Endpoint(
        method="POST", path=f"{PRODUCT}/outcomes", run=outcomes, role="seller", body=(OutcomeBody, OutcomesBody),
        answer=AcceptedOutcomes, refusals=(409,), tag="plain",
    ),
)  # fmt: skip
