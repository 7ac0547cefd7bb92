"""The report of the reproduction: figures, tables, published numbers next to ours, and reasons for differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hushprice.paper.items import Made, Paper
from hushprice.paper.verdicts import Verdict
from hushprice.plots import Picture, Section, Table, duration, markdown, page
from hushprice.studies import Store, processes

READING = (
    "A number agrees when it lies within 3 standard errors (se) of the paper's. Both have one: ours from the jackknife "
    "over the n replications, the paper's as of 500 replications and its rounding; with few replications it takes "
    "more, by Student's t. It is close within 5% and differs otherwise; with too few replications it may be neither. A "
    "comparison holds when it is true of most cells, of all together beyond chance (3 standard errors), and in none "
    "reversed beyond chance; it is open while chance could make it either way. Computing times are CPU "
    "seconds of one replication on one core of this machine."
)
SYNTHETIC = (
    "The auto loan file may not be passed on. These results are of a SYNTHETIC stand-in, made so that the published "
    "facts hold and the regrets of ETC-Doubling and MLE-Cycle come out: that they agree is no evidence, and the other "
    "regrets are not those of real customers. With the real file: --loan-file FILE."
)


@dataclass(frozen=True, eq=False)
class Report:
    """A report, as an HTML page or as Markdown.

    Attributes
    ----------
    title : str
        Title.
    lead : sequence of str
        Paragraphs below the title.
    sections : sequence of Section
        Sections.
    """

    title: str
    lead: Sequence[str]
    sections: Sequence[Section]

    def html(self) -> str:
        """The report as one self-contained HTML page."""
        return page(self.title, "\n".join(self.lead), self.sections)

    def markdown(self) -> str:
        """The report as Markdown; pictures are separate files."""
        return markdown(self.title, self.lead, self.sections, link=lambda picture: f"{picture.name}.png")


def report(paper: Paper, made: Sequence[Made], store: Store, *, command: str) -> Report:
    """Make the report of the reproduced items.

    Parameters
    ----------
    paper : Paper
        The paper.
    made : sequence of Made
        Reproduced items.
    store : Store
        Store of the results.
    command : str
        Command line that completes the report.

    Returns
    -------
    Report
        The report.
    """
    visible = [one for one in made if one.cell_results or not one.wanted]
    sections = [_overview(made), *(_section(one, paper) for one in visible), _slips(paper), _cost(made)]
    cells = [cell for one in made for cell, _ in one.cell_results]
    revisions = store.revisions(cells)
    lead = (
        f"{len(made)} figures and tables of Zhao, Jiang and Yu, {paper.study.title}, at scale {paper.scale}.",
        f"To make or complete it: {command}. Results of hushprice {', '.join(revisions) or '(none simulated)'}.",
    )
    return Report("The paper, reproduced", lead, sections)


def _overview(made: Sequence[Made]) -> Section:
    """The summary: counts of verdicts, and the differences."""
    everything = [verdict for one in made for verdict in one.verdicts]
    real, made_up = ([v for v in everything if v.synthetic is kind] for kind in (False, True))
    unfinished = [f"{one.item.name} ({one.progress})" for one in made if not one.finished]
    text = [f"{len(real)} published numbers and comparisons: {_counts(real)}.", READING]
    if made_up:
        text.append(f"{len(made_up)} more of the auto loans: {_counts(made_up)}. {SYNTHETIC}")
    if unfinished:
        text.append(f"Not finished: {', '.join(unfinished)}.")
    differ = [verdict for verdict in everything if verdict.verdict in ("differs", "fails", "slower")]
    tables = [_table(differ, "Where we differ, and why", item=True)] if differ else []
    return Section("Summary", "summary", text=tuple(text), tables=tuple(tables))


def _counts(verdicts: Sequence[Verdict]) -> str:
    return ", ".join(f"{n} {word}" for word, n in Counter(verdict.verdict for verdict in verdicts).most_common())


def _section(one: Made, paper: Paper) -> Section:
    item = one.item
    text = [item.where]
    if paper.synthetic(item):
        text.append(SYNTHETIC)
    if one.wanted:
        grid = [sorted({getattr(r, name) for _, r in one.cell_results}) for name in ("dim", "horizon")]
        d, T = (", ".join(f"{n:,}" for n in numbers) for numbers in grid)
        text.append(f"{one.progress}; {duration(one.seconds)} of computing. d = {d}; T = {T}.")
    tables = list(one.tables)
    if one.verdicts:
        tables.append(_table(one.verdicts, "Published and ours"))
    pictures = [
        Picture(figure, alt=f"{item.title}, our version of {item.where}", name=name)
        for name, figure in one.pictures.items()
    ]
    return Section(
        f"{item.title} ({item.name})", item.name, text=tuple(text), pictures=tuple(pictures), tables=tuple(tables)
    )


def _table(verdicts: Sequence[Verdict], caption: str, *, item: bool = False) -> Table:
    rows = []
    for verdict in verdicts:
        row: dict[str, Any] = {"item": verdict.item} if item else {}
        row |= {
            "what": verdict.what,
            "verdict": verdict.verdict,
            "ours": f"{verdict.ours} (synthetic)" if verdict.synthetic else verdict.ours,
            "paper": verdict.paper,
            "difference": _difference(verdict),
            "n": verdict.replications,
            "why": verdict.why,
        }
        rows.append(row)
    return Table(rows, caption, status_column="verdict")


def _difference(verdict: Verdict) -> str:
    """The difference in percent of the paper's number and in standard errors."""
    parts = [] if verdict.percent is None else [f"{verdict.percent:+.1f}%"]
    parts += [] if verdict.z is None else [f"{verdict.z:+.1f} se"]
    return ", ".join(parts)


def _slips(paper: Paper) -> Section:
    rows = [{"in the paper": slip["what"], "what we do": slip["ours"]} for slip in paper.published["slips"]]
    return Section("Where the text is wrong or silent", "slips", tables=(Table(rows, "The paper's slips"),))


def _cost_rows(made: Sequence[Made]) -> list[dict[str, Any]]:
    """Computing time, one row per item; a cell of several items counts in each."""
    return [
        {
            "item": one.item.name,
            "cells": one.wanted,
            "replications": sum(result.replications for _, result in one.cell_results),
            "computing": duration(one.seconds),
        }
        for one in made
        if one.wanted
    ]


def _cost(made: Sequence[Made]) -> Section:
    unique = {cell.key: float(result.seconds.sum()) for one in made for cell, result in one.cell_results}
    spent = sum(unique.values())
    text = f"{duration(spent)} of computing in all, about {duration(spent / processes(-1))} on this machine's cores."
    return Section("What it took", "cost", text=(text,), tables=(Table(_cost_rows(made), "Computing, by item"),))
