"""The time limit of a write, when the server's clock is moved or the client is suspended."""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from near import Machines, heard, names_in, remote_key
from proxy import DATA
from servers import PATIENCE, RedisServer, until
from shale._data.keys import encode_key
from shale.tier import AsyncTier, RemoteError
from shale.tier._near import now
from support import start_child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a library moves the server's clock by LD_PRELOAD")

# Moves the clock of a process by the seconds in a file.
CLOCK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *seconds;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("TEST_CLOCK"), O_RDONLY);
    seconds = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && seconds && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += *seconds;
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


class ClockServer(RedisServer):
    """A server whose clock a test moves."""

    def __init__(self, folder: Path) -> None:
        source, library, file = folder / "clock.c", folder / "clock.so", folder / "clock"
        folder.mkdir()
        source.write_text(CLOCK)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        file.write_bytes(bytes(mmap.PAGESIZE))
        self._file = file
        super().__init__(folder, variables={"LD_PRELOAD": str(library), "TEST_CLOCK": str(file)})

    def move(self, seconds: int) -> None:
        before = self.clock()
        with open(self._file, "r+b") as file:
            file.write(struct.pack("<q", seconds))
        assert abs(self.clock() - before) > abs(seconds) / 2

    def clock(self) -> int:
        found: int = self.client().time()[0]
        return found


def writes(server: RedisServer) -> int:
    """The number of scripts that it has executed."""
    return int(server.client().info("commandstats").get("cmdstat_eval", {"calls": 0})["calls"])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ClockServer]:
    """In place of one whose clock cannot be moved."""
    started = ClockServer(tmp_path / "server")
    yield started
    started.stop()


def set_until(tier: Any, key: Any, value: Any) -> None:
    """Sets a value, however slow the machine is."""

    def is_set() -> bool:
        try:
            tier.set(key, value)
        except RemoteError:
            return False
        return True

    until(is_set)


def set_over(tier: Any, connections: int) -> None:
    """Sets a value over each of so many connections."""
    wire = tier._remote.wire
    for number in range(connections):
        with ExitStack() as used:
            for _ in range(number):
                used.enter_context(wire.connection(time.monotonic() + PATIENCE))
            tier.set("k", number)
        assert tier.get("k") == number


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_writes_go_on_after_the_servers_clock_is_moved(server: ClockServer, machine: Machines, seconds: int) -> None:
    tier = machine(timeout=30.0)
    set_over(tier, 2)
    server.move(seconds)
    set_over(tier, 2)
    # A connection that was refused is not used again.
    before = writes(server)
    set_over(tier, 3)
    assert writes(server) == before + 3
    assert not names_in(tier._near.journal)


def test_coroutines_write_after_the_servers_clock_is_moved(server: ClockServer, machine: Machines) -> None:
    tier = machine(timeout=30.0)

    async def main() -> None:
        coroutines = AsyncTier(tier)
        await coroutines.set("k", 1)
        server.move(3600)
        await coroutines.set("k", 2)
        before = writes(server)
        await coroutines.set("k", 3)
        assert writes(server) == before + 1
        assert await coroutines.get("k") == 3

    asyncio.run(main())
    assert not names_in(tier._near.journal)


def test_a_write_that_arrives_late_is_refused_by_a_clock_that_was_set_back(
    server: ClockServer, machine: Machines
) -> None:
    tier = machine(timeout=0.3)
    heard(tier)
    set_until(tier, "k", 1)
    before = writes(server)
    tier.proxy.hold(DATA, True)
    with pytest.raises(RemoteError):
        tier.set("k", 2)
    client = server.client()
    client.set(remote_key("k"), b"newer")
    assert tier._near.journal.take(b"k" + encode_key("k"), now())
    server.move(-3600)
    tier.proxy.go()
    until(lambda: writes(server) > before)
    assert client.get(remote_key("k")) == b"newer"


SUSPENDED = """
    import os, signal, socket, sys
    import redis
    from shale.tier import RemoteError, Tier

    tier = Tier(sys.argv[1], redis.Redis(port=int(sys.argv[2])), timeout=1.0, bound=60.0)
    while True:
        try:
            tier.set("other", 1)
            break
        except RemoteError:
            pass

    send = socket.socket.sendall

    def suspend(self, data):
        # As late as possible: the client checks the time limit, too.
        if b"EVAL" in data:
            socket.socket.sendall = send
            os.kill(os.getpid(), signal.SIGSTOP)
        send(self, data)

    socket.socket.sendall = suspend
    try:
        tier.set("k", "late")
    except RemoteError:
        print("refused")
"""


def test_a_write_of_a_client_that_was_suspended_is_not_executed(server: RedisServer, tmp_path: Path) -> None:
    child = start_child(SUSPENDED, tmp_path / "near", server.port)
    try:
        assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
        suspended, before = time.monotonic(), writes(server)
        server.client().set(remote_key("k"), b"newer")
        until(lambda: time.monotonic() > suspended + 1.2)
        os.kill(child.pid, signal.SIGCONT)
        assert child.communicate(timeout=PATIENCE)[0] == "refused\n"
        until(lambda: writes(server) > before)
        # The journal may have removed it.
        assert server.client().get(remote_key("k")) in (b"newer", None)
    finally:
        child.kill()
        child.wait()
