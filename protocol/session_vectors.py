"""Whole sessions of a device as test vectors, and documents that a device must refuse.

A session goes from a published params document, a context and random words to the price and the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hushprice.demand import FAMILIES as REGISTERED
from hushprice.demand import Family, Linear, Logistic, Poisson
from hushprice.kernels import glm, quote
from hushprice.kernels import state as phases
from hushprice.kernels.report import report_rows
from hushprice.privacy.directions import L2Ball, PrivUnit
from hushprice.privacy.entropy import UnsafeSeed
from hushprice.privacy.gaussian import Gaussian
from hushprice.privacy.mechanism import Mechanism, VectorMechanism
from hushprice.privacy.wire import Report

FAMILIES: tuple[Family, ...] = (Logistic(), Linear(), Poisson())
# Families that came later have draws of their own behind these, so that the vectors before them stay as they are.
LATER = tuple(family() for family in REGISTERED.values() if family() not in FAMILIES)
PHASES = {"explore": phases.EXPLORE, "exploit": phases.EXPLOIT, "fixed": phases.FIXED}
LADDER = (1.25, 1.5, 2.0, 2.75, 3.0, 4.5)


class Draws:
    """Numbers from the words of a seed, so that they depend on no library's way of drawing them."""

    def __init__(self, seed: int) -> None:
        self.source = UnsafeSeed(seed)

    def word(self) -> int:
        return int(self.source.words(1)[0])

    def number(self, low: float, high: float) -> float:
        return low + (high - low) * (self.word() >> 11) * 2.0**-53

    def vector(self, n: int, low: float, high: float) -> list[float]:
        return [self.number(low, high) for _ in range(n)]


def _mechanisms() -> tuple[VectorMechanism, ...]:
    return (
        L2Ball(epsilon=2.0, clip=4.0, dim=6),
        PrivUnit(epsilon=4.0, clip=4.0, dim=6),
        PrivUnit(epsilon=0.5, clip=30.0, dim=6, pairs=3),
        Gaussian(epsilon=1.0, delta=1e-3, clip=4.0, dim=6),
    )


def later_sessions() -> Iterator[dict[str, Any]]:
    """As :func:`sessions`, for families that came later."""
    for family in LATER:
        draws = Draws(900 + family.code)
        for version, (mechanism, phase) in enumerate(((m, p) for m in _mechanisms() for p in PHASES), start=300):
            document = published(mechanism, family, phase, version, draws.vector(6, -0.3, 0.9))
            yield {"params": document, "customers": [_customer(document, mechanism, family, draws) for _ in range(3)]}


def sessions() -> Iterator[dict[str, Any]]:
    """A published document and a few customers under it, for all mechanisms, families and phases."""
    mechanisms, draws = _mechanisms(), Draws(9)
    for version, (mechanism, family) in enumerate((m, f) for m in mechanisms for f in FAMILIES):
        for phase in PHASES:
            document = published(mechanism, family, phase, version, draws.vector(6, -0.3, 0.9))
            yield {"params": document, "customers": [_customer(document, mechanism, family, draws) for _ in range(3)]}
    changes: tuple[dict[str, Any], ...] = (
        {"ladder": list(LADDER)},
        {"guardrails": {"low": 2.0, "high": 3.5}},
        {"guardrails": {"low": 2.0, "high": 3.5}, "ladder": list(LADDER), "experiments": [1.0, 2.9]},
        {"segments": ["adult", "student"], "ranges": {"student": [1.0, 2.25]}},
        {"segments": ["adult", "student"], "ranges": {"student": [1.0, 2.25]}, "ladder": list(LADDER), "cost": 1.9},
        {"learn": False},
        {"score": {"shift": 0.0, "factor": 1.0}, "centre": [0.5, 0.0, -0.25, 0.0, 0.125, 1.0]},
    )
    for version, change in enumerate(changes, start=100):
        for phase in PHASES:
            document = published(mechanisms[0], Logistic(), phase, version, draws.vector(6, -0.3, 0.9)) | change
            yield {
                "params": document,
                "customers": [_customer(document, mechanisms[0], Logistic(), draws) for _ in range(2)],
            }


def published(
    mechanism: VectorMechanism, family: Family, phase: str, version: int, theta: Sequence[float]
) -> dict[str, Any]:
    """A params document of a product with three features."""
    pairs, top = getattr(mechanism, "shape", (1, 1))
    return {
        "format": "hushprice params", "protocol": 1, "product": "coffee", "version": version,
        "mode": "shadow" if phase == "fixed" else "live",
        "family": family.name, "dim": 3, "prices": [1.0, 5.0], "experiments": [1.0, 5.0], "cost": 0.0,
        "ladder": [], "ranges": {}, "segments": [], "guardrails": {"low": 1.0, "high": 5.0},
        "phase": phase, "level": 2.6 if phase == "fixed" else 0.0, "theta": list(theta),
        "learn": True, "centre": [0.0] * 6, "radius": 4.898979485566356,
        "score": {"shift": 3.0, "factor": 0.8660254037844386},
        "mechanism": {
            "name": mechanism.name, "epsilon": mechanism.epsilon, "delta": getattr(mechanism, "delta", 0.0),
            "clip": mechanism.clip, "dim": mechanism.dim, "pairs": pairs, "top": top,
            "sd": getattr(mechanism, "sd", 0.0),
        },
        "features": [CONSTANT, LOYALTY, DISTANCE],
        "currency": "EUR", "baseline": 3.0,
    }  # fmt: skip


def _customer(document: dict[str, Any], mechanism: Mechanism, family: Family, draws: Draws) -> dict[str, Any]:
    """One customer: the words are those of the price (one, when exploring), then those of the report."""
    z = [1.0, draws.number(0.0, 1.0), draws.number(-1.0, 1.0)]
    segment = document["segments"][draws.word() % 2] if document["segments"] else None
    cost = draws.number(0.0, 3.0) if draws.word() & 1 else None
    exploring = document["phase"] == "explore"
    words = [draws.word() for _ in range(exploring + mechanism.words * document["learn"])]
    price = _price(document, family, z, segment, cost, (words[0] >> 11) * 2.0**-53 if exploring else 0.0)
    some = {"real": draws.number(-1.0, 3.0), "binary": float(draws.word() & 1), "counts": float(draws.word() % 5)}
    y = some[family.outcomes]
    report = _report(document, mechanism, family, z, price, y, words[exploring:])
    return {
        "z": z, "segment": segment, "cost": cost, "words": [f"{word:016x}" for word in words],
        "price": price, "experiment": exploring, "y": y, "report": report if document["learn"] else None,
    }  # fmt: skip


def _price(
    document: dict[str, Any], family: Family, z: list[float], segment: str | None, cost: float | None, u: float
) -> float:
    low, high = _range(document, segment)
    a, b = np.empty(1), np.empty(1)
    glm.utility(np.array([z]), np.array(document["theta"]), a, b)
    price = quote.quote_on_terms(
        PHASES[document["phase"]], family.code, a[0], b[0], document["level"], u,
        document["cost"] if cost is None else cost, low, high, np.array(document["ladder"], dtype=np.float64),
    )  # fmt: skip
    return float(price)


def _range(document: dict[str, Any], segment: str | None) -> tuple[float, float]:
    """(low, high) of the price for a customer."""
    low, high = document["ranges"].get(segment, document["prices"])
    cuts = [(document["guardrails"]["low"], document["guardrails"]["high"])]
    if document["phase"] == "explore":
        cuts.append(tuple(document["experiments"]))
    for least, most in cuts:
        low, high = (min(max(end, least), most) for end in (low, high))
    return low, high


def own_prices() -> Iterator[dict[str, Any]]:
    """The shop's own prices, and whether a device quotes them: in shadow mode, in the range that a quote would have."""
    mechanism, theta = L2Ball(epsilon=2.0, clip=4.0, dim=6), Draws(12).vector(6, -0.3, 0.9)
    ranges = {"segments": ["adult", "student"], "ranges": {"student": [1.0, 2.25]}}
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"guardrails": {"low": 2.0, "high": 3.5}},
        ranges,
        ranges | {"guardrails": {"low": 2.0, "high": 3.5}},
        ranges | {"guardrails": {"low": 2.5, "high": 3.5}, "ladder": [2.5, 3.0]},
        {"phase": "explore", "experiments": [1.5, 3.0]},
        {"mode": "live"},
        {"mode": "frozen"},
    )
    for version, change in enumerate(changes, start=200):
        document = published(mechanism, Logistic(), "fixed", version, theta) | change
        for segment in document["segments"] or [None]:
            low, high = _range(document, segment)
            for price in sorted({1.0, 2.25, 3.0, 5.0, low, high, low - 0.0625, high + 0.0625}):
                taken = document["mode"] == "shadow" and low <= price <= high
                yield {"params": document, "segment": segment, "price": price, "taken": taken}


def _report(
    document: dict[str, Any], mechanism: Any, family: Family, z: list[float], price: float, y: float, words: list[int]
) -> dict[str, Any]:
    rows = np.zeros((1, mechanism.width), dtype=np.int64)
    if words:
        report_rows(
            family.code, np.array(document["theta"]), np.array([z]), np.array([price]), np.array([y]),
            document["score"]["shift"], document["score"]["factor"], mechanism.spec,
            np.array([words], dtype=np.uint64), rows,
        )  # fmt: skip
    return Report(mechanism.kind, tuple(rows[0].tolist())).to_dict()


PROMISE = {"epsilon": 2.0, "delta": 0.0, "clip": 4.0, "mechanisms": ["l2-ball", "privunit"], "prices": [0.5, 6.0]}
CONSTANT, LOYALTY, DISTANCE = (
    {"name": "constant", "value": 1.0}, {"name": "loyalty", "low": 0.0, "high": 1.0},
    {"name": "distance", "low": -1.0, "high": 1.0},
)  # fmt: skip


def refused() -> Iterator[dict[str, Any]]:
    """Documents that a device with this promise must refuse: each is one that it takes but for one thing."""
    mechanism, noisy = L2Ball(epsilon=2.0, clip=4.0, dim=6), Gaussian(epsilon=1.0, delta=1e-3, clip=4.0, dim=6)
    theta = Draws(10).vector(6, -0.3, 0.9)
    whole = published(mechanism, Logistic(), "explore", 7, theta)
    gaussian = published(noisy, Logistic(), "explore", 7, theta)["mechanism"]
    changes: tuple[tuple[str, dict[str, Any]], ...] = (
        ("another format", {"format": "params"}),
        ("another protocol", {"protocol": 2}),
        ("another phase", {"phase": "perturb"}),
        ("another mode", {"mode": "paused"}),
        ("an unknown family", {"family": "probit"}),
        ("another family", {"family": "poisson"}),
        ("segments that were not promised", {"segments": ["gold", "silver"]}),
        ("a version below 0", {"version": -1}),
        ("a version that is no whole number", {"version": 1.5}),
        ("more epsilon", {"mechanism": {"epsilon": 2.0000000000000004}}),
        ("a longer clip bound", {"mechanism": {"clip": 4.00001}}),
        ("an unknown mechanism", {"mechanism": {"name": "none"}}),
        ("a mechanism that was not promised", {"mechanism": gaussian}),
        ("a delta that was not promised", {"mechanism": {"delta": 1e-9}}),
        ("no epsilon", {"mechanism": {"epsilon": None}}),
        ("epsilon as text", {"mechanism": {"epsilon": "1"}}),
        ("no pairs of directions", {"mechanism": {"name": "privunit", "pairs": 0, "top": 0}}),
        ("more directions agree than there are", {"mechanism": {"name": "privunit", "pairs": 4, "top": 5}}),
        ("too many pairs of directions", {"mechanism": {"name": "privunit", "pairs": 1025, "top": 5}}),
        ("more work than a report is worth", _wide()),
        ("several pairs in l2-ball", {"mechanism": {"pairs": 2}}),
        ("reports about other numbers than the score", {"mechanism": {"dim": 4}}),
        ("prices below the promise", {"prices": [0.25, 5.0]}),
        ("prices above the promise", {"prices": [1.0, 6.5]}),
        ("prices upside down", {"prices": [5.0, 1.0]}),
        ("experiments outside the prices", {"experiments": [1.0, 5.5]}),
        ("guardrails outside the prices", {"guardrails": {"low": 0.75, "high": 5.0}}),
        ("guardrails upside down", {"guardrails": {"low": 4.0, "high": 2.0}}),
        ("theta outside its ball", {"theta": [5.0, 0.0, 0.0, 0.0, 0.0, 0.0]}),
        ("theta too short", {"theta": [0.0] * 5}),
        ("theta with a null", {"theta": [None, 0.0, 0.0, 0.0, 0.0, 0.0]}),
        ("centre too long", {"centre": [0.0] * 7}),
        ("a ball below nothing", {"radius": -1.0}),
        ("a ladder out of order", {"ladder": [2.0, 1.5]}),
        ("a ladder out of reach", {"ladder": [5.5, 5.75]}),
        ("a range of an unknown segment", {"ranges": {"student": [1.0, 2.0]}}),
        ("a range outside the prices", {"segments": ["student"], "ranges": {"student": [0.5, 2.0]}}),
        ("a segment twice", {"segments": ["student", "student"]}),
        ("learn as a number", {"learn": 1}),
        ("too few features", {"features": [{"name": "constant", "value": 1.0}]}),
        ("a score without a factor", {"score": {"shift": 3.0}}),
        ("a cost below 0", {"cost": -1.0}),
    )
    yield {"why": None, "promise": PROMISE, "params": whole}  # this one is taken
    rounded = whole["mechanism"] | {"clip": 4.000000001}  # by 1e-9 of itself a clip bound may be off, by rounding
    yield {"why": None, "promise": PROMISE, "params": whole | {"mechanism": rounded}}
    for why, change in changes:
        merged = {
            key: value | change[key] if key == "mechanism" and key in change else change.get(key, value)
            for key, value in whole.items()
        }
        promise = PROMISE | {"segments": ["student"]} if "student" in merged["segments"] else PROMISE
        yield {"why": why, "promise": promise, "params": merged}
    for name in whole:
        if name not in ("currency", "baseline"):  # for display: the first devices read documents without them
            rest = {key: value for key, value in whole.items() if key != name}
            yield {"why": f"no {name}", "promise": PROMISE, "params": rest}
    enough = PROMISE | {"delta": 1e-3, "mechanisms": ["gaussian"]}
    yield {"why": None, "promise": enough, "params": whole | {"mechanism": gaussian}}
    less = gaussian | {"sd": gaussian["sd"] * 0.999}
    yield {"why": "too little noise", "promise": enough, "params": whole | {"mechanism": less}}
    yield {"why": "more delta", "promise": enough | {"delta": 5e-4}, "params": whole | {"mechanism": gaussian}}
    yield {"why": "no noise", "promise": enough, "params": whole | {"mechanism": gaussian | {"sd": 0.0}}}
    yield from _customers(whole)


def _wide() -> dict[str, Any]:
    """Reports about many numbers, with many directions."""
    mechanism = {"name": "privunit", "dim": 130, "pairs": 1024, "top": 5}
    return {"dim": 65, "theta": [0.0] * 130, "centre": [0.0] * 130, "features": [], "mechanism": mechanism}


def _customers(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Documents of a product with other customers than promised: other outcomes, segments or features."""
    promise = PROMISE | {
        "family": "poisson", "segments": ["student", "adult"], "features": [["constant", 1.0], "loyalty", "distance"],
    }  # fmt: skip
    taken = whole | {"family": "poisson", "segments": ["adult", "student"]}
    loyal, constant = {"name": "loyalty", "value": 0.4}, {"name": "constant", "low": 0.0, "high": 1.0}
    changes: tuple[tuple[str | None, dict[str, Any]], ...] = (
        (None, {}),
        (None, {"features": [CONSTANT, LOYALTY | {"high": 7.0}, DISTANCE]}),  # these ranges are for show
        ("a family that was not promised", {"family": "logistic"}),
        ("no segments", {"segments": []}),
        ("a segment less", {"segments": ["adult"]}),
        ("a segment more", {"segments": ["adult", "gold", "student"]}),
        ("another segment", {"segments": ["adult", "gold"]}),
        ("no names of features", {"features": []}),
        ("a constant that was none", {"features": [CONSTANT, loyal, DISTANCE]}),
        ("no constant where one was", {"features": [constant, LOYALTY, DISTANCE]}),
        ("another constant", {"features": [CONSTANT | {"value": 2.0}, LOYALTY, DISTANCE]}),
        ("another feature", {"features": [CONSTANT, LOYALTY | {"name": "age"}, DISTANCE]}),
        ("another order of features", {"features": [CONSTANT, DISTANCE, LOYALTY]}),
    )
    for why, change in changes:
        yield {"why": why, "promise": promise, "params": taken | change}
