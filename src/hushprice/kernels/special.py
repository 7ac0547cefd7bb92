"""Special functions: Wright omega, the normal quantile and the Poisson quantile."""

import math
from decimal import Context, Decimal

import numpy as np

from hushprice.kernels.jit import compiled, inlined

# ---------------------------------------------------------------------------------------------------------
# exp(x) = 2^m 2^(j/64) e^r with |r| <= log(2)/128, so that a polynomial of degree five is exact to rounding.
# Inlined it costs less than half of a call to the C library, and one of these is paid for every sale. Being made of
# IEEE operations alone, it has the same bits on every machine and in every language, and so have the prices.
# ---------------------------------------------------------------------------------------------------------

_POWERS = np.array([math.ldexp(1.0, m) for m in range(-1074, 1024)])


def _roots() -> np.ndarray:
    """2^(j/64), correctly rounded."""
    context = Context(prec=50)
    return np.array([float(context.power(Decimal(2), Decimal(j) / 64)) for j in range(64)])


_ROOTS = _roots()
_STEP = math.log(2.0) / 64.0
_STEP_HIGH = math.ldexp(math.floor(math.ldexp(_STEP, 40)), -40)  # so that k * _STEP_HIGH is exact
_STEP_LOW = 2.5310172166650877e-13  # log(2)/64 - _STEP_HIGH, from its decimal expansion


@inlined
def exp(x):
    """e^x within two units in the last place for |x| <= 700; e^700 or e^-700 beyond (and e^-700 for NaN)."""
    x = x if x > -700.0 else -700.0
    x = x if x < 700.0 else 700.0
    k = math.floor(x * (1.0 / _STEP) + 0.5)
    r = x - k * _STEP_HIGH - k * _STEP_LOW
    scale = _POWERS[(k >> 6) + 1074] * _ROOTS[k & 63]
    return scale + scale * (r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0))))))


_LN2_HIGH = math.ldexp(math.floor(math.ldexp(math.log(2.0), 32)), -32)  # so that e * _LN2_HIGH is exact
_LN2_LOW = 1.9082149292705877e-10  # log(2) - _LN2_HIGH, from its decimal expansion
_SQRT_HALF = math.sqrt(0.5)
_FRACTION, _ONE_HALF = 2**52 - 1, 1022 << 52  # bits of a double
_ODD = tuple(1.0 / k for k in range(21, 0, -2))


@inlined
def log(x):
    """log x of a positive normal number, by IEEE operations alone and so the same on every machine.

    x = 2^e m with m in [sqrt(1/2), sqrt(2)), f = (m - 1) / (m + 1), log m = 2 f (1 + f^2/3 + f^4/5 + ... + f^20/21).
    """
    bits = np.float64(x).view(np.int64)
    e = (bits >> 52) - 1022
    m = np.int64((bits & _FRACTION) | _ONE_HALF).view(np.float64)  # in [1/2, 1)
    if m < _SQRT_HALF:
        m, e = m + m, e - 1
    f = (m - 1.0) / (m + 1.0)
    s = f * f
    series = _ODD[0]
    for k in range(1, 11):
        series = series * s + _ODD[k]
    return e * _LN2_HIGH + (e * _LN2_LOW + 2.0 * f * series)


# ---------------------------------------------------------------------------------------------------------
# Wright omega: the solution w of w + log(w) = x, so that W(e^x) = omega(x) without overflow.
#
# Between X_MIN and X_MAX a table holds Taylor coefficients of degree five around the centres of cells of
# width 1/64; the remainder is (1/128)^6 / 720 of the sixth derivative, below one unit in the last place.
# Reference: Corless & Jeffrey, "The Wright omega function" (2002), also for the derivatives.
# ---------------------------------------------------------------------------------------------------------

CELLS_PER_UNIT = 64
X_MIN, X_MAX = -8.0, 24.0
N_CELLS = int((X_MAX - X_MIN) * CELLS_PER_UNIT)


def _exps(x: np.ndarray) -> np.ndarray:
    """:func:`exp` of an array of moderate numbers, the same operations in the same order."""
    k = np.floor(x * (1.0 / _STEP) + 0.5)
    r = x - k * _STEP_HIGH - k * _STEP_LOW
    whole = k.astype(np.int64)
    scale = _POWERS[(whole >> 6) + 1074] * _ROOTS[whole & 63]
    return scale + scale * (r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0))))))


def _omega_by_newton(x: np.ndarray) -> np.ndarray:
    """Solve w + log w = x by Newton's method on v = log w, for building the table.

    v + e^v is convex and rises, so that after the first step v comes down to the root, in at most nine steps here.
    """
    v = np.minimum(x, 3.0)
    for _ in range(9):
        w = _exps(v)
        v = v - (w + v - x) / (1.0 + w)
    return _exps(v)


def _omega_table() -> np.ndarray:
    """Coefficients of each cell, by + - * / alone, as devices in other languages work them out too."""
    centres = X_MIN + (np.arange(N_CELLS) + 0.5) / CELLS_PER_UNIT
    w = _omega_by_newton(centres)
    q = 1.0 / (1.0 + w)
    s = q * q
    first = w * q
    second = first * s
    third = second * s
    fourth = third * s
    fifth = fourth * s
    coefficients = [
        w,
        first,
        second / 2.0,
        third * (1.0 - 2.0 * w) / 6.0,
        fourth * (1.0 + w * (-8.0 + 6.0 * w)) / 24.0,
        fifth * (1.0 + w * (-22.0 + w * (58.0 - 24.0 * w))) / 120.0,
    ]
    return np.ascontiguousarray(np.stack(coefficients, axis=1))


OMEGA_TABLE = _omega_table()


@inlined
def omega_near(x):
    """Wright omega from the table, for x between X_MIN and X_MAX (the nearer end of the table beyond)."""
    cell = (x - X_MIN) * CELLS_PER_UNIT
    cell = cell if cell > 0.0 else 0.0
    cell = cell if cell < N_CELLS - 1.0 else N_CELLS - 1.0
    i = int(cell)
    t = x - (X_MIN + (i + 0.5) / CELLS_PER_UNIT)
    high = OMEGA_TABLE[i, 3] + t * (OMEGA_TABLE[i, 4] + t * OMEGA_TABLE[i, 5])
    return OMEGA_TABLE[i, 0] + t * (OMEGA_TABLE[i, 1] + t * (OMEGA_TABLE[i, 2] + t * high))


@compiled
def omega_far(x):
    """Wright omega outside the table: a series on the left, Fritsch-Shafer-Crowley steps on the right."""
    if x < X_MIN:
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


@inlined
def omega(x):
    """Wright omega, ``omega(x) + log(omega(x)) = x``, to a few units in the last place for every real x."""
    return omega_near(x) if X_MIN <= x <= X_MAX else omega_far(x)


@compiled
def omegas(x):
    """Wright omega of every entry, in place: the table for all, then the few that lie outside it."""
    far = False
    for i in range(x.size):
        far |= not X_MIN <= x[i] <= X_MAX
    if far:
        for i in range(x.size):
            x[i] = omega(x[i])
    else:
        for i in range(x.size):
            x[i] = omega_near(x[i])


@inlined
def _polynomial(r, c):
    """A polynomial of degree seven by Horner's rule, coefficients from the highest power down."""
    return ((((((c[0] * r + c[1]) * r + c[2]) * r + c[3]) * r + c[4]) * r + c[5]) * r + c[6]) * r + c[7]


@inlined
def _rational(r, a, b):
    """Ratio of two such polynomials."""
    return _polynomial(r, a) / _polynomial(r, b)


# Wichura, "Algorithm AS 241: the percentage points of the normal distribution" (1988), PPND16.
_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
              1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
              5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_MIDDLE = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
              1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
              4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
              1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
              2.05319162663775882187e0, 1.0),
)  # fmt: skip
_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
              2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
              5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
              7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
              5.99832206555887937690e-1, 1.0),
)  # fmt: skip


@inlined
def normal_centre(q):
    """The normal quantile of 1/2 + q for |q| <= 0.425."""
    return q * _rational(0.180625 - q * q, _CENTRE[0], _CENTRE[1])


@compiled
def normal_quantile(u):
    """Inverse of the standard normal distribution function, 0 < u < 1 (0 and 1 give the ends of the doubles).

    Good to 4e-15, and the same to the last bit on every machine: see :func:`log`.
    """
    q = u - 0.5
    if abs(q) <= 0.425:
        return normal_centre(q)
    r = math.sqrt(-log(max(min(u, 1.0 - u), 1e-300)))
    if r <= 5.0:
        value = _rational(r - 1.6, _MIDDLE[0], _MIDDLE[1])
    else:
        value = _rational(r - 5.0, _TAIL[0], _TAIL[1])
    return -value if q < 0.0 else value


@compiled
def _stirling_error(k):
    """log k! minus Stirling's formula for it."""
    if k < 16.0:
        return math.lgamma(k + 1.0) - (k + 0.5) * math.log(k) + k - 0.9189385332046727418
    q = 1.0 / (k * k)
    return (1.0 / 12.0 - q * (1.0 / 360.0 - q * (1.0 / 1260.0 - q * (1.0 / 1680.0 - q / 1188.0)))) / k


@compiled
def _poisson_at_mode(k, mu):
    """P(Poisson(mu) = k) for k = floor(mu), by the saddle-point expansion of Loader (2000): no large terms cancel."""
    if k < 1.0:
        return math.exp(-mu)
    e = (k - mu) / mu  # k log(k / mu) + mu - k = mu ((1 + e) log(1 + e) - e), and e is small
    deviance = mu * ((1.0 + e) * math.log1p(e) - e)
    return math.exp(-deviance - _stirling_error(k)) / math.sqrt(2.0 * math.pi * k)


POISSON_EXACT = 1e8  # above this mean the quantile comes from the Cornish-Fisher expansion


@compiled
def poisson_quantile(u, mu):
    """Smallest k with P(Poisson(mu) <= k) >= u, in O(sqrt(mu)) terms.

    From the mode out to where a tail is lost in rounding of the smaller of u and 1 - u, then inward again, adding up
    the tail from its small end: nothing cancels, so both tails are good to rounding.
    """
    if mu <= 0.0 or u <= 0.0:
        return 0.0
    if mu > POISSON_EXACT:
        x = normal_quantile(u)
        return max(0.0, math.floor(mu + math.sqrt(mu) * x + (x * x - 1.0) / 6.0 + 0.5))
    k = math.floor(mu)
    pmf = _poisson_at_mode(k, mu)
    tail = 0.0
    if u <= 0.5:
        while k > 0.0 and pmf > 1e-18 * u:
            pmf *= k / mu
            k -= 1.0
        while tail + pmf < u:  # tail = P(Poisson < k)
            tail += pmf
            k += 1.0
            pmf *= mu / k
        return k
    rest = max(1.0 - u, 1e-17)
    while pmf > 1e-18 * rest:
        k += 1.0
        pmf *= mu / k
    while k >= 0.0 and tail + pmf <= rest:  # tail = P(Poisson > k)
        tail += pmf
        pmf *= k / mu
        k -= 1.0
    return max(k, 0.0)
