"""The standard normal distribution function, its logarithm and its hazard, by IEEE operations alone.

Everything rests on ``tail(x) = Phi(-x) e^(x^2 / 2)``, which is smooth and falls from 1/2 like 1 / x: it is a polynomial
in t = (x - 4) / (x + 4), divided by 1 + x. Like :func:`hushprice.kernels.special.exp` it has the same bits on every
machine and in every language. Good to 4e-16, relatively; Phi(-x) to x^2 / 2 times that.
"""

import math

from hushprice.kernels.jit import compiled, ufunc
from hushprice.kernels.special import exp, log

# From the highest power of t down: the Chebyshev expansion of (1 + x) tail(x) on [0, infinity), as a polynomial in t.
_TAIL = (
    -6.763267210562454e-10, -1.5456221598143852e-09, 5.474708632048689e-09, 1.7442583764419795e-08,
    -1.7932121916642413e-08, -1.1022354013739079e-07, -1.237153366992197e-09, 5.507747965364098e-07,
    4.0671730125154447e-07, -2.6118464340168558e-06, -3.433372216853275e-06, 1.3626315192600401e-05,
    2.1250446856208376e-05, -8.785300442645791e-05, -9.443033944152223e-05, 0.0006948970692570495,
    -0.00028562308680939413, -0.0050023785870514665, 0.01793609747886859, -0.03219783742831453,
    0.02860036405357749, 0.013999634724430469, -0.09670347732652607, 0.47205320650984467,
)  # fmt: skip
DENSITY_AT_ZERO = 0.3989422804014327  # 1 / sqrt(2 pi)
_TAIL_RATIO_AT_ZERO = 1.2533141373155001  # sqrt(pi / 2)
_LARGEST = 1e300


@compiled
def tail(x):
    """Phi(-x) e^(x^2 / 2) for x >= 0."""
    x = x if x < _LARGEST else _LARGEST
    t = (x - 4.0) / (x + 4.0)
    s = _TAIL[0]
    for k in range(1, 24):
        s = s * t + _TAIL[k]
    return s / (1.0 + x)


@compiled
def normal_cdf(x):
    """Phi(x)."""
    q = exp(-0.5 * x * x) * tail(abs(x))
    return 1.0 - q if x > 0.0 else q


@compiled
def log_normal_cdf(x):
    """log Phi(x)."""
    if x > 0.0:
        return log(1.0 - exp(-0.5 * x * x) * tail(x))
    return log(tail(-x)) - 0.5 * x * x


@compiled
def hazard(x):
    """phi(x) / Phi(x), which falls with x."""
    if x > 0.0:
        e = exp(-0.5 * x * x)
        return DENSITY_AT_ZERO * e / (1.0 - e * tail(x))
    return DENSITY_AT_ZERO / tail(-x)


@compiled
def mills(x):
    """Phi(x) / phi(x), which rises with x and is convex."""
    if x > 0.0:
        e = exp(-0.5 * x * x)
        return (1.0 - e * tail(x)) / (DENSITY_AT_ZERO * e)
    return tail(-x) / DENSITY_AT_ZERO


@compiled
def best_margin(level):
    """The s that maximises s Phi(level - s): s = mills(x) at the root x of x + mills(x) = level.

    The left side is convex and rises, so that Newton's method from a point right of the root falls to it and cannot
    overshoot. The start is right of it because mills(x) >= sqrt(pi / 2) e^(x^2 / 2) for x >= 0.
    """
    level = level if level < _LARGEST else _LARGEST
    level = level if level > -_LARGEST else -_LARGEST
    if level > _TAIL_RATIO_AT_ZERO:
        x = math.sqrt(2.0 * log(level / _TAIL_RATIO_AT_ZERO))
    else:
        x = level if level < 0.0 else 0.0
    for _ in range(60):
        r = mills(x)
        step = (x + r - level) / (2.0 + x * r)
        x = x - step
        if not abs(step) > 1e-8 * (1.0 + abs(x)):  # the next one would be about its square
            break
    return level - x if x > 0.0 else mills(x)


@compiled
def mills_inverse(s):
    """The x with mills(x) = s > 0, by Halley's method on f = log mills - log s, which rises and is convex."""
    if s < 1e-3:  # up to s^4 of it; next to it rounding would not let the steps end
        return s - 1.0 / s
    x = s - 1.0 / s if s < 0.7 else math.sqrt(2.0 * log(max(s / _TAIL_RATIO_AT_ZERO, 1.0)))
    for _ in range(60):
        r = mills(x)
        rise = x + 1.0 / r  # f'; f'' = 1 - f' / r
        newton = log(r / s) / rise
        step = newton / (1.0 - 0.5 * newton * (1.0 - rise / r) / rise)
        x = x - step
        if not abs(step) > 1e-5 * (1.0 + abs(x)):  # the next one would be about its cube
            break
    return x


mills_inverse_ufunc = ufunc(mills_inverse.py_func)
