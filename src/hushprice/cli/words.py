"""Words of the command line into markets and policies."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hushprice import markets, policies
from hushprice.errors import InvalidInput, MissingOption, nearest
from hushprice.markets import Market
from hushprice.policies import Policy


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a simulation on the command line is about."""

    policies: dict[str, Policy]
    market: Market

    @classmethod
    def of(
        cls,
        words: Iterable[str],
        *,
        market: str,
        dim: int,
        family: str | None,
        horizon: int,
        prices: tuple[float, float] | None = None,
        cost: float = 0.0,
        public: float = 0.0,
    ) -> Study:
        """From the words and options typed."""
        given: dict[str, Any] = {"dim": dim, "horizon": horizon}
        given |= {key: value for key, value in (("cost", cost), ("public", public)) if value}
        given |= {key: value for key, value in (("family", family), ("prices", prices)) if value is not None}
        world = markets.build(market, **given)
        return cls(policies=policies_from(words, world, horizon), market=world)


def check_words(words: Iterable[str]) -> None:
    """Refuse a policy named twice: results go by these words."""
    seen = set()
    for word in words:
        if word in seen:
            raise InvalidInput(f"The policy {word!r} is named twice.")
        seen.add(word)


def policies_from(words: Iterable[str], market: Market, horizon: int) -> dict[str, Policy]:
    """Policies for a market from words like ``mle-cycle:variant=original,ridge=0.1``, by word."""
    chosen = list(words)
    check_words(chosen)
    return {word: policy_from(word, market, horizon) for word in chosen}


def policy_from(word: str, market: Market, horizon: int) -> Policy:
    """One policy; what the word leaves open comes from the market."""
    name, _, rest = word.partition(":")
    cls = policies.get(name)
    own = options_of(cls)
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise InvalidInput(f"In {word!r}, {item!r} should read key=value, as in etc:ridge=0.1.")
        if key not in own:
            hint = nearest(key, own)
            raise InvalidInput(f"The policy {name} has no option {key!r} to set here.{hint} It takes {', '.join(own)}.")
        options[key] = _value(value)
    given: dict[str, Any] = {
        "family": market.family,
        "dim": market.dim,
        "prices": market.prices,
        "cost": market.cost,
        "horizon": horizon,
        "theta": market.theta,
    }
    if cls is policies.FixedPrice and "price" not in options:
        given["price"] = market.best_fixed_price()
    if cls.private:
        given["z_max"] = market.z_max()
        if options.get("centre") == "truth":  # an oracle, as in the paper's simulations
            options["centre"] = market.theta
    try:
        return policies.build(name, **{**given, **options})
    except MissingOption as problem:
        raise InvalidInput(f"{problem} Give it after a colon, as in {name}:epsilon=1.") from None


def options_of(cls: type[Policy]) -> list[str]:
    """The options of a policy that are its own, not the market's."""
    others = ("family", "dim", "prices", "cost", "theta", *(["ridge"] if cls.private else []))
    return [f.name for f in fields(cls) if f.name not in others]


def load_policies(file: Path | None) -> None:
    """Run a Python file, if one is given, so that the policies and markets it registers can be named.

    The module is not left in ``sys.modules``, so that workers, who could not import it, get its classes by value.
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
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise InvalidInput(f"{file} failed to load: {type(problem).__name__}: {problem}") from problem
    finally:
        del sys.modules[spec.name]


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
    """A number, several with colons between them, or a word."""
    if ":" in text:
        return [_value(part) for part in text.split(":")]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
