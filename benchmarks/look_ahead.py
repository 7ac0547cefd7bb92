"""Look-ahead pricing next to every other policy: regret over markets, long runs, a start from a log, and its speed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy.special import ndtr

import hushprice as hp
from benchmarks.common import Count, Rows, Workers, build, report
from benchmarks.markets import MARKETS, kz_twin
from hushprice.arrays import Array
from hushprice.errors import InvalidInput
from hushprice.simulation import Result
from hushprice.studies.spec_strings import options_of, policy_from

app = typer.Typer()
HORIZON, LONG = 20_000, 490_000
TEN = ("s1", "s2", "wide", "a1", "a2", "lower-bound", "poisson", "boundary", "s1 redrawn", "standard")
OTHERS = ("s2 redrawn", "mixed", "dummies", "low", "s1 with intercept", "wide with intercept")
KNOWS = ("clairvoyant", "fixed-price")  # they know demand, or the best single price
OURS, THEIRS = "look-ahead", "etc-doubling"
Market = Annotated[str, typer.Option(help="One market only.")]


def words() -> list[str]:
    """Every registered policy, private ones at epsilon 4 with the better noise where there is a choice."""
    private = {name: ":epsilon=4" for name, cls in hp.policies.REGISTRY.items() if cls.private}
    return [
        name + private.get(name, "") + ",noise=privunit" * (name in private and "noise" in options_of(cls))
        for name, cls in hp.policies.REGISTRY.items()
    ]


def _results(names: Sequence[str], market: hp.Market, **options: Any) -> dict[str, Result]:
    """Results by word; policies that this market does not suit are left out."""
    results = {}
    for word in names:
        try:
            policy = policy_from(word, market, options["horizon"])
            results[word] = hp.simulate(policy, market, checkpoints=1, **options)
        except InvalidInput as problem:
            print(f"{market.name}: {word} is left out. {problem}")
    return results


def _row(market: str, dim: int, word: str, result: Result, results: Mapping[str, Result]) -> dict[str, Any]:
    s, learners = result.summary(), [r for name, r in results.items() if name not in (*KNOWS, OURS)]
    return {
        "market": market, "d": dim, "policy": word, "regret": s.mean, "se": s.se, "p95": s.p95,
        "of the best other": s.mean / min(r.regret.mean() for r in learners),
        "of etc-doubling": s.mean / results[THEIRS].regret.mean(),
        "deviation": f"{s.deviation:.1%}", "far": f"{s.far:.1%}", "us": 1e6 * s.seconds / s.horizon,
    }  # fmt: skip


@app.command()
def regret(
    replications: Count = 40, seed: int = 2001, workers: Workers = -1, market: Market = "",
    others: Annotated[bool, typer.Option(help="Segments that differ, steep demand, a constant of no effect.")] = False,
) -> None:  # fmt: skip
    """Every registered policy in ten markets, T = 20 000, d = 4; S1 and S2 at d = 1, 9 and 25, too."""
    cells = [(name, 4) for name in TEN] + [(name, dim) for name in ("s1", "s2") for dim in (1, 9, 25)]
    if others:
        cells = [(name, dim) for name in OTHERS for dim in (4, 9)]
    rows: Rows = []
    for name, dim in cells:
        if market in ("", name):
            world = MARKETS[name](dim)
            chosen = words() if dim == 4 else [word for word in words() if not word.startswith("supcb")]
            results = _results(chosen, world, horizon=HORIZON, replications=replications, seed=seed, workers=workers)
            rows += [_row(name, dim, word, result, results) for word, result in results.items()]
    ours = [row for row in rows if row["policy"] == OURS]
    file = "regret-others" if others else "regret"
    report(file, f"T = {HORIZON:,}, {replications} replications, seed {seed}", rows)
    report(f"{file}-look-ahead", "look-ahead alone", ours)
    mean = math.exp(float(np.mean([math.log(row["of etc-doubling"]) for row in ours if row["d"] == 4])))
    print(f"Geometric mean of the ratio to etc-doubling over the markets at d = 4: {mean:.3f}")


@app.command()
def long(replications: Count = 30, seed: int = 2002, workers: Workers = -1) -> None:
    """S1 and S2 at T = 490 000, next to ETC-Doubling as in the paper (ridge 0.1)."""
    rows: Rows = []
    for name, dim in [("s1", dim) for dim in (1, 4, 9, 16, 25)] + [("s2", 4), ("s2", 9)]:
        market = MARKETS[name](dim)
        policies = {OURS: build(OURS, dim), THEIRS: build(THEIRS, dim, ridge=0.1)}
        results = dict(
            hp.compare(policies, market, horizon=LONG, replications=replications, seed=seed, workers=workers).items()
        )
        rows += [_row(name, dim, word, result, results) for word, result in results.items()]
    report("long", f"T = {LONG:,}, {replications} replications, seed {seed}", rows)


@app.command()
def look_ahead_seconds(replications: Count = 7) -> None:
    """Microseconds per customer of look-ahead, one core, in simulation and live."""
    rows: Rows = []
    for name in ("s1", "s2"):
        for dim in (1, 4, 9, 25):
            market, policy = MARKETS[name](dim), build(OURS, dim)
            runs = [
                hp.simulate(policy, market, horizon=100_000, replications=1, seed=i).seconds[0]
                for i in range(replications)
            ]
            pricer, z = policy.start(seed=1), market.draw(np.random.default_rng(1), 3000)
            for i in range(1000):
                pricer.observe(pricer.offer(z[i]), i % 2)
            began = time.perf_counter()
            for i in range(1000, 3000):
                pricer.observe(pricer.offer(z[i]), i % 2)
            live = (time.perf_counter() - began) / 2000
            rows.append(
                {"market": name, "d": dim, "simulated, us": 10.0 * float(np.median(runs)), "live, us": 1e6 * live}
            )
    report("look-ahead-seconds", f"Microseconds per customer, T = 100 000, median of {replications}", rows)


CHECKPOINTS = [1_000, 10_000, 50_000]
CONFOUNDED = 0.8  # correlation of price and the unseen feature, in normal scores


def _log(market: hp.Market, rows: int, rng: np.random.Generator, *, unseen: float) -> tuple[Array, Array, Array]:
    """(z, prices, outcomes) of a log. A feature that it lacks has the effect ``unseen`` on demand, and moves prices."""
    z, hidden = market.draw(rng, rows), rng.standard_normal(rows)
    low, high = market.prices
    tied = CONFOUNDED if unseen else 0.0
    score = tied * hidden + math.sqrt(1.0 - tied**2) * rng.standard_normal(rows)
    price = low + (high - low) * ndtr(score)
    y = market.family.sample(z @ market.alpha - price * (z @ market.beta) + unseen * hidden, rng)
    return z, price, y


def prior_of_log(market: hp.Market, rows: int, seed: int, *, unseen: float = 0.0) -> hp.Prior:
    """What a fit of such a log knows."""
    rng = np.random.default_rng(seed)
    z, price, y = _log(market.truth(rng) if unseen else market, rows, rng, unseen=unseen)
    fitted = hp.estimation.fit(market.family, hp.estimation.design(z, price), y, ridge=1e-6)
    return hp.Prior.of_estimate(fitted.theta, fitted.covariance)


def _starts(market: hp.Market, prior: hp.Prior) -> dict[str, hp.policies.Policy]:
    """Look-ahead with this prior, with a quarter of its weight, and the prices that the prior's estimate makes best."""
    common: dict[str, Any] = {
        "family": market.family,
        "dim": market.dim,
        "prices": market.prices,
        "rules": market.rules,
    }
    wider = hp.Prior(prior.centre, 0.25 * prior.precision)
    return {
        "from the log": hp.policies.LookAhead(**common, prior=prior),
        "from the log, trust 0.25": hp.policies.LookAhead(**common, prior=wider),
        "the model's prices": hp.policies.Clairvoyant(**common, theta=prior.centre),
    }


@app.command()
def warm(
    replications: Count = 30, logs: int = 10, seed: int = 2003, workers: Workers = -1,
    log: Annotated[Path, typer.Option(help="The log of docs/tutorial.md.")] = Path("karlan-zinman.csv.gz"),
) -> None:  # fmt: skip
    """What is lost after 1 000, 10 000 and 50 000 customers: from nothing, from a log, and with the log's prices.

    In ``wide`` the replications are divided evenly among some logs of 2 000 random prices each. In the Karlan-Zinman
    twin each replication draws its truth from the covariance of the real log's estimate. The confounded logs have half
    as many rows, and prices that rise with a feature which they do not hold.
    """
    wide = hp.markets.wide(dim=4)
    markets: dict[str, tuple[hp.Market, int]] = {"wide": (wide, 2_000)}
    if log.exists():
        markets["karlan-zinman twin"] = (kz_twin(log), 53_810)
    rows: Rows = []
    for label, (market, size) in markets.items():
        covariance = market.covariance
        drawn = logs if covariance is None else 1
        runs: dict[str, list[Result]] = {}
        for k in range(drawn):
            real = (
                prior_of_log(market, size, k) if covariance is None else hp.Prior.of_estimate(market.theta, covariance)
            )
            bad = prior_of_log(market, size // 2, 100 + k, unseen=0.5)
            common: dict[str, Any] = {"family": market.family, "dim": market.dim, "prices": market.prices}
            started = {"from nothing": hp.policies.LookAhead(**common, rules=market.rules)} | _starts(market, real)
            started |= {f"confounded: {start}": policy for start, policy in _starts(market, bad).items()}
            for start, policy in started.items():
                one = hp.simulate(
                    policy, market, horizon=CHECKPOINTS[-1], replications=max(1, replications // drawn), seed=seed + k,
                    workers=workers, checkpoints=CHECKPOINTS,
                )  # fmt: skip
                runs.setdefault(start, []).append(one)
        for start, results in runs.items():
            paths = np.concatenate([r.paths for r in results])
            se, p95 = paths.std(axis=0, ddof=1) / math.sqrt(len(paths)), np.quantile(paths, 0.95, axis=0)
            row: dict[str, Any] = {"market": label, "start": start}
            for j, n in enumerate(CHECKPOINTS):
                row |= {
                    f"after {n:,}": float(paths[:, j].mean()),
                    f"se {n:,}": float(se[j]),
                    f"p95 {n:,}": float(p95[j]),
                }
            rows.append(row)
    report("warm", f"Revenue lost, {replications} replications, seed {seed}", rows)
