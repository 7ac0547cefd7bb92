"""``hushprice evaluate`` as people use it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import typer
from typer.testing import CliRunner

from hushprice import policies
from hushprice.cli.commands.evaluate import evaluate as command
from hushprice.errors import HushpriceError
from hushprice.evaluation import evaluate
from tests.support.paths import KARLAN_ZINMAN

app = typer.Typer()
app.command()(command)


def run(*words: str | Path) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(1)
    n = 4_000
    rich = rng.random(n) < 0.5
    price = rng.uniform(1.0, 4.0, n)
    sold = rng.random(n) < 1 / (1 + np.exp(1.5 * price - 3 - rich))
    columns = {"rate": price, "sold": sold * 1.0, "rich": rich, "cost": np.full(n, 0.5)}
    columns |= {"chance": np.full(n, 1 / 3), "group": np.where(rich, "rich", "poor")}
    columns["never"] = np.zeros(n, dtype=bool)
    path = tmp_path_factory.mktemp("logs") / "offers.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    return path


USUAL = ("--price", "rate", "--outcome", "sold", "--features", "rich")


def test_a_table_with_the_answer_in_words(log: Path) -> None:
    out = " ".join(run(log, "fixed-price:price=2", *USUAL, "--uniform", "1", "4").split())
    for words in ("logged prices", "kernel IPS", "self-normalised", "doubly robust", "95% interval", "effective"):
        assert words in out
    assert "4,000 of 4,000 rows used (prices drawn evenly from 1 to 4)" in out
    assert "fixed-price:price=2 would have earned" in out
    assert "That is 0." in out


def test_the_table_fits_a_narrow_screen(log: Path) -> None:
    out = run(log, "fixed-price:price=2", *USUAL, "--uniform", "1", "4")
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out


def test_output_for_machines_is_what_python_gives(log: Path) -> None:
    command = (log, "fixed-price:price=2", *USUAL, "--randomised-within", "group", "--cost", "cost", "--worth", "100")
    data = json.loads(run(*command, "--json"))
    result = evaluate(
        log, "fixed-price:price=2", price="rate", outcome="sold", features=["rich"], randomised_within=["group"],
        cost="cost", worth=100,
    )  # fmt: skip
    assert data == json.loads(result.to_json())
    rows = list(csv.DictReader(io.StringIO(run(*command, "--csv"))))
    assert [row["estimator"] for row in rows] == ["logged prices", "kernel IPS", "self-normalised", "doubly robust"]
    assert float(rows[3]["value"]) == pytest.approx(result.best.value)


def test_a_column_of_propensities_and_a_fixed_cost(log: Path) -> None:
    command = (log, "random-price", *USUAL, "--propensity", "chance", "--cost", "0.5", "--prices", "2", "3", "--json")
    data = json.loads(run(*command))
    assert data["propensities"] == "logged propensities"
    assert data["target"] == "random-price"


def test_the_kind_of_propensities_and_the_family_can_be_said(log: Path) -> None:
    command = (log, "fixed-price:price=2", *USUAL, "--propensity", "chance", "--json")
    assert "--discrete true, false or COLUMN" in json.loads(run(*command))["findings"][0]["text"]
    said = json.loads(run(*command, "--discrete", "false", "--family", "linear"))
    assert "discrete-guessed" not in [finding["code"] for finding in said["findings"]]
    result = evaluate(
        log, "fixed-price:price=2", price="rate", outcome="sold", features=["rich"], propensity="chance",
        discrete=False, family="linear",
    )  # fmt: skip
    assert said == json.loads(result.to_json())
    by_column = json.loads(run(*command, "--discrete", "never"))
    assert by_column["estimates"] == json.loads(run(*command))["estimates"]
    with pytest.raises(HushpriceError, match="Only 0 of"):  # a third each, of 4 000 prices
        run(*command, "--discrete", "True")


def test_a_saved_pricer(log: Path, tmp_path: Path) -> None:
    policies.build("etc-doubling", family="logistic", dim=2, prices=(1, 4)).start(seed=1).save(tmp_path / "now.zip")
    out = run(log, tmp_path / "now.zip", *USUAL, "--uniform", "1", "4")
    assert "etc-doubling as it stands would have earned" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("fixed-price:price=2", *USUAL), "does not say how likely"),
        (("fixed-price:price=2", *USUAL, "--uniform", "1", "4", "--propensity", "chance"), "in one way"),
        (("etc", *USUAL, "--uniform", "1", "4"), "Run it on a twin"),
        (("fixed-price:price=2", *USUAL, "--randomised-within", "group,"), "no gaps"),
        (("fixed-price:price=2", *USUAL, "--uniform", "1", "4", "--cost", "kost"), "no column 'kost'"),
        (("fixed-price:price=2", *USUAL, "--uniform", "1", "4", "--json", "--csv"), "one of --json and --csv"),
        (("fixed-price:price=2", *USUAL, "--uniform", "1", "4", "--model", "none.json"), "cannot be read"),
    ],
    ids=["no propensities", "two ways", "a learner", "a gap", "no such cost", "two outputs", "no model"],
)
def test_errors_say_what_to_do(log: Path, words: tuple[str, ...], text: str) -> None:
    with pytest.raises(HushpriceError, match=text):
        run(log, *words)


@pytest.mark.skipif(not KARLAN_ZINMAN.exists(), reason="the Karlan-Zinman data are not here")
def test_a_real_experiment() -> None:
    """Rates were randomised within risk and wave, and 7.75 was drawn in all: the estimate is plain arithmetic."""
    options = (
        "--price",
        "offer4",
        "--outcome",
        "applied",
        "--randomised-within",
        "risk,wave",
        "--bandwidth",
        "0",
        "--json",
    )
    data = json.loads(run(KARLAN_ZINMAN, "fixed-price:price=7.75", *options))
    table = pa.csv.read_csv(KARLAN_ZINMAN).to_pandas()
    strata = table.groupby(["risk", "wave"])
    at = table[table.offer4 == 7.75].groupby(["risk", "wave"]).applied.mean()
    expected = 7.75 * (at * strata.size()).sum() / len(table)
    assert data["used"] == 53_810
    assert data["estimates"][0]["value"] == pytest.approx(expected)
    assert data["estimates"][1]["value"] == pytest.approx(expected)
