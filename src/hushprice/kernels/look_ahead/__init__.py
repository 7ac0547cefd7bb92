"""Look-ahead pricing: what a price is worth, the prior, and how the policy learns.

``prices.py`` has the formulas of the price, ``prior.py`` those of the prior, and ``learning.py`` what happens record by
record.
"""

from hushprice.kernels.look_ahead.learning import (
    GAINS_PACE,
    KAPPA,
    MOST_RECORDS,
    ahead_block,
    catch_up,
    later,
    most_records,
    rule_of,
    warming,
)
from hushprice.kernels.look_ahead.prices import (
    ahead_propensities,
    ahead_quotes,
    gains,
    mean_gains,
    project,
    span,
    worth,
)
from hushprice.kernels.look_ahead.prior import (
    BELIEF,
    CONSTANT,
    COUNT,
    DISPERSION,
    FOLDED,
    INDICATOR,
    LEAST_BELIEF,
    NUMBER,
    OUTCOMES,
    PSEUDO,
    REVISION,
    SLOPE,
    SQUARE,
    SQUARES,
    SUM,
    TIED,
    TOTAL,
    VALUE,
    kinds_of,
    learn_variances,
    penalise,
    prior_precision,
    shared_value,
    write_prior,
)

__all__ = [
    "BELIEF", "CONSTANT", "COUNT", "DISPERSION", "FOLDED", "GAINS_PACE", "INDICATOR", "KAPPA", "LEAST_BELIEF",
    "MOST_RECORDS", "NUMBER", "OUTCOMES", "PSEUDO", "REVISION", "SLOPE", "SQUARE", "SQUARES", "SUM", "TIED", "TOTAL",
    "VALUE", "ahead_block", "ahead_propensities", "ahead_quotes", "catch_up", "gains", "kinds_of", "later",
    "learn_variances", "mean_gains", "most_records", "penalise", "prior_precision", "project", "rule_of",
    "shared_value", "span", "warming", "worth", "write_prior",
]  # fmt: skip
