"""The panels of figures: what they draw, from which numbers, and how they say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch

import hushprice as hp
from hushprice.errors import InvalidInput
from hushprice.plots import panels
from hushprice.plots.figures import COLOURS
from tests.conftest import make_policy

Grid = list[tuple[str, hp.Result]]
NAMES = {"ETC": "etc", "Semi-Myopic": "semi-myopic"}


def _cell(label: str, d: int, T: int, n: int = 3) -> tuple[str, hp.Result]:
    policy = make_policy(NAMES[label], dim=d, horizon=T)
    return label, hp.simulate(policy, hp.markets.s1(dim=d), horizon=T, replications=n, seed=1, checkpoints=20)


@pytest.fixture(scope="module")
def grid() -> Grid:
    """Two labels, two dimensions, two horizons; not in order."""
    return [_cell(label, d, T) for label in NAMES for T in (500, 250) for d in (3, 1)]


@pytest.fixture(scope="module")
def etc(grid: Grid) -> Grid:
    return [cell for cell in grid if cell[0] == "ETC"]


def _at(grid: Grid, **wanted: int) -> Grid:
    return [cell for cell in grid if all(getattr(cell[1], name) == value for name, value in wanted.items())]


def _axes() -> Axes:
    return Figure().subplots()


def _legend(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    return [] if legend is None else [words for text in legend.get_texts() if (words := text.get_text())]


def _curves(axes: Axes) -> list[tuple[str, Any, np.ndarray, np.ndarray, np.ndarray]]:
    """(colour, line style, x, y, ends of the bars) of each line with bars."""
    curves = []
    for bars in axes.containers:
        assert isinstance(bars, ErrorbarContainer)
        line, _, (segments,) = bars.lines
        assert line is not None
        ends = np.array([part[:, 1] for part in segments.get_segments()])
        x, y = np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)
        curves.append((to_hex(line.get_color()).upper(), line.get_linestyle(), x, y, ends))
    return curves


def _boxes(axes: Axes) -> list[PathPatch]:
    return [patch for patch in axes.patches if isinstance(patch, PathPatch)]


def test_mean_regret_draws_means_and_three_standard_errors(grid: Grid) -> None:
    axes = _axes()
    panels.mean_regret(grid, axes, title="Under (S1)")
    curves = _curves(axes)
    assert [(colour, style) for colour, style, *_ in curves] == [
        (COLOURS[0], "-"), (COLOURS[1], "-"), (COLOURS[0], "--"), (COLOURS[1], "--"),
    ]  # fmt: skip
    for (label, d), (_, _, x, y, ends) in zip([(label, d) for label in NAMES for d in (1, 3)], curves, strict=True):
        cells = [r for T in (250, 500) for name, r in _at(grid, dim=d, horizon=T) if name == label]
        np.testing.assert_array_equal(x, [250, 500])
        np.testing.assert_allclose(y, [r.regret.mean() for r in cells], rtol=1e-12)
        reach = np.array([3 * r.summary().se for r in cells])
        np.testing.assert_allclose(ends[:, 1], y + reach)
        np.testing.assert_allclose(ends[:, 0], np.maximum(y - reach, 0.05 * y))
    assert _legend(axes) == ["d = 1", "d = 3", "ETC", "Semi-Myopic"]
    assert axes.get_title(loc="left") == "Under (S1)"
    assert axes.get_xlabel() == "horizon T"
    assert axes.get_yscale() == "linear"
    assert axes.get_ylim()[0] == 0


def test_what_never_varies_is_not_in_the_legend(grid: Grid, etc: Grid) -> None:
    for cells, expected in ((etc, ["d = 1", "d = 3"]), (_at(grid, dim=3), list(NAMES)), (_at(etc, dim=3), [])):
        axes = _axes()
        panels.mean_regret(cells, axes)
        assert _legend(axes) == expected
        assert len({colour for colour, *_ in _curves(axes)}) == max(1, len(expected))


def test_the_legend_lies_above_the_data(grid: Grid) -> None:
    row = panels.figure([lambda axes: panels.mean_regret(grid, axes)], title="t")
    row.canvas.draw()
    (axes,) = row.axes
    legend = axes.get_legend()
    assert legend is not None
    bottom = axes.transData.inverted().transform(legend.get_window_extent().corners())[:, 1].min()
    assert max(ends.max() for *_, ends in _curves(axes)) < bottom


def test_fitted_lines_are_those_of_the_scaling_fit(etc: Grid) -> None:
    axes = _axes()
    panels.fitted_lines(etc, axes, offset=0.5)
    fit = hp.fit_scaling([r for _, r in etc], offset=0.5)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    bars = {container.lines[0] for container in axes.containers if isinstance(container, ErrorbarContainer)}
    lines = [line for line in axes.lines if line not in bars]
    assert len(lines) == 2
    for d, line in zip((1, 3), lines, strict=True):
        x, y = np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)
        assert (x[0], x[-1]) == pytest.approx((250, 500))
        np.testing.assert_allclose(y, fit.predict(d, x))
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_title().get_text() == f"slope {fit.slope_d:.2f} in d, {fit.slope_T:.2f} in T"
    assert _legend(axes) == ["d = 1", "d = 3"]


def test_fitted_lines_take_one_label(grid: Grid) -> None:
    with pytest.raises(InvalidInput, match=r"one label, got 2: ETC, Semi-Myopic"):
        panels.fitted_lines(grid, _axes(), offset=0.5)


@pytest.mark.parametrize(("by", "other", "groups"), [("horizon", {"dim": 3}, ["250", "500"]),
                                                     ("dim", {"horizon": 500}, ["1", "3"])])  # fmt: skip
def test_boxes_in_groups(grid: Grid, by: str, other: dict[str, int], groups: list[str]) -> None:
    cells, axes = _at(grid, **other), _axes()
    panels.boxes(cells, axes, by=by)
    boxes = _boxes(axes)
    assert [to_hex(box.get_facecolor()).upper() for box in boxes] == [COLOURS[0], COLOURS[1]] * 2
    assert [tick.get_text() for tick in axes.get_xticklabels()] == groups
    assert _legend(axes) == list(NAMES)
    ordered = sorted(cells, key=lambda cell: getattr(cell[1], by))
    for box, (_, result) in zip(boxes, ordered, strict=True):
        ends = box.get_path().get_extents()
        np.testing.assert_allclose([ends.y0, ends.y1], np.quantile(result.regret, [0.25, 0.75]))
        assert round(ends.x0) == round(ends.x1) == groups.index(str(getattr(result, by)))


def test_boxes_by_label(grid: Grid) -> None:
    cells = _at(grid, dim=3, horizon=500)
    axes = _axes()
    panels.boxes(cells, axes, by="label")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == list(NAMES)
    assert [to_hex(box.get_facecolor()).upper() for box in _boxes(axes)] == list(COLOURS[:2])
    assert _legend(axes) == []
    assert {tick.get_rotation() for tick in axes.get_xticklabels()} == {0}
    axes = _axes()
    panels.boxes([(f"{label} with many words, epsilon = 1", r) for label, r in cells], axes, by="label")
    ticks = axes.get_xticklabels()
    assert {tick.get_rotation() for tick in ticks} == {35}
    assert max(len(line) for tick in ticks for line in tick.get_text().split("\n")) <= 20


def _long_tailed(result: hp.Result, times: float) -> hp.Result:
    """The same result with one replication whose regret is that many times the median."""
    paths = result.paths.copy()
    paths[int(result.regret.argmax()), -1] = times * np.median(result.regret)
    return replace(result, paths=paths)


def test_boxes_of_long_tails_are_logarithmic(etc: Grid) -> None:
    label, result = _at(etc, dim=3, horizon=500)[0]
    for times, log, scale in ((29, None, "linear"), (31, None, "log"), (31, False, "linear"), (2, True, "log")):
        axes = _axes()
        panels.boxes([(label, _long_tailed(result, times))], axes, by="horizon", log=log)
        assert axes.get_yscale() == scale


def test_boxes_refuse_what_falls_on_one_place(grid: Grid) -> None:
    for by in ("horizon", "dim", "label"):
        with pytest.raises(InvalidInput, match=f"several results for 'ETC' in one group by {by}"):
            panels.boxes(grid, _axes(), by=by)
    with pytest.raises(InvalidInput, match="Did you mean 'dim'"):
        panels.boxes(grid, _axes(), by="dims")


def test_paths_draw_mean_paths_and_bands(grid: Grid, etc: Grid) -> None:
    for cells, names in (
        (_at(etc, horizon=500), ["d = 3", "d = 1"]),
        (_at(grid, horizon=500, dim=3), list(NAMES)),
        (_at(grid, horizon=500), ["ETC, d = 3", "ETC, d = 1", "Semi-Myopic, d = 3", "Semi-Myopic, d = 1"]),
        (_at(etc, dim=3), ["T = 500", "T = 250"]),
    ):
        axes = _axes()
        panels.paths(cells, axes)
        assert _legend(axes) == names
        assert len(axes.lines) == len(axes.collections) == len(cells)
        assert len({to_hex(line.get_color()) for line in axes.lines}) == len(cells)
        for line, (_, result) in zip(axes.lines, cells, strict=True):
            np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), result.path_mean())
            np.testing.assert_array_equal(line.get_xdata(), result.checkpoints)


def test_more_paths_than_colours_differ_in_their_lines(grid: Grid) -> None:
    axes = _axes()
    one = grid[0][1]
    panels.paths([(f"number {i}", one) for i in range(len(COLOURS) + 2)], axes)
    looks = {(to_hex(line.get_color()), str(line.get_linestyle())) for line in axes.lines}
    assert len(looks) == len(COLOURS) + 2


def test_seconds_are_means_on_a_logarithmic_axis(grid: Grid) -> None:
    axes = _axes()
    panels.seconds(grid, axes)
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
    curves = _curves(axes)
    assert len(curves) == 4
    expected = [r.seconds.mean() for T in (250, 500) for name, r in _at(grid, dim=3, horizon=T) if name == "ETC"]
    np.testing.assert_allclose(curves[1][3], expected)
    assert _legend(axes) == ["d = 1", "d = 3", "ETC", "Semi-Myopic"]


def test_histogram_counts_and_marks() -> None:
    axes = _axes()
    values = np.linspace(0, 10, 401)
    panels.histogram(values, axes, xlabel="optimal price", marks=(7.25, 2.0))
    assert sum(patch.get_height() for patch in axes.patches) == 401  # type: ignore[attr-defined]
    assert [float(np.asarray(line.get_xdata())[0]) for line in axes.lines] == [2.0, 7.25]
    assert [text.get_text() for text in axes.texts] == ["2", "7.25"]
    assert axes.get_xlabel() == "optimal price"
    for wrong in ([], [1.0, np.nan]):
        with pytest.raises(InvalidInput, match="finite"):
            panels.histogram(wrong, axes, xlabel="x")


ALL: dict[str, dict[str, Any]] = {
    "mean-regret": {}, "fitted-lines": {"offset": 0.5}, "boxes": {"by": "label"}, "paths": {}, "seconds": {},
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_one_replication_at_one_horizon_and_dimension(name: str) -> None:
    cells = [_cell("ETC", 3, 500, n=1)]
    row = panels.figure([lambda axes: panels.PANELS[name](cells, axes, title="One", **ALL[name])], title="One")
    row.canvas.draw()
    (axes,) = row.axes
    assert axes.get_title(loc="left") == "One"
    assert axes.lines or axes.patches


@pytest.mark.parametrize("name", ALL)
def test_cells_are_checked(name: str, grid: Grid) -> None:
    with pytest.raises(InvalidInput, match="no results"):
        panels.PANELS[name]([], _axes(), **ALL[name])
    with pytest.raises(InvalidInput, match="two results for 'ETC' at d = 3, T = 500"):
        panels.PANELS[name]([grid[0], grid[0]], _axes(), **ALL[name])


def test_one_horizon_has_its_tick(etc: Grid) -> None:
    for draw in (panels.mean_regret, panels.seconds, lambda cells, axes: panels.fitted_lines(cells, axes, offset=0.5)):
        axes = _axes()
        draw(_at(etc, horizon=500), axes)
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["500"]


def test_a_policy_without_regret_is_drawn_at_zero(etc: Grid) -> None:
    nothing = replace(etc[0][1], paths=np.full_like(etc[0][1].paths, -1e-13))
    axes = _axes()
    panels.mean_regret([("best", nothing)], axes)
    assert _curves(axes)[0][3] == [0.0]
    panels.boxes([("best", nothing), etc[0]], _axes(), by="label")


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_figure_is_a_row_of_panels(etc: Grid, count: int) -> None:
    draw: list[Callable[[Axes], None]] = [lambda axes: panels.mean_regret(etc, axes)] * count
    row = panels.figure(draw, title="ETC under (S1)", note="3 replications a cell")
    assert len(row.axes) == count
    assert row.get_size_inches().tolist() == pytest.approx([4.6 * count, 4.2])
    assert row.get_suptitle() == "ETC under (S1)"
    assert row.get_supxlabel() == "3 replications a cell"


def test_long_titles_stay_inside_the_figure(etc: Grid) -> None:
    words = "A title with many words " * 5
    row = panels.figure([lambda axes: panels.mean_regret(etc, axes, title=words)], title=words, note=words * 2)
    row.canvas.draw()
    width = row.get_size_inches()[0] * row.dpi
    for text in (*row.texts, row.axes[0]._left_title):  # type: ignore[attr-defined]
        assert text.get_window_extent().x1 <= width


@pytest.mark.parametrize("count", [0, 5])
def test_a_figure_has_one_to_four_panels(count: int) -> None:
    with pytest.raises(InvalidInput, match=f"one to four panels, got {count}"):
        panels.figure([lambda axes: None] * count, title="t")
