"""Every warning fires on a log made for it, and none on a good one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hushprice.fitting import DemandModel, Finding, fit
from hushprice.fitting.diagnosis.findings import at_ends, beyond, boundary, extrapolation, slack
from hushprice.fitting.diagnosis.price_variation import own_variation

Columns = dict[str, Any]
N = 4_000


def good(seed: int = 1, n: int = N, **changed: Any) -> Columns:
    """A good log: prices at random, demand that falls, an optimum inside, every level bought and not bought."""
    rng = np.random.default_rng(seed)
    log: Columns = {
        "price": rng.uniform(1.0, 4.0, n),
        "age": rng.normal(40.0, 10.0, n),
        "income": rng.lognormal(1.0, 0.5, n),
        "region": rng.choice(["north", "south", "west"], n),
    }
    log |= {name: value(log, rng) if callable(value) else value for name, value in changed.items()}
    eta = 2.0 + 0.02 * (log["age"] - 40.0) + 0.4 * (log["region"] == "south") - 1.1 * log["price"]
    log.setdefault("sold", (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float))
    return log


def findings_of(log: Columns, **options: Any) -> dict[str, Finding]:
    """The findings of a fit by their code; each code comes once."""
    options = {"features": ["age", "income", "region"]} | options
    findings = fit(log, price="price", outcome="sold", **options).findings_
    by_code = {finding.code: finding for finding in findings}
    assert len(by_code) == len(findings)
    return by_code


@pytest.mark.parametrize("seed", range(5))
def test_a_good_log_raises_nothing(seed: int) -> None:
    assert findings_of(good(seed)) == {}


@pytest.mark.parametrize("family", ["poisson", "linear"])
def test_good_logs_of_other_families_raise_nothing(family: str) -> None:
    rng = np.random.default_rng(7)
    log = good(2)
    mean = 3.0 + 0.02 * (log["age"] - 40.0) - 0.6 * log["price"]
    log["sold"] = rng.poisson(np.exp(mean)) if family == "poisson" else mean + 0.3 * rng.normal(size=N)
    model = fit(log, price="price", outcome="sold", features=["age", "region"])
    assert (model.family_.name, model.findings_) == (family, [])


def test_no_price_variation() -> None:
    findings = findings_of(good(price=np.full(N, 2.0)))
    assert list(findings) == ["no-price-variation"]
    assert findings["no-price-variation"].severity == "stop"
    assert "price = 2" in findings["no-price-variation"].text


BANDS = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3])
FORMULAS: dict[str, Any] = {
    "linear": lambda log, rng: 0.05 * log["age"] + 0.2 * log["income"] + 0.5 * (log["region"] == "west"),
    "table": lambda log, rng: np.select([log["region"] == "north", log["region"] == "south"], [1.0, 2.0], 3.5),
    "tiers of one feature": lambda log, rng: 1.0 + np.digitize(log["age"], [30.0, 40.0, 50.0]),
    "tiers in a region": lambda log, rng: 1.0 + (log["age"] > 40.0) * (1.0 + (log["region"] == "west")),
    "smooth": lambda log, rng: 2.0 + np.sin(log["age"] / 8.0) * np.where(log["region"] == "west", 0.5, 1.0),
    "bands of one feature": lambda log, rng: 1.0 + 0.3 * BANDS[np.clip(log["age"], 0, 79).astype(int) // 5],
    "waves of one feature": lambda log, rng: 2.0 + np.sin(log["age"] / 3.0),
    "curved": lambda log, rng: 1.0 + ((log["age"] - 40.0) / 10.0) ** 2 + 0.3 * log["income"],
}


@pytest.mark.parametrize("formula", list(FORMULAS))
def test_price_from_features(formula: str) -> None:
    finding = findings_of(good(price=FORMULAS[formula]))["price-from-features"]
    assert finding.severity == "stop"
    assert "follows from the features" in finding.text


@pytest.mark.parametrize("formula", ["bands of one feature", "waves of one feature"])
@pytest.mark.parametrize("others", [4, 15])
def test_price_from_one_feature_of_many(formula: str, others: int) -> None:
    """Neither a linear formula nor neighbours in all features tell, as nobody is near in many dimensions."""
    names = [f"x{j}" for j in range(others)]
    noise: dict[str, Any] = {name: (lambda log, rng: rng.normal(size=N)) for name in names}
    finding = findings_of(good(price=FORMULAS[formula], **noise), features=["age", *names], sensitivity="none")
    assert finding["price-from-features"].severity == "stop"
    assert "(age)" in finding["price-from-features"].text


def test_prices_at_random_are_nobodys_function(rng: np.random.Generator) -> None:
    """The least of 80 views: no short log needs a warning, with an odd price or a category of 60 levels too."""
    for _ in range(10):
        z = np.column_stack([np.ones(60), rng.normal(size=(60, 12))])
        assert own_variation(z, rng.uniform(1.0, 4.0, 60), {f"x{j}": [j] for j in range(1, 13)})[0] > 0.2
    x = rng.normal(size=(N, 3))
    levels = rng.integers(0, 60, N)[:, None] == np.arange(1, 60)
    z, price = np.column_stack([np.ones(N), x, levels]), rng.uniform(1.0, 4.0, N)
    places = {"a": [1], "b": [2], "c": [3], "d": range(4, 63)}
    assert own_variation(z, price, places)[0] > 0.8
    table = rng.permutation(60) / 20.0  # a price of each level
    assert own_variation(z, table[levels @ np.arange(1, 60)], places)[0] < 0.01
    for odd in range(5):
        assert own_variation(z, np.where(np.arange(N) == odd, 1e4, price), places)[0] > 0.2


def test_little_price_variation_of_its_own_needs_care() -> None:
    def price(log: Columns, rng: np.random.Generator) -> Any:
        return 2.5 + 0.1 * (log["age"] - 40.0) + 0.3 * rng.normal(size=N)

    log = good(price=lambda log, rng: np.maximum(price(log, rng), 0.1))
    finding = findings_of(log)["price-from-features"]
    assert finding.severity == "warning"
    assert "of its variance is its own" in finding.text


def test_own_variation_tells_the_share(rng: np.random.Generator) -> None:
    """The price is the sum of a part from the features and a part of its own; within 5 points of the true share."""
    x = rng.normal(size=(N, 3))
    z = np.column_stack([np.ones(N), x])
    places = {"a": [1], "b": [2], "c": [3]}
    for share in (0.05, 0.3, 0.7):
        price = np.sqrt(1 - share) * x[:, 0] + np.sqrt(share) * rng.normal(size=N)
        assert own_variation(z, price, places)[0] == pytest.approx(share, abs=0.05)
    order = np.argsort(rng.uniform(size=N))
    assert own_variation(z[order], price[order], places)[0] == pytest.approx(share, abs=0.05)
    assert own_variation(z[:, :1], price, {})[0] == 1.0
    assert own_variation(z[:8], price[:8], places)[0] == 1.0


def test_sorted_logs_do_not_hide_random_prices() -> None:
    """Rows in the order of the price: neighbours in the log are no neighbours in the features."""
    log = good()
    order = np.argsort(log["price"])
    assert "price-from-features" not in findings_of({name: column[order] for name, column in log.items()})


def test_separable_level_is_named() -> None:
    log = good()
    log["sold"] = np.where(log["region"] == "west", 0.0, log["sold"])
    finding = findings_of(log)["separable"]
    assert finding.severity == "stop"
    assert "region = west, where every sold is 0" in finding.text


def test_separable_number_is_named() -> None:
    log = good()
    log["income"] = log["sold"] * 5.0 + np.random.default_rng(1).uniform(1.0, 2.0, N)
    text = findings_of(log)["separable"].text
    assert "income, which splits the outcomes at 6" in text
    assert "known only after the sale" in text


def test_separable_counts_are_named() -> None:
    log = good()
    log["sold"] = np.where(log["region"] == "west", 0, np.random.default_rng(1).poisson(np.exp(1 - 0.4 * log["price"])))
    assert "region = west, where every sold is 0" in findings_of(log)["separable"].text


@pytest.mark.parametrize("value", [0.0, 1.0, 3.0, 2.5, -1.0])
def test_outcomes_that_are_all_alike(value: float) -> None:
    model = fit(good(sold=np.full(N, value)), price="price", outcome="sold", features=["age"])
    stops = [finding for finding in model.findings_ if finding.severity == "stop"]
    assert [finding.code for finding in stops] == ["no-outcome-variation"]
    assert f"sold = {value:g}" in stops[0].text
    if model.family_.name == "linear":
        assert model.family_.sigma < 1e-10  # type: ignore[attr-defined]


@pytest.mark.parametrize(("low", "high", "noted"), [(1.0, 2.0, True), (-1.0, 1.0, True), (0.0, 1.0, False)])
def test_outcomes_of_two_other_values(low: float, high: float, noted: bool) -> None:
    log = good()
    log["sold"] = np.where(log["sold"] == 1.0, high, low)
    finding = findings_of(log).get("two-values")
    assert (finding is not None) == noted
    if finding is not None:
        assert finding.severity == "note"
        assert f"is {low:g} or {high:g} in every row" in finding.text
    assert "two-values" not in findings_of(log | {"sold": np.where(np.arange(N) == 7, 3.0, log["sold"])})


def test_separable_without_a_single_culprit() -> None:
    log = good()
    log["sold"] = ((log["age"] - 40.0) / 10.0 + log["income"] - log["price"] > 0.0).astype(float)
    assert "Look at" not in findings_of(log)["separable"].text


def test_columns_that_say_the_same_are_not_identified() -> None:
    log = good(years=lambda log, rng: 2.0 * log["age"] + 1.0)
    finding = findings_of(log, features=["age", "years", "region"])["not-identified"]
    assert finding.severity == "stop"
    assert "2 of 10 coefficients" in finding.text
    assert "Involved are age, years:" in finding.text


def test_columns_that_miss_the_same_rows_are_named() -> None:
    """As in the loans of Karlan and Zinman, where the first wave has no incomes."""
    log = good()
    log["income"] = np.where(log["region"] == "west", np.nan, log["income"])
    findings = findings_of(log)
    finding = findings["not-identified"]
    assert finding.severity == "stop"
    assert "Involved are income missing, region=west:" in finding.text
    assert "unsure-price-effect" not in findings  # one finding reports it already


def test_many_columns_that_say_the_same_are_not_all_named() -> None:
    log = good()
    log |= {f"age{k}": k * log["age"] for k in range(2, 14)}
    text = findings_of(log, features=["age", *(f"age{k}" for k in range(2, 14))], sensitivity="none")[
        "not-identified"
    ].text
    assert "Involved are age, age2, " in text
    assert "age10 and 3 more:" in text


def _rising(log: Columns, rng: np.random.Generator) -> Any:
    return (rng.random(N) < 1 / (1 + np.exp(1.0 - 0.8 * (log["price"] - 2.0)))).astype(float)


def test_rising_demand() -> None:
    findings = findings_of(good(sold=_rising))
    assert findings["rising-demand"].severity == "stop"
    assert "Demand rises with the price" in findings["rising-demand"].text
    assert findings["boundary-optimum"].severity == "warning"


def test_no_price_effect_is_not_taken_for_rising_demand() -> None:
    """Prices at random and no effect: the estimate has the wrong sign in half of the logs, surely in one of 40.

    Of 24 logs, four or more that stop have probability 0.3%, six or more that are not called unsure 0.3%.
    """
    stops = unsure = 0
    for seed in range(24):
        rng = np.random.default_rng(seed)
        price, age = rng.uniform(1.0, 4.0, 1_500), rng.normal(40.0, 10.0, 1_500)
        log = {"price": price, "age": age, "sold": (rng.random(1_500) < 0.3).astype(float)}
        findings = findings_of(log, features=["age"])
        stops += any(finding.severity == "stop" for finding in findings.values())
        if "unsure-price-effect" in findings:
            unsure += 1
            assert findings["unsure-price-effect"].severity == "warning"
            assert "does not show whether demand falls or rises" in findings["unsure-price-effect"].text
            assert "rising-demand" not in findings
    assert stops <= 3
    assert unsure >= 19


def test_demand_that_rises_for_some_needs_care() -> None:
    def sold(log: Columns, rng: np.random.Generator) -> Any:
        slope = np.where(log["region"] == "west", -0.8, 1.5)
        return (rng.random(N) < 1 / (1 + np.exp(slope * (log["price"] - 2.0)))).astype(float)

    finding = findings_of(good(sold=sold))["rising-demand"]
    assert finding.severity == "warning"
    share = float(finding.text.split("For ")[1].split("%")[0])
    assert 25 < share < 40  # a third of customers live in the west


def test_a_price_effect_that_is_not_surely_there() -> None:
    log = good(n=300, seed=4)
    log["sold"] = (np.random.default_rng(6).random(300) < 0.5 - 0.01 * log["price"]).astype(float)
    finding = findings_of(log, features=["age"], sensitivity="none").get("unsure-price-effect")
    assert finding is not None
    assert finding.severity == "warning"


def test_boundary_optimum() -> None:
    findings = findings_of(good(), prices=(1.0, 1.3))
    assert list(findings) == ["boundary-optimum"]
    assert "at 1.3" in findings["boundary-optimum"].text
    inelastic = findings_of(good(sold=lambda log, rng: (rng.random(N) < 0.6 - 0.05 * log["price"]).astype(float)))
    assert "Demand is inelastic" in inelastic["boundary-optimum"].text


def test_extrapolation() -> None:
    findings = findings_of(good(), prices=(0.5, 9.0))
    assert list(findings) == ["extrapolation"]
    assert findings["extrapolation"].severity == "warning"
    assert "0.5 to 9 goes beyond the prices seen" in findings["extrapolation"].text
    assert findings_of(good(), prices=(1.0, 4.05)) == {}


def test_extrapolation_in_a_segment() -> None:
    log = good(price=lambda log, rng: np.where(log["region"] == "west", rng.uniform(2, 3, N), rng.uniform(1, 4, N)))
    text = findings_of(log)["extrapolation"].text
    assert "in some segments (region): west 2" in text
    assert "north" not in text


def test_a_range_of_prices_that_leaves_those_seen() -> None:
    assert slack((1.0, 3.0)) == pytest.approx(0.1)
    assert not beyond((0.95, 3.05), (1.0, 3.0))
    assert beyond((0.85, 3.0), (1.0, 3.0))
    assert beyond((1.0, 3.15), (1.0, 3.0))
    assert beyond((2.0, 2.1), (2.0, 2.0))  # the log has one price


def test_findings_of_ranges_that_differ_by_customer(rng: np.random.Generator) -> None:
    """As a twin with rules asks: by brute force, customer by customer."""
    low, high = rng.choice([1.0, 2.0], 500), rng.choice([2.0, 3.0, 4.0], 500)
    best, w = np.clip(rng.uniform(0.0, 5.0, 500), low, high), rng.uniform(0.5, 2.0, 500)
    lowest = sum(w[i] for i in range(500) if low[i] < high[i] and best[i] == low[i]) / w.sum()
    highest = sum(w[i] for i in range(500) if low[i] < high[i] and best[i] == high[i]) / w.sum()
    assert at_ends(best, low, high, w) == pytest.approx((lowest, highest))
    (finding,) = boundary(*at_ends(best, low, high, w), low, high, elasticity=-0.4)
    assert (finding.code, finding.severity) == ("boundary-optimum", "warning")
    assert f"{lowest:.0%} at the lowest of their segment, {highest:.0%} at the highest" in finding.text
    assert "inelastic (-0.40)" in finding.text
    assert at_ends(best, best, best) == (0.0, 0.0)  # who has one price has no end
    assert list(boundary(0.04, 0.05, low, high)) == []
    assert "10% at 1, 20% at 3)" in next(boundary(0.1, 0.2, np.ones(3), np.full(3, 3.0))).text


def test_extrapolation_where_segments_have_ranges_of_their_own() -> None:
    logged = {"north": (1.0, 4.0), "west": (2.0, 3.0)}
    within = {"north": ((1.0, 4.0), logged["north"]), "west": ((2.0, 3.0), logged["west"])}
    assert list(extrapolation((1.0, 4.0), (1.0, 4.0), by="region", segments=within)) == []
    wide = within | {"west": ((1.0, 3.0), logged["west"])}
    (finding,) = extrapolation((1.0, 4.0), (1.0, 4.0), by="region", segments=wide)
    assert "in some segments (region): west 2 to 3 (allowed 1 to 3)." in finding.text
    (finding,) = extrapolation((1.0, 9.0), (1.0, 4.0), by="region", segments=wide)
    assert "1 to 9 goes beyond the prices seen, 1 to 4" in finding.text


def test_negative_and_odd_prices() -> None:
    log = good()
    log["price"][0] = -1.0
    assert findings_of(log)["negative-price"].severity == "stop"
    log["price"][0] = 400.0
    assert "98% of prices lie between 1.0" in findings_of(log)["odd-prices"].text


def test_calibration() -> None:
    rng = np.random.default_rng(3)
    log = good(sold=lambda log, _: rng.negative_binomial(0.2, 0.2 / (0.2 + np.exp(2.0 - 0.4 * log["price"]))))
    assert findings_of(log)["calibration"].severity == "warning"


def test_overdispersed_counts() -> None:
    """Demand times a gamma variable of mean 1 and variance 5: the finding's factor mends the constant's error.

    The true variance of the constant's score is sum mu + 5 mu^2 and that of Poisson demand sum mu; 15% for chance.
    """
    rng = np.random.default_rng(3)
    price = rng.uniform(1.0, 4.0, 20_000)
    mean = np.exp(1.0 - 0.5 * price)
    log = {"price": price, "sold": rng.poisson(mean * rng.gamma(0.2, 5.0, 20_000))}
    finding = findings_of(log, features=[])["overdispersed"]
    assert finding.severity == "warning"
    ratio = float(finding.text.split("counts is ")[1].split(" times")[0])
    assert ratio == pytest.approx(1.0 + 5.0 * (mean**2).sum() / mean.sum(), rel=0.15)
    for seed in range(10):  # none by chance, however few are sold
        sold = np.random.default_rng(seed).poisson(0.02 * mean[:500])
        sold[:2] = 0, 2
        assert "overdispersed" not in findings_of({"price": price[:500], "sold": sold}, features=[])


@pytest.mark.parametrize(("largest", "warning"), [(1.0, False), (20.0, False), (1e4, True), (1e15, True)])
def test_uneven_weights(largest: float, warning: bool) -> None:
    finding = findings_of(good(w=np.r_[largest, np.ones(N - 1)]), weights="w").get("uneven-weights")
    assert (finding is not None) == warning
    if finding is not None:
        assert finding.severity == "warning"


def test_few_rows() -> None:
    findings = findings_of(good(n=120))
    assert findings["few-rows"].severity == "warning"
    assert "for 10 coefficients" in findings["few-rows"].text


@pytest.mark.parametrize(
    ("times", "severity"),
    [(1.0, None), (3.0, "note"), (5.7, "warning"), (0.3, "warning")],
    ids=["1", "3", "5.7", "0.3"],
)
def test_weights_that_make_another_log(times: float, severity: str | None) -> None:
    finding = findings_of(good(w=np.full(N, times)), weights="w").get("weights")
    assert (finding and finding.severity) == severity
    if finding:
        assert f"add up to {times * N:,.0f} over 4,000 rows" in finding.text
        assert f"divide them by their mean, {times:g}." in finding.text


def test_no_gain_from_the_price() -> None:
    log = good(sold=lambda log, rng: (rng.random(N) < 1 / (1 + np.exp(-(log["age"] - 40) / 10))).astype(float))
    assert any(
        f.code == "no-gain" for seed in range(3) for f in findings_of({**log, "price": good(seed)["price"]}).values()
    )


def test_notes_on_rows_and_columns() -> None:
    log = good(always=np.ones(N))
    log["price"][:7] = np.nan
    log["income"][100:110] = np.nan
    log["region"][:5] = "moon"
    findings = findings_of(log, features=["age", "income", "region", "always"])
    assert {finding.severity for finding in findings.values()} == {"note"}
    assert findings["rows-left-out"].text == "7 of 4,000 rows were left out: 7 no price."
    assert "always" in findings["constant-feature"].text
    assert "income in 10" in findings["missing-values"].text
    assert set(findings) == {"rows-left-out", "constant-feature", "missing-values"}
    log["region"][200:205] = "moon"
    assert "region (5 rows)" in findings_of(log)["joined-levels"].text
    log["zip"] = np.array([f"z{i % 1_500}" for i in range(N)])
    rare = findings_of(log, features=["age", "region", "zip"])
    assert "zip (every level, so that it is left out)" in rare["joined-levels"].text
    assert "constant-feature" not in rare
    log["price"][:1_500] = np.nan
    assert findings_of(log)["rows-left-out"].severity == "warning"


def test_the_most_severe_come_first_and_a_finding_reads_well() -> None:
    log = good(always=np.ones(N), sold=_rising)
    model = DemandModel(features=["age", "always"], prices=(1.0, 9.0)).fit(
        {name: column for name, column in log.items() if name != "sold"}, log["sold"]
    )
    severities = [finding.severity for finding in model.findings_]
    assert severities == sorted(severities, key=["stop", "warning", "note"].index)
    assert str(model.findings_[0]).startswith("stop: Demand rises with the price")
