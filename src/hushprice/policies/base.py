"""The loop's two halves.

    server.params -> device prices from its own context -> customer buys or not -> device reports -> server absorbs

A :class:`Policy` is frozen configuration. Its :class:`Server` holds what has been learned, publishes
:class:`Params` and absorbs reports. Its :class:`Device` is stateless: it prices from public params and the raw
context, and turns the outcome into a report. :meth:`Server.sell` runs the loop over a block of customers;
:class:`~hushprice.policies.pricer.Pricer` runs it one live customer at a time. Both call the same functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from hushprice.demand import FAMILIES, Family, as_family
from hushprice.errors import LARGEST_DIM, LARGEST_VALUE, Array, finite, positive_int, price_range, unknown
from hushprice.estimation import RunningEstimator
from hushprice.kernels import bounds as bounds_kernel
from hushprice.kernels import quote as kernel

if TYPE_CHECKING:
    from hushprice.policies.pricer import Pricer, Seed

Variant = Literal["original", "modified"]
FOREVER = 2**62  # rounds in a phase without an end


def as_variant(value: str) -> None:
    """Refuse anything but the two variants."""
    if value not in ("original", "modified"):
        raise unknown("variant", value, ("original", "modified"))


class Phase(IntEnum):
    """How the device prices."""

    EXPLORE = kernel.EXPLORE  # a price experiment: uniform over the range
    EXPLOIT = kernel.EXPLOIT  # the greedy price p*(theta, z)
    PERTURB = kernel.PERTURB  # the greedy price plus or minus a deviation
    FIXED = kernel.FIXED  # the same price for everyone
    GRID = kernel.GRID  # a price experiment: uniform over equispaced prices
    INDEX = bounds_kernel.INDEX  # the price of the largest upper confidence bound
    SAMPLE = bounds_kernel.SAMPLE  # the greedy price of a theta drawn around the estimate
    SET = bounds_kernel.SET  # the greedy price of the luckiest of several theta of the confidence set
    STAGES = bounds_kernel.STAGES  # supCB's elimination of prices, stage by stage

    @property
    def draws(self) -> bool:
        """Whether the price takes one random number."""
        return self in (Phase.EXPLORE, Phase.PERTURB, Phase.GRID)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How sure the server is: the width of x at stage s is alpha |x|_{V^-1}, with that stage's V."""

    theta: Array  # (S, 2 d), the estimate of each stage
    root: Array  # (S, 2 d, 2 d), a root W of its V^-1 = W W'
    alpha: float
    arms: int = 2  # K, equispaced prices to choose from (STAGES)
    floor: float = 0.0  # width that is as good as none (STAGES)
    first: int = 1  # number of the first of these stages


@dataclass(frozen=True, kw_only=True)
class Params:
    """What the server publishes: everything a device needs to price, and nothing about any customer."""

    version: int  # goes up whenever anything else here may have changed
    phase: Phase
    theta: Array
    level: float = 0.0  # size of the deviation (PERTURB), the price (FIXED), the number of prices (GRID)
    learn: bool = False  # whether the outcome is to be reported
    stage: int = 1  # the estimate it is for, in policies that keep several
    bounds: Bounds | None = None  # in the phases that price from confidence bounds

    @property
    def experiment(self) -> bool:
        """Whether prices are bent to learn, not simply those that look best. (STAGES: those of some customers are.)"""
        return self.phase not in (Phase.EXPLOIT, Phase.FIXED) and (self.phase is not Phase.PERTURB or self.level > 0.0)


Stages = int | npt.NDArray[np.int64]


@dataclass(frozen=True)
class Quotes:
    """Prices for a block of customers, and what is done with them: the same for all, or one value a customer."""

    price: Array
    stage: Stages  # the estimate the record is for, from 1; 0 if the outcome is not to be reported
    experiment: bool | npt.NDArray[np.bool_]  # whether the price was bent to learn, not simply what looks best

    @property
    def experiments(self) -> int:
        """How many prices were bent to learn."""
        if isinstance(self.experiment, bool):
            return len(self.price) if self.experiment else 0
        return int(np.count_nonzero(self.experiment))


@dataclass(frozen=True)
class Records:
    """Raw records (z, p, y) of customers without privacy: one a row, each for the estimate of a stage."""

    z: Array
    price: Array
    y: Array
    stage: Stages = 1


class Customers(Protocol):
    """A block of simulated customers, as :meth:`Server.sell` needs them (see ``hushprice.markets``)."""

    z: Array
    a: Array
    b: Array
    uniforms: Array
    family: Family

    def buy(self, rows: slice, prices: Array) -> Array:
        """Outcomes of the customers in ``rows`` at these prices."""
        ...


@dataclass(frozen=True, kw_only=True)
class Policy(ABC):
    """Configuration shared by every policy.

    family: demand family (instance, class or name); dim: length d of the context; prices: (low, high), the range of
    experiments too, so with a unit cost a good low end is the cost; ridge: penalty ridge/2 |theta|^2 of the estimate;
    cost: unit cost, so that (p - cost) y is earned.
    """

    name: ClassVar[str]

    family: Family
    dim: int
    prices: tuple[float, float]
    ridge: float = 1.0
    cost: float = 0.0

    def __post_init__(self) -> None:
        self._set("family", as_family(self.family))
        self._set("dim", positive_int("dim", self.dim, maximum=LARGEST_DIM))
        self._set("prices", price_range(self.prices))
        self._set("ridge", finite("ridge", self.ridge, minimum=1e-9, maximum=LARGEST_VALUE))
        self._set("cost", finite("cost", self.cost, minimum=0.0, maximum=LARGEST_VALUE))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @abstractmethod
    def server(self) -> Server:
        """A new server half, which has learned nothing yet."""

    def device(self) -> Device:
        """The device half."""
        return Device(self)

    def start(self, *, seed: Seed = None, patience: int = 100_000) -> Pricer:
        """A live pricer. The seed fixes its price experiments; none takes fresh entropy.

        ``patience`` is how many offers may wait for their outcome before the oldest is given up.
        """
        from hushprice.policies.pricer import Pricer

        return Pricer(self, seed=seed, patience=patience)

    def config(self) -> dict[str, Any]:
        """The configuration as plain data; :meth:`from_config` reads it back."""
        plain: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Family):
                value = {"name": value.name, **{f.name: getattr(value, f.name) for f in fields(value)}}
            elif isinstance(value, np.ndarray):
                value = value.tolist()
            elif isinstance(value, tuple):
                value = list(value)
            plain[field.name] = value
        return plain

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Policy:
        """A policy from the plain data of :meth:`config`."""
        options = dict(config)
        family = dict(options.pop("family"))
        return cls(family=FAMILIES[family.pop("name")](**family), **options)


class Device:
    """The customer's side: stateless, computes the price and the report from public params."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def quote(self, params: Params, z: Array, rng: np.random.Generator) -> Quotes:
        """Prices for contexts z (n, d), one uniform a row in the phases that draw."""
        policy, n = self.policy, len(z)
        uniforms = rng.random(n) if params.phase.draws else np.empty(0)
        a, b, prices = np.empty(n), np.empty(n), np.empty(n)
        kernel.quotes(
            int(params.phase), policy.family.code, params.theta, params.level, z, uniforms,
            policy.cost, *policy.prices, a, b, prices,
        )  # fmt: skip
        return Quotes(prices, params.stage if params.learn else 0, params.experiment)

    def report(self, params: Params, z: Array, price: Array, y: Array, stage: Stages) -> Records:
        """What goes back to the server; without privacy, the raw records."""
        return Records(z, price, y, stage)


class Server(ABC):
    """The seller's side: what has been learned, in a form that can be saved."""

    @property
    @abstractmethod
    def params(self) -> Params:
        """The parameters in force for the next customer."""

    @property
    @abstractmethod
    def span(self) -> int:
        """For how many customers they stay in force, whatever these customers do."""

    @property
    def reach(self) -> int:
        """How many customers :meth:`sell_span` can take at once."""
        return self.span

    @abstractmethod
    def advance(self, n: int) -> None:
        """So many customers have been quoted under the current parameters (n <= span)."""

    @abstractmethod
    def absorb(self, reports: Records) -> None:
        """Learn from reports."""

    @property
    def estimators(self) -> tuple[RunningEstimator, ...]:
        """The running estimates it prices from, for those who check them."""
        return ()

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Everything, as plain data: numbers and arrays by name."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state given by :meth:`state`."""

    def sell(self, device: Device, customers: Customers, rng: np.random.Generator) -> tuple[Array, int]:
        """Run the loop over a block of customers whose outcomes come at once: (prices, rounds explored)."""
        n, start, explored = len(customers.z), 0, 0
        prices = np.empty(n)
        while start < n:
            rows = slice(start, min(n, start + self.reach))
            prices[rows], experiments = self.sell_span(device, customers, rows, rng)
            explored += experiments
            start = rows.stop
        return prices, explored

    def sell_span(
        self, device: Device, customers: Customers, rows: slice, rng: np.random.Generator
    ) -> tuple[Array, int]:
        """Sell to the customers in ``rows``, at most :attr:`reach` of them: (prices, rounds explored).

        A server that re-estimates after every few customers overrides this with a compiled loop over the same steps,
        and :attr:`reach` with how far that loop can go.
        """
        params, z = self.params, customers.z[rows]
        quotes = device.quote(params, z, rng)
        y = customers.buy(rows, quotes.price)
        self.advance(rows.stop - rows.start)
        if isinstance(quotes.stage, int):
            if quotes.stage:
                self.absorb(device.report(params, z, quotes.price, y, quotes.stage))
        elif (kept := quotes.stage > 0).any():
            self.absorb(device.report(params, z[kept], quotes.price[kept], y[kept], quotes.stage[kept]))
        return quotes.price, quotes.experiments
