"""Make markets and policies from words: ``s1:public=0.1``, ``mle-cycle:variant=original,ridge=0.1``."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from hushprice import markets, policies
from hushprice.demand import Rules
from hushprice.errors import InvalidInput, MissingOption, nearest
from hushprice.estimation import Prior
from hushprice.markets import Market
from hushprice.policies import Policy
from hushprice.simulation import NearTruth

USUAL_DIM = 4
CONTEXTS_SAMPLED, SAMPLING_SEED = 512, 0  # of contexts, for a private policy in a market without public features


def market_from(word: str, *, dim: int | None = None, horizon: int, **options: Any) -> Market:
    """Make a market from a word.

    Parameters
    ----------
    word : str
        Name and options, such as ``s1:public=0.1``, or ``s1:drift=jump,at=0.3`` for demand that drifts.
    dim : int, optional
        Dimension; by default the market's own, or 4.
    horizon : int
        Horizon T.
    **options
        Options, which those of the word override.

    Returns
    -------
    Market
        The market.

    Raises
    ------
    InvalidInput
        If the name or an option is unknown or invalid.

    Examples
    --------
    >>> market_from("s1:public=0.1", dim=2, horizon=100).public
    0.1
    """
    name, own = split(word)
    takes = inspect.signature(markets.get(name)).parameters
    arguments: dict[str, Any] = {"horizon": horizon, **options}
    if dim is not None and "dim" in own:
        raise InvalidInput(f"The market {word!r} has a dim of its own: leave out the other, {dim}.")
    if dim is not None:
        arguments["dim"] = dim
    elif "dim" in takes and takes["dim"].default is inspect.Parameter.empty:
        arguments["dim"] = USUAL_DIM
    return markets.build(name, **{**arguments, **own})


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Policies by word, and the market in which they sell."""

    policies: dict[str, Policy | NearTruth]
    market: Market

    @classmethod
    def of(
        cls,
        words: Iterable[str],
        *,
        market: str,
        dim: int | None = None,
        horizon: int,
        family: str | None = None,
        prices: tuple[float, float] | None = None,
        cost: float = 0.0,
        public: float = 0.0,
        rules: Rules | None = None,
    ) -> Setup:
        """The setup from words and options of the market."""
        arguments: dict[str, Any] = {key: value for key, value in (("cost", cost), ("public", public)) if value}
        arguments |= {key: value for key, value in (("family", family), ("prices", prices)) if value is not None}
        world = market_from(market, dim=dim, horizon=horizon, **arguments)
        world = world if rules is None else replace(world, rules=rules)
        return cls(policies=policies_from(words, world, horizon), market=world)


def split(word: str) -> tuple[str, dict[str, Any]]:
    """The name and the options of a word.

    >>> split("etc-ldp:epsilon=1,experiment_prices=0:3")
    ('etc-ldp', {'epsilon': 1, 'experiment_prices': [0, 3]})
    """
    name, _, rest = word.partition(":")
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise InvalidInput(f"In {word!r}, {item!r} should read key=value, as in etc:ridge=0.1.")
        options[key] = _value(value)
    return name, options


def check_words(words: Iterable[str]) -> None:
    """Refuse a policy that is named twice, as words are the keys of results."""
    checked = set()
    for word in words:
        if word in checked:
            raise InvalidInput(f"The policy {word!r} is named twice.")
        checked.add(word)


def policies_from(words: Iterable[str], market: Market, horizon: int) -> dict[str, Policy | NearTruth]:
    """Policies for a market from words like ``mle-cycle:variant=original,ridge=0.1``, by word."""
    chosen = list(words)
    check_words(chosen)
    return {word: policy_from(word, market, horizon) for word in chosen}


def policy_from(word: str, market: Market, horizon: int) -> Policy | NearTruth:
    """Make a policy from a word.

    Parameters
    ----------
    word : str
        Name and options. ``prior=log`` is the prior that the market's log gives, and ``prior=FILE`` that of a fitted
        model. Three values are computed: ``sqrt(d)``; the centre ``truth``, an oracle as in the paper's
        simulations; and the centre ``near-truth``, drawn in each replication from the unit ball around the truth, as in
        the paper's auto loan study.
    market : Market
        Market that supplies the options which the word does not set.
    horizon : int
        Horizon T.

    Returns
    -------
    Policy or NearTruth
        The policy.

    Raises
    ------
    InvalidInput
        If the name or an option is unknown or invalid.
    """
    name, options = split(word)
    cls = policies.get(name)
    own = options_of(cls)
    for key, value in options.items():
        if key not in own:
            hint = nearest(key, own)
            raise InvalidInput(f"The policy {name} has no option {key!r} to set here.{hint} It takes {', '.join(own)}.")
        if value == "sqrt(d)":
            options[key] = math.sqrt(market.dim)
    arguments: dict[str, Any] = {
        "family": market.family,
        "dim": market.dim,
        "prices": market.prices,
        "cost": market.cost,
        "rules": market.rules,
        "theta": market.theta,
    }
    if "horizon" in policies.needed(cls):
        arguments["horizon"] = horizon
    if "prior" in options:
        options["prior"] = _prior(word, options["prior"], market)
    if "price" in own and "price" not in options:
        arguments["price"] = market.best_fixed_price(horizon=horizon)
    if "customers" in own and "features" not in options:
        arguments |= _customers(market)
    drawn = options.get("centre") == "near-truth"
    if "z_max" in own:
        arguments["z_max"] = market.z_max()
        if options.get("centre") in ("truth", "near-truth"):
            options["centre"] = market.theta
    try:
        policy = policies.build(name, **{**arguments, **options})
        ball = policy.as_ball()
        return NearTruth(ball) if drawn and ball is not None else policy
    except MissingOption as problem:
        raise InvalidInput(f"{problem} Give it after a colon, as in {name}:epsilon=1.") from None


def _customers(market: Market) -> dict[str, Any]:
    """What a private policy may know of the customers: the market's public features, or else a sample of contexts."""
    if market.features is not None:
        return {"features": market.features}
    return {"customers": market.draw(np.random.default_rng(SAMPLING_SEED), CONTEXTS_SAMPLED)}


def options_of(cls: type[Policy]) -> list[str]:
    """The options of a policy that do not come from the market."""
    others = {"family", "dim", "prices", "cost", "rules", "theta"}
    others |= {"ridge"} if cls.private else set()
    others |= set() if cls.takes_prior else {"prior"}
    others |= {"options"} if cls is policies.Restarting else set()
    return [f.name for f in fields(cls) if f.name not in others] + ["restart"] * cls.can_restart()


def _prior(word: str, value: Any, market: Market) -> Prior:
    """The prior that a word names: "log" for what the market's log knows, else the file of a fitted model."""
    if not isinstance(value, str):
        raise InvalidInput(f"In {word!r}, prior should be log, or the file of a fitted model.")
    if value != "log":
        return Prior.from_model(value)
    if market.covariance is None:
        raise InvalidInput(
            f"In {word!r}, prior=log needs a market that was fitted to a log: this one is {market.name}."
        )
    return Prior.of_estimate(market.theta, market.covariance, scale=market.family.scale)


def load_policies(file: Path | None) -> None:
    """Run a Python file, if one is named, so that words can name the policies and markets that it registers.

    The module is removed from ``sys.modules``, so that its classes are pickled by value for workers, which could not
    import it.
    """
    if file is None:
        return
    if not file.is_file():
        raise InvalidInput(f"There is no file {file} to load policies from.")
    spec = importlib.util.spec_from_file_location(f"hushprice_loaded_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{file} is not a Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # for modules beside it, here and in workers, which inherit this path
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise InvalidInput(f"{file} failed to load: {type(problem).__name__}: {problem}") from problem
    finally:
        del sys.modules[spec.name]
    _loaded[spec.name] = _beside(file)


_OWN = ("hushprice", "builtins", "abc", "typing")
_loaded: dict[str, str] = {}  # hashes of the code of loaded modules


def source_of(*things: Any) -> str:
    """A hash of the code of classes and functions from outside the package; empty if there are none.

    For a loaded file, the hash covers the whole file and the files beside it that it imports.
    """
    parts = [part for thing in things for part in getattr(thing, "__mro__", (thing,))]
    foreign = [part for part in parts if part.__module__.partition(".")[0] not in _OWN]
    texts = list(dict.fromkeys(_loaded.get(part.__module__) or _text(part) for part in foreign))
    return hashlib.sha256("".join(texts).encode()).hexdigest() if texts else ""


def _text(part: Any) -> str:
    try:
        return inspect.getsource(part)
    except (OSError, TypeError):
        raise InvalidInput(
            f"The code of {part.__qualname__} cannot be found, so that its results could not be told from those of "
            f"another version. Put it in a file and load that."
        ) from None


def _beside(file: Path) -> str:
    """A hash of a file and of the imported modules beside it."""
    others = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    near = sorted({Path(other).resolve() for other in others if other} - {file.resolve()})
    texts = [file.read_bytes(), *(other.read_bytes() for other in near if _is_near(other, file))]
    return hashlib.sha256(b"".join(texts)).hexdigest()


def _is_near(other: Path, file: Path) -> bool:
    return other.suffix == ".py" and other.is_relative_to(file.resolve().parent) and other.is_file()


def whole_numbers(option: str, text: str) -> list[int]:
    """Numbers from ``1,4,9``."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise InvalidInput(f"{option} takes whole numbers of at least 1 with commas between them, got {text!r}.")
    numbers = [int(part) for part in parts]
    if len(set(numbers)) < len(numbers):
        raise InvalidInput(f"{option} names a number twice: {text!r}.")
    return numbers


def _value(text: str) -> Any:
    """A number, several with colons between them, true or false, or a word."""
    if text in ("true", "false"):
        return text == "true"
    if ":" in text:
        return [_value(part) for part in text.split(":")]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
