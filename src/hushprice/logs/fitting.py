"""From a log to what a demand model knows: survey, fits, one pass of diagnostics, findings.

survey          one pass: encoding, ranges, what is missing, a sample
train           theta and theta without price, on four of five rows, for the held-out figures
all             theta and its covariance on all rows, started from the first
diagnostics     one pass: segments on all rows, scores and calibration on the rows held out
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hushprice.demand import Family, Linear, as_family
from hushprice.errors import Array, InvalidInput, finite, price_range, unknown
from hushprice.logs import findings as found
from hushprice.logs.ahead import in_order
from hushprice.logs.design import Design, held_out
from hushprice.logs.diagnostics import Curve, HeldOut, Report, SegmentSums, coefficients, curves
from hushprice.logs.encoding import OTHER_LEVEL, Category, Encoding, Number
from hushprice.logs.findings import Finding
from hushprice.logs.groups import Groups, some_rows
from hushprice.logs.heldout import HeldOutSums
from hushprice.logs.source import Batch, Log, Source, rows_for
from hushprice.logs.stream import StreamedFit, stream_fit
from hushprice.logs.survey import Progress, Survey, survey

MODELS = ("with price", "without price", "mean alone")
CUSTOMERS, GRID = 10_000, 25  # of the sample, and prices, that demand curves are drawn from


@dataclass(frozen=True, kw_only=True)
class Task:
    """What to fit to a log. ``features=None`` takes every column that is not price, outcome or weights."""

    price: str
    outcome: str
    features: Sequence[str] | None = None
    family: Family | str = "auto"
    weights: str | None = None
    categories: Sequence[str] = ()
    sensitivity: str | Sequence[str] = "all"
    segment: str | None = None
    prices: tuple[float, float] | None = None
    ridge: float = 0.0

    def __post_init__(self) -> None:
        for name in ("features", "categories"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise InvalidInput(f"{name} must be a list of columns, as in [{value!r}].")
            object.__setattr__(self, name, None if value is None else tuple(map(str, value)))
        if self.family != "auto":
            object.__setattr__(self, "family", as_family(self.family))
        if self.prices is not None:
            object.__setattr__(self, "prices", price_range(self.prices))
        object.__setattr__(self, "ridge", finite("ridge", self.ridge, minimum=0.0))
        if not isinstance(self.sensitivity, str):
            object.__setattr__(self, "sensitivity", tuple(map(str, self.sensitivity)))
        elif self.sensitivity not in ("all", "none"):
            raise InvalidInput(f"sensitivity must be 'all', 'none' or a list of features, got {self.sensitivity!r}.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned:
    """What a fitted model knows."""

    family: Family
    encoding: Encoding
    theta: Array
    covariance: Array
    sensitive: npt.NDArray[np.bool_]
    prices: tuple[float, float]
    seen: tuple[float, float]
    features: tuple[str, ...]
    segment: str | None
    records: int
    weight: float
    ridge: float
    report: Report
    findings: list[Finding] = field(default_factory=list)


def learn(log: Log, task: Task, *, progress: Progress | None = None) -> Learned:
    """Fit a demand model to a log."""
    surveyed = _survey(log, task, progress)
    family = _family(task.family, surveyed)
    mask = _sensitive(task.sensitivity, surveyed)
    design = Design.of(surveyed, sensitive=mask)
    first, plain = _train(design, family, task.ridge, surveyed.records, progress)
    fitted = stream_fit(
        design, family, ridge=task.ridge, start=None if first is None else first.theta, progress=progress
    )
    if family.code == Linear.code:
        family = Linear(sigma=float(np.sqrt(fitted.dispersion)) or 1.0)
    covariance = 0.5 * (fitted.covariance + fitted.covariance.T)  # symmetric to the last bit, as its file is
    seen = (surveyed.price.low, surveyed.price.high)
    prices = task.prices or (max(seen[0], 0.0), max(seen[1], 0.0))
    groups = Groups.of(surveyed, fitted.theta)
    sums = SegmentSums(groups.names, family, fitted.theta, prices)
    kept = HeldOutSums(family, [f.theta for f in (first, plain) if f], [f.dispersion for f in (first, plain) if f])
    _diagnose(design, surveyed, groups, sums, kept if first else None, progress)
    drawn = _curves(design, surveyed, groups, family, fitted, prices)
    report = _report(surveyed, fitted, mask, groups, sums, drawn, kept.finish(MODELS) if first else None)
    return Learned(
        family=family, encoding=surveyed.encoding, theta=fitted.theta, covariance=covariance, sensitive=mask,
        prices=prices, seen=seen, features=surveyed.columns.features, segment=groups.column, records=fitted.records,
        weight=fitted.weight, ridge=fitted.ridge, report=report,
        findings=list(_findings(surveyed, design, fitted, family, report, prices, groups)),
    )  # fmt: skip


def _survey(log: Log, task: Task, progress: Progress | None) -> Survey:
    source = Source.open(log)
    features = task.features
    if features is None:
        features = tuple(c for c in source.columns if c not in (task.price, task.outcome, task.weights))
    return survey(
        source, price=task.price, outcome=task.outcome, features=features, weights=task.weights,
        categories=task.categories, segment=task.segment, progress=progress,
    )  # fmt: skip


def _family(family: Family | str, surveyed: Survey) -> Family:
    """The family asked for, or the one that the outcomes call for."""
    facts = surveyed.outcomes
    if family == "auto":
        return as_family("logistic" if facts.binary else "poisson" if facts.whole else "linear")
    chosen = as_family(family)
    possible = {"logistic": facts.binary, "poisson": facts.whole}.get(chosen.name, True)
    if not possible:
        domain = {"logistic": "0 or 1", "poisson": "whole numbers of at least 0"}[chosen.name]
        raise InvalidInput(
            f"{chosen.name} demand must be {domain}, but {surveyed.columns.outcome} goes from {facts.low:g} to "
            f"{facts.high:g} with other values. Take another family, or 'auto'."
        )
    return chosen


def _sensitive(sensitivity: str | Sequence[str], surveyed: Survey) -> npt.NDArray[np.bool_]:
    """The entries of z that the price sensitivity depends on; the first always, as there is a price effect."""
    columns = surveyed.columns.features
    chosen = {"all": columns, "none": ()}[sensitivity] if isinstance(sensitivity, str) else sensitivity
    for name in chosen:
        if name not in columns:
            raise unknown("feature", name, columns)
    parts = [[name in chosen] * len(names) for name, names in places(surveyed.encoding).items()]
    return np.array([True, *(value for part in parts for value in part)])


def places(encoding: Encoding) -> dict[str, Sequence[int]]:
    """The places of each feature's entries in z."""
    result: dict[str, Sequence[int]] = {}
    place = 1
    for feature in encoding.features:
        result[feature.name] = range(place, place + len(feature.names))
        place += len(feature.names)
    return result


def _train(
    design: Design, family: Family, ridge: float, records: int, progress: Progress | None
) -> tuple[StreamedFit | None, StreamedFit | None]:
    """Fits on four of five rows, with and without the price; none if there are too few rows to hold any out."""
    assert design.sensitive is not None
    if records < 5 * (design.dim + int(design.sensitive.sum())) + 20:
        return None, None
    part = replace(design, part="train")
    first = stream_fit(part, family, ridge=ridge, tolerance=1e-4, progress=progress)
    without = replace(part, sensitive=np.zeros(design.dim, dtype=np.bool_))
    return first, stream_fit(without, family, ridge=ridge, tolerance=1e-4, progress=progress)


def _diagnose(
    design: Design, surveyed: Survey, groups: Groups, sums: SegmentSums, kept: HeldOutSums | None,
    progress: Progress | None,
) -> None:  # fmt: skip
    """The last pass: segments of all rows, scores of the rows held out. Blocks are worked on by threads."""

    def look(item: tuple[Batch, int]) -> tuple[SegmentSums, HeldOutSums | None, int]:
        batch, start = item
        rows = design.encode(item)
        part, scores = sums.empty(), kept.empty() if kept is not None else None
        if rows.y.size:
            part.add(rows.z, rows.price, rows.y, rows.w, groups.places(batch, rows, start))
            if scores is not None:
                scores.add(rows.z, rows.price, rows.y, rows.w, held_out(rows.number))
        return part, scores, batch.rows

    _compile(sums.family)
    read = 0
    for part, scores, count in in_order(look, _batches(design, surveyed)):
        sums.merge(part)
        if kept is not None and scores is not None:
            kept.merge(scores)
        read += count
        if progress is not None:
            progress("diagnostics", read)


def _compile(family: Family) -> None:
    """Numba's ufuncs are compiled when they are first called, which two threads must not do at once."""
    family.optimal_price(1.0, 1.0, (0.0, 1.0))
    family.loglik(1.0, 1.0)
    for function in (family.mean, family.curvature, family.skewness):
        function(1.0)


def _batches(design: Design, surveyed: Survey) -> Iterator[tuple[Batch, int]]:
    """Raw batches, with the segment column, and the numbers of their first rows."""
    start = 0
    for batch in surveyed.source.batches(surveyed.columns.needed, rows=rows_for(design.dim)):
        yield batch, start
        start += batch.rows


def _curves(
    design: Design, surveyed: Survey, groups: Groups, family: Family, fitted: StreamedFit, prices: tuple[float, float]
) -> tuple[Curve, ...]:
    """Demand curves from some rows of the sample, over the range of prices."""
    if prices[0] == prices[1]:
        return ()
    batch = some_rows(surveyed, CUSTOMERS)
    rows = design.encode((batch, 0))
    index = groups.places(batch, rows, 0)
    names = groups.names if len(groups.names) > 1 else ()
    grid = np.linspace(*prices, GRID)
    return curves(names, family, fitted.theta, fitted.covariance, rows.z, rows.w, index, grid)


def _report(
    surveyed: Survey, fitted: StreamedFit, mask: npt.NDArray[np.bool_], groups: Groups, sums: SegmentSums,
    drawn: tuple[Curve, ...], held: HeldOut | None,
) -> Report:  # fmt: skip
    sensitivity, se = sums.sensitivity(fitted.covariance)
    return Report(
        coefficients=coefficients(surveyed.encoding.names, fitted.theta, fitted.covariance, mask),
        by=groups.by,
        everyone=sums.everyone(fitted.covariance),
        segments=sums.segments(fitted.covariance) if len(groups.names) > 1 else (),
        curves=drawn,
        held_out=held,
        sensitivity=sensitivity,
        sensitivity_se=se,
    )


def _findings(
    surveyed: Survey, design: Design, fitted: StreamedFit, family: Family, report: Report,
    prices: tuple[float, float], groups: Groups,
) -> Iterator[Finding]:  # fmt: skip
    """Everything there is to say, the most severe first."""
    price = surveyed.columns.price
    low, high = surveyed.price.low, surveyed.price.high
    listed = [*found.price_variation(price, low, high), *found.negative_prices(price, low)]
    if low < high:
        first, last = surveyed.price_quantiles([0.01, 0.99]).tolist()
        listed += found.odd_prices(price, low, high, first, last)
        sample, encoding = some_rows(surveyed, found.NEIGHBOURS), surveyed.encoding
        listed += found.price_from_features(price, encoding.encode(sample), sample.numbers(price), places(encoding))
    explained = any(finding.severity == "stop" for finding in listed)
    if fitted.separable:
        listed += found.separable(_culprits(surveyed, design, family))
    elif not explained:
        listed += found.not_identified(fitted.coefficients - fitted.rank, fitted.coefficients)
    if not explained:
        listed += found.demand_falls(report)
        listed += found.boundary(report, prices)
        listed += found.no_gain(report)
    listed += found.extrapolation(report, prices) if low < high else ()
    listed += found.few_rows(*_events(surveyed, family), coefficients=fitted.coefficients)
    listed += found.calibration(report)
    listed += found.notes(
        left_out=surveyed.left_out, rows=surveyed.records, constant=surveyed.constant,
        missing={f.name: f.missing for f in surveyed.encoding.features if f.missing},
        joined={
            f.name: f.counts[f.levels.index(OTHER_LEVEL)]
            for f in surveyed.encoding.features if isinstance(f, Category) and OTHER_LEVEL in f.levels
        },
    )  # fmt: skip
    yield from found.severest(listed)


def _events(surveyed: Survey, family: Family) -> tuple[float, str]:
    """What tells coefficients apart: the rarer outcome, units sold, or rows."""
    total = surveyed.outcomes.mean * surveyed.records
    if family.name == "logistic":
        rarer = min(total, surveyed.records - total)
        return rarer, f"rows with {surveyed.columns.outcome} = {int(rarer == total)}"
    return (total, "units sold") if family.name == "poisson" else (float(surveyed.records), "rows")


def _culprits(surveyed: Survey, design: Design, family: Family) -> list[str]:
    """Levels whose outcomes are all alike, and numbers that split buyers from others, in one more pass."""
    encoding, outcome = surveyed.encoding, surveyed.columns.outcome
    if surveyed.outcomes.low == surveyed.outcomes.high:
        return [f"{outcome}, which is {surveyed.outcomes.low:g} in every row"]
    categories = [f for f in encoding.features if isinstance(f, Category)]
    bought = {f.name: np.zeros((len(f.levels), 2)) for f in categories}
    numbers = [f.name for f in encoding.features if isinstance(f, Number)]
    ends = {name: (np.full(2, np.inf), np.full(2, -np.inf)) for name in (*numbers, design.price)}
    for item in _batches(design, surveyed):
        some, _ = design.choose(item)
        sold = some.numbers(outcome) > 0.0
        for f in categories:
            np.add.at(bought[f.name], (f.places(some), sold.astype(int)), 1.0)
        for name, (low, high) in ends.items():
            x = some.numbers(name)
            for side in (0, 1):
                part = x[(sold == side) & np.isfinite(x)]
                low[side], high[side] = part.min(initial=low[side]), part.max(initial=high[side])
    listed = [
        f"{f.name} = {level}, where every {outcome} is {'above 0' if counts[1] else '0'}"
        for f in categories for level, counts in zip(f.levels, bought[f.name], strict=True)
        if (counts[0] == 0.0 < counts[1] and family.name == "logistic") or counts[1] == 0.0 < counts[0]
    ]  # fmt: skip
    for name, (low, high) in ends.items():
        if high[0] <= low[1] or high[1] <= low[0]:
            cut = low[1] if high[0] <= low[1] else low[0]
            listed.append(f"{name}, which splits the outcomes at {cut:g}")
    return listed
