"""The lease of a load is held while the load runs."""

from __future__ import annotations

import _thread
import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loaders import PATIENCE, STORED, Loader, in_thread, is_free, never, until
from support import run_child

import shale
from shale._loading.in_flight import ThreadBell
from shale._store import heartbeat, leases


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The times of renewals; each lease is renewed five hundred times in its time."""
    times: list[float] = []
    renew = leases.HeldLease.renew

    def counted(lease: leases.HeldLease) -> bool:
        renewed = renew(lease)
        times.append(time.monotonic())
        return renewed

    monkeypatch.setattr(leases.HeldLease, "renew", counted)
    monkeypatch.setattr(heartbeat, "_SHARE", 1 / 500)
    yield times


LEASE = 60
"""Seconds, long enough to renew it on a machine of any load."""

ASK = """
    import sys, shale

    with shale.Cache(sys.argv[1]) as cache:
        print(cache.entry_or_load("k", lambda _: "loaded beside it"))
"""


def test_another_process_does_not_load_beside_it_however_long_it_takes(
    cache: shale.Cache, directory: Path, renewals: list[float]
) -> None:
    lease = 1.0
    while True:
        cache.set("k", "old", max_age=0, stale=600)
        load = Loader(held=True)
        begun = time.monotonic()
        first = in_thread(lambda: cache.get_or_load("k", load, lease=lease))  # noqa: B023
        # Without renewal the lease has ended by then.
        end = begun + 1.5 * lease
        while not renewals or renewals[-1] < end:
            time.sleep(0.001)
            if time.monotonic() > end + lease:
                break
        found = run_child(ASK, directory)
        load.go.set()
        assert first() == 1
        renewed = [begun, *renewals, time.monotonic()]
        if max(later - earlier for earlier, later in zip(renewed, renewed[1:])) < lease:
            break
        # The machine was too busy to renew it in time. Waits for another renewal.
        assert lease < LEASE
        lease *= 4
        renewals.clear()
    assert "'old'" in found
    assert "stale=True" in found
    assert "value=1" in run_child(ASK, directory)


def test_a_lease_ends_with_its_load(cache: shale.Cache, renewals: list[float]) -> None:
    load = Loader(held=True)
    first = in_thread(lambda: cache.get_or_load("k", load, lease=LEASE))
    until(lambda: renewals)
    assert not is_free(cache)
    load.go.set()
    assert first() == 1
    cache.remove("k")
    assert is_free(cache)
    assert heartbeat._heartbeat._due == {}


def test_a_coroutine_holds_its_lease_too(cache: shale.Cache, renewals: list[float]) -> None:
    async def main() -> None:
        async def load() -> int:
            while len(renewals) < 3:
                await asyncio.sleep(0.001)
            assert not is_free(cache)
            return 1

        loading = shale.AsyncCache(cache).get_or_load("k", load, lease=LEASE)
        assert await asyncio.wait_for(loading, PATIENCE) == 1

    asyncio.run(main())
    assert heartbeat._heartbeat._due == {}


def test_one_thread_renews_them_all_and_ends(
    cache: shale.Cache, renewals: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    start: Any = _thread.start_new_thread

    def count(function: Any, *arguments: Any) -> Any:
        if function == heartbeat._heartbeat._run:
            started.append(function)
        return start(function, *arguments)

    monkeypatch.setattr(_thread, "start_new_thread", count)
    loads = [Loader(held=True) for _ in range(8)]
    results = [
        in_thread(lambda key=key, load=load: cache.get_or_load(key, load, lease=LEASE))  # type: ignore[misc]
        for key, load in enumerate(loads)
    ]
    until(lambda: len(renewals) > 30)
    # (None, if that of the test before still runs.)
    assert len(started) <= 1
    for load, result in zip(loads, results):
        load.go.set()
        assert result() == 1
    assert len(started) <= 1
    until(lambda: not heartbeat._heartbeat._runs)


def test_a_lease_that_is_due_earlier_is_renewed_earlier(
    cache: shale.Cache, renewals: list[float]
) -> None:
    slow, quick = Loader(held=True), Loader(held=True)
    first = in_thread(lambda: cache.get_or_load("slow", slow, lease=3600))
    assert slow.begun.wait(PATIENCE)
    second = in_thread(lambda: cache.get_or_load("quick", quick, lease=LEASE))
    # The first lease is due later.
    until(lambda: renewals)
    slow.go.set()
    quick.go.set()
    assert (first(), second()) == (1, 1)


def test_a_lease_that_another_has_by_now_is_not_renewed(cache: shale.Cache) -> None:
    pool = cache._pool
    lookup = pool.run(leases.look, STORED, 0, 3_600_000, 0)
    ours = leases.HeldLease(pool, STORED, lookup.lease, 3_600_000)
    assert ours.renew()
    assert not is_free(cache)
    pool.run(leases._release, STORED, ours.token)
    theirs = pool.run(leases.look, STORED, 0, 3_600_000, 0)
    assert theirs.lease
    assert not ours.renew()
    ours.release()
    assert not is_free(cache)


def test_a_lease_on_a_fresh_value_is_renewed(cache: shale.Cache) -> None:
    cache.set("k", 1, max_age=1000)
    pool = cache._pool
    lookup = pool.run(leases.look, STORED, 0, 3_600_000, 2**52)
    lease = leases.HeldLease(pool, STORED, lookup.lease, 3_600_000)
    assert lease.token
    assert all(lease.renew() for _ in range(100))


def test_a_closed_cache_has_no_leases_to_renew(directory: Path) -> None:
    cache = shale.Cache(directory)
    lookup = cache._pool.run(leases.look, STORED, 0, 1000, 0)
    lease = leases.HeldLease(cache._pool, STORED, lookup.lease, 1000)
    cache.close()
    assert not lease.renew()
    lease.release()


FORK = """
    import os, sys, shale
    from shale._store import heartbeat

    cache = shale.Cache(sys.argv[1])

    def load():
        child = os.fork()
        if child == 0:
            assert heartbeat._heartbeat._due == {}
            assert cache.get_or_load("other", lambda: 2) == 2
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(heartbeat._heartbeat._due) == 1
        return 1

    print(cache.get_or_load("k", load))
"""


def test_a_child_of_fork_leaves_its_parents_leases_alone(directory: Path) -> None:
    assert run_child(FORK, directory) == "1\n"


def test_waiting_is_done_in_python(cache: shale.Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Loader(held=True)
    first = in_thread(lambda: cache.get_or_load("k", load))
    assert load.begun.wait(PATIENCE)
    pauses: list[float] = []

    def wait(_bell: ThreadBell, seconds: float) -> None:
        # As with gevent and eventlet: a sleeping one lets the others run.
        pauses.append(seconds)
        if len(pauses) == 12:
            load.go.set()
            assert first() == 1

    monkeypatch.setattr(ThreadBell, "wait", wait)
    assert cache.get_or_load("k", never) == 1
    assert pauses == [*(0.0005 * 2**doubled for doubled in range(9)), *[0.25] * 3]
