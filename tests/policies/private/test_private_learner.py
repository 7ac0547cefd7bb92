"""A second private learner, all of it in this file: sums per version, refitted when a version is over.

Its server publishes a theta that stays for a whole version, and it has no compiled loop. One of its policies also has
devices that report something else than SGD's do: a score of length at most 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import hushprice as hp
from hushprice import checks, policies
from hushprice.arrays import Array
from hushprice.errors import InvalidInput
from hushprice.kernels.score import score
from hushprice.policies import Params, PrivateReports
from hushprice.policies.private import PrivateLearner, ScheduledServer
from hushprice.policies.private.device import ScoreDevice
from hushprice.policies.private.reports import MixedReports
from hushprice.privacy.entropy import Words
from hushprice.privacy.wire import Rows
from tests.conftest import make_policy
from tests.service.core import test_fold as in_service
from tests.support.products import define

ROUNDS = 40  # of a version


class UnitDevice(ScoreDevice):
    """Reports the direction of x with the residual as its length."""

    def randomised(self, params: Params, z: Array, price: Array, y: Array, words: Words, terms: Any = None) -> Rows:
        policy, g = self.policy, np.empty((len(z), 2 * self.policy.dim))
        shift, factor = policy.price_scale
        for i in range(len(z)):
            score(policy.family.code, params.theta, z[i], price[i], y[i], shift, factor, g[i])
            slope = factor * (price[i] - shift)
            g[i] /= np.sqrt((z[i] * z[i]).sum() * (1.0 + slope * slope)) + 1e-300
        return policy.mechanism.report_rows(g, words)


class VersionSums(ScheduledServer[PrivateReports]):
    """Keeps per version its theta, a count and a sum of decoded reports; the estimate is made of these."""

    def start_afresh(self) -> None:
        super().start_afresh()
        self.rounds = 0
        self.thetas, self.counts, self.sums = self.theta[None, :].copy(), np.zeros(1), np.zeros((1, len(self.theta)))

    @property
    def stage(self) -> int:
        return len(self.counts)

    def settle(self) -> None:
        super().settle()
        if self.rounds >= ROUNDS * self.stage:  # only now, so that the version's last report still counts for it
            self.refit()
            self.thetas = np.vstack([self.thetas, self.theta])
            self.counts, self.sums = np.append(self.counts, 0.0), np.vstack([self.sums, np.zeros(len(self.theta))])

    def refit(self) -> None:
        """From the theta of each version a step along its mean report; their mean by counts, within Theta."""
        if self.counts.any():
            steps = self.thetas * self.counts[:, None] + 2.0 * self.sums
            off = steps.sum(axis=0) / self.counts.sum() - self.policy.ball[0]
            self.theta = self.policy.ball[0] + off * min(1.0, self.policy.ball[1] / float(np.linalg.norm(off)))

    def learn(self, reports: PrivateReports) -> None:
        for value in self.mechanism.decode_rows(reports.rows):
            self.sums[reports.stage - 1] += value
            self.counts[reports.stage - 1] += 1.0

    @property
    def left(self) -> int:
        return min(super().left, ROUNDS * self.stage - self.rounds)

    @property
    def span(self) -> int:
        return self.left if self.reports else 1

    @property
    def params(self) -> Params:
        params = super().params
        return replace(params, version=params.version + self.stage)

    def advance(self, n: int) -> None:
        super().advance(n)
        self.rounds += n

    def state(self) -> dict[str, Any]:
        versions = {"thetas": self.thetas, "counts": self.counts, "sums": self.sums}
        return super().state() | {name: array.copy() for name, array in versions.items()} | {"rounds": self.rounds}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.rounds = state["rounds"]
        self.thetas, self.counts, self.sums = (state[name].copy() for name in ("thetas", "counts", "sums"))


@dataclass(frozen=True, kw_only=True)
class VersionSumsLDP(policies.ETCLDP):
    """The schedule and the mechanism of ETC-LDP with another learner."""

    name: ClassVar[str] = "version-sums-ldp"
    learner: ClassVar[PrivateLearner] = PrivateLearner(server=VersionSums)


@dataclass(frozen=True, kw_only=True)
class UnitSumsLDP(VersionSumsLDP):
    """The same from other reports."""

    name: ClassVar[str] = "unit-sums-ldp"
    not_served: ClassVar[str] = "hushprice.device does not know its reports."
    learner: ClassVar[PrivateLearner] = PrivateLearner(server=VersionSums, device=UnitDevice, clip=1.0)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for policy in (VersionSumsLDP, UnitSumsLDP):
        policies.register(policy)
    yield
    for policy in (VersionSumsLDP, UnitSumsLDP):
        del policies.REGISTRY[policy.name]


@pytest.mark.parametrize("check", checks.policy_checks(), ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("version-sums-ldp", {}), ("version-sums-ldp", {"noise": "privunit", "family": "linear"}),
        ("unit-sums-ldp", {}), ("unit-sums-ldp", {"dim": 11}),
    ],
    ids=str,
)  # fmt: skip
def test_another_learner_passes_all_checks(name: str, options: dict[str, Any], check: checks.PolicyCheck) -> None:
    check(make_policy(name, **options))


def test_what_the_learner_states_reaches_both_halves() -> None:
    policy = make_policy(UnitSumsLDP.name, dim=2)
    assert isinstance(policy, UnitSumsLDP)
    assert policy.clip == policy.mechanism.clip == 1.0
    assert isinstance(policy.server(), VersionSums)
    assert isinstance(policy.device(), UnitDevice)
    assert type(policy.loop()) is policies.loop.Loop
    assert policy.tau == make_policy("etc-ldp", dim=2).tau  # type: ignore[attr-defined]


def test_reports_count_for_the_version_they_were_made_against() -> None:
    policy: Any = make_policy(UnitSumsLDP.name, dim=2)
    server, device = policy.server(), policy.device()
    one, first = np.ones(1), server.params
    for _ in range(ROUNDS):
        server.advance(1)
    second = server.params
    assert (first.stage, second.stage) == (1, 2)
    for params in (second, first, first):  # late ones too
        server.absorb(device.report(params, np.ones((1, 2)), one, one, params.stage))
    assert server.counts.tolist() == [2.0, 1.0]
    assert server.t == server.absorbed == 3


def test_raw_data_is_refused_without_a_line_in_the_learner() -> None:
    policy: Any = make_policy(UnitSumsLDP.name, dim=2)
    records = policies.Records(np.ones((1, 2)), np.ones(1), np.ones(1))
    for wrong in (records, MixedReports(records, records), None):  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="not looked at"):
            policy.server().absorb(wrong)


def test_the_service_serves_it(tmp_path: Path) -> None:
    """The fold of its log, in whatever pieces, and what it learns as in a simulation: the tests of other policies."""
    name = VersionSumsLDP.name
    in_service.test_a_run_of_reports_is_the_same_in_one_call_or_one_by_one(name)
    in_service.test_a_private_product_learns_what_the_simulation_learns(name, f"sqlite:///{tmp_path / 'a.db'}")
    in_service.test_rebuilt_from_the_log_is_live_to_the_last_bit(name, f"sqlite:///{tmp_path / 'b.db'}")
    with pytest.raises(InvalidInput, match="does not know its reports"):
        define(UnitSumsLDP.name)


def test_it_learns() -> None:
    """At a generous epsilon it leaves experimenting for ever far behind."""
    market = hp.markets.s1(dim=2)
    policy = make_policy(UnitSumsLDP.name, dim=2, horizon=30_000, epsilon=8.0, noise="privunit", radius=4.0)
    learned = hp.simulate(policy, market, horizon=30_000, replications=4, seed=3)
    random = hp.simulate(make_policy("random-price", dim=2), market, horizon=30_000, replications=2, seed=3)
    assert learned.regret.mean() < 0.6 * random.regret.mean()
