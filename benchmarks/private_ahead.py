"""Private look-ahead next to ETC-LDP, a constant price and no privacy; robustness, public customers, priors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer

import hushprice as hp
from benchmarks.common import Count, Rows, Workers, build, report
from benchmarks.look_ahead import prior_of_log

app = typer.Typer()
HORIZON = 500_000
Floats = Annotated[str, typer.Option(help="Numbers, as 1,4.")]
Seed = Annotated[int, typer.Option(help="Others were used to choose constants.")]


def ours(market: hp.Market, epsilon: float, *, name: str = "look-ahead-ldp", **options: Any) -> hp.policies.Policy:
    """Private look-ahead that knows the market's public features."""
    known = {"family": market.family, "dim": market.dim, "prices": market.prices, "features": market.features}
    return hp.policies.build(name, **{**known, "epsilon": epsilon, **options})


def _row(result: hp.simulation.Result, **cell: Any) -> dict[str, Any]:
    s = result.summary()
    early = float(result.paths[:, 0].mean())
    return cell | {
        "regret": s.mean, "se": s.se, "p95": s.p95, "p95 / mean": s.p95 / s.mean, "at T / 5": early,
        "s per run": s.seconds,
    }  # fmt: skip


@app.command()
def private_ahead(
    replications: Count = 30, workers: Workers = -1, seed: Seed = 7001, epsilons: Floats = "1", dims: Floats = "1,4,6",
    places: Floats = "0.5", others: Annotated[bool, typer.Option(help="Other policies, too.")] = True,
) -> None:  # fmt: skip
    """Regret of private look-ahead in S1, S2 and wide, T = 500 000, with the likely price at shares of the range."""
    rows: Rows = []
    options: Any = {
        "horizon": HORIZON, "replications": replications, "seed": seed, "workers": workers,
        "checkpoints": [HORIZON // 5, HORIZON],
    }  # fmt: skip
    for name in ("s1", "s2", "wide"):
        for dim in map(int, dims.split(",")):
            market = hp.markets.build(name, dim=dim)
            low, high = market.prices
            for epsilon in map(float, epsilons.split(",")):
                for place in map(float, places.split(",")):
                    policy = ours(market, epsilon, likely_price=low + place * (high - low))
                    cell = {"market": name, "d": dim, "epsilon": f"{epsilon:g}", "likely": f"{place:g}"}
                    rows.append(_row(hp.simulate(policy, market, **options), **cell, policy="look-ahead-ldp"))
                    print(rows[-1], flush=True)
                if others:
                    common = {"horizon": HORIZON, "epsilon": epsilon, "z_max": market.z_max()}
                    for label, more in (
                        ("etc-ldp, paper, l2-ball", {"score": "paper"}),
                        ("etc-ldp, centred, privunit", {"noise": "privunit"}),
                    ):
                        result = hp.simulate(build("etc-ldp", dim, **common, **more), market, **options)
                        cell = {"market": name, "d": dim, "epsilon": f"{epsilon:g}", "likely": ""}
                        rows.append(_row(result, **cell, policy=label))
            if others:
                middle = build("fixed-price", dim, price=0.5 * (low + high))
                for label, policy_ in (("middle of the range", middle), ("look-ahead", build("look-ahead", dim))):
                    few = options | {"replications": min(replications, 12)}
                    cell = {"market": name, "d": dim, "epsilon": "none", "likely": ""}
                    rows.append(_row(hp.simulate(policy_, market, **few), **cell, policy=label))
    report("private-ahead", f"T = {HORIZON:,}, {replications} replications, seed {seed}", rows)


def _redrawn(market: hp.Market, rng: np.random.Generator, share: float) -> hp.Market:
    """The market with each coefficient multiplied by a uniform number of 1 +- share."""
    alpha, beta = (value * (1.0 + share * rng.uniform(-1, 1, market.dim)) for value in (market.alpha, market.beta))
    return replace(market, alpha=alpha, beta=beta)


@app.command()
def private_robust(replications: Count = 30, seed: Seed = 7002, epsilon: float = 1.0) -> None:
    """Other coefficients and price ranges, wrong features, and public customers; d = 4, T = 500 000."""
    s1, s2 = hp.markets.s1(dim=4), hp.markets.s2(dim=4)
    box = [[0.0, 1.0]] * 4
    cases: dict[str, tuple[Callable[[np.random.Generator], hp.Market], dict[str, Any]]] = {
        "s1, coefficients +-50%": (lambda rng: _redrawn(s1, rng, 0.5), {}),
        "s2, coefficients +-50%": (lambda rng: _redrawn(s2, rng, 0.5), {}),
        "s2, coefficients +-90%": (lambda rng: _redrawn(s2, rng, 0.9), {}),
        "s1, prices 0 to 6": (lambda _: replace(s1, prices=(0.0, 6.0)), {}),
        "s1, best price low": (lambda _: replace(s1, beta=3.0 * s1.beta), {}),
        "s2, best price high": (lambda _: replace(s2, beta=0.6 * s2.beta), {}),
        "s2, group declared as numbers": (lambda _: s2, {"features": box}),
        "s2 +-50%, group declared as numbers": (lambda rng: _redrawn(s2, rng, 0.5), {"features": box}),
        "s1, 10% public": (lambda _: hp.markets.s1(dim=4, public=0.1), {"public": True}),
        "s2, 10% public": (lambda _: hp.markets.s2(dim=4, public=0.1), {"public": True}),
        "s1, from a log of 2 000": (lambda _: s1, {"log": 2_000}),
        "wide, from a log of 2 000": (lambda _: hp.markets.wide(dim=4), {"log": 2_000}),
    }
    rows: Rows = []
    for label, (make, own) in cases.items():
        regrets = []
        for i in range(replications):
            market, options = make(np.random.default_rng([seed, i])), dict(own)
            name = "look-ahead-mixed" if options.pop("public", False) else "look-ahead-ldp"
            if n := options.pop("log", 0):
                options["prior"] = prior_of_log(market, n, i)
            policy = ours(market, epsilon, name=name, **options)
            result = hp.simulate(policy, market, horizon=HORIZON, replications=1, seed=seed + i, workers=1)
            regrets.append(float(result.regret[0]))
        r = np.array(regrets)
        rows.append(
            {
                "case": label, "regret": float(r.mean()), "se": float(r.std(ddof=1) / len(r) ** 0.5),
                "p95": float(np.percentile(r, 95)), "largest": float(r.max()),
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    report("private-robust", f"epsilon = {epsilon:g}, T = {HORIZON:,}, {replications} replications", rows)
