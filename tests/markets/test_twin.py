"""Twins: markets calibrated to a log, their self-check and their file.

Statistical tests have fixed seeds; with a correct program they would fail with another seed at the rate stated.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from scipy import stats

from hushprice import checks
from hushprice.demand import Linear, Rules, as_family
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.estimation import design
from hushprice.estimation import fit as exact_fit
from hushprice.fitting import Category, Encoding, Finding, Number
from hushprice.fitting import fit as fit_log
from hushprice.markets.twin.check import check_twin, replay
from hushprice.markets.twin.places import places_of, words_of
from hushprice.markets.twin.replay import Group, Replay
from hushprice.markets.twin.rows import TwinRows, by_weight, rows_of, sample_rows
from hushprice.markets.twin.twin import Twin, twin
from hushprice.markets.twin.twin_file import from_file, load_twin, save_twin
from hushprice.simulation import Today, simulate
from hushprice.studies import Study
from hushprice.studies.spec_strings import policy_from
from tests.support.paths import KARLAN_ZINMAN

ENCODING = Encoding(features=(Number("age", 40.0, 10.0, 10.0, 70.0), Category("risk", ("LOW", "HIGH"), (1, 1))))
ALPHA, BETA = np.array([0.5, 0.3, -0.4]), np.array([0.6, 0.1, 0.2])
Log = dict[str, Any]


def shop(n: int, *, seed: int = 0, family: str = "logistic", bend: float = 0.0) -> Log:
    """A log whose demand is the model's, or bent by the square of the price."""
    rng = np.random.default_rng(seed)
    age, risk = rng.normal(40.0, 10.0, n), rng.choice(["LOW", "HIGH"], n)
    z = np.column_stack([np.ones(n), (age - 40.0) / 10.0, risk == "HIGH"])
    price = rng.uniform(0.5, 3.0, n)
    eta = z @ ALPHA - (z @ BETA) * price - bend * (price - 1.75) ** 2
    y = as_family(family).sample(eta, rng)
    return {"age": age, "risk": risk, "price": price, "sold": y, "cost": rng.uniform(0.1, 0.4, n)}


def fitted(log: Log, *, family: str = "logistic", z: Any = None, **changes: Any) -> Any:
    """What a twin needs of a demand model, by an independent route: estimation.fit and a dense Hessian."""
    if z is None:
        z = np.column_stack([np.ones(len(log["age"])), (log["age"] - 40.0) / 10.0, log["risk"] == "HIGH"])
    x, y = design(z, log["price"]), log["sold"]
    theta, kind = exact_fit(family, x, y).theta, as_family(family)
    variance = 1.0
    if family == "linear":
        variance = float(((y - x @ theta) ** 2).sum() / (len(y) - 6))
        kind = Linear(sigma=variance**0.5)
    covariance = variance * np.linalg.inv((x * kind.curvature(x @ theta)[:, None]).T @ x)
    seen = (float(log["price"].min()), float(log["price"].max()))
    facts: dict[str, Any] = {
        "family_": kind, "theta_": theta, "alpha_": theta[: z.shape[1]], "beta_": theta[z.shape[1] :],
        "covariance_": covariance, "encoding_": ENCODING, "prices_": seen, "seen_": seen, "segments_": "risk",
        "outcome_": "sold",
        "price_": "price", "findings_": [], "weights_": None, "report_": SimpleNamespace(by="", segments=()),
        "half_life_": None, "path_": None, "to_dict": dict,
    }  # fmt: skip
    return SimpleNamespace(**facts | changes)


def finding(code: str, severity: Any) -> Finding:
    return Finding(code, severity, f"It is {code}.")


LOG = shop(3_000)
MODEL = fitted(LOG)
TWIN = twin(MODEL, LOG)


def test_a_twin_is_the_model_and_the_rows_of_the_log() -> None:
    market = twin(MODEL, LOG, cost="cost", prices=(0.5, 2.5))
    who = market.contexts
    assert np.array_equal(market.theta, MODEL.theta_)
    assert market.covariance is not None
    assert np.array_equal(market.covariance, MODEL.covariance_)
    assert np.allclose(who.rows[:, 1], (LOG["age"] - 40.0) / 10.0)
    assert np.array_equal(who.rows[:, 2], LOG["risk"] == "HIGH")
    assert np.array_equal(who.costs, LOG["cost"])
    assert np.array_equal(who.today, LOG["price"])
    assert [market.segments[i] for i in who.segments[:50]] == LOG["risk"][:50].tolist()
    assert market.names == ("1", "age", "risk=HIGH")
    assert market.prices == (0.5, 2.5)
    assert (market.name, market.about.log_rows, market.about.left_out) == ("twin", 3_000, 0)


@pytest.mark.parametrize(
    ("today", "expected"),
    [(1.5, np.full(3_000, 1.5)), ("cost", LOG["cost"]), (None, LOG["price"]),
     ({"LOW": 1.0, "HIGH": 2.0}, np.where(LOG["risk"] == "HIGH", 2.0, 1.0))],
    ids=["number", "column", "logged", "by segment"],
)  # fmt: skip
def test_todays_prices(today: Any, expected: Any) -> None:
    assert np.array_equal(twin(MODEL, LOG, today=today).today, expected)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"today": {"LOW": 1.0}}, "no price for the segment 'HIGH'"),
        ({"today": "prise"}, "Did you mean 'price'"),
        ({"today": -1.0}, "today"),
        ({"today": {}}, "names no segment"),
        ({"today": "below"}, "negative in the column below: -2"),
        ({"cost": "coste"}, "Did you mean 'cost'"),
        ({"cost": -1.0}, "cost"),
        ({"rows": 0}, "rows"),
        ({"prices": (3, 1)}, "low < high"),
        ({"segment": "nowhere"}, "nowhere"),
        ({"rules": Rules(ranges={"OTHER": (1.0, 2.0)})}, "OTHER"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_what_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(HushpriceError, match=words):
        twin(MODEL, {**LOG, "below": np.where(np.arange(3_000) == 7, -2.0, 1.0)}, **options)


def test_prices_by_segment_need_segments() -> None:
    with pytest.raises(InvalidInput, match="column of the segments"):
        twin(fitted(LOG, segments_=None), LOG, today={"LOW": 1.0})


def test_a_model_that_says_stop_is_refused_unless_anyway() -> None:
    model = fitted(LOG, findings_=[finding("separable", "stop"), finding("few-rows", "warning")])
    with pytest.raises(InvalidInput, match="It is separable"):
        twin(model, LOG)
    made = twin(model, LOG, anyway=True)
    assert [f.code for f in made.about.findings] == ["separable", "few-rows"]


def codes(made: Twin) -> list[str]:
    return [f.code for f in made.findings]


def test_prices_beyond_those_seen_are_detected() -> None:
    assert "extrapolation" in codes(twin(MODEL, LOG, prices=(0.5, 9.0)))
    assert not TWIN.findings


def test_rounding_the_range_finds_nothing() -> None:
    low, high = MODEL.seen_
    assert (low, high) != (0.5, 3.0)
    assert codes(twin(MODEL, LOG, prices=(0.5, 3.0))) == codes(TWIN) == []
    assert codes(twin(MODEL, LOG, prices=(0.5, high + 0.051 * (high - low)))) == ["extrapolation"]


def test_findings_of_the_models_range_are_made_anew() -> None:
    """The model's own, for its range and no cost, say nothing of a twin with others."""
    stale = [finding(code, "warning") for code in ("boundary-optimum", "extrapolation", "few-rows")]
    assert codes(twin(fitted(LOG, findings_=stale), LOG)) == ["few-rows"]
    narrow = twin(MODEL, LOG, prices=(0.5, 1.0))
    assert codes(narrow) == ["boundary-optimum", "today-not-allowed"]
    shares = (narrow.best_prices() == 1.0).mean(), (narrow.best_prices() == 0.5).mean()
    assert f"For {sum(shares):.0%} of customers" in narrow.findings[0].text
    assert codes(replace(narrow, prices=(0.5, 3.0))) == []
    dear = twin(MODEL, LOG, cost=2.5)  # the best margin lies above what may be quoted
    assert codes(dear) == ["boundary-optimum"]


def today_finding(**options: Any) -> Finding | None:
    return next((f for f in twin(MODEL, LOG, **options).findings if f.code == "today-not-allowed"), None)


def test_todays_prices_that_are_not_allowed_are_detected() -> None:
    assert today_finding(today=3.0, prices=(0.5, 3.0)) is None
    assert today_finding(today=0.1 + 0.2, prices=(0.1, 0.3)) is None  # but for rounding
    ladder = Rules(ladder=(1.0, 2.0, 3.0))
    assert today_finding(today=2.0, prices=(0.5, 3.0), rules=ladder) is None
    far = today_finding(today=7.0)
    assert far is not None
    assert far.severity == "warning"
    assert "100% of customers pay one outside" in far.text
    assert "ladder" not in far.text
    share = float((LOG["risk"] == "HIGH").mean())
    high = today_finding(today=2.5, prices=(0.5, 3.0), rules=Rules(ranges={"HIGH": (0.5, 2.0)}))
    assert high is not None
    assert f": {share:.0%} of customers" in high.text
    between = today_finding(today=2.5, prices=(0.5, 3.0), rules=ladder)
    assert between is not None
    assert (between.severity, "100% of customers pay one between" in between.text) == ("note", True)
    assert "outside" not in between.text
    few = np.where(np.arange(3_000) < 30, 9.0, 2.0)
    noted = twin(MODEL, {**LOG, "now": few}, today="now").findings
    assert [(f.code, f.severity) for f in noted] == [("today-not-allowed", "note")]


@pytest.mark.parametrize(("rows", "severity"), [(30, "note"), (31, "warning")], ids=["1%", "more"])
def test_levels_that_the_model_never_saw_are_counted(rows: int, severity: str) -> None:
    """Missing ones too, where none was missing before."""
    risk = LOG["risk"].astype(object)
    risk[:rows] = ["NEW", None] * (rows // 2) + ["NEW"] * (rows % 2)
    made = twin(MODEL, {**LOG, "risk": risk}, rows=200)
    (finding,) = (f for f in made.findings if f.code == "unknown-levels")
    assert finding.severity == severity
    assert f"In {rows} rows" in finding.text
    assert "risk" in finding.text
    assert "taken for LOW" in finding.text


def test_what_exceeds_the_rare_levels_of_the_fit_is_new() -> None:
    """The fit joined 10% of its rows into "(other)", without their names."""
    some = Category("risk", ("LOW", "HIGH", "(other)"), (1_500, 1_200, 300))
    model = fitted(LOG, encoding_=Encoding(features=(Number("age", 40.0, 10.0, 10.0, 70.0), some)))
    model.alpha_, model.beta_ = np.append(model.alpha_, 0.0), np.append(model.beta_, 0.0)
    model.theta_, model.covariance_ = np.append(model.alpha_, model.beta_), 0.001 * np.eye(8)
    for rows, severities in ((300, []), (320, []), (900, ["warning"])):
        risk = np.where(np.arange(3_000) < rows, "rare", LOG["risk"])
        findings = [f for f in twin(model, {**LOG, "risk": risk}).findings if f.code == "unknown-levels"]
        assert [f.severity for f in findings] == severities
    assert "about 600 rows (20%)" in findings[0].text
    assert "taken for (other)" in findings[0].text


def test_rules_that_keep_to_the_prices_seen_do_not_extrapolate() -> None:
    log = {**LOG, "price": np.where(LOG["risk"] == "HIGH", 1.0 + LOG["price"], LOG["price"])}
    model = fitted(log)
    free = next(f for f in twin(model, log).findings if f.code == "extrapolation")
    assert "LOW 0.5" in free.text
    assert "HIGH 1.5" in free.text
    within = Rules(ranges={"LOW": (0.6, 2.9), "HIGH": (1.6, 3.9)})
    ruled = twin(model, log, rules=within)
    assert "extrapolation" not in codes(ruled)
    assert ruled.ranges() == within.ranges
    assert TWIN.ranges() == {"everyone": TWIN.prices}
    other = Rules(ranges={"LOW": (0.6, 3.9), "HIGH": (1.6, 3.9)})
    text = next(f.text for f in twin(model, log, rules=other).findings if f.code == "extrapolation")
    assert "(risk): LOW" in text
    assert "HIGH" not in text


def test_prices_seen_are_the_models_where_it_tells_them() -> None:
    """A new log at one price has not narrowed what the model knows of a segment."""
    later = {**LOG, "price": np.full(3_000, 2.0)}
    assert "extrapolation" in codes(twin(MODEL, later))
    report = SimpleNamespace(by="risk", segments=[SimpleNamespace(name=n, low=0.5, high=3.0) for n in ("LOW", "HIGH")])
    assert codes(twin(fitted(LOG, report_=report), later)) == []


def test_incomplete_rows_are_left_out_and_counted() -> None:
    log = {name: np.array(values, dtype=object) for name, values in LOG.items()}
    log["price"][3], log["sold"][5], log["cost"][7] = None, None, None
    made = twin(MODEL, log, cost="cost")
    assert (made.about.log_rows, made.about.left_out) == (2_997, 3)
    with pytest.raises(InvalidInput, match="No row"):
        twin(MODEL, {**LOG, "sold": np.full(3_000, np.nan)})


def test_without_a_finite_covariance_the_truth_cannot_be_drawn() -> None:
    model = fitted(LOG, covariance_=np.full((6, 6), np.inf))
    with pytest.raises(InvalidInput, match="uncertain=False"):
        twin(model, LOG)
    assert twin(model, LOG, uncertain=False).covariance is None


def test_a_large_log_is_sampled_evenly_and_always_alike() -> None:
    """The mean place of 600 of 3 000 rows is 1 499.5 with standard error 31.6; 4 of them: 1 in 16 000."""
    first, second = (twin(MODEL, LOG, rows=600).today for _ in range(2))
    assert np.array_equal(first, second)
    places = np.flatnonzero(np.isin(LOG["price"], first))
    assert len(places) == 600
    assert np.array_equal(LOG["price"][places], first)  # in the order of the log
    assert abs(places.mean() - 1_499.5) < 4 * 31.6


def _rows(numbers: Any, w: Any) -> TwinRows:
    n = len(numbers)
    column = np.asarray(numbers, dtype=np.float64)
    return TwinRows(
        z=column[:, None], price=column, y=column, w=np.asarray(w, dtype=np.float64), cost=column,
        segment=np.full(n, None, dtype=object), today=column, number=np.asarray(numbers, dtype=np.int64),
        unknown=np.zeros((n, 0), dtype=bool), seen=n,
    )  # fmt: skip


def test_a_sample_does_not_depend_on_how_the_log_is_cut() -> None:
    whole = sample_rows(iter([_rows(range(5_000), np.ones(5_000))]), most=100)
    parts = (_rows(range(k, k + 50), np.ones(50)) for k in range(0, 5_000, 50))
    assert np.array_equal(sample_rows(parts, most=100).rows.number, whole.rows.number)


def test_rows_come_as_often_as_they_weigh() -> None:
    counts = np.bincount(by_weight(_rows(range(4), [1.0, 2.0, 3.0, 4.0]), 100).number)
    assert counts.tolist() == [10, 20, 30, 40]


@pytest.mark.parametrize("mean", [2.0, 1.0], ids=["mean 2", "mean 1"])
def test_the_weights_of_the_model_count(mean: float) -> None:
    """Also where they average 1, and look like none."""
    heavy = np.where(LOG["risk"] == "HIGH", 3.0, 1.0)
    heavy *= mean / heavy.mean()
    log = {**LOG, "w": heavy}
    model = fit_log(log, price="price", outcome="sold", features=["age", "risk"], weights="w")
    assert model.weights_ == "w"
    made = twin(model, log, rows=7_000)
    taken = (made.today[:, None] == LOG["price"]).sum(axis=0)  # a price tells its row
    assert (np.abs(taken - 7_000 * heavy / heavy.sum()) < 1.0).all()
    assert made.about.check is not None
    assert made.about.check.same_rows
    assert made.about.check.comparisons[0].groups[0].rows == pytest.approx(heavy.sum())


def test_best_prices_keep_the_rules_and_each_cost() -> None:
    rules = Rules(ladder=tuple(np.arange(0.5, 3.01, 0.25)), ranges={"HIGH": (0.5, 1.5)})
    market = twin(MODEL, LOG, cost="cost", prices=(0.5, 3.0), rules=rules)
    z, best = market.contexts.rows, market.best_prices()
    grid = np.array(rules.ladder)
    earned = (grid - LOG["cost"][:, None]) / (
        1.0 + np.exp(-(z @ MODEL.alpha_)[:, None] + np.outer(z @ MODEL.beta_, grid))
    )
    earned[np.ix_(LOG["risk"] == "HIGH", grid > 1.5)] = -np.inf
    assert np.array_equal(best, grid[np.argmax(earned, axis=1)])
    plain = twin(MODEL, LOG, prices=(0.5, 3.0))
    assert np.allclose(plain.best_prices(), plain.optimal_price(plain.contexts.rows))


def test_a_twin_is_a_market_like_any_other() -> None:
    result = simulate(policy_from("etc", TWIN, 500), TWIN, horizon=500, replications=2, seed=1)
    today = simulate(Today(), TWIN, horizon=500, replications=2, seed=1)
    assert result.market == "twin"
    assert (result.regret > 0.0).all()
    assert (today.regret > 0.0).all()


# The self-check


def _dense(log: Log, model: Any, groups: Any, *, same: bool) -> tuple[float, int]:
    """Chi-squared and its degrees of freedom by dense matrices over all rows."""
    z = np.column_stack([np.ones(len(log["age"])), (log["age"] - 40.0) / 10.0, log["risk"] == "HIGH"])
    x = design(z, log["price"])
    eta = x @ model.theta_
    v = model.family_.scale**2 * model.family_.curvature(eta)
    A = np.array([groups == g for g in np.unique(groups)], dtype=np.float64)
    error = (
        (x * model.family_.curvature(eta)[:, None]) @ model.covariance_ @ (x * model.family_.curvature(eta)[:, None]).T
    )
    covariance = A @ (np.diag(v) + (-error if same else error)) @ A.T
    gap = A @ (log["sold"] - model.family_.mean(eta))
    root = np.sqrt(np.diag(A @ np.diag(v) @ A.T))
    scaled = covariance / np.outer(root, root)
    inverse = np.linalg.pinv(scaled, rcond=1e-3, hermitian=True)
    return float((gap / root) @ inverse @ (gap / root)), int(np.linalg.matrix_rank(scaled, tol=1e-3))


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
@pytest.mark.parametrize("same", [True, False], ids=["its own log", "another log"])
def test_chi_squared_agrees_with_dense_matrices(family: str, same: bool) -> None:
    log = shop(1_200, seed=3, family=family)
    model = fitted(log, family=family)
    replayed = log if same else shop(1_200, seed=4, family=family)
    check = check_twin(model, replayed)
    assert check.same_rows is same
    for what, values in (("tenths of the price", replayed["price"]), ("tenths of age", replayed["age"])):
        found = next(c for c in check.comparisons if c.what == what)
        edges = np.quantile(values, np.arange(1, 10) / 10)
        chi2, df = _dense(replayed, model, np.searchsorted(edges, values, side="right"), same=same)
        assert found.df == df
        assert found.chi2 == pytest.approx(chi2, rel=1e-9)
        assert found.p == pytest.approx(stats.chi2.sf(chi2, df), rel=1e-6)
        assert sum(g.rows for g in found.groups) == 1_200
        assert found.groups[0].low == pytest.approx(values.min())
        assert found.groups[0].high == pytest.approx(values[values < edges[0]].max())


def test_what_the_fit_forces_is_no_evidence() -> None:
    check = check_twin(MODEL, LOG)
    overall, _, segments, _, _ = check.comparisons
    assert (overall.df, overall.p, overall.groups[0].z) == (0, None, None)
    assert overall.groups[0].seen == pytest.approx(overall.groups[0].predicted, rel=1e-9)
    assert segments.df == 0
    assert check.summary()[0]["status"] == "forced by the fit"
    new = check_twin(MODEL, shop(3_000, seed=9))
    assert new.comparisons[0].df == 1
    assert new.comparisons[2].df == 2


def test_a_twin_checks_itself() -> None:
    assert TWIN.about.check == check_twin(MODEL, LOG)
    log = {**LOG, "cost": np.where(np.arange(3_000) < 9, np.nan, LOG["cost"])}
    made = twin(MODEL, log, cost="cost")
    assert made.about.left_out == 9
    assert made.about.check is not None
    assert made.about.check.rows == 3_000  # a cost is not needed to replay a price
    assert twin(fitted(LOG, outcome_=None), LOG).about.check is None


def test_means_and_spread_are_those_of_the_log() -> None:
    check = check_twin(MODEL, LOG)
    assert check.mean_seen == pytest.approx(LOG["sold"].mean(), rel=1e-12)
    assert check.spread_seen == pytest.approx(LOG["sold"].std(), rel=1e-9)
    assert abs(check.mean_drawn - check.mean_seen) < 4 * 0.5 / np.sqrt(3_000)
    assert check.spread_z is None  # a yes or no has no spread of its own
    assert len(check.summary()) == len(check.comparisons)
    amounts = shop(500, family="linear")
    assert check_twin(fitted(amounts, family="linear"), shop(500, seed=1, family="linear")).spread_z is None


def test_rare_counts_do_not_tell_their_spread() -> None:
    log = shop(3_000, family="poisson")
    rare = {**log, "sold": (log["sold"] > 3.0).astype(float)}
    assert check_twin(fitted(rare, family="poisson"), rare).spread_z is None


def _spreads(same: bool) -> list[float]:
    """spread_z of 150 true models of counts, on their own rows or on others."""
    spreads = []
    for seed in range(150):
        log = shop(700, seed=1_000 + seed, family="poisson")
        replayed = log if same else shop(700, seed=5_000 + seed, family="poisson")
        z = check_twin(fitted(log, family="poisson"), replayed).spread_z
        assert z is not None
        spreads.append(z)
    return spreads


@pytest.mark.parametrize("same", [True, False], ids=["its own log", "another log"])
def test_the_spread_of_a_true_model_is_a_standard_normal(same: bool) -> None:
    """Of 150 tests at 5%, 7.5 fail on average; more than 17 or fewer than 1 with probability 1e-3. The standard
    deviation of 150 normals lies outside of 0.8 to 1.2 with probability 5e-4."""
    spreads = np.array(_spreads(same))
    assert 1 <= (np.abs(spreads) > 1.96).sum() <= 17
    assert 0.8 < spreads.std() < 1.2


@pytest.mark.parametrize("same", [True, False], ids=["its own log", "another log"])
def test_a_true_model_fails_as_rarely_as_it_should(same: bool) -> None:
    """Of 450 tests at 5%, 22.5 fail on average; more than 39 or fewer than 7 do with probability 4e-4."""
    values = []
    for seed in range(150):
        log = shop(700, seed=1_000 + seed)
        replayed = log if same else shop(700, seed=5_000 + seed)
        check = check_twin(fitted(log), replayed)
        values += [c.p for c in check.comparisons if c.what.startswith("tenths")]
    assert len(values) == 450
    assert 7 <= sum(p is not None and p < 0.05 for p in values) <= 39


def test_all_tests_together_fail_one_time_in_a_hundred() -> None:
    """Bonferroni: with four tests, each at a quarter of 1%."""
    check = check_twin(fitted(LOG, segments_=None), shop(3_000, seed=9))
    assert list(check.tests) == ["overall", "tenths of the price", "tenths of predicted demand", "tenths of age"]
    one, two, *others = check.comparisons
    for p, holds in ((0.0026, True), (0.0024, False)):
        changed = replace(check, comparisons=(one, replace(two, p=p), *others))
        assert changed.holds is holds
        assert changed.status(two.what) == ("holds" if holds else "fails")
        assert changed.status(two.what) == changed.summary()[1]["status"]
        assert "any of 4 comparisons 1 time in 100" in changed.words()
    forced = replace(check, comparisons=(replace(one, df=0, p=None),))
    assert "cannot be checked" in forced.words()


def test_a_wrong_model_fails() -> None:
    log = shop(6_000, seed=2, bend=0.5)
    check = check_twin(fitted(log), log)
    assert not check.holds
    assert "tenths of the price" in check.words()
    assert check_twin(fitted(shop(6_000, seed=2)), shop(6_000, seed=2)).holds


def test_counts_that_scatter_more_than_poisson_fail_on_spread() -> None:
    log = shop(3_000, seed=5, family="poisson")
    rng = np.random.default_rng(8)
    log["sold"] = np.where(rng.random(3_000) < 0.5, 0.0, 2.0 * log["sold"])
    check = check_twin(fitted(log, family="poisson"), log)
    assert check.failing == ["spread of outcomes"]
    assert check.summary()[-1]["status"] == "fails"
    assert check.spread_seen > 1.2 * check.spread_drawn


def test_a_little_more_scatter_than_poisson_is_detected() -> None:
    """Gamma-Poisson counts with variance mu + 0.15 mu^2: detected in most of 20 logs (power 0.99 or so each)."""
    failures = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        log = shop(3_000, seed=seed)
        z = np.column_stack([np.ones(3_000), (log["age"] - 40.0) / 10.0, log["risk"] == "HIGH"])
        mu = np.exp(1.0 + z @ ALPHA - (z @ BETA) * log["price"])
        log["sold"] = rng.poisson(mu * rng.gamma(1 / 0.15, 0.15, 3_000)).astype(float)
        check = check_twin(fitted(log, family="poisson"), log)
        assert check.spread_z is not None
        failures += "spread of outcomes" in check.failing
    assert failures >= 16


def test_small_segments_are_joined() -> None:
    names = np.array([f"s{i}" for i in range(300)] + ["big"] * 2_700)
    check = check_twin(fitted(LOG, segments_="shop"), {**LOG, "shop": names})
    segments = next(c for c in check.comparisons if c.what == "segments (shop)")
    assert [(g.name, g.rows) for g in segments.groups] == [("big", 2_700.0), ("(others)", 300.0)]


# Where the model fails


def wide(n: int, k: int, *, seed: int, curved: float = 0.0, jump: float = 0.0) -> Log:
    """k numbers, the last of which has a curved effect if ``curved``; demand jumps at prices above 2.5 by ``jump``."""
    rng = np.random.default_rng(seed)
    x, price = rng.normal(size=(n, k)), rng.uniform(0.5, 3.0, n)
    eta = 0.5 + x @ np.linspace(-0.3, 0.3, k) - (0.6 + 0.1 * x[:, 0]) * price
    eta += curved * (x[:, -1] ** 2 - 1.0) + jump * (price > 2.5)
    sold = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    return {f"x{j}": 50.0 + 7.0 * x[:, j] for j in range(k)} | {"price": price, "sold": sold}


def fit_wide(log: Log, **changes: Any) -> Any:
    features = [name for name in log if name not in ("price", "sold")]
    return fit_log(log, price="price", outcome="sold", features=features, **changes)


def test_a_jump_of_demand_is_found_at_its_prices() -> None:
    log = wide(20_000, 2, seed=1, jump=0.9)
    model = fit_wide(log)
    check = check_twin(model, log)
    assert "tenths of the price" in check.failing
    assert not {"tenths of x0", "tenths of x1"} & set(check.failing)
    first = next(place for place in check.misfits if place.comparison == "tenths of the price")
    above = float(first.where.removeprefix("prices above "))
    assert above == pytest.approx(2.5, abs=0.03)
    high = log["price"] > 2.5
    assert first.rows == pytest.approx(high.sum(), rel=0.05)
    assert first.bought == pytest.approx(log["sold"][high].mean(), abs=0.01)
    z = np.column_stack([np.ones(20_000), *((log[x] - log[x].mean()) / log[x].std() for x in ("x0", "x1"))])
    utility = z @ model.alpha_ - (z @ model.beta_) * log["price"]
    assert first.expected == pytest.approx((1.0 / (1.0 + np.exp(-utility[high]))).mean(), abs=0.01)
    assert f"at {first.where}: " in check.words()
    assert f"{first.bought:.3g} on average, {first.expected:.3g} was expected." in check.words()
    assert (
        check.misfits[0].text.removesuffix(" Add a feature or a constant, or narrow the range of prices.")
        in check.words()
    )
    assert check.words().endswith("Add a feature or a constant, or narrow the range of prices.")
    assert check.to_dict()["misfits"][0]["where"] == check.misfits[0].where


def test_a_curved_effect_is_found_at_its_feature() -> None:
    """The other tests hold with a probability of 99% or more each, at their level."""
    log = wide(10_000, 4, seed=2, curved=0.25)
    check = check_twin(fit_wide(log), log)
    places = [place for place in check.misfits if place.comparison.startswith("tenths of x")]
    assert {place.comparison for place in places} == {"tenths of x3"} == {w for w in check.failing if "x" in w}
    sides = {place.where.removeprefix("values of x3 "): place.bought > place.expected for place in places}
    up, above = (next(text for text in sides if text.startswith(word)) for word in ("up to ", "above "))
    assert sides.pop(up)
    assert sides.pop(above)
    assert float(up.split()[-1]) < 50.0 - 7.0  # in the log's units; the curve crosses its mean there
    assert float(above.split()[-1]) > 50.0 + 5.0
    assert sides
    assert not any(sides.values())
    assert [one.what for one in check.shown if one.of_feature] == ["tenths of x3"]


@pytest.mark.parametrize("same", [True, False], ids=["its own log", "another log"])
def test_a_true_model_of_many_numbers_raises_nothing(same: bool) -> None:
    """Of 200 logs one in a hundred or fewer fail; more than 7 with probability 1e-3 at most. Of 1,600 tests of
    features at 5%, 80 fail on average; more than 110 or fewer than 55 with probability 2e-3."""
    fails, values, names = 0, [], [f"x{j}" for j in range(8)]
    encoding = Encoding(features=tuple(Number(name, 50.0, 7.0, 20.0, 80.0) for name in names))
    for seed in range(200):
        log = wide(4_000, 8, seed=3_000 + seed)
        z = np.column_stack([np.ones(4_000), *((log[name] - 50.0) / 7.0 for name in names)])
        model = fitted(log, z=z, encoding_=encoding, segments_=None)
        check = check_twin(model, log if same else wide(4_000, 8, seed=6_000 + seed))
        assert len(check.tests) == (10 if same else 11)
        assert not check.misfits or check.failing
        fails += not check.holds
        values += [p for what, p in check.tests.items() if what.startswith("tenths of x")]
    assert fails <= 7
    assert 55 <= sum(p < 0.05 for p in values) <= 110


def test_a_check_does_not_depend_on_how_the_log_is_cut() -> None:
    log = wide(6_000, 3, seed=4, curved=0.3, jump=0.5)
    model = fit_wide(log)
    (rows,) = rows_of(model, log)
    cuts = (rows.take(np.arange(k, min(k + 170, 6_000))) for k in range(0, 6_000, 170))
    whole, parts = replay(model, iter([rows]), rows, segment=None), replay(model, cuts, rows, segment=None)
    assert whole.misfits
    assert [place.where for place in parts.misfits] == [place.where for place in whole.misfits]
    assert parts.words() == whole.words().replace("6,000", f"{parts.rows:,}")
    for one, two in zip(whole.comparisons, parts.comparisons, strict=True):
        assert (one.what, one.df) == (two.what, two.df)
        assert one.chi2 == pytest.approx(two.chi2, rel=1e-9)
        assert [(g.name, g.rows, g.low, g.high) for g in one.groups] == [
            (g.name, g.rows, g.low, g.high) for g in two.groups
        ]


def test_which_features_are_compared() -> None:
    """Not constants, which the fit forces too; missing values are a group where the model has an indicator of them."""
    log = wide(3_000, 2, seed=5) | {"still": np.full(3_000, 4.0)}
    log["x0"] = np.where(np.arange(3_000) % 10 == 0, np.nan, log["x0"])
    log["the price"] = log.pop("x1")
    log["risk"] = np.array(["LOW", "HIGH"])[np.arange(3_000) % 2]
    check = check_twin(fit_wide(log), log)
    assert [c.what for c in check.comparisons if c.of_feature] == ["tenths of x0", "tenths of the price again"]
    missing = next(c for c in check.comparisons if c.what == "tenths of x0").groups[-1]
    assert (missing.name, missing.rows, missing.z, missing.low) == ("(missing)", 300.0, None, None)
    some = wide(600, 33, seed=6)
    many = [c.what for c in check_twin(fit_wide(some), some).comparisons if c.of_feature]
    assert many == [f"tenths of x{j}" for j in range(30)]


def _group(low: float, high: float, z: float | None, seen: float = 0.3) -> Group:
    return Group(f"{low:g} to {high:g}", 100.0, seen, 0.2, z, low, high)


def test_places_are_neighbours_that_err_alike() -> None:
    groups = (_group(1, 2, 5.0), _group(3, 3, 4.5, 0.5), _group(4, 5, -6.0, 0.1), _group(6, 7, 1.0), _group(8, 8, 9.0))
    one = Replay("tenths of age", groups, 99.0, 5, 0.0, "values of age", True)
    found = list(places_of(one, 1e-4))
    assert [place.where for place in found] == [
        "values of age up to 3", "values of age between 4 and 5", "values of age equal to 8",
    ]  # fmt: skip
    assert (found[0].rows, found[0].z) == (200.0, 5.0)
    assert found[0].bought == pytest.approx(0.4)
    last = replace(one, groups=(*groups[:-1], replace(groups[-1], high=9.0), Group("(others)", 9.0, 1.0, 0.1, 8.0)))
    assert [place.where for place in places_of(last, 1e-4)][-1] == "values of age above 7"
    words = Replay(
        "segments (risk)", (Group("LOW", 9.0, 0.1, 0.2, 0.0), Group("HIGH", 9.0, 0.3, 0.2, 6.0)), 9.0, 1, 0.0
    )
    assert [place.where for place in places_of(replace(words, where="the segment"), 1e-4)] == ["the segment HIGH"]
    assert not list(places_of(words, 1e-4))
    many = words_of([found[0]] * 7)
    assert (many.count("Demand does not follow"), many.count("Nor at values of age up to 3: 0.4 on average")) == (1, 4)
    assert "Nor at 2 more places. Add a feature" in many


def test_a_check_needs_an_outcome() -> None:
    with pytest.raises(InvalidInput, match="outcome column"):
        check_twin(fitted(LOG, outcome_=None), LOG)
    with pytest.raises(InvalidInput, match="nothing to replay"):
        check_twin(MODEL, {**LOG, "sold": np.full(3_000, np.nan)})


# The file


def test_a_twin_comes_back_from_its_file(tmp_path: Path) -> None:
    rules = Rules(ladder=(0.5, 1.0, 2.0, 3.0), largest_step=1.0, ranges={"HIGH": (0.5, 2.0)})
    model = fitted(LOG, findings_=[finding("few-rows", "warning")])
    made = twin(model, LOG, cost="cost", prices=(0.5, 3.0), rules=rules)
    save_twin(made, tmp_path / "shop.twin")
    back = load_twin(tmp_path / "shop.twin")
    assert back.fingerprint() == made.fingerprint()
    assert back.rules == made.rules
    assert (back.names, back.segments) == (made.names, made.segments)
    assert back.about.check == made.about.check is not None
    assert back.findings == made.findings
    assert back.about.seen_by == made.about.seen_by
    assert (back.about.log_rows, back.about.seen, back.about.today) == (3_000, made.about.seen, made.about.today)
    assert [p.name for p in tmp_path.iterdir()] == ["shop.twin"]
    one, two = (simulate(policy_from("etc", m, 200), m, horizon=200, replications=1, seed=3) for m in (made, back))
    assert np.array_equal(one.paths, two.paths)


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_older_version_is_read(tmp_path: Path, version: int) -> None:
    """Its check does not tell the ends of groups, and so names no places."""
    log = shop(6_000, seed=2, bend=0.5)
    made = twin(fitted(log), log)
    path = save_twin(made, tmp_path / "a.twin")
    about = json.loads(parquet.read_schema(path).metadata[b"hushprice"])["about"]
    for one in about["check"]["comparisons"]:
        del one["where"], one["ranges"]
        for group in one["groups"]:
            del group["low"], group["high"]
    _meta(path, version=version, about=about)
    new, old = made.about.check, load_twin(path).about.check
    assert new is not None
    assert old is not None
    assert new.misfits
    assert not old.misfits
    assert (old.failing, old.summary()) == (new.failing, new.summary())
    assert old.words() == new.words().split(" Demand does not")[0]


def test_linear_demand_keeps_its_noise(tmp_path: Path) -> None:
    log = shop(500, family="linear")
    save_twin(twin(fitted(log, family="linear"), log), tmp_path / "a.twin")
    assert load_twin(tmp_path / "a.twin").family.scale == pytest.approx(1.0, abs=0.15)


def test_a_twin_file_is_a_market_by_name(tmp_path: Path) -> None:
    save_twin(twin(MODEL, LOG, cost="cost"), tmp_path / "a.twin")
    made = from_file(file=str(tmp_path / "a.twin"), prices=(1.0, 2.0), cost=0.5, public=0.25)
    assert (made.prices, made.cost, made.public, made.contexts.costs) == ((1.0, 2.0), 0.5, 0.25, None)
    assert isinstance(made, Twin)
    assert from_file(file=str(tmp_path / "a.twin")).contexts.costs is not None
    assert "extrapolation" in codes(from_file(file=str(tmp_path / "a.twin"), prices=(0.5, 9.0)))


def _meta(path: Path, **changes: Any) -> None:
    """Change what the metadata of a twin file says."""
    table = parquet.read_table(path)
    metadata = json.loads(table.schema.metadata[b"hushprice"]) | changes
    parquet.write_table(table.replace_schema_metadata({b"hushprice": json.dumps(metadata).encode()}), path)


def test_bad_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.twin"
    with pytest.raises(HushpriceError, match="There is no twin"):
        load_twin(path)
    path.write_text("not a twin")
    with pytest.raises(HushpriceError, match="no Parquet"):
        load_twin(path)
    with pytest.raises(InvalidInput, match="left alone"):
        save_twin(TWIN, path)
    assert path.read_text() == "not a twin"
    parquet.write_table(pa.table({"a": [1.0]}), path)
    with pytest.raises(HushpriceError, match="not a twin of hushprice"):
        load_twin(path)
    path.unlink()
    save_twin(TWIN, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(HushpriceError, match="damaged"):
        load_twin(path)
    for place in range(5_000, len(whole) - 30_000, 20_000):  # one byte of the rows: detected by the checksums
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with pytest.raises(HushpriceError, match="damaged"):
            load_twin(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 4}, "newer"),
        ({"version": "x"}, "version"),
        ({"market": {}}, "damaged"),
        ({"about": {"log": 1}}, "damaged"),
        ({"market": None}, "damaged"),
    ],
    ids=["newer", "no version", "no market", "no about", "null"],
)
def test_damaged_metadata_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = save_twin(TWIN, tmp_path / "a.twin")
    _meta(path, **changes)
    with pytest.raises(HushpriceError, match=words):
        load_twin(path)


def test_a_file_without_customers_is_refused(tmp_path: Path) -> None:
    path = save_twin(TWIN, tmp_path / "a.twin")
    table = parquet.read_table(path)
    parquet.write_table(table.slice(0, 0), path)
    with pytest.raises(HushpriceError, match="no customers"):
        load_twin(path)


def test_places_where_no_twin_can_be_written(tmp_path: Path) -> None:
    for place, words in ((tmp_path, "folder"), (tmp_path / "no" / "a.twin", "no folder")):
        with pytest.raises(InvalidInput, match=words):
            save_twin(TWIN, place)


def test_a_check_tells_odd_numbers() -> None:
    check = check_twin(MODEL, LOG)
    assert json.loads(json.dumps(check.to_dict()))["rows"] == check.rows
    odd = replace(check, spread_z=1e200, spread_seen=0.0)
    assert odd.holds is False
    assert odd.summary()[-1]["largest gap"] == "0.0%"


def test_a_twin_is_for_its_owner(tmp_path: Path) -> None:
    path = save_twin(TWIN, tmp_path / "a.twin")
    assert path.stat().st_mode & 0o777 == 0o600


def test_twins_in_one_study_have_different_names(tmp_path: Path) -> None:
    """Also where they differ in their customers alone."""
    other = shop(3_000, seed=7)
    files = [
        save_twin(made, tmp_path / f"{name}.twin")
        for name, made in (("north", TWIN), ("south", twin(MODEL, other, prices=TWIN.prices)))
    ]
    run = {
        "market": [f"twin:file={file}" for file in files], "policies": ["fixed-price"], "horizons": [50],
        "replications": 1,
    }  # fmt: skip
    cells = Study.of({"title": "Two", "runs": {"both": run}}).cells()
    assert [cell.work.market.name for cell in cells] == ["twin north", "twin south"]
    assert len({cell.key for cell in cells}) == len({cell.line for cell in cells}) == 2


@pytest.mark.skipif(not KARLAN_ZINMAN.exists(), reason="the Karlan-Zinman file is not here")
def test_karlan_and_zinmans_offers() -> None:
    """The randomised rates are predicted well; customers by predicted demand are not, and the check says so."""
    from hushprice.fitting import fit

    model = fit(
        KARLAN_ZINMAN, price="offer4", outcome="tookup",
        features=["itcscore", "appscore", "dormancy", "trcount", "age", "female", "risk"], segment="risk",
    )  # fmt: skip
    made = twin(model, KARLAN_ZINMAN)
    check = made.about.check
    assert check is not None
    assert (made.about.log_rows, check.rows, check.same_rows) == (53_810, 53_810, True)
    assert check.status("tenths of the price") == "holds"
    assert check.mean_seen == pytest.approx(csv.read_csv(KARLAN_ZINMAN)["tookup"].to_numpy().mean(), rel=1e-9)
    assert check.status("tenths of predicted demand") == "fails"


def test_the_ends_of_what_customers_may_be_quoted() -> None:
    rules = Rules(ladder=(1.0, 1.5, 2.0, 2.6), ranges={"HIGH": (1.2, 2.2)})
    market = twin(MODEL, LOG, prices=(0.5, 3.0), rules=rules)
    lowest, highest = market.ends()
    high = np.array(market.segments)[market.contexts.segments] == "HIGH"
    np.testing.assert_array_equal(lowest, np.where(high, 1.5, 1.0))
    np.testing.assert_array_equal(highest, np.where(high, 2.0, 2.6))
    free = twin(MODEL, LOG, prices=(0.5, 3.0)).ends()
    assert all((end == price).all() for end, price in zip(free, (0.5, 3.0), strict=True))


@pytest.mark.parametrize("check", checks.market_checks(), ids=lambda c: c.__name__)
def test_a_twin_passes_the_checks_of_markets(check: Any) -> None:
    check(TWIN)
