"""Look-ahead next to other packages for contextual bandits, on the same customers (`pip install .[bench,peers]`).

Each of them chooses among equispaced prices. Those with a model of the reward get price times demand as reward;
bayesianbandits gets the demand model itself, (z, -p z) with a logit link. A few settings of each are tried on some
seeds; the best of them is run on others.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import typer

import hushprice as hp
from benchmarks.common import Count, Rows, build, report
from benchmarks.markets import MARKETS, kz_twin
from hushprice.arrays import Array
from hushprice.simulation import streams

app = typer.Typer()
TRIAL_SEED, TRIAL_HORIZON, TRIALS = 3001, 5_000, 2
SEED, HORIZON = 3101, 20_000


class Peer(Protocol):
    """A pricing policy that learns one customer at a time."""

    def price(self, z: Array) -> float:
        """A price for this customer."""

    def learn(self, z: Array, price: float, y: float) -> None:
        """Learn from the outcome."""


class Live:
    """A policy of ours, in live use."""

    def __init__(self, market: hp.Market, seed: int, name: str = "look-ahead") -> None:
        policy = hp.policies.build(name, family=market.family, dim=market.dim, prices=market.prices, cost=market.cost)
        self.pricer = policy.start(seed=seed)
        self.offer = -1

    def price(self, z: Array) -> float:
        offer = self.pricer.offer(z)
        self.offer = offer.id
        return float(offer.price)

    def learn(self, z: Array, price: float, y: float) -> None:
        self.pricer.observe(self.offer, y)


def _grid(market: hp.Market, arms: int) -> Array:
    return np.linspace(*market.prices, arms)


class BayesianBandits:
    """A shared Bayesian logistic regression with Thompson sampling or an upper quantile."""

    def __init__(
        self, market: hp.Market, seed: int, *, policy: str, arms: int = 20, alpha: float = 1.0, memory: int = 0
    ) -> None:
        import bayesianbandits as bb

        forgetting = bb.ExponentialForgetting(1.0 - 1.0 / memory) if memory else None

        def features(z: Array, prices: Any) -> Array:
            p = np.asarray(prices, dtype=np.float64)
            return np.concatenate([np.repeat(z[:, :, None], len(p), 2), -z[:, :, None] * p], axis=1)

        rules = {
            "thompson": bb.ThompsonSampling,
            "upper 0.84": lambda: bb.UpperConfidenceBound(alpha=0.84, samples=200),
        }
        self.agent = bb.LipschitzContextualAgent(
            arms=[
                bb.Arm(float(p), reward_function=lambda y, p=float(p): (p - market.cost) * y)
                for p in _grid(market, arms)
            ],
            policy=rules[policy](),
            arm_featurizer=bb.FunctionArmFeaturizer(features),
            learner=bb.BayesianGLM(alpha=alpha, forgetting=forgetting, approximator=bb.LaplaceApproximator(n_iter=1)),
            random_seed=seed,
        )

    def price(self, z: Array) -> float:
        (p,) = self.agent.pull(z[None, :])
        return float(p)

    def learn(self, z: Array, price: float, y: float) -> None:
        self.agent.update(z[None, :], np.array([y]))


class MABWiser:
    """A linear regression of the reward per price."""

    def __init__(self, market: hp.Market, seed: int, *, policy: str, alpha: float, arms: int = 11) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        rules = {"ucb": LearningPolicy.LinUCB, "thompson": LearningPolicy.LinTS}
        self.grid, self.cost, d = _grid(market, arms), market.cost, market.dim
        self.mab = MAB(list(range(arms)), rules[policy](alpha=alpha), seed=seed)
        self.mab.fit(list(range(arms)), [0.0] * arms, np.zeros((arms, d)))

    def price(self, z: Array) -> float:
        return float(self.grid[self.mab.predict([z.tolist()])])

    def learn(self, z: Array, price: float, y: float) -> None:
        arm = int(np.argmin(np.abs(self.grid - price)))
        self.mab.partial_fit([arm], [(price - self.cost) * y], [z.tolist()])


class VowpalWabbit:
    """A contextual bandit whose actions have the features p, p^2, p z and p^2 z."""

    def __init__(self, market: hp.Market, seed: int, *, options: str, arms: int = 11) -> None:
        from vowpalwabbit import Workspace

        self.grid, self.cost, self.rng = _grid(market, arms), market.cost, np.random.default_rng(seed)
        self.scale = market.prices[1]
        self.vw = Workspace(f"--cb_explore_adf -q za --cubic zab --quiet --random_seed {seed} {options}")
        self.chosen = (0, 1.0)

    def _lines(self, z: Array, label: str = "") -> list[str]:
        shared = "shared |z " + " ".join(f"f{j}:{value:.6g}" for j, value in enumerate(z))
        lines = [f"|a p:{p / self.scale:.6g} |b p:{p / self.scale:.6g}" for p in self.grid]
        if label:
            lines[self.chosen[0]] = f"{label} {lines[self.chosen[0]]}"
        return [shared, *lines]

    def price(self, z: Array) -> float:
        chances = np.array(self.vw.predict(self._lines(z)))
        arm = int(self.rng.choice(len(chances), p=chances / chances.sum()))
        self.chosen = (arm, float(chances[arm]))
        return float(self.grid[arm])

    def learn(self, z: Array, price: float, y: float) -> None:
        loss = -(price - self.cost) * y / self.scale
        self.vw.learn(self._lines(z, f"{self.chosen[0]}:{loss:.6g}:{self.chosen[1]:.6g}"))


class River:
    """A Bayesian linear regression of the reward per price."""

    def __init__(self, market: hp.Market, seed: int, *, alpha: float, arms: int = 7) -> None:
        from river.bandit import LinUCBDisjoint

        self.grid, self.cost = _grid(market, arms), market.cost
        self.bandit = LinUCBDisjoint(alpha=alpha, beta=4.0, seed=seed)
        self.arms = list(range(arms))

    def _context(self, z: Array) -> dict[int, float]:
        return dict(enumerate(z.tolist()))

    def price(self, z: Array) -> float:
        return float(self.grid[self.bandit.pull(self.arms, context=self._context(z))])

    def learn(self, z: Array, price: float, y: float) -> None:
        arm = int(np.argmin(np.abs(self.grid - price)))
        self.bandit.update(arm, self._context(z), (price - self.cost) * y)


class Coba:
    """A linear regression of the reward on p, p^2, p z and p^2 z."""

    def __init__(self, market: hp.Market, seed: int, *, learner: str, size: float, arms: int = 11) -> None:
        from coba.learners import LinTSLearner, LinUCBLearner

        features = [1, "a", "ax", "aa", "aax"]
        self.learner = (
            LinUCBLearner(alpha=size, features=features, seed=seed)
            if learner == "ucb"
            else LinTSLearner(v=size, features=features, seed=seed)
        )
        self.scale, self.cost, self.rng = market.prices[1], market.cost, np.random.default_rng(seed)
        self.actions = [float(p) / self.scale for p in _grid(market, arms)]

    def price(self, z: Array) -> float:
        action, chance, *_ = self.learner.predict(z.tolist(), self.actions)
        self.chance = chance
        return float(action) * self.scale

    def learn(self, z: Array, price: float, y: float) -> None:
        action = price / self.scale
        self.learner.learn(z.tolist(), action, (price - self.cost) * y / self.scale, self.chance)


Maker = Callable[[hp.Market, int], Peer]
Settings = dict[str, Maker]


def _settings(kind: Any, *choices: dict[str, Any]) -> Settings:
    def maker(options: dict[str, Any]) -> Maker:
        return lambda market, seed: kind(market, seed, **options)

    return {", ".join(f"{k} {v}" for k, v in options.items()): maker(options) for options in choices}


PEERS: dict[str, Settings] = {
    "bayesianbandits": _settings(
        BayesianBandits, {"policy": "thompson"}, {"policy": "upper 0.84"}, {"policy": "thompson", "arms": 61}
    ),
    "mabwiser": _settings(
        MABWiser, {"policy": "ucb", "alpha": 0.5}, {"policy": "ucb", "alpha": 1.5}, {"policy": "thompson", "alpha": 0.3}
    ),
    "vowpalwabbit": _settings(
        VowpalWabbit, {"options": "--squarecb"}, {"options": "--epsilon 0.05"}, {"options": "--regcb --mellowness 0.1"}
    ),
    "river": _settings(River, {"alpha": 1.0}, {"alpha": 0.1}, {"alpha": 1.0, "arms": 13}),
    "coba": _settings(
        Coba, {"learner": "ucb", "size": 0.1}, {"learner": "ucb", "size": 0.5}, {"learner": "thompson", "size": 0.1}
    ),
}


def _customers(market: hp.Market, seed: int, replication: int, horizon: int) -> Iterator[Any]:
    """The blocks of customers of this replication, as in :func:`hushprice.simulate`."""
    contexts, demand, _, _, choices, _, truth = map(np.random.default_rng, streams(seed, replication))
    yield from market.truth(truth).blocks(contexts, demand, horizon, choices=choices)


def _run(maker: Maker, market: hp.Market, seed: int, replication: int, horizon: int) -> tuple[float, float]:
    """Regret, and microseconds per customer."""
    peer, regret, seconds = maker(market, replication), 0.0, 0.0
    for block in _customers(market, seed, replication, horizon):
        for i in range(len(block.z)):
            began = time.perf_counter()
            price = peer.price(block.z[i])
            seconds += time.perf_counter() - began
            (y,) = block.buy(slice(i, i + 1), np.array([price]))
            began = time.perf_counter()
            peer.learn(block.z[i], price, float(y))
            seconds += time.perf_counter() - began
        regret += float(block.regret.sum())
    return regret, 1e6 * seconds / horizon


def _line(market: str, package: str, setting: str, regrets: list[float], us: float) -> dict[str, Any]:
    se = float(np.std(regrets, ddof=1) / np.sqrt(len(regrets))) if len(regrets) > 1 else float("nan")
    return {
        "market": market, "package": package, "setting": setting, "regret": float(np.mean(regrets)), "se": se,
        "p95": float(np.quantile(regrets, 0.95)), "us": us,
    }  # fmt: skip


@app.command()
def peers(
    replications: Count = 6,
    log: Annotated[Path, typer.Option(help="The log of docs/tutorial.md.")] = Path("karlan-zinman.csv.gz"),
    package: Annotated[str, typer.Option(help="One package only.")] = "",
) -> None:
    """Regret and microseconds per customer of other packages, at the best of a few settings, and of look-ahead."""
    warnings.simplefilter("ignore")
    markets = {"s1": hp.markets.s1(dim=4)} | ({"karlan-zinman twin": kz_twin(log)} if log.exists() else {})
    rows: Rows = []
    for label, market in markets.items():
        policy = build("look-ahead", 4) if label == "s1" else None
        if policy is None:
            policy = hp.policies.LookAhead(family=market.family, dim=market.dim, prices=market.prices)
        ours = hp.simulate(policy, market, horizon=HORIZON, replications=replications, seed=SEED)
        us = 1e6 * float(np.median(ours.seconds)) / HORIZON
        rows.append(_line(label, "hushprice", "look-ahead, simulated", ours.regret.tolist(), us))
        live = [_run(Live, market, SEED, i, HORIZON) for i in range(replications)]
        rows.append(
            _line(label, "hushprice", "look-ahead, live", [r for r, _ in live], float(np.median([u for _, u in live])))
        )
        for name, settings in PEERS.items():
            if package in ("", name):
                tried = {
                    setting: [_run(maker, market, TRIAL_SEED, i, TRIAL_HORIZON)[0] for i in range(TRIALS)]
                    for setting, maker in settings.items()
                }
                best = min(tried, key=lambda setting: float(np.mean(tried[setting])))
                print(label, name, {k: round(float(np.mean(v))) for k, v in tried.items()}, flush=True)
                runs = [_run(settings[best], market, SEED, i, HORIZON) for i in range(replications)]
                took = float(np.median([u for _, u in runs]))
                rows.append(_line(label, f"{name} {version(name)}", best, [r for r, _ in runs], took))
                report("peers", f"T = {HORIZON:,}, {replications} replications, seed {SEED}", rows)
    report("peers", f"T = {HORIZON:,}, {replications} replications, seed {SEED}", rows)


@app.command()
def drift_peers(replications: Count = 3, market: Annotated[str, typer.Option(help="s1 or s2.")] = "s1") -> None:
    """Drift in S1 or S2: bayesianbandits with several memories, next to look-ahead with the adaptive one."""
    warnings.simplefilter("ignore")
    rows: Rows = []
    for kind in ("jump", "walk", "wave", "season"):
        drifting = hp.markets.drifting(MARKETS[market](4), kind)
        ours = hp.simulate(build("look-ahead", 4), drifting, horizon=HORIZON, replications=replications, seed=SEED)
        us = 1e6 * float(np.median(ours.seconds)) / HORIZON
        rows.append(_line(kind, "hushprice", "look-ahead", ours.regret.tolist(), us))
        for memory in (0, 300, 1_000, 3_000):
            maker = partial(BayesianBandits, policy="thompson", memory=memory)
            runs = [_run(maker, drifting, SEED, i, HORIZON) for i in range(replications)]
            took = float(np.median([u for _, u in runs]))
            rows.append(_line(kind, "bayesianbandits", f"memory {memory or 'all'}", [r for r, _ in runs], took))
            print(rows[-1], flush=True)
    report("drift-peers", f"{market}, d = 4, T = {HORIZON:,}, {replications} replications, seed {SEED}", rows)
