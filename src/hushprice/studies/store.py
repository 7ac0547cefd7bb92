"""Results kept in Parquet files, a folder a cell, addressed by what the cell's numbers depend on.

    store/3f/3f9c.../0-49.parquet       replications 0 to 49: one row each, with the regret path
    store/3f/3f9c.../50-99.parquet

The address is a hash of the policy's configuration, the market, the horizon and the seed, so a changed parameter has
another address and an unchanged one is found again. Files are written whole or not at all and never changed; those of a
finished cell are joined into one.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hushprice.errors import HushpriceError, InvalidInput
from hushprice.simulation import Outcome, Result
from hushprice.studies.spec import Cell
from hushprice.version import __version__

COLUMNS = ("revenue", "exploration", "seconds")
Outcomes = dict[int, Outcome]


class Store:
    """A folder of results."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        self.damaged: list[Path] = []  # files that could not be read; what they held is computed again
        self._revisions: dict[str, set[str]] = {}  # of the results read, by cell
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise InvalidInput(f"The results cannot be kept in {self.folder}: {problem.strerror}.") from None

    def read(self, cell: Cell) -> Outcomes:
        """The replications there are, by their number."""
        found: Outcomes = {}
        for file in self._files(cell):
            try:
                outcomes, made_by = _outcomes(file, cell)
                found |= outcomes
                self._revisions.setdefault(cell.key, set()).update(made_by)
            except FileNotFoundError:  # joined with others meanwhile
                return self.read(cell)
            except (OSError, ValueError, KeyError, pa.ArrowException):
                if file not in self.damaged:
                    self.damaged.append(file)
        return found

    def result(self, cell: Cell, *, partial: bool = False) -> Result | None:
        """The replications that are wanted, or None while one is missing.

        With ``partial``, those there are from the first on, if there are two.
        """
        found = self.read(cell)
        count = 0
        while count < cell.replications and count in found:
            count += 1
        if count < (min(2, cell.replications) if partial else cell.replications):
            return None
        return Result.of([found[i] for i in range(count)], cell.work)

    def write(self, cell: Cell, outcomes: Outcomes) -> None:
        """Keep some replications of a cell; when none is missing any more, its files become one."""
        _write(self._place(cell), cell, outcomes, {revision()})
        files = self._files(cell)
        if len(files) > 1 and sum(_span(file) for file in files) >= cell.replications:
            everything = self.read(cell)
            if all(i in everything for i in range(cell.replications)):
                whole = _write(self._place(cell), cell, everything, self._revisions[cell.key])
                for file in files:
                    if file != whole:
                        file.unlink(missing_ok=True)

    def revisions(self, cells: Iterable[Cell]) -> list[str]:
        """The versions of hushprice the results read of these cells were made with."""
        return sorted({made_by for cell in cells for made_by in self._revisions.get(cell.key, ())})

    def _place(self, cell: Cell) -> Path:
        return self.folder / cell.key[:2] / cell.key

    def _files(self, cell: Cell) -> list[Path]:
        return sorted(self._place(cell).glob("*.parquet"))


def _span(file: Path) -> int:
    """How many replications a file may hold, by its name."""
    first, _, last = file.stem.partition("-")
    return int(last) - int(first) + 1 if first.isdigit() and last.isdigit() else 0


def _outcomes(file: Path, cell: Cell) -> tuple[Outcomes, list[str]]:
    """What a file holds, and what made it; a ValueError if it is not of this cell or not whole."""
    table = pq.read_table(file, page_checksum_verification=True)
    told = json.loads((table.schema.metadata or {})[b"hushprice"])
    if told["key"] != cell.key:
        raise ValueError("another cell's results")
    columns = {name: table[name].to_numpy() for name in COLUMNS}
    paths = np.array(table["path"].to_pylist(), dtype=np.float64).reshape(table.num_rows, -1)
    if paths.shape[1] != len(cell.work.checkpoints) or not np.isfinite(paths).all():
        raise ValueError("paths of another length")
    outcomes = {
        int(i): Outcome(paths[row], *(float(columns[name][row]) for name in COLUMNS))
        for row, i in enumerate(table["replication"].to_pylist())
    }
    return outcomes, told.get("revisions") or [told["revision"]]


def _write(folder: Path, cell: Cell, outcomes: Mapping[int, Outcome], revisions: set[str]) -> Path:
    """One Parquet file, written aside and moved into place."""
    order = sorted(outcomes)
    columns: dict[str, Any] = {"replication": pa.array(order, pa.int64())}
    columns |= {name: pa.array([getattr(outcomes[i], name) for i in order], pa.float64()) for name in COLUMNS}
    columns["path"] = pa.array([outcomes[i].path for i in order], pa.list_(pa.float64()))
    told = {"key": cell.key, "revisions": sorted(revisions), "word": cell.word, "content": cell.content}
    table = pa.table(columns).replace_schema_metadata({"hushprice": json.dumps(told)})
    target = folder / f"{order[0]}-{order[-1]}.parquet"
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, aside, compression="zstd", write_page_checksum=True)
        os.replace(aside, target)
    except OSError as problem:
        aside.unlink(missing_ok=True)
        raise HushpriceError(f"Results cannot be kept in {folder}: {problem.strerror or problem}.") from problem
    return target


@cache
def revision() -> str:
    """The version, with the commit when hushprice runs from its own repository."""
    here = Path(__file__).resolve().parents[3]
    if not (here / ".git").exists():
        return __version__

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = "+" if git("status", "--porcelain", "--untracked-files=no", "--", "src") else ""
        return f"{__version__} at {git('rev-parse', '--short', 'HEAD')}{changed}"
    except (OSError, subprocess.SubprocessError):
        return __version__
