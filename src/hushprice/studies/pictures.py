"""The pictures of a study, and its numbers as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hushprice.errors import InvalidInput
from hushprice.plots import panels
from hushprice.simulation import Outcome, Result
from hushprice.studies.cells import Cell
from hushprice.studies.spec import Panel, Picture

CellResults = Sequence[tuple[Cell, Result]]


def draw(picture: Picture, cell_results: CellResults, *, partial_results: bool = False) -> Figure | None:
    """Draw a picture of the cells that have results.

    Parameters
    ----------
    picture : Picture
        The picture.
    cell_results : sequence of (Cell, Result)
        Cells and results.
    partial_results : bool
        Whether a panel without enough results is replaced by a remark instead of an error.

    Returns
    -------
    Figure or None
        The Matplotlib figure; None if the picture has none of the cells.
    """
    drawn_cells = [_chosen(panel, cell_results) for panel in picture.panels]
    if not any(drawn_cells):
        return None
    drawn = [
        partial(_draw_panel, panel, cells, partial_results)
        for panel, cells in zip(picture.panels, drawn_cells, strict=True)
    ]
    cells = [cell for chosen in drawn_cells for cell in chosen]
    made_up = " (synthetic stand-in)" if any(result.market.endswith("synthetic") for _, result in cells) else ""
    return panels.figure(drawn, title=picture.title + made_up, note=_note(cells))


def check_drawable(picture: Picture, cells: Sequence[Cell]) -> None:
    """Draw a picture of artificial results, so that one that cannot be drawn is refused before the simulations."""
    cell_results = [(cell, _artificial(cell)) for cell in cells]
    hint = "A panel chooses its cells by runs, markets, labels, dims and horizons."
    for panel in picture.panels:
        chosen = _chosen(panel, cell_results)
        if not chosen:
            raise InvalidInput(f"The {panel.panel} panel of the picture {picture.name} chooses no cells. {hint}")
        if panel.panel == "paths" and min(len(result.checkpoints) for _, result in chosen) < 2:
            raise InvalidInput(f"The paths of the picture {picture.name} need runs with checkpoints = 2 or more.")
    try:
        figure = draw(picture, cell_results)
        if figure is not None:
            figure.draw_without_rendering()
    except ValueError as problem:  # also Matplotlib's, as for an invalid formula in a title
        raise InvalidInput(f"The picture {picture.name} cannot be drawn: {problem} {hint}") from None


def _artificial(cell: Cell) -> Result:
    """Two replications whose regret is about sqrt(d t)."""
    path = np.sqrt(cell.work.market.dim * cell.work.checkpoints.astype(float))
    return Result.of([Outcome(scale * path, 1.0, 0.1, 0.01 * scale) for scale in (1.0, 1.1)], cell.work)


def _chosen(panel: Panel, cell_results: CellResults) -> list[tuple[str, Result]]:
    """The cells of a panel, in the order of its labels if it names them."""
    cells = [(cell.label, result) for cell, result in cell_results if panel.chooses(cell)]
    places = {label: i for i, label in enumerate(panel.labels)}
    return sorted(cells, key=lambda pair: places.get(pair[0], 0))


def _title(cells: Sequence[tuple[str, Result]]) -> str | None:
    """The values of market, d and T that all cells of a panel share."""
    results = [result for _, result in cells]
    worlds, dims, horizons = ({getattr(r, name) for r in results} for name in ("market", "dim", "horizon"))
    parts = [*worlds] if len(worlds) == 1 else []
    parts += [f"d = {n}" for n in dims if len(dims) == 1]
    parts += [f"T = {n:,}" for n in horizons if len(horizons) == 1]
    return ", ".join(parts) or None


def _draw_panel(panel: Panel, cells: list[tuple[str, Result]], partial_results: bool, axes: Axes) -> None:
    try:
        options: dict[str, Any] = {"title": _title(cells), **panel.options}
        panels.PANELS[panel.panel](cells, axes, **options)
    except InvalidInput:
        if not partial_results:
            raise
        axes.text(0.5, 0.5, "not enough results yet", ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()


def _note(cells: Sequence[tuple[str, Result]]) -> str:
    """The note below a picture: numbers of replications, and the meaning of bars."""
    return f"{counted(result for _, result in cells)} replications a cell; bars and bands: 3 standard errors"


def counted(results: Iterable[Result]) -> str:
    """The number of replications as text: one number, or the smallest and the largest."""
    counts = sorted({result.replications for result in results})
    return " to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1]))) if counts else "no"


def cell_rows(cell_results: CellResults) -> list[dict[str, Any]]:
    """One row per cell: its parameters, regret, revenue and computing time."""
    rows = []
    for cell, result in cell_results:
        s = result.summary()
        low, high = np.quantile(result.regret, [0.25, 0.75])
        rows.append(
            {
                "run": cell.run, "market": s.market, "label": cell.label, "policy": cell.word, "d": s.dim,
                "T": s.horizon,
                "replications": s.replications, "seed": result.seed, "mean": s.mean, "sd": s.sd, "se": s.se,
                "median": s.median, "quartile 1": float(low), "quartile 3": float(high), "revenue": s.revenue,
                "explored": s.exploration, "deviation": s.deviation, "far": s.far, "seconds": s.seconds,
            }
        )  # fmt: skip
    return rows


def path_rows(cell_results: CellResults) -> list[dict[str, Any]]:
    """One row per cell and checkpoint, of the cells that have several."""
    rows = []
    for cell, result in cell_results:
        if len(result.checkpoints) < 2:
            continue
        se = result.path_sd() / np.sqrt(result.replications)
        for t, mean, error in zip(result.checkpoints, result.path_mean(), se, strict=True):
            rows.append(
                {
                    "run": cell.run, "market": result.market, "label": cell.label, "d": result.dim, "t": int(t),
                    "mean": float(mean), "se": float(error),
                }
            )  # fmt: skip
    return rows
