"""Pictures of results."""

from hushprice.plots.figures import box_plots, check_file, overview, regret_paths, save
from hushprice.plots.scaling import computation_time, growth, scaling_fit

__all__ = ["box_plots", "check_file", "computation_time", "growth", "overview", "regret_paths", "save", "scaling_fit"]
