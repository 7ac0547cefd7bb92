"""Test vectors for devices.

All that a device computes, from the compiled kernels: numbers first, then prices, scores and coins, then whole sessions
from a published params document, a context and random words to the price and the report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from hushprice.demand import Family, Linear, Poisson
from hushprice.device.coin import fair_coin
from hushprice.kernels import quote, special
from hushprice.kernels.score import score
from hushprice.privacy.gaussian import Gaussian
from protocol.session_vectors import (
    FAMILIES,
    LADDER,
    LATER,
    PHASES,
    Draws,
    later_sessions,
    own_prices,
    refused,
    sessions,
)


def device_vectors() -> dict[str, Any]:
    """All of them, as plain data."""
    return {
        "about": "See docs/privacy.md for the recipe. Words are hexadecimal, most significant digit first.",
        "exp": [{"x": x, "value": Poisson().mean(x)} for x in _exponents()],
        "log": [{"x": x, "value": float(special.log(x))} for x in _positive()],
        "omega_table": [
            {"cell": i, "coefficients": special.OMEGA_TABLE[i].tolist()} for i in (0, 1, 511, 512, 1000, 1537, 2047)
        ],
        "omega": [{"x": x, "value": _omega(x)} for x in _omegas()],
        "mean": [
            {"family": family.name, "eta": eta, "value": family.mean(eta)}
            for family in FAMILIES
            for eta in (*_exponents()[:12], *Draws(11).vector(12, -8.0, 8.0))
        ]
        + [
            {"family": family.name, "eta": eta, "value": family.mean(eta)}
            for family in LATER
            for eta in (*_exponents()[:12], *Draws(1100).vector(24, -8.0, 8.0), *Draws(1101).vector(12, -45.0, 45.0))
        ],
        "best_price": [*_best_prices(FAMILIES, 5), *_best_prices(LATER, 500)],
        "score": [*_scores(FAMILIES, 6), *_cut_scores(), *_scores(LATER, 600)],
        "coin": [
            {"epsilon": e, "inside": m, "outside": k, "coin": f"{fair_coin(e, inside=m, outside=k):016x}"}
            for e in (1e-6, 0.01, 1.0 / 3.0, 0.7, 1.5, 3.0, 5.5, 10.0, 17.25, 30.0)
            for m, k in ((1, 1), (2, 6), (3, 61), (7, 2041), (1024, 1024))
        ],
        "gaussian": list(_noise_levels()),
        "quote_on_terms": [*_quotes(FAMILIES, 8), *_quotes(LATER, 800)],
        "sessions": [*sessions(), *later_sessions()],
        "own_price": list(own_prices()),
        "refused": list(refused()),
    }


def _exponents() -> list[float]:
    ends = [0.0, -0.0, 1.0, -1.0, 0.5, 700.0, -700.0, 701.0, -1e9, 1e300, 5e-324, -1e-17]
    cells = [k * 0.010830424696249145 * 0.5 for k in (-129, -65, -3, -1, 1, 3, 65, 129, 5555)]
    draws = Draws(1)
    return [
        *ends,
        *cells,
        *draws.vector(24, -1.0, 1.0),
        *draws.vector(24, -40.0, 40.0),
        *draws.vector(12, -710.0, 710.0),
    ]


def _positive() -> list[float]:
    draws = Draws(2)
    fixed = [1.0, 2.0, 0.5, 0.7071067811865475, 0.7071067811865476, 1.4142135623730951, 2.2250738585072014e-308, 1e300]
    return [*fixed, *draws.vector(12, 0.0, 2.0), *draws.vector(12, 24.0, 1e4), *(2.0**k for k in (-54, -53, 60))]


def _omegas() -> list[float]:
    near, far = Draws(3), Draws(4)
    edges = [-8.0, 24.0, -7.984375, 0.0, 1.0, 23.984375, 23.99999999, -1.0 + 2.0**-53]
    outside = [-8.000000000000002, -8.5, -20.0, -100.0, -700.0, -1e4, 24.000000000000004, 25.5, 100.0, 1e4, 1e12, 1e150]
    return [*edges, *near.vector(40, -8.0, 24.0), *outside, *far.vector(8, -60.0, -8.0), *far.vector(12, 24.0, 900.0)]


def _omega(x: float) -> float:
    value = np.array([x])
    special.omegas(value)
    return float(value[0])


def _best_prices(families: tuple[Family, ...], seed: int) -> Iterator[dict[str, Any]]:
    draws = Draws(seed)
    fixed = [
        (1.0, 0.0, 0.0),  # demand that does not depend on the price
        (1.0, -0.5, 0.0),
        (-3.0, -0.5, 0.0),
        (1.0, 0.7, 9.0),  # cost above the range
        (1.0, -0.7, 9.0),
        (-2.0, -0.01, 5.5),
        (-40.0, 0.3, 0.0),  # far outside the table of omega
        (90.0, 0.3, 0.0),
        (1.0, 50.0, 0.0),  # below the range
        (1.0, 1e-12, 0.0),  # above it
        (0.0, 5e-324, 1.0),
    ]
    for family in families:
        random = [(draws.number(-2, 4), draws.number(-0.2, 2), draws.number(0, 2)) for _ in range(20)]
        for a, b, cost in fixed + random:
            price = family.optimal_price(a, b, (1.0, 5.0), cost=cost)
            yield {"family": family.name, "a": a, "b": b, "cost": cost, "low": 1.0, "high": 5.0, "price": price}


def _scores(families: tuple[Family, ...], seed: int) -> Iterator[dict[str, Any]]:
    draws = Draws(seed)
    for family in families:
        for d in (1, 3, 6):
            for shift, factor in ((0.0, 1.0), (3.0, 0.8660254037844386)):
                theta, z = draws.vector(2 * d, -1.0, 1.0), draws.vector(d, -2.0, 2.0)
                yield _score(family, theta, z, draws.number(1.0, 5.0), float(draws.word() & 1), shift, factor)


def _cut_scores() -> Iterator[dict[str, Any]]:
    yield _score(Poisson(), [1e4, 0.0], [1.0], 2.0, 3.0, 3.0, 0.5)  # a residual that is cut
    yield _score(Linear(), [1e12, -1e12], [1e12], 5.0, -1e90, 0.0, 1.0)


def _score(
    family: Family, theta: list[float], z: list[float], price: float, y: float, shift: float, factor: float
) -> dict[str, Any]:
    g = np.empty(len(theta))
    score(family.code, np.array(theta), np.array(z), price, y, shift, factor, g)
    inputs = {"family": family.name, "theta": theta, "z": z, "price": price, "y": y, "shift": shift, "factor": factor}
    return inputs | {"g": g.tolist()}


def _noise_levels() -> Iterator[dict[str, Any]]:
    """Standard deviations that keep (epsilon, delta) and ones that just do not."""
    for epsilon, delta, clip, dim in (
        (0.5, 1e-3, 2.0, 4),
        (1.0, 1e-5, 1.0, 12),
        (3.0, 1e-2, 8.5, 2),
        (8.0, 1e-6, 3.0, 6),
    ):
        sd = Gaussian(epsilon=epsilon, delta=delta, clip=clip, dim=dim).sd
        for factor, holds in ((1.0, True), (1.5, True), (1.0 - 1e-6, False), (0.5, False)):
            yield {"epsilon": epsilon, "delta": delta, "clip": clip, "dim": dim, "sd": factor * sd, "holds": holds}


def _quotes(families: tuple[Family, ...], seed: int) -> Iterator[dict[str, Any]]:
    draws = Draws(seed)
    for family in families:
        for phase, code in PHASES.items():
            for ladder in ((), LADDER):
                for low, high in ((1.0, 5.0), (1.5, 3.0), (2.75, 2.75)):
                    a, b = draws.number(0.0, 3.0), draws.number(-0.3, 1.5)
                    level, u, cost = draws.number(0.5, 5.5), draws.number(0.0, 1.0), draws.number(0.0, 2.0)
                    price = quote.quote_on_terms(
                        code, family.code, a, b, level, u, cost, low, high, np.array(ladder, dtype=np.float64)
                    )
                    yield {
                        "family": family.name, "phase": phase, "a": a, "b": b, "level": level, "u": u, "cost": cost,
                        "low": low, "high": high, "ladder": list(ladder), "price": float(price),
                    }  # fmt: skip


def flat(value: Any, depth: int = 2) -> str:
    """JSON with one line for each case, so that a change shows where it is."""
    if depth and isinstance(value, dict):
        inner = ",\n".join(f"{json.dumps(key)}: {flat(item, depth - 1)}" for key, item in value.items())
        return f"{{\n{inner}\n}}"
    if depth and isinstance(value, list):
        inner = ",\n".join(flat(item, 0) for item in value)
        return f"[\n{inner}\n]"
    return json.dumps(value, allow_nan=False)
