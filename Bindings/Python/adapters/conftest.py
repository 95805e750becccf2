"""The adapters' own tests, in an environment that has the libraries (Scripts/test-adapters)."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"
