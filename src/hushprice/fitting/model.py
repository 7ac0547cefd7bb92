"""A demand model fitted to a log of quotes, with the interface of a scikit-learn estimator.

y has mean psi'(z.alpha - (z.beta) p),    z = (1, encoded features)
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.special import ndtri

from hushprice.arrays import Array
from hushprice.demand import Family
from hushprice.errors import HushpriceError, InvalidInput, finite
from hushprice.fitting import model_file
from hushprice.fitting.diagnosis.heldout import deviance_explained
from hushprice.fitting.diagnosis.report import standard_errors
from hushprice.fitting.fit_log import Learned, Task, learn
from hushprice.fitting.model_fields import ModelFileError
from hushprice.fitting.model_file import Origin
from hushprice.fitting.passes.survey import OnProgress
from hushprice.fitting.reading.frames import Frame
from hushprice.fitting.reading.frames import outcomes as outcomes_of
from hushprice.fitting.reading.frames import weights as weights_of
from hushprice.fitting.reading.source import Log, Source
from hushprice.fitting.sklearn_api import SklearnApi

OUTCOME, WEIGHT = "(outcome)", "(weight)"  # columns that are added to X


class DemandModel(SklearnApi):
    """GLM demand whose price sensitivity depends on the customer.

    For a log that does not fit into memory use :func:`fit`, which gives the same model.

    Parameters
    ----------
    price : str or int
        Column of the price; its number if X is an array.
    features : sequence of str or int, optional
        Columns used as features; all other columns by default.
    family : Family or str
        A demand family or its name, a key of ``hushprice.demand.FAMILIES``; or "auto": logistic for outcomes of 0
        and 1, Poisson for whole numbers, linear for others.
    sensitivity : str or sequence of str or int
        Features that the price sensitivity depends on; "all" or "none".
    categories : sequence of str or int
        Number columns to use as categories.
    segment : str or int, optional
        Column whose segments the report lists.
    ridge : float
        Penalty on the standardised coefficients.
    prices : tuple of float, optional
        Range (low, high) of the prices that may be set; by default the range of the logged prices.
    half_life : float, optional
        Number of rows after which a row counts half: its weight is 0.5^(age / half_life), where the last row has age 0.
        By default all rows count the same. Rows must be in order of time, oldest first.

    Attributes
    ----------
    family_ : Family
        The family of the fit.
    encoding_ : Encoding
        How columns become contexts z.
    theta_ : ndarray of shape (2 d,)
        Coefficients: ``alpha_`` and ``beta_``, of length d each.
    covariance_ : ndarray of shape (2 d, 2 d)
        Covariance of ``theta_``; NaN for coefficients that the log does not identify.
    prices_ : tuple of float
        Range of the prices that may be set.
    seen_ : tuple of float
        Range of the logged prices.
    segments_ : str or None
        Column of the segments.
    outcome_, weights_ : str or None
        Columns of the outcome and of the weights.
    records_ : int
        Number of rows used.
    report_ : Report
        Coefficients, elasticities, demand curves and held-out scores.
    findings_ : list of Finding
        Problems of the log and of the fit, the most severe first.
    half_life_ : float or None
        The half-life of the fit.
    path_ : ndarray of shape (10, 2 d) or None
        ``theta_`` of ten consecutive parts of the log (with a half-life: of the last three half-lives), smoothed; all
        the same if the log shows no change, None if it is too short to tell.

    Notes
    -----
    X is a pandas or polars frame, an Arrow table, a mapping of columns, or an array, without the outcome.

    Examples
    --------
    >>> rng = np.random.default_rng(2)
    >>> price, risk = rng.uniform(1, 3, 20_000), rng.choice(["low", "high"], 20_000)
    >>> sold = rng.random(20_000) < 1 / (1 + np.exp(price - 1 - (risk == "low")))
    >>> model = DemandModel(price="price").fit({"price": price, "risk": risk}, sold)
    >>> model.family_, model.findings_
    (Logistic(), [])
    >>> model.predict({"price": [1.0, 3.0], "risk": ["low", "low"]}).round(1)
    array([0.7, 0.3])
    >>> model.optimal_price({"risk": ["low", "high"]}, prices=(0, 5)).round(1)
    array([2. , 1.6])
    """

    def __init__(
        self,
        *,
        price: str | int = "price",
        features: Sequence[str | int] | None = None,
        family: Family | str = "auto",
        sensitivity: str | Sequence[str | int] = "all",
        categories: Sequence[str | int] = (),
        segment: str | int | None = None,
        ridge: float = 0.0,
        prices: tuple[float, float] | None = None,
        half_life: float | None = None,
    ) -> None:
        self.price = price
        self.features = features
        self.family = family
        self.sensitivity = sensitivity
        self.categories = categories
        self.segment = segment
        self.ridge = ridge
        self.prices = prices
        self.half_life = half_life

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : frame, Arrow table, mapping or array
            One row per quote, the price among the columns.
        y : array-like of shape (n,)
            Demand of each quote.
        sample_weight : array-like of shape (n,), optional
            Weights, which count like repeated rows.

        Returns
        -------
        DemandModel
            The model itself.
        """
        frame = Frame.of(X)
        data = {**frame.data, OUTCOME: outcomes_of(y, frame.rows, type(self).__name__)}
        if sample_weight is not None:
            data[WEIGHT] = weights_of(sample_weight, frame.rows)
        price, sensitivity = frame.name(self.price), self.sensitivity
        features = [c for c in frame.names if c != price] if self.features is None else map(frame.name, self.features)
        task = Task(
            price=price,
            outcome=OUTCOME,
            features=tuple(features),
            family=self.family,
            weights=None if sample_weight is None else WEIGHT,
            categories=tuple(map(frame.name, self.categories)),
            sensitivity=sensitivity if isinstance(sensitivity, str) else tuple(map(frame.name, sensitivity)),
            segment=None if self.segment is None else frame.name(self.segment),
            prices=self.prices,
            ridge=self.ridge,
            half_life=self.half_life,
        )
        places = len(frame.names) if frame.numbered else None
        return self._set(learn(data, task), Origin(price=price, array_columns=places))

    def _set(self, learned: Learned, origin: Origin) -> Self:
        """Set the fitted attributes."""
        d = learned.encoding.dim
        self.family_, self.encoding_ = learned.family, learned.encoding
        self.theta_, self.alpha_, self.beta_ = learned.theta, learned.theta[:d], learned.theta[d:]
        self.covariance_, self.sensitive_ = learned.covariance, learned.sensitive
        self.prices_, self.seen_, self.segments_ = learned.prices, learned.seen, learned.segment
        self.price_, self.outcome_, self.weights_ = origin.price, origin.outcome, origin.weights
        self.log_ = origin.log
        self.records_, self.weight_, self.ridge_ = learned.records, learned.weight, learned.ridge
        self.report_, self.findings_ = learned.report, learned.findings
        self.half_life_, self.path_ = learned.half_life, learned.path
        names = (origin.price, *learned.features)
        self.n_features_in_ = origin.array_columns or len(names)
        if origin.array_columns is None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self._learned, self._origin = learned, origin
        return self

    @property
    def standard_errors_(self) -> Array:
        """Standard errors of theta_; infinite for a coefficient that the log does not identify."""
        self._check()
        return standard_errors(self.covariance_)

    # Predictions

    def predict(self, X: Any) -> Array:
        """Expected demand at the prices in X, shape (n,); NaN where the price is missing.

        Parameters
        ----------
        X : data frame or array_like
            Customers, one per row, with their prices.

        Returns
        -------
        ndarray
            One number per row.
        """
        z, price = self._rows(X)
        return np.asarray(self.family_.mean(self._eta(z, price)))

    def demand_interval(self, X: Any, *, level: float = 0.95) -> tuple[Array, Array]:
        """Confidence interval of the expected demand at the prices in X, by the delta method on the scale of eta.

        Parameters
        ----------
        X : frame, Arrow table, mapping or array
            Customers, with prices.
        level : float
            Confidence level.

        Returns
        -------
        low, high : ndarray of shape (n,)
            Ends of the interval of each row.
        """
        z, price = self._rows(X)
        level = finite("level", level, minimum=0.0, maximum=1.0)
        x = np.hstack([z, -price[:, None] * z])
        variance = np.einsum("ij,jk,ik->i", x, self.covariance_, x, optimize=True)
        variance = np.where(np.isnan(variance), np.inf, np.maximum(variance, 0.0))
        reach = ndtri(0.5 + 0.5 * level) * np.sqrt(variance)
        eta = self._eta(z, price)
        return np.asarray(self.family_.mean(eta - reach)), np.asarray(self.family_.mean(eta + reach))

    def elasticity(self, X: Any) -> Array:
        """Price elasticity of each customer's expected demand at the price in X: -p b psi''(eta) / psi'(eta).

        Parameters
        ----------
        X : data frame or array_like
            Customers, one per row, with their prices.

        Returns
        -------
        ndarray
            One number per row.
        """
        z, price = self._rows(X)
        eta = self._eta(z, price)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = self.family_.curvature(eta) / self.family_.mean(eta)
        return np.asarray(-price * (z @ self.beta_) * slope)

    def optimal_price(self, X: Any, *, prices: tuple[float, float] | None = None, cost: float = 0.0) -> Array:
        """The price that maximises each customer's expected profit.

        Parameters
        ----------
        X : frame, Arrow table, mapping or array
            Customers; prices are not needed, unless X is an array.
        prices : tuple of float, optional
            Range of the prices; ``prices_`` by default.
        cost : float
            Cost per unit sold.

        Returns
        -------
        ndarray of shape (n,)
            Best prices; see :meth:`hushprice.demand.Family.optimal_price`.
        """
        z = self.contexts(X)
        return np.asarray(
            self.family_.optimal_price(z @ self.alpha_, z @ self.beta_, prices or self.prices_, cost=cost)
        )

    def contexts(self, X: Any) -> Array:
        """The contexts z (n, d) of customers; X needs no price, unless it is an array.

        Parameters
        ----------
        X : data frame or array_like
            Customers, one per row.

        Returns
        -------
        ndarray of shape (n, d)
            One context per row.
        """
        return self.encoding_.encode(self._frame(X).batch(self.encoding_.columns))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the deviance explained: 1 - deviance / deviance of the mean of y. R^2 for linear demand.

        Parameters
        ----------
        X : frame, Arrow table, mapping or array
            Customers, with prices.
        y : array-like of shape (n,)
            Their demand.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows.

        Returns
        -------
        float
            At most 1; below 0 for a model that predicts worse than the mean of y.

        Raises
        ------
        InvalidInput
            If a price is missing, or y does not suit the family.
        """
        z, price = self._rows(X)
        if bad := int(np.count_nonzero(np.isnan(price))):
            raise InvalidInput(f"{bad} of {len(price)} rows of X have no price in {self.price_!r}. Leave them out.")
        demand = self.family_.check_outcome(outcomes_of(y, len(z), type(self).__name__))
        w = np.ones(len(z)) if sample_weight is None else weights_of(sample_weight, len(z))
        return deviance_explained(self.family_, self._eta(z, price), demand, w)

    def _eta(self, z: Array, price: Array) -> Array:
        return np.asarray(z @ self.alpha_ - price * (z @ self.beta_))

    def _rows(self, X: Any) -> tuple[Array, Array]:
        """Contexts and prices of X."""
        frame = self._frame(X)
        batch = frame.batch(tuple(dict.fromkeys((self.price_, *self.encoding_.columns))))
        price = batch.numbers(self.price_)
        return self.encoding_.encode(batch), np.where(np.isfinite(price), price, np.nan)

    def _frame(self, X: Any) -> Frame:
        self._check()
        frame = Frame.of(X)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and not frame.numbered:
            return frame
        fitted_names = tuple(f"x{j}" for j in range(self.n_features_in_)) if names is None else tuple(names)
        return frame.renamed(fitted_names, type(self).__name__)

    # Files

    def to_dict(self) -> dict[str, Any]:
        """The fitted model as plain data."""
        self._check()
        return model_file.to_dict(self._learned, self._origin, self.get_params())

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """A model from the data of :meth:`to_dict`, checked; raises ModelFileError if the data is damaged.

        Parameters
        ----------
        data : mapping
            The data.
        """
        learned, origin, parameters = model_file.from_dict(data)
        return cls(**parameters)._set(learned, origin)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the model to a JSON file; an existing file is replaced only if it is a model file too.

        Parameters
        ----------
        path : str or path
            The file to write.
        """
        return model_file.write(path, self.to_dict())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a model file; raises ModelFileError if it cannot be used.

        Parameters
        ----------
        path : str or path
            A file that :meth:`save` wrote.
        """
        data = model_file.read(path)
        try:
            return cls.from_dict(data)
        except HushpriceError as problem:
            raise ModelFileError(f"{path} cannot be used. {problem}") from None


def fit(
    log: Log,
    *,
    price: str,
    outcome: str,
    features: Sequence[str] | None = None,
    family: Family | str = "auto",
    weights: str | None = None,
    categories: Sequence[str] = (),
    sensitivity: str | Sequence[str] = "all",
    segment: str | None = None,
    prices: tuple[float, float] | None = None,
    ridge: float = 0.0,
    half_life: float | None = None,
    progress: OnProgress | None = None,
) -> DemandModel:
    """Fit a demand model to a log of past quotes of any length; files are streamed.

    Parameters
    ----------
    log : path, frame, Arrow table, mapping or Source
        A CSV, gzipped CSV or Parquet file, a folder of them, or a table in memory. Its rows are taken to be in order
        of time, oldest first; the files of a folder are read in the order of their names.
    price, outcome : str
        Columns of the price and of the demand.
    features : sequence of str, optional
        Columns used as features; all other columns by default.
    family : Family or str
        As for :class:`DemandModel`, as are categories, sensitivity, segment, prices and ridge.
    weights : str, optional
        Column of weights. They count like repeated rows, in standard errors too.
    categories : sequence of str
        Number columns to use as categories.
    sensitivity : str or sequence of str
        Features that the price sensitivity depends on; "all" or "none".
    segment : str, optional
        Column whose segments the report lists.
    prices : tuple of float, optional
        Range of the prices that may be set; by default the range of the logged prices.
    ridge : float
        Penalty on the standardised coefficients.
    half_life : float, optional
        Number of rows after which a row counts half: its weight is 0.5^(age / half_life), where the last row of the log
        has age 0. Standard errors and scores allow for it. By default all rows count the same.
    progress : callable, optional
        Called with the name of the current step and the number of rows read in it.

    Returns
    -------
    DemandModel
        The fitted model.

    Raises
    ------
    InvalidInput
        If the log cannot be read or an argument does not suit it.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> price, age = rng.uniform(1, 3, 4_000), rng.normal(40, 10, 4_000)
    >>> log = {"price": price, "age": age, "units": rng.poisson(np.exp(2 - price))}
    >>> model = fit(log, price="price", outcome="units", features=["age"])
    >>> model.family_, round(model.report_.everyone.elasticity, 1)
    (Poisson(), -1.7)
    """
    task = Task(
        price=price, outcome=outcome, features=features, family=family, weights=weights, categories=categories,
        sensitivity=sensitivity, segment=segment, prices=prices, ridge=ridge, half_life=half_life,
    )  # fmt: skip
    source = Source.open(log)
    learned = learn(source, task, progress=progress)
    model = DemandModel(
        price=price, features=learned.features, family=family, sensitivity=task.sensitivity,
        categories=task.categories, segment=segment, ridge=task.ridge, prices=task.prices, half_life=task.half_life,
    )  # fmt: skip
    return model._set(learned, Origin(price=price, outcome=outcome, weights=weights, log=source.name))
