"""Deterministic cases of loads: each load is stored, and one caller loads for all.

Each case returns the kind of its failure, or None. Cases that fail are in Tests/known-failures.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest
from loaders import PATIENCE, Loader, in_thread, is_free, never, until, waiting
from progress import SUITE, Share, check_progress, evaluate_case, known_failures
from support import Clock, run_child, start_child

import shale
from shale._loading.load import Load
from shale._store import heartbeat

SMALLEST = "1MiB"
LASTING = 3600
"""A time of a lease, seconds, that suffices on a machine of any load."""

ROOMY = "32MiB"
"""For 36,000 changes of other keys and tags while a load runs: limits.md, "Processes"."""

REFUSED = Share("loads of unchanged keys refused", 0)
DUPLICATES = Share("cases with a load beside another", 2 / 14)
"""Of two of the fourteen cases."""


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = Clock()
        self.numbers = 0

    def open(self, capacity: str = SMALLEST, **options: Any) -> shale.Cache:
        return shale.Cache(self.directory, capacity=capacity, now=self.clock, **options)

    def set(self, cache: shale.Cache, count: int, **options: Any) -> None:
        """Sets `count` keys, a millisecond apart."""
        for _ in range(count):
            self.numbers += 1
            self.clock.advance(0.001)
            cache.set(self.numbers, random.Random(self.numbers).randbytes(100), **options)


Case = Callable[[World], Optional[str]]


def name_of(case: Case) -> str:
    return case.__name__.replace("_", " ")


# Loads of keys that do not change meanwhile


def stored(cache: shale.Cache, during: Callable[[], object], **options: Any) -> bool:
    """Whether a loaded value is stored, for each way to load."""

    def load() -> bytes:
        during()
        return b"x"

    conflicts = cache.stats().own.conflicts
    assert cache.get_or_load("loaded", load, **options) == b"x"
    with cache.lease("leased") as lease:
        assert lease.granted
        during()
        done = lease.set(b"x", **options), cache.stats().own.conflicts == conflicts
    assert (cache.get("leased") == b"x") == done[0]
    for each in done:
        REFUSED.count(not each)
    return all(done)


def short_lives_in_a_full_cache(world: World) -> str | None:
    """A tenth of the other entries live for 10 ms."""
    with world.open() as cache:
        world.set(cache, 6000)

        def during() -> None:
            for _ in range(100):
                world.set(cache, 9)
                world.set(cache, 1, max_age=0.01)

        return None if stored(cache, during) else "fence"


def a_purge(world: World) -> str | None:
    with world.open() as cache:

        def during() -> None:
            world.set(cache, 1, max_age=0.01)
            world.clock.advance(1)
            cache.purge()

        return None if stored(cache, during) else "fence"


def an_eviction_of_what_was_set_since(world: World) -> str | None:
    with world.open() as cache:

        def during() -> None:
            world.set(cache, 1)
            assert cache.evict(10)

        return None if stored(cache, during) else "fence"


def many_tags(world: World) -> str | None:
    with world.open(ROOMY) as cache:

        def during() -> None:
            for number in range(5000):
                cache.invalidate(f"tag {number}")

        return None if stored(cache, during, tag="own") else "fence"


def many_removals(world: World) -> str | None:
    with world.open(ROOMY) as cache:

        def during() -> None:
            for number in range(10_000):
                cache.remove(f"other {number}")

        return None if stored(cache, during) else "fence"


def a_full_cache(world: World) -> str | None:
    """Evicted entries are older than the loads."""
    with world.open() as cache:
        world.set(cache, 6000)
        return None if stored(cache, lambda: world.set(cache, 500)) else "fence"


def a_full_clock_cache(world: World) -> str | None:
    with world.open(eviction="clock") as cache:
        world.set(cache, 20_000)
        return None if stored(cache, lambda: world.set(cache, 500)) else "fence"


STORES: list[Case] = [
    short_lives_in_a_full_cache,
    a_purge,
    an_eviction_of_what_was_set_since,
    many_tags,
    many_removals,
    a_full_cache,
    a_full_clock_cache,
]


@pytest.mark.parametrize("case", STORES)
def test_a_load_of_an_unchanged_key_is_stored(case: Case, directory: Path) -> None:
    evaluate_case(SUITE, name_of(case), case(World(directory)))
    with shale.Cache(directory) as cache:
        check_progress(cache)


# One load for each key


class AtOnce:
    """Counts running loaders, and the most that ran at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls = self.now = self.most = 0

    def __enter__(self) -> AtOnce:
        with self._lock:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)
        return self

    def __exit__(self, *_exception: object) -> None:
        with self._lock:
            self.now -= 1

    @property
    def kind(self) -> str | None:
        return "duplicate-load" if self.most > 1 else None


def free_while_loaded(free: bool) -> str | None:
    return "duplicate-load" if free else None


def a_killed_loader(world: World) -> str | None:
    """The next caller loads when the lease expires; the killed process stores nothing."""
    script = """
        import sys, time, shale

        def load():
            print("loading", flush=True)
            time.sleep(600)

        shale.Cache(sys.argv[1]).get_or_load("k", load, lease=float(sys.argv[2]))
    """
    with world.open() as cache:
        child = start_child(script, world.directory, 0.2)
        assert child.stdout is not None
        assert child.stdout.readline() == "loading\n"
        child.send_signal(signal.SIGKILL)
        child.wait(PATIENCE)
        child.stdout.close()
        check_progress(cache)
        load, at_once = Loader(), AtOnce()

        def count() -> int:
            with at_once:
                return load()

        results = [in_thread(lambda: cache.get_or_load("k", count)) for _ in range(4)]
        assert [result() for result in results] == [1, 1, 1, 1]
        assert at_once.calls == 1
        return at_once.kind


def loaders_that_raise(world: World) -> str | None:
    """One of them loads, and all get its failure."""
    with world.open() as cache:
        at_once, go = AtOnce(), threading.Event()

        def fail() -> Any:
            with at_once:
                assert go.wait(PATIENCE)
                raise LookupError

        def ask() -> None:
            with pytest.raises(LookupError):
                cache.get_or_load("k", fail)

        results = [in_thread(ask) for _ in range(8)]
        until(lambda: waiting(cache) == 7)
        go.set()
        for result in results:
            result()
        assert at_once.calls == 1
        return at_once.kind


def asked_while_held(cache: shale.Cache, value: bytes) -> AtOnce:
    """One loads, four wait for it; then five had what two loaders gave at most, as what could not
    be stored is handed to those who had waited when its load began."""
    at_once, begun, go = AtOnce(), threading.Event(), threading.Event()

    def load() -> bytes:
        with at_once:
            begun.set()
            assert go.wait(PATIENCE)
            return value

    results = [in_thread(lambda: cache.get_or_load("k", load))]
    assert begun.wait(PATIENCE)
    results += [in_thread(lambda: cache.get_or_load("k", load)) for _ in range(4)]
    until(lambda: waiting(cache) == 4)
    go.set()
    assert [result() == value for result in results] == [True] * 5
    assert at_once.calls <= 2
    assert cache.get("k") is None
    return at_once


def a_value_that_is_too_large(world: World) -> str | None:
    with world.open() as cache:
        return asked_while_held(cache, random.Random(1).randbytes(5_000_000)).kind


def a_cache_full_of_pinned_entries(world: World) -> str | None:
    """A large value finds no room beside pinned entries that fill a shard (limits.md, "Order,
    counts and eviction"). One byte still has room."""
    with world.open() as cache:
        with pytest.raises(shale.FullError):
            while True:
                world.numbers += 1
                cache.set(world.numbers, random.Random(world.numbers).randbytes(9000), pinned=True)
        kind = asked_while_held(cache, random.Random(1).randbytes(250_000)).kind
        check_progress(cache)
        return kind


def a_failing_disk(world: World) -> str | None:
    """A process that may not make files larger has the frames that exist and no more (limits.md,
    "Disk space"). So the value is refused, and one loads all the same."""
    script = """
        import random, resource, signal, sys, shale
        from test_progress import asked_while_held

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with shale.Cache(sys.argv[1], capacity="8MiB") as cache:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
            at_once = asked_while_held(cache, random.Random(1).randbytes(1_500_000))
            print(at_once.most, cache.stats().own.unstored)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    """
    most, unstored = map(int, run_child(script, world.directory).split())
    assert unstored, "the disk did not fail"
    with world.open("8MiB") as cache:
        check_progress(cache)
    return free_while_loaded(most > 1)


def a_load_within_a_load(world: World) -> str | None:
    with world.open() as cache:
        at_once = AtOnce()

        def load() -> int:
            with at_once:
                assert not is_free(cache)
                with pytest.raises(shale.DeadlockError):
                    cache.get_or_load("k", never)
                return cache.get_or_load("inner", lambda: 1)

        assert cache.get_or_load("k", load) == 1
        assert (cache["k"], cache["inner"]) == (1, 1)
        return at_once.kind


def a_fork_beside_a_load(world: World) -> str | None:
    """The child waits for its parent's load."""
    with world.open() as cache:
        load = Loader(held=True)
        first = in_thread(lambda: cache.get_or_load("k", load))
        assert load.begun.wait(PATIENCE)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = cache.get_or_load("k", lambda: 2) + 10
            finally:
                os._exit(status)
        load.go.set()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert first() == 1
        return None if status == 11 else "duplicate-load"


def forked(world: World, leave: Callable[[], object]) -> str | None:
    """The child leaves the load in which it was forked, and its parent continues it."""
    with world.open() as cache:
        parent, free = os.getpid(), []

        def load() -> int:
            child = os.fork()
            if child == 0:
                leave()
                os._exit(0)
            os.waitpid(child, 0)
            free.append(is_free(cache))
            return 1

        try:
            assert cache.get_or_load("k", load, lease=LASTING) == 1
        finally:
            if os.getpid() != parent:
                os._exit(0)
        return free_while_loaded(any(free))


def a_fork_in_a_load(world: World) -> str | None:
    return forked(world, lambda: None)


def raise_exit() -> None:
    raise SystemExit


def a_child_of_fork_that_leaves_a_load_by_an_exception(world: World) -> str | None:
    return forked(world, raise_exit)


def a_child_of_fork_that_leaves_the_block_of_a_lease(world: World) -> str | None:
    with world.open() as cache, cache.lease("k", lease=LASTING):
        lease = cache.lease("other", lease=LASTING)
        child = os.fork()
        if child == 0:
            with lease:
                pass
            os._exit(0)
        os.waitpid(child, 0)
        with cache.lease("other") as second:
            return free_while_loaded(second.granted)


def a_cancelled_coroutine(world: World) -> str | None:
    """One of the waiting callers loads, after the cancelled loader has ended."""
    at_once = AtOnce()

    async def main(cache: shale.AsyncCache) -> None:
        begun = asyncio.Event()
        ends = asyncio.Event()

        async def load() -> int:
            with at_once:
                begun.set()
                await asyncio.wait_for(ends.wait(), PATIENCE)
                return 1

        first = asyncio.ensure_future(cache.get_or_load("k", load))
        await begun.wait()
        rest = [asyncio.ensure_future(cache.get_or_load("k", load)) for _ in range(4)]
        await asyncio.sleep(0)
        first.cancel()
        ends.set()
        assert await asyncio.gather(*rest) == [1, 1, 1, 1]
        assert first.cancelled()

    with world.open() as cache:
        asyncio.run(main(shale.AsyncCache(cache)))
        assert at_once.calls == 2
        return at_once.kind


def a_cancelled_coroutine_whose_loader_runs_in_a_thread(world: World) -> str | None:
    async def main(cache: shale.Cache) -> bool:
        load = Loader(held=True)

        async def in_another_thread() -> int:
            return await asyncio.to_thread(load)

        asking = shale.AsyncCache(cache).get_or_load("k", in_another_thread, lease=LASTING)
        first = asyncio.ensure_future(asking)
        while not load.begun.is_set():
            await asyncio.sleep(0.001)
        first.cancel()
        await asyncio.wait([first])
        free = is_free(cache)
        load.go.set()
        return free

    with world.open() as cache:
        return free_while_loaded(asyncio.run(main(cache)))


def a_load_that_outlasts_the_timeout_of_its_caller(world: World) -> str | None:
    """It continues, and stores. So its lease has to be renewed."""
    with world.open() as cache:
        load = Loader(held=True)

        def no_patience(_load: Load) -> float:
            assert load.begun.wait(PATIENCE)
            return 0

        with pytest.MonkeyPatch.context() as patch, pytest.raises(shale.LoadTimeoutError):
            patch.setattr(Load, "patience", no_patience)
            cache.get_or_load("k", load, timeout=PATIENCE, lease=0.01)
        renewed = bool(heartbeat._heartbeat._due)
        try:
            # Another load begins as soon as the lease expires.
            if not renewed:
                assert cache.get_or_load("k", lambda: 2) == 2
        finally:
            load.go.set()
        until(lambda: not load_thread())
        return free_while_loaded(not renewed)


def load_thread() -> bool:
    return any(thread.name == "shale load" for thread in threading.enumerate())


def a_load_whose_caller_was_served_something_stale(world: World) -> str | None:
    with world.open() as cache:
        load: Any = Loader(held=True)
        cache.set("k", "old", max_age=0, stale=1000)
        assert cache.get_or_load("k", load, soft_timeout=0, lease=LASTING) == "old"
        assert load.begun.wait(PATIENCE)
        renewed = bool(heartbeat._heartbeat._due)
        assert cache.get_or_load("k", never) == "old"
        load.go.set()
        until(lambda: not load_thread())
        assert cache["k"] == 1
        return free_while_loaded(not renewed)


LOADS: list[Case] = [
    a_killed_loader,
    loaders_that_raise,
    a_value_that_is_too_large,
    a_cache_full_of_pinned_entries,
    a_failing_disk,
    a_load_within_a_load,
    a_fork_beside_a_load,
    a_fork_in_a_load,
    a_child_of_fork_that_leaves_a_load_by_an_exception,
    a_child_of_fork_that_leaves_the_block_of_a_lease,
    a_cancelled_coroutine,
    a_cancelled_coroutine_whose_loader_runs_in_a_thread,
    a_load_that_outlasts_the_timeout_of_its_caller,
    a_load_whose_caller_was_served_something_stale,
]


@pytest.mark.parametrize("case", LOADS)
def test_one_loads_for_all(case: Case, directory: Path) -> None:
    kind = case(World(directory))
    DUPLICATES.count(kind is not None)
    evaluate_case(SUITE, name_of(case), kind)
    with shale.Cache(directory) as cache:
        check_progress(cache)


def test_of_many_keys_each_has_one_loader(directory: Path) -> None:
    count = 400
    with World(directory).open(capacity="2MiB") as cache:
        leases = [cache.lease(number, lease=LASTING) for number in range(count)]
        assert all(lease.granted for lease in leases)
        for number in range(count):
            with cache.lease(number) as second:
                assert not second.granted
        assert all(lease.set(number) for number, lease in enumerate(leases))
        for lease in leases:
            lease.release()
        check_progress(cache)


def test_all_known_failures_are_cases() -> None:
    assert known_failures().keys() <= set(map(name_of, (*STORES, *LOADS)))


def test_the_shares() -> None:
    REFUSED.check()
    DUPLICATES.check()
