"""Kernel IPS, self-normalised IPS and doubly robust estimates of what other prices would have earned.

With the customers i = 1..n of the log, target prices t_i = pi(z_i), weights w_i (``weights.py``) and m(z, p) the
expected demand of a fitted model,

    kernel IPS        V = mean of (t_i - c_i) y_i w_i
    self-normalised   V = sum of (t_i - c_i) y_i w_i / sum of w_i
    doubly robust     V = mean of (t_i - c_i) [ m(z_i, t_i) + w_i (y_i - m(z_i, p_i)) ]

Demand at a price near the target counts with the margin of the target, not with its own: only demand, not the margin,
is then carried over from one price to another.

The doubly robust estimate is right when either the propensities or the model are, and precise when the model is good.
m is cross-fitted: for a customer's terms it comes from the other folds, so that it does not chase the customer's own
outcome.

Intervals are normal, from the spread of each customer's term (self-normalised: (t_i - c_i) y_i w_i - V w_i over the
mean of w). They hold for customers who come independently. Where the log was priced by a policy that learned
meanwhile, terms are still uncorrelated given the past, as prices were drawn with the propensities that are told.

References: Horvitz & Thompson (1952); Hajek (1971); Robins & Rotnitzky (1995) and Dudik, Langford & Li (2011) for
doubly robust; Kallus & Zhou (2018) for continuous treatments; Chernozhukov et al. (2018) and Colangelo & Lee (2020)
for cross-fitting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushprice.demand import Family, as_family
from hushprice.errors import Array, HushpriceError
from hushprice.estimation import design, fit
from hushprice.evaluation.weights import Mask

Z95 = 1.959963984540054
FOLDS = 5


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A profit per customer with its standard error, and how much more it is than what the logged prices earned."""

    name: str
    value: float
    se: float
    customers: int  # it is a mean over so many
    effective: float  # effective sample size, (sum of w)^2 / sum of w^2
    difference: float
    difference_se: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval."""
        return self.value - Z95 * self.se, self.value + Z95 * self.se

    @property
    def difference_interval(self) -> tuple[float, float]:
        """The 95% interval of the difference."""
        return self.difference - Z95 * self.difference_se, self.difference + Z95 * self.difference_se

    def to_dict(self) -> dict[str, float | int | str]:
        """One row of a table."""
        low, high = self.interval
        less, more = self.difference_interval
        return {
            "estimator": self.name, "value": self.value, "se": self.se, "low": low, "high": high,
            "customers": self.customers, "effective": self.effective, "difference": self.difference,
            "difference_se": self.difference_se, "difference_low": less, "difference_high": more,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """What each customer adds to an estimate: its value is the mean of ``score`` over the customers in ``part``."""

    name: str
    score: Array  # (n,), for the self-normalised one V plus the linearised term
    part: Mask  # (n,)
    effective: float


def compare(terms: Terms, earned: Array, reference: Mask) -> Estimate:
    """The estimate, next to the mean of what was earned from the customers in ``reference``.

    With s_i the score and r_i what was earned, the difference D = mean of s over A - mean of r over B has the variance
    of the mean of N/|A| 1{i in A} (s_i - S) - N/|B| 1{i in B} (r_i - R), which knows that A and B share customers.
    """
    n = len(earned)
    a, b = int(terms.part.sum()), int(reference.sum())
    value, logged = float(terms.score[terms.part].mean()), float(earned[reference].mean())
    own = np.where(terms.part, (n / a) * (terms.score - value), 0.0)
    theirs = np.where(reference, (n / b) * (earned - logged), 0.0)
    return Estimate(
        name=terms.name,
        value=value,
        se=_se(own),
        customers=a,
        effective=terms.effective,
        difference=value - logged,
        difference_se=_se(own - theirs),
    )


def _se(influence: Array) -> float:
    n = len(influence)
    return float(np.sqrt(np.square(influence).sum() / max(n - 1, 1) / n))


@dataclass(frozen=True, kw_only=True, eq=False)
class Weighed:
    """The weight of each customer, and the margin (t - c) that the target would have had."""

    weight: Array  # (n,), 0 for customers without overlap
    margin: Array  # (n,)
    used: Mask  # (n,), the customers whose price was drawn at random, in a way that is known
    part: Mask  # (n,), those of them whose target price could have been drawn

    @property
    def effective(self) -> float:
        """(sum of w)^2 / sum of w^2."""
        squares = float(np.square(self.weight).sum())
        return float(self.weight.sum()) ** 2 / squares if squares else 0.0

    def ips(self, y: Array) -> Terms:
        """Kernel IPS."""
        score = self.margin * y * self.weight
        return Terms(name="kernel IPS", score=score, part=self.part, effective=self.effective)

    def self_normalised(self, y: Array) -> Terms:
        """Self-normalised IPS; not a number if no customer has a weight."""
        weight = self.weight / (self.weight[self.part].mean() or np.nan)
        plain = self.margin * y * weight
        value = float(plain[self.part].mean())
        return Terms(
            name="self-normalised", score=value + plain - value * weight, part=self.part, effective=self.effective
        )

    def doubly_robust(self, y: Array, model: Array, target: Array) -> Terms:
        """Doubly robust: ``model`` is m(z_i, p_i), ``target`` what the model earns at the target, (t - c) m(z_i, t)."""
        score = target + self.margin * self.weight * (y - model)
        return Terms(name="doubly robust", score=score, part=self.used, effective=self.effective)


@dataclass(frozen=True, kw_only=True, eq=False)
class CrossFit:
    """Each customer's a = z.alpha and b = z.beta, fitted without the fold of this customer."""

    family: Family
    a: Array
    b: Array
    penalised: int  # folds that needed a ridge

    def at(self, price: Array | float) -> Array:
        """m(z_i, p_i)."""
        mean: Array = np.asarray(self.family.mean(self.a - self.b * price))
        return mean


def cross_fit(
    family: Family | str, z: Array, price: Array, y: Array, used: Mask, *, folds: int = FOLDS, seed: int = 0
) -> CrossFit:
    """The GLM of the package, fitted ``folds`` times to the customers used, each time without one part of them.

    Features are brought to one scale first. A fold whose records are separable, or whose fit does not settle, is fitted
    with a ridge of 1.
    """
    family = as_family(family)
    n, d = z.shape
    scale = np.sqrt(np.mean(z * z, axis=0))
    scaled = z / np.where(scale > 0.0, scale, 1.0)
    unit = float(np.abs(price).max()) or 1.0
    x = design(scaled, price / unit)
    fold = np.full(n, -1)
    fold[used] = np.random.default_rng(seed).permutation(int(used.sum())) % folds
    a, b, penalised = np.zeros(n), np.zeros(n), 0
    for k in range(folds):
        own, others = fold == k, used & (fold != k)
        try:
            theta = fit(family, x[others], y[others]).theta
        except HushpriceError:
            theta, penalised = fit(family, x[others], y[others], ridge=1.0).theta, penalised + 1
        a[own], b[own] = scaled[own] @ theta[:d], scaled[own] @ theta[d:] / unit
    return CrossFit(family=family, a=a, b=b, penalised=penalised)
