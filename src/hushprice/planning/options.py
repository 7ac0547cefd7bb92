"""The options that a plan compares, as words that have the same meaning on the command line.

    today's prices              simulation.Today
    the model's prices          clairvoyant: best prices by the fitted theta, without learning; truths vary around it
    learning                    without the log, as when they go live without it
    learning, from the log      with the fitted theta and its covariance as a prior
    etc-ldp, epsilon            the same under local differential privacy, without the log (nearly: see below)
    etc-ldp from the log        centred at the fitted theta, in a ball that contains the truth with about 99%
    etc-ldp-mixed, opt-out      a share of customers refuse to send raw records and report privately

A private policy needs parameters that a seller can derive from the log: z_max is the 99% quantile of |z| (larger
contexts are clipped), and for counts and amounts demand_max is the largest predicted demand of any customer. Theta is a
ball around 0 with the usual radius, or with twice |theta| if that is larger; only this much comes from the log. A
private policy cannot satisfy a largest step between quotes, so there are no private options if the rules have one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hushprice.errors import InvalidInput, finite
from hushprice.markets.twin.twin import Twin
from hushprice.planning.option_results import Kind
from hushprice.policies import get
from hushprice.simulation import Simulated, Today
from hushprice.studies.spec_strings import check_words, policy_from, split

TODAY, MODEL = "today's prices", "the model's prices"
LEARNING = ("look-ahead", "etc", "etc-doubling", "mle-cycle", "semi-myopic")
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
OPT_OUT = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Option:
    """One option of a plan.

    Attributes
    ----------
    label, kind, word : str
        Name in tables, kind of option, and the policy as a word.
    policy, market : Policy, Twin
        The policy, and the market with its share of customers who send raw records.
    epsilon, opt_out : float or None
        Privacy level, and share of customers who opt out.
    from_log : bool
        Whether a policy starts from the fitted model.
    """

    label: str
    kind: Kind
    word: str
    policy: Simulated
    market: Twin
    epsilon: float | None = None
    opt_out: float | None = None
    from_log: bool = False

    @property
    def partner(self) -> str | None:
        """The label of the same policy without privacy."""
        if self.kind not in ("private", "opt-out"):
            return None
        return "etc-doubling" if split(self.word)[0].endswith("-doubling") else "etc"


def options(
    twin: Twin,
    horizon: int,
    *,
    policies: Iterable[str] = LEARNING,
    epsilons: Sequence[float] = EPSILONS,
    opt_out: Sequence[float] = OPT_OUT,
    epsilon: float = 2.0,
) -> list[Option]:
    """The options that :func:`hushprice.planning.plan` compares.

    Parameters
    ----------
    twin : Twin
        The market.
    horizon : int
        Number of customers.
    policies : iterable of str
        Policies as on the command line, such as "etc:ridge=1".
    epsilons : sequence of float
        Privacy levels of etc-ldp.
    opt_out : sequence of float
        Shares of customers who refuse to send raw records, at privacy level ``epsilon``.
    epsilon : float
        Privacy level of the customers who opt out.

    Returns
    -------
    list of Option
        The options; the first is today's prices.

    Raises
    ------
    InvalidInput
        If an option is invalid or named twice.
    """
    words = list(policies)
    check_words(words)
    epsilons = [finite("epsilon", e, minimum=0.0, strict=True) for e in epsilons]
    shares = [finite("opt_out", share, minimum=0.0, maximum=1.0) for share in opt_out]
    for name, values in (("epsilon", epsilons), ("opt-out share", shares)):
        if len(set(values)) < len(values):
            raise InvalidInput(f"An {name} is named twice.")
    if "clairvoyant" in (split(word)[0] for word in words):
        raise InvalidInput("The plan has the model's prices already: leave out clairvoyant.")
    requested = [one for word in words for one in _requested(twin, horizon, word)]
    if not stepwise(twin):
        requested += [one for e in epsilons for one in _private(twin, horizon, e)]
        requested += [_mixed(twin, horizon, share, epsilon) for share in shares]
    partners = dict.fromkeys(one.partner for one in requested if one.partner is not None and one.partner not in words)
    return [
        Option(label=TODAY, kind="today", word="today", policy=Today(), market=twin),
        _option(twin, horizon, MODEL, "model", "clairvoyant"),
        *(_option(twin, horizon, word, "learning", word) for word in partners),
        *requested,
    ]


def stepwise(twin: Twin) -> bool:
    """Whether the rules have a largest step, which no private policy can satisfy."""
    return twin.rules is not None and twin.rules.largest_step is not None


def _kind(word: str) -> Kind:
    return "private" if get(split(word)[0]).private else "learning"


def _option(twin: Twin, horizon: int, label: str, kind: Kind, word: str, **facts: float | bool) -> Option:
    policy = policy_from(word, twin, horizon)
    return Option(label=label, kind=kind, word=word, policy=policy, market=twin, **facts)  # type: ignore[arg-type]


def _requested(twin: Twin, horizon: int, word: str) -> list[Option]:
    """A policy as it is named, and the same from the log if it takes a prior."""
    name, given = split(word)
    kind = _kind(word)
    asked = _option(twin, horizon, word, kind, word, from_log=kind == "learning" and "prior" in given)
    if "prior" in given or not get(name).takes_prior or confidence_radius(twin) is None:
        return [asked]
    informed = f"{word}{',' if given else ':'}prior=log"
    return [asked, _option(twin, horizon, f"{word}, from the log", kind, informed, from_log=True)]


def _private(twin: Twin, horizon: int, epsilon: float) -> list[Option]:
    """The private options at one epsilon: from no data and, if a confidence radius exists, from the log."""
    name, usual = f"etc-ldp:epsilon={epsilon:g},noise=privunit", _settings(twin)
    scratch = _option(
        twin, horizon, f"etc-ldp, epsilon {epsilon:g}", "private", f"{name},{usual}{_wide(twin)}", epsilon=epsilon
    )
    radius = confidence_radius(twin)
    if radius is None:
        return [scratch]
    word = f"{name},{usual},centre=truth,radius={radius:.4g}"
    label = f"etc-ldp from the log, epsilon {epsilon:g}"
    return [scratch, _option(twin, horizon, label, "private", word, epsilon=epsilon, from_log=True)]


def _mixed(twin: Twin, horizon: int, share: float, epsilon: float) -> Option:
    world = replace(twin, public=1.0 - share)
    word = f"etc-ldp-mixed:epsilon={epsilon:g},noise=privunit,{_settings(twin)}{_wide(twin)}"
    return _option(
        world, horizon, f"etc-ldp-mixed, {share:.0%} opt out", "opt-out", word, epsilon=epsilon, opt_out=share
    )


def _settings(twin: Twin) -> str:
    word = f"z_max={usual_norm(twin):.3g}"
    return word if twin.family.outcomes == "binary" else f"{word},demand_max={largest_demand(twin):.3g}"


def _wide(twin: Twin) -> str:
    radius = wide_radius(twin)
    return "" if radius is None else f",radius={radius:.3g}"


def wide_radius(twin: Twin) -> float | None:
    """A radius for Theta around 0, if the usual one is less than twice the norm of the fitted theta."""
    size, usual = 2.0 * float(np.linalg.norm(twin.theta)), 2.0 * math.sqrt(2.0 * twin.dim)
    return size if size > usual else None


def usual_norm(twin: Twin) -> float:
    """The 99% quantile of |z| over the twin's customers."""
    return float(np.quantile(np.linalg.norm(twin.contexts.rows, axis=1), 0.99))


def largest_demand(twin: Twin) -> float:
    """The largest demand predicted for any of the twin's customers at any price, at least 1."""
    a, b = twin.contexts.rows @ twin.alpha, twin.contexts.rows @ twin.beta
    return max(1.0, *(float(twin.family.mean(a - b * price).max()) for price in twin.prices))


def confidence_radius(twin: Twin) -> float | None:
    """A bound on the distance of the truth from the fitted theta, with about 99%; None without a covariance.

    |theta_true - theta|^2 has mean tr S and variance 2 tr S^2. The bound is the mean plus four standard deviations,
    which has probability 99% if S has rank one, and more otherwise.
    """
    S = twin.covariance
    if S is None or not S.any():
        return None
    return math.sqrt(float(np.trace(S)) + 4.0 * math.sqrt(2.0 * float(np.sum(S * S))))
