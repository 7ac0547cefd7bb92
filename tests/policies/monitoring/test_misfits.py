"""The misfit alarm: the statistic against a reference, its false-alarm rate, and where it sounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import hushprice as hp
from hushprice.arrays import Array
from hushprice.kernels.glm import log_predictive
from hushprice.kernels.look_ahead import misfit as kernel
from hushprice.policies import LookAhead, Misfit, Records
from hushprice.policies.look_ahead import AheadServer

LOGISTIC = hp.Logistic().code


def _server(dim: int = 2) -> AheadServer:
    return LookAhead(family=hp.Logistic(), dim=dim, prices=(0.0, 3.0)).server()


def _records(n: int, rng: np.random.Generator, utility: Any, dim: int = 2) -> Records:
    z = np.c_[np.ones(n), rng.uniform(-1.0, 1.0, (n, dim - 1))]
    price = rng.uniform(0.2, 2.8, n)
    return Records(z, price, (rng.random(n) < expit(utility(z, price))).astype(np.float64))


def _line(z: Array, price: Array) -> Array:
    return np.asarray(1.5 + 0.5 * z[:, 1] - price)


def _kink(z: Array, price: Array) -> Array:
    return np.asarray(_line(z, price) - 4.0 * np.maximum(price - 2.0, 0.0))


def _curved(z: Array, price: Array) -> Array:
    return np.asarray(_line(z, price) + 2.0 * z[:, 1] ** 2)


def _learn(server: AheadServer, records: Records) -> AheadServer:
    server.absorb(records)
    server.catch_up()
    return server


def test_the_statistic_is_that_of_its_definition(rng: np.random.Generator) -> None:
    """One cell by hand: offsets and evidence outcome by outcome, from the expectations before each."""
    server, records = _server(), _records(700, rng, _line)
    keep, cell, offset, known, R = 1.0 - 1.0 / kernel.MISFIT_WINDOW, 4, 0.0, 0.0, 0.0
    shared, shared_known = 0.0, 0.0

    def step(eta: float, v: float, y: float, offset: float, known: float) -> tuple[float, float]:
        """A Newton step for the outcome and a quadratic of the others."""
        mu = float(expit(eta + v * offset))
        known = keep * known + v * v * mu * (1.0 - mu)
        return offset + v * (y - mu) / (known + 1.0 / kernel.USUAL**2), known

    for i in range(700):
        z, price, y = records.z[i], float(records.price[i]), float(records.y[i])
        theta, covariance = server.estimate()
        assert covariance is not None
        x = np.r_[z, -price * z]
        eta, spread = float(x @ theta), float(x @ covariance @ x)
        v = float(z @ server.memories.level)
        assert i < 100 or v == pytest.approx(1.0, abs=0.01)
        _learn(server, Records(records.z[i : i + 1], records.price[i : i + 1], records.y[i : i + 1]))
        if i < kernel.FIRST_REVIEW:
            assert np.isnan(server.misfit.edges).all()
            continue
        edges = server.misfit.edges[0]
        if np.searchsorted(edges, price, side="left") == cell:
            plain = log_predictive(LOGISTIC, eta + v * shared, spread, 1.0, y)
            ratio = math.exp(log_predictive(LOGISTIC, eta + v * shared + offset, spread, 1.0, y) - plain)
            R = (keep * R + 1.0) * ratio
            offset, known = step(eta + v * shared, 1.0, y, offset, known)
        shared, shared_known = step(eta, v, y, shared, shared_known)
    assert server.misfit.offset[0, cell] == pytest.approx(offset, rel=1e-6)
    assert server.misfit.evidence[0, cell] == pytest.approx(math.log(R), rel=1e-6)
    assert np.diff(server.misfit.edges[0]).min() > 0
    assert np.isnan(server.misfit.edges[1]).all()  # the constant is not watched


def test_alarms_are_as_rare_as_stated(rng: np.random.Generator) -> None:
    """R exceeds 20 n in any cell of n outcomes with a probability of at most a twentieth: of 60 models 3 are expected
    at most, and 10 or more would have a probability below 0.001."""
    n, exceeded = 3000, 0
    for _ in range(60):
        theta = rng.normal(size=2)
        server = _learn(
            _server(), _records(n, rng, lambda z, p, t=theta: 1.5 + 0.5 * t[0] * z[:, 1] - p * np.exp(0.2 * t[1]))
        )
        cells = int(np.isfinite(server.misfit.edges).any(axis=1).sum()) * kernel.TENTHS
        exceeded += server.misfit.evidence.max() > math.log(20.0 * n * cells)
    assert exceeded < 10
    assert kernel.least_evidence(server.misfit) == pytest.approx(math.log(1e6 * cells))


def test_a_kink_is_found_at_its_prices(rng: np.random.Generator) -> None:
    server = _learn(_server(), _records(12_000, rng, _kink))
    found = [one for one in server.misfits if one.feature is None]
    assert found
    for one in found:
        inside = np.linspace(max(one.low, 0.2), min(one.high, 2.8), 50)
        assert one.outcomes > 100
        assert one.bought != pytest.approx(one.expected, abs=0.01)
        assert one.low >= 1.4 or inside.max() <= 1.8  # the kink at 2, and what the fit does to bend to it
    top = found[-1]
    assert math.isinf(top.high)
    assert top.bought < top.expected
    assert "prices above" in str(top)
    assert "narrow the range" in str(top)


def test_a_curved_feature_is_found_at_that_feature(rng: np.random.Generator) -> None:
    server = _learn(_server(3), _records(12_000, rng, _curved, dim=3))
    assert {one.feature for one in server.misfits} == {1}
    assert (
        server.misfits[0]
        .text(["constant", "age", "size"])
        .startswith("Demand does not follow the model at values of age")
    )


def test_a_change_of_the_level_is_no_misfit(rng: np.random.Generator) -> None:
    """Without the offset of all cells the evidence is four times that of the alarm, with it less than half."""
    server = LookAhead(family=hp.Logistic(), dim=2, prices=(0.0, 3.0), memory=None).server()
    _learn(server, _records(30_000, rng, _line))
    _learn(server, _records(3000, rng, lambda z, p: _line(z, p) - 1.0))
    assert server.misfits == ()
    assert server.misfit.tally[kernel.OFFSET] < -0.5
    assert server.misfit.evidence.max() < 0.5 * kernel.least_evidence(server.misfit)


def test_prices_of_a_ladder_are_not_split_by_rounding(rng: np.random.Generator) -> None:
    n, rungs = 900, np.array([0.9, 1.3, 1.7, 2.1, 2.5])
    records = _records(n, rng, _line, dim=3)
    z = records.z * 0.7 + 0.1
    price = rungs[rng.integers(0, 5, n)]
    server = _learn(_server(3), Records(z, price, records.y))
    counted = server.misfit.sums[0, 0]
    assert np.count_nonzero(counted) == 5
    seen = np.array([(price[499:] == rung).sum() for rung in rungs])
    np.testing.assert_allclose(counted[counted > 0.0], seen, rtol=0.1)
    _learn(server, Records(np.zeros((200, 3)), np.full(200, 0.5), np.ones(200)))
    assert server.misfit.sums[0, 0].sum() <= counted.sum()


def test_after_a_change_the_alarm_starts_afresh(rng: np.random.Generator) -> None:
    server = _learn(_server(), _records(12_000, rng, _kink))
    assert server.misfits
    for _ in range(20):
        _learn(server, _records(100, rng, lambda z, p: _line(z, p) - 1.5))
    assert server.change is not None
    assert server.misfits == ()


def test_words_for_every_kind_of_range() -> None:
    def of(feature: int | None, low: float, high: float) -> Misfit:
        return Misfit(feature=feature, low=low, high=high, outcomes=10, bought=0.1, expected=0.2)

    assert of(None, -math.inf, 2.0).where() == "prices up to 2"
    assert of(0, 1.0, 2.0).where(["age"]) == "values of age between 1 and 2"
    assert of(2, 1.0, math.inf).where(["age"]) == "values of feature 3 above 1"
    assert of(0, math.nan, math.nan).where(["vip"]) == "customers with vip"
    assert of(None, -math.inf, 2.0).config()["low"] is None


def test_indicators_have_one_cell(rng: np.random.Generator) -> None:
    n = 9000
    group = rng.integers(0, 2, n)
    z = np.c_[np.ones(n), group]
    price = rng.uniform(0.2, 2.8, n)
    y = (rng.random(n) < expit(1.5 - price * np.where(group, 0.3, 1.5))).astype(np.float64)
    server = _learn(_server(), Records(z, price, y))
    assert np.isinf(server.misfit.edges[2]).all()
    assert server.misfit.sums[0, 2, 1:].sum() == 0.0
    assert server.misfits == ()  # the model has a slope for the group


@pytest.mark.parametrize("zeros", [False, True])
def test_a_missing_constant_is_a_misfit_and_no_change(zeros: bool, rng: np.random.Generator) -> None:
    """Centred features: a shift of demand, which no coefficient can follow, must not be found over and over."""
    n = 6000
    z = np.zeros((n, 2)) if zeros else rng.normal(size=(n, 2))
    price = rng.uniform(0.2, 2.8, n)
    y = (rng.random(n) < expit(2.0 - price + z[:, 0])).astype(np.float64)
    server = _learn(_server(), Records(z, price, y))
    assert server.change is None or server.change.count <= 1
    assert zeros or {one.feature for one in server.misfits} >= {None}
