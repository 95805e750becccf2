"""A namespace is a separate cache within a cache."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import key_shape, keys
from support import SMALL, Clock
from test_values import Scrambling

import shale


@pytest.fixture
def users(aging: shale.Cache) -> Iterator[shale.Namespace]:
    """With other entries in the cache, which it never changes."""
    others = [aging, aging.namespace("user"), aging.namespace("users2")]
    for other in others:
        other["k"] = "another's"
    aging[("users",)] = aging[("users", 1, 2)] = aging[(b"users", 1)] = "another's"
    yield aging.namespace("users")
    for other in others:
        assert other["k"] == "another's"
    assert aging[("users",)] == aging[("users", 1, 2)] == aging[(b"users", 1)] == "another's"


def test_it_is_a_cache(users: shale.Namespace, aging: shale.Cache, clock: Clock) -> None:
    assert isinstance(users, shale.Cache)
    assert len(users) == 0
    assert not users
    assert users.get("k") is None
    assert "k" not in users
    users["k"] = b"bytes"
    users["text"] = "text"
    assert (users["k"], users["text"]) == (b"bytes", "text")
    assert aging[("users", "k")] == b"bytes"
    assert users.set("k", 1, if_present=True)
    assert not users.set("none", 1, if_present=True)
    entry = users.entry("k")
    assert entry is not None
    assert users.set("k", 2, if_version=entry.version)
    assert not users.remove("k", if_version=entry.version)
    assert not users.add("k", 3)
    assert users.add("added", 3)
    users.set_many([(1, "one"), (("a", 2), "two")])
    assert users.get_many([1, ("a", 2), "none"]) == {1: "one", ("a", 2): "two"}
    assert users.incr("n") == 1
    assert users.update("n", lambda old: old + 1) == 2
    assert users.touch("n", 10)
    assert users.expire("text")
    assert users.get_or_load("loaded", lambda: "loaded") == "loaded"
    with users.lock("k", timeout=0), aging.lock("k", timeout=0):
        assert not users.lock("k", timeout=0).acquire()
    everything = {
        "k": 2, "added": 3, 1: "one", ("a", 2): "two", "n": 2, "loaded": "loaded"
    }  # fmt: skip
    assert dict(users.items()) == everything
    assert set(users) == set(users.keys()) == set(everything)
    assert len(users) == len(everything)
    assert users
    assert users.pop("k") == 2
    del users["added"]
    with pytest.raises(KeyError):
        users["added"]
    assert users.remove_many([1, ("a", 2), "none"]) == 2
    clock.advance(10)
    assert list(users) == ["loaded"]


@given(st.lists(keys, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_key_is_one(cache: shale.Cache, wanted: list[Any]) -> None:
    part = cache.namespace("part")
    cache.clear()
    for key in wanted:
        part[key] = b"v"
        assert part[key] == b"v"
    assert {key_shape(key) for key in part} == {key_shape(key) for key in wanted}


@pytest.mark.parametrize("listening", [False, True])
def test_bad_keys(users: shale.Namespace, listening: bool) -> None:
    if listening:
        users.on("hit", lambda _event: None)
    bad: Any = True
    for call in (
        users.get,
        users.remove,
        users.pop,
        users.entry,
        users.touch,
        users.incr,
        users.decr,
    ):
        with pytest.raises(TypeError, match="a key is"):
            call(bad)
    for many in (users.get_many, users.remove_many):
        with pytest.raises(TypeError, match="a key is"):
            many([bad])
        with pytest.raises(TypeError, match="list of keys"):
            many("ab")


def test_clear(users: shale.Namespace, aging: shale.Cache) -> None:
    def fill() -> None:
        users["set"] = b"1"
        users["set too"] = "1"
        users.set("pinned", 1, pinned=True, tag="t")
        users.add("added", 1, max_age=5)
        users.set_many({"many": 1, "more": "2"})
        users.incr("counted")
        users.update("updated", lambda _old: 1)
        users.get_or_load("loaded", lambda: 1)
        users.get_or_load("said", lambda: shale.Loaded(1, tags=["u"]))
        users.get_or_load("missing", shale.Missing)
        aging.namespace("users")["by another object"] = 1

    fill()
    assert len(users) == 11
    users.clear()
    assert list(users) == []
    assert aging.get(("users", "missing")) is None
    assert users.get_or_load("missing", lambda: "now") == "now"
    fill()
    assert len(users) == 12


def test_a_load_under_way_stores_nothing_after_a_clear(users: shale.Namespace) -> None:
    def load() -> int:
        users.clear()
        return 1

    assert users.get_or_load("k", load) == 1
    assert "k" not in users


def test_tags(users: shale.Namespace, aging: shale.Cache) -> None:
    both = aging.namespace("users", tag="all", tags=["more"])
    users.set("own", 1, tag="t")
    both.set("both", 2, tags=[str(number) for number in range(5)])
    both["plain"] = 3
    assert both.get_or_load("loaded", lambda: 4, tag="t") == 4
    assert both.incr("n") == 1
    with pytest.raises(shale.InvalidError, match="tags"):
        both.set("k", 1, tags=[str(number) for number in range(6)])
    aging.invalidate("t")
    assert set(users) == {"both", "plain", "n"}
    users.invalidate("4")
    assert set(users) == {"plain", "n"}
    aging.invalidate("more")
    assert list(users) == []


def test_defaults(aging: shale.Cache, clock: Clock) -> None:
    short = aging.namespace("short", max_age=timedelta(seconds=10), stale=5)

    def expires(key: shale.Key) -> float:
        entry = short.entry(key, peek=True)
        assert entry is not None
        return entry.expires - clock()

    short["set"] = 1
    short["bytes"] = b"1"
    short.add("added", 1)
    short.set_many({"many": 1})
    short.incr("counted")
    short.set("tagged", 1, tag="t")
    short.update("updated", lambda _old: 1)
    short.get_or_load("loaded", lambda: 1)
    short.set("touched", 1, max_age=1)
    assert expires("touched") == 1
    short.touch("touched")
    assert len(short) == 9
    assert {expires(key) for key in short} == {10}
    short.set("never", 1, max_age=shale.NEVER)
    short.set("longer", 1, max_age=20, stale=0)
    assert (expires("never"), expires("longer")) == (shale.NEVER, 20)
    clock.advance(10)
    assert set(short) == {"never", "longer"}
    assert short.get("set", stale=True) == short.get("loaded", stale=True) == 1
    assert short.entry_or_load("loaded", lambda _old: shale.NotModified()).source == "renewed"
    assert expires("loaded") == 10
    clock.advance(5)
    assert short.get("set", stale=True) is None
    assert aging.namespace("short").get("never") == 1


def test_memoize(users: shale.Namespace) -> None:
    calls: list[int] = []

    @users.memoize(name="f")
    def function(number: int) -> int:
        calls.append(number)
        return number

    assert function(1) == function(1) == 1
    assert list(users) == [function.cache_key(1)]
    users.clear()
    assert function(1) == 1
    assert function.invalidate(1)
    assert calls == [1, 1]


def test_loads_of_two_namespaces_do_not_meet(users: shale.Namespace, aging: shale.Cache) -> None:
    other = aging.namespace("other")
    assert users.get_or_load("k", lambda: other.get_or_load("k", lambda: 1)) == 1
    with pytest.raises(shale.DeadlockError):
        users.get_or_load("d", lambda: aging.namespace("users").get_or_load("d", lambda: 1))


def test_listeners(users: shale.Namespace, aging: shale.Cache) -> None:
    heard: list[Any] = []
    whole: list[Any] = []
    names: list[Any] = ["hit", "miss", "set", "remove", "clear"]
    for name in names:
        users.on(name, lambda event: heard.append((event.name, event.key)))
        aging.on(name, lambda event: whole.append((event.name, event.key)))
    users["k"] = 1
    assert users.get("k") == users["k"] == 1
    assert users.get_many(["k", "none"]) == {"k": 1}
    assert users.pop("k") == 1
    users.clear()
    assert heard == [
        ("set", "k"), ("hit", "k"), ("hit", "k"), ("hit", "k"), ("miss", "none"), ("hit", "k"),
        ("remove", "k"), ("clear", None),
    ]  # fmt: skip
    assert whole == []


def test_it_is_open_as_long_as_its_cache(directory: Path) -> None:
    cache = shale.Cache(directory, capacity=SMALL)
    with cache.namespace("part") as part:
        part["k"] = 1
    assert part["k"] == 1
    assert not cache.closed
    assert (part.cache, part.name, part.directory) == (cache, "part", str(directory))
    assert repr(part) == f"<shale.Namespace 'part' of <shale.Cache {directory}>>"
    copy = pickle.loads(pickle.dumps(cache.namespace("part", max_age=5, tag="t")))
    assert copy["k"] == 1
    copy["k"] = 2
    entry = part.entry("k")
    assert entry is not None
    assert entry.ttl <= 5
    cache.invalidate("t")
    assert "k" not in part
    copy.cache.close()
    cache.close()
    assert part.closed
    for call in (lambda: part["k"], part.clear, lambda: list(part)):
        with pytest.raises(shale.InvalidError, match="closed"):
            call()


def test_what_is_no_namespace(cache: shale.Cache) -> None:
    odd: Any = cache
    for name in (5, b"users", None):
        with pytest.raises(TypeError, match="str"):
            odd.namespace(name)
    with pytest.raises(shale.InvalidError, match="empty"):
        cache.namespace("")
    with pytest.raises(shale.InvalidError, match="negative"):
        cache.namespace("n", max_age=-1)
    with pytest.raises(TypeError, match="unexpected keyword"):
        odd.namespace("n", pinned=True)
    with pytest.raises(shale.InvalidError, match="no namespaces"):
        cache.namespace("n").namespace("m")


def test_a_serializer_that_is_given_everything(directory: Path) -> None:
    with shale.Cache(
        directory, capacity=SMALL, serializer=Scrambling(), serialize_all=True, compression="none"
    ) as cache:
        part = cache.namespace("part")
        part["k"] = b"secret"
        assert part["k"] == b"secret"
        cache[("part", "k")] = b"secret too"
    assert b"secret" not in (directory / "shale.data").read_bytes()


def test_coroutines(cache: shale.Cache) -> None:
    async def load() -> int:
        return 1

    async def main() -> None:
        part = shale.AsyncCache(cache).namespace("part", max_age=60)
        await part.set("k", 1)
        assert await part.get_or_load("loaded", load) == 1
        assert sorted([key async for key in part]) == ["k", "loaded"]
        assert {entry.ttl <= 60 for key in ("k", "loaded") if (entry := await part.entry(key))}
        await part.clear()
        assert [key async for key in part] == []

    asyncio.run(main())
    assert len(cache) == 0
