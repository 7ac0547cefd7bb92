"""Private look-ahead where some customers agree to send raw records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hushprice.policies.phases import Phase
from hushprice.policies.private.dithered import MixedDitheredDevice
from hushprice.policies.private.learner import PrivateLearner
from hushprice.policies.private.look_ahead_ldp import LookAheadLDP
from hushprice.policies.private.server import MixedDitheredServer

MIXED_DITHERED = PrivateLearner(
    server=MixedDitheredServer, device=MixedDitheredDevice, phases=(Phase.DITHER,), clip=1.0
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LookAheadMixed(LookAheadLDP):
    """Private look-ahead where some customers are public. Their share need not be known.

    Parameters
    ----------
    **options
        Those of :class:`LookAheadLDP`.
    """

    name: ClassVar[str] = "look-ahead-mixed"
    use: ClassVar[str] = "As look-ahead-ldp, where some customers agree to send their data."
    raw_by_choice: ClassVar[bool] = True
    not_served: ClassVar[str] = "it would keep the raw records of those who agree. Take etc-ldp-doubling."
    learner: ClassVar[PrivateLearner] = MIXED_DITHERED
