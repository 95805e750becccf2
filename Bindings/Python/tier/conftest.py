"""The tests of shale.tier, which start servers (Scripts/test-tier)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from near import Machines, is_heard
from progress import Share
from proxy import Proxy
from servers import RedisServer, until

from shale.tier import Tier

CAPACITY = "8MiB"


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
    """Makes the tier of a machine, by its name, with a proxy of its own; waits until it listens."""
    tiers: list[Any] = []
    proxies: dict[str, Proxy] = {}

    def make(name: str = "one", **options: Any) -> Any:
        import redis

        waits = options.pop("waits", True)
        if name not in proxies:
            proxies[name] = Proxy(server.port)
        options = {"bound": 0.5, "timeout": 5.0, "capacity": CAPACITY, **options}
        tier: Any = Tier(tmp_path / name, redis.Redis(port=proxies[name].port), **options)
        tiers.append(tier)
        tier.proxy = proxies[name]
        if waits:
            until(lambda: is_heard(tier))
        return tier

    yield make
    for each in proxies.values():
        each.go()
    for tier in tiers:
        tier.close()
    for each in proxies.values():
        each.close()
