"""Studies: policies over a grid of markets, dimensions and horizons, as data; kept, resumed, drawn."""

from hushprice.studies.cells import Cell, Run
from hushprice.studies.execute import Left, execute, outstanding, pilots, processes, results
from hushprice.studies.pictures import Found, cell_rows, counted, draw, path_rows, rehearse
from hushprice.studies.spec import Choice, Panel, Picture, Study, load_toml, picture_of
from hushprice.studies.spec_strings import Setup, market_from, policy_from
from hushprice.studies.store import Store, revision

__all__ = [
    "Cell",
    "Choice",
    "Found",
    "Left",
    "Panel",
    "Picture",
    "Run",
    "Setup",
    "Store",
    "Study",
    "cell_rows",
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
    "rehearse",
    "results",
    "revision",
]
