"""The coin of L2Ball and PrivUnit: how often the truth may be told, exactly."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

WORD = 2**64


def odds(epsilon: float) -> Fraction:
    """A rational number just below e^epsilon."""
    value = Context(prec=60).exp(Decimal(epsilon))
    return Fraction(value) * (1 - Fraction(1, 10**58))


def fair_coin(epsilon: float, *, inside: int = 1, outside: int = 1) -> int:
    """The largest c for which a coin of probability c / 2^64 keeps every report within odds of e^epsilon.

    With it one of ``inside`` indices is named, without it one of ``outside``, by the upper half of a product of a
    random word: the likeliest has ceil(2^64 / inside) words, the least likely floor(2^64 / outside).

    >>> fair_coin(1.0) / 2**64
    0.7310585786300049
    """
    likeliest, rarest = -(-WORD // inside), WORD // outside
    limit = odds(epsilon) * rarest
    return math.floor(WORD * limit / (likeliest + limit))
