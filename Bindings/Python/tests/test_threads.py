"""One handle in many threads, and interruptions of a call."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import SMALL, run_child

import shale


def run_threads(count: int, work: Callable[[int], Any]) -> None:
    """Runs work(0) to work(count - 1) concurrently, and raises the first exception of one."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_values_do_not_mix(cache: shale.Cache) -> None:
    def work(thread: int) -> None:
        for round_ in range(300):
            key = (thread, round_ % 20)
            value = f"{thread}/{round_}/" * (round_ % 50 + 1)
            cache[key] = value
            assert cache[key] == value
            assert cache.get_many([key, "none"]) == {key: value}

    run_threads(6, work)


def test_counters_lose_nothing(cache: shale.Cache) -> None:
    def work(_thread: int) -> None:
        for _ in range(500):
            cache.incr("n")

    run_threads(4, work)
    assert cache["n"] == 2000


def test_counters_that_come_and_go_are_always_ints(cache: shale.Cache) -> None:
    def work(thread: int) -> None:
        for round_ in range(500):
            if thread == 0:
                cache.remove("n")
            else:
                assert 1 <= cache.incr("n") <= 1500
                assert type(cache.get("n", round_)) is int

    run_threads(4, work)


def test_one_thread_gets_what_is_popped(cache: shale.Cache) -> None:
    got: list[int] = []
    cache.set_many({number: number for number in range(200)})

    def work(_thread: int) -> None:
        for number in range(200):
            value = cache.pop(number)
            if value is not None:
                got.append(value)

    run_threads(4, work)
    assert sorted(got) == list(range(200))


def test_one_thread_adds(cache: shale.Cache) -> None:
    added: list[int] = []

    def work(thread: int) -> None:
        for number in range(200):
            if cache.add(number, thread):
                added.append(number)

    run_threads(4, work)
    assert sorted(added) == list(range(200))


def test_iterating_while_others_write(cache: shale.Cache) -> None:
    cache.set_many(dict.fromkeys(range(200), "x"))

    def work(thread: int) -> None:
        for round_ in range(10):
            if thread % 2:
                assert set(range(200)) <= {key for key in cache if isinstance(key, int)}
            else:
                cache.set_many({("w", thread, each): round_ for each in range(100)})

    run_threads(4, work)


@pytest.mark.parametrize("attempt", range(10))
def test_closing_while_calls_are_under_way(directory: Path, attempt: int) -> None:
    cache = shale.Cache(directory, capacity=SMALL)
    cache["k"] = "v" * 100

    def work(thread: int) -> None:
        if thread == 0:
            time.sleep(0.001 * attempt)
            cache.close()
            return
        with pytest.raises(shale.InvalidError, match="closed"):
            while True:
                assert cache["k"] == "v" * 100
                cache[thread] = thread
                assert "k" in list(cache)
                cache.get_many(["k", thread])

    run_threads(4, work)
    assert cache.closed
    # The handle is closed: another capacity is refused while it is open.
    with shale.Cache(directory, capacity="4MiB") as other:
        assert other["k"] == "v" * 100


def test_a_signal_handler_may_use_the_cache(cache: shale.Cache) -> None:
    cache["main"] = "main" * 10
    cache["handler"] = "handler" * 1000
    seen: list[Any] = []

    def handler(_signal: int, _frame: object) -> None:
        seen.append(cache["handler"] == "handler" * 1000 and cache.incr("signals"))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        while len(seen) < 100:
            assert cache["main"] == "main" * 10
            assert cache.get_many(["main"]) == {"main": "main" * 10}
            assert next(iter(cache.items()))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all(seen)


def test_a_signal_handler_may_close_the_cache(directory: Path) -> None:
    script = """
        import os, signal, sys, threading, time
        import shale
        cache = shale.Cache(sys.argv[1], capacity="8MiB")
        def stop(*_):
            cache.close()
            print("closed", flush=True)
            sys.exit(0)
        signal.signal(signal.SIGTERM, stop)
        def kill():
            while cache.get("n", 0) < 100:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGTERM)
        threading.Thread(target=kill).start()
        while True:
            cache.incr("n")
            list(cache)
    """
    assert run_child(script, directory).strip() == "closed"
    with shale.Cache(directory, capacity="4MiB") as cache:
        assert cache["n"] > 0


def test_daemon_threads_at_exit(directory: Path) -> None:
    script = """
        import sys, threading, time
        import shale
        cache = shale.Cache(sys.argv[1], capacity="8MiB")
        def work(number):
            while True:
                cache[number] = "x" * 100
                cache.get(number)
        for number in range(3):
            threading.Thread(target=work, args=(number,), daemon=True).start()
        time.sleep(0.1)
        print("done")
    """
    assert run_child(script, directory).strip() == "done"


def test_many_short_threads_leave_no_buffers_behind(cache: shale.Cache) -> None:
    cache["k"] = bytes(1000)
    for _ in range(5):
        run_threads(8, lambda _thread: cache["k"])
    assert len(cache._pool.idle) <= 9


def test_a_large_answer_is_not_kept(cache: shale.Cache) -> None:
    cache["k"] = os.urandom((1 << 20) + 5)
    cache.get("k")
    assert all(context.buffer.struct.capacity == 0 for context in cache._pool.idle)
