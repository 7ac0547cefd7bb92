"""Quotes for customers of plain products: chosen once, when the offer is made, and stored in its event."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import Terms
from hushprice.errors import LARGEST_VALUE, InvalidInput
from hushprice.policies import Params, Phase
from hushprice.service.core.events import fingerprint
from hushprice.service.definition import Definition

if TYPE_CHECKING:
    from hushprice.service.core.learner import Learner


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRequest:
    """A request for a price for a customer of a plain product.

    Parameters
    ----------
    context : sequence or mapping
        The features, in order or by name.
    id : str, optional
        Identifies the offer, so that the request can be repeated.
    segment : str, optional
        The customer's segment.
    cost : float, optional
        Unit cost for this customer.
    price : float, optional
        The shop's own price, in shadow mode only.
    """

    context: Sequence[float] | Mapping[str, float]
    id: str | None = None
    segment: str | None = None
    cost: float | None = None
    price: float | None = None


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A checked request."""

    z: Array
    segment: str | None
    number: int  # of the segment
    cost: float | None
    price: float | None
    fingerprint: str


def prepare(definition: Definition, request: OfferRequest) -> CheckedRequest:
    """Check a request; error messages contain no data of the customer."""
    policy = definition.policy
    z = definition.context(request.context)
    names = policy.rules.segments if policy.rules else ()
    if request.segment not in (names or (None,)):
        known = f"The segment must be one of {', '.join(names)}." if names else "This product has no segments."
        raise InvalidInput(known)
    number = names.index(request.segment) if request.segment is not None else 0
    cost = None if request.cost is None else _number("cost", request.cost, 0.0, LARGEST_VALUE)
    price = None if request.price is None else _number("price", request.price, *policy.prices)
    plain = {"z": z.tolist(), "segment": request.segment, "cost": cost, "price": price}
    return CheckedRequest(z, request.segment, number, cost, price, fingerprint(plain))


def allow(learner: Learner, request: CheckedRequest) -> None:
    """Refuse a request that the mode does not allow."""
    if request.price is not None and learner.mode != "shadow":
        raise InvalidInput("A price can be given in shadow mode only; otherwise it is the service that quotes.")


def _number(name: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
        return float(value)
    raise InvalidInput(f"The {name} must be a number from {low:g} to {high:g}.")


def quote(learner: Learner, request: CheckedRequest, rng: np.random.Generator) -> dict[str, Any]:
    """Quote a price; return the body of the offer's event."""
    body: dict[str, Any] = {"z": request.z.tolist(), "asked": request.fingerprint}
    if request.segment is not None:
        body["segment"] = request.segment
    if request.cost is not None:
        body["cost"] = request.cost
    if learner.mode == "frozen":
        body |= _quoted(learner, learner.params, request, rng) | {"stage": 0, "version": learner.version}
        return body
    params = learner.server.params
    body["version"] = learner.version if params.version == learner.policy_params.version else learner.seq + 1
    body |= _quoted(learner, params, request, rng)
    if learner.mode == "shadow":
        body |= _shadow(learner, params, request, body, rng)
    return body


def _quoted(learner: Learner, params: Params, request: CheckedRequest, rng: np.random.Generator) -> dict[str, Any]:
    """The price under these params, its propensity, and the best known price where the policy may leave it."""
    assert learner.device is not None
    z, terms = request.z.reshape(1, -1), _terms(learner, request)
    before = None if terms is None else terms.before()
    arguments = (params, z, rng) if terms is None else (params, z, rng, terms)
    quote = learner.device.quote(*arguments)
    likely = learner.device.propensity(params, z, quote.price, before)
    propensity = float(likely.value[0])
    greedy = {}
    if params.experiment:
        greedy["greedy"] = float(learner.device.greedy(params, z, quote.price, before)[0])
    return greedy | {
        "price": float(quote.price[0]),
        "stage": int(np.max(quote.stage)),
        "experiment": quote.experiments > 0,
        "propensity": propensity if math.isfinite(propensity) else None,
        "discrete": bool(likely.discrete[0]),
    }


def _shadow(
    learner: Learner, params: Params, request: CheckedRequest, would: dict[str, Any], rng: np.random.Generator
) -> dict[str, Any]:
    """The shop's own price or the baseline, with the price that the policy would have quoted.

    It is learned from in every phase: for the stage of the policy's quote, or else for the first open stage.
    """
    first = params.stage if params.bounds is None else params.bounds.first
    shown = {"would": would["price"], "stage": would["stage"] or first, "experiment": False}
    if request.price is not None:
        return shown | {"price": request.price, "propensity": 1.0, "discrete": True}
    fixed = Params(version=0, phase=Phase.FIXED, theta=params.theta, level=learner.definition.baseline)
    base = _quoted(learner, fixed, request, rng)
    return shown | {key: base[key] for key in ("price", "propensity", "discrete")}


def _terms(learner: Learner, request: CheckedRequest) -> Terms | None:
    return learner.limits.terms(cost=request.cost, segment=request.number, last=learner.last_prices)
