"""``lock``: one holder at a time, in all threads, coroutines and processes."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loaders import PATIENCE, in_thread, until
from support import SMALL, let_go, run_child, start_child
from test_threads import run_threads

import shale
from shale._store import heartbeat, leases


@pytest.fixture(autouse=True)
def all_given_back() -> Iterator[None]:
    yield
    assert heartbeat._heartbeat._due == {}


def is_free(cache: shale.Cache, key: shale.Key = "k") -> bool:
    lock = cache.lock(key, timeout=0)
    if not lock.acquire():
        return False
    lock.release()
    return True


def test_one_at_a_time(cache: shale.Cache) -> None:
    inside = 0
    most = 0

    def work(_thread: int) -> None:
        nonlocal inside, most
        for _ in range(20):
            with cache.lock("k"):
                inside += 1
                most = max(most, inside)
                time.sleep(0)
                inside -= 1

    run_threads(4, work)
    assert most == 1
    assert is_free(cache)


def test_one_at_a_time_of_processes(directory: Path) -> None:
    """Each reads a number from a file and writes the next: none is lost."""
    with shale.Cache(directory, capacity=SMALL) as cache:
        number = directory.parent / "number"
        number.write_text("0")
        script = """
            import sys, shale
            from pathlib import Path

            number = Path(sys.argv[2])
            with shale.Cache(sys.argv[1]) as cache:
                sys.stdin.readline()
                for _ in range(50):
                    with cache.lock("k"):
                        number.write_text(str(int(number.read_text()) + 1))
        """
        children = [start_child(script, directory, number) for _ in range(3)]
        let_go(children)
        assert number.read_text() == "150"
        assert is_free(cache)


def test_timeout(cache: shale.Cache) -> None:
    with cache.lock("k") as held:
        assert held.held
        begun = time.monotonic()
        with (
            pytest.raises(shale.LockTimeoutError, match=r"'k'.*0\.05") as raised,
            cache.lock("k", timeout=0.05),
        ):
            raise AssertionError
        assert time.monotonic() >= begun + 0.05
        assert isinstance(raised.value, TimeoutError)
        copy = pickle.loads(pickle.dumps(raised.value))
        assert (copy.key, copy.timeout, str(copy)) == ("k", 0.05, str(raised.value))
        assert not cache.lock("k", timeout=0).acquire()
        # Another key has another lock.
        with cache.lock(("k",), timeout=0), cache.lock(b"k", timeout=0):
            pass
    assert not held.held
    with cache.lock("k", timeout=0):
        pass


def test_it_keeps_nobody_from_the_key(cache: shale.Cache) -> None:
    with cache.lock("k", timeout=0) as lock:
        assert cache.get_or_load("k", lambda: 1) == 1
        cache["k"] = 2
        cache.clear()
        cache.evict(10)
        assert lock.held
        assert not is_free(cache)
        assert list(cache) == []
        before = cache.stats()
    assert (before.misses_absent, before.hits) == (1, 0)
    # A load does not exclude the lock of its key.
    assert cache.get_or_load("k", lambda: is_free(cache))


def test_it_is_given_back_whatever_happens(cache: shale.Cache) -> None:
    with pytest.raises(ZeroDivisionError), cache.lock("k"):
        raise ZeroDivisionError
    assert is_free(cache)


def test_it_is_renewed(cache: shale.Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_SHARE", 1e-4)
    renewals: list[bool] = []
    renew = leases.HeldLease.renew
    monkeypatch.setattr(leases.HeldLease, "renew", lambda lease: renewals.append(renew(lease)))
    with cache.lock("k"):
        until(lambda: renewals)
    assert renewals[0]


def test_those_of_a_killed_process_end_with_it(directory: Path) -> None:
    """Also if it held very many. They would last for an hour."""
    count = 400
    with shale.Cache(directory, capacity=SMALL) as cache:
        script = f"""
            import sys, shale
            cache = shale.Cache(sys.argv[1])
            locks = [cache.lock(number, timeout=0, lease=3600) for number in range({count})]
            print(all(lock.acquire() for lock in locks), flush=True)
            sys.stdin.readline()
        """
        child = start_child(script, directory)
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
        assert is_free(cache, "unrelated")
        assert not any(is_free(cache, number) for number in range(count))
        child.kill()
        child.communicate()
        assert all(is_free(cache, number) for number in range(count))


def test_a_lost_lock_says_so(cache: shale.Cache, caplog: pytest.LogCaptureFixture) -> None:
    with cache.lock("k") as lock:
        assert lock._lease is not None
        # As after its time without a renewal.
        cache._pool.run(leases._release, lock._stored, lock._lease.token)
        assert is_free(cache)
        assert not lock.held
        assert not caplog.records
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("shale", "WARNING")
    assert "'k' was lost" in record.getMessage()


def test_all_of_many_holders_get_a_second_one(cache: shale.Cache) -> None:
    locks = [cache.lock((name, number), timeout=0) for name in ("a", "b") for number in range(64)]
    for lock in locks:
        assert lock.acquire()
    assert not any(is_free(cache, ("b", number)) for number in range(64))
    for lock in locks:
        lock.release()


def test_all_of_many_threads_get_a_second_one(cache: shale.Cache) -> None:
    """Each while all hold their first."""
    all_hold_one = threading.Barrier(64, timeout=PATIENCE)

    def work(thread: int) -> None:
        with cache.lock(("a", thread), timeout=0):
            all_hold_one.wait()
            with cache.lock(("b", thread), timeout=PATIENCE) as second:
                assert second.held
                all_hold_one.wait()

    run_threads(64, work)
    assert is_free(cache, ("a", 0))
    assert is_free(cache, ("b", 63))


def test_where_there_is_no_room_it_is_waited_for(directory: Path) -> None:
    """Two callers would hold a lease that is granted unrecorded."""
    with shale.Cache(directory, capacity="1MiB") as cache:
        locks = [cache.lock(number, timeout=0) for number in range(4000)]
        held = [lock for lock in locks if lock.acquire()]
        assert 256 <= len(held) < 1000
        waiting = cache.lock("k", timeout=0.01)
        assert not waiting.acquire()
        waited = in_thread(cache.lock("k", timeout=PATIENCE).__enter__)
        for lock in held:
            lock.release()
        waited().release()
        assert cache.stats().leases_unrecorded == 0


def test_wrong_uses(cache: shale.Cache) -> None:
    lock = cache.lock("k")
    with pytest.raises(shale.InvalidError, match="does not hold"):
        lock.release()
    with lock:
        with pytest.raises(shale.InvalidError, match="already"):
            lock.acquire()
        assert lock.held
    with lock:
        assert lock.held
    for options in ({"timeout": -1}, {"lease": 0}, {"lease": 3601}):
        with pytest.raises(shale.InvalidError):
            cache.lock("k", **options)
    with pytest.raises(TypeError, match="a key is"):
        cache.lock(1.5)  # type: ignore[arg-type]


def test_a_forked_child_has_not_its_parents_lock(cache: shale.Cache) -> None:
    with cache.lock("k") as lock:
        child = os.fork()
        if child == 0:
            wrong = lock.held or is_free(cache)
            lock.release()
            os._exit(1 if wrong or is_free(cache) else 0)
        assert os.waitpid(child, 0)[1] == 0
        assert lock.held
        assert not is_free(cache)


def test_read_only(cache: shale.Cache) -> None:
    with (
        shale.Cache(cache.directory, read_only=True) as reader,
        pytest.raises(shale.PermissionDeniedError),
    ):
        reader.lock("k").acquire()


def test_a_closed_cache(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = shale.Cache(directory, capacity=SMALL)
    with cache.lock("k", lease=0.05):
        cache.close()
    assert not caplog.records
    with pytest.raises(shale.InvalidError, match="closed"):
        cache.lock("k").acquire()


def test_ctrl_c_is_heard_while_one_waits(directory: Path) -> None:
    script = """
        import os, signal, sys, threading, time
        import shale

        cache = shale.Cache(sys.argv[1], capacity="8MiB")
        # (A shell's background job ignores it, and so would this process.)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with cache.lock("k"):
            try:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
                cache.lock("k", timeout=50).acquire()
            except KeyboardInterrupt:
                print("heard")
        cache.lock("k", timeout=0).acquire() and print("free")
    """
    assert run_child(script, directory).split() == ["heard", "free"]


def test_coroutines(cache: shale.Cache) -> None:
    inside: list[int] = []
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def work(coroutines: shale.AsyncCache, number: int) -> None:
        for _ in range(3):
            async with coroutines.lock("k", timeout=PATIENCE):
                inside.append(number)
                before = ticks
                while ticks < before + 10:
                    await asyncio.sleep(0)
                assert inside.pop() == number
                assert not inside

    async def main() -> None:
        coroutines = shale.AsyncCache(cache)
        ticking = asyncio.create_task(tick())
        await asyncio.gather(*(work(coroutines, number) for number in range(4)))
        async with coroutines.lock("k") as lock:
            assert isinstance(lock, shale.AsyncLock)
            assert not await coroutines.lock("k", timeout=0).acquire()
            with pytest.raises(shale.LockTimeoutError):
                async with coroutines.lock("k", timeout=0.01):
                    raise AssertionError
            waiting = asyncio.create_task(coroutines.lock("k").acquire())
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        ticking.cancel()

    asyncio.run(main())
    assert is_free(cache)


def test_threads_beside_the_heartbeat(cache: shale.Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_SHARE", 1e-6)

    def work(thread: int) -> None:
        for number in range(50):
            with cache.lock(number % 3, lease=60) as lock:
                assert lock.held, thread

    run_threads(3, work)
    until(lambda: threading.active_count() < 20)
