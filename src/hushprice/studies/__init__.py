"""Studies: policies over a grid of markets, dimensions and horizons, as data; stored, resumed, drawn."""

from hushprice.studies.cells import Cell, Run
from hushprice.studies.execute import Remaining, execute, outstanding, pilots, processes, results
from hushprice.studies.pictures import CellResults, cell_rows, check_drawable, counted, draw, path_rows
from hushprice.studies.spec import Choice, Panel, Picture, Study, load_toml, picture_of
from hushprice.studies.spec_strings import Setup, market_from, policy_from
from hushprice.studies.store import Store, revision

__all__ = [
    "Cell",
    "CellResults",
    "Choice",
    "Panel",
    "Picture",
    "Remaining",
    "Run",
    "Setup",
    "Store",
    "Study",
    "cell_rows",
    "check_drawable",
    "counted",
    "draw",
    "execute",
    "load_toml",
    "market_from",
    "outstanding",
    "path_rows",
    "picture_of",
    "pilots",
    "policy_from",
    "processes",
    "results",
    "revision",
]
