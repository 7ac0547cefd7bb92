"""What may be sent to the service, and a strict reader of it that never tells what it was sent.

JSON is read by the letter: NaN and Infinity, a key given twice, NUL, half a surrogate pair, numbers of thousands of
digits and text that is not UTF-8 are refused, since one of the readers down the line (a database, JavaScript) would
take them for something else or not at all. A refusal says where and what is wrong in words of our own, never with a
value: pydantic's messages, and the names of unknown keys, are not passed on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic takes that of typing from Python 3.12 on only

from hushprice.errors import InvalidInput
from hushprice.service.http.responses import Problem
from hushprice.service.settings import Role

LARGEST_BATCH = 1_000
LARGEST_INTEGER = 2**53 - 1  # beyond it JSON is not the same number everywhere
DEEPEST = 32

Whole = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
Price = Annotated[float, Field(ge=0.0, le=1e12)]
ReportId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$", min_length=32, max_length=32)]
OfferId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,64}$", min_length=1, max_length=64)]
ProductName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$", min_length=1, max_length=40)]
KeyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$", min_length=1, max_length=64)]
Segment = Annotated[str, StringConstraints(min_length=1, max_length=200)]


STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Body(BaseModel):
    """Exactly these keys, of exactly these types. (What comes by the thousand is a TypedDict: half the work.)"""

    model_config = {**STRICT, "frozen": True}


@with_config(STRICT)
class Directions(TypedDict):
    """A report by one of public directions (L2-ball, PrivUnit)."""

    seed: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$"), Field(examples=["09af3c5577e1d2b4"])]
    index: Annotated[int, Field(ge=0, le=2**31 - 1, examples=[1])]


@with_config(STRICT)
class Grid(TypedDict):
    """A report on a grid (Gaussian)."""

    grid: Annotated[
        list[Annotated[int, Field(ge=-LARGEST_INTEGER, le=LARGEST_INTEGER)]], Field(min_length=1, max_length=20_000)
    ]


@with_config(STRICT)
class ReportBody(TypedDict):
    """One customer's randomised report, or null: served, but nothing was asked for or the budget is spent."""

    id: Annotated[ReportId, Field(description="Random, made by the device; the same again is not counted twice.")]
    version: Annotated[Whole, Field(description="Of the parameters it was made against.")]
    report: Directions | Grid | None


class ReportsBody(Body):
    """Several at once; all are taken or none."""

    reports: list[ReportBody] = Field(min_length=1, max_length=LARGEST_BATCH)


class OfferBody(Body):
    """A customer who asks for a price."""

    id: OfferId | None = Field(None, description="Yours, to ask again without harm; made here if left out.")
    context: Annotated[list[float], Field(min_length=1, max_length=10_000)] | dict[str, float] = Field(
        description="The features as a list, or by name.", examples=[[1.0, 0.3, 0.7]]
    )
    segment: Segment | None = None
    cost: float | None = Field(None, ge=0.0, le=1e12)
    price: Price | None = Field(None, description="Only in shadow mode: the price you are going to charge.")


@with_config(STRICT)
class OutcomeBody(TypedDict):
    """What became of an offer."""

    offer: OfferId
    y: Annotated[float, Field(description="1 and 0 for sold or not, or the amount sold.", examples=[1.0])]


class OutcomesBody(Body):
    """Several at once; all are taken or none."""

    outcomes: list[OutcomeBody] = Field(min_length=1, max_length=LARGEST_BATCH)


class ProductBody(Body):
    """A new product."""

    name: ProductName = Field(examples=["coffee"])
    definition: dict[str, Any] = Field(
        description="As in a file of products.",
        examples=[
            {
                "policy": "etc-ldp-doubling",
                "family": "logistic",
                "dim": 3,
                "prices": [1.0, 5.0],
                "epsilon": 2.0,
                "z_max": 2.0,
            }
        ],
    )


class ModeBody(Body):
    """How careful to be."""

    mode: Literal["live", "shadow", "frozen"]


class GuardrailsBody(Body):
    """Within what prices must stay; what is left out or null is not bounded."""

    low: Price | None = None
    high: Price | None = None
    ladder: Annotated[list[Price], Field(max_length=10_000)] | None = None
    largest_step: Annotated[float, Field(gt=0.0, le=1e12)] | None = None


class RollbackBody(Body):
    """Back to what was known after this version."""

    version: Whole


class KeyBody(Body):
    """A new key."""

    name: KeyName = Field(examples=["till-3"])
    role: Role


MODELS: tuple[type[Any], ...] = (
    ReportBody, ReportsBody, OfferBody, OutcomeBody, OutcomesBody, ProductBody, ModeBody, GuardrailsBody, RollbackBody,
    KeyBody,
)  # fmt: skip
_KNOWN = {name for model in (*MODELS, Directions, Grid) for name in model.__annotations__}
_READERS: dict[type[Any], TypeAdapter[Any]] = {model: TypeAdapter(model) for model in MODELS}


def schemas() -> dict[str, Any]:
    """The bodies as OpenAPI describes them, by name."""
    wanted: list[tuple[str, Literal["validation"], TypeAdapter[Any]]]
    wanted = [(model.__name__, "validation", _READERS[model]) for model in MODELS]
    found: dict[str, Any] = TypeAdapter.json_schemas(wanted, ref_template="#/components/schemas/{model}")[1]["$defs"]
    return found


def key_name(name: str) -> str:
    """The name of a key, as it is logged with each request."""
    if not re.fullmatch("[A-Za-z0-9._-]{1,64}", name):
        raise InvalidInput("The name of a key must be 1 to 64 letters, digits, dots, hyphens or underscores.")
    return name


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Problem(400, "malformed", "A key is given twice in the same JSON object.")
    return found


def _no_constant(_: str) -> float:
    raise Problem(400, "malformed", "JSON knows no NaN and no Infinity.")


_decoder = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)


def parse(raw: bytes) -> Any:
    """JSON text as plain data."""
    try:
        value = _decoder.decode(raw.decode())
    except UnicodeDecodeError:
        problem = "The body is not UTF-8."
    except RecursionError:
        problem = "The body is nested too deeply."
    except ValueError as error:  # with the text in it: not passed on
        if isinstance(error, Problem):
            raise
        problem = "The body is not JSON."
    else:
        if raw.count(b"{") + raw.count(b"[") > DEEPEST:
            _check_depth(value)
        if b"\\u" in raw:
            _check_texts(value)
        return value
    raise Problem(400, "malformed", problem)


def _check_depth(value: Any) -> None:
    """Refuse deep nesting, which other readers cannot follow."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for holder in level
            for item in (holder.values() if type(holder) is dict else holder)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return
    raise Problem(400, "malformed", "The body is nested too deeply.")


def _check_texts(value: Any) -> None:
    """Refuse what databases and other languages cannot hold: NUL, and half a surrogate pair."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if "\0" in item or any("\ud800" <= letter <= "\udfff" for letter in item):
                raise Problem(400, "malformed", "A text holds NUL or half a surrogate pair.")
        elif isinstance(item, dict):
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def check(value: Any, model: type[Any]) -> dict[str, Any]:
    """The plain data itself, if it is one of the bodies above. (They are strict, so nothing is converted.)"""
    try:
        _READERS[model].validate_python(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    else:
        checked: dict[str, Any] = value
        return checked
    where, message = _told(details)
    count = _mistakes(details)
    more = f" ({count} things are wrong with the body.)" if count > 1 else ""
    raise Problem(422, "invalid", message + more, where=where)


def one_or_many(value: Any, key: str, one: type[Any], many: type[Any]) -> list[dict[str, Any]]:
    """The items of a body that is a single one or, under ``key``, a batch."""
    if isinstance(value, dict) and key in value:
        items: list[dict[str, Any]] = check(value, many)[key]
        return items
    return [check(value, one)]


def read_reports(raw: bytes) -> list[dict[str, Any]]:
    """The reports in a body, one or many.

    A batch as devices send it is read by pydantic at once, in half the time. Of a key given twice it takes the last
    without a word: so quotation marks are counted, as all that was passed over had some. What it does not take, or may
    have passed over, is read by the letter.
    """
    if raw.startswith(b'{"reports":') and b"\\" not in raw:
        with suppress(ValidationError):
            items: list[dict[str, Any]] = _READERS[ReportsBody].validate_json(raw).reports
            if raw.count(b'"') == 2 + sum(map(_quotes, items)):
                return items
    return one_or_many(parse(raw), "reports", ReportBody, ReportsBody)


def _quotes(item: Mapping[str, Any]) -> int:
    """Quotation marks in the text of a report: 8 of three keys and the id; 6 more of seed, index and the seed
    itself, or 2 of grid."""
    report = item["report"]
    if report is None:
        return 8
    return 14 if "seed" in report else 10


def _told(details: list[Any]) -> tuple[list[str | int], str]:
    """Where the first mistake is, and what it is."""
    # of a union pydantic lists the mistakes of each branch: the deepest one is of the branch that was meant
    worst = max(details, key=lambda detail: len(detail["loc"]))
    where = [part if isinstance(part, int) or part in _KNOWN else "(unknown)" for part in _fields(worst["loc"])]
    unknown = worst["type"] == "extra_forbidden"  # its name is not told, as it is what somebody sent
    place = ".".join(map(str, where[:-1] if unknown else where)) or "The body"
    return where, f"{place} {_text(worst['type'], worst.get('ctx', {}))}."


def _mistakes(details: list[Any]) -> int:
    """How many things are wrong: of a union, which is told a branch at a time, the deepest place alone."""
    places = {tuple(_fields(detail["loc"])) for detail in details}
    return sum(
        not any(len(other) > len(place) and other[: len(place)] == place for other in places) for place in places
    )


def _fields(loc: tuple[str | int, ...]) -> list[str | int]:
    """A location without the names that pydantic gives to the branches of a union."""
    return [part for part in loc if isinstance(part, int) or not _branch(part)]


def _branch(part: str) -> bool:
    return part in ("Directions", "Grid") or part.startswith(("list[", "dict[", "constrained-", "function-"))


def _text(kind: str, ctx: Mapping[str, Any]) -> str:
    """A mistake in words; only bounds of our own are told."""
    bound = {
        "greater_than": "must be above {gt:g}",
        "greater_than_equal": "must be at least {ge:g}",
        "less_than_equal": "must be at most {le:g}",
        "string_pattern_mismatch": "must match {pattern}",
        "string_too_short": "must have at least {min_length} letters",
        "string_too_long": "must have at most {max_length} letters",
        "too_short": "must have at least {min_length} items",
        "too_long": "must have at most {max_length} items",
        "literal_error": "must be one of {expected}",
        "missing": "is missing",
        "extra_forbidden": "has a key that is not known here (/openapi.json has those that are)",
        "finite_number": "must be finite",
        "float_type": "must be a number",
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "string_type": "must be a text",
        "list_type": "must be a list",
        "dict_type": "must be an object",
        "model_type": "must be an object",
    }.get(kind, "is not valid")
    return bound.format(**ctx)
