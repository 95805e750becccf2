"""The snippets of the guide run, with the results in the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis
from pages import PAGES, run
from servers import RedisServer


def test_tier(
    server: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = redis.Redis

    def client(_host: str, **_options: Any) -> Any:
        return made(port=server.port)

    monkeypatch.setattr("redis.Redis", client)
    world, names = run(PAGES / "tier.md", tmp_path)
    names["tier"].close()
    assert world.asked == [("front",)]
    ada = {"name": "Ada"}
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == f"{ada}"
    assert second == "None"
    assert third in (f"{ada} near False", f"{ada} remote False")
