"""The demand model file: plain JSON, versioned, checked when it is read.

    {"format": "hushprice-demand-model", "version": 1, "model": {...}}

Numbers are written with all their digits, so that a model read back predicts to the last bit what it did before. A
number that is missing or infinite (the standard error of a coefficient that the log does not identify) is ``null``.
The file is written beside its place and moved there, so that a crash leaves the old one whole. Nothing is unpickled.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import types
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from hushprice.demand import FAMILIES, Family, Linear
from hushprice.errors import Array, HushpriceError, InvalidInput
from hushprice.logs.diagnostics import Report
from hushprice.logs.encoding import Encoding
from hushprice.logs.findings import Finding
from hushprice.logs.fitting import Learned

FORMAT = "hushprice-demand-model"
VERSION = 1
LARGEST_FILE = 2**30  # bytes; what is larger is no model

T = TypeVar("T")


class ModelFileError(HushpriceError):
    """A demand model file cannot be read or written, is corrupt, foreign or of a newer version."""


def write(path: str | PathLike[str], model: Mapping[str, Any]) -> Path:
    """Write plain data as a model file; a file that is no model is never written over."""
    target = Path(path)
    check_target(target)
    text = json.dumps({"format": FORMAT, "version": VERSION, "model": plain(model)}, indent=1, allow_nan=False)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as problem:
        raise ModelFileError(f"The model {target} cannot be written: {problem.strerror}.") from problem
    finally:
        temporary.unlink(missing_ok=True)
    return target


def check_target(path: str | PathLike[str]) -> Path:
    """A path where a model may be written: a new file, or one that is a model already."""
    target = Path(path)
    if target.is_dir():
        raise InvalidInput(f"{target} is a folder; give the model file a name, as in {target / 'model.json'}.")
    if not target.absolute().parent.is_dir():
        raise InvalidInput(f"There is no folder {target.absolute().parent} to put {target.name} in.")
    if target.exists() and target.stat().st_size and not _is_model(target):
        raise InvalidInput(f"{target} exists and is not a demand model, so it is left alone. Choose another name.")
    return target


def read(path: str | PathLike[str]) -> dict[str, Any]:
    """The plain data of a model file, its format and version checked."""
    data = _load(Path(path))
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ModelFileError(f"{path} is not a demand model of hushprice. Make one with: hushprice fit LOG")
    version = data.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ModelFileError(f"{path} is damaged: its version is {version!r}. Fit the model again.")
    if version > VERSION:
        raise ModelFileError(
            f"{path} has version {version}, written by a newer hushprice; this one reads up to {VERSION}. "
            "Update hushprice, or fit the model again."
        )
    if not isinstance(data.get("model"), dict):
        raise ModelFileError(f"{path} is damaged: it holds no model. Fit the model again.")
    return dict(data["model"])


def _load(path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ModelFileError(f"{path} is too large to be a demand model.")
        return json.loads(path.read_bytes(), parse_constant=_refuse)
    except OSError as problem:
        raise ModelFileError(f"The model {path} cannot be read: {problem.strerror}.") from problem
    except (ValueError, RecursionError) as problem:  # not JSON, or not even text
        if isinstance(problem, ModelFileError):
            raise
        raise ModelFileError(f"{path} is not a demand model: it is no valid JSON. Fit the model again.") from None


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def _is_model(path: Path) -> bool:
    try:
        data = _load(path)
    except ModelFileError:
        return False
    return isinstance(data, dict) and data.get("format") == FORMAT


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a model was learned from: columns of a log, or of an array of so many columns."""

    price: str
    outcome: str | None = None
    log: str | None = None
    array_columns: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Body:
    """The parts of a model file that are checked field by field."""

    origin: Origin
    family: str
    sigma: float | None
    theta: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]  # its lower triangle
    sensitive: tuple[bool, ...]
    prices: tuple[float, float]
    seen: tuple[float, float]
    features: tuple[str, ...]
    segment: str | None
    records: int
    weight: float
    ridge: float
    report: Report
    findings: tuple[Finding, ...]


def to_dict(learned: Learned, origin: Origin) -> dict[str, Any]:
    """A model as plain data."""
    family, covariance = learned.family, learned.covariance
    body = _Body(
        origin=origin,
        family=family.name,
        sigma=family.scale if family.code == Linear.code else None,
        theta=tuple(learned.theta.tolist()),
        covariance=tuple(tuple(row[: i + 1].tolist()) for i, row in enumerate(covariance)),
        sensitive=tuple(learned.sensitive.tolist()),
        findings=tuple(learned.findings),
        **{name: getattr(learned, name) for name in ("prices", "seen", "features", "segment", "records", "weight",
                                                      "ridge", "report")},
    )  # fmt: skip
    return {**plain(body), "encoding": learned.encoding.to_dict()}


def from_dict(data: Any) -> tuple[Learned, Origin]:
    """What :func:`to_dict` gave, checked."""
    if not isinstance(data, dict):
        raise _damaged("the model", "an object", data)
    body = restore(_Body, {key: value for key, value in data.items() if key != "encoding"}, "model")
    if not isinstance(data.get("encoding"), dict):
        raise _damaged("model.encoding", "an object", data.get("encoding"))
    encoding = Encoding.from_dict(data["encoding"])
    d = encoding.dim
    if len(body.theta) != 2 * d or len(body.sensitive) != d or len(body.report.coefficients) != d:
        raise ModelFileError(f"The model is damaged: it does not have the {2 * d} coefficients of its encoding.")
    if [len(row) for row in body.covariance] != list(range(1, 2 * d + 1)):
        raise ModelFileError("The model is damaged: its covariance is no triangle of the size of theta.")
    if not set(encoding.columns) <= set(body.features) or body.origin.price in body.features:
        raise ModelFileError("The model is damaged: its features do not fit its encoding.")
    if not 0.0 <= body.prices[0] <= body.prices[1] or not body.seen[0] <= body.seen[1]:
        raise _damaged("model.prices", "two prices of at least 0, the lower first", [*body.prices, *body.seen])
    if not np.isfinite(body.theta).all() or body.records < 1 or not body.weight > 0.0 or not body.ridge >= 0.0:
        raise ModelFileError("The model is damaged: theta, records, weight or ridge cannot be what they are.")
    learned = Learned(
        family=_family(body),
        encoding=encoding,
        theta=np.array(body.theta),
        covariance=_full(body.covariance),
        sensitive=np.array(body.sensitive, dtype=np.bool_),
        findings=list(body.findings),
        **{name: getattr(body, name) for name in ("prices", "seen", "features", "segment", "records", "weight",
                                                   "ridge", "report")},
    )  # fmt: skip
    return learned, body.origin


def _family(body: _Body) -> Family:
    if body.family not in FAMILIES:
        raise ModelFileError(f"The model is damaged: there is no demand family {body.family!r}.")
    kind = FAMILIES[body.family]
    if kind is not Linear:
        return kind()
    if body.sigma is None:
        raise ModelFileError("The model is damaged: linear demand needs a sigma.")
    return Linear(sigma=body.sigma)


def _full(rows: tuple[tuple[float, ...], ...]) -> Array:
    """A symmetric matrix from its lower triangle."""
    full = np.zeros((len(rows), len(rows)))
    for i, row in enumerate(rows):
        full[i, : i + 1] = full[: i + 1, i] = row
    if (np.diag(full) < 0.0).any():
        raise ModelFileError("The model is damaged: a variance is negative.")
    return full


def plain(value: Any) -> Any:
    """Dataclasses, tuples, arrays and numbers as JSON data; numbers that are not finite as None.

    >>> plain({"a": (1.0, math.inf)})
    {'a': [1.0, None]}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def restore(kind: type[T], data: Any, where: str) -> T:
    """What :func:`plain` made of a dataclass, checked field by field; ``where`` names the place in errors.

    None stands for a number that is not finite: infinite in fields that end in "se", not a number elsewhere.
    """
    if not isinstance(data, dict):
        raise _damaged(where, "an object", data)
    hints = get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    if missing := [name for name in names if name not in data]:
        raise ModelFileError(f"The model is damaged: {where} has no {missing[0]}.")
    if odd := [name for name in data if name not in names]:
        raise ModelFileError(f"The model is damaged: {where} has {odd[0]!r}, which is not known here.")
    return kind(**{name: _value(hints[name], data[name], f"{where}.{name}") for name in names})


def _value(kind: Any, data: Any, where: str) -> Any:
    """One value of the annotated kind."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in arguments:
            return None
        return _value(next(a for a in arguments if a is not type(None)), data, where)
    if origin is tuple:
        if not isinstance(data, list):
            raise _damaged(where, "a list", data)
        kinds = [arguments[0]] * len(data) if arguments[-1] is Ellipsis else list(arguments)
        if len(kinds) != len(data):
            raise _damaged(where, f"a list of {len(kinds)}", data)
        return tuple(_value(k, item, f"{where}[{i}]") for i, (k, item) in enumerate(zip(kinds, data, strict=True)))
    if dataclasses.is_dataclass(kind):
        return restore(kind, data, where)  # type: ignore[arg-type]
    if kind is float:
        return number(data, where)
    if origin is Literal:
        if data not in arguments:
            raise _damaged(where, f"one of {', '.join(map(str, arguments))}", data)
        return data
    if kind not in (int, str, bool) or type(data) is not kind:
        raise _damaged(where, {int: "a whole number", str: "a text", bool: "true or false"}[kind], data)
    return data


def number(data: Any, where: str) -> float:
    """A float; None is one that is not finite."""
    if data is None:
        return math.inf if where.rstrip("[]0123456789").endswith("se") else math.nan
    if isinstance(data, bool) or not isinstance(data, (int, float)):
        raise _damaged(where, "a number", data)
    try:
        value = float(data)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise _damaged(where, "a finite number", data)
    return value


def _damaged(where: str, wanted: str, data: Any) -> ModelFileError:
    shown = repr(data)
    return ModelFileError(
        f"The model is damaged: {where} must be {wanted}, got {shown if len(shown) <= 40 else shown[:37] + '...'}."
    )
