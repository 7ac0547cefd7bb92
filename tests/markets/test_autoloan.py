"""The auto loan market: the stand-in against what is published, the loader against the stand-in, and refusals."""

from __future__ import annotations

import gzip
import importlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

import hushprice as hp
from hushprice import checks, markets
from hushprice.errors import InvalidInput
from hushprice.estimation import design, fit
from hushprice.markets import autoloan, loans, write_standin
from hushprice.markets.autoloan import standin as recipes
from hushprice.markets.autoloan.loan_file import read_columns
from hushprice.markets.autoloan.market import NAME, PUBLISHED, SYNTHETIC_NAME
from hushprice.markets.autoloan.standin import contexts_over_means, loan_price

module = importlib.import_module("hushprice.markets.autoloan.market")  # the package has a function of that name

TOLERANCE = {  # of each published fact, absolute
    "rows": 0,
    "kept": 400,
    "norm limit": 0.005,
    "sensitivity limit": 0.005,
    "lowest optimal price": 0.01,
    "highest optimal price": 0.01,
    "mean FICO": 0.3,
    "mean monthly payment": 0.005,
}

PINNED = [0.0, 2253.0, 14.621, 92786.0, 5.52, 192.0, 1671.02]  # sums over the first three rows


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_standin(tmp_path_factory.mktemp("autoloan") / "loans.csv")


# -- the stand-in -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fact", PUBLISHED)
def test_the_stand_in_has_the_published_facts(fact: str) -> None:
    assert loans().facts()[fact] == pytest.approx(PUBLISHED[fact], abs=TOLERANCE[fact])


def test_the_stand_in_looks_like_auto_loans() -> None:
    table, columns = loans(), recipes.standin()
    assert 0.16 <= table.apply.mean() <= 0.22
    assert set(columns["Term"]) == {36, 48, 60, 66, 72}
    assert columns["onemonth"].min() >= 1.0
    assert columns["onemonth"].max() <= 2.2
    assert np.corrcoef(columns["Primary_FICO"], columns["Competition_rate"])[0, 1] < -0.3
    assert np.corrcoef(columns["Amount_Approved"], columns["Term"])[0, 1] > 0.1
    np.testing.assert_allclose(table.z.mean(axis=0), 1.0, rtol=1e-9)
    assert (table.price > 0).mean() > 0.99


def test_the_optimal_prices_of_the_stand_in_are_inside_the_range() -> None:
    prices = loans().optimal_prices
    assert len(prices) == loans().kept.sum()
    assert prices.min() > 0.0
    assert prices.max() < 10.0


def test_theta_of_the_stand_in_is_the_published_one_and_the_fit_recovers_it() -> None:
    """Ten z statistics, each beyond 4 with probability 6e-5."""
    table = loans()
    np.testing.assert_array_equal(table.theta, np.concatenate([recipes.ALPHA, recipes.BETA]))
    gap = (table.fitted.theta - table.theta) / table.standard_errors
    assert np.abs(gap).max() < 4.0


def test_the_stand_in_depends_on_its_seed_only() -> None:
    small = recipes.Recipe(rows=5_000)
    first = recipes.standin(small)
    recipes.standin.cache_clear()
    again, other = recipes.standin(small), recipes.standin(recipes.Recipe(rows=5_000, seed=1))
    for name in recipes.COLUMNS:
        np.testing.assert_array_equal(first[name], again[name])
    assert not np.array_equal(first["mp"], other["mp"])


def test_the_stand_in_is_the_same_everywhere() -> None:
    """Pinned numbers, so that results in this market can be compared between versions."""
    columns = recipes.standin()
    assert [round(float(columns[name][:3].sum()), 3) for name in recipes.COLUMNS] == PINNED


# -- the steps ------------------------------------------------------------------------------------------------


def test_the_price_is_the_present_value_minus_the_amount() -> None:
    rng = np.random.default_rng(1)
    mp, term, amount = rng.uniform(100, 900, 50), rng.integers(1, 90, 50).astype(float), rng.uniform(2e3, 5e4, 50)
    brute = [
        (m * sum(1.0012**-i for i in range(1, int(n) + 1)) - a) / 1000 for m, n, a in zip(mp, term, amount, strict=True)
    ]
    np.testing.assert_allclose(loan_price(mp, term, amount), brute, rtol=0, atol=1e-11)


def test_the_fit_agrees_with_statsmodels() -> None:
    table = loans()
    some = slice(None, None, 20)
    x, y = design(table.z[some], table.price[some]), table.apply[some]
    ours, theirs = fit("logistic", x, y), sm.Logit(y, x).fit(disp=0, tol=1e-12)
    np.testing.assert_allclose(ours.theta, theirs.params, rtol=1e-6)
    np.testing.assert_allclose(ours.standard_errors, theirs.bse, rtol=1e-5)


def test_rows_are_kept_by_norm_and_sensitivity() -> None:
    table = loans()
    norm = np.sqrt((table.z**2).sum(axis=1))
    sensitivity = table.z @ table.theta[5:]
    kept_rows = (norm <= np.sort(norm)[int(0.99 * len(norm))]) & (
        sensitivity >= np.sort(sensitivity)[int(0.01 * len(norm))]
    )
    assert np.count_nonzero(kept_rows != table.kept) <= 4  # the quantiles are interpolated
    np.testing.assert_array_equal(table.rows, table.z[table.kept])


def test_covariates_come_in_the_papers_order() -> None:
    columns = {name: np.array([1.0, 3.0]) * (j + 1) for j, name in enumerate(recipes.COVARIATES)}
    z, means = contexts_over_means(columns)
    assert recipes.COVARIATES == ("Primary_FICO", "Competition_rate", "Amount_Approved", "onemonth", "Term")
    np.testing.assert_array_equal(means, [2, 4, 6, 8, 10])
    np.testing.assert_array_equal(z, np.repeat([[0.5], [1.5]], 5, axis=1))


# -- the file -------------------------------------------------------------------------------------------------


def test_the_stand_in_survives_a_file(csv: Path) -> None:
    """Every column to the last bit, so that loader and stand-in agree on everything but where theta is from."""
    columns = read_columns(csv)
    for name in recipes.COLUMNS:
        np.testing.assert_array_equal(columns[name], recipes.standin()[name])
    table, own = loans(csv), loans()
    assert table.name == SYNTHETIC_NAME  # it knows what it is
    np.testing.assert_array_equal(table.z, own.z)
    np.testing.assert_array_equal(table.theta, own.fitted.theta)
    assert table.facts()["norm limit"] == own.facts()["norm limit"]
    assert table.facts()["sensitivity limit"] == pytest.approx(own.facts()["sensitivity limit"], abs=0.03)


def test_a_real_file_is_fitted_and_resampled(tmp_path: Path) -> None:
    path = _write(tmp_path, packed=True, extra={"State": ["NY"] * 2_000})
    market, table = autoloan(file=path), loans(path)
    assert market.name == table.name == NAME
    assert market.prices == (0.0, 10.0)
    np.testing.assert_array_equal(market.theta, table.fitted.theta)
    np.testing.assert_array_equal(market.contexts.rows, table.rows)
    known = {row.tobytes() for row in table.rows}
    assert all(row.tobytes() in known for row in market.draw(np.random.default_rng(1), 100))
    for check in checks.market_checks():
        check(market)


def _columns(rows: int = 2_000) -> dict[str, list[Any]]:
    return {name: values[:: len(values) // rows][:rows].tolist() for name, values in recipes.standin().items()}


def _write(
    folder: Path,
    columns: dict[str, list[Any]] | None = None,
    *,
    packed: bool = False,
    extra: dict[str, list[Any]] | None = None,
) -> Path:
    columns = {**(extra or {}), **(columns or _columns())}
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path, text = folder / "loans.csv", "\n".join(lines).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    return path


def _set(name: str, row: int, value: Any) -> Callable[[dict[str, list[Any]]], None]:
    def change(columns: dict[str, list[Any]]) -> None:
        columns[name][row] = value

    return change


def _scale(name: str, factor: float) -> Callable[[dict[str, list[Any]]], None]:
    def change(columns: dict[str, list[Any]]) -> None:
        columns[name] = [factor * value for value in columns[name]]

    return change


def _rename(old: str, new: str) -> Callable[[dict[str, list[Any]]], None]:
    def change(columns: dict[str, list[Any]]) -> None:
        columns[new] = columns.pop(old)

    return change


def _cut(columns: dict[str, list[Any]]) -> None:
    for values in columns.values():
        del values[999:]


REFUSALS: list[tuple[Callable[[dict[str, list[Any]]], None], str]] = [
    (
        _rename("Primary_FICO", "primary_fico"),
        r"no column 'Primary_FICO'.*Did you mean 'primary_fico'\?.*Needed: apply",
    ),
    (_set("mp", 6, ""), r"'mp' has 1 values.*row 7: missing.*leave them out"),
    (_set("Term", 1, "sixty"), r"'Term' has 1 values.*row 2: 'sixty'"),
    (_set("Term", 3, "inf"), r"'Term' has 1 values.*row 4: 'inf'"),
    (_set("onemonth", 0, "NA"), r"'onemonth' has 1 values.*row 1: 'NA'"),
    (_set("apply", 4, 2), r"'apply' has 1 values.*row 5: 2\. .*taken up, or 0"),
    (_set("Competition_rate", 4, -2), r"'Competition_rate' has 1 values.*row 5: -2.*negative"),
    (_scale("Competition_rate", 0.0), r"'Competition_rate' is 0 in every row"),
    (_scale("onemonth", 0.0), r"'onemonth' is 0 in every row"),
    (_scale("Amount_Approved", 0.001), r"'Amount_Approved' has 2000 values.*dollars, not in thousands"),
    (_scale("Term", 1 / 12), r"'Term' has .*months, not in years"),
    (_scale("Primary_FICO", 0.1), r"'Primary_FICO' has 2000 values.*300 to 850"),
    (_scale("mp", 0.5), r"payments do not fit the loans: 2000 of 2000 never pay"),
    (_scale("mp", 5), r"payments do not fit the loans: 0 of 2000 never pay .* 2000 pay it back more than twice"),
    (_scale("apply", 0), r"apply is 0 in every row"),
    (_cut, r"has 999 rows; the fit needs at least 1000"),
]


@pytest.mark.parametrize(("change", "message"), REFUSALS, ids=[message for _, message in REFUSALS])
def test_bad_files_are_refused(tmp_path: Path, change: Callable[[dict[str, list[Any]]], None], message: str) -> None:
    columns = _columns()
    change(columns)
    with pytest.raises(InvalidInput, match=message):
        autoloan(file=_write(tmp_path, columns))


def test_all_missing_columns_are_named(tmp_path: Path) -> None:
    columns = _columns()
    del columns["mp"], columns["Term"]
    with pytest.raises(InvalidInput, match="no column 'Term', 'mp'"):
        loans(_write(tmp_path, columns))


def test_a_covariate_that_does_not_vary_is_refused(tmp_path: Path) -> None:
    columns = _columns()
    columns["onemonth"], columns["Term"] = [1.2] * 2_000, [60] * 2_000
    with pytest.raises(InvalidInput, match="do not vary independently"):
        _ = loans(_write(tmp_path, columns)).theta


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\x1f\x8b\x08 no gzip", "cannot be read as a CSV file"),
        (gzip.compress(b"apply,mp\n1,2\n" * 500, mtime=0)[:40], "cannot be read as a CSV file"),
        (b"apply;Primary_FICO;mp\n1;700;500\n", "Its first line has no commas"),
        (b"apply,Primary_FICO\n1,2\n1,2,3\n", "cannot be read as a CSV file"),
        (bytes(range(128, 256)) * 20, "cannot be read as a CSV file|no column"),
        (
            b"apply,apply,Primary_FICO,Competition_rate,Amount_Approved,onemonth,Term,mp\n",
            "more than one column 'apply'",
        ),
    ],
)
def test_files_that_are_no_csv_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "odd.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        loans(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"does not exist.*synthetic stand-in"):
        autoloan(file=tmp_path / "no.csv")
    with pytest.raises(InvalidInput, match="is a directory"):
        autoloan(file=tmp_path)
    with pytest.raises(InvalidInput, match="cannot be written"):
        write_standin(tmp_path / "no" / "loans.csv")


# -- the market -----------------------------------------------------------------------------------------------


def test_the_market_says_that_it_is_synthetic() -> None:
    market = markets.build("autoloan", horizon=100)
    assert market.name == SYNTHETIC_NAME
    assert market.prices == (0.0, 10.0)
    assert markets.build("autoloan", prices=(0, 3), public=0.1, cost=0.2).prices == (0.0, 3.0)
    assert market.z_max() == loans().norm[loans().kept].max() <= loans().norm_limit
    assert market.contexts.trusted
    assert len(market.contexts.rows) == loans().kept.sum()


def test_other_dimensions_and_families_are_refused() -> None:
    with pytest.raises(InvalidInput, match="has dim 5"):
        autoloan(dim=4)
    with pytest.raises(InvalidInput, match="logistic demand"):
        autoloan(family="poisson")


@pytest.mark.parametrize("check", checks.market_checks(), ids=lambda c: c.__name__)
def test_the_market_passes_the_generic_checks(check: Any) -> None:
    check(autoloan())
    check(autoloan(cost=0.5))


def test_the_stand_in_is_sent_to_other_processes_as_its_recipe() -> None:
    market = autoloan()
    sent = pickle.dumps(market)
    assert len(sent) < 5_000
    again = pickle.loads(sent)
    assert again.contexts is market.contexts
    np.testing.assert_array_equal(again.theta, market.theta)


def test_another_process_makes_the_same_customers() -> None:
    """Nothing that was made before is used."""
    market = autoloan()
    sent = pickle.dumps(market)
    for cached in (recipes.standin, module._synthetic, module._StandIn.made):
        cached.cache_clear()
    again = pickle.loads(sent)
    assert again.contexts is not market.contexts
    np.testing.assert_array_equal(again.contexts.rows, market.contexts.rows)
    policy = hp.policies.build("etc-doubling", family="logistic", dim=5, prices=(0, 10))
    first, second = (hp.simulate(policy, m, horizon=2_000, replications=1, seed=1) for m in (market, again))
    np.testing.assert_array_equal(first.paths, second.paths)
