"""Private look-ahead pricing: every customer reports, and prices are dithered as far as what is learned is worth.

Customers come in stages. In each stage devices quote the best price by the published theta, plus or minus delta by a
private coin, and report a randomised score of length at most 1. The server keeps a count and a sum of reports per
stage, finds the theta that explains all stages, and chooses delta and the weights of the next score by what they cost
and teach. The formulas are in :mod:`hushprice.kernels.dither`.

Without a prior, one price counts as the likeliest best one, at which a share BOUGHT of the largest demand is bought.
Utilities have a part that all customers share and a part in which they differ. How much they differ is learned: the
priors of DIFFERENCES are all in use, each with the weight that the reports give it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import Terms
from hushprice.errors import InvalidInput, MissingOption, finite, unknown
from hushprice.kernels.state import DitherRule
from hushprice.policies.exchange import Params
from hushprice.policies.phases import Phase
from hushprice.policies.private.base import PrivatePolicy
from hushprice.policies.private.dithered import DitheredDevice
from hushprice.policies.private.learner import PrivateLearner
from hushprice.policies.private.population import FeatureKind, Population
from hushprice.policies.private.server import DitheredServer
from hushprice.privacy import Gaussian, L2Ball, PrivUnit, VectorMechanism

Noise = Literal["privunit", "l2-ball", "gaussian"]
BOUGHT = 0.4  # of the largest demand, at the prior's best price
SHARED_SLOPE, SHARED_LEVEL = 1.0, 1.5  # prior standard deviations of what is shared: of log slope, of the utility
LEVEL_DIFFERENCES = 1.4  # standard deviation of the differences in level, per one of those in log slope
DIFFERENCES = (0.06, 0.18, 0.5)  # standard deviations of the differences between customers, of log slope
LOOSER = (1.0, 0.25, 0.0625)  # factors on the precision of a given prior
NOISE_BEYOND = 2.0  # how far beyond the bound linear outcomes are reported, in standard deviations of the noise
DITHERED = PrivateLearner(server=DitheredServer, device=DitheredDevice, phases=(Phase.DITHER,), clip=1.0)


@dataclass(frozen=True, kw_only=True)
class LookAheadLDP(PrivatePolicy):
    """Private look-ahead: prices are dithered as far as what is learned from the reports is worth.

    Every customer reports once. The horizon need not be known.

    Parameters
    ----------
    features : sequence
        What is publicly known about the entries of a context, in order: a range [low, high], a number for a constant,
        "yes/no", or {"group": k} for k entries of which one is 1 and all others are 0.
    customers : Population or array_like, optional
        Contexts that stand for the customers, for example those of a log that the seller has anyway. They replace
        ``features``, of which only the ranges are known.
    noise : {"privunit", "l2-ball", "gaussian"}
        The mechanism. "gaussian" takes a ``delta``.
    delta : float, optional
        The delta of the guarantee, for Gaussian noise.
    likely_price : float, optional
        The price that is thought best before the first report, such as today's. Default: the middle of the range.
    demand_max : float, optional
        The largest outcome, for linear and Poisson demand: a larger one counts as it.
    **options
        Those of :class:`Policy` and :class:`PrivatePolicy`. A ``prior`` replaces ``likely_price``.

    Examples
    --------
    >>> policy = LookAheadLDP(family="logistic", dim=2, prices=(0, 3), epsilon=1.0, features=[1.0, [0, 1]])
    >>> policy.mechanism.name, policy.guarantee.epsilon
    ('privunit', 1.0)
    """

    name: ClassVar[str] = "look-ahead-ldp"
    use: ClassVar[str] = "The default where the seller must not see customers' data."
    not_served: ClassVar[str] = "its prices are not part of the protocol of devices yet. Take etc-ldp-doubling."
    learner: ClassVar[PrivateLearner] = DITHERED

    features: tuple[FeatureKind, ...] = ()
    customers: Population | None = None
    noise: Noise = "privunit"
    delta: float | None = None
    likely_price: float | None = None
    demand_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.customers is None:
            self._set("features", self._kinds(self.features))
        else:
            self._set("customers", self._sample(self.customers))
        if not isinstance(self.noise, str) or self.noise not in _MECHANISMS:
            raise unknown("noise", self.noise, tuple(_MECHANISMS))
        if (self.delta is None) == (self.noise == "gaussian"):
            raise InvalidInput("delta belongs to noise='gaussian', as in noise='gaussian', delta=1e-6.")
        if self.delta is not None:
            self._set("delta", finite("delta", self.delta))
        if self.demand_max is not None:
            self._set("demand_max", finite("demand_max", self.demand_max, minimum=1e-6, maximum=1e6))
        elif self.family.outcomes != "binary":
            raise MissingOption(
                f"{self.name} needs demand_max for {self.family.name} demand: the largest outcome that reports tell of."
            )
        if self.likely_price is not None:
            low, high = self.prices
            self._set("likely_price", finite("likely_price", self.likely_price, minimum=low, maximum=high))
            if self.prior is not None:
                raise InvalidInput("Give a prior or a likely_price, not both: a prior says which price is likely.")
        if self.ridge != 1.0:
            raise InvalidInput(f"{self.name} has no ridge: give a prior.")
        _ = self.mechanism, self.priors  # refused now rather than at the first report

    def _kinds(self, features: Any) -> tuple[FeatureKind, ...]:
        if isinstance(features, (str, Mapping)) or not isinstance(features, Sequence):
            raise InvalidInput("features must be a list with one description per feature.")
        if not features:
            raise MissingOption(
                f"{self.name} needs features, what is publicly known about each, as in features=[[0, 1], 'yes/no', 1]; "
                f"or customers, contexts that stand for all."
            )
        kinds = tuple(map(FeatureKind.of, features))
        entries = sum(kind.entries for kind in kinds)
        if entries != self.dim:
            raise InvalidInput(f"The features describe {entries} entries of a context of length dim = {self.dim}.")
        return kinds

    def _sample(self, customers: Any) -> Population:
        if self.features:
            raise InvalidInput("Give features or customers, not both: customers replace what features say.")
        population = Population.from_config(customers)
        if population.points.shape[1] != self.dim:
            raise InvalidInput(f"customers must have contexts of length dim = {self.dim}.")
        return population

    def config(self) -> dict[str, Any]:
        plain = super().config() | {"features": [kind.config() for kind in self.features]}
        return plain | {"customers": None if self.customers is None else self.customers.config()}

    @property
    def clip(self) -> float:
        return 1.0

    def _mechanism(self) -> VectorMechanism:
        return _MECHANISMS[self.noise](self)

    @property
    def outcomes(self) -> tuple[float, float]:
        """What an outcome counts as at least and at most."""
        if self.family.outcomes == "binary":
            return 0.0, 1.0
        assert self.demand_max is not None
        beyond = NOISE_BEYOND * self.family.scale if self.family.outcomes == "real" else 0.0
        return -beyond, self.demand_max + beyond

    @cached_property
    def population(self) -> Population:
        """The customers that the server reckons with."""
        return Population.of(self.features) if self.customers is None else self.customers

    @cached_property
    def population_terms(self) -> Terms:
        """The terms on which the population is priced."""
        n = len(self.population.points)
        names = () if self.rules is None else self.rules.segments
        segment = np.arange(n) % len(names) if names else None  # all segments count alike
        return (self.terms(n, segment=segment) or self.plain_terms(n)).within(self.prices)

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        """The means of z z', with a little more on its diagonal so that it can be inverted, and of z."""
        S, mean = self.population.moments()
        return S + np.eye(self.dim) * (1e-9 * np.trace(S) / self.dim), mean

    @cached_property
    def basis(self) -> tuple[Array, Array, Array]:
        """(A, B, c): A + B makes features uncorrelated, A their shared part; z.c is nearest to 1."""
        S, mean = self._moments
        root = np.linalg.inv(np.linalg.cholesky(S))
        nearest = np.linalg.solve(S, mean)
        c: Array = nearest / (mean @ nearest) if mean @ nearest > 0.0 else np.full(self.dim, 1.0 / self.dim)
        v = np.linalg.solve(root, c)
        shared = np.outer(v, v @ root) / (v @ v)
        return shared, root - shared, c

    @cached_property
    def priors(self) -> tuple[Array, Array, Array]:
        """Centres, precisions and logarithms of the weights of the priors."""
        if self.prior is not None:
            precision = self.prior.precision / self.family.scale**2
            centres = np.tile(self.prior.centre, (len(LOOSER), 1))
            return centres, np.array([factor * precision for factor in LOOSER]), np.zeros(len(LOOSER))
        return self._usual_priors()

    def _usual_priors(self) -> tuple[Array, Array, Array]:
        d, c = self.dim, self.basis[2]
        low, high = self.prices
        likely = self.likely_price
        if likely is None:
            likely = 0.5 * (max(low, self.cost) + high) if high > self.cost else 0.5 * (low + high)
        margin = likely - self.cost if likely > self.cost else 0.5 * (high - low)
        bought = BOUGHT * (self.demand_max or 1.0)
        utility = self.family.link(bought)
        steep = float(self.family.curvature(utility))
        slope, usual = bought / (steep * margin), bought * (1.0 - BOUGHT) / steep
        apart = np.linalg.inv(self._moments[0]) / d
        centre = np.concatenate([(utility + likely * slope) * c, slope * c])
        change = np.block([[np.eye(d), likely * np.eye(d)], [np.zeros((d, d)), np.eye(d)]])  # of (level, slope)
        precisions = []
        for difference in DIFFERENCES:
            covariance = np.zeros((2 * d, 2 * d))
            level, own = SHARED_LEVEL * usual, LEVEL_DIFFERENCES * difference * usual
            covariance[:d, :d] = level**2 * np.outer(c, c) + own**2 * apart
            covariance[d:, d:] = (SHARED_SLOPE * slope) ** 2 * np.outer(c, c) + (difference * slope) ** 2 * apart
            precision = np.linalg.inv(change @ covariance @ change.T)
            precisions.append(0.5 * (precision + precision.T))
        return np.tile(centre, (len(precisions), 1)), np.array(precisions), np.zeros(len(precisions))

    def rule(self, params: Params) -> DitherRule:
        """Return what kernels need of published params.

        Parameters
        ----------
        params : Params
            The params, with a dither.
        """
        dither = params.dither
        assert dither is not None
        return DitherRule(
            self.family.code, params.theta, dither.delta, dither.pull, dither.target, dither.level, dither.slope,
            *self.outcomes, self.family.scale,
        )  # fmt: skip


_MECHANISMS: dict[str, Callable[[LookAheadLDP], VectorMechanism]] = {
    "privunit": lambda policy: PrivUnit(epsilon=policy.epsilon, clip=policy.clip, dim=2 * policy.dim),
    "l2-ball": lambda policy: L2Ball(epsilon=policy.epsilon, clip=policy.clip, dim=2 * policy.dim),
    "gaussian": lambda policy: Gaussian(
        epsilon=policy.epsilon, delta=policy.delta or 0.0, clip=policy.clip, dim=2 * policy.dim
    ),
}
