"""What a product is: its policy, and how it is sold. Fixed once the product exists, but for what is for show.

The same keys in a file and over HTTP::

    [products.coffee]
    policy = "etc-ldp-doubling"           # any registered policy but the mixed ones
    family = "logistic"
    dim = 2
    prices = [1.0, 5.0]
    epsilon = 2.0                         # further options of the policy
    z_max = 2.0
    baseline = 3.0
    [products.coffee.outcomes]
    wait = 86400
    then = "no-sale"
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from os import PathLike
from typing import Any, Literal

from hushprice import policies
from hushprice.arrays import Array, array
from hushprice.demand import Rules, as_family, family_from
from hushprice.errors import LARGEST_VALUE, HushpriceError, InvalidInput, MissingOption, finite, positive_int, unknown
from hushprice.files import read_toml
from hushprice.policies import Policy, PrivatePolicy
from hushprice.service.core.events import MODES, Mode
from hushprice.service.guardrails import NO_GUARDRAILS, Guardrails, Limits

Then = Literal["no-sale", "left-out"]
THEN: tuple[Then, ...] = ("no-sale", "left-out")
DAY = 86_400.0
LARGEST_PLAIN_DIM = 1_000  # of a plain product, of which a matrix of (2 dim)^2 numbers is kept
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_SERVICE = ("policy", "baseline", "currency", "features", "max_age", "max_lag", "mode", "outcomes", "guardrails")


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A number of the context by name: a constant, or one between low and high (what a slider shows, not a limit).

    >>> Feature.of({"name": "loyalty", "low": 0, "high": 1}).config()
    {'name': 'loyalty', 'low': 0.0, 'high': 1.0}
    """

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, plain: Any) -> Feature:
        """A feature from plain data."""
        told = "A feature must have a name, and either a value (a constant) or low and high."
        if not isinstance(plain, Mapping) or set(plain) not in ({"name", "value"}, {"name", "low", "high"}):
            raise InvalidInput(told)
        name = plain["name"]
        if not isinstance(name, str) or not 0 < len(name) <= 100 or not name.isprintable():
            raise InvalidInput(told)
        numbers = {key: finite(f"{key} of a feature", plain[key]) for key in plain if key != "name"}
        if any(abs(number) > LARGEST_VALUE for number in numbers.values()):
            raise InvalidInput(f"A feature must not exceed {LARGEST_VALUE:g} in size: give it in larger units.")
        if "low" in numbers and numbers["low"] >= numbers["high"]:
            raise InvalidInput(f"The feature {name!r} must have low < high.")
        return cls(name=name, **numbers)

    def config(self) -> dict[str, Any]:
        """As plain data."""
        kept = ("value",) if self.value is not None else ("low", "high")
        return {"name": self.name, **{key: getattr(self, key) for key in kept}}


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A product as it was defined.

    baseline: the price without this service; currency: for show; max_age: seconds that published parameters may be kept
    in caches; max_lag: events after which a report made against old parameters is not learned from any more; wait: how
    many seconds an offer waits for its outcome; then: whether it counts as no sale after that or is left out; mode and
    guardrails: those at the start.

    >>> coffee = {"policy": "etc-doubling", "family": "logistic", "dim": 2, "prices": [1, 5]}
    >>> definition = Definition.of("coffee", coffee)
    >>> definition.baseline, definition.private, Definition.of("coffee", definition.config()) == definition
    (3.0, False, True)
    """

    name: str
    policy: Policy
    baseline: float
    currency: str = ""
    features: tuple[Feature, ...] = ()
    max_age: float = 1.0
    max_lag: int = 10_000
    wait: float = DAY
    then: Then = "left-out"
    mode: Mode = "live"
    guardrails: Guardrails = NO_GUARDRAILS

    @classmethod
    def of(cls, name: str, plain: Mapping[str, Any]) -> Definition:
        """A definition from plain data."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidInput(
                "A product's name must be 1 to 40 small letters, digits and hyphens, as in 'coffee-250g'."
            )
        if not isinstance(plain, Mapping) or not all(isinstance(key, str) for key in plain):
            raise InvalidInput(f"The definition of {name} must give its policy and options by name.")
        plain = {key: value for key, value in plain.items() if value is not None}
        policy = _policy(name, plain)
        if policy.private and policy.as_private() is None:
            raise InvalidInput(f"The service does not run {policy.name}: it is private, but no PrivatePolicy.")
        if not policy.private and policy.dim > LARGEST_PLAIN_DIM:
            raise InvalidInput(
                f"The service takes plain products with dim up to {LARGEST_PLAIN_DIM}, got {policy.dim}."
            )
        guardrails = Guardrails.of(plain.get("guardrails", {}))
        limits = Limits(policy, guardrails)
        wait, then = _outcomes(plain.get("outcomes", {}))
        mode = plain.get("mode", "live")
        if mode not in MODES:
            raise unknown("mode", mode, MODES)
        currency = plain.get("currency", "")
        if not isinstance(currency, str) or len(currency) > 20 or not currency.isprintable():
            raise InvalidInput("currency must be a short text, as in 'EUR'.")
        return cls(
            name=name,
            policy=policy,
            baseline=_baseline(plain.get("baseline"), policy, limits),
            currency=currency,
            features=_features(plain.get("features", ()), policy.dim),
            max_age=finite("max_age", plain.get("max_age", 1.0), minimum=0.0, maximum=DAY),
            max_lag=positive_int("max_lag", plain.get("max_lag", 10_000), minimum=0),
            wait=wait,
            then=then,
            mode=mode,
            guardrails=guardrails,
        )

    def config(self) -> dict[str, Any]:
        """The definition as plain data; :meth:`of` reads it back."""
        return {
            "policy": self.policy.name,
            **self.policy.config(),
            "baseline": self.baseline,
            "currency": self.currency,
            "features": [feature.config() for feature in self.features],
            "max_age": self.max_age,
            "max_lag": self.max_lag,
            "outcomes": {"wait": self.wait, "then": self.then},
            "mode": self.mode,
            "guardrails": self.guardrails.config(),
        }

    def fixed(self) -> dict[str, Any]:
        """What cannot change while there is a product, since what was learned depends on it: all but the currency,
        how long caches may keep its parameters, and the ends of sliders."""
        kept = {key: value for key, value in self.config().items() if key not in ("currency", "max_age")}
        kept["features"] = [
            {"name": feature.name, **({} if feature.value is None else {"value": feature.value})}
            for feature in self.features
        ]
        return kept

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Definition) and (self.name, self.config()) == (other.name, other.config())

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def private(self) -> bool:
        """Whether devices price by themselves and send randomised reports."""
        return self.policy.private

    @property
    def private_policy(self) -> PrivatePolicy | None:
        """The policy with the type of a private one; None for a plain product."""
        return self.policy.as_private()

    @property
    def dim(self) -> int:
        """Length of a context."""
        return self.policy.dim

    def context(self, given: Sequence[float] | Mapping[str, float]) -> Array:
        """The context z of a plain product's customer, from a list or, where the features have names, by name."""
        values = self._by_name(given) if isinstance(given, Mapping) else given
        text = f"The context must be {self.dim} finite numbers below {LARGEST_VALUE:g} in size."
        try:
            return array("the context", values, shape=(self.dim,), limit=LARGEST_VALUE)
        except InvalidInput:
            pass  # its text would tell what was given
        raise InvalidInput(text)

    def _by_name(self, given: Mapping[str, float]) -> list[float]:
        if not self.features:
            raise InvalidInput(f"The features of {self.name} have no names: give the context as a list of numbers.")
        asked = {feature.name for feature in self.features if feature.value is None}
        constant = {feature.name: feature.value for feature in self.features if feature.value is not None}
        if not asked <= set(given) <= asked | set(constant):
            raise InvalidInput(f"The context of {self.name} must give exactly {', '.join(sorted(asked))} by name.")
        if any(given[name] != value for name, value in constant.items() if name in given):
            raise InvalidInput(f"Of the context of {self.name} a constant feature is given with another value.")
        return [given[feature.name] if feature.value is None else feature.value for feature in self.features]


def _policy(name: str, plain: Mapping[str, Any]) -> Policy:
    """The policy with its options."""
    if "policy" not in plain:
        raise MissingOption(f"The product {name} needs a policy, as in policy = 'etc-ldp-doubling'.")
    kind = policies.get(plain["policy"])
    if kind.not_served:
        raise InvalidInput(f"The service does not run {kind.name}: {kind.not_served}")
    options = {key: value for key, value in plain.items() if key not in _SERVICE}
    known = {f.name for f in fields(kind)}
    for option in options:
        if option not in known:
            raise unknown(f"option of {kind.name} or of a product", option, known | set(_SERVICE))
    needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    if missing := needed - set(options):
        raise MissingOption(f"The product {name} with the policy {kind.name} also needs {', '.join(sorted(missing))}.")
    given = options.pop("family")
    family = as_family(given) if isinstance(given, str) else family_from(given)
    if options.get("rules") is not None:
        if not isinstance(options["rules"], Mapping):
            raise InvalidInput("rules must give any of ladder, largest_step, segments and ranges by name.")
        options["rules"] = Rules.of(options["rules"])
    try:
        return kind(family=family, **options)
    except HushpriceError:
        raise
    except (TypeError, ValueError, OverflowError, ArithmeticError):  # an option of a kind nobody thought of
        raise InvalidInput(f"An option of the policy {kind.name} is not of the kind it should be.") from None


def _outcomes(plain: Any) -> tuple[float, Then]:
    if not isinstance(plain, Mapping) or not set(plain) <= {"wait", "then"}:
        raise InvalidInput("outcomes must give wait (seconds) and then ('no-sale' or 'left-out').")
    then = plain.get("then", "left-out")
    if then not in THEN:
        raise unknown("way to close an offer without an outcome", then, THEN)
    return finite("wait", plain.get("wait", DAY), minimum=0.0, maximum=1e9, strict=True), then


def _baseline(given: Any, policy: Policy, limits: Limits) -> float:
    """A price within the range; the allowed one nearest to its middle unless given."""
    low, high = policy.prices
    ladder = limits.rules.ladder
    if given is None:
        return limits.nearest(0.5 * (limits.prices[0] + limits.prices[1]))
    baseline = finite("baseline", given)
    if not low <= baseline <= high:
        raise InvalidInput(f"The baseline must lie within the prices [{low:g}, {high:g}], got {baseline:g}.")
    if ladder and baseline not in ladder:
        raise InvalidInput(f"The baseline must be a price of the ladder, got {baseline:g}.")
    return baseline


def _features(plain: Any, dim: int) -> tuple[Feature, ...]:
    if not isinstance(plain, (list, tuple)):
        raise InvalidInput("features must be a list, one for each number of the context.")
    features = tuple(map(Feature.of, plain))
    if features and len(features) != dim:
        raise InvalidInput(f"There must be {dim} features, one for each number of the context, not {len(features)}.")
    if len({feature.name for feature in features}) < len(features):
        raise InvalidInput("Two features have the same name.")
    return features


def read_products(path: str | PathLike[str]) -> list[Definition]:
    """The products of a TOML file."""
    plain = read_toml(path, what="products")
    products = plain.pop("products", None)
    if plain or not isinstance(products, dict) or not products:
        raise InvalidInput(f"{path} must hold tables [products.NAME], one for each product, and nothing else.")
    definitions = []
    for name, given in products.items():
        try:
            definitions.append(Definition.of(name, given))
        except HushpriceError as problem:
            raise InvalidInput(f"The product {name} in {path}: {problem}") from None
    return definitions
