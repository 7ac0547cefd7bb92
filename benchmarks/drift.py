"""Demand that changes, and demand that does not follow the model: what each costs, and whether it is noticed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import joblib
import numpy as np
import typer
from scipy.special import expit, ndtr, ndtri

import hushprice as hp
from benchmarks.common import Count, Rows, Workers, build, report
from benchmarks.markets import MARKETS, kz_twin
from hushprice.arrays import Array
from hushprice.policies.look_ahead import AheadServer
from hushprice.privacy import UnsafeSeed
from hushprice.simulation import streams
from hushprice.studies.spec_strings import policy_from

app = typer.Typer()
KINDS = ("none", "jump", "walk", "wave", "season")
MEMORIES = (300, 1_000, 3_000, 10_000, 30_000)
WORDS = (
    "look-ahead", "look-ahead:memory=none", *(f"look-ahead:memory={n}" for n in MEMORIES),
    "etc-doubling", "etc-doubling:restart=on-change",
)  # fmt: skip
SLOW = ("ucb", "ucb:restart=on-change")  # in the short runs of the small markets only
KZ = "karlan-zinman twin"
Log = Annotated[Path, typer.Option(help="The log of docs/tutorial.md.")]


def _market(name: str, log: Path) -> hp.Market:
    return kz_twin(log) if name == KZ else MARKETS[name](4)


@app.command()
def drift(
    horizon: int = 20_000, replications: Count = 30, seed: int = 4001, workers: Workers = -1, market: str = "",
    log: Log = Path("karlan-zinman.csv.gz"),
) -> None:  # fmt: skip
    """Regret under no drift, a jump, a walk, a wave and seasons, of memories and of policies that restart."""
    rows: Rows = []
    for name in ("s1", "s2", "wide", KZ):
        if market not in ("", name) or (name == KZ and not log.exists()):
            continue
        base = _market(name, log)
        for kind in KINDS:
            world = base if kind == "none" else hp.markets.drifting(base, kind)
            cell: Rows = []
            for word in WORDS + SLOW * (name != KZ and horizon <= 20_000):
                if horizon > 20_000 and word.endswith(("=300", "=3000", "=30000")):
                    continue
                try:
                    policy = policy_from(word, world, horizon)
                except hp.HushpriceError as problem:
                    print(f"{name}: {word} is left out. {problem}")
                    continue
                result = hp.simulate(
                    policy, world, horizon=horizon, replications=replications, seed=seed, workers=workers, checkpoints=1
                )
                s = result.summary()
                cell.append(
                    {"market": name, "drift": kind, "policy": word, "regret": s.mean, "se": s.se, "p95": s.p95,
                     "us": 1e6 * s.seconds / horizon}
                )  # fmt: skip
            fixed = min(row["regret"] for row in cell if "memory=" in row["policy"])
            rows += [row | {"of the best fixed memory": row["regret"] / fixed} for row in cell]
            print(name, kind, *(f"{row['policy']} {row['regret']:.0f}" for row in cell), sep="; ", flush=True)
    report(f"drift-{horizon}", f"Regret, T = {horizon:,}, d = 4, {replications} replications, seed {seed}", rows)


def _watch(market: hp.Market, horizon: int, seed: int, replication: int, start: int = 0) -> tuple[int, int, int]:
    """Changes found by look-ahead in one run, outcomes when the first after ``start`` was found, and misfit alarms.

    The last two are looked at once per block.
    """
    seeds = streams(seed, replication)
    contexts, demand, exploration = (np.random.default_rng(s) for s in seeds[:3])
    policy = hp.policies.LookAhead(family=market.family, dim=market.dim, prices=market.prices, rules=market.rules)
    loop = policy.loop(UnsafeSeed(seeds[3]))
    server, alarms, first = loop.server, 0, 0
    assert isinstance(server, AheadServer)
    for block in market.truth(np.random.default_rng(seeds[6])).blocks(contexts, demand, horizon):
        loop.sell(block, exploration)
        alarms += bool(server.misfits)
        change = server.change
        if not first and change is not None and change.found > start:
            first = change.found
    return 0 if change is None else change.count, first, alarms


@app.command()
def alarms(
    replications: Count = 20, seed: int = 4002, workers: Workers = -1, log: Log = Path("karlan-zinman.csv.gz")
) -> None:
    """False alarms per million customers without change, and customers until a change is noticed."""
    parallel = joblib.Parallel(n_jobs=workers)
    rows: Rows = []
    for name in ("s1", "s2", "wide", "standard", "a1", "poisson", "s1 redrawn", "mixed", KZ):
        if name == KZ and not log.exists():
            continue
        found = parallel(joblib.delayed(_watch)(_market(name, log), 100_000, seed, r) for r in range(replications))
        counts = np.array(found)
        million = replications * 0.1
        rows.append(
            {"market": name, "customers": f"{million:.0f} million", "changes per million": counts[:, 0].sum() / million,
             "runs with a misfit alarm": int((counts[:, 2] > 0).sum())}
        )  # fmt: skip
    report("alarms-false", "False alarms", rows)
    rows = []
    start, horizon = 10_000, 60_000
    for name in ("s1", "s2", "wide"):
        for size in (-0.5, -0.2, -0.1, 0.1, 0.2, 0.5):
            world = hp.markets.drifting(_market(name, log), "jump", sensitivity=size, at=start + 1)
            found = parallel(joblib.delayed(_watch)(world, horizon, seed + 1, r, start) for r in range(replications))
            waits = np.array([when - start for _, when, _ in found if when])
            rows.append(
                {"market": name, "change of the sensitivity": f"{size:+.0%}", "noticed": len(waits) / replications,
                 "median wait": float(np.median(waits)) if len(waits) else math.nan,
                 "p90": float(np.quantile(waits, 0.9)) if len(waits) else math.nan}
            )  # fmt: skip
    report("alarms-wait", f"Customers until a change after {start:,} is noticed, within {horizon - start:,}", rows)


# -- demand that does not follow the model ---------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """Demand that is not logistic in (z, -p z), and what the alarm's advice leads to."""

    chance: Callable[[Array, Array, Array], Array]  # of a sale, from (z, what the seller does not see, price)
    base: str = "s1"
    hidden: Callable[[np.random.Generator, int], Array] | None = None  # what the seller does not see,
    nodes: tuple[float, ...] = (0.0,)  # and equally likely values of it, to average over
    advice: str = "a constant"
    prices: tuple[float, float] = (0.0, 3.0)  # the range that the advice leads to
    shown: bool = False  # whether the seller adds the feature
    constant: bool = False  # whether the seller adds a constant


def _two(rng: np.random.Generator, n: int) -> Array:
    return rng.integers(0, 2, n).astype(np.float64)


def _normal(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_normal(n)


def _ab(z: Array, level: float) -> tuple[Array, Array]:
    total = z.sum(axis=1) / math.sqrt(z.shape[1])
    return level * total, total


TRUTHS = {
    "logistic, s1": Truth(lambda z, h, p: expit(_ab(z, 1.6)[0] - p * _ab(z, 1.6)[1])),
    "probit, s1": Truth(lambda z, h, p: ndtr(_ab(z, 1.6)[0] - p * _ab(z, 1.6)[1])),
    "two segments, s1": Truth(
        lambda z, h, p: expit(_ab(z, 1.6)[0] - p * _ab(z, 1.6)[1] * np.where(h > 0.5, 2.0, 0.4)),
        hidden=_two, nodes=(0.0, 1.0), advice="the feature", shown=True,
    ),
    "kink, s1": Truth(
        lambda z, h, p: expit(_ab(z, 1.6)[0] - p * 0.5 * _ab(z, 1.6)[1] - 6.0 * np.maximum(p - 1.5, 0.0)),
        advice="prices 1.2 to 2", prices=(1.2, 2.0),
    ),
    "missing feature, s1": Truth(
        lambda z, h, p: expit(_ab(z, 1.6)[0] + 1.5 * h - p * _ab(z, 1.6)[1]),
        hidden=_normal, nodes=tuple(ndtri((np.arange(20) + 0.5) / 20)), advice="the feature", shown=True,
    ),
    "missing constant, wide": Truth(
        lambda z, h, p: expit(3.0 - 2.0 * p + _ab(z, 0.5)[0] - 0.3 * p * _ab(z, 0.5)[1]), base="wide", constant=True,
    ),
    "kink, wide": Truth(
        lambda z, h, p: expit(_ab(z, 0.5)[0] - 0.3 * p * _ab(z, 0.5)[1] - 4.0 * np.maximum(p - 1.5, 0.0)),
        base="wide", constant=True,
    ),
}  # fmt: skip


def _misfit_run(name: str, follow: bool, seed: int, replication: int, horizon: int) -> tuple[float, float, str]:
    """Regret against the best price that the seller's features allow, customers until the first alarm, its text."""
    truth, (first, second, third) = TRUTHS[name], streams(seed, replication)[:3]
    rng, coins = np.random.default_rng(first), np.random.default_rng(second)
    z = MARKETS[truth.base](4).draw(rng, horizon)
    hidden = np.zeros(horizon) if truth.hidden is None else truth.hidden(rng, horizon)
    uniforms = coins.random(horizon)
    own, prices = z, (0.0, 3.0)
    if follow:
        own = np.c_[z, hidden] if truth.shown else np.c_[np.ones(horizon), z] if truth.constant else z
        prices = truth.prices
    policy = replace(build("look-ahead", own.shape[1]), prices=prices)
    live = policy.start(seed=int(third.generate_state(1)[0]))
    prices_quoted, alarm, words = np.empty(horizon), math.nan, ""
    for i in range(horizon):
        offer = live.offer(own[i])
        prices_quoted[i] = offer.price
        bought = uniforms[i] < truth.chance(z[i : i + 1], hidden[i : i + 1], prices_quoted[i : i + 1])[0]
        live.observe(offer, float(bought))
        if math.isnan(alarm) and i % 500 == 499 and live.misfits:
            alarm, words = float(i + 1), str(live.misfits[0])
    known = hidden if truth.shown and follow else None
    return _lost(truth, z, known, prices_quoted), alarm, words


def _lost(truth: Truth, z: Array, known: Array | None, prices: Array) -> float:
    """Profit lost against the best price for what the seller sees: z and, if it is known, the rest."""
    grid, lost = np.linspace(0.0, 3.0, 241), 0.0
    for i in range(0, len(z), 500):
        rows, p = z[i : i + 500], prices[i : i + 500]
        n = len(rows)
        values = [np.full(n, node) for node in truth.nodes] if known is None else [known[i : i + 500]]

        def profit(at: Array, rows: Array = rows, values: list[Array] = values) -> Array:
            return np.asarray(at * np.mean([truth.chance(rows, h, at) for h in values], axis=0))

        best = np.max([profit(np.full(n, price)) for price in grid], axis=0)
        lost += float((best - profit(p)).sum())
    return lost


@app.command()
def misfits(replications: Count = 30, seed: int = 4003, workers: Workers = -1, horizon: int = 20_000) -> None:
    """Regret where demand does not follow the model, whether the alarm sounds, and what its advice gains."""
    rows: Rows = []
    for name, truth in TRUTHS.items():
        for follow in (False, True):
            if follow and not (truth.constant or truth.shown or truth.prices != (0.0, 3.0)):
                continue
            runs = joblib.Parallel(n_jobs=workers)(
                joblib.delayed(_misfit_run)(name, follow, seed, r, horizon) for r in range(replications)
            )
            regret, alarm = np.array([run[0] for run in runs]), np.array([run[1] for run in runs])
            heard = alarm[~np.isnan(alarm)]
            row: dict[str, Any] = {
                "demand": name, "model": (f"with {truth.advice}" if follow else "as it is"), "regret": regret.mean(),
                "se": regret.std(ddof=1) / math.sqrt(replications), "p95": float(np.quantile(regret, 0.95)),
                "alarm": len(heard) / replications, "median wait": float(np.median(heard)) if len(heard) else math.nan,
            }  # fmt: skip
            rows.append(row)
            print(name, row, next((run[2] for run in runs if run[2]), ""), flush=True)
    report("misfits", f"T = {horizon:,}, {replications} replications, seed {seed}", rows)
