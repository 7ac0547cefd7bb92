"""``hushprice fit`` as people use it, and the picture it draws."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from matplotlib.figure import Figure
from typer.testing import CliRunner

from hushprice.cli.commands.fit import fit as fit_command
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.fitting import DemandModel, fit
from hushprice.plots.demand import calibration, demand_overview, largest

app = typer.Typer()
app.command()(fit_command)
ASKED = ["--price", "offer", "--outcome", "sold", "--features", "age,region"]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A good log on disk, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    quotes().to_csv(tmp_path / "quotes.csv", index=False)
    return tmp_path / "quotes.csv"


def quotes(n: int = 2_000) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    offer, age, region = rng.uniform(1, 4, n), rng.normal(40, 10, n), rng.choice(["north", "south"], n)
    sold = rng.random(n) < 1 / (1 + np.exp(1.1 * offer - 2.0 - 0.02 * (age - 40)))
    return pd.DataFrame({"offer": offer, "age": age, "region": region, "sold": sold.astype(int), "id": np.arange(n)})


def run(*words: str) -> Any:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_tables_model_and_picture(log: Path) -> None:
    out = run(str(log), *ASKED, "--plot", "fit.png").output
    for words in (
        "quotes.csv: logistic demand, 2,000 rows",
        "region=",
        "standardised scale",
        "Price elasticities by region",
        "everyone",
        "Held-out fit: learned from",
        "without price",
        "AUC",
        "groups of held-out rows",
        "No warnings",
        "Model: quotes.model.json",
        "Picture: fit.png",
    ):
        assert words in out.replace("\n", " ").replace("  ", " ") or words in out, words
    assert (log.parent / "fit.png").read_bytes().startswith(b"\x89PNG")
    model = DemandModel.load(log.parent / "quotes.model.json")
    same = fit(log, price="offer", outcome="sold", features=["age", "region"])
    np.testing.assert_array_equal(model.theta_, same.theta_)
    assert (model.outcome_, model.price_, model.log_) == ("sold", "offer", "quotes.csv")
    run(str(log), *ASKED)  # a model may be replaced


def test_options_reach_the_fit(log: Path) -> None:
    out = run(
        str(log), "--price", "offer", "--outcome", "sold", "--features", "age,region", "--family", "linear",
        "--sensitivity", "none", "--segment", "region", "--prices", "1", "9", "--ridge", "0.5", "--out", "m.json",
        "--weights", "id", "--json",
    ).stdout  # fmt: skip
    data = json.loads(out)
    model = DemandModel.load("m.json")
    assert (data["model"], data["family"], data["prices"]) == ("m.json", "linear", [1.0, 9.0])
    assert (model.ridge_, model.segments_, int(model.sensitive_.sum())) == (0.5, "region", 1)
    assert (model.records_, model.weights_) == (1_999, "id")  # a weight of 0 is no row
    assert data["findings"][0]["code"] == "extrapolation"
    assert "count like repeated rows" in {f["code"]: f["text"] for f in data["findings"]}["weights"]
    assert data["report"]["everyone"]["elasticity"] < 0
    run(str(log), "--price", "offer", "--outcome", "sold", "--features", "none", "--out", "none.json")
    assert DemandModel.load("none.json").encoding_.names == ("1",)


def test_csv_has_the_coefficients(log: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run(str(log), *ASKED, "--csv", "--sensitivity", "age").stdout)))
    assert list(rows[0]) == ["name", "alpha", "alpha_se", "beta", "beta_se"]
    assert [row["name"] for row in rows][:2] == ["1", "age"]
    assert float(rows[0]["beta"]) > 0
    assert rows[2]["beta"] == ""


def test_findings_are_shown(log: Path) -> None:
    quotes().assign(offer=2.0).to_csv(log, index=False)
    out = run(str(log), *ASKED).output
    assert "stop Every row has the same price" in out
    assert "∞" in out


def test_few_rows_have_no_held_out_part(log: Path) -> None:
    quotes(40).to_csv(log, index=False)
    out = run(str(log), *ASKED).output
    assert "Too few rows to hold any out" in out
    assert "warning There are" in out.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--price", "offer", "--outcome", "sold"],
            "--features is missing. The columns of quotes.csv: age, region",
        ),
        (
            ["--outcome", "sold", "--features", "age"],
            "--price is missing. The columns of quotes.csv: offer, region",
        ),
        ([*ASKED, "--out", "quotes.csv"], "quotes.csv exists and is not a demand model"),
        ([*ASKED, "--plot", "fit.gif"], "name must end in .png"),
        ([*ASKED, "--json", "--csv"], "Choose one of --json and --csv"),
        ([*ASKED, "--segment", "regoin"], "no column 'regoin'. Did you mean 'region'?"),
        ([*ASKED, "--categories", "id"], "'id' is not among the features"),
        ([*ASKED, "--sensitivity", "ages"], "no feature called 'ages'"),
        (["--price", "offer", "--outcome", "sold", "--features", "age,,region"], "--features takes names"),
    ],
    ids=["features", "price", "out", "plot", "both", "segment", "categories", "sensitivity", "gap"],
)
def test_mistakes_are_reported_and_nothing_is_written(log: Path, words: list[str], says: str) -> None:
    before = log.read_bytes()
    with pytest.raises(HushpriceError) as problem:
        CliRunner().invoke(app, [str(log), *words], catch_exceptions=False)
    assert says in str(problem.value)
    assert [p.name for p in log.parent.iterdir()] == ["quotes.csv"]
    assert log.read_bytes() == before


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_picture_is_replaced_and_notes_are_not(log: Path, ending: str) -> None:
    notes = log.with_name(f"notes.{ending}")
    notes.write_text("my notes")
    with pytest.raises(HushpriceError, match="exists and is not a picture"):
        CliRunner().invoke(app, [str(log), *ASKED, "--plot", notes.name], catch_exceptions=False)
    assert notes.read_text() == "my notes"
    assert sorted(p.name for p in log.parent.iterdir()) == sorted(["quotes.csv", notes.name])
    for _ in range(2):
        run(str(log), *ASKED, "--plot", f"fit.{ending}")


def test_a_log_that_is_not_there(log: Path) -> None:
    with pytest.raises(HushpriceError, match=r"none\.csv"):
        CliRunner().invoke(app, ["none.csv", *ASKED], catch_exceptions=False)


def test_the_picture_shows_what_the_report_says() -> None:
    model = fit(quotes(), price="offer", outcome="sold", features=["age", "region"], prices=(0.5, 5.0))
    figure = demand_overview(model)
    first, demand, revenue = figure.axes
    held = model.report_.held_out
    assert held is not None
    points = np.array(first.lines[1].get_xydata(), dtype=float)
    np.testing.assert_allclose(points, [[t.predicted, t.seen] for t in held.calibration])
    curve = model.report_.curves[1]
    prices = np.array(curve.prices)
    drawn = np.array(demand.lines[0].get_xydata(), dtype=float)
    np.testing.assert_allclose(drawn, np.column_stack([prices, curve.demand]))
    np.testing.assert_allclose(np.array(revenue.lines[0].get_ydata(), dtype=float), prices * curve.demand)
    known = np.asarray(demand.lines[1].get_xdata())
    assert (known[0], known[-1]) == (model.report_.segments[0].low, model.report_.segments[0].high)
    assert demand.get_xlabel() == "price (offer)"
    legend = demand.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [s.name for s in model.report_.segments]


def test_pictures_of_little(tmp_path: Path) -> None:
    alone = fit(quotes(60), price="offer", outcome="sold", features=[])
    assert len(demand_overview(alone).axes) == 3
    assert [c.name for c in largest(alone.report_)] == ["everyone"]
    same = fit(quotes(400).assign(offer=2.0), price="offer", outcome="sold", features=["age"])
    assert len(demand_overview(same, title="one price").axes) == 1
    with pytest.raises(InvalidInput, match="nothing to draw"):
        demand_overview(fit(quotes(20).assign(offer=2.0), price="offer", outcome="sold", features=[]))
    figure = Figure()
    held = same.report_.held_out
    assert held is not None
    calibration(held.calibration, figure.subplots())
    figure.savefig(tmp_path / "calibration.svg")
