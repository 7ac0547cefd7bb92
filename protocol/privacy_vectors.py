"""Test vectors of the mechanisms and their parts, for implementations in other languages."""

from __future__ import annotations

from typing import Any

import numpy as np

from hushprice.arrays import Array
from hushprice.device.coin import fair_coin
from hushprice.kernels import philox as kernel
from hushprice.kernels.special import log, normal_quantile
from hushprice.privacy.caps import best_cap
from hushprice.privacy.directions import L2Ball, PrivUnit
from hushprice.privacy.entropy import UnsafeSeed
from hushprice.privacy.gaussian import Gaussian
from hushprice.privacy.mechanism import Mechanism
from hushprice.privacy.response import RandomizedResponse
from hushprice.privacy.wire import Report

US = (2.0**-54, 1e-12, 1e-7, 0.01, 0.0749, 0.075, 0.1, 0.123, 0.2, 0.25, 0.3, 0.377, 0.4, 0.49, 0.4999)


def privacy_vectors() -> dict[str, Any]:
    """All of them, as plain data."""
    words = [0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF, *(int(w) for w in UnsafeSeed(2026).words(27))]
    epsilons = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
    return {
        "about": "See docs/privacy.md for the recipe. Words are hexadecimal, most significant digit first.",
        "philox4x64_10": [_philox(words[i], words[i + 1], words[i + 2 : i + 6]) for i in range(0, 24, 3)],
        "log": [{"x": x, "log": float(log(x))} for x in (2.0**-54, 1e-300, 1e-9, 0.01, 0.5, 0.70710678, 0.075, 0.99)],
        "normal_quantile": [{"u": u, "value": float(normal_quantile(u))} for u in US],
        "normal": [{"word": _hex(w), "value": float(kernel.normal(np.uint64(w)))} for w in words],
        "direction": [_direction(seed, number, dim) for seed in words[:6] for number, dim in ((0, 2), (1, 5), (7, 12))],
        "coin": [
            {"epsilon": e, "inside": m, "outside": k, "coin": _hex(fair_coin(e, inside=m, outside=k))}
            for e in epsilons
            for m, k in ((1, 1), (1, 3), (5, 59))
        ],
        "cap": [
            {"epsilon": e, "dim": n, "pairs": pairs, "top": top}
            for e in epsilons
            for n in (2, 12, 50)
            for pairs, top in [best_cap(e, n)]
        ],
        "report": [case for mechanism, inputs in _cases() for case in _reports(mechanism, inputs)],
    }


def _cases() -> list[tuple[Mechanism, list[Array]]]:
    """Mechanisms with inputs inside the ball, on it, outside, and zero; or with both answers."""
    vector: list[Mechanism] = [
        *(L2Ball(epsilon=e, clip=2.0, dim=n) for e, n in ((0.5, 2), (1.0, 12), (4.0, 50))),
        *(PrivUnit(epsilon=e, clip=2.0, dim=n) for e, n in ((1.0, 2), (4.0, 12))),
        Gaussian(epsilon=1.0, delta=1e-3, clip=2.0, dim=4),
    ]
    cases = [(m, [size * np.cos(np.arange(m.dim) + 0.5) for size in (0.1, 0.5, 40.0, 0.0)]) for m in vector]
    return [*cases, (RandomizedResponse(epsilon=1.0), [np.ones(1), np.zeros(1)])]


def _reports(mechanism: Mechanism, inputs: list[Array]) -> list[dict[str, Any]]:
    """Reports of these inputs, made with these random words."""
    source, cases = UnsafeSeed(7), []
    for g in inputs:
        for _ in range(4):
            words = source.words(mechanism.words)
            row = mechanism.report_rows(np.atleast_2d(g), words.reshape(1, -1))
            report = Report(mechanism.kind, tuple(row[0].tolist()))
            cases.append(
                {
                    "mechanism": {k: _plain(v) for k, v in mechanism.config().items()},
                    "g": g.tolist(),
                    "words": [_hex(int(w)) for w in words],
                    "report": report.to_dict(),
                    "decoded": mechanism.decode(report).tolist(),
                }
            )
    return cases


def _philox(key0: int, key1: int, counter: list[int]) -> dict[str, Any]:
    out = kernel.philox(*(np.uint64(w) for w in (key0, key1, *counter)))
    return {
        "key": [_hex(key0), _hex(key1)],
        "counter": [_hex(c) for c in counter],
        "words": [_hex(int(w)) for w in out],
    }


def _direction(seed: int, number: int, dim: int) -> dict[str, Any]:
    v = np.empty(dim)
    kernel.direction(np.uint64(seed), number, v, np.empty(dim + 3, dtype=np.uint64))
    return {"seed": _hex(seed), "number": number, "v": v.tolist()}


def _hex(word: int) -> str:
    return f"{word:016x}"


def _plain(value: Any) -> Any:
    return _hex(value) if isinstance(value, int) and value >= 2**53 else value
