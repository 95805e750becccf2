"""The snippets of the guides run, and do what the text says. Those that need other libraries are in
Tests/Adapters/python and Tests/Tier."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import MIGRATING, PAGES, run, snippets

import shale


def test_all_are_run() -> None:
    counted = {page.stem: len(snippets(page)) for page in PAGES.glob("*.md")}
    assert counted == {
        "async": 1,
        "benchmarks": 0,
        "events": 1,
        "http-cache": 3,
        "llm-responses": 6,
        "loading": 2,
        "locks": 5,
        "rate-limit": 1,
        "tier": 3,
        "values": 2,
        "web-framework": 3,
    }


def test_loading(directory: Path) -> None:
    world, names = run(PAGES / "loading.md", directory)
    # Both calls of the first price asked once.
    assert [each[0] for each in world.asked] == ["page", "ACME"]
    cache, price = names["cache"], names["price"]
    assert cache["page"] == names["page"] == "answer 1"
    assert price.cache_key("ACME") == ("page.price", ("ACME", "EUR"))
    assert price("ACME") == "answer 3"
    cache.invalidate("prices")
    assert price("ACME") == "answer 4"
    assert price.__wrapped__("ACME") == "answer 5"


def test_llm_responses(directory: Path) -> None:
    own = "import hashlib", "def checked", "cache.invalidate("
    world, names = run(PAGES / "llm-responses.md", directory, *own)
    cache, key_of = names["cache"], names["key_of"]
    # A truncated answer is not kept.
    assert key_of("small-1", []) not in cache
    assert len(world.asked) == 2
    messages = [{"role": "user", "content": "What is slate?"}]
    for expected in (3, 3):
        names["answer"]("small-1", messages, temperature=0)
        assert len(world.asked) == expected
    assert key_of("small-1", messages) != key_of("small-1", messages, temperature=0)
    # A complete one is kept until its model is replaced.
    cache.get_or_load("checked", lambda: names["checked"]("small-1", messages))
    assert "checked" in cache
    cache.invalidate("small-1")
    assert list(cache) == []


def test_http_cache_by_hand(directory: Path) -> None:
    world, names = run(PAGES / "http-cache.md", directory, "def load(previous)")
    assert (names["found"].value, names["found"].source) == ("body", "loaded")
    names["cache"].expire("page")
    again = names["cache"].entry_or_load("page", names["load"], stale=86400)
    assert (again.value, again.source) == ("body", "renewed")
    assert world.asked == [("page", None), ("page", b"1")]


def test_rate_limit(directory: Path) -> None:
    _, names = run(PAGES / "rate-limit.md", directory)
    assert [names["allowed"]("bob", limit=3) for _ in range(5)] == [True] * 3 + [False] * 2
    assert names["cache"].entry(("calls", "bob")).ttl <= 60


def test_locks(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGES / "locks.md"
    world, names = run(page, directory)
    cache = names["cache"]
    assert world.asked == [("monday",)] * 2 + [("tuesday",)]
    assert names["sold"] is True
    assert (cache["stock"], cache["report"]) == (3, "answer 3")
    with cache.lock("report"), pytest.raises(shale.LockTimeoutError):
        cache.lock("report", timeout=0).__enter__()
    del cache["report"]
    with cache.lease("report"):
        run(page, directory, "cache.lease(", cache=cache)
    assert "another process is loading it" in capsys.readouterr().out


def test_values(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, names = run(PAGES / "values.md", directory)
    assert names["head"] == bytes(16)
    assert names["whole"].nbytes == names["size"] == 1_500_000
    assert capsys.readouterr().out == "[7] Ada\n"
    assert list(names["cache"]) == ["video"]


def test_events(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        run(PAGES / "events.md", directory)
    told = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    assert told == [["miss", "front", "absent"], ["loaded", "front", "None"]]


def test_async(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world, _ = run(PAGES / "async.md", directory)
    assert [each[0] for each in world.asked] == ["page"]
    first, *keys = capsys.readouterr().out.splitlines()
    assert (first, sorted(keys)) == ("answer 1 value", ["k", "page"])


def test_migrating_from_diskcache(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = MIGRATING / "diskcache.md"
    # Those on Django and disk-cached are in Tests/Adapters/python.
    assert len(snippets(page)) == 5
    world, names = run(page, directory, "with diskcache", "FanoutCache(", "must_exist")
    assert capsys.readouterr().out == "{'any': ['value']}\n"
    assert [names["report"]("monday") for _ in range(2)] == ["answer 1"] * 2
    assert world.asked == [("monday",)]
    assert list(names["fanout"].deque("jobs")) == ["job"]
    assert dict(names["fanout"].index("names")) == {"key": 1}
    assert (len(names["jobs"]), len(names["names"])) == (0, 0)
