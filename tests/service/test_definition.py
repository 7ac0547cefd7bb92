"""Definitions of products: from files, refused where they make no sense, fixed once they are in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushprice as hp
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.service import Conflict, Definition, Unavailable, read_products
from tests.support.products import define, opened, refused


def test_a_definition_does_not_change(url: str) -> None:
    service = opened(url, define("etc"))
    assert service.create(define("etc")).result(20) is False
    refused(Conflict, service.create(define("etc", baseline=2.0)))
    service.stop()
    with pytest.raises(Unavailable):
        service.create(define("etc")).result(20)


def test_definitions_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "products.toml"
    file.write_text(
        """
        [products.coffee]
        policy = "etc-ldp-doubling"
        family = "logistic"
        dim = 2
        prices = [1.0, 5.0]
        epsilon = 2.0
        z_max = 2.0
        currency = "EUR"
        [products.coffee.outcomes]
        wait = 60
        then = "no-sale"
        [products.coffee.rules]
        ladder = [1.99, 2.99, 3.99]
        [products.coffee.guardrails]
        low = 1.5
        [[products.coffee.features]]
        name = "constant"
        value = 1.0
        [[products.coffee.features]]
        name = "loyalty"
        low = 0.0
        high = 1.0
        [products.tea]
        policy = "etc"
        family = { name = "linear", sigma = 2.0 }
        dim = 1
        horizon = 1000
        prices = [1, 2]
        """
    )
    coffee, tea = read_products(file)
    assert (coffee.name, coffee.private, coffee.baseline, coffee.wait, coffee.then) == (
        "coffee", True, 2.99, 60.0, "no-sale",
    )  # fmt: skip
    assert (tea.private, tea.baseline, tea.policy.family.scale) == (False, 1.5, 2.0)
    np.testing.assert_array_equal(coffee.context({"loyalty": 0.5}), [1.0, 0.5])
    for definition in (coffee, tea):
        assert Definition.of(definition.name, json.loads(json.dumps(definition.config()))) == definition
    with pytest.raises(InvalidInput, match="exactly loyalty"):
        coffee.context({"loyal": 0.5})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"policy": "etc-ldp-mixed"}, "raw records"),
        ({"policy": "etcc"}, "Did you mean 'etc'"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"prices": [3, 1]}, "Did you mean"),
        ({"horizon": 10}, "no option"),
        ({"baseline": 9.0}, "baseline"),
        ({"mode": "asleep"}, "mode"),
        ({"outcomes": {"wait": -1}}, "wait"),
        ({"outcomes": {"then": "never"}}, "no way"),
        ({"features": [{"name": "a"}]}, "feature"),
        ({"features": [{"name": "a", "value": 1.0}]}, "2 features"),
        ({"guardrails": {"largest_step": 1.0}}, "largest step"),
        ({"guardrails": {"low": 0.5}}, "must lie within"),
        ({"rules": {"ladder": [2.0]}, "baseline": 2.5}, "ladder"),
        ({"family": {"name": "logistic", "sigma": 1.0}}, "no options"),
        ({"z_max": [1]}, "z_max"),
        ({"rules": 3}, "rules"),
        ({"currency": 3}, "currency"),
    ],
)
def test_definitions_that_make_no_sense_are_refused(wrong: dict[str, Any], words: str) -> None:
    plain: dict[str, Any] = {
        "policy": "etc-ldp-doubling", "family": "logistic", "dim": 2, "prices": [1, 5], "epsilon": 2, "z_max": 2,
    }  # fmt: skip
    Definition.of("coffee", plain)
    with pytest.raises(InvalidInput, match=words):
        Definition.of("coffee", plain | wrong)


# -- what a fitted model knows ---------------------------------------------------------------------------------------

TEA: dict[str, Any] = {"policy": "look-ahead", "family": "logistic", "prices": [1.0, 5.0]}
FEATURES = [{"name": "z1", "low": 0.0, "high": 1.0}, {"name": "z2", "low": 0.0, "high": 1.0}]


@pytest.fixture(scope="module")
def model() -> hp.DemandModel:
    """A model of two features and a constant."""
    contexts = np.random.default_rng(1).uniform(size=(500, 2))
    alpha, beta = np.array([2.0, 1.0]), np.array([1.0, 0.5])
    market = hp.Market(alpha=alpha, beta=beta, contexts=contexts, prices=(1, 5)).with_intercept()
    log = hp.record(hp.policies.RandomPrice(family=hp.Logistic(), dim=3, prices=(1, 5)), market, horizon=2000)
    fitted = hp.fit(log, price="price", outcome="outcome", features=["z1", "z2"])
    assert fitted.encoding_ is not None
    assert fitted.encoding_.dim == 3
    return fitted


def _written(folder: Path, model: hp.DemandModel, *lines: str, names: str = "z1 z2") -> list[Definition]:
    """The products of a file next to the model's."""
    model.save(folder / "tea.model.json")
    file = folder / "products.toml"
    head = '[products.tea]\npolicy = "look-ahead"\nfamily = "logistic"\nprices = [1.0, 5.0]\n'
    ranges = ", ".join(f"{{name = '{name}', low = 0, high = 1}}" for name in names.split())
    named = f"features = [{ranges}]\n"
    file.write_text(head + named + "\n".join(lines))
    return read_products(file)


def test_a_product_starts_from_a_model(tmp_path: Path, model: hp.DemandModel) -> None:
    """The file is named relative to that of the products; trust divides the weight."""
    (whole,) = _written(tmp_path, model, 'prior = "tea.model.json"')
    (half,) = _written(tmp_path, model, 'prior = "tea.model.json"', "trust = 0.5")
    expected = hp.Prior.from_model(model)
    assert whole.policy.prior == expected
    assert half.policy.prior is not None
    np.testing.assert_array_equal(half.policy.prior.precision, 0.5 * expected.precision)
    np.testing.assert_array_equal(half.policy.prior.centre, model.theta_)
    assert half.policy.prior.family == "logistic"
    again = Definition.of("tea", json.loads(json.dumps(half.config())))
    assert again == half
    assert again != whole


def test_named_features_get_a_constant_and_their_number(model: hp.DemandModel) -> None:
    """A look-ahead product needs a constant; other policies have what is named."""
    tea = Definition.of("tea", TEA | {"features": FEATURES})
    assert [feature.name for feature in tea.features] == ["constant", "z1", "z2"]
    assert tea.dim == 3
    np.testing.assert_array_equal(tea.context({"z1": 0.5, "z2": 0.25}), [1.0, 0.5, 0.25])
    assert Definition.of("tea", tea.config()) == tea
    own = [{"name": "one", "value": 2.0}, *FEATURES]
    assert [f.name for f in Definition.of("tea", TEA | {"features": own}).features] == ["one", "z1", "z2"]
    assert Definition.of("tea", TEA | {"features": FEATURES, "policy": "etc-doubling"}).dim == 2
    assert Definition.of("tea", TEA | {"features": [], "dim": 2}).dim == 2  # numbers without names are as they come


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['prior = "coffee.model.json"'], "coffee.model.json"),
        (["trust = 0.5"], "name the model"),
        (['prior = "tea.model.json"', "trust = 0.0"], "trust"),
        (['prior = "tea.model.json"', "trust = 1.5"], "trust"),
        (['prior = "products.toml"'], "products.toml"),
        (['prior = ""'], "cannot be read"),
    ],
)
def test_a_prior_that_cannot_be_read_is_refused(
    tmp_path: Path, model: hp.DemandModel, lines: list[str], words: str
) -> None:
    with pytest.raises(HushpriceError, match=words):
        _written(tmp_path, model, *lines)


@pytest.mark.parametrize("names", ["z2 z1", "z1", "z1 age", "z1 z2 z3"])
def test_features_must_be_those_of_the_model(tmp_path: Path, model: hp.DemandModel, names: str) -> None:
    with pytest.raises(InvalidInput, match=r"in its order.*z1, z2"):
        _written(tmp_path, model, 'prior = "tea.model.json"', names=names)


def test_a_prior_must_fit_the_product(model: hp.DemandModel) -> None:
    prior = hp.Prior.from_model(model).config()
    fits = TEA | {"features": FEATURES, "prior": prior}
    Definition.of("tea", fits)
    for wrong, words in (
        ({"features": FEATURES[:1]}, "length 3"),
        ({"family": "probit"}, "logistic demand"),
        ({"prior": "tea.model.json"}, "file of products only"),
        ({"prior": prior | {"trust": 1.0}}, "centre and its precision"),
        ({"prior": prior | {"family": "logit"}}, "logit"),
        ({"dim": 7}, "7 features"),
        ({"prior": {"centre": [0.0] * 5, "precision": np.eye(5).tolist()}}, "length 2 d"),
    ):
        with pytest.raises(InvalidInput, match=words):
            Definition.of("tea", fits | wrong)
