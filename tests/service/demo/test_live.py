"""``hushprice live``: the demo shop with simulated customers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hushprice.cli.commands.live import live


def test_live_demo_stops_by_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    database = tmp_path / "kept.db"
    live(database=f"sqlite:///{database}", port=0, rate=120.0, seconds=1.5, seed=1)
    said = capsys.readouterr().out
    assert "/#key=hp_admin_" in said
    assert database.exists()
    assert int(said.partition("Stopped after ")[2].split()[0]) > 20


def test_live_demo_ends_cleanly_by_a_signal(tmp_path: Path) -> None:
    """Exit code 0, nothing on standard error, no file left."""
    command = [sys.executable, "-c", "from hushprice.cli.commands.live import live; live(port=0, rate=30.0)"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        try:
            while not process.stdout.readline().startswith("Stop"):
                assert process.poll() is None
            assert list(tmp_path.glob("hushprice-demo-*"))
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30.0)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    assert "Nothing is kept." in out
    assert not list(tmp_path.iterdir())
