"""Waits for a lock of the cache that another process holds: logged once, and bounded."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import SMALL, let_go, run_child, start_child

import shale

HOLD_SHARD = """
import fcntl, mmap, os, struct, sys
file = open(sys.argv[1] + "/shale.index", "r+b")
index = mmap.mmap(file.fileno(), 0)
# An owner has a number, a row that names its process, and a lock of the kernel (format.md). The
# shard's lock is in its header, behind the index's head.
OWNER, LOCK, F_OFD_SETLK = 1 << 29, 3 * 4096 + 8, 37
namespace = os.stat("/proc/self/ns/pid").st_ino & 0xFFF
struct.pack_into("=Q", index, 160 + OWNER % 32 * 8, OWNER | namespace << 30 | os.getpid() << 42)
fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, (1 << 61) + OWNER, 1, 0))
assert struct.unpack_from("=I", index, LOCK) == (0,)
struct.pack_into("=I", index, LOCK, OWNER)
print("held", flush=True)
sys.stdin.readline()
struct.pack_into("=I", index, LOCK, 0)
"""

HOLD_SETUP = """
import fcntl, os, struct, sys
fd = os.open(sys.argv[1] + "/shale.data", os.O_RDWR)
F_OFD_SETLK = 37
fcntl.fcntl(fd, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 1 << 60, 1, 0))
print("held", flush=True)
sys.stdin.readline()
"""


@contextmanager
def held(directory: Path, lock: str = HOLD_SHARD) -> Iterator[int]:
    """The number of a process that holds the lock of the only shard. The lock is free when it
    ends."""
    holder = start_child(lock, directory)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        yield holder.pid
    finally:
        let_go([holder])


def waits(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if "waited" in each.message]


def test_busy(tmp_path: Path) -> None:
    with shale.Cache[str, str](tmp_path, capacity=SMALL, lock_timeout=0.03) as cache:
        cache["key"] = "before"
        with held(tmp_path) as holder:
            for change in (
                lambda: cache.set("key", "after"),
                lambda: cache.remove("key"),
                lambda: cache.update({"key": "after", "other": "after"}),
                lambda: cache.incr("counter"),
                cache.clear,
                lambda: cache.get_or_load("missing", lambda: "loaded"),
            ):
                with pytest.raises(shale.BusyError) as raised:
                    change()
                said = str(raised.value)
                assert f"{tmp_path}/shale.index" in said
                assert f"process {holder} (python" in said
                assert said.endswith("; continue or end it, or raise lock_timeout")
            assert cache["key"] == "before"
        cache["key"] = "after"
        assert cache["key"] == "after"


def test_limits(tmp_path: Path) -> None:
    for wrong in (-1, float("nan")):
        with pytest.raises(shale.InvalidError):
            shale.Cache(tmp_path, lock_timeout=wrong)
    with pytest.raises(TypeError):
        shale.Cache(tmp_path, lock_timeout="1")  # type: ignore[arg-type]
    # None is the default, and 0 is the shortest timeout.
    with shale.Cache[str, str](tmp_path, capacity=SMALL, lock_timeout=0) as cache:
        same = pickle.loads(pickle.dumps(cache))
        with same, held(tmp_path):
            for each in (cache, same):
                with pytest.raises(shale.BusyError):
                    each["key"] = "value"


def test_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "shale")
    with shale.Cache[str, str](tmp_path, capacity=SMALL, lock_timeout=3600) as cache:
        with held(tmp_path) as holder:
            threads = [threading.Thread(target=cache.set, args=("key", str(i))) for i in range(3)]
            for thread in threads:
                thread.start()
            while not waits(caplog):
                time.sleep(0.01)
            time.sleep(0.3)
            said = waits(caplog)
            assert all(thread.is_alive() for thread in threads)
        for thread in threads:
            thread.join()
        assert len(said) == 1
        assert f"{tmp_path}/shale.index" in said[0]
        assert f"process {holder} (python" in said[0]
        assert said[0].endswith("; continue or end it")
        assert cache["key"] in "012"
    assert len(waits(caplog)) == 1


SIGNAL = """
import signal, sys
import shale

class Rung(Exception):
    pass

def ring(*_):
    raise Rung

cache = shale.Cache(sys.argv[1], lock_timeout=1.2)
signal.signal(signal.SIGALRM, ring)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    cache["key"] = b"value"
except (Rung, shale.BusyError) as error:
    found = error
while not isinstance(found, Rung):
    found = found.__context__
"""


def test_what_a_signal_raises_is_not_lost(tmp_path: Path) -> None:
    """During the wait, and not in the callback that reports it."""
    shale.Cache(tmp_path, capacity=SMALL).close()
    with shale.Cache(tmp_path), held(tmp_path):
        run_child(SIGNAL, tmp_path)


def test_opening(tmp_path: Path) -> None:
    """While another process holds the setup lock."""
    shale.Cache(tmp_path, capacity=SMALL).close()
    with held(tmp_path, HOLD_SETUP):
        options: list[Any] = [
            {},
            {"read_only": True},
            {"capacity": "16MiB", "accept_capacity": True},
        ]
        for each in options:
            with pytest.raises(shale.BusyError, match="cannot be found holds; continue or end it"):
                shale.Cache(tmp_path, lock_timeout=0.03, **each)
    shale.Cache(tmp_path, lock_timeout=0.03).close()
