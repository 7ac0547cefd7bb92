"""``hushprice demo --live``: the pricing service with simulated customers, to look at."""

from __future__ import annotations

import math
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from hushprice.cli.requirements import needing
from hushprice.errors import finite


def live(
    *,
    database: str | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    rate: float = 20.0,
    seconds: float | None = None,
    seed: int | None = None,
) -> None:
    """Run the service with a private and a plain product and simulated customers, until Ctrl+C.

    Without a database all is kept in a temporary file, which is removed in the end. ``rate`` is customers per second,
    ``port`` 8000 or the next free one unless given, ``seconds`` when to stop by itself.
    """
    finite("rate", rate, minimum=0.0, maximum=1_000.0, strict=True)
    if seconds is not None:
        finite("seconds", seconds, minimum=0.0)
    with needing("The live demo", "service"):
        from hushprice.service.demo import shop
        from hushprice.service.http.server import patience
        from hushprice.service.settings import Settings
    with tempfile.TemporaryDirectory(prefix="hushprice-demo-") as folder, _stopping() as stop:
        secrets, keys = shop.keys()
        where = f"sqlite:///{Path(folder) / 'demo.db'}" if database is None else database
        settings = Settings(database=where, host=host, keys=keys, log_format="none").with_shop()
        with patience(_say) as ready, shop.running(settings, shop.definitions(), port=port, stop=stop) as url:
            ready()
            crowd = shop.Crowd(url, device_key=secrets["device"], seller_key=secrets["seller"], rate=rate, seed=seed)
            crowd.start()
            print("A shop with simulated customers: coffee (private) and tea (plain).")
            print(f"Dashboard  {url}/#key={secrets['admin']}")
            print(f"Shop       {url}/shop  (buy coffee yourself)")
            print(f"Stop       Ctrl+C{'' if seconds is None else f', or wait {seconds:g} seconds'}", flush=True)
            try:
                _wait(stop, seconds)
            finally:
                crowd.stop()
        served = ", ".join(f"{n} customers of {name}" for name, n in crowd.served.items())
        print(f"Stopped after {served}.{' Nothing is kept.' if database is None else ''}", flush=True)


def _say(line: str) -> None:
    print(line, flush=True)


def _wait(stop: threading.Event, seconds: float | None) -> None:
    """Wait until it is set, but in short turns.

    The system may deliver a signal to any thread. Python runs its handler in the main thread, which must therefore not
    sleep without end.
    """
    end = math.inf if seconds is None else time.monotonic() + seconds
    while not stop.wait(min(0.2, max(0.0, end - time.monotonic()))) and time.monotonic() < end:
        pass


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that Ctrl+C and SIGTERM set, where this is the main thread."""
    stop = threading.Event()

    def handle(_: int, __: FrameType | None) -> None:
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
