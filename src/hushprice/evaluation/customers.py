"""The customers of a log: who they were, what they were quoted and what they bought."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hushprice.arrays import Array
from hushprice.errors import LARGEST_VALUE, InvalidInput, finite
from hushprice.evaluation.weights import Mask
from hushprice.fitting import DemandModel, Encoding
from hushprice.fitting.reading.source import Batch, Source

INCOMPLETE = "price, outcome, cost or feature missing"


@dataclass(frozen=True, kw_only=True, eq=False)
class Customers:
    """The complete rows of a log. ``z`` holds the contexts and ``names`` the names of their entries."""

    batch: Batch
    price: Array
    y: Array
    cost: Array
    own_cost: bool  # whether each customer has a cost
    z: Array
    names: tuple[str, ...]
    complete: Mask  # (rows of the log,)
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def earned(self) -> Array:
        """(p - c) y."""
        value: Array = (self.price - self.cost) * self.y
        return value

    def column(self, name: str) -> Array:
        """Another column, of the complete rows."""
        return self.batch.numbers(name)


@dataclass(frozen=True, kw_only=True, eq=False)
class Contexts:
    """Which columns make a context: those of an encoding, or numbers as they are, with or without a 1 before them."""

    encoding: Encoding | None = None
    columns: tuple[str, ...] = ()
    intercept: bool = False

    @classmethod
    def choose(
        cls, source: Source, *, model: DemandModel | None, features: Sequence[str] | None, target: object
    ) -> Contexts:
        """The model's encoding; else the features; else the target's encoding; else z0, z1, ...; else a constant."""
        if model is not None and features is not None:
            raise InvalidInput("Give features or a model, whose encoding says which they are, not both.")
        if model is not None:
            return cls(encoding=model.encoding_)
        if features is not None:
            return cls(columns=_listed("features", features), intercept=True)
        if isinstance(target, DemandModel):
            return cls(encoding=target.encoding_)
        present = {name for name in source.columns if re.fullmatch(r"z\d+", name)}
        own = tuple(f"z{i}" for i in range(len(present)))
        return cls(columns=own) if own and present == set(own) else cls(intercept=True)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns to read."""
        return self.columns if self.encoding is None else self.encoding.columns

    def of(self, batch: Batch) -> tuple[Array, tuple[str, ...]]:
        """Contexts, NaN where a number is missing, and the names of their entries."""
        if self.encoding is not None:
            return self.encoding.encode(batch), self.encoding.names
        columns = [np.ones(batch.rows)] * self.intercept
        for name in self.columns:
            if not batch.is_number(name):
                raise InvalidInput(
                    f"The feature {name!r} is not a number. Fit a model, which encodes words, and give that as model."
                )
            columns.append(batch.numbers(name))
        return np.column_stack(columns), (*(["1"] * self.intercept), *self.columns)


def _listed(what: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise InvalidInput(f"{what} must be a list of column names, got the word {names!r}.")
    if len(set(names)) < len(names):
        raise InvalidInput(f"{what} names a column twice: {', '.join(names)}.")
    return tuple(names)


def read(
    source: Source, *, price: str, outcome: str, cost: float | str, contexts: Contexts, others: Sequence[str]
) -> Customers:
    """Read these columns of all rows into memory and select the complete rows."""
    own_cost = isinstance(cost, str)
    own_columns = [str(cost)] if own_cost else []
    for name in (price, outcome):
        if [price, outcome, *own_columns, *contexts.needed, *others].count(name) > 1:
            raise InvalidInput(f"The column {name!r} is the price or the outcome, and cannot be anything else as well.")
    batch = source.read([price, outcome, *own_columns, *contexts.needed, *others])
    paid = batch.numbers(str(cost)) if own_cost else np.full(batch.rows, finite("cost", cost, minimum=0.0))
    z, names = contexts.of(batch)
    columns = np.column_stack([batch.numbers(price), batch.numbers(outcome), paid, z])
    if np.isinf(columns).any() or np.nanmax(np.abs(columns), initial=0.0) > LARGEST_VALUE:
        raise InvalidInput(
            f"A price, outcome, cost or feature is infinite or above {LARGEST_VALUE:g}. Mend these rows."
        )
    complete: Mask = np.asarray(~np.isnan(columns).any(axis=1))
    missing = int((~complete).sum())
    if missing == len(columns):
        raise InvalidInput(f"No row of {source.name} is complete: price, outcome, cost and features must be there.")
    rows = columns[complete]
    return Customers(
        batch=batch.take(complete),
        price=rows[:, 0].copy(),
        y=rows[:, 1].copy(),
        cost=rows[:, 2].copy(),
        own_cost=own_cost,
        z=np.ascontiguousarray(rows[:, 3:]),
        names=names,
        complete=complete,
        left_out={INCOMPLETE: missing} if missing else {},
    )
