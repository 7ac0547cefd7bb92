"""The twin file: one Parquet file with the customers, and the model and settings in its schema's metadata.

    columns     "z: <name>" per entry of z, then cost, segment and today if present
    metadata    hushprice = {"format": "hushprice-twin", "version": 3, "market": {...}, "about": {...}} as JSON

A twin that drifts has its path in "market", since version 2. The check has the ends of groups since version 3; the
files of older versions can be read.

Any Parquet reader can read it. It contains customers' encoded features and is as confidential as the log. It is written
to a temporary file and renamed, so that a crash leaves the old file intact. Nothing is unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from hushprice.arrays import Array, array
from hushprice.demand import Rules, family_config, family_from
from hushprice.errors import LARGEST_VALUE, HushpriceError, InvalidInput
from hushprice.files import check_target, check_version, replacing
from hushprice.fitting.model_fields import damaged, number, restore
from hushprice.fitting.model_file import plain
from hushprice.markets.drift import Drift
from hushprice.markets.market import Resample
from hushprice.markets.twin.twin import About, Facts, Twin

TWIN_FORMAT, TWIN_VERSION = "hushprice-twin", 3
KEY = b"hushprice"
PREFIX = "z: "


class TwinFileError(HushpriceError):
    """A twin file cannot be read or written, is damaged or of a newer version, or is no twin."""


def save_twin(twin: Twin, path: str | PathLike[str]) -> Path:
    """Write a twin.

    Parameters
    ----------
    twin : Twin
        The twin.
    path : path-like
        A new file, or a twin to replace. Other files are never replaced.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    TwinFileError
        If the file cannot be written.
    InvalidInput
        If the twin drifts in another way than by a path.
    """
    if twin.drift is not None and twin.drift.kind != "path":
        raise InvalidInput(f"{twin.name} has a drift that no file of a twin tells: save the twin without drift.")
    target = check_twin_target(path)
    metadata = {
        "format": TWIN_FORMAT,
        "version": TWIN_VERSION,
        "market": _market_fields(twin),
        "about": plain(twin.about),
    }
    table = _table(twin).replace_schema_metadata({KEY: json.dumps(metadata, allow_nan=False).encode()})
    try:
        with replacing(target, mode=0o600) as aside:  # it contains customers' data
            parquet.write_table(table, aside, compression="zstd", write_page_checksum=True)
    except OSError as problem:
        raise TwinFileError(f"The twin {target} cannot be written: {problem.strerror}.") from problem
    return target


def check_twin_target(path: str | PathLike[str]) -> Path:
    """Check a path for a twin: a new file, or an existing twin."""
    return check_target(path, what="twin", example="shop.twin", is_one=_is_twin)


def _is_twin(file: Path) -> bool:
    try:
        _metadata(file)
    except TwinFileError:
        return False
    return True


def load_twin(path: str | PathLike[str]) -> Twin:
    """Read a twin. Its name is that of the file, which distinguishes the twins of a study.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    Twin

    Raises
    ------
    TwinFileError
        If the file is missing, damaged, of a newer version or no twin.
    """
    file = Path(path)
    metadata = _metadata(file)
    table = _rows(file)
    try:
        about, market = metadata["about"], metadata["market"]
        if "today" not in table.column_names:
            raise InvalidInput("it has no column today")
        contexts = Resample(
            _contexts(table),
            costs=_column(table, "cost"),
            segments=_column(table, "segment", kind=np.int64),
            today=_column(table, "today"),
        )
        return Twin(
            name=f"twin {file.stem}",
            alpha=np.array(market["alpha"], dtype=np.float64),
            beta=np.array(market["beta"], dtype=np.float64),
            family=family_from(market["family"]),
            prices=tuple(market["prices"]),
            cost=market["cost"],
            public=market["public"],
            rules=None if market["rules"] is None else Rules.of(market["rules"], source=str(file)),
            segments=tuple(market["segments"]),
            covariance=_covariance(market["covariance"]),
            names=tuple(name.removeprefix(PREFIX) for name in table.column_names if name.startswith(PREFIX)),
            contexts=contexts,
            about=_about(about),
            drift=None if market.get("path") is None else Drift.of("path", path=market["path"]),
        )
    except (HushpriceError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
        what = str(problem).removeprefix("The model is damaged: ").rstrip(".")
        raise TwinFileError(f"The twin {file} is damaged: {what}. Make it again with hushprice twin.") from None


def from_file(
    *, file: str, prices: tuple[float, float] | None = None, cost: float | None = None, public: float = 0.0
) -> Twin:
    """A twin from its file (made by ``hushprice twin``): a market fitted to a log of your own.

    The file contains customers' encoded features and is as confidential as the log.

    Parameters
    ----------
    file : path-like
        The file.
    prices : (float, float), optional
        Another price range.
    cost : float, optional
        Another unit cost, the same for everyone.
    public : float
        Share of customers who agree to send raw records.
    """
    saved = load_twin(str(file))
    options: dict[str, Any] = {"public": public}
    if prices is not None:
        options["prices"] = tuple(prices)
    if cost is not None:
        rows = saved.contexts
        options |= {"cost": cost, "contexts": Resample(rows.rows, segments=rows.segments, today=rows.today)}
    return replace(saved, **options)


def _market_fields(twin: Twin) -> dict[str, Any]:
    """The fields of the market as plain data."""
    drift = {} if twin.drift is None else {"path": twin.drift.path}
    market: dict[str, Any] = plain(
        {
            **drift,
            "alpha": twin.alpha,
            "beta": twin.beta,
            "family": family_config(twin.family),
            "prices": twin.prices,
            "cost": twin.cost,
            "public": twin.public,
            "rules": None if twin.rules is None else twin.rules.config(),
            "segments": twin.segments,
            "covariance": twin.covariance,
        }
    )
    return market


def _table(twin: Twin) -> pa.Table:
    who = twin.contexts
    columns = {f"{PREFIX}{name}": who.rows[:, j] for j, name in enumerate(twin.names)}
    others = {"cost": who.costs, "segment": who.segments, "today": who.today}
    return pa.table(columns | {name: values for name, values in others.items() if values is not None})


def _metadata(file: Path) -> Mapping[str, Any]:
    """The metadata of a twin file, with format and version checked."""
    if not file.is_file():
        raise TwinFileError(f"There is no twin {file}. Make one with: hushprice twin MODEL LOG --out {file}")
    try:
        schema = parquet.read_schema(file)
        metadata = json.loads((schema.metadata or {}).get(KEY, b"null"))
        json.dumps(metadata, allow_nan=False, ensure_ascii=False).encode()  # no NaN, no lone surrogates
    except (OSError, pa.ArrowException, ValueError):
        raise TwinFileError(
            f"{file} is not a twin: it is no Parquet file, or a damaged one. Of a model or a log, first make a twin: "
            f"hushprice twin MODEL LOG --out NAME.twin"
        ) from None
    if not isinstance(metadata, dict) or metadata.get("format") != TWIN_FORMAT:
        raise TwinFileError(
            f"{file} is not a twin of hushprice. Make one with: hushprice twin MODEL LOG --out NAME.twin"
        )
    check_version(metadata, TWIN_VERSION, path=file, again="make the twin again", error=TwinFileError)
    return metadata


def _rows(file: Path) -> pa.Table:
    try:
        return parquet.read_table(file, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as problem:
        raise TwinFileError(f"{file} is damaged: {problem}. Make the twin again.") from None


def _contexts(table: pa.Table) -> Array:
    columns = [table.column(name).to_numpy() for name in table.column_names if name.startswith(PREFIX)]
    if not columns or not table.num_rows:
        raise InvalidInput("it holds no customers")
    return array("its contexts", np.column_stack(columns), shape=(None, len(columns)))


def _column(table: pa.Table, name: str, *, kind: Any = np.float64) -> Any:
    if name not in table.column_names:
        return None
    values = array(f"its column {name}", table.column(name).to_numpy(), shape=(None,))
    return values.astype(kind)


def _covariance(value: Any) -> Array | None:
    if value is None:
        return None
    covariance = array("its covariance", value, shape=(None, None), limit=LARGEST_VALUE)
    if (np.diag(covariance) < 0.0).any():
        raise InvalidInput("its covariance has a negative variance")
    return covariance


def _about(fields: Mapping[str, Any]) -> About:
    """The origin of the twin, checked field by field."""
    facts = restore(Facts, {name: value for name, value in fields.items() if name not in ("seen_by", "model")}, "about")
    if facts.log_rows < 1 or facts.left_out < 0:
        raise InvalidInput("about has no rows of the log")
    model, seen_by = fields["model"], fields["seen_by"]
    if not isinstance(model, dict | None):
        raise damaged("about.model", "an object", model)
    about = About(**vars(facts), model=model, seen_by={name: _pair(seen, name) for name, seen in seen_by.items()})
    # restore turns null into a number that is not finite; here every number must be finite
    json.dumps(asdict(replace(about, model=None)), allow_nan=False)
    return about


def _pair(value: Any, name: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise damaged(f"about.seen_by of {name}", "two numbers", value)
    return number(value[0], "about.seen_by"), number(value[1], "about.seen_by")
