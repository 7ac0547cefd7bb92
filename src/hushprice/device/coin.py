"""The biased coin of L2Ball and PrivUnit: the exact probability with which a report may agree with the data."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

WORD = 2**64


def odds(epsilon: float) -> Fraction:
    """Return a rational number just below e^epsilon."""
    value = Context(prec=60).exp(Decimal(epsilon))
    return Fraction(value) * (1 - Fraction(1, 10**58))


def fair_coin(epsilon: float, *, inside: int = 1, outside: int = 1) -> int:
    """Return the largest c such that a coin of probability c / 2^64 keeps the odds of all reports within e^epsilon.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of one report.
    inside, outside : int
        Number of indices to choose from if the coin succeeds, and if it fails.

    Notes
    -----
    The index is the upper half of the product of a random word and the number of choices. So the likeliest index inside
    has ceil(2^64 / inside) words, and the least likely one outside floor(2^64 / outside).

    Examples
    --------
    >>> fair_coin(1.0) / 2**64
    0.7310585786300049
    """
    likeliest, rarest = -(-WORD // inside), WORD // outside
    limit = odds(epsilon) * rarest
    return math.floor(WORD * limit / (likeliest + limit))
