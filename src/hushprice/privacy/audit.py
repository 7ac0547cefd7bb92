"""An audit: try to break a mechanism's guarantee, and say how far one got.

For two inputs and an event E of reports, (epsilon, delta)-LDP means P(E | first) <= e^epsilon P(E | second) + delta. So
from n reports of each, with exact (Clopper-Pearson) bounds on both probabilities,

    epsilon >= log((P(E | first) at least - delta) / (P(E | second) at most))      with the stated confidence.

The attack knows the mechanism's worst event (``Mechanism.evidence``) and searches others: projections and lengths of
the decoded report, its raw numbers, and the low-order bits that floating point leaves behind. Each score is searched
for its best threshold on one half of the reports and certified on the other, so that the search costs no confidence;
the error rate is divided among all certified events. A certified epsilon above the claim proves a violation, up to that
error rate; one below it is what this attack could show, not a proof of privacy: that is for the tests of exactness.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from hushprice.errors import Array, finite, positive_int
from hushprice.privacy.entropy import Entropy
from hushprice.privacy.guarantee import Guarantee
from hushprice.privacy.mechanism import Mechanism, Rows

Progress = Callable[[int], None]
WORST = "the worst known event"
THRESHOLDS = 200  # events tried for each score


@dataclass(frozen=True)
class Finding:
    """What one event certifies."""

    inputs: str
    event: str
    epsilon: float
    often: float  # P(E | first), as counted
    rarely: float  # P(E | second)


@dataclass(frozen=True)
class Audit:
    """The outcome of an audit."""

    mechanism: str
    claimed: Guarantee
    samples: int  # reports of each input
    confidence: float
    findings: tuple[Finding, ...]  # the best event of each pair and score, strongest first

    @property
    def worst(self) -> Finding:
        """The event that certifies most."""
        return self.findings[0]

    @property
    def epsilon(self) -> float:
        """The certified lower bound on epsilon at the claimed delta."""
        return self.worst.epsilon

    @property
    def passed(self) -> bool:
        """Whether the claim survived."""
        return self.epsilon <= self.claimed.epsilon

    @property
    def verdict(self) -> str:
        """In words."""
        worst = self.worst
        shown = f"epsilon is at least {self.epsilon:.3f}"
        if self.passed:
            return f"holds: {shown}, {self.claimed.epsilon:.3f} is claimed"
        return (
            f"BROKEN: {shown}, {self.claimed.epsilon:.3f} is claimed ({worst.event}, {worst.inputs}: "
            f"{worst.often:.4f} against {worst.rarely:.4f})"
        )


def audit(
    mechanism: Mechanism,
    *,
    samples: int = 200_000,
    confidence: float = 0.999,
    rng: Entropy | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Attack a mechanism with ``samples`` reports of each of several pairs of inputs.

    >>> from hushprice.privacy import L2Ball, UnsafeSeed
    >>> result = audit(L2Ball(epsilon=1.0, clip=1.0, dim=2), samples=20_000, rng=UnsafeSeed(1))
    >>> result.passed, 0.8 < result.epsilon < 1.0
    (True, True)
    """
    samples = positive_int("samples", samples, minimum=100)
    confidence = finite("confidence", confidence, minimum=0.5, maximum=1.0 - 1e-12)
    claimed, pairs = mechanism.guarantee, mechanism.extremes()
    found: list[tuple[str, str, Array, Array]] = []
    for inputs, first, second in pairs:
        reports = (mechanism.privatize_many(_repeated(mechanism, g, samples), rng) for g in (first, second))
        one, other = (_scores(mechanism, rows, first, second) for rows in reports)
        found += [(inputs, event, one[event], other[event]) for event in one]
        if progress is not None:
            progress(1)
    # Half of the error rate goes to the worst known events, half to all others; each is certified in both directions.
    known = sum(event == WORST for _, event, _, _ in found)
    findings = []
    for inputs, event, a, b in found:
        error = (1.0 - confidence) / (4 * (known if event == WORST else len(found) - known))
        both = (_certify(inputs, event, *order, claimed.delta, error) for order in ((a, b), (b, a)))
        findings.append(max(both, key=lambda finding: finding.epsilon))
    findings.sort(key=lambda finding: -finding.epsilon)
    return Audit(mechanism.name, claimed, samples, confidence, tuple(findings))


def _repeated(mechanism: Mechanism, g: Array, n: int) -> Array:
    return np.tile(g, (n, 1)) if mechanism.kind != "bit" else np.full(n, g[0])


def _scores(mechanism: Mechanism, rows: Rows, first: Array, second: Array) -> dict[str, Array]:
    """Statistics of reports whose tails are tried as events."""
    decoded = mechanism.decode_rows(rows)
    scores = {
        WORST: mechanism.evidence(rows, first, second),
        "the decoded report along the difference": decoded @ (first - second),
        "the length of the decoded report": np.linalg.norm(decoded, axis=1),
    }
    for i in range(min(mechanism.width, 3)):
        scores[f"number {i + 1} of the report"] = rows[:, i].astype(np.float64)
        scores[f"low-order bits of number {i + 1}"] = low_bits(rows[:, i])
    for i in range(min(mechanism.dim, 3)):
        scores[f"low-order bits of decoded value {i + 1}"] = low_bits(decoded[:, i])
    return scores


def low_bits(values: Array | Rows) -> Array:
    """The power of two of the lowest set bit of each number.

    A sum in floating point is a multiple of the last place of its largest term, so that its low-order bits tell how
    large that term was (Mironov 2012).

    >>> low_bits(np.array([1.0, 0.75, 40.0]))
    array([ 0., -2.,  3.])
    """
    if values.dtype == np.int64:
        whole = values.astype(np.int64)
        lowest = (whole & -whole).astype(np.uint64).astype(np.float64)
        return np.where(whole == 0, 64.0, np.log2(np.maximum(lowest, 1.0)))
    fraction, exponent = np.frexp(values)
    scaled = np.abs(np.ldexp(fraction, 53)).astype(np.int64)
    lowest = (scaled & -scaled).astype(np.float64)
    return np.where(scaled == 0, 2000.0, np.log2(np.maximum(lowest, 1.0)) + exponent - 53)


def _certify(inputs: str, event: str, first: Array, second: Array, delta: float, error: float) -> Finding:
    """Search one half for the event {score >= t} or {score <= t} that shows most, certify it on the other half."""
    half = len(first) // 2
    best, chosen = -math.inf, (1.0, -math.inf)
    for sign in (1.0, -1.0):
        a, b = np.sort(sign * first[:half]), np.sort(sign * second[:half])
        for t in _thresholds(a, b):
            often, rarely = half - np.searchsorted(a, t), half - np.searchsorted(b, t)
            shown = _bound(int(often), int(rarely), half, delta, error)
            if shown > best:
                best, chosen = shown, (sign, float(t))
    sign, t = chosen
    rest = len(first) - half
    often, rarely = (int(np.count_nonzero(sign * scores[half:] >= t)) for scores in (first, second))
    name = f"{event} {'at least' if sign > 0 else 'at most'} {sign * t:.4g}"
    return Finding(inputs, name, _bound(often, rarely, rest, delta, error), often / rest, rarely / rest)


def _thresholds(a: Array, b: Array) -> Array:
    """Candidate thresholds: quantiles of both samples, tightly packed in the upper tail."""
    half = THRESHOLDS // 2
    levels = np.concatenate([np.linspace(0.0, 0.99, half), 1.0 - np.geomspace(0.01, 1e-5, half)])
    return np.unique(np.concatenate([np.quantile(s, levels, method="nearest") for s in (a, b)]))


def _bound(often: int, rarely: int, n: int, delta: float, error: float) -> float:
    """The certified epsilon from counts of n reports each; half of the error goes to each probability."""
    low = 0.0 if often == 0 else float(betaincinv(often, n - often + 1, 0.5 * error))
    high = 1.0 if rarely == n else float(betaincinv(rarely + 1, n - rarely, 1.0 - 0.5 * error))
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0
