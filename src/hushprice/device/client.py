"""A client of the service that prices and randomises on the device, and sends only the report.

    GET params (checked against the promise)  ->  price  ->  the customer buys or not  ->  ledger  ->  report  ->
    outbox on disk  ->  POST reports

Only the key, the name of the product, the version of the parameters, a random id and the randomised report leave the
device; context, price and outcome do not.
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
MAX_FETCHES = 3  # of parameters older than the current ones: one worker of the service may lag behind another
_PRODUCT = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class ServiceRefused(HushpriceError):
    """The service does not serve this device: the key is wrong, or the product does not exist."""


@dataclass
class _Sale:
    """The outcome of an offer, and the lock that lets it be reported only once."""

    y: float | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A price for one customer. It holds what the report of its outcome needs, which stays on the device.

    Attributes
    ----------
    price : float
        The price.
    experiment : bool
        Whether the price was drawn at random in order to learn.
    version : int
        Version of the parameters that the price was computed from.
    id : str
        Random id under which the report is sent.
    """

    price: float
    experiment: bool
    version: int
    id: str = field(repr=False)
    _z: tuple[float, ...] = field(repr=False)
    _params: Params = field(repr=False)
    _sale: _Sale = field(repr=False, compare=False, default_factory=_Sale)


class Device:
    """One customer's device, or a till that serves many customers. Its methods are thread-safe.

    Parameters
    ----------
    url : str
        Address of the service.
    key : str
        A key of the service with the role device.
    product : str
        Name of the product.
    promise : Promise
        The most that the server may ask of this device.
    ledger : Ledger or None
        The customer's privacy budget, or None to leave reports uncounted.
    folder : path, optional
        Where reports wait until the service acknowledges them. Default: in memory.
    transport : Transport, optional
        Sends requests. Default: ``HttpTransport(url)``.
    words : Words, optional
        Source of randomness. Default: the operating system. See ``UnsafeWords`` for tests.
    retry : Retry, optional
        How often to repeat a request that failed. Default: ``Retry()``.
    stale : float
        For how many seconds parameters may still be used when the service cannot be reached.

    Attributes
    ----------
    refused : int
        Reports that the service will never accept. They are dropped.
    problem : str or None
        Why the last attempt to send failed.

    Notes
    -----
    Every sale is followed by a report, or by a null if no report is asked for or the budget is spent. The server can
    distinguish the two cases: a null during experiments reveals that the budget of this device is spent, and thus that
    the device has reported before. It reveals nothing about the sale.

    Requests name the version of the current parameters, in If-None-Match and in reports. A server that sends one device
    a version of its own could recognise the device by it. Versions are public numbers: an app that needs to exclude
    this compares ``device.params().version`` with the version that other devices see.

    Examples
    --------
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
            raise InvalidInput("key must be a key of the service with the role device. It is not repeated here.")
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
        self._fetching, self._sending = threading.Lock(), threading.Lock()
        self.refused = 0
        self.problem: str | None = None

    # -- pricing ------------------------------------------------------------------------------------

    def offer(
        self, z: Context, *, segment: str | None = None, cost: float | None = None, price: float | None = None
    ) -> Offer:
        """Compute a price for one customer.

        Parameters
        ----------
        z : sequence or mapping of float
            The context, as a list or by the names of the features.
        segment : str, optional
            The customer's segment, if the product has segments.
        cost : float, optional
            Unit cost of this sale. Default: the product's.
        price : float, optional
            In shadow mode only: the price that the shop charges. It must lie in the range of prices for this customer.
            The server publishes that range, and an offer with a price outside it is not reported: use a price that the
            server may know.

        Returns
        -------
        Offer

        Raises
        ------
        BrokenPromise
            If the server asks for more than the promise allows.
        InvalidInput
            If an argument is out of its domain; the text does not repeat it.
        Unreachable
            If there are no parameters and the service does not answer.
        """
        params = self.params()
        features = context(params, z)
        u = uniform(self._words.draw(1, "price")[0]) if params.experiment else 0.0
        return Offer(
            price=quote(params, features, segment=segment, cost=cost, uniform=u, price=price),
            experiment=params.experiment,
            version=params.version,
            id="".join(f"{word:016x}" for word in self._words.draw(2, "id")),
            _z=features,
            _params=params,
        )

    def params(self) -> Params:
        """Return the current parameters: the cached ones while they are fresh, else the service's, checked.

        Parameters of an earlier version, or other parameters of the same version, are fetched again, because one worker
        of the service may lag behind another. If the service repeats them, it was restarted, for example from a backup,
        and they are accepted. This is safe: a server may publish any theta in its ball, and promise and ledger hold for
        all of them.
        """
        with self._fetching:
            if self._params is not None and time.monotonic() < self._fresh_until:
                return self._params
            for fetch in range(1, MAX_FETCHES + 1):
                try:
                    answer = self._retry.run(self._get)
                except Unreachable:
                    if self._params is not None and time.monotonic() < self._usable_until:
                        return self._params
                    raise
                params = self._checked(answer)
                if fetch == MAX_FETCHES or self._follows(params):
                    break
                self._retry.sleep(0.2)
            self._cache(params, answer)
            return params

    def _get(self) -> Answer:
        # the version, not the server's ETag, by which a server could recognise the device
        condition = {} if self._params is None else {"If-None-Match": f'"{self._params.version}"'}
        return self._transport.send("GET", f"/v1/products/{self.product}/params", self._headers | condition, None)

    def _checked(self, answer: Answer) -> Params:
        """The parameters of an answer, if they keep the promise and are those of the same product as before."""
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
        """Whether parameters are the current ones or of a later version."""
        return self._params is None or params == self._params or params.version > self._params.version

    def _cache(self, params: Params, answer: Answer) -> None:
        age = max_age(answer.headers.get("cache-control", ""))
        now = time.monotonic()
        self._params, self._fresh_until, self._usable_until = params, now + age, now + max(age, self._stale)

    # -- reporting ----------------------------------------------------------------------------------

    def sold(self, offer: Offer, y: float, *, send: bool = True) -> bool:
        """Report the outcome of an offer.

        Each offer is reported once. Calling again with the same outcome charges nothing and only sends waiting reports.

        The ledger is charged first; then the report is made, stored on disk and sent. If no report is asked for or the
        budget is spent, a null is sent, so that silence reveals nothing (see the notes of :class:`Device`).

        Parameters
        ----------
        offer : Offer
            An offer of this device.
        y : float
            The outcome: 1 or 0, or the amount sold.
        send : bool
            False leaves sending to the next sale or to :meth:`flush`.

        Returns
        -------
        bool
            Whether the service has all reports. Otherwise they wait for the next sale or for :meth:`flush`, or the
            service refused one for good (counted in ``refused``).

        Raises
        ------
        InvalidInput
            If the offer belongs to another product, was reported with another outcome, or y is not a possible outcome.
        """
        if not isinstance(offer, Offer) or offer._params.product != self.product:
            raise InvalidInput(f"sold takes an offer of this device, for {self.product}.")
        bought = outcome(offer._params, y)
        with offer._sale.lock:
            if offer._sale.y is None:
                made = self._report(offer, bought)
                self._outbox.add({"id": offer.id, "version": offer.version, "report": made})
                offer._sale.y = bought  # after a failure above, a retry charges the ledger again
            elif offer._sale.y != bought:
                raise InvalidInput(
                    "This offer was reported with another outcome before; there is one report per offer."
                )
        refused = self.refused
        return send and self.flush() == 0 and self.refused == refused

    def _report(self, offer: Offer, y: float) -> dict[str, Any] | None:
        """Charge the ledger and make the report; None if none is asked for or the budget is spent."""
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
        """Number of reports that the service has not acknowledged."""
        return len(self._outbox)

    @property
    def damaged(self) -> int:
        """Number of report files that could not be read or do not name their service. They stay in the folder."""
        return self._outbox.damaged

    def flush(self) -> int:
        """Send the waiting reports; return how many still wait. ``problem`` says why."""
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
                    batch = 1  # the service refuses a batch as a whole: send one at a time to identify the bad report
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
        """Close the connection. With a ``folder``, waiting reports stay on disk."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Device for {self.product}: {self.waiting} reports wait>"
