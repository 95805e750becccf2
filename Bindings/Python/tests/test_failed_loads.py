"""A load that fails ends the waits for it, with its failure; a load that is cancelled does not."""

from __future__ import annotations

import asyncio
import pickle
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
from loaders import PATIENCE, Failure, Loader, in_thread, is_free, until, waiting
from support import run_child, start_child

import shale
from shale._loading import attempts
from shale._store import heartbeat

CALLERS = 20
LEASE = 3600
"""Seconds: a caller that waits for its end hangs."""


@pytest.fixture
def unpolled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting call looks only when it is woken."""
    for name in ("_FIRST_PAUSE", "_LONGEST_PAUSE", "_LONGEST_WAIT"):
        monkeypatch.setattr(attempts, name, LEASE)


class Failing(Loader):
    """Raises `error` each time. If held, waits for `go` first."""

    def __init__(self, error: BaseException, *, held: bool = False) -> None:
        super().__init__(held=held)
        self.error = error

    def __call__(self) -> int:
        super().__call__()
        raise self.error


def outcome(work: Any) -> Any:
    """The exception that it raises, or its result."""
    try:
        return work()
    except BaseException as error:
        return error


def ask_at_once(cache: shale.Cache, load: Any, count: int = CALLERS, **options: Any) -> list[Any]:
    """What the callers get who wait for one load: as many threads as coroutines. The first is the
    one who loads, in a thread."""
    other = shale.Cache(cache.directory)
    caches = [cache, other]

    def ask(number: int) -> Any:
        return outcome(lambda: caches[number % 2].get_or_load("k", load, lease=LEASE, **options))

    async def ask_all() -> list[Any]:
        async def ask_one(number: int) -> Any:
            async def load_async() -> Any:
                return load()

            try:
                coroutines = shale.AsyncCache(caches[number % 2])
                return await coroutines.get_or_load("k", load_async, lease=LEASE, **options)
            except Exception as error:
                return error

        return await asyncio.gather(*map(ask_one, range(count)))

    results = [in_thread(lambda: ask(0))]
    assert load.begun.wait(PATIENCE)
    results += [in_thread(lambda number=number: ask(number)) for number in range(1, count)]  # type: ignore[misc]
    loop = in_thread(lambda: asyncio.run(ask_all()))
    until(lambda: waiting(cache) == 2 * count - 1)
    load.go.set()
    found: list[Any] = [result() for result in results] + loop()
    other.close()
    return found


def free_of_loads(cache: shale.Cache) -> None:
    cache.remove("k")
    assert is_free(cache)
    assert waiting(cache) == 0
    assert heartbeat._heartbeat._due == {}


@pytest.mark.usefixtures("unpolled")
def test_all_who_waited_get_the_one_failure(cache: shale.Cache) -> None:
    load = Failing(Failure("once"), held=True)
    found = ask_at_once(cache, load)
    assert all(each is load.error for each in found), found
    assert load.calls == 1
    assert cache.stats().own.failed == 1
    free_of_loads(cache)


def test_the_failure_has_the_traceback_of_its_load(cache: shale.Cache) -> None:
    """And no more of it for each caller."""
    load = Failing(Failure("once"), held=True)
    found = ask_at_once(cache, load)
    assert found[-1] is load.error
    names = [frame.name for frame in traceback.extract_tb(load.error.__traceback__)]
    assert names.count("__call__") == 1
    assert len(names) < 3 * CALLERS


def test_a_load_that_fails_between_the_lookup_and_the_wait(
    cache: shale.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Failing(Failure("once"), held=True)
    first = in_thread(lambda: outcome(lambda: cache.get_or_load("k", load, lease=LEASE)))
    assert load.begun.wait(PATIENCE)
    look = attempts.LoadAttempt.look

    def slow(attempt: attempts.LoadAttempt) -> Any:
        found = look(attempt)
        load.go.set()
        assert first() is load.error
        return found

    monkeypatch.setattr(attempts.LoadAttempt, "look", slow)
    with pytest.raises(Failure) as raised:
        cache.get_or_load("k", load, lease=LEASE)
    assert raised.value is load.error
    assert load.calls == 1


def test_who_asks_after_the_failure_loads(cache: shale.Cache) -> None:
    load = Failing(Failure("once"))
    for number in range(1, 4):
        with pytest.raises(Failure) as raised:
            cache.get_or_load("k", load)
        assert raised.value is load.error
        assert load.calls == number
    assert cache.get_or_load("k", lambda: 1) == 1


@pytest.mark.usefixtures("unpolled")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_who_waits_for_an_interrupted_load_loads(cache: shale.Cache, kind: Any) -> None:
    """One of them, for all; only its own caller gets the exception."""
    interrupted = Failing(kind(), held=True)
    first = in_thread(lambda: cache.get_or_load("k", interrupted, lease=LEASE))
    assert interrupted.begun.wait(PATIENCE)
    load = Loader()
    rest = [in_thread(lambda: cache.get_or_load("k", load, lease=LEASE)) for _ in range(CALLERS)]
    until(lambda: waiting(cache) == CALLERS)
    interrupted.go.set()
    with pytest.raises(kind):
        first()
    assert [each() for each in rest] == [1] * CALLERS
    assert load.calls == 1
    free_of_loads(cache)


@pytest.mark.usefixtures("unpolled")
def test_who_waits_for_a_cancelled_task_loads(cache: shale.Cache) -> None:
    count = 50

    async def main() -> None:
        coroutines = shale.AsyncCache(cache)
        calls = 0

        async def hang() -> Any:
            begun.set()
            await asyncio.sleep(10 * PATIENCE)

        async def load() -> int:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0.001)
            return calls

        begun = asyncio.Event()
        first = asyncio.ensure_future(coroutines.get_or_load("k", hang, lease=LEASE))
        await begun.wait()
        rest = [
            asyncio.ensure_future(coroutines.get_or_load("k", load, lease=LEASE))
            for _ in range(count)
        ]
        in_threads = [
            in_thread(lambda: cache.get_or_load("k", lambda: calls + 100, lease=LEASE))
            for _ in range(5)
        ]
        while waiting(cache) < count + 5:
            await asyncio.sleep(0.001)
        first.cancel()
        found = await asyncio.wait_for(asyncio.gather(*rest), PATIENCE)
        assert first.cancelled()
        found += [await asyncio.to_thread(each) for each in in_threads]
        assert len(set(found)) == 1
        assert calls == (found[0] == 1)

    asyncio.run(main())
    free_of_loads(cache)


def test_a_waiting_task_that_is_cancelled_ends_no_load(cache: shale.Cache) -> None:
    async def main() -> None:
        coroutines = shale.AsyncCache(cache)
        go = asyncio.Event()

        async def load() -> int:
            await go.wait()
            return 1

        async def none() -> Any:
            raise AssertionError

        first = asyncio.ensure_future(coroutines.get_or_load("k", load))
        await asyncio.sleep(0)
        rest = [asyncio.ensure_future(coroutines.get_or_load("k", none)) for _ in range(3)]
        while waiting(cache) < 3:
            await asyncio.sleep(0.001)
        rest[0].cancel()
        await asyncio.wait([rest[0]])
        go.set()
        assert await asyncio.gather(first, *rest[1:]) == [1, 1, 1]
        assert rest[0].cancelled()

    asyncio.run(main())
    free_of_loads(cache)


@pytest.mark.parametrize("begins", [True, False], ids=["begun", "not begun"])
def test_a_caller_that_is_interrupted_while_its_loads_thread_starts(
    cache: shale.Cache, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    """As a greenlet may be killed. The thread goes on, or never loads."""
    load = Loader(held=True)
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if begins:
            start(thread)
            assert load.begun.wait(PATIENCE)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.get_or_load("k", load, timeout=PATIENCE, lease=LEASE)
    assert is_free(cache) is not begins
    load.go.set()
    assert cache.get_or_load("k", load, lease=LEASE) == 1
    assert load.calls == 1
    until(lambda: not any(each.name == "shale load" for each in threading.enumerate()))
    free_of_loads(cache)


# A value that cannot be stored


def test_all_who_waited_get_a_value_that_cannot_be_stored(
    cache: shale.Cache, caplog: pytest.LogCaptureFixture
) -> None:
    for number, value in enumerate([object(), bytes(9_000_000), object()], 1):

        class Unstorable(Loader):
            def __call__(self) -> Any:
                super().__call__()
                return value  # noqa: B023

        load = Unstorable(held=True)
        found = ask_at_once(cache, load)
        assert all(each is value for each in found), found
        assert load.calls == 1
        assert cache.stats().own.unstored == number
        assert "k" not in cache
    assert len([each for each in caplog.records if each.name == "shale"]) == 1
    free_of_loads(cache)


# Other processes

ASK = """
    import sys, threading, shale
    from loaders import until, waiting

    def load():
        print("loads", flush=True)
        return 1

    def say():
        until(lambda: waiting(cache))
        print("waits", flush=True)

    with shale.Cache(sys.argv[1]) as cache:
        saying = threading.Thread(target=say)
        saying.start()
        try:
            print(cache.get_or_load("k", load, lease=3600))
        except shale.LoadFailed as error:
            print(type(error).__name__, error.key, error.type, error.message)
        saying.join()
"""


def waiting_processes(directory: Any, count: int) -> list[Any]:
    children = [start_child(ASK, directory) for _ in range(count)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "waits\n"
    return children


def outputs(children: list[Any]) -> list[str]:
    found = [child.communicate(timeout=2 * PATIENCE)[0] for child in children]
    assert [child.returncode for child in children] == [0] * len(children)
    return found


def test_other_processes_that_waited_are_told_of_the_failure(cache: shale.Cache) -> None:
    load = Failing(Failure("the message"), held=True)
    first = in_thread(lambda: outcome(lambda: cache.get_or_load("k", load, lease=LEASE)))
    assert load.begun.wait(PATIENCE)
    children = waiting_processes(cache.directory, 7)
    load.go.set()
    assert first() is load.error
    assert outputs(children) == ["LoadFailed k loaders.Failure the message\n"] * 7
    assert load.calls == 1
    free_of_loads(cache)
    # Who asks after it loads.
    script = "import sys, shale; print(shale.Cache(sys.argv[1]).get_or_load('k', lambda: 1))"
    assert run_child(script, cache.directory) == "1\n"


def test_other_processes_are_told_of_a_failure_although_the_next_load_runs(
    cache: shale.Cache,
) -> None:
    failing, second = Failing(Failure("the message"), held=True), Loader(held=True)

    def load_twice() -> int:
        with pytest.raises(Failure):
            cache.get_or_load("k", failing, lease=LEASE)
        return cache.get_or_load("k", second, lease=LEASE)

    both = in_thread(load_twice)
    assert failing.begun.wait(PATIENCE)
    children = waiting_processes(cache.directory, 2)
    failing.go.set()
    assert outputs(children) == ["LoadFailed k loaders.Failure the message\n"] * 2
    assert second.begun.wait(PATIENCE)
    second.go.set()
    assert both() == 1


def test_other_processes_are_not_told_of_an_interrupted_load(cache: shale.Cache) -> None:
    """One of them loads at once."""
    load = Failing(KeyboardInterrupt(), held=True)
    first = in_thread(lambda: outcome(lambda: cache.get_or_load("k", load, lease=LEASE)))
    assert load.begun.wait(PATIENCE)
    children = waiting_processes(cache.directory, 3)
    load.go.set()
    assert isinstance(first(), KeyboardInterrupt)
    assert sorted(outputs(children)) == ["1\n", "1\n", "loads\n1\n"]
    free_of_loads(cache)


def test_load_failed_can_be_pickled() -> None:
    error = shale.LoadFailed(("k", 1), "module.Kind", "why")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.key, copy.type, copy.message) == (("k", 1), "module.Kind", "why")
    assert str(copy) == str(error)
    assert isinstance(copy, shale.Error)


# The pause after a failure


def test_in_the_pause_the_failure_is_repeated(cache: shale.Cache, directory: Path) -> None:
    load = Failing(Failure("once"))
    options: Any = {"retry_after": 3600}
    with shale.Cache(directory) as other:
        for each in (cache, other, cache):
            with pytest.raises(Failure) as raised:
                each.get_or_load("k", load, **options)
            assert raised.value is load.error
    assert load.calls == 1
    # A caller that gives no retry_after loads, and its value ends the pause.
    assert cache.get_or_load("k", lambda: 1) == 1
    cache.remove("k")
    assert cache.get_or_load("k", lambda: 2, **options) == 2


def test_in_the_pause_other_processes_do_not_load(cache: shale.Cache, directory: Path) -> None:
    ask = """
        import sys, shale
        from loaders import never

        with shale.Cache(sys.argv[1]) as cache:
            for key in ("k", "stale"):
                try:
                    found = cache.entry_or_load(key, never, retry_after=3600)
                    error = found.error
                    print(found.value, found.stale)
                except shale.LoadFailed as raised:
                    error = raised
                print(type(error).__name__, error.key, error.type, error.message)
    """
    cache.set("stale", "old", max_age=0, stale=600)
    for key in ("k", "stale"):
        with pytest.raises(Failure):
            cache.get_or_load(key, Failing(Failure(f"of {key}")), retry_after=3600)
    assert run_child(ask, directory).splitlines() == [
        "LoadFailed k loaders.Failure of k",
        "old True",
        "LoadFailed stale loaders.Failure of stale",
    ]


def test_after_the_pause_one_loads(cache: shale.Cache) -> None:
    with pytest.raises(Failure):
        cache.get_or_load("k", Failing(Failure()), retry_after=0.01)
    threading.Event().wait(0.05)
    load = Loader()
    assert cache.get_or_load("k", load, retry_after=3600) == 1
