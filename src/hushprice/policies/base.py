"""The loop's two halves.

    server.params -> device prices from its own context -> customer buys or not -> device reports -> server absorbs

A :class:`Policy` is frozen configuration. Its :class:`Server` holds what has been learned, publishes
:class:`Params` and absorbs reports. Its :class:`Device` is stateless: it prices from public params and the raw
context, and turns the outcome into a report. :class:`~hushprice.policies.loop.Loop` runs both halves over blocks of
simulated customers, :class:`~hushprice.policies.pricer.Pricer` one live customer at a time, by the same functions.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.demand import Family, Rules, Segments, Terms, as_family, family_config, family_from
from hushprice.errors import LARGEST_DIM, LARGEST_VALUE, InvalidInput, finite, positive_int, price_range, unknown
from hushprice.estimation import Prior, RunningEstimator, StageEstimators
from hushprice.kernels import quote as kernel
from hushprice.kernels import terms as on_terms
from hushprice.kernels.state import PriceRule
from hushprice.policies.phases import Phase

if TYPE_CHECKING:
    from hushprice.policies.loop import Loop
    from hushprice.policies.pricer import Pricer, Seed
    from hushprice.policies.private.base import PrivatePolicy
    from hushprice.privacy import Entropy

Variant = Literal["original", "modified"]
Choices = npt.NDArray[np.bool_]
"""Which customers agreed to send raw records."""
ReportsT = TypeVar("ReportsT", bound="Reports")
FOREVER = 2**62  # rounds in a phase without an end


def as_variant(value: str) -> None:
    """Refuse anything but the two variants."""
    if value not in ("original", "modified"):
        raise unknown("variant", value, ("original", "modified"))


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
        return self.phase.experiments and (self.phase is not Phase.PERTURB or self.level > 0.0)

    @property
    def uniform(self) -> bool:
        """Whether prices are drawn evenly over the whole range of experiments."""
        return self.phase is Phase.EXPLORE

    @property
    def personal(self) -> bool:
        """Whether the phase has any use for contexts and an estimate, as all do but a fixed price for everyone."""
        return self.phase is not Phase.FIXED


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a server is, for people to read.

    Parameters
    ----------
    done, total : int, int or None
        How many of what ``counted`` says, and how many there will be; None if there is no end.
    counted : str
        What is counted, as in ``"experiments in round 3"``.
    part : int
        The episode, from 1.

    Examples
    --------
    >>> Progress.of_episode(3, offset=5, explore=4, length=8)
    Progress(done=1, total=4, counted='customers at the learned prices in round 3', part=3)
    """

    done: int
    total: int | None = None
    counted: str
    part: int = 1

    @classmethod
    def of_episode(cls, part: int, *, offset: int, explore: int, length: int) -> Progress:
        """The progress of an episode that begins with experiments, ``offset`` rounds after its start."""
        exploring = offset < explore
        total = explore if exploring else length - explore
        counted = "experiments" if exploring else "customers at the learned prices"
        return cls(
            done=offset if exploring else offset - explore,
            total=total if total < FOREVER // 2 else None,
            counted=counted + (f" in round {part}" if length < FOREVER else ""),
            part=part,
        )


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
class Propensity:
    """How likely the price quoted to each customer was, given who they are and all that came before.

    A probability where the price is one of several (``discrete``), a density otherwise; NaN where it is not known.
    """

    value: Array
    discrete: npt.NDArray[np.bool_]

    @classmethod
    def certain(cls, n: int) -> Propensity:
        """Of prices that nothing random went into."""
        return cls(np.ones(n), np.ones(n, dtype=np.bool_))

    @classmethod
    def unknown(cls, n: int) -> Propensity:
        """Of prices whose distribution is not worked out."""
        return cls(np.full(n, np.nan), np.zeros(n, dtype=np.bool_))


class Reports:
    """What devices send. The server of a policy says which kind it takes."""


@dataclass(frozen=True)
class Records(Reports):
    """Raw records (z, p, y) of customers without privacy: one a row, each for the estimate of a stage."""

    z: Array
    price: Array
    y: Array
    stage: Stages = 1


@dataclass(frozen=True, kw_only=True)
class Policy(ABC):
    """Configuration shared by every policy.

    family: demand family (instance, class or name); dim: length d of the context; prices: (low, high), the range of
    experiments too, so with a unit cost a good low end is the cost; ridge: penalty ridge/2 |theta|^2 of the estimate;
    cost: unit cost, so that (p - cost) y is earned, of customers who do not come with their own; rules: business rules
    that every price must meet.
    """

    name: ClassVar[str]
    private: ClassVar[bool] = False  # whether its server takes randomised reports, not raw records
    raw_by_choice: ClassVar[bool] = False  # whether customers may agree to send raw records instead
    not_served: ClassVar[str] = ""  # why the pricing service does not run it; empty if it does

    family: Family
    dim: int
    prices: tuple[float, float]
    ridge: float = 1.0
    cost: float = 0.0
    rules: Rules | None = None

    def __post_init__(self) -> None:
        self._set("family", as_family(self.family))
        self._set("dim", positive_int("dim", self.dim, maximum=LARGEST_DIM))
        self._set("prices", price_range(self.prices))
        self._set("ridge", finite("ridge", self.ridge, minimum=1e-9, maximum=LARGEST_VALUE))
        self._set("cost", finite("cost", self.cost, minimum=0.0, maximum=LARGEST_VALUE))
        if self.rules is not None:
            self._check_rules(self.rules)

    def _check_rules(self, rules: Rules) -> None:
        """Refuse rules that cannot be met. (A policy whose experiments have a range of their own checks that too.)"""
        if not isinstance(rules, Rules):
            raise InvalidInput(f"rules must be hushprice.Rules, got {type(rules).__name__}.")
        rules.check(self.prices, self.prices)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def restarts(self) -> bool:
        """Whether the server forgets everything when ``Params.stage`` changes, and ignores reports for other stages."""
        return False

    def as_private(self) -> PrivatePolicy | None:
        """This policy with the type of a private one; None if it is not private."""
        return None

    @property
    def prior(self) -> Prior:
        """The prior of every estimate: ridge/2 |theta|^2."""
        return Prior.ridge(self.dim, self.ridge)

    def estimator(self) -> RunningEstimator:
        """A new running estimator with this policy's family and prior. Servers get theirs from here."""
        return RunningEstimator(self.family, prior=self.prior)

    def stage_estimators(self, stages: int) -> StageEstimators:
        """New running estimators with confidence widths, for stages that share no record."""
        return StageEstimators(self.family, prior=self.prior, stages=stages)

    @abstractmethod
    def server(self) -> Server[Any]:
        """A new server half, which has learned nothing yet."""

    def device(self, entropy: Entropy | None = None) -> Device:
        """The device half. ``entropy`` is what private reports are made from: the operating system's unless given."""
        return Device(self)

    def loop(self, entropy: Entropy | None = None) -> Loop:
        """Both halves, ready for blocks of simulated customers."""
        from hushprice.policies.loop import Loop

        return Loop(self.device(entropy), self.server())

    def experiment_range(self) -> tuple[float, float]:
        """The range of uniform price experiments."""
        return self.prices

    def terms(
        self, n: int, *, cost: float | Array | None = None, segment: Segments | None = None, last: Array | None = None
    ) -> Terms | None:
        """On what terms n customers can be quoted; None if there are no rules and no costs but the policy's own."""
        if self.rules is None and cost is None:
            return None
        own = self.cost if cost is None else cost
        return Terms.of(self.rules, self.prices, n, cost=own, segment=segment, last=last)

    def start(self, *, seed: Seed = None, patience: int = 100_000, unsafe_privacy_seed: Seed = None) -> Pricer:
        """A live pricer. The seed fixes its price experiments; none takes fresh entropy.

        ``patience`` is how many offers may wait for their outcome before the oldest is given up. The noise of private
        reports is the operating system's; ``unsafe_privacy_seed`` replaces it in tests and protects nobody.
        """
        from hushprice.policies.pricer import Pricer

        return Pricer(self, seed=seed, patience=patience, unsafe_privacy_seed=unsafe_privacy_seed)

    def config(self) -> dict[str, Any]:
        """The configuration as plain data; :meth:`from_config` reads it back."""
        plain: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Family):
                value = family_config(value)
            elif isinstance(value, np.ndarray):
                value = value.tolist()
            elif isinstance(value, tuple):
                value = list(value)
            elif isinstance(value, Rules):
                value = value.config()
            plain[field.name] = value
        if plain["rules"] is None:
            del plain["rules"]
        return plain

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Policy:
        """A policy from the plain data of :meth:`config`."""
        options = dict(config)
        family = family_from(options.pop("family"))
        if options.get("rules") is not None:
            options["rules"] = Rules.of(options["rules"])
        return cls(family=family, **options)


def is_policy(value: object) -> TypeGuard[Policy]:
    """Whether this is a policy, for functions that take other things too."""
    return isinstance(value, Policy)


class Device:
    """The customer's side: stateless, computes the price and the report from public params."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def quote(self, params: Params, z: Array, rng: np.random.Generator, terms: Terms | None = None) -> Quotes:
        """Prices for contexts z (n, d), one uniform a row in the phases that draw.

        ``terms`` are given where there are rules to meet or customers have costs of their own.
        """
        policy, n = self.policy, len(z)
        uniforms = rng.random(n) if params.phase.draws else np.empty(0)
        rule, prices, (low, high) = self._rule(params), np.empty(n), self._range(params)
        if terms is None:
            kernel.quotes(rule, z, uniforms, policy.cost, low, high, prices)
        else:
            on_terms.quotes_on_terms(rule, z, uniforms, terms.within((low, high)), prices)
        return Quotes(prices, params.stage if params.learn else 0, params.experiment)

    def _rule(self, params: Params) -> PriceRule:
        return PriceRule(int(params.phase), self.policy.family.code, params.theta, params.level)

    def _range(self, params: Params) -> tuple[float, float]:
        return self.policy.experiment_range() if params.phase is Phase.EXPLORE else self.policy.prices

    def propensity(self, params: Params, z: Array, price: Array, terms: Terms | None = None) -> Propensity:
        """How likely :meth:`quote` was to quote these prices, on the terms as they were before.

        A device that quotes in its own way and does not say how likely its prices are has unknown propensities.
        """
        n = len(z)
        if type(self).quote is not Device.quote and type(self).propensity is Device.propensity:
            return Propensity.unknown(n)
        policy = self.policy
        if terms is None and not params.phase.draws:
            return Propensity.certain(n)
        if terms is None and params.phase is Phase.EXPLORE:
            low, high = self._range(params)
            return Propensity(np.full(n, 1.0 / (high - low)), np.zeros(n, dtype=np.bool_))
        given = Terms.of(None, policy.prices, n, cost=policy.cost) if terms is None else terms.before()
        value, discrete = np.empty(n), np.empty(n, dtype=np.bool_)
        on_terms.propensities(self._rule(params), z, price, given.within(self._range(params)), value, discrete)
        return Propensity(value, discrete)

    def report(
        self, params: Params, z: Array, price: Array, y: Array, stage: Stages, *, public: Choices | None = None
    ) -> Reports:
        """What goes back to the server; without privacy, the raw records.

        ``public`` says which customers chose to send raw records, where a policy leaves them the choice.
        """
        return Records(z, price, y, stage)


class Server(ABC, Generic[ReportsT]):
    """The seller's side: what has been learned, in a form that can be saved.

    A server of one's own implements the abstract methods. The pricing service also uses :meth:`estimate` and
    :meth:`progress`, which have defaults.
    """

    only_experiments: ClassVar[bool] = False  # whether outcomes of experiments are all that it learns from

    @property
    @abstractmethod
    def params(self) -> Params:
        """The parameters in force for the next customer."""

    @property
    @abstractmethod
    def span(self) -> int:
        """For how many customers they stay in force, whatever these customers do."""

    @property
    def left(self) -> int:
        """For how many customers phase, level, ``learn`` and stage stay, though the estimate may move in between."""
        return self.span

    @abstractmethod
    def advance(self, n: int) -> None:
        """So many customers have been quoted under the current parameters (n <= span)."""

    @abstractmethod
    def absorb(self, reports: ReportsT) -> None:
        """Learn from reports."""

    @property
    def estimators(self) -> tuple[RunningEstimator, ...]:
        """The running estimates it prices from, for those who check them."""
        return ()

    def estimate(self) -> tuple[Array, Array | None]:
        """The estimate of theta and its covariance; the state stays as it is.

        The default asks the running estimator that holds most records. Without any it takes theta from the params of
        a copy, with no covariance. A server with a posterior of its own overrides this.

        Returns
        -------
        theta : ndarray of shape (2 d,)
            The best estimate from what was taken in so far. A server may leave out records that it has not looked at
            yet, as long as the estimate is the one that it prices from.
        covariance : ndarray of shape (2 d, 2 d) or None
            Covariance of ``theta``; None if it is not known.
        """
        if not self.estimators:
            return copy.deepcopy(self).params.theta, None
        return max(self.estimators, key=lambda estimator: estimator.records).estimate()

    @property
    def steps(self) -> int | None:
        """How many steps of projected SGD (``kernels/sgd.py``) led to the estimate; None if it is made otherwise.

        Bands of such an estimate are made by replaying the steps.
        """
        return None

    def progress(self) -> Progress | None:
        """How far the current phase is; None if there is nothing to count. The state stays as it is."""
        return None

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Everything, as plain data: numbers and arrays by name."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state given by :meth:`state`."""
