"""``hushprice serve --load``: a policy of one's own, in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.paths import ROOT
from tests.support.postgres import Postgres

POLICY = ROOT / "tests" / "support" / "own_posterior.py"
PRODUCTS = """
[products.coffee]
policy = "diagonal"
family = "logistic"
dim = 2
prices = [0.0, 3.0]
"""
RUN = "from hushprice.cli.app import main; main()"
SECRET = "an admin key for this test alone"


@contextmanager
def serving(folder: Path, *options: str, **environment: str) -> Iterator[dict[str, Any]]:
    """A running ``hushprice serve``: what it said when it started."""
    (folder / "products.toml").write_text(PRODUCTS, encoding="utf-8")
    chosen = ("--products", "products.toml", "--port", "0", "--json", "--load", str(POLICY))
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "serve", *chosen, *options],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            pytest.fail(process.communicate(timeout=10)[1])
        yield json.loads(line)
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


def sell(client: httpx.Client, n: int) -> None:
    """Sell to n customers."""
    for i in range(n):
        offer = client.post("/v1/products/coffee/offers", json={"context": [1.0, 0.1 * (i % 7)]})
        assert offer.status_code == 200, offer.text
        one = {"offer": offer.json()["offer"], "y": float(i % 2)}
        assert client.post("/v1/products/coffee/outcomes", json=one).status_code == 200


def verified(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``hushprice verify``."""
    return subprocess.run(
        [sys.executable, "-c", RUN, "verify", *options],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def operate(said: dict[str, Any], key: str) -> None:
    """Sell, look at what was learned, freeze."""
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=said["url"], headers=headers, timeout=60.0) as client:
        sell(client, 30)
        summary = client.get("/v1/products/coffee/summary")
        assert summary.json()["policy"] == "diagonal"
        assert client.get("/v1/products/coffee/curve", params={"context": "1,0.5"}).json()["learned"] is True
        frozen = client.post("/v1/products/coffee/mode", json={"mode": "frozen"})
        assert frozen.status_code == 200, frozen.text
        sell(client, 2)


def test_serve_and_verify_with_a_policy_of_ones_own(tmp_path: Path) -> None:
    with serving(tmp_path) as said:
        operate(said, said["key"])
    result = verified(tmp_path, "--load", str(POLICY))
    assert (result.returncode, "the same to the last bit" in result.stdout) == (0, True), result.stderr
    without = verified(tmp_path)
    assert (without.returncode, "diagonal" in without.stdout + without.stderr) == (1, True)


def test_every_worker_loads_the_policy(tmp_path: Path, server: Postgres) -> None:
    url = server.url(f"load-{uuid4().hex[:8]}")
    environment = {"HUSHPRICE_DATABASE": url, "HUSHPRICE_ADMIN_KEY": SECRET.replace(" ", "-")}
    with serving(tmp_path, "--workers", "2", "--rate", "0", **environment) as said:
        operate(said, environment["HUSHPRICE_ADMIN_KEY"])
    result = verified(tmp_path, HUSHPRICE_DATABASE=url, HUSHPRICE_LOAD=str(POLICY))
    assert (result.returncode, "rebuilt from" in result.stdout) == (0, True), result.stderr
