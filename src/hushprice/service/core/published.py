"""The published params of a product, which depend on the mode, and the phases of earlier versions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from hushprice.policies import Params, Phase

if TYPE_CHECKING:
    from hushprice.service.core.learner import Learner


class PublishedPhase(NamedTuple):
    """From this version on: whether reports are requested, whether prices are experiments, and the stage."""

    version: int
    learn: bool
    explore: bool
    stage: int


class PublishedPhases:
    """The phases that devices were in, each with its first version.

    Examples
    --------
    >>> phases = PublishedPhases()
    >>> phases.note(PublishedPhase(0, True, True, 1))
    >>> phases.note(PublishedPhase(4, True, True, 1))    # no change
    >>> phases.note(PublishedPhase(9, False, False, 1))
    >>> phases.at(8).learn, phases.at(9).learn, len(list(phases))
    (True, False, 2)
    """

    def __init__(self) -> None:
        self._phases: list[PublishedPhase] = []

    def note(self, phase: PublishedPhase) -> None:
        """Append a phase, unless it equals the last one."""
        if not self._phases or self._phases[-1][1:] != phase[1:]:
            self._phases.append(phase)

    def at(self, version: int) -> PublishedPhase:
        """The phase of ``version``."""
        last = self._phases[-1]
        if version >= last.version:
            return last
        return self._phases[bisect_right(self._phases, version, key=lambda phase: phase.version) - 1]

    def __iter__(self) -> Iterator[PublishedPhase]:
        return iter(self._phases)


def published(learner: Learner) -> Params:
    """The params from which customers get prices in the learner's mode.

    Live publishes the policy's params. Shadow publishes the baseline as one price for everyone. Frozen publishes the
    greedy price of the present estimate, unless the policy's own price is no experiment; without an estimate or
    a prior of one's own, the baseline.
    """
    params, baseline = learner.policy_params, learner.definition.baseline
    if learner.mode == "shadow":
        learn = params.learn if learner.policy.private else True
        return replace(params, phase=Phase.FIXED, level=baseline, learn=learn)
    if learner.mode == "frozen":
        if not params.phase.experiments:
            return replace(params, learn=False)
        if not learner.estimated:
            return replace(params, phase=Phase.FIXED, level=baseline, learn=False)
        theta = learner.server.estimate()[0]
        return replace(params, phase=Phase.EXPLOIT, level=0.0, theta=theta, learn=False)
    return params


def instructions(params: Params) -> tuple[Phase, float, bool, int]:
    """All params except the estimate."""
    return params.phase, params.level, params.learn, params.stage
