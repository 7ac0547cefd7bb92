"""Local differential privacy: mechanisms, their guarantees, the ledger of a customer's budget, and an audit."""

from __future__ import annotations

from typing import Any

from hushprice.errors import InvalidInput, unknown
from hushprice.privacy.audit import Audit, audit
from hushprice.privacy.controls import controls
from hushprice.privacy.directions import L2Ball, PrivUnit
from hushprice.privacy.entropy import Entropy, SystemEntropy, UnsafeSeed
from hushprice.privacy.gaussian import Gaussian
from hushprice.privacy.guarantee import Guarantee, Loss, gaussian_delta
from hushprice.privacy.ledger import Ledger
from hushprice.privacy.mechanism import Mechanism, VectorMechanism
from hushprice.privacy.response import RandomizedResponse
from hushprice.privacy.wire import Report

REGISTRY: dict[str, type[Mechanism]] = {cls.name: cls for cls in (L2Ball, PrivUnit, Gaussian, RandomizedResponse)}


def get(name: str) -> type[Mechanism]:
    """Return the mechanism class registered under a name.

    Parameters
    ----------
    name : str
        A key of ``REGISTRY``.

    Returns
    -------
    type of Mechanism
        The class.

    Raises
    ------
    InvalidInput
        If no mechanism has that name.
    """
    if not isinstance(name, str) or name not in REGISTRY:
        raise unknown("mechanism", name, REGISTRY)
    return REGISTRY[name]


def build(name: str, **options: Any) -> Mechanism:
    """Build a mechanism by name.

    Parameters
    ----------
    name : str
        A key of ``REGISTRY``: "l2-ball", "privunit", "gaussian" or "randomized-response".
    **options
        Arguments of the mechanism's constructor.

    Examples
    --------
    >>> build("l2-ball", epsilon=1.0, clip=1.0, dim=2).guarantee.epsilon
    1.0
    """
    try:
        return get(name)(**options)
    except TypeError as problem:
        raise InvalidInput(f"The mechanism {name} does not take these options: {problem}.") from None


__all__ = [
    "REGISTRY",
    "Audit",
    "Entropy",
    "Gaussian",
    "Guarantee",
    "L2Ball",
    "Ledger",
    "Loss",
    "Mechanism",
    "PrivUnit",
    "RandomizedResponse",
    "Report",
    "SystemEntropy",
    "UnsafeSeed",
    "VectorMechanism",
    "audit",
    "build",
    "controls",
    "gaussian_delta",
    "get",
]
