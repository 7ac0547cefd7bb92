"""Where the bands of a plain product get their covariance from. (Their coverage: ``test_summary.py``.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import hushprice as hp
from hushprice.estimation import Prior, RunningEstimator, design
from hushprice.policies import Records
from hushprice.policies.episodes import EpisodeServer
from hushprice.service import Definition
from hushprice.service.core.learner import Learner
from hushprice.service.dashboard.bands import MAX_REPLAYED_SEGMENTS, SAFETY, Facts, allowed_prices, spread
from hushprice.service.demo.products import COFFEE
from hushprice.service.guardrails import Limits

SIGMA, RECORDS = 2.0, 3_000


@dataclass(frozen=True, kw_only=True)
class _Centred(hp.policies.ETC):
    """ETC whose prior has a centre away from 0 and directions of different precision."""

    @property
    def initial_prior(self) -> Prior:
        return Prior([3.0, -1.0, 2.0, 0.5], np.diag([4.0, 2.0, 1.0, 3.0]) + 0.5)


class _Stating(EpisodeServer):
    """States a posterior, and has no running estimators to show."""

    @property
    def estimators(self) -> tuple[RunningEstimator, ...]:
        return ()

    def estimate(self) -> Any:
        return self.estimator.estimate()


class _OwnPosterior(_Centred):
    def server(self) -> EpisodeServer:
        return _Stating(self)


def _learned(policy: type[_Centred]) -> tuple[Learner, Any]:
    """A product that learned from sales without noise, and the true theta."""
    market, rng = hp.markets.s1(dim=2, family="linear"), np.random.default_rng(5)
    z, price = market.draw(rng, RECORDS), rng.uniform(0, 3, RECORDS)
    own = policy(family=hp.Linear(sigma=SIGMA), dim=2, prices=(0, 3), horizon=10**4)
    learner = Learner(Definition(name="tea", policy=own, baseline=1.0))
    learner.server.absorb(Records(z, price, design(z, price) @ market.theta))
    learner.learned = RECORDS
    return learner, market.theta


def test_bands_contain_the_bias_towards_the_prior() -> None:
    """Without noise the error of the estimate is its bias, exactly so for linear demand."""
    learner, truth = _learned(_Centred)
    theta, stated = learner.server.estimate()
    covariance = spread(Facts.of(learner)).covariance
    assert covariance is not None
    assert stated is not None
    error = theta - truth
    assert np.abs(error).max() > 0.01
    square = covariance / SAFETY["plain"] ** 2 - stated
    np.testing.assert_allclose(square, np.outer(error, error), rtol=0.05, atol=0.01 * np.abs(error).max() ** 2)


def test_bands_show_a_posterior_of_its_own_as_stated() -> None:
    """The policy's prior says nothing about servers without running estimators."""
    learner, _ = _learned(_OwnPosterior)
    np.testing.assert_array_equal(spread(Facts.of(learner)).covariance, learner.server.estimate()[1])


def test_many_segments_are_replayed_by_some_of_them() -> None:
    names = [f"store-{k:03d}" for k in range(50)]
    ranges = {name: [1.0 + 0.02 * k, 5.0] for k, name in enumerate(names)}
    plain = {**COFFEE, "rules": {"segments": names, "ranges": ranges}}
    definition = Definition.of("coffee", plain)
    prices, weights = allowed_prices(definition.policy, Limits(definition.policy, definition.guardrails))
    assert len(prices) == 6 * MAX_REPLAYED_SEGMENTS
    assert weights.sum() == pytest.approx(1.0)
    assert prices.max() > 4.8
    assert prices.min() < 1.2
