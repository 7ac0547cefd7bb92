"""The paper: every figure and table is there, and verdicts are computed as they say."""

from __future__ import annotations

import csv
import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markupsafe import escape
from typer.testing import CliRunner

import hushprice as hp
from hushprice.cli import app
from hushprice.paper import Made, Paper, report
from hushprice.paper.statistics import OF_CELLS, jackknife, lower, path_slope, sure
from hushprice.paper.verdicts import claim_verdict, growth_verdicts, judge, number_verdict, parsed
from hushprice.simulation import Outcome, Result
from hushprice.studies import Cell, Store

# the labels of the paper's source, in its order
FIGURES = """ETC1 unknownT1 unknownT1_box ETCLDP_S1 ETCLDP_Mixed_S1 realdata_regret SupCB1 ETC2 SupCB2 timeS1 unknownT2
unknownT2_box ETCLDP_S2 ETCLDP_Mixed_S2 realdata_description A1 A2 ETCLDP_Approx_S1 ETCLDP_Approx_S2"""
TABLES = ("unknownT", "loan_covariates", "loan")


@pytest.fixture(scope="module")
def paper() -> Paper:
    return Paper(scale="full")


def invented(cell: Cell, *, n: int = 40, factor: float = 1.0) -> Result:
    """Results without simulation: regret factor sqrt(d T log T), give or take a tenth; seconds 1e-6 d T."""
    d, T = cell.work.market.dim, cell.work.horizon
    rng = np.random.default_rng([d, T])
    outcomes = []
    for _ in range(n):
        path = factor * np.sqrt(d * cell.work.checkpoints * np.log(T)) * (1.0 + 0.1 * rng.standard_normal())
        outcomes.append(Outcome(path, 1.0, 0.1, 1e-6 * d * T * (1.0 + 0.1 * rng.random())))
    return Result.of(outcomes, cell.work)


@pytest.fixture(scope="module")
def made(paper: Paper) -> dict[str, Made]:
    """Every item, of invented results."""
    everything = {}
    for item in paper.items.values():
        results = [(cell, invented(cell, factor=len(cell.label))) for cell in paper.cells(item)]
        everything[item.name] = paper.make(item, results)
    return everything


def test_every_figure_and_table_is_listed(paper: Paper) -> None:
    places = " ".join(item.where for item in paper.items.values())
    assert len(paper.items) == len(FIGURES.split()) + len(TABLES) == 22
    for i, label in enumerate(FIGURES.split()):
        assert f"Figure {i + 1} (" in places
        assert f"fig:{label})" in places
    for i, label in enumerate(TABLES):
        assert f"Table {i + 1} (supplement, tab:{label})" in places


def test_full_is_as_large_as_the_papers(paper: Paper) -> None:
    runs = paper.study.runs
    assert {run.replications for run in runs.values()} == {500}
    squares = tuple(k * k * 10_000 for k in range(1, 8))
    assert runs["etc"].horizons == runs["supcb"].horizons == squares
    assert runs["etc"].dims == runs["supcb"].dims == runs["unknown"].dims == (1, 4, 9, 16, 25)
    assert runs["unknown"].horizons == (490_000,)
    for name in ("ldp", "mixed5", "mixed10", "approx"):
        assert runs[name].horizons == tuple(k * 100_000 for k in (1, 3, 5, 7, 9))
        assert runs[name].dims == (1, 2, 4, 6)
    assert runs["adversarial"].horizons == (1000, 2500, 5000, 7500, 10_000)
    assert runs["adversarial"].dims == (4, 8, 12, 16)
    assert runs["loan"].horizons == runs["loan-mixed"].horizons == (208_085,)


def test_policies_are_as_published(paper: Paper) -> None:
    """What words like centre=truth come to, and what the noise truly guarantees."""
    cells = {(cell.run, cell.label, cell.work.market.dim): cell for cell in paper.study.cells()}
    ldp: Any = cells["ldp", "epsilon = 1", 4].work.policy
    assert (ldp.radius, ldp.score, ldp.centre) == (2.0, "paper", tuple(hp.markets.s2(dim=4).theta))
    assert ldp.tau == math.ceil(2 * 4 * math.sqrt(900_000) * math.log(900_000))
    assert ldp.clip == pytest.approx(1.0 * math.sqrt(10))  # |z| sqrt(1 + u^2), in S2
    approx: Any = cells["approx", "Delta = 0.001", 4].work.policy
    assert approx.guarantee.epsilon == pytest.approx(1.449, abs=5e-4)
    loan: Any = cells["loan", "LDP, epsilon = 1", 5].work.policy
    assert loan.reach == 1.0
    assert loan.policy.experiment_prices == (0.0, 3.0)
    assert loan.policy.prices == (0.0, 10.0)
    assert loan.policy.radius == pytest.approx(math.sqrt(5))
    assert cells["loan-mixed", "Mixed, epsilon = 1", 5].work.market.public == 0.1
    assert cells["unknown", "MLE-Cycle, modified", 9].work.policy.config()["ridge"] == 0.1


def test_quick_is_part_of_full(paper: Paper) -> None:
    """The cells of quick are cells of full with fewer replications: nothing of it is lost."""
    full = {cell.key: cell for cell in paper.study.cells()}
    quick = Paper(scale="quick").study.cells()
    assert all(full[cell.key].replications > cell.replications for cell in quick)


def test_published_numbers_are_the_papers(paper: Paper) -> None:
    published = {(entry["item"], entry["what"]): entry["paper"] for entry in paper.numbers}
    assert published["unknown-table", "mean regret, ETC-Doubling, d = 25"] == "4679.2"
    assert published["unknown-table", "seconds, Semi-Myopic, modified, d = 25"] == "1218.1"
    assert published["unknown-table", "sd of regret, MLE-Cycle, modified, d = 4"] == "471.9"
    assert published["loan-regret", "mean regret, Approx, epsilon = 1"] == "15930.78"
    assert sum(key[0] == "unknown-table" for key in published) == 15 * 4 + 2
    assert sum(key[1].startswith("mean regret") for key in published if key[0] == "loan-regret") == 8


def test_every_item_can_be_made(made: dict[str, Made], paper: Paper) -> None:
    for name, one in made.items():
        assert len(one.cell_results) == one.wanted
        assert one.pictures or one.tables, name
        for figure in one.pictures.values():
            assert 2 <= len(figure.axes) <= 3
            assert figure.get_suptitle()
    assert [len(one.pictures) for one in made.values()].count(0) == 3  # the tables
    assert [name for name, one in made.items() if len(one.pictures) == 2] == ["supcb-s1", "supcb-s2"]
    entries = [*paper.numbers, *paper.published["claims"]]
    growth = 2 * len(paper.published["growth"])
    assert sum(len(one.verdicts) for one in made.values()) == len(entries) + growth + 10  # and theta
    for entry in entries:
        assert entry["item"] in paper.items


def test_verdicts_on_invented_results(made: dict[str, Made]) -> None:
    """The invented regrets grow like sqrt(d T log T), so that slopes are known."""
    verdicts = {(v.item, v.what): v for one in made.values() for v in one.verdicts}
    slope = verdicts["etc-s1", "slope in T"]
    assert float(slope.ours) == pytest.approx(0.5, abs=0.02)
    assert slope.verdict == "close"  # 0.50 next to 0.49, with hardly any noise
    assert slope.replications == 40
    ratio = verdicts["supcb-s1", "regret, times ETC's (width 0.01)"]
    assert float(ratio.ours) == pytest.approx(17 / 3, rel=0.02)  # the lengths of the labels
    assert ratio.verdict == "differs"
    assert ratio.why
    assert ratio.value == pytest.approx(17 / 3, rel=0.02)
    faster = verdicts["unknown-table", "seconds, ETC-Doubling, d = 1"]
    assert faster.verdict == "faster"
    assert faster.why.startswith("113 times")  # 58.2 s over 0.49 to 0.54 s
    assert verdicts["unknown-s1-boxes", "ETC-Doubling has lower regret than MLE-Cycle, modified"].verdict == "holds"
    assert verdicts["ldp-s1", "lower regret at epsilon = 4 than at 1"].verdict == "open"  # labels as long: the same
    assert verdicts["etc-s2", "optimal price in S2"].verdict == "agrees"
    prices = verdicts["etc-s1", "optimal prices in S1 lie in this range"]
    assert (prices.ours, prices.verdict) == ("1.340 to 1.810", "holds")
    assert verdicts["etc-s1", "regret grows with d"].verdict == "holds"
    assert verdicts["etc-s1", "regret grows slower than T"].ours == "in 30 of 30 cells"
    assert verdicts["unknown-table", "sd of seconds, ETC-Doubling, d = 1"].verdict == "not judged"
    assert verdicts["unknown-table", "sd of regret, ETC-Doubling, d = 1"].verdict == "too few"


def test_theta_of_the_stand_in_is_recovered(made: dict[str, Made]) -> None:
    """Ten coefficients within three standard errors (fixed data; each would fail by chance once in 370)."""
    verdicts = made["loan-fit"].verdicts
    assert len(verdicts) == 10
    assert {verdict.verdict for verdict in verdicts} == {"agrees"}


def test_the_jackknife_is_the_usual_standard_error() -> None:
    rng = np.random.default_rng(3)
    market = hp.markets.s1(dim=1)
    policy = hp.policies.RandomPrice(family=hp.Logistic(), dim=1, prices=(0, 3))
    result = hp.simulate(policy, market, horizon=10, replications=20, seed=1)
    value, se, n = jackknife(lambda cells: OF_CELLS["mean"](cells, 0.0), [result])
    assert (value, n) == (result.regret.mean(), 20)
    assert se == pytest.approx(result.summary().se, rel=1e-12)  # one per group: exactly
    assert math.isnan(jackknife(lambda cells: 1.0, [hp.simulate(policy, market, horizon=10, replications=1)])[1])
    ses = []
    for _ in range(300):  # 60 in groups of 3: right on average
        paths = rng.exponential(size=(60, 1))
        some = Result(
            policy="x", market="s1", dim=1, horizon=10, seed=0, config={}, checkpoints=np.array([10]), paths=paths,
            revenue=paths[:, 0], exploration=paths[:, 0], seconds=paths[:, 0], deviation=paths[:, 0],
            far=paths[:, 0],
        )  # fmt: skip
        ses.append(jackknife(lambda cells: OF_CELLS["mean"](cells, 0.0), [some])[1] ** 2)
    assert np.mean(ses) == pytest.approx(1 / 60, rel=0.1)


def test_judgement() -> None:
    assert parsed("0.50") == (0.5, 0.5, 0.01)
    z, percent, word = judge(0.52, 0.01, 500, "0.50", 500)
    assert z == pytest.approx(0.02 / math.sqrt(2 * 0.01**2 + 0.01**2 / 12))
    assert percent == pytest.approx(4.0)
    assert word == "agrees"
    assert judge(0.52, 0.001, 500, "0.50", 500)[2] == "close"
    assert judge(0.60, 0.001, 500, "0.50", 500)[2] == "differs"
    assert judge(3.5, 0.1, 500, "3..4", 500) == (0.0, 0.0, "agrees")
    assert judge(3.5, 0.4, 20, "3..4", 500) == (0.0, 0.0, "close")  # inside, but hardly known
    assert judge(2.0, 0.1, 500, "3..4", 500)[1] == pytest.approx(-100 / 3)
    assert judge(6.0, 0.1, 500, "3..4", 500)[1] == pytest.approx(50.0)
    assert judge(0.52, math.nan, 1, "0.50", 500)[::2] == (None, "close")
    assert judge(0.60, math.nan, 1, "0.50", 500)[::2] == (None, "too few")
    assert judge(0.70, 0.1, 4, "0.50", 500)[2] == "too few"  # two standard errors, of a fifth each
    assert judge(-1.434, 0.01, 500, "-1.434", 500)[2] == "agrees"


def test_how_sure_is_students() -> None:
    """Means of n normals, judged against the truth: wrong as rarely as three standard errors of a known spread."""
    rng = np.random.default_rng(1)
    for n in (4, 20):
        x = rng.standard_normal((200_000, n))
        t = np.abs(x.mean(axis=1)) / (x.std(axis=1, ddof=1) / math.sqrt(n))
        assert np.mean(t > sure(n)) == pytest.approx(0.0027, abs=0.0006)  # five standard errors
    assert 3.0 < sure(500) < 3.2


def _result(regret: Any, *, seconds: Any = None, dim: int = 1, horizon: int = 10) -> Result:
    paths = np.asarray(regret, dtype=float)[:, None]
    return Result(
        policy="x", market="s1", dim=dim, horizon=horizon, seed=0, config={}, checkpoints=np.array([horizon]),
        paths=paths, revenue=paths[:, 0], exploration=paths[:, 0],
        seconds=paths[:, 0] if seconds is None else np.asarray(seconds, dtype=float), deviation=0 * paths[:, 0],
        far=0 * paths[:, 0],
    )  # fmt: skip


def test_lower_is_paired_and_reversed_beyond_chance_only() -> None:
    noise = np.random.default_rng(2).standard_normal(60)
    a, b = _result(100 + 10 * noise), _result(101 + 10 * noise + 0.1 * noise[::-1])
    assert lower(a, b, "regret") > 3
    assert lower(b, a, "regret") < -3  # one in a hundred, but on the same customers
    assert -3 < lower(b, a, "other customers") < 0
    assert lower(_result([1, 2, 3]), _result([1, 2, 3]), "regret") == 0.0
    assert lower(_result([3, 4]), _result([1, 3]), "regret") == 0.0  # two runs tell nothing
    assert lower(a, _result(100 + 30 * noise), "sd") > 3
    assert lower(_result(100 + 30 * noise), a, "sd") < -3
    assert lower(_result(2 * np.full(9, 5.0), horizon=40), _result(np.full(9, 5.0), horizon=10), "a round") > 3
    assert lower(a, b, "seconds") > 3
    rare = np.append(noise, 1000.0)  # a run that the other has not come to
    assert lower(_result(noise), _result(rare), "sd") == 0.0


def test_scores_are_normal_when_there_is_no_difference() -> None:
    """Also of few replications (standard deviation of 4000 scores within five standard errors of 1)."""
    rng = np.random.default_rng(4)
    for n in (4, 30):
        scores = [lower(_result(rng.normal(size=n)), _result(rng.normal(size=n)), "regret") for _ in range(4000)]
        assert np.std(scores) == pytest.approx(1.0, abs=5 / math.sqrt(8000))
        assert abs(np.mean(scores)) < 5 / math.sqrt(4000)


def test_a_claim_that_is_reversed_fails(paper: Paper) -> None:
    claim = next(e for e in paper.published["claims"] if e["what"] == "lower regret at epsilon = 4 than at 1")
    cells = [c for c in paper.cells(paper.items["ldp-s1"]) if c.label in ("epsilon = 1", "epsilon = 4")]

    def judged(worst: float) -> Any:
        factors = {cell.key: 0.5 if cell.label == "epsilon = 4" else 1.0 for cell in cells}
        last = next(cell for cell in reversed(cells) if cell.label == "epsilon = 4")
        factors[last.key] = worst
        return claim_verdict(claim, [(cell, invented(cell, factor=factors[cell.key])) for cell in cells])

    assert (judged(0.5).verdict, judged(0.5).ours) == ("holds", "in 20 of 20 cells")
    assert (judged(1.5).verdict, judged(1.5).ours) == ("fails", "in 19 of 20 cells")
    assert judged(1.5).why.startswith("Beyond chance the other way: 1.")


def test_regret_that_falls_with_d_fails_its_claim(paper: Paper) -> None:
    entry = next(e for e in paper.published["growth"] if e["item"] == "etc-s1")
    cells = paper.cells(paper.items["etc-s1"])
    results = [(cell, invented(cell, factor=1.0 / cell.work.market.dim)) for cell in cells]
    grows, slower = growth_verdicts(entry, results)
    assert grows is not None
    assert slower is not None
    assert (grows.verdict, slower.verdict) == ("fails", "holds")


def test_a_range_is_judged_cell_by_cell(paper: Paper) -> None:
    entry = next(e for e in paper.numbers if e["what"].startswith("% of MLE-Cycle's regret that ETC-Doubling saves: "))
    labels = {"ETC-Doubling": 0.93, "MLE-Cycle, modified": 1.0}
    cells = [c for c in paper.cells(paper.items["unknown-s1-boxes"]) if c.label in labels and c.run == "unknown"]

    def judged(factor: float) -> Any:
        factors = labels | {"ETC-Doubling": factor}
        return number_verdict(entry, [(cell, invented(cell, factor=factors[cell.label])) for cell in cells], 500)

    assert judged(0.93).verdict == "agrees"  # 7%
    assert judged(0.93).ours == "7 to 7"
    assert judged(0.5).verdict == "differs"
    assert judged(0.5).why.startswith("0 of 5 cells")


def test_a_path_slope_is_that_of_the_path(paper: Paper) -> None:
    cell = next(cell for cell in paper.study.cells(["loan"]) if cell.label == "ETC-Doubling")
    result = invented(cell)
    assert path_slope(result, 0.0) == pytest.approx(0.5, abs=1e-9)  # sqrt(t) for each replication


def test_verdicts_without_results_are_left_out(paper: Paper) -> None:
    entry = next(e for e in paper.numbers if e["what"] == "slope in d" and e["item"] == "etc-s1")
    assert number_verdict(entry, [], 500) is None
    assert claim_verdict(paper.published["claims"][0], []) is None
    item = paper.items["etc-s1"]
    one = paper.make(item, [(cell, invented(cell)) for cell in paper.cells(item)[:1]], partial=True)
    assert "slope in d" not in [verdict.what for verdict in one.verdicts]


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.headings, self.images, self.links = 0, 0, []  # type: ignore[var-annotated]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.headings += tag == "section"
        self.images += tag == "img" or tag == "svg"
        self.links += [value for name, value in attrs if name in ("src", "href") and value]


def test_the_report_is_one_page_with_everything(made: dict[str, Made], paper: Paper, tmp_path: Path) -> None:
    page = report(paper, list(made.values()), Store(tmp_path), command="hushprice paper run all --scale full")
    text = page.html()
    seen = _Text()
    seen.feed(text)
    assert seen.images == 21  # 19 figures, two of them in two pictures
    assert all(link.startswith(("data:", "#")) for link in seen.links)
    for item in paper.items.values():
        assert item.title in text
        assert f"{item.where}" in text
    for slip in paper.published["slips"]:
        assert str(escape(slip["what"])) in text
    assert text.count("SYNTHETIC") == 5  # the loan items and the summary
    assert "hushprice paper run all --scale full" in text
    plain = page.markdown()
    assert plain.count("\n## ") == len(page.sections)
    assert plain.count(".png)") == 21
    rows = [line for line in plain.splitlines() if line.startswith("| mean regret, ETC-Doubling, d = 25")]
    assert len(rows) == 1
    assert "4679.2" in rows[0]


def test_the_stand_in_is_called_synthetic_everywhere(made: dict[str, Made], tmp_path: Path) -> None:
    for name in ("loan-regret", "loan-histograms"):
        for figure in made[name].pictures.values():
            assert "synthetic" in figure.get_suptitle()
    for name in ("loan-columns", "loan-fit", "loan-histograms"):
        assert all("synthetic" in table.caption for table in made[name].tables)
    loans = [v for one in made.values() for v in one.verdicts if v.item.startswith("loan")]
    assert len(loans) == 8 + 8 + 6 + 6 + 6 + 10
    assert all(verdict.synthetic for verdict in loans)
    assert not any(v.synthetic for one in made.values() for v in one.verdicts if not v.item.startswith("loan"))


def test_the_stand_in_repeats_what_is_published(paper: Paper) -> None:
    from hushprice.markets.autoloan.market import PUBLISHED
    from hushprice.markets.autoloan.standin import ALPHA, BETA

    facts = {e["facts"][0]: float(e["paper"]) for e in paper.numbers if e["item"] == "loan-histograms"}
    assert facts.items() <= PUBLISHED.items()
    (theta,) = paper.published["coefficients"]
    assert [float(x) for x in theta["alpha"]] == ALPHA.tolist()
    assert [float(x) for x in theta["beta"]] == BETA.tolist()


def test_a_file_of_loans_is_used(tmp_path: Path) -> None:
    """The stand-in's first rows with other outcomes: real as far as the loader can tell."""
    text = hp.markets.write_standin(tmp_path / "whole.csv").read_text().splitlines()
    (tmp_path / "loans.csv").write_text("\n".join(text[:20_001]) + "\n")
    paper = Paper(scale="quick", loan_file=tmp_path / "loans.csv")
    assert paper.loans.name == "autoloan"
    assert {cell.work.market.name for cell in paper.cells(paper.items["loan-regret"])} == {"autoloan"}
    assert len(paper.loans.z) == 20_000
    one = paper.make(paper.items["loan-fit"], [])
    assert not any(verdict.synthetic for verdict in one.verdicts)
    keys = {cell.key for cell in paper.cells(paper.items["loan-regret"])}
    assert not keys & {cell.key for cell in Paper(scale="quick").cells(paper.items["loan-regret"])}


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def test_list_names_them_all() -> None:
    items = json.loads(run("paper", "list", "--json"))
    assert len(items) == 22
    assert {"name", "where", "title"} == set(items[0])
    assert "adversarial-a2" in run("paper", "list")


def test_run_and_report(tmp_path: Path) -> None:
    """The loan tables need no simulation; A1 is small enough to run."""
    words = ("--out", str(tmp_path), "--workers", "2")
    output = run("paper", "run", "loan-columns", "loan-fit", "loan-histograms", *words)
    assert "synthetic" in output
    place = tmp_path / "paper-quick"
    names = {file.name for file in place.iterdir()}
    assert {"loan-columns.csv", "loan-fit.csv", "loan-fit-verdicts.csv", "loan-histograms.png"} <= names
    first = json.loads(run("paper", "run", "adversarial-a1", "-n", "2", "--json", *words))
    assert [row["item"] for row in first] == ["adversarial-a1"] * 4
    with (place / "adversarial-a1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40
    assert {row["replications"] for row in rows} == {"2"}
    again = json.loads(run("paper", "run", "adversarial-a1", "-n", "2", "--json", *words))
    assert [row["ours"] for row in again] == [row["ours"] for row in first]
    output = run("paper", "report", "-n", "2", *words[:2])
    assert "Not all there yet" in output
    assert "adversarial-a1" not in output
    assert (place / "report.html").stat().st_size > 100_000


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "etc-s3"], "Did you mean 'etc-s"),
        (["run", "etc-s1", "-n", "0"], "at least 1"),
        (["run", "loan-fit", "--loan-file", "none.csv"], "none.csv"),
        (["report", "--store", "nowhere"], "no results in nowhere"),
        (["run", "loan-fit", "--json", "--csv"], "Choose one"),
    ],
)
def test_mistakes_are_reported(words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(hp.HushpriceError, match=says):
        run("paper", *words)
