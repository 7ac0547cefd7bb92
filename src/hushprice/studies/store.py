"""Store results in Parquet files, one folder per cell, addressed by everything that the cell's numbers depend on.

    store/3f/3f9c.../0-49.parquet       replications 0 to 49: one row each, with the regret path
    store/3f/3f9c.../50-99.parquet

The address is a hash of the policy's configuration, the market, the horizon and the seed. A cell with the same
parameters reuses its results; a changed parameter has another address. Files are written atomically and never changed;
those of a finished cell are joined into one.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from os import PathLike
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hushprice.errors import HushpriceError, InvalidInput
from hushprice.files import replacing
from hushprice.simulation import Outcome, Result
from hushprice.studies.cells import Cell
from hushprice.version import __version__

FIRST_COLUMNS = ("revenue", "exploration", "seconds")
OUTCOME_COLUMNS = (*FIRST_COLUMNS, "deviation", "far")  # the last two are missing in files of earlier releases


def _schema(columns: tuple[str, ...]) -> pa.Schema:
    numbers = ((name, pa.float64()) for name in columns)
    return pa.schema([("replication", pa.int64()), *numbers, ("path", pa.list_(pa.float64()))])


RESULTS_SCHEMA, FIRST_SCHEMA = _schema(OUTCOME_COLUMNS), _schema(FIRST_COLUMNS)
RESULTS_FILE = re.compile(r"[0-9]{1,15}-[0-9]{1,15}\.parquet")
Outcomes = dict[int, Outcome]


class Store:
    """A folder of results.

    Parameters
    ----------
    folder : path
        The folder; it is created if necessary.

    Raises
    ------
    InvalidInput
        If the folder cannot be created.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        self.damaged: list[Path] = []  # unreadable files; their results are computed again
        self._revisions: dict[str, set[str]] = {}  # versions of the results read, by cell
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise InvalidInput(f"The results cannot be kept in {self.folder}: {problem.strerror}.") from None

    def read(self, cell: Cell) -> Outcomes:
        """The stored replications by number."""
        stored: Outcomes = {}
        for outcomes in self._parts(cell).values():
            stored |= outcomes
        return stored

    def _parts(self, cell: Cell, *, again: int = 3) -> dict[Path, Outcomes]:
        """The replications in each file of a cell, except damaged files."""
        parts = {}
        for file in self._files(cell):
            try:
                parts[file], made_by = _outcomes(file, cell)
                self._revisions.setdefault(cell.key, set()).update(made_by)
            except FileNotFoundError:  # joined with others meanwhile
                if again:
                    return self._parts(cell, again=again - 1)
            except (OSError, ValueError, KeyError, TypeError, OverflowError, pa.ArrowException):
                if file not in self.damaged:
                    self.damaged.append(file)
        return parts

    def result(self, cell: Cell, *, partial: bool = False) -> Result | None:
        """The result of a cell.

        Parameters
        ----------
        cell : Cell
            The cell.
        partial : bool
            Whether an incomplete result is returned if it has at least the first two replications.

        Returns
        -------
        Result or None
            The result; None if replications are missing.
        """
        stored = self.read(cell)
        count = 0
        while count < cell.replications and count in stored:
            count += 1
        if count < (min(2, cell.replications) if partial else cell.replications):
            return None
        return Result.of([stored[i] for i in range(count)], cell.work)

    def write(self, cell: Cell, outcomes: Outcomes) -> None:
        """Store replications of a cell; when it is complete, its files are joined into one."""
        _write(self._place(cell), cell, outcomes, {revision()})
        files = self._files(cell)
        if len(files) > 1 and sum(_span(file) for file in files) >= cell.replications:
            self._join(cell)

    def _join(self, cell: Cell) -> None:
        """Join replications 0, 1, ... up to the first missing one in one file, if the cell is complete."""
        parts = self._parts(cell)
        everything = {i: outcome for outcomes in parts.values() for i, outcome in outcomes.items()}
        whole: Outcomes = {}
        while len(whole) in everything:
            whole[len(whole)] = everything[len(whole)]
        if len(whole) < cell.replications:
            return
        joined = _write(self._place(cell), cell, whole, self._revisions[cell.key])
        for file, outcomes in parts.items():
            if file != joined and outcomes.keys() <= whole.keys():
                file.unlink(missing_ok=True)
        for file in self.damaged:
            if file.parent == joined.parent and file != joined:
                file.unlink(missing_ok=True)

    def revisions(self, cells: Iterable[Cell]) -> list[str]:
        """The versions of hushprice that made the results read of these cells."""
        return sorted({made_by for cell in cells for made_by in self._revisions.get(cell.key, ())})

    def _place(self, cell: Cell) -> Path:
        return self.folder / cell.key[:2] / cell.key

    def _files(self, cell: Cell) -> list[Path]:
        return sorted(
            file for file in self._place(cell).glob("*.parquet") if RESULTS_FILE.fullmatch(file.name) and file.is_file()
        )


def _ends(file: Path) -> tuple[int, int]:
    """The first and the last replication of a file, by its name."""
    first, last = file.stem.split("-")
    return int(first), int(last)


def _span(file: Path) -> int:
    """The number of replications that a file can hold, by its name."""
    first, last = _ends(file)
    return last - first + 1


def _outcomes(file: Path, cell: Cell) -> tuple[Outcomes, list[str]]:
    """The replications in a file and the versions that made them; raises ValueError if the file is invalid."""
    table = pq.read_table(file, page_checksum_verification=True)
    metadata = json.loads((table.schema.metadata or {})[b"hushprice"])
    if metadata["key"] != cell.key:
        raise ValueError("another cell's results")
    if not (table.schema.equals(RESULTS_SCHEMA) or table.schema.equals(FIRST_SCHEMA)):
        raise ValueError("other columns")
    numbers = table["replication"].to_pylist()
    columns = {name: table[name].to_numpy() for name in OUTCOME_COLUMNS if name in table.column_names}
    paths = np.array(table["path"].to_pylist(), dtype=np.float64).reshape(table.num_rows, -1)
    if paths.shape[1] != len(cell.work.checkpoints):
        raise ValueError("paths of another length")
    if not all(np.isfinite(values).all() for values in (paths, *(columns[name] for name in FIRST_COLUMNS))):
        raise ValueError("values that are no numbers")
    if numbers != sorted(set(numbers)) or (numbers[0], numbers[-1]) != _ends(file):
        raise ValueError("other replications than its name says")
    outcomes = {
        i: Outcome(path=paths[row], **{name: float(values[row]) for name, values in columns.items()})
        for row, i in enumerate(numbers)
    }
    return outcomes, metadata.get("revisions") or [metadata["revision"]]


def _write(folder: Path, cell: Cell, outcomes: Mapping[int, Outcome], revisions: set[str]) -> Path:
    """Write one Parquet file under a temporary name and rename it."""
    order = sorted(outcomes)
    columns = {"replication": order, **{name: [getattr(outcomes[i], name) for i in order] for name in OUTCOME_COLUMNS}}
    columns["path"] = [outcomes[i].path for i in order]
    metadata = {"key": cell.key, "revisions": sorted(revisions), "word": cell.word, "content": cell.content}
    table = pa.table(columns, schema=RESULTS_SCHEMA).replace_schema_metadata(
        {"hushprice": json.dumps(metadata, default=repr)}
    )
    target = folder / f"{order[0]}-{order[-1]}.parquet"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(target) as aside:
            pq.write_table(table, aside, compression="zstd", write_page_checksum=True)
    except OSError as problem:
        raise HushpriceError(f"Results cannot be kept in {folder}: {problem.strerror or problem}.") from problem
    return target


@cache
def revision() -> str:
    """The version; in the repository of hushprice, with the commit."""
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
