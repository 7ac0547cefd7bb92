"""The streamed fit: statsmodels as reference, weights, parts, folders, threads; a ridge where records do not decide."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import statsmodels.api as sm
from scipy import optimize, stats

import hushprice as hp
from hushprice.arrays import Array
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.fitting import Design, Survey, held_out, stream_fit, survey
from hushprice.fitting.passes import separation
from hushprice.fitting.passes.separation import separable
from hushprice.fitting.reading.ordered_map import in_order
from hushprice.kernels import newton, streamed
from hushprice.kernels.state import StreamedRows

FAMILIES = {"logistic": sm.families.Binomial, "poisson": sm.families.Poisson, "linear": sm.families.Gaussian}
FEATURES = ["age", "income", "risk"]


def log(family: str, rows: int = 3_000, seed: int = 0, *, gaps: bool = True) -> dict[str, Any]:
    """A log with numbers, a category, weights and missing values."""
    rng = np.random.default_rng(seed)
    age, income, price = rng.normal(40, 10, rows), rng.exponential(2_000, rows), rng.uniform(90, 110, rows)
    risk, weight = (
        rng.choice(["LOW", "HIGH"], rows, p=[0.7, 0.3]).astype(object),
        rng.integers(0, 4, rows).astype(float),
    )
    a = 5.0 + 0.02 * (age - 40) + 0.5 * (risk == "HIGH")
    b = 0.05 + 0.001 * (income / 2_000 - 1)
    sold = hp.demand.as_family(family).sample(a - b * price, rng)
    if gaps:
        age[::50], price[7], sold[11] = np.nan, np.nan, np.nan
        risk[13::40] = None
    return {"price": price, "sold": sold, "age": age, "income": income, "risk": risk, "w": weight}


def look(data: Any, **options: Any) -> Survey:
    return survey(data, price="price", outcome="sold", **({"features": FEATURES} | options))


def dense(design: Design) -> tuple[Array, Array, Array]:
    """(x, y, w) of a design, all at once."""
    rows = list(design.blocks())
    z, p, y, w = (np.concatenate([getattr(r, name) for r in rows]) for name in ("z", "price", "y", "w"))
    assert design.sensitive is not None
    return np.hstack([z, -p[:, None] * z[:, design.sensitive]]), y, w


def reference(design: Design, family: str) -> Any:
    """statsmodels, on centred prices for the sake of its own rounding; theta and its covariance in raw prices."""
    x, y, w = dense(design)
    assert design.sensitive is not None
    d, some = design.dim, np.flatnonzero(design.sensitive)
    centred = x.copy()
    centred[:, d:] += design.centre * x[:, some]
    model = sm.GLM(y, centred, family=FAMILIES[family](), freq_weights=w)
    fitted = model.fit(tol=1e-14, maxiter=100)
    back = np.eye(d + some.size)
    for k, i in enumerate(some):
        back[i, d + k] = design.centre
    covariance = back @ fitted.cov_params() @ back.T
    return back @ fitted.params, np.sqrt(np.diag(covariance)), fitted


def compact(design: Design, values: Array) -> Array:
    """The entries of (alpha, beta) that are fitted."""
    assert design.sensitive is not None
    return np.asarray(values[np.concatenate([np.ones(design.dim, dtype=bool), design.sensitive])])


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize("weights", [None, "w"], ids=["plain", "weighted"])
@pytest.mark.parametrize("part", ["all", "train", "held-out"])
def test_agrees_with_statsmodels(family: str, weights: str | None, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushprice.fitting.passes.design.rows_for", lambda width: 700)  # several batches, a ragged end
    surveyed = look(log(family), weights=weights)
    assert surveyed.encoding.dim == 6
    design = Design.of(surveyed, part=part)
    fit = stream_fit(design, family)
    theta, errors, fitted = reference(design, family)
    np.testing.assert_allclose(fit.theta, theta, rtol=1e-8, atol=1e-8 * np.abs(errors).max())
    np.testing.assert_allclose(fit.standard_errors, errors, rtol=1e-8)
    assert fit.rank == fit.coefficients == 12
    assert (fit.records, fit.weight) == (len(fitted.fittedvalues), fitted.df_resid + 12)
    assert (fit.ridge, fit.separable) == (0.0, False)
    assert math.isclose(fit.dispersion, fitted.scale, rel_tol=1e-9)
    if family != "linear":
        assert math.isclose(fit.loglik, fitted.llf, rel_tol=1e-10)


def test_the_linear_loglik_is_the_normal_one_at_the_dispersion() -> None:
    design = Design.of(look(log("linear"), weights="w"))
    fit = stream_fit(design, "linear")
    x, y, w = dense(design)
    each = stats.norm.logpdf(y, x @ fit.theta, math.sqrt(fit.dispersion))
    assert math.isclose(fit.loglik, float(w @ each), rel_tol=1e-10)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_part_of_the_entries_can_be_price_sensitive(family: str) -> None:
    surveyed = look(log(family))
    for sensitive in (np.arange(6) == 0, np.arange(6) % 2 == 0, np.zeros(6, dtype=bool)):
        design = Design.of(surveyed, sensitive=sensitive)
        fit = stream_fit(design, family)
        theta, errors, _ = reference(design, family)
        np.testing.assert_allclose(compact(design, fit.theta), theta, rtol=1e-8, atol=1e-8 * errors.max())
        np.testing.assert_allclose(compact(design, fit.standard_errors), errors, rtol=1e-8)
        assert (fit.theta[6:][~sensitive] == 0.0).all()
        assert (fit.covariance[6:][~sensitive] == 0.0).all()
        assert fit.coefficients == 6 + sensitive.sum()


def test_weights_count_like_repeated_records() -> None:
    data = log("poisson", gaps=False)
    repeated = {name: np.repeat(values, data["w"].astype(int)) for name, values in data.items()}
    weighted = stream_fit(Design.of(look(data, weights="w", features=["age"])), "poisson")
    again = stream_fit(Design.of(look(repeated, features=["age"])), "poisson")
    # the encodings differ (rows are counted once), so compare what does not depend on them
    assert math.isclose(weighted.loglik, again.loglik, rel_tol=1e-10)
    assert weighted.weight == again.weight == data["w"].sum()


def test_files_folders_and_frames_agree(tmp_path: Path) -> None:
    data = log("logistic")
    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in data.items()})
    (tmp_path / "many").mkdir()
    for k, start in enumerate(range(0, 3_000, 1_100)):
        pq.write_table(table.slice(start, 1_100), tmp_path / "many" / f"{k}.parquet", row_group_size=333)
    pq.write_table(table, tmp_path / "one.parquet")
    one, many, memory = (
        stream_fit(Design.of(look(s)), "logistic") for s in (tmp_path / "one.parquet", tmp_path / "many", data)
    )
    np.testing.assert_array_equal(one.theta, memory.theta)
    np.testing.assert_allclose(many.theta, one.theta, rtol=1e-10)
    np.testing.assert_allclose(many.covariance, one.covariance, rtol=1e-8, atol=1e-20)


def test_the_result_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushprice.fitting.passes.design.rows_for", lambda width: 200)
    fits = []
    for threads in (1, 2, 7):
        monkeypatch.setattr("os.cpu_count", lambda threads=threads: threads)
        fits.append(stream_fit(Design.of(look(log("logistic"))), "logistic"))
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.theta, fits[0].theta)
        np.testing.assert_array_equal(fit.covariance, fits[0].covariance)
        assert fit.loglik == fits[0].loglik


def test_a_start_spares_passes_and_changes_nothing() -> None:
    design = Design.of(look(log("logistic")))
    first = stream_fit(design, "logistic")
    again = stream_fit(design, "logistic", start=first.theta)
    assert again.passes == 1
    np.testing.assert_allclose(again.theta, first.theta, rtol=1e-10)
    nowhere = Design(source=design.source, encoding=design.encoding, price="price", outcome="sold")
    np.testing.assert_allclose(stream_fit(nowhere, "logistic").theta, first.theta, rtol=1e-7)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_the_ridge_is_on_theta_in_standard_units(family: str) -> None:
    design = Design.of(look(log(family, 400), features=["age", "risk"]))
    fit = stream_fit(design, family, ridge=3.0)
    x, y, _ = dense(design)
    d = design.dim
    x[:, d:] = (x[:, d:] + design.centre * x[:, :d]) / design.spread
    whole = hp.estimation.fit(family, x, y, ridge=3.0, tolerance=1e-12)
    alpha, beta = whole.theta[:d], whole.theta[d:] / design.spread
    np.testing.assert_allclose(fit.theta, np.concatenate([alpha + design.centre * beta, beta]), rtol=1e-7)
    np.testing.assert_allclose(fit.standard_errors[d:], whole.standard_errors[d:] / design.spread, rtol=1e-3)
    assert fit.ridge == 3.0


def test_units_of_price_and_features_do_not_matter() -> None:
    data = log("logistic", gaps=False)
    big = data | {"price": 1e6 * data["price"], "income": 1e-5 * data["income"], "age": data["age"] + 1e6}
    one, other = (stream_fit(Design.of(look(d)), "logistic") for d in (data, big))
    np.testing.assert_allclose(other.theta[4:] * 1e6, one.theta[4:], rtol=1e-6, atol=1e-8)
    assert math.isclose(one.loglik, other.loglik, rel_tol=1e-9)
    far = data | {"price": 1e7 + data["price"] / 1e3}  # varies in the last digits only
    assert stream_fit(Design.of(look(far)), "logistic").rank == one.rank == 8


def test_coefficients_that_are_not_identified_have_infinite_standard_errors() -> None:
    data = log("logistic", gaps=False)
    data["twin"] = 2.0 * data["age"] + 1.0
    fit = stream_fit(Design.of(look(data, features=["age", "income", "twin"])), "logistic")
    assert (fit.rank, fit.coefficients, fit.ridge, fit.separable) == (6, 8, 1.0, False)
    assert np.isfinite(fit.theta).all()
    np.testing.assert_array_equal(np.isinf(fit.standard_errors), [False, True, False, True] * 2)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_price_that_is_a_function_of_the_features(family: str) -> None:
    data = log(family, gaps=False)
    data["price"] = 60.0 + data["age"]
    sensitive = np.array([True, False])
    fit = stream_fit(Design.of(look(data, features=["age"]), sensitive=sensitive), family)
    assert (fit.rank, fit.coefficients, fit.ridge, fit.separable) == (2, 3, 1.0, False)
    np.testing.assert_array_equal(np.isinf(fit.standard_errors), [True, True, True, False])


def test_a_price_that_never_varies() -> None:
    data = log("logistic", gaps=False)
    data["price"][:] = 100.0
    fit = stream_fit(Design.of(look(data, features=["age"])), "logistic")
    assert fit.rank == 2
    assert np.isinf(fit.standard_errors).all()
    assert np.isfinite(fit.theta).all()


def separated(kind: str) -> tuple[dict[str, Any], str]:
    data = log("logistic", 2_000, gaps=False)
    rng = np.random.default_rng(5)
    if kind == "threshold":
        data["sold"] = (data["price"] < 101.0).astype(float)
    elif kind == "level":  # one level never buys
        data["sold"][data["risk"] == "HIGH"] = 0.0
    elif kind == "rare level":
        data["risk"][:25], data["sold"][:25] = "ODD", 0.0
    elif kind == "poisson":
        data["sold"] = rng.poisson(2.0, 2_000).astype(float)
        data["risk"][:60], data["sold"][:60] = "ODD", 0.0
        return data, "poisson"
    elif kind == "all":
        data["sold"][:] = 1.0
    return data, "logistic"


@pytest.mark.parametrize("kind", ["threshold", "level", "rare level", "poisson", "all"])
def test_separable_records_are_detected_and_fitted_with_a_ridge(kind: str) -> None:
    data, family = separated(kind)
    fit = stream_fit(Design.of(look(data)), family)
    assert fit.separable
    assert fit.ridge == 1.0
    assert np.isfinite(fit.theta).all()
    assert np.isfinite(fit.standard_errors).all()


def test_far_but_overlapping_records_are_not_separable() -> None:
    data, _ = separated("threshold")
    order = np.argsort(np.abs(data["price"] - 101.0))
    data["sold"][order[:4]] = [1.0, 0.0, 1.0, 0.0]
    data["sold"][order[:4][np.argsort(data["price"][order[:4]])]] = [1.0, 0.0, 1.0, 0.0]
    fit = stream_fit(Design.of(look(data, features=[])), "logistic")
    assert not fit.separable
    assert fit.ridge == 0.0


def brute(x: Array, y: Array) -> bool:
    """Separability by one linear program over all rows, margins summed."""
    signed = x * (2.0 * y - 1.0)[:, None]
    result = optimize.linprog(-signed.sum(axis=0), A_ub=-signed, b_ub=np.zeros(len(y)), bounds=(-1, 1), method="highs")
    return float(signed.sum(axis=0) @ np.asarray(result.x)) > 1e-6


@pytest.mark.parametrize("seed", range(12))
def test_separability_agrees_with_one_linear_program(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushprice.fitting.passes.design.rows_for", lambda width: 50)
    monkeypatch.setattr("hushprice.fitting.passes.survey_sums.SAMPLE_ROWS", 60)
    monkeypatch.setattr("hushprice.fitting.passes.separation._WORST", 2)
    rng = np.random.default_rng(seed)
    n, noise = 300, (0.0, 0.02, 0.3)[seed % 3]
    data = {"price": rng.uniform(1, 2, n), "a": rng.normal(size=n), "b": rng.normal(size=n)}
    score = data["a"] - 2.0 * data["b"] - data["price"] + 1.5
    data["sold"] = (score + noise * rng.normal(size=n) > 0).astype(float)
    design = Design.of(look(data, features=["a", "b"]), sensitive=np.array([True, False, False]))
    x, y, _ = dense(design)
    x[:, 3] = (x[:, 3] + design.centre) / design.spread
    assert separable(design, hp.Logistic()) == brute(x, y) == (seed % 3 == 0 or brute(x, y))
    assert stream_fit(design, "logistic").separable == brute(x, y)


def test_outcomes_that_a_family_cannot_produce_are_refused() -> None:
    data = log("poisson", gaps=False)
    with pytest.raises(InvalidInput, match="logistic demand must be 0 or 1"):
        stream_fit(Design.of(look(data)), "logistic")


def splitmix64(number: int) -> int:
    """Steele, Lea & Flood (2014), in whole numbers."""
    x = (number + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def test_parts_are_disjoint_and_fixed() -> None:
    surveyed = look(log("logistic"))
    train, others = (
        np.concatenate([rows.number for rows in Design.of(surveyed, part=part).blocks()])
        for part in ("train", "held-out")
    )
    assert np.intersect1d(train, others).size == 0
    assert train.size + others.size == surveyed.records
    np.testing.assert_array_equal(held_out(others), True)
    # 200 000 independent draws would have a share within 0.005 of 1/5 but once in 10^7
    assert abs(held_out(np.arange(10**6, 10**6 + 200_000)).mean() - 0.2) < 0.005
    expected = [splitmix64(i) % 5 == 0 for i in range(1_000)]
    np.testing.assert_array_equal(held_out(np.arange(1_000)), expected)
    with pytest.raises(InvalidInput, match="no part called 'test'"):
        Design.of(surveyed, part="test")
    with pytest.raises(InvalidInput, match="shape"):
        Design.of(surveyed, sensitive=np.array([True]))


def test_progress_is_reported() -> None:
    calls: list[tuple[str, int]] = []
    surveyed = look(log("logistic"), progress=lambda what, rows: calls.append((what, rows)))
    fit = stream_fit(Design.of(surveyed), "logistic", progress=lambda what, rows: calls.append((what, rows)))
    assert calls[0][0] == "survey"
    assert [what for what, _ in calls[1:]] == [f"pass {k + 1}" for k in range(fit.passes)]
    assert all(rows == 3_000 for _, rows in calls)


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("rows", [1, 63, 64, 65, 300])
def test_the_kernel_agrees_with_the_one_in_memory(family: str, weighted: bool, rows: int) -> None:
    rng = np.random.default_rng(rows)
    d, code = 5, hp.demand.as_family(family).code
    z, price, theta = rng.normal(size=(rows, d)), rng.uniform(1, 3, rows), rng.normal(size=2 * d)
    y, w = rng.integers(0, 2, rows).astype(float), rng.uniform(0.5, 2.0, rows) if weighted else np.empty(0)
    padded = np.zeros((d, -(-rows // streamed.TILE) * streamed.TILE))
    padded[:, :rows] = z.T
    gradient, blocks = np.empty((2, d)), np.empty((3, d, d))
    loss, smallest = streamed.evaluate(
        code, StreamedRows(padded, price, y, w), 2.0, 0.5, theta[:d], theta[d:], gradient, blocks
    )
    q = (price - 2.0) / 0.5
    x = np.hstack([z, -q[:, None] * z])
    slope, information = np.empty(2 * d), np.empty((2 * d, 2 * d))
    expected = newton.evaluate(code, x, y, w, theta, slope, information)
    expected += 0.5 * float((y**2 * w).sum() if weighted else (y**2).sum()) if family == "linear" else 0.0
    assert math.isclose(loss, expected, rel_tol=1e-12)
    np.testing.assert_allclose(gradient.ravel(), slope, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.tril(blocks[0]), np.tril(information[:d, :d]), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.tril(-blocks[1]), np.tril(information[d:, :d]), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.tril(blocks[2]), np.tril(information[d:, d:]), rtol=1e-10, atol=1e-12)
    each = hp.demand.as_family(family).curvature(x @ theta) * (w if weighted else 1.0)
    assert math.isclose(smallest, each.min(), rel_tol=1e-12)


def test_work_in_order_passes_errors_on_and_stops_early() -> None:
    drawn = []

    def numbers() -> Any:
        for i in range(1_000):
            drawn.append(i)
            yield i

    stream = in_order(lambda i: i, numbers(), workers=2)
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    stream.close()  # type: ignore[attr-defined]
    assert len(drawn) < 20
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda i: 1 // (3 - i), range(10)))


def test_a_fit_that_does_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushprice.fitting.passes.stream._MOST_PASSES", 1)
    monkeypatch.setattr("hushprice.fitting.passes.stream._DOUBT", 1)
    with pytest.raises(HushpriceError, match="did not converge"):
        stream_fit(Design.of(look(log("logistic"))), "logistic", start=np.zeros(12))


def test_the_pass_spared_on_many_records_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushprice.fitting.passes.survey_sums.SAMPLE_ROWS", 20_000)
    design = Design.of(look(log("logistic", 60_000, gaps=False), features=["age"]))
    whole = stream_fit(design, "logistic", tolerance=1e-12)
    monkeypatch.setattr("hushprice.fitting.passes.newton._MANY", 1)
    spared = stream_fit(design, "logistic", tolerance=1e-12)
    assert spared.passes < whole.passes
    np.testing.assert_allclose(spared.theta, whole.theta, atol=1e-9 * whole.standard_errors.min())
    np.testing.assert_allclose(spared.covariance, whole.covariance, rtol=1e-6)


def test_records_known_to_overlap_are_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    design = Design.of(look(log("logistic")))
    whole = stream_fit(design, "logistic")
    monkeypatch.setattr("hushprice.fitting.passes.stream.separable", lambda *_: pytest.fail("asked"))
    monkeypatch.setattr("hushprice.fitting.passes.newton.Newton.overlap", lambda *_: pytest.fail("asked"))
    certain = stream_fit(design, "logistic", overlapping=True)
    np.testing.assert_array_equal(certain.theta, whole.theta)
    assert (certain.separable, certain.ridge) == (False, 0.0)


def test_contradictions_are_the_worst_of_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many batches there are, no more than so many rows are held: the worst."""
    monkeypatch.setattr("hushprice.fitting.passes.design.rows_for", lambda width: 100)
    monkeypatch.setattr(separation, "_JOIN", 40)
    design = Design.of(look(log("logistic", gaps=False)))
    signs = separation._Signs.of(design, hp.Logistic())
    v = np.random.default_rng(1).normal(size=signs.aim.size)
    worst = separation._contradictions(design, signs, v)
    assert worst.shape == (40, v.size)
    every = np.concatenate([_margins(rows, signs, v) for rows in design.blocks()])
    np.testing.assert_allclose(worst @ v, np.sort(every)[:40], rtol=1e-9)


def _margins(rows: Any, signs: Any, v: Array) -> Array:
    x = signs.columns(rows)
    return np.asarray((2.0 * rows.y - 1.0) * (x @ v) / np.linalg.norm(x, axis=1))
