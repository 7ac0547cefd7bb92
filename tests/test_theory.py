"""The regret bounds as functions, the markets that show them, and the scaling fit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import hushprice as hp
from hushprice import theory
from hushprice.markets import Block
from hushprice.simulation import Result, fit_scaling, scale
from tests.conftest import make_policy

# -- bounds -------------------------------------------------------------------------------------------------------


def test_the_bounds_are_those_of_the_paper() -> None:
    d, T, e = 4.0, 250_000.0, 0.5
    log = math.log(T)
    assert theory.minimax(d, T) == pytest.approx(1000.0)
    assert theory.etc(d, T) == pytest.approx(1000 * math.sqrt(log))
    assert theory.supcb(d, T) == pytest.approx(1000 * log**1.5)
    assert theory.ucb(d, T) == pytest.approx(4 * 500 * log)
    assert theory.etc_ldp(d, T, epsilon=e) == pytest.approx(4 * 500 * log / 0.5)
    approx = theory.etc_ldp_approx(d, T, epsilon=e, delta=1e-3)
    assert approx == pytest.approx(4 * 500 * log / 0.5 * math.sqrt(math.log(1250)))
    mixed = theory.etc_ldp_mixed(d, T, epsilon=e, public=0.1)
    assert mixed == pytest.approx(1000 * log / math.sqrt(0.1 + 0.9 * 0.25 / 4))
    assert theory.lower_bound(d, T) == pytest.approx(1000 / 1728)
    assert theory.lower_bound_ldp(1.0, 1e8, epsilon=e) == pytest.approx(math.sqrt(14) * 1e4 / 0.5 / 774144)
    assert theory.separation(d, T) == pytest.approx(math.sqrt(math.sqrt(4 / T) / 3))


def test_privacy_costs_and_mixing_lies_between() -> None:
    """Everyone public: ETC's rate up to logarithms; nobody: ETC-LDP's; a private record counts as one at most."""
    d, T = np.array([1.0, 4.0, 25.0]), 1e6
    public = theory.etc_ldp_mixed(d, T, epsilon=0.5, public=1.0)
    private = theory.etc_ldp_mixed(d, T, epsilon=0.5, public=0.0)
    some = theory.etc_ldp_mixed(d, T, epsilon=0.5, public=0.2)
    assert (public < some).all()
    assert (some < private).all()
    np.testing.assert_allclose(public, theory.minimax(d, T) * np.log(T))
    np.testing.assert_allclose(private, theory.etc_ldp(d, T, epsilon=0.5))
    np.testing.assert_allclose(theory.etc_ldp_mixed(d, T, epsilon=50.0, public=0.3), public)


def test_lower_bounds_hold_only_where_proved() -> None:
    assert np.isnan(theory.lower_bound(100, 1000))
    assert np.isnan(theory.lower_bound(1, 1))
    assert np.isnan(theory.lower_bound_ldp(1, 1e8, epsilon=2.0))
    assert np.isnan(theory.lower_bound_ldp(10, 1e4, epsilon=0.5))
    T = np.geomspace(1e3, 1e8, 20)
    assert (theory.lower_bound(2, T) < theory.etc(2, T)).all()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: theory.etc(0, 100),
        lambda: theory.etc(1, math.nan),
        lambda: theory.etc("many", 100),
        lambda: theory.etc_ldp(1, 100, epsilon=0),
        lambda: theory.etc_ldp_mixed(1, 100, epsilon=1, public=1.2),
        lambda: theory.etc_ldp_approx(1, 100, epsilon=1, delta=0),
        lambda: theory.rate("etcc"),
        lambda: theory.rate(["etc"]),  # type: ignore[arg-type]
        lambda: theory.plain_rate("etc-ldp"),
        lambda: theory.etc("3", 100),
        lambda: theory.etc(10**400, 100),
        lambda: theory.etc([1, 2], [100, 200, 300]),
    ],
)
def test_bad_sizes_are_refused(wrong: Any) -> None:
    with pytest.raises(hp.InvalidInput):
        wrong()


def test_every_learning_policy_has_its_bound() -> None:
    unproved = {
        "look-ahead",
        "look-ahead-ldp",
        "look-ahead-mixed",
        "restarting",
        "ucb-wtl",
        "greedy",
        "clairvoyant",
        "fixed-price",
        "random-price",
    }
    assert set(hp.policies.REGISTRY) - unproved <= set(theory.RATES)


# -- markets ------------------------------------------------------------------------------------------------------


def test_a1_swaps_its_halves_at_half_time_and_a2_never_does() -> None:
    T, d = 20_000, 4
    fixed = 1.5 / math.sqrt(d)

    def drawn(market: hp.Market) -> Any:
        blocks = market.blocks(np.random.default_rng(0), np.random.default_rng(1), T)
        return np.concatenate([block.z for block in blocks])

    for market, switch in ((hp.markets.a1(dim=d), T // 2), (hp.markets.a1(dim=d, horizon=3000), 1500)):
        z = drawn(market)
        assert (z[:switch, d // 2 :] == fixed).all()
        assert (z[switch:, : d // 2] == fixed).all()
        free = np.concatenate([z[:switch, : d // 2], z[switch:, d // 2 :]])
        assert 0.0 <= free.min() < 0.01
        assert 3 / math.sqrt(d) - 0.01 < free.max() < 3 / math.sqrt(d)
        assert abs(free.mean() - fixed) < 5 * math.sqrt(0.75 / d / free.size)
        assert np.linalg.matrix_rank(np.cov(z[:switch].T), tol=1e-9) == d // 2
    z = drawn(hp.markets.a2(dim=d))
    assert (z[:, d // 2 :] == fixed).all()
    np.testing.assert_array_equal(hp.markets.a2(dim=d).theta, hp.markets.s1(dim=d).theta)


def test_contexts_of_ones_own_may_depend_on_the_round() -> None:
    class Growing:
        def rounds(self, rng: np.random.Generator, n: int, *, start: int, horizon: int) -> Any:
            return np.arange(start, start + n, dtype=float)[:, None] / horizon

    market = hp.Market(alpha=[1.0], beta=[1.0], contexts=Growing(), prices=(0, 3))  # type: ignore[arg-type]
    blocks = market.blocks(np.random.default_rng(0), np.random.default_rng(1), 20_000)
    z = np.concatenate([block.z for block in blocks])[:, 0]
    np.testing.assert_array_equal(z, np.arange(20_000) / 20_000)


def test_the_lower_bound_instance_is_the_papers() -> None:
    """y ~ N(2 - p + Delta v_i (1 - p), 1); regret (p - 1)^2 where v_i = 0, (1 + Delta)(p - p*)^2 where it is 1."""
    d, T = 4, 10_000
    market = hp.markets.lower_bound(dim=d, horizon=T, v=[0, 1, 1, 0])
    Delta = math.sqrt(math.sqrt(d / T) / 3)
    assert market.family == hp.Linear(sigma=1.0)
    assert market.prices == (1 / 3, 1.5)
    best = np.where([0, 1, 1, 0], (2 + Delta) / (2 + 2 * Delta), 1.0)
    np.testing.assert_allclose(market.optimal_price(np.eye(d)), best, rtol=1e-12)
    for p in (0.4, 1.0, 1.3):
        block = Block(market, np.eye(d), np.full(d, 0.5))
        y = block.buy(slice(0, d), np.full(d, p))
        v = np.array([0, 1, 1, 0])
        np.testing.assert_allclose(y, 2 - p + Delta * v * (1 - p), atol=1e-12)
        np.testing.assert_allclose(block.regret, np.where(v, 1 + Delta, 1) * (p - best) ** 2, atol=1e-12)


def test_patterns_by_number_and_by_bits() -> None:
    alphas = {
        tuple(hp.markets.lower_bound(dim=3, v=number, delta=0.5).alpha.tolist()) for number in range(8)
    }  # all 2^d of them
    assert len(alphas) == 8
    bits = hp.markets.lower_bound(dim=3, v=[0, 1, 1], delta=0.5)
    np.testing.assert_array_equal(bits.alpha, hp.markets.lower_bound(dim=3, v=6, delta=0.5).alpha)
    assert hp.markets.lower_bound(dim=3, horizon=1).alpha.max() <= 2.5


@pytest.mark.parametrize(
    "wrong",
    [
        {"v": -1},
        {"v": [[0], [0, 1]]},
        {"v": "011"},
        {"v": 8},
        {"v": [0, 2, 1]},
        {"v": [0, 1]},
        {"delta": 0.7},
        {"horizon": 0},
        {"family": "logistic"},
        {"dim": 0},
    ],
)
def test_bad_instances_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(hp.InvalidInput):
        hp.markets.lower_bound(**({"dim": 3} | wrong))


def test_markets_by_name() -> None:
    assert hp.markets.build("lower-bound", dim=2, horizon=50).alpha.max() > 2.0
    with pytest.raises(hp.InvalidInput, match="even"):
        hp.markets.build("a2", dim=3)
    with pytest.raises(hp.InvalidInput, match="colour"):
        hp.markets.build("s1", dim=2, colour="red")


# -- scaling fits -------------------------------------------------------------------------------------------------


def _result(dim: int, horizon: int, regret: float, **options: Any) -> Result:
    n = 4
    fields: dict[str, Any] = {
        "policy": "etc", "market": "s1", "dim": dim, "horizon": horizon, "seed": 0, "config": {},
        "checkpoints": np.array([horizon]), "paths": np.full((n, 1), regret), "revenue": np.ones(n),
        "exploration": np.zeros(n), "seconds": np.full(n, 1e-6 * horizon),
        "deviation": np.zeros(n), "far": np.zeros(n),
    }  # fmt: skip
    return Result(**(fields | options))


def test_a_scaling_fit_recovers_what_was_put_in() -> None:
    cells = [
        _result(d, T, 0.7 * d**0.45 * T**0.55 * math.log(T) ** 1.5) for d in (1, 4, 9) for T in (1000, 5000, 70_000)
    ]
    study = fit_scaling(cells, offset=1.5)
    np.testing.assert_allclose([study.slope_d, study.slope_T], [0.45, 0.55])
    np.testing.assert_allclose([study.se_d, study.se_T], 0.0, atol=1e-12)
    assert study.predict(4, 5000) == pytest.approx(cells[4].regret.mean())
    assert study.to_dict()["cells"][4]["mean"] == pytest.approx(cells[4].regret.mean())
    one = fit_scaling(cells[:3], offset=1.5)
    assert math.isnan(one.slope_d)
    assert one.slope_T == pytest.approx(0.55)
    assert one.to_dict()["slope_d"] is None


def test_the_standard_errors_are_those_of_least_squares() -> None:
    import statsmodels.api as sm

    rng = np.random.default_rng(3)
    cells = [_result(d, T, T**0.5 * math.exp(0.1 * rng.standard_normal())) for d in (1, 4, 9) for T in (1000, 5000)]
    study = fit_scaling(cells)
    x = sm.add_constant(np.log([[r.dim, r.horizon] for r in cells]))
    reference = sm.OLS(np.log([r.regret.mean() for r in cells]), x).fit()
    np.testing.assert_allclose([study.intercept, study.slope_d, study.slope_T], reference.params, rtol=1e-9)
    np.testing.assert_allclose([study.se_d, study.se_T], reference.bse[1:], rtol=1e-9)


@pytest.mark.parametrize(
    "cells",
    [
        [],
        [_result(1, 1000, 5.0)],
        [_result(1, 1000, 5.0), _result(1, 2000, 1e-9)],
        [_result(1, 1000, 5.0), _result(4, 4000, 6.0), _result(16, 16_000, 7.0)],
        [_result(1, 1000, 5.0), _result(1, 2000, 6.0, policy="ucb")],
    ],
)
def test_fits_that_say_nothing_are_refused(cells: list[Result]) -> None:
    with pytest.raises(hp.InvalidInput):
        fit_scaling(cells)


def test_pictures_of_growth(tmp_path: Path) -> None:
    def cell(d: int, T: int) -> tuple[Any, Any]:
        return make_policy("etc", dim=d, horizon=T), hp.markets.s1(dim=d)

    study = scale(cell, dims=(1, 2), horizons=(500, 1000, 2000), replications=3, offset=0.5)
    figure = hp.plots.growth({"etc": study}, rate="minimax")
    left, right = figure.axes
    assert left.get_xscale() == left.get_yscale() == right.get_yscale() == "log"
    drawn = [line for line in left.get_lines() if len(line.get_xdata()) == 50]  # type: ignore[arg-type]
    assert len(drawn) == 4  # for each d the fitted line and the reference
    fitted = np.asarray(drawn[0].get_ydata())
    np.testing.assert_allclose(fitted[[0, -1]], study.predict(1, np.array([500, 2000])))
    dotted = np.asarray(drawn[1].get_ydata())
    assert dotted[-1] / dotted[0] == pytest.approx(2.0)  # sqrt(2000 / 500)
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words[0] == f"etc: slope {study.slope_d:.2f} in d, {study.slope_T:.2f} in T"
    assert words[1:] == ["d = 1", "d = 2", "shape of the minimax rate"]
    assert hp.plots.save(figure, tmp_path / "growth.svg").stat().st_size > 5000
    with pytest.raises(hp.InvalidInput, match="no results"):
        hp.plots.growth({})


def test_a_regret_path_can_carry_a_rate() -> None:
    result = hp.simulate(make_policy("ucb"), hp.markets.s1(dim=3), horizon=700, replications=3)
    axes = Figure().subplots()
    hp.plots.regret_paths({"ucb": result}, axes, rate="ucb")
    line = axes.get_lines()[-1]
    np.testing.assert_allclose(np.asarray(line.get_ydata())[-1], result.regret.mean())
    assert line.get_label() == "shape of the ucb rate"
    with pytest.raises(hp.InvalidInput, match="regret bound"):
        hp.plots.regret_paths({"ucb": result}, axes, rate="fast")
