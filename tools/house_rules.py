"""The house rules that no linter knows: ``python -m tools.house_rules``, a part of ``make lint``.

folders
    No folder of ``src``, ``tests``, ``benchmarks`` or ``tools`` holds more than 20 files.
parameters
    No function of the package has more than 10 parameters (self and cls are not counted). Commands in
    ``cli/commands`` are exempt: each parameter of theirs is an option of the command line.
policies
    Outside ``policies/`` nothing asks for the class of a policy or server (``isinstance``, ``issubclass``,
    ``type(x) is``, ``case Class()``): policies describe themselves, so that one added later works everywhere.
constants
    A public module-level constant name (capital letters) has one value in the whole package. A name with a leading
    underscore belongs to its file alone and is not checked: the same formula written for kernels and for devices keeps
    its names, ``np.uint64(5)`` here and ``5`` there.
docstrings
    The docstring of a public function, class or method describes every parameter in a section: Parameters or, for
    classes whose fields are results, Attributes. (``tools/docstrings.py`` says what is public.)

Exceptions are listed with their reasons in ``house_rules.toml``. The list can only shrink: an entry that no longer
applies is an error too, and ``--shrink`` removes such entries.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tools.docstrings import Library
from tools.policy_classes import policy_classes, uses_of
from tools.source import PACKAGE, functions, modules, tracked

FOLDERS = "src", "tests", "benchmarks", "tools"
MAX_FILES = 20
MAX_PARAMETERS = 10
ALLOWED = "tools/house_rules.toml"


class Violation(NamedTuple):
    """A broken rule: ``key`` is what an exception in the allow list is called."""

    rule: str
    key: str
    text: str


def folders(root: Path) -> Iterator[Violation]:
    """Folders with too many files."""
    for folder, count in Counter(path.rpartition("/")[0] for path in tracked(root, FOLDERS)).items():
        if count > MAX_FILES:
            text = f"{folder} holds {count} files, more than {MAX_FILES}: sort them into folders."
            yield Violation("folders", folder, text)


def parameters(root: Path) -> Iterator[Violation]:
    """Functions with too many parameters."""
    for path, tree in modules(root):
        for each in functions(path, tree):
            if each.parameters > MAX_PARAMETERS and not _is_command(path, each.name):
                text = f"{path}:{each.line}: {each.name} has {each.parameters} parameters, more than {MAX_PARAMETERS}: "
                yield Violation("parameters", f"{path} {each.name}", text + "pass an object with named fields.")


def _is_command(path: str, name: str) -> bool:
    return path.startswith(f"{PACKAGE}/cli/commands/") and "." not in name and not name.startswith("_")


def policies(root: Path) -> Iterator[Violation]:
    """Questions about the class of a policy or server outside ``policies/``."""
    classes = policy_classes(modules(root))
    for path, tree in modules(root):
        if not path.startswith(f"{PACKAGE}/policies/"):
            for line, name in uses_of(tree, classes):
                text = f"{path}:{line}: asks whether something is a {name}: let the policy or server describe itself."
                yield Violation("policies", f"{path} {name}", text)


def constants(root: Path) -> Iterator[Violation]:
    """Names of constants with several values."""
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, tree in modules(root):
        for name, value in _constants(tree):
            values[name][value].append(path)
    for name, places in values.items():
        if len(places) > 1:
            where = ", ".join(path for paths in places.values() for path in paths)
            text = f"The constant {name} has {len(places)} values ({where}): name each for what it is."
            yield Violation("constants", name, text)


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names in capital letters that a module assigns, and their values in one spelling."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        for target in targets:
            for name, part in _pairs(target, value):
                if re.fullmatch(r"[A-Z][A-Z0-9_]+", name):
                    yield name, _spelled(part)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Names and what is assigned to each, of ``A, B = 1, 2`` too."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=False):
            yield from _pairs(one, part)


def _spelled(value: ast.expr) -> str:
    """A value's text; arithmetic with numbers is carried out, so that 1 << 10 and 1024 are the same."""
    text = ast.unparse(value)
    if all(
        isinstance(node, ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop)
        for node in ast.walk(value)
    ):
        return repr(eval(text, {"__builtins__": {}}))
    return text


def docstrings(root: Path) -> Iterator[Violation]:
    """Public callables with parameters that their docstrings leave out."""
    for gap in Library(modules(root)).gaps():
        missing = ", ".join(gap.missing)
        text = f"{gap.path}:{gap.line}: the docstring of {gap.name} leaves out {missing}: describe every parameter."
        yield Violation("docstrings", f"{gap.path} {gap.name}", text)


RULES: tuple[Callable[[Path], Iterator[Violation]], ...] = folders, parameters, policies, constants, docstrings


def allowed(root: Path) -> dict[str, dict[str, str]]:
    """The exceptions: rule, key, reason."""
    listed: dict[str, dict[str, str]] = tomllib.loads((root / ALLOWED).read_text(encoding="utf-8"))
    return listed


def check(root: Path) -> list[str]:
    """What is wrong with the tree: violations without an exception, and exceptions without a violation."""
    exceptions = allowed(root)
    every = [violation for rule in RULES for violation in rule(root)]
    problems = [each.text for each in every if each.key not in exceptions.get(each.rule, {})]
    for rule, key in _stale(exceptions, every):
        problems.append(f"{ALLOWED}: [{rule}] '{key}' is no exception any more: remove it (or run with --shrink).")
    return problems


def _stale(exceptions: dict[str, dict[str, str]], every: list[Violation]) -> list[tuple[str, str]]:
    needed = {(each.rule, each.key) for each in every}
    return [(rule, key) for rule, keys in exceptions.items() for key in keys if (rule, key) not in needed]


def shrink(root: Path) -> None:
    """Remove the exceptions that no longer apply."""
    stale = _stale(allowed(root), [violation for rule in RULES for violation in rule(root)])
    removed = {(rule, f'"{key}"') for rule, key in stale}
    lines, rule = [], ""
    for line in (root / ALLOWED).read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            rule = line.strip("[]")
        if (rule, line.partition(" = ")[0]) not in removed:
            lines.append(line)
    (root / ALLOWED).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Check the tree; the exit status is 1 if a rule is broken."""
    parser = argparse.ArgumentParser(prog="python -m tools.house_rules", description="Check the house rules.")
    parser.add_argument("--root", type=Path, default=Path())
    parser.add_argument("--shrink", action="store_true", help="remove exceptions that no longer apply")
    options = parser.parse_args(arguments)
    if options.shrink:
        shrink(options.root)
    problems = check(options.root)
    print("\n".join(problems) or "The house rules hold.")
    sys.exit(int(bool(problems)))


if __name__ == "__main__":
    main()
