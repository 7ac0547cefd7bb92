"""Each policy against its listing, and live use beyond the generic checks."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushprice as hp
from hushprice import checks
from hushprice.policies import Phase, Pricer, register, snapshot
from tests.conftest import make_policy


def phases(policy: hp.policies.Policy, rounds: int) -> list[Phase]:
    """The phase of each round when outcomes come at once."""
    loop = checks.LiveLoop(policy, checks.world_for(policy), horizon=rounds)
    seen = []
    for t in range(rounds):
        params = loop.pricer.params
        offer = loop.pricer.offer(loop.z[t])
        assert offer.experiment == (params.phase is not Phase.EXPLOIT)
        loop.pricer.observe(offer, loop.outcome(t, offer.price))
        seen.append(params.phase)
    return seen


def test_etc_explores_tau_rounds_then_commits() -> None:
    policy = make_policy("etc", dim=4, horizon=400)
    tau = math.ceil(math.sqrt(4 * 400 * math.log(400)))
    assert phases(policy, 400) == [Phase.EXPLORE] * tau + [Phase.EXPLOIT] * (400 - tau)


def test_etc_explores_at_most_the_horizon() -> None:
    assert make_policy("etc", dim=50, horizon=20).tau == 20  # type: ignore[attr-defined]
    assert make_policy("etc", horizon=1).tau == 1  # type: ignore[attr-defined]


def test_doubling_episodes() -> None:
    policy = make_policy("etc-doubling", dim=1)
    seen = phases(policy, 1022)  # episodes 1 to 9
    start = 0
    for q in range(1, 10):
        E = 2**q
        tau = min(E, math.ceil((math.sqrt(2) - 1) * math.sqrt(E * math.log(E))))
        assert seen[start : start + E] == [Phase.EXPLORE] * tau + [Phase.EXPLOIT] * (E - tau)
        start += E


def test_doubling_experiments_add_up_to_those_of_etc() -> None:
    """The point of the factor sqrt(2) - 1: about as many experiments as with the horizon known."""
    etc = make_policy("etc", dim=9, horizon=490_000).tau  # type: ignore[attr-defined]
    result = hp.simulate(make_policy("etc-doubling", dim=9), hp.markets.s1(dim=9), horizon=490_000, replications=1)
    assert result.exploration[0] * 490_000 == pytest.approx(etc, rel=0.1)


@pytest.mark.parametrize(
    ("variant", "k"), [("original", lambda c: 2), ("modified", lambda c: round(math.sqrt(9 * math.log(2 * c))))]
)
def test_cycles(variant: str, k: Any) -> None:
    seen = phases(make_policy("mle-cycle", dim=9, variant=variant), 300)
    want: list[Phase] = []
    for c in range(1, 40):
        want += [Phase.EXPLORE] * k(c) + [Phase.EXPLOIT] * c
    assert seen == want[:300]


@pytest.mark.parametrize(("variant", "kappa"), [("original", 1.0), ("modified", 16**0.25)])
def test_semi_myopic_deviates_from_the_greedy_price_and_records_every_fifth(variant: str, kappa: float) -> None:
    policy = make_policy("semi-myopic", dim=16, variant=variant)
    loop = checks.LiveLoop(policy, checks.world_for(policy))
    loop.run(0, 5 * (4 * 16 + 10))
    recorded = 74
    for t in range(370, 420):
        params = loop.pricer.params
        offer = loop.pricer.offer(loop.z[t])
        theta, z = params.theta, loop.z[t]
        greedy = policy.family.optimal_price(z @ theta[:16], z @ theta[16:], (0, 3))
        delta = kappa * (t + 1) ** -0.25
        assert min(abs(offer.price - np.clip(greedy + s * delta, 0, 3)) for s in (-1, 1)) < 1e-12
        assert params.learn == ((t + 1) % 5 == 0)
        loop.pricer.observe(offer, loop.outcome(t, offer.price))
        recorded += params.learn
        assert loop.pricer._server.estimator.records == recorded  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["greedy", "semi-myopic", "etc", "mle-cycle", "random-price", "fixed-price"])
@pytest.mark.parametrize("every", [1, 7])
def test_the_exploration_share_counts_the_offers_marked_as_experiments(name: str, every: int) -> None:
    options: dict[str, Any] = {"every": every} if name in ("greedy", "semi-myopic") else {}
    policy = make_policy(name, **options)
    loop = checks.LiveLoop(policy, checks.world_for(policy))
    marked = 0
    for t in range(checks.HORIZON):
        offer = loop.pricer.offer(loop.z[t])
        marked += offer.experiment
        loop.pricer.observe(offer, loop.outcome(t, offer.price))
    result = hp.simulate(policy, loop.market, horizon=checks.HORIZON, replications=1, seed=5)
    assert result.exploration[0] * checks.HORIZON == pytest.approx(marked)
    if name == "greedy":
        assert marked == 6 * every


def test_exploitation_uses_the_exact_mle_of_the_experiments() -> None:
    policy = make_policy("etc", dim=2, horizon=700, ridge=0.1)
    loop = checks.LiveLoop(policy, checks.world_for(policy))
    z, prices, outcomes = [], [], []
    for t in range(200):
        if loop.pricer.params.phase is Phase.EXPLOIT:
            break
        offer = loop.pricer.offer(loop.z[t])
        y = loop.outcome(t, offer.price)
        loop.pricer.observe(offer, y)
        z.append(loop.z[t])
        prices.append(offer.price)
        outcomes.append(y)
    exact = hp.estimation.fit("logistic", hp.estimation.design(z, prices), outcomes, ridge=0.1)
    np.testing.assert_allclose(loop.pricer.params.theta, exact.theta, atol=1e-7)


def test_clairvoyant_loses_nothing_and_nobody_beats_it() -> None:
    for market in (hp.markets.s1(dim=3), hp.markets.wide(dim=3), hp.markets.s1(dim=3, family="poisson", cost=0.2)):
        best = hp.policies.Clairvoyant(
            family=market.family, dim=3, prices=market.prices, theta=market.theta, cost=market.cost
        )
        assert hp.simulate(best, market, horizon=5000, replications=2).regret.max() < 1e-8


def test_fixed_price_quotes_its_price_and_random_covers_the_range() -> None:
    fixed = checks.run_batch(make_policy("fixed-price", price=1.25), hp.markets.s1(dim=3))
    assert (fixed.prices == 1.25).all()
    uniform = checks.run_batch(make_policy("random-price"), hp.markets.s1(dim=3))
    assert uniform.prices.min() < 0.1
    assert uniform.prices.max() > 2.9
    with pytest.raises(hp.InvalidInput, match="range"):
        make_policy("fixed-price", price=5)


def test_greedy_fails_on_s2_where_experimenting_succeeds() -> None:
    """Greedy's regret grows like T there (log-log slope near 1), ETC-Doubling's like sqrt(T) (near 1/2).

    100 replications, fixed seed; the slopes' standard errors are below 0.03.
    """
    slopes = {}
    for name in ("greedy", "etc-doubling"):
        policy = make_policy(name, dim=4)
        result = hp.simulate(
            policy, hp.markets.s2(dim=4), horizon=40_000, replications=100, seed=3, checkpoints=[10_000]
        )
        first, last = result.path_mean()
        slopes[name] = math.log(last / first) / math.log(4)
    assert slopes["greedy"] > 0.9
    assert slopes["etc-doubling"] < 0.65


def test_late_experiments_still_teach() -> None:
    """Outcomes that arrive after ETC has committed improve its estimate."""
    policy = make_policy("etc", dim=1, horizon=2000, ridge=0.1)
    loop = checks.LiveLoop(policy, checks.world_for(policy), horizon=2000)
    held = []
    for t in range(policy.tau):  # type: ignore[attr-defined]
        offer = loop.pricer.offer(loop.z[t])
        held.append((offer, loop.outcome(t, offer.price)))
    assert loop.pricer.params.phase is Phase.EXPLORE  # not one outcome yet: nothing to commit to
    for offer, y in held[:20]:
        loop.pricer.observe(offer, y)
    early = loop.pricer.params
    assert early.phase is Phase.EXPLOIT
    for offer, y in held[20:]:
        loop.pricer.observe(offer, y)
    late = loop.pricer.params
    exact, _ = loop.pricer._server.estimator.exact()  # type: ignore[attr-defined]
    assert np.abs(late.theta - exact).max() < np.abs(early.theta - exact).max() / 5
    assert late.version > early.version


def test_offers_beyond_patience_are_closed() -> None:
    pricer = Pricer(make_policy("etc"), seed=1, patience=10)
    offers = [pricer.offer(np.ones(3)) for _ in range(15)]
    assert pricer.waiting == 10
    assert pricer.observe(offers[0], 1) is False
    assert pricer.observe(offers[5], 1) is True


def test_another_pricers_offer_is_refused() -> None:
    one, other = (make_policy("etc").start(seed=s) for s in (1, 2))
    foreign = other.offer(np.ones(3))
    one.offer(np.ones(3))
    with pytest.raises(hp.InvalidInput, match="another pricer"):
        one.observe(foreign, 1)
    assert one.waiting == 1


def test_no_seed_means_fresh_experiments() -> None:
    one, other = (make_policy("etc").start().offer(np.ones(3)).price for _ in range(2))
    assert one != other


@pytest.mark.parametrize(
    "options",
    [
        {"variant": "improved"},
        {"cost": -1},
        {"ridge": 0},
        {"prices": (-1, 2)},
        {"prices": (0, math.inf)},
        {"family": "logit"},
    ],
)
def test_bad_configuration_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(hp.InvalidInput):
        make_policy("mle-cycle", **options)
    with pytest.raises(hp.InvalidInput, match="at least 1"):
        make_policy("etc", horizon=-3)
    with pytest.raises(hp.InvalidInput, match="no option 'rigde'"):
        make_policy("etc", rigde=1)
    with pytest.raises(hp.InvalidInput, match="Did you mean 'etc-doubling'"):
        hp.policies.get("etc_doubling")


# -- snapshots ------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    pricer = make_policy("semi-myopic").start(seed=4)
    for _ in range(150):
        pricer.observe(pricer.offer(np.ones(3)), 1)
    pricer.offer(np.ones(3))
    pricer.save(tmp_path / "a.hush")
    return tmp_path / "a.hush"


def test_open_offers_survive(saved: Path) -> None:
    pricer = Pricer.load(saved)
    assert pricer.waiting == 1
    assert pricer.observe(151, 0) is True
    assert pricer.observe(151, 0) is False
    assert pricer.observe(3, 0) is False


def test_an_outcome_lost_in_a_crash_is_never_taken_for_another_customers(saved: Path) -> None:
    crashed = Pricer.load(saved)
    lost = crashed.offer(np.ones(3))
    pricer = Pricer.load(saved)  # the crash: what happened since the save is gone
    other = pricer.offer(np.zeros(3))
    assert other.id != lost.id
    for key in (lost, lost.id):
        with pytest.raises(hp.InvalidInput, match="after the last save"):
            pricer.observe(key, 1)
    assert pricer.observe(other.id, 1) is True
    assert pricer.offers == 152
    pricer.save(saved)
    assert Pricer.load(saved).observe(other.id, 1) is False


def test_snapshots_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    with pytest.raises(hp.SnapshotError, match="cannot be written"):
        make_policy("etc").start(seed=1).save(tmp_path / "no" / "folder.hush")


def test_a_snapshot_is_plain(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        header = json.loads(archive.read("snapshot.json"))
        assert header["format"] == "hushprice snapshot"
        assert header["body"]["policy"]["name"] == "semi-myopic"
        for name in archive.namelist():
            assert b"pickle" not in archive.read(name)


def test_every_damaged_byte_is_noticed_or_harmless(saved: Path, tmp_path: Path) -> None:
    """Flip bytes all over the file: the load fails clearly, or gives exactly the saved pricer (zip padding)."""
    good = saved.read_bytes()
    want = Pricer.load(saved).offer(np.ones(3)).price
    rng = np.random.default_rng(0)
    refused = 0
    for position in rng.integers(len(good), size=300):
        damaged = bytearray(good)
        damaged[position] ^= 1 << int(rng.integers(8))
        file = tmp_path / "damaged.hush"
        file.write_bytes(damaged)
        try:
            assert Pricer.load(file).offer(np.ones(3)).price == want
        except hp.SnapshotError:
            refused += 1
    assert refused > 250


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, 0.99])
def test_truncated_files_are_refused(saved: Path, tmp_path: Path, keep: float) -> None:
    good = saved.read_bytes()
    file = tmp_path / "short.hush"
    file.write_bytes(good[: int(keep * len(good)) if isinstance(keep, float) else keep])
    with pytest.raises(hp.SnapshotError):
        Pricer.load(file)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing.hush"
    text = tmp_path / "text.hush"
    text.write_text("hello")
    npz = tmp_path / "other.npz"
    np.savez(npz, a=np.ones(3))
    newer = tmp_path / "newer.hush"
    with zipfile.ZipFile(newer, "w") as archive:
        archive.writestr("snapshot.json", json.dumps({"format": snapshot.SNAPSHOT_FORMAT, "version": 99}))
    for file, words in ((missing, "no file"), (text, "not a readable"), (npz, "not a readable"), (newer, "version 99")):
        with pytest.raises(hp.SnapshotError, match=words):
            Pricer.load(file)


def test_a_snapshot_with_another_shape_is_refused(saved: Path, tmp_path: Path) -> None:
    state = snapshot.read(saved)
    for key, value in (("theta", np.zeros(4)), ("x", np.zeros((3, 6))), ("counts", np.zeros(5)), ("P", None)):
        broken = {**state, "server": {**state["server"], "estimator": {**state["server"]["estimator"], key: value}}}
        snapshot.write(tmp_path / "b.hush", broken)
        with pytest.raises(hp.SnapshotError):
            Pricer.load(tmp_path / "b.hush")


def _tamper(path: Path, *keys: str, value: Any) -> None:
    """Change one entry of a snapshot, with all checksums made anew."""
    state = snapshot.read(path)
    inside: Any = state
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = value(inside[keys[-1]]) if callable(value) else value
    snapshot.write(path, state)


def _with(index: Any, value: Any) -> Any:
    def change(array: Any) -> Any:
        array = array.copy()
        array[index] = value
        return array

    return change


ESTIMATOR = ("server", "estimator")


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        ((*ESTIMATOR, "counts"), _with(1, -(2**33))),
        ((*ESTIMATOR, "counts"), _with(2, 2**60)),
        ((*ESTIMATOR, "counts"), _with(3, -1)),
        ((*ESTIMATOR, "theta"), _with(0, np.nan)),
        ((*ESTIMATOR, "P"), _with((0, 0), np.inf)),
        ((*ESTIMATOR, "x"), _with((0, 0), np.nan)),
        ((*ESTIMATOR, "y"), _with(0, 7.0)),
        ((*ESTIMATOR, "pace"), _with(0, -1.0)),
        (("server", "t"), 2**70),
        (("server", "t"), -1),
        (("open", "id"), lambda ids: ids + 10**6),
        (("open", "id"), lambda ids: ids.astype(float)),
        (("open", "price"), _with(0, np.nan)),
        (("open", "price"), lambda prices: prices[:0]),
        (("open", "stage"), lambda stage: stage - 2),
        (("open", "stage"), lambda stage: stage.astype(float)),
        (("open", "experiment"), lambda experiment: experiment[:-1]),
        (("runs",), [[5, 1]]),
        (("runs",), [[2**80, 2**80 + 1]]),
        (("runs",), "none"),
        (("patience",), 0),
        (("rng", "state"), str(2**200)),
        (("rng", "uinteger"), -1),
        (("policy", "config", "dim"), 10**12),
        (("policy", "config", "dim"), 4),
        (("policy", "config", "family"), {"name": "gamma"}),
        (("policy", "name"), "etc"),
        (("policy", "name"), "nobodys"),
        (("policy",), 5),
    ],
)
def test_a_forged_snapshot_is_refused(saved: Path, keys: tuple[str, ...], value: Any) -> None:
    """Checksums are right, contents are not: no crash, no nonsense, a clear refusal."""
    _tamper(saved, *keys, value=value)
    with pytest.raises(hp.SnapshotError):
        Pricer.load(saved)


def test_compressed_archives_are_refused_unread(saved: Path, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.hush"
    with zipfile.ZipFile(saved) as good, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("snapshot.json", good.read("snapshot.json"))
        archive.writestr("server.estimator.x.npy", bytes(50_000_000))
    with pytest.raises(hp.SnapshotError, match="compressed"):
        Pricer.load(bomb)


@pytest.mark.parametrize("name", ["etc", "etc-doubling", "mle-cycle", "semi-myopic", "greedy"])
def test_looking_or_saving_between_outcomes_changes_nothing(name: str, tmp_path: Path) -> None:
    """Outcomes come late and in bunches; in between one pricer is looked at, another is saved and loaded."""
    policy = make_policy(name, dim=2)
    loops = [checks.LiveLoop(policy, checks.world_for(policy), horizon=400) for _ in range(3)]
    rng = np.random.default_rng(2)
    waiting: list[tuple[int, list[Any]]] = []
    for t in range(400):
        offers = [loop.pricer.offer(loop.z[t]) for loop in loops]
        assert offers[0].price == offers[1].price == offers[2].price
        waiting.append((t, offers))
        while waiting and rng.random() < 0.6:
            s, late = waiting.pop(int(rng.integers(len(waiting))))
            for loop, offer in zip(loops, late, strict=True):
                loop.pricer.observe(offer.id, loop.outcome(s, offer.price))
            loops[1].pricer.params  # noqa: B018 (the look itself is the test)
            if rng.random() < 0.1:
                loops[2].pricer.save(tmp_path / "p.hush")
                loops[2].pricer = Pricer.load(tmp_path / "p.hush")


def test_a_failed_save_leaves_the_old_file(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(TypeError):
        snapshot.write(saved, {"bad": object()})
    assert saved.read_bytes() == before
    assert [f.name for f in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize("lengths", [(0, 0), (-1, 5), (10, -3), (10.0, 90.0), 5, (1, 2, 3)])
def test_episodes_that_make_no_sense_are_refused(lengths: Any) -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True, kw_only=True)
    class Odd(hp.policies.EpisodePolicy):
        def episode(self, q: int) -> tuple[int, int]:
            return (1, 1) if q == 1 else lengths

    pricer = Odd(family="logistic", dim=1, prices=(0, 3)).start(seed=1)  # type: ignore[arg-type]
    pricer.offer([1.0])
    with pytest.raises(hp.InvalidInput, match=r"Odd.episode\(2\)"):
        pricer.offer([1.0])


def test_names_are_registered_once_and_for_all() -> None:
    class Impostor(hp.policies.ETC):
        pass

    with pytest.raises(hp.InvalidInput, match="already"):
        register(Impostor)
    with pytest.raises(hp.InvalidInput, match="needs a name"):
        register(hp.policies.EpisodePolicy)  # type: ignore[type-abstract]
    assert hp.policies.get("etc") is hp.policies.ETC


def test_a_policy_of_ones_own_is_one_class(tmp_path: Path) -> None:
    """What the documentation promises a researcher: one file, one line, and everything works."""
    from dataclasses import dataclass
    from typing import ClassVar

    @register
    @dataclass(frozen=True, kw_only=True)
    class Halves(hp.policies.EpisodePolicy):
        name: ClassVar[str] = "halves"

        def episode(self, q: int) -> tuple[int, int]:
            return q, q

    try:
        for check in checks.policy_checks():
            check(make_policy("halves"))
    finally:
        del hp.policies.REGISTRY["halves"]
