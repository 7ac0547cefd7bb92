"""The survey and its encoding: standardisation, categories, missing values, left-out rows, the sample."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from hushprice.errors import InvalidInput
from hushprice.fitting import Category, Encoding, Number, Source, Survey, survey
from hushprice.fitting.passes.survey_sums import Moments, join_levels
from hushprice.kernels import streamed


def log(rows: int = 4_000, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "price": rng.uniform(1, 3, rows),
        "sold": rng.integers(0, 2, rows).astype(float),
        "age": rng.normal(40, 10, rows),
        "risk": rng.choice(["LOW", "MEDIUM", "HIGH"], rows, p=[0.5, 0.3, 0.2]).astype(object),
    }


def surveyed_log(data: Any, features: list[str], **options: Any) -> Survey:
    return survey(data, price="price", outcome="sold", features=features, **options)


def test_numbers_are_standardised_and_categories_have_the_most_frequent_level_as_base() -> None:
    data = log()
    encoding = surveyed_log(data, ["age", "risk"]).encoding
    assert encoding.names == ("1", "age", "risk=MEDIUM", "risk=HIGH")
    assert encoding.dim == 4
    assert encoding.columns == ("age", "risk")
    z = encoding.encode(Source.open(data).read(encoding.columns))
    assert z.flags.c_contiguous
    expected = np.column_stack(
        [
            np.ones(4_000),
            (data["age"] - data["age"].mean()) / data["age"].std(),
            data["risk"] == "MEDIUM",
            data["risk"] == "HIGH",
        ]
    )
    np.testing.assert_allclose(z, expected, atol=1e-12)


@pytest.mark.parametrize(("missing", "indicated"), [(39, False), (40, True)])
def test_missing_numbers_take_the_mean_and_an_indicator_from_one_in_a_hundred_on(missing: int, indicated: bool) -> None:
    data = log()
    data["age"][:missing] = np.nan
    data["age"][0] = np.inf  # counts as missing
    encoding = surveyed_log(data, ["age"]).encoding
    present = data["age"][missing:]
    assert encoding.names == (("1", "age", "age missing") if indicated else ("1", "age"))
    (age,) = encoding.features
    assert isinstance(age, Number)
    assert age.missing == missing
    assert (age.low, age.high) == (present.min(), present.max())
    np.testing.assert_allclose((age.mean, age.sd), (present.mean(), present.std()), rtol=1e-12)
    z = encoding.encode(Source.open(data).read(["age"]))
    assert (z[:missing, 1] == 0.0).all()
    assert np.isfinite(z).all()
    if indicated:
        np.testing.assert_array_equal(z[:, 2], np.arange(4_000) < missing)


def test_missing_and_rare_and_unseen_levels() -> None:
    data = log()
    data["risk"][:30] = None
    data["risk"][30:49] = "ODD"
    encoding = surveyed_log(data, ["risk"]).encoding
    (risk,) = encoding.features
    assert isinstance(risk, Category)
    assert set(risk.levels) == {"LOW", "MEDIUM", "HIGH", "(missing)", "(other)"}
    assert risk.levels[0] == "LOW"
    assert dict(zip(risk.levels, risk.counts, strict=True))["(missing)"] == 30 == risk.missing
    assert dict(zip(risk.levels, risk.counts, strict=True))["(other)"] == 19
    z = encoding.encode(Source.open({"risk": ["NEW", None, "LOW", "HIGH"]}).read(["risk"]))
    named = [dict(zip(encoding.names, row, strict=True)) for row in z]
    assert named[0]["risk=(other)"] == 1.0 == named[1]["risk=(missing)"]
    assert z[2].sum() == 1.0
    assert named[3]["risk=HIGH"] == 1.0


def test_without_another_level_the_unseen_go_to_the_base() -> None:
    encoding = Encoding(features=(Category("risk", ("LOW", "HIGH"), (60, 40)),))
    z = encoding.encode(Source.open({"risk": ["NEW", None]}).read(["risk"]))
    np.testing.assert_array_equal(z, [[1.0, 0.0], [1.0, 0.0]])


def test_at_most_a_hundred_levels_of_their_own() -> None:
    rng = np.random.default_rng(1)
    category = join_levels("c", Counter({f"l{i}": 1_000 + int(rng.integers(900)) for i in range(300)}))
    assert len(category.levels) == 101
    assert category.levels[0] == "(other)"
    assert min(category.counts) > 1_000


def test_numbers_named_as_categories_and_truth_values() -> None:
    data = log()
    data["wave"] = np.repeat([1.0, 2.0, 3.0], [1_000, 2_000, 1_000])
    data["late"] = np.arange(4_000) % 2 == 0
    encoding = surveyed_log(data, ["wave", "late"], categories=["wave"]).encoding
    assert encoding.names == ("1", "wave=1", "wave=3", "late")
    assert encoding.features[1] == Number("late", 0.5, 0.5, 0.0, 1.0)


def test_constant_features_are_left_out_and_named() -> None:
    data = log()
    data |= {"one": np.ones(4_000), "word": ["x"] * 4_000, "none": [None] * 4_000, "near": 1e8 + 1e-9 * data["age"]}
    surveyed = surveyed_log(data, ["one", "age", "word", "none", "near"])
    assert surveyed.constant == ("one", "word", "none", "near")
    assert surveyed.encoding.names == ("1", "age")


def test_words_that_look_like_numbers_are_not_merged() -> None:
    data = log()
    data["zip"] = ["0210", "210"] * 2_000
    data["id"] = pa.array([2**53, 2**53 + 1] * 2_000)
    encoding = surveyed_log(data, ["zip", "id"], categories=["id"]).encoding
    assert [f.levels for f in encoding.features] == [("0210", "210"), (str(2**53), str(2**53 + 1))]  # type: ignore[union-attr]


def test_entries_have_different_names() -> None:
    data = log()
    data |= {"g": ["a", "a", "b", "b"] * 1_000, "g=b": data["age"], "1": data["age"] ** 2}
    assert surveyed_log(data, ["g", "g=b", "1"]).encoding.names == ("1", "g=b", "g=b again", "1 again")


def test_an_id_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = log()
    data["id"] = [f"c{i}" for i in range(4_000)]
    with pytest.raises(InvalidInput, match=r"'id' has 4000 different words.*id, not a category"):
        surveyed_log(data, ["id"])
    data["id"] = [f"c{i % 1_500}" for i in range(4_000)]
    surveyed = surveyed_log(data, ["id"])
    assert (surveyed.constant, surveyed.rare) == ((), ("id",))  # all levels are rare, which is not all the same
    monkeypatch.setattr("hushprice.fitting.passes.survey_sums.MOST_WORDS", 1_000)
    with pytest.raises(InvalidInput, match="id, not a category"):
        surveyed_log(data, ["id"])


def test_rows_left_out_are_counted_by_reason() -> None:
    data = log()
    data["w"] = np.ones(4_000)
    data["price"][:3], data["sold"][2:7], data["w"][7:9], data["w"][9] = np.nan, np.inf, np.nan, 0.0
    surveyed = surveyed_log(data, ["age"], weights="w")
    assert surveyed.left_out == {"no price": 3, "no outcome": 4, "no weight": 2, "weight 0": 1}
    assert (surveyed.rows, surveyed.records, surveyed.weight) == (4_000, 3_990, 3_990.0)
    assert surveyed.sample.rows == 3_990
    np.testing.assert_array_equal(surveyed.numbers, np.arange(10, 4_000))
    data["w"][20] = -1.0
    with pytest.raises(InvalidInput, match="must not be negative, got -1"):
        surveyed_log(data, ["age"], weights="w")


def test_facts_about_prices_and_outcomes() -> None:
    data = log()
    surveyed = surveyed_log(data, [])
    assert surveyed.outcomes.binary
    assert surveyed.outcomes.whole
    assert (surveyed.price.low, surveyed.price.high) == (data["price"].min(), data["price"].max())
    np.testing.assert_allclose(surveyed.price_quantiles([0.1, 0.5]), np.quantile(data["price"], [0.1, 0.5]))
    data["sold"][7] = 3.0
    assert (surveyed_log(data, []).outcomes.binary, surveyed_log(data, []).outcomes.whole) == (False, True)
    data["sold"][8] = 0.5
    assert not surveyed_log(data, []).outcomes.whole
    assert surveyed_log(data, []).outcomes.high == 3.0


def test_the_sample_is_a_fixed_choice_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushprice.fitting.passes.survey_sums.SAMPLE_ROWS", 1_000)
    data = log(50_000)
    data["age"][::7] = np.nan
    source = Source.open(data)
    surveyed = surveyed_log(source, ["age", "risk"])
    assert 500 <= surveyed.sample.rows <= 1_000
    np.testing.assert_array_equal(surveyed.sample.numbers("price"), data["price"][surveyed.numbers])
    np.testing.assert_array_equal(surveyed.sample.words("risk"), data["risk"][surveyed.numbers])
    assert (np.diff(surveyed.numbers) > 0).all()
    # 50 000 rows in 50 stretches: the counts are binomial, chi-squared exceeds 100 once in 40 000 seeds
    counts = np.bincount(surveyed.numbers // 1_000, minlength=50)
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 100.0


def test_moments_merge_as_if_taken_at_once() -> None:
    rng = np.random.default_rng(2)
    values = 1e6 + rng.normal(size=10_000)
    merged = Moments()
    for part in np.split(values, [0, 17, 5_000, 9_999]):
        merged.merge(*streamed.moments(part))
    np.testing.assert_allclose((merged.mean, merged.sd), (values.mean(), values.std()), rtol=1e-12)
    assert (merged.count, merged.low, merged.high) == (10_000, values.min(), values.max())


def test_segments_are_levels_of_their_own_column() -> None:
    surveyed = surveyed_log(log(), ["age"], segment="risk")
    assert surveyed.segments is not None
    assert surveyed.segments.levels == ("LOW", "MEDIUM", "HIGH")
    assert "risk" in surveyed.sample.columns
    assert surveyed.encoding.names == ("1", "age")


def test_a_column_that_turns_to_text_becomes_a_category(tmp_path: Path) -> None:
    lines = ["price,sold,grade", *(f"{1 + i % 3},{i % 2},{i % 4}" for i in range(900_000))]
    lines += ["2,1,B"] * 50
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    (risk,) = surveyed_log(tmp_path / "log.csv", ["grade"]).encoding.features
    assert isinstance(risk, Category)
    assert set(risk.levels) == {"0", "1", "2", "3", "B"}


def test_files_that_disagree_on_a_column_make_it_a_category(tmp_path: Path) -> None:
    for name, grade in (("a", ["1", "2"]), ("b", ["2", "B"])):
        pd.DataFrame({"price": [1.0, 2.0] * 50, "sold": [0, 1] * 50, "grade": grade * 50}).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    (grade_,) = surveyed_log(tmp_path, ["grade"]).encoding.features
    assert isinstance(grade_, Category)
    assert dict(zip(grade_.levels, grade_.counts, strict=True)) == {"2": 100, "1": 50, "B": 50}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"features": ["price"]}, "cannot be a feature as well"),
        ({"features": ["age", "age"]}, "named twice"),
        ({"features": ["age"], "categories": ["risk"]}, "not among the features"),
        ({"features": ["agee"]}, "Did you mean 'age'"),
        ({"features": ["age"], "weights": "price"}, "two of price, outcome and weights"),
        ({"features": ["age"], "outcome": "risk"}, "must hold numbers, but has"),
    ],
    ids=["price", "twice", "category", "unpresent", "roles", "text"],
)
def test_wrong_columns_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        survey(log(100), **({"price": "price", "outcome": "sold"} | options))


def test_a_log_without_rows_to_learn_from_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"no rows to learn from \(no price: 2\)"):
        surveyed_log({"price": [None, None], "sold": [1, 0]}, [])
    with pytest.raises(InvalidInput, match="no rows to learn from"):
        surveyed_log({"price": [], "sold": []}, [])


def test_an_encoding_is_plain_data() -> None:
    data = log()
    data["age"][:100] = np.nan
    encoding = surveyed_log(data, ["age", "risk"]).encoding
    assert Encoding.from_dict(json.loads(json.dumps(encoding.to_dict()))) == encoding


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"features": [{"kind": "poem", "name": "x"}]},
        {"features": [{"kind": "number", "name": "x"}]},
        {"features": [Number("x", 0.0, 0.0, 0.0, 1.0).to_dict()]},
        {"features": [{"kind": "category", "name": "x", "levels": ["a", "a"], "counts": [1, 1], "missing": 0}]},
        {"features": [{"kind": "category", "name": "x", "levels": ["a"], "counts": [1], "missing": 0}] * 2},
    ],
    ids=["empty", "kind", "fields", "sd", "levels", "twice"],
)  # fmt: skip
def test_what_is_no_encoding_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInput):
        Encoding.from_dict(data)
