"""Reading a source tree: tracked files, syntax trees, functions and their parameters."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PACKAGE = "src/hushprice"


class Function(NamedTuple):
    """A function or method of a source file."""

    path: str
    name: str  # qualified within the file: Class.method
    line: int
    lines: int
    parameters: int  # positional and keyword-only, without self and cls; *args and **kwargs count as one each


def tracked(root: Path, folders: Sequence[str]) -> list[str]:
    """Paths of the files below some folders that git tracks or would track, relative to ``root``.

    Outside a git checkout (an unpacked source distribution) all files but caches.
    """
    if not (root / ".git").exists():
        every = (path for folder in folders for path in (root / folder).rglob("*") if path.is_file())
        return sorted(str(path.relative_to(root)) for path in every if "__pycache__" not in path.parts)
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted({path for path in listed if (root / path).is_file()})


def modules(root: Path, folders: Sequence[str] = (PACKAGE,)) -> Iterator[tuple[str, ast.Module]]:
    """Path and syntax tree of each Python file below some folders."""
    for path in tracked(root, folders):
        if path.endswith(".py"):
            yield path, ast.parse((root / path).read_text(encoding="utf-8"), path)


def functions(path: str, tree: ast.Module) -> Iterator[Function]:
    """All functions of a file, methods and nested functions among them."""
    yield from _functions(path, tree, "", in_class=False)


def _functions(path: str, parent: ast.AST, prefix: str, *, in_class: bool) -> Iterator[Function]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = prefix + node.name
            yield Function(path, name, node.lineno, _lines(node), _parameters(node, method=in_class))
            yield from _functions(path, node, f"{name}.", in_class=False)
        elif isinstance(node, ast.ClassDef):
            yield from _functions(path, node, f"{prefix}{node.name}.", in_class=True)
        else:
            yield from _functions(path, node, prefix, in_class=in_class)


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef, *, method: bool) -> int:
    arguments = node.args
    count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
    count += (arguments.vararg is not None) + (arguments.kwarg is not None)
    static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in node.decorator_list)
    return count - (method and not static)
