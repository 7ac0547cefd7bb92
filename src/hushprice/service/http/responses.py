"""What the service answers: ready-made JSON, and refusals that never repeat what was sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from hushprice.errors import HushpriceError
from hushprice.files import without_nan
from hushprice.service.settings import Role

STATUSES: dict[int, str] = {
    304: "Nothing has changed since the version you have.",
    400: "The body is not JSON, or not of the strict kind that is read here.",
    401: "There is no key, or none that is known.",
    403: "The key's role may not do this.",
    404: "There is no such product, offer or key.",
    405: "This address does not take this method.",
    408: "The body took too long to come in.",
    409: "It contradicts what is known already, or the product is of the other kind.",
    413: "The body is too large.",
    415: "The body must be JSON.",
    422: "Something in the body or the query is missing, of the wrong kind or out of range.",
    429: "Too many requests of this key or address: wait as Retry-After says.",
    500: "Something went wrong here; it is in the log.",
    503: "The database is busy or away: try again as Retry-After says. Ids make that harmless.",
}


class Problem(HushpriceError):
    """A refusal as it is sent: a status, a code for programs, a message for people, and where in the body it is."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        where: list[str | int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.where, self.headers = status, code, message, where, headers

    def response(self) -> Response:
        """The answer."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.where is not None:
            error["where"] = self.where
        return answer({"error": error}, self.status, self.headers)


def wait(status: int, code: str, message: str, seconds: float) -> Problem:
    """A refusal that says when to come back."""
    return Problem(status, code, message, headers={"Retry-After": str(max(1, -int(-seconds // 1)))})


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encoded(value: Any) -> bytes:
    """JSON as bytes. What is not finite, which JSON does not have, is null."""
    try:
        return _encode(value).encode()
    except ValueError:
        return _encode(without_nan(value)).encode()


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer. Nobody keeps a copy unless the headers say so."""
    return ready(encoded(value), status, {"Cache-Control": "no-store", **(headers or {})})


def ready(body: bytes, status: int, headers: Mapping[str, str]) -> Response:
    """An answer whose JSON is written already."""
    return Response(body, status_code=status, headers=dict(headers), media_type="application/json")


class Answer(BaseModel):
    """Described in OpenAPI. Answers are not checked against these on their way out; the tests do."""

    model_config = ConfigDict(extra="forbid")


class ErrorDetail(Answer):
    """What went wrong; never with what was sent."""

    code: str = Field(examples=["invalid"], description="For programs.")
    message: str = Field(examples=["version is missing."], description="For people: what was wrong, what to do.")
    where: list[str | int] | None = Field(None, description="Where in the body.", examples=[["reports", 3, "version"]])


class ErrorAnswer(Answer):
    """Every refusal."""

    error: ErrorDetail


class ProductLine(Answer):
    """One of the products."""

    name: str
    kind: Literal["private", "plain"]
    version: int
    mode: Literal["live", "shadow", "frozen"]
    currency: str


class ProductsAnswer(Answer):
    """All products."""

    products: list[ProductLine]


class ProductAnswer(Answer):
    """A product: how it was defined and how it stands."""

    name: str
    kind: Literal["private", "plain"]
    definition: dict[str, Any]
    mode: Literal["live", "shadow", "frozen"]
    guardrails: dict[str, Any]
    version: int
    seq: int
    phase: str
    counts: dict[str, float]
    open_offers: int
    guarantee: str = Field(description="What customers are promised, in words.")


class CreatedAnswer(Answer):
    """A product, new or there already with the same definition."""

    name: str
    created: bool


class AcceptedReports(Answer):
    """What happened to the reports: all are on disk."""

    accepted: int = Field(description="Taken now.")
    known: int = Field(description="Taken before; not counted again.")
    version: int = Field(description="Of the parameters that are published now.")


class AcceptedOutcomes(Answer):
    """What happened to the outcomes: all are on disk."""

    accepted: int
    known: int
    late: int = Field(description="Of those accepted: kept, but after the wait, so not learned from.")


class OfferAnswer(Answer):
    """A price for this customer."""

    offer: str = Field(description="Id, to tell the outcome with.")
    price: float
    experiment: bool = Field(description="Whether the price was drawn to learn from.")
    propensity: float | None = Field(description="Density, or probability if discrete, of the price; null if unknown.")
    discrete: bool
    version: int


class VersionAnswer(Answer):
    """The version after a change."""

    version: int


class GuardrailsAnswer(Answer):
    """The version after a change of guardrails, and those that are in force now."""

    version: int
    guardrails: dict[str, Any]


class StateAnswer(Answer):
    """How far the log is folded, and the SHA-256 of the result."""

    seq: int
    version: int
    digest: str


class HistoryAnswer(Answer):
    """What was changed by hand, and versions one can roll back to."""

    events: list[dict[str, Any]]
    versions: list[dict[str, Any]]


class KeyLine(Answer):
    """A key without its secret."""

    id: int
    name: str
    role: Role
    created: float
    revoked: float | None


class KeysAnswer(Answer):
    """All keys in the table."""

    keys: list[KeyLine]


class NewKeyAnswer(Answer):
    """A new key; its secret is told now and never again."""

    id: int
    name: str
    role: Role
    secret: str


class HealthAnswer(Answer):
    """Alive, or ready."""

    status: Literal["ok"]


class ShopAnswer(Answer):
    """What the demo shop needs."""

    products: list[str]
    key: str


Pair = Annotated[list[float], Field(min_length=2, max_length=2)]


class ParamsAnswer(BaseModel):
    """All a device needs to price by itself and to report: public."""

    model_config = ConfigDict(extra="allow")

    format: Literal["hushprice params"]
    protocol: Literal[1]
    product: str
    version: int
    mode: Literal["live", "shadow", "frozen"]
    family: Literal["logistic", "linear", "poisson"]
    dim: int
    prices: Pair
    experiments: Pair
    cost: float
    ladder: list[float]
    ranges: dict[str, Pair]
    segments: list[str]
    guardrails: dict[str, Any]
    phase: Literal["explore", "exploit", "fixed"]
    level: float
    theta: list[float]
    learn: bool
    centre: list[float]
    radius: float
    score: dict[str, float]
    mechanism: dict[str, Any]
    features: list[dict[str, Any]]
    currency: str
    baseline: float


class OpenAnswer(BaseModel):
    """An object for the page or for a person to read."""

    model_config = ConfigDict(extra="allow")
