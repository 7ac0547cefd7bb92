"""scikit-learn's own checks of an estimator, on every family."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from hushprice.demand import FAMILIES
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.fitting import DemandModel


class Counted(DemandModel):
    """The checks' targets as whole numbers: Poisson demand takes no others, and says so."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        return super().fit(X, _mapped(y, _counts), sample_weight)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        return super().score(X, _mapped(y, _counts), sample_weight)


class Bought(DemandModel):
    """The checks' targets as 0 and 1: logistic demand takes no others, and says so."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        return super().fit(X, _mapped(y, _sales), sample_weight)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        return super().score(X, _mapped(y, _sales), sample_weight)


def _counts(y: Any) -> Any:
    return np.round(20.0 * np.exp(0.5 * y / max(np.abs(y).max(), 1.0)))


def _sales(y: Any) -> Any:
    return (y > np.median(y)).astype(float)


def _mapped(y: Any, change: Callable[[Any], Any]) -> Any:
    """Targets changed by a function, unless the check is about targets that must be refused."""
    if y is None or np.asarray(y).dtype.kind == "c":
        return y
    values = np.asarray(y).astype(float)
    return change(values) if values.size and np.isfinite(values).all() else y


# price=-1: in an array the price is a column by its number, here the last one. sensitivity="none": few of the checks
# have rows enough to identify a price sensitivity that depends on every column.
ESTIMATORS = [
    DemandModel(price=-1, family="linear"),
    DemandModel(price=-1, family="linear", sensitivity="none"),
    Counted(price=-1, family="poisson", sensitivity="none"),
    Bought(price=-1, family="logistic", sensitivity="none"),
]
CANNOT_PASS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "it has 30 columns and 15 rows, which identify nothing: a ridge decides, on the scale of the rows as they are "
        "counted. test_weights_count_like_repeated_rows shows the same where the rows decide."
    ),
}


SKIPPED = {"check_array_api_input": "scikit-learn skips it by itself: it needs SCIPY_ARRAY_API=1"}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
@pytest.mark.filterwarnings("ignore:Estimator .* does not inherit from")  # scikit-learn is optional
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_sklearn_checks(estimator: DemandModel) -> None:
    results = check_estimator(estimator, expected_failed_checks=CANNOT_PASS, on_fail=None)
    by_status: dict[str, dict[str, Any]] = {"passed": {}, "failed": {}, "xfail": {}, "skipped": {}}
    for result in results:
        by_status[result["status"]][result["check_name"]] = result["exception"]
    assert not by_status["failed"]
    assert set(by_status["xfail"]) == set(CANNOT_PASS)
    assert set(by_status["skipped"]) == set(SKIPPED)
    assert len(by_status["passed"]) >= 50


def data(n: int = 600, seed: int = 3) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(1.0, 3.0, n), rng.normal(size=(n, 2))])
    return X, rng.poisson(np.exp(1.0 - 0.5 * X[:, 0] + 0.3 * X[:, 1]))


@pytest.mark.parametrize("family", list(FAMILIES))
def test_weights_count_like_repeated_rows(family: str) -> None:
    X, y = data()
    outcome = np.minimum(y, 1) if FAMILIES[family].outcomes == "binary" else y
    w = np.random.default_rng(5).integers(0, 4, len(y))
    weighted = DemandModel(price=0, family=family).fit(X, outcome, sample_weight=w)
    repeated = DemandModel(price=0, family=family).fit(np.repeat(X, w, axis=0), np.repeat(outcome, w))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-7)
    assert weighted.score(X, outcome, w) == pytest.approx(
        repeated.score(np.repeat(X, w, axis=0), np.repeat(outcome, w))
    )


def test_works_in_cross_validation_and_grid_search() -> None:
    X, y = data()
    scores = cross_val_score(DemandModel(price=0, family="poisson"), X, y, cv=3)
    assert ((scores > 0.0) & (scores < 1.0)).all()
    search = GridSearchCV(DemandModel(price=0, family="poisson"), {"ridge": [0.0, 1e6]}, cv=3).fit(X, y)
    assert search.best_params_ == {"ridge": 0.0}


def test_score_is_the_share_of_deviance_explained() -> None:
    from sklearn.metrics import d2_tweedie_score, log_loss, r2_score

    X, y = data()
    for family, outcome in (("linear", y), ("poisson", y), ("logistic", np.minimum(y, 1))):
        model = DemandModel(price=0, family=family).fit(X, outcome)
        predicted = model.predict(X)
        expected = {
            "linear": lambda y=outcome, p=predicted: r2_score(y, p),
            "poisson": lambda y=outcome, p=predicted: d2_tweedie_score(y, p, power=1),
            "logistic": lambda y=outcome, p=predicted: 1 - log_loss(y, p) / log_loss(y, np.full(len(y), y.mean())),
        }[family]()
        assert model.score(X, outcome) == pytest.approx(expected, rel=1e-9)


def test_clone_forgets_and_pickle_remembers() -> None:
    X, y = data()
    model = DemandModel(price=0, features=[1], sensitivity=[1], prices=(0.5, 4.0)).fit(X, y)
    assert not hasattr(clone(model), "theta_")
    assert clone(model).get_params() == model.get_params()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_not_fitted_is_both_kinds_of_error() -> None:
    with pytest.raises(NotFittedError, match="not fitted"):
        DemandModel().predict({"price": [1.0]})
    with pytest.raises(HushpriceError, match="not fitted"):
        DemandModel().save("nowhere.json")


def test_arrays_by_place_and_frames_by_name() -> None:
    X, y = data()
    frame = pd.DataFrame(X, columns=["price", "a", "b"])
    by_name = DemandModel().fit(frame, y)
    by_place = DemandModel(price=0).fit(X, y)
    np.testing.assert_array_equal(by_name.predict(frame[["b", "price", "a"]]), by_place.predict(X))
    np.testing.assert_array_equal(by_name.predict(X), by_place.predict(frame))
    assert list(by_name.feature_names_in_) == ["price", "a", "b"]
    assert by_name.n_features_in_ == by_place.n_features_in_ == 3
    assert not hasattr(by_place, "feature_names_in_")
    with pytest.raises(InvalidInput, match="X has 2 features, but DemandModel is expecting 3"):
        by_name.predict(X[:, :2])
    with pytest.raises(InvalidInput, match="no column 'b'"):
        by_name.predict(frame[["price", "a"]])
    with pytest.raises(InvalidInput, match="by their number"):
        DemandModel(price="price").fit(X, y)
    with pytest.raises(InvalidInput, match="no column number 7"):
        DemandModel(price=7).fit(X, y)
