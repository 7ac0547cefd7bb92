"""Look-ahead pricing: each price weighs its profit against what its outcome teaches for all later customers.

p_t = argmax over p in [l, u] of (p - cost) psi'(z.alpha - p z.beta) + N/2 w x'P G P x / (1 + w x'P x),   x = (z, -p z)

with P the covariance of the estimate, w the information of an outcome, G the mean loss per squared error of theta, and
N the number of later customers whom the outcome informs (``kernels/look_ahead/prices.py``). The price is
uniform around p_t, so that it has a density. There is no phase of experiments.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import Terms
from hushprice.errors import InvalidInput, SnapshotError, finite, positive_int
from hushprice.estimation import Prior, RunningEstimator
from hushprice.kernels import look_ahead as kernel
from hushprice.kernels.look_ahead import memories, misfit
from hushprice.kernels.state import AheadPlan, AheadRule, AheadState, Memories, MisfitCells
from hushprice.policies.base import Device, Policy, Server, checked_half_life
from hushprice.policies.exchange import FOREVER, Outlook, Params, Progress, Propensity, Quotes, Records
from hushprice.policies.loop import Customers, Loop, Quoted
from hushprice.policies.monitoring.findings import Change, Misfit, misfits_of
from hushprice.policies.phases import Phase
from hushprice.policies.snapshot import whole
from hushprice.privacy import Entropy

LARGEST_AHEAD = 1000  # dim: the state has three matrices of (2 d)^2 numbers
MOST_OFFSET = 2_000.0  # middle of the price range, in halves of it: beyond, rounding makes estimates useless
MAY_BE_INFINITE = ("misfit_edges", "misfit_evidence")
MEMORIES = (300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0, 100_000.0)  # outcomes, of the adaptive memory
SHORTEST_MEMORY = 40  # outcomes per coefficient in the shortest of them
LEAST_MEMORY = 10  # outcomes per feature in a memory of one's own
BLOCK_CUSTOMERS = 8192  # customers per call of the compiled loop


def too_offset(prices: tuple[float, float]) -> bool:
    """Whether the range of prices is so far from 0, for its width, that rounding would make estimates useless."""
    low, high = prices
    return 0.5 * (low + high) > MOST_OFFSET * 0.5 * (high - low)


@dataclass(frozen=True, kw_only=True)
class LookAhead(Policy):
    """Weighs each sale against what its outcome teaches. The policy to start with: nothing to tune.

    Parameters
    ----------
    horizon : int, optional
        Number of customers T, if it is known: towards the end, and after it, prices are not moved for learning.
    memory : "adaptive", float or None
        How demand that changes is met. "adaptive": estimates that remember 300 to 100 000 customers learn beside one
        that remembers all, and prices follow from the one that predicts best; when demand is found to have changed, the
        last starts again. A number: what was learned from a customer fades as so many others come; for those who know
        how long demand lasts. None: nothing is forgotten. (A live pricer says when demand has changed all the same.)
    spread : float
        Each price is uniform within sqrt(3) times ``spread`` standard errors of the greedy price, and at least 0.2% of
        the customer's price range, of the chosen price. With 0, prices are not random after the first outcome.
    **options
        Those of :class:`Policy`.

    Notes
    -----
    Units do not matter: with prices in cents, or a feature in other units, the policy earns the same money. Features
    are recognised as numbers, indicators (0 or one other value) or constants, and the prior variance of each kind is
    learned. Where indicators form a complete group, as segments do, the segments share what they learn as far as they
    are alike. ``ridge`` divides the prior variances that the policy starts with; with a ``prior`` of one's own it is
    not used.

    On a ladder the rung of largest worth is chosen, and the random part may lead to a neighbour. Costs of single
    customers count for their own prices; what an outcome teaches is valued at the policy's ``cost`` and ``prices``.

    Let contexts hold a constant. Without one the model may fit badly; ``Pricer.misfits`` says where.

    Examples
    --------
    >>> pricer = LookAhead(family="logistic", dim=2, prices=(0, 3)).start(seed=1)
    >>> for _ in range(100):
    ...     offer = pricer.offer([1.0, 0.5])
    ...     _ = pricer.observe(offer, offer.price < 1.5)
    >>> pricer.offer([1.0, 0.5]).discrete
    False
    """

    name: ClassVar[str] = "look-ahead"
    use: ClassVar[str] = "The default. Learns while it sells, from nothing or from a log, for any number of customers."
    needs_constant: ClassVar[bool] = True
    forgets: ClassVar[bool] = True
    horizon: int | None = None
    spread: float = 0.2
    memory: str | float | None = "adaptive"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_int("dim", self.dim, maximum=LARGEST_AHEAD)
        low, high = self.prices
        if too_offset(self.prices):
            raise InvalidInput(
                f"The price range [{low:g}, {high:g}] is too narrow for numbers of this size. Subtract a fixed amount "
                "from all prices and from the cost."
            )
        if self.horizon is not None:
            self._set("horizon", positive_int("horizon", self.horizon))
        self._set("spread", finite("spread", self.spread, minimum=0.0, maximum=10.0))
        if isinstance(self.memory, str) and self.memory == "none":  # as in plain data, where None means a default
            self._set("memory", None)
        if self.memory is not None and not (isinstance(self.memory, str) and self.memory == "adaptive"):
            self._set("memory", self._length(self.memory))

    def _length(self, memory: Any) -> float:
        """The checked length of the only memory."""
        try:
            return finite("memory", memory, minimum=LEAST_MEMORY * self.dim, maximum=1e12)
        except InvalidInput:
            raise InvalidInput(
                f"memory must be 'adaptive', None, or a number of customers of at least {LEAST_MEMORY} times the "
                f"number of features, {LEAST_MEMORY * self.dim}; got {memory!r}."
            ) from None

    @property
    def lengths(self) -> Array:
        """Lengths of the memories beside the one that remembers everything."""
        if self.memory is None:
            return np.empty(0)
        if isinstance(self.memory, float):
            return np.array([self.memory])
        shortest = max(MEMORIES[0], SHORTEST_MEMORY * 2 * self.dim)
        return np.array([length for length in MEMORIES if length >= shortest])

    def config(self) -> dict[str, Any]:
        return super().config() | {"memory": "none" if self.memory is None else self.memory}

    def plan(self) -> AheadPlan:
        """The configuration as kernels take it."""
        prior, m = self.prior, 2 * self.dim
        centre, precision = (np.empty(0), np.empty((0, 0))) if prior is None else (prior.centre, prior.precision)
        horizon = np.inf if self.horizon is None else float(self.horizon)
        assert centre.size in (0, m)
        return AheadPlan(
            self.cost, *self.prices, horizon, self.spread, self.ridge, centre.copy(), precision.copy(), self.lengths,
            self.memory == "adaptive",
        )  # fmt: skip

    def device(self, entropy: Entropy | None = None) -> AheadDevice:
        return AheadDevice(self)

    def server(self) -> AheadServer:
        return AheadServer(self)

    def loop(self, entropy: Entropy | None = None) -> Loop:
        return AheadLoop(self.device(entropy), self.server())


class AheadDevice(Device):
    """Prices from the published outlook."""

    policy: LookAhead

    def quote(self, params: Params, z: Array, rng: np.random.Generator, terms: Terms | None = None) -> Quotes:
        if params.outlook is None:
            return super().quote(params, z, rng, terms)
        uniforms, prices = rng.random(len(z)), np.empty(len(z))
        kernel.ahead_quotes(self._outlook(params, params.outlook), z, uniforms, self._terms(terms, len(z)), prices)
        return Quotes(prices, params.stage, params.experiment)

    def propensity(self, params: Params, z: Array, price: Array, terms: Terms | None = None) -> Propensity:
        if params.outlook is None:
            return super().propensity(params, z, price, terms)
        value, discrete = np.empty(len(z)), np.empty(len(z), dtype=np.bool_)
        before = self._terms(terms, len(z)).before()
        kernel.ahead_propensities(self._outlook(params, params.outlook), z, price, before, value, discrete)
        return Propensity(value, discrete)

    def _terms(self, terms: Terms | None, n: int) -> Terms:
        return (terms or self.policy.plain_terms(n)).within(self.policy.prices)

    def _outlook(self, params: Params, outlook: Outlook) -> AheadRule:
        policy = self.policy
        return AheadRule(
            policy.family.code, params.theta, outlook.covariance, outlook.gains, outlook.seen, outlook.dispersion,
            outlook.later, outlook.own, policy.spread, *policy.prices,
        )  # fmt: skip


class AheadServer(Server[Records]):
    """Learns from every sale: the estimate, its prior, and what an error of theta costs."""

    def __init__(self, policy: LookAhead) -> None:
        d = policy.dim
        self.policy, self.plan = policy, policy.plan()
        self.t = 0  # rounds quoted
        self.estimator = policy.estimator(dense=True)
        self.gains = np.zeros((3, d, d))
        phi = float(policy.family.scale**2)
        self.tally = np.array([0.0, 0.0, phi, 1.0, 0.0, kernel.PSEUDO * phi, phi])
        self.features, self.moments = np.zeros((4, d)), np.zeros((d, d))
        self.variances, self.folded = np.ones(3), np.zeros((2 * d + 1, 2 * d))
        self.memories, self.misfit = _new_memories(self.plan.lengths.size, 2 * d), _new_misfit(d)
        self._ahead: AheadServer | None = None  # a copy that knows all outcomes, for estimate()
        kernel.penalise(self.plan, self.learned())
        self.estimator.begin()

    def learned(self) -> AheadState:
        """The state as kernels take it."""
        return AheadState(
            self.estimator.arrays(), self.gains, self.tally, self.features, self.moments, self.variances, self.folded,
            self.memories, self.misfit,
        )  # fmt: skip

    @property
    def params(self) -> Params:
        t, learned = self.t + 1, self.learned()
        if kernel.warming(self.plan, learned):
            return Params(version=t, phase=Phase.EXPLORE, theta=self.estimator.published, learn=True)
        rule = kernel.rule_of(self.plan, learned, float(t))
        outlook = Outlook(
            covariance=rule.P.copy(),
            gains=rule.gains.copy(),
            seen=rule.seen,
            dispersion=rule.dispersion,
            later=rule.later,
            own=rule.own,
        )
        return Params(version=t, phase=Phase.AHEAD, theta=rule.theta.copy(), learn=True, outlook=outlook)

    @property
    def span(self) -> int:
        return 1

    def advance(self, n: int) -> None:
        self.t += n

    def absorb(self, reports: Records) -> None:
        self.estimator.absorb(reports.z, reports.price, reports.y)

    @property
    def estimators(self) -> tuple[RunningEstimator, ...]:
        return (self.estimator,)

    def estimate(self) -> tuple[Array, Array | None]:
        server = self._current()
        theta, P = kernel.in_use(server.learned())
        return theta.copy(), float(server.tally[kernel.DISPERSION]) * P

    @property
    def prior(self) -> Prior:
        server, m = self._current(), 2 * self.policy.dim
        centre, precision = np.zeros(m), np.empty((m, m))
        kernel.write_prior(server.plan, server.learned(), centre, precision)
        return Prior(centre, precision / float(server.tally[kernel.DISPERSION]))

    def _current(self) -> AheadServer:
        """This server, or a copy that has caught up with outcomes newer than the last price."""
        tally, records = self.tally, self.estimator.records
        if tally[kernel.TOTAL] - tally[kernel.FOLDED] == records:
            self._ahead = None
            return self
        ahead = self._ahead
        if ahead is None or ahead.tally[kernel.TOTAL] != tally[kernel.FOLDED] + records:
            self._ahead = None
            ahead = self._ahead = copy.deepcopy(self)
            kernel.catch_up(ahead.plan, ahead.learned())
        return ahead

    def catch_up(self) -> None:
        """Learn from all outcomes now; otherwise the next price does."""
        kernel.catch_up(self.plan, self.learned())

    @property
    def outcomes(self) -> int:
        """Number of outcomes absorbed, remembered or not."""
        return int(self.tally[kernel.FOLDED]) + self.estimator.records

    @property
    def watches(self) -> bool:
        return self.plan.adaptive

    @property
    def change(self) -> Change | None:
        server = self._current()
        tally = server.memories.tally
        if not tally[kernel.CHANGES_FOUND]:
            return None
        return Change(
            found=int(tally[kernel.FOUND]),
            began=int(tally[kernel.BEGAN]),
            odds=float(tally[kernel.ODDS]),
            count=int(tally[kernel.CHANGES_FOUND]),
            before=server.memories.before.copy(),
            after=server.estimate()[0],
        )

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        cells = self._current().misfit
        return misfits_of(cells.edges, cells.evidence, cells.sums, misfit.least_evidence(cells))

    def forget(self, half_life: float) -> None:
        kernel.forget(self.plan, self.learned(), checked_half_life(half_life))
        self._ahead = None

    def progress(self) -> Progress:
        return Progress(done=self.t, counted="customers, prices moved as far as it pays")

    def _arrays(self) -> dict[str, Array]:
        return {
            "gains": self.gains,
            "tally": self.tally,
            "features": self.features,
            "moments": self.moments,
            "variances": self.variances,
            "folded": self.folded,
            **{f"memories_{name}": array for name, array in self.memories._asdict().items()},
            **{f"misfit_{name}": array for name, array in self.misfit._asdict().items()},
        }

    def state(self) -> dict[str, Any]:
        penalty = self.learned().estimate.penalty
        penalties = {"centre": penalty.centre, "precision": penalty.precision}
        arrays = {name: value.copy() for name, value in (self._arrays() | penalties).items()}
        return {"t": self.t, "estimator": self.estimator.state()} | arrays

    def restore(self, state: Mapping[str, Any]) -> None:
        t = whole(state.get("t"))
        penalty = self.learned().estimate.penalty
        own = self._arrays() | {"centre": penalty.centre, "precision": penalty.precision}
        for name, array in own.items():
            value = state.get(name)
            if (
                not isinstance(value, np.ndarray)
                or (value.dtype, value.shape) != (array.dtype, array.shape)
                or not (
                    name in MAY_BE_INFINITE or np.isfinite(value[: kernel.VALUE] if name == "features" else value).all()
                )
            ):
                raise SnapshotError(f"The snapshot lacks a usable {name!r}.")
        tally, counts = state["tally"], state["features"][kernel.COUNT]
        folded, total = tally[kernel.FOLDED], tally[kernel.TOTAL]
        if not 0.0 <= folded <= total < FOREVER or not ((counts >= 0.0) & (counts <= total)).all():
            raise SnapshotError("The snapshot does not say how many records it has counted.")
        precision, believed = state["precision"], tally[kernel.BELIEF]
        sound = (tally >= 0.0).all() and tally[kernel.DISPERSION] > 0.0 and kernel.LEAST_BELIEF <= believed <= 1.0
        sound = sound and (state["variances"] > 0.0).all() and (state["features"][kernel.SQUARE] >= 0.0).all()
        if not sound or (precision != precision.T).any() or not (np.diag(precision) > 0.0).all():
            raise SnapshotError("The snapshot has a prior that makes no sense.")
        self._check_memories(state)
        estimator = self.policy.estimator(dense=True)
        estimator.restore(state["estimator"])
        if total - folded > estimator.records:
            raise SnapshotError("The snapshot has counted more records than it holds.")
        self.estimator.restore(state["estimator"])
        self._ahead = None
        for name, array in own.items():
            array[...] = state[name]
        self.t = t

    def _check_memories(self, state: Mapping[str, Any]) -> None:
        """Refuse memories and misfits that make no sense."""
        weight, due, tally = (state[f"memories_{name}"] for name in ("weight", "due", "tally"))
        P, used = state["memories_P"], tally[kernel.IN_USE]
        started = (due >= 0).tolist()
        if (
            not (weight > 0.0).all()
            or abs(weight.sum() - 1.0) > 1e-6
            or (due < -1).any()
            or (due == 0).any()
            or not (tally >= 0.0).all()
            or tally[kernel.ORIGIN] > state["tally"][kernel.TOTAL]
            or used not in [0.0] + [k + 1.0 for k, has_started in enumerate(started) if has_started]
            or not all((np.diag(P[k]) > 0.0).all() for k, has_started in enumerate(started) if has_started)
        ):
            raise SnapshotError("The snapshot has memories that make no sense.")
        edges, evidence = state["misfit_edges"], state["misfit_evidence"]
        watched = edges[~np.isnan(edges).any(axis=1)]
        ordered = (watched[:, 1:] >= watched[:, :-1]).all()
        if not ordered or not (evidence < np.inf).all() or (state["misfit_sums"][0] < 0.0).any():
            raise SnapshotError("The snapshot has residuals that make no sense.")


def _new_memories(K: int, m: int) -> Memories:
    """K memories before the first outcome."""
    others = K + len(memories.SHIFTS)
    weight = np.r_[memories.LASTING, np.full(others, (1.0 - memories.LASTING) / others)]
    return Memories(
        theta=np.zeros((K, m)),
        P=np.zeros((K, m, m)),
        weight=weight,
        due=np.full(K, -1, dtype=np.int64),
        prior=np.zeros((m, m)),
        tally=np.zeros(6),
        level=np.zeros(m // 2),
        shifts=np.zeros((len(memories.SHIFTS), 2)),
        before=np.zeros(m),
    )


def _new_misfit(d: int) -> MisfitCells:
    """The misfit alarm before the first outcome."""
    rows = 1 + min(d, misfit.MOST_WATCHED)
    shape = (rows, misfit.TENTHS)
    return MisfitCells(
        edges=np.full((rows, misfit.TENTHS - 1), np.nan),
        offset=np.zeros(shape),
        information=np.zeros(shape),
        evidence=np.full(shape, -np.inf),
        sums=np.zeros((3, *shape)),
        tally=np.array([0.0, 0.0, misfit.FIRST_REVIEW]),
    )


class AheadLoop(Loop):
    """A block of customers at a time: quote, sell, record, learn."""

    server: AheadServer

    @property
    def max_block(self) -> int:
        return BLOCK_CUSTOMERS

    def sell_span(self, customers: Customers, rows: slice, rng: np.random.Generator) -> Quoted:
        server, n = self.server, rows.stop - rows.start
        policy = server.policy
        terms = self.terms(customers, rows) or policy.plain_terms(n)
        server.estimator.reserve(n)
        prices, greedy = np.empty(n), np.empty(n)
        kernel.ahead_block(
            server.plan, server.learned(), server.t, customers.z[rows], rng.random(n), terms, customers.demand(rows),
            prices, greedy,
        )  # fmt: skip
        customers.buy(rows, prices)
        server.advance(n)
        return Quoted(prices, greedy, n)
