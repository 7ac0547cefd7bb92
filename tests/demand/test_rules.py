"""Business rules, costs of customers, propensities, today's prices and drawn truths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate

import hushprice as hp
from hushprice import checks, markets, policies
from hushprice.demand import FAMILIES, Rules, as_family
from hushprice.kernels import terms as kernel
from hushprice.markets import Market, Resample
from hushprice.policies import ETC, Device, Policy, Pricer
from hushprice.policies.exchange import Params, Propensity
from hushprice.policies.thompson_density import Sampled
from hushprice.privacy import Entropy
from hushprice.simulation import Today, record, simulate, write_log
from tests.conftest import make_policy

LADDER = (0.5, 0.99, 1.49, 1.99, 2.49, 2.99)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ladder": (1.0, 1.0)}, "different prices"),
        ({"ladder": (-1.0, 1.0)}, "at least 0"),
        ({"ladder": (np.nan,)}, "finite"),
        ({"largest_step": 0.0}, "above 0"),
        ({"largest_step": "big"}, "number"),
        ({"segments": ("a", "a")}, "twice"),
        ({"segments": ("a",), "ranges": {"b": (1, 2)}}, "no segment called 'b'"),
        ({"ranges": {"a": (2, 1)}}, r"\(low, high\)"),
        ({"ranges": {"a": 1}}, r"\(low, high\)"),
        ({"ranges": [1, 2]}, "by segment"),
        ({"segments": "abc"}, "names"),
    ],
    ids=str,
)
def test_rules_that_make_no_sense(options: dict[str, Any], text: str) -> None:
    with pytest.raises(hp.InvalidInput, match=text):
        Rules(**options)


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (Rules(ladder=(5.0, 6.0)), "No price of the ladder"),
        (Rules(ladder=LADDER, ranges={"a": (1.0, 1.2)}), "No price of the ladder"),
        (Rules(ranges={"a": (1.0, 3.5)}), "leaves the price range"),
        (Rules(ladder=LADDER, largest_step=0.3), "out of reach"),
    ],
    ids=["outside", "between", "range", "step"],
)
def test_rules_that_cannot_be_met_are_refused_at_the_start(rules: Rules, text: str) -> None:
    with pytest.raises(hp.InvalidInput, match=text):
        make_policy("etc", rules=rules)
    with pytest.raises(hp.InvalidInput, match=text):
        replace(markets.s1(dim=2), segments=("a",), rules=rules)


def test_a_private_policy_has_no_largest_step() -> None:
    with pytest.raises(hp.InvalidInput, match="leave the device"):
        make_policy("etc-ldp", rules=Rules(largest_step=0.5))
    make_policy("etc-ldp", rules=Rules(ladder=LADDER))
    with pytest.raises(hp.InvalidInput, match="never reach"):
        make_policy("etc-ldp", rules=Rules(ranges={"a": (2.5, 3)}), experiment_prices=(0, 2))


def test_rules_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('ladder = [2, 1]\nlargest_step = 1\nsegments = ["a", "b"]\n[ranges]\nb = [0.5, 2]\n')
    rules = Rules.read(file)
    assert rules == Rules(ladder=(1.0, 2.0), largest_step=1.0, segments=("a", "b"), ranges={"b": (0.5, 2.0)})
    assert Rules.of(rules.config()) == rules
    for text, problem in (("ladders = [1]", "ladders"), ("ladder = 1", "list"), ("ladder = [", "TOML")):
        file.write_text(text)
        with pytest.raises(hp.InvalidInput, match=problem):
            Rules.read(file)
    with pytest.raises(hp.InvalidInput, match="cannot be read"):
        Rules.read(tmp_path / "none.toml")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_best_allowed_price_is_that_of_brute_force(family: str) -> None:
    code, ladder = as_family(family).code, np.array(LADDER)
    rng = np.random.default_rng(2)
    for _ in range(400):
        a, b, cost = rng.normal(0, 2), rng.normal(0.5, 1), 2 * rng.random()
        low, high = np.sort(rng.choice(ladder, 2, replace=False)) + np.array([-0.01, 0.01])
        price = kernel.best_on_terms(code, a, b, cost, low, high, ladder)
        allowed = ladder[(ladder >= low) & (ladder <= high)]
        earned = as_family(family).revenue(allowed, a, b, cost=cost)
        assert price in allowed
        assert as_family(family).revenue(price, a, b, cost=cost) >= earned.max() - 1e-12


def _market(**options: Any) -> Market:
    rng = np.random.default_rng(0)
    base = markets.s1(dim=2)
    who = Resample(
        base.draw(rng, 300), costs=rng.random(300), segments=rng.integers(0, 2, 300), today=1.0 + rng.random(300)
    )
    return replace(base, contexts=who, segments=("a", "b"), **options)


def test_costs_of_customers_enter_revenue_and_regret() -> None:
    market = _market()
    knowing = policies.Clairvoyant(family=market.family, dim=2, prices=market.prices, theta=market.theta)
    result = simulate(knowing, market, horizon=5000, replications=2)
    np.testing.assert_allclose(result.regret, 0.0, atol=1e-9)
    fixed = policies.FixedPrice(family=market.family, dim=2, prices=market.prices, price=2.0)
    who = market.contexts
    a, b = who.rows @ market.alpha, who.rows @ market.beta
    best = np.array(
        [market.family.optimal_revenue(x, y, market.prices, cost=c) for x, y, c in zip(a, b, who.costs, strict=True)]
    )
    lost = np.mean(best - (2.0 - who.costs) * market.family.mean(a - 2.0 * b))
    got = simulate(fixed, market, horizon=200_000, replications=1).regret[0] / 200_000
    assert got == pytest.approx(lost, rel=0.02)


def test_regret_is_against_the_best_allowed_price() -> None:
    rules = Rules(ladder=LADDER, ranges={"b": (0.9, 1.6)}, segments=("a", "b"))
    market = _market(rules=rules)
    knowing = policies.Clairvoyant(family=market.family, dim=2, prices=market.prices, theta=market.theta, rules=rules)
    np.testing.assert_allclose(simulate(knowing, market, horizon=5000, replications=1).regret, 0.0, atol=1e-9)
    with pytest.raises(hp.InvalidInput, match="different rules"):
        simulate(replace(knowing, rules=None), market, horizon=10, replications=1)
    with pytest.raises(hp.InvalidInput, match="No customer is of the segment"):
        _market(rules=Rules(ranges={"c": (1, 2)}))


def test_segments_are_matched_by_name_not_by_number() -> None:
    rules = Rules(ranges={"b": (0.1, 0.2), "a": (2.0, 2.5)})  # in another order than the market's
    with pytest.raises(hp.InvalidInput, match="alphabetical"):
        replace(markets.s1(dim=2), segments=("b", "a"))
    market = _market(rules=rules)
    policy = policies.RandomPrice(family=market.family, dim=2, prices=market.prices, rules=rules)
    table = record(policy, market, horizon=500)
    price, segment = table["price"].to_numpy(), np.array(table["segment"].to_pylist())
    assert set(segment) == {"a", "b"}
    assert ((price[segment == "b"] >= 0.1) & (price[segment == "b"] <= 0.2)).all()
    assert ((price[segment == "a"] >= 2.0) & (price[segment == "a"] <= 2.5)).all()


def test_a_saved_pricer_keeps_to_the_largest_step(tmp_path: Path) -> None:
    policy = make_policy("random-price", rules=Rules(largest_step=0.1, segments=("a", "b")))
    pricer = policy.start(seed=1)
    z = np.ones(policy.dim)
    last = [pricer.offer(z, segment="a").price for _ in range(5)][-1]
    pricer.offer(z, segment="b")
    pricer.save(tmp_path / "p.hush")
    again = Pricer.load(tmp_path / "p.hush")
    assert abs(again.offer(z, segment="a").price - last) <= 0.1 + 1e-9
    assert again.policy.rules == policy.rules


# -- propensities ---------------------------------------------------------------------------------------------


class _LyingDevice(Device):
    def propensity(self, params: Params, z: Any, price: Any, terms: Any = None) -> Propensity:
        propensity = super().propensity(params, z, price, terms)
        return Propensity(1.15 * propensity.value, propensity.discrete)


class _Liar(ETC):
    name = "liar"

    def device(self, entropy: Entropy | None = None) -> Device:
        return _LyingDevice(self)


def test_the_check_of_propensities_can_fail() -> None:
    liar: Policy = _Liar(family="logistic", dim=2, prices=(0, 3), horizon=700)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=r"off|said"):
        checks.check_propensities(liar)


def test_an_offer_says_how_likely_its_price_was() -> None:
    pricer = make_policy("random-price", prices=(1, 3)).start(seed=1)
    offer = pricer.offer(np.ones(pricer.policy.dim))
    assert (offer.propensity, offer.discrete) == (0.5, False)
    pricer = make_policy("random-price", rules=Rules(ladder=LADDER)).start(seed=1)
    offer = pricer.offer(np.ones(pricer.policy.dim))
    assert offer.propensity == pytest.approx(1 / 6)
    assert offer.discrete


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cost", [0.1, 3.0])
@pytest.mark.parametrize("b", [0.8, -1.5])
def test_the_ends_of_the_range_are_sampled_as_often_as_is_said(family: str, cost: float, b: float) -> None:
    demand, rng = as_family(family), np.random.default_rng(3)
    facts: dict[str, Any] = {"spread_a": 0.7, "spread_b": 0.9, "cost": cost, "low": 0.4, "high": 2.5}
    sampled = Sampled(family=demand, a=1.0, b=b, vertex=1.4, **facts)
    along = 0.9 * rng.standard_normal(40_000)
    prices = as_family(family).optimal_price(
        1.0 + 1.4 * along + 0.7 * rng.standard_normal(40_000), b + along, (0.4, 2.5), cost=cost
    )
    for end in (0.4, 2.5):
        said, seen = sampled.propensity(end, np.empty(0))[0], np.mean(prices == end)
        assert abs(seen - said) <= 4.9 * np.sqrt(said * (1 - said) / 40_000) + 1e-12  # two-sided error rate 1e-6


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("spread_a", [0.002, 0.05, 0.5, 2.0])
def test_the_distribution_of_a_sampled_price_adds_up(family: str, spread_a: float) -> None:
    sampled = Sampled(
        family=as_family(family), a=1.0, b=0.8, vertex=1.4, spread_a=spread_a, spread_b=0.3, cost=0.1,
        low=0.4, high=2.5,
    )  # fmt: skip
    ends = sampled.propensity(0.4, np.empty(0))[0] + sampled.propensity(2.5, np.empty(0))[0]
    inside = integrate.quad(sampled.density, 0.4, 2.5, limit=400, epsabs=2e-7)[0]
    assert ends + inside == pytest.approx(1.0, abs=1e-6)
    ladder = np.array([0.5, 1.0, 1.1, 2.0])
    assert sum(sampled.propensity(p, ladder)[0] for p in ladder) == pytest.approx(1.0, abs=1e-9)


# -- markets calibrated to a log --------------------------------------------------------------------------------


def test_todays_prices_earn_what_they_earn() -> None:
    market = _market()
    who = market.contexts
    a, b = who.rows @ market.alpha, who.rows @ market.beta
    exact = np.mean((who.today - who.costs) * market.family.mean(a - b * who.today))
    result = simulate(Today(), market, horizon=400_000, replications=1)
    assert result.revenue[0] / 400_000 == pytest.approx(exact, rel=0.01)
    by_segment = simulate(Today({"a": 1.0, "b": 2.0}), market, horizon=1000, replications=1)
    assert by_segment.regret[0] > 0
    for wrong in ({"a": 1.0}, {"a": -1.0, "b": 1.0}):
        with pytest.raises(hp.InvalidInput):
            simulate(Today(wrong), market, horizon=10, replications=1)
    cheap = replace(market, prices=(0.0, 0.5))  # today's prices are not allowed, and better
    signed = simulate(Today(), cheap, horizon=2000, replications=1)
    knowing = policies.Clairvoyant(family=market.family, dim=2, prices=(0.0, 0.5), theta=market.theta)
    allowed = simulate(knowing, cheap, horizon=2000, replications=1)
    assert signed.regret[0] < 0
    assert signed.revenue[0] + signed.regret[0] == pytest.approx(allowed.revenue[0], abs=60)  # both near the optimum
    with pytest.raises(hp.InvalidInput, match="today"):
        simulate(Today(), markets.s1(dim=2), horizon=10, replications=1)


def test_a_drawn_truth_has_the_stated_spread() -> None:
    covariance = np.diag([0.04, 0.0, 0.09, 0.01])
    covariance[0, 2] = covariance[2, 0] = 0.03
    market = replace(markets.s1(dim=2), covariance=covariance)
    drawn = np.array([market.truth(np.random.default_rng(k)).theta for k in range(4000)])
    np.testing.assert_allclose(drawn.mean(axis=0), market.theta, atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.008)
    fitted = policies.Clairvoyant(family=market.family, dim=2, prices=market.prices, theta=market.theta)
    result = simulate(fitted, market, horizon=2000, replications=5)
    assert (result.regret > 0).all()
    assert len(set(result.regret)) == 5
    assert market.fingerprint() != markets.s1(dim=2).fingerprint()


def test_a_failed_offer_changes_no_last_price(monkeypatch: pytest.MonkeyPatch) -> None:
    pricer = make_policy("random-price", rules=Rules(largest_step=0.1)).start(seed=1)
    z = np.ones(pricer.policy.dim)
    last = pricer.offer(z).price

    def fail(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(pricer._device, "propensity", fail)
    with pytest.raises(KeyboardInterrupt):
        pricer.offer(z)
    assert pricer._last[0] == last


def test_a_tampered_last_price_is_refused(tmp_path: Path) -> None:
    pricer = make_policy("random-price", rules=Rules(ladder=(2.0, 3.0), largest_step=1.0)).start(seed=1)
    pricer._last[:] = 0.0
    pricer.save(tmp_path / "p.hush")
    with pytest.raises(hp.SnapshotError, match="last prices"):
        Pricer.load(tmp_path / "p.hush")


def test_the_segment_of_a_private_customer_is_not_repeated() -> None:
    rules = Rules(ranges={"a": (0, 1), "b": (1, 1)})
    pricer = make_policy("etc-ldp", rules=rules).start()
    z = np.ones(pricer.policy.dim)
    with pytest.raises(hp.InvalidInput, match="not repeated") as refusal:
        pricer.offer(z, segment="sick")
    assert "sick" not in str(refusal.value)
    for segment in ("a", "b"):
        stored = pricer._open[pricer.offer(z, segment=segment).id]
        assert not stored.discrete
        assert np.isnan(stored.propensity)
    assert np.isnan(pricer._last).all()


def test_a_log_replaces_nothing_but_a_recorded_log(tmp_path: Path) -> None:
    policy, market = make_policy("random-price"), markets.s1(dim=3)
    table = record(policy, market, horizon=5)
    for name in ("log.csv", "log.parquet"):
        for _ in range(2):
            write_log(table, tmp_path / name)
        (tmp_path / name).write_text("p,y\n1,0\n")
        with pytest.raises(hp.InvalidInput, match="left alone"):
            write_log(table, tmp_path / name)
        assert (tmp_path / name).read_text() == "p,y\n1,0\n"


def test_features_with_names_of_other_columns_keep_theirs() -> None:
    market = replace(markets.s1(dim=2), names=("price", "age"))
    table = record(make_policy("random-price", dim=2), market, horizon=5)
    assert table.column_names == ["price feature", "age", "price", "outcome", "propensity", "discrete"]
