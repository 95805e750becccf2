"""Signal handlers and finalizers run between any two instructions of a call: their exceptions leave
nothing held, and their own calls get an answer."""

from __future__ import annotations

import dis
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from loaders import PATIENCE, Failure, Loader, fail, in_thread, never, until, waiting

import shale
from shale._data.keys import LOCK, encode_key
from shale._loading import attempts, call_chain, in_flight
from shale._store import heartbeat, leases

SOURCES = str(Path(shale.__file__).parent)

# Where the interpreter runs no signal handler: between them and the instruction before.
ATOMIC = ("CALL", "PRECALL", "CACHE", "SETUP", "BEFORE_WITH")


class Interrupt(BaseException):
    pass


class Interrupter:
    """Raises where the interpreter would run a signal handler for the n-th time."""

    def __init__(self, number: int) -> None:
        self.left = number
        # (By id: a frame references what the call made.)
        self._last: dict[int, str] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Any:
        # What is raised in a finalizer is only reported.
        if not frame.f_code.co_filename.startswith(SOURCES) or frame.f_code.co_name == "__del__":
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            last, self._last[id(frame)] = self._last.get(id(frame), ""), name
            if last.startswith("CALL") and not name.startswith(ATOMIC):
                self.left -= 1
                if self.left == 0:
                    raise Interrupt
        return self


def load(cache: shale.Cache, key: int) -> None:
    cache.get_or_load(key, lambda: 1)


def failing(cache: shale.Cache, key: int) -> None:
    with pytest.raises(Failure):
        cache.get_or_load(key, fail)


def lock(cache: shale.Cache, key: int) -> None:
    # (A second: what an interrupted release leaves with the renewer goes within a third of it.)
    with cache.lock(key, lease=1):
        pass


@pytest.mark.parametrize("call", [load, failing, lock])
@pytest.mark.parametrize("keeps_the_error", [False, True])
def test_an_exception_anywhere_leaves_the_key_free(
    call: Callable[[shale.Cache, int], None], keeps_the_error: bool, directory: Path
) -> None:
    if keeps_the_error and call is lock:
        pytest.skip("the traceback references the lock")
    with shale.Cache(directory, capacity="64MiB") as cache:
        call(cache, 0)
        number, points = 0, 0
        before = sys.gettrace()
        while True:
            number += 1
            interrupter = Interrupter(number)
            kept = None
            sys.settrace(interrupter)
            try:
                call(cache, number)
            except Interrupt as error:
                kept = error if keeps_the_error else None
            finally:
                sys.settrace(before)
            if interrupter.left > 0:
                break
            points += 1
            for stored in (encode_key(number), LOCK + encode_key(number)):
                peek = leases.recorded(cache._pool, stored, 1000)
                assert peek is not None or number in cache, (number, kept)
                if peek is not None:
                    peek.release()
            assert in_flight._keys == {}
            assert attempts._looks == {}
            assert call_chain.outside_loads()
            # Another thread gets the lock of the counts.
            in_thread(cache._counts.add)()
            assert not cache._counts._new
        # (Some versions trace no opcodes.)
        assert points > 20 or sys.version_info >= (3, 12)
        until(lambda: heartbeat._heartbeat._due == {})


def test_a_call_that_interrupts_a_lookup_does_not_wait_for_it(
    cache: shale.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = leases.look
    errors: list[shale.DeadlockError] = []

    def interrupted(*arguments: Any) -> Any:
        found = look(*arguments)
        monkeypatch.setattr(leases, "look", look)
        with pytest.raises(shale.DeadlockError) as caught:
            cache.get_or_load("k", never)
        errors.append(caught.value)
        return found

    monkeypatch.setattr(leases, "look", interrupted)
    assert cache.get_or_load("k", lambda: 1) == 1
    assert len(errors) == 1


def test_a_call_that_interrupts_a_section_of_the_locks_waits_without_them(
    cache: shale.Cache,
) -> None:
    cache.get_or_load("first", lambda: 1)
    loader = Loader(held=True)
    first = in_thread(lambda: cache.get_or_load("k", loader))
    assert loader.begun.wait(PATIENCE)

    def go() -> None:
        while waiting(cache) < 1:
            time.sleep(0.001)
        loader.go.set()

    going = in_thread(go)
    changed = heartbeat.lock()
    assert changed is not None
    with in_flight.lock, in_flight.lock, changed, cache._counts._lock:
        # (If it waited with them, the loading thread could not end.)
        assert cache.get_or_load("k", never, wait=PATIENCE) == 1
        assert cache.stats().own.waits == 1
    assert first() == 1
    going()
