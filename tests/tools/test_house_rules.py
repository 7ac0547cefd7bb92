"""Each house rule fails on a planted violation, and its allow list can only shrink."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tools.house_rules import ALLOWED, check, main

from tests.support.paths import ROOT
from tests.tools.test_structure import LONG, plant

CLASSES = """
from hushprice.policies.base import Policy, Server
class Sub(Policy[int]): ...
class SubSub(Sub): ...
class SubServer(Server): ...
class Device: ...
"""


def house(root: Path, files: dict[str, str], exceptions: str = "") -> Path:
    """A repository with a package and an allow list."""
    plant(root, {"policies/mine.py": CLASSES} | files)
    (root / ALLOWED).parent.mkdir(exist_ok=True)
    (root / ALLOWED).write_text(exceptions, encoding="utf-8")
    return root


def test_the_rules_hold_here() -> None:
    assert check(ROOT) == []


def test_a_sound_house(tmp_path: Path) -> None:
    text = "from hushprice.policies import Device\nMOST_FILES = 1 << 10\nprint(isinstance(1, int | Device))\n"
    files = {"a.py": text, "b.py": "MOST_FILES: int = 1024\n", "policies/p.py": "isinstance(1, SubSub)\n"}
    command = f"def simulate({LONG}): ...\n"  # its parameters are options of the command line
    assert check(house(tmp_path, files | {"cli/commands/simulate.py": command})) == []


@pytest.mark.parametrize("folder", ["src/hushprice/kernels", "tests/data", "benchmarks", "tools/deep/er"])
def test_a_folder_with_more_than_twenty_files(tmp_path: Path, folder: str) -> None:
    root = house(tmp_path, {})
    (root / folder).mkdir(parents=True, exist_ok=True)
    for i in range(20):
        (root / folder / f"f{i}.txt").touch()
    assert check(root) == []
    (root / folder / "one-more.txt").touch()
    assert check(root) == [f"{folder} holds 21 files, more than 20: sort them into folders."]


def test_files_that_git_ignores_do_not_count(tmp_path: Path) -> None:
    root = house(tmp_path, {f"a/f{i}.txt": "" for i in range(21)})
    (root / ".gitignore").write_text("*.txt\n", encoding="utf-8")
    assert check(root) == []
    subprocess.run(["git", "-C", str(root), "add", "--force", "src"], check=True)
    assert len(check(root)) == 1


@pytest.mark.parametrize("path", ["a.py", "kernels/quote.py", "cli/options.py"])
def test_a_signature_with_more_than_ten_parameters(tmp_path: Path, path: str) -> None:
    (problem,) = check(house(tmp_path, {path: f"def long({LONG}): ...\n"}))
    assert problem.startswith(f"src/hushprice/{path}:1: long has 11 parameters, more than 10: ")


@pytest.mark.parametrize(
    "text",
    [
        "from hushprice.policies import Sub\nisinstance(x, Sub)",
        "from hushprice.policies import SubSub as S\nisinstance(x, S)",
        "from hushprice import policies\nisinstance(x, policies.SubServer)",
        "import hushprice.policies as p\nissubclass(x, (int, p.Sub))",
        "isinstance(x, int | Sub | None)",
        "KINDS = (int, Sub)\nisinstance(x, KINDS)",
        "from hushprice.policies.base import Server as S\nK = S\ndef f(x):\n    return [isinstance(y, K) for y in x]",
        "type(x) is SubServer",
        "match x:\n    case Sub(): pass",
        "class Far(Sub): ...\nisinstance(x, Far)",  # a policy that is defined elsewhere
    ],
)
def test_a_question_about_the_class_of_a_policy(tmp_path: Path, text: str) -> None:
    (problem,) = check(house(tmp_path, {"service/core/a.py": text}))
    assert problem.startswith("src/hushprice/service/core/a.py:")
    assert problem.endswith("let the policy or server describe itself.")


@pytest.mark.parametrize(("one", "other"), [("7", "8"), ("(1, 2)", "'text'"), ("1 << 10", "1_025"), ("{}", "dict()")])
def test_a_constant_with_two_values(tmp_path: Path, one: str, other: str) -> None:
    (problem,) = check(house(tmp_path, {"a.py": f"MOST = {one}\n", "b/c.py": f"MOST: object = {other}\n"}))
    assert problem.startswith("The constant MOST has 2 values (src/hushprice/a.py, src/hushprice/b/c.py): ")


DOCUMENTED = '''
@dataclass(frozen=True)
class Base:
    """A class.

    Attributes
    ----------
    one, two : int
        Numbers.
    """
    name: ClassVar[str] = "base"
    one: int
    two: int
    three: int = field(init=False)
    def put(self, item: int) -> None:
        """Put.

        Parameters
        ----------
        item : int
            The item.
        """
class Derived(Base):
    """Another."""
    one: int
    def put(self, item): ...
    def _hidden(self, secret): ...
def call(first, *more, _cache=None, **options):
    """Call.

    Parameters
    ----------
    first : int
        The first.
    *more, **options
        The others.

    Returns
    -------
    None
    """
def internal(x): ...
'''
EXPORTS = {
    "__init__.py": "if TYPE_CHECKING:\n    from hushprice import deep as deep\n    from hushprice.deep.a import *\n",
    "deep/__init__.py": "from hushprice.deep.a import Base, Derived, internal\n__all__ = ['Base', 'Derived']\n",
}


def test_documented_parameters(tmp_path: Path) -> None:
    """A base documents fields and methods for the classes that derive from it; what nobody exports needs nothing."""
    exports = EXPORTS | {"__init__.py": "from hushprice import deep as deep\nfrom hushprice.deep import internal\n"}
    assert check(house(tmp_path, exports | {"deep/a.py": DOCUMENTED})) == []


@pytest.mark.parametrize(
    ("before", "after", "gap"),
    [
        ("one, two : int", "one : int", "Base leaves out two"),
        ("    item : int\n", "    thing : int\n", "Base.put leaves out item"),
        ("*more, **options", "options", "call leaves out more"),
        ("first : int\n", "", "call leaves out first"),
        (
            "Parameters\n    ----------\n    first",
            "Notes\n    -----\n    first",
            "call leaves out first, more, options",
        ),
        ("def put(self, item): ...", "def pop(self, item): ...", "Derived.pop leaves out item"),
        ("def call(first,", "def call(first, second,", "call leaves out second"),
        ("def call(first,", "async def call(first, second,", "call leaves out second"),
        ("class Derived(Base):", "class Derived(Alien):", "Derived.put leaves out item"),
        ("def internal(x)", "def public(x)", "public leaves out x"),
    ],
)
def test_a_parameter_that_a_docstring_leaves_out(tmp_path: Path, before: str, after: str, gap: str) -> None:
    text = DOCUMENTED.replace("def internal(x): ...", "") if "public" not in after else DOCUMENTED
    assert before in text
    (problem,) = check(house(tmp_path, EXPORTS | {"deep/a.py": text.replace(before, after)}))
    assert problem.startswith("src/hushprice/deep/a.py:")
    assert problem.endswith(f": the docstring of {gap}: describe every parameter.")


def test_exceptions_are_listed_and_can_only_shrink(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exceptions = (
        "# Why.\n\n[parameters]\n"
        '"src/hushprice/a.py long" = "a reason"\n'
        '"src/hushprice/a.py short" = "a reason"\n\n'
        '[constants]\n"MOST" = "a reason"\n'
    )
    root = house(tmp_path, {"a.py": f"def long({LONG}): ...\ndef short(): ...\n"}, exceptions)
    assert check(root) == [
        f"{ALLOWED}: [{rule}] '{key}' is no exception any more: remove it (or run with --shrink)."
        for rule, key in (("parameters", "src/hushprice/a.py short"), ("constants", "MOST"))
    ]
    with pytest.raises(SystemExit, match="1"):
        main(["--root", str(root)])
    with pytest.raises(SystemExit, match="0"):
        main(["--root", str(root), "--shrink"])
    assert capsys.readouterr().out.endswith("The house rules hold.\n")
    left = (root / ALLOWED).read_text(encoding="utf-8")
    assert left == '# Why.\n\n[parameters]\n"src/hushprice/a.py long" = "a reason"\n\n[constants]\n'
