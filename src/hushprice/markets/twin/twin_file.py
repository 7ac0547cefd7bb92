"""The twin file: one Parquet file with the customers, and the model and settings in its schema's metadata.

    columns     "z: <name>" for each entry of z, then cost, segment and today where there are any
    metadata    hushprice = {"format": "hushprice-twin", "version": 1, "market": {...}, "about": {...}} as JSON

Any tool that reads Parquet can read it. It holds the customers' encoded features and is as confidential as the log. It
is written beside its place and moved there, so that a crash leaves the old one whole. Nothing is unpickled.
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
from hushprice.markets.market import Resample
from hushprice.markets.twin.twin import About, Facts, Twin

TWIN_FORMAT, TWIN_VERSION = "hushprice-twin", 1
KEY = b"hushprice"
PREFIX = "z: "


class TwinFileError(HushpriceError):
    """A twin file cannot be read or written, is corrupt, foreign or of a newer version."""


def save_twin(twin: Twin, path: str | PathLike[str]) -> Path:
    """Write a twin; a file that is no twin is never written over."""
    target = check_twin_target(path)
    told = {"format": TWIN_FORMAT, "version": TWIN_VERSION, "market": _market_told(twin), "about": plain(twin.about)}
    table = _table(twin).replace_schema_metadata({KEY: json.dumps(told, allow_nan=False).encode()})
    try:
        with replacing(target, mode=0o600) as aside:  # it holds customers' data
            parquet.write_table(table, aside, compression="zstd", write_page_checksum=True)
    except OSError as problem:
        raise TwinFileError(f"The twin {target} cannot be written: {problem.strerror}.") from problem
    return target


def check_twin_target(path: str | PathLike[str]) -> Path:
    """A path where a twin may be written: a new file, or one that is a twin already."""
    return check_target(path, what="twin", example="shop.twin", is_one=_is_twin)


def _is_twin(file: Path) -> bool:
    try:
        _told(file)
    except TwinFileError:
        return False
    return True


def load_twin(path: str | PathLike[str]) -> Twin:
    """Read a twin back. It has the name of its file, so that twins in one study can be told apart."""
    file = Path(path)
    told = _told(file)
    table = _rows(file)
    try:
        about, market = told["about"], told["market"]
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
        )
    except (HushpriceError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
        what = str(problem).removeprefix("The model is damaged: ").rstrip(".")
        raise TwinFileError(f"The twin {file} is damaged: {what}. Make it again with hushprice twin.") from None


def from_file(
    *, file: str, prices: tuple[float, float] | None = None, cost: float | None = None, public: float = 0.0
) -> Twin:
    """A twin from its file (made by ``hushprice twin``): a market calibrated to a log of your own.

    file: its path; prices: another range to price in; cost: another unit cost, the same for everyone; public: the share
    of customers who agree to send raw records. The file holds the customers' encoded features: it is as confidential as
    the log.
    """
    made = load_twin(str(file))
    options: dict[str, Any] = {"public": public}
    if prices is not None:
        options["prices"] = tuple(prices)
    if cost is not None:
        rows = made.contexts
        options |= {"cost": cost, "contexts": Resample(rows.rows, segments=rows.segments, today=rows.today)}
    return replace(made, **options)


def _market_told(twin: Twin) -> dict[str, Any]:
    told: dict[str, Any] = plain(
        {
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
    return told


def _table(twin: Twin) -> pa.Table:
    who = twin.contexts
    columns = {f"{PREFIX}{name}": who.rows[:, j] for j, name in enumerate(twin.names)}
    others = {"cost": who.costs, "segment": who.segments, "today": who.today}
    return pa.table(columns | {name: values for name, values in others.items() if values is not None})


def _told(file: Path) -> Mapping[str, Any]:
    """What the metadata tells, format and version checked."""
    if not file.is_file():
        raise TwinFileError(f"There is no twin {file}. Make one with: hushprice twin MODEL LOG --out {file}")
    try:
        schema = parquet.read_schema(file)
        told = json.loads((schema.metadata or {}).get(KEY, b"null"))
        json.dumps(told, allow_nan=False, ensure_ascii=False).encode()  # only what JSON and UTF-8 can say
    except (OSError, pa.ArrowException, ValueError):
        raise TwinFileError(
            f"{file} is not a twin: it is no Parquet file, or a damaged one. Of a model or a log, first make a twin: "
            f"hushprice twin MODEL LOG --out NAME.twin"
        ) from None
    if not isinstance(told, dict) or told.get("format") != TWIN_FORMAT:
        raise TwinFileError(
            f"{file} is not a twin of hushprice. Make one with: hushprice twin MODEL LOG --out NAME.twin"
        )
    check_version(told, TWIN_VERSION, path=file, again="make the twin again", error=TwinFileError)
    return told


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


def _covariance(told: Any) -> Array | None:
    if told is None:
        return None
    covariance = array("its covariance", told, shape=(None, None), limit=LARGEST_VALUE)
    if (np.diag(covariance) < 0.0).any():
        raise InvalidInput("its covariance has a negative variance")
    return covariance


def _about(told: Mapping[str, Any]) -> About:
    """Where it comes from, checked field by field."""
    facts = restore(Facts, {name: value for name, value in told.items() if name not in ("seen_by", "model")}, "about")
    if facts.log_rows < 1 or facts.left_out < 0:
        raise InvalidInput("about has no rows of the log")
    model, seen_by = told["model"], told["seen_by"]
    if not isinstance(model, dict | None):
        raise damaged("about.model", "an object", model)
    about = About(**vars(facts), model=model, seen_by={name: _pair(seen, name) for name, seen in seen_by.items()})
    # restore takes null for a number that is not finite, of which there are none here
    json.dumps(asdict(replace(about, model=None)), allow_nan=False)
    return about


def _pair(told: Any, name: str) -> tuple[float, float]:
    if not isinstance(told, list) or len(told) != 2:
        raise damaged(f"about.seen_by of {name}", "two numbers", told)
    return number(told[0], "about.seen_by"), number(told[1], "about.seen_by")
