"""The simulation: independence of workers, results, markets."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import hushprice as hp
from hushprice.markets import Market
from tests.conftest import make_policy


def _run(**options: Any) -> hp.Result:
    arguments: dict[str, Any] = {"horizon": 3000, "replications": 6, "seed": 2}
    return hp.simulate(make_policy("semi-myopic"), hp.markets.s1(dim=3), **(arguments | options))


def test_the_number_of_workers_does_not_matter() -> None:
    one, two = _run(workers=1), _run(workers=2)
    np.testing.assert_array_equal(one.paths, two.paths)
    np.testing.assert_array_equal(one.revenue, two.revenue)
    np.testing.assert_array_equal(one.exploration, two.exploration)


def test_a_dask_cluster_gives_the_same_numbers() -> None:
    from dask.distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        by_address = _run(engine=f"dask://{address}", replications=4)
        with Client(cluster):
            by_client = _run(engine="dask", replications=4)
    local = _run(replications=4)
    np.testing.assert_array_equal(by_address.paths, local.paths)
    np.testing.assert_array_equal(by_client.paths, local.paths)


def test_more_replications_keep_the_first_ones() -> None:
    np.testing.assert_array_equal(_run(replications=3).paths, _run(replications=6).paths[:3])


def test_checkpoints_lie_on_one_path() -> None:
    coarse, fine = _run(checkpoints=[7, 1000, 2999]), _run(checkpoints=3000)
    assert coarse.checkpoints.tolist() == [7, 1000, 2999, 3000]
    np.testing.assert_allclose(coarse.paths, fine.paths[:, coarse.checkpoints - 1], rtol=1e-12)
    assert (np.diff(fine.paths, axis=1) >= 0).all()


def test_regret_is_what_the_definition_says() -> None:
    """Recomputed from the prices with the family's own functions."""
    from hushprice import checks

    policy, market = make_policy("etc"), hp.markets.wide(dim=3, cost=0.0)
    trace = checks.run_batch(policy, market, horizon=3000, seed=9)
    loop = checks.LiveLoop(policy, market, horizon=3000, seed=9)
    a, b = loop.z @ market.alpha, loop.z @ market.beta
    best = market.family.optimal_revenue(a, b, market.prices)
    want = (best - market.family.revenue(trace.prices, a, b)).sum()
    result = hp.simulate(policy, market, horizon=3000, replications=1, seed=9)
    assert result.regret[0] == pytest.approx(want, rel=1e-9)
    assert result.revenue[0] == pytest.approx((trace.prices * trace.y).sum())


def test_summary_and_paths() -> None:
    result = _run(replications=50, horizon=500)
    s = result.summary()
    assert s.mean == pytest.approx(result.regret.mean())
    assert s.low < s.mean < s.high
    assert s.high - s.mean == pytest.approx(2.68 * s.se, rel=1e-3)  # t quantile 0.995, 49 degrees of freedom
    assert result.path_mean()[-1] == pytest.approx(s.mean)
    np.testing.assert_allclose(result.path_quantiles([0.5])[0, -1], s.median)
    assert result.path_sd().shape == result.checkpoints.shape
    assert np.isnan(_run(replications=1).summary().sd)


def test_comparisons_use_the_same_customers() -> None:
    """With common customers the difference of two nearly equal policies is far less noisy than each."""
    results = hp.compare(
        {"a": make_policy("etc", dim=2), "b": make_policy("etc", dim=2, ridge=0.9)},
        hp.markets.s1(dim=2),
        horizon=2000,
        replications=40,
    )
    mean, low, high = results.difference("a", "b")
    assert low < mean < high
    assert high - low < 0.2 * (results["a"].summary().high - results["a"].summary().low)
    again = json.loads(results.to_json())
    assert again["a"]["summary"]["mean"] == results["a"].summary().mean
    assert len(results.to_csv().splitlines()) == 3


def test_results_look_short() -> None:
    results = hp.compare(
        [make_policy("etc"), make_policy("fixed-price")], hp.markets.s1(dim=3), horizon=300, replications=3
    )
    assert list(results) == ["etc", "fixed-price"]
    lines = repr(results).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("etc: <Result etc in s1, d=3, T=300: mean regret ")
    assert repr(hp.markets.s1(dim=3)) == "<Market s1: logistic demand, d=3, prices 0 to 3>"
    assert results["etc"].to_dict()["config"]["horizon"] == 700
    with pytest.raises(hp.InvalidInput, match="nope"):
        results.difference("etc", "nope")
    with pytest.raises(hp.InvalidInput, match="same name"):
        hp.compare([make_policy("etc"), make_policy("etc")], hp.markets.s1(dim=3), horizon=300)


def test_paper_table_in_small() -> None:
    """ETC-Doubling and modified MLE-Cycle at S1, d = 4, T = 490 000, ridge 0.1, against the paper's means.

    24 replications, fixed seed; the band is 3.5 standard errors of the difference (error rate 5e-4 per policy).
    """
    for name, mean, sd in (("etc-doubling", 1982.4, 436.4), ("mle-cycle", 2076.2, 471.9)):
        result = hp.simulate(
            make_policy(name, dim=4, ridge=0.1),
            hp.markets.s1(dim=4),
            horizon=490_000,
            replications=24,
            seed=1,
            workers=2,
        )
        se = np.hypot(sd / np.sqrt(500), result.summary().se)
        assert abs(result.summary().mean - mean) < 3.5 * se


def test_the_original_mle_cycle_explores_too_little_in_high_dimension() -> None:
    results = hp.compare(
        {v: make_policy("mle-cycle", dim=16, variant=v, ridge=0.1) for v in ("original", "modified")},
        hp.markets.s1(dim=16),
        horizon=100_000,
        replications=10,
        workers=2,
    )
    _, low, _ = results.difference("original", "modified")
    assert low > 0


def test_memory_does_not_grow_with_the_horizon() -> None:
    """Peak memory of a fresh process at T = 30 000 and at T = 1 000 000, d = 25 (contexts alone would be 200 MB)."""
    code = """
import resource, sys, hushprice as hp
policy = hp.policies.ETCDoubling(family="logistic", dim=25, prices=(0, 3))
hp.simulate(policy, hp.markets.s1(dim=25), horizon=int(sys.argv[1]), replications=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
    short, long = (int(subprocess.check_output([sys.executable, "-c", code, str(T)])) for T in (30_000, 1_000_000))
    assert long - short < 40


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"horizon": -1}, "horizon"),
        ({"replications": 0}, "replications"),
        ({"seed": -1}, "seed"),
        ({"workers": -2}, "workers"),
        ({"checkpoints": [5000]}, "checkpoints"),
        ({"checkpoints": "all"}, "checkpoints"),
        ({"engine": "spark"}, "engine"),
    ],
)
def test_bad_runs_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(hp.InvalidInput, match=words):
        _run(**options)


def test_mismatched_policy_and_market_are_refused() -> None:
    with pytest.raises(hp.InvalidInput, match="dim=3"):
        hp.simulate(make_policy("etc", dim=3), hp.markets.s1(dim=2), horizon=10)
    with pytest.raises(hp.InvalidInput, match="range"):
        hp.simulate(make_policy("etc", prices=(0, 5)), hp.markets.s1(dim=3), horizon=10)
    with pytest.raises(hp.InvalidInput, match="cost"):
        hp.simulate(make_policy("etc", cost=0.5), hp.markets.s1(dim=3), horizon=10)
    with pytest.raises(hp.InvalidInput, match="policy"):
        hp.simulate("etc", hp.markets.s1(dim=3), horizon=10)  # type: ignore[arg-type]
    with pytest.raises(hp.InvalidInput, match="at least one"):
        hp.compare({}, hp.markets.s1(dim=3), horizon=10)


def test_a_wrong_family_may_be_tried() -> None:
    """Misspecification is a legitimate study: linear estimates in a logistic market."""
    result = hp.simulate(make_policy("etc", family="linear"), hp.markets.s1(dim=3), horizon=700, replications=2)
    assert (result.regret > 0).all()


# -- markets --------------------------------------------------------------------------------------------------

ROWS = [[1.0, 0.2], [1.0, 0.9], [1.0, 0.4]]


@pytest.mark.parametrize(
    "contexts",
    [
        ROWS,
        np.array(ROWS),
        pd.DataFrame(ROWS, columns=["one", "size"]),
        pl.DataFrame(ROWS, schema=["one", "size"], orient="row"),
        lambda rng, n: np.array(ROWS)[rng.integers(3, size=n)],
    ],
    ids=["list", "array", "pandas", "polars", "function"],
)
def test_contexts_of_every_kind_are_the_same_market(contexts: Any) -> None:
    market = Market(alpha=[1.0, 0.5], beta=[0.4, 0.6], contexts=contexts, prices=(0, 4))  # type: ignore[arg-type]
    result = hp.simulate(make_policy("etc", dim=2, prices=(0, 4)), market, horizon=700, replications=2, seed=1)
    want = Market(alpha=[1.0, 0.5], beta=[0.4, 0.6], contexts=ROWS, prices=(0, 4))  # type: ignore[arg-type]
    same = hp.simulate(make_policy("etc", dim=2, prices=(0, 4)), want, horizon=700, replications=2, seed=1)
    np.testing.assert_array_equal(result.regret, same.regret)


@pytest.mark.parametrize(
    "options",
    [
        {"contexts": [[1.0, np.nan]]},
        {"contexts": np.empty((0, 2))},
        {"contexts": [[1.0, 2.0, 3.0]]},
        {"beta": [1.0]},
        {"alpha": [np.inf, 1.0]},
        {"prices": (2, 1)},
        {"family": "gamma"},
    ],
)
def test_bad_markets_are_refused(options: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"alpha": [1.0, 0.5], "beta": [0.4, 0.6], "contexts": ROWS, "prices": (0, 4)}
    with pytest.raises(hp.InvalidInput):
        Market(**(arguments | options))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_column_of_words_is_named(frame: Any) -> None:
    with pytest.raises(hp.InvalidInput, match="'city'"):
        hp.Market(alpha=[1.0, 1.0], beta=[1.0, 1.0], contexts=frame({"one": [1, 2], "city": ["a", "b"]}), prices=(0, 3))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad", [lambda rng, n: np.ones((n, 3)), lambda rng, n: np.full((n, 2), np.nan), lambda rng, n: np.ones(n)]
)
def test_a_context_function_that_misbehaves_is_caught(bad: Any) -> None:
    market = Market(alpha=[1.0, 0.5], beta=[0.4, 0.6], contexts=bad, prices=(0, 3))  # type: ignore[arg-type]
    with pytest.raises(hp.InvalidInput, match="contexts"):
        hp.simulate(make_policy("etc", dim=2), market, horizon=50, replications=1)


@pytest.mark.parametrize("dim", [1, 4, 25])
def test_the_papers_facts_about_s1_and_s2(dim: int) -> None:
    rng = np.random.default_rng(0)
    s1, s2 = hp.markets.s1(dim=dim), hp.markets.s2(dim=dim)
    optimal = s1.optimal_price(s1.draw(rng, 20_000))
    assert optimal.min() >= 0.91
    assert optimal.max() <= 2.68
    np.testing.assert_allclose(s2.optimal_price(s2.draw(rng, 100)), 1.567, atol=5e-4)


@pytest.mark.parametrize("dim", [1, 4, 25])
def test_only_in_wide_does_context_matter(dim: int) -> None:
    """Optimal prices spread over most of [0, 3], and the best single price loses ten times the share it does in S1."""

    def lost(market: Market) -> float:
        z = market.draw(np.random.default_rng(1), 20_000)
        a, b = z @ market.alpha, z @ market.beta
        best = market.family.optimal_revenue(a, b, market.prices).mean()
        return float(1 - market.family.revenue(market.best_fixed_price(), a, b).mean() / best)

    wide = hp.markets.wide(dim=dim)
    prices = wide.optimal_price(wide.draw(np.random.default_rng(0), 20_000))
    low, high = np.quantile(prices, [0.01, 0.99])
    assert high - low > 0.7 * 3
    assert lost(wide) > 0.15
    assert lost(hp.markets.s1(dim=dim)) < 0.015
    assert lost(hp.markets.s2(dim=dim)) < 1e-9


def test_best_fixed_price_is_the_best_of_a_grid() -> None:
    market = hp.markets.wide(dim=2)
    z = market.draw(np.random.default_rng(0), 50_000)
    a, b = z @ market.alpha, z @ market.beta
    grid = np.linspace(0, 3, 601)
    values = [market.family.revenue(p, a, b).mean() for p in grid]
    assert market.best_fixed_price() == pytest.approx(grid[int(np.argmax(values))], abs=0.006)


def test_a_worker_that_dies_is_reported() -> None:
    """Killed as a machine out of memory would kill it."""
    program = """
import threading, time
import psutil
import hushprice as hp

def kill():
    while True:
        time.sleep(0.05)
        for worker in psutil.Process().children():
            if "--process-name" in worker.cmdline():  # a child that was forked just now still has this text in its own
                worker.kill()
                return

threading.Thread(target=kill, daemon=True).start()
policy = hp.policies.SemiMyopic(family="logistic", dim=9, prices=(0, 3))
try:
    hp.simulate(policy, hp.markets.s1(dim=9), horizon=400_000, replications=20, workers=2)
except hp.HushpriceError as problem:
    print("told:", problem)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("told: A worker process died"), done.stderr
