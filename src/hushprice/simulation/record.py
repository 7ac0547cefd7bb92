"""A log of one simulated run, as a live service would keep it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from hushprice.arrays import Array
from hushprice.demand import Terms
from hushprice.errors import InvalidInput, positive_int
from hushprice.files import check_target, replacing
from hushprice.markets import Market
from hushprice.policies import Params, Policy, Quotes
from hushprice.policies.base import Device, Server
from hushprice.policies.exchange import Propensity
from hushprice.policies.loop import Loop
from hushprice.privacy import UnsafeSeed
from hushprice.simulation.engine import CHOICES, CONTEXTS, DEMAND, EXPLORATION, PRIVACY, TRUTH, streams
from hushprice.simulation.jobs import check_pair

WRITERS = {".parquet": parquet.write_table, ".csv": csv.write_csv}
OWN = ("price", "outcome", "propensity", "discrete")  # columns that every log has
RESERVED = (*OWN, "segment", "cost")


def check_log(path: Path) -> None:
    """Refuse a file that a log cannot be written to, before any work: only a recorded log is ever replaced."""
    if path.suffix not in WRITERS:
        raise InvalidInput(f"A log must be a .parquet or .csv file, got {path}.")
    check_target(path, what="recorded log", example="quotes.parquet", is_one=_is_recorded)


def _is_recorded(path: Path) -> bool:
    try:
        if path.suffix == ".parquet":
            names = parquet.read_schema(path).names
        else:
            with path.open(encoding="utf-8") as file:
                names = [name.strip('"') for name in file.readline().strip().split(",")]
    except (OSError, ValueError, pa.ArrowException):
        return False
    return set(OWN) <= set(names)


def write_log(table: pa.Table, path: Path) -> None:
    """A log as Parquet or CSV, by the ending of its name."""
    check_log(path)
    try:
        with replacing(path) as aside:
            WRITERS[path.suffix](table, str(aside))
    except OSError as problem:
        raise InvalidInput(f"The log {path} cannot be written: {problem}.") from None


class RecordingLoop(Loop):
    """The loop of live use over blocks of customers, which keeps how likely each price was."""

    def __init__(self, device: Device, server: Server[Any]) -> None:
        super().__init__(device, server)
        self._recorded: list[Propensity] = []

    def quote(self, params: Params, z: Array, rng: np.random.Generator, terms: Terms | None) -> Quotes:
        before = None if terms is None else terms.before()
        quotes = super().quote(params, z, rng, terms)
        self._recorded.append(self.device.propensity(params, z, quotes.price, before))
        return quotes

    def propensities(self) -> Propensity:
        """Propensities recorded since the last call."""
        recorded, self._recorded = self._recorded, []
        return Propensity(np.concatenate([p.value for p in recorded]), np.concatenate([p.discrete for p in recorded]))


def record(policy: Policy, market: Market, *, horizon: int, seed: int = 0, replication: int = 0) -> pa.Table:
    """Every quote of one replication: context, price, outcome and how likely the price was.

    Columns: the entries of the context by ``market.names`` (with " feature" behind a name of another column), or z0,
    z1, ...; price; outcome; propensity, which is a
    probability where ``discrete`` and a density elsewhere (NaN: unknown); segment and cost, where the market has them.
    The run is that of :func:`~hushprice.simulation.simulate` with the same seed. Of a private policy too it holds raw
    records, which no server of such a policy ever has: it is for study.

    Parameters
    ----------
    policy : Policy
        The policy that sells.
    market : Market
        The market that it sells in.
    horizon : int
        Number of customers.
    seed : int
        Seed of the simulation.
    replication : int
        Which replication of that seed.

    Returns
    -------
    pyarrow.Table
        One row per quote, in order.

    Examples
    --------
    >>> from hushprice import markets, policies
    >>> market = markets.s1(dim=2)
    >>> policy = policies.RandomPrice(family="logistic", dim=2, prices=market.prices)
    >>> record(policy, market, horizon=3).column_names
    ['z0', 'z1', 'price', 'outcome', 'propensity', 'discrete']
    """
    horizon = positive_int("horizon", horizon)
    check_pair(policy, market)
    seeds = streams(positive_int("seed", seed, minimum=0), positive_int("replication", replication, minimum=0))
    contexts, demand, exploration, choices, truth = (
        np.random.Generator(np.random.PCG64(seeds[k])) for k in (CONTEXTS, DEMAND, EXPLORATION, CHOICES, TRUTH)
    )
    market = market.truth(truth)
    loop = RecordingLoop(policy.device(UnsafeSeed(seeds[PRIVACY])), policy.server())
    own = market.names or tuple(f"z{j}" for j in range(market.dim))
    names = [f"{name} feature" if name in RESERVED else name for name in own]
    tables = []
    for block in market.blocks(contexts, demand, horizon, choices=choices):
        prices = loop.sell(block, exploration).price
        likely = loop.propensities()
        columns: dict[str, Any] = {name: block.z[:, j] for j, name in enumerate(names)}
        columns |= {"price": prices, "outcome": block.y, "propensity": likely.value, "discrete": likely.discrete}
        if block.segment is not None:
            columns["segment"] = np.array(market.segments, dtype=np.object_)[block.segment]
        if block.cost is not None:
            columns["cost"] = block.cost
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)
