"""The summary of a product for the dashboard: a deterministic function of the learner.

Points of the history are cumulative counts and sums, so that the page can take differences over any period.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushprice.policies import Phase
from hushprice.service.core.statistics import COUNTS, SUMS, Point
from hushprice.service.dashboard.bands import QUANTILE, Facts, spread

if TYPE_CHECKING:
    from hushprice.service.core.learner import Learner

MOST_NUMBERS = 6_000  # coefficients sent in the history

MODE_TEXTS = {
    "live": "Live: customers get the prices that the policy chooses, and it learns from what they do.",
    "shadow": "Shadow: customers get the baseline price. The policy watches and learns, but sets no price.",
    "frozen": "Frozen: prices stay as they are now, and nothing more is learned.",
}
SEEN = "The server sees each customer's features, price and outcome, and keeps them in its log."
UNSEEN = (
    "The server sees no features, no price and no sale of any customer. So it cannot say what was earned; shown is "
    "what its model says."
)


def summary(learner: Learner) -> dict[str, Any]:
    """Summarise a product for the dashboard.

    Parameters
    ----------
    learner : Learner
        The product's learner.

    Returns
    -------
    dict
        Plain data.
    """
    definition, policy, statistics = learner.definition, learner.policy, learner.statistics
    facts = Facts.of(learner)
    phase = learner.params.phase
    title, words = phase.title, phase.sentence
    if learner.mode == "shadow":
        title, words = "Watching", "Everyone gets the baseline price, or the shop's own; the policy learns from it."
    return {
        "product": definition.name,
        "kind": "private" if definition.private else "plain",
        "policy": policy.name,
        "family": policy.family.name,
        "currency": definition.currency,
        "version": learner.version,
        "seq": learner.seq,
        "at": learner.at,
        "mode": learner.mode,
        "mode_words": MODE_TEXTS[learner.mode],
        "phase": {
            "name": phase.name.lower(),
            "title": title,
            "words": words,
            "progress": None if learner.mode != "live" else progress(learner),
        },
        "guarantee": guarantee(learner),
        "dim": definition.dim,
        "features": [feature.config() for feature in definition.features],
        "prices": list(policy.prices),
        "allowed": list(learner.limits.prices),
        "ladder": list(learner.limits.rules.ladder),
        "cost": policy.cost,
        "baseline": facts.baseline,
        "baseline_stated": definition.baseline,
        "guardrails": learner.guardrails.config(),
        "outcomes": {"wait": definition.wait, "then": definition.then},
        "counts": statistics.counts,
        "sums": {name: getattr(statistics, name) for name in SUMS},
        "open_offers": len(learner.open_offers),
        "known": facts.estimated,
        "learned_now": learner.learned,
        "only_experiments": learner.server.only_experiments,
        "minutes": [[60 * minute, n] for minute, n in sorted(statistics.minutes.items())],
        "history": history(statistics.points, 2 * definition.dim, private=definition.private),
        "earned": None if definition.private else earned(learner, facts),
        "change": demand_change(learner),
        "misfits": misfits(learner),
    }


def guarantee(learner: Learner) -> dict[str, Any]:
    """The privacy guarantee in words that need no theory."""
    policy = learner.policy.as_private()
    if policy is None:
        return {"epsilon": None, "delta": None, "odds": None, "title": "No privacy guarantee", "words": SEEN}
    promise = policy.guarantee
    odds = math.exp(promise.epsilon)
    chance = "" if promise.delta == 0.0 else f" (but for a chance of {promise.delta:.2g})"
    return {
        "epsilon": promise.epsilon,
        "delta": promise.delta,
        "odds": odds,
        "title": f"\u03b5 = {promise.epsilon:.3g} for each report",
        "words": "Prices are worked out on the customer's own device. All it sends is one scrambled report: whatever "
        f"it says, it is at most {odds:.3g} times as likely from one customer as from any other{chance}.",
        "unseen": UNSEEN,
    }


def progress(learner: Learner) -> dict[str, Any] | None:
    """The progress of the phase: done, of (None if it has no end), and what is counted; None if nothing is."""
    state = learner.server.progress()
    return None if state is None else {"done": state.done, "of": state.total, "words": state.counted}


def history(points: list[Point], width: int, *, private: bool) -> dict[str, Any]:
    """The history by columns: times, phases, cumulative counts and sums, and the estimates of some points."""
    every = max(1, -(-len(points) * width // MOST_NUMBERS))
    with_theta = [k for k, point in enumerate(points) if point.theta and (len(points) - 1 - k) % every == 0]
    counts: tuple[str, ...] = ("customers", "experiments", "learned")
    counts += () if private else ("far", "outcomes")
    columns: dict[str, Any] = {
        "at": [round(point.at, 1) for point in points],
        "phase": [Phase(point.phase).name.lower() for point in points],
        **{name: [point.counts[COUNTS.index(name)] for point in points] for name in counts},
    }
    if not private:
        for name in SUMS:
            columns[name] = [round(point.sums[SUMS.index(name)], 4) for point in points]
    columns["theta_at"] = with_theta
    columns["theta"] = [[float(f"{value:.5g}") for value in points[k].theta] for k in with_theta]
    return columns


def demand_change(learner: Learner) -> dict[str, Any] | None:
    """The last change of demand that was found, with its size in prices; None without one."""
    change = learner.change
    if change is None:
        return None
    z = np.array([closed.z for closed in learner.statistics.recent]).reshape(-1, learner.definition.dim)
    policy, d = learner.policy, learner.definition.dim
    before, now = (
        float(np.mean(policy.family.optimal_price(z @ theta[:d], z @ theta[d:], policy.prices, cost=policy.cost)))
        if len(z)
        else math.nan
        for theta in (change.before, change.after)
    )
    words = str(change)
    if len(z):
        words += f" The best price for the last customers went from {before:.2f} to {now:.2f} on average."
    return change.config() | {"price_before": before, "price_now": now, "words": words}


def misfits(learner: Learner) -> list[dict[str, Any]]:
    """Where demand does not follow the model."""
    names = [feature.name for feature in learner.definition.features]
    return [found.config() | {"words": found.text(names)} for found in learner.misfits]


def earned(learner: Learner, facts: Facts) -> dict[str, Any] | None:
    """What the last customers earned, and what the model expects of the same customers at the baseline.

    Both are means per customer, net of cost, including experiments. The interval of the first uses the standard error
    of a mean, that of the second the error of the estimate, and that of their difference both, as if independent. They
    are not quite, since the estimate was learned from these customers among others; so the intervals are rough, and the
    text says so.
    """
    recent, policy, baseline = list(learner.statistics.recent), learner.policy, facts.baseline
    if len(recent) < 2:
        return None
    z = np.array([closed.z for closed in recent])
    price, y, cost = np.array([closed[1:] for closed in recent]).T
    gains = (price - cost) * y
    mean, error = float(gains.mean()), float(gains.std(ddof=1) / math.sqrt(len(gains)))
    figures: dict[str, Any] = {
        "n": len(recent),
        "mean": mean,
        "low": mean - QUANTILE * error,
        "high": mean + QUANTILE * error,
    }
    precision = spread(facts)
    if not facts.estimated or precision.covariance is None:
        return figures | {"baseline": None, "words": precision.words}
    theta, d = facts.theta, learner.definition.dim
    eta = z @ theta[:d] - baseline * (z @ theta[d:])
    margin = baseline - cost
    expected = float(np.mean(margin * policy.family.mean(eta)))
    slope = (margin * policy.family.curvature(eta))[:, None] * np.hstack([z, -baseline * z])
    gradient = slope.mean(axis=0)
    model_error = math.sqrt(max(float(gradient @ precision.covariance @ gradient), 0.0))
    both = math.hypot(error, model_error)
    return figures | {
        "baseline": {
            "mean": expected,
            "low": expected - QUANTILE * model_error,
            "high": expected + QUANTILE * model_error,
        },
        "more": {
            "mean": mean - expected,
            "low": mean - expected - QUANTILE * both,
            "high": mean - expected + QUANTILE * both,
        },
        "words": "Earned by the last customers with an outcome, experiments included, and what the model expects of "
        "them at the baseline. The ranges are rough: both rest on some of the same customers.",
    }
