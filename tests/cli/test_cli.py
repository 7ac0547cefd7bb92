"""The command line as people use it, in a real process and in this one."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hushprice import policies
from hushprice.cli import app, main
from hushprice.demand import FAMILIES

QUICK = ["--horizon", "600", "--replications", "3", "--workers", "1"]


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def shell(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from hushprice.cli import main; main()", *words],
        capture_output=True,
        text=True,
        timeout=300,
    )


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    """What :func:`shell` does, in this process: quicker, and the same but for the start."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["hushprice", *words])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def test_simulate_prints_a_table() -> None:
    out = run("simulate", "etc", "--market", "s2", "--dim", "2", *QUICK)
    assert "99% interval" in out
    assert "s2, d = 2, T = 600, 3 replications" in out


def test_compare_as_json() -> None:
    data = json.loads(run("compare", "etc", "mle-cycle:variant=original,ridge=0.1", "--json", *QUICK))
    assert list(data) == ["etc", "mle-cycle:variant=original,ridge=0.1"]
    assert len(data["etc"]["regret"]) == 3
    assert data["etc"]["summary"]["horizon"] == 600


def test_one_replication_is_valid_json() -> None:
    out = run("simulate", "etc", "--json", "--horizon", "300", "--replications", "1", "--workers", "1")
    assert json.loads(out)["etc"]["summary"]["sd"] is None


def test_compare_as_csv_defaults_to_the_policies_that_learn() -> None:
    rows = list(csv.DictReader(io.StringIO(run("compare", "--csv", *QUICK))))
    names = ["look-ahead", "ucb", "ts-wtl", "greedy", "etc", "etc-doubling", "semi-myopic", "mle-cycle"]
    assert [row["label"] for row in rows] == names
    assert float(rows[0]["mean"]) > 0


GRID = ["--dims", "1,2", "--horizons", "300,600", "--replications", "3", "--workers", "1"]


def test_scaling_prints_tables_and_slopes(tmp_path: Path) -> None:
    picture = tmp_path / "growth.png"
    out = run("scaling", "etc", "supcb:width_scale=0.1", "--plot", str(picture), "--rate", "minimax", *GRID)
    assert "T = 600" in out
    assert out.count("grows like d^") == 2
    assert picture.stat().st_size > 10_000


def test_scaling_for_machines() -> None:
    data = json.loads(run("scaling", "ucb", "--market", "lower-bound", "--offset", "1", "--json", *GRID))
    assert len(data["ucb"]["cells"]) == 4
    assert data["ucb"]["offset"] == 1
    rows = list(csv.DictReader(io.StringIO(run("scaling", "etc", "--csv", *GRID))))
    assert [(row["dim"], row["horizon"]) for row in rows] == [("1", "300"), ("1", "600"), ("2", "300"), ("2", "600")]


def test_markets_bring_their_own_family_and_horizon() -> None:
    data = json.loads(run("simulate", "ucb", "--market", "lower-bound", "--dim", "2", "--json", *QUICK))
    assert data["ucb"]["config"]["family"]["name"] == "linear"
    assert data["ucb"]["config"]["prices"] == [1 / 3, 1.5]


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_pictures(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"regret.{ending}"
    run("compare", "etc", "fixed-price", "clairvoyant", "random-price", "--plot", str(file), *QUICK)
    start = file.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if ending == "png" else b"<svg" in file.read_bytes()[:2000]


@pytest.mark.parametrize("command", ["fit", "evaluate", "simulate", "compare", "scaling"])
def test_help_names_every_family(command: str) -> None:
    text = run(command, "--help")
    assert [name for name in FAMILIES if name not in text] == []


def test_every_policy_and_family_can_be_typed() -> None:
    for family in ("linear", "poisson"):
        out = run("compare", "etc", "semi-myopic", "fixed-price:price=1", "--family", family, "--csv", *QUICK)
        assert len(out.splitlines()) == 4


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_no_number_is_cut_on_a_narrow_screen(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = run("compare", "etc", "mle-cycle:variant=original", *QUICK)
    assert "…" not in out
    assert "regret" in out
    assert "variant=original" in out or width < 40  # there even the name is folded
    assert ("99% interval" in out) == (width >= 60)


def test_prices_and_cost_reach_market_and_policies() -> None:
    data = json.loads(run("simulate", "etc", "--prices", "0.5", "2", "--cost", "0.5", "--json", *QUICK))
    assert data["etc"]["config"]["prices"] == [0.5, 2.0]
    assert data["etc"]["config"]["cost"] == 0.5


def test_demand_drifts_where_the_market_says_so() -> None:
    still, moving = (
        json.loads(run("simulate", "etc", "--market", market, "--json", *QUICK))["etc"]
        for market in ("s1", "s1:drift=jump,at=0.1")
    )
    assert moving["summary"]["market"] == "s1, jump (at 0.1)"
    assert moving["regret"] != still["regret"]


def test_a_policy_of_ones_own_runs_from_its_file_and_in_workers(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom typing import ClassVar\n"
        "import hushprice as hp\n@hp.policies.register\n@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(hp.policies.EpisodePolicy):\n    name: ClassVar[str] = 'mine'\n"
        "    def episode(self, q: int) -> tuple[int, int]:\n        return 10, 90\n"
    )
    result = shell("simulate", "mine", "--load", str(file), "-T", "1000", "-n", "2", "-w", "2", "--csv")
    assert result.returncode == 0, result.stderr
    row = next(csv.DictReader(io.StringIO(result.stdout)))
    assert float(row["exploration"]) == pytest.approx(0.1)
    file.write_text("1 / 0")
    assert "ZeroDivisionError" in shell("simulate", "mine", "--load", str(file)).stderr


def test_list_shows_the_options_of_a_policy() -> None:
    assert "variant: default modified" in run("list", "mle-cycle")
    out = run("list", "supcb")
    assert "width_scale: default 1.0" in out
    assert ">>>" not in out
    assert "half fixed" in " ".join(run("list", "a1").split())
    assert "drift=jump or walk or wave or season" in " ".join(run("list", "s2").split())


@pytest.mark.parametrize("name", sorted(policies.REGISTRY))
def test_every_policy_can_be_listed(name: str) -> None:
    shown = run("list", name)
    assert ("restart: on-change" in shown) == policies.get(name).can_restart()


def test_list_names_everything() -> None:
    out = run("list")
    for name in ("etc-doubling", "semi-myopic", "wide", "s2"):
        assert name in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["simulate", "etcc"], "Did you mean 'etc'"),
        (["simulate", "etc", "--market", "s9"], "market"),
        (["simulate", "etc", "--family", "gamma"], "family"),
        (["simulate", "etc", "--dim", "0"], "dim"),
        (["simulate", "etc", "--horizon", "-5"], "horizon"),
        (["simulate", "etc", "--replications", "0"], "replications"),
        (["simulate", "etc:ridge"], "key=value"),
        (["simulate", "etc:rigde=1"], "rigde"),
        (["simulate", "etc:ridge=abc"], "ridge"),
        (["simulate", "fixed-price:price=9"], "range"),
        (["simulate", "etc", "--plot", "picture.gif"], ".png"),
        (["simulate", "etc", "--plot", "/nowhere/at/all.png"], "folder"),
        (["simulate", "etc", "--json", "--csv"], "one of"),
        (["compare", "etc", "etc"], "twice"),
        (["simulate", "etc[red]x"], "'etc[red]x'"),
        (["simulate", "etc:dim=3"], "has no option 'dim' to set here"),
        (["simulate", "etc", "--prices", "3", "0"], "Did you mean (0, 3)"),
        (["simulate", "etc", "--cost", "-1"], "cost"),
        (["simulate", "etc", "--load", "missing.py"], "missing.py"),
        (["simulate", "etc", "--plot", "."], "must end in"),
        (["list", "nothing"], "policy"),
        (["simulate", "ucb:width_scale=-1"], "width_scale"),
        (["simulate", "ucb-wtl:samples=0"], "samples"),
        (["simulate", "ucb", "--market", "a1", "--dim", "3"], "even"),
        (["simulate", "etc", "--market", "lower-bound", "--family", "logistic"], "linear"),
        (["simulate", "etc", "--rate", "slow"], "regret bound"),
        (["simulate", "etc", "--rate", "etc-ldp", "--plot", "x.png"], "regret bound in d and T alone"),
        (["simulate", "etc", "--rate", "etc"], "--plot"),
        (["scaling", "ucb", "ucb"], "twice"),
        (["scaling", "etc", "--dims", "1,x"], "--dims"),
        (["scaling", "etc", "--horizons", "100,100"], "twice"),
        (["scaling", "etc", "--dims", "1", "--horizons", "100"], "two values"),
        (["scaling", "etcc"], "Did you mean 'etc'"),
    ],
)
def test_mistakes_get_one_clear_line_and_exit_code_2(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hushprice", *words])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    text = " ".join(printed.err.split())
    assert text.startswith("error:")
    assert says in text


def test_a_mistake_in_a_real_process_leaves_no_traceback() -> None:
    result = shell("simulate", "etcc")
    assert (result.returncode, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr


def test_demo_leaves_pictures_and_tables(tmp_path: Path) -> None:
    result = shell("demo", "--out", str(tmp_path / "demo"))
    assert result.returncode == 0, result.stderr
    assert sorted(f.name for f in (tmp_path / "demo").iterdir()) == [
        f"{name}.{kind}" for name in ("privacy", "s2", "wide") for kind in ("csv", "json", "png")
    ]
    data = json.loads((tmp_path / "demo" / "wide.json").read_text())
    assert 20 * data["look-ahead"]["summary"]["mean"] < data["fixed-price"]["summary"]["mean"]


def test_version() -> None:
    assert run("--version").startswith("hushprice 0.")


def test_audit_prints_a_verdict_and_fails_when_a_control_slips_through() -> None:
    """With enough reports every control is caught; with few some are not, and the command says so by its exit code."""
    few = typed("audit", "l2-ball", "randomized-response", "--samples", "3000", "--dim", "2", "--unsafe-seed", "1")
    assert few.returncode == 1
    assert "gaussian, sensitivity C. Use more --samples" in " ".join(few.stdout.split())
    honest = typed("audit", "l2-ball", "--samples", "3000", "--dim", "2", "--no-controls", "--unsafe-seed", "1")
    assert honest.returncode == 0
    assert "No claim was broken." in honest.stdout
    rows = json.loads(typed("audit", "gaussian", "--samples", "2000", "--no-controls", "--json").stdout)
    assert rows[0]["mechanism"] == "gaussian"
    assert rows[0]["certified_epsilon"] <= rows[0]["claimed_epsilon"] == 1.0
    table = typed("audit", "privunit", "--samples", "2000", "--no-controls", "--csv").stdout.splitlines()
    assert table[0].startswith("mechanism,wrong_on_purpose,claimed_epsilon")


def test_private_policies_on_the_command_line() -> None:
    word = "etc-ldp-mixed:epsilon=4,centre=truth,radius=2,experiment_prices=0:2"
    result = typed("simulate", word, "-d", "2", "-T", "3000", "-n", "2", "--public", "0.5", "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)
    listing = typed("list", "etc-ldp")
    assert "epsilon: needed" in listing.stdout
    assert "The paper's mechanism" in typed("list", "l2-ball").stdout
    for words, text in (
        (["simulate", "etc-ldp"], "also needs epsilon"),
        (["simulate", "etc-ldp:epsilon=0"], "epsilon"),
        (["simulate", "etc-ldp:epsilon=1", "--public", "2"], "public"),
        (["simulate", "etc-ldp:epsilon=1", "--family", "poisson"], "demand_max"),
        (["audit", "laplace"], "no mechanism called"),
        (["audit", "--epsilon", "-1"], "epsilon"),
        (["audit", "--samples", "3"], "samples"),
    ):
        failed = typed(*words)
        assert failed.returncode != 0
        assert text in " ".join(failed.stderr.split())
        assert "Traceback" not in failed.stderr
