"""An audit: attack a mechanism's guarantee and certify a lower bound on its epsilon.

For two inputs and an event E of reports, (epsilon, delta)-LDP means P(E | first) <= e^epsilon P(E | second) + delta. So
from n reports of each input, with an exact (Clopper-Pearson) lower bound L on P(E | first) and upper bound U on
P(E | second),

    epsilon >= log((L - delta) / U)      with the stated confidence.

The attack tries the mechanism's worst known event (``Mechanism.evidence``) and searches two families of other events:

- tails of the decoded report: along the difference of the inputs, its length, each value and its low-order bits;
- the report as sent: each number, each of its bits, and the most frequent reports. Of a long report, only the first and
  last numbers are searched.

One half of the reports selects the strongest event of each family; the other half certifies it, so the search costs no
confidence. The error rate is divided among the certified events.

A certified epsilon above the claim proves a violation, up to that error rate. A certified epsilon below the claim is
only what this attack achieved, not a proof of privacy; the proof is the counting argument that the tests check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, finite, positive_int
from hushprice.intervals import binomial
from hushprice.privacy.entropy import Entropy
from hushprice.privacy.guarantee import Guarantee
from hushprice.privacy.mechanism import Mechanism
from hushprice.privacy.wire import Rows

OnProgress = Callable[[int], None]
MAX_SEARCHED_NUMBERS = 32  # of one report
Bits = npt.NDArray[np.bool_]
THRESHOLDS = 200  # candidate thresholds per score


@dataclass(frozen=True)
class Finding:
    """The lower bound on epsilon that one event certifies.

    Attributes
    ----------
    inputs : str
        The pair of inputs, in words.
    event : str
        The event E, in words.
    epsilon : float
        The certified lower bound.
    often, rarely : float
        Relative frequency of E under the first and under the second input.
    """

    inputs: str
    event: str
    epsilon: float
    often: float
    rarely: float


@dataclass(frozen=True)
class Audit:
    """The outcome of an audit.

    Attributes
    ----------
    mechanism : str
        Name of the mechanism.
    claimed : Guarantee
        The guarantee that the mechanism states.
    samples : int
        Reports drawn per input.
    confidence : float
        Confidence of all certified bounds together.
    findings : tuple of Finding
        The best event per family, pair and direction, strongest first.
    """

    mechanism: str
    claimed: Guarantee
    samples: int
    confidence: float
    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Finding:
        """The event that certifies the largest epsilon."""
        return self.findings[0]

    @property
    def epsilon(self) -> float:
        """The certified lower bound on epsilon at the claimed delta."""
        return self.worst.epsilon

    @property
    def passed(self) -> bool:
        """Whether the audit is consistent with the claim."""
        return self.epsilon <= self.claimed.epsilon

    def __str__(self) -> str:
        return f"{self.mechanism}: {self.verdict}"

    @property
    def verdict(self) -> str:
        """The outcome as one line of text."""
        worst = self.worst
        bound = f"epsilon is at least {self.epsilon:.3f}"
        if self.passed:
            return f"holds: {bound}, {self.claimed.epsilon:.3f} is claimed"
        return (
            f"BROKEN: {bound}, {self.claimed.epsilon:.3f} is claimed ({worst.event}, {worst.inputs}: "
            f"{worst.often:.4f} against {worst.rarely:.4f})"
        )


def audit(
    mechanism: Mechanism,
    *,
    samples: int = 200_000,
    confidence: float = 0.999,
    rng: Entropy | None = None,
    progress: OnProgress | None = None,
) -> Audit:
    """Attack a mechanism.

    Parameters
    ----------
    mechanism : Mechanism
        For example ``policy.mechanism``.
    samples : int
        Reports drawn per input of each pair in ``mechanism.extremes()``.
    confidence : float
        Probability that all certified bounds hold.
    rng : Entropy, optional
        Source of randomness. Default: the operating system.
    progress : callable, optional
        Called with 1 after each pair of inputs.

    Returns
    -------
    Audit

    Examples
    --------
    >>> from hushprice.privacy import L2Ball, UnsafeSeed
    >>> result = audit(L2Ball(epsilon=1.0, clip=1.0, dim=2), samples=20_000, rng=UnsafeSeed(1))
    >>> result.passed, 0.8 < result.epsilon < 1.0
    (True, True)
    """
    if not isinstance(mechanism, Mechanism):
        raise InvalidInput(f"An audit takes a mechanism, such as policy.mechanism, not {type(mechanism).__name__}.")
    samples = positive_int("samples", samples, minimum=100)
    confidence = finite("confidence", confidence, minimum=0.5, maximum=1.0 - 1e-12)
    claimed, pairs = mechanism.guarantee, mechanism.extremes()
    # Half of the error rate goes to the worst known events, half to all others; each is certified in both directions.
    error = (1.0 - confidence) / (4 * len(pairs))
    half, findings = samples // 2, []
    for inputs, first, second in pairs:
        search, test = [], []
        for g in (first, second):
            rows = mechanism.check_rows(mechanism.privatize_many(np.tile(g, (samples, 1)), rng))
            search.append(_Sample(mechanism, rows[:half], first, second))
            test.append(_Sample(mechanism, rows[half:], first, second))
        for one, other in ((0, 1), (1, 0)):
            for family, share in ((_worst_known, error), (_decoded, 0.5 * error), (_sent, 0.5 * error)):
                event = max(family(search[one], search[other], claimed.delta, share), key=lambda event: event.bound)
                often, rarely = (np.count_nonzero(event.contains(test[k])) for k in (one, other))
                n = samples - half
                epsilon = float(_bound(often, rarely, n, claimed.delta, share))
                findings.append(Finding(inputs, event.name, epsilon, often / n, rarely / n))
        if progress is not None:
            progress(1)
    findings.sort(key=lambda finding: -finding.epsilon)
    return Audit(mechanism.name, claimed, samples, confidence, tuple(findings))


class _Sample:
    """Reports of one input, and the statistics that the search computes from them."""

    def __init__(self, mechanism: Mechanism, rows: Rows, first: Array, second: Array) -> None:
        self.mechanism, self.rows, self.first, self.second = mechanism, rows, first, second

    @cached_property
    def decoded(self) -> Array:
        return self.mechanism.decode_rows(self.rows)

    @cached_property
    def evidence(self) -> Array:
        return self.mechanism.evidence(self.rows, self.first, self.second)

    def along(self) -> Array:
        """The decoded reports along the difference of the inputs."""
        along: Array = self.decoded @ (self.first - self.second)
        return along

    def length(self) -> Array:
        """The lengths of the decoded reports."""
        return np.asarray(np.linalg.norm(self.decoded, axis=1))


@dataclass(frozen=True)
class _Event:
    """A set of reports: its indicator function, and the bound on epsilon that the search sample gives."""

    name: str
    contains: Callable[[_Sample], Bits]
    bound: float


Score = Callable[[_Sample], Array]
Family = Callable[[_Sample, _Sample, float, float], Iterator[_Event]]


def _worst_known(one: _Sample, other: _Sample, delta: float, error: float) -> Iterator[_Event]:
    """Tails of the score of the worst known event."""
    yield from _tails("the worst known event", lambda s: s.evidence, one, other, delta, error)


def _decoded(one: _Sample, other: _Sample, delta: float, error: float) -> Iterator[_Event]:
    """Tails of statistics of the decoded report."""
    scores: dict[str, Score] = {
        "the decoded report along the difference": _Sample.along,
        "the length of the decoded report": _Sample.length,
    }
    for i in _ends(one.mechanism.dim):
        scores[f"decoded value {i + 1}"] = partial(_value, i)
        scores[f"low-order bits of decoded value {i + 1}"] = partial(_low_bits_of_value, i)
    for name, score in scores.items():
        yield from _tails(name, score, one, other, delta, error)


def _sent(one: _Sample, other: _Sample, delta: float, error: float) -> Iterator[_Event]:
    """Events of the numbers as sent: tails, bits, and the most frequent reports."""
    events: dict[str, Callable[[_Sample], Bits]] = {}
    for i in _ends(one.mechanism.width):
        yield from _tails(f"number {i + 1} of the report", partial(_number, i), one, other, delta, error)
        for bit in range(64):
            events[f"bit {bit} of number {i + 1} is 1"] = partial(_has_bit, i, bit, 1)
            events[f"bit {bit} of number {i + 1} is 0"] = partial(_has_bit, i, bit, 0)
    common, counts = np.unique(one.rows, axis=0, return_counts=True)
    for row in common[np.argsort(-counts)[:20]]:
        events[f"the report {row.tolist()[:4]}"] = partial(_is, row)
    for name, contains in events.items():
        often, rarely = (np.count_nonzero(contains(s)) for s in (one, other))
        yield _Event(name, contains, float(_bound(often, rarely, len(one.rows), delta, error)))


def _value(i: int, sample: _Sample) -> Array:
    return sample.decoded[:, i]


def _low_bits_of_value(i: int, sample: _Sample) -> Array:
    return low_bits(sample.decoded[:, i])


def _number(i: int, sample: _Sample) -> Array:
    return sample.rows[:, i].astype(np.float64)


def _has_bit(i: int, bit: int, value: int, sample: _Sample) -> Bits:
    return np.asarray(((sample.rows[:, i] >> bit) & 1) == value)


def _is(row: Rows, sample: _Sample) -> Bits:
    return np.asarray((sample.rows == row).all(axis=1))


def _reaches(score: Score, sign: float, t: float, sample: _Sample) -> Bits:
    return np.asarray(sign * score(sample) >= t)


def _ends(n: int) -> list[int]:
    """The indices 0 .. n - 1, or of many the first and the last ones."""
    half = MAX_SEARCHED_NUMBERS // 2
    return list(range(n)) if n <= MAX_SEARCHED_NUMBERS else [*range(half), *range(n - half, n)]


def _tails(name: str, score: Score, one: _Sample, other: _Sample, delta: float, error: float) -> Iterator[_Event]:
    """{score >= t} and {score <= t}, each for the t with the largest bound."""
    for sign, word in ((1.0, "at least"), (-1.0, "at most")):
        a, b = np.sort(sign * score(one)), np.sort(sign * score(other))
        t = _thresholds(a, b)
        bounds = _bound(len(a) - np.searchsorted(a, t), len(b) - np.searchsorted(b, t), len(a), delta, error)
        k = int(np.argmax(bounds))
        yield _Event(f"{name} {word} {sign * t[k]:.4g}", partial(_reaches, score, sign, t[k]), float(bounds[k]))


def low_bits(values: Array | Rows) -> Array:
    """Return the exponent of the lowest set bit of each number.

    A floating-point sum is a multiple of the last place of its largest term, so its low-order bits reveal how large
    that term was (Mironov 2012).

    Examples
    --------
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


def _thresholds(a: Array, b: Array) -> Array:
    """Candidate thresholds: quantiles of both samples, tightly packed in the upper tail."""
    half = THRESHOLDS // 2
    levels = np.concatenate([np.linspace(0.0, 0.99, half), 1.0 - np.geomspace(0.01, 1e-5, half)])
    return np.unique(np.concatenate([np.quantile(s, levels, method="nearest") for s in (a, b)]))


def _bound(often: Any, rarely: Any, n: int, delta: float, error: float) -> Array:
    """The lower bound on epsilon from counts of n reports each; half of the error goes to each probability."""
    low, _ = binomial(often, n, 0.5 * error)
    _, high = binomial(rarely, n, 0.5 * error)
    return np.asarray(np.log(np.maximum(low - delta, high) / high))
