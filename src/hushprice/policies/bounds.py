"""Policies that price from confidence bounds.

A subclass states how its device prices (``phase``) and implements :meth:`BoundPolicy.plan`: per episode its length, the
number of stages, the experiments per stage and the width of the bounds. The server half stores the records of each
stage, its estimate theta and a root of the inverse of V = ridge I + sum of x x'.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import Terms
from hushprice.errors import InvalidInput, SnapshotError, finite, positive_int
from hushprice.estimation import RunningEstimator
from hushprice.kernels import confidence as kernel
from hushprice.kernels import terms as on_terms
from hushprice.kernels.state import BoundRule, BoundSales
from hushprice.policies import thompson_density
from hushprice.policies.base import Device, Policy, Server, checked_half_life
from hushprice.policies.exchange import FOREVER, Bounds, Params, Progress, Propensity, Quotes, Records
from hushprice.policies.loop import Customers, Loop, Quoted
from hushprice.policies.phases import Phase
from hushprice.policies.snapshot import whole
from hushprice.privacy import Entropy

LARGEST_BOUNDED = 3000  # dim: every stage holds two matrices of (2 d)^2 numbers
LARGEST_STAGED = 400  # dim, with up to 53 stages
MOST_STAGES = 64
MOST_ARMS = 10_000_000
MOST_DRAWS = 2**20  # random numbers drawn at once
MOST_EPISODES = 1_000_000


def loglog(T: float) -> float:
    """log log max(T, 16), for the paper's widths; about 1 at T = 16."""
    return math.log(math.log(max(T, 16.0)))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Parameters of one episode.

    Parameters
    ----------
    length : int
        Number of rounds.
    alpha : float
        The width of x is alpha |x|_{V^-1}.
    stages : int
        Number of stages S.
    tau : int
        Experiments at the start of each stage.
    arms : int
        Number of equispaced prices K.
    floor : float
        A width that counts as zero.
    """

    length: int
    alpha: float
    stages: int = 1
    tau: int = 0
    arms: int = 2
    floor: float = 0.0

    def __post_init__(self) -> None:
        for name, least, most in (
            ("length", 1, FOREVER),
            ("stages", 1, MOST_STAGES),
            ("tau", 0, FOREVER),
            ("arms", 2, MOST_ARMS),
        ):
            object.__setattr__(self, name, positive_int(name, getattr(self, name), minimum=least, maximum=most))
        for name in ("alpha", "floor"):
            object.__setattr__(self, name, finite(name, getattr(self, name), minimum=0.0))

    @property
    def explore(self) -> int:
        """Rounds of experiments at the start."""
        return min(self.stages * self.tau, self.length)


@dataclass(frozen=True, kw_only=True)
class BoundPolicy(Policy):
    """Base class: prices from confidence bounds, by ``phase`` INDEX, SAMPLE, SET or STAGES.

    Parameters
    ----------
    width_scale : float
        Factor on the width of the bounds; 1 is the width in the paper.
    **options
        Those of :class:`Policy`.
    """

    phase: ClassVar[Phase]

    width_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_int("dim", self.dim, maximum=LARGEST_STAGED if self.phase is Phase.STAGES else LARGEST_BOUNDED)
        self._set("width_scale", finite("width_scale", self.width_scale, minimum=0.0, maximum=1e6))
        if self.phase not in (Phase.INDEX, Phase.SAMPLE, Phase.SET, Phase.STAGES):
            raise InvalidInput(f"{type(self).__name__} cannot price from bounds in the phase {self.phase.name}.")
        if self.phase is Phase.SET and (self.uniforms < 2 or self.uniforms % 2):
            raise InvalidInput(
                f"{type(self).__name__} must draw two random numbers for each point of the set (uniforms)."
            )
        self.checked_plan(1)

    @property
    def uniforms(self) -> int:
        """Uniforms per price: two per point drawn."""
        return 2 if self.phase is Phase.SAMPLE else 0

    @abstractmethod
    def plan(self, k: int) -> Plan:
        """The parameters of episode k = 1, 2, ...

        Parameters
        ----------
        k : int
            The episode.
        """

    def checked_plan(self, k: int) -> Plan:
        """The plan of episode k; InvalidInput if it has several stages in a phase other than STAGES.

        Parameters
        ----------
        k : int
            The episode.
        """
        plan = self.plan(k)
        if plan.stages > 1 and self.phase is not Phase.STAGES:
            raise InvalidInput(f"{type(self).__name__} has several stages, but only the phase STAGES can use them.")
        return plan

    def device(self, entropy: Entropy | None = None) -> BoundDevice:
        return BoundDevice(self)

    def loop(self, entropy: Entropy | None = None) -> Loop:
        return BoundLoop(self.device(entropy), self.server())

    def server(self) -> BoundServer:
        return BoundServer(self)


@dataclass(frozen=True, kw_only=True)
class KnownHorizon(BoundPolicy):
    """A bound policy whose widths depend on the horizon T: one episode without an end.

    Parameters
    ----------
    horizon : int
        Number of customers T, in live use the expected number. It matters through logarithms (in supCB also for the
        number of experiments and of prices), and the policy continues beyond it.
    **options
        Those of :class:`BoundPolicy`.
    """

    horizon: int

    def __post_init__(self) -> None:
        self._set("horizon", positive_int("horizon", self.horizon))
        super().__post_init__()


class BoundDevice(Device):
    """Prices from the published bounds; in experiments, from the grid."""

    policy: BoundPolicy

    def quote(self, params: Params, z: Array, rng: np.random.Generator, terms: Terms | None = None) -> Quotes:
        if params.bounds is None:
            return super().quote(params, z, rng, terms)
        policy, bounds, n = self.policy, params.bounds, len(z)
        uniforms = rng.random((n, policy.uniforms))
        prices, stages = np.empty(n), np.empty(n, dtype=np.int64)
        rule = BoundRule(
            int(params.phase), policy.family.code, bounds.theta, bounds.root, bounds.alpha, bounds.floor, bounds.arms
        )
        if terms is None:
            kernel.decisions(rule, z, uniforms, policy.cost, *policy.prices, prices, stages)
        else:
            on_terms.decisions_on_terms(rule, z, uniforms, terms, prices, stages)
        numbers = np.where(stages > 0, stages + (bounds.first - 1), 0)
        return Quotes(prices, numbers, stages > 0)

    def propensity(self, params: Params, z: Array, price: Array, terms: Terms | None = None) -> Propensity:
        """Propensities as for any device; for Thompson sampling the density of the price, for UCB-WTL unknown."""
        if params.bounds is None:
            return super().propensity(params, z, price, terms)
        if params.phase is Phase.SET:
            return Propensity.unknown(len(z))
        if params.phase is Phase.SAMPLE:
            return thompson_density.propensity(self.policy, params.bounds, z, price, terms)
        return Propensity.certain(len(z))


class BoundServer(Server[Records]):
    """Counts rounds, stores the records of each stage and restarts with every episode."""

    def __init__(self, policy: BoundPolicy) -> None:
        self.policy = policy
        self.version = 1  # of the params: increases with every offer and every report
        self._begin(1, 1)

    def _begin(self, k: int, first: int) -> None:
        """Start episode k without records; its stages are numbered from ``first``."""
        policy = self.policy
        self.k, self.first, self.t, self.plan = k, first, 0, policy.checked_plan(k)
        self.stages = policy.stage_estimators(self.plan.stages)

    @property
    def estimators(self) -> tuple[RunningEstimator, ...]:
        return self.stages.members

    def forget(self, half_life: float) -> None:
        self.stages.forget(checked_half_life(half_life))

    @property
    def params(self) -> Params:
        plan, busiest = self.plan, int(np.argmax(self.stages.records))
        if self.t < plan.explore:
            return Params(
                version=self.version,
                phase=Phase.GRID,
                theta=self.stages.members[busiest].published,
                level=float(plan.arms),
                learn=True,
                stage=self.first + self.t // plan.tau,
            )
        theta, root = self.stages.bounds()
        return Params(
            version=self.version,
            phase=self.policy.phase,
            theta=theta[busiest],
            learn=True,
            bounds=Bounds(theta=theta, root=root, alpha=plan.alpha, arms=plan.arms, floor=plan.floor, first=self.first),
        )

    @property
    def span(self) -> int:
        plan = self.plan
        return min(plan.tau - self.t % plan.tau, plan.explore - self.t) if self.t < plan.explore else 1

    def advance(self, n: int) -> None:
        self.t += n
        self.version += n
        if self.t >= self.plan.length:
            self._begin(self.k + 1, self.first + self.plan.stages)

    def progress(self) -> Progress | None:
        if self.plan.length >= FOREVER // 2:
            return None
        return Progress(done=self.t, total=self.plan.length, counted=f"customers in round {self.k}", part=self.k)

    def absorb(self, reports: Records) -> None:
        """Learn from reports; ignore those for a stage of an earlier episode."""
        self.version += len(reports.y)
        numbers = np.broadcast_to(reports.stage, len(reports.y))
        for number in np.unique(numbers):
            s, rows = int(number) - self.first, numbers == number
            if 0 <= s < self.plan.stages:
                self.stages.absorb(s + 1, reports.z[rows], reports.price[rows], reports.y[rows])

    def state(self) -> dict[str, Any]:
        counts = {"version": self.version, "k": self.k, "first": self.first, "t": self.t}
        return counts | {"stages": self.stages.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        version, k, first, t = (whole(state.get(key)) for key in ("version", "k", "first", "t"))
        if not 1 <= k <= MOST_EPISODES or not 1 <= first < FOREVER or not 1 <= version < FOREVER // 2:
            raise SnapshotError("The snapshot does not say which episode it is in.")
        self._begin(k, first)
        if not 0 <= t < self.plan.length:
            raise SnapshotError(f"The snapshot is at round {t} of an episode of {self.plan.length}.")
        self.stages.restore(state["stages"])
        self.t, self.version = t, version


class BoundLoop(Loop):
    """Compiled loop over a block of customers: decide, sell, record, re-estimate."""

    on_terms = False
    server: BoundServer

    @property
    def max_block(self) -> int:
        server, plan = self.server, self.server.plan
        if server.t < plan.explore:
            return server.span
        return min(plan.length - server.t, max(1, MOST_DRAWS // max(server.policy.uniforms, 1)))

    def sell_span(self, customers: Customers, rows: slice, rng: np.random.Generator) -> Quoted:
        server, n = self.server, rows.stop - rows.start
        policy, plan = server.policy, server.plan
        if server.t < plan.explore:
            return super().sell_span(customers, rows, rng)
        server.stages.reserve(n)
        learned = server.stages.arrays()
        rule = BoundRule(
            int(policy.phase), policy.family.code, learned.theta, learned.root, plan.alpha, plan.floor, plan.arms
        )
        sales = BoundSales(np.empty(n), np.empty(n, dtype=np.int64), np.empty(n))
        kernel.sell_block(
            rule, customers.z[rows], rng.random((n, policy.uniforms)), policy.cost, *policy.prices, learned,
            customers.demand(rows), sales,
        )  # fmt: skip
        customers.buy(rows, sales.prices)
        server.advance(n)
        return Quoted(sales.prices, sales.greedy, int(np.count_nonzero(sales.stages)))
