"""``python -m benchmarks NAME``, or ``all``: print and keep (hushprice-bench/*.csv and *.png)."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import typer

import hushprice as hp
from benchmarks import (
    bounds,
    coverage,
    drift,
    look_ahead,
    peers,
    private,
    private_ahead,
    reliability,
    service,
    streaming,
)
from benchmarks.common import Count, Rows, Workers, build, published, report

app = typer.Typer(no_args_is_help=True, add_completion=False)
app.add_typer(bounds.app)
app.add_typer(private.app)
app.add_typer(private_ahead.app)
app.add_typer(look_ahead.app)
app.add_typer(drift.app)
app.add_typer(peers.app)
app.command()(streaming.streaming)
app.command()(coverage.offpolicy)
app.add_typer(service.app)
app.command()(coverage.bands)
app.command()(reliability.crash)
app.command()(reliability.fuzz)
HORIZON = 490_000
DIMS = (1, 4, 9, 16, 25)
TABLE = {"etc-doubling": "ETC-Doubling", "mle-cycle": "MLE-Cycle, modified", "semi-myopic": "Semi-Myopic, modified"}


@app.command()
def greedy(replications: Count = 100, workers: Workers = -1) -> None:
    """Greedy on S2: without experiments the regret grows like T, not like sqrt(T)."""
    rows: Rows = []
    for name in ("greedy", "etc-doubling"):
        result = hp.simulate(
            build(name, 4),
            hp.markets.s2(dim=4),
            horizon=160_000,
            replications=replications,
            seed=3,
            workers=workers,
            checkpoints=[10_000, 40_000],
        )
        mean = result.path_mean()
        rows.append(
            {
                "policy": name,
                **{f"T = {t:,}": float(m) for t, m in zip(result.checkpoints, mean, strict=True)},
                "slope 10k-160k": float(np.log(mean[-1] / mean[0]) / np.log(16)),
                "slope 40k-160k": float(np.log(mean[-1] / mean[1]) / np.log(4)),
            }
        )
    report("greedy", "S2, d = 4: slope 1 is linear regret, 1/2 is sqrt(T)", rows)


def _floor(dim: int, seed: int) -> float:
    """Seconds to draw the contexts and the demand uniforms with NumPy and take one matrix product."""
    alpha = np.full(dim, 1.6 / math.sqrt(dim))
    began = time.perf_counter()
    rng = np.random.default_rng(seed)
    z = rng.random((HORIZON, dim))
    rng.random(HORIZON)
    z @ alpha
    return time.perf_counter() - began


@app.command()
def speed(replications: Count = 9) -> None:
    """Seconds a run on one core next to the authors' and to the floor, all in one run."""
    rows: Rows = []
    for name, label in TABLE.items():
        for dim in DIMS:
            market, policy = hp.markets.s1(dim=dim), build(name, dim, ridge=0.1)
            floors, seconds = [], []
            for i in range(replications):
                floors.append(_floor(dim, i))
                result = hp.simulate(policy, market, horizon=HORIZON, replications=1, seed=i, workers=1)
                seconds.append(result.seconds[0])
            ours, theirs = float(np.median(seconds)), published("unknown-table", f"seconds, {label}, d = {dim}")
            ratios = np.array(seconds) / np.array(floors)
            rows.append(
                {
                    "policy": name,
                    "d": dim,
                    "ms": 1e3 * ours,
                    "authors' s": theirs,
                    "times faster": f"{theirs / ours:,.0f}",
                    "floor ms": 1e3 * float(np.median(floors)),
                    "times the floor": float(np.median(ratios)),
                    "best/best": float(min(seconds) / min(floors)),
                }
            )
    report("speed", f"S1, T = {HORIZON:,}, one core, median of {replications} runs alternating with the floor", rows)


def _best_of(work: Callable[[], Any], times: int = 7) -> tuple[float, Any]:
    result, best = None, math.inf
    for _ in range(times):
        began = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - began)
    return best, result


@app.command()
def mle(records: int = 100_000, columns: int = 50) -> None:
    """Full logistic MLE against glum and scikit-learn's newton-cholesky, same data, same tolerance, one run."""
    from glum import GeneralizedLinearRegressor
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    z = hp.markets.s1(dim=columns // 2).draw(rng, records)
    x = hp.estimation.design(z, rng.uniform(0, 3, records))
    theta = hp.markets.s1(dim=columns // 2).theta
    y = hp.Logistic().sample(x @ theta, rng)
    tolerance = 1e-8  # largest entry of the gradient of the mean loss

    def sklearn_fit() -> Any:
        model = LogisticRegression(solver="newton-cholesky", C=np.inf, fit_intercept=False, tol=tolerance)
        return model.fit(x, y).coef_[0]

    def glum_fit() -> Any:
        model = GeneralizedLinearRegressor(family="binomial", alpha=0, fit_intercept=False, gradient_tol=tolerance)
        return model.fit(x, y).coef_

    rows: Rows = []
    for name, work in (
        ("hushprice", lambda: hp.estimation.fit("logistic", x, y, tolerance=1e-2).theta),
        ("hushprice, default", lambda: hp.estimation.fit("logistic", x, y).theta),
        ("scikit-learn", sklearn_fit),
        ("glum", glum_fit),
    ):
        seconds, estimate = _best_of(work)
        gradient = x.T @ (hp.Logistic().mean(x @ estimate) - y) / records
        rows.append({"library": name, "ms": 1e3 * seconds, "gradient": f"{np.abs(gradient).max():.1e}"})
    for row in rows:
        row["times hushprice"] = float(row["ms"] / rows[0]["ms"])
    report("mle", f"Logistic MLE, n = {records:,}, {columns} coefficients, best of 7", rows)


@app.command()
def memory(replications: Count = 500, workers: Workers = 2) -> None:
    """Peak memory of 500 replications of 490 000 rounds at d = 25, all processes together."""
    policy, market = build("etc-doubling", 25), hp.markets.s1(dim=25)
    began = time.perf_counter()
    hp.simulate(policy, market, horizon=HORIZON, replications=replications, seed=0, workers=workers)
    seconds = time.perf_counter() - began
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    row = {"replications": replications, "seconds": seconds, "main MiB": own, "largest worker MiB": child}
    report("memory", "ETC-Doubling, S1, d = 25, T = 490 000", [row | {"bound MiB": own + workers * child}])


@app.command(name="all")
def everything() -> None:
    """Everything, the quick ones first."""
    speed()
    mle()
    bounds.seconds()
    private.seconds()
    private.noise()
    bounds.variants()
    bounds.drift()
    bounds.lower()
    bounds.adversarial()
    bounds.supcb()
    greedy()
    private.private()
    private.loan_noise()
    memory()
    look_ahead.look_ahead_seconds()
    look_ahead.regret(market="", others=False)
    look_ahead.regret(market="", others=True)
    look_ahead.long()
    look_ahead.warm()
    streaming.streaming(rows=50_000_000)
    coverage.offpolicy(logs=200, workers=-1, world="")
    coverage.bands(runs=400)
    service.load(seconds=5.0, rounds=3, database="both")
    service.workers(seconds=5.0, rounds=3)
    reliability.crash(kills=100)
    reliability.fuzz(cases=10_000)


if __name__ == "__main__":
    app()
