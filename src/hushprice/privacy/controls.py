"""Negative controls: mechanisms with a known defect, each one that real software has had. The audit must catch all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.device.coin import fair_coin
from hushprice.kernels import report as kernel
from hushprice.privacy.directions import L2Ball
from hushprice.privacy.entropy import Words
from hushprice.privacy.gaussian import Gaussian
from hushprice.privacy.mechanism import Mechanism
from hushprice.privacy.wire import Rows


@dataclass(frozen=True, kw_only=True)
class HalvedNoise(Gaussian):
    """Gaussian noise with half the standard deviation."""

    name: ClassVar[str] = "gaussian, noise halved"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sd", 0.5 * self.sd)


@dataclass(frozen=True, kw_only=True)
class HalfSensitivity(Gaussian):
    """The classical formula with sensitivity C, as in the paper, although two customers can differ by 2 C."""

    name: ClassVar[str] = "gaussian, sensitivity C"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sd", self.clip * math.sqrt(2.0 * math.log(1.25 / self.delta)) / self.epsilon)


@dataclass(frozen=True, kw_only=True)
class NotClipped(Gaussian):
    """Gaussian noise on vectors that are not clipped."""

    name: ClassVar[str] = "gaussian, clip not applied"

    def report_rows(self, g: Array, words: Words) -> Rows:
        rows = np.empty((len(g), self.width), dtype=np.int64)
        kernel.privatize_rows(self.spec._replace(clip=np.inf), g, words, rows)
        return rows

    def possible(self, rows: Rows) -> npt.NDArray[np.bool_]:
        return np.ones(len(rows), dtype=np.bool_)


@dataclass(frozen=True, kw_only=True)
class FloatGaussian(Gaussian):
    """The floating-point sum of g and the noise, with all its bits."""

    name: ClassVar[str] = "gaussian, floating point"

    def report_rows(self, g: Array, words: Words) -> Rows:
        fine = np.empty((len(g), self.width), dtype=np.int64)
        kernel.privatize_rows(self.spec, np.zeros_like(g), words, fine)
        uniform = (words >> np.uint64(12)).astype(np.float64) * 2.0**-52  # position within the grid cell, to all bits
        noise = (fine + uniform - 0.5) * self.scale
        reports: Rows = (self.clipped(g) + noise).view(np.int64)
        return reports

    def decode_rows(self, rows: Rows) -> Array:
        return np.ascontiguousarray(rows).view(np.float64)

    def evidence(self, rows: Rows, first: Array, second: Array) -> Array:
        score: Array = self.decode_rows(rows) @ (self.clipped(first) - self.clipped(second))
        return score

    def possible(self, rows: Rows) -> npt.NDArray[np.bool_]:
        return np.ones(len(rows), dtype=np.bool_)


@dataclass(frozen=True, kw_only=True)
class BareCoordinate(Gaussian):
    """The last coordinate is sent without noise."""

    name: ClassVar[str] = "gaussian, one value without noise"

    def report_rows(self, g: Array, words: Words) -> Rows:
        rows = super().report_rows(g, words)
        rows[:, -1] = np.floor(self.clipped(g)[:, -1] / self.scale + 0.5)
        return rows


@dataclass(frozen=True, kw_only=True)
class TalkingSeed(L2Ball):
    """One bit of the public seed is the sign of the first coordinate."""

    name: ClassVar[str] = "l2-ball, a seed that tells"

    def report_rows(self, g: Array, words: Words) -> Rows:
        leaking = words.copy()
        leaking[:, 0] = (leaking[:, 0] & ~np.uint64(1 << 17)) | ((g[:, 0] > 0).astype(np.uint64) << np.uint64(17))
        return super().report_rows(g, leaking)


@dataclass(frozen=True, kw_only=True)
class BiasedCoin(L2Ball):
    """The coin spends a quarter more epsilon than the mechanism claims."""

    name: ClassVar[str] = "l2-ball, biased coin"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "coin", fair_coin(1.25 * self.epsilon))


def controls(*, epsilon: float, delta: float, clip: float, dim: int) -> list[Mechanism]:
    """Return one instance of each defective mechanism, for the same claimed guarantee.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee that they claim; delta is for the Gaussian ones.
    clip : float
        Bound on the length of the input.
    dim : int
        Length of the input.
    """
    options: dict[str, Any] = {"epsilon": epsilon, "clip": clip, "dim": dim}
    wrong: tuple[type[Gaussian], ...] = (HalvedNoise, HalfSensitivity, NotClipped, FloatGaussian, BareCoordinate)
    return [kind(**options, delta=delta) for kind in wrong] + [BiasedCoin(**options), TalkingSeed(**options)]
