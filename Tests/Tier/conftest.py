"""The tests of shale.tier, which start servers (Scripts/test-tier)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from near import Machines, machines
from progress import Share
from servers import RedisServer


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for share in Share.made:
        if share.all:
            terminalreporter.write_line(str(share))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    started = RedisServer(tmp_path / "server")
    yield started
    started.stop()


@pytest.fixture
def machine(server: RedisServer, tmp_path: Path) -> Iterator[Machines]:
    """Makes the tier of a machine, by name, with its own proxy; waits until it listens."""
    import redis

    with machines(tmp_path, server.port, lambda port: redis.Redis(port=port), True) as make:
        yield make
