"""The auto loan study: the market, its data file and a synthetic stand-in for it."""

from hushprice.markets.autoloan.market import Loans, autoloan, loans, write_standin

__all__ = ["Loans", "autoloan", "loans", "write_standin"]
