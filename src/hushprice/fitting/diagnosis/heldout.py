"""How well models predict held-out rows: log-likelihood, deviance explained, AUC and calibration.

The deviance of a model is twice the difference between the log-likelihood of a model that predicts every outcome
exactly and its own. The share explained is 1 - deviance / deviance of the mean of the training rows; R^2 for linear
demand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.demand import Family
from hushprice.fitting.diagnosis.report import HeldOut, Score, Tenth, utility
from hushprice.fitting.diagnosis.segments import quantile_edges
from hushprice.intervals import binomial, poisson, student

LEVEL = 0.95  # of intervals
MAX_STORED_ROWS = 2**20  # held-out rows stored for calibration and AUC; every second one is dropped when they exceed it
TENTHS = 10


class HeldOutSums:
    """Sums over training and held-out rows: log-likelihoods of two models and of the training mean alone.

    ``thetas`` are those of the models with and without the price, fitted to the training rows, and ``dispersions``
    their residual variances (1 unless demand is linear).
    """

    def __init__(self, family: Family, thetas: Sequence[Array], dispersions: Sequence[float]) -> None:
        self.family, self.thetas, self.dispersions = family.unit(), tuple(thetas), tuple(dispersions)
        self.train = np.zeros(4)  # rows, w, w y, w y^2
        self.test = np.zeros(5)  # rows, w, w y, w loglik(0, y), w loglik of an exact prediction
        self.logliks = np.zeros(len(self.thetas))
        self.stored: list[Array] = []  # blocks of (y, w, mean of each model)
        self.stride, self.rows = 1, 0

    def add(self, z: Array, price: Array, y: Array, w: Array, held: npt.NDArray[np.bool_]) -> None:
        """Add a block of rows; ``held`` marks the held-out ones."""
        family, training = self.family, ~held
        w_train, y_train = w[training], y[training]
        self.train += [training.sum(), w_train.sum(), _dot(w_train, y_train), _dot(w_train, y_train**2)]
        z, price, y, w = z[held], price[held], y[held], w[held]
        etas = []
        for theta in self.thetas:
            a, b = utility(z, theta)
            etas.append(a - price * b)
        fixed = (np.ones(len(y)), w, w * y, w * family.loglik(0.0, y), w * family.saturated(y))
        self.test += [column.sum() for column in fixed]
        self.logliks += [_dot(w, family.loglik(eta, y)) for eta in etas]
        self.stored.append(np.column_stack([y, w, *(family.mean(eta) for eta in etas)]))
        self.rows += len(y)

    def empty(self) -> HeldOutSums:
        """Sums for the same models over no rows."""
        return HeldOutSums(self.family, self.thetas, self.dispersions)

    def merge(self, other: HeldOutSums) -> None:
        """Add the sums over the rows that follow; every ``stride``-th of these rows is stored."""
        self.train += other.train
        self.test += other.test
        self.logliks += other.logliks
        for block in other.stored:
            self.stored.append(block[-self.rows % self.stride :: self.stride])
            self.rows += len(block)
        while sum(map(len, self.stored)) > MAX_STORED_ROWS:
            self.stored = [np.concatenate(self.stored)[::2]]
            self.stride *= 2

    def finish(self, names: Sequence[str]) -> HeldOut | None:
        """The scores of the models and of the mean alone, and the calibration of the first; None without rows."""
        rows, weight, total, at_zero, best = self.test.tolist()
        if not rows or not self.train[0] or not weight:
            return None
        family = self.family
        mean = self.train[2] / self.train[1]
        variance = max(self.train[3] / self.train[1] - mean * mean, 0.0) if family.estimates_scale else 1.0
        alone = family.constant_loglik(at_zero, weight, total, family.link(mean))
        logliks, dispersions = [*self.logliks.tolist(), alone], [*self.dispersions, variance]
        stored = np.concatenate(self.stored)
        y, w = stored[:, 0], stored[:, 1]
        areas = [auc(stored[:, 2 + k], y, w) for k in range(len(self.thetas))] if family.outcomes == "binary" else []
        areas += [0.5] if areas else [None] * len(logliks)
        scores = tuple(
            Score(
                model=name,
                loglik=_per_row(family, best - loglik, best, weight, dispersion),
                explained=1.0 - (best - loglik) / (best - alone) if best > alone else math.nan,
                auc=area,
            )
            for name, loglik, dispersion, area in zip(names, logliks, dispersions, areas, strict=True)
        )
        return HeldOut(
            rows=int(rows), trained_on=int(self.train[0]), scores=scores, calibration=tenths(family, stored[:, 2], y, w)
        )


def _dot(x: Array, y: Array) -> float:
    """x.y without BLAS, whose threads would compete with those of the pass."""
    return float(np.einsum("i,i", x, y))


def deviance_explained(family: Family, eta: Array, y: Array, w: Array) -> float:
    """1 - deviance / deviance of the mean of y; 1 or 0 when y does not vary."""
    unit = family.unit()
    best = w @ unit.saturated(y)
    short = best - w @ unit.loglik(eta, y)
    alone = best - w @ unit.loglik(unit.link(float(w @ y / w.sum())), y)
    return float(1.0 - short / alone) if alone > 0.0 else float(short <= 0.0)


def _per_row(family: Family, short: float, best: float, weight: float, dispersion: float) -> float:
    """Log-likelihood per row of a model that is ``short`` of the best one, at its own dispersion."""
    if not family.estimates_scale:
        return (best - short) / weight
    if dispersion <= 0.0:
        return math.nan
    return -short / dispersion / weight - 0.5 * math.log(2.0 * math.pi * dispersion)


def auc(score: Array, y: Array, w: Array) -> float | None:
    """Probability that a buyer has a higher score than one who did not buy; ties count half.

    >>> auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0.0, 0.0, 1.0, 1.0]), np.ones(4))
    0.75
    """
    order = np.argsort(score, kind="stable")
    score, y, w = score[order], y[order], w[order]
    first = np.flatnonzero(np.r_[True, score[1:] != score[:-1]]) if len(score) else np.zeros(0, dtype=np.intp)
    if not len(first):
        return None
    bought, passed = np.add.reduceat(w * y, first), np.add.reduceat(w * (1.0 - y), first)
    if bought.sum() <= 0.0 or passed.sum() <= 0.0:
        return None
    below = np.cumsum(passed) - 0.5 * passed
    return float(bought @ below / (bought.sum() * passed.sum()))


def tenths(family: Family, mean: Array, y: Array, w: Array) -> tuple[Tenth, ...]:
    """Rows in tenths of their predicted demand, as even as ties allow, with 95% intervals of the observed demand.

    The intervals are the exact binomial one, the exact Poisson one or Student's, at the effective number of rows
    (sum w)^2 / sum w^2.
    """
    if not len(mean):
        return ()
    part = np.searchsorted(quantile_edges(mean, TENTHS), mean, side="right")
    result = []
    for k in np.unique(part):
        of = part == k
        weight, rows = w[of].sum(), int(of.sum())
        count = weight**2 / (w[of] ** 2).sum()
        observed = float(w[of] @ y[of] / weight)
        variance = float(w[of] @ (y[of] - observed) ** 2 / weight)
        low, high = _interval(family, observed, variance, float(count))
        predicted = float(w[of] @ mean[of] / weight)
        result.append(Tenth(rows=rows, predicted=predicted, seen=observed, low=low, high=high))
    return tuple(result)


def _interval(family: Family, mean: float, variance: float, n: float) -> tuple[float, float]:
    tail = 0.5 * (1.0 - LEVEL)
    if family.outcomes == "binary":
        low, high = binomial(mean * n, n, tail)
        return float(low), float(high)
    if family.outcomes == "counts":
        low, high = poisson(mean * n, tail)
        return float(low) / n, float(high) / n
    if n <= 1.0:
        return math.nan, math.nan
    reach = student(n - 1.0, LEVEL) * math.sqrt(variance / (n - 1.0))
    return mean - reach, mean + reach
