"""What a learner keeps of the versions it published and of the offers that wait for their outcomes."""

from __future__ import annotations

from typing import NamedTuple

from hushprice.arrays import Array


class PublishedPhase(NamedTuple):
    """From this version on: whether reports are asked for, whether of experiments, and for which stage."""

    version: int
    learn: bool
    explore: bool
    stage: int


class Open(NamedTuple):
    """An offer that waits for its outcome."""

    seq: int  # of the event
    z: Array
    price: float
    stage: int  # the estimate the outcome is for; 0 if it is not learned from
    cost: float
    at: float
