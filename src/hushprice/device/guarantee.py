"""Guarantees of mechanisms, and the privacy loss that several reports of one customer add up to.

A mechanism is (epsilon, delta)-LDP if for any two customers s, s' and any set W of reports
P(W | s) <= e^epsilon P(W | s') + delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hushprice.errors import finite

LARGEST_EPSILON = 30.0
SMALLEST_EPSILON = 1e-6
_SERIES_BELOW = -14.0  # there the asymptotic series of the normal distribution function is exact up to rounding


def as_epsilon(value: float) -> float:
    """Check an epsilon. Above 30, odds of e^epsilon to 1 would hide nothing."""
    return finite("epsilon", value, minimum=SMALLEST_EPSILON, maximum=LARGEST_EPSILON)


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-local differential privacy of one report.

    Parameters
    ----------
    epsilon : float
        Bound on the log odds between two customers; infinity for no guarantee.
    delta : float
        Probability with which the bound may fail.

    Examples
    --------
    >>> print(Guarantee(1.0))
    epsilon = 1: no report is more than 2.72 times as likely from one customer as from another
    """

    epsilon: float
    delta: float = 0.0

    def __str__(self) -> str:
        if self.epsilon == math.inf:
            return "none: a report can give its customer away"
        odds = f"no report is more than {math.exp(self.epsilon):.3g} times as likely from one customer as from another"
        if self.delta == 0.0:
            return f"epsilon = {self.epsilon:.4g}: {odds}"
        return f"epsilon = {self.epsilon:.4g}, delta = {self.delta:.3g}: {odds}, but for a chance of {self.delta:.3g}"


def log_normal_cdf(x: float) -> float:
    """Return log Phi(x), by the complementary error function and, in the far left tail, by its asymptotic series.

    The absolute error is a few units in the last place of 1 + x^2.

    Examples
    --------
    >>> round(log_normal_cdf(0.0), 12), round(log_normal_cdf(-40.0), 6)
    (-0.69314718056, -804.608442)
    """
    if x > 0.0:
        return math.log1p(-0.5 * math.erfc(x * math.sqrt(0.5)))
    if x > _SERIES_BELOW:
        return math.log(0.5 * math.erfc(-x * math.sqrt(0.5)))
    total, term = 1.0, 1.0
    for k in range(1, 30, 2):
        term *= -k / (x * x)
        total += term
    return -0.5 * x * x - math.log(-x) - 0.5 * math.log(2.0 * math.pi) + math.log(total)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the delta of Gaussian noise at this epsilon.

    Parameters
    ----------
    epsilon : float
        Privacy parameter.
    mu : float
        Sensitivity divided by the standard deviation.

    Notes
    -----
    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), exactly (Balle & Wang 2018).

    Examples
    --------
    >>> round(gaussian_delta(1.449, 2.0 / math.sqrt(2.0 * math.log(1250.0))), 5)
    0.001
    """
    if mu <= 0.0:
        return 0.0
    shift = epsilon / mu
    log_first = log_normal_cdf(0.5 * mu - shift)
    first, second = math.exp(log_first), math.exp(epsilon + log_normal_cdf(-0.5 * mu - shift))
    rounding = 1e-13 * first * (1.0 - log_first) + 1e-300  # error bound, added to delta
    return min(max(first - second, 0.0) + rounding, 1.0)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The privacy loss of reports, in a form that adds up (``+``).

    Parameters
    ----------
    epsilon : float
        Loss by pure mechanisms; it adds.
    mu : float
        Loss by Gaussian mechanisms; its squares add, exactly.
    slack : float
        Total variation distance between the reports and ideal Gaussian ones; it adds.

    Examples
    --------
    >>> Loss(epsilon=0.5) + Loss(epsilon=0.25)
    Loss(epsilon=0.75, mu=0.0, slack=0.0)
    >>> round(sum((Loss(mu=0.3) for _ in range(4)), Loss()).mu, 12)
    0.6
    """

    epsilon: float = 0.0
    mu: float = 0.0
    slack: float = 0.0

    def __post_init__(self) -> None:
        for name in ("epsilon", "mu", "slack"):
            finite(f"the {name} of a loss", getattr(self, name), minimum=0.0)

    def __add__(self, other: Loss) -> Loss:
        return Loss(
            epsilon=self.epsilon + other.epsilon,
            mu=math.hypot(self.mu, other.mu),
            slack=self.slack + other.slack,
        )

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta for which the total loss is (epsilon, delta)-private.

        Parameters
        ----------
        epsilon : float
            The epsilon of the guarantee.
        """
        if epsilon < self.epsilon:
            return 1.0
        return self._curve(min(epsilon, self._minimiser()))

    def _curve(self, epsilon: float) -> float:
        """gaussian_delta + (1 + e^epsilon) slack, which is convex in e^epsilon: it falls, then rises."""
        slack = (1.0 + math.exp(min(epsilon, 700.0))) * self.slack if self.slack else 0.0
        return min(1.0, gaussian_delta(epsilon - self.epsilon, self.mu) + slack)

    def _minimiser(self) -> float:
        """The epsilon with the least delta; a larger epsilon never has a larger one."""
        low, high = self.epsilon, self.epsilon + 200.0
        if not self.slack:
            return high
        while high - low > 1e-9:
            third = (high - low) / 3.0
            first, second = self._curve(low + third), self._curve(high - third)
            low, high = (low, high - third) if first <= second else (low + third, high)
        return low

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """Return the guarantee with the smallest epsilon at this delta; epsilon is infinite if there is none.

        Parameters
        ----------
        delta : float
            The delta of the guarantee.
        """
        if self.mu == 0.0 and self.slack == 0.0:
            return Guarantee(self.epsilon, 0.0)
        low, high = self.epsilon, self._minimiser()
        if self._curve(high) > delta:
            return Guarantee(math.inf, delta)
        for _ in range(100):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._curve(middle) > delta else (low, middle)
        return Guarantee(high, delta)

    def within(self, cap: Guarantee) -> bool:
        """Return whether the loss satisfies a guarantee.

        Parameters
        ----------
        cap : Guarantee
            The guarantee.
        """
        return self.delta(cap.epsilon) <= cap.delta
