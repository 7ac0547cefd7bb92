"""Databases for the tests of the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.postgres import Postgres


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'hushprice.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'hushprice.db'}"
    running: Postgres = request.getfixturevalue("server")
    return running.url(f"t{abs(hash(request.node.nodeid)) % 10**12}")
