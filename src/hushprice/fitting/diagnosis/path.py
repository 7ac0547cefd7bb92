"""The demand of ten consecutive parts of a log, smoothed: a random walk of what changed.

With S_s the score and H_s the information of part s at the fitted t, and phi = tr(H^-1 J) / m, the path t + D_s
minimises

    sum_s (D_s' H_s D_s / 2 - S_s' D_s) / phi + sum_s |gamma_{s+1} - gamma_s|^2_(Q^-1) / 2,
    D_s = c + E gamma_s,  gamma_1 = 0,

where E selects the coefficients that changed (:meth:`~.change.Course.moved`); the others are the same in all parts.
A step of the walk has variance q 10 phi (H^-1)_jj, q times that of the estimate from one part, and q maximises the
marginal likelihood over a grid; so does the choice between a step after every part and a jump, which has steps only
where the part with the most likely moment of the change begins and ends. If the test of constancy finds no change, all
parts have the fitted theta.

Where demand changed much, the scores at the fitted t say little of the demand of a part. If the rows before and after
the change can be fitted, S_s and H_s are therefore replaced: with t + o the fit of a side, S and H the sums at t + o
over the side's rows in the part, S_s is the sum of S + H o over both sides, and H_s that of H.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hushprice.arrays import Array
from hushprice.fitting.diagnosis.change import LOG_PARTS, Course
from hushprice.fitting.diagnosis.report import Index

WALKS = (0.0, *(10.0 ** (k / 4.0) for k in range(-12, 9)))  # values of q
MOST_MOVING = 20  # most coefficients that change


def smoothed(course: Course, *, changed: bool, moment: float = 0.5, sides: Sequence[Course] = ()) -> Array:
    """theta of each part, (10, 2 d); ``changed`` is whether the test of constancy found a change.

    ``moment`` is when, as a share of the course's rows, and ``sides`` are the courses of the rows before and after it,
    at theta of their own.
    """
    theta = course.scale.map @ course.start
    if not changed:
        return np.tile(theta, (LOG_PARTS, 1))
    moving = course.moved()[:MOST_MOVING]
    inverse, m = np.linalg.inv(course.information), len(course.start)
    phi = max(float(np.sum(inverse * course.outer)) / m, float(np.finfo(float).tiny))
    scores, parts = np.zeros((LOG_PARTS, m)), np.zeros((LOG_PARTS, m, m))
    for side in sides or (course,):
        scores += side.scores.reshape(LOG_PARTS, -1, m).sum(axis=1) + side.parts @ (side.start - course.start)
        parts += side.parts
    unit = np.sqrt(LOG_PARTS * phi * np.diag(inverse)[moving])
    shapes = np.ones(LOG_PARTS - 1), _jump(moment)
    steps = [_fit(parts / phi, scores / phi, moving, np.sqrt(q) * np.outer(s, unit)) for s in shapes for q in WALKS]
    best = max(steps, key=lambda step: step[0])[1]
    return np.asarray(theta + best @ course.scale.map.T)


def _jump(moment: float) -> Array:
    """1 for the steps into and out of the part of this moment, 0 for others; one step if it is between two parts."""
    away = np.abs(np.arange(1, LOG_PARTS) - moment * LOG_PARTS)
    return np.where(away < (0.5 if away.min() < 1e-9 else 1.0), 1.0, 0.0)


def _fit(parts: Array, scores: Array, moving: Index, size: Array) -> tuple[float, Array]:
    """Log of the marginal likelihood without constants, and D of each part, for steps of these deviations, (9, n)."""
    m, n = scores.shape[1], len(moving)
    width = m + (LOG_PARTS - 1) * n
    precision, pull = np.zeros((width, width)), np.zeros(width)
    precision[m:, m:] = np.eye(width - m)  # the walk in units of its steps
    maps = []
    for s in range(LOG_PARTS):
        into = np.zeros((m, width))
        into[:, :m] = np.eye(m)
        for r in range(s):
            into[moving, m + r * n + np.arange(n)] = size[r]
        precision += into.T @ parts[s] @ into
        pull += into.T @ scores[s]
        maps.append(into)
    x = np.linalg.solve(precision, pull)
    return float(0.5 * pull @ x - 0.5 * np.linalg.slogdet(precision)[1]), np.array([into @ x for into in maps])
