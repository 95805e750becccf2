"""The answers of a loader: `Loaded`, `Missing`, `NotModified`; and the result for its caller."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loaders import PATIENCE, Loader, fail, in_thread, never
from support import SMALL, Clock

import shale
from shale import LoadResult
from shale._data.values import (
    MARKER,
    MISSING,
    STR,
    WITH_META,
    Codec,
    Unreadable,
    join_meta,
    split_meta,
)
from shale._loading.policy import Policy


def expires(cache: shale.Cache, key: Any = "k") -> float:
    entry = cache.entry(key, stale=True)
    assert entry is not None
    return entry.expires


# The age that a loader decides


def test_a_loader_decides_the_age(aging: shale.Cache, clock: Clock) -> None:
    assert aging.get_or_load("k", lambda: shale.Loaded("v", max_age=7), max_age=60) == "v"
    assert expires(aging) == clock() + 7
    assert aging.get("k") == "v"
    assert aging.get_or_load("other", lambda: shale.Loaded("v"), max_age=60) == "v"
    assert expires(aging, "other") == clock() + 60


def test_a_loader_adds_tags(cache: shale.Cache) -> None:
    for tag in ("a", "b", "c"):
        cache.get_or_load("k", lambda: shale.Loaded(1, tags=["b", "c"]), tag="a")
        cache.invalidate(tag)
        assert "k" not in cache


@pytest.mark.parametrize("value", [b"bytes", "text", 5, None, (1, b"x"), {"a": [1]}])
@pytest.mark.parametrize("meta", [b'"etag"', b"\xffP1s", b"\xffP1-", b"\xff" * 300])
def test_a_loaders_meta(cache: shale.Cache, value: Any, meta: bytes) -> None:
    assert cache.get_or_load("k", lambda: shale.Loaded(value, meta=meta)) == value
    found = cache.entry("k")
    assert found is not None
    assert (found.value, found.meta) == (value, meta)
    assert type(found.value) is type(value)
    assert "k" in cache
    assert list(cache.items()) == [("k", value)]


def test_the_meta_of_bytes_is_as_c_would_store_it(cache: shale.Cache) -> None:
    assert join_meta(b"", b"etag") == b"etag"


def test_a_meta_beside_a_value_of_another_serializer_is_a_miss(directory: Path) -> None:
    pickles = shale.PickleSerializer()
    with shale.Cache(directory, capacity=SMALL, serializer=pickles) as pickling:
        pickling.get_or_load("k", lambda: shale.Loaded(1j, meta=b"etag"))
        assert pickling["k"] == 1j
    with shale.Cache(directory) as cache:
        assert cache.get("k") is None
        assert "k" not in cache


@given(st.sampled_from([b"", MARKER + b"s", MARKER + b"zname", WITH_META]), st.binary())
def test_metas_are_told_apart(meta: bytes, own: bytes) -> None:
    joined = join_meta(meta, own)
    readable, shown = split_meta(joined)
    if not own:
        assert joined == meta
    elif meta.startswith(WITH_META):
        assert readable == MARKER
    elif not meta and not own.startswith(MARKER):
        assert (joined, shown) == (own, own)
    else:
        assert (readable, shown) == (meta, own)


@pytest.mark.parametrize(
    "meta",
    [
        WITH_META,
        WITH_META + b"\x05" + b"four",
        WITH_META + b"\x80",
        join_meta(MISSING, b"etag"),
        join_meta(join_meta(STR, b"one"), b"another"),
        functools.reduce(join_meta, [b"etag"] * 1_000, STR),
    ],
)
def test_a_meta_that_nobody_stores_cannot_be_read(meta: bytes) -> None:
    codec = Codec(None)
    assert not codec.knows(meta)
    with pytest.raises(Unreadable):
        codec.decode(meta, b"")
    assert codec.undecodable == 1


@given(st.binary(max_size=12))
def test_no_meta_is_too_strange_to_be_read(cut: bytes) -> None:
    codec = Codec(None)
    for meta in (WITH_META + cut, WITH_META + bytes([5]) + WITH_META + cut):
        try:
            codec.decode(meta, b"")
        except Unreadable:
            continue
        assert codec.knows(meta)


# Keys that are known to be missing


def test_a_loader_that_finds_nothing_is_not_asked_again(aging: shale.Cache, clock: Clock) -> None:
    def nothing() -> shale.Missing:
        return shale.Missing()

    options: Any = {"max_age": 60, "missing_age": 5}
    assert aging.get_or_load("k", nothing, **options) is None
    assert aging.get_or_load("k", never, **options) is None
    assert aging.get_or_load("k", never, default="none", **options) == "none"
    assert aging.entry_or_load("k", never, **options) == LoadResult(None, "cache", missing=True)
    clock.advance(5)
    load = Loader()
    assert aging.get_or_load("k", load, **options) == 1
    assert expires(aging) == clock() + 60


@pytest.mark.parametrize(
    ("answer", "options", "age"),
    [
        (shale.Missing(), {"max_age": 60}, 60),
        (shale.Missing(), {"max_age": 60, "missing_age": None}, 60),
        (shale.Missing(), {"max_age": 60, "missing_age": 5}, 5),
        (shale.Missing(2), {"max_age": 60, "missing_age": 5}, 2),
    ],
)
def test_its_age(
    aging: shale.Cache, clock: Clock, answer: shale.Missing, options: Any, age: float
) -> None:
    aging.get_or_load("k", lambda: answer, **options)
    clock.advance(age - 0.001)
    assert aging.get_or_load("k", never, **options) is None
    clock.advance(0.001)
    assert aging.get_or_load("k", lambda: 1, **options) == 1


def test_to_all_others_it_is_a_miss(cache: shale.Cache) -> None:
    cache.get_or_load("k", lambda: shale.Missing(tags=["t"]))
    cache["there"] = 1
    assert cache.get("k", "none") == "none"
    assert cache.get("k", "none", stale=True) == "none"
    assert cache.entry("k") is None
    assert "k" not in cache
    assert cache.get_many(["k", "there"]) == {"there": 1}
    assert list(cache) == ["there"]
    assert list(cache.items()) == [("there", 1)]
    assert cache.pop("k", "none") == "none"
    with pytest.raises(KeyError):
        cache["k"]


def test_a_set_ends_it(cache: shale.Cache) -> None:
    cache.get_or_load("k", lambda: shale.Missing())
    cache["k"] = 1
    assert cache.get_or_load("k", never) == 1


def test_an_add_ends_it(cache: shale.Cache) -> None:
    cache.get_or_load("k", lambda: shale.Missing())
    assert cache.add("k", 1, max_age=100)
    assert not cache.add("k", 2)
    assert cache["k"] == 1


def test_a_counter_starts_anew_where_it_is(cache: shale.Cache) -> None:
    cache.get_or_load("k", lambda: shale.Missing())
    assert cache.incr("k", 2, initial=5) == 7
    assert cache["k"] == 7


def test_a_removal_or_its_tag_ends_it(cache: shale.Cache) -> None:
    cache.get_or_load("k", lambda: shale.Missing(tags=["b"]), tag="a")
    assert cache.remove("k")
    for tag in ("a", "b"):
        cache.get_or_load("k", lambda: shale.Missing(tags=["b"]), tag="a")
        cache.invalidate(tag)
        assert cache.get_or_load("k", lambda: 1) == 1
        cache.remove("k")


def test_memoized_functions_and_coroutines_may_find_nothing(cache: shale.Cache) -> None:
    calls: list[int] = []

    @cache.memoize(name="f")
    def f(n: int) -> Any:
        calls.append(n)
        return shale.Missing()

    async def nothing() -> shale.Missing:
        return shale.Missing()

    assert (f(1), f(1), calls) == (None, None, [1])
    coroutines = shale.AsyncCache(cache)
    assert asyncio.run(coroutines.get_or_load("k", nothing, default=0)) == 0
    assert asyncio.run(coroutines.get_or_load("k", never, default=0)) == 0


# Entries that were not modified


def test_a_loader_is_given_the_old_entry(aging: shale.Cache, clock: Clock) -> None:
    seen: list[Any] = []

    def load(previous: shale.Entry | None) -> shale.Loaded[str]:
        seen.append(previous)
        return shale.Loaded(f"v{len(seen)}", meta=b"etag%d" % len(seen))

    options: Any = {"max_age": 10, "stale": 1000}
    assert aging.entry_or_load("k", load, **options) == LoadResult("v1", "loaded")
    stored = aging.entry("k")
    clock.advance(10)
    assert aging.entry_or_load("k", load, **options) == LoadResult("v2", "loaded")
    assert stored is not None
    assert seen[0] is None
    assert seen[1].value == "v1"
    assert seen[1].meta == b"etag1"
    assert seen[1].stale
    assert (seen[1].version, seen[1].expires) == (stored.version, stored.expires)


@pytest.mark.parametrize("age", [None, 3])
@pytest.mark.parametrize("limits", [{}, {"timeout": 1000}])
def test_not_modified_gives_the_old_entry_a_new_age(
    aging: shale.Cache, clock: Clock, age: float | None, limits: Any
) -> None:
    options: Any = {"max_age": 10, "stale": 1000, **limits}
    aging.entry_or_load("k", lambda _: shale.Loaded("v", meta=b"etag"), **options)
    before = aging.entry("k")
    clock.advance(500)
    found = aging.entry_or_load("k", lambda _: shale.NotModified(age), **options)
    assert found == LoadResult("v", "renewed")
    after = aging.entry("k")
    assert before is not None
    assert after is not None
    assert after.expires == clock() + (age or 10)
    assert (after.value, after.meta, after.version) == ("v", b"etag", before.version)


def test_not_modified_for_coroutines(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", "v", max_age=10, stale=1000)
    clock.advance(10)

    async def load(previous: shale.Entry | None) -> shale.NotModified:
        assert previous is not None
        assert previous.value == "v"
        return shale.NotModified()

    loading = shale.AsyncCache(aging).entry_or_load("k", load, max_age=10)
    assert asyncio.run(loading) == LoadResult("v", "renewed")
    assert aging["k"] == "v"


@pytest.mark.parametrize(
    "change", ["remove", "invalidate", "expire", "expire the tag", "clear", "evict", "set", "incr"]
)
def test_an_old_entry_that_was_changed_meanwhile_stays_so(
    aging: shale.Cache, clock: Clock, change: str
) -> None:
    options: Any = {"max_age": 10, "stale": 1000}
    # The first loader gave the tag; the caller of the second load does not know it.
    aging.entry_or_load("k", lambda _: shale.Loaded(7, meta=b"etag", tags=["tag"]), **options)
    clock.advance(10)

    changes: dict[str, Callable[[], object]] = {
        "remove": lambda: aging.remove("k"),
        "invalidate": lambda: aging.invalidate("tag"),
        "expire": lambda: aging.expire("k"),
        "expire the tag": lambda: aging.invalidate("tag", expire=True),
        "clear": aging.clear,
        "evict": lambda: aging.evict(1),
        "set": lambda: aging.set("k", "new", max_age=1),
        "incr": lambda: aging.incr("k", 35, max_age=1),
    }

    def load(_previous: Any) -> shale.NotModified:
        changes[change]()
        return shale.NotModified()

    assert aging.entry_or_load("k", load, **options) == LoadResult(7, "renewed")
    entry = aging.entry("k", stale=True)
    if change in ("set", "incr"):
        assert entry is not None
        assert entry.value == ("new" if change == "set" else 35)
        assert entry.expires == clock() + 1
    else:
        assert aging.get("k") is None
        assert (entry is not None and entry.stale) == change.startswith("expire")
        assert aging.get_or_load("k", lambda: "new") == "new"


@pytest.mark.parametrize("missing", [False, True])
def test_nothing_is_not_modified(aging: shale.Cache, clock: Clock, missing: bool) -> None:
    if missing:
        aging.get_or_load("k", lambda: shale.Missing(), max_age=10, stale=1000)
        clock.advance(10)
    with pytest.raises(shale.InvalidError, match="'k'"):
        aging.entry_or_load("k", lambda _: shale.NotModified())
    assert aging.get_or_load("k", lambda: 1) == 1


# The result for the caller


def test_where_it_was_found(aging: shale.Cache, clock: Clock) -> None:
    options: Any = {"max_age": 10, "stale": 1000}
    held = Loader(held=True)
    first = in_thread(lambda: aging.entry_or_load("k", lambda _: held(), **options))
    assert held.begun.wait(PATIENCE)
    second = in_thread(lambda: aging.entry_or_load("k", never, **options))
    while aging.stats().misses < 2:
        pass
    held.go.set()
    assert first() == LoadResult(1, "loaded")
    assert second() == LoadResult(1, "waited")
    assert aging.entry_or_load("k", never, **options) == LoadResult(1, "cache")
    clock.advance(10)
    held = Loader(held=True)
    third = in_thread(lambda: aging.entry_or_load("k", lambda _: held(), **options))
    assert held.begun.wait(PATIENCE)
    assert aging.entry_or_load("k", never, **options) == LoadResult(1, "cache", stale=True)
    held.go.set()
    assert third() == LoadResult(1, "loaded")


def test_a_load_ahead_that_fails_is_told(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", "good", max_age=1000)
    clock.advance(999.999)
    found = LoadResult("good", "cache")
    while found.error is None:
        found = aging.entry_or_load("k", lambda _: fail(), refresh_ahead=1000)
    assert found[:3] == ("good", "cache", False)


# Jitter


@given(st.floats(0.001, 1e6), st.floats(0, 1e6), st.booleans())
def test_jitter_is_taken_off_the_age(age: float, jitter: float, default: bool) -> None:
    policy = Policy(max_age=age if default else 1, jitter=jitter)
    shortened = policy.age(age)
    assert shortened is not None
    # Times are exact to the millisecond.
    assert max(age / 2, age - jitter - 0.001) <= shortened <= age


def test_jitter_differs(aging: shale.Cache, clock: Clock) -> None:
    for key in range(50):
        aging.get_or_load(key, lambda: 1, max_age=1000, jitter=100)
    ends = {expires(aging, key) - clock() for key in range(50)}
    assert all(900 <= end <= 1000 for end in ends)
    assert len(ends) > 10


@pytest.mark.parametrize("age", [shale.NEVER, 0, None])
def test_ages_without_a_length_have_no_jitter(age: float | None) -> None:
    assert Policy(max_age=1, jitter=100).age(age) == age


@pytest.mark.parametrize("answer", [1, shale.Loaded(1, max_age=1000), shale.Missing(1000)])
def test_each_age_has_jitter(aging: shale.Cache, clock: Clock, answer: Any) -> None:
    options: Any = {"max_age": 1000, "jitter": 1000}
    for key in range(50):
        aging.get_or_load(key, lambda: answer, **options)
    clock.advance(999)
    loads: list[None] = []
    for key in range(50):
        aging.get_or_load(key, lambda: loads.append(None), **options)
    # Each lasts 500 to 1000 seconds: that all of them last 999 is practically impossible.
    assert loads
