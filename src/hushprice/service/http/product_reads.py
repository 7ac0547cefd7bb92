"""Views of products that are fresh enough: another process may have written to their logs."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from hushprice.service.errors import NotFound
from hushprice.service.http.rate_limits import Waiter
from hushprice.service.writer.messages import View

if TYPE_CHECKING:
    from hushprice.service.writer.service import Service


class ProductReads:
    """Reads views of products, refreshed from the database where that is due.

    A refresh costs the writer a query. :meth:`Service.refresh` makes none if the last one is recent; requests that want
    the same refresh at the same time share one.
    """

    ALL_EVERY = 1.0  # seconds between two refreshes of all products

    def __init__(self, service: Service, waiter: Waiter) -> None:
        self._service, self._waiter = service, waiter
        self._under_way: dict[str | None, asyncio.Task[None]] = {}
        self._all_at = -self.ALL_EVERY  # when all products were refreshed

    async def view(self, name: str, *, fresh: bool = True) -> View:
        """Return the view of a product, at most a tenth of a second old if ``fresh``."""
        try:
            view = self._service.view(name)
        except NotFound:
            await self._refresh(None)  # another process may have created it
            return self._service.view(name)
        if not fresh:
            return view
        await self._refresh(name)
        return self._service.view(name)

    async def products(self) -> list[View]:
        """Return the views of all products, at most a second old."""
        await self._refresh(None)
        if time.monotonic() - self._all_at >= self.ALL_EVERY:
            began = time.monotonic()
            await asyncio.gather(*(self._refresh(view.name) for view in self._service.products()))
            self._all_at = began
        return self._service.products()

    async def _refresh(self, name: str | None) -> None:
        """Read what is new in a product's log or, without a name, which products there are."""
        task = self._under_way.get(name)
        if task is None:
            future = self._service.refresh(name)
            if future.done():
                return future.result()
            task = self._under_way[name] = asyncio.create_task(self._waiter.result(future))
            task.add_done_callback(partial(self._refreshed, name))
        await asyncio.shield(task)  # a client that hangs up does not cancel it for the others
        return None

    def _refreshed(self, name: str | None, task: asyncio.Task[None]) -> None:
        del self._under_way[name]
        if not task.cancelled():
            task.exception()  # each waiting request raises it; here it counts as retrieved
