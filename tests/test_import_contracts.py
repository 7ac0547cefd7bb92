"""Every line of every import contract in pyproject.toml is shown to fail: on one planted import for each.

A contract that names a package which has moved would always hold; so would one whose package has lost a file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]
PLANTED = "planted_{}"  # a new module, so that only contracts which cover whole folders see it


def forbidden_imports(contract: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(module or package, what it must not import): each pair that the contract names."""
    if contract["type"] == "layers":
        layers = [[module.strip() for module in layer.split("|")] for layer in contract["layers"]]
        for upper, lower in pairwise(layers):
            yield from ((low, high) for low in lower for high in upper)
        for layer in layers:
            yield from pairwise(layer)
    else:
        for source in contract["source_modules"]:
            yield from ((source, forbidden) for forbidden in contract["forbidden_modules"])


def folder_of(copy: Path, module: str) -> Path:
    """Where a module or package is in the copy."""
    base = copy / "src" if module.startswith("hushprice") else copy
    return base.joinpath(*module.split("."))


def plant(copy: Path, number: int, source: str, forbidden: str) -> str:
    """Write the import into a new file of the package, or at the end of the module; the name of the importer."""
    folder = folder_of(copy, source)
    importer = f"{source}.{PLANTED.format(number)}" if folder.is_dir() else source
    file = folder_of(copy, importer).with_suffix(".py")
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"\nimport {forbidden}\n")
    return importer


def lint(folder: Path) -> str:
    """What lint-imports says of the copy."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo"]
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "COLUMNS": "500", "NO_COLOR": "1"}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return run.stdout + run.stderr


@pytest.fixture(scope="module")
def sections(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What lint-imports says of each broken contract, in a copy of the source where all of them are broken."""
    copy = tmp_path_factory.mktemp("contracts")
    for package in ("src/hushprice", "tests", "benchmarks"):
        shutil.copytree(
            ROOT / package,
            copy / package,
            ignore=lambda folder, names: [name for name in names if not wanted(folder, name)],
        )
    shutil.copy(ROOT / "pyproject.toml", copy)
    for number, contract in enumerate(CONTRACTS):
        for source, forbidden in forbidden_imports(contract):
            plant(copy, number, source, forbidden)
    said = lint(copy).split("Broken contracts")[1]
    parts = re.split("|".join(re.escape(f"{contract['name']}\n---") for contract in CONTRACTS), said)
    broken = [contract["name"] for contract in CONTRACTS if f"{contract['name']}\n---" in said]
    return dict(zip(broken, parts[1:], strict=True))


def wanted(folder: str, name: str) -> bool:
    """Whether a file or folder is Python source."""
    return name.endswith(".py") or (Path(folder, name).is_dir() and name != "__pycache__")


@pytest.mark.parametrize("number", range(len(CONTRACTS)), ids=[contract["name"] for contract in CONTRACTS])
def test_a_contract_fails_on_each_import_that_it_forbids(number: int, sections: dict[str, str]) -> None:
    contract = CONTRACTS[number]
    said = sections[contract["name"]]
    for source, forbidden in forbidden_imports(contract):
        importer = f"{source}.{PLANTED.format(number)}" if folder_of(ROOT, source).is_dir() else source
        assert f"{importer} -> {forbidden} (l." in said, f"{source} may import {forbidden}"


def test_every_file_of_the_servers_folder_is_inside_the_privacy_contract(sections: dict[str, str]) -> None:
    """A learner's server that nobody has thought of yet, in a file of its own, with the import that makes reports."""
    said = sections["The server half of a private policy sees no raw data"]
    for forbidden in ("hushprice.policies.private.device", "hushprice.kernels.report"):
        assert re.search(rf"policies\.private\.server\.planted_\d+ -> {re.escape(forbidden)} ", said)
