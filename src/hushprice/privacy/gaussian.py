"""The Gaussian mechanism, with reports on a grid.

    report k_i = floor(g_i / h + 64 N_i + 1/2),   decode h k_i,   h = sd / 64

Two clipped vectors differ by up to 2 C, so mu = 2 C / sd. Gaussian noise in floating point is not safe: the low-order
bits of the sum reveal g (Mironov 2012). Here the sum is rounded to a grid of 64 steps per standard deviation before it
is sent. Rounding an exact Gaussian is post-processing and costs no privacy. The total variation distance between the
implementation and an exact rounded Gaussian is at most ``SLACK`` per coordinate; delta pays for it.

Derivation of SLACK: each of at most 1100 cell boundaries is a threshold on one random word, of which 53 bits are used,
so its probability is off by at most 2^-53 plus the density times the error of the normal quantile (below 4e-15, tested)
and of the sum (below 4e-15): 1100 * 2^-53 + 64 * 8e-15 < 7e-13; the tail beyond 8.29 adds 1e-16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, finite, unknown
from hushprice.kernels import sgd as kernel
from hushprice.kernels.state import ReportSpec
from hushprice.privacy.guarantee import Guarantee, Loss, gaussian_mu
from hushprice.privacy.mechanism import VectorMechanism
from hushprice.privacy.wire import Rows

SLACK = 1e-12
_CLIP_ROUNDING = 1.0 + 1e-12  # a clipped vector may be longer than C by rounding
Calibration = Literal["analytic", "classical", "paper"]


@dataclass(frozen=True, kw_only=True)
class Gaussian(VectorMechanism):
    """(epsilon, delta)-LDP by Gaussian noise of standard deviation ``sd`` on each coordinate.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee of one report.
    clip : float
        Bound C on the length of the input; longer inputs are clipped.
    dim : int
        Length of the input.
    calibration : {"analytic", "classical", "paper"}
        "analytic" computes the smallest sd that is (epsilon, delta)-private for sensitivity 2 C (Balle & Wang 2018).
        "classical" is sd = 2 C sqrt(2 log(1.25 / delta)) / epsilon. "paper" is the paper's formula, which assumes
        sensitivity C; it exists to reproduce the paper's figures. The last two are refused for epsilon > 1, where their
        derivation fails; ``guarantee`` states what they actually provide.

    Attributes
    ----------
    sd : float
        Standard deviation of the noise.

    Examples
    --------
    >>> round(Gaussian(epsilon=1.0, delta=1e-3, clip=1.0, dim=2).sd, 3)
    5.149
    >>> Gaussian(epsilon=1.0, delta=1e-3, clip=1.0, dim=2, calibration="paper").guarantee.epsilon.__round__(3)
    1.449
    """

    name: ClassVar[str] = "gaussian"
    kind: ClassVar[str] = "grid"
    delta: float
    calibration: Calibration = "analytic"
    sd: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "delta", finite("delta", self.delta, minimum=1e-12, maximum=0.5))
        if not isinstance(self.calibration, str) or self.calibration not in get_args(Calibration):
            raise unknown("calibration", self.calibration, get_args(Calibration))
        if self.calibration == "analytic":
            spare = self.delta - (1.0 + math.exp(self.epsilon)) * SLACK * self.dim
            if spare < 0.9 * self.delta:
                raise InvalidInput(
                    f"delta = {self.delta:g} is too small for {self.dim} coordinates at epsilon = {self.epsilon:g}: "
                    f"the rounding of the noise takes {self.delta - spare:.2g}. Use PrivUnit, which needs no delta."
                )
            sd = 2.0 * self.clip * _CLIP_ROUNDING / gaussian_mu(self.epsilon, spare)
        else:
            if self.epsilon > 1.0:
                raise InvalidInput(
                    f"The classical formula behind calibration={self.calibration!r} proves nothing for epsilon above "
                    f"1, got {self.epsilon:g}. Use calibration='analytic'."
                )
            sensitivity = self.clip if self.calibration == "paper" else 2.0 * self.clip
            sd = sensitivity * math.sqrt(2.0 * math.log(1.25 / self.delta)) / self.epsilon
        object.__setattr__(self, "sd", sd)
        while self.calibration == "analytic" and not self.loss.within(Guarantee(self.epsilon, self.delta)):
            object.__setattr__(self, "sd", self.sd * (1.0 + 1e-9))  # undo rounding in the root finder

    @property
    def guarantee(self) -> Guarantee:
        if self.calibration == "analytic":
            return Guarantee(self.epsilon, self.delta)
        return self.loss.guarantee(self.delta)

    @property
    def loss(self) -> Loss:
        return Loss(mu=2.0 * self.clip * _CLIP_ROUNDING / self.sd, slack=SLACK * self.dim)

    @property
    def words(self) -> int:
        return self.dim

    @property
    def width(self) -> int:
        return self.dim

    @property
    def noise_sd(self) -> float:
        return self.sd

    @property
    def scale(self) -> float:
        return self.sd / kernel.CELLS

    @property
    def spec(self) -> ReportSpec:
        return ReportSpec(kernel.GRID_REPORT, 1, 1, np.uint64(0), self.clip, self.scale)

    def squared_error(self, norm: float) -> float:
        """n (sd^2 + h^2 / 12), for every g."""
        return self.dim * (self.sd**2 + self.scale**2 / 12.0)

    @property
    def worst_squared_error(self) -> float:
        return self.squared_error(self.clip)

    def possible(self, rows: Rows) -> npt.NDArray[np.bool_]:
        reach = math.ceil(self.clip / self.scale + 8.3 * kernel.CELLS) + 1
        return np.asarray(((rows >= -reach) & (rows <= reach)).all(axis=1))

    def evidence(self, rows: Rows, first: Array, second: Array) -> Array:
        score: Array = rows @ (self.clipped(first) - self.clipped(second))
        return score
