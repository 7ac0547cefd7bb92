"""Pictures of results, and a page to show them on."""

from hushprice.plots.figures import box_plots, check_file, overview, regret_paths, save
from hushprice.plots.markdown import markdown
from hushprice.plots.page import Picture, Section, Table, duration, page
from hushprice.plots.panels import (
    PANELS,
    Cells,
    boxes,
    figure,
    fitted_lines,
    histogram,
    mean_regret,
    paths,
    seconds,
)
from hushprice.plots.scaling import computation_time, growth, scaling_fit

__all__ = [
    "PANELS",
    "Cells",
    "Picture",
    "Section",
    "Table",
    "box_plots",
    "boxes",
    "check_file",
    "computation_time",
    "duration",
    "figure",
    "fitted_lines",
    "growth",
    "histogram",
    "markdown",
    "mean_regret",
    "overview",
    "page",
    "paths",
    "regret_paths",
    "save",
    "scaling_fit",
    "seconds",
]
