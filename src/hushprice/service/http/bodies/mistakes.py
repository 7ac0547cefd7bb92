"""What is wrong with a body, in words of our own that never contain a value that was sent.

msgspec names the first mistake only, and its messages contain unknown keys and values. So a body that msgspec refuses
is searched part by part, with msgspec as the judge of every part.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UnsetType, inspect

from hushprice.service.http.bodies.requests import END
from hushprice.service.http.bodies.strict_json import Overflow
from hushprice.service.http.responses import Problem

T = TypeVar("T")
MAX_MISTAKES = 1_000  # further ones are not counted
CHUNK = 256  # items of a list that are checked together
UNKNOWN = "(unknown)"  # in place of a key that the client made up
Path = tuple[str | int, ...]


class Mistake(NamedTuple):
    """A part of a body that is refused."""

    path: Path
    text: str


def convert(value: Any, kind: type[T]) -> T:
    """Check plain data against a type.

    Parameters
    ----------
    value : object
        Plain data, as :func:`~hushprice.service.http.bodies.strict_json.parse` returns it.
    kind : type
        A class of :mod:`hushprice.service.http.bodies.requests`.

    Returns
    -------
    kind
        The data as an instance of the class.

    Raises
    ------
    Problem
        With status 422: where the deepest mistake is, what it is, and how many there are.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        mistakes = list(islice(find_mistakes(value, kind), MAX_MISTAKES))
    worst = max(mistakes, key=lambda mistake: len(mistake.path), default=Mistake((), "is not valid"))
    unknown = worst.path[-1:] == (UNKNOWN,) and worst.text == _UNKNOWN_KEY
    place = ".".join(map(str, worst.path[:-1] if unknown else worst.path)) or "The body"
    count = f" ({len(mistakes)} things are wrong with the body.)" if len(mistakes) > 1 else ""
    raise Problem(422, "invalid", f"{place} {worst.text}.{count}", where=list(worst.path))


def find_mistakes(value: Any, kind: Any, path: Path = ()) -> Iterator[Mistake]:
    """Yield the mistakes in plain data, innermost parts only."""
    if _fits(value, kind):
        return
    kind = _branch(value, kind)
    inner_mistakes = False
    for mistake in _inner(value, kind, path):
        inner_mistakes = True
        yield mistake
    if not inner_mistakes:
        yield Mistake(path, _text(value, kind))


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _bare(kind: Any) -> Any:
    """A type without its annotations."""
    return _bare(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def _branch(value: Any, kind: Any) -> Any:
    """The branch of a union that is meant, judging by the JSON type of the value; the first one if none is."""
    bare = _bare(kind)
    if get_origin(bare) not in (Union, UnionType):
        return kind
    branches = [branch for branch in get_args(bare) if branch not in (NoneType, UnsetType)]
    containers = [branch for branch in branches if _container(branch) is type(value)]
    return (containers or branches)[0]


def _container(kind: Any) -> Any:
    bare = _bare(kind)
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return dict
    return get_origin(bare)


def _inner(value: Any, kind: Any, path: Path) -> Iterator[Mistake]:
    """Yield the mistakes in the parts of a value."""
    bare = _bare(kind)
    if isinstance(value, dict) and isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        yield from _of_struct(value, bare, path)
    elif isinstance(value, dict) and get_origin(bare) is dict:
        for item in value.values():
            yield from find_mistakes(item, get_args(bare)[1], (*path, UNKNOWN))
    elif isinstance(value, list) and get_origin(bare) is list and len(value) <= (_info(kind).max_length or len(value)):
        (item_kind,) = get_args(bare)
        for start in range(0, len(value), CHUNK):
            chunk = value[start : start + CHUNK]
            if not _fits(chunk, list[item_kind]):  # type: ignore[valid-type]
                for k, item in enumerate(chunk, start):
                    yield from find_mistakes(item, item_kind, (*path, k))


def _of_struct(value: dict[str, Any], kind: type[msgspec.Struct], path: Path) -> Iterator[Mistake]:
    hints = _hints(kind)
    for field in inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        if field.name in value:
            yield from find_mistakes(value[field.name], hints[field.name], (*path, field.name))
        elif field.required:
            yield Mistake((*path, field.name), "is missing")
    for key in value:
        if key not in hints:
            yield Mistake((*path, UNKNOWN), _UNKNOWN_KEY)


_UNKNOWN_KEY = "has a key that is not known here (/openapi.json has those that are)"


@lru_cache(maxsize=64)
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _info(kind: Any) -> Any:
    """What msgspec knows of a type: its class and its limits."""
    info = inspect.type_info(kind)
    return info.type if isinstance(info, inspect.Metadata) else info


def _text(value: Any, kind: Any) -> str:
    """A mistake in words; only limits of our own are named."""
    info = _info(kind)
    if isinstance(value, Overflow) and isinstance(info, inspect.FloatType):
        return "must be finite"
    match info:
        case inspect.IntType():
            return _bounds(value, info) if type(value) is int else "must be a whole number"
        case inspect.FloatType():
            return _bounds(value, info) if type(value) in (int, float) else "must be a number"
        case inspect.StrType():
            return _lengths(value, info, "letters") if isinstance(value, str) else "must be a text"
        case inspect.ListType():
            return _lengths(value, info, "items") if isinstance(value, list) else "must be a list"
        case inspect.LiteralType():
            *others, last = map(repr, get_args(_bare(kind)))
            return f"must be one of {', '.join(others)} or {last}"
    if isinstance(value, dict):
        return "must have seed and index, or grid" if "RandomisedReport" in str(kind) else "is not valid"
    return "must be an object"


def _bounds(value: float, info: Any) -> str:
    if info.gt is not None and value <= info.gt:
        return f"must be above {info.gt:g}"
    if info.ge is not None and value < info.ge:
        return f"must be at least {info.ge:g}"
    if info.le is not None and value > info.le:
        return f"must be at most {info.le:g}"
    return "must be finite"


def _lengths(value: str | list[Any], info: Any, unit: str) -> str:
    if info.min_length is not None and len(value) < info.min_length:
        return f"must have at least {info.min_length} {unit}"
    if info.max_length is not None and len(value) > info.max_length:
        return f"must have at most {info.max_length} {unit}"
    return f"must match {info.pattern.removesuffix(END)}" if unit == "letters" else "is not valid"
