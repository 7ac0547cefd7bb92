"""Semi-Myopic (Keskin & Zeevi 2014; Simchi-Levi & Wang 2023; the paper's supplement), and Greedy as its limit.

p_t = p*(theta, z_t) + kappa t^(-1/4) B_t,  B_t = +1 or -1,  clipped to [l, u];  original kappa = 1,
modified kappa = d^(1/4).  Every 5th round is recorded and theta re-estimated from all records.
Uniform prices until 4 d + 10 records exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hushprice.errors import SnapshotError, positive_int
from hushprice.estimation import RunningEstimator
from hushprice.kernels import quote as kernel
from hushprice.kernels.state import MyopicPlan
from hushprice.policies.base import Policy, Server
from hushprice.policies.exchange import FOREVER, Params, Progress, Records, Variant, as_variant
from hushprice.policies.loop import Customers, Loop, Quoted
from hushprice.policies.phases import Phase
from hushprice.privacy import Entropy


@dataclass(frozen=True, kw_only=True)
class _Myopic(Policy):
    """Greedy prices with a deviation kappa t^(-1/4).

    Parameters
    ----------
    every : int
        One round in so many is recorded.
    warmup : int, optional
        Records at uniform prices before the first greedy price.
    """

    every: int = 5
    warmup: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("every", positive_int("every", self.every))
        if self.warmup is not None:
            self._set("warmup", positive_int("warmup", self.warmup, minimum=1))

    @property
    def kappa(self) -> float:
        """Scale of the deviation."""
        raise NotImplementedError

    @property
    def usual_warmup(self) -> int:
        """The warm-up of a policy without a prior."""
        return 4 * self.dim + 10

    @property
    def records_to_start(self) -> int:
        """Number of records at uniform prices before the first greedy price."""
        if self.warmup is not None:
            return self.warmup
        return self.usual_warmup if self.prior is None else 0

    def server(self) -> MyopicServer:
        return MyopicServer(self)

    def loop(self, entropy: Entropy | None = None) -> Loop:
        return MyopicLoop(self.device(entropy), self.server())


@dataclass(frozen=True, kw_only=True)
class SemiMyopic(_Myopic):
    """The greedy price plus or minus a deviation that shrinks every round.

    Parameters
    ----------
    variant : {"modified", "original"}
        kappa = d^(1/4), or kappa = 1.
    every : int
        One round in so many is recorded.
    warmup : int, optional
        Records at uniform prices before the first greedy price. Default: 4 d + 10, and 0 with a prior.
    **options
        Those of :class:`Policy`.

    Examples
    --------
    >>> SemiMyopic(family="logistic", dim=16, prices=(0, 3)).kappa
    2.0
    """

    name: ClassVar[str] = "semi-myopic"
    use: ClassVar[str] = "Small steps up and down around the best known price, the same for every customer."
    variant: Variant = "modified"

    def __post_init__(self) -> None:
        super().__post_init__()
        as_variant(self.variant)

    @property
    def kappa(self) -> float:
        return 1.0 if self.variant == "original" else float(self.dim**0.25)


@dataclass(frozen=True, kw_only=True)
class Greedy(_Myopic):
    """Always the greedy price: no experiments after a short warm-up.

    A baseline. Where contexts do not vary the price by themselves (market S2), it can settle on a wrong price forever,
    and then its regret grows like T.

    Parameters
    ----------
    every : int
        One round in so many is recorded.
    warmup : int, optional
        Records at uniform prices before the first greedy price. Default: 2 d, the fewest that can identify theta, and 0
        with a prior.
    **options
        Those of :class:`Policy`.
    """

    name: ClassVar[str] = "greedy"
    use: ClassVar[str] = "A baseline: what it costs never to experiment."
    every: int = 1

    @property
    def kappa(self) -> float:
        return 0.0

    @property
    def usual_warmup(self) -> int:
        return 2 * self.dim


class MyopicServer(Server[Records]):
    """Counts rounds, stores every n-th record and re-estimates after each."""

    def __init__(self, policy: _Myopic) -> None:
        self.policy = policy
        self.estimator = policy.estimator()
        self.t = 0  # rounds quoted

    @property
    def params(self) -> Params:
        policy, t = self.policy, self.t + 1
        learn = t % policy.every == 0
        if self.estimator.records < policy.records_to_start:
            return Params(version=t, phase=Phase.EXPLORE, theta=self.estimator.published, learn=learn)
        level = kernel.deviation(policy.kappa, float(t))
        return Params(version=t, phase=Phase.PERTURB, theta=self.estimator.theta(), level=level, learn=learn)

    @property
    def span(self) -> int:
        return 1

    def advance(self, n: int) -> None:
        self.t += n

    def absorb(self, reports: Records) -> None:
        self.estimator.absorb(reports.z, reports.price, reports.y)

    def progress(self) -> Progress:
        records, needed = self.estimator.records, self.policy.records_to_start
        if records < needed:
            return Progress(done=records, total=needed, counted="outcomes before the first learned price")
        return Progress(done=self.t, counted="customers, prices moved less and less")

    @property
    def estimators(self) -> tuple[RunningEstimator, ...]:
        return (self.estimator,)

    def state(self) -> dict[str, Any]:
        return {"t": self.t, "estimator": self.estimator.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        t = state.get("t")
        if not isinstance(t, int) or not 0 <= t < FOREVER:
            raise SnapshotError("The snapshot does not say which round it is in.")
        self.estimator.restore(state["estimator"])
        self.t = t


class MyopicLoop(Loop):
    """A block of customers at a time: quote, sell, record, re-estimate."""

    server: MyopicServer

    @property
    def max_block(self) -> int:
        return FOREVER

    def sell_span(self, customers: Customers, rows: slice, rng: np.random.Generator) -> Quoted:
        policy, estimator, t = self.server.policy, self.server.estimator, self.server.t
        n = rows.stop - rows.start
        terms = self.terms(customers, rows) or policy.plain_terms(n)
        estimator.reserve(n // policy.every + 1)
        prices, greedy = np.empty(n), np.empty(n)
        warming = policy.every * (policy.records_to_start - estimator.records) - t % policy.every
        explored = n if policy.kappa > 0.0 else min(n, max(0, warming))
        plan = MyopicPlan(policy.kappa, policy.every, policy.records_to_start)
        kernel.perturb_block(
            plan, t, customers.z[rows], rng.random(n), terms, estimator.arrays(), customers.demand(rows), prices,
            greedy,
        )  # fmt: skip
        customers.buy(rows, prices)
        self.server.advance(n)
        return Quoted(prices, greedy, explored)
