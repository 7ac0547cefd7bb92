"""The finding that demand changed: against NumPy on dense rows, its error rate, its power, the path of theta.

Statistical tests have fixed seeds; with a correct program they would fail with another seed at the rate stated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import kolmogorov, logit

from hushprice.demand import as_family
from hushprice.fitting import DemandModel, fit
from hushprice.fitting.diagnosis.findings import CHANGE_LEVEL

ASKED: dict[str, Any] = {"price": "price", "outcome": "sold"}


def quotes(
    n: int, seed: int, *, family: str = "logistic", raised: bool = False, sensitivity: float = 1.0, at: float = 0.6,
    age: float = 0.3, wild: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """A log; after the share ``at`` of it the price sensitivity is multiplied, and age has another effect."""
    rng = np.random.default_rng(seed)
    years, place = rng.normal(size=n), rng.choice(["north", "south", "west"], n, p=[0.5, 0.3, 0.2])
    late = np.arange(n) >= at * n
    price = rng.uniform(1.0, 4.0, n)
    if raised:  # the seller raised prices, while older customers came
        price, years = rng.uniform(1.0, 2.5, n) + 1.5 * np.arange(n) / n, years + np.arange(n) / n
    b = (0.8 + 0.1 * (place == "west")) * np.where(late, sensitivity, 1.0)
    eta = 1.0 + np.where(late, age, 0.3) * years + 0.4 * (place == "south") - b * price
    if wild:
        sold = rng.poisson(np.exp(eta) * rng.gamma(0.5, 2.0, n)).astype(float)
    else:
        sold = 3.0 + eta + 0.5 * rng.normal(size=n) if family == "linear" else as_family(family).sample(eta, rng)
    return {"price": price, "age": years, "place": place, "sold": sold}


def finding(model: DemandModel) -> str:
    """The text of the finding; empty without it."""
    return next((f.text for f in model.findings_ if f.code == "demand-changed"), "")


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear", "probit"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_agrees_with_dense_rows(family: str, weighted: bool) -> None:
    """The same statistic from all rows at once, with a derivative by differences."""
    n = 3_000
    data = quotes(n, 2, family=family, sensitivity=1.1, raised=True)
    if weighted:
        data["w"] = np.random.default_rng(1).integers(1, 4, n).astype(float)
    model = fit(data, **ASKED, family=family, weights="w" if weighted else None)
    found, kind = model.report_.constancy, model.family_.unit()
    assert found is not None
    z, w = model.contexts(data), data.get("w", np.ones(n))
    x = np.hstack([z, (data["price"].mean() - data["price"])[:, None] * z])
    eta = z @ model.alpha_ - data["price"] * (z @ model.beta_)
    residual = kind.residual(eta, data["sold"])
    second = -(kind.residual(eta + 1e-4, data["sold"]) - kind.residual(eta - 1e-4, data["sold"])) / 2e-4
    J = (x * (w * residual**2)[:, None]).T @ x
    block = np.arange(n) * 100 // n
    scores = np.array([(w * residual)[block == k] @ x[block == k] for k in range(100)])
    parts = np.array([(x * (w * second)[:, None])[block // 10 == s].T @ x[block // 10 == s] for s in range(10)])
    H = parts.sum(axis=0)
    shares = np.clip(np.arange(1, 101)[:, None] / 10 - np.arange(10), 0.0, 1.0)
    process = np.cumsum(scores, axis=0) - np.einsum(
        "ks,sij,j->ki", shares, parts, np.linalg.solve(H, scores.sum(axis=0))
    )
    size = np.sqrt(np.diag(J))
    values, vectors = np.linalg.eigh(J / np.outer(size, size))
    root = (vectors / np.sqrt(values)) @ vectors.T / size
    mean = w @ z / w.sum()
    d = z.shape[1]
    aims = np.zeros((2, 2 * d))
    aims[0, :d], aims[1, d:] = mean, mean
    average = np.linalg.solve(H, aims.T).T
    average /= np.sqrt(np.einsum("ij,jk,ik->i", average, J, average))[:, None]
    sizes = np.abs(process @ np.vstack([root, average]).T)
    p = min(1.0, (2 * d + 2) * kolmogorov(sizes.max()))
    assert found.p_value == pytest.approx(p, rel=1e-3)
    assert found.row == (np.argmax(sizes[:-1].max(axis=1)) + 1) * n / 100
    for side, rows in ((found.before, block * 30 < found.row), (found.after, block * 30 >= found.row)):
        t, wx = np.r_[model.alpha_ - data["price"].mean() * model.beta_, model.beta_], w[rows, None] * x[rows]
        for _ in range(8 if p < CHANGE_LEVEL else 1):  # exact if the change is told, and else one step
            slope = [kind.residual(x[rows] @ t + e, data["sold"][rows]) for e in (0.0, 1e-4, -1e-4)]
            t = t + np.linalg.solve((x[rows] * ((slope[2] - slope[1]) / 2e-4)[:, None]).T @ wx, slope[0] @ wx)
        assert side.sensitivity == pytest.approx(mean @ t[d:], rel=1e-4 if p < CHANGE_LEVEL else 0.05)


def test_no_change_is_found_where_there_is_none() -> None:
    """120 logs at 20%: more than 38 would be found once in 1 000 tests, and 6 or more at 1% once in 600."""
    p = []
    for seed in range(120):
        options: dict[str, Any] = ({}, {"raised": True}, {"wild": True})[seed % 3]
        found = fit(quotes(1_500, seed, **options), **ASKED).report_.constancy
        assert found is not None
        p.append(found.p_value)
    assert np.count_nonzero(np.array(p) < 0.2) <= 38
    assert np.count_nonzero(np.array(p) < 0.01) <= 5


def test_raised_prices_are_no_change_of_demand() -> None:
    """30 logs in which prices and customers changed: the bridge bounds the test, so that 4 or more are 1 in 3 000."""
    p = [fit(quotes(4_000, seed, raised=True), **ASKED).report_.constancy.p_value for seed in range(30)]  # type: ignore[union-attr]
    assert np.count_nonzero(np.array(p) < 0.01) <= 3


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear", "probit"])
def test_a_jump_of_the_sensitivity_is_found(family: str) -> None:
    """30% more in 6 000 rows: found in each of 5 logs, near the right row."""
    for seed in range(5):
        model = fit(quotes(6_000, seed, sensitivity=1.3, family=family), **ASKED, family=family)
        found, text = model.report_.constancy, finding(model)
        assert found is not None
        assert found.p_value < 1e-3
        assert abs(found.row - 3_600) <= 420
        assert "price sensitivity" in text or "demand at the mean price" in text
        assert found.after.sensitivity > found.before.sensitivity
        assert found.after.best_price < found.before.best_price
        assert f"--half-life {(6_000 - found.row) // 4}" in text
        assert "1 in 100" in text or "once in 100 logs" in text


def test_what_changed_is_named() -> None:
    model = fit(quotes(6_000, 1, age=1.0), **ASKED)
    assert model.report_.constancy is not None
    assert model.report_.constancy.what[0] == "the effect of age on demand"
    assert "price sensitivity of" not in finding(model)


@pytest.mark.parametrize("rows", [113, 640])
def test_chunks_do_not_matter(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = quotes(5_000, 3, sensitivity=1.15)
    whole = fit(data, **ASKED)
    monkeypatch.setattr("hushprice.fitting.passes.design.rows_for", lambda width: rows)
    parts = fit(data, **ASKED)
    one, two = whole.report_.constancy, parts.report_.constancy
    assert one is not None
    assert two is not None
    assert (one.row, one.what) == (two.row, two.what)
    assert two.p_value == pytest.approx(one.p_value, rel=1e-6)
    assert whole.path_ is not None
    assert parts.path_ is not None
    np.testing.assert_allclose(parts.path_, whole.path_, rtol=1e-6, atol=1e-8)


def test_long_logs_use_some_rows_for_informations(monkeypatch: pytest.MonkeyPatch) -> None:
    data = quotes(20_000, 3, sensitivity=1.15)
    exact = fit(data, **ASKED).report_.constancy
    monkeypatch.setattr("hushprice.fitting.diagnosis.change.INFORMATION_ROWS", 4_000)
    rough = fit(data, **ASKED).report_.constancy
    assert exact is not None
    assert rough is not None
    assert np.log(rough.p_value) == pytest.approx(np.log(exact.p_value), rel=0.15)
    assert abs(rough.row - exact.row) <= 600
    assert rough.after.best_price == pytest.approx(exact.after.best_price, rel=0.05)


def test_no_test_without_enough_rows_or_an_identified_fit() -> None:
    short = fit({k: v[:90] for k, v in quotes(200, 1).items()}, **ASKED, features=[])
    few = fit({k: v[:150] for k, v in quotes(200, 1).items()}, **ASKED)
    flat = fit({**quotes(2_000, 1), "price": np.full(2_000, 2.0)}, **ASKED)
    for model in (short, few, flat):
        assert model.report_.constancy is None
        assert model.path_ is None


def test_a_half_life_is_tested_within_its_window() -> None:
    data = quotes(12_000, 4, sensitivity=1.5, at=0.5)
    old = fit(data, **ASKED, half_life=1_500.0)  # the change was four half-lives ago
    assert old.report_.constancy is not None
    assert old.report_.constancy.first == 12_000 - 4_500
    assert finding(old) == ""
    late = fit(quotes(12_000, 4, sensitivity=1.5, at=0.85), **ASKED, half_life=2_000.0)
    assert "take a shorter half-life" in finding(late)
    assert late.report_.constancy is not None
    assert abs(late.report_.constancy.row - 10_200) < 400


# The path


def test_without_a_change_every_part_has_the_fitted_theta() -> None:
    model = fit(quotes(4_000, 1), **ASKED)
    assert model.path_ is not None
    assert model.path_.shape == (10, 8)
    np.testing.assert_allclose(model.path_, np.tile(model.theta_, (10, 1)), rtol=1e-12)


def test_the_path_follows_a_change_better_than_the_fit() -> None:
    """The mean sensitivity of the parts, against the truth of the simulation; what did not change stays."""
    n = 20_000
    model = fit(quotes(n, 5, sensitivity=1.4, at=0.5), **ASKED)
    assert model.path_ is not None
    mean = model.contexts(quotes(n, 5)).mean(axis=0)
    truth = (0.8 + 0.1 * 0.2) * np.where(np.arange(10) < 5, 1.0, 1.4)
    smooth = model.path_[:, 4:] @ mean
    assert np.abs(smooth - truth).max() < 0.6 * np.abs(mean @ model.beta_ - truth).max()
    assert np.abs(smooth[[0, 1, 8, 9]] - truth[[0, 1, 8, 9]]).max() < 0.12
    still = model.path_[:, 1]  # the effect of age on demand
    assert np.ptp(still) < 1e-9


def test_the_path_minimises_what_it_says() -> None:
    """Against the dense problem of all parts, with the walk's variances, solved at once."""
    from hushprice.fitting.diagnosis.path import _fit

    rng = np.random.default_rng(1)
    m, moving, size = 4, np.array([0, 2]), np.array([0.3, 0.2])
    parts = np.array([(lambda a: a.T @ a)(rng.normal(size=(30, m))) for _ in range(10)])
    scores = rng.normal(size=(10, m)) * 5.0
    _, found = _fit(parts, scores, moving, np.tile(size, (9, 1)))

    def value(D: Any) -> float:
        steps = np.diff(D[:, moving], axis=0) / size
        return float(
            sum(0.5 * d @ H @ d - s @ d for d, H, s in zip(D, parts, scores, strict=True)) + 0.5 * (steps**2).sum()
        )

    best = value(found)
    assert np.ptp(found[:, [1, 3]], axis=0).max() < 1e-12
    for _ in range(50):
        other = found + 0.01 * np.where(np.isin(np.arange(m), moving), rng.normal(size=(10, m)), rng.normal(size=m))
        assert value(other) > best


# Exact sizes of a change


def jump(seed: int, *, weights: bool = False) -> dict[str, Any]:
    """A newcomer's log: everyone's price sensitivity doubles after row 4 000 of 6 000; best prices are 4.4 and 2.2."""
    rng = np.random.default_rng(seed)
    age, price = rng.normal(size=6_000), rng.uniform(1.0, 8.0, 6_000)
    eta = 1.9 + 0.3 * age - np.where(np.arange(6_000) < 4_000, 0.45, 0.9) * price
    sold = as_family("logistic").sample(eta, rng)
    return {"price": price, "age": age, "sold": sold} | ({"w": rng.integers(1, 4, 6_000) * 1.0} if weights else {})


@pytest.mark.parametrize("half_life", [None, 2_000.0, 1_020.0])
def test_a_large_change_has_its_size_whatever_the_half_life(half_life: float | None) -> None:
    for seed in range(4):
        model = fit(jump(seed), **ASKED, half_life=half_life)
        found = model.report_.constancy
        assert found is not None
        assert found.before.sensitivity == pytest.approx(0.45, rel=0.15)
        assert found.after.sensitivity == pytest.approx(0.9, rel=0.15)
        assert found.before.best_price == pytest.approx(4.4, rel=0.1)
        assert found.after.best_price == pytest.approx(2.23, rel=0.1)
        assert 0.35 < found.loss < 0.65
        assert f"near row {found.row:,} of 6,000:" in finding(model)
        assert f"fit the rows after {found.row:,} alone" in finding(model)


def test_the_advice_ends_the_finding() -> None:
    """A quarter of the rows since the change: the model is of the new demand, and sees no change any more."""
    for seed in (0, 1, 3):  # with 2, the demand after the change seems to change by chance, at 0.5%
        row = fit(jump(seed), **ASKED).report_.constancy.row  # type: ignore[union-attr]
        after = fit(jump(seed), **ASKED, half_life=(6_000 - row) // 4)
        assert finding(after) == ""
        assert after.report_.sensitivity > 0.675  # nearer to the new one
        alone = fit({name: column[row:] for name, column in jump(seed).items()}, **ASKED)
        assert finding(alone) == ""


@pytest.mark.parametrize("half_life", [None, 2_000.0])
def test_the_sizes_are_those_of_fits_of_either_side(half_life: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the weights of the log, and without the half-life; chunks do not matter."""
    data = jump(1, weights=True)
    monkeypatch.setattr("hushprice.fitting.passes.design.rows_for", lambda width: 640)
    model = fit(data, **ASKED, weights="w", half_life=half_life)
    monkeypatch.undo()
    whole, found = fit(data, **ASKED, weights="w", half_life=half_life).report_.constancy, model.report_.constancy
    assert found is not None
    assert whole is not None
    for side, same, rows in (
        (found.before, whole.before, slice(None, found.row)), (found.after, whole.after, slice(found.row, None)),
    ):  # fmt: skip
        own = fit({name: column[rows] for name, column in data.items()}, **ASKED, weights="w")
        mean = own.contexts({name: np.array([np.average(data[name])]) for name in ("age", "price")})[0]
        assert side.sensitivity == pytest.approx(mean @ own.beta_, rel=0.01)  # the average customer is weighted
        assert side.sensitivity == pytest.approx(same.sensitivity, rel=1e-6)
        assert side.best_price == pytest.approx(same.best_price, rel=1e-6)


@pytest.mark.parametrize("width", [0.0, 0.02])
def test_a_side_without_a_fit_of_its_own_keeps_the_step(width: float) -> None:
    """Before the change prices were the same, or nearly, so that those rows alone do not tell a sensitivity."""
    data, rng = jump(2), np.random.default_rng(0)
    data["price"][:3_000] = 4.0 + width * rng.uniform(size=3_000)
    late = np.arange(6_000) >= 3_000
    data["sold"] = as_family("logistic").sample(np.where(late, 3.5, 1.0) - 0.6 * data["price"], rng)
    found = fit(data, **ASKED).report_.constancy
    assert found is not None
    assert found.p_value < 0.01
    assert np.isfinite([found.before.sensitivity, found.after.sensitivity, found.loss]).all()
    assert 0.1 < found.before.sensitivity < 2.0  # and neither the 0 of a ridge nor an estimate from nothing


@pytest.mark.parametrize("half_life", [None, 2_000.0])
def test_the_path_passes_through_a_large_jump(half_life: float | None) -> None:
    """The parts before and after it have the demand of the fits of either side."""
    for seed in range(4):
        model = fit(jump(seed), **ASKED, half_life=half_life)
        found = model.report_.constancy
        assert found is not None
        assert model.path_ is not None
        d = len(model.alpha_)
        mean = model.contexts(jump(seed)).mean(axis=0)
        a, b = model.path_[:, :d] @ mean, model.path_[:, d:] @ mean
        for side, rows in ((found.before, slice(0, 6)), (found.after, slice(7, 10))):
            np.testing.assert_allclose(b[rows], side.sensitivity, rtol=0.05)
            np.testing.assert_allclose(a[rows], logit(side.demand) + side.sensitivity * found.mean_price, atol=0.1)


def test_a_drift_is_followed_by_a_walk() -> None:
    """A jump is chosen for a jump alone: here the sensitivity rises all the time, from 0.4 to 1.0."""
    data, rng = jump(5), np.random.default_rng(5)
    truth = 0.4 + 0.6 * np.arange(6_000) / 6_000
    data["sold"] = as_family("logistic").sample(1.9 - truth * data["price"], rng)
    model = fit(data, **ASKED)
    assert model.path_ is not None
    b = model.path_[:, 2:] @ model.contexts(data).mean(axis=0)
    assert len(np.unique(b.round(9))) == 10
    assert np.abs(b - truth.reshape(10, -1).mean(axis=1)).mean() < 0.1
