"""Pictures of results: regret paths with bands, and box plots of the final regret."""

from hushprice.plots.figures import box_plots, check_file, overview, regret_paths, save

__all__ = ["box_plots", "check_file", "overview", "regret_paths", "save"]
