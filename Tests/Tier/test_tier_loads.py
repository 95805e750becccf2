"""Loads through a tier: of what fails, is cancelled or killed, nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest
import shale
from loaders import in_thread, waiters
from near import Machines, heard, near, remote_key
from servers import RedisServer, until
from shale.tier import AsyncTier, RemoteError, Tier
from shale.tier._format import LOADING, loading

PATIENCE = 60


class Failure(Exception):
    pass


class Loader:
    """Counts its calls, and returns their number when it is released, or raises."""

    def __init__(self, error: Exception | None = None, *, held: bool = True) -> None:
        self.calls = 0
        self.begun, self.go = threading.Event(), threading.Event()
        self._error = error
        if not held:
            self.go.set()

    def __call__(self) -> int:
        self.calls += 1
        number = self.calls
        self.begun.set()
        assert self.go.wait(PATIENCE)
        if self._error is not None:
            raise self._error
        return number


def twenty(tier: Tier, load: Loader, key: Any = "k") -> list[Any]:
    """The results of 20 callers at once, or their errors."""

    def ask() -> Any:
        try:
            return tier.lookup_or_load(key, load)
        except Failure as error:
            return error

    calls = [in_thread(ask)]
    assert load.begun.wait(PATIENCE)
    calls += [in_thread(ask) for _ in range(19)]
    until(lambda: len(waiters()) == 19)
    load.go.set()
    return [call() for call in calls]


def test_a_failure_goes_to_all_that_wait_and_leaves_no_marker(server: RedisServer, machine: Machines) -> None:
    tier, error = machine(), Failure()
    load = Loader(error)
    assert [each is error for each in twenty(tier, load)] == [True] * 20
    assert load.calls == 1
    assert server.client().get(remote_key("k")) is None
    # Another machine stores what it loads.
    other = machine("two")
    assert other.get_or_load("k", lambda: "loaded") == "loaded"
    assert near(tier, "k") == "loaded"


def test_a_value_that_cannot_be_encoded_is_a_failure(server: RedisServer, machine: Machines) -> None:
    tier = machine()
    for _ in range(2):
        with pytest.raises(TypeError, match="serializer"):
            tier.get_or_load("k", object)
    assert server.client().get(remote_key("k")) is None


def test_a_cancelled_load_leaves_no_marker(server: RedisServer, machine: Machines) -> None:
    tier = machine()

    async def main() -> None:
        begun = asyncio.Event()

        async def load() -> int:
            begun.set()
            await asyncio.sleep(PATIENCE)
            return 1

        async def second() -> int:
            return 2

        coroutines = AsyncTier(tier)
        first = asyncio.ensure_future(coroutines.get_or_load("k", load))
        await begun.wait()
        waits = asyncio.ensure_future(coroutines.get_or_load("k", second))
        while len(waiters()) < 1:
            await asyncio.sleep(0.001)
        assert server.client().get(remote_key("k")).startswith(LOADING)
        first.cancel()
        assert await waits == 2
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(main())
    assert near(tier, "k") == 2


def test_the_marker_of_a_killed_process_is_taken_over_by_its_machine(server: RedisServer, machine: Machines) -> None:
    tier, other = machine(), machine("two")
    marker = loading(tier._near.machine)
    server.client().set(remote_key("k"), marker, px=PATIENCE * 1000)
    # To other machines a load runs.
    assert other.lookup_or_load("k", lambda: "beside").value == "beside"
    assert server.client().get(remote_key("k")) == marker
    assert tier.get_or_load("k", lambda: "loaded") == "loaded"
    heard(other)
    assert other.get("k") == "loaded"


def test_callers_share_a_load_beside_that_of_another_machine(server: RedisServer, machine: Machines) -> None:
    # (No value ages in the near cache, however long a busy machine takes.)
    tier, other = machine(bound=60), machine("two")
    long_load, load = Loader(), Loader()
    first = in_thread(lambda: other.get_or_load("k", long_load))
    assert long_load.begun.wait(PATIENCE)
    # The other machine's marker is a change: a load that began before it is heard is not kept.
    heard(tier)
    results = twenty(tier, load)
    assert {each.value for each in results} == {1}
    assert load.calls == 1
    # It is kept near, until the other machine stores its value.
    assert near(tier, "k") == 1
    server.client().set(remote_key("other"), b"")
    assert tier.lookup("k").source == "near"
    long_load.go.set()
    first()
    heard(tier)
    assert tier.lookup("k").source == "remote"


def test_a_change_ends_what_was_loaded_beside_another_machine(machine: Machines) -> None:
    tier, other = machine(), machine("two")
    long_load = Loader()
    first = in_thread(lambda: other.get_or_load("k", long_load, tags=["t"]))
    assert long_load.begun.wait(PATIENCE)
    changes: list[Callable[[], object]] = [lambda: other.remove("k"), lambda: other.invalidate("t")]
    for change in changes:
        assert tier.lookup_or_load("k", lambda: "old", tags=["t"]).value == "old"
        change()
        heard(tier)
        assert tier.lookup_or_load("k", lambda: "new", tags=["t"]).value == "new"
        tier.remove("k")
        heard(tier)
    long_load.go.set()
    first()


def no_memory(server: RedisServer) -> str:
    server.client().config_set("maxmemory-policy", "noeviction")
    server.client().config_set("maxmemory", "1")
    return "maxmemory"


def no_replicas(server: RedisServer) -> str:
    server.client().config_set("min-replicas-to-write", "1")
    return "replicas"


def no_right(server: RedisServer) -> str:
    server.client().execute_command("ACL", "SETUSER", "default", "-@write", "-eval")
    return "permission"


@pytest.mark.parametrize("refuse", [no_memory, no_replicas, no_right])
def test_a_remote_that_refuses_writes(
    server: RedisServer, machine: Machines, refuse: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tier = machine(bound=600)
    cause = refuse(server)
    load = Loader()
    results = twenty(tier, load)
    assert {each.value for each in results} == {1}
    for _ in range(180):
        assert tier.get_or_load("k", load) == 1
    assert load.calls == 1
    (told,) = [each for each in results if each.source == "loaded"]
    assert cause in str(told.error)
    for number in range(5):
        assert tier.lookup_or_load(number, Loader(held=False)).error is not None
    logged = [each.getMessage() for each in caplog.records if "store" in each.getMessage()]
    assert len(logged) == 1
    assert cause in logged[0]


@pytest.mark.parametrize("way", ["refused", "away"])
def test_a_tag_ends_what_was_loaded_without_the_remote(server: RedisServer, machine: Machines, way: str) -> None:
    tier = machine(bound=600, timeout=0.5)
    if way == "refused":
        no_memory(server)
    else:
        tier.proxy.refuse()
        tier.proxy.cut()
        until(lambda: not tier.listens)
    load = Loader(held=False)
    for _ in range(2):
        assert tier.get_or_load("k", load, tags=["t"]) == 1
    assert load.calls == 1
    with suppress(RemoteError):
        tier.invalidate("t")
    assert tier.get_or_load("k", load, tags=["t"]) == 2


@pytest.mark.parametrize("there", ["whole", "cut off"])
def test_a_value_of_another_serializer_is_none(
    server: RedisServer, machine: Machines, tmp_path: Path, there: str
) -> None:
    """On the same machine, too."""
    plain, pickles = machine(bound=600), machine(bound=600, serializer=shale.PickleSerializer())
    pickles.set("k", 1j)
    if there == "cut off":
        raw = server.client().get(remote_key("k"))
        server.client().set(remote_key("k"), raw[:-1])
    heard(plain)
    found = {"whole": 1j, "cut off": None}[there]
    for _ in range(2):
        assert plain.get("k", "none") == "none"
        assert pickles.get("k") == found
    load = Loader(held=False)
    assert plain.get_or_load("k", load) == 1
    heard(plain)
    assert [plain.get("k"), pickles.get("k")] == [1, 1]
    assert plain.get_or_load("k", load) == 1
    assert load.calls == 1


READER = """
    import os, signal, sys
    import redis
    from shale.tier import Tier
    from shale.tier._redis import Redis

    tier = Tier(sys.argv[1], redis.Redis(port=int(sys.argv[2])), timeout=5.0, bound=0.5)

    def stop(*_arguments, **_options):
        print("stops", flush=True)
        os.kill(os.getpid(), int(sys.argv[3]))

    setattr(Redis, sys.argv[4], stop)
    tier.get_or_load("k", lambda: 1)
"""


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("method, value", [("fetch", "there"), ("end_load", "loaded")])
def test_a_process_that_stops_while_it_reads_or_stores_delays_no_other(
    server: RedisServer, machine: Machines, number: signal.Signals, method: str, value: str
) -> None:
    tier = machine(timeout=5.0)
    other = machine("two")
    if method == "fetch":
        other.set("k", value)
    program = [sys.executable, "-c", textwrap.dedent(READER)]
    child = Popen(
        [*program, tier._cache.directory, str(server.port), str(int(number)), method],
        stdout=PIPE,
        text=True,
        env=os.environ,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "stops\n"
        began = time.monotonic()
        assert tier.get_or_load("k", lambda: "loaded") == value
        # Half of the time limit; a lease of 30 seconds would be waited for.
        assert time.monotonic() - began < 20
    finally:
        child.kill()
        child.wait()


def test_a_load_that_takes_longer_than_the_bound_serves_all_that_wait(machine: Machines, tmp_path: Path) -> None:
    tier = machine(bound=0.05)
    tier.proxy.refuse()
    load = Loader()

    def slowly() -> int:
        time.sleep(0.3)
        return load()

    load.go.set()
    calls = [in_thread(lambda: tier.get_or_load("k", slowly)) for _ in range(20)]
    assert {call() for call in calls} <= {1, 2}
    assert load.calls <= 2
