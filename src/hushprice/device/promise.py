"""The promise of a device to its customer: the most that a server may ask for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from hushprice.device.demand import FAMILIES
from hushprice.device.guarantee import Guarantee, as_epsilon
from hushprice.device.mechanism import NAMES, Mechanism
from hushprice.errors import LARGEST_VALUE, BrokenPromise, HushpriceError, InvalidInput, finite, price_range, unknown

NO_MORE = "No price and no report is made."
_CLIP_TOLERANCE = 1.0 + 1e-9  # a clip bound is computed with a square root; epsilon holds for any clip
_FIELDS = ("name", "epsilon", "delta", "clip", "dim", "pairs", "top", "sd")
Pinned = str | tuple[str, float]  # the name of a customer's feature, or the name and value of a constant


@dataclass(frozen=True, kw_only=True)
class Promise:
    """Limits that the author of the shop's app fixes on the device and shows to the customer.

    Parameters
    ----------
    epsilon, delta : float
        Largest epsilon and delta of one report.
    clip : float
        Largest bound on the length of a score.
    mechanisms : sequence of str
        Names of the mechanisms that may be used.
    prices : (float, float), optional
        Range that no price may leave. Default: any price.
    family : str
        Family of demand, and so the possible outcomes.
    segments : sequence of str
        The segments of customers.
    features : sequence of str or (str, float), optional
        The entries of the context in order: names, and constants as (name, value). Default: the first parameters pin
        them and the dimension for the lifetime of the device. Set them if contexts may differ in length or names.

    Notes
    -----
    A document with another family, other segments or other features is refused before any data of a customer is used.
    Otherwise a server could choose them so that some customers are refused, and recognise these by their silence.

    Examples
    --------
    >>> print(Promise(epsilon=1.0, clip=4.0).guarantee)
    epsilon = 1: no report is more than 2.72 times as likely from one customer as from another
    >>> Promise(epsilon=1.0, clip=4.0, family="poisson", segments=["student", "adult"],
    ...         features=[("constant", 1), "loyalty"]).features
    (('constant', 1.0), 'loyalty')
    """

    epsilon: float
    clip: float
    delta: float = 0.0
    mechanisms: Sequence[str] = NAMES
    prices: tuple[float, float] | None = None
    family: str = "logistic"
    segments: Sequence[str] = ()
    features: Sequence[Pinned] | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "epsilon", as_epsilon(self.epsilon))
        put(self, "clip", finite("clip", self.clip, minimum=1e-100, maximum=LARGEST_VALUE))
        put(self, "delta", finite("delta", self.delta, minimum=0.0, maximum=0.5))
        if isinstance(self.mechanisms, str) or not self.mechanisms:
            raise InvalidInput("mechanisms must be a list of names, as in mechanisms=('l2-ball', 'privunit').")
        for name in self.mechanisms:
            if name not in NAMES:
                raise unknown("mechanism", name, NAMES)
        put(self, "mechanisms", tuple(self.mechanisms))
        if self.prices is not None:
            put(self, "prices", price_range(self.prices))
        if self.family not in FAMILIES:
            raise unknown("family of demand", self.family, FAMILIES)
        put(self, "segments", _names(self.segments))
        if self.features is not None:
            put(self, "features", _pinned(self.features))

    @classmethod
    def of(cls, document: Any) -> Self:
        """Return the promise that allows exactly what a params document asks for.

        It accepts any document. Review the result once and store it: a device that makes its promise from whatever the
        server publishes next promises nothing.

        Parameters
        ----------
        document : object
            A params document, from JSON.
        """
        try:
            mechanism = document["mechanism"]
            return cls(
                **{name: mechanism[name] for name in ("epsilon", "delta", "clip")},
                mechanisms=(mechanism["name"],),
                **{name: document[name] for name in ("prices", "family", "segments")},
                features=[(f["name"], f["value"]) if "value" in f else f["name"] for f in document["features"]] or None,
            )
        except (TypeError, KeyError, HushpriceError):
            raise BrokenPromise("This is no params document that a promise could be made from.") from None

    @property
    def guarantee(self) -> Guarantee:
        """The weakest guarantee of one report."""
        return Guarantee(self.epsilon, self.delta)

    def mechanism(self, asked: Any) -> Mechanism:
        """Return the mechanism that a server asks for.

        Parameters
        ----------
        asked : Any
            The field ``mechanism`` of a params document.

        Raises
        ------
        BrokenPromise
            If it is not within the promise.
        """
        if not isinstance(asked, Mapping) or any(key not in asked for key in _FIELDS):
            raise BrokenPromise(f"The server does not say how reports are to be randomised. {NO_MORE}")
        if not isinstance(asked["name"], str) or asked["name"] not in self.mechanisms:
            raise BrokenPromise(f"The server asks for a mechanism other than {', '.join(self.mechanisms)}. {NO_MORE}")
        try:
            mechanism = Mechanism(**{key: asked[key] for key in _FIELDS})
        except HushpriceError as problem:
            raise BrokenPromise(f"The server asks for reports that keep no promise: {problem} {NO_MORE}") from None
        for name in ("epsilon", "delta", "clip"):
            most, wanted = getattr(self, name), getattr(mechanism, name)
            if wanted > most * (_CLIP_TOLERANCE if name == "clip" else 1.0):
                requested, promised = _distinct(wanted, most)
                raise BrokenPromise(f"The server asks for {name} = {requested}; {promised} is promised. {NO_MORE}")
        return mechanism

    def check_prices(self, low: float, high: float) -> None:
        """Raise :class:`BrokenPromise` for prices outside the promised range.

        Parameters
        ----------
        low, high : float
            The range of prices that a server asks for.
        """
        if self.prices is not None and (low < self.prices[0] or high > self.prices[1]):
            raise BrokenPromise(
                f"The server's prices [{low:g}, {high:g}] leave the promised range [{self.prices[0]:g}, "
                f"{self.prices[1]:g}]. {NO_MORE}"
            )

    def check_customers(self, family: str, segments: Sequence[str], features: Sequence[Pinned]) -> None:
        """Raise :class:`BrokenPromise` for other outcomes, segments or features than promised.

        Parameters
        ----------
        family : str
            Name of the demand family.
        segments : sequence of str
            Names of the segments.
        features : sequence of (str or tuple)
            Name of each feature, or name and value of a constant.
        """
        if family != self.family:
            raise BrokenPromise(f"The server's demand is {family}; {self.family} is promised (family=). {NO_MORE}")
        if set(segments) != set(self.segments):
            promised = ", ".join(self.segments) or "none"
            raise BrokenPromise(f"The server's segments are not those promised (segments=): {promised}. {NO_MORE}")
        if self.features is not None and tuple(features) != self.features:
            promised = ", ".join(feature if isinstance(feature, str) else feature[0] for feature in self.features)
            raise BrokenPromise(f"The server's features are not those promised (features=): {promised}. {NO_MORE}")


def _distinct(requested: float, promised: float) -> tuple[str, str]:
    """Two numbers in six digits, or in all digits if six do not distinguish them."""
    short = f"{requested:.6g}", f"{promised:.6g}"
    return short if short[0] != short[1] else (repr(requested), repr(promised))


def _names(names: Any) -> tuple[str, ...]:
    """Distinct names, sorted."""
    listed = () if isinstance(names, str) or not isinstance(names, Collection) else tuple(names)
    named = all(isinstance(name, str) and name for name in listed)
    if not isinstance(names, Collection) or len(listed) != len(names) or not named or len(set(listed)) < len(listed):
        raise InvalidInput("segments must be a list of different names, as in segments=('adult', 'student').")
    return tuple(sorted(listed))


def _pinned(features: Any) -> tuple[Pinned, ...]:
    """Names, and constants as (name, value), in the order of the context."""
    wrong = InvalidInput(
        "features must be the names in the order of the context, a constant as (name, value): "
        "features=(('constant', 1.0), 'loyalty')."
    )
    if isinstance(features, str) or not isinstance(features, Sequence) or not features:
        raise wrong
    listed: list[Pinned] = []
    for feature in features:
        pair = isinstance(feature, Sequence) and not isinstance(feature, str) and len(feature) == 2
        name = feature[0] if pair else feature
        if not isinstance(name, str) or not name:
            raise wrong
        listed.append((name, finite("a constant feature", feature[1])) if pair else name)
    if len({feature if isinstance(feature, str) else feature[0] for feature in listed}) < len(listed):
        raise wrong
    return tuple(listed)
