"""What the endpoints of one application share."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from hushprice.service.http.access_log import Log
from hushprice.service.http.auth import Keys
from hushprice.service.http.metrics import Metrics
from hushprice.service.http.product_reads import ProductReads
from hushprice.service.http.rate_limits import Buckets, Rates, Waiter
from hushprice.service.settings import Settings

if TYPE_CHECKING:
    from hushprice.service.http.routes.sales import EncodedParams
    from hushprice.service.writer.service import Service

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class AppContext:
    """The service behind the application and the application's own state."""

    service: Service
    settings: Settings
    keys: Keys
    rates: Rates
    anonymous: Buckets  # requests without a valid key, by address
    waiter: Waiter
    reads: ProductReads
    metrics: Metrics
    log: Log
    encoded_params: dict[str, EncodedParams] = field(default_factory=dict)  # by product

    @classmethod
    def of(cls, service: Service, settings: Settings) -> AppContext:
        """Make the parts for a service; reads the table of keys."""
        waiter = Waiter(settings.patience)
        context = cls(
            service=service,
            settings=settings,
            keys=Keys(service.store.keys, settings.keys),
            rates=Rates(rate=settings.rate, burst=settings.burst),
            anonymous=Buckets(rate=settings.stranger_rate, burst=settings.stranger_burst),
            waiter=waiter,
            reads=ProductReads(service, waiter),
            metrics=Metrics(service.products, service.queued),
            log=Log(settings.log_format),
        )
        context.keys.refresh()
        return context

    async def result(self, future: Future[T]) -> T:
        """Wait for the writer's answer to a command."""
        return await self.waiter.result(future)
