"""Simulation: replications of a policy in a market, and what came of them."""

from hushprice.simulation.engine import Trace, replicate, streams
from hushprice.simulation.results import Comparison, Result, Summary, csv_text
from hushprice.simulation.scaling import DUST, Scaling, check_grid, fit_scaling, scale
from hushprice.simulation.simulate import compare, simulate

__all__ = [
    "DUST",
    "Comparison",
    "Result",
    "Scaling",
    "Summary",
    "Trace",
    "check_grid",
    "compare",
    "csv_text",
    "fit_scaling",
    "replicate",
    "scale",
    "simulate",
    "streams",
]
