"""Plans: lines in money, the recommendation in every branch, and a whole plan on a small twin."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hushprice.demand import Logistic, Poisson, Rules
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.markets import Resample, s1
from hushprice.markets.twin import About, Twin
from hushprice.planning import Interval, Line, Plan, Recommendation, Situation, options, plan, recommend
from hushprice.planning.curves import curves, segment_prices
from hushprice.planning.lines import Kind
from hushprice.planning.options import confidence_radius, largest_demand, usual_norm
from hushprice.planning.recommendation import money
from hushprice.simulation import Today, compare
from hushprice.studies.words import policy_from

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
    given: dict[str, Any] = {
        "name": "twin", "alpha": np.array([1.0, 0.3]), "beta": np.array([0.8, 0.1]), "prices": (0.5, 6.0),
        "contexts": Resample(rows, segments=(rows[:, 1] > 0).astype(int), today=np.full(400, 4.0)),
        "segments": ("far", "near"), "covariance": 0.002 * np.eye(4), "names": ("1", "x"), "about": about,
    }  # fmt: skip
    return Twin(**given | changes)


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
    found = Interval.of(sample)
    assert (found.mean, found.low, found.high) == pytest.approx((sample.mean(), low, high))
    assert np.isnan(Interval.of([1.0]).low)


def line(label: str, kind: Kind, losses: Any, **facts: Any) -> Line:
    best = np.full(N, 1_000.0)
    return Line(
        label=label, kind=kind, word=label, losses=np.asarray(losses, float), best=best, experiments=0.1, **facts
    )


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


HERE = Situation(horizon=10_000, currency="$", prices=(1.0, 9.0), seen=(1.0, 9.0), check=True)
CARE = {"code": "few-rows", "severity": "care", "text": "There are few rows."}


def test_run_what_surely_gains() -> None:
    told = recommend(lines(100.0 + 20.0 * NOISE, 180.0 + 22.0 * NOISE), HERE)
    assert (told.verdict, told.choice) == ("run", "the model's prices")
    assert told.headline.startswith("Run the model's prices: they earn $200 over 10,000 customers ($20.0 per 1,000)")
    text = str(told)
    assert "20 of 20 replications (sure" in text
    assert "ahead of the next best, the policy etc" in text
    assert "cannot gain more over the model's prices than $100 over" in text


def test_keep_todays_prices_if_nothing_earns_more() -> None:
    told = recommend(lines(TODAY + 50.0, TODAY + 80.0), HERE)
    assert (told.verdict, told.choice) == ("keep", "today's prices")
    assert told.headline == "Keep today's prices: nothing tried here earns more."


def test_not_enough_evidence_if_today_is_as_good() -> None:
    told = recommend(lines(TODAY - 5.0 + 60.0 * np.roll(NOISE, 3), TODAY + 90.0), HERE)
    assert (told.verdict, told.choice) == ("unclear", "today's prices")
    assert "not enough evidence" in told.headline
    assert "cannot tell the model's prices from today's prices" in told.headline


def test_not_enough_evidence_if_a_gain_is_not_likely() -> None:
    """Eight large gains and twelve small losses: the mean is surely above 0, but it is a gain in two of five."""
    model = TODAY + np.where(np.arange(N) % 5 < 2, -400.0, 5.0)
    some = lines(model, TODAY + 900.0)
    gain = some[1].gain
    assert gain is not None
    assert gain.positive
    told = recommend(some, HERE)
    assert (told.verdict, told.choice) == ("unclear", "today's prices")
    assert "8 of 20 replications (a toss-up)" in str(told)


def test_of_options_as_good_the_simplest_is_run() -> None:
    learning = 100.0 + 20.0 * NOISE
    told = recommend(lines(learning + 3.0 + 30.0 * np.roll(NOISE, 7), learning), HERE)
    assert (told.verdict, told.choice) == ("run", "the model's prices")
    assert "cannot tell the policy etc from the model's prices" in str(told)


def test_learning_is_run_if_it_is_better() -> None:
    told = recommend(lines(200.0 + 20.0 * NOISE, 100.0 + 20.0 * NOISE), HERE)
    assert (told.verdict, told.choice) == ("run", "etc")
    assert "Run the policy etc" in told.headline


GAINING = lines(100.0 + 20.0 * NOISE, 180.0 + 22.0 * NOISE)


@pytest.mark.parametrize(
    ("ends", "words"),
    [({"at_high": 0.84}, "84% of customers"), ({"at_low": 0.7, "at_high": 0.1}, "below 1")],
    ids=["upper", "lower"],
)
def test_widen_the_experiment_if_the_range_decides(ends: dict[str, Any], words: str) -> None:
    told = recommend(GAINING, replace(HERE, **ends))
    assert (told.verdict, told.choice) == ("widen", "the model's prices")
    assert told.headline.startswith("Widen the price experiment")
    assert words in told.headline
    assert "gain $200" in str(told)


@pytest.mark.parametrize("code", ["boundary-optimum", "rising-demand", "extrapolation"])
def test_widen_the_experiment_on_findings(code: str) -> None:
    found = {"code": code, "severity": "care", "text": f"Found {code}."}
    told = recommend(GAINING, replace(HERE, findings=(found,)))
    assert told.verdict == "widen"
    assert f"Found {code}." in told.caveats


def test_stop_if_the_model_must_not_be_used() -> None:
    found = {"code": "separable", "severity": "stop", "text": "It is separable."}
    told = recommend(GAINING, replace(HERE, findings=(found,)))
    assert (told.verdict, told.choice) == ("stop", "today's prices")
    assert told.headline.startswith("Do not set prices from this model")
    assert "It is separable." in told.caveats


def test_caveats() -> None:
    doubtful = recommend(GAINING, replace(HERE, findings=(CARE,), uncertain=False, check=False))
    text = " ".join(doubtful.caveats)
    for words in ("There are few rows.", "takes the fitted model for certain", "fails to reproduce the log"):
        assert words in text
    assert doubtful.verdict == "run"
    assert "was not checked" in " ".join(recommend(GAINING, replace(HERE, check=None)).caveats)
    assert len(recommend(GAINING, HERE).caveats) == 1
    outside = recommend(lines(TODAY, TODAY, TODAY - 1_000.0), HERE)
    assert "leave the allowed range" in " ".join(outside.caveats)


def test_what_privacy_costs_is_told_at_each_epsilon() -> None:
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


# Options


def test_options_are_words_anyone_can_run() -> None:
    chosen = options(TWIN, 600, policies=("etc",), epsilons=(1.0,), opt_out=(0.25,), epsilon=2.0)
    assert [one.kind for one in chosen] == ["today", "model", "learning", "private", "private", "opt-out"]
    assert [one.market.public for one in chosen] == [0.0, 0.0, 0.0, 0.0, 0.0, 0.75]
    for one in chosen[1:]:
        assert policy_from(one.word, TWIN, 600).config() == one.policy.config()
    centre = chosen[4].policy.config()["centre"]
    assert centre == pytest.approx(TWIN.theta.tolist())
    assert chosen[3].policy.config()["z_max"] == pytest.approx(usual_norm(TWIN), rel=0.01)


def test_the_partner_without_privacy_is_always_there() -> None:
    chosen = options(TWIN, 600, policies=("mle-cycle",), epsilons=(1.0,), opt_out=())
    assert [one.label for one in chosen if one.kind == "learning"] == ["etc", "mle-cycle"]
    alone = options(TWIN, 600, policies=("mle-cycle",), epsilons=(), opt_out=())
    assert [one.label for one in alone] == ["today's prices", "the model's prices", "mle-cycle"]
    given = options(TWIN, 600, policies=("etc-ldp:epsilon=1",), epsilons=(), opt_out=())
    assert given[-1].kind == "private"
    assert given[-1].partner == "etc"


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
    ("given", "words"),
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
def test_options_that_cannot_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(HushpriceError, match=words):
        options(TWIN, 600, **given)


# Plans


def test_a_plan_compares_on_the_same_customers(made: Plan) -> None:
    same = compare({"today": Today(), "etc": policy_from("etc", TWIN, 600)}, TWIN, horizon=600, replications=6, seed=3)
    by_label = {one.label: one for one in made.lines}
    assert np.allclose(by_label["today's prices"].losses, 10.0 * same["today"].regret)
    assert np.allclose(by_label["etc"].losses, 10.0 * same["etc"].regret)
    gains = by_label["etc"].gains
    assert gains is not None
    assert np.allclose(gains, 10.0 * (same["today"].regret - same["etc"].regret))
    assert [one.replications for one in made.lines] == [6, 6, 6, 6, 3, 3, 3, 3, 3, 3]


def test_revenue_is_what_was_earned_up_to_chance(made: Plan) -> None:
    """Realised revenue minus expected has mean 0; 4 standard errors over 6 replications of 600 sales."""
    for one in made.lines:
        realised = 10.0 * made.results[one.label].revenue
        assert abs(realised.mean() - one.revenue.mean) < 4 * 10.0 * 2.0 * np.sqrt(600 / one.replications)


def test_nothing_depends_on_the_workers(made: Plan) -> None:
    told: list[tuple[int, int]] = []
    again = plan(
        TWIN, horizon=600, policies=("etc", "mle-cycle"), epsilons=(1.0, 8.0), opt_out=(0.0, 1.0), replications=6,
        seed=3, workers=2, worth=10.0, currency="$", progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert again.rows() == made.rows()
    assert told == [(k, 42) for k in range(1, 43)]


def test_the_models_prices_lose_what_the_log_leaves_open() -> None:
    small = {"horizon": 400, "policies": (), "epsilons": (), "opt_out": (), "replications": 3, "workers": 1}
    sure, unsure = (plan(one, **small) for one in (small_twin(covariance=None), TWIN))  # type: ignore[arg-type]
    assert sure.lines[1].loss.mean == pytest.approx(0.0, abs=1e-9)
    assert unsure.lines[1].loss.mean > 0.01
    assert "too sure of itself" in str(sure.recommendation)


def test_a_plan_tells_the_whole_story(made: Plan) -> None:
    told = made.recommendation
    assert isinstance(told, Recommendation)
    assert told.verdict in ("run", "unclear")
    assert len(made.rows()) == 10
    plain = json.loads(made.to_json())
    assert plain["recommendation"]["verdict"] == told.verdict
    assert plain["options"][0]["gain"] is None
    assert [one.segment for one in made.segments] == ["everyone", "far", "near"]


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


def test_a_plan_is_saved(made: Plan, tmp_path: Path) -> None:
    place = made.save(tmp_path / "a" / "plan")
    names = {path.name for path in place.iterdir()}
    pictures = {"losses.png", "paths.png", "epsilon.png", "opt-out.png", "prices.png", "demand.png"}
    assert names == {"report.html", "table.csv", "plan.json"} | pictures
    assert (place / "table.csv").read_text().count("\n") == 11
    (tmp_path / "file").write_text("")
    with pytest.raises(HushpriceError, match="cannot be written"):
        made.save(tmp_path / "file")


@pytest.mark.parametrize(
    ("given", "words"),
    [({"horizon": 0}, "horizon"), ({"replications": 1}, "replications"), ({"worth": 0.0}, "worth")],
    ids=["horizon", "replications", "worth"],
)
def test_plans_that_cannot_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        plan(TWIN, **given)


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
