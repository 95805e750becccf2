"""Each key has one load at a time, whatever asks for it, and however many keys are loaded."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from loaders import PATIENCE, Loader, in_thread, is_free, never, until, waiting
from support import SMALL, run_child, start_child
from test_threads import run_threads

import shale

KEYS = 1000
LEASE = 3600
"""Seconds: a caller that waits for its end hangs."""


def wait_for(condition: Callable[[], Any]) -> Any:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    return asyncio.wait_for(wait(), 4 * PATIENCE)


# Many keys


@pytest.mark.parametrize("capacity", ["64MB", "1GiB"])
def test_many_keys_in_one_event_loop(directory: Path, capacity: str) -> None:
    """All loads run at once: none waits for that of another key."""
    loads: Counter[int] = Counter()

    async def main(cache: shale.AsyncCache) -> None:
        go = asyncio.Event()

        async def ask(key: int) -> int:
            async def load() -> int:
                loads[key] += 1
                await go.wait()
                return key

            return await cache.get_or_load(key, load, lease=LEASE)

        asked = [asyncio.ensure_future(ask(key)) for key in list(range(KEYS)) * 3]
        await wait_for(lambda: len(loads) == KEYS)
        go.set()
        assert await asyncio.gather(*asked) == list(range(KEYS)) * 3

    with shale.Cache(directory, capacity=capacity) as cache:
        asyncio.run(main(shale.AsyncCache(cache)))
        assert len(cache) == KEYS
    assert loads == Counter(range(KEYS))


def test_many_keys_in_many_threads(directory: Path) -> None:
    """64 loads run at once: each thread begins with a key of its own."""
    loads: list[int] = []
    at_once = threading.Barrier(64, timeout=4 * PATIENCE)

    def work(thread: int) -> None:
        keys = [key for key in range(KEYS) if key >= 64 or key == thread]
        random.Random(thread).shuffle(keys)
        keys.remove(thread)

        def load(key: int) -> int:
            loads.append(key)
            if key < 64:
                at_once.wait()
            return key

        for key in [thread, *keys]:
            assert cache.get_or_load(key, partial(load, key), lease=LEASE) == key

    with shale.Cache(directory, capacity="64MB") as cache:
        run_threads(64, work)
    assert Counter(loads) == Counter(range(KEYS))


STAMPEDE = """
    import os, random, sys, shale
    from test_threads import run_threads

    directory, log, number, count = sys.argv[1:]
    log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def work(thread):
        keys = list(range(int(count)))
        random.Random(f"{number} {thread}").shuffle(keys)

        def load(key):
            os.write(log, b"%d\\n" % key)
            return key

        for key in keys:
            assert cache.get_or_load(key, lambda: load(key), lease=3600) == key

    with shale.Cache(directory) as cache:
        print("ready", flush=True)
        sys.stdin.readline()
        run_threads(4, work)
"""


def test_many_keys_in_many_processes(directory: Path, tmp_path: Path) -> None:
    log = tmp_path / "loads"
    with shale.Cache(directory, capacity="64MB"):
        children = [start_child(STAMPEDE, directory, log, number, KEYS) for number in range(8)]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            child.communicate(timeout=4 * PATIENCE)
            assert child.returncode == 0
    assert Counter(map(int, log.read_text().split())) == Counter(range(KEYS))


def test_thousands_of_leases_exclude_other_processes(directory: Path) -> None:
    """A cache of 64 MiB records 4,096 at once."""
    count = 4096
    script = f"""
        import sys, shale

        with shale.Cache(sys.argv[1]) as cache:
            print(sum(cache.lease(key).granted for key in range({count})))
    """

    async def main(cache: shale.Cache) -> None:
        go = asyncio.Event()
        loads: list[int] = []

        async def load(key: int) -> int:
            loads.append(key)
            await go.wait()
            return key

        coroutines = shale.AsyncCache(cache)
        asked = [
            asyncio.ensure_future(coroutines.get_or_load(key, partial(load, key), lease=LEASE))
            for key in range(count)
        ]
        await wait_for(lambda: len(loads) == count)
        assert await asyncio.to_thread(run_child, script, directory) == "0\n"
        go.set()
        assert await asyncio.gather(*asked) == list(range(count))

    with shale.Cache(directory, capacity="64MiB") as cache:
        asyncio.run(main(cache))
        assert cache.stats().leases_unrecorded == 0


def test_all_objects_of_a_directory_share_a_load(directory: Path) -> None:
    with (
        shale.Cache(directory, capacity=SMALL) as cache,
        shale.Cache(directory) as other,
    ):
        load = Loader(held=True)
        views: list[Any] = [each.namespace("n") for each in (cache, other, cache, other)]
        results = [in_thread(lambda: views[0].get_or_load("k", load, lease=LEASE))]
        assert load.begun.wait(PATIENCE)
        before = cache.stats().own.loads + other.stats().own.loads
        results += [
            in_thread(lambda view=view: view.get_or_load("k", never, lease=LEASE))  # type: ignore[misc]
            for view in views
        ]
        time.sleep(0.05)
        load.go.set()
        assert [result() for result in results] == [1] * 5
        assert cache.stats().own.loads + other.stats().own.loads == before


# Changes during a load


def test_who_asks_after_a_removal_waits_for_one_more_load(cache: shale.Cache) -> None:
    """Who asked before it gets the value of the load that ran."""
    old, new = Loader(held=True), Loader(held=True)
    new.calls = 1
    first = in_thread(lambda: cache.get_or_load("k", old, lease=LEASE))
    assert old.begun.wait(PATIENCE)
    before = [in_thread(lambda: cache.get_or_load("k", new, lease=LEASE)) for _ in range(5)]
    until(lambda: waiting(cache) == 5)
    cache.remove("k")
    after = [in_thread(lambda: cache.get_or_load("k", new, lease=LEASE)) for _ in range(5)]
    until(lambda: waiting(cache) == 10)
    old.go.set()
    assert first() == 1
    new.go.set()
    assert {each() for each in before} <= {1, 2}
    assert [each() for each in after] == [2] * 5
    assert (old.calls, new.calls) == (1, 2)
    assert cache["k"] == 2


# Processes that end or stop while they load

HOLD = """
    import sys, time, shale
    from shale._store import heartbeat

    def load():
        print("loading", flush=True)
        sys.stdin.readline()
        (lease,) = [reference() for reference in heartbeat._heartbeat._due]
        lease.milliseconds = 1000
        assert lease.renew()
        print("a second is left", flush=True)
        time.sleep(600)

    cache = shale.Cache(sys.argv[1])
    cache.get_or_load("k", load, lease=float(sys.argv[2]))
"""

WAIT = """
    import sys, threading, shale
    from loaders import in_thread, until, waiting

    lock, loads = threading.Lock(), []

    def load():
        with lock:
            loads.append(1)
        return sys.argv[2]

    with shale.Cache(sys.argv[1]) as cache:
        results = [in_thread(lambda: cache.get_or_load("k", load, lease=3600)) for _ in range(4)]
        until(lambda: waiting(cache) == 4)
        print("waiting", flush=True)
        print(*(result() for result in results), len(loads))
"""


def holder(directory: Path) -> Any:
    child = start_child(HOLD, directory, LEASE)
    assert child.stdout is not None
    assert child.stdout.readline() == "loading\n"
    return child


def waiters(directory: Path, count: int) -> list[Any]:
    children = [start_child(WAIT, directory, number) for number in range(count)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
    return children


def one_loaded(children: list[Any]) -> None:
    found = [child.communicate(timeout=2 * PATIENCE)[0].split() for child in children]
    assert len({value for each in found for value in each[:4]}) == 1, found
    assert sum(int(each[4]) for each in found) == 1, found


def test_after_a_kill_one_of_those_who_wait_loads(cache: shale.Cache, directory: Path) -> None:
    child = holder(directory)
    children = waiters(directory, 3)
    child.kill()
    one_loaded(children)
    child.communicate()
    cache.remove("k")
    assert is_free(cache)


def test_a_stopped_process_keeps_its_turn_for_its_lease(
    cache: shale.Cache, directory: Path
) -> None:
    child = holder(directory)
    children = waiters(directory, 2)
    # Only now: they would not wait for a lease that a busy machine had let expire.
    child.stdin.write("go\n")
    child.stdin.flush()
    assert child.stdout.readline() == "a second is left\n"
    child.send_signal(signal.SIGSTOP)
    try:
        one_loaded(children)
    finally:
        child.kill()
        child.communicate()


# Greenlets

GREENLETS = """
load_calls = 0
go = False

def load():
    global load_calls
    load_calls += 1
    until(lambda: go)
    return load_calls

def fail():
    load()
    raise LookupError(load_calls)

def ask(key, load):
    try:
        return cache.get_or_load(key, load, lease=3600)
    except LookupError as error:
        return error

def all_of(key, load):
    global load_calls, go
    load_calls, go = 0, False
    greenlets = [spawn(ask, key, load) for _ in range(20)]
    until(lambda: waiting(cache, key) == 19)
    go = True
    found = [wait(greenlet) for greenlet in greenlets]
    return load_calls, len(set(map(id, found))), str(found[0])

from loaders import waiting

print(all_of("k", load), all_of("other", fail))

# A killed greenlet fails only its own caller.
load_calls, go = 0, False
first = spawn(ask, "third", load)
until(lambda: load_calls)
rest = [spawn(ask, "third", lambda: load() + 10) for _ in range(19)]
until(lambda: waiting(cache, "third") == 19)
first.kill()
go = True
print({wait(greenlet) for greenlet in rest}, load_calls)
"""


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_greenlets(directory: Path, library: str) -> None:
    import test_greenlets

    start = getattr(test_greenlets, library.upper()) + test_greenlets.COMMON
    output = run_child(start + GREENLETS, directory).splitlines()
    assert output == ["(1, 1, '1') (1, 1, '1')", "{12} 2"]
