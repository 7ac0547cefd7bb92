"""The families of demand: everything that kernels compute differently from family to family.

Demand has mean ``psi'(eta)`` with ``eta = a - b p``, ``a = z.alpha`` and ``b = z.beta``. A family is an integer code.
The last branch of every dispatch on a code is :func:`unknown_family`, which raises: no code behaves like another.

A family's loss is its negative log-likelihood without the terms that do not depend on eta, psi(eta) - y eta if the
family is canonical. Probit demand is not: psi is the integral of Phi, and the loss -log Phi((2 y - 1) eta).
"""

import math

from hushprice.kernels.jit import compiled, inlined, ufunc
from hushprice.kernels.normal import DENSITY_AT_ZERO, best_margin, hazard, log_normal_cdf, normal_cdf
from hushprice.kernels.special import exp, log, normal_quantile, omega, omegas, poisson_quantile

LINEAR, LOGISTIC, POISSON, PROBIT = 0, 1, 2, 3

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@compiled
def unknown_family(code):
    """Raise ValueError: the last branch of every dispatch. It is no part of the functions that Numba inlines."""
    if code == code:  # always; without it Numba would see no number returned
        raise ValueError("unknown family")
    return 0.0


@inlined
def softplus(x):
    """log(1 + e^x) without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


# -- psi and its derivatives ------------------------------------------------------------------------------------


@compiled
def psi(code, eta):
    """The function whose derivative is the expected demand."""
    if code == LOGISTIC:
        return softplus(eta)
    if code == POISSON:
        return exp(eta)
    if code == LINEAR:
        return 0.5 * eta * eta
    if code == PROBIT:
        return eta * normal_cdf(eta) + curvature(code, eta)
    return unknown_family(code)


@inlined
def mean(code, eta):
    """psi'(eta), the expected demand."""
    if code == LOGISTIC:
        return 1.0 / (1.0 + exp(-eta))
    if code == POISSON:
        return exp(eta)
    if code == LINEAR:
        return eta
    if code == PROBIT:
        return normal_cdf(eta)
    return unknown_family(code)


@inlined
def curvature(code, eta):
    """psi''(eta), the slope of the expected demand."""
    if code == LOGISTIC:
        e = exp(-abs(eta))
        return e / ((1.0 + e) * (1.0 + e))
    if code == POISSON:
        return exp(eta)
    if code == LINEAR:
        return 1.0
    if code == PROBIT:
        return DENSITY_AT_ZERO * exp(-0.5 * eta * eta)
    return unknown_family(code)


@inlined
def mean_and_information(code, eta):
    """(psi'(eta), the expected second derivative of the loss at eta), from shared terms."""
    if code == LOGISTIC:
        e = exp(-abs(eta))
        mu = 1.0 / (1.0 + e)
        return (mu if eta >= 0.0 else e * mu), e * mu * mu
    if code == POISSON:
        mu = exp(eta)
        return mu, mu
    if code == LINEAR:
        return eta, 1.0
    if code == PROBIT:
        return normal_cdf(eta), hazard(eta) * hazard(-eta)
    return unknown_family(code), 0.0


@compiled
def skewness(code, eta):
    """psi'''(eta)."""
    if code == LOGISTIC:
        return -curvature(code, eta) * math.tanh(0.5 * eta)
    if code == POISSON:
        return exp(eta)
    if code == LINEAR:
        return 0.0
    if code == PROBIT:
        return -eta * curvature(code, eta)
    return unknown_family(code)


@compiled
def positive(code):
    """Whether expected demand is above 0 at every price."""
    if code in (LOGISTIC, POISSON, PROBIT):
        return True
    if code == LINEAR:
        return False
    return unknown_family(code) > 0.0


@compiled
def binary(code):
    """Whether outcomes are 0 or 1."""
    if code in (LOGISTIC, PROBIT):
        return True
    if code in (LINEAR, POISSON):
        return False
    return unknown_family(code) > 0.0


@compiled
def identity(code):
    """Whether expected demand is eta itself."""
    if code == LINEAR:
        return True
    if code in (LOGISTIC, POISSON, PROBIT):
        return False
    return unknown_family(code) > 0.0


# -- the likelihood ---------------------------------------------------------------------------------------------


@compiled
def loss(code, eta, y):
    """(loss, its first and its second derivative in eta) of one outcome, from shared terms."""
    if code == LOGISTIC:
        e = exp(-abs(eta))
        mu = 1.0 / (1.0 + e)
        psi_eta = max(eta, 0.0) + math.log1p(e)
        return psi_eta - y * eta, (mu if eta >= 0.0 else e * mu) - y, e * mu * mu
    if code == POISSON:
        mu = exp(eta)
        return mu - y * eta, mu - y, mu
    if code == LINEAR:
        return 0.5 * eta * eta - y * eta, eta - y, 1.0
    if code == PROBIT:
        m = eta if y > 0.5 else -eta
        h = hazard(m)
        return -log_normal_cdf(m), (-h if y > 0.5 else h), (h * (h + m) if m > -1e4 else 1.0)
    unknown_family(code)
    return 0.0, 0.0, 0.0


@compiled
def squared_loss(code, eta, y):
    """As :func:`loss`, but for linear demand the loss is half the squared residual, for the dispersion."""
    value, first, second = loss(code, eta, y)
    return 0.5 * (y - eta) ** 2 if code == LINEAR else value, first, second


@compiled
def residual(code, eta, y):
    """Minus the first derivative of the loss."""
    if canonical(code):
        return y - mean(code, eta)
    return -loss(code, eta, y)[1]


@compiled
def implicit_gap(code, s, eta, y):
    """s plus the first derivative of the loss at eta."""
    if canonical(code):
        return s - y + mean(code, eta)
    return s + loss(code, eta, y)[1]


@compiled
def information(code, eta, y):
    """The second derivative of the loss."""
    if canonical(code):
        return curvature(code, eta)
    return loss(code, eta, y)[2]


@compiled
def canonical(code):
    """Whether the loss is psi(eta) - y eta."""
    if code in (LOGISTIC, POISSON, LINEAR):
        return True
    if code == PROBIT:
        return False
    return unknown_family(code) > 0.0


@compiled
def steepness(code, size):
    """An estimate of the largest |third derivative| / second derivative of the loss for |eta| <= size.

    It steers when :mod:`hushprice.kernels.running` refits, and nothing else: with too small a value the estimates
    between refits drift further; exact refits do not depend on it.

    For canonical families it is a bound, 1, for every eta. For Probit it is a bound for sizes up to 1.97, and a
    heuristic beyond: the ratio rises with (2 y - 1) eta without end, but is capped at 1.6, because the second
    derivative falls like a normal density there, so that such a record hardly counts in the Hessian.
    """
    if canonical(code):
        return 1.0
    if code == PROBIT:
        return min(max(size, 1.0), 1.6)
    return unknown_family(code)


@compiled
def quadratic(code):
    """Whether the loss is quadratic in eta."""
    if code == LINEAR:
        return True
    if code in (LOGISTIC, POISSON, PROBIT):
        return False
    return unknown_family(code) > 0.0


@compiled
def loglik(code, scale, eta, y):
    """Log-density of y, with every constant."""
    if code == LOGISTIC:
        return y * eta - softplus(eta)
    if code == POISSON:
        return y * eta - math.exp(eta) - math.lgamma(y + 1.0)
    if code == LINEAR:
        r = (y - eta) / scale
        return -0.5 * r * r - math.log(scale) - _HALF_LOG_2PI
    if code == PROBIT:
        return log_normal_cdf(eta if y > 0.5 else -eta)
    return unknown_family(code)


@compiled
def log_predictive(code, eta, spread, phi, y):
    """Log-density of y where the utility is normal with mean eta and variance ``spread``, and the dispersion is phi.

    For logistic demand the usual approximation by Probit, for counts a negative binomial of the same mean and variance.
    """
    if code == LOGISTIC:
        e = eta / math.sqrt(1.0 + 0.125 * math.pi * spread)
        return -softplus(-e if y > 0.5 else e)
    if code == PROBIT:
        e = eta / math.sqrt(1.0 + spread)
        return log_normal_cdf(e if y > 0.5 else -e)
    if code == LINEAR:
        variance = phi + spread
        return -0.5 * (y - eta) ** 2 / variance - 0.5 * math.log(variance) - _HALF_LOG_2PI
    if code == POISSON:
        mu = math.exp(eta + 0.5 * spread)
        excess = max(phi - 1.0, 0.0) * mu + mu * mu * math.expm1(spread)
        if not excess * 1e6 > mu * mu:
            return y * (eta + 0.5 * spread) - mu - math.lgamma(y + 1.0)
        r = mu * mu / excess
        counts = math.lgamma(y + r) - math.lgamma(r) - math.lgamma(y + 1.0)
        return counts - r * math.log1p(mu / r) + (y * math.log(mu / (r + mu)) if y > 0.0 else 0.0)
    return unknown_family(code)


@inlined
def draw(code, scale, mu, u):
    """The demand of mean mu that a uniform u in [0, 1) stands for: the inverse of the distribution function."""
    if code in (LOGISTIC, PROBIT):
        return 1.0 if u < mu else 0.0
    if code == POISSON:
        return poisson_quantile(u, mu)
    if code == LINEAR:
        return mu + scale * normal_quantile(u)
    return unknown_family(code)


# -- log demand, of the families with positive demand -----------------------------------------------------------


@inlined
def outcome(demand, i, price):
    """What simulated customer i buys at a price."""
    return draw(demand.code, demand.scale, mean(demand.code, demand.a[i] - demand.b[i] * price), demand.uniforms[i])


@compiled
def logmean(code, eta):
    """log psi'(eta)."""
    if code == LOGISTIC:
        return -softplus(-eta)
    if code == POISSON:
        return eta
    if code == PROBIT:
        return log_normal_cdf(eta)
    return unknown_family(code)


@inlined
def log_slope(code, eta):
    """psi''/psi', the derivative of log psi', which must fall (not rise) with eta."""
    if code == LOGISTIC:
        return 1.0 - mean(code, eta)
    if code == POISSON:
        return 1.0
    if code == PROBIT:
        return hazard(eta)
    return unknown_family(code)


@inlined
def log_bend(code, eta, rho):
    """Minus the derivative of log rho, rho = psi''/psi' at eta, which must rise (not fall) with eta."""
    if code == LOGISTIC:
        return 1.0 - rho
    if code == POISSON:
        return 0.0
    if code == PROBIT:
        return eta + rho
    return unknown_family(code)


# -- the best price ---------------------------------------------------------------------------------------------


@inlined
def profit(code, a, b, p, cost):
    """(p - cost) psi'(a - b p)."""
    return (p - cost) * mean(code, a - b * p)


@inlined
def _logloss(code, a, b, p, cost):
    """log((cost - p) psi'(a - b p)) below cost, where psi' itself could overflow; by IEEE operations alone."""
    eta = a - b * p
    if code == LOGISTIC:
        return log(cost - p) - (max(-eta, 0.0) + log(1.0 + exp(-abs(eta))))
    if code == POISSON:
        return log(cost - p) + eta
    if code == PROBIT:
        return log(cost - p) + log_normal_cdf(eta)
    return unknown_family(code)


@compiled
def best_end(code, a, b, cost, low, high):
    """The better end of [low, high]; for b <= 0, where (p - cost) psi'(a - b p) has no interior maximum."""
    if not positive(code):
        return high if profit(code, a, b, high, cost) >= profit(code, a, b, low, cost) else low
    if high >= cost:
        return high
    return high if _logloss(code, a, b, high, cost) <= _logloss(code, a, b, low, cost) else low


@inlined
def best_price(code, a, b, cost, low, high):
    """The p in [low, high] that maximises (p - cost) psi'(a - b p)."""
    if not b > 0.0:
        return best_end(code, a, b, cost, low, high)
    if code == LOGISTIC:
        p = cost + (1.0 + omega(a - b * cost - 1.0)) / b
    elif code == POISSON:
        p = cost + 1.0 / b
    elif code == LINEAR:
        p = 0.5 * (a / b + cost)
    elif code == PROBIT:
        p = cost + best_margin(a - b * cost) / b
    else:
        p = unknown_family(code)
    return min(max(p, low), high)


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
def _logistic_regret(cost, low, high, a, b, prices, y, regret):
    """Regret of logistic demand in loops without a call or a rare branch, which cost twice as much here."""
    n = prices.size
    for i in range(n):
        regret[i] = a[i] - b[i] * cost - 1.0
    omegas(regret)
    for i in range(n):
        inverse, w = 1.0 / b[i], regret[i]
        p = cost + (1.0 + w) * inverse
        gap = w * inverse - (prices[i] - cost) * y[i]
        gap = gap if gap > 0.0 else 0.0
        regret[i] = gap if low <= p <= high and b[i] > 0.0 else -1.0
    for i in range(n):  # the optimum is at an end of the range
        if regret[i] < 0.0:
            best = best_profit(LOGISTIC, a[i], b[i], cost, low, high)
            regret[i] = max(best - (prices[i] - cost) * y[i], 0.0)


@compiled
def sell(demand, cost, low, high, prices, y, regret):
    """Sell to simulated customers at the given prices: their demand and the round's regret, written in place."""
    code, scale, a, b, uniforms = demand
    n = prices.size
    if code == LOGISTIC:
        for i in range(n):
            y[i] = mean(LOGISTIC, a[i] - b[i] * prices[i])
        _logistic_regret(cost, low, high, a, b, prices, y, regret)
    else:
        for i in range(n):
            y[i] = mean(code, a[i] - b[i] * prices[i])
            regret[i] = max(best_profit(code, a[i], b[i], cost, low, high) - (prices[i] - cost) * y[i], 0.0)
    for i in range(n):
        y[i] = draw(code, scale, y[i], uniforms[i])


@compiled
def best_prices(code, a, b, cost, low, high, prices):
    """The :func:`best_price` of every customer (a, b), written in place."""
    n = prices.size
    if code == LOGISTIC:  # the same steps as best_price, in loops without a rare branch
        for i in range(n):
            prices[i] = a[i] - b[i] * cost - 1.0
        omegas(prices)
        for i in range(n):
            prices[i] = min(max(cost + (1.0 + prices[i]) / b[i], low), high)
        for i in range(n):
            if not b[i] > 0.0:
                prices[i] = best_end(LOGISTIC, a[i], b[i], cost, low, high)
    else:
        for i in range(n):
            prices[i] = best_price(code, a[i], b[i], cost, low, high)


@compiled
def utility(z, theta, a, b):
    """a = z.alpha and b = z.beta of every row of z, summed in the order of the entries."""
    n, d = z.shape
    if d == 1:  # no inner loop: several customers at a time
        for i in range(n):
            a[i] = z[i, 0] * theta[0]
            b[i] = z[i, 0] * theta[1]
        return
    for i in range(n):
        s = z[i, 0] * theta[0]
        t = z[i, 0] * theta[d]
        for j in range(1, d):
            s += z[i, j] * theta[j]
            t += z[i, j] * theta[d + j]
        a[i] = s
        b[i] = t


@compiled
def utility_of(theta, z):
    """(a, b), summed in the order of the entries."""
    d = z.size
    a, b = z[0] * theta[0], z[0] * theta[d]
    for j in range(1, d):
        a += z[j] * theta[j]
        b += z[j] * theta[d + j]
    return a, b


@compiled
def affine(values, shift, scale):
    """values = (values + shift) * scale, in place and in one pass."""
    for i in range(values.size):
        values[i] = (values[i] + shift) * scale


# The same functions over arrays of any shape, for the demand layer.
psi_ufunc = ufunc(psi.py_func)
mean_ufunc = ufunc(mean.py_func)
curvature_ufunc = ufunc(curvature.py_func)
skewness_ufunc = ufunc(skewness.py_func)
loglik_ufunc = ufunc(loglik.py_func)
draw_ufunc = ufunc(draw.py_func)
best_price_ufunc = ufunc(best_price.py_func)
profit_ufunc = ufunc(profit.py_func)
best_profit_ufunc = ufunc(best_profit.py_func)
