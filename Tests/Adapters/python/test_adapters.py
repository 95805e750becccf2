"""Beyond the other projects' tests: pickle, processes, and atomic calls."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import shale


class Thing:
    """A type that Shale cannot store."""


def in_threads(function: Callable[[], Any], count: int = 4) -> list[Any]:
    """The results of concurrent calls, by threads that switch often."""
    results: list[Any] = []
    begin = threading.Barrier(count)

    def run() -> None:
        begin.wait()
        results.append(function())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    return results


def test_import_shale_imports_none_of_them() -> None:
    foreign = "django dogpile cachelib aiocache requests_cache cashews key_value diskcache aiohttp langchain_core"
    script = (
        "import sys, shale, shale.adapters.diskcache, shale.serializers\n"
        f"print([each for each in {foreign.split()} if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


class TestDjango:
    def make(self, directory: Path, **options: Any) -> Any:
        from shale.adapters.django import ShaleCache

        return ShaleCache(str(directory), {"OPTIONS": options})

    def test_threads_share_what_is_open(self, directory: Path) -> None:
        first, second = self.make(directory), self.make(directory)
        assert first._cache is second._cache
        first.close()
        second.set("k", 1)
        assert first.get("k") == 1

    def test_incr_is_atomic_and_keeps_the_age(self, directory: Path) -> None:
        cache = self.make(directory)
        cache.set("k", 0, timeout=1000)
        in_threads(lambda: [cache.incr("k") for _ in range(5000)])
        assert cache.get("k") == 20_000
        entry = cache._cache.entry(cache.make_key("k"))
        assert 900 < entry.ttl <= 1000

    def test_keys_are_checked(self, directory: Path) -> None:
        from django.core.cache.backends.base import CacheKeyWarning

        with pytest.warns(CacheKeyWarning):
            self.make(directory).set("a key", 1)


class TestDogpile:
    def make(self, directory: Path) -> Any:
        from dogpile.cache import make_region

        arguments = {"directory": directory, "lease": 5}
        return make_region().configure("shale.adapters.dogpile", arguments=arguments)

    def test_one_of_all_threads_creates(self, directory: Path) -> None:
        region = self.make(directory)
        calls: list[int] = []

        def create() -> int:
            calls.append(1)
            return 5

        assert in_threads(lambda: region.get_or_create("k", create)) == [5] * 4
        assert len(calls) == 1

    def test_the_mutex_is_that_of_all_processes(self, directory: Path) -> None:
        mutex = self.make(directory).backend.get_mutex("k")
        mutex.acquire()
        script = "import sys, shale; lock = shale.Cache(sys.argv[1]).lock('k', timeout=0); print(lock.acquire())"
        command = [sys.executable, "-c", script, str(directory)]
        held = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        mutex.release()
        free = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert (held, free) == ("False\n", "True\n")
        with pytest.raises(RuntimeError):
            mutex.release()

    def test_nothing_is_pickled_unless_asked_for(self, directory: Path) -> None:
        with pytest.raises(TypeError, match="PickleSerializer"):
            self.make(directory).set("k", Thing())


class TestCachelib:
    def make(self, directory: Any, **options: Any) -> Any:
        from shale.adapters.cachelib import ShaleCache

        return ShaleCache(directory, **options)

    def test_inc_is_atomic(self, directory: Path) -> None:
        cache = self.make(directory)
        in_threads(lambda: [cache.inc("k") for _ in range(5000)])
        assert cache.get("k") == 20_000

    def test_inc_is_atomic_with_a_serializer(self, directory: Path) -> None:
        from cachelib.serializers import JSONSerializer

        cache = self.make(directory)
        cache.serializer = JSONSerializer()
        in_threads(lambda: [cache.inc("k") for _ in range(100)])
        assert cache.get("k") == 400

    def test_timedelta_and_no_end(self, directory: Path) -> None:
        cache = self.make(directory)
        cache.set("k", 1, timeout=timedelta(minutes=1))
        cache.set("l", 1, timeout=0)
        assert 50 < cache._cache.entry("k").ttl <= 60
        assert cache._cache.entry("l").ttl == shale.NEVER

    def test_a_namespace_of_an_open_cache(self, directory: Path) -> None:
        with shale.Cache(directory) as whole:
            whole["k"] = 1
            cache = self.make(whole.namespace("part"))
            cache.set("k", 2)
            cache.clear()
            assert whole["k"] == 1
            with pytest.raises(TypeError, match="open already"):
                self.make(whole, capacity="1GiB")


class TestRequestsCache:
    def make(self, directory: Path, **options: Any) -> Any:
        from shale.adapters.requests_cache import ShaleCache

        return ShaleCache(str(directory), **options)

    def test_nothing_is_pickled_unless_asked_for(self, directory: Path) -> None:
        from requests_cache.models import CachedResponse

        backend = self.make(directory)
        backend.responses["k"] = CachedResponse(content=b"body", url="http://host/")
        stored = backend.responses._cache.get("k")
        assert b"body" not in stored.encode()[:2]
        assert stored.startswith("{")
        assert backend.responses["k"].content == b"body"

    def test_responses_and_redirects_are_apart(self, directory: Path) -> None:
        backend = self.make(directory)
        backend.redirects["k"] = "other"
        assert "k" not in backend.responses
        backend.responses.clear()
        assert backend.redirects["k"] == "other"


class TestAioCache:
    def make(self, directory: Path) -> Any:
        from shale.adapters.aiocache import ShaleCache

        return ShaleCache(directory)

    def test_a_change_between_is_seen_though_the_value_is_the_same(self, directory: Path) -> None:
        from aiocache.lock import OptimisticLock, OptimisticLockError

        async def main() -> None:
            cache = self.make(directory)
            await cache.set("k", 1)
            async with OptimisticLock(cache, "k") as lock:
                await cache.set("k", 1)
                with pytest.raises(OptimisticLockError):
                    await lock.cas(2)

        asyncio.run(main())

    def test_only_the_owner_releases(self, directory: Path) -> None:
        async def main() -> None:
            cache = self.make(directory)
            await cache._add("lock", "mine", ttl=30)
            assert not await cache._redlock_release("lock", "other")
            assert await cache._redlock_release("lock", "mine")

        asyncio.run(main())


class TestKeyValue:
    """py-key-value's distribution has no tests."""

    def make(self, directory: Path) -> Any:
        from shale.adapters.key_value import ShaleStore

        return ShaleStore(directory)

    def test_values_and_their_ends(self, directory: Path) -> None:
        async def main() -> None:
            store = self.make(directory)
            await store.put("k", {"a": [1, None, "x"]}, collection="c", ttl=100)
            await store.put("l", {"b": 2}, collection="c")
            assert await store.get("k", collection="c") == {"a": [1, None, "x"]}
            assert await store.get("k", collection="d") is None
            value, ttl = await store.ttl("k", collection="c")
            assert value == {"a": [1, None, "x"]} and 90 < ttl <= 100
            entry = store._cache.entry(("c", "k"))
            assert 90 < entry.ttl <= 100
            assert (await store.ttl("l", collection="c"))[1] is None
            assert await store.get_many(["k", "no", "l"], collection="c") == [
                {"a": [1, None, "x"]},
                None,
                {"b": 2},
            ]

        asyncio.run(main())

    def test_what_is_over_is_gone(self, directory: Path) -> None:
        async def main() -> None:
            store = self.make(directory)
            await store.put("k", {"a": 1}, ttl=0.001)
            await asyncio.sleep(0.01)
            assert await store.get("k") is None

        asyncio.run(main())

    def test_collections(self, directory: Path) -> None:
        async def main() -> None:
            store = self.make(directory)
            for collection in ("c", "d"):
                for key in ("k", "l"):
                    await store.put(key, {"a": 1}, collection=collection)
            assert sorted(await store.keys("c")) == ["k", "l"]
            assert sorted(await store.collections()) == ["c", "d"]
            assert await store.delete("k", collection="c")
            assert not await store.delete("k", collection="c")
            assert await store.destroy_collection("c")
            assert await store.keys("c") == []
            assert await store.delete_many(["k", "l", "no"], collection="d") == 2
            await store.put("k", {"a": 1})
            assert await store.destroy()
            assert await store.get("k") is None

        asyncio.run(main())

    def test_what_is_no_json_is_refused(self, directory: Path) -> None:
        from key_value.aio.errors import SerializationError

        async def main() -> None:
            with pytest.raises(SerializationError):
                await self.make(directory).put("k", {"a": Thing()})

        asyncio.run(main())


class TestAiohttp:
    def response(self) -> Any:
        from aiohttp_client_cache.response import CachedResponse

        response = CachedResponse(
            method="GET",
            reason="OK",
            status=200,
            url="http://host/path?q=1",
            version="HTTP/1.1",
            body=b"body",
            raw_headers=((b"ETag", b"1"),),
        )
        response.cookies["name"] = "value"
        response.cookies["name"]["path"] = "/"
        response.history = (CachedResponse("GET", "Found", 302, "http://host/", "HTTP/1.1"),)
        return response

    def test_a_response_comes_back_without_pickle(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from shale.adapters.aiohttp_client_cache import ShaleBackend

        def refuse(*_arguments: Any) -> None:
            raise AssertionError("pickle")

        monkeypatch.setattr(pickle, "dumps", refuse)
        monkeypatch.setattr(pickle, "loads", refuse)

        async def main() -> None:
            storage = ShaleBackend(str(directory)).responses
            await storage.write("k", self.response())
            found = await storage.read("k")
            assert (found.status, str(found.url), await found.read()) == (
                200,
                "http://host/path?q=1",
                b"body",
            )
            assert found.headers["etag"] == "1"
            assert found.cookies["name"].OutputString() == "name=value; Path=/"
            assert found.history[0].status == 302

        asyncio.run(main())


class TestCashews:
    def make(self, directory: Path) -> Any:
        from shale.adapters.cashews import ShaleBackend

        return ShaleBackend(directory)

    def test_by_a_url(self, directory: Path) -> None:
        import shale.adapters.cashews
        from cashews.wrapper import Cache

        assert shale.adapters.cashews

        async def main() -> None:
            cache = Cache()
            cache.setup(f"shale://{directory}", capacity="64MiB")
            await cache.set("k", {"a": 1})
            assert await cache.get("k") == {"a": 1}
            assert await cache.set("k", 2, exist=False) is False

        asyncio.run(main())
        with shale.Cache(directory) as plain:
            assert plain["k"] == {"a": 1}
            assert plain.stats().capacity == 64 << 20

    def test_the_lock_of_another_stays(self, directory: Path) -> None:
        async def main() -> None:
            backend = self.make(directory)
            assert await backend.set_lock("k", "mine", expire=30)
            assert not await backend.set_lock("k", "other", expire=30)
            assert not await backend.unlock("k", "other")
            assert await backend.is_locked("k")
            assert await backend.unlock("k", "mine")

        asyncio.run(main())

    def test_sets_are_changed_atomically(self, directory: Path) -> None:
        backend = self.make(directory)
        backend._cache["first"] = 1

        def add() -> None:
            name = threading.current_thread().name
            for number in range(50):
                asyncio.run(backend.set_add("k", f"{name} {number}"))

        in_threads(add)
        assert len(backend._cache["k"]) == 200
