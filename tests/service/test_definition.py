"""Definitions of products: from files, refused where they make no sense, fixed once they are in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushprice.errors import InvalidInput
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
