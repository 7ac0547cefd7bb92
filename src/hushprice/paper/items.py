"""The figures and tables of the paper: the cells that each needs, and its pictures, tables and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from hushprice.errors import unknown
from hushprice.markets.autoloan.market import Loans, loans
from hushprice.markets.autoloan.standin import COVARIATES
from hushprice.paper import verdicts
from hushprice.paper.verdicts import Verdict
from hushprice.plots.page import Table
from hushprice.plots.panels import figure, histogram
from hushprice.studies import Cell, CellResults, Choice, Picture, Study, counted, draw, load_toml, picture_of
from hushprice.studies.spec import check_keys

SCALES = ("quick", "full")


@dataclass(frozen=True, kw_only=True)
class Item:
    """A figure or table of the paper.

    Attributes
    ----------
    name, where, title : str
        Name, place in the paper, and title.
    pictures : tuple of Picture
        Pictures of cells.
    made : str or None
        Key in :data:`MADE` of the function that makes it, if it is not made of cells.
    choices : tuple of Choice
        The cells that it needs.
    """

    name: str
    where: str
    title: str
    pictures: tuple[Picture, ...] = ()
    made: str | None = None
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Made:
    """A reproduced item.

    Attributes
    ----------
    item : Item
        The item.
    cell_results : sequence of (Cell, Result)
        Cells with results.
    wanted : int
        Number of cells that it needs.
    pictures, tables, verdicts
        Figures by name, tables, and verdicts on the published numbers.
    """

    item: Item
    cell_results: CellResults
    wanted: int
    pictures: Mapping[str, Figure]
    tables: Sequence[Table]
    verdicts: Sequence[Verdict]

    @property
    def seconds(self) -> float:
        """Seconds of computing."""
        return sum(float(result.seconds.sum()) for _, result in self.cell_results)

    @property
    def finished(self) -> bool:
        """Whether every cell has all its replications."""
        whole = all(result.replications == cell.replications for cell, result in self.cell_results)
        return whole and len(self.cell_results) == self.wanted

    @property
    def progress(self) -> str:
        """Description of the finished part."""
        cells = f"{len(self.cell_results)} of {self.wanted} cells"
        if not self.cell_results:
            return cells
        most = max(cell.replications for cell, _ in self.cell_results)
        replications = counted(result for _, result in self.cell_results)
        return f"{cells}, {replications} replications each" + ("" if self.finished else f" of {most}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Paper:
    """The paper's simulations at one scale.

    Parameters
    ----------
    scale : {"quick", "full"}
        Size of the study.
    loan_file : Path, optional
        The real auto loan file; a synthetic stand-in by default.
    replications : int, optional
        Largest number of replications per cell.

    Raises
    ------
    InvalidInput
        If the scale is unknown.

    Examples
    --------
    >>> paper = Paper(scale="quick")
    >>> len(paper.items)
    22
    """

    scale: str = "quick"
    loan_file: Path | None = None
    replications: int | None = None
    _cells: dict[str, list[Cell]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise unknown("scale", self.scale, SCALES)

    @cached_property
    def data(self) -> dict[str, Any]:
        """The study and its items as plain data."""
        return load_toml(str(files("hushprice.paper") / "paper.toml"))

    @cached_property
    def published(self) -> dict[str, Any]:
        """The published numbers."""
        return load_toml(str(files("hushprice.paper") / "published.toml"))

    @cached_property
    def study(self) -> Study:
        """The study with its runs."""
        runs = {key: value for key, value in self.data.items() if key != "items"}
        options = {"autoloan": {"file": self.loan_file}}
        return Study.of(runs, scale=self.scale, options=options, source="the paper").limited(self.replications)

    @cached_property
    def loans(self) -> Loans:
        """The auto loan applications."""
        return loans(self.loan_file)

    @cached_property
    def items(self) -> dict[str, Item]:
        """All figures and tables by name, in the paper's order."""
        return {name: self._item(name, entry) for name, entry in self.data["items"].items()}

    def _item(self, name: str, entry: Mapping[str, Any]) -> Item:
        like = self.data["items"][entry["like"]] if "like" in entry else entry
        check_keys(("where", "title", "market", "like", "also", "pictures", "made"), entry, f"the item {name}")
        only = {"markets": [entry["market"]]} if "market" in entry else {}
        pictures = []
        for i, one in enumerate(like.get("pictures", ())):
            title = entry["title"] + (f": {one['title']}" if "title" in one else "")
            plain = {"title": title, "panels": [panel | only for panel in one["panels"]]}
            pictures.append(picture_of(f"{name}-{i + 1}" if i else name, plain, self.study.runs, "the paper"))
        choices: list[Choice] = [panel for picture in pictures for panel in picture.panels]
        choices += [Choice(**(more | only)) for more in like.get("also", ())]
        choices += [Choice(**e[part]) for e in self._entries(name) for part in ("of", "than") if part in e]
        return Item(
            name=name,
            where=entry["where"],
            title=entry["title"],
            pictures=tuple(pictures),
            made=entry.get("made"),
            choices=tuple(choices),
        )

    @cached_property
    def numbers(self) -> list[dict[str, Any]]:
        """One entry per published number."""
        return [*verdicts.spread_out(self.published["tables"]), *self.published["numbers"]]

    def _entries(self, item: str) -> list[dict[str, Any]]:
        entries = (*self.numbers, *self.published["claims"], *self.published["growth"])
        return [entry for entry in entries if entry["item"] == item]

    def chosen(self, names: Sequence[str]) -> list[Item]:
        """Items by name; ``all`` is every one."""
        for name in names:
            if name != "all" and name not in self.items:
                raise unknown("figure or table", name, [*self.items, "all"])
        return [item for name, item in self.items.items() if name in names or "all" in names]

    def cells(self, *items: Item) -> list[Cell]:
        """The cells that these items need, without duplicates, in the order of the items."""
        return list(dict.fromkeys(cell for item in items for cell in self._needs(item)))

    def _needs(self, item: Item) -> list[Cell]:
        cells = []
        for name in self.study.runs:
            if any(name in choice.runs for choice in item.choices):
                if name not in self._cells:
                    self._cells[name] = self.study.runs[name].cells()
                cells += [cell for cell in self._cells[name] if any(choice.chooses(cell) for choice in item.choices)]
        return cells

    def make(self, item: Item, cell_results: CellResults, *, partial: bool = False) -> Made:
        """Make the pictures, tables and verdicts of an item.

        Parameters
        ----------
        item : Item
            The item.
        cell_results : sequence of (Cell, Result)
            Cells with results.
        partial : bool
            Whether pictures may be incomplete.

        Returns
        -------
        Made
            The item with pictures, tables and verdicts.
        """
        drawn = {picture.name: draw(picture, cell_results, partial_results=partial) for picture in item.pictures}
        pictures = {name: one for name, one in drawn.items() if one is not None}
        tables: list[Table] = []
        if item.made is not None:
            more, tables = MADE[item.made](self, item, cell_results)
            pictures |= more
        return Made(
            item=item,
            cell_results=cell_results,
            wanted=len(self.cells(item)),
            pictures=pictures,
            tables=tables,
            verdicts=self.verdicts(item, cell_results),
        )

    def synthetic(self, item: Item) -> bool:
        """Whether an item comes from the stand-in and not from real loans."""
        return item.name.startswith("loan") and self.loans.name.endswith("synthetic")

    def verdicts(self, item: Item, cell_results: CellResults) -> list[Verdict]:
        """Verdicts on the published numbers of an item that can be computed from the results."""
        judged: list[Verdict | None] = []
        for entry in self.numbers:
            if entry["item"] == item.name and "facts" in entry:
                judged.append(verdicts.fact_verdict(entry, lambda: self.loans))
            elif entry["item"] == item.name:
                judged.append(verdicts.number_verdict(entry, cell_results, self.published["replications"]))
        judged += [verdicts.claim_verdict(e, cell_results) for e in self.published["claims"] if e["item"] == item.name]
        for entry in self.published["growth"]:
            if entry["item"] == item.name:
                judged += verdicts.growth_verdicts(entry, cell_results)
        for entry in self.published["coefficients"]:
            if entry["item"] == item.name:
                judged += verdicts.coefficient_verdicts(entry, self.loans, COVARIATES)
        synthetic = self.synthetic(item)
        return [replace(verdict, synthetic=synthetic) for verdict in judged if verdict is not None]


Maker = Callable[[Paper, Item, CellResults], tuple[dict[str, Figure], list[Table]]]
DESCRIBED = {
    "apply": "binary: whether the loan was taken up (the outcome)",
    "price": "mp times the sum over the term of 1.0012^-i, less the amount, in thousands of dollars",
    "Primary_FICO": "FICO score",
    "Competition_rate": "competitor's rate",
    "Amount_Approved": "loan amount approved, dollars",
    "onemonth": "prime rate",
    "Term": "approved term, months",
    "mp": "monthly payment, dollars (for the price)",
}


def _unknown_table(paper: Paper, item: Item, cell_results: CellResults) -> tuple[dict[str, Figure], list[Table]]:
    """Mean (sd) of regret and of seconds, one row per policy, one column per dimension."""
    rows: dict[str, dict[str, Any]] = {}
    for cell, result in cell_results:
        many = result.replications > 1
        for what, values, digits in (("regret", result.regret, 1), ("seconds", result.seconds, 3)):
            row = rows.setdefault(f"{cell.label}, {what}", {"": f"{cell.label}, {what}"})
            sd = f" ({values.std(ddof=1):,.{digits}f})" if many else ""
            row[f"d = {result.dim}"] = f"{values.mean():,.{digits}f}{sd}"
    caption = f"Mean (sd) over {counted(r for _, r in cell_results)} replications, S1, T = 490 000 unknown"
    return {}, [Table(list(rows.values()), caption)] if rows else []


def _loan_columns(paper: Paper, item: Item, cell_results: CellResults) -> tuple[dict[str, Figure], list[Table]]:
    """The columns of the auto loan file, with their means."""
    means = dict(zip(COVARIATES, paper.loans.means, strict=True))
    means |= {"apply": paper.loans.apply.mean(), "price": paper.loans.price.mean(), "mp": paper.loans.payment.mean()}
    rows: list[dict[str, Any]] = [
        {"variable": name, "description": text, f"mean ({paper.loans.name})": float(means[name])}
        for name, text in DESCRIBED.items()
    ]
    return {}, [Table(rows, f"Columns of the auto loan file, with their means in {paper.loans.name}")]


def _loan_fit(paper: Paper, item: Item, cell_results: CellResults) -> tuple[dict[str, Figure], list[Table]]:
    """The logistic regression on all rows, with standard errors."""
    fitted, errors = paper.loans.fitted.theta, paper.loans.standard_errors
    d = len(COVARIATES)
    rows = [
        {"": part, **{name: f"{fitted[i + k]:.3f} ({errors[i + k]:.3f})" for k, name in enumerate(COVARIATES)}}
        for i, part in ((0, "alpha"), (d, "beta"))
    ]
    return {}, [Table(rows, f"Fitted on all {len(paper.loans.z):,} rows of {paper.loans.name} (standard error)")]


def _loan_histograms(paper: Paper, item: Item, cell_results: CellResults) -> tuple[dict[str, Figure], list[Table]]:
    """Norm and price sensitivity of all rows with the cuts, optimal prices of the rows that remain."""
    table = paper.loans
    drawn = [
        lambda axes: histogram(table.norm, axes, xlabel="norm of the covariates", marks=[table.norm_limit]),
        lambda axes: histogram(table.sensitivity, axes, xlabel="price sensitivity", marks=[table.sensitivity_limit]),
        lambda axes: histogram(table.optimal_prices, axes, xlabel="optimal price, thousands"),
    ]
    title = f"{item.title} (synthetic stand-in)" if paper.synthetic(item) else item.title
    facts: list[dict[str, Any]] = [{"fact": name, table.name: value} for name, value in table.facts().items()]
    note = f"{len(table.z):,} rows, {len(table.rows):,} kept"
    return {item.name: figure(drawn, title=title, note=note)}, [Table(facts, f"Facts of {table.name}")]


MADE: dict[str, Maker] = {
    "unknown-table": _unknown_table,
    "loan-columns": _loan_columns,
    "loan-fit": _loan_fit,
    "loan-histograms": _loan_histograms,
}
