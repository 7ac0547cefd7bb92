"""Endpoints for admins: products, modes, guardrails, rolling back, forgetting, keys."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
from starlette.responses import Response

from hushprice.service.core.warmup import warm_up
from hushprice.service.definition import Definition
from hushprice.service.guardrails import Guardrails
from hushprice.service.http.bodies.answers import (
    CreatedAnswer,
    GuardrailsAnswer,
    KeysAnswer,
    NewKeyAnswer,
    VersionAnswer,
)
from hushprice.service.http.bodies.reader import BodyReader
from hushprice.service.http.bodies.requests import (
    ForgetBody,
    GuardrailsBody,
    KeyBody,
    ModeBody,
    ProductBody,
    RollbackBody,
)
from hushprice.service.http.endpoint import PRODUCT, ApiRequest, Endpoint
from hushprice.service.http.responses import Problem, answer
from hushprice.service.settings import hash_of, new_secret


async def create_product(request: ApiRequest) -> Response:
    """Create a product.

    A definition never changes: the same one again is accepted, a different one of the same name is refused.
    """
    body: ProductBody = request.body
    definition = await asyncio.to_thread(Definition.of, body.name, body.definition)  # may compute noise levels
    with suppress(Exception):  # this compiles the kernels, for which the writer should not wait;
        await asyncio.to_thread(warm_up, definition)  # a failure appears again at the first sale
    created = await request.app.result(request.app.service.create(definition))
    return answer({"name": definition.name, "created": created}, 201 if created else 200)


async def mode(request: ApiRequest) -> Response:
    """Set the mode: live, shadow or frozen.

    live: quote and learn. shadow: quote the baseline (or the shop's price) and learn. frozen: quote, learn nothing.
    """
    body: ModeBody = request.body
    view = await request.app.reads.view(request.product_name, fresh=False)
    version = await request.app.result(request.app.service.set_mode(view.name, body.mode, by=request.key_name))
    return answer({"version": version})


async def guardrails(request: ApiRequest) -> Response:
    """Set the limits within which prices must stay.

    They replace all earlier guardrails: a limit that is omitted no longer holds."""
    body: GuardrailsBody = request.body
    view = await request.app.reads.view(request.product_name, fresh=False)
    rails = Guardrails.of(msgspec.to_builtins(body))
    version = await request.app.result(request.app.service.set_guardrails(view.name, rails, by=request.key_name))
    return answer({"version": version, "guardrails": rails.config()})


async def rollback(request: ApiRequest) -> Response:
    """Go back to what was learned up to an earlier version; mode and guardrails stay."""
    body: RollbackBody = request.body
    view = await request.app.reads.view(request.product_name, fresh=False)
    version = await request.app.result(request.app.service.roll_back(view.name, body.version, by=request.key_name))
    return answer({"version": version})


async def forget(request: ApiRequest) -> Response:
    """Let old outcomes of a plain product count less: half at the age given, a quarter at twice that age.

    Once; later outcomes count in full."""
    body: ForgetBody = request.body
    view = await request.app.reads.view(request.product_name, fresh=False)
    version = await request.app.result(request.app.service.forget(view.name, body.half_life, by=request.key_name))
    return answer({"version": version})


async def list_keys(request: ApiRequest) -> Response:
    """All keys, without their secrets."""
    keys = await asyncio.to_thread(request.app.service.store.keys)
    public = ("id", "name", "role", "created", "revoked")
    return answer({"keys": [{field: getattr(key, field) for field in public} for key in keys]})


async def create_key(request: ApiRequest) -> Response:
    """Make a key. Only this answer contains its secret."""
    body: KeyBody = request.body
    secret = new_secret(body.role)
    store = request.app.service.store
    number = await asyncio.to_thread(store.add_key, body.name, body.role, hash_of(secret))
    await asyncio.to_thread(request.app.keys.refresh)
    return answer({"id": number, "name": body.name, "role": body.role, "secret": secret}, 201)


async def revoke_key(request: ApiRequest) -> Response:
    """Revoke a key: here at once, in other processes within seconds."""
    number = request.http.path_params["id"]
    known = number.isascii() and number.isdigit() and len(number) < 10
    if not known or not await asyncio.to_thread(request.app.service.store.revoke_key, int(number)):
        raise Problem(404, "not_found", "There is no such key, or it was revoked before.")
    await asyncio.to_thread(request.app.keys.refresh)
    return Response(status_code=204)


ENDPOINTS = (
    Endpoint(
        method="POST", path="/v1/products", run=create_product, role="admin",
        body=BodyReader(ProductBody, free_form=True), answer=CreatedAnswer, creates=True, refusals=(409,), tag="admin",
        echo=True,
    ),
    Endpoint(
        method="POST", path=f"{PRODUCT}/mode", run=mode, role="admin", body=BodyReader(ModeBody), answer=VersionAnswer,
        refusals=(409,), tag="admin",
    ),
    Endpoint(
        method="POST", path=f"{PRODUCT}/guardrails", run=guardrails, role="admin", body=BodyReader(GuardrailsBody),
        answer=GuardrailsAnswer, refusals=(409,), tag="admin", echo=True,
    ),
    Endpoint(
        method="POST", path=f"{PRODUCT}/rollback", run=rollback, role="admin", body=BodyReader(RollbackBody),
        answer=VersionAnswer, refusals=(409,), tag="admin",
    ),
    Endpoint(
        method="POST", path=f"{PRODUCT}/forget", run=forget, role="admin", body=BodyReader(ForgetBody),
        answer=VersionAnswer, refusals=(409,), tag="admin",
    ),
    Endpoint(method="GET", path="/v1/keys", run=list_keys, role="admin", answer=KeysAnswer, tag="keys"),
    Endpoint(
        method="POST", path="/v1/keys", run=create_key, role="admin", body=BodyReader(KeyBody),
        answer=NewKeyAnswer, tag="keys", status=201, refusals=(409,),
    ),
    Endpoint(method="DELETE", path="/v1/keys/{id}", run=revoke_key, role="admin", status=204, tag="keys"),
)  # fmt: skip
