"""How an endpoint is described in OpenAPI: what FastAPI cannot see in a signature that takes a request only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushprice.service.http.responses import STATUSES, ErrorAnswer

if TYPE_CHECKING:
    from hushprice.service.http.endpoint import Endpoint


def prose(endpoint: Endpoint) -> str:
    """What an operation does, after its first line, and for whom."""
    text = " ".join((endpoint.run.__doc__ or "").partition("\n")[2].split())
    role = "Needs no key." if endpoint.role is None else f"Needs a key of the role {endpoint.role} or above."
    return f"{text} {role}".strip()


def responses(endpoint: Endpoint) -> dict[int | str, dict[str, Any]]:
    """Every status there can be."""
    good: dict[str, Any] = {"description": "Done."}
    if endpoint.headers:
        good["headers"] = {k: {"description": v, "schema": {"type": "string"}} for k, v in endpoint.headers.items()}
    if endpoint.answer is not None:
        good["model"] = endpoint.answer
    elif endpoint.status != 204:
        good["content"] = {endpoint.kind: {"schema": {"type": "string"}}}
    found: dict[int | str, dict[str, Any]] = {endpoint.status: good}
    if endpoint.created:
        found[201] = {**good, "description": "Created."}
    refusals = {*endpoint.refusals, 500}
    if not endpoint.free:
        refusals |= {429}
    if endpoint.role is not None:
        refusals |= {401, 403, 503}
    if endpoint.body:
        refusals |= {400, 408, 413, 415, 422}
    if "{" in endpoint.path:
        refusals |= {404}
    for status in sorted(refusals):
        found[status] = {"description": STATUSES[status]}
        if status != 304:
            found[status]["model"] = ErrorAnswer
    for status in refusals & {429, 503}:
        found[status]["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return found


def extra(endpoint: Endpoint) -> dict[str, Any]:
    """What FastAPI cannot see in the signature: parameters, body and key."""
    extra: dict[str, Any] = {"parameters": [*_path_parameters(endpoint.path), *endpoint.query]}
    if endpoint.body:
        refs = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in endpoint.body]
        schema = refs[0] if len(refs) == 1 else {"anyOf": refs}
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if endpoint.role is not None:
        extra["security"] = [{"key": []}]
    return extra


def _path_parameters(path: str) -> list[dict[str, Any]]:
    schemas: dict[str, dict[str, Any]] = {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,39}$", "examples": ["coffee"]},
        "id": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
        "file": {"type": "string", "pattern": "^[A-Za-z0-9._-]+$"},
    }
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": schemas[name]} for name in names]
