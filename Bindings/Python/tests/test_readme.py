"""The examples of the README run, and do what it says; so does that of the repository's."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from support import PYTHON_ROOT, REPOSITORY, Clock

import shale


def examples(readme: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", readme.read_text(), re.MULTILINE | re.DOTALL)


EXAMPLES = examples(PYTHON_ROOT / "README.md")


def example(containing: str) -> str:
    (found,) = (each for each in EXAMPLES if containing in each)
    return str(found)


class World:
    """What the examples take for granted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.downloads: list[str] = []
        self.questions: list[tuple[str, str]] = []

    def download(self, page: str) -> str:
        self.downloads.append(page)
        return f"the {page}"

    async def download_async(self, page: str) -> str:
        return self.download(page)

    def ask_the_exchange(self, symbol: str, currency: str) -> float:
        self.questions.append((symbol, currency))
        return 1.5

    def fetch(self, page: str, etag: bytes | None) -> tuple[int, str | None, bytes, float]:
        self.downloads.append(page)
        answer = (304, None) if etag == b"1" else (200, f"the {page}")
        return *answer, b"1", 60

    def run(self, text: str, **names: Any) -> dict[str, Any]:
        names.update(
            __name__="example",
            shale=shale,
            asyncio=asyncio,
            download=self.download,
            download_async=self.download_async,
            fetch=self.fetch,
            ask_the_exchange=self.ask_the_exchange,
        )
        directory = str(self.directory)
        exec(re.sub(r"/var/cache/app|/tmp/shale-example", directory, text), names)
        return names


@pytest.fixture
def world(directory: Path) -> World:
    return World(directory)


def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == 14


def test_the_first_one(world: World) -> None:
    cache = world.run(example("cache.evict(10)"))["cache"]
    assert cache.closed
    assert world.downloads == ["k"]


def test_the_serializer(world: World) -> None:
    with world.run(example("PickleSerializer"))["cache"] as cache:
        cache["k"] = 1j
        assert cache["k"] == 1j


def test_loading(world: World, cache: shale.Cache) -> None:
    for _ in range(2):
        assert world.run(example("page = "), cache=cache)["page"] == "the page"
    assert world.downloads == ["page"]


def test_what_a_loader_says(world: World, aging: shale.Cache, clock: Clock) -> None:
    for source in ("loaded", "cache", "renewed"):
        found = world.run(example("entry_or_load"), cache=aging)["found"]
        assert (found.value, found.source) == ("the page", source)
        if source == "cache":
            clock.advance(60)
    assert world.downloads == ["page"] * 2


def test_events(world: World, cache: shale.Cache, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        world.run(example("cache.on"), cache=cache)
    told = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    assert told == [["miss", "page", "absent"], ["loaded", "page", "None"]]


def test_memoize(world: World, cache: shale.Cache) -> None:
    names = world.run(example("memoize"), cache=cache)
    # Once for both spellings, and once by hand.
    assert world.questions == [("ACME", "EUR")] * 2
    assert list(cache) == []
    names["price"]("ACME")
    assert list(cache) == [("example.price", ("ACME", "EUR"))]


def test_conditions(world: World, cache: shale.Cache, capsys: pytest.CaptureFixture[str]) -> None:
    world.run(example("if_version"), cache=cache)
    assert capsys.readouterr().out == ""
    cache["stock"] = 5
    world.run(example("if_version"), cache=cache)
    assert cache["stock"] == 4
    assert "one less" in capsys.readouterr().out


def test_namespaces(world: World, cache: shale.Cache, capsys: pytest.CaptureFixture[str]) -> None:
    world.run(example("cache.namespace"), cache=cache)
    assert capsys.readouterr().out == "[7] Ada\n"
    assert list(cache) == []


def test_updates(world: World, cache: shale.Cache) -> None:
    for count in (1, 2):
        names = world.run(example("cache.update"), cache=cache)
        assert names["visitors"] == cache["visitors"] == ["Ada"] * count


def test_locks(world: World, cache: shale.Cache, capsys: pytest.CaptureFixture[str]) -> None:
    world.run(example("cache.lock"), cache=cache)
    assert "nobody else" in capsys.readouterr().out
    assert cache.lock("report", timeout=0).acquire()


def test_the_repositorys(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = examples(REPOSITORY / "README.md")
    world.run(example)
    assert capsys.readouterr().out == "{'any': ['JSON-like', 'value']} gone\n"


def test_coroutines(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.run(example("async with"))
    assert sorted(capsys.readouterr().out.split()) == ["k", "page"]
    assert world.downloads == ["page"]


def test_readers(cache: shale.Cache, world: World) -> None:
    names = world.run(example("cache.reader"), cache=cache)
    assert names["head"] == bytes(16)
    assert names["whole"].nbytes == names["size"] == 1_500_000


def test_types(world: World) -> None:
    names = world.run(example("sum(ages.values())"))
    assert names["total"] == 36
    names["ages"].close()


def test_leases(cache: shale.Cache, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    with cache.lease("report"):
        world.run(example("cache.lease("), cache=cache)
    assert "another makes it" in capsys.readouterr().out
    world.run(example("cache.lease("), cache=cache)
    assert (cache["report"], world.downloads) == ("the report", ["report"])
