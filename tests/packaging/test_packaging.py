"""The wheel, the source distribution and a checkout without symbolic links all serve the pages of this checkout."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from tests.support.checkout import (
    BARE_SERVICE,
    checkout_files,
    copy_checkout,
    copy_kernel_cache,
    environment,
    git,
    new_environment,
    package_folder,
    pip,
    service_from,
)
from tests.support.paths import ROOT

STATIC = ROOT / "src" / "hushprice" / "service" / "static"
PAGES = {"/": "index.html", "/shop": "shop.html"}
QUICK_TESTS = "test_house_rules.py or test_own_tests"  # nothing that compiles kernels
# A product whose policy learns nothing, so that little is compiled before the service answers.
PRODUCTS = """
[products.tea]
policy = "fixed-price"
family = "logistic"
dim = 2
prices = [0.0, 3.0]
price = 1.5
"""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout, so that building leaves nothing here."""
    return copy_checkout(tmp_path_factory.mktemp("source") / "hushprice")


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    script = f"from setuptools import build_meta; print(build_meta.build_sdist({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=source, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / done.stdout.split()[-1]


def unpacked(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (inside,) = folder.iterdir()
    return inside


def links_of(text: str, address: str) -> set[str]:
    """Addresses of this service that a page or module names: scripts, styles, pictures and imports."""
    named = re.findall(r'(?:src|href)="(/pages/[^"]+)"', text)
    named += re.findall(r'^(?:import|export|\}) .*?from "(\.[^"]+)";', text, re.MULTILINE)
    named += re.findall(r'"(/pages/[\w./-]+)"', text)
    return {urljoin(address, name) for name in named}


def check_pages(url: str) -> None:
    """Every page, whatever it refers to, and every other file of the folder has the hash of the file here."""
    files = {f"/pages/{path.relative_to(STATIC).as_posix()}": path for path in STATIC.rglob("*") if path.is_file()}
    expected = files | {address: STATIC / name for address, name in PAGES.items()}
    reached, waiting = set[str](), set(PAGES)
    with httpx.Client(base_url=url) as client:
        wait_until_ready(client)
        while waiting:
            address = waiting.pop()
            reached.add(address)
            answer = client.get(address)
            assert answer.status_code == 200, address
            assert sha256(answer.content) == sha256(expected[address].read_bytes()), address
            waiting |= links_of(answer.text, address) - reached
        for address in expected.keys() - reached:
            assert sha256(client.get(address).content) == sha256(expected[address].read_bytes()), address
    assert {"/pages/device/index.js", "/pages/device/kernels.js", "/pages/shop.js", "/pages/board.js"} <= reached


def wait_until_ready(client: httpx.Client) -> None:
    deadline = time.monotonic() + 30.0
    while True:
        try:
            client.get("/healthz").raise_for_status()
            return
        except httpx.HTTPError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_wheel(source: Path, tmp_path: Path) -> None:
    """Through the command line, with a product."""
    pip("wheel", "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    python = new_environment(tmp_path / "environment")
    pip("--python", python, "install", wheel)
    copy_kernel_cache(package_folder(python))
    (tmp_path / "products.toml").write_text(PRODUCTS)
    command: list[str | Path] = [python.parent / "hushprice", "serve", "--products", "products.toml", "--port", "0"]
    with service_from([*command, "--shop", "--json", "--log-format", "none"], tmp_path) as url:
        check_pages(url)
    names = zipfile.ZipFile(wheel).namelist()
    assert all(name.startswith(("hushprice/", f"hushprice-{wheel.name.split('-')[1]}.dist-info/")) for name in names)


def test_source_distribution(sdist: Path, tmp_path: Path) -> None:
    python = new_environment(tmp_path / "environment")
    pip("--python", python, "install", sdist)
    assert package_folder(python).is_relative_to(tmp_path / "environment")
    with service_from([python, "-c", BARE_SERVICE], tmp_path) as url:
        check_pages(url)


def test_checkout_without_symbolic_links(source: Path, tmp_path: Path) -> None:
    """As on Windows: git writes a link as a file that holds the path it leads to."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    repository, clone = tmp_path / "repository", tmp_path / "clone"
    shutil.copytree(source, repository, symlinks=True, ignore=shutil.ignore_patterns("*.egg-info", "build"))
    git("init", "--quiet", repository)
    git("-C", repository, "add", "--all")
    listed = git("-C", repository, "ls-files", "--stage")
    assert not [line for line in listed.splitlines() if line.startswith("120000")]
    author = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
    git(*author, "-C", repository, "commit", "--quiet", "--message", "Everything")
    git("-c", "core.symlinks=false", "clone", "--quiet", repository, clone)
    python = new_environment(tmp_path / "environment")
    assert package_folder(python, clone / "src").is_relative_to(clone)
    with service_from([python, "-c", BARE_SERVICE], tmp_path, clone / "src") as url:
        check_pages(url)


def test_source_distribution_is_the_checkout(sdist: Path, tmp_path: Path) -> None:
    """File for file: tests, vectors, documents, build files."""
    inside = unpacked(sdist, tmp_path)
    packed = {path.relative_to(inside).as_posix() for path in inside.rglob("*") if not path.is_dir()}
    made = {name for name in packed if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    assert packed - made == set(checkout_files())
    for name in sorted(packed - made):
        assert not (inside / name).is_symlink(), name
        assert sha256((inside / name).read_bytes()) == sha256((ROOT / name).read_bytes()), name


def test_source_distribution_runs_its_tests(sdist: Path, tmp_path: Path) -> None:
    """All tests can be collected, and some pass, with the package and the tests of the unpacked folder."""
    inside = unpacked(sdist, tmp_path)
    copy_kernel_cache(inside / "src" / "hushprice")
    options = ["-p", "no:cacheprovider", "-n", "0", "-k", QUICK_TESTS, "tests", "README.md", "CONTRIBUTING.md", "docs"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=inside, env=environment(inside / "src", inside), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    passed, deselected = map(int, re.findall(r"(\d+) (?:passed|deselected)", done.stdout))
    assert passed >= 10
    assert deselected > 1000
