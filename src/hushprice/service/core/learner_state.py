"""Convert a learner to plain data and back, for snapshots and digests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hushprice.errors import SnapshotError
from hushprice.policies import Params, Phase
from hushprice.service.core.events import MODES
from hushprice.service.core.open_offers import OpenOffer, OpenOffers
from hushprice.service.core.published import PublishedPhase, PublishedPhases
from hushprice.service.guardrails import Guardrails, Limits

if TYPE_CHECKING:
    from hushprice.service.core.learner import Learner

STATE_FORMAT = 6  # increase it when the same log gives another state


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
    """Read the result of :func:`plain_params`."""
    return Params(**{**plain, "phase": Phase(plain["phase"])})


def state(learner: Learner) -> dict[str, Any]:
    """All that the effect of later events depends on, and the statistics."""
    ids, offers = [key for key, _ in learner.open_offers.items()], [offer for _, offer in learner.open_offers.items()]
    phases = list(learner.published_phases)
    return {
        "format": STATE_FORMAT,
        "product": learner.definition.name,
        "definition": learner.definition.fixed(),
        "seq": learner.seq,
        "version": learner.version,
        "floor": learner.rolled_back_at,
        "at": learner.at,
        "key": learner.key,
        "chain": learner.chain.hex(),
        "mode": learner.mode,
        "guardrails": learner.guardrails.config(),
        "core": learner.core(),
        "last": learner.last_prices.copy(),
        "railed": learner.guardrails_changed_at,
        "asking": {
            "version": np.array([phase.version for phase in phases], dtype=np.int64),
            "learn": np.array([phase.learn for phase in phases], dtype=np.bool_),
            "explore": np.array([phase.explore for phase in phases], dtype=np.bool_),
            "stage": np.array([phase.stage for phase in phases], dtype=np.int64),
        },
        "open": {
            "id": ids,
            "seq": np.array([offer.seq for offer in offers], dtype=np.int64),
            "z": np.array([offer.z for offer in offers], dtype=np.float64).reshape(-1, learner.policy.dim),
            "price": np.array([offer.price for offer in offers], dtype=np.float64),
            "stage": np.array([offer.stage for offer in offers], dtype=np.int64),
            "cost": np.array([offer.cost for offer in offers], dtype=np.float64),
            "at": np.array([offer.at for offer in offers], dtype=np.float64),
        },
        "tally": learner.statistics.state(),
    }


def restore(learner: Learner, state: Mapping[str, Any]) -> None:
    """Restore a state. One of another product or release is refused before anything changes."""
    if state.get("format") != STATE_FORMAT or state.get("product") != learner.definition.name:
        raise SnapshotError("The snapshot is of another product or release.")
    if state["definition"] != learner.definition.fixed() or state["mode"] not in MODES:
        raise SnapshotError("The snapshot is of a product that was defined otherwise.")
    learner.seq, learner.version = state["seq"], state["version"]
    learner.rolled_back_at, learner.at, learner.mode = state["floor"], state["at"], state["mode"]
    learner.key, learner.chain = state["key"], bytes.fromhex(state["chain"])
    learner.guardrails = Guardrails.of(state["guardrails"])
    learner.limits = Limits(learner.policy, learner.guardrails)
    learner.guardrails_changed_at = state["railed"]
    learner.restore_core(state["core"])
    learner.last_prices = np.array(state["last"], dtype=np.float64)
    _restore_phases(learner, state["asking"])
    _restore_offers(learner, state["open"])
    learner.statistics.restore(state["tally"])
    learner.publish()


def _restore_phases(learner: Learner, columns: Mapping[str, Any]) -> None:
    rows = zip(*(columns[key].tolist() for key in PublishedPhase._fields), strict=True)
    learner.published_phases = PublishedPhases()
    for row in rows:
        learner.published_phases.note(PublishedPhase(*row))


def _restore_offers(learner: Learner, columns: Mapping[str, Any]) -> None:
    rest = (columns[key].tolist() for key in ("price", "stage", "cost", "at"))
    learner.open_offers = OpenOffers(learner.definition.wait)
    for key, seq, z, *more in zip(columns["id"], columns["seq"].tolist(), columns["z"], *rest, strict=True):
        learner.open_offers.add(key, OpenOffer(seq, z, *more))
