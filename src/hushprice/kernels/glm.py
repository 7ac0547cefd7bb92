"""The three GLM families: psi and its derivatives, demand from a uniform, and the best price.

Demand has mean ``psi'(eta)`` with ``eta = a - b p``, ``a = z.alpha`` and ``b = z.beta``.
"""

import math

from numba import vectorize

from hushprice.kernels.jit import compiled, inlined
from hushprice.kernels.special import normal_quantile, omega, poisson_quantile

LINEAR, LOGISTIC, POISSON = 0, 1, 2

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@inlined
def softplus(x):
    """log(1 + e^x) without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@compiled
def psi(code, eta):
    if code == LOGISTIC:
        return softplus(eta)
    if code == POISSON:
        return math.exp(eta)
    return 0.5 * eta * eta


@inlined
def mean(code, eta):
    """psi'(eta), the expected demand."""
    if code == LOGISTIC:
        return 1.0 / (1.0 + math.exp(-eta))
    if code == POISSON:
        return math.exp(eta)
    return eta


@inlined
def curvature(code, eta):
    """psi''(eta), the variance function."""
    if code == LOGISTIC:
        e = math.exp(-abs(eta))
        return e / ((1.0 + e) * (1.0 + e))
    if code == POISSON:
        return math.exp(eta)
    return 1.0


@compiled
def terms(code, eta):
    """(psi, psi', psi'') together: one exponential instead of three."""
    if code == LOGISTIC:
        e = math.exp(-abs(eta))
        mu = 1.0 / (1.0 + e)
        return max(eta, 0.0) + math.log1p(e), mu if eta >= 0.0 else e * mu, e * mu * mu
    if code == POISSON:
        mu = math.exp(eta)
        return mu, mu, mu
    return 0.5 * eta * eta, eta, 1.0


@compiled
def skewness(code, eta):
    """psi'''(eta)."""
    if code == LOGISTIC:
        return -curvature(code, eta) * math.tanh(0.5 * eta)
    if code == POISSON:
        return math.exp(eta)
    return 0.0


@compiled
def loglik(code, scale, eta, y):
    """Log-density of y, with every constant."""
    if code == LOGISTIC:
        return y * eta - softplus(eta)
    if code == POISSON:
        return y * eta - math.exp(eta) - math.lgamma(y + 1.0)
    r = (y - eta) / scale
    return -0.5 * r * r - math.log(scale) - _HALF_LOG_2PI


@inlined
def draw(code, scale, mu, u):
    """The demand of mean mu that a uniform u in [0, 1) stands for: the inverse of the distribution function."""
    if code == LOGISTIC:
        return 1.0 if u < mu else 0.0
    if code == POISSON:
        return poisson_quantile(u, mu)
    return mu + scale * normal_quantile(u)


@compiled
def logmean(code, eta):
    """log psi'(eta) of the two families with positive demand."""
    return -softplus(-eta) if code == LOGISTIC else eta


@compiled
def best_end(code, a, b, cost, low, high):
    """The better end of [low, high]; for b <= 0, where (p - cost) psi'(a - b p) has no interior maximum."""
    if code == LINEAR:
        at_low, at_high = (low - cost) * (a - b * low), (high - cost) * (a - b * high)
        return high if at_high >= at_low else low
    if high >= cost:
        return high
    loss_low = math.log(cost - low) + logmean(code, a - b * low)
    loss_high = math.log(cost - high) + logmean(code, a - b * high)
    return high if loss_high <= loss_low else low


@inlined
def best_price(code, a, b, cost, low, high):
    """The p in [low, high] that maximises (p - cost) psi'(a - b p), in closed form."""
    if not b > 0.0:
        return best_end(code, a, b, cost, low, high)
    if code == LOGISTIC:
        p = cost + (1.0 + omega(a - b * cost - 1.0)) / b
    elif code == POISSON:
        p = cost + 1.0 / b
    else:
        p = 0.5 * (a / b + cost)
    return min(max(p, low), high)


@inlined
def profit(code, a, b, p, cost):
    """(p - cost) psi'(a - b p)."""
    return (p - cost) * mean(code, a - b * p)


@inlined
def best_profit(code, a, b, cost, low, high):
    """The largest (p - cost) psi'(a - b p) over [low, high]."""
    if code == LOGISTIC and b > 0.0:
        w = omega(a - b * cost - 1.0)
        inverse = 1.0 / b
        if low <= cost + (1.0 + w) * inverse <= high:
            return w * inverse
    return profit(code, a, b, best_price(code, a, b, cost, low, high), cost)


@compiled
def sell(code, scale, cost, low, high, a, b, prices, uniforms, y, regret):
    """Sell to customers (a, b) at the given prices: their demand and the round's regret, written in place."""
    n = prices.size
    for i in range(n):  # three short loops, each of which the compiler can pipeline
        y[i] = mean(code, a[i] - b[i] * prices[i])
    for i in range(n):
        regret[i] = max(best_profit(code, a[i], b[i], cost, low, high) - (prices[i] - cost) * y[i], 0.0)
    for i in range(n):
        y[i] = draw(code, scale, y[i], uniforms[i])


@compiled
def utility(z, theta, a, b):
    """a = z.alpha and b = z.beta of every row of z, summed in the order of the entries."""
    n, d = z.shape
    for i in range(n):
        s = 0.0
        t = 0.0
        for j in range(d):
            s += z[i, j] * theta[j]
            t += z[i, j] * theta[d + j]
        a[i] = s
        b[i] = t


# The same functions over arrays of any shape, for the demand layer.
psi_ufunc = vectorize(cache=True)(psi.py_func)
mean_ufunc = vectorize(cache=True)(mean.py_func)
curvature_ufunc = vectorize(cache=True)(curvature.py_func)
skewness_ufunc = vectorize(cache=True)(skewness.py_func)
loglik_ufunc = vectorize(cache=True)(loglik.py_func)
draw_ufunc = vectorize(cache=True)(draw.py_func)
best_price_ufunc = vectorize(cache=True)(best_price.py_func)
best_profit_ufunc = vectorize(cache=True)(best_profit.py_func)
