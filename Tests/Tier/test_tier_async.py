"""`AsyncTier`: its own parts. The rest is the tier's."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.sentinel
import shale
import valkey
from near import Machines, heard, is_heard, near, remote_key
from proxy import DATA
from pymemcache import Client
from servers import PATIENCE, MemcachedServer, RedisServer, until
from shale import InvalidError
from shale.tier import AsyncTier, RemoteError, Tier
from shale.tier._format import LOADING
from shale.tier._io import Exchange, Sleep
from shale.tier._wire import AsyncWire, Wire, before


def coroutines(tier: Tier) -> Any:
    return AsyncTier(tier)


def test_it_does_what_a_tier_does(server: RedisServer, tmp_path: Path) -> None:
    async def work() -> None:
        options: dict[str, Any] = {"bound": 0.5, "timeout": 5.0, "capacity": "8MiB"}
        async with await AsyncTier.open(tmp_path / "near", server.client(), **options) as tier:
            await asyncio.to_thread(until, lambda: is_heard(tier.tier))
            await tier.set("k", [1], tags=["t"], max_age=1000)
            assert await tier.get("k") == [1]
            await asyncio.to_thread(near, tier.tier, "k")
            found = await tier.lookup("k")
            assert found[:2] == ([1], "near")
            await tier.invalidate("t")
            assert await tier.get("k", "none") == "none"
            await tier.set("k", 2)
            assert await tier.remove("k")
            assert await tier.get("k") is None

            async def load() -> int:
                return 3

            assert await tier.get_or_load("k", load) == 3
            assert await tier.get_or_load("none", missing, default="d") == "d"
            with pytest.raises(TypeError, match="loader of a coroutine is async"):
                await tier.get_or_load("other", lambda: 1)  # type: ignore[arg-type, return-value]
            with pytest.raises(TypeError, match="AsyncTier"):
                tier.tier.get_or_load("other", load)

    async def missing() -> shale.Missing:
        return shale.Missing()

    asyncio.run(work())


def test_many_coroutines_miss_at_once(machine: Machines, server: RedisServer) -> None:
    tier = machine(bound=30.0)
    server.client().set(remote_key("k"), b"1")
    heard(tier)
    proxy = tier.proxy

    async def work() -> None:
        found = [asyncio.ensure_future(AsyncTier(tier).get("k")) for _ in range(100)]
        await asyncio.to_thread(proxy.wait_held, DATA, False)
        # The event loop continues.
        await asyncio.sleep(0.01)
        proxy.go()
        assert await asyncio.gather(*found) == [b"1"] * 100

    tier.get("other")
    reads = server.reads()
    proxy.hold(DATA, False)
    asyncio.run(work())
    assert server.reads() == reads + 1


def test_a_remote_that_is_away(machine: Machines) -> None:
    tier = machine()
    tier.set("k", 1)
    assert near(tier, "k") == 1
    tier.proxy.refuse()
    tier.proxy.cut()

    async def work() -> None:
        own = AsyncTier(tier)
        with pytest.raises(RemoteError):
            await own.get("new")
        with pytest.raises(RemoteError):
            await own.set("new", 1)
        await asyncio.to_thread(until, lambda: tier.lookup("k", stale=True).stale)
        assert (await own.lookup("k", stale=True))[:4] == (1, "near", False, True)

    asyncio.run(work())


def test_a_load_that_is_cancelled_makes_room(machine: Machines) -> None:
    tier = machine()

    async def never() -> int:
        await asyncio.sleep(1000)
        return 1

    async def work() -> None:
        own = AsyncTier(tier)
        task = asyncio.ensure_future(own.get_or_load("k", never))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async def load() -> int:
            return 2

        assert await own.get_or_load("k", load) == 2

    asyncio.run(work())


def test_many_different_keys_at_once(machine: Machines, server: RedisServer) -> None:
    """By up to 32 connections, and without the threads of the event loop."""
    # (By its address, as asyncio resolves names in the default executor.)
    tier = machine(remote=lambda port: redis.Redis("127.0.0.1", port), timeout=60.0, bound=600)
    for number in range(500):
        server.client().set(remote_key(number), b"%d" % number)
    heard(tier)
    tier.proxy.hold(DATA, False)

    def used() -> int:
        return sum(each.kind == DATA for each in list(tier.proxy.links))

    async def work() -> None:
        own = AsyncTier(tier)
        with busy_executor():
            found = [asyncio.ensure_future(own.get(number)) for number in range(500)]
            while used() < 32:
                await asyncio.sleep(0.01)
            tier.proxy.go()
            assert await asyncio.gather(*found) == [b"%d" % number for number in range(500)]
            assert used() == 32
            await own.close()

    asyncio.run(work())


@contextmanager
def busy_executor() -> Iterator[None]:
    """The default executor of the running event loop does nothing."""
    go = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    loop.run_in_executor(None, go.wait)
    try:
        yield
    finally:
        go.set()


def test_no_connection_is_free_in_time(machine: Machines) -> None:
    async def work() -> None:
        made, go = 0, asyncio.Event()

        class Connection:
            server = b""
            is_idle = True

            async def call(self, commands: Any, deadline: float) -> list[Any]:
                await go.wait()
                return [b"v"]

        async def connect(deadline: float) -> Connection:
            nonlocal made
            made += 1
            return Connection()

        wire = AsyncWire(connect, Wire(lambda deadline: None, 60, 60, most=2))
        late = time.monotonic() + 60
        used = [asyncio.ensure_future(wire.exchange(Exchange([["GET", "k"]], late))) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(RemoteError, match="all 2 connections that the client allows are in use"):
            await wire.exchange(Exchange([["GET", "k"]], time.monotonic() + 0.01))
        # One that is cancelled while it waits takes no place.
        used.pop().cancel()
        go.set()
        assert [answer.replies for answer in await asyncio.gather(*used)] == [[b"v"], [b"v"]]
        for _ in range(3):
            await wire.exchange(Exchange([["GET", "k"]], late))
        assert made == 2

    asyncio.run(work())


def test_a_cancelled_call_leaves_its_connection(machine: Machines, server: RedisServer) -> None:
    tier = machine(timeout=60.0)
    for key in "ab":
        server.client().set(remote_key(key), key.encode())
    tier.proxy.hold(DATA, False)

    async def work() -> None:
        own = AsyncTier(tier)
        first = asyncio.ensure_future(own.get("a"))
        await asyncio.to_thread(tier.proxy.wait_held, DATA, False)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        tier.proxy.go()
        # It gets no reply to the cancelled one.
        assert await own.get("b") == b"b"
        assert await own.get("a") == b"a"

    asyncio.run(work())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.wait_for loses a cancellation")
def test_a_cancellation_that_comes_with_the_answer() -> None:
    async def work() -> None:
        answer = asyncio.get_running_loop().create_future()
        call = asyncio.ensure_future(before(time.monotonic() + 60, answer))
        await asyncio.sleep(0)
        answer.set_result(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(work())


def test_a_cancelled_write_counts_as_one_that_fails(machine: Machines, server: RedisServer) -> None:
    """Once it can no longer be executed."""
    tier = machine(timeout=3.0)
    tier.set("k", "old")
    assert near(tier, "k") == "old"
    tier.proxy.hold(DATA, False)

    async def work() -> None:
        own = AsyncTier(tier)
        write = asyncio.ensure_future(own.set("k", "new"))
        await asyncio.to_thread(tier.proxy.wait_held, DATA, False)
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        assert not tier._cache.get("k", peek=True)
        tier.proxy.go()

    asyncio.run(work())
    until(lambda: server.client().get(remote_key("k")) is None)


def test_a_cancelled_set_is_not_executed_after_a_newer_write(
    machine: Machines, server: RedisServer, tmp_path: Path
) -> None:
    tier = machine(timeout=3.0)
    tier.set("k", 1)
    tier.proxy.hold(DATA, True)

    async def work() -> None:
        write = asyncio.ensure_future(AsyncTier(tier).set("k", "old"))
        await asyncio.to_thread(tier.proxy.wait_held, DATA, True)
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write

    asyncio.run(work())
    # Of another process of the machine, on another way.
    with Tier(tmp_path / "one", server.client(), bound=0.5, timeout=3.0, capacity="8MiB") as other:
        other.set("k", "new")
        executed = server.client().info("commandstats")["cmdstat_eval"]["calls"]
        tier.proxy.go()
        until(lambda: server.client().info("commandstats")["cmdstat_eval"]["calls"] > executed)
        assert other.get("k") == "new"


@pytest.mark.parametrize("step", ["begin_load", "end_load"])
def test_a_load_that_is_cancelled_beside_its_loader_leaves_no_marker(
    machine: Machines, server: RedisServer, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    tier = machine()
    steps = getattr(tier._remote, step)

    def cancelled(*arguments: Any) -> Any:
        yield from steps(*arguments)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        yield Sleep(60)

    async def work() -> None:
        async def load() -> int:
            return 1

        with pytest.raises(asyncio.CancelledError):
            await AsyncTier(tier).get_or_load("k", load)

    monkeypatch.setattr(tier._remote, step, cancelled)
    asyncio.run(work())
    raw = server.client().get(remote_key("k"))
    assert raw is None if step == "begin_load" else not raw.startswith(LOADING)


def test_a_closed_event_loop_keeps_no_connection(machine: Machines, server: RedisServer) -> None:
    tier = machine(bound=600, timeout=60.0)
    own = AsyncTier(tier)
    before = server.client().info("clients")["connected_clients"]
    for number in range(5):
        asyncio.run(own.get(number))
        gc.collect()
        assert len(own._wires) == 1
    until(lambda: server.client().info("clients")["connected_clients"] <= before + 1)


@pytest.mark.parametrize("kind", ["redis", "valkey", "unix"])
def test_clients(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "socket")
    server = RedisServer(tmp_path / "server", "--unixsocket", path)
    clients: dict[str, Callable[[], Any]] = {
        "redis": lambda: redis.Redis(port=server.port),
        "valkey": lambda: valkey.Valkey(port=server.port, client_name="shale"),
        "unix": lambda: redis.Redis(unix_socket_path=path),
    }

    async def work() -> None:
        tier = await AsyncTier.open(tmp_path / "near", clients[kind](), timeout=60, capacity="8MiB")
        async with tier:
            await tier.set("k", 1)
            assert await tier.get("k") == 1

    try:
        # An event loop has connections of its own.
        for _ in range(2):
            asyncio.run(work())
    finally:
        server.stop()


def test_a_sentinel_names_the_primary(server: RedisServer, tmp_path: Path) -> None:
    client = redis.sentinel.Sentinel([("127.0.0.1", 1)]).master_for("main")
    asked = []

    class Sentinels:
        def primary(self, deadline: float) -> tuple[str, int]:
            asked.append(threading.current_thread())
            return "127.0.0.1", server.port

        def close(self) -> None:
            pass

    async def work() -> None:
        async with await AsyncTier.open(tmp_path / "near", client, timeout=60, capacity="8MiB") as tier:
            tier.tier._remote._sentinels = Sentinels()
            await tier.set("k", 1)
        assert asked and threading.current_thread() not in asked

    asyncio.run(work())


def test_options_that_connections_for_asyncio_lack(server: RedisServer, tmp_path: Path) -> None:
    class Own(redis.Connection):  # type: ignore[misc]
        pass

    with Tier(tmp_path / "one", server.client(), capacity="8MiB") as tier:
        tier._remote._connector.options["command_packer"] = object()
        with pytest.raises(InvalidError, match="connections for asyncio have no option command_packer"):
            AsyncTier(tier)
    pool = redis.ConnectionPool(connection_class=Own, port=server.port)
    with (
        Tier(tmp_path / "two", redis.Redis(connection_pool=pool), capacity="8MiB") as tier,
        pytest.raises(InvalidError, match="like Own: give a client without a connection class"),
    ):
        AsyncTier(tier)


@pytest.mark.parametrize("kind", ["redis", "memcached"])
def test_a_child_of_fork(server: RedisServer, tmp_path: Path, kind: str) -> None:
    memcached = MemcachedServer(tmp_path / "memcached")
    client = server.client() if kind == "redis" else Client(("127.0.0.1", memcached.port))
    try:
        with Tier(tmp_path / "near", client, timeout=60, capacity="8MiB") as tier:
            own = AsyncTier(tier)
            with closing(asyncio.new_event_loop()) as loop:
                loop.run_until_complete(own.set("k", 1))
                wires = list(own._wires.values())
                child = os.fork()
                if child == 0:
                    status = 1
                    try:
                        asyncio.run(asyncio.wait_for(own.set("forked", 2), PATIENCE))
                        assert not any(each and each in wires for each in own._wires.values())
                        status = 0
                    finally:
                        os._exit(status)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                assert loop.run_until_complete(own.get("forked")) == 2
    finally:
        memcached.stop()


def test_memcached(tmp_path: Path) -> None:
    memcached = MemcachedServer(tmp_path / "memcached")

    async def work() -> None:
        client = Client(("127.0.0.1", memcached.port))
        async with await AsyncTier.open(tmp_path / "near", client, timeout=60, capacity="8MiB") as tier:
            with busy_executor():
                await asyncio.gather(*[tier.set(number, number) for number in range(50)])
                found = await asyncio.gather(*[tier.get(number) for number in range(50)])
            assert found == list(range(50))

    try:
        asyncio.run(work())
    finally:
        memcached.stop()
