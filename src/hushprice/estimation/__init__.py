"""Estimation: maximum likelihood from all records, and running estimators for policies that re-estimate often."""

from hushprice.estimation.mle import Fit, design, fit
from hushprice.estimation.prior import Prior
from hushprice.estimation.running import DRIFT_BOUND, RunningEstimator
from hushprice.estimation.stages import StageEstimators

__all__ = ["DRIFT_BOUND", "Fit", "Prior", "RunningEstimator", "StageEstimators", "design", "fit"]
