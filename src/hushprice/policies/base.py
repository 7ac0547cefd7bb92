"""The two halves of the loop.

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
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeGuard, TypeVar

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import Family, Rules, Segments, Terms, as_family, family_config, family_from
from hushprice.errors import LARGEST_DIM, LARGEST_VALUE, InvalidInput, finite, positive_int, price_range
from hushprice.estimation import Prior, RunningEstimator, StageEstimators
from hushprice.kernels import quote as kernel
from hushprice.kernels import terms as on_terms
from hushprice.kernels.state import PriceRule
from hushprice.policies.exchange import Choices, Params, Progress, Propensity, Quotes, Records, Reports, Stages
from hushprice.policies.phases import Phase

if TYPE_CHECKING:
    from hushprice.policies.loop import Loop
    from hushprice.policies.monitoring.findings import Change, Misfit
    from hushprice.policies.pricer import Pricer, Seed
    from hushprice.policies.private.ball import BallPolicy
    from hushprice.policies.private.base import PrivatePolicy
    from hushprice.privacy import Entropy

ReportsT = TypeVar("ReportsT", bound=Reports)


@dataclass(frozen=True, kw_only=True)
class Policy(ABC):
    """Configuration shared by all policies.

    Parameters
    ----------
    family : Family, type or str
        Demand family: an instance, a class or a name.
    dim : int
        Length d of a context.
    prices : (float, float)
        Lowest and highest price, also of experiments. With a unit cost, the cost is a good lower end.
    ridge : float
        Penalty ridge/2 |theta|^2 of the estimate.
    cost : float
        Unit cost: a sale earns (p - cost) y. Customers may come with costs of their own instead.
    rules : Rules, optional
        Business rules that every price must meet.
    prior : Prior, optional
        What is known about theta before the first sale, for example from a log (``Prior.from_model``). It replaces the
        ridge. Policies that learn nothing and private policies take none.

    Attributes
    ----------
    name : str
        The name in the registry.
    use : str
        When to use it, in one sentence.
    private : bool
        Whether the server takes randomised reports instead of raw records.
    raw_by_choice : bool
        Whether customers of a private policy may agree to send raw records.
    not_served : str
        Why the pricing service does not run this policy; empty if it does.
    takes_prior : bool
        Whether the policy learns from a prior.
    needs_constant : bool
        Whether the service adds a constant to named features that have none.
    forgets : bool
        Whether the policy meets changes of demand by itself.
    """

    name: ClassVar[str]
    use: ClassVar[str] = ""
    private: ClassVar[bool] = False
    raw_by_choice: ClassVar[bool] = False
    not_served: ClassVar[str] = ""
    takes_prior: ClassVar[bool] = True
    needs_constant: ClassVar[bool] = False
    forgets: ClassVar[bool] = False

    family: Family
    dim: int
    prices: tuple[float, float]
    ridge: float = 1.0
    cost: float = 0.0
    rules: Rules | None = None
    prior: Prior | None = None

    def __post_init__(self) -> None:
        self._set("family", as_family(self.family))
        self._set("dim", positive_int("dim", self.dim, maximum=LARGEST_DIM))
        self._set("prices", price_range(self.prices))
        self._set("ridge", finite("ridge", self.ridge, minimum=1e-9, maximum=LARGEST_VALUE))
        self._set("cost", finite("cost", self.cost, minimum=0.0, maximum=LARGEST_VALUE))
        if self.rules is not None:
            self._check_rules(self.rules)
        if self.prior is not None:
            self._check_prior(self.prior)

    def _check_prior(self, prior: Prior) -> None:
        if not isinstance(prior, Prior):
            raise InvalidInput(
                f"prior must be hushprice.Prior, got {type(prior).__name__}: Prior.from_model makes one of a fitted "
                f"model or its file."
            )
        if not self.takes_prior:
            raise InvalidInput(f"The policy {self.name} takes no prior: leave it out.")
        if prior.family not in (None, self.family.name):
            raise InvalidInput(f"The prior is of {prior.family} demand, the policy of {self.family.name} demand.")
        if prior.centre.size != 2 * self.dim:
            raise InvalidInput(f"The prior is for contexts of length {prior.dim}, the policy for length {self.dim}.")

    def _check_rules(self, rules: Rules) -> None:
        """Raise InvalidInput for rules that cannot be met. Policies with other ranges of experiments override it."""
        if not isinstance(rules, Rules):
            raise InvalidInput(f"rules must be hushprice.Rules, got {type(rules).__name__}.")
        rules.check(self.prices, self.prices)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def restarts(self) -> bool:
        """Whether the server starts afresh when ``Params.stage`` changes and ignores reports for other stages."""
        return False

    def as_private(self) -> PrivatePolicy | None:
        """This policy with the type of a private one; None if it is not private."""
        return None

    def as_ball(self) -> BallPolicy | None:
        """This policy with the type of a private one that keeps theta in a ball; None if it is none."""
        return None

    @classmethod
    def can_restart(cls) -> bool:
        """Whether ``restart="on-change"`` makes sense: the policy learns from raw outcomes, and does not forget."""
        return cls.takes_prior and not cls.private and not cls.forgets

    @property
    def initial_prior(self) -> Prior:
        """The prior of every estimate: the given one, or ridge/2 |theta|^2."""
        return Prior.ridge(self.dim, self.ridge) if self.prior is None else self.prior

    def estimator(self, *, dense: bool = False) -> RunningEstimator:
        """A new running estimator with this policy's family and prior, for its server.

        Parameters
        ----------
        dense : bool
            Whether a kernel changes the prior in place.
        """
        return RunningEstimator(self.family, prior=self.initial_prior, dense=dense)

    def stage_estimators(self, stages: int) -> StageEstimators:
        """New running estimators with confidence widths, for stages that share no record.

        Parameters
        ----------
        stages : int
            Number of stages.
        """
        return StageEstimators(self.family, prior=self.initial_prior, stages=stages)

    @abstractmethod
    def server(self) -> Server[Any]:
        """A new server half without any records."""

    def device(self, entropy: Entropy | None = None) -> Device:
        """The device half.

        Parameters
        ----------
        entropy : Entropy, optional
            Source of the noise of private reports. Default: the operating system.
        """
        return Device(self)

    def loop(self, entropy: Entropy | None = None) -> Loop:
        """Both halves, ready for blocks of simulated customers.

        Parameters
        ----------
        entropy : Entropy, optional
            Source of the noise in private reports. Default: the operating system.
        """
        from hushprice.policies.loop import Loop

        return Loop(self.device(entropy), self.server())

    def experiment_range(self) -> tuple[float, float]:
        """The range of uniform price experiments."""
        return self.prices

    def terms(
        self, n: int, *, cost: float | Array | None = None, segment: Segments | None = None, last: Array | None = None
    ) -> Terms | None:
        """The terms for n customers; None without rules if every customer has the policy's cost.

        Parameters
        ----------
        n : int
            Number of customers.
        cost : float or ndarray of shape (n,), optional
            Unit costs. Default: the policy's.
        segment : ndarray of shape (n,), optional
            Number of each customer's segment, where the rules have segments.
        last : ndarray, optional
            Last price quoted in each segment. Default: none yet.
        """
        if self.rules is None and cost is None:
            return None
        own = self.cost if cost is None else cost
        return Terms.of(self.rules, self.prices, n, cost=own, segment=segment, last=last)

    def start(
        self,
        *,
        seed: Seed = None,
        prior: Prior | None = None,
        patience: int = 100_000,
        unsafe_privacy_seed: Seed = None,
    ) -> Pricer:
        """A new live pricer for this policy.

        Parameters
        ----------
        seed : int or SeedSequence, optional
            Seed of the price experiments. Default: fresh entropy.
        prior : Prior, optional
            Replaces the policy's prior.
        patience : int
            How many offers may wait for their outcome before the oldest is closed.
        unsafe_privacy_seed : int or SeedSequence, optional
            For tests: replaces the operating system's entropy in private reports, which then protect nobody.
        """
        from hushprice.policies.pricer import Pricer

        policy = self if prior is None else replace(self, prior=prior)
        return Pricer(policy, seed=seed, patience=patience, unsafe_privacy_seed=unsafe_privacy_seed)

    def plain_terms(self, n: int) -> Terms:
        """The terms of n customers without rules and costs of their own.

        Parameters
        ----------
        n : int
            How many customers.
        """
        return Terms.of(None, self.prices, n, cost=self.cost)

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
            elif isinstance(value, (Rules, Prior)):
                value = value.config()
            plain[field.name] = value
        for name in ("rules", "prior"):
            if plain[name] is None:
                del plain[name]
        return plain

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Policy:
        """A policy from the plain data of :meth:`config`.

        Parameters
        ----------
        config : mapping
            What :meth:`config` returned.

        Returns
        -------
        Policy
            The policy, checked.
        """
        options = dict(config)
        family = family_from(options.pop("family"))
        if options.get("rules") is not None:
            options["rules"] = Rules.of(options["rules"])
        if options.get("prior") is not None:
            options["prior"] = Prior.of(options["prior"])
        return cls(family=family, **options)


def checked_half_life(half_life: Any) -> float:
    """A half-life in outcomes, checked."""
    return finite("half_life", half_life, minimum=1e-6, maximum=1e12)


def is_policy(value: object) -> TypeGuard[Policy]:
    """Whether ``value`` is a policy, for functions that also take other types."""
    return isinstance(value, Policy)


class Device:
    """The customer's half: stateless, computes price and report from public params.

    Parameters
    ----------
    policy : Policy
        The configuration.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def quote(self, params: Params, z: Array, rng: np.random.Generator, terms: Terms | None = None) -> Quotes:
        """Prices for a block of customers.

        Parameters
        ----------
        params : Params
            The published params.
        z : ndarray of shape (n, d)
            Contexts.
        rng : Generator
            Source of one uniform per row in the phases that draw.
        terms : Terms, optional
            Needed with rules, or if customers have costs of their own. Its last prices are updated.
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
        """Propensities of prices that :meth:`quote` returned, on the terms as they were before the quote.

        They are unknown for a subclass that overrides :meth:`quote` but not this method.

        Parameters
        ----------
        params : Params
            The params under which the prices were quoted.
        z : ndarray
            Contexts, one per row.
        price : ndarray
            One price per context.
        terms : Terms, optional
            The terms of these customers, if there are any.

        Returns
        -------
        Propensity
            One propensity per price.
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
        before = policy.plain_terms(n) if terms is None else terms.before()
        value, discrete = np.empty(n), np.empty(n, dtype=np.bool_)
        on_terms.propensities(self._rule(params), z, price, before.within(self._range(params)), value, discrete)
        return Propensity(value, discrete)

    def greedy(self, params: Params, z: Array, price: Array, terms: Terms | None = None) -> Array:
        """The prices that the published estimate makes best; the middle of the range while it is 0.

        Parameters
        ----------
        params : Params
            The published params.
        z : ndarray of shape (n, d)
            Contexts.
        price : ndarray of shape (n,)
            The quoted prices, from which a largest step is counted.
        terms : Terms, optional
            The terms of these customers before they were quoted a price. They are changed.
        """
        policy, greedy = self.policy, np.empty(len(z))
        allowed = (terms or policy.plain_terms(len(z))).within(policy.prices)
        on_terms.greedy_on_terms(policy.family.code, params.theta, z, allowed, price, greedy)
        return greedy

    def report(
        self,
        params: Params,
        z: Array,
        price: Array,
        y: Array,
        stage: Stages,
        *,
        public: Choices | None = None,
        terms: Terms | None = None,
    ) -> Reports:
        """The reports of a block of customers; without privacy, their raw records.

        Parameters
        ----------
        params : Params
            The params at the time of the quotes.
        z, price, y : ndarray
            Contexts, quoted prices and outcomes.
        stage : int or ndarray of shape (n,)
            ``Quotes.stage``.
        public : ndarray of shape (n,), optional
            Which customers agreed to send raw records, in policies with ``raw_by_choice``.
        terms : Terms, optional
            The terms of these customers, where there are any.
        """
        return Records(z, price, y, stage)


class Server(ABC, Generic[ReportsT]):
    """The seller's half: what was learned, in a form that can be saved.

    A subclass implements the abstract methods. The pricing service also calls :meth:`estimate` and :meth:`progress`,
    which have defaults.
    """

    only_experiments: ClassVar[bool] = False  # whether the server learns from experiments only

    @property
    @abstractmethod
    def params(self) -> Params:
        """The parameters in force for the next customer."""

    @property
    @abstractmethod
    def span(self) -> int:
        """For how many customers the params stay valid regardless of what customers do."""

    @property
    def left(self) -> int:
        """For how many customers phase, level, ``learn`` and stage stay the same; the estimate may change earlier."""
        return self.span

    @abstractmethod
    def advance(self, n: int) -> None:
        """Count n customers who were quoted under the current params (n <= span).

        Parameters
        ----------
        n : int
            Number of customers.
        """

    @abstractmethod
    def absorb(self, reports: ReportsT) -> None:
        """Learn from reports.

        Parameters
        ----------
        reports : Records or PrivateReports
            What the policy's device made.
        """

    @property
    def estimators(self) -> tuple[RunningEstimator, ...]:
        """The running estimators that the server prices from; the generic checks measure their drift."""
        return ()

    def estimate(self) -> tuple[Array, Array | None]:
        """The estimate of theta and its covariance. The state does not change.

        By default that of the running estimator with most records; without estimators, theta of a copy's params and
        no covariance. A server with its own posterior overrides this method.

        Returns
        -------
        theta : ndarray of shape (2 d,)
            The estimate from all reports absorbed. A server may leave out recent ones if it prices without them.
        covariance : ndarray of shape (2 d, 2 d) or None
            Covariance of ``theta``; None if it is not known.
        """
        if not self.estimators:
            return copy.deepcopy(self).params.theta, None
        return max(self.estimators, key=lambda estimator: estimator.records).estimate()

    @property
    def prior(self) -> Prior | None:
        """The prior of the stated estimate, whose precision is in units of its covariance; None if it has none."""
        if not self.estimators:
            return None
        estimator = max(self.estimators, key=lambda estimator: estimator.records)
        prior, variance = estimator.prior, estimator.family.scale**2
        return prior if variance == 1.0 else Prior(prior.centre, prior.precision / variance)

    @property
    def watches(self) -> bool:
        """Whether the server finds changes and misfits of demand itself; a Monitor watches for others."""
        return False

    @property
    def change(self) -> Change | None:
        """The last change of demand that was found. The state does not change."""
        return None

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """Where demand does not follow the model, with hardly any false alarms. The state does not change."""
        return ()

    def forget(self, half_life: float) -> None:
        """Let an outcome of age ``half_life`` count half from now on, one of twice that age a quarter, and so on.

        By default every running estimator forgets. A server with an estimate of its own overrides this method.

        Parameters
        ----------
        half_life : float
            Age in outcomes, above 0.

        Raises
        ------
        InvalidInput
            If the server has no records that it could forget, or the half-life makes no sense.
        """
        half_life = checked_half_life(half_life)
        if not self.estimators:
            raise InvalidInput("The policy holds no records of outcomes that it could forget.")
        for estimator in self.estimators:
            estimator.forget(half_life)

    @property
    def steps(self) -> int | None:
        """Number of projected SGD steps (``kernels/sgd.py``) behind the estimate; None for other estimators.

        The dashboard computes bands of an SGD estimate by replaying its steps.
        """
        return None

    def progress(self) -> Progress | None:
        """Progress of the current phase; None if there is nothing to count. The state does not change."""
        return None

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The whole state as plain data: numbers and arrays by name."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the state by one that :meth:`state` returned.

        Parameters
        ----------
        state : mapping
            The state.
        """
