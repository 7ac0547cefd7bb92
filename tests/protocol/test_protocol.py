"""The schemas of ``protocol/``: the service, its description and both devices agree with them."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.validators import extend

from hushprice.demand import FAMILIES
from hushprice.device import mechanism
from hushprice.device import params as device_params
from hushprice.device.demand import FAMILIES as DEVICE_FAMILIES
from hushprice.device.demand import PHASES
from hushprice.device.promise import Promise
from hushprice.errors import BrokenPromise
from hushprice.privacy import REGISTRY, VectorMechanism
from hushprice.service import Definition, OfferRequest, OutcomeItem, Service, Store
from hushprice.service.demo.products import COFFEE
from hushprice.service.http.app import DESCRIPTION
from hushprice.service.http.bodies.reader import BodyReader
from hushprice.service.http.bodies.requests import OfferBody, OutcomeBody, OutcomesBody, ReportBody, ReportsBody
from hushprice.service.http.responses import Problem, encoded
from tests.support.fuzz import GOOD, ODD, spoil
from tests.support.node import DEVICE, run_node
from tests.support.paths import ROOT

FOLDER = ROOT / "protocol"
WAIT = 300.0  # seconds: the kernels may have to be compiled first
NAMES = sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.schema.json"))
Check = Callable[[Any], bool]


def schema(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))
    return content


def _is_integer(_: Any, value: Any) -> bool:
    return type(value) is int  # JSON Schema takes 1.0 for an integer; the protocol does not


Strict = extend(Draft202012Validator, type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer))


@cache
def validator(name: str) -> Any:
    return Strict(schema(name))


def conforms(name: str, value: Any) -> bool:
    valid: bool = validator(name).is_valid(value)
    return valid


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_schemas(name: str) -> None:
    assert NAMES == ["offer", "outcome", "params", "report"]
    Draft202012Validator.check_schema(schema(name))
    assert schema(name)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


# -- what is sent -----------------------------------------------------------------------------------------------------

RULES = {"segments": ["new", "old"], "ranges": {"new": [1.5, 4.0]}, "ladder": [1.0, 1.5, 2.5, 3.5, 5.0]}
PRIVATE = {
    "ball": COFFEE,
    "family": {**COFFEE, "family": "poisson", "demand_max": 5.0},
    "gaussian": {
        **{key: COFFEE[key] for key in COFFEE if key != "noise"},
        "policy": "etc-ldp-approx",
        "horizon": 1_000,
        "delta": 1e-5,
    },
    "rules": {**COFFEE, "rules": RULES, "guardrails": {"low": 1.5}},
    "unnamed": {**COFFEE, "dim": 2, "features": [], "centre": [0.0] * 4, "policy": "etc-ldp", "horizon": 1_000},
}
PLAIN = {"policy": "etc-doubling", "family": "logistic", "dim": 2, "prices": [1.0, 5.0]}


def promise_of(document: dict[str, Any]) -> dict[str, Any]:
    """Everything that a document of this product may ask for."""
    return {
        "epsilon": 30.0, "delta": 0.5, "clip": 1e12, "family": document["family"], "segments": document["segments"],
    }  # fmt: skip


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Params documents of a real service, as bytes on the wire and back."""
    with Service(Store.open(f"sqlite:///{tmp_path_factory.mktemp('protocol') / 'x.db'}")) as service:
        for name, definition in PRIVATE.items():
            service.create(Definition.of(name, definition)).result(WAIT)
        return {name: json.loads(encoded(service.view(name).document)) for name in PRIVATE}


def test_published_documents_conform(documents: dict[str, dict[str, Any]]) -> None:
    for document in documents.values():
        validator("params").validate(document)
        assert set(document) == set(schema("params")["required"]) == set(schema("params")["properties"])


@pytest.mark.parametrize("name", ["ball", "gaussian", "family"])
def test_reports_of_a_device_conform(documents: dict[str, dict[str, Any]], name: str) -> None:
    document = documents[name]
    params = device_params.Params.read(document, Promise(**promise_of(document)))
    words = list(range(1, 1 + params.mechanism.words))
    for made in (params.mechanism.report([0.1] * params.mechanism.dim, words), None):
        item = {"id": "0" * 32, "version": params.version, "report": made}
        assert conforms("report", item)
        assert conforms("report", {"reports": [item, item]})


def test_offers_and_outcomes_conform(tmp_path: Path) -> None:
    with Service(Store.open(f"sqlite:///{tmp_path / 'x.db'}")) as service:
        service.create(Definition.of("tea", PLAIN)).result(WAIT)
        offer = service.offer("tea", OfferRequest(context=[1.0, 0.5])).result(WAIT)
        service.outcomes("tea", [OutcomeItem(offer.offer, 1.0)]).result(WAIT)
    answer = {name: getattr(offer, name) for name in schema("offer")["$defs"]["OfferAnswer"]["required"]}
    Strict(schema("offer")["$defs"]["OfferAnswer"]).validate(json.loads(encoded(answer)))


# -- the service's reader ---------------------------------------------------------------------------------------------

READERS = {
    "report": (BodyReader(ReportBody, ReportsBody), GOOD["/v1/products/coffee/reports"]),
    "offer": (BodyReader(OfferBody), GOOD["/v1/products/tea/offers"]),
    "outcome": (BodyReader(OutcomeBody, OutcomesBody), GOOD["/v1/products/tea/outcomes"]),
}
MORE: dict[str, list[Any]] = {
    "report": [
        {"id": "0" * 32, "version": 3, "report": {"grid": [1, -2, 3]}},
        {"id": "0" * 32, "version": 3, "report": None},
        {"id": "0" * 32, "version": 3, "report": {"seed": "0" * 16, "grid": [1]}},
        {"id": "0" * 32, "version": 3, "report": {"seed": "0" * 16}},
    ],
    "offer": [
        {"context": {"distance": 1.5, "loyalty": 2}, "segment": "new", "price": 2},
        {"context": [1, 2], "id": None, "segment": None, "cost": None, "price": None},
    ],
    "outcome": [{"offer": "a" * 64, "y": -3}],
}
SPECIAL = [1.0, 2**31, 2**31 - 1, 2**53 - 1, -(2**53), "0" * 16, "0" * 32, "a" * 64, "a" * 65, "a" * 201, [0] * 20_001]


def _takes(reader: BodyReader, text: str) -> bool:
    try:
        reader.read(text.encode())
    except Problem as problem:
        return problem.status != 422
    return True


@pytest.mark.parametrize("name", list(READERS))
def test_the_service_takes_what_conforms_and_nothing_else(name: str) -> None:
    reader, good = READERS[name]
    taken: list[bool] = []

    @settings(max_examples=1_500, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from([*good, *MORE[name]]), st.lists(st.tuples(st.integers(0, 10**6), odd()), max_size=2))
    def agree(body: Any, changes: list[tuple[int, Any]]) -> None:
        for place, value in changes:
            body = spoil(body, place, value)
        text = json.dumps(body)
        if "\\u0000" in text or "\\ud800" in text:
            return  # not JSON of the strict kind: 400, whatever the schema says
        assert conforms(name, body) == _takes(reader, text), text[:500]
        taken.append(conforms(name, body))

    agree()
    assert 30 < sum(taken) < len(taken) - 30  # both kinds were tried


def odd() -> st.SearchStrategy[Any]:
    return st.sampled_from([*ODD, *SPECIAL]).map(copy.deepcopy)


# -- the description --------------------------------------------------------------------------------------------------

ANNOTATIONS = ("title", "description", "examples", "default")


def bare(part: Any) -> Any:
    """A schema without what only explains it, with references by name alone."""
    if isinstance(part, list):
        return [bare(item) for item in part]
    if not isinstance(part, dict):
        return part
    essence: dict[str, Any] = {}
    for key, value in part.items():
        if key == "properties":
            essence[key] = {name: bare(inner) for name, inner in value.items()}
        elif key == "$ref":
            essence[key] = value.rpartition("/")[2]
        elif key not in ANNOTATIONS:
            essence[key] = sorted(value) if key == "required" else bare(value)
    return essence


@pytest.mark.parametrize("name", ["report", "offer", "outcome"])
def test_openapi_describes_the_same_bodies(name: str) -> None:
    components = DESCRIPTION["components"]["schemas"]
    for part, definition in schema(name)["$defs"].items():
        assert bare(components[part]) == bare(definition), part


def kind(part: dict[str, Any]) -> Any:
    """What a value is in JSON: its type or the values it may have, with what is inside a list."""
    if "$ref" in part:
        return kind(schema("params")["$defs"][part["$ref"].rpartition("/")[2]])
    if "const" in part or "enum" in part:
        return set(part.get("enum", [part.get("const")]))
    return part["type"], kind(part["items"]) if "items" in part else None


def test_openapi_describes_the_same_params_document() -> None:
    described = DESCRIPTION["components"]["schemas"]["ParamsAnswer"]
    wanted = schema("params")
    assert sorted(described["required"]) == sorted(wanted["required"])
    assert {name: kind(part) for name, part in described["properties"].items()} == {
        name: kind(part) for name, part in wanted["properties"].items()
    }


# -- the devices ------------------------------------------------------------------------------------------------------

LENIENT = Draft202012Validator(schema("params"))  # 1.0 is an integer: JavaScript does not see the decimal point


def _spoiled(documents: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Documents with one part changed that do not conform; each field of each among them."""
    rng = np.random.default_rng(5)
    odds: list[Any] = [value for value in [*ODD, 0.5, -0.5, "a" * 201, [1.0], [5.0, 1.0, 2.0]] if value != "\ud800"]
    wrong: list[dict[str, Any]] = []
    for document in documents.values():
        candidates = [{key: document[key] for key in document if key != name} for name in document]
        candidates += [{**document, name: value} for name in document for value in odds]
        candidates += [{**document, "features": _odd_features(document["features"], odd)} for odd in range(5)]
        candidates += [{**document, "ladder": sorted({*np.linspace(1.0, 5.0, 10_001), *document["ladder"]})}]
        candidates += [spoil(document, int(rng.integers(10**6)), odds[k % len(odds)]) for k in range(300)]
        wrong += [candidate for candidate in candidates if not LENIENT.is_valid(candidate)]
    return wrong


def _odd_features(features: list[dict[str, Any]], odd: int) -> list[dict[str, Any]]:
    """Features of which the last one has other keys than it may have."""
    numbers = {"name": "n", "value": 0.0, "low": 0.0, "high": 1.0}
    keys = [("name",), ("name", "low"), ("name", "high"), ("name", "value", "low"), tuple(numbers)][odd]
    return [*features[:-1], {key: numbers[key] for key in keys}]


def test_the_python_device_refuses_what_does_not_conform(documents: dict[str, dict[str, Any]]) -> None:
    assert all(_python_takes(document, promise_of(document)) for document in documents.values())
    wrong = _spoiled(documents)
    assert len(wrong) > 1_000
    assert [document for document in wrong if _python_takes(document, _promise_for(document, documents))] == []


def _python_takes(document: Any, promise: dict[str, Any]) -> bool:
    try:
        device_params.Params.read(document, Promise(**promise))
    except BrokenPromise:
        return False
    return True


def _promise_for(spoiled: Any, documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the device promised of the product that a spoiled document was made from, as far as that can be known."""
    product = spoiled.get("product") if isinstance(spoiled, dict) else None
    return promise_of(documents[product if isinstance(product, str) and product in documents else "ball"])


def test_the_javascript_device_refuses_what_does_not_conform(
    documents: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    right = list(documents.values())
    wrong = _spoiled(documents)
    cases: list[tuple[dict[str, Any], str]] = [(promise_of(document), json.dumps(document)) for document in right]
    cases += [(_promise_for(document, documents), json.dumps(document)) for document in wrong]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    takes = json.loads(run_node("tools/params.mjs", tmp_path / "cases.json"))
    assert takes[: len(right)] == [True] * len(right)
    accepted = [text for (_, text), took in zip(cases, takes, strict=True) if took]
    assert accepted[len(right) :] == []


def test_families_phases_and_mechanisms_have_the_same_names_everywhere() -> None:
    properties = schema("params")["properties"]
    declarations = (DEVICE / "index.d.ts").read_text()
    assert set(properties["family"]["enum"]) == set(FAMILIES) == set(DEVICE_FAMILIES) == union(declarations, "Family")
    script = 'import { FAMILIES } from "#device/kernels.js"; console.log(JSON.stringify(FAMILIES))'
    assert set(json.loads(run_node("--input-type=module", "--eval", script))) == set(FAMILIES)
    names = set(schema("params")["$defs"]["mechanism"]["properties"]["name"]["enum"])
    vectors = {name for name, cls in REGISTRY.items() if issubclass(cls, VectorMechanism)}
    assert names == vectors == set(get_args(mechanism.Name)) == union(declarations, "MechanismName")
    assert set(properties["phase"]["enum"]) == set(PHASES)
    assert set(properties["mode"]["enum"]) == set(device_params.MODES)


def union(declarations: str, name: str) -> set[str]:
    """The strings of a TypeScript union type."""
    match = re.search(rf"^export type {name} =(.*?);", declarations, re.MULTILINE | re.DOTALL)
    assert match is not None
    return set(re.findall(r'"(.*?)"', match[1]))


TYPESCRIPT = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}


def typescript(part: dict[str, Any]) -> str:
    """The type of a value of the schema as the declarations write it."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        own = {"range": "readonly [number, number]", "mechanism": "Mechanism", "feature": "Feature"}
        return own.get(name) or typescript(schema("params")["$defs"][name])
    if "enum" in part:
        return " | ".join(f'"{value}"' for value in part["enum"])
    return f"readonly {typescript(part['items'])}[]" if part["type"] == "array" else TYPESCRIPT[part["type"]]


def fields(declarations: str, name: str) -> dict[str, str]:
    """The fields of a TypeScript class or interface."""
    body = re.search(rf"^export (?:declare class|interface) {name} {{\n(.*?)^}}", declarations, re.M | re.S)
    assert body is not None
    return dict(re.findall(r"^  readonly (\w+): (.*);$", body[1], re.MULTILINE))


def test_the_declarations_have_the_types_of_the_schema() -> None:
    declarations = (DEVICE / "index.d.ts").read_text()
    wanted = {name: typescript(part) for name, part in schema("params")["properties"].items() if "const" not in part
              and part.get("type") != "object"}  # fmt: skip
    wanted |= {name: typescript(part) for name, part in schema("params")["properties"]["score"]["properties"].items()}
    declared = fields(declarations, "Params")
    own = {"terms": "the ranges in force", "document": "a copy"}
    assert set(declared) - set(own) <= set(wanted)
    declared["family"] = wanted["family"] if declared["family"] == "Family" else ""
    assert {name: declared[name] for name in set(declared) - set(own)} == {
        name: wanted[name] for name in set(declared) - set(own)
    }
    mechanisms = fields(declarations, "Mechanism")
    parts = schema("params")["$defs"]["mechanism"]["properties"]
    assert mechanisms == {**dict.fromkeys(parts, "number"), "name": "MechanismName", "coin": "bigint"}


def test_the_declarations_have_the_parts_of_a_report() -> None:
    declarations = (DEVICE / "index.d.ts").read_text()
    parts = schema("report")["$defs"]
    forms = parts["RandomisedReport"]["properties"]
    wanted = {name: typescript(part).removeprefix("readonly ") for name, part in forms.items()}
    match = re.search(r"^export type Report = (.*);$", declarations, re.MULTILINE)
    assert match is not None
    assert dict(re.findall(r"(\w+): ([\w\[\]]+)", match[1])) == wanted
    item = fields(declarations, "Item")
    assert item == {"id": "string", "version": "number", "report": "Report | null"}
    assert set(item) == set(parts["ReportBody"]["required"])
