"""What reports are expected to say: the mean score of a stage for each theta, over the points of the population.

Customers of stage k are priced by the same published rule, so that their prices, L z / n and S z / n do not depend on
the theta of later estimates. At theta the mean of their scores is

    f(theta) = sum over points of w ((m(theta) - m_k) L z / n, -(D(theta) - D_k) S z / n),

w the shares of the points, m_k and D_k the values that devices subtract. A row of a stage's table has, for one point,
p-, p+, m_k, D_k, L z / n and S z / n.
"""

from hushprice.kernels.dither.prices import bounded_mean, bounded_slope, expected, price_pair, weighted
from hushprice.kernels.glm import best_profit, profit, utility_of
from hushprice.kernels.jit import compiled

LOWER, UPPER, MEAN, HALF = 0, 1, 2, 3  # columns of a table; the weighted features follow
WEIGHTED = 4


@compiled
def tabulate(rule, points, terms, table):
    """Fill the table of a stage that publishes this rule."""
    cost, low, high, ladder, _, _, _ = terms
    d = points.shape[1]
    for i in range(len(points)):
        row = table[i]
        a, b = utility_of(rule.theta, points[i])
        row[LOWER], row[UPPER] = price_pair(rule, a, b, cost[i], low[i], high[i], ladder)
        row[MEAN], row[HALF] = expected(rule, a, b, row[LOWER], row[UPPER])
        weighted(rule, points[i], row[MEAN], row[HALF], row[WEIGHTED : WEIGHTED + d], row[WEIGHTED + d :])
        if row[LOWER] == row[UPPER]:
            row[WEIGHTED + d :] = 0.0


@compiled
def mean_score(demand, theta, points, shares, table, f):
    """f(theta)."""
    code, scale, least, most = demand
    d = points.shape[1]
    f[:] = 0.0
    for i in range(len(points)):
        row = table[i]
        a, b = utility_of(theta, points[i])
        at_lower = bounded_mean(code, scale, a - b * row[LOWER], least, most)
        at_upper = bounded_mean(code, scale, a - b * row[UPPER], least, most)
        level = shares[i] * (0.5 * (at_upper + at_lower) - row[MEAN])
        slope = -shares[i] * (0.5 * (at_upper - at_lower) - row[HALF])
        for j in range(d):
            f[j] += level * row[WEIGHTED + j]
            f[d + j] += slope * row[WEIGHTED + d + j]


@compiled
def linearise(demand, theta, points, shares, table, f, J):
    """f(theta) and its derivative."""
    code, scale, least, most = demand
    d = points.shape[1]
    f[:] = 0.0
    J[:] = 0.0
    for i in range(len(points)):
        row, z = table[i], points[i]
        p, q, w = row[LOWER], row[UPPER], shares[i]
        a, b = utility_of(theta, z)
        below, above = a - b * p, a - b * q
        at_lower = bounded_mean(code, scale, below, least, most)
        at_upper = bounded_mean(code, scale, above, least, most)
        by_lower = 0.5 * w * bounded_slope(code, scale, below, least, most)
        by_upper = 0.5 * w * bounded_slope(code, scale, above, least, most)
        level = w * (0.5 * (at_upper + at_lower) - row[MEAN])
        slope = -w * (0.5 * (at_upper - at_lower) - row[HALF])
        aa, ab = by_upper + by_lower, -(by_upper * q + by_lower * p)  # of m, in a and in b
        ba, bb = by_lower - by_upper, by_upper * q - by_lower * p  # of -D
        for j in range(d):
            u, v = row[WEIGHTED + j], row[WEIGHTED + d + j]
            f[j] += level * u
            f[d + j] += slope * v
            line, other = J[j], J[d + j]
            ua, ub, va, vb = u * aa, u * ab, v * ba, v * bb
            for k in range(d):
                line[k] += ua * z[k]
                line[d + k] += ub * z[k]
                other[k] += va * z[k]
                other[d + k] += vb * z[k]


@compiled
def add_information(J, factor, H):
    """Add factor J'J to the lower triangle of H."""
    m = len(J)
    for i in range(m):
        row = H[i]
        for k in range(m):
            c = factor * J[k, i]
            for j in range(i + 1):
                row[j] += c * J[k, j]


@compiled
def loss_of_prices(rule, points, shares, terms, table):
    """What the dither loses per customer: the expected profit at the best price less that at the two prices."""
    cost, low, high, _, _, _, _ = terms
    total = 0.0
    for i in range(len(points)):
        a, b = utility_of(rule.theta, points[i])
        total += shares[i] * _loss(rule, a, b, cost[i], low[i], high[i], table[i])
    return total


@compiled
def _loss(rule, a, b, cost, low, high, row):
    from_best = best_profit(rule.code, a, b, cost, low, high)
    return from_best - 0.5 * (profit(rule.code, a, b, row[LOWER], cost) + profit(rule.code, a, b, row[UPPER], cost))
