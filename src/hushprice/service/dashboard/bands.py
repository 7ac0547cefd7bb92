"""Precision of the estimate: the mean squared error matrix of theta, from which the page draws its bands.

A customer's curve is psi'(a - b p), with a = z.alpha and b = z.beta: two numbers. A band of WHOLE standard errors to
either side of a - b p at every price contains the whole curve as often as (a, b) is in its 95% ellipse.

Plain products: the covariance that the server states (``Server.estimate``). That of a running estimator is the inverse
P of the penalised information; to it is added the square of the bias P precision (centre - theta*) towards the prior.
Without that term, the bands contained whole curves in 82 to 92 of 100 cases.

Private products: theta is the iterate of projected SGD after t reports. It converges slowly along directions in which
customers hardly differ, so asymptotic formulas do not hold in practice. Instead the learning is **replayed** for truths
drawn around the estimate, with the same start, steps and ball:

    theta = Pi_Theta(theta + w' / (zeta t)),   w = E (psi'(x.theta*) - psi'(x.theta)) L x + noise of variance S

where L x = (z, -f (p - c) z) is the regressor of a score, w' is w in theta's coordinates (``kernels/sgd.py``) and S is
the variance of a decoded report. Many late steps are taken at once. The result is the mean of the squared errors, with
its root multiplied by SAFETY.

The truths are drawn with the covariance of the linearised recursion: along an eigenvector of H / zeta, of eigenvalue a,
with H = E psi''(x.theta) (L x)(L x)', s the noise and r the radius of Theta along it, the mean squared error follows

    v_t = min((1 - a/t)^2 v_(t-1) + s / (zeta t)^2, r^2),

for a > 1/2 and large t the known s / (zeta^2 (2 a - 1) t).

``python -m benchmarks bands`` measures how often bands contain whole curves, for plain and private products; SAFETY was
chosen from its results.

The server does not know its customers. Replays assume features spread evenly over their stated ranges, and experiments
spread evenly over the prices allowed now; the page states this assumption. Where it is known to be wrong, since many
reports were made at one price (in shadow mode) or under other guardrails, there are no bands.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from hushprice.arrays import Array
from hushprice.estimation import Prior
from hushprice.policies import BallPolicy, Policy
from hushprice.service.core.events import Mode
from hushprice.service.definition import Definition, Feature
from hushprice.service.guardrails import Limits

if TYPE_CHECKING:
    from hushprice.service.core.learner import Learner

LEVEL, QUANTILE = 0.95, 1.959963984540054  # for one number
WHOLE = 2.447746830680816  # for two, a and b: the root of the 95% quantile of chi^2 with 2 degrees of freedom
MIN_OUTCOMES = 100  # outcomes before there are bands
MIN_REPORTS = 50  # per feature, before there are bands of private products
LARGEST_BAND_DIM = 8  # of private products: with more features a replay takes too long for a page
MAX_REPLAYED_SEGMENTS = 8  # of more segments, a subset spread evenly over them is replayed
SAFETY = {"plain": 1.1, "private": 1.5}  # on the width of bands
MIN_EXPLORED = 0.9  # the share of reports that must come from experiments
MIN_SETTLED = 0.5  # the share that must have been made under the guardrails in force
REPLAYS = 128
_REUSE = 1.05  # a covariance is used again until the reports have grown by this factor
_EXACT = 512  # steps of the recursion before the sum over the rest becomes an integral


@dataclass(frozen=True)
class Spread:
    """The precision of an estimate.

    Attributes
    ----------
    covariance : array or None
        The mean squared error of theta.
    words : str
        The assumptions behind it, or why there is none.
    """

    covariance: Array | None
    words: str


Cache = dict[str, tuple[Any, int, Array]]
_one_at_a_time = threading.Lock()
_caches: WeakKeyDictionary[Learner, Cache] = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """What bands and curves need of a learner: copied in the writer's thread, used in another."""

    definition: Definition
    limits: Limits
    mode: Mode
    seq: int
    version: int
    learned: int
    estimated: bool  # whether there is an estimate; a policy with one price for everyone has none
    theta: Array
    covariance: Array | None  # if the server states it
    prior: Prior | None  # of the estimate; None if it has none
    steps: int | None  # of SGD; None for servers that learn otherwise
    explored: int  # how many of the reports in these steps came from experiments
    settled: int  # outcomes learned from under the guardrails in force
    floor: int  # version of the last rollback
    cache: Cache  # covariances computed before

    @property
    def baseline(self) -> float:
        """The baseline as quoted: within the guardrails, on the ladder. (A segment's range may limit it further.)"""
        return self.limits.nearest(self.definition.baseline)

    @classmethod
    def of(cls, learner: Learner) -> Facts:
        """Copy the present state of a learner."""
        theta, covariance = learner.server.estimate()
        return cls(
            definition=learner.definition,
            limits=learner.limits,
            mode=learner.mode,
            seq=learner.seq,
            version=learner.version,
            learned=learner.learned,
            estimated=learner.estimated and learner.policy_params.personal,
            theta=theta.copy(),
            covariance=None if covariance is None else covariance.copy(),
            prior=learner.server.prior,
            steps=learner.server.steps,
            explored=learner.explored,
            settled=learner.learned - learner.learned_before_guardrails,
            floor=learner.rolled_back_at,
            cache=_caches.setdefault(learner, {}),
        )


def spread(facts: Facts) -> Spread:
    """Compute the precision of a product's estimate.

    Parameters
    ----------
    facts : Facts
        The state of its learner.

    Returns
    -------
    Spread
        The covariance of theta, or the reason why there is none.
    """
    if facts.steps is not None:
        return _replayed(facts, facts.steps)
    return _stated(facts)


def _stated(facts: Facts) -> Spread:
    """Use the covariance that the server states."""
    if facts.learned < MIN_OUTCOMES:
        return Spread(None, f"No bands yet: they need at least {MIN_OUTCOMES} outcomes, and there are {facts.learned}.")
    if facts.covariance is None or not np.isfinite(facts.covariance).all():
        return Spread(None, "No bands: this policy keeps no estimate whose precision is known.")
    words = "Bands hold the whole true curve in about 95 of 100 cases, if demand has this form."
    if facts.prior is None:
        return Spread(facts.covariance, words)
    return Spread(with_bias(facts.covariance, facts.theta, facts.prior), words)


def with_bias(covariance: Array, theta: Array, prior: Prior) -> Array:
    """Compute the mean squared error of a penalised estimate: its covariance plus its squared bias, with a margin.

    The bias is covariance precision (centre - theta*) on average. The truth theta* is estimated by theta minus its
    bias, to first order.

    Parameters
    ----------
    covariance : ndarray of shape (2 d, 2 d)
        The inverse of the penalised information.
    theta : ndarray of shape (2 d,)
        The estimate.
    prior : Prior
        Centre and precision of the penalty, in units of the covariance.

    Returns
    -------
    ndarray of shape (2 d, 2 d)
    """
    pull = covariance @ prior.precision
    offset = prior.centre - theta
    bias = pull @ (offset + pull @ offset)
    squares: Array = SAFETY["plain"] ** 2 * (covariance + np.outer(bias, bias))
    return squares


def _replayed(facts: Facts, steps: int) -> Spread:
    """Replay the SGD of a private product."""
    definition = facts.definition
    minimum = MIN_REPORTS * definition.dim
    if not definition.features:
        return Spread(None, "No bands: they need the ranges of the features, and this product does not state them.")
    if definition.dim > LARGEST_BAND_DIM:
        return Spread(
            None, f"No bands: with more than {LARGEST_BAND_DIM} features they take too long to work out here."
        )
    if steps < minimum:
        return Spread(None, f"No bands yet: they need at least {minimum} reports, and there are {steps}.")
    if facts.explored < MIN_EXPLORED * steps:
        return Spread(
            None, "No bands: too many reports were made in shadow mode, at one price, and say little of others."
        )
    if facts.settled < MIN_SETTLED * facts.learned:
        return Spread(None, "No bands: most reports were made under other guardrails, at other prices than now.")
    return Spread(
        _cached_covariance(facts, steps),
        "Bands hold the whole true curve in about 95 of 100 cases, if demand has this form and customers' features "
        "are spread evenly over their ranges. The server cannot check that: it does not know them.",
    )


def _cached_covariance(facts: Facts, steps: int) -> Array:
    """The last covariance, or a new one if there are enough new reports."""
    with _one_at_a_time:  # a replay uses a core for a moment; requests for the same one wait for the first
        return _covariance(facts, steps)


def _covariance(facts: Facts, steps: int) -> Array:
    circumstances = (facts.floor, facts.limits.guardrails)
    if "covariance" in facts.cache:
        old_circumstances, old_steps, covariance = facts.cache["covariance"]
        if old_circumstances == circumstances and old_steps <= steps <= _REUSE * old_steps:
            return covariance
    policy = facts.definition.private_policy
    assert policy is not None
    design = Design.of(policy, even_customers(facts.definition.features), *allowed_prices(policy, facts.limits))
    covariance = private_covariance(policy, design, facts.theta, steps)
    facts.cache["covariance"] = (circumstances, steps, covariance)
    return covariance


@lru_cache(maxsize=64)
def even_customers(features: tuple[Feature, ...]) -> Array:
    """A seeded sample of customers spread evenly over the ranges of the features."""
    n = max(48, 6 * len(features))
    u = (np.random.default_rng(0).permuted(np.tile(np.arange(n), (len(features), 1)), axis=1).T + 0.5) / n
    low = np.array([f.value if f.low is None else f.low for f in features], dtype=np.float64)
    high = np.array([f.value if f.high is None else f.high for f in features], dtype=np.float64)
    z: Array = low + (high - low) * u
    return z


def some_segments(segments: Sequence[str]) -> list[str]:
    """At most MAX_REPLAYED_SEGMENTS segments, spread evenly over the list; one without a range if the list is empty.

    >>> some_segments([f"s{k}" for k in range(22)])
    ['s0', 's3', 's6', 's9', 's12', 's15', 's18', 's21']
    """
    n = len(segments)
    if n == 0:
        return [""]
    return [segments[round(k)] for k in np.linspace(0, n - 1, min(n, MAX_REPLAYED_SEGMENTS))]


def allowed_prices(policy: Policy, limits: Limits) -> tuple[Array, Array]:
    """Prices and weights of experiments under the guardrails in force, with equal weights for all segments."""
    lowest, highest = policy.experiment_range()
    nodes, weights = np.polynomial.legendre.leggauss(6)
    parts = []
    for name in some_segments(limits.rules.segments):
        low, high = np.clip(limits.rules.ranges.get(name, limits.prices), lowest, highest)
        rungs = np.array([p for p in limits.rules.ladder if low <= p <= high])
        if rungs.size:
            some = rungs[np.linspace(0, rungs.size - 1, min(rungs.size, 12)).round().astype(int)]
            parts.append((some, np.full(some.size, 1.0 / some.size)))
        else:
            parts.append((0.5 * (low + high) + 0.5 * (high - low) * nodes, 0.5 * weights))
    prices, chances = (np.concatenate(part) for part in zip(*parts, strict=True))
    return prices, chances / len(parts)


@dataclass(frozen=True)
class Design:
    """Expected experiments.

    Attributes
    ----------
    x : array
        Rows (z, -p z).
    regressors : array
        Rows L x = (z, -f (p - c) z) of their scores.
    weight : array
        The probability of each row.
    """

    x: Array
    regressors: Array
    weight: Array

    @classmethod
    def of(cls, policy: BallPolicy, z: Array, prices: Array, weights: Array) -> Design:
        """Combine all customers with all prices."""
        shift, factor = policy.price_scale
        x = np.concatenate([np.hstack([z, -p * z]) for p in prices])
        regressors = np.concatenate([np.hstack([z, -factor * (p - shift) * z]) for p in prices])
        return cls(x, regressors, np.repeat(weights, len(z)) / len(z))


def private_covariance(policy: BallPolicy, design: Design, theta: Array, steps: int) -> Array:
    """The mean squared error matrix of theta after ``steps`` reports: by replay, with a margin (see above)."""
    rng = np.random.default_rng(0)
    values, vectors = np.linalg.eigh(linearised(policy, design, theta, steps))
    deviations = (rng.standard_normal((REPLAYS, len(theta))) * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    truths = _projected(policy, theta + deviations)
    errors = replay(policy, design, truths, steps, rng) - truths
    covariance: Array = SAFETY["private"] ** 2 * (errors.T @ errors) / len(errors)
    return covariance


def replay(policy: BallPolicy, design: Design, truths: Array, steps: int, rng: np.random.Generator) -> Array:
    """The iterate of SGD after ``steps`` reports, per truth. Late steps are taken together, 8% of all so far."""
    d, (shift, factor), family = policy.dim, policy.price_scale, policy.family
    buys = family.mean(truths @ design.x.T)
    theta = np.tile(np.array(policy.start_at), (len(truths), 1))
    noise, t = np.sqrt(_noise(policy)), 0
    while t < steps:
        until = min(steps, max(t + 1, int(1.08 * t)))
        sizes = 1.0 / (policy.zeta * np.arange(t + 1, until + 1))
        drift = ((buys - family.mean(theta @ design.x.T)) * design.weight) @ design.regressors
        w = sizes.sum() * drift + np.sqrt((sizes**2).sum()) * noise * rng.standard_normal(theta.shape)
        slope = factor * w[:, d:]
        theta = _projected(policy, theta + np.hstack([w[:, :d] + shift * slope, slope]))
        t = until
    return theta


def _noise(policy: BallPolicy) -> float:
    """The variance of a decoded report along any direction, without the small part of the score itself."""
    return policy.mechanism.squared_error(0.0) / policy.mechanism.dim


def _projected(policy: BallPolicy, theta: Array) -> Array:
    centre, radius = policy.ball
    offset = theta - centre
    length = np.linalg.norm(offset, axis=1, keepdims=True)
    inside: Array = centre + offset * np.minimum(1.0, radius / np.maximum(length, 1e-300))
    return inside


def linearised(policy: BallPolicy, design: Design, theta: Array, steps: int) -> Array:
    """The mean squared error by the linearised recursion."""
    d, (shift, factor), zeta = policy.dim, policy.price_scale, policy.zeta
    curvature = policy.family.curvature(design.x @ theta) * design.weight
    a, U = np.linalg.eigh((design.regressors.T * curvature) @ design.regressors / zeta)
    back = np.block([[np.eye(d), shift * factor * np.eye(d)], [np.zeros((d, d)), factor * np.eye(d)]])  # L'
    directions = back @ U
    largest = policy.ball[1] ** 2 / (directions**2).sum(axis=0)
    v = mean_squares(np.maximum(a, 0.0), np.full(2 * d, _noise(policy)), zeta, steps, largest)
    covariance: Array = (directions * v) @ directions.T
    return covariance


def mean_squares(a: Array, s: Array, zeta: float, steps: int, largest: Array) -> Array:
    """v_t of the recursion above after ``steps`` steps, from v_0 = r^2 = ``largest``.

    >>> mean_squares(np.array([2.0]), np.array([1.0]), 1.0, 10**6, np.array([1e9])).round(9)    # 1 / (3 t)
    array([3.33e-07])
    """
    v = largest.astype(np.float64).copy()
    first = min(steps, _EXACT)
    for t in range(1, first + 1):
        v = np.minimum((1.0 - a / t) ** 2 * v + s / (zeta * t) ** 2, largest)
    if steps > first:
        log_ratio, k = np.log(first / steps), 2.0 * a - 1.0
        near = np.abs(k) < 1e-9
        factor = np.where(near, -log_ratio, -np.expm1(k * log_ratio) / np.where(near, 1.0, k))
        v = np.minimum(v * np.exp(2.0 * a * log_ratio) + s / (zeta**2 * steps) * factor, largest)
    return v
