"""The result of an evaluation."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hushprice.evaluation.estimators import Estimate
from hushprice.files import without_nan
from hushprice.fitting.diagnosis.findings import Finding

DOUBLY_ROBUST = "doubly robust"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Estimates of the profit per customer, next to that of the logged prices.

    Attributes
    ----------
    target : str
        Name of the policy.
    logged : Estimate
        Profit of the logged prices.
    estimates : mapping of str to Estimate
        Estimates by name: kernel IPS, self-normalised and doubly robust.
    rows, used : int
        Rows of the log, and rows whose price was drawn with a known propensity, which the estimates use.
    left_out : mapping of str to int
        Number of other rows by reason.
    propensities : str
        Origin of the propensities.
    bandwidth : float
        Bandwidth h.
    sensitivity : mapping of float to estimates
        Estimates by bandwidth: h/2, h and 2h.
    mean_weight : float
        Mean weight; close to 1 if the propensities are right.
    findings : tuple of Finding
        Problems, the most severe first.
    """

    target: str
    logged: Estimate
    estimates: Mapping[str, Estimate]
    rows: int
    used: int
    left_out: Mapping[str, int]
    propensities: str
    bandwidth: float
    sensitivity: Mapping[float, Mapping[str, Estimate]]
    mean_weight: float
    findings: tuple[Finding, ...]

    @property
    def best(self) -> Estimate:
        """The doubly robust estimate."""
        return self.estimates[DOUBLY_ROBUST]

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as plain data."""
        return {
            "target": self.target,
            "logged": self.logged.to_dict(),
            "estimates": [estimate.to_dict() for estimate in self.estimates.values()],
            "rows": self.rows,
            "used": self.used,
            "left_out": dict(self.left_out),
            "propensities": self.propensities,
            "bandwidth": self.bandwidth,
            "sensitivity": [
                {"bandwidth": h, **estimate.to_dict()}
                for h, some in self.sensitivity.items()
                for estimate in some.values()
            ],
            "mean_weight": self.mean_weight,
            "findings": [asdict(finding) for finding in self.findings],
            "in_words": self.in_words(),
        }

    def to_json(self) -> str:
        """:meth:`to_dict` as text; a number that is not finite becomes null."""
        return json.dumps(without_nan(self.to_dict()), indent=2, allow_nan=False)

    def in_words(self) -> str:
        """The result in one or two sentences."""
        one = self.best
        less, more = one.difference_interval
        span = _span(one.interval, short)
        sentence = f"{self.target} would have earned {short(one.value)} per customer (95%: {span})"
        than = f"the logged prices earned {short(self.logged.value)}"
        size = sorted((abs(less), abs(more)))
        answer = f"That is {short(abs(one.difference))} {'more' if less > 0.0 else 'less'}"
        answer += f" ({short(size[0])} to {short(size[1])})."
        if less <= 0.0 <= more:
            answer = f"The log does not tell which is more: the difference of {short(one.difference)} could be "
            answer += f"{short(less)} to {short(more)}." if math.isfinite(less) else "anything."
        warned = any(finding.severity != "note" for finding in self.findings)
        return f"{sentence}; {than}. {answer}{' Mind the warnings.' if warned else ''}"

    def table(self) -> list[tuple[str, ...]]:
        """The table of estimates as text; its first row holds the headings."""
        rows: list[tuple[str, ...]] = [("", "estimate", "95% interval", "effective", "more than logged")]
        for one in (self.logged, *self.estimates.values()):
            more = "" if one is self.logged else _span(one.difference_interval, _digits)
            size = f"{one.effective:,.0f}"
            rows.append((one.name, _digits(one.value), _span(one.interval, _digits), size, more))
        return rows

    def __str__(self) -> str:
        rows = self.table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{self.target}, from {self.used:,} of {self.rows:,} rows ({self.propensities})"]
        for name, *cells in rows:
            padded = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
            lines.append("  ".join([name.ljust(widths[0]), *padded]).rstrip())
        paragraphs = [*(f"{finding.severity} {finding.text}" for finding in self.findings), self.in_words()]
        return "\n".join([*lines, *(textwrap.fill(text, 100) for text in paragraphs)])


def short(value: float) -> str:
    """A number with about four digits.

    >>> short(0.123456), short(12345.6), short(-3.14159)
    ('0.1235', '12,346', '-3.142')
    """
    if not math.isfinite(value):
        return "not known"
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.4g}"


def _digits(value: float) -> str:
    """Three digits, as tables are narrow."""
    if not math.isfinite(value):
        return "not known"
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:#.3g}".rstrip(".")


def _span(ends: tuple[float, float], write: Callable[[float], str]) -> str:
    return f"{write(ends[0])} to {write(ends[1])}" if all(map(math.isfinite, ends)) else "not known"
