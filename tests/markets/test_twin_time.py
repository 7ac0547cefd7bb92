"""Twins of models with a half-life, and twins that drift as their log did.

Statistical tests have fixed seeds; with a correct program they would fail with another seed at the rate stated.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet
from scipy import stats
from typer.testing import CliRunner

from hushprice import checks
from hushprice.cli.app import app
from hushprice.cli.commands.fit import fit as fit_command
from hushprice.cli.commands.plan import plan as plan_command
from hushprice.cli.commands.twin import twin as twin_command
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.fitting import DemandModel, fit
from hushprice.markets.twin.check import check_twin
from hushprice.markets.twin.twin import Twin, follow, twin
from hushprice.markets.twin.twin_file import from_file, load_twin, save_twin
from hushprice.planning import plan
from hushprice.simulation import Today, simulate

ASKED: dict[str, Any] = {"price": "price", "outcome": "sold"}


def shop(n: int, seed: int, *, change: float = 1.0, family: str = "logistic", older: float = 0.0) -> dict[str, Any]:
    """A log whose price sensitivity changes half-way, and whose customers grow older."""
    rng = np.random.default_rng(seed)
    age, price = rng.normal(size=n) + older * np.arange(n) / n, rng.uniform(0.5, 3.0, n)
    b = 0.8 * np.where(np.arange(n) >= n / 2, change, 1.0)
    eta = 0.7 + 0.2 * age - b * price
    if family == "logistic":
        sold = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    else:
        sold = eta + 0.5 * rng.normal(size=n) if family == "linear" else rng.poisson(np.exp(eta)).astype(float)
    return {"age": age, "price": price, "sold": sold}


MOVED = shop(12_000, 1, change=1.5)
MODEL = fit(MOVED, **ASKED)
DRIFTING = twin(MODEL, MOVED, drift=True)


# A half-life


def test_a_half_life_takes_the_latest_customers_and_demand() -> None:
    log = shop(12_000, 2, change=1.5, older=2.0)
    model = fit(log, **ASKED, half_life=1_000.0)
    made = twin(model, log)
    w = 0.5 ** ((11_999 - np.arange(12_000)) / 1_000.0)
    mean = w @ model.contexts(log) / w.sum()
    np.testing.assert_allclose(made.contexts.rows.mean(axis=0), mean, atol=2e-3)
    np.testing.assert_array_equal(made.theta, model.theta_)
    assert made.covariance is not None
    np.testing.assert_array_equal(made.covariance, model.covariance_)
    assert made.today.mean() == pytest.approx(w @ log["price"] / w.sum(), abs=2e-3)
    assert simulate(Today(), made, horizon=400, replications=2).regret.shape == (2,)
    assert made.about.check is not None
    assert made.about.check.same_rows
    assert made.about.check.mean_seen == pytest.approx(w @ log["sold"] / w.sum())
    assert made.about.check == check_twin(model, log)


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_the_check_of_a_half_life_has_its_distribution(family: str) -> None:
    """50 logs: the sum of chi-squared is that of its degrees of freedom; outside of the ends once in 1 000."""
    chi2 = df = 0.0
    for seed in range(50):
        log = shop(1_500, seed, family=family)
        check = twin(fit(log, **ASKED, half_life=400.0), log).about.check
        assert check is not None
        by_price = next(one for one in check.comparisons if one.what == "tenths of the price")
        chi2, df = chi2 + by_price.chi2, df + by_price.df
        assert check.status("overall") == "forced by the fit"
    low, high = np.asarray(stats.chi2.ppf([0.0005, 0.9995], df))
    assert low < chi2 < high


def test_the_check_of_other_rows_adds_the_error_of_the_fit() -> None:
    """40 pairs of logs, as above."""
    chi2 = df = 0.0
    for seed in range(40):
        model, other = fit(shop(1_500, seed), **ASKED, half_life=400.0), shop(1_500, 1_000 + seed)
        check = check_twin(model, other)
        assert not check.same_rows
        by_price = next(one for one in check.comparisons if one.what == "tenths of the price")
        chi2, df = chi2 + by_price.chi2, df + by_price.df
    low, high = np.asarray(stats.chi2.ppf([0.0005, 0.9995], df))
    assert low < chi2 < high


def test_the_check_sees_old_demand_only_where_it_counts() -> None:
    log = shop(12_000, 3, change=2.0)
    held = twin(fit(log, **ASKED, half_life=800.0), log).about.check
    assert held is not None
    assert held.holds
    assert held.mean_drawn == pytest.approx(held.mean_seen, abs=0.05)


def test_a_plan_of_a_model_with_a_half_life(tmp_path: Path) -> None:
    log = shop(3_000, 2)
    made = twin(fit(log, **ASKED, half_life=1_000.0), log)
    again = load_twin(save_twin(made, tmp_path / "shop.twin"))
    assert again.fingerprint() == made.fingerprint()
    result = plan(again, policies=["etc"], epsilons=[], opt_out=[], replications=2, horizon=300, workers=1)
    assert result.lines[0].label == "today's prices"


# Drift


def test_demand_follows_the_path_of_the_model() -> None:
    path = MODEL.path_
    assert path is not None
    np.testing.assert_allclose(DRIFTING.theta_at(0.0), path[0], rtol=1e-12)
    np.testing.assert_allclose(DRIFTING.theta_at(1.0), path[-1], rtol=1e-12)
    for s in range(10):  # the theta of a part holds in its middle, and half-way between two in between
        np.testing.assert_allclose(DRIFTING.theta_at((s + 0.5) / 10.0), path[s], rtol=1e-9)
    np.testing.assert_allclose(DRIFTING.theta_at(0.4), 0.5 * (path[3] + path[4]), rtol=1e-9)
    assert isinstance(DRIFTING, Twin)
    assert [f.code for f in DRIFTING.findings if f.code == "drifting-twin"] == ["drifting-twin"]
    still = twin(MODEL, MOVED)
    assert still.drift is None
    np.testing.assert_array_equal(still.theta, MODEL.theta_)
    assert follow(still).fingerprint() == DRIFTING.fingerprint() != still.fingerprint()
    assert follow(DRIFTING) is DRIFTING


def test_early_and_late_customers_buy_as_the_path_says() -> None:
    """Mean demand at one price: 20 000 customers a third; four standard errors are exceeded 1 time in 16 000."""
    sure = replace(DRIFTING, covariance=None)
    seen = np.concatenate(
        [b.buy(slice(0, len(b.z)), np.full(len(b.z), 2.0)).copy() for b in
         sure.blocks(np.random.default_rng(1), np.random.default_rng(2), 60_000)]
    )  # fmt: skip
    path, z = MODEL.path_, sure.contexts.rows
    assert path is not None
    for rows, theta in ((seen[:3_000], path[0]), (seen[-3_000:], path[-1])):
        mean = float(sure.family.mean(z @ theta[:2] - 2.0 * (z @ theta[2:])).mean())
        assert abs(rows.mean() - mean) < 4.0 * np.sqrt(mean * (1.0 - mean) / 3_000)


@pytest.mark.parametrize("check", checks.market_checks(), ids=lambda check: check.__name__)
def test_a_drifting_twin_is_a_market(check: Any) -> None:
    check(DRIFTING)


def test_a_drifting_twin_comes_back_from_its_file(tmp_path: Path) -> None:
    path = save_twin(DRIFTING, tmp_path / "moving.twin")
    again = load_twin(path)
    assert again.drift is not None
    assert DRIFTING.drift is not None
    assert again.drift.path is not None
    np.testing.assert_array_equal(again.drift.path, DRIFTING.drift.path)
    assert again.fingerprint() == DRIFTING.fingerprint()
    assert again.findings == DRIFTING.findings
    assert from_file(file=str(path), cost=0.2).drift is not None
    versions = {
        name: json.loads(parquet.read_schema(save_twin(one, tmp_path / name)).metadata[b"hushprice"])["version"]
        for name, one in {"a.twin": DRIFTING, "b.twin": twin(MODEL, MOVED)}.items()
    }
    assert versions == {"a.twin": 3, "b.twin": 3}
    assert follow(load_twin(tmp_path / "b.twin")).fingerprint() == DRIFTING.fingerprint()


def test_without_a_change_there_is_a_note_and_no_drift() -> None:
    log = shop(3_000, 4)
    made = twin(fit(log, **ASKED), log, drift=True)
    assert made.drift is None
    assert [f.severity for f in made.findings if f.code == "no-drift"] == ["note"]
    assert made.fingerprint() == twin(fit(log, **ASKED), log).fingerprint()
    assert "The log shows no change" in next(f.text for f in made.findings if f.code == "no-drift")
    late = twin(fit(log, **ASKED, half_life=400.0), log, drift=True)
    assert "The rows as this model weighs them" in next(f.text for f in late.findings if f.code == "no-drift")


def test_a_model_without_a_path_is_refused(tmp_path: Path) -> None:
    log = shop(90, 4)
    model = fit(log, **ASKED, features=[])
    with pytest.raises(InvalidInput, match="does not know the course of demand"):
        twin(model, log, drift=True, anyway=True)
    with pytest.raises(InvalidInput, match="does not know the course of demand"):
        follow(twin(model, log, anyway=True))


def run(*words: Any) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fit says that demand changed and how to follow it; twin and plan do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    pd.DataFrame(MOVED).to_csv("log.csv", index=False)
    asked = ["--price", "price", "--outcome", "sold", "--features", "age"]
    said = " ".join(run("fit", "log.csv", *asked, "--out", "m.json").output.split())
    assert "warning Demand has changed in the course of the log, most likely near row" in said
    late = run("fit", "log.csv", *asked, "--half-life", "1500", "--out", "late.json")
    assert "12,000 rows that count as 4,294 (half-life 1,500)" in " ".join(late.output.split())
    data = json.loads(run("fit", "log.csv", *asked, "--half-life", "1500", "--out", "late.json", "--json").stdout)
    assert data["half_life"] == 1500.0
    assert data["effective_rows"] == pytest.approx(4_294, abs=1)
    assert data["report"]["constancy"]["first"] == 12_000 - 4_500
    assert run("twin", "m.json", "log.csv", "--drift", "--out", "moving.twin").exit_code == 0
    assert load_twin("moving.twin").drift is not None
    assert run("twin", "late.json", "log.csv", "--out", "late.twin").exit_code == 0
    assert run("twin", "m.json", "log.csv", "--out", "still.twin").exit_code == 0
    small = ["etc", "--epsilons", "none", "--opt-out", "none", "-n", "2", "-T", "300", "--workers", "1", "--json"]
    moving = run("plan", "moving.twin", *small, "--out", "a").stdout
    assert (
        json.loads(moving)["options"]
        == json.loads(run("plan", "still.twin", *small, "--drift", "--out", "b").stdout)["options"]
    )
    assert (
        json.loads(moving)["options"] != json.loads(run("plan", "still.twin", *small, "--out", "c").stdout)["options"]
    )
    assert "move over the horizon as it did in the log" in Path("a/report.html").read_text()


def test_the_examples_in_the_help_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(MOVED).rename(columns={"price": "offer"})
    frame["risk"] = np.where(frame.index % 3 == 0, "HIGH", "LOW")
    for name in ("quotes.csv", "offers.csv"):
        frame.to_csv(name, index=False)
    done = []
    for command, more in (
        (fit_command, ["--out", "model.json"]),
        (twin_command, []),
        (plan_command, ["-n", "2", "-T", "200"]),
    ):
        for words in re.findall(r"hushprice (\w+ .*(?:--half-life|--drift).*)", inspect.getdoc(command) or ""):
            if words.startswith("plan"):
                assert run("twin", "model.json", "quotes.csv", "--out", "shop.twin").exit_code == 0
            result = run(*shlex.split(words), *more)
            assert result.exit_code == 0, result.output
            done.append(words.split()[0])
    assert done == ["fit", "twin", "plan"]


@pytest.mark.parametrize("value", ["0", "-3", "inf", "nan"])
def test_a_bad_half_life_writes_nothing(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(shop(300, 1)).to_csv("log.csv", index=False)
    words = ["--price", "price", "--outcome", "sold", "--features", "age"]
    assert run("fit", "log.csv", *words, "--out", "m.json").exit_code == 0
    before = Path("m.json").read_bytes()
    refused = run("fit", "log.csv", *words, "--half-life", value, "--out", "m.json")
    assert isinstance(refused.exception, HushpriceError)
    assert "half_life" in str(refused.exception)
    assert Path("m.json").read_bytes() == before
    assert isinstance(DemandModel.load("m.json"), DemandModel)
