"""A demand model: what customers buy at a price, fitted to a log, with scikit-learn's manners.

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
from hushprice.fitting.passes.survey import Progress
from hushprice.fitting.reading.frames import Frame
from hushprice.fitting.reading.frames import outcomes as outcomes_of
from hushprice.fitting.reading.frames import weights as weights_of
from hushprice.fitting.reading.source import Log, Source
from hushprice.fitting.sklearn_api import SklearnApi

OUTCOME, WEIGHT = "(outcome)", "(weight)"  # columns that are added to X


class DemandModel(SklearnApi):
    """GLM demand with a price sensitivity that depends on the customer.

    price: the price's column (a number for arrays); features: the other columns used, or None for all; family:
    "logistic", "poisson", "linear" or "auto" (0/1 outcomes, whole numbers, others); sensitivity: the features that the
    price sensitivity depends on, "all" or "none"; categories: number columns to take as categories; segment: the column
    that elasticities are told by; ridge: penalty on the standardised coefficients; prices: the range (low, high) that
    prices may be set in, or None for the prices seen.

    X is a pandas or polars frame, an Arrow table, a mapping of columns, or an array, without the outcome. Logs that do
    not fit into memory are for :func:`fit`, which gives the same model. What is learned ends in an underscore:
    ``family_``, ``encoding_``, ``alpha_`` and ``beta_`` (together ``theta_``), ``covariance_``, ``prices_``, ``seen_``,
    ``segments_``, ``outcome_`` and ``weights_`` (columns, or None), ``records_``, ``report_`` and ``findings_``.

    >>> rng = np.random.default_rng(1)
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
    ) -> None:
        self.price = price
        self.features = features
        self.family = family
        self.sensitivity = sensitivity
        self.categories = categories
        self.segment = segment
        self.ridge = ridge
        self.prices = prices

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to customers X, one of whose columns is the price, and their demand y."""
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
        )
        places = len(frame.names) if frame.numbered else None
        return self._take(learn(data, task), Origin(price=price, array_columns=places))

    def _take(self, learned: Learned, origin: Origin) -> Self:
        """Keep what was learned, and where from."""
        d = learned.encoding.dim
        self.family_, self.encoding_ = learned.family, learned.encoding
        self.theta_, self.alpha_, self.beta_ = learned.theta, learned.theta[:d], learned.theta[d:]
        self.covariance_, self.sensitive_ = learned.covariance, learned.sensitive
        self.prices_, self.seen_, self.segments_ = learned.prices, learned.seen, learned.segment
        self.price_, self.outcome_, self.weights_ = origin.price, origin.outcome, origin.weights
        self.log_ = origin.log
        self.records_, self.weight_, self.ridge_ = learned.records, learned.weight, learned.ridge
        self.report_, self.findings_ = learned.report, learned.findings
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
        """Of theta_; infinite for a coefficient that the log does not identify."""
        self._check()
        return standard_errors(self.covariance_)

    # What it says of customers

    def predict(self, X: Any) -> Array:
        """Expected demand at the prices in X; NaN where there is no price."""
        z, price = self._rows(X)
        return np.asarray(self.family_.mean(self._eta(z, price)))

    def demand_interval(self, X: Any, *, level: float = 0.95) -> tuple[Array, Array]:
        """Ends of an interval for the expected demand at the prices in X, by the delta method on the scale of eta."""
        z, price = self._rows(X)
        level = finite("level", level, minimum=0.0, maximum=1.0)
        x = np.hstack([z, -price[:, None] * z])
        variance = np.einsum("ij,jk,ik->i", x, self.covariance_, x, optimize=True)
        variance = np.where(np.isnan(variance), np.inf, np.maximum(variance, 0.0))
        reach = ndtri(0.5 + 0.5 * level) * np.sqrt(variance)
        eta = self._eta(z, price)
        return np.asarray(self.family_.mean(eta - reach)), np.asarray(self.family_.mean(eta + reach))

    def elasticity(self, X: Any) -> Array:
        """Percent change of each customer's expected demand for one percent more of the price in X.

        -p b psi''(eta) / psi'(eta)
        """
        z, price = self._rows(X)
        eta = self._eta(z, price)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = self.family_.curvature(eta) / self.family_.mean(eta)
        return np.asarray(-price * (z @ self.beta_) * slope)

    def optimal_price(self, X: Any, *, prices: tuple[float, float] | None = None, cost: float = 0.0) -> Array:
        """The price in the range (the model's unless given) that earns most from each customer; see Family."""
        z = self.contexts(X)
        return np.asarray(
            self.family_.optimal_price(z @ self.alpha_, z @ self.beta_, prices or self.prices_, cost=cost)
        )

    def contexts(self, X: Any) -> Array:
        """The contexts z (n, d) of customers; X needs no price, unless it is an array."""
        return self.encoding_.encode(self._frame(X).batch(self.encoding_.columns))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of deviance explained: 1 - deviance / deviance of the mean of y. R^2 for linear demand.

        At most 1; below 0 for a model that is worse than the mean.
        """
        z, price = self._rows(X)
        if bad := int(np.count_nonzero(np.isnan(price))):
            raise InvalidInput(f"{bad} of {len(price)} rows of X have no price in {self.price_!r}. Leave them out.")
        seen = self.family_.check_outcome(outcomes_of(y, len(z), type(self).__name__))
        w = np.ones(len(z)) if sample_weight is None else weights_of(sample_weight, len(z))
        return deviance_explained(self.family_, self._eta(z, price), seen, w)

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
        known = tuple(f"x{j}" for j in range(self.n_features_in_)) if names is None else tuple(names)
        return frame.renamed(known, type(self).__name__)

    # Files

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        self._check()
        return model_file.to_dict(self._learned, self._origin, self.get_params())

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """What :meth:`to_dict` gave, checked."""
        learned, origin, parameters = model_file.from_dict(data)
        return cls(**parameters)._take(learned, origin)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the model file, plain JSON; nothing but another model is written over."""
        return model_file.write(path, self.to_dict())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a model file."""
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
    progress: Progress | None = None,
) -> DemandModel:
    """A demand model fitted to a log of past quotes, of any length: files are streamed.

    log: a CSV or Parquet file (also gzipped CSV), a folder of them, a data frame, an Arrow table or a mapping; price,
    outcome, weights, segment: columns; features: columns, or None for all others; the rest as for
    :class:`DemandModel`. Weights count like repeated rows, in standard errors too. ``progress`` is called with
    what is being done and the rows read for it.

    >>> rng = np.random.default_rng(1)
    >>> price, age = rng.uniform(1, 3, 4_000), rng.normal(40, 10, 4_000)
    >>> log = {"price": price, "age": age, "units": rng.poisson(np.exp(2 - price))}
    >>> model = fit(log, price="price", outcome="units", features=["age"])
    >>> model.family_, round(model.report_.everyone.elasticity, 1)
    (Poisson(), -1.7)
    """
    task = Task(
        price=price, outcome=outcome, features=features, family=family, weights=weights, categories=categories,
        sensitivity=sensitivity, segment=segment, prices=prices, ridge=ridge,
    )  # fmt: skip
    source = Source.open(log)
    learned = learn(source, task, progress=progress)
    model = DemandModel(
        price=price, features=learned.features, family=family, sensitivity=task.sensitivity,
        categories=task.categories, segment=segment, ridge=task.ridge, prices=task.prices,
    )  # fmt: skip
    return model._take(learned, Origin(price=price, outcome=outcome, weights=weights, log=source.name))
