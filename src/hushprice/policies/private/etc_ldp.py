"""ETC-LDP and its kin (the paper's Algorithms 3 to 5): explore privately, then commit.

rounds 1..tau:      p_t ~ Uniform[l, u]; the device reports its clipped score at theta, randomised; the server steps
rounds tau+1..T:    p_t = p*(theta, z_t)

ETC-LDP         tau = ceil(2 d sqrt(T) log(T) / epsilon); L2Ball or PrivUnit
-Approx         the same tau; Gaussian noise, (epsilon, delta)
-Mixed          sqrt(d T) rounds find the share p of public customers, then on to
                tau = ceil(2 sqrt(d T) log(T) / sqrt(p + (1 - p) r)), r = min(1, epsilon^2 / d) the worth of a private
                customer; then one pass of plain SGD over the public records, step k of size 1 / (zeta (n r + k)) after
                n private ones
...Doubling     episodes of length E = 2^q, tau_q = 1/sqrt(2) times the above at T = E; SGD goes on over episodes, with
                its step counter, unless ``restart``

Lengths are rounded up, and cut at T, or at E in episode q.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from hushprice.errors import InvalidInput, finite, positive_int
from hushprice.policies.base import FOREVER, Server
from hushprice.policies.loop import Loop
from hushprice.policies.private.base import PrivatePolicy
from hushprice.policies.private.device import MixedDevice, PrivateDevice
from hushprice.policies.private.loop import MixedLoop, PrivateLoop
from hushprice.policies.private.server import MixedServer, PrivateServer
from hushprice.privacy import Entropy, Gaussian, L2Ball, Ledger, PrivUnit, VectorMechanism
from hushprice.privacy.gaussian import Calibration

PureMechanism = Literal["l2-ball", "privunit"]


@dataclass(frozen=True, kw_only=True)
class EpisodesLDP(PrivatePolicy):
    """Explore, then commit, in episodes."""

    @property
    def restarts(self) -> bool:
        """Whether SGD starts afresh with each episode."""
        return False

    @abstractmethod
    def episode(self, q: int) -> tuple[int, int]:
        """(rounds that explore, rounds) of episode q."""

    def device(self, entropy: Entropy | None = None, *, ledger: Ledger | None = None) -> PrivateDevice:
        """The device half; with a ``ledger``, one that stops reporting when the customer's budget is spent."""
        return PrivateDevice(self, entropy, ledger=ledger)

    def server(self) -> Server[Any]:
        return PrivateServer(self)

    def loop(self, entropy: Entropy | None = None) -> Loop:
        return PrivateLoop(self.device(entropy), self.server())

    def _tau(self, T: int) -> float:
        """Number of experiments at horizon T."""
        return 2.0 * self.dim * math.sqrt(T) * math.log(T) / self.epsilon


@dataclass(frozen=True, kw_only=True)
class _KnownHorizon(EpisodesLDP):
    """One episode."""

    horizon: int

    def __post_init__(self) -> None:
        self._set("horizon", positive_int("horizon", self.horizon))
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class _Once(_KnownHorizon):
    """tau experiments, then commit."""

    @property
    def tau(self) -> int:
        """Number of price experiments."""
        return max(1, min(self.horizon, math.ceil(self._tau(self.horizon))))

    @property
    def experiments_expected(self) -> int:
        return self.tau

    def episode(self, q: int) -> tuple[int, int]:
        return (self.tau, FOREVER) if q == 1 else (0, FOREVER)


@dataclass(frozen=True, kw_only=True)
class _Doubling(EpisodesLDP):
    """Episodes of length 2^q."""

    restart: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.restart, (bool, int)) or self.restart not in (0, 1):
            raise InvalidInput(f"restart must be True or False, got {self.restart!r}.")
        self._set("restart", bool(self.restart))
        super().__post_init__()

    @property
    def restarts(self) -> bool:
        return self.restart

    def episode(self, q: int) -> tuple[int, int]:
        E = 2**q
        return min(E, math.ceil(self._tau(E) / math.sqrt(2.0))), E


@dataclass(frozen=True, kw_only=True)
class _Pure(PrivatePolicy):
    """epsilon-LDP by L2Ball, as in the paper, or by PrivUnit, which has less noise."""

    noise: PureMechanism = "l2-ball"

    def __post_init__(self) -> None:
        if not isinstance(self.noise, str) or self.noise not in get_args(PureMechanism):
            raise InvalidInput(
                f"noise must be one of {', '.join(get_args(PureMechanism))}, got {self.noise!r}. For Gaussian noise "
                f"take ETCLDPApprox."
            )
        super().__post_init__()

    def _mechanism(self) -> VectorMechanism:
        kind = PrivUnit if self.noise == "privunit" else L2Ball
        return kind(epsilon=self.epsilon, clip=self.clip, dim=2 * self.dim)


@dataclass(frozen=True, kw_only=True)
class _Approximate(PrivatePolicy):
    """(epsilon, delta)-LDP by Gaussian noise."""

    delta: float = 1e-3
    calibration: Calibration = "analytic"

    def __post_init__(self) -> None:
        self._set("delta", finite("delta", self.delta))
        super().__post_init__()

    def _mechanism(self) -> VectorMechanism:
        return Gaussian(
            epsilon=self.epsilon, delta=self.delta, clip=self.clip, dim=2 * self.dim, calibration=self.calibration
        )


@dataclass(frozen=True, kw_only=True)
class ETCLDP(_Once, _Pure):
    """Explore then commit under epsilon-LDP. Regret of order d sqrt(T) log(T) / epsilon.

    ``noise`` is "l2-ball", as in the paper, or "privunit".

    >>> policy = ETCLDP(family="logistic", dim=4, prices=(0, 3), horizon=100_000, epsilon=1.0, z_max=2.0)
    >>> policy.tau, round(policy.clip, 3)
    (29126, 4.0)
    """

    name: ClassVar[str] = "etc-ldp"


@dataclass(frozen=True, kw_only=True)
class ETCLDPDoubling(_Doubling, _Pure):
    """ETC-LDP in episodes of doubling length, for an unknown horizon."""

    name: ClassVar[str] = "etc-ldp-doubling"


@dataclass(frozen=True, kw_only=True)
class ETCLDPApprox(_Once, _Approximate):
    """Explore then commit under (epsilon, delta)-LDP, by Gaussian noise.

    ``calibration="paper"`` is for the paper's figures; ``guarantee`` then says what it truly gives.
    """

    name: ClassVar[str] = "etc-ldp-approx"


@dataclass(frozen=True, kw_only=True)
class ETCLDPApproxDoubling(_Doubling, _Approximate):
    """ETC-LDP-Approx in episodes of doubling length, for an unknown horizon."""

    name: ClassVar[str] = "etc-ldp-approx-doubling"


@dataclass(frozen=True, kw_only=True)
class MixedLDP(EpisodesLDP, _Pure):
    """Some customers agree to send raw records; the choice comes with each customer."""

    not_served: ClassVar[str] = "it would keep the raw records of those who agree. Take etc-ldp or etc-ldp-doubling."

    @property
    def worth(self) -> float:
        """What a private customer is worth, in public ones: epsilon^2 / d, and never more than 1."""
        return min(1.0, self.epsilon**2 / self.dim)

    @abstractmethod
    def experiments(self, q: int, share: float) -> int:
        """Experiments of episode q once the share of public customers is known."""

    def _mixed_tau(self, T: int, share: float) -> float:
        return 2.0 * math.sqrt(self.dim * T) * math.log(T) / math.sqrt(share + (1.0 - share) * self.worth)

    def device(self, entropy: Entropy | None = None, *, ledger: Ledger | None = None) -> MixedDevice:
        return MixedDevice(self, entropy, ledger=ledger)

    def server(self) -> Server[Any]:
        return MixedServer(self)

    def loop(self, entropy: Entropy | None = None) -> Loop:
        return MixedLoop(self.device(entropy), self.server())


@dataclass(frozen=True, kw_only=True)
class ETCLDPMixed(_KnownHorizon, MixedLDP):
    """ETC-LDP where some customers are public: shorter experiments the more of them there are.

    >>> policy = ETCLDPMixed(family="logistic", dim=4, prices=(0, 3), horizon=100_000, epsilon=1.0, z_max=2.0)
    >>> policy.episode(1)[0], policy.experiments(1, 0.0), policy.experiments(1, 0.1)
    (633, 29126, 25545)
    """

    name: ClassVar[str] = "etc-ldp-mixed"

    @property
    def experiments_expected(self) -> int:
        return self.experiments(1, 0.0)

    def episode(self, q: int) -> tuple[int, int]:
        first = max(1, min(self.horizon, math.ceil(math.sqrt(self.dim * self.horizon))))
        return (first, FOREVER) if q == 1 else (0, FOREVER)

    def experiments(self, q: int, share: float) -> int:
        return min(self.horizon, math.ceil(self._mixed_tau(self.horizon, share)))


@dataclass(frozen=True, kw_only=True)
class ETCLDPMixedDoubling(_Doubling, MixedLDP):
    """ETC-LDP-Mixed in episodes of doubling length; the share of public customers is that of all so far."""

    name: ClassVar[str] = "etc-ldp-mixed-doubling"

    def episode(self, q: int) -> tuple[int, int]:
        E = 2**q
        return min(E, math.ceil(math.sqrt(self.dim * E))), E

    def experiments(self, q: int, share: float) -> int:
        E: int = 2**q
        return min(E, math.ceil(self._mixed_tau(E, share) / math.sqrt(2.0)))
