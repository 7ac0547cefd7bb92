"""Off-policy evaluation: what another policy would have earned, from a log of other prices."""

from hushprice.evaluation.estimators import Estimate
from hushprice.evaluation.evaluate import evaluate
from hushprice.evaluation.result import Evaluation

__all__ = ["Estimate", "Evaluation", "evaluate"]
