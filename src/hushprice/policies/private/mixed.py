"""ETC-LDP-Mixed (the paper's Algorithm 5): some customers agree to send raw records.

ETC-LDP-Mixed   sqrt(d T) rounds estimate the share p of public customers, then experiments continue up to
                tau = ceil(2 sqrt(d T) log(T) / sqrt(p + (1 - p) r)), r = min(1, epsilon^2 / d) the worth of a private
                customer; then one pass of plain SGD over the public records, step k of size 1 / (zeta (n r + k)) after
                n private ones
...Doubling     episodes of length E = 2^q, tau_q = 1/sqrt(2) times the above at T = E
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hushprice.errors import positive_int
from hushprice.policies.private.device import MixedDevice
from hushprice.policies.private.learner import PrivateLearner
from hushprice.policies.private.loop import MixedLoop
from hushprice.policies.private.mechanisms import PureLDP
from hushprice.policies.private.schedules import MixedDoubling, MixedOnce, Schedule, as_restart
from hushprice.policies.private.server import MixedServer

MIXED_SGD = PrivateLearner(server=MixedServer, device=MixedDevice, loop=MixedLoop)


@dataclass(frozen=True, kw_only=True)
class MixedLDP(PureLDP):
    """Base class of the policies whose customers choose to be public or private.

    Parameters
    ----------
    noise : {"l2-ball", "privunit"}
        The mechanism: L2Ball, as in the paper, or PrivUnit, which has less noise.
    **options
        Those of :class:`BallPolicy`.
    """

    raw_by_choice: ClassVar[bool] = True
    not_served: ClassVar[str] = "it would keep the raw records of those who agree. Take etc-ldp or etc-ldp-doubling."
    learner: ClassVar[PrivateLearner] = MIXED_SGD

    @property
    def worth(self) -> float:
        """The worth of a private customer relative to a public one: epsilon^2 / d, and at most 1."""
        return min(1.0, self.epsilon**2 / self.dim)


@dataclass(frozen=True, kw_only=True)
class ETCLDPMixed(MixedLDP):
    """ETC-LDP where some customers are public: the more there are, the fewer experiments it needs.

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
    >>> policy = ETCLDPMixed(family="logistic", dim=4, prices=(0, 3), horizon=100_000, epsilon=1.0, z_max=2.0)
    >>> policy.episode(1)[0], policy.experiments(1, 0.0), policy.experiments(1, 0.1)
    (633, 29126, 25545)
    """

    name: ClassVar[str] = "etc-ldp-mixed"
    use: ClassVar[str] = "As etc-ldp, where some customers agree to send their data."

    horizon: int

    def __post_init__(self) -> None:
        self._set("horizon", positive_int("horizon", self.horizon))
        super().__post_init__()

    def _schedule(self) -> Schedule:
        return MixedOnce(dim=self.dim, worth=self.worth, horizon=self.horizon)


@dataclass(frozen=True, kw_only=True)
class ETCLDPMixedDoubling(MixedLDP):
    """ETC-LDP-Mixed in episodes of doubling length. All customers so far estimate the share of public ones.

    Parameters
    ----------
    noise : {"l2-ball", "privunit"}
        The mechanism: L2Ball, as in the paper, or PrivUnit, which has less noise.
    restart : bool
        Whether the estimate starts afresh with each episode.
    **options
        Those of :class:`BallPolicy`.
    """

    name: ClassVar[str] = "etc-ldp-mixed-doubling"
    use: ClassVar[str] = "As etc-ldp-mixed, for an unknown number of customers."

    restart: bool = False

    def __post_init__(self) -> None:
        self._set("restart", as_restart(self.restart))
        super().__post_init__()

    def _schedule(self) -> Schedule:
        return MixedDoubling(dim=self.dim, worth=self.worth, restart=self.restart)
