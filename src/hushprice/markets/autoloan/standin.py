"""A synthetic stand-in for the auto loan file, which may not be redistributed.

The stand-in reproduces the published facts (``PUBLISHED`` in ``market.py``; the tests state how closely): the number of
rows, the demand theta, the 99% quantile of |z|, the 1% quantile of z.beta, the number of retained rows, the range of
their optimal prices, the mean FICO score, the mean monthly payment and the share of loans taken up.

It follows what is known in outline: the prime rate (`onemonth`) fell from 1.84% in July 2002 to 1.1% in 2003 and rose
again in 2004; terms are 36 to 72 months; a lower FICO score means a higher competitor's rate; larger loans run longer.

Spreads and correlations are free choices (:class:`Recipe`). With u, v, w, x independent standard normal,

    FICO          580 + 270 Beta, of mean 731.3 and standard deviation fico_sd;  f = (FICO - 731.3) / fico_sd
    amount        1 + amount_sd L times the mean, L lognormal of log-spread amount_skew, moved to mean 0 and variance 1,
                  of g = amount_fico f + sqrt(1 - amount_fico^2) u;  from 0.15 to 4 times the mean
    term          cut from term_rho g + sqrt(1 - term_rho^2) v, with 1 - term_spread of the loans at 60 months
    competitor    1 - rate_fico f + rate_prime (prime / mean - 1) + rate_noise w times the mean;  at
                  least 0.3 times the mean
    lender        the yearly rate behind the payment: the competitor's times exp(lender_noise x)

amount_sd and rate_noise solve the two published quantiles. The other parameters were searched so that ETC-Doubling and
MLE-Cycle have about their reported regret, and a price experiment on [0, 3] costs 0.15 on average: the reported regrets
of ETC-LDP at epsilon = 1, 2 and 4 (15592, 10057 and 7022, with 85 961, 43 950 and 22 098 experiments) amount to about
0.152 per experiment and 0.02 per other sale. Reproducing these regrets is therefore no evidence. The regrets of the
private policies were not fitted: no choice that was tried changes them much. Of six seeds, the one used has the range
of optimal prices closest to the published range. The mean amount follows from the mean payment, and `apply` from theta.
A row that would be retained although its optimal price is outside the published range is rejected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from hushprice.arrays import Array
from hushprice.demand import as_family

ALPHA = np.array([-1.434, 0.288, -2.348, 0.807, 2.845])
BETA = np.array([1.956, -1.542, -0.432, 0.672, 0.147])
NORM_LIMIT, SENSITIVITY_LIMIT = 3.05, 0.13
OPTIMAL_PRICES = (0.632, 9.994)
ROWS, FICO_MEAN, PAYMENT_MEAN = 208_085, 731.3, 584.87

COVARIATES = ("Primary_FICO", "Competition_rate", "Amount_Approved", "onemonth", "Term")
COLUMNS = ("apply", *COVARIATES, "mp")
MONTHLY_RATE = 0.0012  # at which payments are discounted

FICO_RANGE = (580.0, 850.0)
AMOUNTS = (0.15, 4.0)  # the smallest and the largest, over the mean
SMALLEST_RATE = 0.3  # over the mean
TERMS = np.array([36.0, 48.0, 60.0, 66.0, 72.0])
OTHER_TERMS = np.array([0.2, 0.3, 0.0, 0.1, 0.4])  # shares among the loans that do not run for 60 months
PRIME_RATE = np.array([
    1.84, 1.80, 1.82, 1.80, 1.44, 1.42, 1.36, 1.34, 1.31, 1.31, 1.32, 1.16, 1.11, 1.11, 1.12, 1.12, 1.13, 1.15, 1.11,
    1.10, 1.09, 1.10, 1.10, 1.25, 1.41, 1.60, 1.77, 1.90, 2.15,
])  # fmt: skip
"""Approximate one-month rate in percent at the beginning of each month from July 2002 to November 2004."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The free parameters of the stand-in; the module's docstring has their meaning."""

    seed: int = 5
    rows: int = ROWS
    fico_sd: float = 54.0
    amount_sd: float = 0.3098
    amount_skew: float = 0.88
    amount_fico: float = 0.3
    term_spread: float = 0.69
    term_rho: float = 0.25
    rate_fico: float = 0.042
    rate_prime: float = 0.2
    rate_noise: float = 0.1054
    rate_level: float = 5.0
    lender_noise: float = 0.08


Columns = dict[str, Array]


@cache
def standin(recipe: Recipe = Recipe()) -> Columns:  # noqa: B008 (frozen)
    """The columns of the stand-in. They are cached and read-only.

    Examples
    --------
    >>> columns = standin()
    >>> len(columns["apply"]), round(float(columns["mp"].mean()), 1)
    (208085, 584.9)
    """
    rng = np.random.default_rng(recipe.seed)
    raw = _accepted(recipe, rng)
    raw = raw[np.argsort(raw[:, -1], kind="stable")]  # in order of time
    columns = _priced(recipe, rng, {name: raw[:, j].copy() for j, name in enumerate(COVARIATES)})
    for values in columns.values():
        values.flags.writeable = False
    return {name: columns[name] for name in COLUMNS}


def _accepted(recipe: Recipe, rng: np.random.Generator) -> Array:
    """The first rows drawn, without those that would be retained at an optimal price outside the published range."""
    raw = _applications(recipe, rng, int(1.05 * recipe.rows))
    while (outside := _outside_published_range(raw[: recipe.rows])).any():
        raw = np.delete(raw, np.flatnonzero(outside), axis=0)
    return raw[: recipe.rows]


def _applications(recipe: Recipe, rng: np.random.Generator, n: int) -> Array:
    """n rows (FICO, competitor's rate, amount as a share of its mean, prime rate, term, time in [0, 1])."""
    time = rng.random(n)
    prime = np.interp(time * (len(PRIME_RATE) - 1), np.arange(len(PRIME_RATE)), PRIME_RATE)
    fico = _fico(recipe, rng, n)
    f = (fico - FICO_MEAN) / recipe.fico_sd
    g = _mixed(f, rng.standard_normal(n), recipe.amount_fico)
    amount = 1.0 + recipe.amount_sd * _lognormal(g, recipe.amount_skew)
    term = _term(recipe, _mixed(g, rng.standard_normal(n), recipe.term_rho))
    rate = 1.0 - recipe.rate_fico * f + recipe.rate_prime * (prime / prime.mean() - 1.0)
    rate = recipe.rate_level * np.maximum(SMALLEST_RATE, rate + recipe.rate_noise * rng.standard_normal(n))
    rows = np.column_stack([np.round(fico), np.round(rate, 3), amount, np.round(prime, 4), term, time])
    return rows[(amount >= AMOUNTS[0]) & (amount <= AMOUNTS[1])]


def _fico(recipe: Recipe, rng: np.random.Generator, n: int) -> Array:
    """580 + 270 Beta(k m, k (1 - m)) with the recipe's mean and standard deviation."""
    low, high = FICO_RANGE
    m, s = (FICO_MEAN - low) / (high - low), recipe.fico_sd / (high - low)
    k = m * (1.0 - m) / s**2 - 1.0
    return low + (high - low) * rng.beta(k * m, k * (1.0 - m), n)


def _mixed(common: Array, own: Array, rho: float) -> Array:
    """rho common + sqrt(1 - rho^2) own."""
    return rho * common + math.sqrt(1.0 - rho**2) * own


def _lognormal(g: Array, s: float) -> Array:
    """(exp(s g - s^2 / 2) - 1) / sqrt(exp(s^2) - 1): mean 0 and variance 1 for a standard normal g."""
    scaled: Array = np.expm1(s * g - 0.5 * s * s) / math.sqrt(math.expm1(s * s))
    return scaled


def _term(recipe: Recipe, g: Array) -> Array:
    """The term for each standard normal g, longer for larger ones."""
    shares = recipe.term_spread * OTHER_TERMS
    shares[TERMS == 60.0] = 1.0 - recipe.term_spread
    return TERMS[np.searchsorted(ndtri(np.cumsum(shares)[:-1]), g)]


def _outside_published_range(raw: Array) -> npt.NDArray[np.bool_]:
    """Which rows would be retained although their optimal price is outside the published range."""
    covariates = raw[:, : len(COVARIATES)]
    z = covariates / covariates.mean(axis=0)
    norm, a, b = np.linalg.norm(z, axis=1), z @ ALPHA, z @ BETA
    price = as_family("logistic").optimal_price(a, b, (0.0, 1e3))
    retained = (norm <= np.quantile(norm, 0.99)) & (b >= np.quantile(b, 0.01))
    outside: npt.NDArray[np.bool_] = retained & ((price < OPTIMAL_PRICES[0]) | (price > OPTIMAL_PRICES[1]))
    return outside


def _priced(recipe: Recipe, rng: np.random.Generator, columns: Columns) -> Columns:
    """The columns with amounts in dollars, monthly payments and ``apply``."""
    term, share = columns["Term"], columns["Amount_Approved"]
    n = len(term)
    monthly = columns["Competition_rate"] * np.exp(recipe.lender_noise * rng.standard_normal(n)) / 1200.0
    payment = share / annuity(term, monthly)
    dollars = PAYMENT_MEAN / payment.mean()
    amount, mp = np.round(dollars * share), np.round(dollars * payment, 2)
    columns = {**columns, "Amount_Approved": amount, "mp": mp}
    z, _ = contexts_over_means(columns)
    price = loan_price(mp, term, amount)
    accept = as_family("logistic").mean(z @ ALPHA - z @ BETA * price)
    return {**columns, "apply": (rng.random(n) < accept).astype(np.float64)}


def annuity(term: Array, rate: float | Array) -> Array:
    """sum_{i=1}^{term} (1 + rate)^-i = (1 - (1 + rate)^-term) / rate.

    Examples
    --------
    >>> bool(np.isclose(annuity(np.array([2.0]), 0.1)[0], 1 / 1.1 + 1 / 1.1**2))
    True
    """
    value: Array = -np.expm1(-term * np.log1p(rate)) / rate
    return value


def loan_price(mp: Array, term: Array, amount: Array) -> Array:
    """p = (mp sum_{i=1}^{term} 1.0012^-i - amount) / 1000.

    Examples
    --------
    >>> loan_price(np.array([600.0]), np.array([60.0]), np.array([30_000.0])).round(3)
    array([4.714])
    """
    return (mp * annuity(term, MONTHLY_RATE) - amount) / 1000.0


def contexts_over_means(columns: Columns) -> tuple[Array, Array]:
    """(z, means): the covariates, each divided by its mean."""
    raw = np.column_stack([columns[name] for name in COVARIATES])
    means = raw.mean(axis=0)
    return np.ascontiguousarray(raw / means), means
