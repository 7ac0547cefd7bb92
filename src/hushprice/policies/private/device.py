"""The customer's side: the score is clipped and randomised here, and nothing else is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hushprice.errors import Array
from hushprice.kernels import private as kernel
from hushprice.policies.base import Choices, Device, Params, Records, Reports, Stages
from hushprice.policies.private.config import PrivatePolicy
from hushprice.policies.private.reports import MixedReports, PrivateReports
from hushprice.privacy import Entropy
from hushprice.privacy.entropy import as_entropy

if TYPE_CHECKING:
    from hushprice.privacy import Ledger


class PrivateDevice(Device):
    """Prices from public params; reports the score at the published theta, clipped and randomised.

    With a ``ledger`` each report is charged to it before it is made, and refused when its cap is reached.
    """

    policy: PrivatePolicy

    def __init__(self, policy: PrivatePolicy, entropy: Entropy | None = None, *, ledger: Ledger | None = None) -> None:
        super().__init__(policy)
        self.entropy, self.ledger = as_entropy(entropy), ledger

    def report(
        self, params: Params, z: Array, price: Array, y: Array, stage: Stages, *, public: Choices | None = None
    ) -> Reports:
        return self.privatized(params, z, price, y, stage)

    def privatized(self, params: Params, z: Array, price: Array, y: Array, stage: Stages) -> PrivateReports:
        """Randomised reports of these customers."""
        policy, mechanism, n = self.policy, self.policy.mechanism, len(z)
        if self.ledger is not None:
            for _ in range(n):
                self.ledger.spend(mechanism)
        words = self.entropy.words(n * mechanism.words).reshape(n, mechanism.words)
        rows = np.empty((n, mechanism.width), dtype=np.int64)
        kernel.report_rows(
            policy.family.code, params.theta, z, price, y, *policy.price_scale, *mechanism.spec, words, rows
        )
        return PrivateReports(rows, int(np.max(stage)))


class MixedDevice(PrivateDevice):
    """Sends a raw record where the customer chose so, a randomised report otherwise."""

    def report(
        self, params: Params, z: Array, price: Array, y: Array, stage: Stages, *, public: Choices | None = None
    ) -> MixedReports:
        chosen = np.zeros(len(z), dtype=np.bool_) if public is None else public
        rest = ~chosen
        return MixedReports(
            self.privatized(params, z[rest], price[rest], y[rest], stage),
            Records(z[chosen], price[chosen], y[chosen], int(np.max(stage))),
        )
