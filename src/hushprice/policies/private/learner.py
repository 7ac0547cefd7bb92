"""The description of a private learner: its server, device and loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hushprice.policies.base import Server
from hushprice.policies.loop import Loop
from hushprice.policies.phases import Phase
from hushprice.policies.private.device import PrivateDevice, ScoreDevice


@dataclass(frozen=True, kw_only=True)
class PrivateLearner:
    """How a private policy turns reports into an estimate.

    Parameters
    ----------
    server : callable
        Makes the server half from the policy: a class of ``policies/private/server/``, which sees only reports.
    device : type of PrivateDevice
        The device half. The default reports the score at the published theta, clipped and randomised.
        ``hushprice.device`` implements only this default; a policy with another device states so in ``not_served``.
    loop : type of Loop
        Both halves over blocks of simulated customers. The default works for every learner; one with a compiled loop
        is faster.
    phases : tuple of Phase
        The phases that the server publishes. A device refuses all others.
    clip : float or None
        Bound on the length of the vector that a report is about. None means the bound C_g of the score.

    Examples
    --------
    >>> from hushprice.policies import ETCLDP
    >>> ETCLDP.learner.server.__name__
    'SGDServer'
    """

    server: Callable[[Any], Server[Any]]
    device: type[PrivateDevice] = ScoreDevice
    loop: type[Loop] = Loop
    phases: tuple[Phase, ...] = (Phase.EXPLORE, Phase.EXPLOIT)
    clip: float | None = None
