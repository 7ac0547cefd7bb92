"""A study as data: policies, markets, the grid, the number of replications, and pictures.

title = "What privacy costs"
replications = 100

[runs.prices]                       # a grid: every policy at every d and T
market = "s1:public=0.1"
policies = { "no privacy" = "etc", "epsilon = 1" = "etc-ldp:epsilon=1" }    # or a list of words
dims = [1, 4]
horizons = [10000, 40000]

[runs.prices.scales.quick]          # overrides for --scale quick
replications = 10

[pictures.growth]
panels = [{ panel = "mean-regret", runs = ["prices"] }, { panel = "boxes", runs = ["prices"], by = "dim" }]
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

from hushprice.errors import InvalidInput, positive_int, unknown
from hushprice.plots.panels import PANELS
from hushprice.studies.cells import Cell, Options, Run

STUDY_NAME = re.compile(r"\w[\w .-]{0,80}")  # pattern of names that become files or folders


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A selection of cells.

    Parameters
    ----------
    runs : sequence of str
        Runs.
    markets, labels : sequence of str
        Markets and labels of policies; all by default.
    dims, horizons : sequence of int
        Dimensions and horizons; all by default.
    """

    runs: Sequence[str]
    markets: Sequence[str] = ()
    labels: Sequence[str] = ()
    dims: Sequence[int] = ()
    horizons: Sequence[int] = ()

    def chooses(self, cell: Cell) -> bool:
        """Whether the cell is selected."""
        return (
            cell.run in self.runs
            and (not self.markets or cell.work.market.name in self.markets)
            and (not self.labels or cell.label in self.labels)
            and (not self.dims or cell.work.market.dim in self.dims)
            and (not self.horizons or cell.work.horizon in self.horizons)
        )


@dataclass(frozen=True, kw_only=True)
class Panel(Choice):
    """A panel of a picture, with the cells that it shows.

    Parameters
    ----------
    panel : str
        Kind: a key of :data:`hushprice.plots.PANELS`.
    options : mapping
        Keyword arguments of the panel.
    """

    panel: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture: a name, a title and panels side by side."""

    name: str
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study.

    Attributes
    ----------
    title : str
        Title.
    runs : mapping of str to Run
        Runs by name.
    pictures : mapping of str to Picture
        Pictures by name.
    """

    title: str
    runs: Mapping[str, Run]
    pictures: Mapping[str, Picture]

    @classmethod
    def read(
        cls,
        path: str | PathLike[str],
        *,
        scale: str | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Study:
        """Read a study from a TOML file.

        Parameters
        ----------
        path : path
            The file.
        scale : str, optional
            A scale of the study, whose values override others.
        options : mapping, optional
            Further options of markets, by name.

        Returns
        -------
        Study
            The study.

        Raises
        ------
        InvalidInput
            If the file or a value in it is invalid.
        """
        return cls.of(load_toml(path), scale=scale, options=options, source=Path(path).name)

    @classmethod
    def of(
        cls,
        data: Mapping[str, Any],
        *,
        scale: str | None = None,
        options: Options | None = None,
        source: str = "the study",
    ) -> Study:
        """A study from plain data; ``source`` names it in errors."""
        keys = ("title", "seed", "replications", "checkpoints", "scales", "runs", "pictures")
        check_keys(keys, data, source)
        takes = [f.name for f in fields(Run) if f.name not in ("name", "options")]
        for name, entry in _table(data, "runs", source).items():
            if isinstance(entry, dict):
                check_keys([*takes, "scales"], entry, f"the run {name} of {source}")
        _check_scale(data, scale, source)
        common = {key: data[key] for key in ("seed", "replications", "checkpoints") if key in data}
        wide = _table(_table(data, "scales", source), scale, source) if scale else {}
        runs = {}
        for name, entry in _table(data, "runs", source).items():
            if not isinstance(entry, dict):
                raise InvalidInput(f"runs.{name} in {source} must be a table: [runs.{name}].")
            own = {key: value for key, value in entry.items() if key != "scales"}
            narrow = _table(_table(entry, "scales", source), scale, source) if scale else {}
            merged = common | own | wide | narrow
            check_keys(takes, merged, f"the run {name} of {source}")
            if missing := [key for key in ("market", "policies", "horizons") if key not in merged]:
                raise InvalidInput(f"The run {name} of {source} needs {', '.join(missing)}.")
            runs[name] = Run(name=name, **merged, options=options or {})
        if not runs:
            raise InvalidInput(f"{source} has no runs: add one, as in [runs.mine] with market, policies and horizons.")
        pictures = {
            name: picture_of(name, entry, runs, source) for name, entry in _table(data, "pictures", source).items()
        }
        return cls(title=str(data.get("title", source)), runs=runs, pictures=pictures)

    def limited(self, replications: int | None) -> Study:
        """The same study with at most so many replications per cell."""
        if replications is None:
            return self
        most = positive_int("replications", replications)
        return replace(
            self, runs={n: replace(run, replications=min(run.replications, most)) for n, run in self.runs.items()}
        )

    def cells(self, runs: Iterable[str] | None = None) -> list[Cell]:
        """The cells of these runs, or of all, in the order of the file."""
        wanted = set(self.runs if runs is None else runs)
        return [cell for name, run in self.runs.items() if name in wanted for cell in run.cells()]


def check_name(what: str, name: str) -> None:
    """Refuse a name that cannot be a file name."""
    if not STUDY_NAME.fullmatch(name):
        raise InvalidInput(f"{what} needs a name of letters, digits, dots, dashes and spaces: it becomes a file.")


def picture_of(name: str, entry: Any, runs: Mapping[str, Run], source: str) -> Picture:
    """A picture from plain data."""
    where = f"the picture {name} of {source}"
    check_name(f"The picture {name!r} of {source}", name)
    if not isinstance(entry, dict) or not isinstance(entry.get("panels"), list) or not entry["panels"]:
        raise InvalidInput(f"{where} needs panels: a list such as [{{ panel = 'paths', runs = ['mine'] }}].")
    check_keys(("title", "panels"), entry, where)
    return Picture(
        name=name,
        title=str(entry.get("title", name)),
        panels=tuple(_panel(panel, runs, where) for panel in entry["panels"]),
    )


def _panel(entry: Any, runs: Mapping[str, Run], where: str) -> Panel:
    if not isinstance(entry, dict) or not isinstance(entry.get("panel"), str):
        raise InvalidInput(f"A panel of {where} must say which it is, as in {{ panel = 'boxes', by = 'dim' }}.")
    if entry["panel"] not in PANELS:
        raise unknown("panel", entry["panel"], PANELS)
    own = {f.name for f in fields(Panel)} - {"options"}
    options = {key: value for key, value in entry.items() if key not in own}
    takes = [p for p in inspect.signature(PANELS[entry["panel"]]).parameters.values() if p.kind is p.KEYWORD_ONLY]
    check_keys([*own, *(p.name for p in takes)], entry, f"a {entry['panel']} panel of {where}")
    if missing := [p.name for p in takes if p.default is p.empty and p.name not in options]:
        raise InvalidInput(f"A {entry['panel']} panel of {where} needs {', '.join(missing)}.")
    for name, wanted in (("title", str), ("log", bool)):
        if name in options and not isinstance(options[name], wanted):
            raise InvalidInput(f"{name} in a panel of {where} must be {'text' if wanted is str else 'true or false'}.")
    for name, kind in (("runs", str), ("markets", str), ("labels", str), ("dims", int), ("horizons", int)):
        some = entry.get(name, [])
        if not isinstance(some, list) or not all(isinstance(one, kind) for one in some):
            like = '["mine"]' if kind is str else "[1, 4]"
            raise InvalidInput(f"{name} in a panel of {where} must be a list, as in {name} = {like}.")
    chosen = entry.get("runs", list(runs))
    for name in chosen:
        if name not in runs:
            raise unknown(f"run in {where}", name, runs)
    for label in entry.get("labels", ()):
        if not any(label in runs[name].policies for name in chosen):
            raise unknown(f"policy in {where}", label, [label for name in chosen for label in runs[name].policies])
    return Panel(**({"runs": chosen} | {k: v for k, v in entry.items() if k in own}), options=options)


def load_toml(path: str | PathLike[str]) -> dict[str, Any]:
    """The plain data of a TOML file."""
    target = Path(path)
    try:
        return tomllib.loads(target.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(f"There is no study file {target}.") from None
    except IsADirectoryError:
        raise InvalidInput(f"{target} is a folder; name the TOML file in it.") from None
    except OSError as problem:
        raise InvalidInput(f"{target.name} cannot be read: {problem.strerror}.") from None
    except (ValueError, RecursionError) as problem:
        raise InvalidInput(f"{target} is not a TOML file: {problem}.") from None


def _check_scale(data: Mapping[str, Any], scale: str | None, source: str) -> None:
    if scale is None:
        return
    scales = set(_table(data, "scales", source))
    for run in _table(data, "runs", source).values():
        scales |= set(_table(run, "scales", source)) if isinstance(run, dict) else set()
    if scale not in scales:
        raise unknown(f"scale in {source}", scale, scales)


def _table(data: Mapping[str, Any], name: str | None, source: str) -> dict[str, Any]:
    table = data.get(str(name), {})
    if not isinstance(table, dict):
        raise InvalidInput(f"{name} in {source} must be a table.")
    return table


def check_keys(allowed: Iterable[str], keys: Iterable[str], where: str) -> None:
    """Refuse an unknown key."""
    for key in keys:
        if key not in allowed:
            raise unknown(f"key in {where}", key, allowed)
