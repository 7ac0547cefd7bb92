"""The measurements of the structure count what they say."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tools.source import PACKAGE, functions, modules
from tools.structure import folders, main, parameters
from tools.walk import Trace

from tests.support.paths import ROOT

LONG = ", ".join(f"p{i}" for i in range(11))


def plant(root: Path, files: dict[str, str]) -> Path:
    """A git repository with some files in the package's folder."""
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    for name, text in files.items():
        path = root / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def test_parameters_are_counted_without_self(tmp_path: Path) -> None:
    text = f"""
def ten({LONG.removesuffix(", p10")}): ...
def eleven(p0, /, {LONG.removeprefix("p0, ").replace("p9", "*, p9")}): ...
class C:
    def method(self, {LONG.removesuffix(", p10")}): ...
    @staticmethod
    def static({LONG}): ...
    @classmethod
    def make(cls, {LONG.removesuffix(", p10")}):
        def inner({LONG}, *rest, **options): ...
"""
    root = plant(tmp_path, {"a.py": text})
    ((path, tree),) = modules(root)
    assert {each.name: each.parameters for each in functions(path, tree)} == {
        "ten": 10, "eleven": 11, "C.method": 10, "C.static": 11, "C.make": 10, "C.make.inner": 13,
    }  # fmt: skip
    assert parameters(root)[0] == "functions with more than 10 parameters: 3"
    assert parameters(root)[1].split() == ["13", "a.py:10", "C.make.inner"]


def test_folders_and_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = plant(tmp_path, {"a.py": "def f():\n    x = 1\n    return x\n", "b/c.py": "", "b/d.css": "", "b/e.py": ""})
    (root / ".gitignore").write_text("*.py\n")  # ignored files are no part of the tree
    subprocess.run(["git", "-C", str(root), "add", "--force", "src"], check=True)
    (root / PACKAGE / "b" / "ignored.py").write_text("")
    lines = folders(root)
    assert lines[:3] == ["files per folder: most 3, in 2 folders", "     3  src/hushprice/b", "     1  src/hushprice"]
    assert lines[-1] == "lines per function: 95th percentile 3, most 3, in 1 functions"
    main(["folders", "--root", str(root)])
    assert capsys.readouterr().out.splitlines()[: len(lines)] == lines


def test_calls_between_files_count_starts_and_pass_over_libraries(tmp_path: Path) -> None:
    (tmp_path / "walk_callee.py").write_text(
        "def count(n):\n"
        "    for i in range(n):\n"
        "        yield twice(i)\n"
        "def twice(i):\n"
        "    return 2 * i\n"
    )  # fmt: skip
    (tmp_path / "walk_caller.py").write_text(
        "import functools, threading\n"
        "from walk_callee import count, twice\n"
        "def run():\n"
        "    assert list(count(5)) == [0, 2, 4, 6, 8]\n"  # one call: the five resumptions are none
        "    assert functools.reduce(lambda a, b: twice(b), [0, 1, 2]) == 4\n"  # two calls, from the lambda's file
        "    thread = threading.Thread(target=twice, args=(1,))\n"  # none: nobody on its stack
        "    thread.start()\n"
        "    thread.join()\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        caller = load(tmp_path / "walk_caller.py")
    finally:
        sys.path.remove(str(tmp_path))
    trace = Trace(tmp_path)
    trace.install()
    try:
        caller.run()  # not recorded
        with trace.recording():
            caller.run()
    finally:
        trace.remove()
    assert tuple(trace.files) == ("walk_caller.py", "walk_callee.py")
    assert trace.pairs == {("walk_caller.py", "walk_callee.py"): 3}


def test_requests_are_followed_through_the_service() -> None:
    command = [sys.executable, "-m", "tools.structure", "walk"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300).stdout
    rows = [line.split() for line in printed.splitlines()[1:5]]
    assert [row[:-2] for row in rows] == [["private", "report"], ["GET", "params"], ["offer"], ["outcome"]]
    assert all(5 < int(row[-2]) < int(row[-1]) < 200 for row in rows)
    assert "  service/core/learner.py" in printed
