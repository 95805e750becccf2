from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from progress import Share
from support import SMALL, Clock, Tolerances

import shale

# A failure prints how to reproduce it; a busy machine is no failure.
settings.register_profile("shale", deadline=None, print_blob=True)
settings.load_profile("shale")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if Tolerances.looks:
        used = [f"{why} {n} ({n / Tolerances.looks:.2%})" for why, n in Tolerances.used.items()]
        line = f"tolerances in {Tolerances.looks} looks: {', '.join(used) or 'none'}"
        terminalreporter.write_line(line)
    for share in Share.made:
        if share.all:
            terminalreporter.write_line(str(share))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(directory: Path) -> Iterator[shale.Cache]:
    with shale.Cache(directory, capacity=SMALL) as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def aging(directory: Path, clock: Clock) -> Iterator[shale.Cache]:
    """A cache whose time is `clock`."""
    with shale.Cache(directory, capacity=SMALL, now=clock) as opened:
        yield opened
