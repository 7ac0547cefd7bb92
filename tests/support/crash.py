"""The crash test: the server is killed without warning at random moments, under load, again and again.

Clients send reports in batches and one by one, ask for offers and tell outcomes, all at once. Whatever was not
acknowledged when the server died they send again, under the same id, to the next one; and now and then what was. In the
end:

    lost      acknowledged, and not in the log
    twice     in the log, or in what was learned, more often than sent under one id
    changed   in the log otherwise than it was sent or answered
    strange   in the log, and never sent

must all be 0, and what the last server knew must be what the log gives when folded from its start, to the last bit, and
so must be the snapshots and the index of keys.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hushprice.service import Store
from hushprice.service.storage.replay import rebuild, verify

PRODUCTS = """
[products.coffee]
policy = "etc-ldp-doubling"
family = "logistic"
dim = 3
prices = [1.0, 5.0]
epsilon = 2.0
z_max = 2.0
[products.tea]
policy = "semi-myopic"
family = "logistic"
dim = 2
prices = [1.0, 5.0]
[products.tea.outcomes]
wait = 1.5
then = "no-sale"
"""
STRETCH = (0.05, 0.7)  # seconds of load before each kill
Item = dict[str, Any]


@dataclass
class Verdict:
    """What came of it; see the head of this file."""

    database: str
    workers: int
    kills: int  # processes that ran, and were ended without warning
    cut_off: int  # requests that got no answer
    acknowledged: int  # reports, offers and outcomes
    events: int
    lost: int
    twice: int
    changed: int
    strange: int
    same_bits: bool
    verified: bool  # the snapshots, and the index of keys
    seconds: float

    @property
    def good(self) -> bool:
        """Whether nothing was lost, counted twice, changed or made up."""
        return not (self.lost or self.twice or self.changed or self.strange) and self.same_bits and self.verified


class Server:
    """``hushprice serve`` as a process, or as a group of them."""

    def __init__(self, folder: Path, database: str, workers: int) -> None:
        self.folder, self.database, self.workers = folder, database, workers
        (folder / "products.toml").write_text(PRODUCTS)
        self.address, self.key = ("", 0), ""
        self.process: subprocess.Popen[str] | None = None
        self.killed = 0  # processes, or groups of them, that were running when they were ended without warning

    def start(self) -> None:
        """Start it, and wait until it takes requests."""
        command = [
            sys.executable, "-m", "hushprice", "serve", "--products", str(self.folder / "products.toml"), "--database",
            self.database, "--port", "0", "--workers", str(self.workers), "--rate", "0", "--json",
        ]  # fmt: skip
        environment = {**os.environ, "HUSHPRICE_SNAPSHOT_EVERY": "150", "HUSHPRICE_RECENT_KEYS": "200"}
        with (self.folder / "server.log").open("a") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, start_new_session=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"The server did not start:\n{(self.folder / 'server.log').read_text()[-3000:]}")
        start = json.loads(line)
        parts = urlsplit(start["url"])
        assert parts.hostname is not None
        assert parts.port is not None
        line_in = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        line_in.request("GET", "/healthz")  # answered as soon as there is a worker
        line_in.getresponse().read()
        line_in.close()
        self.key, self.address = start["key"], (parts.hostname, parts.port)

    def kill_one(self, rng: random.Random) -> bool:
        """End one of several workers without warning; the others go on, and another is started in its place."""
        workers = self._workers()
        if len(workers) < self.workers:
            return False
        victim = rng.choice(workers)
        os.kill(victim, signal.SIGKILL)
        while victim in self._workers():  # until it is gone
            time.sleep(0.005)
        self.killed += 1
        return True

    def _workers(self) -> list[int]:
        """The worker processes that run now."""
        assert self.process is not None
        listing = subprocess.run(
            ["pgrep", "-P", str(self.process.pid), "-f", "spawn_main"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return [int(line) for line in listing.stdout.split()]

    def kill(self) -> None:
        """End it with all of its workers, without warning."""
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.killed += self.process.wait(60) == -signal.SIGKILL  # not if it had ended by itself
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None


class Client(threading.Thread):
    """Somebody who sends and sends again, until everything is acknowledged."""

    def __init__(self, number: int, seed: int, server: Server, pace: threading.Event, done: threading.Event) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self.number, self.server, self.pace, self.done = number, server, pace, done
        self.rng = random.Random(f"{seed} {number}")
        self.sent: dict[str, Item] = {}  # by key in the log
        self.acknowledged: dict[str, Item] = {}  # with what was answered
        self.open: list[str] = []  # offers without an outcome yet
        self.cut = 0
        self.refused: list[str] = []
        self._line: http.client.HTTPConnection | None = None
        self._where = ("", 0)

    def run(self) -> None:
        """Send until the end; then only what is not acknowledged yet."""
        while not (self.done.is_set() and not self.waiting()):
            self.pace.wait(1.0)
            again = self.waiting()
            if again and (self.done.is_set() or self.rng.random() < 0.7):
                self._again(self.rng.choice(again))
            elif self.acknowledged and self.rng.random() < 0.1:
                self._again(self.rng.choice(list(self.acknowledged)))
            elif self.number % 2:
                self._reports()
            else:
                self._shop()

    def waiting(self) -> list[str]:
        """Keys that were sent and not acknowledged."""
        return [key for key in self.sent if key not in self.acknowledged]

    def _again(self, key: str) -> None:
        item, known = self.sent[key], key in self.acknowledged
        if key.startswith("o:"):
            self._offer(item)
            return
        where, body = ("coffee/reports", {"reports": [item]}) if key.startswith("r:") else ("tea/outcomes", item)
        answer = self._post(where, body, [key])
        if known and answer is not None and answer["known"] != 1:
            self.refused.append(f"what was acknowledged before is not known: {answer}")

    def _reports(self) -> None:
        n = self.rng.choice((1, 1, 5, 40))
        version = 0 if self.rng.random() < 0.1 else len(self.acknowledged)  # near enough, and now and then stale
        items = []
        for _ in range(n):
            made = {"seed": f"{self.rng.getrandbits(64):016x}", "index": self.rng.getrandbits(1)}
            report = None if self.rng.random() < 0.1 else made
            items.append({"id": f"{self.rng.getrandbits(128):032x}", "version": version, "report": report})
        keys = [f"r:{item['id']}" for item in items]
        self.sent.update(zip(keys, items, strict=True))
        body = {"reports": items} if n > 1 or self.rng.random() < 0.5 else items[0]
        self._post("coffee/reports", body, keys)

    def _shop(self) -> None:
        if self.open and self.rng.random() < 0.5:
            offer = self.open.pop(self.rng.randrange(len(self.open)))
            item = {"offer": offer, "y": float(self.rng.getrandbits(1))}
            self.sent[f"y:{offer}"] = item
            self._post("tea/outcomes", item, [f"y:{offer}"])
        else:
            name = f"{self.number}-{self.rng.getrandbits(64):x}"
            item = {"id": name, "context": [1.0, self.rng.random()]}
            self.sent[f"o:{name}"] = item
            self._offer(item)

    def _offer(self, item: Item) -> None:
        before = self.acknowledged.get(f"o:{item['id']}")
        answer = self._post("tea/offers", item, [f"o:{item['id']}"])
        if answer is not None and before is None:
            self.open.append(item["id"])
        if answer is not None and before is not None and answer != before:
            self.refused.append(f"an offer was {before}, then {answer}")

    def _post(self, path: str, body: Item, keys: list[str]) -> Any:
        """Send; None if nothing came back. Only an answer of 200 counts."""
        answer = self.ask("POST", f"/v1/products/{path}", body)
        if answer is not None:
            for key in keys:
                self.acknowledged[key] = answer
        return answer

    def ask(self, method: str, path: str, body: Item | None = None) -> Any:
        """One request; None if it was cut off, or is to be tried again."""
        try:
            if self._line is None or self._where != self.server.address:
                self._where = self.server.address
                self._line = http.client.HTTPConnection(*self._where, timeout=30)
            headers = {"Authorization": f"Bearer {self.server.key}", "Content-Type": "application/json"}
            self._line.request(method, path, None if body is None else json.dumps(body), headers)
            response = self._line.getresponse()
            answer_body = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError):
            self.cut += 1
            self._line = None
            time.sleep(0.005)
            return None
        if response.status == 200:
            return answer_body
        if response.status not in (401, 503):  # 401: the key of the server before
            self.refused.append(f"{method} {path}: {response.status} {answer_body}")
        time.sleep(0.005)
        return None


def run(kills: int, database: str, *, seed: int = 1, workers: int = 1, clients: int = 4) -> Verdict:
    """So many kills on a new database at this URL."""
    began, rng = time.perf_counter(), random.Random(seed)
    pace, done = threading.Event(), threading.Event()
    with tempfile.TemporaryDirectory(prefix="hp-crash-") as folder:
        server = Server(Path(folder), database, workers)
        crowd = [Client(i, seed, server, pace, done) for i in range(clients)]
        try:
            server.start()
            for client in crowd:
                client.start()
            for _ in range(kills):
                pace.set()
                time.sleep(rng.uniform(*STRETCH))
                if workers > 1 and rng.random() < 0.75 and server.kill_one(rng):
                    continue
                server.kill()
                pace.clear()  # no use in knocking at a closed door
                server.start()
            pace.set()
            time.sleep(0.3)
            done.set()
            for client in crowd:
                client.join(120)
            live = {name: _state(crowd[0], name) for name in ("coffee", "tea")}
            killed = server.killed  # the one that is left does not count
        finally:
            done.set()
            pace.set()
            server.kill()
    if refusals := [text for client in crowd for text in client.refused]:
        raise AssertionError(f"{len(refusals)} requests were refused, first of all {refusals[0]}")
    if left := sum(len(client.waiting()) for client in crowd):
        raise AssertionError(f"{left} requests were never acknowledged")
    return judge(database, crowd, live, kills=killed, workers=workers, seconds=time.perf_counter() - began)


def _state(client: Client, name: str) -> dict[str, Any]:
    for _ in range(100):
        state = client.ask("GET", f"/v1/products/{name}/state")
        if state is not None:
            return dict(state)
    raise AssertionError("the last server does not answer")


def judge(
    database: str, crowd: list[Client], live: dict[str, dict[str, Any]], *, kills: int, workers: int, seconds: float
) -> Verdict:
    """Hold the log against what was sent and answered."""
    sent = {key: item for client in crowd for key, item in client.sent.items()}
    answered = {key: answer for client in crowd for key, answer in client.acknowledged.items()}
    store = Store.open(database)
    try:
        in_log: Counter[str] = Counter()
        changed, same, verified = 0, True, True
        learned = 0
        for product in store.products():
            for number, event in enumerate(store.events(product.id), start=1):
                in_log[event.key] += 1
                same &= event.seq == number
                changed += event.key in sent and not _as_sent(event.kind, event.body, sent[event.key], answered)
            learner = rebuild(store, product.name)
            tally = learner.statistics
            state = {"seq": learner.seq, "version": learner.version, "digest": learner.digest()}
            same &= state == live[product.name]
            verified &= verify(store, product.name).ok
            learned += tally.reports + tally.silent if product.definition.private else tally.customers
    finally:
        store.close()
    once = sum(key[0] in "ro" for key in in_log)
    return Verdict(
        database=database.split(":")[0],
        workers=workers,
        kills=kills,
        cut_off=sum(client.cut for client in crowd),
        acknowledged=len(answered),
        events=in_log.total(),
        lost=sum(key not in in_log for key in answered),
        twice=sum(n > 1 for n in in_log.values()) + abs(learned - once),
        changed=changed,
        strange=sum(key not in sent and key[0] != "x" for key in in_log),
        same_bits=same,
        verified=verified,
        seconds=seconds,
    )


def _as_sent(kind: str, body: Any, item: Item, answered: dict[str, Item]) -> bool:
    if kind == "report":
        return bool({"version": item["version"], "report": item["report"]} == body)
    if kind == "outcome":
        return bool({"y": item["y"]} == body)
    answer = answered.get(f"o:{item['id']}")
    same_answer = answer is None or all(answer[name] == body[name] for name in ("price", "propensity", "version"))
    return body["z"] == item["context"] and same_answer
