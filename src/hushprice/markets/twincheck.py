"""Does a twin behave like the log? Replay the logged prices through the model, all rows, and compare.

Rows fall into groups: all, tenths of the price, segments, tenths of the predicted demand. A group's gap between seen
and predicted demand is r_g = sum of w (y - mu). With D = diag(sum of w v), v = phi psi'' the variance of an outcome,
and B_g = sum of w psi'' x, x = (z, -p z),

    Cov(r) = D - B S B'   where the model was fitted to these very rows, S the covariance of theta
    Cov(r) = D + B S B'   on other rows, as then the error of theta comes on top

and r' Cov(r)^- r is chi-squared with rank(Cov(r)) degrees of freedom. What the fit forces to agree (all rows together,
segments that are features) is therefore no evidence and does not count. The outcomes are also drawn anew, at the logged
prices, and their mean and spread told next to those seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from hushprice.demand import Family
from hushprice.errors import Array, InvalidInput
from hushprice.logs import Source
from hushprice.markets.twinrows import Rows, rows_of, sample_rows, weights_of

LEVEL = 0.01  # a comparison fails when chance would do as badly less often than this
TENTHS = 10
FORCED = 1e-3  # share of a gap's variance that the fit leaves free, below which it tells nothing
FEW_ROWS, FEW_EVENTS = 50.0, 5.0  # smaller groups are joined: chi-squared would not hold for them
MOST_GROUPS = 2_000


@dataclass(frozen=True)
class Group:
    """Rows that belong together: how many (by weight), mean demand seen and predicted, and the gap in standard errors.

    z is None where the fit forces the two to agree.
    """

    name: str
    rows: float
    seen: float
    predicted: float
    z: float | None


@dataclass(frozen=True)
class Comparison:
    """Seen and predicted demand over some groups. ``status`` is "holds" or "fails"; forced ones hold with df 0."""

    what: str
    groups: tuple[Group, ...]
    chi2: float
    df: int
    p: float | None
    status: str

    @property
    def largest_gap(self) -> float:
        """The largest |seen / predicted - 1| over the groups."""
        gaps = [abs(g.seen / g.predicted - 1.0) for g in self.groups if g.predicted]
        return max(gaps, default=0.0)


@dataclass(frozen=True)
class TwinCheck:
    """What came of the replay.

    rows, left_out: complete rows of the log, and others; same_rows: whether the model was fitted to these; comparisons:
    overall, by price, by segment, by predicted demand; mean and spread (standard deviation) of the outcomes seen and
    drawn; spread_z: the squared residuals seen against those expected, in standard errors.
    """

    rows: int
    left_out: int
    same_rows: bool
    comparisons: tuple[Comparison, ...]
    mean_seen: float
    mean_drawn: float
    spread_seen: float
    spread_drawn: float
    spread_z: float

    @property
    def spread_status(self) -> str:
        """Whether the twin's outcomes scatter as those seen."""
        return _status(_two_sided(self.spread_z))

    @property
    def holds(self) -> bool:
        """Whether every comparison does."""
        return self.spread_status == "holds" and all(c.status == "holds" for c in self.comparisons)

    def summary(self) -> list[dict[str, Any]]:
        """One plain row a comparison."""
        rows: list[dict[str, Any]] = [
            {
                "comparison": c.what,
                "groups": len(c.groups),
                "largest gap": f"{c.largest_gap:.1%}",
                "chi-squared": round(c.chi2, 2),
                "df": c.df,
                "p-value": None if c.p is None else float(f"{c.p:.3g}"),
                "status": c.status if c.df else "forced by the fit",
            }
            for c in self.comparisons
        ]
        spread = {
            "comparison": "spread of outcomes", "groups": 1,
            "largest gap": f"{abs(self.spread_drawn / self.spread_seen - 1.0):.1%}" if self.spread_seen else "",
            "chi-squared": round(self.spread_z**2, 2), "df": 1,
            "p-value": float(f"{_two_sided(self.spread_z):.3g}"), "status": self.spread_status,
        }  # fmt: skip
        return [*rows, spread]

    def words(self) -> str:
        """What it says, in a sentence or two."""
        failing = [c.what for c in self.comparisons if c.status == "fails"]
        failing += ["spread of outcomes"] if self.spread_status == "fails" else []
        rows = f"{self.rows:,} logged prices were replayed through the model"
        if failing:
            return f"{rows}. It fails to predict the demand seen, beyond chance (1 in 100): {', '.join(failing)}."
        return f"{rows}: predicted and seen demand agree, overall and in every grouping, up to chance."

    def to_dict(self) -> dict[str, Any]:
        """As plain data; :meth:`from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TwinCheck:
        """From the plain data of :meth:`to_dict`."""
        try:
            comparisons = tuple(
                Comparison(**{**c, "groups": tuple(Group(**g) for g in c["groups"])}) for c in plain["comparisons"]
            )
            return cls(**{**plain, "comparisons": comparisons})
        except (TypeError, KeyError) as problem:
            raise InvalidInput(f"This is not a twin's self-check: {problem}.") from None


def check_twin(
    model: Any, log: Any, *, segment: str | None = None, weights: str | None = None, seed: int = 0
) -> TwinCheck:
    """Replay the whole log, batch by batch, through a fitted demand model.

    segment, weights: columns (the model's own unless given); seed: of the outcomes drawn.
    """
    column, weights = model.segments_ if segment is None else segment, weights_of(model, weights)
    if model.outcome_ is None:
        raise InvalidInput("The model does not know the log's outcome column: fit it with hushprice.fit(log, ...).")
    log = Source.open(log)
    sample = sample_rows(rows_of(model, log, segment=column, weights=weights), most=100_000)
    if sample.kept == 0:
        raise InvalidInput("No row of the log has a price and an outcome: there is nothing to replay.")
    theta, family = np.asarray(model.theta_), model.family_
    sums = _Sums(theta, family, sample.rows, segment=column, seed=seed)
    for rows in rows_of(model, log, segment=column, weights=weights):
        sums.add(rows)
    return sums.check(np.asarray(model.covariance_, dtype=np.float64), left_out=sample.seen - sample.kept)


@dataclass(eq=False)
class _Grouping:
    """Sums over groups that rows fall into by the edges of a number, or by a word."""

    what: str
    edges: Array | None
    dim: int

    def __post_init__(self) -> None:
        count = MOST_GROUPS if self.edges is None else len(self.edges) + 1
        self.places: dict[str, int] = {}
        self.w, self.y, self.mu, self.v = (np.zeros(count) for _ in range(4))
        self.B = np.zeros((count, 2 * self.dim))
        self.low, self.high = np.full(count, np.inf), np.full(count, -np.inf)

    def add(self, values: Any, w: Array, y: Array, mu: Array, v: Array, vx: Array) -> None:
        """Take rows in."""
        if self.edges is None:
            index = np.array([self._place(word) for word in values], dtype=np.int64)
        else:
            index = np.searchsorted(self.edges, values, side="right")
            np.minimum.at(self.low, index, values)
            np.maximum.at(self.high, index, values)
        count = len(self.w)
        for total, part in ((self.w, w), (self.y, w * y), (self.mu, w * mu), (self.v, w * v)):
            total += np.bincount(index, weights=part, minlength=count)
        for j in range(2 * self.dim):
            self.B[:, j] += np.bincount(index, weights=vx[:, j], minlength=count)

    def _place(self, word: str | None) -> int:
        name = "(missing)" if word is None else str(word)
        if name not in self.places and len(self.places) == MOST_GROUPS:
            raise InvalidInput(f"{self.what} has more than {MOST_GROUPS:,} different words: is it a segment?")
        return self.places.setdefault(name, len(self.places))

    def compare(self, S: Array, sign: float, *, events: bool) -> Comparison:
        """The test over its groups, the small ones joined."""
        members = self._members(events)
        names = [name for name, _ in members]
        w, y, mu, v = (
            np.array([total[rows].sum() for _, rows in members]) for total in (self.w, self.y, self.mu, self.v)
        )
        B = np.array([self.B[rows].sum(axis=0) for _, rows in members])
        root = np.sqrt(v)
        gap = (y - mu) / root
        covariance = np.eye(len(v)) + sign * (B / root[:, None]) @ S @ (B / root[:, None]).T
        free = np.diag(covariance)
        z = [float(g / np.sqrt(f)) if f > FORCED else None for g, f in zip(gap, free, strict=True)]
        values, vectors = np.linalg.eigh(covariance)
        kept = values > FORCED
        chi2, df = float((((vectors.T @ gap)[kept]) ** 2 / values[kept]).sum()), int(kept.sum())
        p = float(stats.chi2.sf(chi2, df)) if df else None
        groups = tuple(
            Group(name, float(n), float(seen / n), float(predicted / n), one)
            for name, n, seen, predicted, one in zip(names, w, y, mu, z, strict=True)
        )
        return Comparison(self.what, groups, chi2, df, p, _status(p))

    def _members(self, events: bool) -> list[tuple[str, npt.NDArray[np.int64]]]:
        """Names of the groups, and the sums each is made of."""
        small = (self.w < FEW_ROWS) | ((self.v < FEW_EVENTS) if events else (self.v <= 0.0))
        words = {place: name for name, place in self.places.items()}
        order = sorted(range(len(self.w)), key=lambda i: words.get(i, "")) if words else range(len(self.w))
        large = [(words.get(i) or self._span(i), np.array([i])) for i in order if not small[i]]
        rest = np.flatnonzero(small & (self.w > 0.0))
        if self.v[rest].sum() > 0.0:
            large.append(("(others)" if large else "all", rest))
        return large

    def _span(self, i: int) -> str:
        low, high = self.low[i], self.high[i]
        return "all" if self.edges is not None and not len(self.edges) else f"{low:.4g} to {high:.4g}"


class _Sums:
    """Everything that is added up over the log."""

    def __init__(self, theta: Array, family: Family, sample: Rows, *, segment: str | None, seed: int) -> None:
        self.theta, self.family, self.dim = theta, family, len(theta) // 2
        self.phi = family.scale**2
        self.rng = np.random.default_rng(seed)
        predicted = family.mean(self._eta(sample))
        self.groupings = [
            _Grouping("overall", np.empty(0), self.dim),
            _Grouping("tenths of the price", _edges(sample.price), self.dim),
            _Grouping("tenths of predicted demand", _edges(predicted), self.dim),
        ]
        if segment is not None:
            self.groupings.insert(2, _Grouping(f"segments ({segment})", None, self.dim))
        self.rows, self.score = 0, np.zeros(len(theta))
        self.moments = np.zeros(8)

    def _eta(self, rows: Rows) -> Array:
        a, b = rows.z @ self.theta[: self.dim], rows.z @ self.theta[self.dim :]
        eta: Array = a - b * rows.price
        return eta

    def add(self, rows: Rows) -> None:
        """Take a batch in."""
        eta = self._eta(rows)
        mu, psi2 = self.family.mean(eta), self.family.curvature(eta)
        v, w, y = self.phi * psi2, rows.w, rows.y
        x = np.hstack([rows.z, -rows.price[:, None] * rows.z])
        vx = (w * psi2)[:, None] * x
        for grouping in self.groupings:
            grouping.add(_values(grouping, rows, mu), w, y, mu, v, vx)
        drawn = self.family.sample(eta, self.rng)
        self.rows += len(y)
        self.score += (w * (y - mu)) @ x / self.phi
        squares = w @ (y - mu) ** 2
        self.moments += [w.sum(), w @ y, w @ y**2, w @ drawn, w @ drawn**2, squares, w @ v, w @ self._fourth(mu, v)]

    def _fourth(self, mu: Array, v: Array) -> Array:
        """Variance of (y - mu)^2."""
        by_family: dict[str, Array] = {
            "logistic": v * (1.0 - 4.0 * v),
            "poisson": mu + 2.0 * mu**2,
            "linear": 2.0 * v**2,
        }
        return by_family[self.family.name]

    def check(self, covariance: Array, *, left_out: int) -> TwinCheck:
        S = covariance if np.isfinite(covariance).all() else np.zeros_like(covariance)
        # zero for the rows of the fit, and about 2 d on others
        same = float(self.score @ S @ self.score) < 1e-3 * len(self.theta)
        events = self.family.name != "linear"
        # B sums psi'' x, so that for linear demand B S B' is in the units of D = phi n
        comparisons = tuple(g.compare(S, -1.0 if same else 1.0, events=events) for g in self.groupings)
        n, y1, y2, drawn1, drawn2, squares, v, fourth = self.moments
        return TwinCheck(
            rows=self.rows,
            left_out=left_out,
            same_rows=same,
            comparisons=comparisons,
            mean_seen=float(y1 / n),
            mean_drawn=float(drawn1 / n),
            spread_seen=float(np.sqrt(max(y2 / n - (y1 / n) ** 2, 0.0))),
            spread_drawn=float(np.sqrt(max(drawn2 / n - (drawn1 / n) ** 2, 0.0))),
            spread_z=float((squares - v) / np.sqrt(fourth)) if fourth > 0.0 else 0.0,
        )


def _values(grouping: _Grouping, rows: Rows, mu: Array) -> Any:
    return {"overall": rows.price, "tenths of the price": rows.price, "tenths of predicted demand": mu}.get(
        grouping.what, rows.segment
    )


def _edges(values: Array) -> Array:
    """What splits values into tenths, or into their different values if they are few."""
    distinct = np.unique(values)
    if len(distinct) <= TENTHS:
        return np.asarray(0.5 * (distinct[1:] + distinct[:-1]))
    edges: Array = np.unique(np.quantile(values, np.arange(1, TENTHS) / TENTHS))
    return np.asarray(edges[edges > distinct[0]])


def _two_sided(z: float) -> float:
    return float(2.0 * stats.norm.sf(abs(z)))


def _status(p: float | None) -> str:
    return "fails" if p is not None and p < LEVEL else "holds"
