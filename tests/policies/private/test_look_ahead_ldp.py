"""Private look-ahead: what it loses, what its server accepts, and what a hostile server can make of it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import hushprice as hp
from hushprice.errors import InvalidInput, MissingOption
from hushprice.estimation import Prior
from hushprice.kernels.dither.score import dithered_score
from hushprice.policies import LookAheadLDP, LookAheadMixed, Params, Population, PrivateReports
from hushprice.policies.private.population import FeatureKind
from hushprice.privacy import Ledger, UnsafeSeed

OPTIONS: dict[str, Any] = {"family": "logistic", "dim": 2, "prices": (0, 3), "epsilon": 4.0}
FEATURES = [[0.7, 1.5], [0.7, 1.5]]


def policy_of(**changes: Any) -> LookAheadLDP:
    return LookAheadLDP(**({"features": FEATURES} | OPTIONS | changes))


def sold(policy: LookAheadLDP, n: int, seed: int = 1) -> tuple[Any, list[Any]]:
    """A server that sold to n customers of S1, and all reports."""
    market = hp.markets.s1(dim=2)
    reports: list[Any] = []
    server, device = policy.server(), policy.device(UnsafeSeed(seed))
    rng = np.random.default_rng(seed)
    while n:
        size = min(n, server.span)
        params, z = server.params, market.draw(rng, size)
        price = device.quote(params, z, rng).price
        y = (rng.random(size) < market.family.mean(z @ market.alpha - z @ market.beta * price)).astype(np.float64)
        reports.append(device.report(params, z, price, y, params.stage))
        server.absorb(reports[-1])
        n -= size
    return server, reports


# -- what it loses ----------------------------------------------------------------------------------------------------


def test_it_loses_a_fraction_of_what_etc_ldp_loses() -> None:
    market, T = hp.markets.s1(dim=2), 100_000
    ours = hp.simulate(policy_of(), market, horizon=T, replications=8, seed=3).regret
    etc = hp.policies.ETCLDP(**OPTIONS, horizon=T, z_max=2.0, noise="privunit")
    theirs = hp.simulate(etc, market, horizon=T, replications=8, seed=3).regret
    assert ours.mean() < 0.2 * theirs.mean()
    assert ours.max() < theirs.min()


@pytest.mark.parametrize(
    ("family", "options"),
    [("probit", {}), ("poisson", {"demand_max": 4.0}), ("linear", {"demand_max": 2.0})],
)
def test_other_families_learn(family: str, options: dict[str, Any]) -> None:
    market = hp.markets.s1(dim=2, family=family)
    policy = policy_of(family=family, **options)
    learned = hp.simulate(policy, market, horizon=40_000, replications=4, seed=5).regret.mean()
    fixed = hp.policies.build("fixed-price", family=family, dim=2, prices=(0, 3), price=2.5)
    constant = hp.simulate(fixed, market, horizon=40_000, replications=2, seed=5).regret.mean()
    assert learned < 0.4 * constant


def test_a_prior_that_is_right_saves_most() -> None:
    market = hp.markets.s1(dim=2)
    prior = Prior(market.theta, 100.0 * np.eye(4))
    informed, blank = (
        hp.simulate(policy_of(epsilon=1.0, **options), market, horizon=20_000, replications=6, seed=4).regret.mean()
        for options in ({"prior": prior}, {"likely_price": 0.6})
    )
    assert informed < 0.2 * blank


def test_public_customers_save_much() -> None:
    options = OPTIONS | {"features": FEATURES, "epsilon": 1.0}
    regrets = []
    for share in (0.0, 0.3):
        market = hp.markets.s1(dim=2, public=share)
        policy = LookAheadMixed(**options, likely_price=0.6)
        regrets.append(hp.simulate(policy, market, horizon=30_000, replications=6, seed=8).regret.mean())
    assert regrets[1] < 0.8 * regrets[0]


def test_without_public_customers_mixed_is_the_same() -> None:
    market = hp.markets.s1(dim=2)
    mixed = LookAheadMixed(**(OPTIONS | {"features": FEATURES}))
    ours, theirs = (hp.simulate(p, market, horizon=5_000, replications=2, seed=2).regret for p in (policy_of(), mixed))
    np.testing.assert_array_equal(ours, theirs)


def test_everybody_public_is_learned_from_raw_records_alone() -> None:
    market = hp.markets.s1(dim=2, public=1.0)
    mixed = LookAheadMixed(**(OPTIONS | {"features": FEATURES, "epsilon": 0.1}))
    assert hp.simulate(mixed, market, horizon=20_000, replications=4, seed=2).regret.mean() < 300


# -- the server -------------------------------------------------------------------------------------------------------


def test_reports_of_a_stage_add_up_in_any_order() -> None:
    """Bit for bit: one by one, in reverse, and in one batch, with reports of the first stage that come late."""
    policy = policy_of()
    server, reports = sold(policy, 1_400)
    first = reports[0].rows
    orders = [[first], [first[::-1]], [first[k : k + 1] for k in range(len(first))], [first[200:], first[:200]]]
    ends = []
    for order in orders:
        again = policy.server()
        for rows in order:
            again.absorb(PrivateReports(np.ascontiguousarray(rows), 1))
        _ = again.params
        for later in reports[1:]:
            again.absorb(later)
            _ = again.params
        ends.append(again.state())
    for state in ends:
        for key, value in server.state().items():
            np.testing.assert_array_equal(state[key], value)
    late: Any = policy.server()
    late.absorb(reports[0])
    _ = late.params
    late.absorb(PrivateReports(first[:3].copy(), 1))
    assert late.counts.tolist() == [503, 0]


def test_sums_are_the_means_of_decoded_reports() -> None:
    policy = policy_of()
    server, reports = sold(policy, 500)
    decoded = policy.mechanism.decode_rows(reports[0].rows).sum(axis=0)
    np.testing.assert_allclose(server.sums[0] * policy.mechanism.scale / 2.0**32, decoded, atol=1e-6)


def test_a_server_refuses_what_no_device_sent() -> None:
    server, reports = sold(policy_of(), 600)
    before = str(server.state())
    rows = reports[0].rows[:2]
    raw, broken = hp.policies.Records(np.ones((1, 2)), np.ones(1), np.ones(1)), rows.astype(np.float64)
    impossible = rows + np.array([[0, 10**6]])
    wrong: list[Any] = [
        None, raw, PrivateReports(rows, 3), PrivateReports(rows, 0), PrivateReports(broken, 1),
        PrivateReports(impossible, 1),
    ]  # fmt: skip
    for one in wrong:
        with pytest.raises(InvalidInput):
            server.absorb(one)
    assert str(server.state()) == before


def test_an_estimate_has_the_covariance_of_its_priors() -> None:
    """The mixture of normal distributions, by its definition."""
    server, _ = sold(policy_of(), 3_000)
    theta, covariance = server.estimate()
    assert covariance is not None
    rng, draws = np.random.default_rng(0), []
    for c in rng.choice(len(server.weights), size=60_000, p=server.weights):
        draws.append((c, rng.normal(size=4)))
    roots = [np.linalg.cholesky(np.linalg.inv(H)) for H in server.H]
    sample = np.array([server.thetas[c] + roots[c] @ noise for c, noise in draws])
    np.testing.assert_allclose(theta, sample.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(covariance, np.cov(sample.T), atol=0.05 * np.abs(covariance).max())


# -- the device -------------------------------------------------------------------------------------------------------


def test_a_report_is_what_the_mechanism_makes_of_the_score() -> None:
    """So that its guarantee is that of the mechanism, for every price, outcome and published number."""
    policy = policy_of()
    params, rng = policy.server().params, np.random.default_rng(6)
    device, z = policy.device(UnsafeSeed(1)), rng.normal(size=(40, 2)) * 10.0 ** rng.uniform(-3, 3, (40, 1))
    price = device.quote(params, z, rng).price
    y = (rng.random(40) < 0.5).astype(np.float64)
    words = UnsafeSeed(7).words(40 * policy.mechanism.words).reshape(40, -1)
    scores, terms = np.empty((40, 4)), policy.plain_terms(40)
    for i in range(40):
        limits = (terms.cost[i], terms.low[i], terms.high[i], terms.ladder)
        assert dithered_score(policy.rule(params), z[i], price[i], y[i], limits, np.empty(4), scores[i])
    rows = device.randomised(params, z, price, y, words)
    np.testing.assert_array_equal(rows, policy.mechanism.report_rows(scores, words))


def test_a_price_of_other_params_is_refused_and_costs_no_budget() -> None:
    policy, ledger = policy_of(), Ledger(epsilon=4.0)
    device, params = policy.device(UnsafeSeed(1), ledger=ledger), policy.server().params
    z = np.array([[1.0, 1.2]])
    with pytest.raises(InvalidInput, match="none that the published params lead to"):
        device.report(params, z, np.array([1.234]), np.ones(1), 1)
    price = device.quote(params, z, np.random.default_rng(1)).price
    device.report(params, z, price, np.ones(1), 1)
    with pytest.raises(hp.BudgetSpent):
        device.report(params, z, price, np.ones(1), 1)


def hostile(params: Params, **changes: Any) -> Params:
    assert params.dither is not None
    own = {name: changes.pop(name) for name in list(changes) if name != "theta"}
    return dataclasses.replace(params, dither=dataclasses.replace(params.dither, **own), **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"delta": -0.1}, {"delta": 1.6}, {"delta": math.nan}, {"pull": 1.1}, {"pull": -0.1}, {"target": 3.5},
        {"target": math.inf}, {"level": np.full((2, 2), math.nan)}, {"slope": np.full((2, 2), math.inf)},
        {"level": np.eye(3)}, {"theta": np.full(4, math.inf)}, {"theta": np.ones(3)},
    ],
)  # fmt: skip
def test_a_device_refuses_published_numbers_that_cannot_be(changes: dict[str, Any]) -> None:
    policy = policy_of()
    evil = hostile(policy.server().params, **changes)
    with pytest.raises(InvalidInput, match="published"):
        policy.device().quote(evil, np.ones((1, 2)), np.random.default_rng(1))
    with pytest.raises(InvalidInput, match="published"):
        policy.device().report(evil, np.ones((1, 2)), np.ones(1), np.ones(1), 1)


@pytest.mark.parametrize("size", [0.0, 1e-300, 1.0, 1e8])
def test_no_published_number_makes_a_score_longer_than_one(size: float) -> None:
    policy, rng = policy_of(), np.random.default_rng(9)
    for _ in range(30):
        params = hostile(
            policy.server().params, delta=rng.uniform(0, 1.5), pull=rng.random(), target=3 * rng.random(),
            level=size * rng.normal(size=(2, 2)), slope=size * rng.normal(size=(2, 2)),
            theta=10.0 ** rng.uniform(-3, 6) * rng.normal(size=4),
        )  # fmt: skip
        z, terms = rng.normal(size=(1, 2)), policy.plain_terms(1)
        price, g = policy.device().quote(params, z, rng).price, np.empty(4)
        limits = (terms.cost[0], terms.low[0], terms.high[0], terms.ladder)
        assert dithered_score(policy.rule(params), z[0], price[0], 1.0, limits, np.empty(4), g)
        assert np.linalg.norm(g) <= 1.0 + 1e-12


# -- options ----------------------------------------------------------------------------------------------------------


def test_configurations_are_read_back() -> None:
    for options in (
        {"features": ["yes/no", 1.0]}, {"features": [{"group": 2}]}, {"features": [], "customers": [[1.0, 2.0]]},
        {"noise": "gaussian", "delta": 1e-6}, {"likely_price": 1.0},
    ):  # fmt: skip
        policy = policy_of(**options)
        again = LookAheadLDP.from_config(policy.config())
        assert again.config() == policy.config()
        np.testing.assert_array_equal(again.server().params.theta, policy.server().params.theta)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"features": []}, "needs features"), ({"features": [[0, 1]]}, "1 entries"), ({"features": "yes/no"}, "a list"),
        ({"features": [[1, 0], 1.0]}, "described by"), ({"features": ["maybe", 1.0]}, "described by"),
        ({"noise": "laplace"}, "privunit"), ({"noise": "gaussian"}, "delta"), ({"delta": 0.1}, "delta"),
        ({"family": "poisson"}, "demand_max"), ({"ridge": 2.0}, "no ridge"), ({"likely_price": 4.0}, "likely_price"),
        ({"customers": [[1.0, 2.0]]}, "not both"), ({"features": [], "customers": [[1.0]]}, "length dim"),
        ({"features": [], "customers": []}, "at least one"), ({"likely_price": 1.0, "prior": "flat"}, "prior"),
    ],
)  # fmt: skip
def test_bad_options(options: dict[str, Any], words: str) -> None:
    if options.get("prior") == "flat":
        options = options | {"prior": Prior.ridge(2, 1.0)}
    with pytest.raises(InvalidInput, match=words):
        policy_of(**options)


def test_missing_descriptions_are_missing_options() -> None:
    with pytest.raises(MissingOption):
        LookAheadLDP(**OPTIONS)


def test_populations() -> None:
    kinds = [FeatureKind.of(plain) for plain in ([0.0, 2.0], "yes/no", {"group": 3}, 1.0)]
    population = Population.of(kinds)
    z = population.points
    assert z.shape == (128, 6)
    np.testing.assert_allclose(z.mean(axis=0), [1.0, 0.5, 1 / 3, 1 / 3, 1 / 3, 1.0], atol=0.01)
    assert set(np.unique(z[:, 1])) == {0.0, 1.0}
    assert (z[:, 2:5].sum(axis=1) == 1.0).all()
    assert abs(np.cov(z[:, :2].T)[0, 1]) < 0.01
    S, mean = population.moments()
    np.testing.assert_allclose(S, z.T @ z / 128, atol=1e-12)
    np.testing.assert_allclose(mean, z.mean(axis=0), atol=1e-12)
    assert len(Population.sample(np.ones((2000, 2))).points) == 512
