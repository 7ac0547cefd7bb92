"""Twins: markets fitted to a seller's log, their check against the log, and their file."""

from hushprice.markets.twin.check import TwinCheck, check_twin
from hushprice.markets.twin.twin import Twin, twin
from hushprice.markets.twin.twin_file import from_file, load_twin, save_twin

__all__ = ["Twin", "TwinCheck", "check_twin", "from_file", "load_twin", "save_twin", "twin"]
