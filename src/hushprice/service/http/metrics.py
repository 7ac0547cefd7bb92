"""Metrics for Prometheus. Labels are route templates, methods, statuses and names of products, never user input."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from hushprice.service.writer.messages import View

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Metrics:
    """The counters of one process. Several processes share them in the folder ``PROMETHEUS_MULTIPROC_DIR``.

    Parameters
    ----------
    products : callable
        Returns the views of all products.
    queue : callable
        Returns the number of waiting commands.
    """

    def __init__(self, products: Callable[[], list[View]], queue: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        multiprocess = MULTIPROCESS in os.environ
        registry = CollectorRegistry() if multiprocess else self._registry
        self._requests = Counter("hushprice_requests", "Requests.", ("route", "method", "status"), registry=registry)
        self._latency = Histogram(
            "hushprice_request_seconds", "Seconds to answer.", ("route", "method"), buckets=SECONDS, registry=registry
        )
        self._events = Counter(
            "hushprice_events",
            "Events accepted; 'known': sent before.",
            ("product", "kind"),
            registry=registry,
        )
        if multiprocess:
            from prometheus_client.multiprocess import MultiProcessCollector

            MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        self._registry.register(_State(products, queue))
        self._counted: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._kinds: dict[tuple[str, str], Counter] = {}

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        pair = self._counted.get((route, method, status))
        if pair is None:
            pair = self._requests.labels(route, method, str(status)), self._latency.labels(route, method)
            self._counted[route, method, status] = pair
        pair[0].inc()
        pair[1].observe(seconds)

    def events(self, product: str, kind: str, n: int) -> None:
        """Count events of a product that exists."""
        if n:
            counter = self._kinds.get((product, kind))
            if counter is None:
                counter = self._kinds[product, kind] = self._events.labels(product, kind)
            counter.inc(n)

    def page(self) -> bytes:
        """Write all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


class _State(Collector):
    """Metrics that are computed when Prometheus reads them."""

    def __init__(self, products: Callable[[], list[View]], queue: Callable[[], int]) -> None:
        self._products, self._queue = products, queue

    def collect(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily("hushprice_queue_length", "Commands that wait for the writer of this process.")
        waiting.add_metric([], self._queue())
        yield waiting
        version = GaugeMetricFamily("hushprice_version", "Of the published parameters.", labels=["product"])
        offers = GaugeMetricFamily("hushprice_open_offers", "Offers that await an outcome.", labels=["product"])
        stale = GaugeMetricFamily("hushprice_stale_reports", "Reports too old to be learned from.", labels=["product"])
        for view in self._products():
            version.add_metric([view.name], view.version)
            offers.add_metric([view.name], view.waiting)
            stale.add_metric([view.name], view.counts.get("stale", 0))
        yield from (version, offers, stale)
