"""The words and places of demand that does not follow its model, of live sales and of logs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hushprice.demand.misfit import runs
from hushprice.markets.twin.places import Place
from hushprice.policies import Misfit
from hushprice.policies.monitoring.findings import misfits_of


def test_runs_are_neighbours_beyond_chance_of_one_sign() -> None:
    """Against itertools, for all patterns of six groups."""
    for signs in itertools.product((-1.0, 0.0, 1.0), repeat=6):
        keyed = itertools.groupby(range(6), key=lambda i: signs[i])
        expected = [list(group) for sign, group in keyed if sign]
        beyond = [sign != 0.0 for sign in signs]
        assert [list(range(6))[run] for run in runs(beyond, signs)] == expected
        assert [list(range(6))[run] for run in runs(np.array(beyond), np.array(signs))] == expected


def test_misfits_of_live_cells() -> None:
    edges = np.array([[1.0, 2.0, 3.0], [20.0, 30.0, 40.0], [np.inf, np.inf, np.inf], [np.nan, np.nan, np.nan]])
    evidence = np.array([[9.0, 9.0, 0.0, 9.0], [0.0, 9.0, 9.0, 0.0], [9.0, 0.0, 0.0, 0.0], [9.0, 9.0, 9.0, 9.0]])
    bought = np.array([[3.0, 5.0, 1.0, 1.0], [1.0, 3.0, 0.0, 1.0], [4.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    sums = np.stack([np.full((4, 4), 10.0), bought, np.full((4, 4), 2.0)])
    found = misfits_of(edges, evidence, sums, 5.0)
    assert [one.where(["age", "kind=new"]) for one in found] == [
        "prices up to 2", "prices above 3", "values of age between 20 and 30", "values of age between 30 and 40",
        "customers with kind=new",
    ]  # fmt: skip
    assert (found[0].outcomes, found[0].bought, found[0].expected) == (20.0, 0.4, 0.2)


@pytest.mark.parametrize(("low", "where"), [(4.1, "prices above 4.1"), (4.0, "prices above 4")])
def test_live_sales_and_logs_use_the_same_words(low: float, where: str) -> None:
    live = Misfit(feature=None, low=low, high=np.inf, outcomes=900.0, bought=0.31, expected=0.22)
    place = Place(comparison="tenths of the price", where=where, rows=900.0, bought=0.31, expected=0.22, z=6.0)
    assert live.text() == place.text
    assert place.text == (
        f"Demand does not follow the model at {where}: customers there buy 0.31 on average, 0.22 was expected. Add a "
        f"feature or a constant, or narrow the range of prices."
    )
