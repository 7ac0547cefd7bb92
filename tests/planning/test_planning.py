"""Plans: lines in money, the recommendation in every branch, and a whole plan on a small twin."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet
from scipy import stats

from hushprice.demand import Logistic, Poisson, Probit, Rules
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.fitting import Finding
from hushprice.markets import Resample, s1
from hushprice.markets.twin.check import TwinCheck
from hushprice.markets.twin.places import Place
from hushprice.markets.twin.replay import Group, Replay
from hushprice.markets.twin.twin import About, Twin
from hushprice.markets.twin.twin_file import TwinFileError, load_twin, save_twin
from hushprice.planning import Interval, Line, Plan, Recommendation, Situation, options, plan, recommend
from hushprice.planning.curves import allowed_prices, curves, segment_prices
from hushprice.planning.option_results import Kind, factor, money, share_bounds
from hushprice.planning.options import confidence_radius, largest_demand, usual_norm, wide_radius
from hushprice.planning.report import _assumptions, _check, _model, _prices, _recommendation
from hushprice.plots import page
from hushprice.plots.planning import PricePair, prices_by_segment
from hushprice.simulation import Today, compare
from hushprice.studies.spec_strings import policy_from

N = 20
RNG = np.random.default_rng(5)
NOISE = RNG.normal(size=N)
NOISE -= NOISE.mean()


def small_twin(**changes: Any) -> Twin:
    """Two segments, one feature, best prices inside [0.5, 6]."""
    rng = np.random.default_rng(1)
    rows = np.column_stack([np.ones(400), rng.uniform(-1.0, 1.0, 400)])
    about = About(
        log="offers.csv", log_rows=400, left_out=3, seen=(0.5, 6.0), price="price", outcome="sold", today="4 for all",
    )  # fmt: skip
    fields: dict[str, Any] = {
        "name": "twin", "alpha": np.array([1.0, 0.3]), "beta": np.array([0.8, 0.1]), "prices": (0.5, 6.0),
        "contexts": Resample(rows, segments=(rows[:, 1] > 0).astype(int), today=np.full(400, 4.0)),
        "segments": ("far", "near"), "covariance": 0.002 * np.eye(4), "names": ("1", "x"), "about": about,
    }  # fmt: skip
    return Twin(**fields | changes)


TWIN = small_twin()


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan(
        TWIN, horizon=600, policies=("etc", "mle-cycle"), epsilons=(1.0, 8.0), opt_out=(0.0, 1.0), replications=6,
        seed=3, workers=1, worth=10.0, currency="$",
    )  # fmt: skip


# Lines


def test_an_interval_is_students() -> None:
    sample = RNG.normal(3.0, 2.0, 15)
    low, high = stats.ttest_1samp(sample, 0.0).confidence_interval(0.95)
    interval = Interval.of(sample)
    assert (interval.mean, interval.low, interval.high) == pytest.approx((sample.mean(), low, high))
    assert np.isnan(Interval.of([1.0]).low)
    assert factor(15) * sample.std(ddof=1) / np.sqrt(15) == pytest.approx((high - low) / 2)


@pytest.mark.parametrize(("wins", "n"), [(0, 5), (2, 2), (8, 20), (20, 20), (37, 40)], ids=str)
def test_bounds_of_a_share_are_clopper_and_pearsons(wins: int, n: int) -> None:
    exact = stats.binomtest(wins, n).proportion_ci(confidence_level=0.9, method="exact")
    assert share_bounds(wins, n) == pytest.approx((exact.low, exact.high))


def line(label: str, kind: Kind, losses: Any, **facts: Any) -> Line:
    best = np.full(N, 1_000.0)
    return Line(
        label=label, kind=kind, word=label, losses=np.asarray(losses, float), best=best, experiments=0.1,
        deviation=0.02, far=0.1, **facts,
    )  # fmt: skip


def test_differences_are_paired() -> None:
    today, other = 300.0 + 50.0 * NOISE, 100.0 + 50.0 * NOISE
    one = line("etc", "learning", other, today=today, partner=other[: N // 2] - 7.0)
    assert one.gain == Interval.of(np.full(N, 200.0))
    assert one.gain is not None
    assert one.gain.high - one.gain.low < 1e-9
    assert one.probability == 1.0
    assert one.privacy is not None
    assert one.privacy.mean == pytest.approx(7.0)
    assert one.revenue.mean == pytest.approx(1_000.0 - other.mean())
    assert one.row()["gain_5"] == pytest.approx(200.0)
    assert line("t", "today", today, today=today).gain is None


# The recommendation

TODAY = 300.0 + 20.0 * NOISE


def lines(model: Any, learning: Any, today: Any = TODAY, *more: Line) -> list[Line]:
    shared = {"today": np.asarray(today, float)}
    return [
        line("today's prices", "today", today, **shared),
        line("the model's prices", "model", model, **shared),
        line("etc", "learning", learning, **shared),
        *more,
    ]


HERE = Situation(horizon=10_000, currency="$", allowed="1 to 9", check=True)
CARE = Finding("few-rows", "warning", "There are few rows.")


def test_run_what_surely_gains() -> None:
    recommendation = recommend(lines(100.0 + 20.0 * NOISE, 180.0 + 22.0 * NOISE), HERE)
    assert (recommendation.verdict, recommendation.choice) == ("run", "the model's prices")
    assert recommendation.headline.startswith(
        "Run the model's prices: they earn $200 over 10,000 customers ($20.0 per 1,000)"
    )
    text = str(recommendation)
    assert "a gain in 20 of 20 (likely)" in text
    assert "The model's prices are $80.0 over 10,000 customers ($8.00 per 1,000) ahead of the next best" in text
    assert "cannot gain more over the model's prices than $100 over" in text


def test_keep_todays_prices_if_nothing_earns_more() -> None:
    recommendation = recommend(lines(TODAY + 50.0, TODAY + 80.0), HERE)
    assert (recommendation.verdict, recommendation.choice) == ("keep", "today's prices")
    assert recommendation.headline == "Keep today's prices: nothing tried here earns more."
    assert recommendation.reasons[0].startswith(
        "Today's prices are $50.0 over 10,000 customers ($5.00 per 1,000) ahead of the"
    )


def test_not_enough_evidence_if_today_is_as_good() -> None:
    """What replications cannot tell is not what the data cannot tell."""
    recommendation = recommend(lines(TODAY - 25.0 + 60.0 * np.roll(NOISE, 3), TODAY + 90.0), HERE)
    assert (recommendation.verdict, recommendation.choice) == ("unclear", "today's prices")
    assert "not enough evidence" in recommendation.headline
    assert (
        "These 20 replications cannot tell the model's prices from today's prices for sure: run more"
        in recommendation.headline
    )
    assert "data cannot" not in str(recommendation)


def test_not_enough_evidence_if_a_gain_is_not_likely() -> None:
    """Eight large gains and twelve small losses: the mean is surely above 0, but it is a gain in two of five."""
    model = TODAY + np.where(np.arange(N) % 5 < 2, -400.0, 5.0)
    some = lines(model, TODAY + 900.0)
    gain = some[1].gain
    assert gain is not None
    assert gain.positive
    recommendation = recommend(some, HERE)
    assert (recommendation.verdict, recommendation.choice) == ("unclear", "today's prices")
    assert (
        "earn more in only 8 of 20 replications, each with another truth that the log allows" in recommendation.headline
    )
    assert "a gain in 8 of 20 (a toss-up)" in str(recommendation)
    assert "truth" not in recommend(some, replace(HERE, uncertain=False)).headline


def shorter(some: list[Line], n: int) -> list[Line]:
    """The first n replications."""
    return [replace(one, losses=one.losses[:n], today=TODAY[:n], best=one.best[:n]) for one in some]


def test_few_replications_are_not_sure_of_anything() -> None:
    some = lines(TODAY - 200.0, TODAY - 100.0)
    recommendations = {n: recommend(shorter(some, n), HERE) for n in (2, 13, 14)}
    assert [one.verdict for one in recommendations.values()] == ["unclear", "unclear", "run"]  # 0.05^(1/14) = 0.807
    assert "a gain in 2 of 2 (too few to be sure)" in str(recommendations[2])
    assert recommendations[2].headline.startswith(
        "2 replications are too few for a recommendation, though the model's prices gain"
    )


@pytest.mark.parametrize(
    ("wins", "n", "word"),
    [(60, 60, "sure, as far"), (40, 40, "very likely"), (14, 14, "likely"), (36, 40, "too few to be sure"),
     (14, 20, "not sure"), (10, 20, "a toss-up"), (2, 20, "unlikely")],
    ids=str,
)  # fmt: skip
def test_words_for_how_sure(wins: int, n: int, word: str) -> None:
    """A gain on average, in ``wins`` of n replications."""
    today = np.full(n, 300.0)
    gains = np.where(np.arange(n) < wins, 500.0, -10.0)
    results = [
        line("today's prices", "today", today, today=today),
        line("the model's prices", "model", today - gains, today=today),
    ]
    assert f"a gain in {wins} of {n} ({word}" in str(recommend([replace(one, best=today) for one in results], HERE))


def test_of_options_as_good_the_simplest_is_run() -> None:
    learning = 100.0 + 20.0 * NOISE
    recommendation = recommend(lines(learning + 3.0 + 30.0 * np.roll(NOISE, 7), learning), HERE)
    assert (recommendation.verdict, recommendation.choice) == ("run", "the model's prices")
    assert "These 20 replications cannot tell the policy etc from the model's prices" in str(recommendation)


def test_learning_is_run_if_it_is_better() -> None:
    recommendation = recommend(lines(200.0 + 20.0 * NOISE, 100.0 + 20.0 * NOISE), HERE)
    assert (recommendation.verdict, recommendation.choice) == ("run", "etc")
    assert "Run the policy etc" in recommendation.headline


GAINING = lines(100.0 + 20.0 * NOISE, 180.0 + 22.0 * NOISE)


@pytest.mark.parametrize("code", ["boundary-optimum", "rising-demand", "extrapolation", "unsure-price-effect"])
def test_widen_the_experiment_on_findings(code: str) -> None:
    finding = Finding(code, "warning", f"Found {code}.")
    recommendation = recommend(GAINING, replace(HERE, findings=(CARE, finding)))
    assert (recommendation.verdict, recommendation.choice) == ("widen", "the model's prices")
    assert recommendation.headline == (
        f"Widen the price experiment before you rely on new prices. Found {code}. Of what was tried within the prices "
        "allowed (1 to 9), the model's prices earn most."
    )
    assert [caveat.code for caveat in recommendation.caveats] == ["few-rows", "demand-stays"]
    assert "gain $200" in str(recommendation)
    noted = replace(HERE, findings=(Finding(code, "note", "For the record."),))
    assert recommend(GAINING, noted).verdict == "run"


def test_stop_if_the_model_must_not_be_used() -> None:
    finding = Finding("separable", "stop", "It is separable.")
    recommendation = recommend(GAINING, replace(HERE, findings=(finding,)))
    assert (recommendation.verdict, recommendation.choice) == ("stop", "today's prices")
    assert recommendation.headline.startswith("Do not set prices from this model")
    assert finding in recommendation.caveats


def test_caveats() -> None:
    doubtful = recommend(GAINING, replace(HERE, findings=(CARE,), uncertain=False, check=False))
    text = str(doubtful)
    for words in ("There are few rows.", "takes the fitted model for certain", "fails to reproduce the log"):
        assert words in text
    assert doubtful.verdict == "run"
    place = Place(
        comparison="tenths of age", where="values of age above 60", rows=9.0, bought=0.31, expected=0.22, z=9.0
    )
    named = str(recommend(GAINING, replace(HERE, check=False, misfits=(place,))))
    assert f"Read amounts with care. {place.text}" in named
    assert "was not checked" in str(recommend(GAINING, replace(HERE, check=None)))
    assert len(recommend(GAINING, HERE).caveats) == 1
    outside = recommend(lines(TODAY, TODAY, TODAY - 1_000.0), HERE)
    assert outside.caveats[0].code == "today-outside"
    assert "cannot keep to a largest step" in str(recommend(GAINING, replace(HERE, stepwise=True)))


def test_what_privacy_costs_is_reported_at_each_epsilon() -> None:
    etc = GAINING[2].losses
    private = [
        line(f"etc-ldp {e}", "private", etc + 90.0 / e, partner=etc, epsilon=e, from_log=start, today=TODAY)
        for e in (1.0, 3.0)
        for start in (False, True)
    ]
    shares = [
        line(f"mixed {s}", "opt-out", etc + 40.0 * s, partner=etc, epsilon=2.0, opt_out=s, today=TODAY)
        for s in (0.0, 1.0)
    ]
    text = str(recommend([*GAINING, *private, *shares], HERE))
    assert "from nothing, costs against etc: $90.0 at epsilon 1, $30.0 at epsilon 3." in text
    assert "started from the log" in text
    assert "Letting customers choose (epsilon 2) costs against etc: $0 if 0% opt out, $40.0 if 100% opt out." in text
    assert "privacy is free" in text
    assert "privacy is free" not in str(recommend(GAINING, HERE))


def test_a_recommendation_needs_todays_prices() -> None:
    with pytest.raises(InvalidInput, match="today's prices"):
        recommend(GAINING[1:], HERE)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.5, "$1,234"), (-1234.5, "-$1,234"), (12.34, "$12.3"), (0.5, "$0.50"), (0.0012, "$0.0012"), (-0.0, "$0")],
    ids=str,
)
def test_money(value: float, text: str) -> None:
    assert money(value, "$") == text
    assert money(value, "EUR ") == text.replace("$", "EUR\u00a0")


# Options


def test_options_are_words_anyone_can_run() -> None:
    chosen = options(TWIN, 600, policies=("etc",), epsilons=(1.0,), opt_out=(0.25,), epsilon=2.0)
    kinds = ["today", "model", "learning", "learning", "private", "private", "opt-out"]
    assert [one.kind for one in chosen] == kinds
    assert [one.market.public for one in chosen] == [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.75]
    assert [one.from_log for one in chosen] == [False, False, False, True, False, True, False]
    for one in chosen[1:]:
        assert policy_from(one.word, TWIN, 600).config() == one.policy.config()
    centre = chosen[5].policy.config()["centre"]
    assert centre == pytest.approx(TWIN.theta.tolist())
    assert chosen[4].policy.config()["z_max"] == pytest.approx(usual_norm(TWIN), rel=0.01)


def test_the_partner_without_privacy_is_always_there() -> None:
    chosen = options(TWIN, 600, policies=("mle-cycle",), epsilons=(1.0,), opt_out=())
    assert [one.label for one in chosen if one.kind == "learning"] == ["etc", "mle-cycle", "mle-cycle, from the log"]
    alone = options(TWIN, 600, policies=("mle-cycle",), epsilons=(), opt_out=())
    assert [one.label for one in alone] == [
        "today's prices",
        "the model's prices",
        "mle-cycle",
        "mle-cycle, from the log",
    ]
    words = ("etc-ldp:epsilon=1", "etc-ldp-doubling:epsilon=1", "etc-ldp-mixed-doubling:epsilon=1", "etc")
    choices = options(TWIN, 600, policies=words, epsilons=(), opt_out=())
    assert [one.label for one in choices[2:]] == ["etc-doubling", *words, "etc, from the log"]
    assert [one.partner for one in choices[2:]] == [None, "etc", "etc-doubling", "etc-doubling", None, None]


def test_a_private_policy_alone_has_its_price() -> None:
    one = plan(
        TWIN, horizon=300, policies=["etc-ldp:epsilon=4"], epsilons=[], opt_out=[], replications=2, workers=1
    )  # fmt: skip
    assert [line.label for line in one.lines][2:] == ["etc", "etc-ldp:epsilon=4"]
    assert one.lines[-1].privacy is not None
    assert "against the same policy without" in one.html()


def test_the_ball_around_the_fit_holds_the_truth() -> None:
    """With about 99% or more; of 4 000 draws, fewer than 98.5% inside would happen 1 time in 1 000 at 99%."""
    rng = np.random.default_rng(2)
    for covariance in (0.01 * np.eye(4), np.diag([0.3, 0.0, 0.0, 0.0]), np.diag([0.3, 0.1, 0.01, 0.0])):
        one = small_twin(covariance=covariance)
        radius = confidence_radius(one)
        assert radius is not None
        drawn = np.array([one.truth(rng).theta for _ in range(4_000)])
        assert (np.linalg.norm(drawn - one.theta, axis=1) <= radius).mean() > 0.985
    assert confidence_radius(small_twin(covariance=None)) is None


def test_counts_state_their_largest_demand() -> None:
    counts = small_twin(family=Poisson(), alpha=np.array([2.0, 0.0]))
    a, b = counts.contexts.rows @ counts.alpha, counts.contexts.rows @ counts.beta
    assert largest_demand(counts) == pytest.approx(np.exp(a - 0.5 * b).max())
    chosen = options(counts, 600, policies=(), epsilons=(4.0,), opt_out=())
    assert "demand_max=" in chosen[-1].word


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"policies": ("etc", "etc")}, "named twice"),
        ({"policies": ("clairvoyant",)}, "leave out clairvoyant"),
        ({"policies": ("etcc",)}, "etcc"),
        ({"epsilons": (1.0, 1.0)}, "named twice"),
        ({"epsilons": (0.0,)}, "epsilon"),
        ({"opt_out": (1.5,)}, "opt_out"),
        ({"opt_out": (0.5, 0.5)}, "named twice"),
    ],
    ids=lambda value: " ".join(map(str, value.items())) if isinstance(value, dict) else "",
)
def test_options_that_cannot_be(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(HushpriceError, match=words):
        options(TWIN, 600, **arguments)


# Plans


def test_a_plan_compares_on_the_same_customers(made: Plan) -> None:
    same = compare({"today": Today(), "etc": policy_from("etc", TWIN, 600)}, TWIN, horizon=600, replications=6, seed=3)
    by_label = {one.label: one for one in made.lines}
    assert np.allclose(by_label["today's prices"].losses, 10.0 * same["today"].regret)
    assert np.allclose(by_label["etc"].losses, 10.0 * same["etc"].regret)
    gains = by_label["etc"].gains
    assert gains is not None
    assert np.allclose(gains, 10.0 * (same["today"].regret - same["etc"].regret))
    assert [one.replications for one in made.lines] == [6] * 6 + [3] * 6


def test_revenue_is_what_is_expected_up_to_chance() -> None:
    """With one truth the revenue of a price is known: T mean(p mu). A line's revenue is A - loss, A the mean over both
    options of revenue plus regret, so that a sale's standard deviation is at most the mean over options of those of p y
    and of the regrets. 4 standard errors: 1 in 16 000."""
    sure, n, T = small_twin(covariance=None), 30, 2_000
    one = plan(sure, horizon=T, policies=(), epsilons=(), opt_out=(), replications=n, workers=1, worth=10.0)
    z, prices = sure.contexts.rows, (sure.today, sure.best_prices())
    mu = [Logistic().mean(z @ sure.alpha - (z @ sure.beta) * p) for p in prices]
    earned = [p * m for p, m in zip(prices, mu, strict=True)]
    sale = [np.sqrt((p**2 * m).mean() - (p * m).mean() ** 2) for p, m in zip(prices, mu, strict=True)]
    reach = 4 * (np.mean(sale) + np.std(earned[1] - earned[0])) * np.sqrt(T / n)
    for line, expected in zip(one.lines, earned, strict=True):
        assert abs(line.revenue.mean - 10.0 * T * expected.mean()) < 10.0 * reach
    assert reach < 0.05 * T * earned[0].mean()  # sharp enough to tell anything


def test_todays_prices_may_beat_what_is_allowed() -> None:
    """The best price is near 2; with 3 the lowest allowed, today's 2.2 earns more than anything that may be quoted."""
    cheap = Resample(TWIN.contexts.rows, segments=TWIN.contexts.segments, today=np.full(400, 2.2))
    one = plan(
        small_twin(prices=(3.0, 6.0), contexts=cheap), horizon=2_000, policies=("etc",), epsilons=(), opt_out=(),
        replications=4, workers=1,
    )  # fmt: skip
    today, model, etc, from_log = one.lines
    assert today.loss.high < 0.0
    assert model.loss.low > -1e-9
    assert model.gain is not None
    assert model.gain.high < 0.0
    for learning in (etc, from_log):
        assert learning.gain is not None
        assert learning.gain.high < 0.0
    recommendation = one.recommendation
    assert (recommendation.verdict, recommendation.choice) == ("keep", "today's prices")
    assert "today-outside" in [caveat.code for caveat in recommendation.caveats]
    assert "Today's prices are" in recommendation.reasons[0]


def test_rules_with_a_largest_step_leave_privacy_out() -> None:
    ruled = small_twin(rules=Rules(largest_step=1.0))
    one = plan(ruled, horizon=300, policies=("etc",), replications=2, workers=1)
    assert [line.kind for line in one.lines] == ["today", "model", "learning", "learning"]
    assert "no-private-options" in [caveat.code for caveat in one.recommendation.caveats]
    assert "in steps of at most 1" in one.html()
    with pytest.raises(InvalidInput, match="largest step"):  # asked for by name
        plan(ruled, horizon=300, policies=("etc-ldp:epsilon=1",), replications=2, workers=1)


def test_headlines_name_the_ranges_of_segments() -> None:
    ruled = small_twin(rules=Rules(ranges={"far": (0.5, 1.5), "near": (0.5, 1.8)}))
    one = plan(ruled, horizon=2_000, policies=(), epsilons=(), opt_out=(), replications=14, workers=1)
    recommendation = one.recommendation
    assert recommendation.verdict == "widen"
    assert "100% at the highest of their segment" in recommendation.headline
    assert "(far 0.5 to 1.5, near 0.5 to 1.8)" in recommendation.headline
    assert "allowed: far 0.5 to 1.5, near 0.5 to 1.8." in one.html()
    assert [(s.lowest, s.highest) for s in one.segments] == [(0.5, 1.8), (0.5, 1.5), (0.5, 1.8)]
    assert allowed_prices(TWIN) == "0.5 to 6"


def test_the_page_says_what_nothing_is() -> None:
    large = small_twin(alpha=np.array([6.0, 0.3]), beta=np.array([3.0, 0.1]))
    radius = wide_radius(large)
    assert radius == pytest.approx(2.0 * np.linalg.norm(large.theta))
    one = plan(large, horizon=200, policies=(), epsilons=(8.0,), opt_out=(), replications=2, workers=1)
    assert f"|theta| at most {radius:.3g} (twice that of the fit" in one.html()
    assert wide_radius(TWIN) is None


def test_bands_over_customers_are_students(made: Plan) -> None:
    """The band of a path ends where the interval of the loss does, few as the replications are."""
    axes = made.pictures["paths"].figure.axes[0]
    labels = [drawn.get_label() for drawn in axes.get_lines()]
    for one in made.lines[:4]:
        ends = np.asarray(axes.collections[labels.index(one.label)].get_paths()[0].vertices)
        last = ends[ends[:, 0] == 600.0, 1]
        assert (last.min(), last.max()) == pytest.approx((one.loss.low, one.loss.high), rel=1e-6)


def test_nothing_depends_on_the_workers(made: Plan) -> None:
    calls: list[tuple[int, int]] = []
    again = plan(
        TWIN, horizon=600, policies=("etc", "mle-cycle"), epsilons=(1.0, 8.0), opt_out=(0.0, 1.0), replications=6,
        seed=3, workers=2, worth=10.0, currency="$", progress=lambda done, total: calls.append((done, total)),
    )  # fmt: skip
    assert again.rows() == made.rows()
    assert calls == [(k, 54) for k in range(1, 55)]


def test_the_models_prices_lose_what_the_log_leaves_open() -> None:
    small = {"horizon": 400, "policies": (), "epsilons": (), "opt_out": (), "replications": 3, "workers": 1}
    sure, unsure = (plan(one, **small) for one in (small_twin(covariance=None), TWIN))  # type: ignore[arg-type]
    assert sure.lines[1].loss.mean == pytest.approx(0.0, abs=1e-9)
    assert unsure.lines[1].loss.mean > 0.01
    assert "too sure of itself" in str(sure.recommendation)


def test_a_plan_tells_the_whole_story(made: Plan) -> None:
    recommendation = made.recommendation
    assert isinstance(recommendation, Recommendation)
    assert recommendation.verdict == "unclear"  # six replications are too few to be sure
    assert len(made.rows()) == 12
    plain = json.loads(made.to_json())
    assert plain["recommendation"]["verdict"] == recommendation.verdict
    assert plain["options"][0]["gain"] is None
    assert [one.segment for one in made.segments] == ["everyone", "far", "near"]


def test_a_plan_of_probit_demand() -> None:
    """Every kind of option runs; the model's own prices lose least where the log leaves little open."""
    twin = small_twin(family=Probit(), covariance=1e-6 * np.eye(4))
    result = plan(twin, horizon=2_000, policies=("etc-doubling",), epsilons=(4.0,), replications=4, workers=1)
    assert {each.kind for each in result.lines} >= {"learning", "private", "model", "today"}
    lost = {each.kind: each.losses.mean() for each in result.lines if each.kind != "private"}
    assert 0.0 <= lost["model"] == min(lost.values()) < 0.1 * lost["learning"]


def test_the_page_stands_alone(made: Plan) -> None:
    text = made.html()
    assert text.startswith("<!DOCTYPE html>")
    assert text.count("<img") == 6
    assert not re.search(r"(src|href)=\"(?!data:|#)", text)
    assert "<script" not in text
    for words in (
        "offers.csv",
        "What to do",
        "The price of privacy",
        "If customers may opt out",
        "It was not checked.",
    ):
        assert words in text
    assert "nan" not in re.sub(r"base64,[^\"]+", "", text).lower()
    css = (files("hushprice.plots") / "templates" / "report.css").read_text()
    assert css in replace(made, currency="0 ").html()  # a currency changes amounts alone


def test_a_plan_is_saved(made: Plan, tmp_path: Path) -> None:
    place = made.save(tmp_path / "a" / "plan")
    names = {path.name for path in place.iterdir()}
    pictures = {"losses.png", "paths.png", "epsilon.png", "opt-out.png", "prices.png", "demand.png"}
    assert names == {"report.html", "table.csv", "plan.json"} | pictures
    assert (place / "table.csv").read_text().count("\n") == 13
    (tmp_path / "file").write_text("")
    with pytest.raises(HushpriceError, match="cannot be written"):
        made.save(tmp_path / "file")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"horizon": 0}, "horizon"), ({"replications": 1}, "replications"), ({"worth": 0.0}, "worth")],
    ids=["horizon", "replications", "worth"],
)
def test_plans_that_cannot_be(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        plan(TWIN, **arguments)


def test_a_plan_needs_a_twin() -> None:
    with pytest.raises(InvalidInput, match="needs a twin"):
        plan(s1(dim=2))  # type: ignore[arg-type]


def test_the_horizon_is_the_log_unless_given() -> None:
    one = plan(TWIN, policies=(), epsilons=(), opt_out=(), replications=2, workers=1)
    assert one.horizon == 400


# Curves


def test_curves_are_means_over_customers() -> None:
    demand, revenue = curves(TWIN, worth=2.0)
    z = TWIN.contexts.rows
    k = 17
    mean = Logistic().mean(z @ TWIN.alpha - (z @ TWIN.beta) * demand.price[k]).mean()
    assert demand.mean[k] == pytest.approx(mean)
    assert revenue.mean[k] == pytest.approx(2.0 * mean * demand.price[k])
    assert (demand.low < demand.mean).all()
    assert (demand.mean < demand.high).all()
    rng = np.random.default_rng(3)
    drawn = [TWIN.truth(rng) for _ in range(4_000)]
    for band, each in ((demand, 1.0), (revenue, 2.0 * demand.price[k])):  # standard error of an sd: 1.1%
        values = [each * Logistic().mean(z @ one.alpha - (z @ one.beta) * demand.price[k]).mean() for one in drawn]
        assert (band.high[k] - band.low[k]) / (2 * 1.96) == pytest.approx(np.std(values), rel=0.05)
    flat, _ = curves(small_twin(covariance=None))
    assert np.array_equal(flat.low, flat.high)


def test_prices_by_segment_keep_the_rules() -> None:
    ruled = small_twin(rules=Rules(ladder=(1.0, 2.0, 3.0), ranges={"near": (0.5, 1.5)}))
    everyone, far, near = segment_prices(ruled)
    assert (near.best, near.best_low, near.best_high) == (1.0, 1.0, 1.0)
    assert far.best in (2.0, 3.0) or 2.0 < far.best < 3.0
    assert everyone.share == 1.0
    assert near.share + far.share == pytest.approx(1.0)
    assert near.today == 4.0
    assert everyone.revenue_best > 0.0
    assert everyone.row()["customers"] == "100%"


# Twin files that were edited


def edits(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places in plain data, one item of each list."""
    yield path
    keys = list(data) if isinstance(data, dict) else list(range(min(len(data), 1))) if isinstance(data, list) else []
    for key in keys:
        yield from edits(data[key], (*path, key))


def checked_twin() -> Twin:
    """With all that a file can tell."""
    group = Group("all", 400.0, 0.3, 0.31, None)
    ranges = (
        replace(group, name="1 to 2", z=0.4, low=1.0, high=2.0),
        replace(group, z=9.0, seen=0.5, low=3.0, high=4.0),
    )
    price = Replay("tenths of the price", ranges, 81.2, 2, 1e-9, "prices", True)
    check = TwinCheck(400, 3, True, (Replay("overall", (group,), 0.0, 0, None), price), 0.3, 0.31, 0.4, 0.5, 0.7)
    findings = (Finding("few-rows", "warning", "There are few rows."),)
    seen = {"far": (1.0, 5.0), "near": (0.5, 6.0)}
    about = replace(TWIN.about, segment="where", findings=findings, check=check, seen_by=seen, model={"format": "x"})
    return small_twin(about=about, rules=Rules(ladder=(1.0, 2.0, 3.0), ranges={"far": (1.0, 3.0)}))


def test_a_plan_tells_where_demand_does_not_follow_the_model(made: Plan) -> None:
    plan = replace(made, twin=checked_twin())
    vars(plan)["pictures"] = made.pictures
    sentence = (
        "Demand does not follow the model at prices above 2: customers there buy 0.5 on average, 0.31 was expected. "
        "Add a feature or a constant, or narrow the range of prices."
    )
    (caveat,) = (each for each in plan.recommendation.caveats if each.code == "check-fails")
    assert sentence in caveat.text
    assert plan.html().count(sentence) == 2  # in the caveat and in the check
    check = json.loads(plan.to_json())["check"]
    assert (check["holds"], check["failing"]) == (False, ["tenths of the price"])
    assert [each["text"] for each in check["misfits"]] == [sentence]
    assert json.loads(made.to_json())["check"] is None


ODD: tuple[Any, ...] = (
    None,
    "x",
    3,
    -1,
    0,
    0.5,
    1e300,
    True,
    [],
    {},
    [1],
    [1, 2],
    [[1]],
    ["x", "y"],
    {"x": 1},
    "\ud800",
)


@pytest.mark.parametrize("part", ["about", "market"])
def test_an_edited_twin_file_is_refused_or_makes_a_page(made: Plan, tmp_path: Path, part: str) -> None:
    path = save_twin(checked_twin(), tmp_path / "a.twin")
    table = parquet.read_table(path)
    document = json.loads(table.schema.metadata[b"hushprice"])
    refused = pages = 0
    for place in edits(document[part]):
        for value in ODD:
            changed = copy.deepcopy(document)
            holder = changed
            *way, last = (part, *place)
            for key in way:
                holder = holder[key]
            holder[last] = value
            parquet.write_table(table.replace_schema_metadata({b"hushprice": json.dumps(changed).encode()}), path)
            try:
                twin = load_twin(path)
            except TwinFileError:
                refused += 1
                continue
            plan = replace(made, twin=twin)
            vars(plan)["pictures"] = made.pictures  # drawn once, and not written out
            sections = [make(plan) for make in (_recommendation, _prices, _model, _check, _assumptions)]
            page("A page", "of them", [replace(section, pictures=()) for section in sections]).encode()
            pages += 1
    assert refused > 100
    assert pages > 20


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("findings",), [1, 2], r"about.findings\[0\] must be an object"),
        (("check", "comparisons", 1, "what"), 3, r"about.check.comparisons\[1\].what must be a text"),
        (("log_rows",), "x", "about.log_rows must be a whole number"),
        (("log_rows",), 0, "no rows of the log"),
        (("seen",), [1], "about.seen must be a list of 2"),
        (("seen_by", "far"), [1], "about.seen_by of far must be two numbers"),
        (("check", "comparisons", 0, "groups", 0, "rows"), [], r"groups\[0\].rows must be a number"),
        (("check", "mean_seen"), None, "damaged"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_in_an_edited_twin_file_is_reported(tmp_path: Path, place: Any, value: Any, words: str) -> None:
    path = save_twin(checked_twin(), tmp_path / "a.twin")
    table = parquet.read_table(path)
    document = json.loads(table.schema.metadata[b"hushprice"])
    holder = document["about"]
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    parquet.write_table(table.replace_schema_metadata({b"hushprice": json.dumps(document).encode()}), path)
    with pytest.raises(TwinFileError, match=words):
        load_twin(path)


# Places and names


def test_a_plan_replaces_only_a_plan(made: Plan, tmp_path: Path) -> None:
    made.save(tmp_path)
    made.save(tmp_path)  # its own
    page = tmp_path / "report.html"
    page.write_text("<title>Sales</title>")
    with pytest.raises(InvalidInput, match=r"report.html is not of an earlier plan"):
        made.save(tmp_path)
    assert page.read_text() == "<title>Sales</title>"
    page.unlink()
    (tmp_path / "table.csv").write_text("a\n1\n")
    with pytest.raises(InvalidInput, match=r"table.csv is not of an earlier plan"):
        made.save(tmp_path)
    assert (tmp_path / "table.csv").read_text() == "a\n1\n"
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "notes.txt").write_text("mine")
    made.save(tmp_path / "new")
    assert (tmp_path / "new" / "notes.txt").read_text() == "mine"


def test_segments_named_in_money_are_drawn_as_they_are() -> None:
    pairs = [PricePair(r"$\frac$ to $10", 1.0, 2.0, 1.5, 2.5, (0.5, 3.0))]
    figure = prices_by_segment(pairs)
    figure.canvas.draw()
    assert figure.axes[0].get_yticklabels()[0].get_parse_math() is False


@pytest.mark.parametrize(("best", "stated"), [(1_000.0, True), (250.0, False), (300.0, False)], ids=["+", "-", "0"])
def test_a_share_of_todays_revenue_needs_revenue(best: float, stated: bool) -> None:
    """Today's prices lose 300: of 250 that could be earned, they earn -50."""
    shared = {"today": np.full(N, 300.0)}
    both = (line("now", "today", shared["today"], **shared), line("then", "model", 100.0 + NOISE, **shared))
    chosen = [replace(one, best=np.full(N, best)) for one in both]
    text = " ".join(recommend(chosen, Situation(horizon=1_000, allowed="0 to 1")).reasons)
    assert ("% of their revenue" in text) is stated
    assert "nan" not in text
