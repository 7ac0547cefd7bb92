"""A GLM market: contexts of customers from some distribution, and demand with mean psi'(z.alpha - (z.beta) p)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy

from hushprice.arrays import Array, array
from hushprice.demand import Family, Rules, Segments, Terms, as_family
from hushprice.errors import LARGEST_VALUE, InvalidInput, finite, positive_int, price_range, short_repr
from hushprice.kernels import glm as kernel
from hushprice.kernels import terms as on_terms
from hushprice.kernels.state import SimulatedDemand
from hushprice.markets.drift import Drift


def block_size(dim: int) -> int:
    """Customers per block: few enough to stay in the cache. The value is part of the definition of a run."""
    return max(2048, min(8192, 131_072 // dim))


Contexts = Callable[[np.random.Generator, int], Array]
"""Draws n contexts, as an array (n, d)."""


class ContextSequence(Protocol):
    """Contexts that depend on the round, as an adversary may choose them."""

    def rounds(self, rng: np.random.Generator, n: int, *, start: int, horizon: int) -> Array:
        """The contexts of rounds start + 1 .. start + n of a run of ``horizon`` rounds, as an array (n, d).

        Parameters
        ----------
        rng : Generator
            The source of randomness.
        n : int
            Number of rounds.
        start : int
            Number of rounds before these.
        horizon : int
            Number of rounds of the run.

        Returns
        -------
        ndarray
            One context per row.
        """
        ...


INTERCEPT = " with intercept"  # in names of markets
_ANY_HORIZON = 2**40  # for what depends on shares of a run alone


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Arriving customers.

    Parameters
    ----------
    z : ndarray of shape (n, d)
        Contexts.
    cost, today : ndarray of shape (n,), optional
        Unit cost and today's price per customer, if known.
    segment : ndarray of shape (n,), optional
        Number of each customer's segment, if there are segments.
    """

    z: Array
    cost: Array | None = None
    segment: Segments | None = None
    today: Array | None = None


class Block:
    """Consecutive customers, with all their random numbers drawn in advance.

    Parameters
    ----------
    market : Market
        Their market.
    who : Arrivals or ndarray of shape (n, d)
        The customers, or their contexts.
    uniforms : ndarray of shape (n,)
        The uniform that each outcome is drawn from.
    public : ndarray of shape (n,), optional
        Who agreed to send raw records. Default: nobody.
    start, horizon : int, optional
        Number of customers before these, and length of the run. Default: these customers are the whole run.
    """

    def __init__(
        self,
        market: Market,
        who: Arrivals | Array,
        uniforms: Array,
        public: npt.NDArray[np.bool_] | None = None,
        *,
        start: int = 0,
        horizon: int | None = None,
    ) -> None:
        arrivals = who if isinstance(who, Arrivals) else Arrivals(who)
        self.cost, self.segment, self.today = arrivals.cost, arrivals.segment, arrivals.today
        z = arrivals.z
        n = len(z)
        self.terms = market.terms(arrivals)
        self.public = np.zeros(n, dtype=np.bool_) if public is None else public
        self.market, self.family = market, market.family
        self.z, self.uniforms = z, uniforms
        self.a, self.b = market.utility(z, start=start, horizon=horizon)
        self.y, self.regret = np.empty(n), np.empty(n)

    def buy(self, rows: slice, prices: Array) -> Array:
        """Outcomes of the customers in ``rows`` at these prices; ``regret`` holds the regret of each sale.

        Parameters
        ----------
        rows : slice
            The customers.
        prices : ndarray
            One price per customer.

        Returns
        -------
        ndarray
            One outcome per customer.
        """
        market, y, regret = self.market, self.y[rows], self.regret[rows]
        if self.terms is None:
            kernel.sell(self.demand(rows), market.cost, *market.prices, prices, y, regret)
        else:
            on_terms.sell_on_terms(self.demand(rows), self.terms.rows(rows), prices, y, regret)
        return y

    def demand(self, rows: slice) -> SimulatedDemand:
        """Demand of the customers in ``rows``, for compiled loops.

        Parameters
        ----------
        rows : slice
            The customers.
        """
        return SimulatedDemand(self.family.code, self.family.scale, self.a[rows], self.b[rows], self.uniforms[rows])

    def lost(self, prices: Array) -> Array:
        """Expected loss per price against the best allowed price; negative for a better price that is not allowed.

        It equals ``regret`` for allowed prices, but also accepts prices that break the rules or leave the range, as
        today's may.

        Parameters
        ----------
        prices : ndarray
            One price per customer of the block.

        Returns
        -------
        ndarray
            One loss per customer.
        """
        code, market = self.family.code, self.market
        terms = self.terms or Terms.of(None, market.prices, len(prices), cost=market.cost)
        best = np.empty(len(prices))
        on_terms.best_prices_on_terms(code, self.a, self.b, terms.cost, terms.low, terms.high, terms.ladder, best)
        at_best, at_these = ((p - terms.cost) * self.family.mean(self.a - self.b * p) for p in (best, prices))
        return np.asarray(at_best - at_these)

    def earned(self, prices: Array) -> float:
        """Revenue at these prices, net of cost.

        Parameters
        ----------
        prices : ndarray
            One price per customer of the block, at which they bought.
        """
        cost = self.market.cost if self.cost is None else self.cost
        return float(self.y @ prices - (cost * self.y).sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class Market:
    """A market with GLM demand.

    Parameters
    ----------
    alpha, beta : array_like of shape (d,)
        True parameters.
    contexts : callable, array_like, data frame or ContextSequence
        A function ``(rng, n) -> (n, d) array``; or rows to draw from with replacement; or, for contexts that change
        over the rounds, a :class:`ContextSequence`.
    prices : (float, float)
        Lowest and highest price.
    family : Family or str
        The demand family.
    cost : float
        Unit cost of customers without a cost of their own.
    public : float
        Share of customers who agree to send raw records, for policies with ``raw_by_choice``.
    name : str
        Name of the market in results.
    rules : Rules, optional
        Business rules. Regret is measured against the best allowed price, regardless of the largest step.
    segments : sequence of str
        Names of the customers' segments, in alphabetical order.
    covariance : array_like of shape (2 d, 2 d), optional
        Covariance of (alpha, beta). With it, each replication draws its truth from the normal distribution around them.
    names : sequence of str
        Names of the entries of a context.
    drift : Drift, optional
        How the parameters move over a run, as :func:`drifting` sets it; ``alpha`` and ``beta`` are then those of its
        start.

    Examples
    --------
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
    rules: Rules | None = None
    segments: tuple[str, ...] = ()
    covariance: Array | None = None
    names: tuple[str, ...] = ()
    drift: Drift | None = None

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
        put("segments", tuple(self.segments))
        if list(self.segments) != sorted(set(self.segments)):
            raise InvalidInput(f"segments must be different names in alphabetical order, got {self.segments}.")
        put("names", tuple(self.names))
        if self.names and (len(self.names) != self.dim or len(set(self.names)) < self.dim):
            raise InvalidInput(f"names must be {self.dim} different names, one for each entry of a context.")
        if self.covariance is not None:
            put("covariance", array("covariance", self.covariance, shape=(2 * self.dim, 2 * self.dim)))
        if self.drift is not None:
            if not isinstance(self.drift, Drift):
                raise InvalidInput(f"drift must be a Drift, as markets.drifting sets it, got {short_repr(self.drift)}.")
            self.drift.check(self.dim)
        if self.rules is not None:
            self.rules.check(self.prices, self.prices)
            if strangers := set(self.rules.segments) - set(self.segments):
                here = ", ".join(self.segments) or "none"
                raise InvalidInput(f"No customer is of the segment {sorted(strangers)[0]!r}: there are {here}.")
            if self.rules.segments and set(self.segments) - set(self.rules.segments):
                put("rules", replace(self.rules, segments=self.segments))

    def __repr__(self) -> str:
        low, high = self.prices
        return f"<Market {self.name}: {self.family.name} demand, d={self.dim}, prices {low:g} to {high:g}>"

    @property
    def dim(self) -> int:
        """Length d of the context."""
        return len(self.alpha)

    def with_intercept(self) -> Market:
        """The same market with a constant, 1, in front of every context, which demand does not depend on.

        A policy then learns two coefficients more. They are wasted here, but improve the fit where demand is not of
        the assumed form. Contexts that come from a log hold a constant already.

        Examples
        --------
        >>> market = Market(alpha=[1.0, 0.5], beta=[0.5, 0.5], prices=(0, 5), contexts=[[1.0, 0.0], [1.0, 1.0]])
        >>> market.with_intercept().alpha
        array([0. , 1. , 0.5])
        """
        d, covariance = self.dim, None
        if INTERCEPT in self.name:
            raise InvalidInput(f"The contexts of {self.name} begin with a constant already.")
        if self.covariance is not None:
            covariance = np.insert(np.insert(self.covariance, [0, d], 0.0, axis=0), [0, d], 0.0, axis=1)
        return replace(
            self,
            alpha=np.insert(self.alpha, 0, 0.0),
            beta=np.insert(self.beta, 0, 0.0),
            contexts=_with_constant(self.contexts, self.name),
            name=self.name + INTERCEPT,
            covariance=covariance,
            names=("1", *self.names) if self.names else (),
            drift=None if self.drift is None else self.drift.with_constant(d),
        )

    @property
    def theta(self) -> Array:
        """(alpha, beta); where demand drifts, that of the start."""
        return np.concatenate([self.alpha, self.beta])

    def theta_at(self, at: float, *, horizon: int | None = None) -> Array:
        """(alpha, beta) at a moment of a run. A walk moves in the market that :meth:`truth` draws, and not before.

        Parameters
        ----------
        at : float
            The moment: a share of the run, from 0 to 1, or, from 2 on, the number of a customer.
        horizon : int, optional
            Length of the run. It is needed only where one of the moment and a jump is a share and the other the
            number of a customer, and for the number of a customer in a drift by shares.

        Examples
        --------
        >>> market = Market(alpha=[1.0], beta=[0.5], prices=(0, 5), contexts=[[1.0]], drift=Drift.of("jump"))
        >>> market.theta_at(0.7)
        array([1.  , 0.35])
        """
        moment = finite("at", at, minimum=0.0)
        if 1.0 < moment < 2.0 or (moment >= 2.0 and not moment.is_integer()):
            raise InvalidInput(f"at must be a share of the run from 0 to 1, or a customer's number, got {moment:g}.")
        if self.drift is None:
            return self.theta
        by_number = self.drift.kind == "jump" and self.drift.at >= 1.0
        if horizon is None and moment > 0.0 and (moment >= 2.0) is not by_number:
            raise InvalidInput(f"In the market {self.name} the moment {moment:g} depends on the run: give its horizon.")
        T = _ANY_HORIZON if horizon is None else positive_int("horizon", horizon)
        if moment > T and moment >= 2.0:
            raise InvalidInput(f"A run of {T} customers has no customer {moment:g}.")
        return self.drift.theta(self.theta, moment - 1.0 if moment >= 2.0 else moment * T, T)

    def utility(self, z: Array, *, start: int = 0, horizon: int | None = None) -> tuple[Array, Array]:
        """z.alpha and z.beta of consecutive customers, each under the parameters of its moment.

        Parameters
        ----------
        z : ndarray of shape (n, d)
            Contexts.
        start, horizon : int, optional
            Number of customers before these, and length of the run. Default: these customers are the whole run.
        """
        if self.drift is not None:
            before = np.arange(start, start + len(z), dtype=np.float64)
            return self.drift.utility(z, self.theta, before, start + len(z) if horizon is None else horizon)
        a, b = np.empty(len(z)), np.empty(len(z))
        kernel.utility(z, self.theta, a, b)
        return a, b

    def draw(self, rng: np.random.Generator, n: int, *, start: int = 0, horizon: int | None = None) -> Array:
        """Draw n contexts.

        Parameters
        ----------
        rng : Generator
            Source of the draws.
        n : int
            Number of customers.
        start, horizon : int, optional
            For contexts that depend on the round: rounds before these customers, and length of the run. Default: these
            customers are the whole run.
        """
        if hasattr(self.contexts, "rounds"):
            drawn: Array = self.contexts.rounds(rng, n, start=start, horizon=start + n if horizon is None else horizon)
        else:
            drawn = self.contexts(rng, n)
        if getattr(self.contexts, "trusted", False):
            return drawn
        return array("contexts", drawn, shape=(n, self.dim), limit=LARGEST_VALUE)

    def arrivals(self, rng: np.random.Generator, n: int, *, start: int = 0, horizon: int | None = None) -> Arrivals:
        """n customers: :meth:`draw` with costs, segments and today's prices, if the market has them.

        Parameters
        ----------
        rng : Generator
            The source of randomness.
        n : int
            Number of customers.
        start, horizon : int, optional
            As for :meth:`draw`.
        """
        if hasattr(self.contexts, "arrivals"):
            who: Arrivals = self.contexts.arrivals(rng, n)
            return who
        return Arrivals(self.draw(rng, n, start=start, horizon=horizon))

    def terms(self, who: Arrivals) -> Terms | None:
        """The terms of these customers; None without rules if every customer has the market's cost.

        Parameters
        ----------
        who : Arrivals
            The customers.
        """
        if self.rules is None and who.cost is None:
            return None
        cost = self.cost if who.cost is None else who.cost
        return Terms.of(self.rules, self.prices, len(who.z), cost=cost, segment=who.segment)

    def truth(self, rng: np.random.Generator) -> Market:
        """The market of one replication: this market, or one whose truth is drawn at random.

        With a covariance (alpha, beta) is drawn, and after it the path of a walk.

        Parameters
        ----------
        rng : Generator
            The source of randomness.
        """
        market = self
        if self.covariance is not None:
            values, vectors = np.linalg.eigh(self.covariance)
            drawn = self.theta + vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(values)))
            market = replace(self, alpha=drawn[: self.dim], beta=drawn[self.dim :], covariance=None)
        if market.drift is None or (moved := market.drift.drawn(rng, self.dim)) is market.drift:
            return market
        return replace(market, drift=moved)

    @property
    def features(self) -> list[Any] | None:
        """What is publicly known about the features, the attribute ``features`` of the contexts; None if nothing is.

        Each is a range [low, high], a number for a constant, "yes/no", or {"group": k} for k entries of which one is 1.
        """
        known = getattr(self.contexts, "features", None)
        return None if known is None else list(known)

    def z_max(self) -> float:
        """A bound on |z|: the attribute ``norm`` of the contexts, or else the largest |z| of 20 000 customers."""
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

        Parameters
        ----------
        contexts, demand : Generator
            Sources of the contexts and of the outcomes.
        horizon : int
            Number of customers.
        choices : Generator, optional
            Source of the choices to send raw records. Default: nobody agrees.
        """
        size = block_size(self.dim)
        for start in range(0, horizon, size):
            n = min(size, horizon - start)
            who = self.arrivals(contexts, n, start=start, horizon=horizon)
            agree = choices.random(n) < self.public if choices is not None and self.public > 0.0 else None
            yield Block(self, who, demand.random(n), agree, start=start, horizon=horizon)

    def optimal_price(self, z: Any, *, at: float = 0.0, horizon: int | None = None) -> Array:
        """The best price for each context.

        Parameters
        ----------
        z : array_like
            Contexts, one per row.
        at, horizon : float and int, optional
            The moment, where demand drifts, as for :meth:`theta_at`. Default: the start of a run.

        Returns
        -------
        ndarray
            One price per context.
        """
        rows = array("z", z, shape=(None, self.dim))
        theta = self.theta_at(at, horizon=horizon)
        a, b = rows @ theta[: self.dim], rows @ theta[self.dim :]
        prices: Array = self.family.optimal_price(a, b, self.prices, cost=self.cost)
        return prices

    def fingerprint(self) -> str:
        """A hash of the market's demand, its drift, prices and customers.

        It includes all rows that contexts are drawn from, or else a thousand draws. For contexts that change over the
        rounds it includes their plain attributes, and draws from early to late rounds.
        """
        digest = hashlib.sha256(self.family.name.encode())
        numbers = (self.theta, [*self.prices, self.cost, self.public, self.family.scale])
        for part in (*numbers, *self._context_samples(), *self._extra_columns()):
            digest.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
        if self.rules is not None or self.segments:
            digest.update(repr((self.segments, self.rules and sorted(self.rules.config().items()))).encode())
        if hasattr(self.contexts, "rounds"):
            plain = {k: v for k, v in vars(self.contexts).items() if isinstance(v, (int, float, str, type(None)))}
            digest.update(repr(sorted(plain.items())).encode())
        if self.drift is not None:
            digest.update(self.drift.content())
        return digest.hexdigest()

    def _context_samples(self) -> list[Array]:
        """Contexts for the fingerprint."""
        if isinstance(self.contexts, Resample) and type(self.contexts).__call__ is Resample.__call__:
            return [self.contexts.rows]
        if hasattr(self.contexts, "rounds"):
            places = [(start, T) for T in (1_000, 100_000) for start in range(0, T, T // 8)]
            return [self.draw(np.random.default_rng(0), 100, start=start, horizon=T) for start, T in places]
        return [self.draw(np.random.default_rng(0), 1000)]

    def _extra_columns(self) -> list[Array]:
        """Covariance, costs, segments and today's prices for the fingerprint, each behind its number."""
        columns = (self.covariance, *(getattr(self.contexts, name, None) for name in ("costs", "segments", "today")))
        return [np.concatenate([[k], np.ravel(part)]) for k, part in enumerate(columns) if part is not None]

    def best_fixed_price(self, *, customers: int = 50_000, seed: int = 0, horizon: int | None = None) -> float:
        """The best single price for everyone; where demand drifts, over a whole run.

        Parameters
        ----------
        customers : int
            Number of customers to average over.
        seed : int
            Seed of their draw.
        horizon : int, optional
            Length of the run that they stand for, for a drift which depends on it. Default: ``customers``.
        """
        rng = np.random.default_rng(seed)
        who = self.arrivals(rng, positive_int("customers", customers))
        if self.drift is None:
            a, b = self.utility(who.z)
        else:
            T = customers if horizon is None else positive_int("horizon", horizon)
            before = np.floor(np.arange(customers) * (T / customers))
            a, b = self.drift.utility(who.z, self.theta, before, T, rng=rng)
        cost = self.cost if who.cost is None else who.cost

        def loss(p: float) -> float:
            return -float(np.mean((p - cost) * self.family.mean(a - b * p)))

        if self.rules is not None and self.rules.ladder:
            return min((p for p in self.rules.ladder if self.prices[0] <= p <= self.prices[1]), key=loss)
        grid = np.linspace(*self.prices, 101)
        k = int(np.argmin([loss(p) for p in grid]))
        inside = (grid[max(k - 1, 0)], grid[min(k + 1, 100)])
        return float(scipy.optimize.minimize_scalar(loss, bounds=inside, method="bounded", options={"xatol": 1e-6}).x)


def _rows(contexts: Any) -> Any:
    """The numbers of a data frame; other values unchanged."""
    if not hasattr(contexts, "to_numpy"):
        return contexts
    for name, kind in zip(contexts.columns, contexts.dtypes, strict=True):
        if not (np.issubdtype(np.asarray(contexts[name]).dtype, np.number) or str(kind).lower().startswith("bool")):
            raise InvalidInput(f"The column {name!r} of contexts is {kind}, not numbers: encode it first.")
    return contexts.to_numpy()


def _with_constant(contexts: Any, name: str) -> Contexts | ContextSequence:
    """Contexts with a constant, 1, in front."""
    if type(contexts) is Resample:
        rows = _after_one(contexts.rows)
        return Resample(rows, costs=contexts.costs, segments=contexts.segments, today=contexts.today)
    if hasattr(contexts, "arrivals"):
        raise InvalidInput(f"The contexts of {name} come from a log and hold a constant already.")
    return _SequenceAfterOne(contexts) if hasattr(contexts, "rounds") else _DrawsAfterOne(contexts)


def _after_one(z: Array) -> Array:
    return np.insert(np.asarray(z, dtype=np.float64), 0, 1.0, axis=1)


class _AfterOne:
    """The attributes of some contexts, and a bound on the norm of the longer ones."""

    def __init__(self, contexts: Any) -> None:
        vars(self).update(vars(contexts) if hasattr(contexts, "__dict__") else {})
        self.contexts, self.trusted = contexts, getattr(contexts, "trusted", False)
        if (norm := getattr(contexts, "norm", None)) is not None:
            self.norm = float(np.hypot(norm, 1.0))
        if (features := getattr(contexts, "features", None)) is not None:
            self.features = [1.0, *features]


class _DrawsAfterOne(_AfterOne):
    def __call__(self, rng: np.random.Generator, n: int) -> Array:
        return _after_one(self.contexts(rng, n))


class _SequenceAfterOne(_AfterOne):
    def rounds(self, rng: np.random.Generator, n: int, *, start: int, horizon: int) -> Array:
        return _after_one(self.contexts.rounds(rng, n, start=start, horizon=horizon))


class Resample:
    """Customers drawn with replacement from rows.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Contexts.
    costs, today : array_like of shape (n,), optional
        Unit cost and today's price per row.
    segments : array_like of shape (n,), optional
        Number of each row's segment.
    """

    trusted = True  # the constructor checks the rows

    def __init__(
        self,
        rows: Array,
        *,
        costs: Array | None = None,
        segments: Segments | None = None,
        today: Array | None = None,
    ) -> None:
        self.rows = rows
        self.norm = float(np.linalg.norm(rows, axis=1).max())
        n = (len(rows),)
        self.costs = None if costs is None else array("costs", costs, shape=n, limit=LARGEST_VALUE)
        self.today = None if today is None else array("today", today, shape=n, limit=LARGEST_VALUE)
        self.segments = None if segments is None else np.asarray(segments, dtype=np.int64)
        if self.segments is not None and (self.segments.shape != n or self.segments.min() < 0):
            raise InvalidInput("segments must give the number of a segment for each row.")

    def __call__(self, rng: np.random.Generator, n: int) -> Array:
        return self.rows[rng.integers(len(self.rows), size=n)]

    def arrivals(self, rng: np.random.Generator, n: int) -> Arrivals:
        """The same draws with costs, segments and today's prices.

        Parameters
        ----------
        rng : Generator
            The source of randomness.
        n : int
            Number of customers.
        """
        if self.costs is None and self.segments is None and self.today is None:
            return Arrivals(self(rng, n))
        i = rng.integers(len(self.rows), size=n)
        columns: tuple[Any, ...] = (self.costs, self.segments, self.today)
        return Arrivals(self.rows[i], *(None if part is None else part[i] for part in columns))
