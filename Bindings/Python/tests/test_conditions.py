"""Conditions of sets and removals, reads with ``peek``, and the meta of values."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import SMALL, Clock
from test_threads import run_threads

import shale


def version(cache: shale.Cache, key: shale.Key = "k") -> int:
    entry = cache.entry(key, stale=True, peek=True)
    assert entry is not None
    return entry.version


def test_set_if_version(aging: shale.Cache, clock: Clock) -> None:
    assert aging.set("k", 1, max_age=10, stale=10) is True
    first = version(aging)
    assert aging.set("k", 2, if_version=first, max_age=10, stale=10)
    assert not aging.set("k", 3, if_version=first)
    assert aging["k"] == 2
    clock.advance(10)
    # A stale entry keeps its version, a dead one has none.
    second = version(aging)
    assert aging.set("k", 4, if_version=second, max_age=10)
    third = version(aging)
    clock.advance(10)
    assert not aging.set("k", 5, if_version=third)
    assert "k" not in aging


def test_set_if_present(aging: shale.Cache, clock: Clock) -> None:
    assert not aging.set("k", 1, if_present=True)
    assert "k" not in aging
    aging.set("k", 1, max_age=10, stale=100)
    assert aging.set("k", 2, if_present=True, max_age=10, stale=100, tag="t")
    assert aging["k"] == 2
    clock.advance(10)
    assert not aging.set("k", 3, if_present=True)
    assert aging.get("k", stale=True) == 2
    aging.invalidate("t")
    assert aging.get("k", stale=True) is None
    # For calls that do not load there is no value.
    aging.get_or_load("missing", shale.Missing)
    assert not aging.set("missing", 1, if_present=True)
    assert "missing" not in aging


def test_if_present_is_atomic(cache: shale.Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its read and its set, the key changes once, and is then removed."""
    look = shale._store.lookups.version
    changes = [lambda: cache.set("k", "between"), lambda: cache.remove("k")]

    def then_changed(*arguments: Any) -> Any:
        found = look(*arguments)
        if changes:
            changes.pop(0)()
        return found

    monkeypatch.setattr(shale._store.lookups, "version", then_changed)
    cache["k"] = "old"
    assert not cache.set("k", "new", if_present=True)
    assert "k" not in cache


@pytest.mark.parametrize("before", ["absent", "stale"])
@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize(
    "step", [(shale._store.lookups, "remove_missed"), (shale._native.library, "remove")]
)
def test_a_pop_that_misses_removes_no_newer_value(
    aging: shale.Cache,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    listening: bool,
    step: tuple[Any, str],
) -> None:
    """Before a step of its removal, the key gets a value."""
    function = getattr(*step)
    values = ["newer"]

    def set_before(*arguments: Any) -> Any:
        if values:
            aging["k"] = values.pop()
        return function(*arguments)

    monkeypatch.setattr(*step, set_before)
    if before == "stale":
        aging.set("k", "stale", max_age=1, stale=10)
        clock.advance(1)
    if listening:
        aging.on("remove", lambda _event: None)
    assert aging.pop("k") == "newer"
    assert aging.pop("k") is None


def test_remove_if_version(cache: shale.Cache) -> None:
    cache["k"] = 1
    first = version(cache)
    cache["k"] = 2
    assert not cache.remove("k", if_version=first)
    assert cache["k"] == 2
    assert cache.remove("k", if_version=version(cache))
    assert not cache.remove("k", if_version=first)


def test_what_is_no_condition(cache: shale.Cache) -> None:
    cache["k"] = 1
    for wrong in (0, -1, 2**64):
        with pytest.raises(shale.InvalidError, match="if_version"):
            cache.set("k", 2, if_version=wrong)
        with pytest.raises(shale.InvalidError, match="if_version"):
            cache.remove("k", if_version=wrong)
    bad: Any = 1.0
    with pytest.raises(TypeError, match="if_version"):
        cache.set("k", 2, if_version=bad)
    with pytest.raises(shale.InvalidError, match="give only one"):
        cache.set("k", 2, if_version=version(cache), if_present=True)
    for condition in ({"if_present": True}, {"if_version": 1}):
        options: Any = condition
        with pytest.raises(TypeError, match="a value is"):
            cache.set("none", object(), **options)
    assert cache["k"] == 1


def test_options_that_are_none(cache: shale.Cache) -> None:
    odd: Any = cache
    calls: list[Callable[[], object]] = [
        lambda: odd.set("k", 1, max_ages=5),
        lambda: odd.add("k", 1, if_version=5),
        lambda: odd.set_many({"k": 1}, if_present=True),
        lambda: odd.update("k", lambda _old: 1, ages=5),
        lambda: odd.incr("k", pinned=True),
        lambda: odd.incr("k", meta=b"etag"),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            call()
    assert list(cache) == []


def test_of_threads_that_compare_and_set_one_wins(cache: shale.Cache) -> None:
    cache["n"] = 0
    rounds = 200

    def count(_thread: int) -> None:
        for _ in range(rounds):
            while True:
                entry = cache.entry("n", peek=True)
                assert entry is not None
                if cache.set("n", entry.value + 1, if_version=entry.version):
                    break

    run_threads(4, count)
    assert cache["n"] == 4 * rounds


def test_update(aging: shale.Cache, clock: Clock) -> None:
    assert aging.update("k", lambda old: [*old, 1], []) == [1]
    assert aging.update("k", lambda old: [*old, 2], [], max_age=10, stale=10, tag="t") == [1, 2]
    assert aging["k"] == [1, 2]
    clock.advance(10)
    # The function does not get a stale value.
    assert aging.update("k", lambda old: old, "default") == "default"
    aging.set("k", 1, tag="t")
    aging.update("k", lambda old: old + 1, tag="u")
    aging.invalidate("t")
    assert aging["k"] == 2
    aging.get_or_load("missing", shale.Missing)
    assert aging.update("missing", lambda old: (old, 1)) == (None, 1)
    assert aging["missing"] == (None, 1)


def test_update_of_what_cannot_be_read(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL, serializer=shale.PickleSerializer()) as cache:
        cache["k"] = 1j
    with shale.Cache(directory) as cache:
        assert cache.update("k", lambda old: old + 1, 0) == 1
        assert cache["k"] == 1


def test_what_an_update_raises_changes_nothing(cache: shale.Cache) -> None:
    cache["k"] = [1]
    with pytest.raises(ZeroDivisionError):
        cache.update("k", lambda old: old[0] / 0)
    with pytest.raises(TypeError, match="a value is"):
        cache.update("k", lambda _old: object())
    assert cache["k"] == [1]


def test_no_update_is_lost(cache: shale.Cache) -> None:
    def count(_thread: int) -> None:
        for number in range(200):
            cache.update("n", lambda old: old + 1, 0)
            if number % 50 == 0:
                cache.update("removed", lambda _old: 1)
                cache.remove("removed")

    run_threads(4, count)
    assert cache["n"] == 800


def test_an_update_between_sees_the_change(cache: shale.Cache) -> None:
    """For every change of the key during the call of the function."""
    for before in (None, 1):
        for change in (lambda: cache.set("k", 10), lambda: cache.remove("k")):
            cache.remove("k")
            if before is not None:
                cache["k"] = before
            seen: list[Any] = []

            def function(old: Any, seen: list[Any] = seen, change: Any = change) -> Any:
                seen.append(old)
                if len(seen) == 1:
                    change()
                return (old, "new")

            now = cache.update("k", function)
            assert cache["k"] == now == (seen[-1], "new")
            assert seen[-1] in (10, None)


def test_listeners_hear_of_updates(cache: shale.Cache) -> None:
    heard: list[object] = []
    cache.on("set", lambda event: heard.append(event.key))
    cache.update("k", lambda _old: 1)
    assert cache.incr("none", create=False) is None
    assert heard == ["k"]


def test_peeking_leaves_no_trace(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL, max_entries=2, shards=1) as cache:
        cache["a"], cache["b"] = 1, b"2"
        before = cache.stats()
        assert cache.get("a", peek=True) == 1
        assert cache.get("none", 5, peek=True) == 5
        assert cache.get_many(["a", "none"], peek=True) == {"a": 1}
        entry = cache.entry("a", peek=True)
        assert entry is not None
        assert entry.value == 1
        assert cache.stats() == before
        # "a" is the least recently used all the same.
        cache["c"] = 3
        assert set(cache) == {"b", "c"}


def test_peeking_at_what_is_stale(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", 1, max_age=1, stale=10)
    clock.advance(1)
    assert aging.get("k", peek=True) is None
    assert aging.get("k", peek=True, stale=True) == 1
    assert aging.get_many(["k"], peek=True, stale=True) == {"k": 1}


@pytest.mark.parametrize("value", [b"bytes", "text", 5, [1, (2,)], None])
def test_meta_of_ones_own(cache: shale.Cache, value: Any) -> None:
    cache.set("set", value, meta=b"etag")
    cache.add("add", value, meta=b"etag")
    cache.set_many({"many": value}, meta=b"etag")
    for key in ("set", "add", "many"):
        entry = cache.entry(key)
        assert entry is not None
        assert (entry.value, entry.meta) == (value, b"etag")
        assert cache[key] == value
    cache.set("set", value, if_present=True)
    entry = cache.entry("set")
    assert entry is not None
    assert entry.meta != b"etag"


def test_what_is_no_meta(cache: shale.Cache) -> None:
    wrong: Any = "etag"
    with pytest.raises(TypeError, match="meta is bytes, not str"):
        cache.set("k", 1, meta=wrong)
    with pytest.raises(shale.Error, match=r"65,535"):
        cache.set("k", b"", meta=bytes(65_536))
    assert "k" not in cache


def test_what_is_compressed_already(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL) as cache:
        text = b"abc" * 1000
        cache.set("plain", text, compress=False)
        cache.add("added", text, compress=False)
        cache.set_many({"many": text}, compress=False, pinned=True)
        cache["pressed"] = text
        sizes = {key: entry.stored_size for key in cache if (entry := cache.entry(key))}
        assert sizes.pop("pressed") < 1000
        assert set(sizes.values()) == {len(text)}
        entry = cache.entry("many")
        assert entry is not None
        assert entry.pinned
        assert cache["plain"] == text


def test_large_values_with_conditions(cache: shale.Cache) -> None:
    large = os.urandom(1 << 20)
    cache["k"] = large
    assert cache.set("k", large[::-1], if_version=version(cache))
    assert cache["k"] == large[::-1]


def test_coroutines_have_the_same(directory: Path) -> None:
    async def main() -> None:
        async with await shale.AsyncCache.open(directory, capacity=SMALL) as cache:
            assert not await cache.set("k", 1, if_present=True)
            assert await cache.set("k", 1, meta=b"etag")
            entry = await cache.entry("k", peek=True)
            assert entry is not None
            assert entry.meta == b"etag"
            assert await cache.set("k", 2, if_version=entry.version, compress=False)
            assert not await cache.remove("k", if_version=entry.version)
            assert await cache.get("k", peek=True) == 2
            assert await cache.get_many(["k"], peek=True) == {"k": 2}
            await cache.set_many({"a": 1}, tag="t", pinned=True)
            assert not await cache.add("a", 2, max_age=5)
            assert await cache.update("n", lambda old: old + 1, 0, tag="t") == 1
            assert await cache.incr("n", create=False) == 2
            assert await cache.incr("none", create=False) is None
            assert (await cache.stats()).hits == 0

    asyncio.run(main())
