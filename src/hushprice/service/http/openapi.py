"""The OpenAPI description, made from the declarations of the endpoints and the types of bodies and answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from hushprice.service.http.bodies.answers import ErrorAnswer
from hushprice.service.http.bodies.requests import END, FORMS, RandomisedReport
from hushprice.service.http.endpoint import Endpoint
from hushprice.service.http.responses import STATUSES
from hushprice.version import __version__

ABOUT = """Prices that learn, and can keep quiet about who taught them.

Private products: a device gets `params`, computes the price and posts a randomised report. Plain products: `offers`
quotes a price for a context, `outcomes` takes what was bought. Acknowledged data is on disk; sending the same id again
changes nothing. Refusals never repeat what was sent."""
_REF = "#/components/schemas/{name}"


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Describe endpoints.

    Parameters
    ----------
    endpoints : sequence of Endpoint
        All endpoints of the application.

    Returns
    -------
    dict
        An OpenAPI 3.1 document.
    """
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    key = {"type": "http", "scheme": "bearer", "description": "hp_device_..., hp_seller_... or hp_admin_..."}
    return {
        "openapi": "3.1.0",
        "info": {"title": "hushprice", "description": ABOUT, "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas(endpoints), "securitySchemes": {"key": key}},
    }


def schemas(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The JSON Schemas of all bodies and answers, by the name of their type."""
    types = dict.fromkeys([ErrorAnswer])
    for endpoint in endpoints:
        types |= dict.fromkeys(endpoint.body.types if endpoint.body is not None else ())
        types |= dict.fromkeys([endpoint.answer] if endpoint.answer is not None else [])
    generated = msgspec.json.schema_components(types, ref_template=_REF)[1]
    components: dict[str, Any] = json.loads(json.dumps(generated).replace(json.dumps(END)[1:-1], ""))
    components[RandomisedReport.__name__]["oneOf"] = FORMS
    return components


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    summary, _, rest = (endpoint.run.__doc__ or "").partition("\n")
    role = "Needs no key." if endpoint.role is None else f"Needs a key of the role {endpoint.role} or above."
    operation: dict[str, Any] = {
        "tags": [endpoint.tag],
        "summary": summary.rstrip("."),
        "description": f"{' '.join(rest.split())} {role}".strip(),
        "operationId": endpoint.name,
        "parameters": [*_path_parameters(endpoint.path), *endpoint.parameters],
        "responses": _responses(endpoint),
    }
    if endpoint.body is not None:
        references = [_reference(kind) for kind in endpoint.body.types]
        schema = references[0] if len(references) == 1 else {"anyOf": references}
        operation["requestBody"] = {"required": True, "content": _json(schema)}
    if endpoint.role is not None:
        operation["security"] = [{"key": []}]
    return operation


def _reference(kind: type[Any]) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _responses(endpoint: Endpoint) -> dict[str, dict[str, Any]]:
    """Every status that is possible."""
    success: dict[str, Any] = {"description": "Done."}
    if endpoint.headers:
        success["headers"] = {k: {"description": v, "schema": {"type": "string"}} for k, v in endpoint.headers.items()}
    if endpoint.answer is not None:
        success["content"] = _json(_reference(endpoint.answer))
    elif endpoint.status != 204:
        success["content"] = {endpoint.media_type: {"schema": {"type": "string"}}}
    responses = {str(endpoint.status): success}
    if endpoint.creates:
        responses["201"] = {**success, "description": "Created."}
    return responses | {str(status): _refusal(status) for status in sorted(_refusal_statuses(endpoint))}


def _refusal_statuses(endpoint: Endpoint) -> set[int]:
    statuses = {*endpoint.refusals, 500}
    if not endpoint.unlimited:
        statuses |= {429}
    if endpoint.role is not None:
        statuses |= {401, 403, 503}
    if endpoint.body is not None:
        statuses |= {400, 408, 413, 415, 422}
    if "{" in endpoint.path:
        statuses |= {404}
    return statuses


def _refusal(status: int) -> dict[str, Any]:
    response: dict[str, Any] = {"description": STATUSES[status]}
    if status != 304:
        response["content"] = _json(_reference(ErrorAnswer))
    if status in (429, 503):
        response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return response


def _path_parameters(path: str) -> list[dict[str, Any]]:
    schemas: dict[str, dict[str, Any]] = {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,39}$", "examples": ["coffee"]},
        "id": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
        "file": {"type": "string", "pattern": "^[A-Za-z0-9._-]+$"},
    }
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": schemas[name]} for name in names]
