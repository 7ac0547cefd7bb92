"""Studies: read from a file, stored by content, resumed, the same wherever they run."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats
from typer.testing import CliRunner

import hushprice as hp
from hushprice.cli import app
from hushprice.simulation import NearTruth
from hushprice.studies import (
    Cell,
    Panel,
    Store,
    Study,
    cell_rows,
    draw,
    execute,
    market_from,
    outstanding,
    path_rows,
    pilots,
    policy_from,
    results,
)
from hushprice.studies.execute import jobs
from tests.support.paths import ROOT

FILE = """
title = "Small"
seed = 5
replications = 6
checkpoints = 4

[scales.brief]
replications = 2

[runs.grid]
market = ["s1", "s2:public=0.1"]
policies = { "ETC" = "etc:ridge=0.1", "private" = "etc-ldp-mixed:epsilon=4" }
dims = [1, 2]
horizons = [400, 800]
scales.brief.horizons = [400]

[runs.paths]
market = "wide"
policies = ["etc-doubling", "greedy"]
horizons = [500]

[pictures.growth]
title = "How it grows"
panels = [
  { panel = "mean-regret", runs = ["grid"], markets = ["s1"] },
  { panel = "fitted-lines", runs = ["grid"], markets = ["s1"], labels = ["ETC"], offset = 0.5 },
  { panel = "paths", runs = ["paths"] },
]
"""


def study(tmp_path: Path, text: str = FILE, **options: Any) -> Study:
    file = tmp_path / "study.toml"
    file.write_text(text, encoding="utf-8")
    return Study.read(file, **options)


def compute(cells: list[Cell], store: Store, **options: Any) -> dict[str, hp.Result]:
    execute(outstanding(cells, store), store, **({"workers": 1} | options))
    return {cell.key: result for cell, result in results(cells, store)}


def same(one: dict[str, hp.Result], other: dict[str, hp.Result]) -> None:
    assert one.keys() == other.keys()
    for key, result in one.items():
        for name in ("paths", "revenue", "exploration", "checkpoints"):
            np.testing.assert_array_equal(getattr(result, name), getattr(other[key], name))


def test_a_file_is_read(tmp_path: Path) -> None:
    plan = study(tmp_path)
    assert [len(run.cells()) for run in plan.runs.values()] == [16, 2]
    cell = plan.cells(["grid"])[0]
    assert (cell.label, cell.work.market.name, cell.work.market.dim, cell.work.horizon) == ("ETC", "s1", 1, 400)
    assert cell.work.checkpoints.tolist() == [100, 200, 300, 400]
    assert (cell.replications, cell.work.seed) == (6, 5)
    assert plan.cells(["paths"])[0].work.market.dim == 4  # the usual one
    brief = study(tmp_path, scale="brief")
    assert [(c.replications, c.work.horizon) for c in brief.cells(["grid"])][:2] == [(2, 400), (2, 400)]
    assert plan.limited(3).cells()[0].replications == 3


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('market = "wide"', 'market = "narrow"', "no market called 'narrow'"),
        ('market = "wide"', "market = 3", "needs a market"),
        ('market = "wide"', 'markett = "wide"', "Did you mean 'market'?"),
        ('market = "wide"', "", "needs market"),
        ('"etc-doubling"', '"etc-dobling"', "Did you mean 'etc-doubling'?"),
        ('"etc-doubling"', '"etc-doubling:ridge"', "should read key=value"),
        ('["etc-doubling", "greedy"]', "[]", "needs policies"),
        ("horizons = [500]", "horizons = [500, 500]", "names a number twice"),
        ("horizons = [500]", "horizons = [0]", "at least 1"),
        ("horizons = [500]", "horizons = 500", "list of whole numbers"),
        ("horizons = [500]", "horizons = [[500]]", "whole number"),
        ('["etc-doubling", "greedy"]', '["greedy", "greedy"]', "named twice"),
        ('["etc-doubling", "greedy"]', "[1]", "needs policies"),
        ("seed = 5", "seed = -1", "at least 0"),
        ("seed = 5", "sead = 5", "no key in study.toml called 'sead'"),
        ("replications = 6", "replications = 0", "at least 1"),
        ('"paths", runs = ["paths"]', '"pathes", runs = ["paths"]', "Did you mean 'paths'?"),
        ('"paths", runs = ["paths"]', '"paths", runs = ["path"]', "no run in the picture growth"),
        ('labels = ["ETC"], offset = 0.5', 'labels = ["ETC"]', "needs offset"),
        ('labels = ["ETC"]', 'labels = ["ETD"]', "Known: ETC, private"),
        ('"paths", runs', '"paths", by = "dim", runs', "no key in a paths panel"),
        ('"paths", runs = ["paths"]', '"paths", runs = "paths"', "runs in a panel"),
        ('"paths", runs = ["paths"]', '"paths", dims = ["4"]', "dims in a panel"),
        ('panel = "paths"', "panel = [1]", "must say which it is"),
        ("[pictures.growth]", "[pictures.growth", "not a TOML file"),
        ("seed = 5", "seed = " + "9" * 5000, "not a TOML file"),
        ("seed = 5", "seed = 0x" + "f" * 5000, "number too long"),
        ("replications = 6", "replications = 1000000000", "at most 1000000"),
        ("[pictures.growth]", '[pictures."../evil"]', "becomes a file"),
        ("[pictures.growth]", '[pictures."/tmp/evil"]', "becomes a file"),
        ('"paths", runs', '"paths", title = 5, runs', "title in a panel"),
        ('"paths", runs', '"paths", log = "no", runs', "log in a panel"),
        ('market = "wide"', 'market = "wide:dim=3"\ndims = [2]', "dim of its own"),
        ('market = "wide"', 'market = "wide:name=x"', "no option of the market wide called 'name'"),
        ("[runs.grid]", "[walks.grid]", "no key in study.toml called 'walks'"),
    ],
)
def test_mistakes_in_a_file_are_reported(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in FILE
    with pytest.raises(hp.InvalidInput) as caught:
        study(tmp_path, FILE.replace(old, new)).cells()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"paths", runs = ["paths"]', '"boxes", runs = ["grid"], by = "dim"', "not s1 and s2"),
        ('"paths", runs = ["paths"]', '"boxes", runs = ["paths"], by = "colour"', "colour"),
        ('labels = ["ETC"], offset = 0.5', "offset = 0.5", "one label"),
        ("offset = 0.5", 'offset = "half"', "offset"),
        ('"How it grows"', '"$\\\\frac$"', "cannot be drawn"),
        ('"paths", runs = ["paths"]', '"paths", runs = ["paths"], dims = [3]', "chooses no cells"),
        ("horizons = [500]", "horizons = [500]\ncheckpoints = 1", "checkpoints = 2 or more"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_reported_before_the_work(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    assert old in FILE
    file = tmp_path / "mine.toml"
    file.write_text(FILE.replace(old, new), encoding="utf-8")
    with pytest.raises(hp.InvalidInput) as caught:
        run("study", str(file), "--out", str(tmp_path / "out"), "--workers", "1")
    assert says in str(caught.value)
    assert not list(tmp_path.rglob("*.parquet"))


def test_files_and_scales_that_are_not_there_are_reported(tmp_path: Path) -> None:
    with pytest.raises(hp.InvalidInput, match="no study file"):
        Study.read(tmp_path / "none.toml")
    with pytest.raises(hp.InvalidInput, match="is a folder"):
        Study.read(tmp_path)
    with pytest.raises(hp.InvalidInput, match=r"no scale in study.toml called 'huge'.*brief"):
        study(tmp_path, scale="huge")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(hp.InvalidInput, match="not a TOML file"):
        Study.read(tmp_path / "bytes.toml")


def test_a_changed_parameter_touches_its_own_cells_only(tmp_path: Path) -> None:
    def keys(text: str) -> list[str]:
        return [cell.key for cell in study(tmp_path, text).cells()]

    before = keys(FILE)
    assert len(set(before)) == len(before)
    assert keys(FILE.replace("replications = 6", "replications = 60")) == before
    changed = keys(FILE.replace("ridge=0.1", "ridge=0.2"))
    touched = [i for i, (a, b) in enumerate(zip(before, changed, strict=True)) if a != b]
    assert touched == [0, 1, 2, 3, 8, 9, 10, 11]  # ETC's in both markets
    changed = keys(FILE.replace("public=0.1", "public=0.2"))
    assert [i for i, (a, b) in enumerate(zip(before, changed, strict=True)) if a != b] == list(range(8, 16))
    assert not set(before) & set(keys(FILE.replace("seed = 5", "seed = 6")))
    assert not set(before) & set(keys(FILE.replace("checkpoints = 4", "checkpoints = 5")))


def test_a_market_is_known_by_its_customers() -> None:
    rows = np.arange(12.0).reshape(6, 2)
    arguments: dict[str, Any] = {"alpha": [1, 1], "beta": [1, 1], "prices": (0, 3)}
    one = hp.Market(contexts=rows, **arguments)
    assert one.fingerprint() == hp.Market(contexts=rows.copy(), **arguments).fingerprint()
    rows = rows.copy()
    rows[5, 1] += 1e-9
    others = [
        hp.Market(contexts=rows, **arguments),
        hp.Market(contexts=lambda rng, n: rng.random((n, 2)), **arguments),
        hp.Market(contexts=lambda rng, n: rng.random((n, 2)) + 1e-9, **arguments),
        hp.Market(contexts=one.contexts.rows, **(arguments | {"prices": (0, 4)})),
        hp.Market(contexts=one.contexts.rows, **arguments, public=0.1),
        hp.Market(contexts=one.contexts.rows, **arguments, cost=0.1),
        hp.Market(contexts=one.contexts.rows, **arguments, family=hp.Poisson()),
    ]
    assert len({market.fingerprint() for market in (one, *others)}) == 8


def test_contexts_that_change_are_known_by_when_they_do() -> None:
    keys = {hp.markets.a1(dim=2, horizon=T).fingerprint() for T in (None, 4_000, 10_000, 10_001)}
    assert len(keys) == 4


def test_the_code_of_a_policy_from_outside_counts(tmp_path: Path) -> None:
    code = """
from dataclasses import dataclass
from typing import ClassVar
from hushprice import policies

@dataclass(frozen=True, kw_only=True)
class Outside(policies.ETCDoubling):
    name: ClassVar[str] = "outside"
    what = {}
    @property
    def how(self):
        return {}
policies.register(Outside)
"""
    from hushprice.studies.spec_strings import load_policies

    keys = []
    try:
        for constant, number in ((1, 1), (1, 1), (1, 2), (2, 2)):
            (tmp_path / "outside.py").write_text(code.format(constant, number), encoding="utf-8")
            load_policies(tmp_path / "outside.py")
            text = FILE.replace('"etc-doubling", "greedy"', '"outside"')
            keys.append(study(tmp_path, text).cells(["paths"])[0].key)
    finally:
        hp.policies.REGISTRY.pop("outside", None)
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_results_are_those_of_simulate(tmp_path: Path) -> None:
    cells = study(tmp_path).cells(["grid"])[:5]
    store = Store(tmp_path / "store")
    for cell, result in zip(cells, compute(cells, store).values(), strict=True):
        direct = hp.simulate(
            cell.work.policy, cell.work.market, horizon=cell.work.horizon, replications=6, seed=5, checkpoints=4
        )
        np.testing.assert_array_equal(result.paths, direct.paths)
        np.testing.assert_array_equal(result.revenue, direct.revenue)
        assert result.config == direct.config


def test_workers_and_clusters_give_the_same_numbers(tmp_path: Path) -> None:
    from dask.distributed import LocalCluster

    cells = study(tmp_path).cells()
    one = compute(cells, Store(tmp_path / "one"))
    same(one, compute(cells, Store(tmp_path / "two"), workers=2))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        engine = "dask://" + cluster.scheduler_address.removeprefix("tcp://")
        same(one, compute(cells, Store(tmp_path / "cluster"), engine=engine))


class Stop(Exception):
    """Thrown in the middle of a run."""


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    cells = study(tmp_path).cells()
    whole = compute(cells, Store(tmp_path / "whole"))
    store = Store(tmp_path / "broken")
    done: list[int] = []

    def stop(n: int, _: float) -> None:
        done.append(n)
        if sum(done) >= 20:
            raise Stop

    with pytest.raises(Stop):
        execute(outstanding(cells, store), store, workers=1, progress=stop)
    left = outstanding(cells, store)
    assert sum(len(item.missing) for item in left) == len(cells) * 6 - sum(done)
    same(whole, compute(cells, store))
    assert not any(item.missing for item in outstanding(cells, store))


def test_fewer_replications_are_the_first_of_more(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    few = compute(study(tmp_path).limited(2).cells(), store)
    many = compute(study(tmp_path).cells(), store)
    for key, result in few.items():
        np.testing.assert_array_equal(result.paths, many[key].paths[:2])
    again = {cell.key: result for cell, result in results(study(tmp_path).limited(2).cells(), store)}
    same(few, again)


def test_partial_results_are_those_from_the_first_on(tmp_path: Path) -> None:
    cell, store = study(tmp_path).cells()[0], Store(tmp_path / "store")
    (outcomes,) = [outcome for _, outcome in hp.simulation.run_jobs([cell.work])]
    store.write(cell, {i: outcomes[i] for i in (0, 1, 4)})
    assert store.result(cell) is None
    partial = store.result(cell, partial=True)
    assert partial is not None
    assert partial.replications == 2
    store.write(cell, {i: outcomes[i] for i in (2, 3, 5)})
    whole = store.result(cell)
    assert whole is not None
    np.testing.assert_array_equal(whole.paths, np.stack([o.path for o in outcomes]))
    assert [file.name for file in (tmp_path / "store").rglob("*.parquet")] == ["0-5.parquet"]  # joined


def test_joined_files_say_all_that_made_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, store = study(tmp_path).cells()[0], Store(tmp_path / "store")
    (outcomes,) = [outcome for _, outcome in hp.simulation.run_jobs([cell.work])]
    for version, some in (("one", range(3)), ("two", range(3, 6))):
        monkeypatch.setattr("hushprice.studies.store.revision", lambda version=version: version)
        store.write(cell, {i: outcomes[i] for i in some})
    assert len(list((tmp_path / "store").rglob("*.parquet"))) == 1
    again = Store(tmp_path / "store")
    assert again.result(cell) is not None
    assert again.revisions([cell]) == ["one", "two"]


def test_files_are_plain_parquet(tmp_path: Path) -> None:
    cell, store = study(tmp_path).cells()[0], Store(tmp_path / "store")
    result = compute([cell], store)[cell.key]
    (file,) = (tmp_path / "store").rglob("*.parquet")
    table = pq.read_table(file)
    assert table.column_names == ["replication", "revenue", "exploration", "seconds", "deviation", "far", "path"]
    assert [row[-1] for row in table["path"].to_pylist()] == result.regret.tolist()
    assert all(version.startswith(hp.__version__) for version in store.revisions([cell]))


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign"])
def test_a_damaged_file_is_computed_again(tmp_path: Path, damage: str) -> None:
    cells, store = study(tmp_path).cells()[:2], Store(tmp_path / "store")
    whole = compute(cells, store)
    first, second = (next((tmp_path / "store" / cell.key[:2] / cell.key).glob("*.parquet")) for cell in cells)
    content = bytearray(first.read_bytes())
    if damage == "cut":
        first.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[60] ^= 0xFF  # in the first page
        first.write_bytes(content)
    elif damage == "empty":
        first.write_bytes(b"")
    else:
        first.write_bytes(second.read_bytes())
    store = Store(tmp_path / "store")
    left = outstanding(cells, store)
    assert [len(item.missing) for item in left] == [6, 0]
    assert store.damaged == [first]
    same(whole, compute(cells, store))
    assert not any(item.missing for item in outstanding(cells, Store(tmp_path / "store")))


def test_odd_files_are_no_results(tmp_path: Path) -> None:
    """Files that can be read and are not what this cell's are; and things that are no files."""
    import pyarrow as pa

    cell, store = study(tmp_path).cells()[0], Store(tmp_path / "store")
    whole = compute([cell], store)[cell.key]
    (file,) = (tmp_path / "store").rglob("*.parquet")
    good = pq.read_table(file)
    rows = good.to_pylist()
    twice = [rows[0], rows[0], *rows[2:]]
    nan = [{**rows[0], "revenue": float("nan")}, *rows[1:]]
    short = [{**row, "path": row["path"][:2]} for row in rows]
    none = [{**rows[0], "replication": None}, *rows[1:]]
    for odd in (twice, nan, short, none, rows[:5]):
        table = pa.Table.from_pylist(odd, schema=good.schema)
        pq.write_table(table, file)
        fresh = Store(tmp_path / "store")
        assert fresh.read(cell) == {}
        assert fresh.damaged == [file]
    for text in (b"[1]", b"null", b'{"key": 3}'):
        pq.write_table(good.replace_schema_metadata({b"hushprice": text}), file)
        assert Store(tmp_path / "store").read(cell) == {}
    (file.parent / "7-8.parquet").mkdir()
    (file.parent / "9-9.parquet").symlink_to("nowhere")
    (file.parent / "\u00b2-\u00b3.parquet").write_bytes(b"")
    same({cell.key: whole}, compute([cell], Store(tmp_path / "store")))


def test_a_join_keeps_what_a_larger_run_has(tmp_path: Path) -> None:
    """Files of a cell are joined up to the first gap; those beyond it stay."""
    cell, store = study(tmp_path).cells()[0], Store(tmp_path / "store")
    (outcomes,) = [outcome for _, outcome in hp.simulation.run_jobs([cell.work])]
    few = study(tmp_path).limited(3).cells()[0]
    assert few.key == cell.key
    for some in ([0, 1], [5], [2]):
        store.write(few, {i: outcomes[i] for i in some})
    assert sorted(file.name for file in (tmp_path / "store").rglob("*.parquet")) == ["0-2.parquet", "5-5.parquet"]
    assert sorted(store.read(cell)) == [0, 1, 2, 5]


def test_a_store_that_cannot_be_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(hp.InvalidInput, match="cannot be kept"):
        Store(tmp_path / "file")


def test_an_estimate_comes_from_one_replication_of_each_line(tmp_path: Path) -> None:
    cells, store = study(tmp_path).cells(), Store(tmp_path / "store")
    left = outstanding(cells, store)
    assert all(np.isnan(item.seconds) for item in left)
    first = pilots(left)
    assert len(first) == 2 * 2 * 2 + 2  # a market, policy and dimension each, and the two of the other run
    execute(first, store, workers=1)
    left = outstanding(cells, store)
    assert all(item.seconds > 0.0 for item in left)
    assert not pilots(left)
    by_cell = {item.cell.key: item for item in left}
    small, large = (by_cell[cell.key] for cell in cells[:2])
    assert small.seconds == pytest.approx(large.seconds / 2)  # half the customers
    assert sum(len(item.missing) for item in left) == len(cells) * 6 - len(first)
    assert sum(len(job.replications) for _, job in jobs(left)) == len(cells) * 6 - len(first)


def test_a_cell_named_twice_is_computed_once(tmp_path: Path) -> None:
    cells = study(tmp_path).cells(["paths"])
    assert len(outstanding([*cells, *cells], Store(tmp_path / "store"))) == 2


def test_rows_and_pictures(tmp_path: Path) -> None:
    plan = study(tmp_path)
    cells, store = plan.cells(), Store(tmp_path / "store")
    compute(cells, store)
    computed = results(cells, store)
    rows = cell_rows(computed)
    assert len(rows) == 18
    assert rows[0]["mean"] == computed[0][1].regret.mean()
    assert rows[0]["policy"] == "etc:ridge=0.1"
    assert len(path_rows(computed)) == 18 * 4
    figure = draw(plan.pictures["growth"], computed)
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["s1", "s1", "wide, d = 4, T = 500"]
    assert draw(plan.pictures["growth"], []) is None
    panel = Panel(panel="boxes", runs=["grid"], labels=["private", "ETC"], dims=[2], horizons=[400], markets=["s1"])
    assert [cell.label for cell in cells if panel.chooses(cell)] == ["ETC", "private"]


@pytest.mark.parametrize("name", ["privacy", "ridge"])
def test_examples_are_studies(name: str) -> None:
    for scale in (None, "brief"):
        plan = Study.read(ROOT / "examples" / f"{name}.toml", scale=scale)
        cells = plan.cells()
        assert scale is None or {cell.replications for cell in cells} == {4}
        shown = [p for picture in plan.pictures.values() for p in picture.panels]
        assert all(any(panel.chooses(cell) for cell in cells) for panel in shown)


def test_words() -> None:
    market = market_from("s1:public=0.25", dim=4, horizon=100)
    assert market.public == 0.25
    assert market_from("autoloan", horizon=100).dim == 5
    assert market_from("lower-bound:v=3", dim=2, horizon=100).alpha.min() > 2.0
    policy = policy_from("etc-ldp:epsilon=1,centre=truth,radius=sqrt(d)", market, 100)
    assert isinstance(policy, hp.policies.ETCLDP)
    assert policy.radius == 2.0
    assert policy.centre == tuple(market.theta)
    with pytest.raises(hp.InvalidInput, match="must be numbers"):
        policy_from("etc-ldp:epsilon=1,centre=somewhere", market, 100)


def test_a_centre_near_the_truth_is_drawn_for_each_replication() -> None:
    """Uniform in the unit ball: |centre - truth|^2d is uniform (Kolmogorov-Smirnov, error rate 1e-6)."""
    market = hp.markets.s1(dim=2)
    policy = policy_from("etc-ldp:epsilon=4,centre=near-truth,radius=sqrt(d)", market, 400)
    assert isinstance(policy, NearTruth)
    rng = np.random.default_rng(0)
    drawn = [policy.draw(rng) for _ in range(2000)]
    gaps = np.array([np.array(p.centre) - market.theta for p in drawn])  # type: ignore[attr-defined]
    lengths = np.linalg.norm(gaps, axis=1)
    assert lengths.max() <= 1.0
    assert stats.kstest(lengths**4, "uniform").pvalue > 1e-6
    assert np.abs(gaps.mean(axis=0)).max() < 5 * 0.5 / np.sqrt(2000)
    assert drawn[0].start_at == drawn[0].centre  # type: ignore[attr-defined]
    one = hp.simulate(policy, market, horizon=400, replications=3, seed=1)
    fixed = hp.simulate(policy.policy, market, horizon=400, replications=3, seed=1)
    np.testing.assert_array_equal(one.paths, hp.simulate(policy, market, horizon=400, replications=3, seed=1).paths)
    assert (one.regret != fixed.regret).all()
    with pytest.raises(hp.InvalidInput, match="private"):
        NearTruth(hp.policies.ETCDoubling(family="logistic", dim=2, prices=(0, 3)))  # type: ignore[arg-type]


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def test_the_command_writes_what_it_says(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(FILE, encoding="utf-8")
    out = tmp_path / "out"
    words = ("study", str(file), "--scale", "brief", "--out", str(out), "--workers", "1")
    assert "replications of" in run(*words, "--estimate")
    assert not (out / "mine" / "cells.csv").exists()
    output = run(*words)
    assert "regret" in output
    with (out / "mine-brief" / "cells.csv").open() as text:
        rows = list(csv.DictReader(text))
    assert [int(row["replications"]) for row in rows] == [2] * 10
    assert (out / "mine-brief" / "growth.png").stat().st_size > 10_000
    assert "nothing to compute" in run(*words)
    again = list(csv.DictReader(run(*words, "--csv").splitlines()))
    assert [row["mean"] for row in again] == [row["mean"] for row in rows]


def test_a_loaded_policy_may_import_what_lies_beside_it(tmp_path: Path) -> None:
    """In workers, too; and the store notices when that changes."""
    (tmp_path / "besides_me.py").write_text("DAYS = 20\n", encoding="utf-8")
    (tmp_path / "mine.py").write_text(
        """
from dataclasses import dataclass
from typing import ClassVar
import besides_me
import hushprice as hp

@hp.policies.register
@dataclass(frozen=True, kw_only=True)
class Mine(hp.policies.EpisodePolicy):
    name: ClassVar[str] = "mine"
    def episode(self, q):
        return besides_me.DAYS, 100
""",
        encoding="utf-8",
    )
    text = '[runs.r]\nmarket = "s1"\npolicies = ["mine"]\nhorizons = [300]\nreplications = 3\n'
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")

    def regret() -> str:
        words = ["study", "study.toml", "--load", "mine.py", "--workers", "2", "--csv"]
        program = [sys.executable, "-c", "from hushprice.cli import main; main()", *words]
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        return next(csv.DictReader(done.stdout.splitlines()))["mean"]

    first = regret()
    assert regret() == first
    (tmp_path / "besides_me.py").write_text("DAYS = 60\n", encoding="utf-8")
    assert regret() != first


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """A real process, killed without warning as soon as some results are stored."""
    file = tmp_path / "mine.toml"
    file.write_text(FILE.replace("replications = 6", "replications = 60"), encoding="utf-8")
    program = [sys.executable, "-c", "from hushprice.cli import main; main()", "study", str(file), "--csv"]

    def start(out: Path) -> subprocess.Popen[str]:
        quiet: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        return subprocess.Popen([*program, "--out", str(out), "--workers", "1"], start_new_session=True, **quiet)

    store = tmp_path / "killed" / "store"
    victim = start(tmp_path / "killed")
    deadline = time.monotonic() + 120
    while len(list(store.rglob("*.parquet"))) < 12 and victim.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(victim.pid, signal.SIGKILL)
    victim.communicate()
    assert victim.returncode == -signal.SIGKILL
    cells = Study.read(file).cells()
    left = sum(len(item.missing) for item in outstanding(cells, Store(store)))
    assert 0 < left < 60 * len(cells)

    def numbers(out: Path) -> list[dict[str, str]]:
        output, _ = start(out).communicate(timeout=300)
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(output.splitlines())]

    assert numbers(tmp_path / "killed") == numbers(tmp_path / "whole")
