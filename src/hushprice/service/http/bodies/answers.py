"""The types of answers, for the description in OpenAPI; the tests check that answers conform."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from hushprice.demand import FAMILIES
from hushprice.service.settings import Role

Kind = Literal["private", "plain"]
ModeName = Literal["live", "shadow", "frozen"]


class Answer(Struct, forbid_unknown_fields=True):
    """Base class of answers that have exactly these fields."""


class ErrorDetail(Answer):
    """What went wrong; never contains what was sent."""

    code: Annotated[str, Meta(description="For programs.", examples=["invalid"])]
    message: Annotated[
        str, Meta(description="For people: what was wrong, what to do.", examples=["version is missing."])
    ]
    where: Annotated[
        list[str | int] | None, Meta(description="Where in the body.", examples=[["reports", 3, "version"]])
    ] = None


class ErrorAnswer(Answer):
    """Every refusal."""

    error: ErrorDetail


class GuardrailsInForce(Answer):
    """Limits on prices; null and an empty ladder limit nothing."""

    low: float | None
    high: float | None
    ladder: list[float]
    largest_step: float | None


class ProductLine(Answer):
    """One of the products."""

    name: str
    kind: Kind
    version: int
    mode: ModeName
    currency: str


class ProductsAnswer(Answer):
    """All products."""

    products: list[ProductLine]


class ProductAnswer(Answer):
    """The definition of a product and its present state."""

    name: str
    kind: Kind
    definition: dict[str, Any]
    mode: ModeName
    guardrails: GuardrailsInForce
    version: int
    seq: int
    phase: str
    counts: dict[str, float]
    open_offers: int
    guarantee: Annotated[str, Meta(description="What customers are promised, in words.")]


class CreatedAnswer(Answer):
    """A product that is new, or that existed with the same definition."""

    name: str
    created: bool


class AcceptedReports(Answer):
    """How many reports were accepted; all are on disk."""

    accepted: Annotated[int, Meta(description="Accepted now.")]
    known: Annotated[int, Meta(description="Accepted before; not counted again.")]
    version: Annotated[int, Meta(description="Version of the parameters that are published now.")]


class AcceptedOutcomes(Answer):
    """How many outcomes were accepted; all are on disk."""

    accepted: int
    known: int
    late: Annotated[int, Meta(description="Of those accepted: recorded after the wait, so not learned from.")]


class OfferAnswer(Answer):
    """A price for this customer."""

    offer: Annotated[str, Meta(description="Id under which to send the outcome.")]
    price: float
    experiment: Annotated[bool, Meta(description="Whether the price was drawn to learn from.")]
    propensity: Annotated[
        float | None, Meta(description="Density, or probability if discrete, of the price; null if unknown.")
    ]
    discrete: bool
    version: int


class VersionAnswer(Answer):
    """The version after a change."""

    version: int


class GuardrailsAnswer(Answer):
    """The version after a change of guardrails, and the guardrails that are in force now."""

    version: int
    guardrails: GuardrailsInForce


class StateAnswer(Answer):
    """How far the log is folded, and the SHA-256 of the result."""

    seq: int
    version: int
    digest: str


class ChangeLine(Answer):
    """A change of the mode, of the guardrails or of what is known, with what was asked for."""

    seq: int
    at: float
    kind: Literal["mode", "guardrails", "rollback", "forget"]
    by: Annotated[str, Meta(description="The name of the key.")]
    mode: ModeName | UnsetType = UNSET
    low: float | UnsetType | None = UNSET
    high: float | UnsetType | None = UNSET
    ladder: list[float] | UnsetType = UNSET
    largest_step: float | UnsetType | None = UNSET
    version: Annotated[int, Meta(description="The version returned to.")] | UnsetType = UNSET
    half_life: Annotated[float, Meta(description="In outcomes.")] | UnsetType = UNSET


class VersionLine(Answer):
    """A version to which one can roll back."""

    version: int
    at: float | None
    customers: int


class HistoryAnswer(Answer):
    """Changes made by hand, and versions to which one can roll back."""

    events: list[ChangeLine]
    versions: list[VersionLine]


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
    """A new key; no later answer contains its secret."""

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


FamilyName = Annotated[str, Meta(extra_json_schema={"enum": list(FAMILIES)})]
PriceRange = Annotated[list[float], Meta(min_length=2, max_length=2)]


class ParamsAnswer(Struct):
    """All that a device needs to price and to report; public."""

    format: Literal["hushprice params"]
    protocol: Literal[1]
    product: str
    version: int
    mode: ModeName
    family: FamilyName
    dim: int
    prices: PriceRange
    experiments: PriceRange
    cost: float
    ladder: list[float]
    ranges: dict[str, PriceRange]
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


class OpenAnswer(Struct):
    """An object of no fixed fields."""
