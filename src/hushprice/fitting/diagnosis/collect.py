"""Collect the findings of a fit from its survey, its estimate and its report."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hushprice.demand import Family
from hushprice.fitting.diagnosis import findings
from hushprice.fitting.diagnosis.findings import Finding, Range, Severity
from hushprice.fitting.diagnosis.price_variation import NEIGHBOURS
from hushprice.fitting.diagnosis.report import Report
from hushprice.fitting.diagnosis.segments import some_rows
from hushprice.fitting.passes.design import Design
from hushprice.fitting.passes.stream import StreamedFit
from hushprice.fitting.passes.survey import Survey
from hushprice.fitting.reading.encoding import OTHER_LEVEL, Category, Number

MANY = 0.2  # share of rows left out above which the finding is a warning


def judge(
    surveyed: Survey, design: Design, fitted: StreamedFit, family: Family, report: Report, prices: Range,
    dispersion: float,
) -> list[Finding]:  # fmt: skip
    """All findings, the most severe first; ``dispersion`` is the residual dispersion of all rows."""
    facts, outcome = surveyed.outcomes, surveyed.columns.outcome
    listed = [*findings.outcome_variation(outcome, facts.low, facts.high), *_of_prices(surveyed, design)]
    explained = any(finding.severity == "stop" for finding in listed)
    if fitted.separable and facts.low < facts.high:
        listed += findings.separable(_culprits(surveyed, design, family))
    elif not explained:
        listed += findings.not_identified(
            fitted.coefficients - fitted.rank, fitted.coefficients, _unidentified(design, fitted)
        )
    everyone = report.everyone
    if not explained:
        listed += findings.demand_falls(report.sensitivity, report.sensitivity_se, everyone.rising)
        listed += findings.boundary(everyone.at_low, everyone.at_high, *prices, elasticity=everyone.elasticity)
        listed += findings.no_gain(report)
    if everyone.low < everyone.high:
        segments = {s.name: (prices, (s.low, s.high)) for s in report.segments}
        listed += findings.extrapolation(prices, (everyone.low, everyone.high), by=report.by, segments=segments)
    listed += findings.few_rows(*events(surveyed, family, fitted, report), coefficients=fitted.coefficients)
    listed += findings.calibration(report)
    if family.outcomes == "counts":
        listed += findings.overdispersed(dispersion, everyone.predicted, report.effective or everyone.rows)
    if facts.ends and not facts.binary:
        listed += findings.two_values(outcome, facts.low, facts.high, family.name)
    if report.constancy is not None and not explained:
        listed += findings.changed(report.constancy, design.discount)
    listed += _of_rows(surveyed)
    return findings.severest(listed)


def _of_prices(surveyed: Survey, design: Design) -> Iterator[Finding]:
    """Findings on the prices of a log."""
    price, low, high = surveyed.columns.price, surveyed.price.low, surveyed.price.high
    yield from findings.price_variation(price, low, high)
    yield from findings.negative_prices(price, low)
    if low < high:
        first, last = surveyed.price_quantiles([0.01, 0.99]).tolist()
        yield from findings.odd_prices(price, low, high, first, last)
        sample, encoding = some_rows(surveyed, NEIGHBOURS, design.discount), surveyed.encoding
        yield from findings.price_from_features(price, encoding.encode(sample), sample.numbers(price), encoding.places)


def _of_rows(surveyed: Survey) -> Iterator[Finding]:
    """Findings on weights, and on rows and columns that were left out, filled or joined."""
    features, rows = surveyed.encoding.features, surveyed.records
    yield from findings.weights(surveyed.weight, rows, counts=surveyed.counts)
    yield from findings.uneven_weights(surveyed.effective, rows)
    if excluded := sum(surveyed.left_out.values()):
        parts = ", ".join(f"{count:,} {reason}" for reason, count in surveyed.left_out.items())
        severity: Severity = "warning" if excluded > MANY * (rows + excluded) else "note"
        yield Finding("rows-left-out", severity, f"{excluded:,} of {rows + excluded:,} rows were left out: {parts}.")
    if surveyed.constant:
        names = ", ".join(surveyed.constant)
        yield Finding("constant-feature", "note", f"Left out, as they are the same in every row: {names}.")
    if missing := [f"{f.name} in {f.missing:,}" for f in features if f.missing]:
        yield Finding(
            "missing-values", "note",
            f"Missing values ({', '.join(missing)} rows) took the mean, with an indicator where 1% or more are "
            "missing; a missing category is a level of its own.",
        )  # fmt: skip
    rare = [f for f in features if isinstance(f, Category) and OTHER_LEVEL in f.levels]
    all_rare = [f"{name} (every level, so that it is left out)" for name in surveyed.rare]
    if joined := [f"{f.name} ({f.counts[f.levels.index(OTHER_LEVEL)]:,} rows)" for f in rare] + all_rare:
        yield Finding("joined-levels", "note", f"Rare levels were joined into '(other)': {', '.join(joined)}.")


def _unidentified(design: Design, fitted: StreamedFit) -> list[str]:
    """The entries of z whose coefficients the log does not identify."""
    unidentified = np.isinf(fitted.standard_errors)
    names = [n for j, n in enumerate(design.encoding.names) if unidentified[j] or unidentified[design.dim + j]]
    return ["the constant" if name == "1" else name for name in names]


def events(surveyed: Survey, family: Family, fitted: StreamedFit, report: Report) -> tuple[float, str]:
    """The events that determine the precision, with their name: the rarer outcome, units sold, or rows.

    With a half-life they are those of the effective rows.
    """
    rows, mean = float(surveyed.records), surveyed.outcomes.mean
    if report.effective is not None:
        rows, mean = min(rows, report.effective), report.everyone.demand
    total = mean * rows
    if family.outcomes == "binary":
        rarer = min(total, rows - total)
        return rarer, f"rows with {surveyed.columns.outcome} = {int(rarer == total)}"
    return (total, "units sold") if family.outcomes == "counts" else (rows, "rows")


def _culprits(surveyed: Survey, design: Design, family: Family) -> list[str]:
    """Levels with one outcome only, and numbers that separate buyers from others; takes one more pass."""
    encoding, outcome = surveyed.encoding, surveyed.columns.outcome
    categories = [f for f in encoding.features if isinstance(f, Category)]
    bought = {f.name: np.zeros((len(f.levels), 2)) for f in categories}
    numbers = [f.name for f in encoding.features if isinstance(f, Number)]
    ends = {name: (np.full(2, np.inf), np.full(2, -np.inf)) for name in (*numbers, design.price)}
    for item in design.numbered():
        some, _ = design.choose(item)
        sold = some.numbers(outcome) > 0.0
        for f in categories:
            np.add.at(bought[f.name], (f.places(some), sold.astype(int)), 1.0)
        for name, (low, high) in ends.items():
            x = some.numbers(name)
            for side in (0, 1):
                part = x[(sold == side) & np.isfinite(x)]
                low[side], high[side] = part.min(initial=low[side]), part.max(initial=high[side])
    culprits = [
        f"{f.name} = {level}, where every {outcome} is {'above 0' if counts[1] else '0'}"
        for f in categories for level, counts in zip(f.levels, bought[f.name], strict=True)
        if (counts[0] == 0.0 < counts[1] and family.outcomes == "binary") or counts[1] == 0.0 < counts[0]
    ]  # fmt: skip
    for name, (low, high) in ends.items():
        if high[0] <= low[1] or high[1] <= low[0]:
            cut = low[1] if high[0] <= low[1] else low[0]
            culprits.append(f"{name}, which splits the outcomes at {cut:g}")
    return culprits
