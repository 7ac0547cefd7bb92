"""Warm-up: run every step that a first customer would wait for, with a learner that is then discarded.

Kernels are compiled, or loaded from their cache, at first use: on a new machine that takes seconds per kernel. A
product is warmed up before the service reports that it is ready.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from hushprice.errors import InvalidInput
from hushprice.privacy import wire
from hushprice.service.core import offers
from hushprice.service.core.events import Event
from hushprice.service.core.learner import Learner
from hushprice.service.definition import Definition
from hushprice.service.guardrails import Guardrails

MAX_CUSTOMERS = 100
FEATURES = 20


def warm_up(definition: Definition) -> Learner:
    """Serve artificial customers in every mode, with guardrails and without; return the learner.

    The same code serves any number of features, so at most 20 are used: a thousand would take a minute."""
    if definition.dim > FEATURES and not definition.private:
        few = {key: value for key, value in definition.config().items() if key != "features"}
        definition = Definition.of(definition.name, few | {"dim": FEATURES})
    learner, rng = Learner(definition), np.random.default_rng(0)
    rails = definition.guardrails if not definition.guardrails.none else Guardrails(low=definition.policy.prices[0])
    changes: tuple[tuple[str, dict[str, Any]], ...] = (
        ("mode", {"mode": "live"}),
        ("mode", {"mode": "shadow"}),
        ("mode", {"mode": "frozen"}),
        ("guardrails", rails.config()),
        ("mode", {"mode": "live"}),
    )
    for kind, body in changes:
        _log(learner, kind, f"a:{learner.seq}", body)
        for _ in range(2):  # the second one has an estimate
            _serve(learner, rng)
    for _ in range(MAX_CUSTOMERS):  # some policies use their estimate only after a while
        if not learner.params.uniform:
            break
        _serve(learner, rng)
    learner.server.estimate()
    _ = learner.misfits
    with suppress(InvalidInput):  # of a policy that cannot forget
        learner.server.forget(1e6)
    if learner.monitor is not None:
        learner.monitor.forget(1e6)
    return learner


def _serve(learner: Learner, rng: np.random.Generator) -> None:
    if learner.definition.private:
        _report(learner)
    else:
        _sell(learner, rng)


def _log(learner: Learner, kind: str, key: str, body: dict[str, Any]) -> None:
    learner.apply([Event(learner.seq + 1, 0.0, kind, key, body)])


def _report(learner: Learner) -> None:
    policy = learner.definition.private_policy
    assert policy is not None
    report = wire.example(policy.mechanism)
    _log(learner, "report", f"r:{learner.seq}", {"version": learner.version, "report": report})
    learner.document()


def _sell(learner: Learner, rng: np.random.Generator) -> None:
    definition, name = learner.definition, str(learner.seq)
    context = [_middle(feature.value, feature.low, feature.high) for feature in definition.features]
    rules = definition.policy.rules
    segment = rules.segments[0] if rules is not None and rules.segments else None
    request = offers.OfferRequest(context=context or [0.5] * definition.dim, segment=segment)
    _log(learner, "offer", f"o:{name}", learner.quote(offers.prepare(definition, request), rng))
    _log(learner, "outcome", f"y:{name}", {"y": 1.0})


def _middle(value: float | None, low: float | None, high: float | None) -> float:
    return value if value is not None else 0.5 * ((low or 0.0) + (high or 0.0))
