"""`AsyncTier`: what is its own. All else is the tier's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from near import Machines, heard, is_heard, near, remote_key
from proxy import DATA
from servers import RedisServer, until

import shale
from shale.tier import AsyncTier, RemoteError, Tier


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
        # The loop runs on.
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
