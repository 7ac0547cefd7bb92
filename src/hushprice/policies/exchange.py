"""What the two halves of a policy exchange: params, quotes, propensities and reports."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.errors import unknown
from hushprice.policies.phases import Phase

Variant = Literal["original", "modified"]
Choices = npt.NDArray[np.bool_]
"""Which customers agreed to send raw records."""
FOREVER = 2**62  # rounds in a phase without an end


def as_variant(value: str) -> None:
    """Raise InvalidInput unless ``value`` is one of the two variants."""
    if value not in ("original", "modified"):
        raise unknown("variant", value, ("original", "modified"))


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Confidence bounds: the width of x at stage s is alpha |x|_{V^-1}, with the V of that stage.

    Parameters
    ----------
    theta : ndarray of shape (S, 2 d)
        The estimate of each stage.
    root : ndarray of shape (S, 2 d, 2 d)
        Per stage a root W of the inverse of V: V^-1 = W W'.
    alpha : float
        Factor of the widths.
    arms : int
        K, the number of equispaced prices to choose from (STAGES).
    floor : float
        A width that counts as zero (STAGES).
    first : int
        Number of the first of these stages.
    """

    theta: Array
    root: Array
    alpha: float
    arms: int = 2
    floor: float = 0.0
    first: int = 1


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What a look-ahead device needs beside theta; the formulas are in :mod:`hushprice.kernels.look_ahead`.

    Parameters
    ----------
    covariance : ndarray of shape (2 d, 2 d)
        Covariance of theta, divided by ``dispersion``.
    gains : ndarray of shape (3, d, d)
        What an error of theta costs, averaged over customers.
    seen : ndarray of shape (d,)
        1 for the features that some customer had, else 0.
    dispersion : float
        Variance of an outcome relative to the family's.
    later : float
        How many later customers an outcome informs.
    own : float
        Weight of the customer's own gains in the average.
    """

    covariance: Array
    gains: Array
    seen: Array
    dispersion: float
    later: float
    own: float


@dataclass(frozen=True, kw_only=True)
class Dither:
    """How a private look-ahead device prices and reports; the formulas are in :mod:`hushprice.kernels.dither`.

    Parameters
    ----------
    delta : float
        Prices are the centre plus or minus this.
    pull, target : float
        The centre is the best price, moved this share of the way to the target.
    level, slope : ndarray of shape (d, d)
        Weights of the features in both halves of the score.
    """

    delta: float
    pull: float
    target: float
    level: Array
    slope: Array


@dataclass(frozen=True, kw_only=True)
class Params:
    """What the server publishes: everything a device needs to price, and nothing about any customer.

    Parameters
    ----------
    version : int
        Increases whenever any other field may have changed.
    phase : Phase
        How devices price.
    theta : ndarray of shape (2 d,)
        The estimate.
    level : float
        Size of the deviation (PERTURB), the price (FIXED) or the number of prices (GRID).
    learn : bool
        Whether devices report the outcome.
    stage : int
        The estimate that the outcome is for, in policies with several.
    bounds : Bounds, optional
        Set in the phases that price from confidence bounds.
    outlook : Outlook, optional
        Set in the phase AHEAD.
    dither : Dither, optional
        Set in the phase DITHER.
    """

    version: int
    phase: Phase
    theta: Array
    level: float = 0.0
    learn: bool = False
    stage: int = 1
    bounds: Bounds | None = None
    outlook: Outlook | None = None
    dither: Dither | None = None

    @property
    def small(self) -> Params:
        """These params to store: without the matrices, which the server gives again."""
        if self.bounds is None and self.outlook is None:
            return self
        return replace(self, bounds=None, outlook=None)

    @property
    def experiment(self) -> bool:
        """Whether prices are chosen in order to learn, in STAGES those of some customers only."""
        return self.phase.experiments and (self.phase is not Phase.PERTURB or self.level > 0.0)

    @property
    def uniform(self) -> bool:
        """Whether prices are uniform over the whole range of experiments."""
        return self.phase is Phase.EXPLORE

    @property
    def personal(self) -> bool:
        """Whether prices depend on context and estimate: in every phase but FIXED."""
        return self.phase is not Phase.FIXED


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a server, for people to read.

    Parameters
    ----------
    done : int
        How many are done.
    total : int, optional
        How many there will be; None without an end.
    counted : str
        What ``done`` and ``total`` count, as in ``"experiments in round 3"``.
    part : int
        The episode, from 1.

    Examples
    --------
    >>> Progress.of_episode(3, offset=5, explore=4, length=8)
    Progress(done=1, total=4, counted='customers at the learned prices in round 3', part=3)
    """

    done: int
    total: int | None = None
    counted: str
    part: int = 1

    @classmethod
    def of_episode(cls, part: int, *, offset: int, explore: int, length: int) -> Progress:
        """The progress of an episode that begins with experiments, ``offset`` rounds after its start.

        Parameters
        ----------
        part : int
            The number of the episode.
        offset : int
            Rounds of the episode that are over.
        explore, length : int
            Rounds of the episode that explore, and all of its rounds.
        """
        exploring = offset < explore
        total = explore if exploring else length - explore
        counted = "experiments" if exploring else "customers at the learned prices"
        return cls(
            done=offset if exploring else offset - explore,
            total=total if total < FOREVER // 2 else None,
            counted=counted + (f" in round {part}" if length < FOREVER else ""),
            part=part,
        )


Stages = int | npt.NDArray[np.int64]


@dataclass(frozen=True)
class Quotes:
    """Prices for a block of customers.

    Parameters
    ----------
    price : ndarray of shape (n,)
        The prices.
    stage : int or ndarray of shape (n,)
        The estimate that the record is for, from 1; 0 if the outcome is not reported. One value for all, or one per
        customer.
    experiment : bool or ndarray of shape (n,)
        Whether the price was chosen in order to learn. One value for all, or one per customer.
    """

    price: Array
    stage: Stages
    experiment: bool | npt.NDArray[np.bool_]

    @property
    def experiments(self) -> int:
        """Number of prices that were chosen in order to learn."""
        if isinstance(self.experiment, bool):
            return len(self.price) if self.experiment else 0
        return int(np.count_nonzero(self.experiment))


@dataclass(frozen=True)
class Propensity:
    """Propensity of each quoted price, given the customer and everything before them.

    Parameters
    ----------
    value : ndarray of shape (n,)
        A probability where ``discrete`` is true, else a density; NaN if unknown.
    discrete : ndarray of shape (n,)
        Whether the price was one of several.
    """

    value: Array
    discrete: npt.NDArray[np.bool_]

    @classmethod
    def certain(cls, n: int) -> Propensity:
        """Propensities of n prices that involved no randomness."""
        return cls(np.ones(n), np.ones(n, dtype=np.bool_))

    @classmethod
    def unknown(cls, n: int) -> Propensity:
        """Propensities of n prices of unknown distribution."""
        return cls(np.full(n, np.nan), np.zeros(n, dtype=np.bool_))


class Reports:
    """Base class of what devices send. Each server takes one kind."""


@dataclass(frozen=True)
class Records(Reports):
    """Raw records (z, p, y) of customers without privacy.

    Parameters
    ----------
    z : ndarray of shape (n, d)
        Contexts.
    price, y : ndarray of shape (n,)
        Prices and outcomes.
    stage : int or ndarray of shape (n,)
        The estimate that a record is for. One value for all, or one per record.
    """

    z: Array
    price: Array
    y: Array
    stage: Stages = 1
