"""What admins do: products, modes, guardrails, rolling back, keys."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import Response

from hushprice.service.core.warmup import warm_up
from hushprice.service.definition import Definition
from hushprice.service.guardrails import Guardrails
from hushprice.service.http.endpoint import PRODUCT, Call, Endpoint
from hushprice.service.http.request_bodies import GuardrailsBody, KeyBody, ModeBody, ProductBody, RollbackBody, check
from hushprice.service.http.responses import (
    CreatedAnswer,
    GuardrailsAnswer,
    KeysAnswer,
    NewKeyAnswer,
    Problem,
    VersionAnswer,
    answer,
)
from hushprice.service.settings import hash_of, new_secret


async def create_product(call: Call) -> Response:
    """Create a product.

    A definition never changes: the same again is fine, another one of the same name is refused.
    """
    body = check(call.value, ProductBody)
    definition = await asyncio.to_thread(Definition.of, body["name"], body["definition"])  # may compute noise levels
    with suppress(Exception):  # whatever is wrong with it, those who buy will be told; here it only warms up,
        await asyncio.to_thread(warm_up, definition)  # since compiling takes seconds that the writer must not wait
    created = await call.parts.waiter.result(call.parts.service.create(definition))
    return answer({"name": definition.name, "created": created}, 201 if created else 200)


async def mode(call: Call) -> Response:
    """Go live, into the shadow, or freeze.

    live: quote and learn. shadow: quote the baseline (or the price given) and learn. frozen: quote, learn nothing.
    """
    body = check(call.value, ModeBody)
    view = await call.parts.looks.view(call.product, fresh=False)
    version = await call.parts.waiter.result(call.parts.service.set_mode(view.name, body["mode"], by=call.by))
    return answer({"version": version})


async def guardrails(call: Call) -> Response:
    """Set within what prices must stay: all of it at once.

    They take the place of those before; what is left out is no longer bounded."""
    body = check(call.value, GuardrailsBody)
    view = await call.parts.looks.view(call.product, fresh=False)
    rails = Guardrails.of(body)
    version = await call.parts.waiter.result(call.parts.service.set_guardrails(view.name, rails, by=call.by))
    return answer({"version": version, "guardrails": rails.config()})


async def rollback(call: Call) -> Response:
    """Go back to what was learned up to an earlier version; mode and guardrails stay."""
    body = check(call.value, RollbackBody)
    view = await call.parts.looks.view(call.product, fresh=False)
    version = await call.parts.waiter.result(call.parts.service.roll_back(view.name, body["version"], by=call.by))
    return answer({"version": version})


async def list_keys(call: Call) -> Response:
    """All keys, without their secrets."""
    keys = await asyncio.to_thread(call.parts.service.store.keys)
    told = ("id", "name", "role", "created", "revoked")
    return answer({"keys": [{field: getattr(key, field) for field in told} for key in keys]})


async def create_key(call: Call) -> Response:
    """Make a key. Its secret is in this answer and nowhere else."""
    body = check(call.value, KeyBody)
    secret = new_secret(body["role"])
    store = call.parts.service.store
    number = await asyncio.to_thread(store.add_key, body["name"], body["role"], hash_of(secret))
    await asyncio.to_thread(call.parts.keys.refresh)
    return answer({"id": number, "name": body["name"], "role": body["role"], "secret": secret}, 201)


async def revoke_key(call: Call) -> Response:
    """Revoke a key: here at once, in other processes within seconds."""
    number = call.request.path_params["id"]
    known = number.isascii() and number.isdigit() and len(number) < 10
    if not known or not await asyncio.to_thread(call.parts.service.store.revoke_key, int(number)):
        raise Problem(404, "not_found", "There is no such key, or it was revoked before.")
    await asyncio.to_thread(call.parts.keys.refresh)
    return Response(status_code=204)


ENDPOINTS = (
    Endpoint(
        method="POST", path="/v1/products", run=create_product, role="admin", body=(ProductBody,), answer=CreatedAnswer,
        created=True, refusals=(409,), tag="admin", frank=True,
    ),
    Endpoint(
        method="POST", path=f"{PRODUCT}/mode", run=mode, role="admin", body=(ModeBody,), answer=VersionAnswer,
        refusals=(409,), tag="admin",
    ),
    Endpoint(
        method="POST", path=f"{PRODUCT}/guardrails", run=guardrails, role="admin", body=(GuardrailsBody,),
        answer=GuardrailsAnswer, refusals=(409,), tag="admin", frank=True,
    ),
    Endpoint(
        method="POST", path=f"{PRODUCT}/rollback", run=rollback, role="admin", body=(RollbackBody,),
        answer=VersionAnswer, refusals=(409,), tag="admin",
    ),
    Endpoint(method="GET", path="/v1/keys", run=list_keys, role="admin", answer=KeysAnswer, tag="keys"),
    Endpoint(
        method="POST", path="/v1/keys", run=create_key, role="admin", body=(KeyBody,), answer=NewKeyAnswer, tag="keys",
        status=201, refusals=(409,),
    ),
    Endpoint(method="DELETE", path="/v1/keys/{id}", run=revoke_key, role="admin", status=204, tag="keys"),
)  # fmt: skip
