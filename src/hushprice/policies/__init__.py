"""Policies: algorithms that set prices and learn demand while they sell."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from hushprice.errors import InvalidInput, MissingOption, unknown
from hushprice.policies.base import Device, Policy, Server
from hushprice.policies.baselines import Clairvoyant, FixedPrice, RandomPrice
from hushprice.policies.bounds import BoundPolicy, Plan
from hushprice.policies.episodes import EpisodePolicy
from hushprice.policies.etc import ETC
from hushprice.policies.etc_doubling import ETCDoubling
from hushprice.policies.exchange import Bounds, Outlook, Params, Progress, Quotes, Records
from hushprice.policies.look_ahead import LookAhead
from hushprice.policies.mle_cycle import MLECycle
from hushprice.policies.monitoring import Change, Misfit
from hushprice.policies.monitoring.monitor import Monitor
from hushprice.policies.monitoring.restarts import Restarting, take_restart
from hushprice.policies.phases import Phase
from hushprice.policies.pricer import Offer, Pricer
from hushprice.policies.private import (
    ETCLDP,
    BallPolicy,
    ETCLDPApprox,
    ETCLDPApproxDoubling,
    ETCLDPDoubling,
    ETCLDPMixed,
    ETCLDPMixedDoubling,
    LookAheadLDP,
    LookAheadMixed,
    MixedReports,
    Population,
    PrivatePolicy,
    PrivateReports,
)
from hushprice.policies.semi_myopic import Greedy, SemiMyopic
from hushprice.policies.supcb import SupCB, SupCBAdversarial, SupCBDoubling
from hushprice.policies.ucb import UCB
from hushprice.policies.wtl import UCBWTL, ThompsonWTL

REGISTRY: dict[str, type[Policy]] = {}


def register(cls: type[Policy]) -> type[Policy]:
    """Add a policy class to the registry, for snapshots, the generic checks and (with ``--load``) the command line.

    Parameters
    ----------
    cls : type of Policy
        A class with a unique ``name``.

    Returns
    -------
    type of Policy
        The class itself, so that ``register`` serves as a decorator.

    Raises
    ------
    InvalidInput
        If the name is missing or belongs to another class.
    """
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not name:
        raise InvalidInput(
            f"The policy class {cls.__name__} needs a name to be registered: name: ClassVar[str] = '...'."
        )
    if name in REGISTRY and REGISTRY[name].__qualname__ != cls.__qualname__:
        raise InvalidInput(f"There is a policy called {name!r} already: {REGISTRY[name].__qualname__}.")
    REGISTRY[name] = cls
    return cls


for _policy in (
    LookAhead, ETC, ETCDoubling, MLECycle, SemiMyopic, SupCB, SupCBDoubling, SupCBAdversarial, UCB, ThompsonWTL, UCBWTL,
    LookAheadLDP, LookAheadMixed, ETCLDP, ETCLDPDoubling, ETCLDPApprox, ETCLDPApproxDoubling, ETCLDPMixed,
    ETCLDPMixedDoubling, Restarting, Greedy, Clairvoyant, FixedPrice, RandomPrice,
):  # fmt: skip
    register(_policy)


def get(name: str) -> type[Policy]:
    """The policy class of that name.

    Parameters
    ----------
    name : str
        A name in the registry.

    Returns
    -------
    type of Policy
        The class.

    Examples
    --------
    >>> get("etc").__name__
    'ETC'
    """
    if not isinstance(name, str) or name not in REGISTRY:
        raise unknown("policy", name, REGISTRY)
    return REGISTRY[name]


def needed(cls: type[Policy]) -> set[str]:
    """The options without a default.

    Parameters
    ----------
    cls : type of Policy
        A policy class.

    Returns
    -------
    set of str

    Examples
    --------
    >>> sorted(needed(UCB))
    ['dim', 'family', 'horizon', 'prices']
    """
    return {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}


def build(name: str, **options: Any) -> Policy:
    """A policy by name.

    Parameters
    ----------
    name : str
        A name in the registry.
    **options
        The options of the policy. ``horizon``, ``theta``, ``price`` and ``z_max`` are ignored by policies without them.
        With ``restart="on-change"`` the policy starts again when demand has changed (:class:`Restarting`).

    Raises
    ------
    InvalidInput
        If an option is unknown, missing or out of range.

    Examples
    --------
    >>> build("etc-doubling", family="logistic", dim=2, prices=(0, 3), horizon=100).name
    'etc-doubling'
    """
    cls = get(name)
    accepted = {f.name for f in fields(cls)}
    if take_restart(cls, options):
        return Restarting.around(build(name, **options))
    optional = {"horizon", "theta", "price", "z_max"}
    for option in options:
        if option not in accepted | optional:
            raise InvalidInput(f"The policy {name} has no option {option!r}. It takes {', '.join(sorted(accepted))}.")
    if missing := needed(cls) - set(options):
        raise MissingOption(f"The policy {name} also needs {', '.join(sorted(missing))}.")
    return cls(**{key: value for key, value in options.items() if key in accepted})


__all__ = [
    "ETC",
    "ETCLDP",
    "REGISTRY",
    "UCB",
    "UCBWTL",
    "BallPolicy",
    "BoundPolicy",
    "Bounds",
    "Change",
    "Clairvoyant",
    "Device",
    "ETCDoubling",
    "ETCLDPApprox",
    "ETCLDPApproxDoubling",
    "ETCLDPDoubling",
    "ETCLDPMixed",
    "ETCLDPMixedDoubling",
    "EpisodePolicy",
    "FixedPrice",
    "Greedy",
    "LookAhead",
    "LookAheadLDP",
    "LookAheadMixed",
    "MLECycle",
    "Misfit",
    "MixedReports",
    "Monitor",
    "Offer",
    "Outlook",
    "Params",
    "Phase",
    "Plan",
    "Policy",
    "Population",
    "Pricer",
    "PrivatePolicy",
    "PrivateReports",
    "Progress",
    "Quotes",
    "RandomPrice",
    "Records",
    "Restarting",
    "SemiMyopic",
    "Server",
    "SupCB",
    "SupCBAdversarial",
    "SupCBDoubling",
    "ThompsonWTL",
    "build",
    "get",
    "register",
]
