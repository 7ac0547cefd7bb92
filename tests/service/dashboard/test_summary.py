"""The data of the dashboard: summary, demand curve, and whether its bands hold the truth."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2

from hushprice import policies
from hushprice.arrays import Array
from hushprice.errors import InvalidInput
from hushprice.policies import Phase, PrivatePolicy
from hushprice.privacy import UnsafeSeed
from hushprice.service import Definition, Event, OfferRequest
from hushprice.service.core.learner import Learner
from hushprice.service.core.offers import prepare
from hushprice.service.dashboard.bands import QUANTILE, Facts, spread
from hushprice.service.dashboard.curve import curve
from hushprice.service.dashboard.summary import summary
from hushprice.service.demo import shop as demo
from tests.conftest import make_policy
from tests.support import bands as bench


def _plain(policy: str, **options: Any) -> dict[str, Any]:
    return {**demo.TEA, "policy": policy, **options}


def _sold(
    name: str, definition: dict[str, Any], customers: int, *, seed: int = 0, theta: Array | None = None
) -> Learner:
    """A learner after so many customers of the demo's demand, one every 50 milliseconds."""
    learner = Learner(Definition.of(name, definition))
    _more(learner, customers, seed=seed, theta=demo.TRUTH[name] if theta is None else theta)
    return learner


def _more(learner: Learner, customers: int, *, seed: int, theta: Array) -> None:
    """So many more customers."""
    policy, rng, first = learner.policy, np.random.default_rng(seed), learner.seq
    d, device = policy.dim, policy.device(UnsafeSeed(seed)) if policy.private else None

    def buys(z: Array, price: float) -> float:
        return float(rng.random() < 1.0 / (1.0 + math.exp(price * (z @ theta[d:]) - z @ theta[:d])))

    for k in range(first, first + customers):
        z, at = np.array([1.0, *rng.uniform(-1.0, 1.0, d - 1)]), 1e9 + 0.05 * k
        if device is None:
            asked = prepare(learner.definition, OfferRequest(context=z.tolist(), id=f"o{k}"))
            body = learner.quote(asked, rng)
            learner.apply([Event(learner.seq + 1, at, "offer", f"o:o{k}", body)])
            learner.apply([Event(learner.seq + 1, at, "outcome", f"y:o{k}", {"y": buys(z, body["price"])})])
            continue
        params, report = learner.params, None
        fixed = params.phase is Phase.FIXED  # shadow mode
        price = np.array([params.level]) if fixed else device.quote(params, z[None, :], rng).price
        y = np.array([buys(z, price[0])])
        if params.learn:
            sent: Any = device.report(params, z[None, :], price, y, params.stage)
            assert isinstance(policy, PrivatePolicy)
            report = policy.mechanism.reports(sent.rows)[0].to_dict()
        body = {"version": learner.version, "report": report}
        learner.apply([Event(learner.seq + 1, at, "report", f"r:{k:032x}", body)])


def test_bands_of_a_private_product_cover_the_truth() -> None:
    """A look whether anything is badly off: bands that hold 65 of 100 whole curves would hardly pass.

    That they hold about 95 is measured by ``python -m benchmarks bands``, with hundreds of runs of several products.
    """
    runs = 24
    held = bench.measure(bench.PRIVATE["coffee, d=3"], runs, first=0)
    assert binom.cdf(binom.ppf(0.005, runs, 0.95) - 1, runs, 0.65) > 0.85  # what the line above says
    assert held.whole() >= binom.ppf(0.005, runs, 0.95) / runs
    assert held.wide < 3.0  # not vacuous


@pytest.mark.parametrize("policy", ["etc", "greedy"])
def test_bands_of_a_plain_product_cover_the_truth(policy: str) -> None:
    """At least 93 of 100 whole curves, up to chance, also where prices follow what was learned (greedy)."""
    runs = 400
    held = bench.measure(bench.PLAIN[policy], runs, first=0)
    assert held.whole() >= binom.ppf(0.01, runs, 0.93) / runs
    assert held.wide < 3.0
    assert held.whole(QUANTILE) < 0.93  # 1.96 standard errors are for one price, not for the curve


def test_a_curve_within_its_band_at_every_price_is_what_is_drawn() -> None:
    """The band of the page is that of the whole curve."""
    learner = _sold("tea", _plain("etc", horizon=10**6), 300)
    facts, z = Facts.of(learner), np.array([1.0, 0.25])
    drawn, covariance = curve(facts, z.tolist()), spread(facts).covariance
    assert covariance is not None
    for p, middle, high in zip(drawn["prices"], drawn["demand"], drawn["demand_high"], strict=True):
        x = np.r_[z, -p * z]
        width = math.log(high / (1.0 - high)) - math.log(middle / (1.0 - middle))
        assert width == pytest.approx(math.sqrt(chi2.ppf(0.95, 2)) * math.sqrt(x @ covariance @ x), rel=1e-3)


def test_distances_from_the_best_known_prices_are_counted() -> None:
    """The best known price is that of the estimate before the offer; in shadow mode of what would have been quoted."""
    learner = Learner(
        Definition.of("tea", _plain("look-ahead", rules={"ladder": [round(0.5 + 0.05 * k, 2) for k in range(71)]}))
    )
    rng, family, sums, far = np.random.default_rng(4), learner.policy.family, 0.0, 0
    for k in range(120):
        if k == 80:
            learner.apply([Event(learner.seq + 1, 1e9, "mode", "m:1", {"mode": "shadow"})])
        theta = learner.server.params.theta
        asked = prepare(learner.definition, OfferRequest(context=[1.0, float(rng.uniform(-1, 1))], id=f"o{k}"))
        body = learner.quote(asked, rng)
        price = body.get("would", body["price"])
        if theta.any():
            z = np.array(body["z"])
            rungs = np.array(learner.limits.rules.ladder)
            profit = rungs * family.mean(z @ theta[:2] - rungs * (z @ theta[2:]))
            assert body["greedy"] == rungs[profit.argmax()]
        distance = abs(price - body["greedy"]) / 3.5
        sums, far = sums + distance, far + (distance > 0.1)
        learner.apply([Event(learner.seq + 1, 1e9, "offer", f"o:o{k}", body)])
        y = {"y": float(rng.random() < 0.5)}
        learner.apply([Event(learner.seq + 1, 1e9, "outcome", f"y:o{k}", y)])
    page = summary(learner)
    assert page["sums"]["deviation"] == pytest.approx(sums)
    assert page["counts"]["far"] == far
    assert 0 < far < 120
    assert page["history"]["far"][-1] <= far
    private = summary(_sold("coffee", demo.COFFEE, 20))
    assert (private["counts"]["far"], private["sums"]["deviation"]) == (0, 0.0)
    assert "far" not in private["history"]


def test_segments_can_be_shown_at_any_moment() -> None:
    """The prior of a one-hot group is a full matrix, symmetric to the bit."""
    plain = {"policy": "look-ahead", "family": "logistic", "dim": 4, "prices": [0.5, 4.0]}
    learner, rng = Learner(Definition.of("tea", plain)), np.random.default_rng(6)
    for k in range(150):
        z = [*np.eye(3)[rng.integers(3)].tolist(), float(rng.uniform(-1, 1))]
        body = learner.quote(prepare(learner.definition, OfferRequest(context=z, id=f"o{k}")), rng)
        learner.apply([Event(learner.seq + 1, 1e9, "offer", f"o:o{k}", body)])
        learner.apply([Event(learner.seq + 1, 1e9, "outcome", f"y:o{k}", {"y": float(rng.random() < 0.4)})])
        page = summary(learner)
    assert page["known"]
    assert np.isfinite(curve(Facts.of(learner), [1.0, 0.0, 0.0, 0.5])["demand_high"]).all()


def test_bands_of_noisy_linear_demand_use_the_noise_that_was_learned() -> None:
    """With noise five times the stated, standard errors are those of least squares, up to the margin of the bands."""
    plain = {"policy": "look-ahead", "family": "linear", "dim": 2, "prices": [0.5, 4.0]}
    learner, rng = Learner(Definition.of("tea", plain)), np.random.default_rng(7)
    rows, outcomes = [], []
    for k in range(400):
        z = [1.0, float(rng.uniform(-1, 1))]
        body = learner.quote(prepare(learner.definition, OfferRequest(context=z, id=f"o{k}")), rng)
        y = float(20.0 + 4.0 * z[1] - 5.0 * body["price"] + 5.0 * rng.standard_normal())
        learner.apply([Event(learner.seq + 1, 1e9, "offer", f"o:o{k}", body)])
        learner.apply([Event(learner.seq + 1, 1e9, "outcome", f"y:o{k}", {"y": y})])
        rows.append([*z, *(-body["price"] * np.array(z))])
        outcomes.append(y)
    covariance = spread(Facts.of(learner)).covariance
    assert covariance is not None
    x = np.array(rows)
    theta, *_ = np.linalg.lstsq(x, np.array(outcomes))
    noise = ((np.array(outcomes) - x @ theta) ** 2).sum() / 396
    expected = np.sqrt(np.diag(noise * np.linalg.inv(x.T @ x)))
    ratio = np.sqrt(np.diag(covariance)) / expected
    assert ((ratio > 0.7) & (ratio < 1.8)).all()


def test_a_frozen_product_prices_from_its_prior() -> None:
    """Before any sale there is an estimate if a prior was given, and none otherwise."""
    prior = {"centre": [2.2, 0.7, 1.2, -0.3], "precision": (100.0 * np.eye(4)).tolist()}
    informed = Learner(Definition.of("tea", _plain("look-ahead", prior=prior, mode="frozen")))
    blank = Learner(Definition.of("tea", _plain("look-ahead", mode="frozen")))
    assert (informed.params.phase, blank.params.phase) == (Phase.EXPLOIT, Phase.FIXED)
    assert (summary(informed)["known"], summary(blank)["known"]) == (True, False)
    np.testing.assert_array_equal(informed.params.theta, prior["centre"])


SERVED = [name for name, kind in policies.REGISTRY.items() if not kind.not_served]


@pytest.mark.parametrize("name", SERVED)
def test_every_policy_can_be_shown(name: str) -> None:
    """Before the first customer and after some, as JSON without NaN; curves stay within their bands."""
    config = {key: value for key, value in make_policy(name, dim=2).config().items() if key != "rules"}
    features = [feature.config() for feature in bench.APART]
    plain = {**config, "policy": name, "features": features, "baseline": 1.5}
    product = "coffee" if policies.get(name).private else "tea"
    theta = np.array([2.6, 0.9, 1.0, -0.25]) if product == "coffee" else demo.TRUTH["tea"]
    for customers in (0, 150):
        learner = _sold(product, plain, customers, theta=theta)
        before = learner.digest()
        summarised, drawn = summary(learner), curve(Facts.of(learner), [1.0, 0.3])
        assert learner.digest() == before
        json.dumps([summarised, drawn], allow_nan=False)
        assert summarised["counts"]["customers"] == customers
        assert customers > 0 or not drawn["learned"]
        assert len(drawn["prices"]) == len(drawn["demand"]) == len(drawn["revenue"])
        if drawn["bands"]["level"] is not None:
            low, middle, high = (np.array(drawn[key]) for key in ("demand_low", "demand", "demand_high"))
            assert ((low <= middle) & (middle <= high)).all()


def test_curve_is_the_model_and_its_best_price_the_best_allowed_one() -> None:
    learner = _sold("tea", _plain("etc", horizon=10**6), 400)
    drawn, (theta, _) = curve(Facts.of(learner), [1.0, 0.25]), learner.server.estimate()
    a, b = theta[0] + 0.25 * theta[1], theta[2] + 0.25 * theta[3]
    prices = np.array(drawn["prices"])
    np.testing.assert_allclose(drawn["demand"], 1.0 / (1.0 + np.exp(b * prices - a)), rtol=1e-5)
    np.testing.assert_allclose(drawn["revenue"], prices * np.array(drawn["demand"]), rtol=1e-4)
    fine = np.linspace(0.5, 4.0, 20_001)
    best = fine[np.argmax(fine / (1.0 + np.exp(b * fine - a)))]
    assert abs(drawn["best"]["price"] - best) < 1e-3
    assert drawn["best"]["price_low"] <= drawn["best"]["price"] <= drawn["best"]["price_high"]
    rails = {"low": None, "high": best - 0.3, "ladder": [], "largest_step": None, "by": "me"}
    learner.apply([Event(learner.seq + 1, 1e9 + 99.0, "guardrails", "a:1", rails)])
    assert curve(Facts.of(learner), [1.0, 0.25])["best"]["price"] == pytest.approx(best - 0.3)
    for wrong in ([1.0], [1.0, math.nan], [1.0, "x"]):
        with pytest.raises(InvalidInput):
            curve(Facts.of(learner), wrong)  # type: ignore[arg-type]


def test_bands_are_left_out_where_they_would_be_wrong() -> None:
    coffee = _sold("coffee", demo.COFFEE, 60)
    assert "at least 150 reports" in spread(Facts.of(coffee)).words
    assert "demand_low" not in curve(Facts.of(coffee), [1.0, 0.0, 0.0])
    nameless = _sold("coffee", {**demo.COFFEE, "features": []}, 700)
    assert "does not state them" in spread(Facts.of(nameless)).words
    assert "outcomes" in spread(Facts.of(_sold("tea", demo.TEA, 20))).words


EXPLORING = {**demo.COFFEE, "policy": "etc-ldp", "horizon": 10**13}  # coffee that is still being explored


def _apart(learner: Learner, kind: Any, body: dict[str, Any]) -> None:
    learner.apply([Event(learner.seq + 1, 2e9, kind, f"a:{learner.seq}", {**body, "by": "me"})])


def test_no_bands_from_reports_in_shadow_mode_whenever_they_were_made() -> None:
    """Reports at one price say nothing of others: at most a tenth of those that SGD took in may be of them."""
    learner, theta = _sold("coffee", {**EXPLORING, "mode": "shadow"}, 200), demo.TRUTH["coffee"]
    assert "shadow" in spread(Facts.of(learner)).words
    _apart(learner, "mode", {"mode": "live"})
    _more(learner, 400, seed=1, theta=theta)
    facts = Facts.of(learner)
    assert facts.steps is not None
    assert 0.6 * facts.steps < facts.explored < 0.9 * facts.steps
    assert "shadow" in spread(facts).words
    clean = _sold("coffee", EXPLORING, 300)
    _apart(clean, "mode", {"mode": "shadow"})
    assert spread(Facts.of(clean)).covariance is not None  # nothing was learned in shadow mode yet
    _more(clean, 50, seed=1, theta=theta)
    assert "shadow" in spread(Facts.of(clean)).words


def test_no_bands_until_most_reports_are_from_the_guardrails_of_today() -> None:
    learner = _sold("coffee", EXPLORING, 250)
    assert spread(Facts.of(learner)).covariance is not None
    _apart(learner, "guardrails", {"low": 2.0, "high": 3.0, "ladder": None, "largest_step": None})
    assert "other guardrails" in spread(Facts.of(learner)).words
    _more(learner, 150, seed=1, theta=demo.TRUTH["coffee"])
    assert "other guardrails" in spread(Facts.of(learner)).words
    _more(learner, 150, seed=2, theta=demo.TRUTH["coffee"])
    assert spread(Facts.of(learner)).covariance is not None


@pytest.mark.parametrize("ladder", [[], [2.1, 2.6, 3.9]])
def test_the_baseline_is_shown_as_it_is_quoted_under_guardrails(ladder: list[float]) -> None:
    learner = _sold("tea", _plain("etc", horizon=10**6), 300)
    _apart(learner, "guardrails", {"low": 2.0, "high": 3.0, "ladder": ladder, "largest_step": None})
    shown = summary(learner)
    _apart(learner, "mode", {"mode": "shadow"})
    asked = prepare(learner.definition, OfferRequest(context=[1.0, 0.3], id="x"))
    quoted = learner.quote(asked, np.random.default_rng(1))["price"]
    assert quoted == (2.6 if ladder else 3.0)
    assert shown["baseline"] == curve(Facts.of(learner), [1.0, 0.3])["baseline"]["price"] == quoted
    z = np.array([sale.z for sale in learner.statistics.recent])
    theta = Facts.of(learner).theta
    expected = np.mean(quoted / (1.0 + np.exp(quoted * (z @ theta[2:]) - z @ theta[:2])))
    assert shown["earned"]["baseline"]["mean"] == pytest.approx(expected)
    assert "rough" in shown["earned"]["words"]


def test_what_was_earned_is_weighed_against_the_baseline() -> None:
    learner = _sold("tea", _plain("etc-doubling"), 1_500)
    earned = summary(learner)["earned"]
    assert earned["n"] == 1_000
    closed = list(learner.statistics.recent)
    assert earned["mean"] == pytest.approx(np.mean([sale.price * sale.y for sale in closed]))
    z = np.array([sale.z for sale in closed])
    truth = np.mean(3.4 / (1.0 + np.exp(3.4 * (z @ demo.TRUTH["tea"][2:]) - z @ demo.TRUTH["tea"][:2])))
    assert earned["baseline"]["low"] <= truth <= earned["baseline"]["high"]
    assert earned["more"]["mean"] == pytest.approx(earned["mean"] - earned["baseline"]["mean"])
    assert summary(_sold("coffee", demo.COFFEE, 100))["earned"] is None
