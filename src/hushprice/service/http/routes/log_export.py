"""A product's log as CSV, a piece at a time.

Plain: the columns of ``hushprice simulate --log`` and what else is known of an offer, a line for each, in the order in
which they were closed. An offer given up has the outcome 0 if the product says so, and none otherwise; those that still
wait, without an outcome, come last. ``outcome_known`` is 1 if the shop told the outcome in time, ``late_outcome`` what
it told later, which was not learned from; ``would`` is what the policy would have quoted in shadow mode. Private: what
devices sent and nothing else, as there is nothing else.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from hushprice.service.core.events import Event
from hushprice.service.core.open_offers import OpenOffers
from hushprice.service.definition import Definition
from hushprice.service.writer.messages import View

EVENTS_PER_PIECE = 1_000  # events
MORE = ("offer", "time", "version", "experiment", "would", "outcome_known", "late_outcome")
EXPORT_COLUMNS = ("price", "outcome", "propensity", "discrete", "segment", "cost", *MORE)
Fetch = Callable[[int, int], list[Event]]
"""Some events after the first number, up to the second."""


async def csv_lines(fetch: Fetch, view: View) -> AsyncIterator[bytes]:
    """The log up to now; the database is read by another thread."""
    fold: Callable[[Iterable[Event]], Iterable[list[Any]]] = private_lines
    yield _text([PRIVATE_COLUMNS if view.private else columns(view.definition)])
    if not view.private:
        fold = PlainLines(view.definition)
        if view.counts["late"]:  # they stand in the log after the lines they belong to: a pass to find them
            async for events in _pieces(fetch, view.seq):
                deque(fold(events), maxlen=0)
            fold = PlainLines(view.definition, fold.late)
    async for events in _pieces(fetch, view.seq):
        text = _text(fold(events))
        if text:
            yield text
    if isinstance(fold, PlainLines) and fold.open_offers:
        yield _text(fold.rest())


async def _pieces(fetch: Fetch, upto: int) -> AsyncIterator[list[Event]]:
    seq = 0
    while seq < upto and (events := await asyncio.to_thread(fetch, seq, upto)):
        seq = events[-1].seq
        yield events


def _text(rows: Iterable[list[Any]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()


PRIVATE_COLUMNS = ["seq", "version", "report"]


def private_lines(events: Iterable[Event]) -> Iterator[list[Any]]:
    """What devices sent."""
    for event in events:
        if event.kind == "report":
            report = event.body["report"]
            yield [event.seq, event.body["version"], "" if report is None else json.dumps(report)]


def columns(definition: Definition) -> list[str]:
    """The names of a plain product's columns."""
    own = [feature.name for feature in definition.features] or [f"z{j}" for j in range(definition.dim)]
    names = [f"{name} feature" if name in EXPORT_COLUMNS else name for name in own]
    rules = definition.policy.rules
    more = ["segment"] if rules is not None and rules.segments else []
    return [*names, "price", "outcome", "propensity", "discrete", *more, "cost", *MORE]


class PlainLines:
    """Offers joined with their outcomes, as the learner does it: what is open is all that is kept, and ``late``, the
    outcomes that came too late, by offer."""

    def __init__(self, definition: Definition, late: dict[str, float] | None = None) -> None:
        self.definition, self.late = definition, {} if late is None else late
        self.open_offers: OpenOffers[Event] = OpenOffers(definition.wait)
        self.segments = "segment" in columns(definition)[definition.dim :]

    def __call__(self, events: Iterable[Event]) -> Iterator[list[Any]]:
        """The lines that these events complete."""
        for event in events:
            if event.kind == "offer":
                self.open_offers.add(event.key[2:], event)
            elif event.kind == "outcome":
                offer = self.open_offers.close(event.key[2:])
                if offer is None:
                    self.late[event.key[2:]] = event.body["y"]
                else:
                    yield self._line(offer, event.body["y"], known=True)
            elif event.kind == "expire":
                given_up = 0.0 if self.definition.then == "no-sale" else None
                yield from (self._line(offer, given_up) for offer in self.open_offers.expire(event.body["now"]))
            elif event.kind == "rollback":
                yield from (self._line(offer, None) for offer in self.open_offers.undo(event.body["version"]))

    def rest(self) -> Iterator[list[Any]]:
        """The lines of offers that wait for their outcome."""
        return (self._line(offer, None) for _, offer in self.open_offers.items())

    def _line(self, offer: Event, y: float | None, *, known: bool = False) -> list[Any]:
        body = offer.body
        propensity = "NaN" if body["propensity"] is None else body["propensity"]
        line = [*body["z"], body["price"], y, propensity, "true" if body["discrete"] else "false"]
        if self.segments:
            line.append(body.get("segment"))
        when = datetime.fromtimestamp(offer.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        experiment = "true" if body["experiment"] else "false"
        late = None if known else self.late.get(offer.key[2:])
        more = (offer.key[2:], when, body["version"], experiment, body.get("would"), int(known), late)
        return [*line, body.get("cost", self.definition.policy.cost), *more]
