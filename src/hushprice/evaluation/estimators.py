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

Standard errors come from the spread of each customer's term (self-normalised: (t_i - c_i) y_i w_i - V w_i over the
mean of w), and intervals from its skewness and kurtosis as well (:func:`interval`): where few sales carry the weight, a
normal interval is too narrow, and too low. They hold for customers who come independently. Where the log was priced by
a policy that learned meanwhile, terms are still uncorrelated given the past, as prices were drawn with the propensities
that are told.

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
FEWEST_SPREAD = 2.0  # effective sample size, below which nothing is known of an error


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A profit per customer with its standard error, and how much more it is than what the logged prices earned."""

    name: str
    value: float
    se: float  # not a number where the log tells nothing
    interval: tuple[float, float]  # of 95%; infinite where the log tells nothing
    customers: int  # it is a mean over so many
    effective: float  # effective sample size, (sum of w)^2 / sum of w^2
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
    """What each customer adds to an estimate: its value is the mean of ``score`` over the customers in ``part``."""

    name: str
    score: Array  # (n,), for the self-normalised one V plus the linearised term
    part: Mask  # (n,)
    effective: float


def compare(scores: Scores, earned: Array, reference: Mask) -> Estimate:
    """The estimate, next to the mean of what was earned from the customers in ``reference``.

    With s_i the score and r_i what was earned, the difference D = mean of s over A - mean of r over B has the variance
    of the mean of N/|A| 1{i in A} (s_i - S) - N/|B| 1{i in B} (r_i - R), which knows that A and B share customers.
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
    """Not a number where so few carry the weight that their spread is not seen: nearly 0 with one, self-normalised."""
    n = len(influence)
    return float(np.sqrt(np.square(influence).sum() / (n - 1) / n)) if effective >= FEWEST_SPREAD else np.nan


def interval(value: float, influence: Array, effective: float) -> tuple[float, float]:
    """The 95% interval of a mean whose error is the mean of ``influence``, skewed and with heavy tails as it may be.

    With k the skewness over sqrt(n), Hall's g(T) = T + k (2 T^2 + 1) / 6 + k^2 T^3 / 27 of T = (estimate - truth) / se
    is rid of its skewness. Its quantiles are taken from Student's t with 2 n / (kurtosis - 1) degrees of freedom, from
    the error of the variance, or one less than the effective sample size if that is fewer. Without a spread, or where
    the effective sample size is below 2, nothing is known.

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
    used: Mask  # (n,), the customers whose price was drawn at random, in a way that is known
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
