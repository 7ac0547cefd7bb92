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

from hushprice.errors import positive_int
from hushprice.policies.private.ball import BallPolicy
from hushprice.policies.private.learner import PrivateLearner
from hushprice.policies.private.loop import SGDLoop
from hushprice.policies.private.mechanisms import ApproximateLDP, PureLDP
from hushprice.policies.private.schedules import Doubling, Once, Schedule, as_restart, private_experiments
from hushprice.policies.private.server import SGDServer

SGD = PrivateLearner(server=SGDServer, loop=SGDLoop)


@dataclass(frozen=True, kw_only=True)
class OneEpisode(BallPolicy):
    """Base class of the policies that know the horizon: tau experiments, then commit.

    Parameters
    ----------
    horizon : int
        Number of customers T.
    **options
        Those of :class:`BallPolicy`.
    """

    learner: ClassVar[PrivateLearner] = SGD

    horizon: int

    def __post_init__(self) -> None:
        self._set("horizon", positive_int("horizon", self.horizon))
        super().__post_init__()

    @property
    def tau(self) -> int:
        """Number of price experiments."""
        tau = private_experiments(self.horizon, dim=self.dim, epsilon=self.epsilon)
        return max(1, min(self.horizon, math.ceil(tau)))

    def _schedule(self) -> Schedule:
        return Once(self.tau)


@dataclass(frozen=True, kw_only=True)
class DoublingEpisodes(BallPolicy):
    """Base class of the policies for an unknown horizon: episodes of doubling length.

    Parameters
    ----------
    restart : bool
        Whether the estimate starts afresh with each episode.
    **options
        Those of :class:`BallPolicy`.
    """

    learner: ClassVar[PrivateLearner] = SGD

    restart: bool = False

    def __post_init__(self) -> None:
        self._set("restart", as_restart(self.restart))
        super().__post_init__()

    def _schedule(self) -> Schedule:
        return Doubling(dim=self.dim, epsilon=self.epsilon, restart=self.restart)


@dataclass(frozen=True, kw_only=True)
class ETCLDP(OneEpisode, PureLDP):
    """Explore then commit under epsilon-LDP. Regret of order d sqrt(T) log(T) / epsilon.

    Parameters
    ----------
    horizon : int
        Number of customers T.
    noise : {"l2-ball", "privunit"}
        The mechanism: L2Ball, as in the paper, or PrivUnit, which has less noise.
    **options
        Those of :class:`BallPolicy`.

    Examples
    --------
    >>> policy = ETCLDP(family="logistic", dim=4, prices=(0, 3), horizon=100_000, epsilon=1.0, z_max=2.0)
    >>> policy.tau, round(policy.clip, 3)
    (29126, 4.0)
    """

    name: ClassVar[str] = "etc-ldp"
    use: ClassVar[str] = "The server must not see the data of any customer; their number is known."


@dataclass(frozen=True, kw_only=True)
class ETCLDPDoubling(DoublingEpisodes, PureLDP):
    """ETC-LDP in episodes of doubling length, for an unknown horizon.

    Parameters
    ----------
    noise : {"l2-ball", "privunit"}
        The mechanism: L2Ball, as in the paper, or PrivUnit, which has less noise.
    restart : bool
        Whether the estimate starts afresh with each episode.
    **options
        Those of :class:`BallPolicy`.
    """

    name: ClassVar[str] = "etc-ldp-doubling"
    use: ClassVar[str] = "As etc-ldp, for an unknown number of customers."


@dataclass(frozen=True, kw_only=True)
class ETCLDPApprox(OneEpisode, ApproximateLDP):
    """Explore then commit under (epsilon, delta)-LDP, by Gaussian noise.

    Parameters
    ----------
    horizon : int
        Number of customers T.
    delta : float
        The delta of the guarantee.
    calibration : {"analytic", "classical", "paper"}
        How the noise follows from the guarantee (see :class:`ApproximateLDP`).
    **options
        Those of :class:`BallPolicy`.
    """

    name: ClassVar[str] = "etc-ldp-approx"
    use: ClassVar[str] = "As etc-ldp, where a small delta is acceptable: Gaussian noise."


@dataclass(frozen=True, kw_only=True)
class ETCLDPApproxDoubling(DoublingEpisodes, ApproximateLDP):
    """ETC-LDP-Approx in episodes of doubling length, for an unknown horizon.

    Parameters
    ----------
    delta : float
        The delta of the guarantee.
    calibration : {"analytic", "classical", "paper"}
        How the noise follows from the guarantee (see :class:`ApproximateLDP`).
    restart : bool
        Whether the estimate starts afresh with each episode.
    **options
        Those of :class:`BallPolicy`.
    """

    name: ClassVar[str] = "etc-ldp-approx-doubling"
    use: ClassVar[str] = "As etc-ldp-approx, for an unknown number of customers."
