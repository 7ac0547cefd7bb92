"""Private policies: what privacy costs, under the paper's oracle Theta and under one that a user can know; seconds."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

import hushprice as hp
from benchmarks.common import Count, Rows, Workers, build, console, report
from hushprice.cli.output import progress_bar
from hushprice.privacy import Gaussian, L2Ball, PrivUnit
from hushprice.privacy.caps import ideal_cap

app = typer.Typer()
PUBLIC = 0.1
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "ETC-LDP, L2Ball": ("etc-ldp", {}),
    "ETC-LDP, PrivUnit": ("etc-ldp", {"noise": "privunit"}),
    "Approx 1e-3": ("etc-ldp-approx", {"delta": 1e-3}),
    "Approx 1e-3, paper's sigma": ("etc-ldp-approx", {"delta": 1e-3, "calibration": "paper"}),
    "Mixed 10%, L2Ball": ("etc-ldp-mixed", {}),
    "Mixed 10%, PrivUnit": ("etc-ldp-mixed", {"noise": "privunit"}),
}
Markets = Annotated[str, typer.Option(help="Markets, as s1,s2.")]


def theta_of(kind: str, market: hp.Market) -> dict[str, Any]:
    """Theta: the paper's ball at the truth, or one at 0 that a user can know."""
    if kind == "oracle":
        return {"centre": market.theta, "radius": math.sqrt(market.dim)}
    return {"radius": 4.0 if market.name == "s1" else 2.0 * math.sqrt(2.0 * market.dim)}


@app.command()
def private(replications: Count = 50, workers: Workers = -1, markets: Markets = "s1,s2") -> None:
    """Regrets of the private policies: S1 and S2, T = 1e5 and 5e5, d = 1, 4, 6, epsilon = 1, 4."""
    cells = list(itertools.product((1, 4, 6), (100_000, 500_000), (1.0, 4.0), ("oracle", "zero"), ("paper", "centred")))
    for name in markets.split(","):
        rows: Rows = []
        etc: dict[tuple[int, int], float] = {}
        with progress_bar(console, len(cells)) as advance:
            for d, T, epsilon, theta, score in cells:
                market = hp.markets.build(name, dim=d, public=PUBLIC)
                simulate = partial(
                    hp.simulate, market=market, horizon=T, replications=replications, seed=6, workers=workers
                )
                row: dict[str, Any] = {"d": d, "T": T, "epsilon": epsilon, "Theta": theta, "score": score}
                if (d, T) not in etc:
                    etc[d, T] = float(simulate(build("etc", d, horizon=T, ridge=0.1)).regret.mean())
                row["ETC"] = etc[d, T]
                arguments = {"horizon": T, "epsilon": epsilon, "z_max": market.z_max(), "score": score}
                for label, (policy, options) in KINDS.items():
                    if options.get("calibration") == "paper" and epsilon > 1.0:
                        row |= {label: "", f"{label}, se": ""}
                        continue
                    s = simulate(build(policy, d, **arguments, **theta_of(theta, market), **options)).summary()
                    row |= {label: s.mean, f"{label}, se": s.se}
                rows.append(row)
                report(f"private-{name}", f"{name}, {replications} replications", rows[-1:], stored=rows)
                advance(1)


@app.command(name="private-seconds")
def seconds(repeats: Annotated[int, typer.Option(help="Runs of each; the median is printed.")] = 7) -> None:
    """One replication of 900 000 rounds at d = 6, one core."""
    T, d = 900_000, 6
    market = hp.markets.s1(dim=d, public=PUBLIC)
    rows: Rows = []
    for epsilon in (1.0, 4.0):
        for label, (name, options) in KINDS.items():
            if options.get("calibration") == "paper":
                continue
            policy = build(name, d, horizon=T, epsilon=epsilon, z_max=2.0, radius=4.0, **options)
            hp.simulate(policy, market, horizon=1000, replications=1)
            runs = hp.simulate(policy, market, horizon=T, replications=repeats, seed=1)
            rows.append(
                {
                    "policy": label, "epsilon": epsilon, "experiments": int(runs.exploration.mean() * T),
                    "median s": float(np.median(runs.seconds)), "slowest s": float(runs.seconds.max()),
                }
            )  # fmt: skip
    report("private-seconds", f"S1, d = {d}, T = {T:,}", rows)


@app.command(name="noise")
def noise() -> None:
    """Squared error of the mechanisms at clip 1, next to the ideal cap's."""
    rows: Rows = []
    for n in (2, 8, 12, 50):
        for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0):
            ball, cap = L2Ball(epsilon=epsilon, clip=1.0, dim=n), PrivUnit(epsilon=epsilon, clip=1.0, dim=n)
            gauss = Gaussian(epsilon=epsilon, delta=1e-3, clip=1.0, dim=n)
            rows.append(
                {
                    "n": n, "epsilon": epsilon, "L2Ball": ball.worst_squared_error, "PrivUnit": cap.worst_squared_error,
                    "ideal cap": ideal_cap(epsilon, n).squared_length, "Gaussian 1e-3": gauss.worst_squared_error,
                    "PrivUnit / L2Ball": cap.worst_squared_error / ball.worst_squared_error,
                    "pairs": cap.pairs, "top": cap.top,
                }
            )  # fmt: skip
    report("noise", "Worst squared error at clip 1", rows)


@app.command(name="loan-noise")
def loan_noise(replications: Count = 20) -> None:
    """The auto loan study's private SGD with a part of the stated noise: what the reported regrets look like.

    The paper's steps in plain NumPy, all replications at once, with Gaussian noise of the L2-ball's variance times the
    square of ``noise``; the published regrets are 15 592, 10 057 and 7 022 at epsilon = 1, 2, 4.
    """
    market, T, d = hp.markets.autoloan(), 208_085, 5
    rows: Rows = []
    for noise in (1.0, 0.3, 0.1, 0.05, 0.02):
        row: dict[str, Any] = {"noise, times stated": noise}
        for epsilon in (1.0, 2.0, 4.0):
            regret = _loan_regret(market, T, d, epsilon, noise, replications)
            row |= {f"epsilon {epsilon:g}": float(regret.mean())}
            row |= {f"se {epsilon:g}": float(regret.std(ddof=1) / math.sqrt(replications))}
        rows.append(row)
    report("loan-noise", f"{market.name}, T = {T:,} unknown, {replications} replications", rows)


def _loan_regret(market: hp.Market, T: int, d: int, epsilon: float, noise: float, n: int) -> Any:
    policy = hp.policies.ETCLDPDoubling(
        family=hp.Logistic(), dim=d, prices=(0, 10), epsilon=epsilon, z_max=market.z_max(), score="paper",
        experiment_prices=(0, 3), radius=math.sqrt(d), centre=tuple(market.theta),
    )  # fmt: skip
    sigma = noise * policy.mechanism.worst_squared_error**0.5 / math.sqrt(2 * d)
    rng, family = np.random.default_rng(1), market.family
    direction = rng.standard_normal((n, 2 * d))
    length = rng.random((n, 1)) ** (1 / (2 * d)) / np.linalg.norm(direction, axis=1, keepdims=True)
    centre = market.theta + direction * length
    theta, regret, t = centre.copy(), np.zeros(n), 0
    sample = market.draw(rng, 10_000)
    a, b = sample @ market.alpha, sample @ market.beta
    best = family.optimal_revenue(a, b, market.prices)
    experiment = float(np.mean(best - np.mean([family.revenue(p, a, b) for p in np.linspace(0, 3, 61)], axis=0)))
    for q in range(1, 18):
        tau, E = policy.episode(q)
        E = min(E, T - (2**q - 2))
        for _ in range(min(tau, E)):
            t += 1
            z, p = market.draw(rng, n), rng.uniform(0, 3, (n, 1))
            x = np.hstack([z, -p * z])
            y = rng.random(n) < family.mean(x @ market.theta)
            score = (y - family.mean((x * theta).sum(axis=1)))[:, None] * x
            theta += (score + sigma * rng.standard_normal(theta.shape)) / (policy.zeta * t)
            gap = theta - centre
            far = np.linalg.norm(gap, axis=1, keepdims=True)
            theta = centre + gap * np.minimum(1.0, math.sqrt(d) / far)
        for i in range(n):
            price = family.optimal_price(sample @ theta[i, :d], sample @ theta[i, d:], market.prices)
            loss = float(np.mean(best - family.revenue(price, a, b)))
            regret[i] += tau * experiment + (E - min(tau, E)) * loss
    return regret
