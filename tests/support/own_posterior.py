"""A registered policy whose server has a posterior of its own and no running estimator, as a user would write it.

theta has independent normal coordinates. A record (x, y) with x = (z, -p z) and eta = x.theta adds
scale^-2 psi''(eta) x^2 to their precisions; then theta moves by scale^-2 (y - psi'(eta)) x / precision. One pass, and
no record is stored.
Every fifth customer, and the first twenty, get a uniform price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import hushprice as hp
from hushprice.arrays import Array, array
from hushprice.policies import Params, Phase, Policy, Records, Server
from hushprice.policies.snapshot import whole


class DiagonalServer(Server[Records]):
    """Keeps a mean and a precision for each coordinate."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.t, self.records = 0, 0
        self.theta, self.precision = np.zeros(2 * policy.dim), np.full(2 * policy.dim, policy.ridge)

    @property
    def params(self) -> Params:
        phase = Phase.EXPLORE if self.t < 20 or self.t % 5 == 0 else Phase.EXPLOIT
        return Params(version=self.t + self.records, phase=phase, theta=self.theta.copy(), learn=True)

    @property
    def span(self) -> int:
        return 1

    def advance(self, n: int) -> None:
        self.t += n

    def absorb(self, reports: Records) -> None:
        family = self.policy.family
        for z, price, y in zip(reports.z, reports.price, reports.y, strict=True):
            x = np.concatenate([z, -price * z])
            eta = float(x @ self.theta)
            self.precision += family.curvature(eta) * x * x / family.scale**2
            self.theta += (y - family.mean(eta)) * x / family.scale**2 / self.precision
            self.records += 1

    def estimate(self) -> tuple[Array, Array | None]:
        return self.theta.copy(), np.diag(1.0 / self.precision)

    def state(self) -> dict[str, Any]:
        return {"t": self.t, "records": self.records, "theta": self.theta, "precision": self.precision}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.t, self.records = whole(state["t"]), whole(state["records"])
        self.theta = array("theta", state["theta"], shape=self.theta.shape).copy()
        self.precision = array("precision", state["precision"], shape=self.theta.shape).copy()


@hp.policies.register
@dataclass(frozen=True, kw_only=True)
class Diagonal(Policy):
    """Learns by one pass over the records, with a diagonal posterior."""

    name: ClassVar[str] = "diagonal"

    def server(self) -> Server[Any]:
        return DiagonalServer(self)
