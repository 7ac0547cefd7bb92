"""ETC-LDP (the paper's Algorithms 3 and 4): explore privately, then commit.

rounds 1..tau:      p_t ~ Uniform[l, u]; the device reports its clipped score at theta, randomised; the server steps
rounds tau+1..T:    p_t = p*(theta, z_t)

ETC-LDP         tau = ceil(2 d sqrt(T) log(T) / epsilon); L2Ball or PrivUnit
-Approx         the same tau; Gaussian noise, (epsilon, delta)
...Doubling     episodes of length E = 2^q, tau_q = 1/sqrt(2) times the above at T = E; SGD goes on over episodes, with
                its step counter, unless ``restart``

Lengths are rounded up, and cut at T, or at E in episode q. ``mixed.py`` has ETC-LDP-Mixed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hushprice.errors import finite, positive_int
from hushprice.policies.private.base import PrivatePolicy
from hushprice.policies.private.learner import PrivateLearner
from hushprice.policies.private.loop import SGDLoop
from hushprice.policies.private.mechanisms import PureMechanism, as_pure, pure
from hushprice.policies.private.schedules import Doubling, Once, Schedule, as_restart, private_experiments
from hushprice.policies.private.server import SGDServer
from hushprice.privacy import Gaussian, VectorMechanism
from hushprice.privacy.gaussian import Calibration

SGD = PrivateLearner(server=SGDServer, loop=SGDLoop)


@dataclass(frozen=True, kw_only=True)
class ETCLDP(PrivatePolicy):
    """Explore then commit under epsilon-LDP. Regret of order d sqrt(T) log(T) / epsilon.

    Parameters
    ----------
    horizon : int
        Number of customers T.
    noise : {"l2-ball", "privunit"}
        The mechanism: L2Ball, as in the paper, or PrivUnit, which has less noise.
    **options
        Those of :class:`Policy` and :class:`PrivatePolicy`.

    Examples
    --------
    >>> policy = ETCLDP(family="logistic", dim=4, prices=(0, 3), horizon=100_000, epsilon=1.0, z_max=2.0)
    >>> policy.tau, round(policy.clip, 3)
    (29126, 4.0)
    """

    name: ClassVar[str] = "etc-ldp"
    learner: ClassVar[PrivateLearner] = SGD

    noise: PureMechanism = "l2-ball"
    horizon: int

    def __post_init__(self) -> None:
        self._set("horizon", positive_int("horizon", self.horizon))
        self._set("noise", as_pure(self.noise))
        super().__post_init__()

    @property
    def tau(self) -> int:
        """Number of price experiments."""
        return _tau(self.horizon, self)

    def _schedule(self) -> Schedule:
        return Once(self.tau)

    def _mechanism(self) -> VectorMechanism:
        return pure(self.noise, epsilon=self.epsilon, clip=self.clip, dim=2 * self.dim)


@dataclass(frozen=True, kw_only=True)
class ETCLDPDoubling(PrivatePolicy):
    """ETC-LDP in episodes of doubling length, for an unknown horizon.

    Parameters
    ----------
    noise : {"l2-ball", "privunit"}
        The mechanism: L2Ball, as in the paper, or PrivUnit, which has less noise.
    restart : bool
        Whether the estimate starts afresh with each episode.
    **options
        Those of :class:`Policy` and :class:`PrivatePolicy`.
    """

    name: ClassVar[str] = "etc-ldp-doubling"
    learner: ClassVar[PrivateLearner] = SGD

    noise: PureMechanism = "l2-ball"
    restart: bool = False

    def __post_init__(self) -> None:
        self._set("restart", as_restart(self.restart))
        self._set("noise", as_pure(self.noise))
        super().__post_init__()

    def _schedule(self) -> Schedule:
        return Doubling(dim=self.dim, epsilon=self.epsilon, restart=self.restart)

    def _mechanism(self) -> VectorMechanism:
        return pure(self.noise, epsilon=self.epsilon, clip=self.clip, dim=2 * self.dim)


@dataclass(frozen=True, kw_only=True)
class ETCLDPApprox(PrivatePolicy):
    """Explore then commit under (epsilon, delta)-LDP, by Gaussian noise.

    Parameters
    ----------
    horizon : int
        Number of customers T.
    delta : float
        The delta of the guarantee.
    calibration : {"analytic", "classical", "paper"}
        How the noise follows from the guarantee. "paper" is for the paper's figures; ``guarantee`` then says what it
        gives in fact.
    **options
        Those of :class:`Policy` and :class:`PrivatePolicy`.
    """

    name: ClassVar[str] = "etc-ldp-approx"
    learner: ClassVar[PrivateLearner] = SGD

    delta: float = 1e-3
    calibration: Calibration = "analytic"
    horizon: int

    def __post_init__(self) -> None:
        self._set("horizon", positive_int("horizon", self.horizon))
        self._set("delta", finite("delta", self.delta))
        super().__post_init__()

    @property
    def tau(self) -> int:
        """Number of price experiments."""
        return _tau(self.horizon, self)

    def _schedule(self) -> Schedule:
        return Once(self.tau)

    def _mechanism(self) -> VectorMechanism:
        return Gaussian(
            epsilon=self.epsilon, delta=self.delta, clip=self.clip, dim=2 * self.dim, calibration=self.calibration
        )


@dataclass(frozen=True, kw_only=True)
class ETCLDPApproxDoubling(PrivatePolicy):
    """ETC-LDP-Approx in episodes of doubling length, for an unknown horizon.

    Parameters
    ----------
    delta : float
        The delta of the guarantee.
    calibration : {"analytic", "classical", "paper"}
        How the noise follows from the guarantee. "paper" is for the paper's figures; ``guarantee`` then says what it
        gives in fact.
    restart : bool
        Whether the estimate starts afresh with each episode.
    **options
        Those of :class:`Policy` and :class:`PrivatePolicy`.
    """

    name: ClassVar[str] = "etc-ldp-approx-doubling"
    learner: ClassVar[PrivateLearner] = SGD

    delta: float = 1e-3
    calibration: Calibration = "analytic"
    restart: bool = False

    def __post_init__(self) -> None:
        self._set("restart", as_restart(self.restart))
        self._set("delta", finite("delta", self.delta))
        super().__post_init__()

    def _schedule(self) -> Schedule:
        return Doubling(dim=self.dim, epsilon=self.epsilon, restart=self.restart)

    def _mechanism(self) -> VectorMechanism:
        return Gaussian(
            epsilon=self.epsilon, delta=self.delta, clip=self.clip, dim=2 * self.dim, calibration=self.calibration
        )


def _tau(horizon: int, policy: PrivatePolicy) -> int:
    tau = private_experiments(horizon, dim=policy.dim, epsilon=policy.epsilon)
    return max(1, min(horizon, math.ceil(tau)))
