"""Baselines that learn nothing, for comparison.

Clairvoyant:  p_t = p*(theta_true, z_t)      regret 0
FixedPrice:   p_t = p                        what one price for everyone costs
RandomPrice:  p_t ~ Uniform[l, u]            what experimenting forever costs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hushprice.arrays import Array, array
from hushprice.errors import InvalidInput, finite
from hushprice.policies.base import Policy, Server
from hushprice.policies.exchange import FOREVER, Params, Records
from hushprice.policies.phases import Phase


@dataclass(frozen=True, kw_only=True, eq=False)
class Clairvoyant(Policy):
    """Knows the true theta and quotes the best price. No policy earns more.

    Where demand drifts, it is given theta of the start, and quotes the best prices of then.

    Parameters
    ----------
    theta : array_like of shape (2 d,)
        The true (alpha, beta).
    **options
        Those of :class:`Policy`.
    """

    name: ClassVar[str] = "clairvoyant"
    use: ClassVar[str] = (
        "A yardstick: demand is known, and nobody earns more, unless demand drifts: it knows that of the start."
    )
    takes_prior: ClassVar[bool] = False
    theta: Array

    def __post_init__(self) -> None:
        super().__post_init__()
        theta = array("theta", self.theta, shape=(2 * self.dim,)).copy()
        theta.flags.writeable = False
        self._set("theta", theta)

    def server(self) -> ConstantServer:
        return ConstantServer(Params(version=1, phase=Phase.EXPLOIT, theta=self.theta))


@dataclass(frozen=True, kw_only=True)
class FixedPrice(Policy):
    """The same price for everyone.

    On the command line it is the best such price, as if known in advance.

    Parameters
    ----------
    price : float
        The price, within ``prices``.
    **options
        Those of :class:`Policy`.
    """

    name: ClassVar[str] = "fixed-price"
    use: ClassVar[str] = "A yardstick: what one price for everyone earns, at best."
    takes_prior: ClassVar[bool] = False
    price: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("price", finite("price", self.price))
        if not self.prices[0] <= self.price <= self.prices[1]:
            raise InvalidInput(f"price must lie in the range {self.prices}, got {self.price:g}.")

    def server(self) -> ConstantServer:
        zero = np.zeros(2 * self.dim)
        return ConstantServer(Params(version=1, phase=Phase.FIXED, theta=zero, level=self.price))


@dataclass(frozen=True, kw_only=True)
class RandomPrice(Policy):
    """A price experiment with every customer. It takes the options of :class:`Policy`."""

    name: ClassVar[str] = "random-price"
    use: ClassVar[str] = "To collect a clean log: every price is an experiment."
    takes_prior: ClassVar[bool] = False

    def server(self) -> ConstantServer:
        return ConstantServer(Params(version=1, phase=Phase.EXPLORE, theta=np.zeros(2 * self.dim)))


class ConstantServer(Server[Records]):
    """Publishes the same params forever."""

    def __init__(self, params: Params) -> None:
        self._params = params

    @property
    def params(self) -> Params:
        return self._params

    @property
    def span(self) -> int:
        return FOREVER

    def advance(self, n: int) -> None:
        pass

    def absorb(self, reports: Records) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        pass
