"""The snippets of the guides run, and do what the text says. Those that need other libraries are in
adapters/test_pages.py and tier/test_page.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import PAGES, run, snippets
from support import REPOSITORY

import shale


def test_all_are_run() -> None:
    counted = {page.stem: len(snippets(page)) for page in PAGES.glob("*.md")}
    assert counted == {
        "async": 2,
        "benchmarks": 0,
        "http-cache": 3,
        "llm-responses": 3,
        "locks": 4,
        "memoize": 4,
        "rate-limit": 2,
        "tier": 4,
        "web-framework": 4,
    }


def test_memoize(directory: Path) -> None:
    world, names = run(PAGES / "memoize.md", directory)
    # Twice for one call each: the second price was forgotten, and not asked for again.
    assert [each[0] for each in world.asked] == ["ACME", "monday"]
    assert names["price"]("ACME") == "answer 3"
    names["cache"].invalidate("prices")
    assert names["price"]("ACME") == "answer 4"
    shop = names["shop"]
    assert shop.stock.cache_key("slate") not in names["cache"]


def test_web_framework(directory: Path) -> None:
    world, names = run(PAGES / "web-framework.md", directory, "front_page")
    names["front_page"]("ada")
    assert world.asked == [("front", "ada")]


def test_llm_responses(directory: Path) -> None:
    world, names = run(PAGES / "llm-responses.md", directory)
    cache, key_of = names["cache"], names["key_of"]
    # What was cut off is not kept.
    assert key_of("small-1", []) not in cache
    assert len(world.asked) == 2
    messages = [{"role": "user", "content": "What is slate?"}]
    for expected in (3, 3):
        names["answer"]("small-1", messages, temperature=0)
        assert len(world.asked) == expected
    assert key_of("small-1", messages) != key_of("small-1", messages, temperature=0)


def test_http_cache_by_hand(directory: Path) -> None:
    world, names = run(PAGES / "http-cache.md", directory, "def load(previous)")
    assert (names["found"].value, names["found"].source) == ("body", "loaded")
    names["cache"].expire("page")
    again = names["cache"].entry_or_load("page", names["load"], stale=86400)
    assert (again.value, again.source) == ("body", "renewed")
    assert world.asked == [("page", None), ("page", b"1")]


def test_rate_limit(directory: Path) -> None:
    _, names = run(PAGES / "rate-limit.md", directory)
    for name in ("allowed", "allowed_exactly"):
        assert [names[name]("bob", limit=3) for _ in range(5)] == [True] * 3 + [False] * 2
    assert names["cache"].entry(("calls", "bob")).ttl <= 60


def test_locks(directory: Path) -> None:
    world, names = run(PAGES / "locks.md", directory)
    assert world.asked == [("monday",)] * 2
    assert names["sold"] is True
    assert names["cache"]["stock"] == 3
    with names["cache"].lock("report"), pytest.raises(shale.LockTimeoutError):
        names["cache"].lock("report", timeout=0).__enter__()


def test_async(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world, _ = run(PAGES / "async.md", directory)
    assert [each[0] for each in world.asked] == ["page", "ACME"]
    assert capsys.readouterr().out == f"answer 1 value\n{['answer 2'] * 10}\n"


def test_coming_from_diskcache(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = REPOSITORY / "Documentation" / "coming-from-diskcache.md"
    assert len(snippets(page)) == 2
    run(page, directory)
    assert capsys.readouterr().out == "{'any': ['value']}\n"
