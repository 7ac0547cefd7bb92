"""What docs/service.md and docs/deploy.md say can be typed as it stands there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

import hushprice as hp
from hushprice.service import Definition, read_products
from hushprice.service.demo import shop as demo
from hushprice.service.settings import Settings
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
SERVICE, DEPLOY = ((DOCS / name).read_text(encoding="utf-8") for name in ("service.md", "deploy.md"))
CURL = re.compile(r"\$ curl -s \$URL(\S+) -H \"Authorization: Bearer \$(\w+)\" --json '(.*)'")


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text, flags=re.DOTALL)


def products(text: str, folder: Path) -> list[Definition]:
    """The products of a document, whose models are in the folder."""
    definitions = []
    for block in blocks(text, "toml"):
        (folder / "products.toml").write_text(block, encoding="utf-8")
        definitions += read_products(folder / "products.toml")
    return definitions


def save_model(file: Path) -> None:
    """A model of two features, as if fitted to a shop's log."""
    contexts = np.random.default_rng(1).uniform(-1.0, 1.0, (500, 2))
    shop = hp.Market(alpha=np.full(2, 0.5), beta=np.full(2, 0.1), contexts=contexts, prices=(1, 5)).with_intercept()
    log = hp.record(hp.policies.RandomPrice(family=hp.Logistic(), dim=3, prices=(1, 5)), shop, horizon=2000)
    log = {"price": log["price"], "outcome": log["outcome"], "loyalty": log["z1"], "hurry": log["z2"]}
    hp.fit(log, price="price", outcome="outcome", features=["loyalty", "hurry"]).save(file)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a service with the products of the document, and keys by role."""
    secrets, known = demo.keys()
    folder = tmp_path_factory.mktemp("docs")
    settings = Settings(database=f"sqlite:///{folder}/docs.db", keys=known, log_format="none")
    save_model(folder / "mate.model.json")
    coffee, mate = products(SERVICE, folder)
    assert mate.policy.prior is not None
    assert [feature.name for feature in mate.features] == ["constant", "loyalty", "hurry"]
    with demo.running(settings, [coffee, Definition.of("tea", demo.TEA)], port=0) as url:
        yield url, {role.upper(): secret for role, secret in secrets.items()}


def test_every_command_is_answered(shop: tuple[str, dict[str, str]]) -> None:
    url, keys = shop
    commands = CURL.findall(SERVICE)
    assert len(commands) == SERVICE.count("$ curl") == 7
    for path, role, body in commands:
        if path.endswith("/rollback"):
            body = '{"version": 0}'  # the document's is of a busier shop
        answer = httpx.post(
            url + path,
            content=body,
            headers={"Authorization": f"Bearer {keys[role]}", "Content-Type": "application/json"},
            timeout=120,  # a new product may have to be compiled
        )
        assert answer.status_code == (201 if path == "/v1/products" else 200), (path, answer.text)
    answers = [json.loads(line) for line in SERVICE.splitlines() if line.startswith('{"')]
    offer = httpx.post(
        f"{url}/v1/products/tea/offers",
        json={"context": [1.0, 0.4]},
        headers={"Authorization": f"Bearer {keys['SELLER']}"},
        timeout=120,
    )
    assert answers[0] == {"name": "cake", "created": True}
    assert set(answers[1]) == set(offer.json())
    assert set(answers[2]) == {"accepted", "known", "late"}


def test_the_devices_example_runs(
    shop: tuple[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, keys = shop
    (code,) = blocks(SERVICE, "python")
    code = code.replace("https://prices.example.com", url).replace("hp_device_...", keys["DEVICE"])
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    exec(code, scope)
    offer = scope["offer"]
    assert 1.0 <= offer.price <= 5.0  # type: ignore[attr-defined]


def test_the_table_of_the_api_is_complete(shop: tuple[str, dict[str, str]]) -> None:
    url, _ = shop
    described = httpx.get(f"{url}/openapi.json").json()["paths"]
    table = SERVICE[SERVICE.index("## The API") :]
    for path in described:
        last = path.removeprefix("/v1/products/{name}")
        assert f"{path}`" in table or (last != path and f"`{last}`" in table), path


def test_the_deployment_has_what_it_needs(tmp_path: Path) -> None:
    assert [definition.name for definition in products(DEPLOY, tmp_path)] == ["coffee"]
    environment, unit, _ = blocks(DEPLOY, "ini")
    names = {line.partition("=")[0] for line in environment.splitlines()}
    assert {name.removeprefix("HUSHPRICE_").lower() for name in names} <= set(Settings.__dataclass_fields__)
    assert "NUMBA_CACHE_DIR" in unit  # Numba cannot be imported where it can write nothing
