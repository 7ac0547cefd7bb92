"""Definitions of products: the policy and how it is sold. After creation only what is for display can change.

The keys are the same in a file and over HTTP::

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
    [products.tea]
    policy = "look-ahead"
    family = "logistic"
    prices = [1.0, 5.0]
    prior = "tea.model.json"              # in a file only: what a fitted model knows
    trust = 0.5                           # share of its weight
    features = [{name = "constant", value = 1}, {name = "loyalty", low = 0, high = 1}]     # dim follows
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from hushprice import policies
from hushprice.arrays import Array, array
from hushprice.demand import Rules, as_family, family_from
from hushprice.errors import LARGEST_VALUE, HushpriceError, InvalidInput, MissingOption, finite, positive_int, unknown
from hushprice.estimation import Prior
from hushprice.files import read_toml
from hushprice.fitting import DemandModel
from hushprice.policies import BallPolicy, Policy
from hushprice.policies.monitoring.restarts import take_restart
from hushprice.service.core.events import MODES, Mode
from hushprice.service.guardrails import NO_GUARDRAILS, Guardrails, Limits

Then = Literal["no-sale", "left-out"]
THEN: tuple[Then, ...] = ("no-sale", "left-out")
DAY = 86_400.0
LARGEST_PLAIN_DIM = 1_000  # of a plain product, whose learner holds a matrix of (2 dim)^2 numbers
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_SERVICE = ("policy", "baseline", "currency", "features", "max_age", "max_lag", "mode", "outcomes", "guardrails")


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A named component of the context.

    Parameters
    ----------
    name : str
        Its name.
    value : float, optional
        Its value if it is constant.
    low, high : float, optional
        The ends of its slider on the page otherwise; they do not limit the values.

    Examples
    --------
    >>> Feature.of({"name": "loyalty", "low": 0, "high": 1}).config()
    {'name': 'loyalty', 'low': 0.0, 'high': 1.0}
    """

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, plain: Any) -> Feature:
        """Make a feature from plain data.

        Parameters
        ----------
        plain : mapping
            Its fields by name.
        """
        form = "A feature must have a name, and either a value (a constant) or low and high."
        if not isinstance(plain, Mapping) or set(plain) not in ({"name", "value"}, {"name", "low", "high"}):
            raise InvalidInput(form)
        name = plain["name"]
        if not isinstance(name, str) or not 0 < len(name) <= 100 or not name.isprintable():
            raise InvalidInput(form)
        numbers = {key: finite(f"{key} of a feature", plain[key]) for key in plain if key != "name"}
        if any(abs(number) > LARGEST_VALUE for number in numbers.values()):
            raise InvalidInput(f"A feature must not exceed {LARGEST_VALUE:g} in size: give it in larger units.")
        if "low" in numbers and numbers["low"] >= numbers["high"]:
            raise InvalidInput(f"The feature {name!r} must have low < high.")
        return cls(name=name, **numbers)

    def config(self) -> dict[str, Any]:
        """Return the feature as plain data; :meth:`of` reads it back."""
        keys = ("value",) if self.value is not None else ("low", "high")
        return {"name": self.name, **{key: getattr(self, key) for key in keys}}


@dataclass(frozen=True, kw_only=True)
class Definition:
    """The definition of a product.

    Parameters
    ----------
    name : str
        1 to 40 lower-case letters, digits and hyphens.
    policy : Policy
        The policy that sets prices.
    baseline : float
        The price without this service.
    currency : str
        For display.
    features : tuple of Feature
        The components of the context; empty if they have no names.
    max_age : float
        Seconds for which caches may store published params.
    max_lag : int
        Events after which a report made from old params is no longer learned from.
    wait : float
        Seconds until an offer without an outcome expires.
    then : {"no-sale", "left-out"}
        Whether an expired offer counts as no sale or is left out.
    mode : {"live", "shadow", "frozen"}
        The mode at the start.
    guardrails : Guardrails
        The guardrails at the start.

    Examples
    --------
    >>> coffee = {"policy": "look-ahead", "family": "logistic", "dim": 2, "prices": [1, 5]}
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
        """Make a definition from plain data.

        Parameters
        ----------
        name : str
            The name of the product.
        plain : mapping
            The keys of a table ``[products.NAME]`` of a TOML file.

        Raises
        ------
        InvalidInput
            If a key or value is wrong; the message says which and what to do.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidInput(
                "A product's name must be 1 to 40 small letters, digits and hyphens, as in 'coffee-250g'."
            )
        if not isinstance(plain, Mapping) or not all(isinstance(key, str) for key in plain):
            raise InvalidInput(f"The definition of {name} must give its policy and options by name.")
        plain = {key: value for key, value in plain.items() if value is not None}
        if "policy" not in plain:
            raise MissingOption(f"The product {name} needs a policy, as in policy = 'etc-ldp-doubling'.")
        kind = policies.get(plain["policy"])
        if kind.not_served:
            raise InvalidInput(f"The service does not run {kind.name}: {kind.not_served}")
        features = _features(plain.get("features", ()), kind.needs_constant)
        policy = _policy(name, _with_dim(plain, features))
        if policy.private and policy.as_ball() is None:
            raise InvalidInput(f"The service does not run {policy.name}: it is private, but no BallPolicy.")
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
            features=features,
            max_age=finite("max_age", plain.get("max_age", 1.0), minimum=0.0, maximum=DAY),
            max_lag=positive_int("max_lag", plain.get("max_lag", 10_000), minimum=0),
            wait=wait,
            then=then,
            mode=mode,
            guardrails=guardrails,
        )

    def config(self) -> dict[str, Any]:
        """Return the definition as plain data; :meth:`of` reads it back."""
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
        """The part that cannot change while the product exists, since the learner's state depends on it: all but
        ``currency``, ``max_age`` and the ends of sliders."""
        fixed = {key: value for key, value in self.config().items() if key not in ("currency", "max_age")}
        fixed["features"] = [
            {"name": feature.name, **({} if feature.value is None else {"value": feature.value})}
            for feature in self.features
        ]
        return fixed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Definition) and (self.name, self.config()) == (other.name, other.config())

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def private(self) -> bool:
        """Whether devices compute prices and send randomised reports."""
        return self.policy.private

    @property
    def private_policy(self) -> BallPolicy | None:
        """The policy as a :class:`BallPolicy`; None for a plain product."""
        return self.policy.as_ball()

    @property
    def dim(self) -> int:
        """Length of a context."""
        return self.policy.dim

    def context(self, features: Sequence[float] | Mapping[str, float]) -> Array:
        """Make the context z of a plain product's customer.

        Parameters
        ----------
        features : sequence or mapping
            The numbers in order or, if the features have names, by name; constant ones may be omitted.

        Raises
        ------
        InvalidInput
            If they are not finite or not as many as the product has; the message contains no value.
        """
        values = self._by_name(features) if isinstance(features, Mapping) else features
        text = f"The context must be {self.dim} finite numbers below {LARGEST_VALUE:g} in size."
        try:
            return array("the context", values, shape=(self.dim,), limit=LARGEST_VALUE)
        except InvalidInput:
            pass  # its text contains the values
        raise InvalidInput(text)

    def _by_name(self, values: Mapping[str, float]) -> list[float]:
        if not self.features:
            raise InvalidInput(f"The features of {self.name} have no names: give the context as a list of numbers.")
        variable = {feature.name for feature in self.features if feature.value is None}
        constant = {feature.name: feature.value for feature in self.features if feature.value is not None}
        if not variable <= set(values) <= variable | set(constant):
            raise InvalidInput(f"The context of {self.name} must give exactly {', '.join(sorted(variable))} by name.")
        if any(values[name] != value for name, value in constant.items() if name in values):
            raise InvalidInput(f"Of the context of {self.name} a constant feature is given with another value.")
        return [values[feature.name] if feature.value is None else feature.value for feature in self.features]


def _policy(name: str, plain: Mapping[str, Any]) -> Policy:
    """Make the policy with its options."""
    kind = policies.get(plain["policy"])
    options = {key: value for key, value in plain.items() if key not in _SERVICE}
    if take_restart(kind, options):
        base = _policy(name, {key: value for key, value in plain.items() if key != "restart"})
        return policies.Restarting.around(base)
    accepted = {f.name for f in fields(kind)}
    for option in options:
        if option not in accepted:
            raise unknown(f"option of {kind.name} or of a product", option, accepted | set(_SERVICE))
    needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    if missing := needed - set(options):
        raise MissingOption(f"The product {name} with the policy {kind.name} also needs {', '.join(sorted(missing))}.")
    plain_family = options.pop("family")
    family = as_family(plain_family) if isinstance(plain_family, str) else family_from(plain_family)
    if options.get("prior") is not None:
        options["prior"] = _prior(options["prior"])
    if options.get("rules") is not None:
        if not isinstance(options["rules"], Mapping):
            raise InvalidInput("rules must give any of ladder, largest_step, segments and ranges by name.")
        options["rules"] = Rules.of(options["rules"])
    try:
        return kind(family=family, **options)
    except HushpriceError:
        raise
    except (TypeError, ValueError, OverflowError, ArithmeticError):  # an option of an unexpected type
        raise InvalidInput(f"An option of the policy {kind.name} is not of the kind it should be.") from None


def _outcomes(plain: Any) -> tuple[float, Then]:
    if not isinstance(plain, Mapping) or not set(plain) <= {"wait", "then"}:
        raise InvalidInput("outcomes must give wait (seconds) and then ('no-sale' or 'left-out').")
    then = plain.get("then", "left-out")
    if then not in THEN:
        raise unknown("way to close an offer without an outcome", then, THEN)
    return finite("wait", plain.get("wait", DAY), minimum=0.0, maximum=1e9, strict=True), then


def _baseline(value: Any, policy: Policy, limits: Limits) -> float:
    """The baseline; by default the allowed price nearest to the middle of the range."""
    low, high = policy.prices
    ladder = limits.rules.ladder
    if value is None:
        return limits.nearest(0.5 * (limits.prices[0] + limits.prices[1]))
    baseline = finite("baseline", value)
    if not low <= baseline <= high:
        raise InvalidInput(f"The baseline must lie within the prices [{low:g}, {high:g}], got {baseline:g}.")
    if ladder and baseline not in ladder:
        raise InvalidInput(f"The baseline must be a price of the ladder, got {baseline:g}.")
    return baseline


def _prior(plain: Any) -> Prior:
    if isinstance(plain, str):
        raise InvalidInput(
            "prior must give centre and precision by name. The file of a fitted model can be named in a file of "
            "products only."
        )
    return Prior.of(plain)


def _features(plain: Any, needs_constant: bool) -> tuple[Feature, ...]:
    """The named features, with a constant in front if the policy needs one and there is none."""
    if not isinstance(plain, (list, tuple)):
        raise InvalidInput("features must be a list, one for each number of the context.")
    features = tuple(map(Feature.of, plain))
    if features and needs_constant and all(not feature.value for feature in features):
        features = (Feature(name="constant", value=1.0), *features)
    if len({feature.name for feature in features}) < len(features):
        raise InvalidInput(
            "Two features have the same name. ('constant' is the one that is added where none has a value.)"
        )
    return features


def _with_dim(plain: Mapping[str, Any], features: tuple[Feature, ...]) -> dict[str, Any]:
    """The definition with the length of a context, which follows from named features."""
    if not features:
        return dict(plain)
    dim, n = plain.get("dim"), len(features)
    if dim is not None and dim not in (n, len(plain["features"])):
        raise InvalidInput(f"There must be {dim} features, one for each number of the context, not {n}.")
    return {**plain, "dim": n}


def _check_names(features: Any, model: DemandModel) -> None:
    """Raise InvalidInput unless named features are those of the model, in its order and with its constant."""
    if model.encoding_ is None or not isinstance(features, (list, tuple)) or not features:
        return
    expected = model.encoding_.names[1:]
    named = [Feature.of(feature) for feature in features]
    constant, rest = (named[0].value, named[1:]) if named[0].value is not None else (1.0, named)
    if tuple(feature.name for feature in rest) != expected or constant != 1.0:
        raise InvalidInput(
            f"The features must be those of the model, in its order: a constant of 1, which may be left out, and "
            f"{', '.join(expected)}."
        )


def _with_model(plain: Any, folder: Path) -> Any:
    """The definition with the prior of the model whose file it names, relative to the folder."""
    if not isinstance(plain, Mapping):
        return plain
    table = dict(plain)
    trust, prior = table.pop("trust", None), table.get("prior")
    if isinstance(prior, str):
        model = DemandModel.load(folder / (prior or "."))
        _check_names(table.get("features"), model)
        table["prior"] = Prior.from_model(model, trust=1.0 if trust is None else trust)
    elif trust is not None:
        raise InvalidInput("trust is the share of a model's weight that counts: name the model, as in prior = 'FILE'.")
    return table


def read_products(path: str | PathLike[str]) -> list[Definition]:
    """Read the products of a TOML file.

    Parameters
    ----------
    path : path
        A file of tables ``[products.NAME]``.

    Raises
    ------
    InvalidInput
        If the file or a definition is wrong.
    """
    plain = read_toml(path, what="products")
    products = plain.pop("products", None)
    if plain or not isinstance(products, dict) or not products:
        raise InvalidInput(f"{path} must hold tables [products.NAME], one for each product, and nothing else.")
    definitions = []
    for name, table in products.items():
        try:
            definitions.append(Definition.of(name, _with_model(table, Path(path).parent)))
        except HushpriceError as problem:
            raise InvalidInput(f"The product {name} in {path}: {problem}") from None
    return definitions
