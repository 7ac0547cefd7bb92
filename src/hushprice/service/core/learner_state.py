"""A learner as plain data and back, for snapshots and for its fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hushprice.errors import SnapshotError
from hushprice.policies import Params, Phase
from hushprice.service.core.events import MODES
from hushprice.service.core.open_offers import Open, PublishedPhase
from hushprice.service.guardrails import Guardrails, Limits

if TYPE_CHECKING:
    from hushprice.service.core.learner import Learner

FORMAT = 3  # raise it when the same log comes to give another state


def plain_params(params: Params) -> dict[str, Any]:
    """Params without bounds as plain data."""
    return {
        "version": int(params.version),
        "phase": int(params.phase),
        "theta": params.theta.copy(),
        "level": float(params.level),
        "learn": bool(params.learn),
        "stage": int(params.stage),
    }


def params_from(plain: Mapping[str, Any]) -> Params:
    """What :func:`plain_params` wrote."""
    return Params(**{**plain, "phase": Phase(plain["phase"])})


def state(learner: Learner) -> dict[str, Any]:
    """Everything that further events depend on, and the tally."""
    offers, asking = list(learner.open.values()), learner.asking
    return {
        "format": FORMAT,
        "product": learner.definition.name,
        "definition": learner.definition.fixed(),
        "seq": learner.seq,
        "version": learner.version,
        "floor": learner.floor,
        "at": learner.at,
        "key": learner.key,
        "chain": learner.chain.hex(),
        "mode": learner.mode,
        "guardrails": learner.guardrails.config(),
        "core": learner.core(),
        "last": learner.last.copy(),
        "railed": learner.railed,
        "asking": {
            "version": np.array([asked.version for asked in asking], dtype=np.int64),
            "learn": np.array([asked.learn for asked in asking], dtype=np.bool_),
            "explore": np.array([asked.explore for asked in asking], dtype=np.bool_),
            "stage": np.array([asked.stage for asked in asking], dtype=np.int64),
        },
        "open": {
            "id": list(learner.open),
            "seq": np.array([offer.seq for offer in offers], dtype=np.int64),
            "z": np.array([offer.z for offer in offers], dtype=np.float64).reshape(-1, learner.policy.dim),
            "price": np.array([offer.price for offer in offers], dtype=np.float64),
            "stage": np.array([offer.stage for offer in offers], dtype=np.int64),
            "cost": np.array([offer.cost for offer in offers], dtype=np.float64),
            "at": np.array([offer.at for offer in offers], dtype=np.float64),
        },
        "tally": learner.tally.state(),
    }


def restore(learner: Learner, state: Mapping[str, Any]) -> None:
    """Take over a state; one of another product or release is refused before anything is touched."""
    if state.get("format") != FORMAT or state.get("product") != learner.definition.name:
        raise SnapshotError("The snapshot is of another product or release.")
    if state["definition"] != learner.definition.fixed() or state["mode"] not in MODES:
        raise SnapshotError("The snapshot is of a product that was defined otherwise.")
    learner.seq, learner.version = state["seq"], state["version"]
    learner.floor, learner.at, learner.mode = state["floor"], state["at"], state["mode"]
    learner.key, learner.chain = state["key"], bytes.fromhex(state["chain"])
    learner.guardrails = Guardrails.of(state["guardrails"])
    learner.limits = Limits(learner.policy, learner.guardrails)
    learner.railed = state["railed"]
    learner.take(state["core"])
    learner.last = np.array(state["last"], dtype=np.float64)
    asking, offers = state["asking"], state["open"]
    columns = (asking[key].tolist() for key in ("version", "learn", "explore", "stage"))
    learner.asking = [PublishedPhase(*row) for row in zip(*columns, strict=True)]
    columns = (offers[key].tolist() for key in ("price", "stage", "cost", "at"))
    learner.open.clear()
    for key, seq, z, *rest in zip(offers["id"], offers["seq"].tolist(), offers["z"], *columns, strict=True):
        learner.open[key] = Open(seq, z, *rest)
    learner.tally.restore(state["tally"])
    learner.publish()
