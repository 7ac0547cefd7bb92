"""The demand model file: plain JSON, versioned, checked when it is read.

    {"format": "hushprice-demand-model", "version": 2, "model": {...}}

Version 2 added half-lives, the test of constancy and the path of theta; files of version 1 are read as models without.

Numbers are written with all their digits, so that a model read back makes the same predictions to the last bit. A
number that is missing or infinite (the standard error of a coefficient that the log does not identify) is ``null``.
The file is written under a temporary name and then renamed, so that a crash leaves the old file intact. Nothing is
unpickled.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from hushprice import files
from hushprice.arrays import Array
from hushprice.demand import as_family, family_config, family_from
from hushprice.files import replacing
from hushprice.fitting.diagnosis.findings import Finding
from hushprice.fitting.diagnosis.report import Report
from hushprice.fitting.fit_log import Learned
from hushprice.fitting.model_fields import ModelFileError, damaged, restore
from hushprice.fitting.reading.encoding import Encoding

MODEL_FORMAT = "hushprice-demand-model"
MODEL_VERSION = 2
LARGEST_FILE = 2**30  # bytes; a larger file is not a model

SAME = (
    "prices",
    "seen",
    "features",
    "segment",
    "records",
    "weight",
    "ridge",
    "report",
    "half_life",
)  # fields stored as in Learned


def write(path: str | PathLike[str], model: Mapping[str, Any]) -> Path:
    """Write plain data as a model file; an existing file is replaced only if it is a model file too."""
    target = check_target(path)
    text = json.dumps(
        {"format": MODEL_FORMAT, "version": MODEL_VERSION, "model": plain(model)}, indent=1, allow_nan=False
    )
    try:
        with replacing(target) as aside:
            aside.write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        raise ModelFileError(f"The model {target} cannot be written: {problem.strerror}.") from problem
    return target


def check_target(path: str | PathLike[str]) -> Path:
    """A path where a model may be written: a new file, or one that is a model already."""
    return files.check_target(path, what="demand model", example="model.json", is_one=_is_model)


def read(path: str | PathLike[str]) -> dict[str, Any]:
    """The plain data of a model file, its format and version checked."""
    data = _load(Path(path))
    if not isinstance(data, dict) or data.get("format") != MODEL_FORMAT:
        raise ModelFileError(f"{path} is not a demand model of hushprice. Make one with: hushprice fit LOG")
    files.check_version(data, MODEL_VERSION, path=path, again="fit the model again", error=ModelFileError)
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
    return isinstance(data, dict) and data.get("format") == MODEL_FORMAT


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """The log that a model was fitted to: its columns, or the number of columns of an array."""

    price: str
    outcome: str | None = None
    weights: str | None = None
    log: str | None = None
    array_columns: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters of a :class:`DemandModel`, without its family."""

    price: str | int
    features: tuple[str | int, ...] | None
    sensitivity: str | tuple[str | int, ...]
    categories: tuple[str | int, ...]
    segment: str | int | None
    ridge: float
    prices: tuple[float, float] | None
    half_life: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Body:
    """The parts of a model file that are checked field by field."""

    origin: Origin
    parameters: Parameters
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
    half_life: float | None = None
    path: tuple[tuple[float, ...], ...] | None = None


def to_dict(learned: Learned, origin: Origin, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A model as plain data: its fit, its log and its parameters."""
    others = dict(parameters)
    family = others.pop("family")
    body = _Body(
        origin=origin,
        parameters=Parameters(**others),
        theta=tuple(learned.theta.tolist()),
        covariance=tuple(tuple(row[: i + 1].tolist()) for i, row in enumerate(learned.covariance)),
        sensitive=tuple(learned.sensitive.tolist()),
        findings=tuple(learned.findings),
        path=None if learned.path is None else tuple(tuple(row) for row in learned.path.tolist()),
        **{name: getattr(learned, name) for name in SAME},
    )
    return {
        "family": {
            "asked": family if isinstance(family, str) else family_config(as_family(family)),
            "found": family_config(learned.family),
        },
        "encoding": learned.encoding.to_dict(),
        **plain(body),
    }


def from_dict(data: Any) -> tuple[Learned, Origin, dict[str, Any]]:
    """The arguments of :func:`to_dict` from its result, checked."""
    if not isinstance(data, dict):
        raise damaged("the model", "an object", data)
    body = restore(_Body, {key: value for key, value in data.items() if key not in ("family", "encoding")}, "model")
    for part in ("family", "encoding"):
        if not isinstance(data.get(part), dict):
            raise damaged(f"model.{part}", "an object", data.get(part))
    encoding = Encoding.from_dict(data["encoding"])
    _check(body, encoding)
    learned = Learned(
        family=family_from(data["family"].get("found")),
        encoding=encoding,
        theta=np.array(body.theta),
        covariance=_full(body.covariance),
        sensitive=np.array(body.sensitive, dtype=np.bool_),
        findings=list(body.findings),
        path=None if body.path is None else np.array(body.path),
        **{name: getattr(body, name) for name in SAME},
    )
    family = data["family"].get("asked")
    if not isinstance(family, str):
        family = family_from(family)
    elif family != "auto":
        as_family(family)  # checks the name
    return learned, body.origin, {**vars(body.parameters), "family": family}


def _check(body: _Body, encoding: Encoding) -> None:
    """Refuse a body whose parts do not fit each other."""
    d = encoding.dim
    if len(body.theta) != 2 * d or len(body.sensitive) != d or len(body.report.coefficients) != d:
        raise ModelFileError(f"The model is damaged: it does not have the {2 * d} coefficients of its encoding.")
    if [len(row) for row in body.covariance] != list(range(1, 2 * d + 1)):
        raise ModelFileError("The model is damaged: its covariance is no triangle of the size of theta.")
    if not set(encoding.columns) <= set(body.features) or body.origin.price in body.features:
        raise ModelFileError("The model is damaged: its features do not fit its encoding.")
    if not 0.0 <= body.prices[0] <= body.prices[1] or not body.seen[0] <= body.seen[1]:
        raise damaged("model.prices", "two prices of at least 0, the lower first", [*body.prices, *body.seen])
    if not np.isfinite(body.theta).all() or body.records < 1 or not body.weight > 0.0 or not body.ridge >= 0.0:
        raise ModelFileError("The model is damaged: theta, records, weight or ridge cannot be what they are.")
    if body.half_life is not None and not 0.0 < body.half_life < np.inf:
        raise damaged("model.half_life", "a number of rows above 0", body.half_life)
    if body.path is not None and (not body.path or not all(len(row) == 2 * d for row in body.path)):
        raise ModelFileError(f"The model is damaged: its path does not have {2 * d} coefficients for each part.")
    if body.path is not None and not np.isfinite(body.path).all():
        raise ModelFileError("The model is damaged: its path has a coefficient that is not finite.")


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

    >>> plain({"a": (1.0, np.inf)})
    {'a': [1.0, None]}
    """
    return files.without_nan(_as_data(value))


def _as_data(value: Any) -> Any:
    """Dataclasses, tuples, arrays and numbers as JSON data; numbers that are not finite stay."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _as_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _as_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_data(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value  # NumPy's arrays and numbers
