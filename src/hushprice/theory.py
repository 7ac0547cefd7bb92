"""The paper's regret bounds as functions of d and T, for reference lines in plots.

Upper bounds are orders, up to an unknown constant. Lower bounds include the small constants of the paper's proofs: no
policy has less regret on every instance of :func:`hushprice.markets.lower_bound`.

Examples
--------
>>> round(etc(4, 10_000))
607
>>> rate("ucb") is ucb
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, unknown

Numbers = npt.ArrayLike
LOWER_CONSTANT = 1.0 / 1728.0  # c / 576 with c = 1/3
PRIVATE_LOWER_CONSTANT = float(np.sqrt(14.0)) / 774_144.0


def minimax(d: Numbers, T: Numbers) -> Array:
    """Return sqrt(d T), the minimax order without privacy. ETC and supCB reach it up to logarithms.

    Parameters
    ----------
    d, T : array_like
        Number of features, and of customers.

    Returns
    -------
    ndarray or float
        The order, with d and T broadcast together.
    """
    d, T = _sizes(d, T)
    return np.asarray(np.sqrt(d * T))[()]


def etc(d: Numbers, T: Numbers) -> Array:
    """Return sqrt(d T log T), the bound of ETC, ETC-Doubling and the modified MLE-Cycle and Semi-Myopic.

    Parameters
    ----------
    d, T : array_like
        Number of features, and of customers.

    Returns
    -------
    ndarray or float
        The order, with d and T broadcast together.
    """
    d, T = _sizes(d, T)
    return np.asarray(np.sqrt(d * T * np.log(T)))[()]


def supcb(d: Numbers, T: Numbers) -> Array:
    """Return sqrt(d T) log(T)^(3/2), the bound of supCB for stochastic and adversarial contexts.

    Parameters
    ----------
    d, T : array_like
        Number of features, and of customers.

    Returns
    -------
    ndarray or float
        The order, with d and T broadcast together.
    """
    d, T = _sizes(d, T)
    return np.asarray(np.sqrt(d * T) * np.log(T) ** 1.5)[()]


def ucb(d: Numbers, T: Numbers) -> Array:
    """Return d sqrt(T) log T, the bound of UCB and TS-WTL for adversarial contexts. (UCB-WTL has no proved bound.)

    Parameters
    ----------
    d, T : array_like
        Number of features, and of customers.

    Returns
    -------
    ndarray or float
        The order, with d and T broadcast together.
    """
    d, T = _sizes(d, T)
    return np.asarray(d * np.sqrt(T) * np.log(T))[()]


def etc_ldp(d: Numbers, T: Numbers, *, epsilon: Numbers) -> Array:
    """Return d sqrt(T) log(T) / epsilon, the bound of ETC-LDP if every customer has epsilon-LDP.

    Parameters
    ----------
    d, T : array_like
        Number of features, and of customers.
    epsilon : array_like
        Privacy parameter, positive.

    Returns
    -------
    ndarray or float
        The order, with all arguments broadcast together.
    """
    d, T = _sizes(d, T)
    return np.asarray(d * np.sqrt(T) * np.log(T) / _epsilon(epsilon))[()]


def etc_ldp_approx(d: Numbers, T: Numbers, *, epsilon: Numbers, delta: Numbers) -> Array:
    """Return d sqrt(T log(1.25/delta)) log(T) / epsilon, the bound of ETC-LDP-Approx under (epsilon, delta)-LDP.

    Parameters
    ----------
    d, T : array_like
        Number of features, and of customers.
    epsilon, delta : array_like
        Privacy parameters, positive.

    Returns
    -------
    ndarray or float
        The order, with all arguments broadcast together.
    """
    d, T = _sizes(d, T)
    slack = _between("delta", delta, 0.0, 1.0)
    if not (slack > 0.0).all():
        raise InvalidInput("delta must be above 0; without it the rate is etc_ldp's.")
    return np.asarray(d * np.sqrt(T * np.log(1.25 / slack)) * np.log(T) / _epsilon(epsilon))[()]


def etc_ldp_mixed(d: Numbers, T: Numbers, *, epsilon: Numbers, public: Numbers) -> Array:
    """Return sqrt(d T) log(T) / sqrt(p + (1 - p) epsilon^2/d), the bound of ETC-LDP-Mixed.

    Parameters
    ----------
    d, T, epsilon : array_like
        Dimension, horizon and privacy parameter. epsilon^2/d counts as at most 1, because a private record is not worth
        more than a public one.
    public : array_like
        Share p of customers without privacy.
    """
    d, T = _sizes(d, T)
    p = _between("public", public, 0.0, 1.0)
    worth = np.minimum(_epsilon(epsilon) ** 2 / d, 1.0)
    return np.asarray(np.sqrt(d * T) * np.log(T) / np.sqrt(p + (1.0 - p) * worth))[()]


def lower_bound(d: Numbers, T: Numbers) -> Array:
    """Return sqrt(d T) / 1728: no policy has less regret on every lower-bound instance. NaN if T is too small.

    T is large enough if T >= 4 d^2 log T and d/T^2 is below the slack of the proof.

    Parameters
    ----------
    d, T : array_like
        Number of features, and of customers.

    Returns
    -------
    ndarray or float
        The bound, with its constant.
    """
    d, T = _sizes(d, T)
    bound = LOWER_CONSTANT * np.sqrt(d * T)
    spare = 0.5 * (1.0 - np.sqrt(1.0 / 6.0)) - 0.25
    return np.asarray(np.where((4.0 * d * d * np.log(T) <= T) & (d <= spare * T * T), bound, np.nan))[()]


def lower_bound_ldp(d: Numbers, T: Numbers, *, epsilon: Numbers) -> Array:
    """Return sqrt(14) d sqrt(T) / (774144 epsilon): no epsilon-LDP policy has less regret. NaN if T is too small.

    It holds for epsilon < 1 and T >= 1156 d^2 log(T) / epsilon^2, the condition of the proof's first lemma. The theorem
    itself requires T >= c d^4 log(T) / epsilon^2 with an unspecified constant c.

    Parameters
    ----------
    d, T : array_like
        Number of features, and of customers.
    epsilon : array_like
        Privacy parameter, positive.

    Returns
    -------
    ndarray or float
        The bound, with its constant.
    """
    d, T = _sizes(d, T)
    e = _epsilon(epsilon)
    bound = PRIVATE_LOWER_CONSTANT * d * np.sqrt(T) / e
    return np.asarray(np.where((e < 1.0) & (1156.0 * d * d * np.log(T) / e**2 <= T), bound, np.nan))[()]


def separation(d: Numbers, T: Numbers) -> Array:
    """Return Delta = min(1/2, sqrt(sqrt(d/T) / 3)), the distance between the lower-bound instances of horizon T.

    Parameters
    ----------
    d, T : array_like
        Number of features, and of customers.

    Returns
    -------
    ndarray or float
        The distance, with d and T broadcast together.
    """
    d, T = _sizes(d, T)
    return np.asarray(np.minimum(0.5, np.sqrt(np.sqrt(d / T) / 3.0)))[()]


RATES: dict[str, Callable[..., Array]] = {
    "etc": etc,
    "etc-doubling": etc,
    "mle-cycle": etc,
    "semi-myopic": etc,
    "supcb": supcb,
    "supcb-doubling": supcb,
    "supcb-adversarial": supcb,
    "ucb": ucb,
    "ts-wtl": ucb,
    "etc-ldp": etc_ldp,
    "etc-ldp-doubling": etc_ldp,
    "etc-ldp-approx": etc_ldp_approx,
    "etc-ldp-approx-doubling": etc_ldp_approx,
    "etc-ldp-mixed": etc_ldp_mixed,
    "etc-ldp-mixed-doubling": etc_ldp_mixed,
    "minimax": minimax,
    "lower-bound": lower_bound,
    "lower-bound-ldp": lower_bound_ldp,
}


LOG_POWERS = {etc: 0.5, supcb: 1.5, ucb: 1.0, etc_ldp: 1.0, etc_ldp_approx: 1.0, etc_ldp_mixed: 1.0}
UNPROVED = {"ucb-wtl": ucb}  # policies plotted with a bound that is not proved for them


def rate(name: str) -> Callable[..., Array]:
    """Return the bound of a policy by the policy's name.

    Parameters
    ----------
    name : str
        A key of ``RATES``: the name of a policy, "minimax" or one of the lower bounds.

    Returns
    -------
    callable
        A function of this module.
    """
    if not isinstance(name, str) or name not in RATES:
        raise unknown("regret bound", name, RATES)
    return RATES[name]


def plain_rate(name: str) -> Callable[[Numbers, Numbers], Array]:
    """Return a bound that depends on d and T only, for a plot without privacy.

    Parameters
    ----------
    name : str
        "minimax", or the name of a policy that is not private.

    Returns
    -------
    callable
        A function of d and T.
    """
    plain = [key for key, bound in RATES.items() if bound in (minimax, etc, supcb, ucb)]
    if name not in plain:
        raise unknown("regret bound in d and T alone", name, plain)
    return RATES[name]


def log_power(name: str) -> float:
    """Return the power of log T in the upper bound of a policy; 0 if it has no bound.

    Parameters
    ----------
    name : str
        Name of a policy.

    Returns
    -------
    float
        The power.

    Examples
    --------
    >>> log_power("etc"), log_power("supcb"), log_power("greedy")
    (0.5, 1.5, 0.0)
    """
    return LOG_POWERS.get((RATES | UNPROVED).get(name, minimax), 0.0)


def _sizes(d: Numbers, T: Numbers) -> tuple[Array, Array]:
    dims, rounds = _between("d", d, 1.0, np.inf), _between("T", T, 1.0, np.inf)
    try:
        np.broadcast_shapes(dims.shape, rounds.shape)
    except ValueError:
        raise InvalidInput(f"d and T must go together, but have shapes {dims.shape} and {rounds.shape}.") from None
    return dims, rounds


def _epsilon(epsilon: Numbers) -> Array:
    e = _between("epsilon", epsilon, 0.0, np.inf)
    if not (e > 0.0).all():
        raise InvalidInput("epsilon must be above 0.")
    return e


def _between(name: str, value: Any, low: float, high: float) -> Array:
    try:
        raw = np.asarray(value)
        if raw.dtype.kind not in "iuf":
            raise TypeError
        numbers = raw.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"{name} must be numbers, got {str(value)[:60]!r}.") from None
    if not ((numbers >= low) & (numbers <= high)).all():
        raise InvalidInput(f"{name} must lie between {low:g} and {high:g}, got {str(value)[:60]!r}.")
    return numbers
