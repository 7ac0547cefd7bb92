"""The learner of a product: its state as a fold over its log.

    Learner(definition).apply(events 1..n)  ->  the same bits in every process, however the events are split

For each customer the learner reads ``server.params``, then calls ``advance(1)``, then ``absorb``. This is the order of
``policies.loop.Loop``, so the service and a simulation agree to the last bit. The published params of a private product
change after events; those of a plain product are read only when an offer is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from hushprice.demand import fresh
from hushprice.policies import Change, Misfit, Monitor, Params, PrivateReports, Records
from hushprice.policies.base import Server
from hushprice.privacy import wire
from hushprice.service.core import learner_state, offers, params_document
from hushprice.service.core.events import CHANGES, Event, Mode, chained
from hushprice.service.core.fingerprint import copied, digest
from hushprice.service.core.open_offers import OpenOffer, OpenOffers
from hushprice.service.core.published import PublishedPhase, PublishedPhases, instructions, published
from hushprice.service.core.statistics import Closed, ProductStatistics
from hushprice.service.definition import Definition
from hushprice.service.errors import DamagedLog
from hushprice.service.guardrails import Guardrails, Limits

Core = dict[str, Any]
"""What a rollback restores: the server's state and the policy's params."""
History = Callable[[int], Core]
"""Returns the core after an earlier event."""


def no_history(version: int) -> Core:
    """The history for events without a rollback."""
    raise AssertionError(f"version {version} was requested")


class Learner:
    """The state of one product after event ``seq``.

    Parameters
    ----------
    definition : Definition
        The product.

    Attributes
    ----------
    version : int
        The last event after which the published params may have changed.
    rolled_back_at : int
        The event of the last rollback. Reports made against older parameters are not learned from.
    learned : int
        Number of outcomes or reports in the present estimate.
    explored : int
        Number of reports from experiments, that is from versions with uniform prices, since the server last started
        afresh.
    learned_before_guardrails : int
        The value of ``learned`` when the guardrails last changed; later outcomes had prices within the present ones.
    policy_params, params : Params
        The policy's params, regardless of the mode; and the published ones.
    """

    def __init__(self, definition: Definition) -> None:
        policy = definition.policy
        self.definition, self.policy = definition, policy
        self.server: Server[Any] = policy.server()
        self.monitor = Monitor.beside(policy, self.server)
        self.device = None if policy.private else policy.device()
        self.seq, self.version, self.rolled_back_at, self.at = 0, 0, 0, 0.0
        self.key, self.chain = "", b""  # of the last event, and the fingerprint of all events
        self.learned = self.explored = 0
        self.learned_before_guardrails, self.guardrails_changed_at = 0, 0  # and the event that changed them
        self.mode: Mode = definition.mode
        self.guardrails, self.limits = definition.guardrails, Limits(policy, definition.guardrails)
        self.last_prices = fresh(policy.rules)  # of each segment of a plain product
        self.open_offers: OpenOffers[OpenOffer] = OpenOffers(definition.wait)
        self.statistics = ProductStatistics(definition)
        self.policy_params = self.server.params.small
        self.params = self.policy_params
        self.published_phases = PublishedPhases()  # of a private product
        self.publish()

    # -- the fold -------------------------------------------------------------------------------------------------

    def apply(self, events: Sequence[Event], history: History = no_history) -> None:
        """Apply the next events of the log.

        Parameters
        ----------
        events : sequence of Event
            The events after ``seq``, in order.
        history : callable
            Returns earlier cores; needed if there is a rollback among the events.
        """
        i = 0
        while i < len(events):
            if events[i].kind == "report":
                i += self._apply_reports(events, i)
            else:
                self._apply_one(events[i], history)
                i += 1

    def _count_event(self, event: Event) -> None:
        if event.seq != self.seq + 1:
            raise DamagedLog(f"The log of {self.definition.name} has event {event.seq} where {self.seq + 1} belongs.")
        self.seq, self.at, self.key = event.seq, event.at, event.key
        self.chain = chained(self.chain, event)

    def _apply_one(self, event: Event, history: History) -> None:
        self._count_event(event)
        if event.kind == "offer":
            self._apply_offer(event)
        elif event.kind == "outcome":
            self._apply_outcome(event.key[2:], event.body["y"])
        elif event.kind == "expire":
            self._apply_expiry(event.body["now"])
        elif event.kind in CHANGES:
            self._apply_change(event, history)
        else:
            raise DamagedLog(f"The log of {self.definition.name} has an event of the unknown kind {event.kind!r}.")

    def _apply_reports(self, events: Sequence[Event], start: int) -> int:
        """Apply a run of reports under the same phase by one call of the kernel; return the length of the run."""
        frozen = self.mode == "frozen"
        room = self.statistics.room if frozen else min(self.server.left, self.statistics.room)
        run, rows, experiments = [], [], 0
        for i in range(start, min(start + room, len(events))):
            event = events[i]
            if event.kind != "report":
                break
            self._count_event(event)
            run.append(event)
            if event.body["report"] is None:
                self.statistics.silent += 1
            elif (phase := self._usable_phase(event.body["version"])) is not None:
                rows.append((phase.stage, wire.row(event.body["report"]) if event.row is None else event.row))
                experiments += phase.explore
                self.version = event.seq
        served = self.params
        if not frozen:
            self.server.advance(len(run))
            self._absorb(rows)
            self.explored += experiments
            self._follow(self.server.params)
        self._count_reports(run, len(rows), served)
        return len(run)

    def _usable_phase(self, version: int) -> PublishedPhase | None:
        """The phase of ``version``, or None if a report made from it is not learned from. Counts the report."""
        self.statistics.reports += 1
        phase = self.published_phases.at(version)
        if not phase.learn:
            self.statistics.unasked += 1
            return None
        recent = self.rolled_back_at <= version <= self.version <= version + self.definition.max_lag
        stage_over = self.policy.restarts and phase.stage != self.policy_params.stage
        if not recent or stage_over or self.mode == "frozen":
            self.statistics.stale += 1
            return None
        return phase

    def _absorb(self, rows: list[tuple[int, Sequence[int]]]) -> None:
        for stage, group in groupby(rows, key=lambda row: row[0]):
            reports = np.array([row for _, row in group], dtype=np.int64)
            self.server.absorb(PrivateReports(reports, stage))

    def _count_reports(self, run: list[Event], learned: int, served: Params) -> None:
        """Update the statistics for a run of reports, served under the same params."""
        statistics, n = self.statistics, len(run)
        self.learned += learned
        statistics.learned += learned
        statistics.experiments += n if served.uniform else 0
        for _, minute in groupby(run, key=lambda event: event.at // 60.0):
            same = list(minute)
            statistics.serve(same[0].at, len(same))
        statistics.note(self.at, self.seq, int(served.phase), self.policy_params.theta)

    def _apply_offer(self, event: Event) -> None:
        body, statistics = event.body, self.statistics
        if self.mode != "frozen":
            self._follow(self.server.params)
            self.server.advance(1)
        segment = self.limits.index(body.get("segment"))
        z, price, cost = np.array(body["z"], dtype=np.float64), body["price"], body.get("cost", self.policy.cost)
        self.last_prices[segment] = price
        self.open_offers.add(event.key[2:], OpenOffer(event.seq, z, price, body["stage"], cost, event.at))
        statistics.experiments += bool(body["experiment"])
        statistics.price_sum += price
        if "greedy" in body:
            low, high = self.policy.prices
            statistics.deviate(abs(body.get("would", price) - body["greedy"]) / (high - low))
        statistics.serve(event.at)
        statistics.note(event.at, event.seq, int(self.params.phase), self.policy_params.theta)

    def _apply_outcome(self, key: str, y: float) -> None:
        offer = self.open_offers.close(key)
        if offer is None:
            self.statistics.late += 1
            return
        self.statistics.outcomes += 1
        self._learn(offer, y)

    def _learn(self, offer: OpenOffer, y: float) -> None:
        record = Records(offer.z[None, :], np.array([offer.price]), np.array([y]), offer.stage)
        if self.monitor is not None and self.mode != "frozen":
            self.monitor.absorb(record)
        if offer.stage and self.mode != "frozen":
            self.server.absorb(record)
            self.learned += 1
            self.statistics.learned += 1
        self.statistics.sell(Closed(offer.z, offer.price, y, offer.cost))

    def _apply_expiry(self, now: float) -> None:
        for offer in self.open_offers.expire(now):
            self.statistics.expired += 1
            if self.definition.then == "no-sale":
                self._learn(offer, 0.0)

    def _apply_change(self, event: Event, history: History) -> None:
        body = event.body
        if event.kind == "mode":
            self.mode = body["mode"]
        elif event.kind == "guardrails":
            limits = {key: body[key] for key in ("low", "high", "ladder", "largest_step")}
            self._set_guardrails(event.seq, Guardrails.of(limits))
        elif event.kind == "forget":
            self.server.forget(body["half_life"])
            if self.monitor is not None:
                self.monitor.forget(body["half_life"])
            self.policy_params = self.server.params.small
        else:
            self._roll_back(body["version"], history)
            self.rolled_back_at = event.seq
        self.version = event.seq
        self.publish()

    def _set_guardrails(self, seq: int, guardrails: Guardrails) -> None:
        if guardrails != self.guardrails:
            self.learned_before_guardrails, self.guardrails_changed_at = self.learned, seq
        self.guardrails, self.limits = guardrails, Limits(self.policy, guardrails)

    def _roll_back(self, version: int, history: History) -> None:
        """Restore the core after event ``version``; mode, guardrails and statistics do not change.

        Offers made up to then stay open, each for the stage for which it was made. Later ones are closed, and their
        outcomes will count as late. Outcomes that came after ``version`` are no longer learned from, although they stay
        in the log and their offers stay closed.
        """
        self.restore_core(history(version))
        self.open_offers.undo(version)

    # -- what is published ----------------------------------------------------------------------------------------

    def _follow(self, params: Params) -> None:
        """Adopt the policy's params for the next customer, with a new version if they may have changed.

        Each report that is learned from makes a version (see :meth:`_apply_reports`); this method handles the other
        causes. Within a run of reports none of them occurs before its end, so the result does not depend on how the log
        is split into runs.
        """
        before, self.policy_params = self.policy_params, params.small
        if self.policy.private:
            changed = instructions(before) != instructions(params)
        else:
            changed = before.version != params.version
        if changed:
            self.version = self.seq
        if self.policy.restarts and before.stage != params.stage:
            self.explored = 0
        if changed or self.policy.private:
            self.publish()

    def publish(self) -> None:
        """Publish the policy's params, as modified by the mode."""
        params = self.params = published(self)
        if self.policy.private:
            self.published_phases.note(PublishedPhase(self.version, params.learn, params.uniform, params.stage))

    @property
    def estimated(self) -> bool:
        """Whether there is an estimate: something was learned, or the policy was given a prior."""
        return self.learned > 0 or self.policy.prior is not None

    @property
    def change(self) -> Change | None:
        """The last change of demand that was found; None for private products."""
        return self.server.change if self.monitor is None else self.monitor.change

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """Where demand does not follow the model; empty for private products."""
        return self.server.misfits if self.monitor is None else self.monitor.misfits

    def document(self) -> dict[str, Any]:
        """The params document of a private product."""
        return params_document.document(self)

    def quote(self, request: offers.CheckedRequest, rng: np.random.Generator) -> dict[str, Any]:
        """Quote a price and return the body of the offer's event. Unless that event follows, discard the learner."""
        return offers.quote(self, request, rng)

    # -- as plain data --------------------------------------------------------------------------------------------

    def core(self) -> Core:
        """The part of the state that a rollback restores, as plain data."""
        return {
            "server": copied(self.server.state()),
            "monitor": None if self.monitor is None else copied(self.monitor.state()),
            "params": learner_state.plain_params(self.policy_params),
            "learned": self.learned,
            "explored": self.explored,
            "since": self.learned_before_guardrails,
            "railed": self.guardrails_changed_at,
        }

    def restore_core(self, core: Core) -> None:
        """Restore the result of :meth:`core`. Guardrails are not rolled back."""
        server = self.policy.server()
        server.restore(core["server"])
        if self.monitor is not None:
            monitor = Monitor(self.policy)
            monitor.restore(core["monitor"])
            self.monitor = monitor
        self.server = server
        self.policy_params, self.learned = learner_state.params_from(core["params"]), core["learned"]
        self.explored = core["explored"]
        same_guardrails = core["railed"] == self.guardrails_changed_at
        self.learned_before_guardrails = core["since"] if same_guardrails else self.learned

    def state(self) -> dict[str, Any]:
        """The whole state as plain data."""
        return learner_state.state(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of :meth:`state`; :class:`SnapshotError` if it is of another product or release."""
        learner_state.restore(self, state)

    def digest(self) -> str:
        """SHA-256 of the state, to the last bit."""
        return digest(self.state())
