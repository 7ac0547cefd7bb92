"""Fit a demand model to a log: survey, estimates, one pass of diagnostics, findings.

survey          one pass: encoding, ranges, what is missing, a sample
all             theta and its covariance on all rows, started from the sample: three passes or so
train           theta and theta without price, on four of five rows, for the held-out figures: two passes or so each
diagnostics     one pass: segments on all rows, scores and calibration on the rows held out, changes over time
sides           if demand changed: theta of the rows before and after, three passes or so each, and one
                more for the smoothed path

With a half-life rows count less with age, in all of these but the survey, and each fit takes one pass more, for its
covariance. Rows are taken to be in order of time, oldest first.

A pass holds a few batches and sums, so memory does not grow with the rows of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.demand import Family, as_family
from hushprice.errors import HushpriceError, InvalidInput, finite, price_range, unknown
from hushprice.fitting.diagnosis.change import ChangeSums, Course, Window, constancy, refitted
from hushprice.fitting.diagnosis.collect import events, judge
from hushprice.fitting.diagnosis.findings import CHANGE_LEVEL, ROWS_PER_COEFFICIENT, Finding
from hushprice.fitting.diagnosis.heldout import HeldOutSums
from hushprice.fitting.diagnosis.path import smoothed
from hushprice.fitting.diagnosis.report import Curve, HeldOut, Report, SegmentSums, coefficients, curves, spread
from hushprice.fitting.diagnosis.segments import Groups, some_rows
from hushprice.fitting.passes.design import Design, held_out
from hushprice.fitting.passes.stream import StreamedFit, stream_fit
from hushprice.fitting.passes.survey import OnProgress, Survey, survey
from hushprice.fitting.reading.encoding import Encoding
from hushprice.fitting.reading.ordered_map import in_order
from hushprice.fitting.reading.source import Batch, Log, Source, require_order

MODELS = ("with price", "without price", "mean alone")
SHORTEST = 100  # rows of a log below which a change is not looked for
CURVE_CUSTOMERS, CURVE_PRICES = 10_000, 25  # customers of the sample, and prices, of a demand curve


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
    half_life: float | None = None

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
        if self.half_life is not None:
            object.__setattr__(self, "half_life", finite("half_life", self.half_life, minimum=0.0, strict=True))
        if not isinstance(self.sensitivity, str):
            object.__setattr__(self, "sensitivity", tuple(map(str, self.sensitivity)))
        elif self.sensitivity not in ("all", "none"):
            raise InvalidInput(f"sensitivity must be 'all', 'none' or a list of features, got {self.sensitivity!r}.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned:
    """A fitted model as plain fields.

    ``seen`` is the range of the logged prices, ``path`` (10, 2 d) theta of consecutive parts of the log.
    """

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
    half_life: float | None = None
    path: Array | None = None
    findings: list[Finding] = field(default_factory=list)


def learn(log: Log, task: Task, *, progress: OnProgress | None = None) -> Learned:
    """Fit a demand model to a log."""
    surveyed = _survey(log, task, progress)
    family = _family(task.family, surveyed)
    mask = _sensitive(task.sensitivity, surveyed)
    design = Design.of(surveyed, sensitive=mask, half_life=task.half_life)
    fitted = stream_fit(design, family, ridge=task.ridge, progress=progress)
    first, plain = _train(design, family, task.ridge, fitted, progress)
    if family.estimates_scale:
        family = family.with_scale(_sigma(fitted.dispersion, surveyed))
    covariance = 0.5 * (fitted.covariance + fitted.covariance.T)  # symmetric to the last bit, as in the model file
    seen = (surveyed.price.low, surveyed.price.high)
    prices = task.prices or (max(seen[0], 0.0), max(seen[1], 0.0))
    groups = Groups.of(surveyed, fitted.theta, design.discount)
    sums = SegmentSums(groups.names, family, fitted.theta, prices)
    scores = HeldOutSums(family, [f.theta for f in (first, plain) if f], [f.dispersion for f in (first, plain) if f])
    changes = _changes(design, family, fitted, surveyed)
    _diagnose(design, groups, sums, scores if first else None, changes, progress)
    demand_curves = _curves(design, surveyed, groups, family, fitted, prices)
    report = _report(surveyed, fitted, mask, groups, sums, demand_curves, scores.finish(MODELS) if first else None)
    path = None
    if task.half_life is not None:
        report = replace(report, effective=fitted.effective)
    course = None if changes is None else changes.finish()
    enough = events(surveyed, family, fitted, report)[0] >= ROWS_PER_COEFFICIENT * fitted.coefficients
    if changes is not None and course is not None and enough:
        mean = sums.mean_z / sums.sums[:, 1].sum()
        tested = constancy(course, surveyed.encoding.names, family, mean, changes.window, design.centre, prices)
        sides, courses = None, []
        if tested.p_value < CHANGE_LEVEL:
            sides = _either_side(design, family, fitted, tested.row, mean, progress)
        if sides is not None:
            tested = refitted(tested, [theta for _, theta in sides], family, mean, prices)
            courses = [_course(side, family, theta, changes.window) for side, theta in sides]
        report = replace(report, constancy=tested)
        known = [own for own in courses if own is not None]
        path = smoothed(
            course,
            changed=tested.p_value < CHANGE_LEVEL,
            moment=(tested.row - tested.first) / changes.window.rows,
            sides=known if len(known) == 2 else (),
        )
    return Learned(
        family=family, encoding=surveyed.encoding, theta=fitted.theta, covariance=covariance, sensitive=mask,
        prices=prices, seen=seen, features=surveyed.columns.features, segment=groups.column, records=fitted.records,
        weight=fitted.weight, ridge=fitted.ridge, report=report, half_life=task.half_life, path=path,
        findings=judge(surveyed, design, fitted, family, report, prices, sums.dispersion()),
    )  # fmt: skip


def _changes(design: Design, family: Family, fitted: StreamedFit, surveyed: Survey) -> ChangeSums | None:
    """Sums for the test that demand did not change; None if the log does not identify the fit or is too short."""
    window = Window.of(
        surveyed.rows, fitted.coefficients, None if design.discount is None else design.discount.half_life
    )
    if fitted.separable or fitted.rank < fitted.coefficients or window.rows < SHORTEST:
        return None
    return ChangeSums.of(design, family, fitted.theta, window)


def _either_side(
    design: Design, family: Family, fitted: StreamedFit, row: int, mean: Array, progress: OnProgress | None
) -> list[tuple[Design, Array]] | None:
    """The rows before and from ``row`` on, undiscounted, with their theta; None if a side does not identify it.

    A side whose prices hardly vary does not tell the price sensitivity of the average customer, of context ``mean``:
    its standard error is larger than the sensitivity of all rows.
    """
    sides, average = [], np.concatenate([np.zeros(design.dim), mean])
    for span in ((0, row), (row, int(np.iinfo(np.int64).max))):
        side = replace(design, discount=None, span=span)
        try:
            own = stream_fit(side, family, ridge=fitted.ridge, start=fitted.theta, progress=progress)
        except HushpriceError:  # no complete rows, or no convergence
            return None
        few = own.records < ROWS_PER_COEFFICIENT * own.coefficients
        if few or own.rank < own.coefficients or own.ridge != fitted.ridge:
            return None
        if spread(average, own.covariance) > abs(float(average @ fitted.theta)):
            return None
        sides.append((side, own.theta))
    return sides


def _course(design: Design, family: Family, theta: Array, window: Window) -> Course | None:
    """Scores and informations of the design's rows at theta."""
    changes = ChangeSums.of(design, family, theta, window)

    def batch_sums(item: tuple[Batch, int]) -> ChangeSums:
        part = changes.empty()
        part.add(design.encode(item))
        return part

    for part in in_order(batch_sums, design.numbered()):
        changes.merge(part)
    return changes.finish()


def _survey(log: Log, task: Task, progress: OnProgress | None) -> Survey:
    source = Source.open(log)
    if task.half_life is not None:
        require_order(source)
    features = task.features
    if features is None:
        features = tuple(c for c in source.columns if c not in (task.price, task.outcome, task.weights))
    return survey(
        source, price=task.price, outcome=task.outcome, features=features, weights=task.weights,
        categories=task.categories, segment=task.segment, progress=progress,
    )  # fmt: skip


def _family(family: Family | str, surveyed: Survey) -> Family:
    """The chosen family; for "auto", the one that suits the outcomes."""
    facts = surveyed.outcomes
    chosen = facts.family if family == "auto" else as_family(family)
    if not {"binary": facts.binary, "counts": facts.whole, "real": True}[chosen.outcomes]:
        domain = "0 or 1" if chosen.outcomes == "binary" else "whole numbers of at least 0"
        raise InvalidInput(
            f"{chosen.name} demand must be {domain}, but {surveyed.columns.outcome} goes from {facts.low:g} to "
            f"{facts.high:g} with other values. Take another family, or 'auto'."
        )
    return chosen


def _sigma(dispersion: float, surveyed: Survey) -> float:
    """The noise of linear demand, no less than the rounding of the outcomes."""
    size = max(abs(surveyed.outcomes.low), abs(surveyed.outcomes.high)) or 1.0
    return max(float(np.sqrt(dispersion)), float(np.finfo(float).eps) * size)


def _sensitive(sensitivity: str | Sequence[str], surveyed: Survey) -> npt.NDArray[np.bool_]:
    """Mask of the entries of z that the price sensitivity depends on; the constant is always among them."""
    columns = surveyed.columns.features
    chosen = {"all": columns, "none": ()}[sensitivity] if isinstance(sensitivity, str) else sensitivity
    for name in chosen:
        if name not in columns:
            raise unknown("feature", name, columns)
    parts = [[name in chosen] * len(names) for name, names in surveyed.encoding.places.items()]
    return np.array([True, *(value for part in parts for value in part)])


def _train(
    design: Design, family: Family, ridge: float, fitted: StreamedFit, progress: OnProgress | None
) -> tuple[StreamedFit | None, StreamedFit | None]:
    """Fits on four of five rows, with and without the price; None if there are too few rows to hold some out.

    Rows that are separable without the price are separable with it, so the second fit skips the check if the first
    fit is not separable. The last step of the second fit changes the log-likelihood per row by less than 1e-8
    (t standard errors change it by t^2 / 2 over all rows), which is enough for scores.
    """
    if fitted.records < 5 * fitted.coefficients + 20:
        return None, None
    part = replace(design, part="train")
    first = stream_fit(part, family, ridge=ridge, start=fitted.theta, tolerance=0.01, progress=progress)
    without = replace(part, sensitive=np.zeros(design.dim, dtype=np.bool_))
    tolerance, overlapping = 1e-4 * float(np.sqrt(first.records)), not first.separable
    return first, stream_fit(
        without, family, ridge=ridge, tolerance=tolerance, overlapping=overlapping, progress=progress
    )


def _diagnose(
    design: Design, groups: Groups, sums: SegmentSums, scores: HeldOutSums | None, changes: ChangeSums | None,
    progress: OnProgress | None,
) -> None:  # fmt: skip
    """The last pass: segments of all rows, scores of the held-out rows, changes. Threads work on the batches."""

    def batch_sums(item: tuple[Batch, int]) -> tuple[SegmentSums, HeldOutSums | None, ChangeSums | None, int]:
        batch, start = item
        rows = design.encode(item)
        segment_part, score_part = sums.empty(), scores.empty() if scores is not None else None
        change_part = changes.empty() if changes is not None else None
        if rows.y.size:
            segment_part.add(rows.z, rows.price, rows.y, rows.w, groups.places(batch, rows, start))
            if score_part is not None:
                score_part.add(rows.z, rows.price, rows.y, rows.w, held_out(rows.number))
            if change_part is not None:
                change_part.add(rows)
        return segment_part, score_part, change_part, batch.rows

    _compile(sums.family)
    read = 0
    for segment_part, score_part, change_part, count in in_order(batch_sums, design.numbered(groups.column)):
        sums.merge(segment_part)
        if scores is not None and score_part is not None:
            scores.merge(score_part)
        if changes is not None and change_part is not None:
            changes.merge(change_part)
        read += count
        if progress is not None:
            progress("diagnostics", read)


def _compile(family: Family) -> None:
    """Compile Numba's ufuncs in one thread: their first call compiles them, and two threads must not do so at once."""
    family.optimal_price(1.0, 1.0, (0.0, 1.0))
    family.loglik(1.0, 1.0)
    for function in (family.mean, family.curvature, family.skewness):
        function(1.0)


def _curves(
    design: Design, surveyed: Survey, groups: Groups, family: Family, fitted: StreamedFit, prices: tuple[float, float]
) -> tuple[Curve, ...]:
    """Demand curves from some rows of the sample, over the range of prices."""
    if prices[0] == prices[1]:
        return ()
    batch = some_rows(surveyed, CURVE_CUSTOMERS, design.discount)
    design = replace(design, discount=None)  # the rows are drawn by it
    rows = design.encode((batch, 0))
    index = groups.places(batch, rows, 0)
    names = groups.names if len(groups.names) > 1 else ()
    grid = np.linspace(*prices, CURVE_PRICES)
    return curves(names, family, fitted.theta, fitted.covariance, rows.z, rows.w, index, grid)


def _report(
    surveyed: Survey, fitted: StreamedFit, mask: npt.NDArray[np.bool_], groups: Groups, sums: SegmentSums,
    demand_curves: tuple[Curve, ...], held: HeldOut | None,
) -> Report:  # fmt: skip
    sensitivity, se = sums.sensitivity(fitted.covariance)
    return Report(
        coefficients=coefficients(surveyed.encoding.names, fitted.theta, fitted.covariance, mask),
        by=groups.by,
        everyone=sums.everyone(fitted.covariance),
        segments=sums.segments(fitted.covariance) if len(groups.names) > 1 else (),
        curves=demand_curves,
        held_out=held,
        sensitivity=sensitivity,
        sensitivity_se=se,
    )
