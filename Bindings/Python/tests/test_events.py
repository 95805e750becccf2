"""The events of a cache, and the counts of its loads."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest
from loaders import PATIENCE, Failure, Loader, fail, in_thread, until, waiting
from support import SMALL, Clock

import shale
from shale import Event
from shale._store import listening
from shale._store.events import NAMES, Listeners

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD


class Heard(list[tuple[Any, ...]]):
    """The events of a cache, as (name, key or tag, reason or source)."""

    def __init__(self, cache: shale.Cache | shale.AsyncCache) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.stops = [cache.on(name, self.hear) for name in NAMES]

    def hear(self, event: Event) -> None:
        self.events.append(event)
        self.append(
            tuple(
                each
                for each in (event.name, event.key, event.tag, event.reason, event.source)
                if each is not None
            )
        )

    def take(self) -> list[tuple[Any, ...]]:
        heard = list(self)
        self.clear()
        return heard

    def stop(self) -> None:
        for each in self.stops:
            each()


def a_load(key: str, *outcome: str) -> list[tuple[Any, ...]]:
    """The events of a load of an absent key."""
    middle = [(name, key) for name in ("load", *outcome, "loaded")]
    return [("miss", key, "absent"), *middle]


def test_calls_are_told(aging: shale.Cache, clock: Clock) -> None:
    heard = Heard(aging)
    aging.set("a", 1, max_age=10, stale=10)
    aging["b"] = 2
    assert aging.add("b", 3) is False
    assert aging.add("c", 3) is True
    aging.set_many({"d": 4, "e": 5}, tag="t")
    assert aging.incr("n") == 1
    assert aging.incr("n") == 2
    assert heard.take() == [("set", key) for key in "abcdenn"]

    assert aging.get("a") == 1
    assert aging["b"] == 2
    assert aging.get_many(["c", "x"]) == {"c": 3}
    entry = aging.entry("d")
    assert entry is not None and entry.value == 4
    assert aging.get("nothing", "default") == "default"
    assert "a" in aging
    assert heard.take() == [
        ("hit", "a", "cache"),
        ("hit", "b", "cache"),
        ("hit", "c", "cache"),
        ("miss", "x", "absent"),
        ("hit", "d", "cache"),
        ("miss", "nothing", "absent"),
    ]

    aging.invalidate("t")
    assert aging.get("d") is None
    clock.advance(10)
    assert aging.get("a") is None
    assert aging.get("a", stale=True) == 1
    with pytest.raises(KeyError):
        aging["a"]
    assert heard.take() == [
        ("invalidate", "t"),
        ("miss", "d", "invalidated"),
        ("miss", "a", "expired"),
        ("stale", "a", "cache"),
        ("miss", "a", "expired"),
    ]

    assert aging.remove("b") is True
    assert aging.remove("b") is False
    assert aging.remove_many(["c", "x", "n"]) == 2
    aging["p"] = "popped"
    assert aging.pop("p") == "popped"
    assert aging.pop("p", 7) == 7
    assert aging.pop("a") is None
    aging.clear()
    assert heard.take() == [
        ("remove", "b"),
        ("remove", "c"),
        ("remove", "n"),
        ("set", "p"),
        ("hit", "p", "cache"),
        ("remove", "p"),
        ("miss", "p", "absent"),
        ("miss", "a", "expired"),
        ("remove", "a"),
        ("clear",),
    ]


def test_an_expiry_is_told(aging: shale.Cache) -> None:
    aging.set("a", 1, stale=10)
    aging.set("b", 2, stale=10, tag="t")
    heard = Heard(aging)
    assert aging.expire("a") is True
    assert aging.expire("nothing") is False
    aging.invalidate("t", expire=True)
    assert aging.get("a") is None
    assert aging.get("b", stale=True) == 2
    aging.invalidate("t", expire=False)
    assert aging.get("b", stale=True) is None
    assert heard == [
        ("expire", "a"),
        ("expire", "t"),
        ("miss", "a", "expired"),
        ("stale", "b", "cache"),
        ("invalidate", "t"),
        ("miss", "b", "invalidated"),
    ]


def shape(signature: inspect.Signature) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in signature.parameters.values()]


@pytest.mark.parametrize("name", [*listening._REPLACED, *listening._WRAPPED])
def test_who_listens_changes_no_signature(cache: shale.Cache, name: str) -> None:
    plain = shape(inspect.signature(getattr(cache, name)))
    cache.on("set", lambda _event: None)
    in_front = getattr(cache, name)
    assert in_front.__func__ is not getattr(shale.Cache, name)
    shown = shape(inspect.signature(in_front))
    # It passes on all options that it does not name.
    named = [each for each in shown if each[1] not in (VAR_POSITIONAL, VAR_KEYWORD)]
    assert named == plain[: len(named)]
    for _, kind, _ in plain[len(named) :]:
        by_name = kind in (KEYWORD_ONLY, VAR_KEYWORD)
        assert (VAR_KEYWORD if by_name else VAR_POSITIONAL) in {each[1] for each in shown}


def test_a_pop_gives_what_it_removes(cache: shale.Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    look = listening._look

    def replaced_after(*arguments: Any, **named: Any) -> Any:
        looked = look(*arguments, **named)
        if looked.value == 1:
            cache["k"] = 2
        return looked

    monkeypatch.setattr(listening, "_look", replaced_after)
    cache["k"] = 1
    heard = Heard(cache)
    assert cache.pop("k") == 2
    assert heard == [("set", "k"), ("hit", "k", "cache"), ("remove", "k")]


def test_a_subclass_keeps_its_methods(directory: Path) -> None:
    class Doubling(shale.Cache):
        def get(self, key: shale.Key, default: Any = None, **options: bool) -> Any:
            found = super().get(key, **options)
            return default if found is None else 2 * found

        def remove(self, key: shale.Key, **options: Any) -> bool:
            return super().remove(("other", key), **options)

    with Doubling(directory, capacity=SMALL) as cache:
        cache["a"] = 1
        cache[("other", "a")] = 2
        heard = Heard(cache)
        assert cache.get("a") == cache["a"] == 2
        assert cache.get("nothing", 7) == 7
        assert cache.get_many(["a"]) == {"a": 1}
        assert cache.remove("a") is True
        assert cache.pop("a") == 1
        assert heard == [
            ("hit", "a", "cache"),
            ("remove", "a"),
            ("hit", "a", "cache"),
            ("remove", "a"),
        ]
        heard.stop()
        assert cache.get("a", 7) == 7


def test_who_peeks_is_not_told_of(cache: shale.Cache) -> None:
    cache.set("a", 1, meta=b"etag")
    heard = Heard(cache)
    for key in ("a", "none"):
        cache.get(key, peek=True)
        cache.entry(key, peek=True)
        cache.get_many([key], peek=True)
    assert heard == []
    assert not cache.set("a", 2, if_version=5)
    assert not cache.set("none", 2, if_present=True)
    assert not cache.remove("a", if_version=5)
    assert heard == []
    assert cache.set("a", 2, if_present=True)
    assert heard == [("set", "a")]


def test_reasons_and_counters_agree(aging: shale.Cache, clock: Clock) -> None:
    heard = Heard(aging)
    aging.set("short", 1, max_age=1)
    aging.set("tagged", 1, tag="t")
    aging.invalidate("t")
    clock.advance(1)
    for key in ("short", "tagged", "absent"):
        aging.get(key)
        aging.entry(key)
        aging.get_many([key])
        aging.get_or_load(key, lambda: 5, max_age=1)
    told = [each[2] for each in heard if each[0] == "miss"]
    stats = aging.stats()
    assert told.count("expired") == stats.misses_expired == 4
    assert told.count("invalidated") == stats.misses_invalidated == 4
    assert told.count("absent") == stats.misses_absent == 4
    assert stats.misses_damaged == 0
    assert stats.misses == 12
    assert stats.leases == stats.own.loads == 3


def test_what_cannot_be_read_is_undecodable(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL, serializer=shale.PickleSerializer()) as writer:
        writer["a"] = 1j
        writer["b"] = 3
    with shale.Cache(directory) as cache:
        assert cache.get("a") is None  # counted, without listeners
        assert cache.entry("a") is None
        assert cache.get_many(["a", "b"]) == {"b": 3}
        assert cache.stats().own.undecodable == 3
        heard = Heard(cache)
        assert cache.get("a") is None
        assert cache.get_or_load("gone", lambda: shale.Missing()) is None
        assert cache.get("gone") is None
        assert cache.pop("a") is None
        assert cache.pop("gone") is None
        assert heard == [
            ("miss", "a", "undecodable"),
            *a_load("gone", "set"),
            ("miss", "gone", "missing"),
            ("miss", "a", "undecodable"),
            ("remove", "a"),
            ("miss", "gone", "missing"),
            ("remove", "gone"),
        ]
        # A key that is known to be missing is no error of the serializer.
        assert cache.stats().own.undecodable == 5


def test_loads_are_told_and_counted(aging: shale.Cache, clock: Clock) -> None:
    heard = Heard(aging)
    assert aging.get_or_load("k", lambda: 1, max_age=10, stale=100) == 1
    assert aging.get_or_load("k", lambda: 2) == 1
    assert heard.take() == [*a_load("k", "set"), ("hit", "k", "cache")]
    clock.advance(10)

    assert aging.get_or_load("k", fail, stale_if_error=True) == 1
    assert heard.take() == [("load", "k"), ("loaded", "k"), ("stale", "k", "cache")]
    failed = heard.events[-2]
    assert isinstance(failed.error, Failure) and failed.seconds is not None
    with pytest.raises(Failure):
        aging.get_or_load("other", fail)
    assert heard.take() == a_load("other")

    def changed_meanwhile() -> int:
        aging.remove("k")
        return 3

    assert aging.get_or_load("k", changed_meanwhile) == 3
    assert heard.take() == [("load", "k"), ("remove", "k"), ("conflict", "k"), ("loaded", "k")]
    own = aging.stats().own
    assert (own.loads, own.failed, own.conflicts, own.waits) == (4, 2, 1, 0)
    assert aging.stats().conflicts == 1


def test_a_load_that_is_left_has_not_failed(cache: shale.Cache) -> None:
    ended = threading.Event()
    cache.on("loaded", lambda _event: ended.set())
    slow = Loader(held=True)
    with pytest.raises(shale.LoadTimeoutError):
        cache.get_or_load("k", slow, timeout=0.01)
    slow.go.set()
    assert ended.wait(PATIENCE)
    own = cache.stats().own
    assert (own.loads, own.failed) == (1, 0)


def test_waiting_is_counted(cache: shale.Cache) -> None:
    waited: list[Event] = []
    cache.on("hit", waited.append)
    slow = Loader(held=True)
    loading = in_thread(lambda: cache.get_or_load("k", slow))
    assert slow.begun.wait(PATIENCE)
    second = in_thread(lambda: cache.get_or_load("k", slow))
    until(lambda: waiting(cache))
    slow.go.set()
    assert (loading(), second()) == (1, 1)
    own = cache.stats().own
    assert (own.loads, own.waits) == (1, 1)
    assert (own.waited > 0) == (own.waits == 1)
    assert len(waited) == 1 and waited[0].source in ("waited", "cache")


def test_coroutines_are_told_of(directory: Path) -> None:
    async def work() -> list[tuple[Any, ...]]:
        async with await shale.AsyncCache.open(directory, capacity=SMALL) as cache:
            heard = Heard(cache)

            async def load() -> int:
                return 1

            await cache.set("a", 1)
            await cache.get("a")
            await cache.get_or_load("b", load)
            await cache.get_or_load("b", load)

            async def changed_meanwhile() -> int:
                await cache.remove("c")
                return 3

            assert await cache.get_or_load("c", changed_meanwhile) == 3
            with pytest.raises(Failure):
                await cache.get_or_load("d", fails)
            await cache.clear()
            stats = await cache.stats()
            assert (stats.own.loads, stats.own.failed, stats.own.conflicts) == (3, 1, 1)
            return heard

    async def fails() -> Any:
        fail()

    assert asyncio.run(work()) == [
        ("set", "a"),
        ("hit", "a", "cache"),
        *a_load("b", "set"),
        ("hit", "b", "cache"),
        *a_load("c", "conflict"),
        *a_load("d"),
        ("clear",),
    ]


def test_a_listener_may_use_the_cache(cache: shale.Cache) -> None:
    told: list[str] = []

    def uses_it(event: Event) -> None:
        told.append(event.name)
        assert cache.get("kept") == "value"
        cache.set("made by", event.name, tag="t")
        assert cache.get_or_load("loaded by", lambda: event.name)
        cache.remove("loaded by")
        cache.invalidate("t")
        assert cache.get("made by") is None

    cache["kept"] = "value"
    for name in NAMES:
        cache.on(name, uses_it)
    cache["a"] = 1
    assert cache.get("a") == 1
    assert cache.get_or_load("b", lambda: 2) == 2
    cache.remove("a")
    # Its own calls emit no events.
    assert told == ["set", "hit", "miss", "load", "set", "loaded", "remove"]


def test_a_listener_that_raises_harms_nobody(
    cache: shale.Cache, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(event: Event) -> None:
        raise RuntimeError(f"about {event.name}")

    heard: list[str] = []
    for name in NAMES:
        cache.on(name, fails)
        cache.on(name, lambda event: heard.append(event.name))
    with caplog.at_level(logging.ERROR, logger="shale"):
        cache["a"] = 1
        assert cache.get("a") == 1
        assert cache.get("b") is None
        assert cache.get_or_load("c", lambda: 3) == 3
        cache.clear()
    assert heard == ["set", "hit", "miss", "miss", "load", "set", "loaded", "clear"]
    assert len(caplog.records) == len(heard)
    assert "about set" in caplog.text
    assert cache.stats().own.failed == 0


def test_who_stops_hears_no_more_and_costs_nothing(cache: shale.Cache) -> None:
    plain = set(vars(cache))
    heard: list[Event] = []
    stop = cache.on("set", heard.append)
    other = cache.on("set", heard.append)
    cache["a"] = 1
    stop()
    stop()
    cache["b"] = 2
    other()
    cache["c"] = 3
    assert [event.key for event in heard] == ["a", "a", "b"]
    # As before the first listener: the methods are those of the class.
    assert set(vars(cache)) == plain
    assert "get" not in vars(cache)
    with pytest.raises(shale.InvalidError, match="there is no event"):
        cache.on(cast(Any, "everything"), heard.append)


def test_another_process_is_not_sent_the_listeners(cache: shale.Cache) -> None:
    cache.on("set", lambda _event: None)
    with pickle.loads(pickle.dumps(cache)) as other:
        assert "get" not in vars(other)


def test_the_first_listeners_of_two_threads(
    cache: shale.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second thread registers one while the first does."""
    heard: list[str] = []
    second: list[Any] = []
    is_past = threading.Event()
    """The second thread waits for the first, or is done."""

    class Lock:
        def __enter__(self) -> None:
            if second:
                is_past.set()
            registration.acquire()

        def __exit__(self, *_exception: object) -> None:
            registration.release()

    class SlowListeners(Listeners):
        def __init__(self) -> None:
            super().__init__()
            if not second:
                second.append(None)
                second[0] = in_thread(register)
                assert is_past.wait(PATIENCE)

    def register() -> None:
        cache.on("set", lambda _event: heard.append("second"))
        is_past.set()

    registration = listening._registration
    monkeypatch.setattr(listening, "_registration", Lock())
    monkeypatch.setattr(listening, "Listeners", SlowListeners)
    cache.on("set", lambda _event: heard.append("first"))
    second[0]()
    cache["k"] = 1
    assert sorted(heard) == ["first", "second"]


def test_a_child_forked_during_a_registration_can_register(cache: shale.Cache) -> None:
    held = threading.Event()

    def hold() -> None:
        with listening._registration:
            held.set()
            time.sleep(0.1)

    holder = in_thread(hold)
    assert held.wait(PATIENCE)
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)
        cache.on("set", print)
        os._exit(0)
    holder()
    assert os.waitpid(child, 0)[1] == 0


def test_threads_count_every_load(cache: shale.Cache) -> None:
    def work(name: int) -> None:
        for number in range(200):
            cache.get_or_load((name, number), lambda: 1)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.stats().own.loads == cache.stats().leases == 800


def test_evictions_have_ages(clock: Clock) -> None:
    with shale.Cache(None, capacity=SMALL, max_entries=100, now=clock) as cache:
        for number in range(1000):
            clock.advance(1)
            cache[number] = number
        stats = cache.stats()
        assert stats.evictions == stats.evicted_timed == 900
        assert stats.evicted_age_ms == 900 * 100_000
        # Entries were used only by their sets; at a steady rate, that is known exactly.
        assert 0.95 * stats.evicted_age_ms < stats.evicted_idle_ms <= stats.evicted_age_ms
