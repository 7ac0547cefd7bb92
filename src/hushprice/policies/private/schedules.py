"""Schedules: when a private policy explores. Each of the episodes 1, 2, ... explores first and then commits.

Once              one episode without end: tau experiments, then commit
Doubling          episodes of length E = 2^q with tau_q = tau(E) / sqrt(2) experiments
MixedOnce         sqrt(d T) rounds estimate the share p of public customers, then up to tau = ceil(tau_p(T)) experiments
MixedDoubling     the same in episodes of length E = 2^q, with tau_p(E) / sqrt(2)

with    tau(T)   = 2 d sqrt(T) log(T) / epsilon                              (:func:`private_experiments`)
        tau_p(T) = 2 sqrt(d T) log(T) / sqrt(p + (1 - p) r)                  (:func:`mixed_experiments`)

Lengths are rounded up, and cut at T, or at E in episode q.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from hushprice.errors import InvalidInput
from hushprice.policies.exchange import FOREVER

USUAL_EXPERIMENTS = 10**6  # tau in C_g if the horizon is unknown; C_g depends on it only through sqrt(log tau)


def private_experiments(T: int, *, dim: int, epsilon: float) -> float:
    """Return tau(T), the number of experiments for horizon T if every customer is private."""
    return 2.0 * dim * math.sqrt(T) * math.log(T) / epsilon


def mixed_experiments(T: int, *, dim: int, share: float, worth: float) -> float:
    """Return tau_p(T), the number of experiments for horizon T if a share of the customers is public.

    Parameters
    ----------
    T, dim : int
        Horizon and dimension.
    share : float
        Share p of public customers.
    worth : float
        Worth r of a private customer relative to a public one.
    """
    return 2.0 * math.sqrt(dim * T) * math.log(T) / math.sqrt(share + (1.0 - share) * worth)


class Schedule(ABC):
    """Lengths of the episodes of a private policy."""

    @property
    def restarts(self) -> bool:
        """Whether the estimate starts afresh with each episode."""
        return False

    @property
    def expected(self) -> int:
        """Expected number of experiments: tau in the clip bound C_g."""
        return USUAL_EXPERIMENTS

    @abstractmethod
    def episode(self, q: int) -> tuple[int, int]:
        """Return (least number of exploring rounds, number of rounds) of episode q."""

    def experiments(self, q: int, share: float) -> int:
        """Return the number of exploring rounds of episode q, given the share of public customers."""
        return self.episode(q)[0]


@dataclass(frozen=True)
class Once(Schedule):
    """tau experiments, then commit.

    Parameters
    ----------
    tau : int
        Number of experiments.

    Examples
    --------
    >>> Once(tau=40).episode(1) == (40, FOREVER)
    True
    """

    tau: int

    @property
    def expected(self) -> int:
        return self.tau

    def episode(self, q: int) -> tuple[int, int]:
        return (self.tau, FOREVER) if q == 1 else (0, FOREVER)


@dataclass(frozen=True, kw_only=True)
class Doubling(Schedule):
    """Episodes of length 2^q, for an unknown horizon.

    Parameters
    ----------
    dim : int
        Dimension d.
    epsilon : float
        Privacy parameter.
    restart : bool
        Whether the estimate starts afresh with each episode.

    Examples
    --------
    >>> [Doubling(dim=1, epsilon=4.0).episode(q) for q in (3, 6, 9)]
    [(3, 8), (12, 64), (50, 512)]
    """

    dim: int
    epsilon: float
    restart: bool = False

    @property
    def restarts(self) -> bool:
        return self.restart

    def episode(self, q: int) -> tuple[int, int]:
        E = 2**q
        tau = private_experiments(E, dim=self.dim, epsilon=self.epsilon)
        return min(E, math.ceil(tau / math.sqrt(2.0))), E


@dataclass(frozen=True, kw_only=True)
class MixedSchedule(Schedule):
    """A schedule whose number of experiments depends on the share of public customers.

    Parameters
    ----------
    dim : int
        Dimension d.
    worth : float
        Worth r of a private customer relative to a public one.
    """

    dim: int
    worth: float


@dataclass(frozen=True, kw_only=True)
class MixedOnce(MixedSchedule):
    """One episode, for a known horizon.

    Parameters
    ----------
    horizon : int
        Number of customers T.

    Examples
    --------
    >>> schedule = MixedOnce(dim=4, worth=0.25, horizon=100_000)
    >>> schedule.episode(1)[0], schedule.experiments(1, 0.0), schedule.experiments(1, 0.1)
    (633, 29126, 25545)
    """

    horizon: int

    @property
    def expected(self) -> int:
        return self.experiments(1, 0.0)

    def episode(self, q: int) -> tuple[int, int]:
        first = max(1, min(self.horizon, math.ceil(math.sqrt(self.dim * self.horizon))))
        return (first, FOREVER) if q == 1 else (0, FOREVER)

    def experiments(self, q: int, share: float) -> int:
        tau = mixed_experiments(self.horizon, dim=self.dim, share=share, worth=self.worth)
        return min(self.horizon, math.ceil(tau))


@dataclass(frozen=True, kw_only=True)
class MixedDoubling(MixedSchedule):
    """Episodes of length 2^q, for an unknown horizon.

    Parameters
    ----------
    restart : bool
        Whether the estimate starts afresh with each episode.
    """

    restart: bool = False

    @property
    def restarts(self) -> bool:
        return self.restart

    def episode(self, q: int) -> tuple[int, int]:
        E = 2**q
        return min(E, math.ceil(math.sqrt(self.dim * E))), E

    def experiments(self, q: int, share: float) -> int:
        E: int = 2**q
        tau = mixed_experiments(E, dim=self.dim, share=share, worth=self.worth)
        return min(E, math.ceil(tau / math.sqrt(2.0)))


def as_restart(value: object) -> bool:
    """Check the option ``restart`` of the doubling policies."""
    if not isinstance(value, (bool, int)) or value not in (0, 1):
        raise InvalidInput(f"restart must be True or False, got {value!r}.")
    return bool(value)
