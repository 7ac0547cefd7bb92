"""docs/tutorial.md runs and prints what it says. Rewrite its output with ``python -m tests.docs.test_tutorial``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.paths import KARLAN_ZINMAN, ROOT

TUTORIAL = ROOT / "docs" / "tutorial.md"
WIDTH = 100
SHORT = " --replications 2 --horizon 1500 --epsilons 4 --opt-out none"

needs_data = pytest.mark.skipif(not KARLAN_ZINMAN.exists(), reason="the price experiment is not part of the project")


def sessions(text: str) -> list[str]:
    """The blocks in which commands are typed."""
    return re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)


def commands(block: str) -> list[tuple[str, str]]:
    """(command, output) of each command of a block."""
    blocks: list[tuple[list[str], list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            blocks.append(([line[2:]], []))
        elif line.startswith("> ") and not blocks[-1][1]:
            blocks[-1][0].append(line[2:])
        else:
            blocks[-1][1].append(line)
    return [("\n".join(typed), "\n".join(printed).strip("\n")) for typed, printed in blocks]


def run(command: str, folder: Path) -> str:
    """What a command prints in a terminal of 100 columns."""
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "COLUMNS": str(WIDTH), "PATH": paths, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")


@needs_data
def test_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    (tmp_path / KARLAN_ZINMAN.name).symlink_to(KARLAN_ZINMAN)
    text = TUTORIAL.read_text(encoding="utf-8")
    for block in sessions(text):
        for command, printed in commands(block):
            if command.startswith("hushprice plan"):  # minutes: run short, and not compared
                assert "Widen the price experiment" in printed
                run(command + SHORT, tmp_path)
                assert (tmp_path / "plan" / "report.html").stat().st_size > 10_000
            else:
                assert run(command, tmp_path) == printed, command
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    (tmp_path / "tutorial.py").write_text(code, encoding="utf-8")
    run(f"{sys.executable} tutorial.py", tmp_path)


def rewrite(folder: Path) -> None:
    """Run everything in full and put what it prints into the tutorial."""
    if not (folder / KARLAN_ZINMAN.name).exists():
        (folder / KARLAN_ZINMAN.name).symlink_to(KARLAN_ZINMAN)
    text = TUTORIAL.read_text(encoding="utf-8")
    for block in sessions(text):
        lines = []
        for command, _ in commands(block):
            typed = command.splitlines()
            lines += [f"$ {typed[0]}", *(f"> {line}" for line in typed[1:])]
            began = time.perf_counter()
            printed = run(command, folder)
            print(f"{time.perf_counter() - began:.0f} s: {typed[0]}", flush=True)
            lines += [printed] if printed else []
        text = text.replace(block, "\n".join(lines) + "\n")
    TUTORIAL.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        rewrite(Path(name))
