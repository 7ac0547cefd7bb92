"""The check that a twin behaves like the log: replay all logged prices through the model and compare.

Rows are compared in groups: all rows, tenths of the price, segments, tenths of predicted demand and tenths of each
number among the features (:mod:`.replay`). Where a comparison fails, :mod:`.places` says at which values.
Counts are also compared in spread. With S the covariance of theta, x = (z, -p z) and b = sum of w k3 x, k3 = mu the
third central moment of an outcome,

    Q = sum of w [(y - mu)^2 - mu]      has mean  -/+ sum of w mu^2 x'S x
                                        and variance  sum of w (mu + 2 mu^2)  -/+ b' S b

with - on the rows of the fit and + on others (first-order expansions in the error of theta). The spread of a yes or no
follows from its mean, and that of linear demand is fitted to these residuals, so neither is compared.

With a model that has a half-life the rows are discounted as in its fit, and the spread is not compared.

All tests together reject a true model 1 time in 100 at most (Bonferroni), to first order in the error of theta. With
few events per coefficient it can be 2 times: measured with 30 on the rows of the fit, and with 200 on other rows, where
the error of theta also decides which rows are a tenth of predicted demand. The check also draws new outcomes at the
logged prices and reports their mean and spread next to those of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from hushprice.arrays import Array
from hushprice.errors import InvalidInput
from hushprice.fitting import Discount, Encoding, Number, Source
from hushprice.markets.twin.places import Place, places_of, words_of
from hushprice.markets.twin.replay import VALUES_OF, Grouping, Replay, Weighed, gap_of, tenths
from hushprice.markets.twin.rows import TwinRows, rows_of, sample_rows

ERROR_RATE = 0.01  # probability that a true model fails any of the tests
FEW_PAIRS = 25.0  # fewest expected pairs of units bought by one customer to compare the spread
FEATURES_COMPARED = 30  # whose values are compared
SPREAD = "spread of outcomes"


@dataclass(frozen=True)
class TwinCheck:
    """Result of the replay.

    Attributes
    ----------
    rows, left_out : int
        Complete rows of the log, and other rows.
    same_rows : bool
        Whether the model was fitted to these rows.
    comparisons : tuple of Replay
        Overall, by price, by segment, by predicted demand and by each number among the features.
    mean_seen, mean_drawn, spread_seen, spread_drawn : float
        Mean and standard deviation of the logged and the drawn outcomes.
    spread_z : float or None
        Difference between the observed and the expected squared residuals of counts, in standard errors.
    """

    rows: int
    left_out: int
    same_rows: bool
    comparisons: tuple[Replay, ...]
    mean_seen: float
    mean_drawn: float
    spread_seen: float
    spread_drawn: float
    spread_z: float | None

    @property
    def tests(self) -> dict[str, float]:
        """p-values of the comparisons that the fit does not force."""
        pvalues = {one.what: one.p for one in self.comparisons if one.p is not None}
        return pvalues if self.spread_z is None else pvalues | {SPREAD: float(2.0 * ndtr(-abs(self.spread_z)))}

    @property
    def failing(self) -> list[str]:
        """Names of the tests that the model fails, at level 1 in 100 over all tests."""
        return [what for what, p in self.tests.items() if p < ERROR_RATE / len(self.tests)]

    @property
    def misfits(self) -> tuple[Place, ...]:
        """Where demand does not follow the model, in the comparisons that fail; the clearest places first."""
        tested = [one for one in self.comparisons if one.p is not None]
        groups = sum(g.z is not None for one in tested for g in one.groups)
        failing = set(self.failing)
        found = [
            place for one in tested if one.what in failing for place in places_of(one, ERROR_RATE / max(groups, 1))
        ]
        return tuple(sorted(found, key=lambda place: -abs(place.z)))

    @property
    def holds(self) -> bool:
        """Whether no test fails."""
        return not self.failing

    def status(self, what: str) -> str:
        """Status of a comparison by name: "holds", "fails" or "forced by the fit".

        Parameters
        ----------
        what : str
            Name of the comparison.
        """
        return "fails" if what in self.failing else "holds" if what in self.tests else "forced by the fit"

    @property
    def shown(self) -> tuple[Replay, ...]:
        """The comparisons whose groups are shown: not all rows together, and of the features those that fail."""
        failing = set(self.failing)
        return tuple(one for one in self.comparisons[1:] if not one.of_feature or one.what in failing)

    def summary(self) -> list[dict[str, Any]]:
        """One row of plain data per comparison."""
        results = [(one.what, len(one.groups), one.largest_gap, one.chi2, one.df) for one in self.comparisons]
        if self.spread_z is not None:
            results.append((SPREAD, 1, gap_of(self.spread_drawn, self.spread_seen), self.spread_z * self.spread_z, 1))
        return [
            {
                "comparison": what,
                "groups": groups,
                "largest gap": f"{gap:.1%}",
                "chi-squared": round(chi2, 2),
                "df": df,
                "p-value": float(f"{self.tests[what]:.3g}") if what in self.tests else None,
                "status": self.status(what),
            }
            for what, groups, gap, chi2, df in results
        ]

    def words(self) -> str:
        """The result in a few sentences, with the places where it fails."""
        rows = f"{self.rows:,} logged prices were replayed through the model"
        if not self.tests:
            return f"{rows}: every comparison is forced by the fit, so that it cannot be checked by these rows."
        many = f"{len(self.tests)} comparisons" if len(self.tests) > 1 else "the one comparison"
        chance = f"(a true model fails in {'any of ' if len(self.tests) > 1 else ''}{many} 1 time in 100 at most)"
        if self.failing:
            text = f"{rows}. Predicted and seen demand differ beyond chance {chance}: {', '.join(self.failing)}."
            return f"{text} {words_of(self.misfits)}".rstrip()
        return f"{rows}: predicted and seen demand agree up to chance {chance}."

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"misfits": [place.to_dict() for place in self.misfits]}


def check_twin(
    model: Any, log: Any, *, segment: str | None = None, weights: str | None = None, seed: int = 0
) -> TwinCheck:
    """Replay the whole log, batch by batch, through a fitted demand model.

    Parameters
    ----------
    model : DemandModel
        The model.
    log : path, data frame or other log
        The log, as for :func:`hushprice.fit`.
    segment, weights : str, optional
        Columns. Default: the model's.
    seed : int
        Seed of the drawn outcomes.

    Returns
    -------
    TwinCheck

    Raises
    ------
    InvalidInput
        If the model does not name the outcome column, or the log has no complete row.
    """
    column, weights = model.segments_ if segment is None else segment, model.weights_ if weights is None else weights
    if model.outcome_ is None:
        raise InvalidInput("The model does not know the log's outcome column: fit it with hushprice.fit(log, ...).")
    source = Source.open(log)
    sample = sample_rows(rows_of(model, source, segment=column, weights=weights), most=100_000)
    again = rows_of(model, source, segment=column, weights=weights)
    discount = discount_of(model, sample.seen)
    return replay(model, again, sample.rows, segment=column, seed=seed, discount=discount)


def discount_of(model: Any, rows: int) -> Discount | None:
    """The discount of a model with a half-life, for a log of so many rows."""
    return None if model.half_life_ is None else Discount(model.half_life_, rows)


def replay(
    model: Any,
    batches: Iterator[TwinRows],
    some: TwinRows,
    *,
    segment: str | None,
    seed: int = 0,
    discount: Discount | None = None,
) -> TwinCheck:
    """Replay rows through a model; the rows in ``some`` determine the boundaries of tenths."""
    sums = _Sums(model, some, segment=segment, seed=seed, discount=discount)
    for rows in batches:
        sums.add(rows)
    if not sums.rows:
        raise InvalidInput("No row of the log has a price and an outcome: there is nothing to replay.")
    return sums.check()


class _Sums:
    """Sums over the log."""

    def __init__(
        self, model: Any, some: TwinRows, *, segment: str | None, seed: int, discount: Discount | None
    ) -> None:
        self.discount = discount
        self.theta, self.family = np.asarray(model.theta_), model.family_
        self.dim = dim = len(self.theta) // 2
        covariance = np.asarray(model.covariance_, dtype=np.float64)
        self.S = covariance if np.isfinite(covariance).all() else np.zeros_like(covariance)
        self.rng = np.random.default_rng(seed)
        predicted = self.family.mean(self._eta(some))
        self.groupings = [
            Grouping("overall", _price, np.empty(0), dim),
            Grouping("tenths of the price", _price, tenths(some.price), dim, "prices"),
            Grouping("tenths of predicted demand", _predicted, tenths(predicted), dim, "predicted demand"),
        ]
        if segment is not None:
            self.groupings.insert(2, Grouping(f"segments ({segment})", _segment, None, dim, "the segment"))
        self.groupings += _by_feature(model.encoding_, some, predicted)
        self.rows = self.seen = 0
        self.score, self.third = np.zeros(2 * dim), np.zeros(2 * dim)
        self.information = np.zeros((2 * dim, 2 * dim))
        self.moments, self.squares = np.zeros(5), np.zeros(4)

    def _eta(self, rows: TwinRows) -> Array:
        a, b = rows.z @ self.theta[: self.dim], rows.z @ self.theta[self.dim :]
        eta: Array = a - b * rows.price
        return eta

    def add(self, rows: TwinRows) -> None:
        """Add a batch."""
        self.rows, self.seen = self.rows + len(rows.y), self.seen + rows.seen
        factor = np.ones(len(rows.y)) if self.discount is None else self.discount.of(rows.number)
        eta, w, y = self._eta(rows), rows.w * factor, rows.y
        mu, psi2 = self.family.mean(eta), self.family.curvature(eta)
        x = np.hstack([rows.z, -rows.price[:, None] * rows.z])
        weighed = Weighed(w, y, mu, factor * self.family.variance(eta), (w * psi2)[:, None] * x, factor)
        if self.discount is not None:
            self.information += weighed.vx.T @ x
        for grouping in self.groupings:
            grouping.add(rows, weighed)
        drawn = self.family.sample(eta, self.rng)
        self.score += (w * self.family.residual(eta, y)) @ x / self.family.scale**2
        self.moments += [w.sum(), w @ y, w @ y**2, w @ drawn, w @ drawn**2]
        if self.family.outcomes == "counts":
            self.third += (w * mu) @ x
            error = np.einsum("ij,jk,ik->i", x, self.S, x, optimize=True)
            self.squares += [w @ ((y - mu) ** 2 - mu), w @ (mu + 2.0 * mu**2), w @ mu**2, w @ (mu**2 * error)]

    def check(self) -> TwinCheck:
        """The result from the sums."""
        # zero for the rows of the fit, about 2 d for other rows
        same = float(self.score @ self.S @ self.score) < 1e-3 * len(self.theta)
        sign, events = -1.0 if same else 1.0, self.family.outcomes != "real"
        n, y1, y2, drawn1, drawn2 = self.moments
        inverse = None
        if self.discount is not None and same:
            inverse = self.family.scale**2 * np.linalg.pinv(self.information, hermitian=True)
        return TwinCheck(
            rows=self.rows,
            left_out=self.seen - self.rows,
            same_rows=same,
            comparisons=tuple(g.compare(self.S, sign, events=events, inverse=inverse) for g in self.groupings),
            mean_seen=float(y1 / n),
            mean_drawn=float(drawn1 / n),
            spread_seen=float(np.sqrt(max(y2 / n - (y1 / n) ** 2, 0.0))),
            spread_drawn=float(np.sqrt(max(drawn2 / n - (drawn1 / n) ** 2, 0.0))),
            spread_z=self._spread(sign),
        )

    def _spread(self, sign: float) -> float | None:
        """Q in standard errors; None if it is not compared."""
        Q, variance, pairs, error = self.squares
        if 0.5 * pairs < FEW_PAIRS or self.discount is not None:
            return None
        return float((Q - sign * error) / np.sqrt(variance + sign * self.third @ self.S @ self.third))


def _price(rows: TwinRows, mu: Array) -> Array:
    return rows.price


def _segment(rows: TwinRows, mu: Array) -> Any:
    return rows.segment


def _predicted(rows: TwinRows, mu: Array) -> Array:
    return mu


def _by_feature(encoding: Encoding, some: TwinRows, predicted: Array) -> list[Grouping]:
    """Tenths of the first numbers among the features that are not the same for all of these rows."""
    made: list[Grouping] = []
    names, taken = encoding.names, {"tenths of the price", "tenths of predicted demand"}
    for feature, places in zip(encoding.features, encoding.places.values(), strict=True):
        if not isinstance(feature, Number) or len(made) == FEATURES_COMPARED:
            continue
        values = _values_of(feature, places.start)
        sampled = values(some, predicted)
        edges = tenths(sampled[np.isfinite(sampled)])
        if len(edges):
            what = f"tenths of {names[places.start]}"
            while what in taken:
                what += " again"
            taken.add(what)
            where = f"{VALUES_OF}{names[places.start]}"
            made.append(Grouping(what, values, edges, encoding.dim, where))
    return made


def _values_of(feature: Number, place: int) -> Callable[[TwinRows, Array], Array]:
    """A feature in the units of the log; NaN where it is missing, if the model has an indicator of that."""

    def values(rows: TwinRows, mu: Array) -> Array:
        known: Array = feature.mean + feature.sd * rows.z[:, place]
        return np.where(rows.z[:, place + 1] != 0.0, np.nan, known) if feature.indicator else known

    return values
