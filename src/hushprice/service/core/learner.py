"""What was learned of a product, as a fold over its log.

    Learner(definition).apply(events 1..n)  ->  the same bits, whoever folds, whenever, in whatever pieces

Before each customer ``server.params`` is looked at, then ``advance(1)``, then ``absorb``: the order of
``policies.loop.Loop``, so that the service and a simulation agree to the last bit. A private product's published
parameters follow each event; a plain product's are looked at when an offer is made, and at no other moment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import fresh
from hushprice.kernels.running import USED
from hushprice.policies import Params, Phase, PrivateReports, Records
from hushprice.policies.base import Server
from hushprice.privacy import wire
from hushprice.service.core import learner_state, offers, params_document
from hushprice.service.core.events import Event, Mode, chained
from hushprice.service.core.fingerprint import copied, digest
from hushprice.service.core.open_offers import Open, PublishedPhase
from hushprice.service.core.statistics import Closed, ProductStatistics
from hushprice.service.definition import Definition
from hushprice.service.errors import DamagedLog
from hushprice.service.guardrails import Guardrails, Limits

Core = dict[str, Any]
"""What a rollback brings back: what was learned, and what was published of it."""
History = Callable[[int], Core]
"""The core as it was after an earlier event."""


def no_history(version: int) -> Core:
    """For events among which there is no rollback."""
    raise AssertionError(f"version {version} was asked for")


class Learner:
    """The state of one product after event ``seq``.

    ``version`` is the number of the last event after which what is published may have changed; ``floor`` that of the
    last rollback: reports made against older parameters are not learned from.

    ``explored`` is how many of the reports that SGD has taken in since it last began afresh were of experiments, that
    is made against a version in phase explore; ``since`` is what ``learned`` was when the guardrails last became other
    ones: ``learned - since`` outcomes were at prices within those of today.
    """

    def __init__(self, definition: Definition) -> None:
        policy = definition.policy
        self.definition, self.policy = definition, policy
        self.server: Server[Any] = policy.server()
        self.device = None if policy.private else policy.device()
        self._restarts: bool = getattr(policy, "restarts", False)
        self.seq, self.version, self.floor, self.at = 0, 0, 0, 0.0
        self.key, self.chain = "", b""  # of the last event, and the fingerprint of all events
        self.learned = 0  # outcomes that went into what is known now
        self.explored = 0
        self.since, self.railed = 0, 0  # learned when guardrails last changed, and the event that changed them
        self.mode: Mode = definition.mode
        self.guardrails, self.limits = definition.guardrails, Limits(policy, definition.guardrails)
        self.last = fresh(policy.rules)  # last price quoted in each segment of a plain product
        self.open: OrderedDict[str, Open] = OrderedDict()
        self.tally = ProductStatistics(definition)
        self.given = _kept(self.server.params)  # what the policy would publish, whatever the mode
        self.params = self.given  # what is published
        self.asking: list[PublishedPhase] = []  # what was asked of devices, from which version on
        self._ahead: tuple[Any, Any] | None = None  # see estimate
        self.publish()

    # -- the fold -------------------------------------------------------------------------------------------------

    def apply(self, events: Sequence[Event], history: History = no_history) -> None:
        """Take in the next events of the log."""
        i = 0
        while i < len(events):
            if events[i].kind == "report":
                i += self._reports(events, i)
            else:
                self._one(events[i], history)
                i += 1

    def _next(self, event: Event) -> None:
        if event.seq != self.seq + 1:
            raise DamagedLog(f"The log of {self.definition.name} has event {event.seq} where {self.seq + 1} belongs.")
        self.seq, self.at, self.key = event.seq, event.at, event.key
        self.chain = chained(self.chain, event)

    def _one(self, event: Event, history: History) -> None:
        self._next(event)
        if event.kind == "offer":
            self._offer(event)
        elif event.kind == "outcome":
            self._outcome(event.key[2:], event.body["y"])
        elif event.kind == "expire":
            self._expire(event.body["now"])
        elif event.kind in ("mode", "guardrails", "rollback"):
            self._change(event, history)
        else:
            raise DamagedLog(f"The log of {self.definition.name} has an event of the unknown kind {event.kind!r}.")

    def _reports(self, events: Sequence[Event], start: int) -> int:
        """Take in a run of reports under the same phase, by one call of the kernel: how many there were."""
        frozen = self.mode == "frozen"
        room = self.tally.room if frozen else min(self.server.left, self.tally.room)
        run, rows, experiments = [], [], 0
        for i in range(start, min(start + room, len(events))):
            event = events[i]
            if event.kind != "report":
                break
            self._next(event)
            run.append(event)
            if event.body["report"] is None:
                self.tally.silent += 1
            elif (asked := self._wanted(event.body["version"])) is not None:
                rows.append((asked.stage, wire.row(event.body["report"]) if event.row is None else event.row))
                experiments += asked.explore
                self.version = event.seq
        phase = self.params.phase
        if not frozen:
            self.server.advance(len(run))
            self._absorb(rows)
            self.explored += experiments
            self._look(self.server.params)
        self._count(run, rows, phase)
        return len(run)

    def _wanted(self, made: int) -> PublishedPhase | None:
        """What was asked for by version ``made``; None if a report against it is not learned from. (Counts it.)"""
        self.tally.reports += 1
        then = self.asking[-1]
        if made < then.version:
            then = self.asking[bisect_right(self.asking, made, key=lambda asking: asking.version) - 1]
        if not then.learn:
            self.tally.unasked += 1
            return None
        fresh_enough = self.floor <= made <= self.version <= made + self.definition.max_lag
        over = self._restarts and then.stage != self.given.stage  # its episode has ended
        if not fresh_enough or over or self.mode == "frozen":
            self.tally.stale += 1
            return None
        return then

    def _absorb(self, rows: list[tuple[int, Sequence[int]]]) -> None:
        for stage, group in groupby(rows, key=lambda row: row[0]):
            reports = np.array([row for _, row in group], dtype=np.int64)
            self.server.absorb(PrivateReports(reports, stage))

    def _count(self, run: list[Event], rows: list[Any], phase: Phase) -> None:
        """What the tally keeps of a run of reports."""
        tally, n = self.tally, len(run)
        self.learned += len(rows)
        tally.learned += len(rows)
        tally.experiments += n if phase is Phase.EXPLORE else 0
        for _, minute in groupby(run, key=lambda event: event.at // 60.0):
            same = list(minute)
            tally.serve(same[0].at, len(same))
        tally.note(self.at, self.seq, int(phase), self.given.theta)

    def _offer(self, event: Event) -> None:
        body = event.body
        if self.mode != "frozen":
            self._look(self.server.params)
            self.server.advance(1)
        segment = self.limits.index(body.get("segment"))
        z, price, cost = np.array(body["z"], dtype=np.float64), body["price"], body.get("cost", self.policy.cost)
        self.last[segment] = price
        self.open[event.key[2:]] = Open(event.seq, z, price, body["stage"], cost, event.at)
        self.tally.experiments += bool(body["experiment"])
        self.tally.price_sum += price
        self.tally.serve(event.at)
        self.tally.note(event.at, event.seq, int(self.params.phase), self.given.theta)

    def _outcome(self, key: str, y: float) -> None:
        offer = self.open.pop(key, None)
        if offer is None:
            self.tally.late += 1
            return
        self.tally.outcomes += 1
        self._learn(offer, y)

    def _learn(self, offer: Open, y: float) -> None:
        if offer.stage and self.mode != "frozen":
            self.server.absorb(Records(offer.z[None, :], np.array([offer.price]), np.array([y]), offer.stage))
            self.learned += 1
            self.tally.learned += 1
        self.tally.sell(Closed(offer.z, offer.price, y, offer.cost))

    def _expire(self, now: float) -> None:
        """Close the offers that waited too long. They are in the order of their making, and so of their time."""
        while self.open and next(iter(self.open.values())).at + self.definition.wait <= now:
            _, offer = self.open.popitem(last=False)
            self.tally.expired += 1
            if self.definition.then == "no-sale":
                self._learn(offer, 0.0)

    def due(self, now: float) -> bool:
        """Whether an offer has waited too long."""
        return bool(self.open) and next(iter(self.open.values())).at + self.definition.wait <= now

    def _change(self, event: Event, history: History) -> None:
        body = event.body
        if event.kind == "mode":
            self.mode = body["mode"]
        elif event.kind == "guardrails":
            self._rail(event.seq, Guardrails.of({key: body[key] for key in ("low", "high", "ladder", "largest_step")}))
        else:
            self._roll_back(body["version"], history)
            self.floor = event.seq
        self.version = event.seq
        self.publish()

    def _rail(self, seq: int, guardrails: Guardrails) -> None:
        if guardrails != self.guardrails:
            self.since, self.railed = self.learned, seq
        self.guardrails, self.limits = guardrails, Limits(self.policy, guardrails)

    def _roll_back(self, version: int, history: History) -> None:
        """Know again what was known after event ``version``; mode, guardrails and counts stay as they are.

        Of the offers that wait for an outcome those made up to then still do, each for the estimate it was made for;
        the later ones are of what is undone, and their outcomes will count as late. An outcome that came after
        ``version`` is forgotten with everything else that was learned since: it is on record, and its offer closed.
        """
        self.take(history(version))
        self.open = OrderedDict((key, offer) for key, offer in self.open.items() if offer.seq <= version)

    # -- what is published ----------------------------------------------------------------------------------------

    def _look(self, params: Params) -> None:
        """The policy's parameters for the next customer: a new version if they may have changed.

        Each report that is learned from makes a version (see :meth:`_reports`); here are the other reasons. Within a
        run of reports none of them occurs before its end, so that it does not matter how the log is cut into runs.
        """
        before, self.given = self.given, _kept(params)
        if self.policy.private:
            changed = _manner(before) != _manner(params)
        else:
            changed = before.version != params.version
        if changed:
            self.version = self.seq
        if self._restarts and before.stage != params.stage:
            self.explored = 0
        if changed or self.policy.private:
            self.publish()

    def publish(self) -> None:
        """Publish the policy's parameters as the mode has it."""
        self.params = self._published()
        params = self.params
        asking = PublishedPhase(self.version, params.learn, params.phase is Phase.EXPLORE, params.stage)
        if self.policy.private and (not self.asking or self.asking[-1][1:] != asking[1:]):
            self.asking.append(asking)

    def _published(self) -> Params:
        given, baseline = self.given, self.definition.baseline
        if self.mode == "shadow":
            learn = given.learn if self.policy.private else True
            return replace(given, phase=Phase.FIXED, level=baseline, learn=learn)
        if self.mode == "frozen":
            if given.phase in (Phase.EXPLOIT, Phase.FIXED):
                return replace(given, learn=False)
            if not self.learned:
                return replace(given, phase=Phase.FIXED, level=baseline, learn=False)
            return replace(given, phase=Phase.EXPLOIT, level=0.0, theta=self.estimate()[0], learn=False)
        return given

    def estimate(self) -> tuple[Array, Array | None]:
        """(theta, its covariance) as of the last offer; of private products the covariance is not known.

        A policy that has not looked at its records yet (ETC before it first commits) is asked by way of a copy.
        """
        estimators = self.server.estimators
        if not estimators:
            return self.given.theta, None
        busiest = max(range(len(estimators)), key=lambda s: estimators[s].records)
        estimator = estimators[busiest]
        if estimator.records and not estimator.counts[USED]:
            made = self.server, busiest, estimator.records
            if self._ahead is None or self._ahead[0] != made:
                twin = self.policy.server()
                twin.restore(self.server.state())
                self._ahead = made, twin.estimators[busiest]
                self._ahead[1].theta()
            estimator = self._ahead[1]
        return estimator.published, self.policy.family.scale**2 * estimator.P

    def document(self) -> dict[str, Any]:
        """The params document of a private product."""
        return params_document.document(self)

    def quote(self, asked: offers.Asked, rng: np.random.Generator) -> dict[str, Any]:
        """The body of the offer to make. To be followed by its event, or else the learner is to be thrown away."""
        return offers.quote(self, asked, rng)

    # -- as plain data --------------------------------------------------------------------------------------------

    def core(self) -> Core:
        """What a rollback brings back, apart from everything that goes on."""
        return {
            "server": copied(self.server.state()),
            "params": learner_state.plain_params(self.given),
            "learned": self.learned,
            "explored": self.explored,
            "since": self.since,
            "railed": self.railed,
        }

    def take(self, core: Core) -> None:
        self.server = self.policy.server()
        self.server.restore(core["server"])
        self.given, self.learned = learner_state.params_from(core["params"]), core["learned"]
        self.explored = core["explored"]
        self.since = core["since"] if core["railed"] == self.railed else self.learned  # guardrails are not rolled back

    def state(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return learner_state.state(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state given by :meth:`state`, if it is one of this product's."""
        learner_state.restore(self, state)

    def digest(self) -> str:
        """SHA-256 of the state, to the last bit."""
        return digest(self.state())


def _kept(params: Params) -> Params:
    """Params to keep: without bounds, which are large and can be had again."""
    return params if params.bounds is None else replace(params, bounds=None)


def _manner(params: Params) -> tuple[Phase, float, bool, int]:
    """All of the parameters but the estimate."""
    return params.phase, params.level, params.learn, params.stage
