"""The auto loan market: customers of an online lender, 2002 to 2004 (the paper's real data study).

The file of Columbia's Center for Pricing and Revenue Management may not be redistributed: pass its path, or use the
synthetic stand-in (``standin.py``), whose market has "synthetic" in its name. Rows become a market in these steps:

    price         p = (mp sum_{i=1}^{Term} 1.0012^-i - Amount_Approved) / 1000, in thousands of dollars
    contexts      z = (Primary_FICO, Competition_rate, Amount_Approved, onemonth, Term), each over its mean; d = 5
    demand        theta = (alpha, beta), the logistic fit of apply on (z, -p z), all rows
    kept          rows with |z| <= its 99% quantile and z.beta >= its 1% quantile
    customers     drawn with replacement from the kept rows; prices [0, 10]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from hushprice.arrays import Array
from hushprice.demand import Family, as_family
from hushprice.errors import InvalidInput, NoMLE
from hushprice.estimation import Fit, design, fit
from hushprice.markets.autoloan.loan_file import read_columns
from hushprice.markets.autoloan.standin import (
    ALPHA,
    BETA,
    COLUMNS,
    COVARIATES,
    NORM_LIMIT,
    OPTIMAL_PRICES,
    ROWS,
    SENSITIVITY_LIMIT,
    Columns,
    contexts_over_means,
    loan_price,
    standin,
)  # fmt: skip
from hushprice.markets.market import Market, Resample
from hushprice.markets.synthetic import paper_market

LOAN_PRICES = (0.0, 10.0)
NAME, SYNTHETIC_NAME = "autoloan", "autoloan-synthetic"

PUBLISHED = {
    "rows": float(ROWS),
    "kept": 204_782.0,
    "norm limit": NORM_LIMIT,
    "sensitivity limit": SENSITIVITY_LIMIT,
    "lowest optimal price": OPTIMAL_PRICES[0],
    "highest optimal price": OPTIMAL_PRICES[1],
    "mean FICO": 731.3,
    "mean monthly payment": 584.87,
}
"""Published facts about the real file; :meth:`Loans.facts` computes them for any file."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Loans:
    """Loan applications, and quantities derived from them.

    Parameters
    ----------
    name : str
        "autoloan", or "autoloan-synthetic" for the stand-in.
    apply : ndarray of shape (n,)
        1 for a loan taken up, else 0.
    price : ndarray of shape (n,)
        Price of the loan, in thousands of dollars.
    z : ndarray of shape (n, 5)
        Contexts, one row per application.
    means : ndarray of shape (5,)
        Means of the covariates.
    payment : ndarray of shape (n,)
        Monthly payments in dollars.
    truth : ndarray of shape (10,), optional
        theta of the market. Default: the fitted one.

    Examples
    --------
    >>> table = loans()
    >>> table.name, table.z.shape
    ('autoloan-synthetic', (208085, 5))
    """

    name: str
    apply: Array
    price: Array
    z: Array
    means: Array
    payment: Array
    truth: Array | None = None

    def __repr__(self) -> str:
        return f"<Loans {self.name}: {len(self.z):,} applications, {len(self.rows):,} kept>"

    @cached_property
    def fitted(self) -> Fit:
        """The logistic fit of apply on (z, -p z), all rows."""
        return _demand(self.z, self.price, self.apply)

    @property
    def theta(self) -> Array:
        """(alpha, beta) of the market: the fitted value, for the stand-in the published one."""
        return self.fitted.theta if self.truth is None else self.truth

    @property
    def standard_errors(self) -> Array:
        """Standard errors of the fitted theta."""
        return self.fitted.standard_errors

    @cached_property
    def norm(self) -> Array:
        """|z| of every row."""
        length: Array = np.linalg.norm(self.z, axis=1)
        return length

    @cached_property
    def sensitivity(self) -> Array:
        """Price sensitivity z.beta of every row."""
        return self.z @ self.theta[len(COVARIATES) :]

    @cached_property
    def norm_limit(self) -> float:
        """The 99% quantile of |z|."""
        return float(np.quantile(self.norm, 0.99))

    @cached_property
    def sensitivity_limit(self) -> float:
        """The 1% quantile of z.beta."""
        return float(np.quantile(self.sensitivity, 0.01))

    @cached_property
    def kept(self) -> npt.NDArray[np.bool_]:
        """Which rows have |z| and z.beta within the limits."""
        return (self.norm <= self.norm_limit) & (self.sensitivity >= self.sensitivity_limit)

    @cached_property
    def rows(self) -> Array:
        """The contexts of the kept rows."""
        return np.ascontiguousarray(self.z[self.kept])

    @cached_property
    def optimal_prices(self) -> Array:
        """The best price in [0, 10] for each kept context."""
        d = len(COVARIATES)
        a, b = self.rows @ self.theta[:d], self.rows @ self.theta[d:]
        prices: Array = as_family("logistic").optimal_price(a, b, LOAN_PRICES)
        return prices

    def facts(self) -> dict[str, float]:
        """The facts of :data:`PUBLISHED` for this file, and the share of loans taken up.

        Examples
        --------
        >>> facts = loans().facts()
        >>> round(facts["norm limit"], 2), round(facts["sensitivity limit"], 2)
        (3.05, 0.13)
        """
        return {
            "rows": float(len(self.z)),
            "kept": float(len(self.rows)),
            "norm limit": self.norm_limit,
            "sensitivity limit": self.sensitivity_limit,
            "lowest optimal price": float(self.optimal_prices.min()),
            "highest optimal price": float(self.optimal_prices.max()),
            "mean FICO": float(self.means[0]),
            "mean monthly payment": float(self.payment.mean()),
            "taken up": float(self.apply.mean()),
        }


def autoloan(
    *, file: str | Path | None = None, dim: int = len(COVARIATES), family: Family | str = "logistic", **options: Any
) -> Market:
    """The auto loan market.

    Parameters
    ----------
    file : path-like, optional
        The real file. Default: the synthetic stand-in.
    dim : int
        5, the number of covariates.
    family : Family or str
        Logistic demand.
    **options
        Those of :class:`Market`; ``intercept``: whether contexts begin with a constant that demand does not have;
        ``drift``, with the options of :func:`drifting`.

    Raises
    ------
    InvalidInput
        If the file cannot be read or its demand cannot be fitted, or for another dim or family.

    Examples
    --------
    >>> autoloan()
    <Market autoloan-synthetic: logistic demand, d=5, prices 0 to 10>
    """
    if dim != len(COVARIATES):
        raise InvalidInput(f"The market autoloan has dim 5, its covariates {', '.join(COVARIATES)}. Got {dim}.")
    if as_family(family).name != "logistic":
        raise InvalidInput(f"The market autoloan has logistic demand: a loan is taken up or not. Got {family!r}.")
    table = loans(file)
    contexts = _StandIn.made() if file is None else Resample(table.rows)
    d = len(COVARIATES)
    settings: dict[str, Any] = {"prices": LOAN_PRICES, **options}
    return paper_market(table.name, table.theta[:d], table.theta[d:], contexts, "logistic", settings)


def loans(file: str | Path | None = None) -> Loans:
    """The loan applications.

    Parameters
    ----------
    file : path-like, optional
        The real file, CSV or CSV packed with gzip. Default: the synthetic stand-in.
    """
    if file is None:
        return _synthetic()
    columns = read_columns(file)
    if len(columns["mp"]) == ROWS and all(np.array_equal(columns[name], standin()[name]) for name in COLUMNS):
        return _table(SYNTHETIC_NAME, columns)  # written by write_standin
    return _table(NAME, columns)


def write_standin(path: str | Path) -> Path:
    """Write the stand-in as a CSV file with the columns of the real file; return the path.

    Parameters
    ----------
    path : str or Path
        The file to write.

    Returns
    -------
    Path
        The path of the file.
    """
    target = Path(path)
    try:
        csv.write_csv(pa.table(standin()), str(target))
    except OSError as problem:
        raise InvalidInput(f"The stand-in cannot be written to {target}: {problem}.") from None
    return target


class _StandIn(Resample):
    """The stand-in's customers. Pickling stores no rows: the receiving process generates them again."""

    @staticmethod
    @cache
    def made() -> _StandIn:
        return _StandIn(_synthetic().rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return _StandIn.made, ()


@cache
def _synthetic() -> Loans:
    return _table(SYNTHETIC_NAME, standin(), truth=np.concatenate([ALPHA, BETA]))


def _table(name: str, columns: Columns, truth: Array | None = None) -> Loans:
    price = loan_price(columns["mp"], columns["Term"], columns["Amount_Approved"])
    _check_prices(price, columns["Amount_Approved"])
    z, means = contexts_over_means(columns)
    return Loans(name=name, apply=columns["apply"], price=price, z=z, means=means, payment=columns["mp"], truth=truth)


def _demand(z: Array, price: Array, apply: Array) -> Fit:
    """theta = argmax of sum_i y_i x_i.theta - log(1 + exp(x_i.theta)), x = (z, -p z)."""
    if apply.min() == apply.max():
        raise InvalidInput(f"apply is {apply[0]:g} in every row, so that no demand can be fitted.")
    try:
        fitted = fit("logistic", design(z, price), apply)
    except NoMLE:
        raise InvalidInput(
            "The demand cannot be fitted: some combination of the columns tells who applies without fail. Look for "
            "values that cannot be right."
        ) from None
    if fitted.rank < 2 * z.shape[1]:
        raise InvalidInput(
            f"The demand cannot be fitted: the columns {', '.join(COVARIATES)} and the price do not vary "
            f"independently of each other. Is one of them the same in every row?"
        )
    return fitted


def _check_prices(price: Array, amount: Array) -> None:
    """Raise InvalidInput if the price of most loans is negative or above the amount lent."""
    odd = (price < 0.0) | (1000.0 * price > amount)
    if odd.mean() > 0.5:
        raise InvalidInput(
            f"The payments do not fit the loans: {np.count_nonzero(price < 0.0)} of {len(price)} never pay the amount "
            f"back and {np.count_nonzero(1000.0 * price > amount)} pay it back more than twice. Check the units of "
            f"mp (dollars per month), Term (months) and Amount_Approved (dollars)."
        )
