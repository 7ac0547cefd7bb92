"""Kernel IPS, self-normalised IPS and doubly robust estimates of the profit of other prices.

With the customers i = 1..n of the log, target prices t_i = pi(z_i), weights w_i (``weights.py``) and m(z, p) the
expected demand of a fitted model,

    kernel IPS        V = mean of (t_i - c_i) y_i w_i
    self-normalised   V = sum of (t_i - c_i) y_i w_i / sum of w_i
    doubly robust     V = mean of (t_i - c_i) [ m(z_i, t_i) + w_i (y_i - m(z_i, p_i)) ]

Demand at a price near the target is multiplied by the margin of the target, not by its own, since the margin is known.

The doubly robust estimate is consistent if either the propensities or the model are right, and precise if the model is
good. m is cross-fitted: for each customer it is fitted to the other folds, so that it does not overfit the customer's
own outcome.

Standard errors come from the spread of each customer's term (self-normalised: (t_i - c_i) y_i w_i - V w_i over the
mean of w), and intervals from its skewness and kurtosis as well (:func:`interval`): if few sales carry the weight, a
normal interval is too narrow and too low. They are valid for independent customers. If a learning policy priced the
log, terms are still uncorrelated conditional on the past, as prices were drawn with the stated propensities.

References: Horvitz & Thompson (1952); Hajek (1971); Robins & Rotnitzky (1995) and Dudik, Langford & Li (2011) for
doubly robust; Kallus & Zhou (2018) for continuous treatments; Chernozhukov et al. (2018) and Colangelo & Lee (2020)
for cross-fitting; Hall (1992), On the removal of skewness by transformation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import Family, as_family
from hushprice.errors import HushpriceError
from hushprice.estimation import design, fit
from hushprice.evaluation.weights import Mask
from hushprice.intervals import student

FOLDS = 5
FEWEST_SPREAD = 2.0  # effective sample size below which the standard error is unknown


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate of the profit per customer, and its difference from the profit of the logged prices.

    Attributes
    ----------
    name : str
        The estimator.
    value, se : float
        Profit per customer and its standard error; NaN if the log does not determine it.
    interval : tuple of float
        95% interval; infinite if the log does not determine it.
    customers : int
        Number of customers averaged over.
    effective : float
        Effective sample size, (sum of w)^2 / sum of w^2.
    difference, difference_se, difference_interval : float, float, tuple of float
        Difference from the logged profit, with its standard error and 95% interval.
    """

    name: str
    value: float
    se: float
    interval: tuple[float, float]
    customers: int
    effective: float
    difference: float
    difference_se: float
    difference_interval: tuple[float, float]

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
class Scores:
    """The terms of an estimate; its value is the mean of ``score`` over the customers in ``part``."""

    name: str
    score: Array  # (n,), for the self-normalised one V plus the linearised term
    part: Mask  # (n,)
    effective: float


def compare(scores: Scores, earned: Array, reference: Mask) -> Estimate:
    """The estimate, compared with the mean logged profit of the customers in ``reference``.

    With s_i the score and r_i what was earned, the difference D = mean of s over A - mean of r over B has the variance
    of the mean of N/|A| 1{i in A} (s_i - S) - N/|B| 1{i in B} (r_i - R), which accounts for customers in both.
    """
    n = len(earned)
    a, b = int(scores.part.sum()), int(reference.sum())
    value, logged = float(scores.score[scores.part].mean()), float(earned[reference].mean())
    own = np.where(scores.part, (n / a) * (scores.score - value), 0.0)
    theirs = np.where(reference, (n / b) * (earned - logged), 0.0)
    return Estimate(
        name=scores.name,
        value=value,
        se=_se(own, scores.effective),
        interval=interval(value, own, scores.effective),
        customers=a,
        effective=scores.effective,
        difference=value - logged,
        difference_se=_se(own - theirs, scores.effective),
        difference_interval=interval(value - logged, own - theirs, scores.effective),
    )


def _se(influence: Array, effective: float) -> float:
    """The standard error; NaN if too few customers carry the weight to estimate it."""
    n = len(influence)
    return float(np.sqrt(np.square(influence).sum() / (n - 1) / n)) if effective >= FEWEST_SPREAD else np.nan


def interval(value: float, influence: Array, effective: float) -> tuple[float, float]:
    """The 95% interval of a mean whose error is the mean of ``influence``, adjusted for skewness and heavy tails.

    With k the skewness over sqrt(n), Hall's g(T) = T + k (2 T^2 + 1) / 6 + k^2 T^3 / 27 of T = (estimate - truth) / se
    has no skewness. Its quantiles are those of Student's t. The degrees of freedom are 2 n / (kurtosis - 1), from
    the error of the variance, or one less than the effective sample size if that is fewer. Without a spread, or if the
    effective sample size is below 2, the interval is infinite.

    >>> some, few = np.repeat([0.7, -0.3], [300, 700]), np.repeat([0.97, -0.03], [3, 97])
    >>> print("{:.3f} to {:.3f}".format(*interval(0.3, some, 1000.0)))     # 300 of 1000 bought; normal: 0.272 to 0.328
    0.272 to 0.329
    >>> print("{:.3f} to {:.3f}".format(*interval(0.03, few, 100.0)))      # 3 of 100; normal: -0.004 to 0.064
    0.001 to 0.190
    """
    n, se = len(influence), _se(influence, effective)
    if not se > 0.0:
        return -np.inf, np.inf
    unit = influence / np.sqrt(np.square(influence).mean())
    square = np.square(unit)
    skewness, kurtosis = float((square * unit).mean()), float((square * square).mean())
    k = skewness / float(np.sqrt(n))
    freedom = min(2.0 * n / max(kurtosis - 1.0, 1e-9), effective - 1.0)
    t = student(freedom)
    return value - se * _skewed(t, k), value - se * _skewed(-t, k)


def _skewed(x: float, k: float) -> float:
    """The T with g(T) = x."""
    return float(3.0 / k * (np.cbrt(1.0 + k * (x - k / 6.0)) - 1.0)) if abs(k) > 1e-6 else x


@dataclass(frozen=True, kw_only=True, eq=False)
class Weighed:
    """The weight of each customer, and the margin (t - c) that the target would have had."""

    weight: Array  # (n,), 0 for customers without overlap
    margin: Array  # (n,)
    used: Mask  # (n,), the customers whose price was drawn with a known propensity
    part: Mask  # (n,), those of them whose target price could have been drawn

    @property
    def effective(self) -> float:
        """(sum of w)^2 / sum of w^2."""
        squares = float(np.square(self.weight).sum())
        return float(self.weight.sum()) ** 2 / squares if squares else 0.0

    def ips(self, y: Array) -> Scores:
        """Kernel IPS."""
        score = self.margin * y * self.weight
        return Scores(name="kernel IPS", score=score, part=self.part, effective=self.effective)

    def self_normalised(self, y: Array) -> Scores:
        """Self-normalised IPS; not a number if no customer has a weight."""
        weight = self.weight / (self.weight[self.part].mean() or np.nan)
        plain = self.margin * y * weight
        value = float(plain[self.part].mean())
        return Scores(
            name="self-normalised", score=value + plain - value * weight, part=self.part, effective=self.effective
        )

    def doubly_robust(self, y: Array, model: Array, target: Array) -> Scores:
        """Doubly robust: ``model`` is m(z_i, p_i), ``target`` what the model earns at the target, (t - c) m(z_i, t)."""
        score = target + self.margin * self.weight * (y - model)
        return Scores(name="doubly robust", score=score, part=self.used, effective=self.effective)


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
    """The GLM of the package, fitted ``folds`` times to the customers used, each time without one fold.

    Features are scaled first. A fold whose records are separable, or whose fit does not converge, is fitted with a
    ridge of 1.
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
