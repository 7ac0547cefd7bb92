"""The configuration that all private policies share: epsilon, the mechanism and the learner."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from hushprice.demand import Rules
from hushprice.errors import InvalidInput, positive_int
from hushprice.policies.base import Policy, Server
from hushprice.policies.loop import Loop
from hushprice.privacy import Entropy, Guarantee, Ledger, VectorMechanism
from hushprice.privacy.guarantee import as_epsilon
from hushprice.privacy.mechanism import LARGEST_PRIVATE_DIM

if TYPE_CHECKING:
    from hushprice.policies.private.device import PrivateDevice
    from hushprice.policies.private.learner import PrivateLearner


@dataclass(frozen=True, kw_only=True)
class PrivatePolicy(Policy):
    """Base class of the private policies: the guarantee, the mechanism and the learner.

    A subclass implements ``clip`` and ``_mechanism`` and sets ``learner``.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of one customer's report.
    **options
        Those of :class:`Policy`.

    Attributes
    ----------
    mechanism : VectorMechanism
        How the vector of a report is randomised.
    learner : PrivateLearner
        How reports become an estimate; the same for all policies of a class.
    """

    private: ClassVar[bool] = True
    learner: ClassVar[PrivateLearner]  # how reports become an estimate

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_int("dim", self.dim, maximum=LARGEST_PRIVATE_DIM // 2)
        self._set("epsilon", as_epsilon(self.epsilon))

    def _check_rules(self, rules: Rules) -> None:
        super()._check_rules(rules)
        if rules.largest_step is not None:
            raise InvalidInput(
                "A private policy cannot keep to a largest step: the last price, which tells of the customer it was "
                "quoted to, would have to leave the device. Give the segments narrower ranges instead."
            )

    def as_private(self) -> PrivatePolicy:
        return self

    @property
    @abstractmethod
    def clip(self) -> float:
        """Bound on the length of the vector that a report is about. It cannot be passed in."""

    @cached_property
    def mechanism(self) -> VectorMechanism:
        """How the clipped vector is randomised."""
        return self._mechanism()

    @abstractmethod
    def _mechanism(self) -> VectorMechanism:
        """The mechanism, from the guarantee, ``clip`` and 2 d."""

    def server(self) -> Server[Any]:
        return self.learner.server(self)

    def device(self, entropy: Entropy | None = None, *, ledger: Ledger | None = None) -> PrivateDevice:
        """Return the device half. With a ``ledger``, it stops reporting when the customer's budget is spent."""
        return self.learner.device(self, entropy, ledger=ledger)

    def loop(self, entropy: Entropy | None = None) -> Loop:
        return self.learner.loop(self.device(entropy), self.server())

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one report."""
        return self.mechanism.guarantee
