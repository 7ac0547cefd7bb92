"""The products that this process has loaded: learners, indexes of keys, and the views that any thread may read."""

from __future__ import annotations

import logging
import time
import traceback
from contextlib import suppress

from hushprice.errors import HushpriceError
from hushprice.service.core.learner import Learner
from hushprice.service.core.warmup import warm_up
from hushprice.service.errors import DamagedLog, NotFound, Rejected, Unavailable
from hushprice.service.storage import replay
from hushprice.service.storage.key_index import KeyIndex, open_key_index
from hushprice.service.storage.store import Product, Store
from hushprice.service.writer.messages import View

RETRY_AFTER = 10.0  # seconds after which a log that could not be folded is tried again
log = logging.getLogger(__name__)


class LoadedProducts:
    """Products by name. Only the writer's thread changes them; any thread may read a view.

    Parameters
    ----------
    store : Store
        Where the logs are.
    snapshot_every : int
        Events from one snapshot to the next.
    recent_keys : int
        Event keys of all products that may be in memory before they go into the index.
    """

    def __init__(self, store: Store, *, snapshot_every: int, recent_keys: int) -> None:
        self.store, self.snapshot_every, self.recent_keys = store, snapshot_every, recent_keys
        self.products: dict[str, Product] = {}
        self.learners: dict[str, Learner] = {}
        self.key_indexes: dict[str, KeyIndex] = {}  # of keys in their logs
        self.seen: dict[str, float] = {}  # when the log was last read
        self._views: dict[str, View] = {}
        self._shown: dict[str, Learner] = {}  # of which the views are
        self._broken: dict[str, tuple[float, str]] = {}  # products that cannot be served: since when, and why
        self._next_snapshot: dict[str, tuple[int, int]] = {}  # event of the last snapshot, and events until the next

    def view(self, name: str) -> View:
        """A product's state as this process last read it."""
        view = self._views.get(name)
        if view is None:
            if name in self._broken:
                raise DamagedLog(self._broken[name][1])
            raise NotFound("There is no such product.")
        return view

    def views(self) -> list[View]:
        """The states of all products as this process last read them."""
        return sorted(self._views.values(), key=lambda view: view.name)

    def find(self, name: str) -> Product:
        """Return a product, after loading it if necessary. For the writer's thread."""
        if name not in self.products:
            since, why = self._broken.get(name, (-RETRY_AFTER, ""))
            if time.monotonic() - since < RETRY_AFTER:
                raise DamagedLog(why)
            try:
                product = self.store.product(name)
                if product is None:
                    raise NotFound("There is no such product.")
                self.load(product)
            except Exception as problem:
                if isinstance(problem, (NotFound, Unavailable)) and not isinstance(problem, (DamagedLog, Rejected)):
                    raise
                log_problem(problem)
                self._views.pop(name, None)
                self._broken[name] = time.monotonic(), _reason(name, problem)
                raise DamagedLog(self._broken[name][1]) from None
            self._broken.pop(name, None)
        return self.products[name]

    def renew(self, name: str) -> None:
        """Load a product again if its definition has changed. For the writer's thread."""
        product = self.store.product(name)
        if product is not None and product.definition != self.products[name].definition:
            self.load(product)

    def find_unless_damaged(self, name: str) -> None:
        """:meth:`find`, for whom one damaged product must not stop the others."""
        with suppress(DamagedLog):  # callers get the error, and it is logged
            self.find(name)

    @property
    def room(self) -> int:
        """Event keys of one product that may be in memory."""
        return max(1, self.recent_keys // max(1, len(self.products)))

    def load(self, product: Product) -> None:
        """Read a product's log, and warm up the code that its first customer would wait for."""
        self.read(product)
        try:
            warm_up(product.definition)
        except Exception as problem:  # callers will get the error; the product can still be read
            log_problem(problem)
        self.publish(product.name, self.learners[product.name])

    def read(self, product: Product) -> None:
        """Fold a product's log, and open its index of keys."""
        with self.store.read() as connection:
            learner = replay.fold(self.store, product, connection)
            newest = self.store.snapshots(product.id, connection=connection)
        self.key_indexes[product.name] = open_key_index(self.store, product, self.room)
        self.products[product.name], self.learners[product.name] = product, learner
        self._next_snapshot[product.name] = newest[0][0] if newest else 0, self.snapshot_every

    def publish(self, name: str, learner: Learner) -> None:
        """Replace the product's view by one of the learner as it stands."""
        self.seen[name] = time.monotonic()
        before = self._views.get(name)
        if self._shown.get(name) is not learner:
            before = None  # the definition has changed, or the log was read again
        self._shown[name] = learner
        if before is not None and before.seq == learner.seq:
            return
        same = before is not None and before.version == learner.version
        document = before.document if before is not None and same else None
        if document is None and learner.definition.private:
            document = learner.document()
        self._views[name] = View(
            definition=learner.definition,
            seq=learner.seq,
            version=learner.version,
            at=learner.at,
            mode=learner.mode,
            guardrails=learner.guardrails,
            params=learner.params,
            document=document,
            counts=learner.statistics.counts,
            waiting=len(learner.open_offers),
        )

    def keep_snapshot(self, name: str, learner: Learner, *, last: bool = False) -> None:
        """Write a snapshot if one is due; without one, a restart only takes longer."""
        seq, pause = self._next_snapshot[name]
        if learner.seq - seq < (1 if last else pause):
            return
        try:
            product = self.products[name]
            others = self.store.snapshots(product.id)
            if not others or learner.seq - others[0][0] >= (1 if last else pause):
                size = replay.write_snapshot(self.store, product, learner)
                pause = max(self.snapshot_every, size // 1_000)  # a large one is not written for a few events
            self._next_snapshot[name] = learner.seq, pause
        except Exception as problem:
            self._next_snapshot[name] = learner.seq, pause
            log_problem(problem)


def log_problem(problem: BaseException) -> None:
    """Log the type and place of an exception, without any value."""
    problem = problem.__cause__ or problem  # the cause of Spoiled
    frames = traceback.extract_tb(problem.__traceback__)
    where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames[-6:]))
    log.error("the writer met %s in %s", type(problem).__name__, where)


def _reason(name: str, problem: Exception) -> str:
    """Why a product is not served; without texts of unexpected exceptions, which may contain a customer's data."""
    if isinstance(problem, DamagedLog):
        return str(problem)
    reason = str(problem) if isinstance(problem, HushpriceError) else f"({type(problem).__name__})"
    return f"The product {name} is not served: what is on record of it cannot be read here. {reason}"
