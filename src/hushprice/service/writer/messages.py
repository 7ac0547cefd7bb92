"""Items and answers of commands, as immutable values that any thread may hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from hushprice.errors import InvalidInput
from hushprice.policies import Params
from hushprice.privacy import wire
from hushprice.service.core.events import Mode, report_id
from hushprice.service.definition import Definition
from hushprice.service.guardrails import Guardrails


class Reported(TypedDict):
    """A report whose shape was checked: 32 hexadecimal digits, a whole number, and what a device makes or None."""

    id: str
    version: int
    report: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ReportItem:
    """What a device sends.

    Attributes
    ----------
    id : str
        Id of the report; a retry has the same.
    version : int
        Version of the params that the device priced with.
    report : mapping or None
        As :meth:`hushprice.privacy.Report.to_dict` writes it, or None.
    """

    id: str
    version: int
    report: Mapping[str, Any] | None

    def checked(self) -> Reported:
        """Return the item as plain data; :class:`InvalidInput` if it does not have the shape of a report."""
        if isinstance(self.version, bool) or not isinstance(self.version, int) or not 0 <= self.version < 2**62:
            raise InvalidInput("The version of a report must be that of the parameters it was made against.")
        made = None if self.report is None else wire.checked(self.report)
        return {"id": report_id(self.id), "version": self.version, "report": made}


@dataclass(frozen=True, slots=True)
class OutcomeItem:
    """What the customer of an offer bought.

    Attributes
    ----------
    offer : str
        Id of the offer.
    y : float
        What the customer bought.
    """

    offer: str
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What became of the items of a command.

    Attributes
    ----------
    accepted : int
        Number of items that are new.
    known : int
        Number of items that were accepted before.
    late : int
        Number of new outcomes that came too late to learn from.
    version : int
        Version of the params after them.
    """

    accepted: int
    known: int
    late: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferAnswer:
    """A quoted price.

    Attributes
    ----------
    offer : str
        Id of the offer.
    price : float
        The price.
    experiment : bool
        Whether the price was chosen to learn.
    propensity : float or None
        Probability or density of the price; None if it is unknown.
    discrete : bool
        Whether the propensity is a probability.
    version : int
        Version of the params.
    known : bool
        Whether the same request was answered before.
    """

    offer: str
    price: float
    experiment: bool
    propensity: float | None
    discrete: bool
    version: int
    known: bool = False


@dataclass(frozen=True, kw_only=True)
class View:
    """A product's state after event ``seq``, which any thread may read without the writer.

    Attributes
    ----------
    definition : Definition
        The product.
    seq : int
        Number of the last event.
    version : int
        Version of the params.
    at : float
        When the last event was written, in seconds since 1970.
    mode : str
        "live", "shadow" or "frozen".
    guardrails : Guardrails
        The guardrails in force.
    params : Params
        The params as published, without bounds.
    document : mapping or None
        The params document of a private product; None for a plain one.
    counts : mapping of str to int
        The counts of ``core/statistics.py`` by name, such as "reports".
    waiting : int
        Number of open offers.
    """

    definition: Definition
    seq: int
    version: int
    at: float
    mode: Mode
    guardrails: Guardrails
    params: Params
    document: Mapping[str, Any] | None = field(repr=False)
    counts: Mapping[str, int]
    waiting: int

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def private(self) -> bool:
        return self.definition.private

    @property
    def phase(self) -> str:
        """The name of the phase, such as "explore"."""
        return self.params.phase.name.lower()

    @property
    def etag(self) -> str:
        """The ETag of the params document."""
        return f'"{self.version}"'
