"""A device of the service: price here, privatise here, and send the report and nothing else.

    GET params (checked against the promise)  ->  price  ->  the customer buys or not  ->  ledger  ->  report  ->
    outbox on disk  ->  POST reports

What leaves the device is the key, the name of the product, the version of the parameters, a random id and the
randomised report: neither context nor price nor outcome.
"""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hushprice.device.ledger import Ledger
from hushprice.device.outbox import Item, Outbox
from hushprice.device.params import Params
from hushprice.device.philox import uniform
from hushprice.device.pricing import Context, context, outcome, quote, report
from hushprice.device.promise import NO_MORE, Promise
from hushprice.device.randomness import SystemWords, UnsafeWords, Words
from hushprice.device.responses import acknowledged, max_age, plain, refusal, refused_for_good
from hushprice.device.transport import Answer, HttpTransport, Retry, Transport, Unreachable, address_of
from hushprice.errors import BrokenPromise, BudgetSpent, HushpriceError, InvalidInput, finite

LARGEST_BATCH = 100
LOOKS = 3  # at parameters that do not follow those at hand: one worker of the service may lag behind another
_PRODUCT = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class ServiceRefused(HushpriceError):
    """The service will not serve this device: a wrong key, no such product."""


@dataclass
class _Settling:
    """What was told of an offer, and the lock under which that happens once."""

    y: float | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A price for one customer, and what a report of its outcome will need, which stays here."""

    price: float
    experiment: bool  # whether the price was drawn to learn from
    version: int  # of the parameters it was computed from
    id: str = field(repr=False)
    _z: tuple[float, ...] = field(repr=False)
    _params: Params = field(repr=False)
    _told: _Settling = field(repr=False, compare=False, default_factory=_Settling)


class Device:
    """One customer's device, or a till that serves many. Its methods may be called from several threads.

    url, key, product: the service, a key of role device, the product; promise: the most that the server may ask for;
    ledger: what the customer may spend in all, or None to leave that uncounted; folder: where reports wait until they
    are acknowledged (in memory unless given); stale: for how many seconds parameters may be used when the service
    cannot be reached; retry: how often to try; words: only for tests, see ``UnsafeWords``.

    Every sale is followed by a report, or by a null where none is asked for or the budget is spent. Of these two the
    server knows the first: a null while experiments are asked for tells it that the budget of this device is spent,
    and so that it has reported before. It tells nothing of the sale it stands for.

    A request names the version of the parameters at hand, in If-None-Match and in a report. A server that gave a device
    a version of its own could tell it from others by that. Versions are public numbers: an app that minds compares
    ``device.params().version`` with what others were given.

    >>> from hushprice.device import Device, Ledger, Promise
    >>> device = Device(
    ...     url="https://prices.example.com", key="hp_device_...", product="coffee",
    ...     promise=Promise(epsilon=2.0, clip=4.0), ledger=Ledger(epsilon=10.0))
    >>> device
    <Device for coffee: 0 reports wait>

    ``device.offer({"loyalty": 0.4, "distance": -0.2})`` asks the service for public parameters and computes the price;
    ``device.sold(offer, 1)`` reports.
    """

    def __init__(
        self,
        *,
        url: str,
        key: str,
        product: str,
        promise: Promise,
        ledger: Ledger | None,
        folder: str | PathLike[str] | None = None,
        transport: Transport | None = None,
        words: Words | None = None,
        retry: Retry | None = None,
        stale: float = 600.0,
    ) -> None:
        if not isinstance(product, str) or not _PRODUCT.fullmatch(product):
            raise InvalidInput("product must be the name of one: small letters, digits and hyphens.")
        if not isinstance(key, str) or not key.isascii() or not key.isprintable() or not key or " " in key:
            raise InvalidInput("key must be a key of the service with the role device. What was given is not told.")
        if not isinstance(promise, Promise):
            raise InvalidInput(f"promise must be a hushprice.device.Promise, not {type(promise).__name__}.")
        if ledger is not None and not isinstance(ledger, Ledger):
            raise InvalidInput(f"ledger must be a hushprice.device.Ledger or None, not {type(ledger).__name__}.")
        if words is not None and not isinstance(words, (SystemWords, UnsafeWords)):
            raise InvalidInput("words are the operating system's (leave them out) or, in tests, UnsafeWords(seed).")
        self.product, self.promise, self.ledger = product, promise, ledger
        self._transport = HttpTransport(url) if transport is None else transport
        self._headers = {"Authorization": f"Bearer {key}"}
        self._words = SystemWords() if words is None else words
        self._retry = Retry() if retry is None else retry
        self._stale = finite("stale", stale, minimum=0.0)
        address = str(address_of(url))
        self._outbox = Outbox(None if folder is None else Path(folder) / product, address=address)
        self._params: Params | None = None
        self._fresh_until = self._usable_until = 0.0  # by the monotonic clock
        self._looking, self._sending = threading.Lock(), threading.Lock()
        self.refused = 0  # reports that the service will never take; they are dropped
        self.problem: str | None = None  # why the last attempt to send did not succeed

    # -- pricing ------------------------------------------------------------------------------------

    def offer(
        self, z: Context, *, segment: str | None = None, cost: float | None = None, price: float | None = None
    ) -> Offer:
        """A price for a customer with context z: a list, or by the names of the features.

        ``price`` is for products in shadow mode alone: the price that the shop charges anyway, which must lie in the
        range that a price for this customer could have. The server publishes that range, and one that is refused is not
        reported: let it be a price that the server may know.
        """
        params = self.params()
        known = context(params, z)
        u = uniform(self._words.draw(1, "price")[0]) if params.experiment else 0.0
        return Offer(
            price=quote(params, known, segment=segment, cost=cost, uniform=u, price=price),
            experiment=params.experiment,
            version=params.version,
            id="".join(f"{word:016x}" for word in self._words.draw(2, "id")),
            _z=known,
            _params=params,
        )

    def params(self) -> Params:
        """The parameters in force: those at hand while they are fresh, or the service's, checked.

        Ones of an earlier version, or others of the same version, are looked at again: one worker of the service may
        lag behind another. If they stay they are a new start, as of a service restored from a backup, and are taken.
        Nothing is lost by that: a server may publish any theta of its ball, and promise and ledger hold for all.
        """
        with self._looking:
            if self._params is not None and time.monotonic() < self._fresh_until:
                return self._params
            for look in range(1, LOOKS + 1):
                try:
                    answer = self._retry.run(self._get)
                except Unreachable:
                    if self._params is not None and time.monotonic() < self._usable_until:
                        return self._params
                    raise
                found = self._checked(answer)
                if look == LOOKS or self._follows(found):
                    break
                self._retry.sleep(0.2)
            self._keep(found, answer)
            return found

    def _get(self) -> Answer:
        # the version, not whatever the server sent as ETag: that could tell one device from all others
        known = {} if self._params is None else {"If-None-Match": f'"{self._params.version}"'}
        return self._transport.send("GET", f"/v1/products/{self.product}/params", self._headers | known, None)

    def _checked(self, answer: Answer) -> Params:
        """The parameters of an answer, if they are within the promise and of the product that was known."""
        before = self._params
        if answer.status == 304 and before is not None:
            return before
        if answer.status != 200:
            raise ServiceRefused(refusal(answer.status))
        params = Params.read(plain(answer.body), self.promise, product=self.product)
        if before is not None and not params.same_product(before):
            raise BrokenPromise(f"The server changed what a product never changes. {NO_MORE}")
        return params

    def _follows(self, params: Params) -> bool:
        """Whether parameters are those at hand, or of a later version."""
        return self._params is None or params == self._params or params.version > self._params.version

    def _keep(self, params: Params, answer: Answer) -> None:
        age = max_age(answer.headers.get("cache-control", ""))
        now = time.monotonic()
        self._params, self._fresh_until, self._usable_until = params, now + age, now + max(age, self._stale)

    # -- reporting ----------------------------------------------------------------------------------

    def sold(self, offer: Offer, y: float, *, send: bool = True) -> bool:
        """Report what became of an offer: 1 or 0, or the amount sold.

        One report is made of an offer: telling the same again makes and charges nothing, and sends what still waits;
        telling something else is refused.

        The ledger is charged first, then the report is made and kept on disk, then sent. Where nothing is asked for, or
        the budget is spent, a null is sent instead, so that silence tells nothing; a null while experiments are asked
        for tells that the budget is spent. Returns whether the service has all reports; if not they wait, and go out
        with the next sale or by :meth:`flush`, or the service will never take one (``refused`` counts these).
        ``send=False`` leaves it to that.
        """
        if not isinstance(offer, Offer) or offer._params.product != self.product:
            raise InvalidInput(f"sold takes an offer of this device, for {self.product}.")
        bought = outcome(offer._params, y)
        with offer._told.lock:
            if offer._told.y is None:
                made = self._made(offer, bought)
                self._outbox.add({"id": offer.id, "version": offer.version, "report": made})
                offer._told.y = bought  # if it came not this far, it can be tried again, and is charged again
            elif offer._told.y != bought:
                raise InvalidInput("Something else was told of this offer before, and only one report is made of it.")
        refused = self.refused
        return send and self.flush() == 0 and self.refused == refused

    def _made(self, offer: Offer, y: float) -> dict[str, Any] | None:
        params = offer._params
        if not params.learn:
            return None
        if self.ledger is not None:
            try:
                self.ledger.spend(params.mechanism)
            except BudgetSpent:
                return None
        return report(params, offer._z, offer.price, y, self._words.draw(params.mechanism.words, "report"))

    @property
    def waiting(self) -> int:
        """Reports that the service has not acknowledged."""
        return len(self._outbox)

    @property
    def damaged(self) -> int:
        """Files of waiting reports that could not be read, or do not say for which service. They are left there."""
        return self._outbox.damaged

    def flush(self) -> int:
        """Send what waits; returns how many still do. ``problem`` says why."""
        with self._sending:
            batch = LARGEST_BATCH
            while items := self._outbox.first(batch):
                try:
                    answer = self._retry.run(partial(self._post, items))
                except Unreachable as problem:
                    self.problem = str(problem)
                    break
                if acknowledged(answer, len(items)):
                    self._outbox.remove(items)
                    self.problem = None
                elif not refused_for_good(answer):
                    self.problem = refusal(answer.status)
                    break
                elif len(items) > 1:
                    batch = 1  # one of them is refused, and with it all: find out which
                else:
                    self._outbox.remove(items)
                    self.refused += 1
                    self.problem = f"The service will never take a report (status {answer.status}): it was dropped."
            return len(self._outbox)

    def _post(self, items: list[Item]) -> Answer:
        body = items[0] if len(items) == 1 else {"reports": items}
        raw = json.dumps(body, separators=(",", ":")).encode()
        headers = self._headers | {"Content-Type": "application/json"}
        return self._transport.send("POST", f"/v1/products/{self.product}/reports", headers, raw)

    def close(self) -> None:
        """Let go of the connection. Reports that wait stay on disk, if there is a folder."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Device for {self.product}: {self.waiting} reports wait>"
