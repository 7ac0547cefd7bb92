"""Markets whose contexts begin with a constant that demand does not have."""

from __future__ import annotations

import numpy as np
import pytest

import hushprice as hp
from hushprice.checks import market_checks
from hushprice.markets import REGISTRY, Resample, build
from hushprice.studies.spec_strings import market_from

PAPER = [name for name in REGISTRY if name not in ("twin", "autoloan")]


@pytest.mark.parametrize("name", PAPER)
def test_the_markets_of_the_paper_take_an_intercept(name: str) -> None:
    plain, other = build(name, dim=4), build(name, dim=4, intercept=True)
    assert plain.dim == 4
    assert other.dim == 5
    assert (other.alpha[0], other.beta[0]) == (0.0, 0.0)
    z, longer = (market.draw(np.random.default_rng(1), 50) for market in (plain, other))
    np.testing.assert_array_equal(longer, np.c_[np.ones(50), z])
    np.testing.assert_allclose(other.optimal_price(longer), plain.optimal_price(z))
    assert np.linalg.norm(longer, axis=1).max() <= other.z_max()
    assert other.fingerprint() != plain.fingerprint()
    assert other.name == f"{name} with intercept"
    for check in market_checks():
        check(other)


def test_rows_keep_costs_segments_and_names() -> None:
    rows = Resample(np.arange(6.0).reshape(3, 2), costs=np.array([0.1, 0.2, 0.3]), segments=np.array([0, 1, 0]))
    market = hp.Market(
        alpha=np.array([1.0, 0.5]), beta=np.array([0.5, 0.5]), prices=(0, 5), contexts=rows,
        segments=("a", "b"), names=("x", "y"), covariance=np.diag([1.0, 2.0, 3.0, 4.0]),
    ).with_intercept()  # fmt: skip
    assert market.names == ("1", "x", "y")
    assert market.covariance is not None
    np.testing.assert_array_equal(np.diag(market.covariance), [0.0, 1.0, 2.0, 0.0, 3.0, 4.0])
    who = market.arrivals(np.random.default_rng(0), 20)
    assert who.cost is not None
    assert who.segment is not None
    np.testing.assert_allclose(who.cost, 0.1 * (1.0 + who.z[:, 1] / 2.0))
    np.testing.assert_array_equal(who.segment, (who.z[:, 1] == 2.0).astype(np.int64))


def test_what_is_no_answer_is_refused() -> None:
    with pytest.raises(hp.InvalidInput, match="intercept must be true or false"):
        build("s1", dim=2, intercept=1)


def test_words_name_it() -> None:
    assert market_from("s1:intercept=true", dim=2, horizon=10).dim == 3
    assert market_from("s1:intercept=false", dim=2, horizon=10).dim == 2
