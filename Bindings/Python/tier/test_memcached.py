"""A tier in front of memcached."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from loaders import in_thread
from near import Machines
from proxy import DATA, Proxy
from pymemcache import Client, PooledClient
from servers import MemcachedServer, until

import shale
from shale._keys import encode_key
from shale.tier import RemoteError, Tier
from shale.tier._near import now


@pytest.fixture
def memcached(tmp_path: Path) -> Iterator[MemcachedServer]:
    started = MemcachedServer(tmp_path / "server")
    yield started
    started.stop()


@pytest.fixture
def machine(memcached: MemcachedServer, tmp_path: Path) -> Iterator[Machines]:
    tiers: list[Any] = []
    proxies: dict[str, Proxy] = {}

    def make(name: str = "one", kind: Any = Client, **options: Any) -> Any:
        if name not in proxies:
            proxies[name] = Proxy(memcached.port)
        options = {"bound": 0.5, "timeout": 5.0, "capacity": "8MiB", **options}
        tier: Any = Tier(tmp_path / name, kind(("127.0.0.1", proxies[name].port)), **options)
        tier.proxy = proxies[name]
        tiers.append(tier)
        return tier

    yield make
    for each in proxies.values():
        each.go()
    for tier in tiers:
        tier.close()
    for each in proxies.values():
        each.close()


def reads(memcached: MemcachedServer) -> int:
    found: int = Client(("127.0.0.1", memcached.port)).stats()[b"cmd_get"]
    return found


@pytest.mark.parametrize("kind", [Client, PooledClient])
def test_values_come_back(machine: Machines, kind: Any) -> None:
    one, two = machine("one", kind), machine("two", kind)
    keys: list[Any] = [b"plain", "text", ("a", 1), b"with space\r\n", b"x" * 1000, "é" * 300]
    for number, key in enumerate(keys):
        one.set(key, {"n": number}, tags=["t"] * (number % 2), max_age=10**8)
    for number, key in enumerate(keys):
        assert two.get(key) == one.get(key) == {"n": number}
        assert two.remove(key)
        assert not two.remove(key)
        assert two.get(key) is None


def test_other_programs(machine: Machines, memcached: MemcachedServer) -> None:
    tier = machine()
    # (Without an answer to wait for, the tier's own connection may be the faster one.)
    client = Client(("127.0.0.1", memcached.port), default_noreply=False)
    client.set("shale:k:plain", b"5")
    assert tier.get(b"plain") == b"5"
    tier.set(b"plain", b"6")
    assert client.get("shale:k:plain") == b"6"


def test_what_is_near_is_as_old_as_the_bound(machine: Machines, memcached: MemcachedServer) -> None:
    one, two = machine("one"), machine("two")
    one.set("k", 1)
    assert two.get("k") == 1
    one.set("k", 2)
    changed = now()
    while True:
        began = now()
        if two.get("k") == 2:
            break
        assert began < changed + two._near.bound


def test_a_hit_asks_no_remote(machine: Machines, memcached: MemcachedServer) -> None:
    tier = machine(bound=600.0)
    tier.set("k", 1)
    assert tier.lookup("k")[:2] == (1, "remote")
    before = reads(memcached)
    for _ in range(10):
        assert tier.lookup("k")[:2] == (1, "near")
    assert reads(memcached) == before


def test_who_writes_reads_its_own_write(machine: Machines) -> None:
    tier, same = machine(bound=600.0), machine(bound=600.0)
    tier.set("k", 1)
    assert same.get("k") == 1
    tier.set("k", 2)
    assert same.get("k") == 2
    tier.set("k", 3, tags=["t"])
    assert same.get("k") == 3
    tier.invalidate("t")
    assert same.get("k") is None


def test_many_miss_at_once(machine: Machines, memcached: MemcachedServer) -> None:
    tier = machine(bound=600.0)
    machine("two").set("k", 1)
    proxy = tier.proxy
    tier.get("other")
    before = reads(memcached)
    proxy.hold(DATA, False)
    results = [in_thread(lambda: tier.get("k")) for _ in range(50)]
    proxy.wait_held(DATA, False)
    proxy.go()
    assert [result() for result in results] == [1] * 50
    assert reads(memcached) == before + 1


def test_tags(machine: Machines) -> None:
    one, two = machine("one"), machine("two")
    one.set("a", 1, tags=["t"])
    one.set("b", 1)
    assert two.get("a") == 1
    one.invalidate("t")
    until(lambda: two.get("a") is None)
    assert two.get("b") == 1


@pytest.mark.parametrize("way", ["set", "remove", "invalidate"])
def test_a_load_does_not_overwrite(machine: Machines, way: str) -> None:
    one, two = machine("one"), machine("two")

    def load() -> int:
        if way == "set":
            two.set("k", 2)
        elif way == "remove":
            two.remove("k")
        else:
            two.invalidate("t")
        return 1

    assert one.get_or_load("k", load, tags=["t"]) == 1
    until(lambda: one.get("k") == (2 if way == "set" else None))
    assert two.get("k") == (2 if way == "set" else None)


def test_one_machine_loads(machine: Machines) -> None:
    """Others load as well, and do not store it."""
    one, two = machine("one"), machine("two")

    def load() -> int:
        assert two.get_or_load("k", lambda: 2) == 2
        return 1

    assert one.get_or_load("k", load) == 1
    until(lambda: two.get("k") == 1)


def test_loaders(machine: Machines) -> None:
    tier = machine()
    assert tier.get_or_load("k", lambda: 1) == 1
    assert tier.get("k") == 1
    assert tier.get_or_load("none", shale.Missing, default="d") == "d"
    assert tier.get_or_load("none", lambda: 1 // 0, default="d") == "d"
    # What carries an invalidated tag is loaded anew.
    tier.set("t", 1, tags=["t"])
    tier.invalidate("t")
    assert tier.get_or_load("t", lambda: 2) == 2
    assert tier.get("t") == 2


def test_a_remote_that_hangs(machine: Machines, memcached: MemcachedServer) -> None:
    calm, tier, other = machine(), machine(timeout=0.2), machine("two")
    for key in ("k", "w", "removed"):
        calm.set(key, 1, tags=["t"])
    assert calm.get("k") == 1
    memcached.signal(signal.SIGSTOP)
    try:
        until(lambda: tier.lookup("k", stale=True).stale)
        with pytest.raises(RemoteError):
            tier.get("new")
        writes: list[Callable[[], Any]] = [
            lambda: tier.set("w", 2),
            lambda: tier.remove("removed"),
            lambda: tier.invalidate("t"),
        ]
        for write in writes:
            with pytest.raises(RemoteError):
                write()
    finally:
        memcached.signal(signal.SIGCONT)
    until(lambda: not tier._near.noted())
    until(lambda: [other.get(key) for key in ("k", "w", "removed")] == [None] * 3)


def test_a_write_that_arrives_late_is_refused(
    machine: Machines, memcached: MemcachedServer
) -> None:
    tier, other = machine(timeout=0.3), machine("two")
    other.set("k", 1)
    proxy = tier.proxy
    found = other._remote.fetch(encode_key("k"), time.monotonic() + 5)
    proxy.hold(DATA, True)
    with pytest.raises(RemoteError):
        # What `store` does when it has seen what is there.
        deadline = time.monotonic() + 0.3
        tier._remote.end_load(encode_key("k"), found.seen, b"late", None, deadline)
    other.set("k", 2)
    proxy.go()
    until(lambda: other.get("k") == 2)
    assert machine().get("k") == 2


def test_a_value_that_is_too_large(machine: Machines) -> None:
    tier = machine()
    with pytest.raises(RemoteError, match="too large"):
        tier.set("k", b"x" * 2_000_000)
