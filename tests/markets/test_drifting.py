"""Markets whose demand drifts, against parameters and best prices computed by hand."""

from __future__ import annotations

import math
import pickle
import tracemalloc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import hushprice as hp
from hushprice.demand import Rules
from hushprice.markets import DRIFTS, REGISTRY, Drift, Market, Resample, Twin, build, drifting, s1
from hushprice.markets import market as market_module
from hushprice.simulation import NearTruth, Today, plain, record, simulate
from hushprice.simulation.engine import TRUTH, Trace, replicate, streams
from hushprice.studies import market_from, policy_from
from hushprice.studies.cells import Run
from tests.conftest import make_policy
from tests.markets.test_twin import TWIN

T = 400
ROWS = np.array([[0.8, 0.8, 0.5, 0.5], [1.2, 0.4, 0.9, 0.1], [0.3, 0.6, 0.2, 0.7]])  # a path for d = 2


def _s(kind: str, t: int, horizon: int, options: dict[str, Any]) -> float:
    """s of customer t = 1, 2, ... as the documentation has it, one number at a time."""
    u, periods = (t - 1) / horizon, options.get("periods", 4)
    if kind == "jump":
        at = options.get("at", 0.5)
        return float(t >= at if at >= 2 else t > round(at * horizon))
    if kind == "wave":
        return math.sin(2 * math.pi * periods * u)
    return float((t - 1) * 4 * periods // horizon % 4 == 3)


def _walks(seed: int, replication: int, dim: int) -> np.ndarray:
    """The walks of a replication, drawn by hand."""
    rng = np.random.default_rng(streams(seed, replication)[TRUTH])
    walks = [[0.0] for _ in range(2 * dim)]
    for walk in walks:
        for step in rng.standard_normal(1023):
            walk.append(walk[-1] + step / math.sqrt(1023))
    return np.clip(walks, -2.0, 2.0)


def _thetas(market: Market, kind: str, horizon: int, **options: Any) -> np.ndarray:
    """theta_t of every customer, by hand."""
    d, u = market.dim, np.arange(horizon) / horizon
    if kind == "path":
        return np.array([np.interp(u, np.linspace(0, 1, len(ROWS)), column) for column in ROWS.T]).T
    if kind == "walk":
        walks = _walks(7, 1, d)
        s = np.array([np.interp(u, np.linspace(0, 1, 1024), walk) for walk in walks]).T
    else:
        one = np.array([_s(kind, t, horizon, options) for t in range(1, horizon + 1)])
        s = np.repeat(one[:, None], 2 * d, axis=1)
    sizes = [options["level"]] * d + [options["sensitivity"]] * d
    return np.array([[x * (1 + size) ** k for x, size, k in zip(market.theta, sizes, row, strict=True)] for row in s])


SIZES: dict[str, Any] = {"level": 0.25, "sensitivity": -0.4}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("jump", SIZES), ("jump", {**SIZES, "at": 0.3}), ("jump", {**SIZES, "at": 123}), ("jump", {**SIZES, "at": 2}),
    ("jump", {**SIZES, "at": 10_000}), ("wave", SIZES), ("wave", {**SIZES, "periods": 3}), ("season", SIZES),
    ("season", {**SIZES, "periods": 1}), ("walk", SIZES), ("path", {}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options"), CASES, ids=str)
@pytest.mark.parametrize("family", ["logistic", "linear"])
def test_regret_is_against_the_truth_of_each_moment(kind: str, options: dict[str, Any], family: str) -> None:
    """Parameters by hand; the best prices by trying 20 001 of them."""
    more: dict[str, Any] = {"path": ROWS} if kind == "path" else {}
    market = drifting(s1(dim=2, family=family, cost=0.2), kind, **options, **more)
    truth = np.random.default_rng(streams(7, 1)[TRUTH])
    (block,) = market.truth(truth).blocks(np.random.default_rng(1), np.random.default_rng(2), T)
    thetas = _thetas(market, kind, T, **options)
    a, b = (block.z * thetas[:, :2]).sum(axis=1), (block.z * thetas[:, 2:]).sum(axis=1)
    np.testing.assert_allclose(block.a, a, rtol=1e-12)
    np.testing.assert_allclose(block.b, b, rtol=1e-12)
    prices, grid = np.random.default_rng(3).uniform(0, 3, T), np.linspace(0, 3, 20_001)
    block.buy(slice(0, T), prices)
    for i in range(0, T, 7):
        earns = (grid - 0.2) * market.family.mean(a[i] - b[i] * grid)
        now = (prices[i] - 0.2) * market.family.mean(a[i] - b[i] * prices[i])
        assert block.regret[i] == pytest.approx(earns.max() - now, abs=1e-6)


def test_a_run_goes_through_the_moments_in_order() -> None:
    """Over several blocks: an outsider's price at each moment costs what the parameters by hand say."""
    market, horizon = drifting(s1(dim=2), "walk", **SIZES), 20_000
    policy = make_policy("fixed-price", dim=2)
    outcome = simulate(policy, market, horizon=horizon, replications=2, seed=7, checkpoints=10)
    thetas = _thetas(market, "walk", horizon, **SIZES)
    z = s1(dim=2).draw(np.random.Generator(np.random.PCG64(streams(7, 1)[0])), horizon)
    a, b = (z * thetas[:, :2]).sum(axis=1), (z * thetas[:, 2:]).sum(axis=1)
    best = market.family.optimal_revenue(a, b, market.prices)
    lost = np.cumsum(best - market.family.revenue(1.5, a, b))
    np.testing.assert_allclose(outcome.paths[1], lost[outcome.checkpoints - 1], rtol=1e-9)


def test_customers_are_those_of_the_base_and_so_is_all_before_a_jump() -> None:
    base = s1(dim=4, public=0.3)
    for kind in DRIFTS:
        rngs = [[np.random.default_rng(k) for k in (1, 2, 3)] for _ in range(2)]
        for one, other in zip(
            base.blocks(rngs[0][0], rngs[0][1], 20_000, choices=rngs[0][2]),
            drifting(base, kind).blocks(rngs[1][0], rngs[1][1], 20_000, choices=rngs[1][2]),
            strict=True,
        ):
            for name in ("z", "uniforms", "public"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    traces = [Trace(np.empty(3_000), np.empty(3_000)) for _ in range(2)]
    policy, rounds = make_policy("look-ahead", dim=4), np.array([1_500, 3_000])
    paths = [
        replicate(policy, one, horizon=3_000, seed=5, replication=0, checkpoints=rounds, trace=trace).path
        for one, trace in zip((base, drifting(base, at=1_501)), traces, strict=True)
    ]
    np.testing.assert_array_equal(traces[0].prices[:1_500], traces[1].prices[:1_500])
    np.testing.assert_array_equal(traces[0].y[:1_500], traces[1].y[:1_500])
    assert paths[0][0] == paths[1][0]
    assert paths[1][1] > paths[0][1] + 10.0


@dataclass(frozen=True, kw_only=True, eq=False)
class _Watched(Market):
    """A market of one's own, which notes the walks that are drawn."""

    seen: ClassVar[list[Any]] = []

    def blocks(self, *sources: Any, **options: Any) -> Any:
        assert self.drift is not None
        self.seen.append(self.drift.walk)
        return super().blocks(*sources, **options)


def test_a_walk_is_drawn_in_each_replication_and_is_the_same_for_all_policies() -> None:
    base = s1(dim=2)
    watched = _Watched(alpha=base.alpha, beta=base.beta, contexts=base.contexts, prices=base.prices)
    market = drifting(watched, "walk")
    drawn = []
    for name in ("fixed-price", "random-price", "etc"):
        _Watched.seen.clear()
        simulate(make_policy(name, dim=2), market, horizon=100, replications=3, seed=7)
        drawn.append(_Watched.seen[-3:])
    for walks in drawn[1:]:
        np.testing.assert_array_equal(walks, drawn[0])
    assert len({walk.tobytes() for walk in drawn[0]}) == 3
    np.testing.assert_allclose(drawn[0][1], _walks(7, 1, 2), atol=1e-12)


def test_walks_are_brownian() -> None:
    """Standard deviation sqrt(u), increments without correlation (z tests, each at an error rate below 1e-5)."""
    walks = np.concatenate([Drift.of("walk").drawn(np.random.default_rng(k), 4).walk for k in range(500)])
    assert np.abs(walks).max() == 2.0
    quarter, half = walks[:, 256], walks[:, 512]
    n = len(walks)
    assert abs(quarter.mean()) < 4.5 * 0.5 / math.sqrt(n)
    assert quarter.std() == pytest.approx(0.5, abs=4.5 * 0.5 / math.sqrt(2 * n))
    assert abs(np.corrcoef(quarter, half - quarter)[0, 1]) < 4.5 / math.sqrt(n)
    assert (walks[:, 0] == 0.0).all()


def test_the_truth_of_the_base_is_drawn_first() -> None:
    base = replace(s1(dim=2), covariance=0.01 * np.eye(4))
    for kind in DRIFTS:
        market = drifting(base, kind)
        one, other = (m.truth(np.random.default_rng(4)) for m in (base, market))
        np.testing.assert_array_equal(one.theta, other.theta)
        assert other.covariance is None
        assert other.truth(np.random.default_rng(5)) is other
    shifted = drifting(base, "path", path=ROWS).truth(np.random.default_rng(4))
    np.testing.assert_allclose(shifted.theta_at(0.5) - shifted.theta, ROWS[1] - ROWS[0])
    np.testing.assert_allclose(shifted.theta - ROWS[0], base.truth(np.random.default_rng(4)).theta - base.theta)


@pytest.mark.parametrize("kind", [*DRIFTS, "path"])
def test_numbers_do_not_depend_on_how_a_run_is_cut(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    market = drifting(s1(dim=2), kind, path=ROWS if kind == "path" else None).truth(np.random.default_rng(3))
    cut = []
    for size in (1_000, 7):
        monkeypatch.setattr(market_module, "block_size", lambda dim, size=size: size)
        blocks = list(market.blocks(np.random.default_rng(1), np.random.default_rng(2), 1_000))
        cut.append([np.concatenate([getattr(block, name) for block in blocks]) for name in ("z", "uniforms", "a", "b")])
    for one, other in zip(*cut, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", DRIFTS)
def test_memory_does_not_grow_with_the_run(kind: str) -> None:
    def peak(horizon: int) -> int:
        market = drifting(s1(dim=4), kind).truth(np.random.default_rng(0))
        tracemalloc.start()
        for _ in market.blocks(np.random.default_rng(1), np.random.default_rng(2), horizon):
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(20_000)
    assert peak(400_000) < 1.1 * peak(40_000)


@pytest.mark.parametrize("name", hp.policies.REGISTRY)
def test_every_policy_runs(name: str) -> None:
    result = simulate(make_policy(name), drifting(s1(dim=3), "jump"), horizon=700, replications=1)
    assert result.regret[0] > 0.0
    assert result.market == "s1, jump"


def test_clairvoyant_knows_the_start() -> None:
    market = drifting(s1(dim=3), "jump")
    result = simulate(make_policy("clairvoyant"), market, horizon=1_000, replications=1, checkpoints=[500])
    assert result.paths[0][0] == pytest.approx(0.0, abs=1e-9)
    assert result.paths[0][1] > 10.0
    word = policy_from("clairvoyant", market, 1_000)
    assert simulate(word, market, horizon=1_000, replications=1).regret[0] == pytest.approx(result.regret[0], rel=1e-12)


def test_near_truth_and_a_log_of_a_run() -> None:
    market = drifting(s1(dim=2), "walk")
    near = policy_from("etc-ldp:epsilon=2,centre=near-truth", market, 500)
    assert isinstance(near, NearTruth)
    assert simulate(near, market, horizon=500, replications=2).regret.min() > 0.0
    assert record(plain(make_policy("etc", dim=2)), market, horizon=500).num_rows == 500


@pytest.mark.parametrize("kind", DRIFTS)
@pytest.mark.parametrize("name", [name for name in REGISTRY if name != "twin"])
def test_every_market_drifts(name: str, kind: str) -> None:
    options = {} if name == "autoloan" else {"dim": 4}
    base, market = build(name, **options), build(name, **options, drift=kind)
    assert market.name == f"{base.name}, {kind}"
    assert market.name in repr(market)
    np.testing.assert_array_equal(base.theta, market.theta)
    one, other = (m.draw(np.random.default_rng(1), 50) for m in (base, market))
    np.testing.assert_array_equal(one, other)
    for check in hp.checks.market_checks():
        check(market)
        check(market.truth(np.random.default_rng(1)))


def test_a_drifting_twin_is_a_twin(tmp_path: Path) -> None:
    market = drifting(TWIN, "season")
    assert isinstance(market, Twin)
    assert market.about is TWIN.about
    assert repr(market).endswith(", season>")
    quiet = replace(market, covariance=None)
    assert simulate(Today(), market, horizon=500, replications=2).regret.shape == (2,)
    early, late = (quiet.theta_at(at) for at in (0.0, 0.2))
    np.testing.assert_allclose(late, early * np.repeat([1.0, 0.7], 3))
    with pytest.raises(hp.InvalidInput, match="save the twin without drift"):
        hp.markets.save_twin(market, tmp_path / "shop.twin")
    hp.markets.save_twin(TWIN, tmp_path / "shop.twin")
    word = market_from(f"twin:file={tmp_path / 'shop.twin'},drift=season", horizon=100)
    assert isinstance(word, Twin)
    assert word.name == "twin shop, season"


def test_a_plan_on_a_drifting_twin_runs() -> None:
    made = hp.plan(drifting(TWIN, "jump"), horizon=300, policies=["etc-doubling"], epsilons=[], opt_out=[],
                   replications=2, workers=1)  # fmt: skip
    assert made.situation.horizon == 300


def test_rules_costs_and_segments_stay() -> None:
    rows = Resample(ROWS[:, :2], costs=np.array([0.1, 0.2, 0.3]), segments=np.array([0, 1, 0]))
    rules = Rules(ladder=(0.5, 1.0, 2.0), ranges={"a": (0.5, 1.5)})
    base = hp.Market(
        alpha=np.array([1.0, 0.5]), beta=np.array([0.5, 0.5]), prices=(0, 3), contexts=rows, segments=("a", "b"),
        rules=rules, names=("x", "y"),
    )  # fmt: skip
    market = drifting(base, "jump", level=1.0, sensitivity=-0.5)
    (block,) = market.blocks(np.random.default_rng(1), np.random.default_rng(2), 200)
    assert block.cost is not None
    assert block.segment is not None
    block.buy(slice(0, 200), np.full(200, 1.0))
    for t in (0, 60, 99, 100, 150, 199):
        a, b = block.z[t] @ base.alpha * (1 + (t >= 100)), block.z[t] @ base.beta * (0.5 if t >= 100 else 1)
        allowed = [p for p in rules.ladder if block.segment[t] == 1 or p <= 1.5]
        earns = [(p - block.cost[t]) / (1 + math.exp(b * p - a)) for p in allowed]
        assert block.regret[t] == pytest.approx(max(earns) - earns[allowed.index(1.0)], abs=1e-12)
    assert market.best_fixed_price() in rules.ladder
    assert market.names == ("x", "y")


@pytest.mark.parametrize("kind", [*DRIFTS, "path"])
def test_a_constant_in_front_changes_nothing(kind: str) -> None:
    drawn = drifting(s1(dim=2), kind, path=ROWS if kind == "path" else None).truth(np.random.default_rng(1))
    longer = drawn.with_intercept()
    utilities = []
    for market in (drawn, longer):
        (block,) = market.blocks(np.random.default_rng(1), np.random.default_rng(2), 500)
        utilities.append((block.a, block.b))
    np.testing.assert_allclose(utilities[0], utilities[1], rtol=1e-12)
    with pytest.raises(hp.InvalidInput, match="begin with a constant already"):
        longer.with_intercept()
    with pytest.raises(hp.InvalidInput, match="begin with a constant already"):
        build("s1", dim=2, intercept=True, drift="jump").with_intercept()


def test_the_best_fixed_price_is_that_of_the_whole_run() -> None:
    base = s1(dim=2)
    z = base.draw(np.random.default_rng(0), 50_000)
    grid = np.linspace(0, 3, 301)

    def best(thetas: np.ndarray) -> float:
        a, b = (z * thetas[:, :2]).sum(axis=1), (z * thetas[:, 2:]).sum(axis=1)
        return float(grid[np.argmax([np.mean(p / (1 + np.exp(b * p - a))) for p in grid])])

    jump = drifting(base, "jump", **SIZES, at=0.3)
    assert jump.best_fixed_price() == pytest.approx(best(_thetas(base, "jump", 50_000, **SIZES, at=0.3)), abs=0.011)
    late = drifting(base, "jump", **SIZES, at=900)
    assert late.best_fixed_price(horizon=1_000) == pytest.approx(
        best(_thetas(base, "jump", 50_000, **SIZES, at=0.899)), abs=0.011
    )
    assert late.best_fixed_price(horizon=500) == base.best_fixed_price()
    walk = drifting(base, "walk", **SIZES)
    s = (np.sqrt(np.arange(50_000) / 50_000)[:, None] * np.random.default_rng(99).standard_normal((50_000, 4))).clip(
        -2, 2
    )
    thetas = base.theta * np.array([1.25, 1.25, 0.6, 0.6]) ** s
    assert walk.best_fixed_price() == pytest.approx(best(thetas), abs=0.03)
    assert walk.best_fixed_price() != base.best_fixed_price()


def test_best_prices_of_a_moment() -> None:
    market, z = drifting(s1(dim=2), "jump", **SIZES), [[0.9, 1.1]]
    moved = hp.Market(alpha=1.25 * market.alpha, beta=0.6 * market.beta, contexts=z, prices=(0, 3))
    np.testing.assert_allclose(market.optimal_price(z, at=0.6), moved.optimal_price(z), rtol=1e-12)
    np.testing.assert_array_equal(market.optimal_price(z), s1(dim=2).optimal_price(z))
    np.testing.assert_array_equal(market.optimal_price(z, at=0.4), market.optimal_price(z))
    np.testing.assert_allclose(market.optimal_price(z, at=51, horizon=100), moved.optimal_price(z), rtol=1e-12)
    np.testing.assert_array_equal(market.optimal_price(z, at=50, horizon=100), market.optimal_price(z))
    assert s1(dim=2).optimal_price(z, at=0.9) == s1(dim=2).optimal_price(z)
    numbered = drifting(s1(dim=2), "jump", at=51)
    assert numbered.theta_at(51)[2] < numbered.theta_at(50)[2]
    assert numbered.theta_at(0.5, horizon=100)[2] < numbered.theta_at(0.49, horizon=100)[2]
    path = drifting(s1(dim=2), "path", path=ROWS)
    for at, row in ((0.0, ROWS[0]), (0.5, ROWS[1]), (1.0, ROWS[2])):
        np.testing.assert_allclose(path.theta_at(at), row)
    for at, more in ((51, {}), (101, {"horizon": 100}), (1.5, {}), (-0.1, {}), (2.5, {"horizon": 100})):
        with pytest.raises(hp.InvalidInput):
            market.theta_at(at, **more)
    with pytest.raises(hp.InvalidInput, match="give its horizon"):
        numbered.theta_at(0.5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kind": "jmp"}, "Did you mean 'jump'"),
        ({"kind": 3}, "no kind of drift called 3"),
        ({"level": -1.0}, "level must be a finite number above -1"),
        ({"sensitivity": math.nan}, "sensitivity must be a finite number"),
        ({"sensitivity": "less"}, "sensitivity must be a number"),
        ({"sensitivity": 1e9}, "at most 1000"),
        ({"at": 0.0}, "at must be a finite number above 0"),
        ({"at": 1}, "share of the run below 1, or the number of a customer from 2 on"),
        ({"at": 2.5}, "share of the run below 1, or the number of a customer from 2 on"),
        ({"periods": 3}, "A jump has no option 'periods'. It takes level, sensitivity, at."),
        ({"kind": "wave", "at": 0.3}, "A wave has no option 'at'"),
        ({"kind": "wave", "periods": 0}, "periods must be a whole number of at least 1"),
        ({"kind": "season", "periods": 1.5}, "periods must be a whole number"),
        ({"kind": "path"}, "needs path"),
        ({"kind": "path", "path": [[1.0, 1.0, 1.0, 1.0]]}, "two rows or more"),
        ({"kind": "path", "path": [[1.0, 1.0]] * 3}, r"path must have shape \(any, 4\)"),
        ({"kind": "path", "path": [[1.0, np.inf, 1.0, 1.0]] * 3}, "path must be finite"),
        ({"kind": "path", "path": ROWS, "level": 0.2}, "A path has no option 'level'"),
        ({"path": ROWS}, "A jump has no option 'path'"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(hp.InvalidInput, match=says):
        drifting(s1(dim=2), **options)


def test_other_things_that_cannot_be_are_refused() -> None:
    market = drifting(s1(dim=2))
    with pytest.raises(hp.InvalidInput, match="drifts already"):
        drifting(market, "wave")
    with pytest.raises(hp.InvalidInput, match="drifting needs a market"):
        drifting("s1")  # type: ignore[type-var]
    with pytest.raises(hp.InvalidInput, match="drift must be a Drift"):
        replace(market, drift="jump")  # type: ignore[arg-type]
    with pytest.raises(hp.InvalidInput, match=r"walk must have shape \(4, 1024\)"):
        replace(market, drift=Drift(kind="walk", walk=np.zeros((6, 1024))))
    with pytest.raises(hp.InvalidInput, match="walk belongs to"):
        Drift(kind="jump", walk=np.zeros((4, 1024)))


def test_fingerprints_and_names_tell_drifts_apart() -> None:
    base = s1(dim=2)
    made = [
        base, *(drifting(base, kind) for kind in DRIFTS), drifting(base, at=0.3), drifting(base, at=300),
        drifting(base, level=0.1), drifting(base, sensitivity=0.1), drifting(base, "wave", periods=3),
        drifting(base, "season", periods=3), drifting(base, "walk", level=0.1),
    ]  # fmt: skip
    paths = [drifting(base, "path", path=np.insert(ROWS, 1, row, axis=0)) for row in ROWS]
    assert len({market.fingerprint() for market in (*made, *paths)}) == len(made) + len(paths)
    assert len({market.name for market in made}) == len(made)
    assert drifting(base, at=0.3, sensitivity=-0.2).name == "s1, jump (sensitivity -0.2, at 0.3)"
    assert drifting(base, "walk").fingerprint() == drifting(base, "walk").fingerprint()
    walk = drifting(base, "walk").truth(np.random.default_rng(1))
    assert pickle.loads(pickle.dumps(walk)).fingerprint() == walk.fingerprint()


def test_words_name_drifts() -> None:
    for kind in DRIFTS:
        assert market_from(f"s1:drift={kind},sensitivity=0.3", dim=2, horizon=10).drift.sensitivity == 0.3  # type: ignore[union-attr]
    market = market_from("s1:drift=jump,at=0.25,level=0.1,intercept=true,public=0.2", dim=2, horizon=10)
    assert market.drift is not None
    assert (market.dim, market.public, market.drift.at, market.drift.level) == (3, 0.2, 0.25, 0.1)
    assert market.name == "s1 with intercept, jump (level 0.1, at 0.25)"
    assert s1(dim=2, drift="wave", periods=2).fingerprint() == drifting(s1(dim=2), "wave", periods=2).fingerprint()
    for word, says in (
        ("s1:drift=jum", "Did you mean 'jump'"),
        ("s1:at=0.3", "at needs a drift"),
        ("s1:drift=jump,periods=2", "no option 'periods'"),
        ("s1:drift=path", "needs path"),
        ("s1:drfit=jump", "Did you mean 'drift'"),
    ):
        with pytest.raises(hp.InvalidInput, match=says):
            market_from(word, dim=2, horizon=10)


def test_a_market_of_ones_own_keeps_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def shop(*, level: float = 1.0) -> Market:
        return replace(s1(dim=1), alpha=np.array([level]))

    monkeypatch.setitem(REGISTRY, "shop", shop)
    market = build("shop", level=0.5, drift="jump", at=0.2)
    assert market.alpha[0] == 0.5
    assert market.drift is not None
    assert market.drift.level == 0.0


def test_cells_of_a_study_tell_drifts_apart() -> None:
    run = Run(name="moves", market=["s1", "s1:drift=jump", "s1:drift=jump,at=0.3", "s1:drift=walk"],
              policies={"fixed": "fixed-price", "etc": "etc"}, horizons=[200, 400], dims=[2])  # fmt: skip
    cells = run.cells()
    assert len({cell.key for cell in cells}) == len(cells) == 16
    assert len({cell.line for cell in cells}) == 8
    table = Run(name="moves", market="s1", policies={"etc": "etc"}, horizons=[200], options={"s1": {"drift": "wave"}})
    assert table.cells()[0].work.market.name == "s1, wave"


@pytest.mark.parametrize(
    ("kind", "low", "high"), [("jump", 1_000, 2_000), ("wave", 2_400, 3_400), ("walk", 200, 2_000)]
)
def test_the_default_sizes_cost_what_never_forgets_as_much_as_is_said(kind: str, low: float, high: float) -> None:
    """The means that `drifting` documents are of more replications; these limits are some standard errors away."""
    policy = hp.policies.LookAhead(family=hp.Logistic(), dim=4, prices=(0, 3), memory=None)
    result = simulate(policy, drifting(s1(dim=4), kind), horizon=20_000, replications=12, seed=7, workers=2)
    assert low < result.regret.mean() < high
