"""``hushprice twin`` and ``hushprice plan`` at the terminal, on a log made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import typer
from pyarrow import csv
from typer.testing import CliRunner, Result

from hushprice.cli.commands.plan import numbers
from hushprice.cli.commands.plan import plan as plan_command
from hushprice.cli.commands.twin import today_of
from hushprice.cli.commands.twin import twin as twin_command
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.fitting import DemandModel, fit
from hushprice.markets.twin.twin_file import load_twin

app = typer.Typer()
app.command(name="twin")(twin_command)
app.command(name="plan")(plan_command)
SMALL = ["--horizon", "300", "--replications", "2", "--workers", "1"]


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], terminal_width=160)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log, a model and a twin."""
    place = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(4)
    n = 4_000
    price, age, kind = rng.uniform(1.0, 6.0, n), rng.normal(40.0, 10.0, n), rng.choice(["new", "old"], n)
    eta = 1.5 + 0.02 * (age - 40.0) + 0.4 * (kind == "old") - 0.7 * price
    sold = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    table = pa.table({"price": price, "age": age, "kind": kind, "sold": sold, "unit": np.full(n, 0.3), "week": [1] * n})
    csv.write_csv(table, place / "log.csv")
    model = fit(place / "log.csv", price="price", outcome="sold", features=["age", "kind"], segment="kind")
    model.save(place / "model.json")
    result = run("twin", place / "model.json", place / "log.csv", "--out", place / "shop.twin")
    assert result.exit_code == 0, result.output
    return place


def test_twin_tells_its_self_check(shop: Path) -> None:
    result = run("twin", shop / "model.json", shop / "log.csv", "--out", shop / "again.twin")
    for words in ("4,000 customers", "Tenths of the price", "Segments (kind)", "as confidential as", "hushprice plan"):
        assert words in result.output
    answer = json.loads(run("twin", shop / "model.json", shop / "log.csv", "--out", shop / "a.twin", "--json").output)
    assert answer["rows"] == 4_000
    assert answer["same_rows"] is True
    assert {c["what"] for c in answer["comparisons"]} >= {"overall", "tenths of the price"}
    assert answer["findings"] == []
    assert answer["misfits"] == []
    assert "tenths of age" in {c["what"] for c in answer["comparisons"]}
    assert "Tenths of age" not in result.output  # its groups are shown where it fails
    beyond = run("twin", shop / "model.json", shop / "log.csv", "--out", shop / "a.twin", "--prices", "1", "9")
    assert "warning The range 1 to 9 goes beyond the prices seen" in " ".join(beyond.output.split())


def test_twin_tells_where_demand_does_not_follow_the_model(shop: Path) -> None:
    table = csv.read_csv(shop / "log.csv")
    more = np.where(table["age"].to_numpy() > 55.0, 1, table["sold"].to_numpy())
    csv.write_csv(table.set_column(3, "sold", pa.array(more)), shop / "other.csv")
    words = ["twin", shop / "model.json", shop / "other.csv", "--out", shop / "other.twin"]
    printed = " ".join(run(*words).output.split())
    first = json.loads(run(*words, "--json").output)["misfits"][0]
    assert first["where"].startswith("values of age above 5")
    assert f"at {first['where']}: customers there buy {first['bought']:.3g} on average" in printed
    assert "Tenths of age" in printed


def test_twin_takes_costs_prices_and_rules(shop: Path) -> None:
    (shop / "rules.toml").write_text("ladder = [1.0, 2.0, 3.0]\n[ranges]\nnew = [1.0, 2.0]\n")
    result = run(
        "twin", shop / "model.json", shop / "log.csv", "--out", shop / "ruled.twin", "--cost", "unit",
        "--today", "new=2,old=3", "--prices", "1", "4", "--rules", shop / "rules.toml", "--certain", "--rows", "500",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    made = load_twin(shop / "ruled.twin")
    assert made.prices == (1.0, 4.0)
    assert made.rules is not None
    assert made.rules.ladder == (1.0, 2.0, 3.0)
    assert made.covariance is None
    assert set(made.costs) == {0.3}
    assert set(made.today) == {2.0, 3.0}
    assert len(made.contexts.rows) == 500


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--today", "new=2"], "no price for the segment 'old'"),
        (["--today", "new=two"], "SEGMENT=PRICE"),
        (["--today", "new=1,new=2"], "twice"),
        (["--cost", "unt"], "Did you mean 'unit'"),
        (["--rules", "none.toml"], "none.toml"),
        (["--out", "/nowhere/at/all.twin"], "no folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_reported(shop: Path, options: list[str], words: str) -> None:
    result = run("twin", shop / "model.json", shop / "log.csv", "--out", shop / "bad.twin", *options)
    assert isinstance(result.exception, HushpriceError)
    assert words in str(result.exception)


def test_a_model_that_says_stop_needs_anyway(shop: Path, tmp_path: Path) -> None:
    table = csv.read_csv(shop / "log.csv")
    flat = table.set_column(0, "price", pa.array(np.full(len(table), 2.0)))
    csv.write_csv(flat, tmp_path / "flat.csv")
    model = fit(tmp_path / "flat.csv", price="price", outcome="sold", features=["age"], prices=(1.0, 4.0))
    model.save(tmp_path / "m.json")
    words = ["twin", tmp_path / "m.json", tmp_path / "flat.csv", "--out", tmp_path / "f.twin", "--certain"]
    refused = run(*words)
    assert "must not be set from this model" in str(refused.exception)
    assert not (tmp_path / "f.twin").exists()
    assert run(*words, "--anyway").exit_code == 0
    answer = json.loads(run("plan", tmp_path / "f.twin", "etc", *SMALL, "--epsilons", "none", "--opt-out", "none",
                          "--out", tmp_path / "p", "--json").stdout)  # fmt: skip
    assert answer["recommendation"]["verdict"] == "stop"


def test_plan_writes_a_report_and_recommends(shop: Path, tmp_path: Path) -> None:
    result = run(
        "plan", shop / "shop.twin", "etc-doubling", *SMALL, "--epsilons", "1,8", "--opt-out", "0,1", "--worth", "100",
        "--currency", "$", "--out", tmp_path / "plan",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    for words in ("today's prices", "the model's prices", "etc-ldp", "report.html"):
        assert words in result.output.replace("\n", "")  # a long path is broken
    names = {path.name for path in (tmp_path / "plan").iterdir()}
    assert {"report.html", "table.csv", "plan.json", "epsilon.png", "opt-out.png"} <= names
    headline = json.loads((tmp_path / "plan" / "plan.json").read_text())["recommendation"]["headline"]
    assert headline[:30] in " ".join(result.output.split())


def test_plan_for_machines(shop: Path, tmp_path: Path) -> None:
    words = ["plan", shop / "shop.twin", "etc", *SMALL, "--epsilons", "none", "--opt-out", "none", "--out", tmp_path]
    answer = json.loads(run(*words, "--json").stdout)
    names = ["today's prices", "the model's prices", "etc", "etc, from the log"]
    assert [one["option"] for one in answer["options"]] == names
    rows = run(*words, "--csv").stdout.splitlines()
    assert rows[0].startswith("option,kind,policy")
    assert len(rows) == 1 + len(names)
    assert not (tmp_path / "epsilon.png").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--epsilons", "a,b"], "--epsilons takes numbers"),
        (["--opt-out", "2"], "opt_out"),
        (["--json", "--csv"], "Choose one"),
        (["--horizon", "0"], "horizon"),
        (["etcc"], "etcc"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_plan_tells_mistakes(shop: Path, tmp_path: Path, options: list[str], words: str) -> None:
    result = run("plan", shop / "shop.twin", "--out", tmp_path, *options)
    assert isinstance(result.exception, HushpriceError)
    assert words in str(result.exception)


def test_plan_leaves_other_reports_alone(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("mine")
    result = run("plan", shop / "shop.twin", "--out", tmp_path)
    assert "is not of an earlier plan" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_plan_needs_a_twin_file(shop: Path, tmp_path: Path) -> None:
    for file, words in ((tmp_path / "none.twin", "There is no twin"), (shop / "log.csv", "not a twin")):
        result = run("plan", file, "--out", tmp_path)
        assert words in str(result.exception)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, None), ("7.5", 7.5), ("rate", "rate"), ("L=5, H=9", {"L": 5.0, "H": 9.0}), ("a=b=2", {"a=b": 2.0})],
    ids=str,
)  # fmt: skip
def test_todays_prices_at_the_terminal(text: str | None, expected: Any) -> None:
    assert today_of(text) == expected


def test_numbers_at_the_terminal() -> None:
    assert numbers("--epsilons", None, (1.0,)) == (1.0,)
    assert numbers("--epsilons", "none", (1.0,)) == ()
    with pytest.raises(InvalidInput, match="--epsilons"):
        numbers("--epsilons", "", (1.0,))


def test_a_foreign_model_is_reported(shop: Path) -> None:
    result = run("twin", shop / "log.csv", shop / "log.csv", "--out", shop / "x.twin")
    assert isinstance(result.exception, HushpriceError)
    assert isinstance(DemandModel.load(shop / "model.json"), DemandModel)
