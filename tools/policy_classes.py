"""The classes of policies and servers, and where a file asks for them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set

ROOTS = frozenset({"Policy", "Server"})  # of hushprice.policies.base: all others derive from them
TESTS = frozenset({"isinstance", "issubclass"})


def policy_classes(files: Iterable[tuple[str, ast.Module]]) -> frozenset[str]:
    """Names of the classes that derive from Policy or Server, directly or not, with both."""
    bases: dict[str, set[str]] = {}
    for _, tree in files:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(_last_name(base) for base in node.bases)
    known: Set[str] = ROOTS
    while more := {name for name, above in bases.items() if above & known} - known:
        known = known | more
    return frozenset(known)


def uses_of(tree: ast.Module, classes: Set[str]) -> Iterator[tuple[int, str]]:
    """Lines of a file that ask whether something is of one of the classes, and which."""
    aliases = _aliases(tree)
    for node in ast.walk(tree):
        for asked in _asked(node):
            for name in sorted(_resolved(asked, aliases) & classes):
                yield node.lineno, name  # type: ignore[attr-defined]


def _asked(node: ast.AST) -> list[ast.expr]:
    """The classes that a node compares something with."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TESTS:
        return node.args[1:2]
    if isinstance(node, ast.MatchClass):
        return [node.cls]
    if isinstance(node, ast.Compare) and any(_is_type(side) for side in (node.left, *node.comparators)):
        return [node.left, *node.comparators]
    return []


def _is_type(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type"


def _aliases(tree: ast.Module) -> dict[str, ast.expr]:
    """Names that a file gives to other names, by import or assignment."""
    aliases: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            aliases.update({each.asname: ast.Name(each.name) for each in node.names if each.asname})
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute | ast.Tuple | ast.BinOp):
            aliases.update({target.id: node.value for target in node.targets if isinstance(target, ast.Name)})
    return aliases


def _resolved(node: ast.expr, aliases: dict[str, ast.expr], depth: int = 4) -> set[str]:
    """The class names that an expression may stand for: a name, an attribute, a tuple, a union."""
    if isinstance(node, ast.Name) and node.id in aliases and depth:
        return _resolved(aliases[node.id], aliases, depth - 1) | {node.id}
    if isinstance(node, ast.Tuple):
        return set().union(*(_resolved(each, aliases, depth) for each in node.elts))
    if isinstance(node, ast.BinOp):
        return _resolved(node.left, aliases, depth) | _resolved(node.right, aliases, depth)
    return {_last_name(node)}


def _last_name(node: ast.expr) -> str:
    """The last part of a dotted name, without type arguments."""
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id.rpartition(".")[2]
        if isinstance(node, ast.Name)
        else ""
    )
