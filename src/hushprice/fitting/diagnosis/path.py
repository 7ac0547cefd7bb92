"""The demand of ten consecutive parts of a log, smoothed: a random walk of what changed.

With S_s the score and H_s the information of part s at the fitted t, and phi = tr(H^-1 J) / m, the path t + D_s
minimises

    sum_s (D_s' H_s D_s / 2 - S_s' D_s) / phi + sum_s |gamma_{s+1} - gamma_s|^2_(Q^-1) / 2,
    D_s = c + E gamma_s,  gamma_1 = 0,

where E selects the coefficients that changed (:meth:`~.change.Course.moved`); the others are the same in all parts.
A step of the walk has variance q 10 phi (H^-1)_jj, q times that of the estimate from one part, and q maximises the
marginal likelihood over a grid. If the test of constancy finds no change, all parts have the fitted theta.
"""

from __future__ import annotations

import numpy as np

from hushprice.arrays import Array
from hushprice.fitting.diagnosis.change import LOG_PARTS, Course
from hushprice.fitting.diagnosis.report import Index

WALKS = (0.0, *(10.0 ** (k / 4.0) for k in range(-12, 9)))  # values of q
MOST_MOVING = 20  # most coefficients that change


def smoothed(course: Course, *, changed: bool) -> Array:
    """theta of each part, (10, 2 d); ``changed`` is whether the test of constancy found a change."""
    theta = course.scale.map @ course.start
    if not changed:
        return np.tile(theta, (LOG_PARTS, 1))
    moving = course.moved()[:MOST_MOVING]
    inverse, m = np.linalg.inv(course.information), len(course.start)
    phi = max(float(np.sum(inverse * course.outer)) / m, float(np.finfo(float).tiny))
    scores = course.scores.reshape(LOG_PARTS, -1, m).sum(axis=1) / phi
    unit = np.sqrt(LOG_PARTS * phi * np.diag(inverse)[moving])
    steps = [_fit(course.parts / phi, scores, moving, unit * np.sqrt(q)) for q in WALKS]
    best = max(steps, key=lambda step: step[0])[1]
    return np.asarray(theta + best @ course.scale.map.T)


def _fit(parts: Array, scores: Array, moving: Index, size: Array) -> tuple[float, Array]:
    """Log of the marginal likelihood without constants, and D of each part, for steps of these standard deviations."""
    m, n = scores.shape[1], len(moving)
    width = m + (LOG_PARTS - 1) * n
    precision, pull = np.zeros((width, width)), np.zeros(width)
    precision[m:, m:] = np.eye(width - m)  # the walk in units of its steps
    maps = []
    for s in range(LOG_PARTS):
        into = np.zeros((m, width))
        into[:, :m] = np.eye(m)
        for r in range(s):
            into[moving, m + r * n + np.arange(n)] = size
        precision += into.T @ parts[s] @ into
        pull += into.T @ scores[s]
        maps.append(into)
    x = np.linalg.solve(precision, pull)
    return float(0.5 * pull @ x - 0.5 * np.linalg.slogdet(precision)[1]), np.array([into @ x for into in maps])
