"""The prices of a dithered quote, the bounded demand at them, and the length that scores are divided by.

A customer with utility a - b p is quoted one of two prices with equal chance,

    p- = c - delta,   p+ = c + delta,   c = p0 + pull (target - p0),

p0 the best price by the published theta, with c moved so that both prices are allowed. The outcome y counts as at most
``most`` and at least ``least``. Let mu+ and mu- be its means at the two prices, m their mean, D half their difference,
and u = +1 at p+, -1 at p-. The score of the customer is

    ((y - m) L z, -(u (y - h) - D) S z) / n,   h = (least + most) / 2,

L and S the published weights of level and slope, and n the largest length of the numerator over y and u. The length of
the score is therefore at most 1, and its mean is 0 if theta is true, whatever the other published numbers are: they
depend on nothing that is random.
"""

import math

from hushprice.kernels.glm import LINEAR, LOGISTIC, POISSON, PROBIT, best_price, curvature, mean, unknown_family
from hushprice.kernels.jit import compiled, inlined
from hushprice.kernels.normal import DENSITY_AT_ZERO, normal_cdf
from hushprice.kernels.quote import nearest_rung, rungs
from hushprice.kernels.special import exp


@inlined
def bounded_mean(code, scale, eta, least, most):
    """The mean of an outcome that counts as at least ``least`` and at most ``most``."""
    if code in (LOGISTIC, PROBIT):
        return mean(code, eta)
    if code == POISSON:
        return _bounded_count(exp(eta), most)[0]
    if code == LINEAR:
        return _bounded_normal(eta, scale, least, most)
    return unknown_family(code)


@inlined
def bounded_slope(code, scale, eta, least, most):
    """The derivative of :func:`bounded_mean` in eta."""
    if code in (LOGISTIC, PROBIT):
        return curvature(code, eta)
    if code == POISSON:
        mu = exp(eta)
        return mu * _bounded_count(mu, most)[1]
    if code == LINEAR:
        return normal_cdf((most - eta) / scale) - normal_cdf((least - eta) / scale)
    return unknown_family(code)


@compiled
def _bounded_count(mu, most):
    """(E min(y, most), P(y < most)) of a Poisson number y of mean mu.

    E min(y, most) = sum_{k < most} P(y > k). Beyond a mean of 700 above ``most`` the bound itself.
    """
    if not mu < 700.0:
        return most, 0.0
    chance = exp(-mu)
    below, total, k = 0.0, 0.0, 0
    while k < most:
        below += chance
        total += 1.0 - below
        k += 1
        chance *= mu / k
    return min(max(total, 0.0), most), min(below, 1.0)


@compiled
def _bounded_normal(eta, scale, least, most):
    """E min(max(y, least), most) of a normal y, by E (y - c)+ = scale (phi(t) + t Phi(t)), t = (eta - c) / scale."""
    return least + scale * (_excess((eta - least) / scale) - _excess((eta - most) / scale))


@inlined
def _excess(t):
    """E (x + t)+ of a standard normal x."""
    return DENSITY_AT_ZERO * exp(-0.5 * t * t) + t * normal_cdf(t)


@inlined
def price_pair(rule, a, b, cost, low, high, ladder):
    """(p-, p+)."""
    reach = min(rule.delta, 0.5 * (high - low))
    best = best_price(rule.code, a, b, cost, low, high)
    centre = min(max(best + rule.pull * (rule.target - best), low + reach), high - reach)
    lower, upper = max(centre - reach, low), min(centre + reach, high)
    if ladder.size:
        first, last = rungs(ladder, low, high)
        lower, upper = nearest_rung(lower, ladder, first, last), nearest_rung(upper, ladder, first, last)
    return lower, upper


@inlined
def expected(rule, a, b, lower, upper):
    """(m, D) at the two prices."""
    code, scale, least, most = rule.code, rule.scale, rule.least, rule.most
    at_lower = bounded_mean(code, scale, a - b * lower, least, most)
    at_upper = bounded_mean(code, scale, a - b * upper, least, most)
    return 0.5 * (at_upper + at_lower), 0.5 * (at_upper - at_lower)


@compiled
def weighted(rule, z, m, D, level, slope):
    """Write L z / n and S z / n; the score is ((y - m) L z / n, -(u (y - h) - D) S z / n)."""
    d = z.size
    longest = 0.0
    for i in range(d):
        s = t = 0.0
        for j in range(d):
            s += rule.level[i, j] * z[j]
            t += rule.slope[i, j] * z[j]
        level[i], slope[i] = s, t
        longest = max(longest, abs(s), abs(t))
    if not longest > 0.0:
        level[:] = 0.0
        slope[:] = 0.0
        return
    ll = ss = 0.0
    for i in range(d):
        level[i] /= longest
        slope[i] /= longest
        ll += level[i] * level[i]
        ss += slope[i] * slope[i]
    far = max(rule.most - m, m - rule.least)
    steep = 0.5 * (rule.most - rule.least) + abs(D)
    n = math.sqrt(far * far * ll + steep * steep * ss)
    for i in range(d):
        level[i] /= n
        slope[i] /= n
