"""Policies that start again when demand has changed.

The monitor looks at every outcome. Every REVIEW_EVERY customers the server asks it whether it found a change since; if
so, the policy's server is replaced by a new one. Outcomes of earlier offers then no longer reach it.

The stage of a record says which of the servers it is for: servers are numbered from 1, and stage s of server g has the
number g STAGE_NUMBERS + s. s = 0 is for the monitor alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import Terms
from hushprice.errors import InvalidInput, SnapshotError, positive_int
from hushprice.estimation import Prior, RunningEstimator
from hushprice.policies.base import Device, Policy, Server
from hushprice.policies.exchange import Choices, Params, Progress, Propensity, Quotes, Records, Reports, Stages
from hushprice.policies.loop import Customers, Loop, Quoted
from hushprice.policies.monitoring.findings import Change, Misfit
from hushprice.policies.monitoring.monitor import LARGEST_MONITORED, Monitor
from hushprice.policies.snapshot import whole
from hushprice.privacy import Entropy

REVIEW_EVERY = 100  # customers from one question to the next
STAGE_NUMBERS = 2**32  # more than any policy has


def take_restart(cls: type[Policy], options: dict[str, Any]) -> bool:
    """Take ``restart`` out of the options of a policy that can restart, and return whether it is "on-change"."""
    if "restart" not in options or not cls.can_restart():
        return False
    restart = options.pop("restart")
    if not isinstance(restart, str) or restart not in ("never", "on-change"):
        raise InvalidInput(f"restart must be 'never' or 'on-change', got {restart!r}.")
    return restart == "on-change"


@dataclass(frozen=True, kw_only=True)
class Restarting(Policy):
    """A policy that starts again when demand has changed.

    Parameters
    ----------
    base : str
        Name of the policy.
    options : mapping
        Options of the policy, besides those of :class:`Policy` and ``horizon``.
    horizon : int, optional
        Number of customers T, for policies that need it.
    **common
        Those of :class:`Policy`.

    Notes
    -----
    ``policies.build("etc-doubling", restart="on-change", ...)`` makes one, and so does the word
    ``etc-doubling:restart=on-change`` of the command line. ``LookAhead`` needs no such help: it has a ``memory``.

    Examples
    --------
    >>> policy = Restarting(family="logistic", dim=2, prices=(0, 3), base="ucb", horizon=1000)
    >>> policy.start(seed=1).change is None
    True
    """

    name: ClassVar[str] = "restarting"
    use: ClassVar[str] = "Another policy, which starts again when demand is found to have changed."
    forgets: ClassVar[bool] = True
    base: str = "etc-doubling"
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    horizon: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.horizon is not None:
            self._set("horizon", positive_int("horizon", self.horizon))
        if not isinstance(self.options, Mapping):
            raise InvalidInput("options must be a mapping from the names of options to their values.")
        common = {f.name for f in fields(Policy)} | {"horizon", "restart"}
        for name in self.options:
            if not isinstance(name, str) or name in common:
                raise InvalidInput(f"options are those of {self.base} alone: give {name} beside them, not in them.")
        self._set("options", dict(self.options))
        positive_int("dim", self.dim, maximum=LARGEST_MONITORED)
        from hushprice.policies import get

        if not get(self.base).can_restart():
            raise InvalidInput(
                f"{self.base} cannot restart on a change: it is private, learns nothing, or forgets by itself."
            )
        if not Monitor.suits(self.inner):
            raise InvalidInput(
                f"{self.base} cannot restart on a change: nobody can watch demand in so narrow a price range, so far "
                f"from 0. Subtract a fixed amount from all prices and from the cost."
            )

    @classmethod
    def around(cls, policy: Policy) -> Restarting:
        """The policy given, which starts again when demand has changed.

        Parameters
        ----------
        policy : Policy
            The policy.
        """
        mine = {f.name for f in fields(Policy)} | {"horizon"}
        common = {f.name: getattr(policy, f.name) for f in fields(policy) if f.name in mine}
        own = {name: value for name, value in policy.config().items() if name not in mine}
        return cls(base=policy.name, options=own, **common)

    def _check_rules(self, rules: Any) -> None:
        """The policy checks its rules."""

    @property
    def inner(self) -> Policy:
        """The policy that starts again."""
        from hushprice.policies import build, get

        own = {f.name for f in fields(Policy)}
        options = {name: getattr(self, name) for name in own} | dict(self.options)
        if self.horizon is not None and "horizon" in {f.name for f in fields(get(self.base))}:
            options["horizon"] = self.horizon
        return build(self.base, **options)

    def experiment_range(self) -> tuple[float, float]:
        return self.inner.experiment_range()

    def server(self) -> RestartingServer:
        return RestartingServer(self)

    def device(self, entropy: Entropy | None = None) -> RestartingDevice:
        return RestartingDevice(self)

    def loop(self, entropy: Entropy | None = None) -> Loop:
        return RestartingLoop(self.device(entropy), self.server())


class RestartingDevice(Device):
    """The policy's device. Every outcome is reported, if only for the monitor."""

    policy: Restarting

    def __init__(self, policy: Restarting) -> None:
        super().__init__(policy)
        self.inner = policy.inner.device()

    def quote(self, params: Params, z: Array, rng: np.random.Generator, terms: Terms | None = None) -> Quotes:
        quotes = self.inner.quote(params, z, rng, terms)
        if isinstance(quotes.stage, int):
            return quotes
        watched = params.stage - params.stage % STAGE_NUMBERS
        return replace(quotes, stage=np.where(quotes.stage > 0, quotes.stage, watched))

    def propensity(self, params: Params, z: Array, price: Array, terms: Terms | None = None) -> Propensity:
        return self.inner.propensity(params, z, price, terms)

    def greedy(self, params: Params, z: Array, price: Array, terms: Terms | None = None) -> Array:
        return self.inner.greedy(params, z, price, terms)

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
        return self.inner.report(params, z, price, y, stage, public=public, terms=terms)


class RestartingServer(Server[Records]):
    """The policy's server, and the monitor."""

    def __init__(self, policy: Restarting) -> None:
        self.policy, self.monitor = policy, Monitor(policy)
        self._inner_policy = policy.inner
        self.inner: Server[Any] = self._inner_policy.server()
        self.t, self.number = 0, 1  # rounds quoted; the number of the inner server
        self.versions = 0  # added to the versions of the inner server
        self.reviewed, self.seen = 0, 0  # round of the last review, and changes found then

    @property
    def only_experiments(self) -> bool:  # type: ignore[override]
        return self.inner.only_experiments

    def review(self) -> None:
        """Start again if the monitor found a change, once every REVIEW_EVERY customers."""
        if self.t // REVIEW_EVERY == self.reviewed // REVIEW_EVERY:
            return
        self.reviewed = self.t
        change = self.monitor.change
        if change is not None and change.count > self.seen:
            self.seen = change.count
            self.versions += self.inner.params.version + 1
            self.number += 1
            self.inner = self._inner_policy.server()

    @property
    def params(self) -> Params:
        self.review()
        inner, first = self.inner.params, self.number * STAGE_NUMBERS
        bounds = inner.bounds and replace(inner.bounds, first=first + inner.bounds.first)
        return replace(
            inner,
            version=self.versions + inner.version,
            learn=True,
            stage=first + (inner.stage if inner.learn else 0),
            bounds=bounds,
        )

    @property
    def span(self) -> int:
        return min(self.inner.span, REVIEW_EVERY - self.t % REVIEW_EVERY)

    @property
    def left(self) -> int:
        return min(self.inner.left, REVIEW_EVERY - self.t % REVIEW_EVERY)

    def advance(self, n: int) -> None:
        self.inner.advance(n)
        self.t += n

    def absorb(self, reports: Records) -> None:
        self.monitor.absorb(reports)
        stage = np.broadcast_to(np.asarray(reports.stage, dtype=np.int64), (len(reports.y),))
        mine = (stage // STAGE_NUMBERS == self.number) & (stage % STAGE_NUMBERS > 0)
        for s in np.unique(stage[mine]):
            rows = stage == s
            self.inner.absorb(Records(reports.z[rows], reports.price[rows], reports.y[rows], int(s % STAGE_NUMBERS)))

    @property
    def estimators(self) -> tuple[RunningEstimator, ...]:
        return self.inner.estimators

    def estimate(self) -> tuple[Array, Array | None]:
        return self.inner.estimate()

    @property
    def prior(self) -> Prior | None:
        return self.inner.prior

    def progress(self) -> Progress | None:
        return self.inner.progress()

    @property
    def watches(self) -> bool:
        return True

    @property
    def change(self) -> Change | None:
        return self.monitor.change

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        return self.monitor.misfits

    def forget(self, half_life: float) -> None:
        self.inner.forget(half_life)
        self.monitor.forget(half_life)

    def state(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("t", "number", "versions", "reviewed", "seen")}
        return counts | {"inner": self.inner.state(), "monitor": self.monitor.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        counts = {name: whole(state.get(name)) for name in ("t", "number", "versions", "reviewed", "seen")}
        if counts["number"] < 1 or counts["reviewed"] > counts["t"]:
            raise SnapshotError("The snapshot does not say which server it has.")
        inner, monitor = self._inner_policy.server(), Monitor(self.policy)
        inner.restore(state["inner"])
        monitor.restore(state["monitor"])
        self.inner, self.monitor = inner, monitor
        for name, value in counts.items():
            setattr(self, name, value)


class RestartingLoop(Loop):
    """The policy's loop, until the next review."""

    device: RestartingDevice
    server: RestartingServer

    def __init__(self, device: RestartingDevice, server: RestartingServer) -> None:
        super().__init__(device, server)
        self._loop: Loop | None = None
        self.on_terms = self._inner_loop().on_terms  # type: ignore[misc]

    @property
    def max_block(self) -> int:
        self.server.review()
        return min(self._inner_loop().max_block, REVIEW_EVERY - self.server.t % REVIEW_EVERY)

    def _inner_loop(self) -> Loop:
        """The loop of the present server."""
        loop = self._loop
        if loop is None or loop.server is not self.server.inner:
            loop = self._loop = self.server.policy.inner.loop()
            loop.server, loop.last = self.server.inner, self.last
        return loop

    def sell_span(self, customers: Customers, rows: slice, rng: np.random.Generator) -> Quoted:
        self.server.review()
        bought = _Outcomes(customers)
        quoted = self._inner_loop().sell_span(bought, rows, rng)
        self.server.t += rows.stop - rows.start
        self.server.monitor.absorb(Records(customers.z[rows], quoted.price, bought.y))
        return quoted


class _Outcomes:
    """Customers whose outcomes are noted."""

    def __init__(self, customers: Customers) -> None:
        self._customers, self.y = customers, np.empty(0)
        self.z, self.public, self.cost, self.segment = customers.z, customers.public, customers.cost, customers.segment

    def demand(self, rows: slice) -> Any:
        return self._customers.demand(rows)

    def buy(self, rows: slice, prices: Array) -> Array:
        self.y = self._customers.buy(rows, prices)
        return self.y
