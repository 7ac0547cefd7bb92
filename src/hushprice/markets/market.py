"""A GLM market: who arrives, and what they buy.

Customers have context z from a given distribution and demand of mean psi'(z.alpha - (z.beta) p).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from hushprice.demand import Family, as_family
from hushprice.errors import LARGEST_VALUE, Array, InvalidInput, array, finite, positive_int, price_range
from hushprice.kernels import glm as kernel


def block_size(dim: int) -> int:
    """Customers drawn at once: few enough to stay in the cache. Part of the definition of a run."""
    return max(2048, min(8192, 131_072 // dim))


Contexts = Callable[[np.random.Generator, int], Array]
"""Draws n contexts, as an array (n, d)."""


class ContextSequence(Protocol):
    """Contexts that depend on the round, as an adversary may choose them."""

    def rounds(self, rng: np.random.Generator, n: int, *, start: int, horizon: int) -> Array:
        """The contexts of rounds start + 1 .. start + n of a run of ``horizon`` rounds, as an array (n, d)."""
        ...


class Block:
    """Consecutive customers with everything random about them already drawn."""

    def __init__(self, market: Market, z: Array, uniforms: Array, public: npt.NDArray[np.bool_] | None = None) -> None:
        n = len(z)
        self.public = np.zeros(n, dtype=np.bool_) if public is None else public
        self.market, self.family = market, market.family
        self.z, self.uniforms = z, uniforms
        self.a, self.b = np.empty(n), np.empty(n)
        kernel.utility(z, market.theta, self.a, self.b)
        self.y, self.regret = np.empty(n), np.empty(n)

    def buy(self, rows: slice, prices: Array) -> Array:
        """What these customers buy at these prices; keeps the regret of each sale."""
        market = self.market
        kernel.sell(
            self.family.code, self.family.scale, market.cost, *market.prices, self.a[rows], self.b[rows],
            prices, self.uniforms[rows], self.y[rows], self.regret[rows],
        )  # fmt: skip
        return self.y[rows]


@dataclass(frozen=True, kw_only=True, eq=False)
class Market:
    """A market with GLM demand.

    alpha, beta: true parameters; family: demand family; prices: (low, high);
    contexts: a function ``(rng, n) -> (n, d) array``, or an array or data frame of contexts to draw rows from
    with replacement, or for contexts that change over the rounds an object with the method of
    :class:`ContextSequence`; cost: unit cost; public: the share of customers who agree to send raw records, where a
    policy leaves them the choice.

    >>> market = Market(alpha=[1.0, 0.5], beta=[0.5, 0.5], prices=(0, 5), contexts=[[1.0, 0.0], [1.0, 1.0]])
    >>> market.dim
    2
    """

    alpha: Array
    beta: Array
    contexts: Any
    prices: tuple[float, float]
    family: Family = field(default_factory=lambda: as_family("logistic"))
    cost: float = 0.0
    public: float = 0.0
    name: str = "custom"

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("alpha", array("alpha", self.alpha, shape=(None,), limit=LARGEST_VALUE))
        put("beta", array("beta", self.beta, shape=(len(self.alpha),), limit=LARGEST_VALUE))
        positive_int("the number of features", self.dim)
        put("family", as_family(self.family))
        put("prices", price_range(self.prices))
        put("cost", finite("cost", self.cost, minimum=0.0))
        put("public", finite("public", self.public, minimum=0.0, maximum=1.0))
        if not callable(self.contexts) and not hasattr(self.contexts, "rounds"):
            rows = array("contexts", _rows(self.contexts), shape=(None, self.dim), limit=LARGEST_VALUE)
            if not len(rows):
                raise InvalidInput("contexts must have at least one row.")
            put("contexts", Resample(rows))

    def __repr__(self) -> str:
        low, high = self.prices
        return f"<Market {self.name}: {self.family.name} demand, d={self.dim}, prices {low:g} to {high:g}>"

    @property
    def dim(self) -> int:
        """Length d of the context."""
        return len(self.alpha)

    @property
    def theta(self) -> Array:
        """(alpha, beta)."""
        return np.concatenate([self.alpha, self.beta])

    def draw(self, rng: np.random.Generator, n: int, *, start: int = 0, horizon: int | None = None) -> Array:
        """n contexts: of the rounds from ``start`` on in a run of ``horizon``, where that matters.

        Without a horizon the n customers are the whole run.
        """
        if hasattr(self.contexts, "rounds"):
            drawn: Array = self.contexts.rounds(rng, n, start=start, horizon=start + n if horizon is None else horizon)
        else:
            drawn = self.contexts(rng, n)
        if getattr(self.contexts, "trusted", False):
            return drawn
        return array("contexts", drawn, shape=(n, self.dim), limit=LARGEST_VALUE)

    def z_max(self) -> float:
        """A bound on |z|: the one its contexts state as ``norm``, or else the largest of 20 000 customers."""
        stated = getattr(self.contexts, "norm", None)
        if stated is not None:
            return float(stated)
        return float(np.linalg.norm(self.draw(np.random.default_rng(0), 20_000), axis=1).max())

    def blocks(
        self,
        contexts: np.random.Generator,
        demand: np.random.Generator,
        horizon: int,
        *,
        choices: np.random.Generator | None = None,
    ) -> Iterator[Block]:
        """Customers 1..horizon, in blocks of fixed size.

        One generator is for who they are, one for what they do and one for whether they agree to send raw records;
        without that one nobody does.
        """
        size = block_size(self.dim)
        for start in range(0, horizon, size):
            n = min(size, horizon - start)
            z = self.draw(contexts, n, start=start, horizon=horizon)
            agree = choices.random(n) < self.public if choices is not None and self.public > 0.0 else None
            yield Block(self, z, demand.random(n), agree)

    def optimal_price(self, z: Any) -> Array:
        """The best price for each context."""
        rows = array("z", z, shape=(None, self.dim))
        prices: Array = self.family.optimal_price(rows @ self.alpha, rows @ self.beta, self.prices, cost=self.cost)
        return prices

    def fingerprint(self) -> str:
        """A hash of everything that makes this market: its demand, its prices and who comes.

        Contexts are told by all the rows they are drawn from, or by a thousand draws; those that change over the rounds
        by what they were made with, and draws from early to late.
        """
        told = hashlib.sha256(self.family.name.encode())
        numbers = (self.theta, [*self.prices, self.cost, self.public, self.family.scale])
        for part in (*numbers, *self._contexts_told()):
            told.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
        if hasattr(self.contexts, "rounds"):
            made_with = {k: v for k, v in vars(self.contexts).items() if isinstance(v, (int, float, str, type(None)))}
            told.update(repr(sorted(made_with.items())).encode())
        return told.hexdigest()

    def _contexts_told(self) -> list[Array]:
        if isinstance(self.contexts, Resample) and type(self.contexts).__call__ is Resample.__call__:
            return [self.contexts.rows]
        if hasattr(self.contexts, "rounds"):
            places = [(start, T) for T in (1_000, 100_000) for start in range(0, T, T // 8)]
            return [self.draw(np.random.default_rng(0), 100, start=start, horizon=T) for start, T in places]
        return [self.draw(np.random.default_rng(0), 1000)]

    def best_fixed_price(self, *, customers: int = 50_000, seed: int = 0) -> float:
        """The one price that earns most over customers drawn with this seed."""
        z = self.draw(np.random.default_rng(seed), positive_int("customers", customers))
        a, b = np.empty(len(z)), np.empty(len(z))
        kernel.utility(z, self.theta, a, b)

        def loss(p: float) -> float:
            return -float(np.mean(self.family.revenue(p, a, b, cost=self.cost)))

        grid = np.linspace(*self.prices, 101)
        k = int(np.argmin([loss(p) for p in grid]))
        inside = (grid[max(k - 1, 0)], grid[min(k + 1, 100)])
        return float(minimize_scalar(loss, bounds=inside, method="bounded", options={"xatol": 1e-6}).x)


def _rows(contexts: Any) -> Any:
    """The numbers of a data frame, or whatever else was given."""
    if not hasattr(contexts, "to_numpy"):
        return contexts
    for name, kind in zip(contexts.columns, contexts.dtypes, strict=True):
        if not (np.issubdtype(np.asarray(contexts[name]).dtype, np.number) or str(kind).lower().startswith("bool")):
            raise InvalidInput(f"The column {name!r} of contexts is {kind}, not numbers: encode it first.")
    return contexts.to_numpy()


class Resample:
    """Contexts drawn with replacement from given rows."""

    trusted = True  # the rows were checked once

    def __init__(self, rows: Array) -> None:
        self.rows = rows
        self.norm = float(np.linalg.norm(rows, axis=1).max())

    def __call__(self, rng: np.random.Generator, n: int) -> Array:
        return self.rows[rng.integers(len(self.rows), size=n)]
