"""Private policies: the paper's lengths and steps, what the server can see, clipping, choices, live use."""

from __future__ import annotations

import dataclasses
import logging
import math
import pickle
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import hushprice as hp
from hushprice import checks, policies
from hushprice.demand import FAMILIES, as_family
from hushprice.errors import BudgetSpent, InvalidInput, SnapshotError
from hushprice.kernels import score as kernel
from hushprice.policies import Phase, Pricer, Records, snapshot
from hushprice.policies.private import MixedReports, PrivateReports
from hushprice.privacy import Ledger, UnsafeSeed
from tests.conftest import make_policy
from tests.privacy.test_privacy import exact_odds

PRIVATE = [name for name, cls in policies.REGISTRY.items() if cls.private]


def private(name: str, **options: Any) -> Any:
    return make_policy(name, **options)


# -- lengths, rates and bounds -------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("d", [1, 4, 6])
def test_lengths_are_the_papers(d: int, epsilon: float) -> None:
    T = 500_000
    tau = 2 * d * math.sqrt(T) * math.log(T) / epsilon
    for name in ("etc-ldp", "etc-ldp-approx"):
        assert private(name, dim=d, horizon=T, epsilon=epsilon).tau == math.ceil(tau)
    doubling = private("etc-ldp-doubling", dim=d, epsilon=epsilon)
    for q in (1, 5, 12, 19):
        E = 2**q
        assert doubling.episode(q) == (min(E, math.ceil(d * math.sqrt(2 * E) * math.log(E) / epsilon)), E)
    mixed = private("etc-ldp-mixed", dim=d, horizon=T, epsilon=epsilon)
    assert mixed.episode(1)[0] == math.ceil(math.sqrt(d * T))
    for share in (0.0, 0.1, 1.0):
        worth = min(1.0, epsilon**2 / d)  # a private customer is never worth more than a public one
        length = 2 * math.sqrt(d * T) * math.log(T) / math.sqrt(share + (1 - share) * worth)
        assert mixed.experiments(1, share) == math.ceil(length)
        assert private("etc-ldp-mixed-doubling", dim=d, epsilon=epsilon).experiments(16, share) == min(
            2**16, math.ceil(math.sqrt(2 * d * 2**16) * math.log(2**16) / math.sqrt(share + (1 - share) * worth))
        )
    assert private("etc-ldp", dim=50, horizon=20).tau == 20


def test_rate_and_clip_bound() -> None:
    paper = private("etc-ldp", dim=4, score="paper")
    assert paper.zeta == pytest.approx((3**2 / (4 * (9 + 0 + 0 + 3))) / 4)
    assert paper.clip == pytest.approx(2.0 * math.sqrt(10.0))
    assert paper.mechanism.clip == paper.clip
    assert paper.mechanism.dim == 8
    narrow = private("etc-ldp", dim=4, score="paper", experiment_prices=(1, 2), z_max=3.0)
    assert narrow.zeta == pytest.approx((1 / (4 * (4 + 1 + 2 + 3))) / 4)
    assert narrow.clip == pytest.approx(3.0 * math.sqrt(5.0))
    assert private("etc-ldp", z_max=3.0).clip == pytest.approx(6.0)
    linear = private("etc-ldp", family="linear", score="paper", radius=2.0)
    M, tau = 2.0 * math.sqrt(10.0) * 2.0, linear.tau
    assert linear.clip == pytest.approx(2 * 2.0 * math.sqrt(10.0) * (M + math.sqrt(math.log(tau))))
    poisson = private("etc-ldp", family="poisson", demand_max=9.0)
    assert poisson.clip == pytest.approx(2 * 4.0 * (9.0 + 3.0 * math.sqrt(math.log(poisson.tau))))
    with pytest.raises(InvalidInput, match="demand_max"):
        policies.ETCLDP(family="poisson", dim=3, prices=(0, 3), horizon=100, epsilon=1.0, z_max=2.0)  # type: ignore[arg-type]


def test_no_score_is_longer_than_its_bound() -> None:
    """For customers within ``z_max`` clipping never bites: the bound follows from the family and the prices."""
    rng = np.random.default_rng(2)
    for score in ("paper", "centred"):
        policy = private("etc-ldp", dim=2, score=score, experiment_prices=(0.5, 2.0))
        shift, factor = policy.price_scale
        z = rng.standard_normal((2000, 2))
        z *= 2.0 / np.linalg.norm(z, axis=1)[:, None]
        x = np.hstack([z, -factor * (rng.uniform(0.5, 2.0, 2000) - shift)[:, None] * z])
        assert np.linalg.norm(x, axis=1).max() <= policy.clip * (1 + 1e-12)
        ends = np.hstack([z[:2], -factor * (np.array([0.5, 2.0]) - shift)[:, None] * z[:2]])
        assert np.linalg.norm(ends, axis=1).max() == pytest.approx(policy.clip)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("etc-ldp", {"noise": "l2-ball", "horizon": 700}),
        ("etc-ldp-doubling", {"noise": "l2-ball", "restart": False}),
        ("etc-ldp-approx", {"delta": 0.001, "calibration": "analytic", "horizon": 700}),
        ("etc-ldp-approx-doubling", {"delta": 0.001, "calibration": "analytic", "restart": False}),
        ("etc-ldp-mixed", {"noise": "l2-ball", "horizon": 700}),
        ("etc-ldp-mixed-doubling", {"noise": "l2-ball", "restart": False}),
    ],
)
def test_configurations_are_those_of_stored_results(name: str, own: dict[str, Any]) -> None:
    """The address of a stored result is the hash of the configuration: schedule, mechanism and learner add nothing."""
    common = {
        "family": {"name": "logistic"}, "dim": 2, "prices": [0.0, 3.0], "ridge": 1.0, "cost": 0.0, "epsilon": 4.0,
        "z_max": 2.0, "radius": 4.0, "centre": [0.0] * 4, "start_at": [0.0] * 4, "experiment_prices": [0.0, 3.0],
        "demand_max": None, "zeta_scale": 1.0, "score": "centred",
    }  # fmt: skip
    policy = private(name, dim=2)
    assert list(policy.config().items()) == list((common | own).items())
    _ = policy.schedule, policy.mechanism
    assert policy == private(name, dim=2)
    assert pickle.loads(pickle.dumps(policy)).config() == policy.config()


# -- the steps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize(
    ("name", "options"), [("etc-ldp", {}), ("etc-ldp", {"noise": "privunit"}), ("etc-ldp-approx", {})]
)
def test_the_server_takes_the_papers_steps(name: str, options: dict[str, Any], family: str) -> None:
    """ETC-LDP written out in NumPy from the listing, over the reports that devices really sent."""
    d = 3
    policy = private(name, family=family, dim=d, score="paper", radius=2.5, centre=[0.3] * 6, **options)
    server, device = policy.server(), policy.device(UnsafeSeed(4))
    rng = np.random.default_rng(0)
    theta, centre = np.full(6, 0.3), np.full(6, 0.3)
    for t in range(1, 60):
        params = server.params
        np.testing.assert_allclose(params.theta, theta, rtol=1e-10, atol=1e-12)
        assert params.phase is Phase.EXPLORE
        z = rng.uniform(0.5, 1.0, (1, d))
        price = device.quote(params, z, rng).price
        y = np.array([1.0])
        server.advance(1)
        report = device.report(params, z, price, y, 1)
        assert isinstance(report, PrivateReports)
        server.absorb(report)
        w = policy.mechanism.decode_many(report.rows)[0]
        theta = theta + w / (policy.zeta * t)
        gap = theta - centre
        theta = centre + gap * min(1.0, 2.5 / np.linalg.norm(gap))


@pytest.mark.parametrize("score", ["paper", "centred"])
def test_reports_are_unbiased_scores(score: str) -> None:
    """The mean decoded report is the clipped score at the published theta (z tests, error rate below 1e-4 together)."""
    policy = private("etc-ldp", dim=2, score=score, epsilon=4.0, noise="privunit")
    n = 40_000
    theta, z, p, y = np.array([0.5, -0.2, 0.3, 0.1]), np.array([0.8, 1.1]), 1.3, 1.0
    params = hp.policies.Params(version=1, phase=Phase.EXPLORE, theta=theta, learn=True)
    reports = policy.device(UnsafeSeed(2)).report(params, np.tile(z, (n, 1)), np.full(n, p), np.full(n, y), 1)
    values = policy.mechanism.decode_many(reports.rows)
    shift, factor = policy.price_scale
    eta = z @ theta[:2] - p * (z @ theta[2:])
    target = (y - 1 / (1 + math.exp(-eta))) * np.concatenate([z, -factor * (p - shift) * z])
    assert np.abs((values.mean(axis=0) - target) / (values.std(axis=0) / math.sqrt(n))).max() < 4.9


def test_centred_scores_move_theta_as_their_own_coordinates_would() -> None:
    """A step w in (level, slope) coordinates is the step (w_1 + c f w_2, f w_2) in theta's."""
    policy = private("etc-ldp", dim=2, radius=1e5, zeta_scale=1e3)
    server = policy.server()
    rows = policy.mechanism.privatize_many(np.array([[1.0, 0.5, -0.3, 0.2]]), UnsafeSeed(1))
    w = policy.mechanism.decode_many(rows)[0]
    server.absorb(PrivateReports(rows))
    c, f = policy.price_scale
    assert (c, f) == pytest.approx((1.5, math.sqrt(12) / 3))
    step = np.concatenate([w[:2] + c * f * w[2:], f * w[2:]]) / policy.zeta
    np.testing.assert_allclose(server.params.theta, step, rtol=1e-12)


def test_mixed_follows_the_listing() -> None:
    """Private steps as they come, then one pass over the public records with the listed step sizes."""
    d, T = 2, 700
    policy = private("etc-ldp-mixed", dim=d, horizon=T, epsilon=1.0, score="paper", radius=3.0)
    market = hp.markets.s1(dim=d, public=0.4)
    loop = checks.LiveLoop(policy, market)
    server: Any = loop.pricer._server
    stages = []
    for t in range(T):
        stages.append(loop.pricer.params.phase)
        if stages[-1] is Phase.EXPLOIT:
            break
        loop.run(t, t + 1)
    public = loop.public[: len(stages) - 1]
    first = math.ceil(math.sqrt(d * T))
    assert len(stages) - 1 == policy.experiments(1, public[:first].mean())
    assert server.publics == public.sum()
    assert server.t == (~public).sum()
    theta, records = server.theta.copy(), server.records
    for k in range(server.publics):
        x = np.concatenate([records.z[k], -records.price[k] * records.z[k]])
        score = (records.y[k] - 1 / (1 + math.exp(-x @ theta))) * x
        theta = theta + score / (policy.zeta * (server.t * 0.5 + k + 1))  # epsilon^2 / d = 1/2
        theta *= min(1.0, 3.0 / np.linalg.norm(theta))
    np.testing.assert_allclose(loop.pricer.params.theta, theta, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_mixed_when_nobody_or_everybody_is_public(share: float) -> None:
    policy = private("etc-ldp-mixed", dim=2, horizon=3000)
    market = hp.markets.s1(dim=2, public=share)
    result = hp.simulate(policy, market, horizon=3000, replications=3, seed=1)
    assert result.summary().exploration == pytest.approx(policy.experiments(1, share) / 3000)
    if share == 1.0:
        random = hp.simulate(make_policy("random-price", dim=2), market, horizon=3000, replications=1)
        assert result.regret.mean() < 0.9 * random.regret.mean()


def test_sgd_goes_on_over_episodes_unless_restarted() -> None:
    market = hp.markets.s1(dim=1)
    for restart in (False, True):
        policy = private("etc-ldp-doubling", dim=1, restart=restart)
        loop = policy.loop(UnsafeSeed(1))
        for block in market.blocks(np.random.default_rng(1), np.random.default_rng(2), 2000):
            loop.sell(block, np.random.default_rng(3))
        server: Any = loop.server
        assert server.absorbed == sum(policy.episode(q)[0] for q in range(1, 10)) + min(
            2000 - 1022, policy.episode(10)[0]
        )
        assert server.t == (policy.episode(10)[0] if restart else server.absorbed)
    late = PrivateReports(policy.mechanism.privatize_many(np.zeros((1, 2))), stage=2)
    before = server.theta.copy()
    server.absorb(late)
    np.testing.assert_array_equal(server.theta, before)


def test_experiments_have_a_range_of_their_own() -> None:
    policy = private("etc-ldp", dim=2, prices=(0, 10), experiment_prices=(0.5, 2.0), horizon=2000, radius=6.0)
    market = hp.markets.s1(dim=2, prices=(0, 10))
    trace = checks.run_batch(policy, market, horizon=2000)
    explored = trace.prices[: policy.tau]
    assert 0.5 <= explored.min() < 0.6
    assert 1.9 < explored.max() <= 2.0
    assert trace.prices[policy.tau :].max() > 2.0
    for wrong in ((0, 11), (3, 1), (1,)):
        with pytest.raises(InvalidInput):
            private("etc-ldp", prices=(0, 10), experiment_prices=wrong)


@pytest.mark.parametrize("name", ["etc-ldp", "etc-ldp-mixed", "etc-ldp-approx"])
def test_private_policies_learn(name: str) -> None:
    """At a generous epsilon, from Theta around 0, they leave experimenting for ever far behind."""
    T = 100_000
    market = hp.markets.s1(dim=2, public=0.1)
    policy = private(name, dim=2, horizon=T, epsilon=4.0, radius=4.0)
    learned = hp.simulate(policy, market, horizon=T, replications=12, seed=3)
    random = hp.simulate(make_policy("random-price", dim=2), market, horizon=T, replications=2, seed=3)
    assert learned.regret.mean() < 0.6 * random.regret.mean()


# -- the boundary --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRIVATE)
def test_the_server_and_its_surroundings_hold_no_raw_data(
    name: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Every object reachable from the server, its snapshot, logs, output, errors and reprs: no private number."""
    caplog.set_level(logging.DEBUG)
    policy = private(name, dim=3, epsilon=2.0)
    pricer = policy.start(seed=1)
    rng = np.random.default_rng(5)
    secrets: set[float] = set()
    texts: list[str] = []
    prices: Counter[float] = Counter()
    known = checks.numbers_in(policy.server())  # what follows from the configuration alone
    for t in range(400):
        z, public = rng.uniform(0.1, 0.9, 3), t % 4 == 0
        offer = pricer.offer(z, public=public)
        if not (public and "mixed" in name):
            secrets |= {float(v) for v in z} | ({offer.price} - set(policy.prices))
        texts.append(repr(offer))
        prices[offer.price] += 1
        pricer.observe(offer, float(rng.random() < 0.5))
    waiting = pricer.offer(z := rng.uniform(0.1, 0.9, 3))
    secrets |= {float(v) for v in z} | ({waiting.price} - set(policy.prices))
    calls: tuple[Callable[[], object], ...] = (
        lambda: pricer.offer([*z[:2], math.nan]),
        lambda: pricer.offer([*z, 1.0]),
        lambda: pricer.observe(waiting.id, 1.0),
        lambda: pricer.observe(waiting, float(z[0])),
        lambda: pricer.observe(z, 1.0),
        lambda: policy.mechanism.privatize([*z, "a", 0.0, 0.0]),
        lambda: pricer._server.absorb(Records(z.reshape(1, -1), np.ones(1), np.ones(1))),
    )
    for call in calls:
        try:
            call()
        except InvalidInput as refusal:
            texts.append(f"{refusal} {refusal.__cause__} {refusal.__context__}")
    pricer.save(tmp_path / "p.hush")
    texts += [repr(pricer), repr(pricer.params), str(pricer._server.state()), caplog.text, *capfd.readouterr()]
    held = checks.numbers_in(pricer._server) | checks.numbers_in(pricer._open)
    secrets -= known
    assert not held & secrets
    saved = (tmp_path / "p.hush").read_bytes()
    for value in secrets:
        assert np.float64(value).tobytes() not in saved
        assert repr(value).encode() not in saved
        assert not any(repr(value)[:12] in text for text in texts if "Offer(" not in text)
        assert sum(repr(value)[:12] in text for text in texts) <= max(prices[value], 1)  # the price, in offers of it


def test_the_search_finds_what_is_there() -> None:
    """The search of the test above is no blind one: Mixed does hold what public customers sent."""
    pricer = private("etc-ldp-mixed", dim=3).start(seed=1)
    pricer.observe(pricer.offer([0.123, 0.456, 0.789], public=True), 1)
    assert {0.123, 0.456, 0.789} <= checks.numbers_in(pricer._server)
    with pytest.raises(AssertionError, match="private customer"):
        checks.check_private_server_sees_no_raw_data(_Leaky(**vars_of(private("etc-ldp"))))


@dataclass(slots=True)
class _Slotted:
    z: float


def test_the_search_looks_into_deques_and_slots() -> None:
    assert checks.numbers_in({"a": deque([0.123]), "b": [_Slotted(0.456)]}) == {0.123, 0.456}


def vars_of(policy: policies.Policy) -> dict[str, Any]:
    return policy.config() | {"family": policy.family}


class _Leaky(policies.ETCLDP):
    """Its device puts contexts where the server keeps them."""

    leaked: ClassVar[list[float]] = []

    def device(self, entropy: Any = None, **options: Any) -> Any:
        device = super().device(entropy, **options)
        honest = device._privatized

        def leak(params: Any, z: Any, *rest: Any) -> PrivateReports:
            reports = honest(params, z, *rest)
            if len(z):
                self.leaked.append(float(z[0, 0]))
            return reports

        device._privatized = leak  # type: ignore[assignment]
        return device

    def server(self) -> Any:
        server = super().server()
        server.leaked = self.leaked  # type: ignore[attr-defined]
        return server


def test_a_private_server_refuses_raw_records() -> None:
    raw = Records(np.ones((1, 3)), np.ones(1), np.ones(1))
    for name in PRIVATE:
        server = private(name).server()
        before = server.state()
        for wrong in (raw, None, MixedReports(raw, raw) if "mixed" not in name else raw):  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match="not looked at"):
                server.absorb(wrong)
        assert str(server.state()) == str(before)
    server = private("etc-ldp").server()
    impossible: tuple[Any, ...] = (np.zeros((1, 3), dtype=np.int64), np.array([[0, 7]]), np.zeros((1, 2)))
    for rows in impossible:
        with pytest.raises(InvalidInput):
            server.absorb(PrivateReports(rows))


@pytest.mark.parametrize("noise", ["l2-ball", "privunit"])
def test_any_two_customers_look_alike(noise: str) -> None:
    """Whatever (z, p, y) the customers have, the likelihoods of any report differ by at most e^epsilon, exactly."""
    policy = private("etc-ldp", dim=2, epsilon=1.0, noise=noise)
    low, _ = exact_odds(1.0)
    rng = np.random.default_rng(0)
    theta = np.array([1.0, 0.5, -0.2, 0.9])
    scores = []
    for z in [*rng.standard_normal((4, 2)), np.zeros(2), np.array([1e9, -1e9]), np.array([2.0, 0.0])]:
        for p, y in ((0.0, 0.0), (3.0, 1.0), (1.4, 1.0)):
            eta = z @ theta[:2] - p * (z @ theta[2:])
            residual = y - float(policy.family.mean(eta))
            c, f = policy.price_scale
            scores.append(residual * np.concatenate([z, -f * (p - c) * z]))
    for seed in (1, 2, 3):
        chances = [policy.mechanism.probabilities(seed, g) for g in scores]
        assert all(max(column) / min(column) <= low for column in zip(*chances, strict=True))


def test_a_customer_outside_the_bound_is_clipped() -> None:
    """The same words give the same report for a context of any length beyond the bound."""
    for name in ("etc-ldp", "etc-ldp-approx"):
        policy = private(name, dim=2, z_max=0.1)
        params = policy.server().params
        far = [
            policy.device(UnsafeSeed(3))
            .report(params, scale * np.array([[1.0, 0.5]]), np.array([1.0]), np.array([1.0]), 1)
            .rows
            for scale in (1.0, 1e3, 1e11)
        ]
        np.testing.assert_array_equal(far[0], far[1])
        np.testing.assert_array_equal(far[0], far[2])


def test_device_with_a_ledger_stops_at_the_cap(tmp_path: Path) -> None:
    policy = private("etc-ldp", dim=2, epsilon=1.0)
    device = policy.device(ledger=Ledger(epsilon=2.0, path=tmp_path / "ledger.json"))
    params, z, one = policy.server().params, np.ones((1, 2)), np.ones(1)
    for _ in range(2):
        device.report(params, z, one, one, 1)
    with pytest.raises(BudgetSpent):
        device.report(params, z, one, one, 1)
    again = policy.device(ledger=Ledger(epsilon=2.0, path=tmp_path / "ledger.json"))
    with pytest.raises(BudgetSpent):
        again.report(params, z, one, one, 1)
    mixed = private("etc-ldp-mixed", dim=2, epsilon=1.0).device(ledger=Ledger(epsilon=0.5))
    mixed.report(params, z, one, one, 1, public=np.array([True]))  # a raw record by choice spends nothing
    with pytest.raises(BudgetSpent):
        mixed.report(params, z, one, one, 1, public=np.array([False]))


# -- live use ------------------------------------------------------------------------------------


def test_an_outcome_needs_the_offer_itself() -> None:
    pricer = private("etc-ldp").start(seed=1)
    offer = pricer.offer([1.0, 0.5, 0.2])
    with pytest.raises(InvalidInput, match="keeps no context"):
        pricer.observe(offer.id, 1)
    with pytest.raises(InvalidInput, match="another pricer"):
        pricer.observe(private("etc-ldp").start(seed=1).offer([1.0, 0.5, 0.2]), 1)
    assert pricer.waiting == 1
    assert pricer.observe(offer, 1)
    assert not pricer.observe(offer, 1)
    with pytest.raises(InvalidInput, match="public"):
        pricer.offer([1.0, 0.5, 0.2], public="yes")


def test_open_offers_of_a_private_pricer_survive_a_restart(tmp_path: Path) -> None:
    pricer = private("etc-ldp-mixed").start(seed=1)
    offers = [pricer.offer([1.0, 0.5, 0.2], public=k % 2 == 0) for k in range(4)]
    pricer.save(tmp_path / "p.hush")
    again = Pricer.load(tmp_path / "p.hush")
    assert again.waiting == 4
    assert all(again.observe(offer, 1) for offer in offers)
    server: Any = again._server
    assert (server.t, server.publics) == (2, 2)


@pytest.mark.parametrize(
    "change", [{"q": 0}, {"q": 99}, {"t": -1}, {"t": 10**6}, {"offset": True}, {"theta": np.full(6, 99.0)}]
)
def test_bad_snapshots_are_refused(change: dict[str, Any]) -> None:
    server = private("etc-ldp-mixed").server()
    with pytest.raises((SnapshotError, InvalidInput)):
        server.restore(server.state() | change)


def test_a_snapshot_does_not_tell_the_prices(tmp_path: Path) -> None:
    """The generator behind price experiments is not saved, nor loaded from a file that has one."""
    pricer = private("etc-ldp").start(seed=1)
    pricer.offer([1.0, 0.5, 0.2])
    pricer.save(tmp_path / "p.hush")
    assert snapshot.read(tmp_path / "p.hush")["rng"] is None
    first, second = (Pricer.load(tmp_path / "p.hush").offer([1.0, 0.5, 0.2]).price for _ in range(2))
    assert first != second
    state = snapshot.read(tmp_path / "p.hush")
    state["rng"] = {"state": "1", "inc": "3", "has_uint32": 0, "uinteger": 0}
    snapshot.write(tmp_path / "q.hush", state)
    with pytest.raises(SnapshotError, match="generator"):
        Pricer.load(tmp_path / "q.hush")


def test_unsafe_noise_is_asked_for_by_name_and_shows(tmp_path: Path) -> None:
    pricer = private("etc-ldp").start(seed=1, unsafe_privacy_seed=3)
    assert "UNSAFE" in repr(pricer)
    assert "UNSAFE" not in repr(private("etc-ldp").start(seed=1))
    pricer.save(tmp_path / "p.hush")
    with pytest.raises(SnapshotError, match="unsafe_privacy=True"):
        Pricer.load(tmp_path / "p.hush")
    assert "UNSAFE" in repr(Pricer.load(tmp_path / "p.hush", unsafe_privacy=True))


@pytest.mark.parametrize("name", PRIVATE)
def test_a_device_refuses_what_it_cannot_report(name: str) -> None:
    """Wrong shapes, impossible numbers and a theta published outside Theta are refused; no value is repeated."""
    policy = private(name, dim=2)
    device, params = policy.device(), policy.server().params
    z, p, y = np.array([[1.0, 0.5]]), np.array([1.0]), np.array([1.0])
    wrong: list[tuple[Any, Any, Any]] = [
        (np.ones((1, 3)), p, y), (np.ones((1, 500)), p, y), (np.ones(2), p, y), (z * np.nan, p, y), (z * 1e250, p, y),
        (z, np.ones(2), y), (z, p * 99.0, y), (z, p * np.nan, y), (z, p, y * np.nan), (z, p, y * 0.37123),
        (z, p, np.ones(3)),
    ]  # fmt: skip
    for case in wrong:
        with pytest.raises(InvalidInput) as refusal:
            device.report(params, *case, 1)
        assert "0.37123" not in str(refusal.value)
        assert refusal.value.__context__ is None
    outside = np.full(4, 1e3 if policy.as_ball() else 1e300)
    for theta in (np.full(4, 1e308), np.array([np.inf, 0.0, 0.0, 0.0]), np.ones(2), outside):
        evil = dataclasses.replace(params, theta=theta)
        with pytest.raises(InvalidInput, match="theta"):
            device.report(evil, z, p, y, 1)
        with pytest.raises(InvalidInput, match="theta"):
            device.quote(evil, z, np.random.default_rng(1))
    for phase in (Phase.INDEX, Phase.STAGES, Phase.FIXED, Phase.PERTURB, Phase.GRID):
        with pytest.raises(InvalidInput, match="another policy"):
            device.quote(dataclasses.replace(params, phase=phase, level=99.0), z, np.random.default_rng(1))
    for stage in (None, "x", 0, math.nan):
        with pytest.raises(InvalidInput, match="stage"):
            device.report(params, z, p, y, stage)


def test_choices_must_be_yes_or_no() -> None:
    device, params = private("etc-ldp-mixed", dim=2).device(), private("etc-ldp-mixed", dim=2).server().params
    z, one = np.array([[0.1, 1.0], [0.2, 1.0], [0.3, 1.0]]), np.ones(3)
    for public in (np.array([0, 0, 1]), [0, 0, 1], np.array([True]), np.array([0.0, 0.0, 1.0])):
        with pytest.raises(InvalidInput, match="True or False"):
            device.report(params, z, one, one, 1, public=public)
    sent = device.report(params, z, one, one, 1, public=np.array([False, False, True]))
    np.testing.assert_array_equal(sent.public.z, z[2:])
    assert len(sent.private.rows) == 2


def test_public_records_are_checked_before_anything_is_learned() -> None:
    policy = private("etc-ldp-mixed", dim=2)
    server, good = policy.server(), PrivateReports(policy.mechanism.privatize_many(np.zeros((1, 4))))
    before = str(server.state())
    z, p, y = np.ones((1, 2)), np.ones(1), np.ones(1)
    bad: list[Any] = [
        Records(z * np.nan, p, y), Records(z, p, y * np.nan), Records(z, p, y * 0.5), Records(np.ones((1, 3)), p, y),
        Records(z, p * 99.0, y), Records(z * 1e300, p, y), Records(np.ones(2), p, y), None,
    ]  # fmt: skip
    for public in bad:
        with pytest.raises(InvalidInput):
            server.absorb(MixedReports(good, public))
    with pytest.raises(InvalidInput):
        server.absorb(MixedReports(Records(z, p, y), Records(z, p, y)))  # type: ignore[arg-type]
    assert str(server.state()) == before


@pytest.mark.parametrize("family", ["linear", "logistic", "poisson"])
def test_scores_are_derivatives_of_the_likelihood(family: str) -> None:
    """The paper's score, against numerical derivatives of the log-likelihood (of unit variance for linear demand)."""
    rng, fam = np.random.default_rng(1), as_family(family)
    theta, z, p, y = rng.normal(size=4), rng.normal(size=2), 1.3, 1.0
    g, h = np.empty(4), 1e-6
    kernel.score(fam.code, theta, z, p, y, 0.0, 1.0, g)

    def loglik(t: Any) -> float:
        return float(fam.loglik(z @ t[:2] - p * (z @ t[2:]), y))

    numeric = [(loglik(theta + h * e) - loglik(theta - h * e)) / (2 * h) for e in np.eye(4)]
    np.testing.assert_allclose(g, numeric, rtol=1e-6, atol=1e-8)
    centred = np.empty(4)
    kernel.score(fam.code, theta, z, p, y, 0.9, 2.5, centred)
    np.testing.assert_allclose(centred[:2], g[:2])
    np.testing.assert_allclose(centred[2:], g[2:] * 2.5 * (p - 0.9) / p)


def test_bad_options() -> None:
    wrongs: tuple[dict[str, Any], ...] = (
        {"epsilon": 0}, {"epsilon": "one"}, {"z_max": 0}, {"radius": -1}, {"centre": [0.0]}, {"noise": "laplace"},
        {"start_at": [9.0] * 6}, {"zeta_scale": 0}, {"ridge": 0.1}, {"noise": ["l2"]},
        {"experiment_prices": (0, 1e-170)}, {"score": "best"}, {"demand_max": 0.5}, {"horizon": 0},
    )  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(InvalidInput):
            private("etc-ldp", **wrong)
    with pytest.raises(InvalidInput, match="epsilon above 1"):
        private("etc-ldp-approx", epsilon=4.0, calibration="paper")
    with pytest.raises(InvalidInput, match="restart"):
        private("etc-ldp-doubling", restart="yes")
    truth = private("etc-ldp-approx", epsilon=1.0, calibration="paper").guarantee
    assert round(truth.epsilon, 3) == 1.449


def test_public_share_of_a_market() -> None:
    market = hp.markets.s1(dim=2, public=0.25)
    rngs = [np.random.default_rng(k) for k in range(3)]
    public = np.concatenate([b.public for b in market.blocks(rngs[0], rngs[1], 40_000, choices=rngs[2])])
    assert abs(public.mean() - 0.25) < 4.9 * math.sqrt(0.25 * 0.75 / 40_000)
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidInput):
            hp.markets.s1(dim=2, public=wrong)
    for name, bound in (("s1", 2.0), ("s2", 1.0), ("wide", 6.0), ("a1", 2.4)):
        market = hp.markets.build(name, dim=4, horizon=100)
        norms = np.linalg.norm(market.draw(np.random.default_rng(0), 5000), axis=1)
        assert 0.7 * market.z_max() < norms.max() <= market.z_max() <= bound
    own = hp.Market(alpha=np.ones(1), beta=np.ones(1), prices=(0, 3), contexts=[[1.0], [-3.0]])
    assert own.z_max() == 3.0
