"""Dataclasses from the plain data of a model file, checked field by field by their annotations."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from hushprice.errors import HushpriceError

T = TypeVar("T")

RENAMED = {"care": "warning"}  # words in files of older releases


class ModelFileError(HushpriceError):
    """A demand model file cannot be read or written, is corrupt, foreign or of a newer version."""


def restore(kind: type[T], data: Any, where: str) -> T:
    """A dataclass from the data that :func:`plain` made of it, checked field by field.

    ``where`` names the place in errors. None stands for a number that is not finite: infinity in fields whose name
    ends in "se", NaN elsewhere. A field with a default may be missing: older releases did not write it.
    """
    if not isinstance(data, dict):
        raise damaged(where, "an object", data)
    hints = get_type_hints(kind)
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    names = [f.name for f in fields]
    if missing := [f.name for f in fields if f.name not in data and f.default is dataclasses.MISSING]:
        raise ModelFileError(f"The model is damaged: {where} has no {missing[0]}.")
    if odd := [name for name in data if name not in names]:
        raise ModelFileError(f"The model is damaged: {where} has {odd[0]!r}, which is not known here.")
    return kind(**{name: _value(hints[name], data[name], f"{where}.{name}") for name in names if name in data})


def _value(kind: Any, data: Any, where: str) -> Any:
    """One value of the annotated kind."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in arguments:
            return None
        return _first([a for a in arguments if a is not type(None)], data, where)
    if origin is tuple:
        if not isinstance(data, list):
            raise damaged(where, "a list", data)
        kinds = [arguments[0]] * len(data) if arguments[-1] is Ellipsis else list(arguments)
        if len(kinds) != len(data):
            raise damaged(where, f"a list of {len(kinds)}", data)
        return tuple(_value(k, item, f"{where}[{i}]") for i, (k, item) in enumerate(zip(kinds, data, strict=True)))
    if dataclasses.is_dataclass(kind):
        return restore(kind, data, where)  # type: ignore[arg-type]
    if kind is float:
        return number(data, where)
    if origin is Literal:
        data = RENAMED.get(data, data) if isinstance(data, str) else data
        if data not in arguments:
            raise damaged(where, f"one of {', '.join(map(str, arguments))}", data)
        return data
    if kind not in (int, str, bool) or type(data) is not kind:
        raise damaged(where, {int: "a whole number", str: "a text", bool: "true or false"}[kind], data)
    return data


def _first(kinds: Sequence[Any], data: Any, where: str) -> Any:
    """A value of the first kind that accepts the data."""
    for kind in kinds[:-1]:
        with suppress(ModelFileError):
            return _value(kind, data, where)
    return _value(kinds[-1], data, where)


def number(data: Any, where: str) -> float:
    """A float; None stands for one that is not finite."""
    if data is None:
        return math.inf if where.rstrip("[]0123456789").endswith("se") else math.nan
    if isinstance(data, bool) or not isinstance(data, (int, float)):
        raise damaged(where, "a number", data)
    try:
        value = float(data)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise damaged(where, "a finite number", data)
    return value


def damaged(where: str, wanted: str, data: Any) -> ModelFileError:
    """The error for a value of the wrong kind."""
    text = repr(data)
    return ModelFileError(
        f"The model is damaged: {where} must be {wanted}, got {text if len(text) <= 40 else text[:37] + '...'}."
    )
