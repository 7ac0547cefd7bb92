"""Simulation: replications of a policy in a market, and what came of them."""

from hushprice.simulation.engine import Outcome, Trace, replicate, streams
from hushprice.simulation.jobs import Job, check_engine, check_pair, rounds_of, run_jobs, workers_of
from hushprice.simulation.near_truth import NearTruth, Simulated, Today, plain
from hushprice.simulation.record import check_log, record, write_log
from hushprice.simulation.results import Comparison, Result, Summary, csv_text, percentage
from hushprice.simulation.scaling import DUST, Scaling, check_grid, fit_scaling, scale
from hushprice.simulation.simulate import compare, simulate

__all__ = [
    "DUST",
    "Comparison",
    "Job",
    "NearTruth",
    "Outcome",
    "Result",
    "Scaling",
    "Simulated",
    "Summary",
    "Today",
    "Trace",
    "check_engine",
    "check_grid",
    "check_log",
    "check_pair",
    "compare",
    "csv_text",
    "fit_scaling",
    "percentage",
    "plain",
    "record",
    "replicate",
    "rounds_of",
    "run_jobs",
    "scale",
    "simulate",
    "streams",
    "workers_of",
    "write_log",
]
