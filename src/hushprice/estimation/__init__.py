"""Estimation: the maximum likelihood estimate, and the running one for policies that re-estimate all the time."""

from hushprice.estimation.mle import Fit, design, fit
from hushprice.estimation.running import DRIFT_BOUND, RunningEstimator

__all__ = ["DRIFT_BOUND", "Fit", "RunningEstimator", "design", "fit"]
