"""A HoldfastSaver on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from holdfast.integrations.langgraph import HoldfastSaver

BACKENDS = ("memory", "sqlite", "postgres")


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return "memory:"
    if request.param == "postgres":
        return cast("str", request.getfixturevalue("postgres_url"))
    return str(tmp_path / "agent.db")


@pytest.fixture
def saver(url: str) -> Iterator[HoldfastSaver]:
    with HoldfastSaver(url) as opened:
        yield opened
