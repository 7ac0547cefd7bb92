"""The prices that a policy would quote to the customers of a log: the target of an evaluation.

A target is a word (``fixed-price:price=7``, ``random-price``), a demand model or its file (its best price), a live
pricer or its snapshot (the price it would quote now), a policy that does not learn, a function from contexts to prices,
or an array of prices. A policy that learns cannot be a target: its prices depend on outcomes that are not in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushprice import policies
from hushprice.arrays import Array, array
from hushprice.demand import Rules, Terms
from hushprice.errors import InvalidInput, finite, price_range, unknown
from hushprice.evaluation.customers import Customers
from hushprice.evaluation.estimators import CrossFit
from hushprice.evaluation.weights import Mask, Support
from hushprice.fitting import DemandModel
from hushprice.kernels import terms as on_terms
from hushprice.policies import Policy
from hushprice.policies.base import is_policy
from hushprice.policies.exchange import FOREVER
from hushprice.policies.pricer import Pricer

NODES, SHARES = np.polynomial.legendre.leggauss(16)
SEED = 0  # for prices that a target draws


@dataclass(frozen=True, kw_only=True, eq=False)
class Quoted:
    """One price per customer; ``drawn`` if the policy draws prices, in which case they were drawn once."""

    name: str
    prices: Array
    drawn: bool = False

    def on(self, support: Support, price: Array, h: float) -> tuple[Array, Array, Mask]:
        """L(p), the target's price and whether the support covers it, for the customers of a support."""
        target = self.prices[support.rows]
        covered = support.covers(target)
        return np.where(covered, support.spread(price[support.rows], target, h), 0.0), target, covered

    def profit(self, demand: CrossFit, cost: Array) -> Array:
        """Profit from each customer at the target price by a demand model."""
        value: Array = (self.prices - cost) * demand.at(self.prices)
        return value


@dataclass(frozen=True, kw_only=True, eq=False)
class Even:
    """A price drawn uniformly from low to high, with w = 1 / (high - low) / f(p | z), without a kernel.

    If the logged prices come from a ladder, or do not cover the range, prices drawn once are used instead.
    """

    name: str
    low: float
    high: float
    drawn_prices: Array
    drawn: bool = False

    @property
    def prices(self) -> Array:
        return self.drawn_prices

    def on(self, support: Support, price: Array, h: float) -> tuple[Array, Array, Mask]:
        if not support.contains(self.low, self.high):
            return Quoted(name=self.name, prices=self.drawn_prices).on(support, price, h)
        p = price[support.rows]
        inside = (p >= self.low) & (p <= self.high)
        return inside / (self.high - self.low), p, np.ones(len(p), dtype=bool)

    def profit(self, demand: CrossFit, cost: Array) -> Array:
        total = np.zeros(len(cost))
        for node, share in zip(NODES, SHARES, strict=True):
            price = self.low + (self.high - self.low) * (1.0 + node) / 2.0
            total += share / 2.0 * (price - cost) * demand.at(price)
        return total


Target = Quoted | Even


def load(policy: Any) -> Any:
    """The policy from its file if it is a path; anything else unchanged."""
    if isinstance(policy, DemandModel):
        return demand_model(policy)
    if not isinstance(policy, (str, Path)):
        return policy
    path = Path(policy)
    if path.is_file():
        if path.suffix.lower() == ".json":
            return DemandModel.load(path)
        return Pricer.load(path)
    word = str(policy)
    if isinstance(policy, Path) or ("/" in word and ":" not in word) or path.suffix in (".json", ".zip", ".snapshot"):
        raise InvalidInput(f"There is no file {policy}. A target is a word, a demand model file or a pricer snapshot.")
    return word


def demand_model(model: DemandModel | str | Path) -> DemandModel:
    """A fitted demand model, or one from its file."""
    if isinstance(model, (str, Path)):
        return DemandModel.load(model)
    if not isinstance(model, DemandModel):
        raise InvalidInput(f"model must be a demand model or its file, got {type(model).__name__}.")
    if not hasattr(model, "encoding_"):
        raise InvalidInput("The demand model is not fitted yet: call fit first.")
    return model


def resolve(
    policy: Any,
    customers: Customers,
    *,
    prices: tuple[float, float] | None,
    segment: str | None = None,
    rules: Rules | None = None,
) -> Target:
    """The target of a policy for these customers. ``prices`` is its range if it has none itself."""
    n = len(customers.price)
    if rules is not None and not isinstance(policy, DemandModel):
        raise InvalidInput("Rules are for the best prices by a demand model: other targets bring their own prices.")
    if isinstance(policy, str):
        return _word(policy, n, _logged_range(customers) if prices is None else price_range(prices))
    if isinstance(policy, DemandModel):
        return _greedy(policy, customers, prices, rules, segment)
    if is_policy(policy):
        return _pricer(_constant(policy), customers, segment)
    if isinstance(policy, Pricer):
        return _pricer(policy, customers, segment)
    if callable(policy):
        quoted = array("the prices of the function", policy(customers.z.copy()), shape=(n,))
        return Quoted(name=getattr(policy, "__name__", "function"), prices=quoted)
    every = array("the target's prices", policy, shape=(len(customers.complete),))
    return Quoted(name="given prices", prices=every[customers.complete])


def _logged_range(customers: Customers) -> tuple[float, float]:
    return float(customers.price.min()), float(customers.price.max())


def _word(word: str, n: int, span: tuple[float, float]) -> Target:
    name, _, rest = word.partition(":")
    options = [item.partition("=")[::2] for item in filter(None, rest.split(","))]
    if name == "fixed-price":
        if [key.strip() for key, _ in options] != ["price"]:
            raise InvalidInput(f"{word!r} should say which price, once and nothing else, as in fixed-price:price=7.")
        return Quoted(name=word, prices=np.full(n, _price(options[0][1])))
    if name == "random-price":
        if options:
            raise InvalidInput(f"random-price takes no options here, got {word!r}: give its range as prices.")
        return _even(word, n, *span)
    if name not in policies.REGISTRY:
        raise unknown("policy", name, policies.REGISTRY)
    raise _learns(name)


def _price(text: str) -> float:
    try:
        return finite("price", float(text), minimum=0.0)
    except ValueError:
        raise InvalidInput(f"The price of fixed-price must be a number, got {text!r}.") from None


def _learns(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name} sets its prices by what it learns or knows, so that a log cannot tell them. Run it on a twin of the "
        "log (hushprice plan), or evaluate a pricer in the state it is in: save it, and give the file. The best prices "
        "by a demand model can be evaluated too: give the model file."
    )


def _constant(policy: Policy) -> Pricer:
    """A pricer of a policy that never learns."""
    server = policy.server()
    if server.span < FOREVER or server.params.learn:
        raise _learns(policy.name)
    return policy.start(seed=SEED)


def _even(name: str, n: int, low: float, high: float) -> Even:
    if low == high:
        raise InvalidInput("All logged prices are the same: give the range of random-price as prices.")
    prices = low + (high - low) * np.random.default_rng(SEED).random(n)
    return Even(name=name, low=low, high=high, drawn_prices=prices)


def _greedy(
    model: DemandModel,
    customers: Customers,
    prices: tuple[float, float] | None,
    rules: Rules | None,
    segment: str | None,
) -> Quoted:
    """The best allowed price by a demand model."""
    span = price_range(model.prices_ if prices is None else prices)
    if rules is not None:
        rules.check(span, span)
    z = model.encoding_.encode(customers.batch)
    a, b, quoted = z @ model.alpha_, z @ model.beta_, np.empty(len(z))
    terms = Terms.of(rules, span, len(z), cost=customers.cost, segment=_segments(rules, customers, segment))
    on_terms.best_prices_on_terms(model.family_.code, a, b, terms.cost, terms.low, terms.high, terms.ladder, quoted)
    return Quoted(name="best price by the model", prices=quoted)


def _pricer(pricer: Pricer, customers: Customers, segment: str | None) -> Target:
    """The prices a pricer would quote now to the customers in the order of the log, without learning."""
    policy, z, n = pricer.policy, customers.z, len(customers.z)
    if z.shape[1] != policy.dim:
        raise InvalidInput(
            f"The pricer takes contexts of {policy.dim} numbers, but those of the log have {z.shape[1]} "
            f"({', '.join(customers.names[:8])}). Name the features it was run with, in their order."
        )
    params = pricer.params
    name = f"{policy.name} as it stands"
    if params.uniform and policy.rules is None:
        return _even(name, n, *policy.experiment_range())
    cost = customers.cost if customers.own_cost else None
    terms = policy.terms(n, cost=cost, segment=_segments(policy.rules, customers, segment))
    rng = np.random.default_rng(SEED)
    arguments = () if terms is None else (terms,)
    quotes = policy.device().quote(params, z, rng, *arguments)
    return Quoted(name=name, prices=quotes.price, drawn=not params.phase.certain)


def _segments(rules: Rules | None, customers: Customers, segment: str | None) -> Any:
    if rules is None or not rules.segments:
        return None
    if segment is None:
        raise InvalidInput(
            f"The rules need the segment of each customer ({', '.join(rules.segments)}): name its column."
        )
    codes, words = customers.batch.codes(segment)
    if (codes < 0).any():
        raise InvalidInput(
            f"The column {segment!r} is empty in {int((codes < 0).sum()):,} rows, but the rules need it."
        )
    return np.array([rules.index(word) for word in words], dtype=np.int64)[codes]
