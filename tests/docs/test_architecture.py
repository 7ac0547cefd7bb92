"""The documentation of the structure names files and folders that are there, and all of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tools.source import PACKAGE, tracked

from tests.support.paths import ROOT

FILES = tracked(ROOT, ["."])
PAGES = [path for path in FILES if path.endswith(".md") and not path.startswith("docs/results/")]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w.-]+/[\w./-]*|[\w-]+\.(?:py|toml|json|md))`")  # a path, or the name of a file


DECISIONS = [page for page in PAGES if page.startswith("docs/decisions/")]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", *DECISIONS])
def test_files_and_folders_that_are_named_exist(page: str) -> None:
    named = set(NAMED.findall((ROOT / page).read_text(encoding="utf-8"))) - {".venv/bin"}
    assert {name for name in named if not _exists(name)} == set()


def _exists(name: str) -> bool:
    """Whether a path is there, below whichever folder."""
    return any(f"/{name}" in f"/{path}" if name.endswith("/") else f"/{path}".endswith(f"/{name}") for path in FILES)


def test_each_folder_of_the_package_has_a_line() -> None:
    folders = {str(Path(path).parent.relative_to(PACKAGE)) for path in FILES if path.startswith(f"{PACKAGE}/")}
    tree = ARCHITECTURE[ARCHITECTURE.index("    src/hushprice/") : ARCHITECTURE.index("## A private report")]
    missing = {folder for folder in folders - {"."} if not re.search(rf"\b{Path(folder).name}/", tree)}
    assert not missing


def test_the_layers_are_those_of_the_import_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = (each for each in settings["contracts"] if each["type"] == "layers")
    enforced = [name.strip() for layer in contract["layers"] for name in layer.replace("hushprice.", "").split("|")]
    section = ARCHITECTURE[ARCHITECTURE.index("## The layers") : ARCHITECTURE.index("## The rooms")]
    written = [re.split(r"\s{2,}", line)[0] for line in re.findall(r"^    (\S.*)$", section, flags=re.MULTILINE)]
    assert [name.strip() for line in written for name in re.split(r"[|,]", line)] == enforced


def test_each_decision_is_listed_once() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    files = {Path(path).name for path in FILES if path.startswith("docs/decisions/")} - {"README.md"}
    assert sorted(re.findall(r"\]\(([\w-]+\.md)\)", index)) == sorted(files)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert ((ROOT / page).parent / target).exists(), target
