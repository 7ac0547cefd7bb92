"""The private policies that keep theta in a ball: Theta, the clip bound, the rate of SGD.

Experiments are uniform on [l, u]. The device clips the score g = (y - psi'(z.alpha - z.beta p)) x to length C_g:

    score "paper"     x = (z, -p z),           |x| <= X = z_max sqrt(1 + u^2)
    score "centred"   x = (z, -f (p - c) z),   |x| <= X = 2 z_max,   c = (l + u) / 2,  f = sqrt(12) / (u - l)

    outcomes 0 or 1   C_g = X, as |y - psi'| <= 1
    others            C_g = 2 X (M + sigma sqrt(log tau)),  M >= 1 a bound on the expected demand, sigma the noise of
                      linear demand and sqrt(M) for Poisson

With the t-th decoded report w, transformed back to theta's coordinates, the server sets
theta = Pi_Theta(theta + w / (zeta t)). Theta is a ball, zeta = L_p / d and L_p = (u - l)^2 / (4 (u^2 + l^2 + u l + 3)).
Centred prices have mean 0 and variance 1, so level and slope are learned separately and at the same rate. For prices up
to 3 the scores are also shorter. In the paper's markets this halves the regret, approximately, for the same guarantee.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from hushprice.arrays import Array, array
from hushprice.errors import InvalidInput, finite, price_range, unknown
from hushprice.policies.private.base import PrivatePolicy

if TYPE_CHECKING:
    from hushprice.policies.private.schedules import Schedule

Score = Literal["centred", "paper"]
LARGEST_DERIVED_DEMAND = 1e4  # beyond it the noise for the clip bound would drown every report


@dataclass(frozen=True, kw_only=True)
class BallPolicy(PrivatePolicy):
    """Base class of the private policies that explore first and learn by SGD in a ball.

    A subclass implements ``_schedule`` and ``_mechanism`` and sets ``learner``.

    Parameters
    ----------
    z_max : float
        Bound on the norm of a context. It must not depend on the data; a longer context is clipped.
    radius, centre : float and sequence of 2 d floats, optional
        The ball Theta that holds theta. Default: radius 2 sqrt(2 d) around 0.
    start_at : sequence of 2 d floats, optional
        Initial estimate. Default: the centre. SGD's first step is long enough to forget it.
    experiment_prices : (float, float), optional
        Price range of the experiments, within ``prices``. Default: ``prices``.
    demand_max : float, optional
        Bound M on the expected demand, for linear and Poisson demand. Default: derived from Theta.
    zeta_scale : float
        Factor on zeta, the rate of SGD.
    score : {"centred", "paper"}
        How scores encode the price (see the module docstring); "paper" is as published.
    **options
        Those of :class:`Policy` and :class:`PrivatePolicy`.

    Attributes
    ----------
    schedule : Schedule
        When the policy explores.
    """

    takes_prior: ClassVar[bool] = False

    z_max: float
    radius: float | None = None
    centre: tuple[float, ...] | None = None
    start_at: tuple[float, ...] | None = None
    experiment_prices: tuple[float, float] | None = None
    demand_max: float | None = None
    zeta_scale: float = 1.0
    score: Score = "centred"

    def __post_init__(self) -> None:
        super().__post_init__()
        d = self.dim
        self._set("z_max", finite("z_max", self.z_max, minimum=0.0, maximum=1e6, strict=True))
        radius = 2.0 * math.sqrt(2.0 * d) if self.radius is None else self.radius
        radius = finite("radius", radius, minimum=0.0, maximum=1e6, strict=True)
        centre = self._point("centre", (0.0,) * (2 * d) if self.centre is None else self.centre)
        start = self._point("start_at", centre if self.start_at is None else self.start_at)
        for name, value in (("radius", radius), ("centre", centre), ("start_at", start)):
            self._set(name, value)
        if not self.in_theta(np.array(start)):
            raise InvalidInput(f"start_at must lie in Theta, within {radius:g} of its centre.")
        self._set("experiment_prices", self._experiments())
        if self.rules is not None:
            self.rules.check(self.prices, self.experiment_range())
        if self.demand_max is not None:
            self._set("demand_max", finite("demand_max", self.demand_max, minimum=1.0, maximum=1e9))
        if self.ridge != 1.0:
            raise InvalidInput("A private policy has no ridge: its estimate is kept in Theta, of the given radius.")
        self._set("zeta_scale", finite("zeta_scale", self.zeta_scale, minimum=1e-6, maximum=1e6))
        if not isinstance(self.score, str) or self.score not in get_args(Score):
            raise unknown("score", self.score, get_args(Score))
        if not self.zeta > 1e-12:
            raise InvalidInput(
                f"The experiments' prices {self.experiment_prices} are too close together to learn from."
            )
        _ = self.mechanism  # refused now rather than at the first report

    def _point(self, name: str, value: Any) -> tuple[float, ...]:
        return tuple(array(name, value, shape=(2 * self.dim,), limit=1e6).tolist())

    def _experiments(self) -> tuple[float, float]:
        if self.experiment_prices is None:
            return self.prices
        low, high = price_range(self.experiment_prices)
        if low < self.prices[0] or high > self.prices[1]:
            raise InvalidInput(f"experiment_prices {(low, high)} must lie within prices {self.prices}.")
        return low, high

    def experiment_range(self) -> tuple[float, float]:
        assert self.experiment_prices is not None
        return self.experiment_prices

    def as_ball(self) -> BallPolicy:
        return self

    # -- schedule -----------------------------------------------------------------------------------------------------

    @cached_property
    def schedule(self) -> Schedule:
        """When to explore."""
        return self._schedule()

    @abstractmethod
    def _schedule(self) -> Schedule:
        """The schedule, from the horizon or without one."""

    @property
    def restarts(self) -> bool:
        """Whether the estimate starts afresh with each episode."""
        return self.schedule.restarts

    def episode(self, q: int) -> tuple[int, int]:
        """Return (least number of exploring rounds, number of rounds) of episode q.

        Parameters
        ----------
        q : int
            The episode.
        """
        return self.schedule.episode(q)

    def experiments(self, q: int, share: float) -> int:
        """Return the number of exploring rounds of episode q, given the share of public customers.

        Parameters
        ----------
        q : int
            The episode.
        share : float
            Share of public customers.
        """
        return self.schedule.experiments(q, share)

    # -- values derived from the configuration ------------------------------------------------------------------------

    @property
    def price_scale(self) -> tuple[float, float]:
        """(c, f): a score encodes the price as f (p - c)."""
        low, high = self.experiment_range()
        return (0.0, 1.0) if self.score == "paper" else (0.5 * (low + high), math.sqrt(12.0) / (high - low))

    @property
    def _steepest(self) -> float:
        """The largest f |p - c|."""
        shift, factor = self.price_scale
        return factor * max(abs(p - shift) for p in self.experiment_range())

    @property
    def clip(self) -> float:
        """Bound on the length of the vector that a report is about: the learner's, or C_g."""
        if self.learner.clip is not None:
            return self.learner.clip
        longest = self.z_max * math.sqrt(1.0 + self._steepest**2)
        return longest * self.family.residual_bound(self.largest_demand, self.schedule.expected)

    @property
    def largest_demand(self) -> float:
        """M: ``demand_max``, or a bound on psi'(x.theta) over Theta and all x."""
        if self.demand_max is not None:
            return self.demand_max
        centre, radius = self.ball
        reach = self.z_max * math.sqrt(1.0 + self.experiment_range()[1] ** 2)
        M = max(1.0, self.family.largest_mean(reach * (float(np.linalg.norm(centre)) + radius)))
        if M > LARGEST_DERIVED_DEMAND:
            raise InvalidInput(
                f"{self.family.name} demand could be as large as {M:.3g} in this Theta, and the noise would have to "
                f"hide that. State the largest expected demand you believe in, as in demand_max=20."
            )
        return M

    @property
    def zeta(self) -> float:
        """Rate of SGD: step t has size 1 / (zeta t)."""
        l, u = self.experiment_range()  # noqa: E741 (the paper's name)
        return self.zeta_scale * (u - l) ** 2 / (4.0 * (u * u + l * l + u * l + 3.0)) / self.dim

    def in_theta(self, theta: Array) -> bool:
        """Return whether a point lies in Theta, up to rounding.

        Parameters
        ----------
        theta : ndarray
            The point (alpha, beta).
        """
        centre, radius = self.ball
        return math.dist(theta, centre) <= radius * (1.0 + 1e-9) + 1e-12 * math.hypot(*centre)

    @property
    def ball(self) -> tuple[Array, float]:
        """Theta: centre and radius."""
        assert self.radius is not None
        return np.array(self.centre), self.radius
