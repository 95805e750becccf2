"""A load that a signal handler's exception ends, at any point of Shale's code, blocks no key and
leaves nothing behind."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest
from support import SMALL, run_child

import shale

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 10),
    reason="in Python 3.9 an exception at the end of a with statement may leave its lock locked",
)

COUNT = int(os.environ.get("SHALE_INTERRUPTIONS", "2000"))
KEYS = 4

COMMON = f"""
    import asyncio, os, random, signal, sys, threading
    import shale
    from loaders import in_thread, until
    from shale._loading import in_flight
    from shale._store import heartbeat

    PACKAGE = os.path.dirname(shale.__file__)

    class Rung(BaseException):
        pass

    rung = 0
    armed = False

    def ring(_number, frame):
        global armed, rung
        if not armed:
            return
        # What interrupts asyncio or this test proves nothing about Shale. The next round tries
        # again: another timer, set here, could interrupt this handler, and so on until the stack
        # is full.
        while not frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back if DEEP else None
            if frame is None:
                return
        armed = False
        rung += 1
        raise Rung

    cache = shale.Cache(sys.argv[1])
    chance = random.Random(int(sys.argv[2]))
    signal.signal(signal.SIGALRM, ring)

    def interrupt(work, longest):
        global armed
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, longest))
            work()
        except Rung:
            pass
        armed = False

    def check():
        # A lease would last for an hour.
        for key in range({KEYS}):
            cache.remove(key)
            result = in_thread(lambda: cache.get_or_load(key, lambda: "after", lease=3600))
            assert result() == "after", key
            cache.remove(key)
        until(lambda: not heartbeat._heartbeat._due)
        assert in_flight._keys == {{}}
        with shale.Cache(sys.argv[1]) as other:
            for key in range({KEYS}):
                with other.lease(key) as lease:
                    assert lease.granted
"""

LOADING = """
    # Also in what Shale calls.
    DEEP = True

    def work():
        key = chance.randrange(4)
        cache.get_or_load(key, lambda: None, lease=3600)
        cache.remove(key)
"""

WAITING = """
    DEEP = True

    # Another thread loads, too.
    def load():
        for _ in range(30):
            pass

    def others():
        other = random.Random(1)
        while going:
            cache.get_or_load(other.randrange(4), load, lease=3600)
            cache.remove(other.randrange(4))

    going = True
    result = in_thread(others)

    def work():
        key = chance.randrange(4)
        cache.get_or_load(key, lambda: None, lease=3600)
        cache.remove(key)
"""

COROUTINES = """
    DEEP = False

    async def main():
        coroutines = shale.AsyncCache(cache)

        async def load():
            await asyncio.sleep(0)

        keys = [chance.randrange(4) for _ in range(12)]
        await asyncio.gather(
            *(coroutines.get_or_load(key, load, lease=3600) for key in keys),
            return_exceptions=True,
        )
        for key in keys:
            cache.remove(key)

    def work():
        asyncio.run(main())
"""

RUN = """
    try:
        while rung < int(sys.argv[3]):
            interrupt(work, {longest})
    finally:
        # An error ends the other thread too, or the process would not end.
        going = False
    if "result" in globals():
        result()
    check()
    print(rung)
"""


@pytest.mark.parametrize(
    ("script", "longest", "count"),
    [
        (LOADING, 2e-4, COUNT),
        (WAITING, 1e-3, COUNT // 4),
        (COROUTINES, 2e-3, COUNT // 8),
    ],
    ids=["loading", "waiting", "coroutines"],
)
def test_an_interruption_leaves_nothing_behind(
    directory: Path, script: str, longest: float, count: int
) -> None:
    shale.Cache(directory, capacity=SMALL).close()
    seed = int(os.environ.get("SHALE_SEED", random.randrange(1 << 30)))
    print(f"SHALE_SEED={seed}")
    run = COMMON + script + RUN.format(longest=longest)
    assert int(run_child(run, directory, seed, count)) == count
    with shale.Cache(directory) as cache:
        for key in range(KEYS):
            cache.remove(key)
            assert cache.get_or_load(key, lambda: "after", lease=3600) == "after"
