"""The params document that a server publishes, read and checked on the device, which does not trust it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from hushprice.device.demand import FAMILIES, PHASES
from hushprice.device.mechanism import Mechanism
from hushprice.device.promise import NO_MORE, Pinned, Promise
from hushprice.errors import LARGEST_COUNT, LARGEST_VALUE, BrokenPromise, HushpriceError, finite, positive_int

PARAMS_FORMAT, PROTOCOL = "hushprice params", 1
MODES = ("live", "shadow", "frozen")
LARGEST_RADIUS = 1e6
LONGEST_LIST = 10_000  # segments, features or prices of a ladder
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A named entry of the context.

    Parameters
    ----------
    name : str
        Its name.
    value : float, optional
        The value of a constant; None for a feature of the customer.
    low, high : float, optional
        Usual range of a feature of the customer, for display only.
    """

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def pinned(self) -> Pinned:
        """What never changes about it: its name, or the name and value of a constant."""
        return self.name if self.value is None else (self.name, self.value)


@dataclass(frozen=True, kw_only=True)
class Params:
    """The parameters that a device needs to price and to report.

    Make it from a document by :meth:`read`, which checks everything. A product never changes the fields in
    :data:`FIXED_FIELDS`, nor the names and constants of its features.

    Attributes
    ----------
    product, currency : str
        Name of the product, and the currency of its prices.
    version : int
        Version of the parameters.
    mode : {"live", "shadow", "frozen"}
        Whether the service sets prices, only watches the shop's, or has stopped learning.
    family : str
        Family of demand.
    dim : int
        Length d of the context.
    prices, experiments, guardrails : (float, float)
        Range of all prices, of experiments, and the operator's current range.
    cost : float
        Unit cost.
    ladder : tuple of float
        The only allowed prices in ascending order; empty if all are.
    segments, ranges : tuple of str and dict
        The customers' segments, and the price range of those that have their own.
    phase, level : str and float
        "explore", "exploit" or "fixed", and the price of the last.
    theta : tuple of float
        The estimate, 2 d numbers.
    learn : bool
        Whether the server asks for reports.
    centre, radius : tuple of float and float
        The ball that theta lies in.
    shift, factor : float
        c and f of the score, which holds the price as f (p - c).
    mechanism : Mechanism
        How reports are randomised.
    features : tuple of Feature
        The entries of the context; empty if they have no names.
    baseline : float
        The price without the service.
    """

    product: str
    version: int
    mode: str
    family: str
    dim: int
    prices: tuple[float, float]
    experiments: tuple[float, float]
    cost: float
    ladder: tuple[float, ...]
    segments: tuple[str, ...]
    ranges: dict[str, tuple[float, float]]
    guardrails: tuple[float, float]
    phase: str
    level: float
    theta: tuple[float, ...]
    learn: bool
    centre: tuple[float, ...]
    radius: float
    shift: float
    factor: float
    mechanism: Mechanism
    features: tuple[Feature, ...]
    currency: str
    baseline: float

    @classmethod
    def read(cls, document: Any, promise: Promise, *, product: str | None = None) -> Params:
        """Read a params document.

        Parameters
        ----------
        document : Any
            Plain data from JSON.
        promise : Promise
            The most that the server may ask for.
        product : str, optional
            The product that it must be about.

        Returns
        -------
        Params

        Raises
        ------
        BrokenPromise
            If it is not a params document, contradicts itself or asks for more than promised.
        """
        try:
            params = _read(cls, document, promise)
        except BrokenPromise:
            raise
        except HushpriceError as problem:
            raise BrokenPromise(f"The server published parameters that cannot be: {problem} {NO_MORE}") from None
        if product is not None and params.product != product:
            raise BrokenPromise(f"The server published the parameters of another product than {product}. {NO_MORE}")
        return params

    @property
    def experiment(self) -> bool:
        """Whether the next price is drawn at random in order to learn."""
        return self.phase == "explore"

    def range(self, segment: str | None) -> tuple[float, float]:
        """Return the range (low, high) of prices for a customer of this segment in the current phase.

        Parameters
        ----------
        segment : str or None
            The segment; None if the product has no segments.
        """
        low, high = self.prices if segment is None else self.ranges.get(segment, self.prices)
        low, high = _cut((low, high), self.guardrails)
        return _cut((low, high), self.experiments) if self.experiment else (low, high)

    def same_product(self, before: Params) -> bool:
        """Return whether everything that a product never changes equals that of other parameters.

        Parameters
        ----------
        before : Params
            The other params.
        """
        mine, theirs = ([feature.pinned for feature in params.features] for params in (self, before))
        return mine == theirs and all(getattr(self, name) == getattr(before, name) for name in FIXED_FIELDS)


FIXED_FIELDS = (
    "product", "family", "dim", "prices", "experiments", "cost", "segments", "ranges", "centre", "radius", "shift",
    "factor", "mechanism",
)  # fmt: skip


def _cut(span: tuple[float, float], to: tuple[float, float]) -> tuple[float, float]:
    """Clip both ends of a range to another range."""
    low, high = (min(max(end, to[0]), to[1]) for end in span)
    return low, high


def _read(cls: type[Params], document: Any, promise: Promise) -> Params:
    fields = _Reader(document)
    if fields.get("format") != PARAMS_FORMAT or fields.whole("protocol", most=LARGEST_COUNT) != PROTOCOL:
        raise BrokenPromise(
            f"This is no {PARAMS_FORMAT} document of protocol {PROTOCOL}: update one side or the other."
        )
    d = fields.whole("dim", least=1, most=1000)
    prices = fields.span("prices")
    promise.check_prices(*prices)
    mechanism = promise.mechanism(fields.get("mechanism"))
    if mechanism.dim != 2 * d:
        raise BrokenPromise(f"Reports must be about 2 dim = {2 * d} numbers, not {mechanism.dim}. {NO_MORE}")
    score = _Reader(fields.get("score"))
    family, segments = fields.one_of("family", FAMILIES), fields.each("segments", _text)
    features = fields.each("features", _feature)
    promise.check_customers(family, segments, [feature.pinned for feature in features])
    params = cls(
        product=_text(fields.get("product")),
        version=fields.whole("version", least=0, most=LARGEST_COUNT - 1),
        mode=fields.one_of("mode", MODES),
        family=family,
        dim=d,
        prices=prices,
        experiments=fields.span("experiments", within=prices),
        cost=fields.number("cost", least=0.0),
        ladder=fields.each("ladder", lambda price: finite("a price", price, minimum=0.0, maximum=LARGEST_VALUE)),
        segments=segments,
        ranges={name: _span(name, pair, prices) for name, pair in _Reader(fields.get("ranges")).plain.items()},
        guardrails=_guardrails(fields.get("guardrails"), prices),
        phase=fields.one_of("phase", PHASES),
        level=fields.number("level"),
        theta=fields.vector("theta", 2 * d, limit=2.0 * LARGEST_RADIUS),
        learn=fields.flag("learn"),
        centre=fields.vector("centre", 2 * d, limit=LARGEST_RADIUS),
        radius=fields.number("radius", least=0.0, most=LARGEST_RADIUS),
        shift=score.number("shift"),
        factor=score.number("factor"),
        mechanism=mechanism,
        features=features,
        currency=fields.text("currency"),
        baseline=fields.number("baseline", least=0.0),
    )
    _check(params)
    return params


def _check(params: Params) -> None:
    """Check the conditions that relate several fields."""
    centre, radius = params.centre, params.radius
    if not math.dist(params.theta, centre) <= radius * (1.0 + 1e-9) + 1e-12 * math.hypot(*centre):
        raise BrokenPromise(f"The published theta lies outside its ball. {NO_MORE}")
    for name, values in (("segments", params.segments), ("ladder", params.ladder)):
        if list(values) != sorted(set(values)):  # type: ignore[type-var]
            raise BrokenPromise(f"The published {name} are not in order, or one comes twice. {NO_MORE}")
    if not set(params.ranges) <= set(params.segments):
        raise BrokenPromise(f"There is a range for a segment that does not exist. {NO_MORE}")
    names = [feature.name for feature in params.features]
    if names and (len(names) != params.dim or len(set(names)) < len(names)):
        raise BrokenPromise(f"There must be {params.dim} features of different names, or none. {NO_MORE}")
    for segment in params.segments or (None,):
        low, high = params.range(segment)
        if params.ladder and not any(low <= price <= high for price in params.ladder):
            raise BrokenPromise(f"No price of the ladder lies within the allowed range. {NO_MORE}")


class _Reader:
    """Reads plain data field by field. Error texts name the field, not its value."""

    def __init__(self, plain: Any) -> None:
        if not isinstance(plain, Mapping) or not all(isinstance(key, str) for key in plain):
            raise BrokenPromise(f"The server's answer is no params document. {NO_MORE}")
        self.plain = plain

    def get(self, name: str) -> Any:
        """A required field."""
        if name not in self.plain:
            raise BrokenPromise(f"The published parameters lack {name}. {NO_MORE}")
        return self.plain[name]

    def number(self, name: str, *, least: float = -LARGEST_VALUE, most: float = LARGEST_VALUE) -> float:
        return finite(name, self.get(name), minimum=least, maximum=most)

    def whole(self, name: str, *, least: int = 0, most: int) -> int:
        return positive_int(name, self.get(name), minimum=least, maximum=most)

    def flag(self, name: str) -> bool:
        if not isinstance(value := self.get(name), bool):
            raise BrokenPromise(f"{name} must be true or false. {NO_MORE}")
        return value

    def text(self, name: str) -> str:
        if not isinstance(value := self.get(name), str):
            raise BrokenPromise(f"{name} must be a text. {NO_MORE}")
        return value[:20]

    def one_of(self, name: str, known: Collection[str]) -> str:
        value = self.get(name)
        if not isinstance(value, str) or value not in known:
            raise BrokenPromise(f"The published {name} is none of {', '.join(known)}. {NO_MORE}")
        return value

    def each(self, name: str, read: Callable[[Any], T]) -> tuple[T, ...]:
        values = self.get(name)
        if not isinstance(values, list) or len(values) > LONGEST_LIST:
            raise BrokenPromise(f"{name} must be a list. {NO_MORE}")
        return tuple(map(read, values))

    def vector(self, name: str, n: int, *, limit: float) -> tuple[float, ...]:
        values = self.each(name, lambda value: finite(name, value, minimum=-limit, maximum=limit))
        if len(values) != n:
            raise BrokenPromise(f"The published {name} must have {n} numbers, not {len(values)}. {NO_MORE}")
        return values

    def span(self, name: str, within: tuple[float, float] = (0.0, LARGEST_VALUE)) -> tuple[float, float]:
        return _span(name, self.get(name), within)


def _span(name: str, pair: Any, within: tuple[float, float]) -> tuple[float, float]:
    """A pair (low, high) inside another."""
    if not isinstance(pair, list) or len(pair) != 2:
        raise BrokenPromise(f"{name} must be a pair (low, high). {NO_MORE}")
    low, high = (finite(name, end, minimum=within[0], maximum=within[1]) for end in pair)
    if low > high:
        raise BrokenPromise(f"{name} must be a pair (low, high) with low <= high. {NO_MORE}")
    return low, high


def _guardrails(plain: Any, prices: tuple[float, float]) -> tuple[float, float]:
    fields = _Reader(plain)
    low, high = (
        end if (bound := fields.get(name)) is None else bound
        for name, end in zip(("low", "high"), prices, strict=True)
    )  # fmt: skip
    return _span("guardrails", [low, high], prices)


def _feature(plain: Any) -> Feature:
    fields = _Reader(plain)
    if set(fields.plain) not in ({"name", "value"}, {"name", "low", "high"}):
        raise BrokenPromise(f"A feature must have a name, and a value or low and high. {NO_MORE}")
    numbers = {key: fields.number(key) for key in fields.plain if key != "name"}
    return Feature(name=_text(fields.get("name")), **numbers)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 200:
        raise BrokenPromise(f"A name in the published parameters is no text, or too long. {NO_MORE}")
    return value
