"""Policies that alternate price experiments with greedy pricing, episode by episode.

A subclass implements one method: how many rounds of episode q explore and how many commit. The server half stores the
experiments of all episodes and estimates theta from all of them when an episode starts to commit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hushprice.errors import InvalidInput, SnapshotError
from hushprice.estimation import RunningEstimator
from hushprice.policies.base import Policy, Server
from hushprice.policies.exchange import FOREVER, Params, Progress, Records
from hushprice.policies.phases import Phase
from hushprice.policies.snapshot import whole


@dataclass(frozen=True, kw_only=True)
class EpisodePolicy(Policy):
    """Base class: explore, then commit, in episodes q = 1, 2, ... It takes the options of :class:`Policy`."""

    @abstractmethod
    def episode(self, q: int) -> tuple[int, int]:
        """(rounds that explore, rounds that commit) of episode q; not both 0.

        Parameters
        ----------
        q : int
            The episode.
        """

    def server(self) -> EpisodeServer:
        return EpisodeServer(self)


class EpisodeServer(Server[Records]):
    """Counts rounds, stores the experiments and estimates theta when an episode commits."""

    only_experiments: ClassVar[bool] = True

    def __init__(self, policy: EpisodePolicy) -> None:
        self.policy = policy
        self.estimator = policy.estimator()
        self.q, self.offset = 1, 0
        self.forgotten = 0  # how often
        self.explore, self.commit = _episode(policy, 1)

    @property
    def _exploring(self) -> bool:
        # Without any outcome (they may be late) there is no estimate to commit to.
        return self.offset < self.explore or self.estimator.records == 0

    @property
    def params(self) -> Params:
        exploring = self._exploring
        theta = self.estimator.published if exploring else self.estimator.theta()
        return Params(
            version=2 * self.q + (not exploring) + self.estimator.records + self.forgotten,
            phase=Phase.EXPLORE if exploring else Phase.EXPLOIT,
            theta=theta,
            learn=exploring,
        )

    @property
    def span(self) -> int:
        if self.offset < self.explore:
            return self.explore - self.offset
        return 1 if self._exploring else self.explore + self.commit - self.offset

    def advance(self, n: int) -> None:
        self.offset += n
        while self.offset >= self.explore + self.commit:
            self.offset -= self.explore + self.commit
            self.q += 1
            self.explore, self.commit = _episode(self.policy, self.q)

    @property
    def estimators(self) -> tuple[RunningEstimator, ...]:
        return (self.estimator,)

    def progress(self) -> Progress:
        length = self.explore + self.commit
        return Progress.of_episode(self.q, offset=self.offset, explore=self.explore, length=length)

    def absorb(self, reports: Records) -> None:
        self.estimator.absorb(reports.z, reports.price, reports.y)

    def forget(self, half_life: float) -> None:
        super().forget(half_life)
        self.forgotten += 1

    def state(self) -> dict[str, Any]:
        own = {"q": self.q, "offset": self.offset, "forgotten": self.forgotten}
        return own | {"estimator": self.estimator.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        q, offset = state.get("q"), state.get("offset")
        if not isinstance(q, int) or not isinstance(offset, int) or q < 1:
            raise SnapshotError("The snapshot does not say which episode it is in.")
        forgotten = whole(state.get("forgotten", 0))
        explore, commit = _episode(self.policy, q)
        if not 0 <= offset < explore + commit:
            raise SnapshotError(f"The snapshot is at round {offset} of an episode of {explore + commit}.")
        self.estimator.restore(state["estimator"])
        self.q, self.offset, self.explore, self.commit = q, offset, explore, commit
        self.forgotten = forgotten


def _episode(policy: EpisodePolicy, q: int) -> tuple[int, int]:
    """The lengths of episode q, checked: whole numbers of at least 0, not both 0."""
    lengths = policy.episode(q)
    whole = isinstance(lengths, tuple) and len(lengths) == 2 and all(isinstance(n, int) and n >= 0 for n in lengths)
    if not whole or sum(lengths) == 0:
        raise InvalidInput(
            f"{type(policy).__name__}.episode({q}) must give two whole numbers (explore, commit) of at least 0 and "
            f"not both 0, got {lengths!r}."
        )
    return lengths


__all__ = ["FOREVER", "EpisodePolicy", "EpisodeServer"]
