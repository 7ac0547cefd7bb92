"""The params document of a private product: public, and all that a device needs to compute prices and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushprice.privacy import VectorMechanism

if TYPE_CHECKING:
    from hushprice.service.core.learner import Learner

PARAMS_FORMAT, PROTOCOL = "hushprice params", 1


def document(learner: Learner) -> dict[str, Any]:
    """The present params document."""
    policy, definition, params = learner.definition.private_policy, learner.definition, learner.params
    assert policy is not None
    rules, limits = policy.rules, learner.limits
    centre, radius = policy.ball
    shift, factor = policy.price_scale
    return {
        "format": PARAMS_FORMAT,
        "protocol": PROTOCOL,
        "product": definition.name,
        "version": learner.version,
        "mode": learner.mode,
        "family": policy.family.name,
        "dim": policy.dim,
        "prices": list(policy.prices),
        "experiments": list(policy.experiment_range()),
        "cost": policy.cost,
        "ladder": list(limits.rules.ladder),
        "ranges": {} if rules is None else {name: list(pair) for name, pair in rules.ranges.items()},
        "segments": [] if rules is None else list(rules.segments),
        "guardrails": {"low": limits.prices[0], "high": limits.prices[1]},
        "phase": params.phase.name.lower(),
        "level": params.level,
        "theta": params.theta.tolist(),
        "learn": params.learn,
        "centre": centre.tolist(),
        "radius": radius,
        "score": {"shift": shift, "factor": factor},
        "mechanism": mechanism_document(policy.mechanism),
        "features": [feature.config() for feature in definition.features],
        "currency": definition.currency,
        "baseline": definition.baseline,
    }


def mechanism_document(mechanism: VectorMechanism) -> dict[str, Any]:
    """The part of the document that describes how reports are randomised."""
    spec, guarantee = mechanism.spec, mechanism.guarantee
    return {
        "name": mechanism.name,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "clip": spec.clip,
        "dim": mechanism.dim,
        "pairs": spec.pairs,
        "top": spec.top,
        "sd": mechanism.noise_sd,
    }
