"""Stream a product's log as CSV.

Plain products: one line per offer with the columns of ``hushprice simulate --log`` and further ones, in the order in
which offers were closed. An expired offer has the outcome 0 if the product says so, and none otherwise. Open offers
come last, without an outcome. ``outcome_known`` is 1 if the shop sent the outcome in time. ``late_outcome`` is one that
came later and was not learned from. ``would`` is the price that the policy would have quoted in shadow mode.

Private products: the reports of devices; the log holds nothing else.
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

EVENTS_PER_PIECE = 1_000
MORE = ("offer", "time", "version", "experiment", "would", "outcome_known", "late_outcome")
EXPORT_COLUMNS = ("price", "outcome", "propensity", "discrete", "segment", "cost", *MORE)
Fetch = Callable[[int, int], list[Event]]
"""Returns some of the events after the first number, up to the second."""


async def csv_lines(fetch: Fetch, view: View) -> AsyncIterator[bytes]:
    """Yield the log up to now as CSV; another thread reads the database."""
    fold: Callable[[Iterable[Event]], Iterable[list[Any]]] = private_lines
    yield _text([PRIVATE_COLUMNS if view.private else columns(view.definition)])
    if not view.private:
        fold = PlainLines(view.definition)
        if view.counts["late"]:  # late outcomes follow their offers' lines, so a first pass collects them
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
    """One line per report."""
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
    """Joins offers with their outcomes as the learner does, holding only open offers in memory.

    Parameters
    ----------
    definition : Definition
        The product.
    late : dict, optional
        Outcomes that came too late, by offer. A first pass over the log collects them here.
    """

    def __init__(self, definition: Definition, late: dict[str, float] | None = None) -> None:
        self.definition, self.late = definition, {} if late is None else late
        self.open_offers: OpenOffers[Event] = OpenOffers(definition.wait)
        self.segments = "segment" in columns(definition)[definition.dim :]

    def __call__(self, events: Iterable[Event]) -> Iterator[list[Any]]:
        """Yield the lines that these events complete."""
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
                assumed = 0.0 if self.definition.then == "no-sale" else None
                yield from (self._line(offer, assumed) for offer in self.open_offers.expire(event.body["now"]))
            elif event.kind == "rollback":
                yield from (self._line(offer, None) for offer in self.open_offers.undo(event.body["version"]))

    def rest(self) -> Iterator[list[Any]]:
        """Yield the lines of open offers."""
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
