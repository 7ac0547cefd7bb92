"""The origin of a log's propensities: a column, or a description of the experiment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushprice.arrays import Array
from hushprice.errors import InvalidInput
from hushprice.evaluation import propensity as likely
from hushprice.evaluation.customers import Customers
from hushprice.evaluation.propensity import Propensities
from hushprice.evaluation.weights import Mask
from hushprice.fitting.diagnosis.findings import Finding
from hushprice.fitting.reading.source import Source

REPEATED = 20  # rows per price from which propensities of an unknown kind are taken for probabilities
WHY = (
    "What other prices would have earned cannot be told from prices alone: customers who were quoted a low price may "
    "differ from those who were quoted a high one. It takes the probability, or density, with which each was drawn"
)
GUESSED = Finding(
    "discrete-guessed",
    "note",
    "The log does not say whether propensities are densities or probabilities: where each price repeats "
    f"{REPEATED} times or more on average they are taken for probabilities. Say which: "
    "discrete=True or False, or by a column that says it of each row (--discrete true, false or COLUMN).",
)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The column of propensities and of their kind (or the kind; a guess if empty), or strata, or a range."""

    propensity: str | None = None
    discrete: str | bool = False
    within: tuple[str, ...] = ()
    uniform: tuple[float, float] | None = None
    notes: tuple[Finding, ...] = ()

    @classmethod
    def choose(
        cls,
        source: Source,
        propensity: str | None,
        discrete: str | bool,
        within: tuple[str, ...],
        uniform: tuple[float, float] | None,
    ) -> Experiment:
        """The described experiment, or else the column of propensities."""
        if within and uniform is not None:
            raise InvalidInput("Say how prices were drawn in one way: randomised_within or uniform.")
        if within or uniform is not None:
            return cls(within=within, uniform=uniform)
        if propensity is None or (propensity == "propensity" and propensity not in source.columns):
            raise InvalidInput(
                f"{source.name} does not say how likely its prices were. {WHY}: name its column (propensity), say "
                "within which groups prices were drawn at random (randomised_within), or from which range (uniform)."
            )
        guessed = discrete == "discrete" and discrete not in source.columns
        return cls(propensity=propensity, discrete="" if guessed else discrete, notes=(GUESSED,) if guessed else ())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read."""
        named = (self.propensity, self.discrete if isinstance(self.discrete, str) else None)
        return (*(name for name in named if name), *self.within)

    def propensities(self, customers: Customers, segment: str | None) -> Propensities:
        """The propensities of the customers' prices; each segment has its own ranges and ladders."""
        price, batch = customers.price, customers.batch
        if self.uniform is not None:
            return likely.evenly(price, self.uniform)
        if self.propensity is None:
            return likely.within(price, likely.number(batch, self.within))
        value = batch.numbers(self.propensity)
        discrete = self._kinds(customers, ~np.isnan(value))
        _check(value, discrete, customers.complete)
        return likely.logged(price, value, discrete, likely.number(batch, [segment] if segment else []))

    def _kinds(self, customers: Customers, present: Mask) -> Mask:
        """Mask of the rows whose propensity is a probability."""
        n = len(customers.price)
        if isinstance(self.discrete, bool):
            return np.full(n, self.discrete)
        if not self.discrete:
            return np.full(n, n >= REPEATED * len(np.unique(customers.price)))
        discrete = customers.batch.numbers(self.discrete)
        if not np.isin(discrete[present], (0.0, 1.0)).all():
            raise InvalidInput(f"The column {self.discrete!r} must be true or false in every row with a propensity.")
        return np.asarray(discrete == 1.0)


def _check(value: Array, discrete: Mask, complete: Mask) -> None:
    """Refuse impossible propensities in the complete rows."""
    impossible = (value <= 0.0) | np.isinf(value) | (discrete & (value > 1.0 + 1e-9))
    if impossible.any():
        first = int(np.argmax(impossible))
        row = int(np.flatnonzero(complete)[first])
        kind = "probability" if discrete[first] else "density"
        raise InvalidInput(
            f"{int(impossible.sum()):,} rows have a propensity that a quoted price cannot have: row {row + 1} has "
            f"{kind} {value[first]:g}. Leave it empty where it is not known."
        )
