"""The public callables of the package, and the parameters that their docstrings leave out.

Public is what ``hushprice`` and its packages export: names of a literal ``__all__``; without one, what a module defines
without a leading underscore or imports in the form ``from x import y as y``. The methods of public classes are public
too. A method that overrides one of a base class may leave its documentation to the base, as may a field.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tools.source import PACKAGE

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

SECTION = re.compile(r"^(Parameters|Attributes|Other Parameters)\n-+\n((?:(?!^\S.*\n-+$).*\n?)*)", re.MULTILINE)
RECORDS = frozenset({"NamedTuple", "TypedDict", "Struct"})  # bases of classes whose annotations are their parameters


class Gap(NamedTuple):
    """A public callable with parameters that its docstring does not describe."""

    path: str
    line: int
    name: str
    missing: tuple[str, ...]


class _Callable(NamedTuple):
    path: str
    node: Definition


class Library:
    """The modules of the package by their dotted names.

    Parameters
    ----------
    files : iterable of (path, syntax tree)
        The Python files of the package.
    """

    def __init__(self, files: Iterable[tuple[str, ast.Module]]) -> None:
        self.paths: dict[str, str] = {}
        self.trees: dict[str, ast.Module] = {}
        for path, tree in files:
            name = path.removeprefix(PACKAGE).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            self.paths["hushprice" + name], self.trees["hushprice" + name] = path, tree

    def gaps(self) -> Iterator[Gap]:
        """Return the public callables with undocumented parameters, each once."""
        seen = set()
        for entry in self._public("hushprice"):
            key = entry.path, entry.node.lineno
            if key not in seen:
                seen.add(key)
                yield from self._of_class(entry) if isinstance(entry.node, ast.ClassDef) else _gaps(entry)

    def _public(self, module: str) -> Iterator[_Callable]:
        """The definitions that a module exports."""
        tree = self.trees.get(module)
        if tree is None:
            return
        listed = _listed(tree)
        for node in tree.body:
            if isinstance(node, Definition) and _exported(node.name, listed):
                yield _Callable(self.paths[module], node)
        for home, name, alias in _imports(tree):
            if name == "*":
                yield from self._public(home)
            elif alias == name if listed is None else (alias or name) in listed:
                yield from self._public(f"{home}.{name}") if f"{home}.{name}" in self.trees else self._find(home, name)

    def _find(self, module: str, name: str) -> Iterator[_Callable]:
        """The definition of a name that a module defines or imports."""
        tree = self.trees.get(module, ast.Module([], []))
        for node in tree.body:
            if isinstance(node, Definition) and node.name == name:
                yield _Callable(self.paths[module], node)
                return
        for home, original, alias in _imports(tree):
            if (alias or original) == name and home != module:
                yield from self._find(home, original)
                return

    def _of_class(self, entry: _Callable) -> Iterator[Gap]:
        """The gaps of a class: in its own docstring, and in those of its methods."""
        assert isinstance(entry.node, ast.ClassDef)
        node, bases = entry.node, list(self._bases(entry))
        documented = set().union(*(_documented(each) for each in (node, *bases)))
        if missing := tuple(name for name in _fields(node) if name not in documented):
            yield Gap(entry.path, node.lineno, node.name, missing)
        inherited = {each.name for base in bases for each in base.body if isinstance(each, ast.FunctionDef)}
        methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        for each in methods:
            if not each.name.startswith("_") and each.name not in inherited:
                yield from _gaps(_Callable(entry.path, each), f"{node.name}.", method=True)

    def _bases(self, entry: _Callable) -> Iterator[ast.ClassDef]:
        """The base classes of a class within the package, near and far."""
        assert isinstance(entry.node, ast.ClassDef)
        module = next(name for name, path in self.paths.items() if path == entry.path)
        for base in entry.node.bases:
            bare = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(bare, ast.Name):
                for above in self._find(module, bare.id):
                    if isinstance(above.node, ast.ClassDef):
                        yield above.node
                        yield from self._bases(above)


def _gaps(entry: _Callable, prefix: str = "", *, method: bool = False) -> Iterator[Gap]:
    assert not isinstance(entry.node, ast.ClassDef)
    documented = _documented(entry.node)
    if missing := tuple(name for name in _parameters(entry.node, method=method) if name not in documented):
        yield Gap(entry.path, entry.node.lineno, prefix + entry.node.name, missing)


def _listed(tree: ast.Module) -> set[str] | None:
    """The names in a literal ``__all__``, None without one."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else []
            return {str(each.value) for each in listed if isinstance(each, ast.Constant)}
    return None


def _exported(name: str, listed: set[str] | None) -> bool:
    return not name.startswith("_") if listed is None else name in listed


def _imports(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """(module, name, name after ``as``) of what a module imports from the package, if only for type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "hushprice":
            for each in node.names:
                yield node.module or "", each.name, each.asname or ""


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef, *, method: bool) -> list[str]:
    """Names of the parameters, without self and cls and those that begin with an underscore."""
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args]
    if method and "staticmethod" not in {ast.unparse(mark) for mark in node.decorator_list}:
        every = every[1:]
    every += [each for each in (arguments.vararg, *arguments.kwonlyargs, arguments.kwarg) if each is not None]
    return [each.arg for each in every if not each.arg.startswith("_")]


def _fields(node: ast.ClassDef) -> list[str]:
    """Parameters of a class's constructor that the class itself declares."""
    marks = {ast.unparse(mark).partition("(")[0] for mark in node.decorator_list}
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    if marks & {"dataclass", "dataclasses.dataclass"} or bases & RECORDS:
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and _in_constructor(each)]
        return [name for each in fields if not (name := ast.unparse(each.target)).startswith("_")]
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return _parameters(each, method=True)
    return []


def _in_constructor(field: ast.AnnAssign) -> bool:
    made = "" if field.value is None else ast.unparse(field.value)
    return not ast.unparse(field.annotation).startswith("ClassVar") and "init=False" not in made


def _documented(node: Definition) -> set[str]:
    """Names that the sections of a docstring list, as in ``low, high : float`` or ``**options``."""
    text = (ast.get_docstring(node) or "") + "\n"
    names: set[str] = set()
    for section in SECTION.finditer(text):
        for line in section[2].splitlines():
            if line and not line.startswith(" "):
                names.update(name.strip().lstrip("*") for name in line.partition(" : ")[0].split(","))
    return names
