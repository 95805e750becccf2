"""Several processes, forks, and processes that are killed."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loaders import PATIENCE
from support import SMALL, look, run_child, start_child, tolerated

import shale


def fork(work: Callable[[], Any]) -> int:
    """Runs `work` in a forked child. Returns the child's exit code, 0 if it did not raise."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    for _ in range(20 * PATIENCE):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child did not end")


def test_two_processes_share_what_they_store(cache: shale.Cache, directory: Path) -> None:
    child = start_child(
        """
        import sys, shale
        with shale.Cache(sys.argv[1]) as cache:
            for line in sys.stdin:
                print(repr(cache.get(line.strip())), flush=True)
                cache["child"] = line.strip()
        """,
        directory,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    for number in range(20):
        cache[f"key {number}"] = (number, b"raw")
        child.stdin.write(f"key {number}\n")
        child.stdin.flush()
        assert child.stdout.readline().strip() == repr((number, b"raw"))
    child.stdin.close()
    assert child.wait(timeout=PATIENCE) == 0
    child.stdout.close()
    assert cache["child"] == "key 19"


def test_counters_of_processes_lose_nothing(cache: shale.Cache, directory: Path) -> None:
    script = """
        import sys, shale
        with shale.Cache(sys.argv[1]) as cache:
            for _ in range(2000):
                cache.incr("n")
    """
    children = [start_child(script, directory) for _ in range(3)]
    for _ in range(2000):
        cache.incr("n")
    for child in children:
        child.communicate(timeout=PATIENCE)
        assert child.returncode == 0
    assert cache["n"] == 8000


def test_keys_do_not_depend_on_the_hash_seed(cache: shale.Cache, directory: Path) -> None:
    keys: list[Any] = ["text", b"raw", 12345, ("a", 1, (b"x",))]
    for number, key in enumerate(keys):
        cache[key] = number
    script = f"""
        import sys, shale
        with shale.Cache(sys.argv[1]) as cache:
            print([cache.get(key) for key in {keys!r}])
    """
    assert run_child(script, directory).strip() == "[0, 1, 2, 3]"


def test_a_forked_child_goes_on_with_the_handle(cache: shale.Cache) -> None:
    cache["parent"] = 1

    def work() -> None:
        assert cache["parent"] == 1
        cache["child"] = "c" * 1000
        assert cache.incr("n") == 1
        assert set(cache) == {"parent", "child", "n"}
        cache.close()

    assert fork(work) == 0
    assert cache["child"] == "c" * 1000
    assert cache.incr("n") == 2


def test_memory_is_shared_with_children_of_fork() -> None:
    with shale.Cache(None, capacity=SMALL) as cache:
        cache["parent"] = 1

        def work() -> None:
            assert cache["parent"] == 1
            cache["child"] = 2

        assert fork(work) == 0
        assert cache["child"] == 2


def test_fork_while_threads_are_in_calls(cache: shale.Cache) -> None:
    stop = threading.Event()
    cache.set_many(dict.fromkeys(range(50), "x" * 100))

    def work(thread: int) -> None:
        while not stop.is_set():
            cache[thread] = "y" * 1000
            cache.get(thread)
            cache.get_many(range(50))
            list(cache)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()

    def child() -> None:
        for _ in range(20):
            assert cache[20] == "x" * 100
            cache["child"] = os.getpid()
            list(cache)
        cache.close()
        assert cache.closed

    try:
        for _ in range(10):
            assert fork(child) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert isinstance(cache["child"], int)


def test_fork_in_the_middle_of_an_iteration(cache: shale.Cache) -> None:
    cache.set_many({number: number for number in range(100)})
    iterator = iter(cache)
    first = {next(iterator) for _ in range(10)}

    def work() -> None:
        assert len(first | set(iterator)) == 100
        cache.close()

    assert fork(work) == 0
    assert len(first | set(iterator)) == 100


def in_process(arguments: tuple[shale.Cache, int]) -> tuple[int, int]:
    cache, number = arguments
    cache[number] = number * number
    return os.getpid(), cache["shared"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(cache: shale.Cache, method: str) -> None:
    cache["shared"] = 7
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        results = pool.map(in_process, [(cache, number) for number in range(6)])
    assert {value for _, value in results} == {7}
    assert os.getpid() not in {pid for pid, _ in results}
    assert cache.get_many(range(6)) == {number: number * number for number in range(6)}


def test_a_pickled_cache_opens_the_same_directory(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL, serializer=shale.PickleSerializer()) as cache:
        cache["k"] = 1j
        with pickle.loads(pickle.dumps(cache)) as other:
            assert other["k"] == 1j
            assert other.directory == cache.directory


WRITER = """
    import sys, shale
    cache = shale.Cache(sys.argv[1], capacity="8MiB")
    number = 0
    while True:
        cache[number % 500] = (number, "x" * (number % 400))
        print(number, flush=True)
        number += 1
"""


def test_what_was_stored_survives_kill_9(directory: Path) -> None:
    written = -1
    for attempt in range(5):
        child = start_child(WRITER, directory)
        assert child.stdout is not None
        for _ in range(200 + 137 * attempt):
            written = int(child.stdout.readline())
        child.kill()
        rest = child.stdout.read().split("\n")
        child.stdout.close()
        child.wait(timeout=PATIENCE)
        # The last line may be cut off.
        written = max([written, *(int(line) for line in rest[:-1])])
        with shale.Cache(directory) as cache:
            for number in range(max(0, written - 499), written + 1):
                found, text = cache[number % 500]
                # The set after the last line may be complete too: recovery.md, "A process is
                # killed".
                look()
                assert found == number or (
                    found == written + 1
                    and number == written - 499
                    and tolerated("set by who was killed")
                )
                assert text == "x" * (found % 400)
            assert cache.verify().corrupt_records == 0
            cache.clear()


def test_a_survivor_goes_on_when_others_are_killed(cache: shale.Cache, directory: Path) -> None:
    cache["survivor"] = "here"
    for _ in range(5):
        child = start_child(WRITER, directory)
        assert child.stdout is not None
        for _ in range(50):
            child.stdout.readline()
        child.kill()
        rest = child.stdout.read()
        child.stdout.close()
        child.wait(timeout=PATIENCE)
        assert rest is not None
        assert cache["survivor"] == "here"
        number, text = cache[10]
        assert number % 500 == 10
        assert text == "x" * (number % 400)
        cache["after"] = 1
        assert cache.incr("n") > 0
    assert cache["n"] == 5


def test_exit_closes_in_order(directory: Path) -> None:
    """A cache that the program does not close is closed at exit, so it opens without a rebuild."""
    run_child(
        """
        import sys, shale
        cache = shale.Cache(sys.argv[1], capacity="8MiB")
        cache["k"] = "v"
        """,
        directory,
    )
    with shale.Cache(directory, capacity="4MiB") as cache:
        assert cache["k"] == "v"
        assert cache.stats().rebuilds == 0
