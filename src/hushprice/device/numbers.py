"""exp, log, Wright omega, the normal quantile and Phi, to the last bit as ``hushprice.kernels`` computes them.

They are made of the IEEE operations + - * / sqrt alone, in a fixed order, so that a price and a report have the same
bits in every language. ``docs/privacy.md`` has the recipe, ``protocol/vectors/device.json`` test vectors.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from functools import cache

Coefficients = tuple[float, float, float, float, float, float]


def _root(j: int) -> float:
    """2^(j/64), correctly rounded."""
    return float(Context(prec=50).power(Decimal(2), Decimal(j) / 64))


_ROOTS = tuple(_root(j) for j in range(64))
_STEP = 0.010830424696249145  # log(2) / 64
_STEP_HIGH = 11908177887 / 2**40  # its upper bits, so that k * _STEP_HIGH is exact
_STEP_LOW = 2.5310172166650877e-13  # and the rest, from the decimal expansion


def exp(x: float) -> float:
    """e^x within two units in the last place for |x| <= 700; e^700 or e^-700 beyond.

    x = (64 m + j) log(2) / 64 + r with |r| <= log(2) / 128; 2^m 2^(j/64) times a polynomial in r.

    >>> exp(1.0), exp(-1e9) == exp(-700.0)
    (2.718281828459045, True)
    """
    x = x if x > -700.0 else -700.0
    x = x if x < 700.0 else 700.0
    k = math.floor(x * (1.0 / _STEP) + 0.5)
    r = x - k * _STEP_HIGH - k * _STEP_LOW
    scale = math.ldexp(1.0, k >> 6) * _ROOTS[k & 63]
    return scale + scale * (r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0))))))


_LN2_HIGH = 2977044471 / 2**32  # the upper bits of log(2), so that e * _LN2_HIGH is exact
_LN2_LOW = 1.9082149292705877e-10
_SQRT_HALF = 0.7071067811865476
_ODD = tuple(1.0 / k for k in range(21, 0, -2))


def log(x: float) -> float:
    """log x of a positive normal number.

    x = 2^e m with m in [sqrt(1/2), sqrt(2)), f = (m - 1) / (m + 1), log m = 2 f (1 + f^2/3 + f^4/5 + ... + f^20/21).

    >>> log(1.0), log(8.0) == 3 * log(2.0)
    (0.0, True)
    """
    m, e = math.frexp(x)
    if m < _SQRT_HALF:
        m, e = m + m, e - 1
    f = (m - 1.0) / (m + 1.0)
    s = f * f
    series = _ODD[0]
    for c in _ODD[1:]:
        series = series * s + c
    return e * _LN2_HIGH + (e * _LN2_LOW + 2.0 * f * series)


_CELLS, _X_MIN, _X_MAX = 64, -8.0, 24.0
_LAST_CELL = 2047


@cache
def omega_cell(i: int) -> Coefficients:
    """Taylor coefficients of omega around the centre of cell i = 0 .. 2047 of its table, worked out when first needed.

    omega at the centre x by nine Newton steps on v = log omega; the derivatives after Corless & Jeffrey (2002).
    """
    x = _X_MIN + (i + 0.5) / _CELLS
    v = min(x, 3.0)
    for _ in range(9):
        w = exp(v)
        v = v - (w + v - x) / (1.0 + w)
    w = exp(v)
    q = 1.0 / (1.0 + w)
    s = q * q
    first = w * q
    second = first * s
    third = second * s
    fourth = third * s
    fifth = fourth * s
    return (
        w,
        first,
        second / 2.0,
        third * (1.0 - 2.0 * w) / 6.0,
        fourth * (1.0 + w * (-8.0 + 6.0 * w)) / 24.0,
        fifth * (1.0 + w * (-22.0 + w * (58.0 - 24.0 * w))) / 120.0,
    )


def omega(x: float) -> float:
    """Wright omega, the w with w + log(w) = x: a table of cells of width 1/64 between -8 and 24, other ways beyond.

    >>> omega(1.0)
    1.0
    """
    if not _X_MIN <= x <= _X_MAX:
        return _omega_far(x)
    i = min(int((x - _X_MIN) * _CELLS), _LAST_CELL)
    c = omega_cell(i)
    t = x - (_X_MIN + (i + 0.5) / _CELLS)
    high = c[3] + t * (c[4] + t * c[5])
    return c[0] + t * (c[1] + t * (c[2] + t * high))


def _omega_far(x: float) -> float:
    """A series on the left, Fritsch-Shafer-Crowley steps on the right."""
    if x < _X_MIN:
        e = exp(x)
        return e * (1.0 - e * (1.0 - e * (1.5 - e * (8.0 / 3.0 - e * (125.0 / 24.0)))))
    if not math.isfinite(x):
        return x
    w = x - log(x)
    for _ in range(2):
        r = x - w - log(w)
        q = 1.0 + w
        s = q * (q + 2.0 * r / 3.0)
        w = w * (1.0 + (r / q) * (s - 0.5 * r) / (s - r))
    return w


# Wichura, "Algorithm AS 241: the percentage points of the normal distribution" (1988), PPND16.
_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_MIDDLE = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def _rational(r: float, of: tuple[tuple[float, ...], tuple[float, ...]]) -> float:
    """The ratio of two polynomials by Horner's rule, coefficients from the highest power down."""
    above, below = of[0][0], of[1][0]
    for a, b in zip(of[0][1:], of[1][1:], strict=True):
        above, below = above * r + a, below * r + b
    return above / below


def lower_quantile(u: float) -> float:
    """The normal quantile of 0 < u < 1/2.

    >>> round(lower_quantile(0.025), 6)
    -1.959964
    """
    q = u - 0.5
    if q >= -0.425:
        return q * _rational(0.180625 - q * q, _CENTRE)
    r = math.sqrt(-log(u))
    return -_rational(r - 1.6, _MIDDLE) if r <= 5.0 else -_rational(r - 5.0, _TAIL)


_NORMAL_TAIL = (
    -6.763267210562454e-10, -1.5456221598143852e-09, 5.474708632048689e-09, 1.7442583764419795e-08,
    -1.7932121916642413e-08, -1.1022354013739079e-07, -1.237153366992197e-09, 5.507747965364098e-07,
    4.0671730125154447e-07, -2.6118464340168558e-06, -3.433372216853275e-06, 1.3626315192600401e-05,
    2.1250446856208376e-05, -8.785300442645791e-05, -9.443033944152223e-05, 0.0006948970692570495,
    -0.00028562308680939413, -0.0050023785870514665, 0.01793609747886859, -0.03219783742831453,
    0.02860036405357749, 0.013999634724430469, -0.09670347732652607, 0.47205320650984467,
)  # fmt: skip
DENSITY_AT_ZERO = 0.3989422804014327  # 1 / sqrt(2 pi)
_TAIL_RATIO_AT_ZERO = 1.2533141373155001  # sqrt(pi / 2)


def normal_tail(x: float) -> float:
    """Phi(-x) e^(x^2 / 2) for x >= 0: a polynomial in (x - 4) / (x + 4), divided by 1 + x.

    >>> normal_tail(0.0)
    0.5
    """
    x = x if x < 1e300 else 1e300
    t = (x - 4.0) / (x + 4.0)
    s = _NORMAL_TAIL[0]
    for c in _NORMAL_TAIL[1:]:
        s = s * t + c
    return s / (1.0 + x)


def normal_cdf(x: float) -> float:
    """Phi(x).

    >>> round(normal_cdf(-1.959964), 6)
    0.025
    """
    q = exp(-0.5 * x * x) * normal_tail(abs(x))
    return 1.0 - q if x > 0.0 else q


def log_normal_cdf(x: float) -> float:
    """log Phi(x).

    >>> log_normal_cdf(0.0) == log(0.5)
    True
    """
    if x > 0.0:
        return log(1.0 - exp(-0.5 * x * x) * normal_tail(x))
    return log(normal_tail(-x)) - 0.5 * x * x


def _mills(x: float) -> float:
    """Phi(x) / phi(x)."""
    if x > 0.0:
        e = exp(-0.5 * x * x)
        return (1.0 - e * normal_tail(x)) / (DENSITY_AT_ZERO * e)
    return normal_tail(-x) / DENSITY_AT_ZERO


def best_normal_margin(level: float) -> float:
    """The s that maximises s Phi(level - s): s = mills(x) at the root x of x + mills(x) = level, by Newton's method.

    >>> round(best_normal_margin(1.0), 3)
    1.132
    """
    level = level if level < 1e300 else 1e300
    level = level if level > -1e300 else -1e300
    if level > _TAIL_RATIO_AT_ZERO:
        x = math.sqrt(2.0 * log(level / _TAIL_RATIO_AT_ZERO))
    else:
        x = level if level < 0.0 else 0.0
    for _ in range(60):
        r = _mills(x)
        step = (x + r - level) / (2.0 + x * r)
        x = x - step
        if not abs(step) > 1e-8 * (1.0 + abs(x)):
            break
    return level - x if x > 0.0 else _mills(x)
