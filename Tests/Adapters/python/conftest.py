"""The adapters' own tests, in an environment that has the libraries (Scripts/test-adapters)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "Bindings" / "Python" / "tests"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(scope="session", autouse=True)
def django_settings() -> None:
    from django.conf import settings

    if not settings.configured:
        settings.configure()
