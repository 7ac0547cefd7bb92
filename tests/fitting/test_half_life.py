"""Fits with a half-life: against Newton's method on explicit weights, the spread over many logs, chunks, bad input.

Statistical tests have fixed seeds; with a correct program they would fail with another seed at the rate stated.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

import hushprice as hp
from hushprice.arrays import Array
from hushprice.demand import as_family
from hushprice.errors import InvalidInput
from hushprice.fitting import DemandModel, Design, Discount, ModelFileError, fit, held_out, stream_fit, survey
from tests.fitting.test_stream import dense, log, look

FAMILIES = ("logistic", "poisson", "linear", "probit")
TRUTH = np.array([1.0, 0.3, 0.8, 0.05])


def quotes(family: str, n: int, seed: int) -> dict[str, Any]:
    """A log of constant demand."""
    rng = np.random.default_rng(seed)
    x, price = rng.normal(size=n), rng.uniform(1.0, 4.0, n)
    eta = TRUTH[0] + TRUTH[1] * x - (TRUTH[2] + TRUTH[3] * x) * price
    sold = eta + 0.5 * rng.normal(size=n) if family == "linear" else as_family(family).sample(eta, rng)
    return {"price": price, "x": x, "sold": sold}


def minimum(family: str, x: Array, y: Array, w: Array) -> tuple[Array, Array]:
    """The weighted estimate by SciPy, and each row's second derivative of the loss there, by differences."""
    kind = as_family(family).unit()

    def loss(eta: Array) -> Array:
        return 0.5 * (y - eta) ** 2 if family == "linear" else -np.asarray(kind.loglik(eta, y))

    start = np.linalg.lstsq(x, y, rcond=None)[0] if family == "linear" else np.zeros(x.shape[1])
    size = np.abs(x).mean(axis=0)
    minimize: Any = optimize.minimize
    found = minimize(
        lambda t: float(w @ loss(x @ (t / size))),
        start * size,
        jac=lambda t: -(w * kind.residual(x @ (t / size), y)) @ x / size,
        method="BFGS",
        options={"gtol": 1e-9 * w.sum()},
    )
    eta, h = x @ (found.x / size), 1e-4
    second = -(kind.residual(eta + h, y) - kind.residual(eta - h, y)) / (2.0 * h)
    return found.x / size, np.asarray(second)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weights", [None, "w"], ids=["plain", "weighted"])
def test_agrees_with_explicit_weights(family: str, weights: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushprice.fitting.passes.design.rows_for", lambda width: 700)  # several batches, a ragged end
    data = {**quotes(family, 3_000, 1), "w": np.random.default_rng(2).integers(0, 4, 3_000).astype(float)}
    data["price"][[5, 2_999]] = np.nan  # age counts rows, complete or not
    design = Design.of(look(data, features=["x"], weights=weights), half_life=400.0)
    result = stream_fit(design, family)
    x, y, w = dense(design)
    number = np.concatenate([rows.number for rows in design.blocks()])
    discount = 0.5 ** ((2_999 - number) / 400.0)
    own = np.ones(len(y)) if weights is None else data["w"][number]
    np.testing.assert_allclose(w, own * discount, rtol=1e-12)
    theta, second = minimum(family, x, y, w)
    bread = np.linalg.inv((x * (w * second)[:, None]).T @ x)
    meat = (x * (own * discount**2 * second)[:, None]).T @ x
    dispersion = 1.0
    if family == "linear":
        dispersion = float(w @ (y - x @ theta) ** 2 / (w.sum() - np.trace(bread @ meat)))
    covariance = dispersion * bread @ meat @ bread
    np.testing.assert_allclose(result.theta, theta, atol=1e-5 * np.sqrt(np.diag(covariance)).min())
    np.testing.assert_allclose(result.covariance, covariance, rtol=2e-5, atol=1e-9)
    assert math.isclose(result.dispersion, dispersion, rel_tol=1e-6)
    assert math.isclose(result.effective, w.sum() ** 2 / (own @ discount**2), rel_tol=1e-10)
    assert (result.records, result.separable, result.ridge) == (len(y), False, 0.0)


@pytest.mark.parametrize("family", ["logistic", "linear"])
def test_a_ridge_is_inside_of_the_sandwich(family: str) -> None:
    design = Design.of(look(quotes(family, 1_000, 1), features=["x"]), half_life=100.0)
    plain, held = (stream_fit(design, family, ridge=ridge) for ridge in (0.0, 5.0))
    assert (held.standard_errors < plain.standard_errors).all()


def test_a_long_half_life_is_none() -> None:
    data = quotes("poisson", 2_000, 3)
    long, none = (fit(data, price="price", outcome="sold", half_life=h) for h in (1e12, None))
    np.testing.assert_allclose(long.theta_, none.theta_, rtol=1e-8)
    np.testing.assert_allclose(long.covariance_, none.covariance_, rtol=1e-6)
    assert long.report_.effective == pytest.approx(2_000.0)
    assert none.report_.effective is None
    assert long.report_.held_out is not None
    assert none.report_.held_out is not None
    assert long.report_.held_out.scores[0].loglik == pytest.approx(none.report_.held_out.scores[0].loglik)
    assert long.report_.everyone.elasticity_se == pytest.approx(none.report_.everyone.elasticity_se)


@pytest.mark.parametrize("family", FAMILIES)
def test_standard_errors_are_the_spread_over_logs(family: str) -> None:
    """100 logs: each of 4 ratios of variances has (chi-squared of 99) / 99; one test fails once in 250."""
    estimates, variances = [], []
    scales: list[float] = []
    for seed in range(100):
        data = quotes(family, 1_500, seed)
        data["x"] = (data["x"] - data["x"].mean()) / data["x"].std()  # so that theta does not depend on the encoding
        rng = np.random.default_rng(10_000 + seed)
        eta = TRUTH[0] + TRUTH[1] * data["x"] - (TRUTH[2] + TRUTH[3] * data["x"]) * data["price"]
        noise = 0.5 * rng.normal(size=1_500)
        data["sold"] = eta + noise if family == "linear" else as_family(family).sample(eta, rng)
        design = Design.of(survey(data, price="price", outcome="sold", features=["x"]), half_life=200.0)
        result = stream_fit(design, family)
        estimates.append(result.theta)
        variances.append(np.diag(result.covariance))
        scales.append(result.dispersion)
    spread = np.var(estimates, axis=0, ddof=1) / np.mean(variances, axis=0)
    low, high = np.asarray(stats.chi2.ppf([0.0005, 0.9995], 99)) / 99
    assert ((low < spread) & (spread < high)).all(), spread
    if family == "linear":
        assert abs(float(np.mean(scales)) - 0.25) < 0.4 * float(np.std(scales))


def test_the_report_is_that_of_the_discounted_rows() -> None:
    data = quotes("logistic", 3_000, 5)
    model = fit(data, price="price", outcome="sold", half_life=300.0)
    w = 0.5 ** ((2_999 - np.arange(3_000)) / 300.0)
    everyone, held = model.report_.everyone, model.report_.held_out
    assert everyone.demand == pytest.approx(w @ data["sold"] / w.sum())
    assert everyone.mean_price == pytest.approx(w @ data["price"] / w.sum())
    assert model.report_.effective == pytest.approx(w.sum() ** 2 / (w @ w))
    training = stream_fit(
        Design.of(survey(data, price="price", outcome="sold", features=["x"]), part="train", half_life=300.0),
        "logistic",
    )
    z, away = model.contexts(data), held_out(np.arange(3_000))
    eta = z @ training.theta[:2] - data["price"] * (z @ training.theta[2:])
    loglik = np.where(data["sold"] == 1.0, -np.logaddexp(0.0, -eta), -np.logaddexp(0.0, eta))
    assert held is not None
    assert held.scores[0].loglik == pytest.approx((w * loglik)[away].sum() / w[away].sum(), rel=1e-6)
    assert held.rows == away.sum()
    curve = model.report_.curves[0]
    mean = model.family_.mean(z @ model.alpha_ - curve.prices[5] * (z @ model.beta_))
    some = np.sqrt(np.var(mean) / model.report_.effective)  # the curve is that of some customers
    assert abs(curve.demand[5] - w @ mean / w.sum()) < 6.0 * some


def test_the_estimate_follows_the_latest_demand() -> None:
    before, after = quotes("logistic", 20_000, 1), quotes("poisson", 20_000, 2)
    after["sold"] = (after["sold"] > 0).astype(float)  # another demand
    data = {name: np.concatenate([before[name], after[name]]) for name in before}
    data["x"] = data["x"].round(1)
    late = fit({k: v[20_000:] for k, v in data.items()}, price="price", outcome="sold")
    model = fit(data, price="price", outcome="sold", half_life=2_000.0)
    frame = {"price": np.array([1.0, 2.0, 3.0]), "x": np.zeros(3)}
    assert np.abs(model.predict(frame) - late.predict(frame)).max() < 0.05
    assert np.abs(fit(data, price="price", outcome="sold").predict(frame) - late.predict(frame)).max() > 0.05


@pytest.mark.parametrize("workers", [1, 3])
def test_chunks_and_threads_do_not_matter(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = log("logistic")
    whole = fit(data, price="price", outcome="sold", weights="w", half_life=500.0)
    monkeypatch.setattr("os.cpu_count", lambda: workers)
    monkeypatch.setattr("hushprice.fitting.passes.design.rows_for", lambda width: 177)
    monkeypatch.setattr("hushprice.fitting.passes.survey.rows_for", lambda width: 251)
    parts = fit(data, price="price", outcome="sold", weights="w", half_life=500.0)
    np.testing.assert_allclose(parts.theta_, whole.theta_, rtol=1e-8)
    np.testing.assert_allclose(parts.covariance_, whole.covariance_, rtol=1e-8)
    assert parts.report_.held_out is not None
    assert whole.report_.held_out is not None
    assert parts.report_.held_out.scores[0].loglik == pytest.approx(whole.report_.held_out.scores[0].loglik, rel=1e-9)
    assert (parts.report_.constancy is None) == (whole.report_.constancy is None)


def test_forgotten_rows_take_no_part() -> None:
    """A row older than 64 half-lives could not change a bit; a level that it alone has is then not identified."""
    assert Discount(half_life=1.0, rows=100).of(np.array([35, 34])).tolist() == [2.0**-64, 0.0]
    data = quotes("poisson", 5_000, 1)
    model = fit(data, price="price", outcome="sold", half_life=50.0)
    assert model.records_ == 64 * 50 + 1
    data["place"] = np.where(np.arange(5_000) < 1_000, "old", "new")
    codes = {f.code for f in fit(data, price="price", outcome="sold", half_life=50.0).findings_}
    assert "not-identified" in codes


@pytest.mark.parametrize("half_life", [1e-300, 0.3, 5.0, 1e300])
@pytest.mark.parametrize("family", FAMILIES)
def test_extreme_half_lives_are_harmless(family: str, half_life: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushprice.fitting.passes.survey_sums.SAMPLE_ROWS", 200)  # the sample may miss the latest rows
    model = fit(quotes(family, 3_000, 1), price="price", outcome="sold", family=family, half_life=half_life)
    assert np.isfinite(model.theta_).all()
    assert model.report_.effective is not None
    assert 1.0 <= model.report_.effective <= 3_000.0 + 1e-6


def test_few_effective_rows_are_few_rows() -> None:
    codes = {f.code for f in fit(quotes("logistic", 5_000, 1), price="price", outcome="sold", half_life=20.0).findings_}
    assert "few-rows" in codes


@pytest.mark.parametrize("half_life", [0, -1.0, math.inf, math.nan, "many", True])
def test_bad_half_lives_are_refused(half_life: Any) -> None:
    data = quotes("logistic", 200, 1)
    with pytest.raises(InvalidInput, match="half_life"):
        fit(data, price="price", outcome="sold", half_life=half_life)
    with pytest.raises(InvalidInput, match="half_life"):
        DemandModel(half_life=half_life).fit({"price": data["price"]}, data["sold"])


def test_files_out_of_order_are_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame(quotes("logistic", 900, 1))
    for folder, names in {"good": ["day-08", "day-09", "day-10"], "bad": ["day-1", "day-10", "day-2"]}.items():
        (tmp_path / folder).mkdir()
        for k, name in enumerate(names):
            frame[300 * k : 300 * k + 300].to_csv(tmp_path / folder / f"{name}.csv", index=False)
    asked: dict[str, Any] = {"price": "price", "outcome": "sold"}
    several = fit(tmp_path / "good", **asked, half_life=100.0)
    np.testing.assert_allclose(several.theta_, fit(frame, **asked, half_life=100.0).theta_, rtol=1e-8)
    with pytest.raises(InvalidInput, match=r"day-10\.csv before day-2\.csv: give numbers the same length"):
        fit(tmp_path / "bad", **asked, half_life=100.0)
    fit(tmp_path / "bad", **asked)  # without a half-life the order does not matter


def test_the_estimator_and_the_file_keep_the_half_life(tmp_path: Path) -> None:
    data = quotes("logistic", 1_000, 1)
    model = fit(data, price="price", outcome="sold", half_life=150)
    same = DemandModel(half_life=150.0).fit({"price": data["price"], "x": data["x"]}, data["sold"])
    np.testing.assert_array_equal(model.theta_, same.theta_)
    again = DemandModel.load(model.save(tmp_path / "model.json"))
    assert (again.half_life_, again.half_life, again.report_) == (150.0, 150.0, model.report_)
    assert again.to_dict() == model.to_dict()
    assert hp.fit is fit


def test_files_of_version_1_are_read_and_damaged_ones_are_not(tmp_path: Path) -> None:
    model = fit(quotes("logistic", 1_000, 1), price="price", outcome="sold", half_life=150)
    path = model.save(tmp_path / "model.json")
    data = json.loads(path.read_text())

    def written(version: int, *, drop: bool = False, **changes: Any) -> Path:
        body = {**data["model"], **changes}
        if drop:
            body = {k: v for k, v in body.items() if k not in ("half_life", "path")}
            for part, names in (("parameters", ["half_life"]), ("report", ["effective", "constancy"])):
                body[part] = {k: v for k, v in body[part].items() if k not in names}
        path.write_text(json.dumps({**data, "version": version, "model": body}))
        return path

    old = DemandModel.load(written(1, drop=True))
    assert (old.half_life_, old.path_, old.report_.constancy, old.report_.effective) == (None, None, None, None)
    np.testing.assert_array_equal(old.theta_, model.theta_)
    damages: list[dict[str, Any]] = [
        {"half_life": 0.0}, {"path": [[1.0]]}, {"path": []}, {"path": [[None] * 4]}, {"half_life": "x"},
    ]  # fmt: skip
    for changes in damages:
        with pytest.raises(ModelFileError, match="damaged"):
            DemandModel.load(written(2, **changes))
