"""The types of request bodies: exactly these keys with values of exactly these types.

Reports, offers and outcomes are what devices and shops of other makers send, so ``protocol/`` describes them, too.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from hushprice.errors import InvalidInput
from hushprice.service.settings import Role

MAX_BATCH = 1_000
MAX_INTEGER = 2**53 - 1  # larger integers are not the same number in every JSON reader
MAX_PRICE = 1e12
END = r"(?!\n)"  # after $, which in Python also matches before a newline at the end; in JSON Schema it does not


def _pattern(pattern: str, **more: Any) -> Meta:
    """A pattern that ends where the text ends. The descriptions and refusals leave END out."""
    return Meta(pattern=pattern + END, **more)


Version = Annotated[
    int, Meta(ge=0, le=MAX_INTEGER, description="Version of the parameters from which the report was made.")
]
Price = Annotated[float, Meta(ge=0.0, le=MAX_PRICE)]
ReportId = Annotated[
    str,
    _pattern(
        "^[0-9a-f]{32}$",
        min_length=32,
        max_length=32,
        description="Random, chosen by the device; a report with a known id is not counted again.",
    ),
]
OfferId = Annotated[str, _pattern("^[A-Za-z0-9._:-]{1,64}$", min_length=1, max_length=64)]
ProductName = Annotated[str, _pattern("^[a-z0-9][a-z0-9-]{0,39}$", min_length=1, max_length=40, examples=["coffee"])]
KeyName = Annotated[str, _pattern("^[A-Za-z0-9._-]{1,64}$", min_length=1, max_length=64, examples=["till-3"])]
Segment = Annotated[str, Meta(min_length=1, max_length=200)]


class Body(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Base class of request bodies."""


FORMS = [{"required": ["seed", "index"], "maxProperties": 2}, {"required": ["grid"], "maxProperties": 1}]
"""The forms of a :class:`RandomisedReport`, as JSON Schema."""


class RandomisedReport(Body):
    """Seed and index of a public direction (L2-ball, PrivUnit), or a point of a grid (Gaussian)."""

    seed: (
        Annotated[str, _pattern("^[0-9a-f]{16}$", min_length=16, max_length=16, examples=["09af3c5577e1d2b4"])]
        | UnsetType
    ) = UNSET
    index: Annotated[int, Meta(ge=0, le=2**31 - 1, examples=[1])] | UnsetType = UNSET
    grid: (
        Annotated[list[Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]], Meta(min_length=1, max_length=20_000)]
        | UnsetType
    ) = UNSET

    def __post_init__(self) -> None:
        if self.grid is UNSET:
            complete = self.seed is not UNSET and self.index is not UNSET
        else:
            complete = self.seed is UNSET and self.index is UNSET
        if not complete:
            raise ValueError("must have seed and index, or grid")


class ReportBody(Body):
    """The report of one customer; null if none was requested or the customer's budget is spent."""

    id: ReportId
    version: Version
    report: RandomisedReport | None


class ReportsBody(Body):
    """Several reports; all are accepted or none."""

    reports: Annotated[list[ReportBody], Meta(min_length=1, max_length=MAX_BATCH)]


class OfferBody(Body):
    """A customer for whom a price is requested."""

    context: Annotated[
        Annotated[list[float], Meta(min_length=1, max_length=10_000)] | dict[str, float],
        Meta(description="The features as a list, or by name.", examples=[[1.0, 0.3, 0.7]]),
    ]
    id: Annotated[
        OfferId | None,
        Meta(description="Chosen by the shop, so that the request can be repeated; by the service if omitted."),
    ] = None
    segment: Segment | None = None
    cost: Price | None = None
    price: Annotated[Price | None, Meta(description="Only in shadow mode: the price that the shop will charge.")] = None


class OutcomeBody(Body):
    """The outcome of an offer."""

    offer: OfferId
    y: Annotated[float, Meta(description="1 if sold and 0 if not, or the amount sold.", examples=[1.0])]


class OutcomesBody(Body):
    """Several outcomes; all are accepted or none."""

    outcomes: Annotated[list[OutcomeBody], Meta(min_length=1, max_length=MAX_BATCH)]


_DEFINITION = {
    "policy": "etc-ldp-doubling", "family": "logistic", "dim": 3, "prices": [1.0, 5.0], "epsilon": 2.0, "z_max": 2.0,
}  # fmt: skip


class ProductBody(Body):
    """A new product."""

    name: ProductName
    definition: Annotated[dict[str, Any], Meta(description="As in a file of products.", examples=[_DEFINITION])]


class ModeBody(Body):
    """The mode of a product."""

    mode: Literal["live", "shadow", "frozen"]


class GuardrailsBody(Body):
    """Limits on prices; what is omitted or null is not limited."""

    low: Price | None = None
    high: Price | None = None
    ladder: Annotated[list[Price], Meta(max_length=10_000)] | None = None
    largest_step: Annotated[float, Meta(gt=0.0, le=MAX_PRICE)] | None = None


class RollbackBody(Body):
    """The version to return to."""

    version: Annotated[int, Meta(ge=0, le=MAX_INTEGER)]


class ForgetBody(Body):
    """How much is forgotten."""

    half_life: Annotated[
        float,
        Meta(gt=0.0, le=1e12, description="Age in outcomes at which an outcome counts half.", examples=[5000.0]),
    ]


class KeyBody(Body):
    """A new key."""

    name: KeyName
    role: Role


def check_key_name(name: str) -> str:
    """Check the name of a key, which is logged with each request.

    Parameters
    ----------
    name : str
        The name.

    Returns
    -------
    str
        The name.

    Raises
    ------
    InvalidInput
        If it contains other characters than letters, digits, dots, hyphens and underscores, or is too long.
    """
    if not re.fullmatch("[A-Za-z0-9._-]{1,64}", name):
        raise InvalidInput("The name of a key must be 1 to 64 letters, digits, dots, hyphens or underscores.")
    return name
