"""The monitor of a policy that does not watch demand itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hushprice.policies.base import Policy, Server
from hushprice.policies.exchange import Records
from hushprice.policies.look_ahead import AheadServer, LookAhead, too_offset
from hushprice.policies.monitoring.findings import Change, Misfit

LARGEST_MONITORED = 200  # features
LARGEST_WATCHED = 1e9  # size of a feature: customers beyond are not looked at
PENDING = 256  # outcomes that wait until they are looked at together


class Monitor:
    """Learns demand from every outcome, with several memories, and says what it finds. It sets no price.

    Parameters
    ----------
    policy : Policy
        The policy that sets the prices.

    Examples
    --------
    >>> import numpy as np
    >>> from hushprice.policies import ETC
    >>> monitor = Monitor(ETC(family="logistic", dim=1, prices=(0, 3), horizon=100))
    >>> monitor.absorb(Records(np.ones((2, 1)), np.array([1.0, 2.0]), np.array([1.0, 0.0])))
    >>> monitor.outcomes, monitor.change, monitor.misfits
    (2, None, ())
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = LookAhead(
            family=policy.family, dim=policy.dim, prices=policy.prices, cost=policy.cost, prior=policy.prior
        )
        self._server = self._policy.server()
        self._pending = 0

    @classmethod
    def suits(cls, policy: Policy) -> bool:
        """Whether a policy can be watched from outside.

        It is not private, its contexts are not too long, and its prices not too far from 0 for so narrow a range.

        Parameters
        ----------
        policy : Policy
            The policy.
        """
        return not policy.private and policy.dim <= LARGEST_MONITORED and not too_offset(policy.prices)

    @classmethod
    def beside(cls, policy: Policy, server: Server[Any]) -> Monitor | None:
        """A monitor for a policy whose server does not watch demand itself; None if there is none to have.

        Parameters
        ----------
        policy : Policy
            The policy.
        server : Server
            Its server.
        """
        return cls(policy) if cls.suits(policy) and not server.watches else None

    def absorb(self, records: Records) -> None:
        """Look at outcomes.

        Parameters
        ----------
        records : Records
            The outcomes, with their contexts and prices.
        """
        usual = np.abs(records.z).max(axis=1) < LARGEST_WATCHED
        if not usual.all():
            records = Records(records.z[usual], records.price[usual], records.y[usual])
        self._server.absorb(records)
        self._pending += len(records.y)
        if self._pending >= PENDING:
            self.catch_up()

    def catch_up(self) -> AheadServer:
        """Look at all outcomes now. What is found does not depend on when this is called."""
        if self._pending:
            self._server.catch_up()
            self._pending = 0
        return self._server

    @property
    def outcomes(self) -> int:
        """Number of outcomes."""
        return self.catch_up().outcomes

    @property
    def change(self) -> Change | None:
        """The last change of demand that was found."""
        return self.catch_up().change

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """Where demand does not follow the model."""
        return self.catch_up().misfits

    def forget(self, half_life: float) -> None:
        """Forget what is old, as :meth:`hushprice.policies.Server.forget`.

        Parameters
        ----------
        half_life : float
            Age, in outcomes, at which an outcome counts half.
        """
        self.catch_up().forget(half_life)

    def state(self) -> dict[str, Any]:
        """The whole state as plain data."""
        return self.catch_up().state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the state by one that :meth:`state` returned.

        Parameters
        ----------
        state : mapping
            The state.
        """
        self._server.restore(state)
        self._pending = 0
