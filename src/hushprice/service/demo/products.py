"""Demo products: coffee, which is private, and tea, which is plain."""

from __future__ import annotations

import math
from typing import Any

_LOYALTY = {"name": "loyalty", "low": -1.0, "high": 1.0}
_HURRY = {"name": "hurry", "low": -1.0, "high": 1.0}
_CONSTANT = {"name": "constant", "value": 1.0}

COFFEE: dict[str, Any] = {
    "policy": "etc-ldp-doubling",
    "family": "logistic",
    "dim": 3,
    "prices": [1.0, 5.0],
    "epsilon": 4.0,
    "noise": "privunit",
    "z_max": math.sqrt(3.0),
    "centre": [2.0, 0.0, 0.0, 0.8, 0.0, 0.0],  # the prior belief about theta ...
    "radius": 2.0,  # ... and its largest error
    "zeta_scale": 2.0,
    "baseline": 3.5,
    "currency": "EUR",
    "features": [_CONSTANT, _LOYALTY, _HURRY],
}
TEA: dict[str, Any] = {
    "policy": "look-ahead",
    "family": "logistic",
    "dim": 2,
    "prices": [0.5, 4.0],
    "baseline": 3.4,
    "currency": "EUR",
    "features": [_CONSTANT, _LOYALTY],
    "outcomes": {"wait": 20.0, "then": "left-out"},
}
