"""How the parameters of demand move over a run of T customers.

With u = (t - 1) / T for customer t, d coefficients of each kind and a path s of the run that starts at s = 0:

    alpha_t = alpha (1 + level)^s(t),   beta_t = beta (1 + sensitivity)^s(t)

    jump      s = 0, and 1 from customer ``at`` on
    wave      s = sin(2 pi periods u)
    season    s = 1 in the last quarter of each period, else 0
    walk      each of the 2 d coefficients has an s of its own: Brownian, of standard deviation 1 at u = 1, within
              [-2, 2]; drawn anew in each replication
    path      theta_t = theta + path(u) - path(0), straight lines between the rows of ``path``

No coefficient changes its sign but in a path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hushprice.arrays import Array, array
from hushprice.errors import LARGEST_COUNT, LARGEST_VALUE, InvalidInput, finite, positive_int, short_repr, unknown
from hushprice.kernels import glm as kernel

WALK_POINTS = 1024  # moments at which a walk is drawn
WALK_REACH = 2.0  # bound on |s| of a walk
LARGEST_CHANGE = 1e3
DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "jump": {"level": 0.0, "sensitivity": -0.3, "at": 0.5},
    "walk": {"level": 0.5, "sensitivity": 0.5},
    "wave": {"level": 0.0, "sensitivity": -0.42, "periods": 4},
    "season": {"level": 0.0, "sensitivity": -0.3, "periods": 4},
    "path": {},
}
"""The options of each kind with their defaults; a path also takes ``path``."""
OPTIONS = ("level", "sensitivity", "at", "periods")


@dataclass(frozen=True, kw_only=True, eq=False)
class Drift:
    """A way in which demand moves. :meth:`of` makes it with the default sizes.

    Parameters
    ----------
    kind : str
        "jump", "walk", "wave", "season" or "path".
    level, sensitivity : float
        Change of alpha and of beta where s = 1, above -1: -0.5 halves it.
    at : float
        When a jump happens: after this share of the run, or, from 2 on, the first customer after it.
    periods : int
        Number of periods of a wave or of seasons.
    path : array_like of shape (k, 2 d), optional
        (alpha, beta) at k equally spaced moments, the first at the start of the run and the last at its end.
    walk : array_like of shape (2 d, 1024), optional
        s of each coefficient at equally spaced moments, as :meth:`drawn` draws it. Without it a walk stays at 0.
    """

    kind: str
    level: float = 0.0
    sensitivity: float = 0.0
    at: float = 0.5
    periods: int = 4
    path: Array | None = None
    walk: Array | None = None

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        if not isinstance(self.kind, str) or self.kind not in DEFAULTS:
            raise unknown("kind of drift", self.kind, DEFAULTS)
        for name in ("level", "sensitivity"):
            put(name, finite(name, getattr(self, name), minimum=-1.0, maximum=LARGEST_CHANGE, strict=True))
        put("at", _moment(self.at))
        put("periods", positive_int("periods", self.periods))
        if (self.path is None) is (self.kind == "path"):
            raise InvalidInput("A path, and no other drift, needs path: (alpha, beta) at two or more moments, as rows.")
        if self.path is not None:
            put("path", array("path", self.path, shape=(None, None), limit=LARGEST_VALUE))
            if len(self.path) < 2:
                raise InvalidInput(f"path needs two rows or more, one for each moment, got {len(self.path)}.")
        if self.walk is not None:
            if self.kind != "walk":
                raise InvalidInput(f"walk belongs to a drift of the kind 'walk', not {self.kind!r}.")
            put("walk", array("walk", self.walk, shape=(None, WALK_POINTS), limit=WALK_REACH))

    @classmethod
    def of(cls, kind: str, **options: Any) -> Drift:
        """A drift of this kind, of the default size unless the options say otherwise.

        Parameters
        ----------
        kind : str
            The kind.
        **options
            Parameters of :class:`Drift`. Those that are None are left out, and one that does not belong to the kind is
            refused.

        Examples
        --------
        >>> Drift.of("jump", at=0.25).sensitivity
        -0.3
        """
        if not isinstance(kind, str) or kind not in DEFAULTS:
            raise unknown("kind of drift", kind, DEFAULTS)
        own = {**DEFAULTS[kind], **({"path": None} if kind == "path" else {})}
        given = {name: value for name, value in options.items() if value is not None}
        for name in given:
            if name not in own:
                raise InvalidInput(f"A {kind} has no option {name!r}. It takes {', '.join(own)}.")
        return cls(kind=kind, **{**own, **given})

    @property
    def text(self) -> str:
        """The kind, and what is not the default, for names of markets."""
        defaults = DEFAULTS[self.kind]
        others = [f"{name} {getattr(self, name):g}" for name in defaults if getattr(self, name) != defaults[name]]
        return f"{self.kind} ({', '.join(others)})" if others else self.kind

    def check(self, dim: int) -> None:
        """Refuse a path or a drawn walk that is not of 2 d coefficients.

        Parameters
        ----------
        dim : int
            Length d of a context.
        """
        if self.path is not None:
            array("path", self.path, shape=(None, 2 * dim))
        if self.walk is not None:
            array("walk", self.walk, shape=(2 * dim, WALK_POINTS))

    def drawn(self, rng: np.random.Generator, dim: int) -> Drift:
        """The drift of one replication: a walk is drawn, another drift is the same in all of them.

        Parameters
        ----------
        rng : Generator
            The source of randomness.
        dim : int
            Length d of a context.
        """
        if self.kind != "walk" or self.walk is not None:
            return self
        steps = rng.standard_normal((2 * dim, WALK_POINTS - 1)) / math.sqrt(WALK_POINTS - 1)
        walk = np.concatenate([np.zeros((2 * dim, 1)), np.cumsum(steps, axis=1)], axis=1)
        return replace(self, walk=walk.clip(-WALK_REACH, WALK_REACH))

    def utility(
        self, z: Array, theta: Array, before: Array, horizon: float, *, rng: np.random.Generator | None = None
    ) -> tuple[Array, Array]:
        """z.alpha_t and z.beta_t of customers with contexts z.

        Parameters
        ----------
        z : ndarray of shape (n, d)
            Contexts.
        theta : ndarray of shape (2 d,)
            (alpha, beta) at the start.
        before : ndarray of shape (n,)
            Number of customers before each, t - 1.
        horizon : float
            Length T of the run.
        rng : Generator, optional
            With it, a walk that is not drawn yet is drawn for each customer by itself.

        Returns
        -------
        (ndarray, ndarray)
            One number per customer each.
        """
        a, b = np.empty(len(z)), np.empty(len(z))
        if self.kind in COURSES:
            kernel.utility(z, theta, a, b)
            s = COURSES[self.kind](self, before, horizon)
            return a * (1.0 + self.level) ** s, b * (1.0 + self.sensitivity) ** s
        thetas = self._own_courses(theta, before, horizon, rng)
        ones, unused = np.ones(len(theta)), np.empty(len(z))
        kernel.utility(z * thetas[:, : z.shape[1]], ones, a, unused)
        kernel.utility(z * thetas[:, z.shape[1] :], ones, b, unused)
        return a, b

    def theta(self, theta: Array, before: float, horizon: float) -> Array:
        """(alpha, beta) of one moment.

        Parameters
        ----------
        theta : ndarray of shape (2 d,)
            (alpha, beta) at the start.
        before : float
            Number of customers before it.
        horizon : float
            Length T of the run.
        """
        moment, d = np.array([before], dtype=np.float64), len(theta) // 2
        if self.kind in COURSES:
            s = COURSES[self.kind](self, moment, horizon)
            return np.concatenate([theta[:d] * (1.0 + self.level) ** s, theta[d:] * (1.0 + self.sensitivity) ** s])
        moved: Array = self._own_courses(theta, moment, horizon, None)[0]
        return moved

    def _own_courses(self, theta: Array, before: Array, horizon: float, rng: np.random.Generator | None) -> Array:
        """theta_t of a walk or a path, one row per customer."""
        u = before / horizon
        if self.path is not None:
            moved: Array = theta + (_between(self.path.T, u).T - self.path[0])
            return moved
        if self.walk is not None:
            s = _between(self.walk, u)
        elif rng is not None:
            s = (np.sqrt(u) * rng.standard_normal((len(theta), len(u)))).clip(-WALK_REACH, WALK_REACH)
        else:
            s = np.zeros((len(theta), len(u)))
        base = np.repeat([1.0 + self.level, 1.0 + self.sensitivity], len(theta) // 2)
        factors: Array = (base[:, None] ** s).T
        return theta * factors

    def with_constant(self, dim: int) -> Drift:
        """The drift for contexts with a constant in front, on which demand never depends.

        Parameters
        ----------
        dim : int
            Length d of the contexts without it.
        """
        path = None if self.path is None else np.insert(self.path, [0, dim], 0.0, axis=1)
        walk = None if self.walk is None else np.insert(self.walk, [0, dim], 0.0, axis=0)
        return replace(self, path=path, walk=walk)

    def content(self) -> bytes:
        """Everything that the drift depends on, for fingerprints."""
        numbers = [self.level, self.sensitivity, self.at, self.periods]
        parts = [f"drift {self.kind}".encode(), np.array(numbers, dtype=np.float64).tobytes()]
        parts += [repr(one.shape).encode() + one.tobytes() for one in (self.path, self.walk) if one is not None]
        return b"".join(parts)


def _jump(drift: Drift, before: Array, horizon: float) -> Array:
    first = drift.at - 1.0 if drift.at >= 1.0 else max(1.0, round(drift.at * horizon))
    return (before >= first).astype(np.float64)


def _wave(drift: Drift, before: Array, horizon: float) -> Array:
    s: Array = np.sin(2.0 * math.pi * _phase(drift, before, horizon))
    return s


def _season(drift: Drift, before: Array, horizon: float) -> Array:
    return (_phase(drift, before, horizon) >= 0.75).astype(np.float64)


COURSES: Mapping[str, Callable[[Drift, Array, float], Array]] = {"jump": _jump, "wave": _wave, "season": _season}
"""s of the kinds that move all coefficients alike, from the numbers of customers before and T."""


def _phase(drift: Drift, before: Array, horizon: float) -> Array:
    """How much of its period has passed, in [0, 1). The remainder of whole numbers is exact."""
    phase: Array = (drift.periods * before) % horizon / horizon
    return phase


def _between(values: Array, u: Array) -> Array:
    """Straight lines between the columns of ``values``, which are those at equally spaced u from 0 to 1."""
    place = u * (values.shape[1] - 1)
    k = np.minimum(place.astype(np.int64), values.shape[1] - 2)
    after = place - k
    mixed: Array = values[:, k] * (1.0 - after) + values[:, k + 1] * after
    return mixed


def _moment(at: Any) -> float:
    """A share of the run, or the number of a customer."""
    number = finite("at", at, minimum=0.0, maximum=LARGEST_COUNT, strict=True)
    if number >= 1.0 and (number < 2.0 or not number.is_integer()):
        raise InvalidInput(
            f"at must be a share of the run below 1, or the number of a customer from 2 on, got {short_repr(at)}."
        )
    return number
