"""Markets: simulated worlds for policies to sell in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from hushprice.errors import InvalidInput, unknown
from hushprice.markets.adversarial import a1, a2, lower_bound
from hushprice.markets.autoloan.market import Loans, autoloan, loans, write_standin
from hushprice.markets.drift import Drift
from hushprice.markets.drifting import DRIFT_OPTIONS, drifting, with_options
from hushprice.markets.market import Arrivals, Block, Contexts, ContextSequence, Market, Resample
from hushprice.markets.synthetic import s1, s2, wide
from hushprice.markets.twin.check import TwinCheck, check_twin
from hushprice.markets.twin.twin import Twin, twin
from hushprice.markets.twin.twin_file import from_file, load_twin, save_twin

REGISTRY: dict[str, Callable[..., Market]] = {
    "s1": s1,
    "s2": s2,
    "wide": wide,
    "a1": a1,
    "a2": a2,
    "lower-bound": lower_bound,
    "autoloan": autoloan,
    "twin": from_file,
}


DRIFTS = ("jump", "walk", "wave", "season")
"""Kinds of drift that need no array, for words such as ``s1:drift=jump``."""


def get(name: str) -> Callable[..., Market]:
    """The function that makes the market of that name.

    Parameters
    ----------
    name : str
        A name in the registry.

    Returns
    -------
    callable
        Takes the options of the market and returns it.

    Examples
    --------
    >>> get("s1")(dim=2).name
    's1'
    """
    if name not in REGISTRY:
        raise unknown("market", name, REGISTRY)
    return REGISTRY[name]


def build(name: str, /, **options: Any) -> Market:
    """A market by name.

    Parameters
    ----------
    name : str
        A name in the registry.
    **options
        The options of the market. ``horizon`` is ignored by markets without it. Every market takes ``drift``, a kind
        of drift, with the options of :func:`drifting`.

    Raises
    ------
    InvalidInput
        If an option is unknown, missing or out of range.

    Examples
    --------
    >>> build("s1", dim=2, horizon=100).dim
    2
    >>> build("s1", dim=2, drift="wave", periods=2)
    <Market s1, wave (periods 2): logistic demand, d=2, prices 0 to 3>
    """
    maker = get(name)
    accepted = options_of(maker)
    for option in options:
        if option not in accepted and option != "horizon":
            raise unknown(f"option of the market {name}", option, accepted)
    chosen = {key: value for key, value in options.items() if key in accepted}
    try:
        return with_options(maker, chosen)
    except TypeError as problem:
        raise InvalidInput(f"The market {name} cannot be made: {problem}.") from None


def options_of(maker: Callable[..., Market]) -> list[str]:
    """The options of a market: those of its function, if that takes ``**options`` those of any market, and drift.

    Examples
    --------
    >>> options_of(s1)[:6]
    ['dim', 'family', 'prices', 'cost', 'public', 'intercept']
    >>> options_of(s1)[6:]
    ['drift', 'level', 'sensitivity', 'at', 'periods']
    """
    takes = inspect.signature(maker).parameters.values()
    own = [p.name for p in takes if p.kind is not p.VAR_KEYWORD]
    passes_on = any(p.kind is p.VAR_KEYWORD for p in takes)
    more = ("family", "prices", "cost", "public", "intercept") if passes_on else ()
    return own + [name for name in (*more, *DRIFT_OPTIONS) if name not in own]


__all__ = [
    "DRIFTS", "REGISTRY", "Arrivals", "Block", "ContextSequence", "Contexts", "Drift", "Loans", "Market", "Resample",
    "Twin", "TwinCheck", "a1", "a2", "autoloan", "build", "check_twin", "drifting", "from_file", "get", "load_twin",
    "loans", "lower_bound", "s1", "s2", "save_twin", "twin", "wide", "write_standin",
]  # fmt: skip
