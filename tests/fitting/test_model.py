"""Demand models: against statsmodels, by finite differences, by simulation, and through their files."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from statsmodels.stats.proportion import proportion_confint

from hushprice.demand import Linear, Logistic, Poisson, family_config, family_from
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.fitting import DemandModel, ModelFileError, Outcomes, fit, held_out
from hushprice.fitting.diagnosis.heldout import auc, tenths
from tests.support.paths import KARLAN_ZINMAN

FAMILIES = {"logistic": sm.families.Binomial(), "poisson": sm.families.Poisson(), "linear": sm.families.Gaussian()}


def quotes(family: str = "logistic", n: int = 3_000, seed: int = 1) -> pd.DataFrame:
    """A log with prices varied at random: age, region, price, weight and the outcome."""
    rng = np.random.default_rng(seed)
    age, region = rng.normal(40.0, 12.0, n), rng.choice(["north", "south", "west"], n, p=[0.5, 0.3, 0.2])
    price = rng.uniform(1.0, 4.0, n)
    eta = 1.0 + 0.02 * (age - 40.0) + 0.5 * (region == "south") - (0.7 + 0.2 * (region == "west")) * price
    mean = {"logistic": 1 / (1 + np.exp(-eta)), "poisson": np.exp(eta), "linear": eta}[family]
    y = {
        "logistic": lambda: (rng.random(n) < mean).astype(float),
        "poisson": lambda: rng.poisson(mean).astype(float),
        "linear": lambda: mean + 0.5 * rng.normal(size=n),
    }[family]()
    weight = rng.integers(1, 4, n).astype(float)
    return pd.DataFrame({"price": price, "age": age, "region": region, "weight": weight, "y": y})


def standardised(frame: pd.DataFrame, numbers: list[str], categories: dict[str, list[Any]]) -> pd.DataFrame:
    """The contexts, made by pandas alone: 1, standardised numbers, indicators of the levels but the first."""
    z = pd.DataFrame({"1": np.ones(len(frame))})
    for name in numbers:
        z[name] = (frame[name] - frame[name].mean()) / frame[name].std(ddof=0)
        z[name] = z[name].fillna(0.0)
    for name, levels in categories.items():
        for level in levels[1:]:
            z[f"{name}={level}"] = (frame[name] == level).astype(float)
    return z


def reference(z: pd.DataFrame, price: Any, y: Any, family: str, weights: Any = None) -> Any:
    x = np.hstack([z.to_numpy(), -np.asarray(price)[:, None] * z.to_numpy()])
    return sm.GLM(np.asarray(y), x, family=FAMILIES[family], freq_weights=weights).fit(tol=1e-14, maxiter=100)


def close(model: DemandModel, names: list[str], expected: Any) -> None:
    """Estimates and standard errors agree to 1e-6, by name."""
    d = len(names)
    order = [names.index(name) for name in model.encoding_.names]
    both = [*order, *(d + j for j in order)]
    np.testing.assert_allclose(model.theta_, expected.params[both], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(model.standard_errors_, expected.bse[both], rtol=1e-6, atol=1e-6)


@pytest.mark.skipif(not KARLAN_ZINMAN.exists(), reason="the Karlan and Zinman data are not here")
def test_karlan_zinman_agrees_with_statsmodels() -> None:
    frame = pd.read_csv(KARLAN_ZINMAN)
    numbers = ["dormancy", "trcount", "female", "age", "edhi", "lastamount", "itcscore"]
    z = standardised(frame, numbers, {"risk": ["HIGH", "LOW", "MEDIUM"], "wave": [3, 2, 1]})
    expected = reference(z, frame["offer4"], frame["tookup"], "logistic")
    model = fit(
        KARLAN_ZINMAN, price="offer4", outcome="tookup", features=["risk", "wave", *numbers], categories=["wave"]
    )
    assert model.family_.name == "logistic"
    assert model.records_ == len(frame) == 53_810
    close(model, list(z.columns), expected)
    assert {f.code for f in model.findings_ if f.severity != "note"} == {"boundary-optimum", "extrapolation"}
    assert -0.5 < model.report_.everyone.elasticity < -0.2  # inelastic, as the authors found


@pytest.mark.parametrize("weights", [None, "weight"])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_families_agree_with_statsmodels(family: str, weights: str | None) -> None:
    frame = quotes(family)
    z = standardised(frame, ["age"], {"region": ["north", "south", "west"]})
    expected = reference(z, frame["price"], frame["y"], family, None if weights is None else frame["weight"])
    model = fit(frame, price="price", outcome="y", features=["age", "region"], weights=weights)
    assert model.family_.name == family
    close(model, list(z.columns), expected)
    if family == "linear":
        assert model.family_.scale == pytest.approx(math.sqrt(expected.scale), rel=1e-9)
    np.testing.assert_allclose(model.predict(frame), expected.predict(), rtol=1e-8)
    x = np.hstack([z.to_numpy(), -frame["price"].to_numpy()[:, None] * z.to_numpy()])
    interval = expected.get_prediction(x[:50]).summary_frame(alpha=0.1)
    low, high = model.demand_interval(frame[:50], level=0.9)
    np.testing.assert_allclose(low, interval["mean_ci_lower"], rtol=1e-6)
    np.testing.assert_allclose(high, interval["mean_ci_upper"], rtol=1e-6)


def test_sensitivity_of_some_features_only() -> None:
    frame = quotes("poisson")
    z = standardised(frame, ["age"], {"region": ["north", "south", "west"]}).to_numpy()
    for sensitivity, columns in (("none", [0]), (["region"], [0, 2, 3]), (["age"], [0, 1])):
        x = np.hstack([z, -frame["price"].to_numpy()[:, None] * z[:, columns]])
        expected = sm.GLM(frame["y"], x, family=FAMILIES["poisson"]).fit(tol=1e-14)
        model = fit(frame, price="price", outcome="y", features=["age", "region"], sensitivity=sensitivity)
        beta = np.zeros(4)
        beta[columns] = expected.params[4:]
        np.testing.assert_allclose(model.alpha_, expected.params[:4], rtol=1e-6)
        np.testing.assert_allclose(model.beta_, beta, rtol=1e-6)
        sensitive = [c.beta is not None for c in model.report_.coefficients]
        assert sensitive == [j in columns for j in range(4)]


@pytest.mark.parametrize("family", list(FAMILIES))
def test_elasticities_by_finite_differences(family: str) -> None:
    frame = quotes(family)
    model = fit(frame, price="price", outcome="y", features=["age", "region"], weights="weight")
    z, p, w = model.contexts(frame), frame["price"].to_numpy(), frame["weight"].to_numpy()

    def elasticity(theta: Any, of: Any, h: float = 1e-5) -> float:
        def demand(times: float) -> float:
            a, b = z[of] @ theta[:4], z[of] @ theta[4:]
            return float(w[of] @ model.family_.mean(a - b * times * p[of]))

        return (demand(1 + h) - demand(1 - h)) / (2 * h * demand(1.0))

    everyone = np.ones(len(frame), dtype=bool)
    groups = {s.name: (frame["region"] == s.name).to_numpy() for s in model.report_.segments}
    assert set(groups) == {"north", "south", "west"}
    for segment in (*model.report_.segments, model.report_.everyone):
        of = groups.get(segment.name, everyone)
        assert segment.elasticity == pytest.approx(elasticity(model.theta_, of), rel=1e-6)
        step = 1e-5 * np.eye(8)
        slope = [(elasticity(model.theta_ + e, of) - elasticity(model.theta_ - e, of)) / 2e-5 for e in step]
        assert segment.elasticity_se == pytest.approx(math.sqrt(slope @ model.covariance_ @ slope), rel=1e-4)
        assert segment.rows == of.sum()
        assert segment.weight == w[of].sum()
        assert (segment.low, segment.high) == (p[of].min(), p[of].max())
        assert segment.demand == pytest.approx(np.average(frame["y"][of], weights=w[of]))
        assert segment.best_price == pytest.approx(np.average(model.optimal_price(frame[of]), weights=w[of]))
    each = model.elasticity(frame[:5])
    up, down = (model.predict(frame[:5].assign(price=frame["price"] * t)) for t in (1 + 1e-6, 1 - 1e-6))
    np.testing.assert_allclose(each, (up - down) / 2e-6 / model.predict(frame[:5]), rtol=1e-6)


def test_elasticity_intervals_cover() -> None:
    """95% intervals over 150 logs: fewer than 133 that cover, or all of them, have probability 0.1% by chance."""
    inside = 0
    rng = np.random.default_rng(8)
    for _ in range(150):
        x, p = rng.normal(size=800), rng.uniform(1.0, 3.0, 800)
        eta, b = 0.5 + 0.4 * x - (0.8 + 0.1 * x) * p, 0.8 + 0.1 * x
        mean = 1 / (1 + np.exp(-eta))
        y = (rng.random(800) < mean).astype(float)
        truth = -(p * b * mean * (1 - mean)).sum() / mean.sum()
        everyone = fit({"p": p, "x": x, "y": y}, price="p", outcome="y", features=["x"]).report_.everyone
        inside += abs(everyone.elasticity - truth) < 1.96 * everyone.elasticity_se
    assert 133 <= inside <= 149


@pytest.mark.parametrize("family", list(FAMILIES))
def test_held_out_figures(family: str) -> None:
    """Scores from statsmodels fits on the rows that are not held out."""
    frame = quotes(family)
    model = fit(frame, price="price", outcome="y", features=["age", "region"])
    held = held_out(np.arange(len(frame)))
    z = standardised(frame, ["age"], {"region": ["north", "south", "west"]}).to_numpy()
    x = np.hstack([z, -frame["price"].to_numpy()[:, None] * z])
    y, report = frame["y"].to_numpy(), model.report_.held_out
    assert report is not None
    assert (report.rows, report.trained_on) == (held.sum(), (~held).sum())
    null = np.full(held.sum(), y[~held].mean())
    deviance = FAMILIES[family].deviance
    for rows, score in ((x, report.scores[0]), (z, report.scores[1])):
        trained = sm.GLM(y[~held], rows[~held], family=FAMILIES[family]).fit(tol=1e-14)
        mean = trained.predict(rows[held])
        loglik = FAMILIES[family].loglike(y[held], mean, scale=trained.scale) / held.sum()
        assert score.loglik == pytest.approx(loglik, rel=1e-6)
        assert score.explained == pytest.approx(1 - deviance(y[held], mean) / deviance(y[held], null), rel=1e-5)
        if family == "logistic":
            assert score.auc == pytest.approx(roc_auc_score(y[held], mean), rel=1e-9)
    scale = y[~held].var() if family == "linear" else 1.0
    alone = FAMILIES[family].loglike(y[held], null, scale=scale) / held.sum()
    assert report.scores[2].loglik == pytest.approx(alone, rel=1e-9)
    assert report.scores[2].explained == pytest.approx(0.0, abs=1e-12)
    assert report.scores[0].explained > report.scores[1].explained > 0.0  # price matters here
    assert sum(t.rows for t in report.calibration) == held.sum()
    assert sum(t.agrees for t in report.calibration) >= 7  # of 10; fewer has probability 0.1%


def test_auc_with_weights_and_ties(rng: np.random.Generator) -> None:
    score, y, w = rng.integers(0, 8, 300) / 7.0, rng.integers(0, 2, 300).astype(float), rng.uniform(0.5, 2.0, 300)
    assert auc(score, y, w) == pytest.approx(roc_auc_score(y, score, sample_weight=w), rel=1e-12)
    assert auc(score, np.ones(300), w) is None


def test_calibration_intervals(rng: np.random.Generator) -> None:
    mean = rng.uniform(0.05, 0.6, 1_000)
    bought = (rng.random(1_000) < mean).astype(float)
    for tenth in tenths(Logistic(), mean, bought, np.ones(1_000)):
        low, high = proportion_confint(round(tenth.seen * tenth.rows), tenth.rows, method="beta")
        assert tenth.rows == 100
        assert [tenth.low, tenth.high] == pytest.approx([low, high])
    units = rng.poisson(5 * mean).astype(float)
    for tenth in tenths(Poisson(), 5 * mean, units, np.ones(1_000)):
        total = tenth.seen * tenth.rows
        assert tenth.low == pytest.approx(stats.chi2.ppf(0.025, 2 * total) / 2 / tenth.rows)
        assert tenth.high == pytest.approx(stats.chi2.ppf(0.975, 2 * total + 2) / 2 / tenth.rows)
    amounts = mean + rng.normal(size=1_000)
    order = np.argsort(mean)
    first, part = tenths(Linear(), mean, amounts, np.ones(1_000))[0], amounts[order[:100]]
    low, high = stats.t.interval(0.95, 99, part.mean(), part.std(ddof=1) / 10)
    assert [first.low, first.high] == pytest.approx([low, high])
    same = tenths(Logistic(), np.full(50, 0.3), bought[:50], np.ones(50))
    assert len(same) == 1
    assert tenths(Logistic(), np.zeros(0), np.zeros(0), np.zeros(0)) == ()


def test_demand_curves_are_means_over_customers() -> None:
    frame = quotes("logistic")
    model = fit(frame, price="price", outcome="y", features=["age", "region"], prices=(1.0, 4.0))
    everyone = model.report_.curves[0]
    assert [c.name for c in model.report_.curves] == ["everyone", "north", "south", "west"]
    assert (everyone.prices[0], everyone.prices[-1]) == (1.0, 4.0)
    at = model.predict(frame.assign(price=everyone.prices[5]))
    assert everyone.demand[5] == pytest.approx(at.mean(), rel=1e-12)
    low, high = model.demand_interval(frame.assign(price=everyone.prices[5]))
    assert 0 < everyone.demand_se[5] < (high - low).mean()


def test_optimal_prices_are_best_on_a_grid() -> None:
    frame = quotes("logistic")
    model = fit(frame, price="price", outcome="y", features=["age", "region"])
    some = frame[:20]
    grid = np.linspace(*model.prices_, 2_001)
    for cost in (0.0, 0.5):
        many = pd.concat([some.assign(price=p) for p in grid])
        profit = ((many["price"] - cost).to_numpy() * model.predict(many)).reshape(len(grid), len(some))
        np.testing.assert_allclose(model.optimal_price(some, cost=cost), grid[profit.argmax(axis=0)], atol=2e-3)
    assert (model.optimal_price(some.drop(columns="price"), prices=(1.0, 1.1)) <= 1.1).all()


def test_every_kind_of_log_gives_the_same(tmp_path: Path) -> None:
    frame = quotes("poisson", 2_000)
    frame.to_csv(tmp_path / "log.csv", index=False)
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "log.parquet")
    folder = tmp_path / "parts"
    folder.mkdir()
    for k in range(2):
        pq.write_table(pa.Table.from_pandas(frame[1_000 * k : 1_000 * (k + 1)]), folder / f"{k}.parquet")
    logs: list[Any] = [
        frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), frame.to_dict("list"),
        tmp_path / "log.csv", str(tmp_path / "log.parquet"), folder,
    ]  # fmt: skip
    models = [fit(log, price="price", outcome="y", features=["age", "region"]) for log in logs]
    X = frame[["price", "age", "region"]]
    models += [DemandModel().fit(x, frame["y"]) for x in (X, pl.from_pandas(X), pa.Table.from_pandas(X))]
    for model in models[1:]:
        np.testing.assert_allclose(model.theta_, models[0].theta_, rtol=1e-12)
        assert model.report_.everyone.elasticity == pytest.approx(models[0].report_.everyone.elasticity, rel=1e-12)
    for x in (X, pl.from_pandas(X), pa.Table.from_pandas(X), X.to_dict("list")):
        np.testing.assert_array_equal(models[0].predict(x), models[0].predict(frame))


@pytest.mark.parametrize("when", ["survey", "pass 1"])
def test_a_log_that_is_rewritten_meanwhile_is_refused(tmp_path: Path, when: str) -> None:
    rng = np.random.default_rng(1)
    path = tmp_path / "log.csv"
    text = "p,y\n" + "\n".join(
        f"{p:.3f},{y}" for p, y in zip(rng.uniform(1, 3, 900), rng.integers(0, 2, 900), strict=True)
    )
    path.write_text(text)
    os.utime(path, ns=(0, 0))

    def rewrite(doing: str, rows: int) -> None:
        if doing == when:
            path.write_text(text.replace(",1", ",0", 50))

    with pytest.raises(InvalidInput, match=r"log\.csv has changed since it was opened"):
        fit(path, price="p", outcome="y", features=[], progress=rewrite)


def test_missing_values_and_new_levels() -> None:
    frame = quotes("logistic")
    frame.loc[::7, "age"] = np.nan
    frame.loc[3, "price"] = np.nan
    model = fit(frame, price="price", outcome="y", features=["age", "region"])
    assert model.records_ == len(frame) - 1
    assert "age missing" in model.encoding_.names
    assert [f.code for f in model.findings_] == ["rows-left-out", "missing-values"]
    new = pd.DataFrame({"price": [2.0, 2.0, np.nan], "age": [40.0, np.nan, 40.0], "region": ["north", "moon", None]})
    assert np.isfinite(model.contexts(new)).all()
    np.testing.assert_array_equal(np.isnan(model.predict(new)), [False, False, True])
    with pytest.raises(InvalidInput, match="1 of 3 rows of X have no price"):
        model.score(new, [1, 0, 1])


def test_segments() -> None:
    frame = quotes("logistic").assign(shop=lambda f: np.where(f.index % 3 == 0, "a", "b"))
    of: dict[str, Any] = {"price": "price", "outcome": "y"}
    by_shop = fit(frame, **of, features=["age", "region"], segment="shop")
    assert (by_shop.report_.by, by_shop.segments_) == ("shop", "shop")
    assert {s.name: s.rows for s in by_shop.report_.segments} == {"a": 1_000, "b": 2_000}
    quarters = fit(frame, **of, features=["age"])
    assert quarters.report_.by.startswith("predicted demand at price 2.5")
    assert quarters.segments_ is None
    assert quarters.report_.segments[0].name == "lowest quarter"
    demand = [s.predicted for s in quarters.report_.segments]
    assert demand == sorted(demand)
    assert [s.rows for s in quarters.report_.segments] == [750] * 4
    alone = fit(frame, **of, features=[])
    assert alone.report_.segments == ()
    assert alone.optimal_price(frame[:2]).shape == (2,)


def test_what_is_asked_for_must_make_sense() -> None:
    frame = quotes("linear", 300)
    of: dict[str, Any] = {"price": "price", "outcome": "y", "features": ["age", "region"]}
    with pytest.raises(InvalidInput, match=r"logistic demand must be 0 or 1, but y goes from"):
        fit(frame, **of, family="logistic")
    with pytest.raises(InvalidInput, match="no demand family called 'tobit'"):
        fit(frame, **of, family="tobit")
    with pytest.raises(InvalidInput, match="no feature called 'aeg'"):
        fit(frame, **of, sensitivity=["aeg"])
    with pytest.raises(InvalidInput, match="sensitivity must be 'all', 'none' or a list"):
        fit(frame, **of, sensitivity="age")
    with pytest.raises(InvalidInput, match="features must be a list"):
        fit(frame, price="price", outcome="y", features="age")
    with pytest.raises(InvalidInput, match="prices must be"):
        fit(frame, **of, prices=(3.0, 1.0))
    with pytest.raises(InvalidInput, match="no column 'cost'"):
        fit(frame, price="cost", outcome="y", features=["age"])
    with pytest.raises(InvalidInput, match="requires y"):
        DemandModel().fit(frame)
    with pytest.raises(InvalidInput, match="as long as each other"):
        DemandModel().fit(frame, [1.0])
    with pytest.raises(InvalidInput, match="no parameter of DemandModel called 'prise'"):
        DemandModel().set_params(prise=1)
    everything = fit(frame, price="price", outcome="y")
    assert set(everything.encoding_.columns) == {"age", "region", "weight"}


def test_the_family_that_outcomes_call_for() -> None:
    for y, family in (([0, 1, 1], Logistic()), ([0, 0], Logistic()), ([0, 2], Poisson()), ([0.5, 1], Linear())):
        facts = Outcomes.of(np.array(y, dtype=float))
        assert facts.family == family
        assert [facts.low, facts.high, facts.mean] == pytest.approx([min(y), max(y), np.mean(y)])
    assert Outcomes.of(np.array([-1.0, 2.0])).family == Linear()


def test_families_as_plain_data() -> None:
    for family in (Linear(sigma=0.25), Logistic(), Poisson()):
        assert family_from(json.loads(json.dumps(family_config(family)))) == family
    named: list[Any] = [{"name": 3}, {"name": "tobit"}, {"name": "linear"}, {"name": "poisson", "sigma": 1}]
    for odd in (None, "linear", {}, *named, {"name": "linear", "sigma": -1.0}, {"name": "linear", "sigma": None}):
        with pytest.raises(InvalidInput):
            family_from(odd)


def test_passes_are_not_wasted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass to survey, three to fit, two each for the held-out fits, one to diagnose."""
    monkeypatch.setattr("hushprice.fitting.passes.newton._MANY", 1)
    monkeypatch.setattr("hushprice.fitting.passes.survey_sums.SAMPLE_ROWS", 20_000)
    passes: list[str] = []
    last = 0

    def progress(doing: str, rows: int) -> None:
        nonlocal last
        if not passes or rows <= last or passes[-1] != doing:
            passes.append(doing)
        last = rows

    fit(quotes("logistic", 150_000), price="price", outcome="y", features=["age", "region"], progress=progress)
    each = ["pass 1", "pass 2"]
    assert passes == ["survey", *each, "pass 3", *each, *each, "diagnostics"]


def test_memory_does_not_grow_with_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peak of what Python and NumPy hold during a fit: a log of four times the rows needs hardly more."""
    monkeypatch.setattr("hushprice.fitting.reading.source.ROWS_PER_BATCH", 2_048)
    monkeypatch.setattr("hushprice.fitting.passes.survey_sums.SAMPLE_ROWS", 4_000)
    monkeypatch.setattr("hushprice.fitting.diagnosis.heldout.MAX_STORED_ROWS", 2_048)
    peaks = []
    for rows in (30_000, 30_000, 120_000):  # the first one compiles
        path = tmp_path / f"{rows}.parquet"
        pq.write_table(pa.Table.from_pandas(quotes("logistic", rows)), path, row_group_size=5_000)
        tracemalloc.start()
        fit(path, price="price", outcome="y", features=["age", "region"], weights="weight")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.2 * peaks[1]


# Files


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[DemandModel, Path]:
    frame = quotes("linear", 500)
    model = fit(frame, price="price", outcome="y", features=["age", "region"], prices=(0.5, 5.0))
    return model, model.save(tmp_path_factory.mktemp("models") / "model.json")


def test_a_model_comes_back_to_the_last_bit(saved: tuple[DemandModel, Path]) -> None:
    model, path = saved
    again = DemandModel.load(path)
    frame = quotes("linear", 500)
    for name in ("theta_", "alpha_", "beta_", "covariance_", "sensitive_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    for name in ("family_", "encoding_", "prices_", "seen_", "segments_", "outcome_", "price_", "report_", "findings_",
                 "records_", "weight_", "ridge_", "log_", "n_features_in_"):  # fmt: skip
        assert getattr(again, name) == getattr(model, name), name
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    assert again.to_dict() == model.to_dict()
    data = json.loads(path.read_text())
    assert (data["format"], data["version"]) == ("hushprice-demand-model", 2)
    assert sorted(p.name for p in path.parent.iterdir()) == ["model.json"]  # no temporary file is left


def test_files_with_the_old_word_for_a_warning_can_be_read(tmp_path: Path) -> None:
    frame = quotes("logistic", 60)
    path = fit(frame, price="price", outcome="y", features=["age"]).save(tmp_path / "model.json")
    data = json.loads(path.read_text())
    now = [finding["severity"] for finding in data["model"]["findings"]]
    assert "warning" in now
    path.write_text(path.read_text().replace('"severity": "warning"', '"severity": "care"'))
    assert [finding.severity for finding in DemandModel.load(path).findings_] == now


def test_unidentified_models_and_arrays_come_back_too(tmp_path: Path) -> None:
    frame = quotes("logistic", 500)
    model = fit(frame.assign(price=2.0), price="price", outcome="y", features=["age"])
    assert not np.isfinite(model.standard_errors_).all()
    again = DemandModel.load(model.save(tmp_path / "one.json"))
    np.testing.assert_array_equal(again.standard_errors_, model.standard_errors_)
    assert again.report_.everyone.elasticity_se == math.inf
    X = frame[["price", "age"]].to_numpy()
    array = DemandModel(price=0).fit(X, frame["y"])
    np.testing.assert_array_equal(DemandModel.load(array.save(tmp_path / "two.json")).predict(X), array.predict(X))


def test_weights_come_from_their_column(tmp_path: Path) -> None:
    frame = quotes("poisson", 500)
    model = fit(frame, price="price", outcome="y", features=["age"], weights="weight")
    assert (model.weights_, model.weight_) == ("weight", frame["weight"].sum())
    assert DemandModel.load(model.save(tmp_path / "model.json")).weights_ == "weight"
    assert fit(frame, price="price", outcome="y", features=["age"]).weights_ is None
    array = DemandModel().fit(frame[["price", "age"]], frame["y"], sample_weight=frame["weight"])
    assert array.weights_ is None
    assert array.weight_ == model.weight_


ASKED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "everything": {
        "features": ("age", "region", "weight"), "family": "poisson", "sensitivity": ("region",),
        "categories": ("weight",), "segment": "region", "ridge": 0.5, "prices": (0.5, 5.0),
    },
    "a family": {"family": Linear(sigma=2.0), "sensitivity": "none", "prices": (1.0, 4.0)},
    "places": {"price": 0, "features": (1, 3), "sensitivity": (3,), "segment": 3},
}  # fmt: skip


@pytest.mark.parametrize("asked", list(ASKED))
def test_parameters_come_back_too(asked: str, tmp_path: Path) -> None:
    """A model that was saved, loaded and cloned learns what it learned before."""
    frame = quotes("poisson", 800)
    X = frame[["price", "age", "region", "weight"]]
    rows = X.assign(region=X["region"].astype("category").cat.codes).to_numpy() if asked == "places" else X
    model = DemandModel(**ASKED[asked]).fit(rows, frame["y"])
    again = DemandModel.load(model.save(tmp_path / "model.json"))
    assert again.get_params() == model.get_params()
    assert repr(again) == repr(model)
    fresh = clone(again).fit(rows, frame["y"])
    assert fresh.to_dict() == model.to_dict() == again.to_dict()


def test_parameters_of_a_streamed_fit_come_back(tmp_path: Path) -> None:
    frame = quotes("poisson", 800)
    model = fit(
        frame, price="price", outcome="y", features=["age", "region"], family="poisson", sensitivity=["region"],
        segment="region", ridge=0.5, prices=(0.5, 5.0),
    )  # fmt: skip
    again = DemandModel.load(model.save(tmp_path / "model.json"))
    assert again.get_params() == model.get_params()
    fresh = clone(again).fit(frame.drop(columns=["y", "weight"]), frame["y"])
    np.testing.assert_array_equal(fresh.theta_, model.theta_)
    assert (fresh.ridge_, fresh.prices_, fresh.segments_) == (0.5, (0.5, 5.0), "region")


def test_nothing_but_a_model_is_written_over(saved: tuple[DemandModel, Path], tmp_path: Path) -> None:
    model, _ = saved
    other = tmp_path / "quotes.json"
    other.write_text('{"quotes": []}')
    with pytest.raises(InvalidInput, match="is not a demand model, so it is left alone"):
        model.save(other)
    assert other.read_text() == '{"quotes": []}'
    with pytest.raises(InvalidInput, match="is a folder"):
        model.save(tmp_path)
    with pytest.raises(InvalidInput, match="There is no folder"):
        model.save(tmp_path / "no" / "model.json")
    place = model.save(tmp_path / "model.json")
    assert model.save(place) == place


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no valid JSON"),
        ("\x00\x01", "no valid JSON"),
        ("[1, 2", "no valid JSON"),
        ("[" * 100_000, "no valid JSON"),
        ('{"format": "hushprice-demand-model", "version": 1, "model": {"x": NaN}}', "no valid JSON"),
        ("[]", "not a demand model"),
        ('{"format": "other", "version": 1}', "not a demand model"),
        ('{"format": "hushprice-demand-model", "version": 3, "model": {}}', "written by a newer hushprice"),
        ('{"format": "hushprice-demand-model", "version": "1", "model": {}}', "is damaged: its version"),
        ('{"format": "hushprice-demand-model", "version": 1}', "holds no model"),
        ('{"format": "hushprice-demand-model", "version": 1, "model": {}}', "model has no origin"),
    ],
    ids=["empty", "bytes", "cut", "deep", "nan", "list", "foreign", "newer", "words", "bare", "nothing"],
)  # fmt: skip
def test_files_that_are_no_models(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(ModelFileError, match=says):
        DemandModel.load(path)
    with pytest.raises(ModelFileError, match="cannot be read: No such file"):
        DemandModel.load(tmp_path / "none.json")


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested lists and dictionaries."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [p for key, value in items for p in ((*path, key), *places(value, (*path, key)))]


@settings(max_examples=300)
@given(st.data())
def test_damaged_files_are_refused_or_harmless(saved: tuple[DemandModel, Path], data: st.DataObject) -> None:
    """Whatever one place is changed to, loading gives a model or a ModelFileError."""
    model = json.loads(saved[1].read_text())["model"]
    *path, last = data.draw(st.sampled_from(places(model)))
    holder = model
    for key in path:
        holder = holder[key]
    odd = st.sampled_from([None, True, -1, 0, 3, 1e400, -2.5, 10**400, "", "x", [], [1.0], {}, {"a": 1}])
    if data.draw(st.booleans()):
        holder[last] = data.draw(odd)
    else:
        del holder[last]
    loaded = None
    with contextlib.suppress(HushpriceError):
        loaded = DemandModel.from_dict(model)
    if loaded is not None:
        assert loaded.predict({"price": [1.0], "age": [40.0], "region": ["north"]}).shape == (1,)


def test_the_former_name_of_the_package_can_be_imported() -> None:
    import hushprice as hp
    from hushprice import fitting
    from hushprice.logs import DemandModel as Former

    assert Former is DemandModel is hp.logs.DemandModel
    assert set(hp.logs.__all__) == set(fitting.__all__) <= set(dir(hp.logs))
