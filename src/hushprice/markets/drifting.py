"""Markets whose demand drifts: any market, and a way in which its parameters move while customers arrive."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy.typing as npt

from hushprice.arrays import array
from hushprice.errors import InvalidInput
from hushprice.markets.drift import OPTIONS, Drift
from hushprice.markets.market import Market

M = TypeVar("M", bound=Market)
DRIFT_OPTIONS = ("drift", *OPTIONS)


def drifting(
    base: M,
    kind: str = "jump",
    *,
    level: float | None = None,
    sensitivity: float | None = None,
    at: float | None = None,
    periods: int | None = None,
    path: npt.ArrayLike | None = None,
) -> M:
    """A market like another one, but its demand drifts. Regret is against the best prices of each moment.

    Customer t of T has alpha_t = alpha (1 + level)^s and beta_t = beta (1 + sensitivity)^s, where s is 0 at the start
    and depends on the kind:

    - "jump": s = 1 from customer ``at`` on.
    - "walk": each coefficient has an s of its own, a Brownian path of standard deviation 1 at the end, within
      [-2, 2]. Every replication draws it anew, after the truth of a market with a covariance.
    - "wave": s = sin(2 pi periods (t - 1) / T).
    - "season": s = 1 in the last quarter of each period, then 0 again.
    - "path": ``path`` gives (alpha, beta) at equally spaced moments from the start of the run to its end.

    Customers, costs, segments, rules and random numbers are those of the base, and so is its class: a twin that drifts
    is a twin. What does not tell the moment is of the start: ``theta``, ``optimal_price``, the best prices, findings
    and curves of a twin, and the policy Clairvoyant, which does not notice that demand drifts.

    Parameters
    ----------
    base : Market
        The market.
    kind : str
        "jump", "walk", "wave", "season" or "path".
    level, sensitivity : float, optional
        Change of alpha and of beta where s = 1, above -1. Default: see the notes.
    at : float, optional
        When a jump happens: after this share of the run, or, from 2 on, the first customer after it. Default: 0.5. In
        a shorter run than that there is no jump.
    periods : int, optional
        Number of periods of a wave or of seasons in a run. Default: 4.
    path : array_like of shape (k, 2 d), optional
        The rows of a path, at least two. They take the place of the base's theta; a truth that is drawn from a
        covariance shifts all of them.

    Returns
    -------
    Market
        The market, of the class of the base.

    Raises
    ------
    InvalidInput
        If the kind is unknown, an option does not belong to it or is out of range, or the base drifts already.

    Notes
    -----
    The default sizes, and what they mean for the best price of S1's average customer, 1.47 at the start:

    - "jump" and "season": sensitivity -0.3, level 0. The best price rises to 2.10.
    - "wave": sensitivity -0.42, level 0. It goes from 1.47 up to 2.54, and down to 0.85.
    - "walk": sensitivity 0.5, level 0.5: after a whole run a coefficient is multiplied by a number that lies between
      1 / 1.5 and 1.5 in two of three replications. Were all of them to move alike, the best price would lie between
      0.80 and 2.94.

    Look-ahead with ``memory=None`` then loses about 1 500 in S1 with four features and 20 000 customers in a jump
    (7 200 with 100 000), 2 900 in waves, 1 000 in seasons and 900 in a walk, where replications differ much; without
    drift it is 120.

    Where entries of contexts or coefficients differ in sign, a walk may turn z.beta negative. The best price is then
    the highest one, and regret counts it so.

    Examples
    --------
    >>> from hushprice.markets import s1
    >>> market = drifting(s1(dim=4), "jump", at=0.25)
    >>> market.name
    's1, jump (at 0.25)'
    >>> z = [[0.75, 0.75, 0.75, 0.75]]
    >>> market.optimal_price(z).round(2), market.optimal_price(z, at=0.5).round(2)
    (array([1.47]), array([2.1]))
    """
    if not isinstance(base, Market):
        raise InvalidInput(f"drifting needs a market such as markets.s1(dim=4), got {type(base).__name__}.")
    if base.drift is not None:
        raise InvalidInput(f"The market {base.name} drifts already: give the one without drift.")
    drift = Drift.of(kind, level=level, sensitivity=sensitivity, at=at, periods=periods, path=path)
    name = f"{base.name}, {drift.text}"
    if drift.path is None:
        return replace(base, drift=drift, name=name)
    start, d = array("path", drift.path, shape=(None, 2 * base.dim))[0], base.dim
    return replace(base, drift=drift, name=name, alpha=start[:d], beta=start[d:])


def with_options(maker: Callable[..., Market], options: dict[str, Any]) -> Market:
    """The market that ``maker`` makes of the options, except for those that every market takes.

    ``intercept`` puts a constant in front of its contexts; ``drift`` is a kind of drift, and ``level``,
    ``sensitivity``, ``at`` and ``periods`` are its options. Of these, a maker keeps the ones that it names itself.
    """
    named = inspect.signature(maker).parameters
    rest = dict(options)
    intercept = rest.pop("intercept", False)
    if not isinstance(intercept, bool):
        raise InvalidInput(f"intercept must be true or false, got {intercept!r}.")
    moves = {name: rest.pop(name) for name in DRIFT_OPTIONS if name in rest and name not in named}
    market = maker(**rest)
    if intercept:
        market = market.with_intercept()
    if "drift" in moves:
        return drifting(market, moves.pop("drift"), **moves)
    if moves:
        raise InvalidInput(f"{', '.join(moves)} needs a drift: say which, as in drift=jump.")
    return market
