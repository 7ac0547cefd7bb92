"""Rules that report problems of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy
from scipy.special import chdtrc

from hushprice.arrays import Array
from hushprice.evaluation import propensity as likely
from hushprice.evaluation.customers import Contexts, Customers
from hushprice.evaluation.estimators import Scores, Weighed
from hushprice.evaluation.propensity import Propensities
from hushprice.evaluation.weights import Mask
from hushprice.fitting.diagnosis.findings import Finding
from hushprice.fitting.reading.source import Source

LOW_EFFECTIVE = 200.0
LOW_SHARE, PLENTY = 0.01, 2000.0  # warn of an effective size below this share of the rows, unless it exceeds PLENTY
DOUBT = 4.0  # standard errors
ALIKE = 1e-3  # p-value below which the excluded customers differ from those used
REACHED = 0.98  # share of the prices that could be drawn for a customer, from which all could be
UNSURE = 0.05  # standard error of this share above which it is unknown


def of_columns(source: Source, contexts: Contexts, cost: float | str, *, chosen: bool) -> Iterator[Finding]:
    """Note columns that could be used; ``chosen`` says whether features were named, even if none."""
    if not contexts.needed and not chosen:
        yield Finding(
            "no-features",
            "note",
            "No features are given, so the regression of the doubly robust estimate knows the price only. It is right "
            "all the same, but less precise than it could be.",
        )
    if "cost" in source.columns and cost == 0.0:
        yield Finding("cost-not-used", "note", "The column 'cost' of the log is not used: give cost='cost' for that.")


def of_rows(customers: Customers, drawn: Propensities) -> Iterator[Finding]:
    """Report rows that are left out."""
    reasons = (likely.CERTAIN, likely.NO_PROPENSITY, likely.OWN_LADDER)
    certain = sum(drawn.left_out.get(reason, 0) for reason in reasons)
    if certain:
        yield Finding(
            "not-random",
            "note",
            f"{certain:,} rows ({certain / len(customers.price):.0%}) are left out, as their price was not drawn at "
            "random, or not in a way that is known. The customers of the others are taken to be like them: that holds "
            "if who got a random price was not chosen by who they are.",
        )
    if alike(customers.z, drawn.used) < ALIKE:
        yield Finding(
            "others-left-out",
            "warning",
            f"Customers left out differ from those used, by their features (p-value below {ALIKE:g}). Estimates are "
            "of customers like those used; they do not hold for all customers, nor does the comparison with what all "
            "of them paid.",
        )
    small = drawn.left_out.get(likely.SMALL, 0)
    if small:
        least = likely.SMALLEST_STRATUM
        yield Finding("small-strata", "note", f"{small:,} rows are left out, in strata of fewer than {least} rows.")


def alike(z: Array, used: Mask) -> float:
    """The p-value of a test whether the customers used are a random part of all, by ranks of features, and squares.

    With D the difference of the means and S the covariance over everyone, a b / (a + b) D' S^-1 D has the mean rank(S)
    over random parts of a and b customers, and is close to chi-squared (Hotelling 1931). Columns whose kurtosis is
    above a tenth of the smaller part, as a rare category, are left out: their means are not close to normal.

    >>> z = np.random.default_rng(1).normal(size=(1000, 1))
    >>> bool(alike(z, z[:, 0] > 1.0) < 1e-9), bool(alike(z, np.arange(1000) < 300) > 0.01)
    (True, True)
    """
    a, b = int(used.sum()), int((~used).sum())
    rank = scipy.stats.rankdata(z[:, np.ptp(z, axis=0) > 0.0], axis=0) / (a + b) - 0.5
    x = np.hstack([rank, rank * rank])
    x -= x.mean(axis=0)
    fourth, second = np.mean(x**4, axis=0), np.mean(x * x, axis=0)
    x = x[:, fourth <= 0.1 * min(a, b) * second**2]
    if not x.shape[1] or not b:
        return 1.0
    scale, turn = np.linalg.eigh(x.T @ x / (a + b - 1))
    real = scale > 1e-9 * scale[-1]
    along = turn[:, real].T @ (x[used].mean(axis=0) - x[~used].mean(axis=0))
    return float(chdtrc(real.sum(), a * b / (a + b) * (np.square(along) / scale[real]).sum()))


def of_overlap(weighed: Weighed) -> Iterator[Finding]:
    """Warn of customers whose target price is outside the drawn prices, and of a small effective size."""
    used = int(weighed.used.sum())
    outside = used - int(weighed.part.sum())
    if outside:
        yield Finding(
            "no-overlap",
            "warning",
            f"For {outside:,} of {used:,} customers ({outside / used:.1%}) the target's price lies outside the prices "
            "that could have been drawn. Kernel IPS leaves them out and compares with what the others paid. The doubly "
            "robust estimate takes the model's word for them, which its interval does not account for.",
        )
    size = weighed.effective
    few = size < LOW_EFFECTIVE
    if few or size < min(LOW_SHARE * used, PLENTY):
        yield Finding(
            "low-effective",
            "warning",
            f"The effective sample size is {size:,.0f} of {used:,} rows: few customers were quoted prices near the "
            f"target's. {'Intervals may be too narrow; do not rely on them.' if few else 'Estimates are imprecise.'}",
        )


def of_supports(drawn: Propensities) -> Iterator[Finding]:
    """Warn if perhaps only a part of a range or ladder could be drawn for each customer, as with a largest step.

    The mean of 1 / propensity estimates the length of the range, or the number of prices, that could be drawn. The rule
    does not depend on the target. It does not apply to propensities estimated from the prices.
    """
    for support in drawn.supports if drawn.from_log else ():
        size = 1.0 / drawn.value[support.rows]  # 0 at prices cut off at an end
        mean, error = float(size.mean()) / support.size, float(size.std() / np.sqrt(len(size))) / support.size
        less = mean + DOUBT * error < REACHED
        if less or error > UNSURE:
            low, high = support.ends
            part = f"only {mean:.0%}" if less else "perhaps not all"
            yield Finding(
                "part-of-range",
                "warning",
                f"By the propensities, {part} of the prices from {low:g} to {high:g} could have been drawn for each "
                "customer, as with a largest step between quotes, or with prices that hardly ever come. Kernel IPS is "
                "too low then, and the others are right only if which part it was does not depend on the customer.",
            )
            return


def of_weights(weighed: Weighed) -> Iterator[Finding]:
    """Warn if the mean of the weights is not 1, as it is if the propensities are right."""
    weight = weighed.weight[weighed.part]
    mean, error = float(weight.mean()), float(weight.std() / np.sqrt(len(weight)))
    if abs(mean - 1.0) > DOUBT * error + 1e-3:
        yield Finding(
            "weights-off",
            "warning",
            f"Weights have a mean of {mean:.3f} (standard error {error:.3f}) instead of 1: the propensities are not "
            "those of the logged prices, or the target's could not have been drawn for every customer. Do not rely on "
            "kernel IPS.",
        )


def of_bandwidth(scores: Sequence[Scores], wider: Sequence[Scores], h: float) -> Iterator[Finding]:
    """Warn if an estimate changes significantly at twice the bandwidth, where its bias is four times as large."""
    for one, other in zip(scores, wider, strict=True):
        change = (other.score - one.score)[one.part]
        mean, error = float(change.mean()), float(change.std() / np.sqrt(len(change)))
        if abs(mean) > DOUBT * error > 0.0:
            yield Finding(
                "bandwidth",
                "warning",
                f"At twice the bandwidth the {one.name} estimate changes by {mean:.3g}, more than chance explains "
                f"(standard error {error:.2g}): demand bends near the target. Try a bandwidth below {h:.3g}.",
            )
