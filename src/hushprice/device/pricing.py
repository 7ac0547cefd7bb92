"""The two computations of a device, prices and reports: deterministic functions of checked parameters and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hushprice.device.demand import FAMILIES, price_on_terms, score, utility
from hushprice.device.params import Params
from hushprice.errors import LARGEST_VALUE, HushpriceError, InvalidInput, discreetly, finite

Context = Sequence[float] | Mapping[str, float]


def context(params: Params, given: Context) -> tuple[float, ...]:
    """Return the context z.

    Parameters
    ----------
    params : Params
        The checked parameters.
    given : sequence or mapping of float
        All of z as a list, or exactly the features that are not constants by name.

    Raises
    ------
    InvalidInput
        If it is not a context of this product. The text repeats no value, and no value is compared with anything that
        the server published, so that a refusal reveals nothing about the customer.
    """
    values = _by_name(params, given) if isinstance(given, Mapping) else given
    text = f"The context must be {params.dim} finite numbers below {LARGEST_VALUE:g} in size."
    z = discreetly(lambda: tuple(finite("z", x, minimum=-LARGEST_VALUE, maximum=LARGEST_VALUE) for x in values), text)
    if len(z) != params.dim:
        raise InvalidInput(text)
    return z


def _by_name(params: Params, values: Mapping[str, float]) -> list[float]:
    if not params.features:
        raise InvalidInput("The features of this product have no names: give the context as a list of numbers.")
    names = {feature.name for feature in params.features if feature.value is None}
    if set(values) != names:
        raise InvalidInput(f"The context must give exactly {', '.join(sorted(names))} by name, and no constant.")
    return [values[feature.name] if feature.value is None else feature.value for feature in params.features]


def segment_of(params: Params, segment: str | None) -> str | None:
    """Return the segment if it exists, or None for a product without segments."""
    if not params.segments:
        if segment is not None:
            raise InvalidInput("This product has no segments: leave the segment out.")
        return None
    if not isinstance(segment, str) or segment not in params.segments:
        raise InvalidInput(f"The customer's segment is needed, one of {', '.join(params.segments)}.")
    return segment


def quote(
    params: Params,
    z: Context,
    *,
    segment: str | None = None,
    cost: float | None = None,
    uniform: float = 0.0,
    price: float | None = None,
) -> float:
    """Compute the price for a customer.

    Parameters
    ----------
    params : Params
        The checked parameters.
    z : sequence or mapping of float
        The context, as a list or by the names of the features.
    segment : str, optional
        The customer's segment, if the product has segments.
    cost : float, optional
        Unit cost of this sale. Default: the product's.
    uniform : float
        A random number in [0, 1), which only experiments use.
    price : float, optional
        In shadow mode only: the shop's own price, which is returned if it lies in the range of quotes.

    Returns
    -------
    float
    """
    features = context(params, z)
    low, high = params.range(segment_of(params, segment))
    unit_cost = params.cost if cost is None else _cost(cost)
    if not 0.0 <= uniform < 1.0:
        raise InvalidInput("uniform must be a random number of at least 0 and below 1.")
    if price is not None:
        return _own_price(params, price, low, high)
    a, b = utility(params.theta, features) if params.phase == "exploit" else (0.0, 0.0)
    return price_on_terms(
        params.phase, params.family, a, b,
        level=params.level, u=uniform, cost=unit_cost, low=low, high=high, ladder=params.ladder,
    )  # fmt: skip


def _own_price(params: Params, price: float, low: float, high: float) -> float:
    if params.mode != "shadow":
        raise InvalidInput("The shop's own price is allowed in shadow mode only.")
    # the bounds would reveal the customer's segment
    text = "The shop's price must lie within the range of prices for this customer."
    return discreetly(lambda: finite("price", price, minimum=low, maximum=high), text)


def _cost(cost: float) -> float:
    text = f"A cost must be a number of at least 0 and at most {LARGEST_VALUE:g}."
    return discreetly(lambda: finite("cost", cost, minimum=0.0, maximum=LARGEST_VALUE), text)


def outcome(params: Params, y: float) -> float:
    """Return an outcome if the family of demand allows it. The text of a refusal does not repeat it."""
    demand = FAMILIES[params.family]

    def checked() -> float:
        value = finite("y", y) if not isinstance(y, bool) else float(y)
        if not demand.possible(value):
            raise HushpriceError
        return value

    return discreetly(checked, f"The outcome of {params.family} demand must be {demand.domain}.")


def report(params: Params, z: Context, price: float, y: float, words: Sequence[int]) -> dict[str, Any]:
    """Make the randomised report of a sale: all that may be sent.

    Parameters
    ----------
    params : Params
        The checked parameters.
    z : sequence or mapping of float
        The context.
    price : float
        The price that the customer saw.
    y : float
        The outcome.
    words : sequence of int
        ``params.mechanism.words`` random 64-bit words.

    Returns
    -------
    dict
        The report as plain data for JSON.
    """
    features, bought = context(params, z), outcome(params, y)
    low, high = params.prices
    paid = discreetly(lambda: finite("price", price, minimum=low, maximum=high), "The price lies outside the range.")
    g = score(params.family, params.theta, features, paid, bought, shift=params.shift, factor=params.factor)
    return params.mechanism.report(g, words)
