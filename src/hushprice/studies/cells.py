"""Cells, which are replications of one policy in one market at one d and T; and runs, which are grids of cells."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from hushprice import markets
from hushprice.errors import LARGEST_COUNT, InvalidInput, positive_int
from hushprice.markets import Market
from hushprice.simulation import Job, check_pair, plain, rounds_of
from hushprice.studies.spec_strings import check_words, market_from, policy_from, source_of, split

Options = Mapping[str, Mapping[str, Any]]
MAX_REPLICATIONS = 1_000_000  # largest number of replications and of checkpoints of a cell
NUMBERS = 1
"""Version of the numbers; increase it when the same words give other numbers, so that old results are not reused."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Cell:
    """Replications of one policy in one market at one d and T, the unit of the store.

    Attributes
    ----------
    run, label, word : str
        Run, label of the policy in it, and the policy as a word.
    work : Job
        All replications.
    source : str
        Hash of code from outside the package; :data:`NUMBERS` covers the package's own.
    """

    run: str
    label: str
    word: str
    work: Job
    source: str = ""

    def __repr__(self) -> str:
        work = self.work
        where = f"{work.market.name}, d={work.market.dim}, T={work.horizon}"
        return f"<Cell {self.run}: {self.label} in {where}, {self.replications} replications>"

    @property
    def replications(self) -> int:
        """Number of replications."""
        return len(self.work.replications)

    @property
    def line(self) -> tuple[str, str, str, int]:
        """The key that cells share if they differ only in T."""
        return self.run, self.label, self.work.market.name, self.work.market.dim

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything that its numbers depend on, except for the number of replications."""
        work = self.work
        return {
            "numbers": NUMBERS,
            "policy": work.policy.name,
            "config": work.policy.config(),
            "source": self.source,
            "market": work.market.name,
            "fingerprint": work.market.fingerprint(),
            "horizon": work.horizon,
            "seed": work.seed,
            "checkpoints": work.checkpoints.tolist(),
        }

    @cached_property
    def key(self) -> str:
        """The address of its results: a SHA-256 of its content."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """JSON data for a value in the configuration of a policy from outside the package."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return sorted(value) if isinstance(value, (set, frozenset)) else repr(value)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A grid of cells: every policy at every d and T, in every market.

    Parameters
    ----------
    name : str
        Name of the run.
    market : str or sequence of str
        Markets, as words.
    policies : mapping of str to str
        Policies, as words by label.
    horizons : sequence of int
        Horizons T.
    dims : sequence of int
        Dimensions d; by default the market's own.
    replications, checkpoints, seed : int
        Replications of each cell, rounds at which regret is recorded, and the seed.
    options : mapping
        Options of markets by name.

    Raises
    ------
    InvalidInput
        If a value is invalid.
    """

    name: str
    market: str | Sequence[str]
    policies: Mapping[str, str]
    horizons: Sequence[int]
    dims: Sequence[int] = ()
    replications: int = 100
    checkpoints: int = 100
    seed: int = 0
    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {"market": self._worlds(), "policies": self._words()}
        checked |= {name: self._list(name) for name in ("horizons", "dims")}
        for name, least, most in (
            ("replications", 1, MAX_REPLICATIONS),
            ("checkpoints", 1, MAX_REPLICATIONS),
            ("seed", 0, LARGEST_COUNT),
        ):
            value = getattr(self, name)
            checked[name] = positive_int(f"{name} of the run {self.name}", value, minimum=least, maximum=most)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if not self.horizons:
            raise InvalidInput(f"The run {self.name} needs horizons, as in horizons = [10000].")

    def _worlds(self) -> tuple[str, ...]:
        worlds = [self.market] if isinstance(self.market, str) else self.market
        if not isinstance(worlds, (list, tuple)) or not worlds or not all(isinstance(w, str) for w in worlds):
            raise InvalidInput(f"The run {self.name} needs a market such as 's1', or a list, got {self.market!r}.")
        return tuple(worlds)

    def _words(self) -> dict[str, str]:
        words: Any = self.policies
        if isinstance(words, (list, tuple)) and all(isinstance(word, str) for word in words):
            check_words(words)
            words = {word: word for word in words}
        if not isinstance(words, Mapping) or not words or not all(isinstance(w, str) for w in words.values()):
            raise InvalidInput(f"The run {self.name} needs policies: a list of words, or a table of label = word.")
        return dict(words)

    def _list(self, name: str) -> tuple[int, ...]:
        values = getattr(self, name)
        if not isinstance(values, (list, tuple)):
            raise InvalidInput(f"{name} of the run {self.name} must be a list of whole numbers, got {values!r}.")
        numbers = tuple(positive_int(f"{name} of the run {self.name}", v) for v in values)
        if len(set(numbers)) < len(numbers):
            raise InvalidInput(f"{name} of the run {self.name} names a number twice: {values}.")
        return numbers

    def cells(self) -> list[Cell]:
        """All cells, policy by policy."""
        cells = []
        worlds: dict[tuple[str, int | None, int], Market] = {}
        grid = product(self.market, self.policies.items(), self.dims or (None,), self.horizons)
        for world, (label, word), dim, T in grid:
            if (world, dim, T) not in worlds:
                more = self.options.get(world.partition(":")[0], {})
                worlds[world, dim, T] = market_from(world, dim=dim, horizon=T, **more)
            market = worlds[world, dim, T]
            policy = policy_from(word, market, T)
            check_pair(policy, market)
            work = Job(
                policy=policy, market=market, horizon=T, seed=self.seed, checkpoints=rounds_of(self.checkpoints, T),
                replications=range(self.replications),
            )  # fmt: skip
            source = source_of(type(plain(policy)), markets.get(split(world)[0]), type(market), type(market.contexts))
            cells.append(Cell(run=self.name, label=label, word=word, work=work, source=source))
        return cells
