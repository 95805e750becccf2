"""Failover: the connections of a machine follow the primary, and nothing older than the bound is near."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import valkey
from loaders import in_thread
from near import Machines, heard, is_heard, near, remote_key
from proxy import DATA, LISTENER
from servers import RedisServer, free_port, until
from shale.tier import RemoteError, Tier
from shale.tier._near import now


@pytest.fixture
def second(tmp_path: Path) -> Iterator[RedisServer]:
    started = RedisServer(tmp_path / "second")
    yield started
    started.stop()


def run_id(server: RedisServer) -> bytes:
    found: str = server.client().info("server")["run_id"]
    return found.encode()


def primary(tier: Tier) -> bytes:
    """The run id of the primary of a machine."""
    state = tier._near.state()
    assert state is not None
    return state.server


def move_listener(tier: Any, server: RedisServer) -> None:
    """Leads the listener to another server. The data connections stay open."""
    tier.proxy.target = server.port
    tier.proxy.cut(LISTENER)
    until(lambda: primary(tier) == run_id(server) and is_heard(tier))


def move_data(tier: Any, server: RedisServer) -> None:
    """Another process of the machine connects to another server. The tier's connections stay open."""
    tier.proxy.target = server.port
    with Tier(tier._cache.directory, server.client(), bound=600, timeout=60) as other:
        other.set("moved", 1)
    assert primary(tier) == run_id(server)


def no_old_hit(tier: Tier, key: Any, new: Any, changed: int) -> None:
    """Reads until the value is the new one. changed: when it was, after the change."""

    def is_new() -> bool:
        began = now()
        try:
            found = tier.lookup(key)
        except RemoteError:
            return False
        assert found.value == new or found.source != "near" or began < changed + tier._near.bound
        return bool(found.value == new)

    until(is_new)


# Connections for data and for invalidations


@pytest.mark.parametrize("listens_to_new", [True, False])
def test_data_and_invalidations_come_from_one_server(
    server: RedisServer, second: RedisServer, machine: Machines, listens_to_new: bool
) -> None:
    tier = machine(near_age=1000)
    tier.get("other")
    if listens_to_new:
        move_listener(tier, second)
        tier.proxy.target, of_data = server.port, server
    else:
        tier.proxy.target, of_data = second.port, second
    tier.proxy.cut(DATA)
    assert until(lambda: load(tier, "old")) == "old"
    assert of_data.client().exists(remote_key("k"))
    of_data.client().set(remote_key("k"), b"new")
    no_old_hit(tier, "k", b"new", now())
    assert near(tier, "k") == b"new"
    assert primary(tier) == run_id(of_data)


def load(tier: Tier, value: str) -> Any:
    try:
        return tier.get_or_load("k", lambda: value)
    except RemoteError:
        return None


@pytest.mark.parametrize("move", [move_listener, move_data])
def test_a_load_that_ends_at_the_former_primary_keeps_nothing(
    server: RedisServer, second: RedisServer, machine: Machines, move: Any
) -> None:
    tier = machine(near_age=1000, bound=600, timeout=60)

    def loader() -> int:
        tier.proxy.hold(DATA, False)
        return 1

    result = in_thread(lambda: tier.get_or_load("k", loader))
    tier.proxy.wait_held(DATA, False)
    assert server.client().exists(remote_key("k"))
    move(tier, second)
    tier.proxy.go()
    assert result() == 1
    assert tier.lookup("k")[:3] == (None, "remote", True)


@pytest.mark.parametrize("move", [move_listener, move_data])
def test_a_read_that_ends_at_the_former_primary_keeps_nothing(
    server: RedisServer, second: RedisServer, machine: Machines, move: Any
) -> None:
    tier = machine(near_age=1000, bound=600, timeout=60)
    server.client().set(remote_key("k"), b"old")
    second.client().set(remote_key("k"), b"new")
    tier.get("other")
    tier.proxy.hold(DATA, False)
    result = in_thread(lambda: tier.get("k"))
    tier.proxy.wait_held(DATA, False)
    move(tier, second)
    tier.proxy.go()
    assert result() in (b"old", b"new")
    assert tier.get("k") == b"new"


def test_connections_to_the_former_primary_are_not_used(
    server: RedisServer, second: RedisServer, machine: Machines
) -> None:
    tier, other = machine(bound=600), machine(bound=600)
    for each in (tier, other):
        each.set("k", 1)
        assert each._remote.wire.idle._all
    server.client().delete(remote_key("k"))
    move_listener(tier, second)
    for each in (tier, other):
        each.set("k", 1)
        assert not server.client().exists(remote_key("k"))
        assert second.client().delete(remote_key("k"))


def test_a_connection_that_another_has_overtaken_is_not_used(
    server: RedisServer, second: RedisServer, machine: Machines
) -> None:
    tier = machine(bound=600)
    tier._listener.stop()
    remote, near_cache = tier._remote, tier._near
    connector = remote._connector

    def connect(*arguments: Any) -> Any:
        connection = connector(*arguments)
        if tier.proxy.target == server.port:
            tier.proxy.target = second.port
            near_cache.take_over(run_id(second))
        return connection

    remote._connector = connect
    tier.proxy.cut()
    tier.set("k", 1)
    assert second.client().exists(remote_key("k"))
    assert primary(tier) == run_id(second)


# Replicas


def test_a_replica_is_no_remote(server: RedisServer, tmp_path: Path) -> None:
    replica = RedisServer(tmp_path / "replica", "--replicaof", "127.0.0.1", str(server.port))
    try:
        with Tier(tmp_path / "near", replica.client(), bound=0.5, timeout=5.0, capacity="8MiB") as tier:
            calls: list[Callable[[], Any]] = [lambda: tier.get("k"), lambda: tier.set("k", 1)]
            for call in calls:
                with pytest.raises(RemoteError, match="the server is a replica"):
                    call()
            assert tier.lookup_or_load("k", lambda: 1).source == "loaded"
            replica.client().replicaof("NO", "ONE")
            until(lambda: tier.listens)
            tier.set("k", 2)
            assert near(tier, "k") == 2
    finally:
        replica.stop()


def demote(server: RedisServer) -> None:
    """Makes it a replica whose primary cannot be reached. Its connections stay open."""
    server.client().replicaof("127.0.0.1", str(free_port()))


def test_the_listener_leaves_a_server_that_becomes_a_replica(
    server: RedisServer, second: RedisServer, machine: Machines
) -> None:
    tier = machine(near_age=1000)
    tier.set("k", 1)
    assert near(tier, "k") == 1
    tier.proxy.target = second.port
    demote(server)
    second.client().set(remote_key("k"), b"2")
    no_old_hit(tier, "k", b"2", now())
    tier.set("k", 3)
    assert near(tier, "k") == 3
    assert primary(tier) == run_id(second)


def test_a_write_that_a_replica_refuses_ends_the_connections_to_it(
    server: RedisServer, second: RedisServer, machine: Machines
) -> None:
    tier = machine(bound=600)
    with tier._remote.wire.connection(time.monotonic() + 60):
        tier.set("k", 1)
    assert len(tier._remote.wire.idle._all) == 2
    tier._listener.stop()
    tier.proxy.target = second.port
    demote(server)
    with pytest.raises(RemoteError, match="read only"):
        tier.set("k", 2)
    tier.set("k", 3)
    assert second.client().exists(remote_key("k"))


# Sentinels


class Group:
    """A primary and its replica, with sentinels."""

    def __init__(self, folder: Path) -> None:
        self.first = RedisServer(folder / "first", "--repl-diskless-sync-delay", "0")
        self.second = RedisServer(folder / "second", "--replicaof", "127.0.0.1", str(self.first.port))
        until(lambda: self.second.client().info("replication")["master_link_status"] == "up")
        configuration = folder / "sentinel.conf"
        configuration.write_text(
            f"sentinel monitor app 127.0.0.1 {self.first.port} 1\n"
            "sentinel down-after-milliseconds app 300\nsentinel failover-timeout app 2000\n"
        )
        self.sentinel = RedisServer(folder / "sentinel", configuration=configuration)
        until(lambda: self.sentinel.client().sentinel_slaves("app"))

    def names(self, server: RedisServer) -> bool:
        """Whether the sentinel names this server as the primary."""
        return bool(self.sentinel.client().sentinel_get_master_addr_by_name("app")[1] == server.port)

    def client(self, library: Any, *more: int) -> Any:
        """more: ports of other sentinels, which come first."""
        sentinels = [("127.0.0.1", port) for port in (*more, self.sentinel.port)]
        return library.sentinel.Sentinel(sentinels).master_for("app")

    def stop(self) -> None:
        for server in (self.sentinel, self.first, self.second):
            server.stop()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    started = Group(tmp_path / "group")
    yield started
    started.stop()


@pytest.mark.parametrize("library", [redis, valkey], ids=["redis", "valkey"])
@pytest.mark.parametrize("planned", [True, False])
def test_a_failover(group: Group, tmp_path: Path, library: Any, planned: bool) -> None:
    """After a planned one the former primary remains a primary for ten seconds."""
    options: dict[str, Any] = {"bound": 1.0, "timeout": 5.0, "capacity": "8MiB"}
    with Tier(tmp_path / "near", group.client(library), **options) as tier:
        until(lambda: is_heard(tier))
        tier.set("k", 1)
        assert near(tier, "k") == 1
        if planned:
            group.sentinel.client().execute_command("SENTINEL", "FAILOVER", "app")
        else:
            group.first.kill()
        until(lambda: group.names(group.second))
        group.second.client().set(remote_key("k"), b"2")
        no_old_hit(tier, "k", b"2", now())
        tier.set("k", 3)
        assert group.second.client().get(remote_key("k")) not in (b"2", None)
        until(lambda: primary(tier) == run_id(group.second))
        assert near(tier, "k") == 3


def test_a_sentinel_that_hangs_delays_no_failover(group: Group, tmp_path: Path) -> None:
    """By default a sentinel's client of valkey-py waits for ever."""
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        client = group.client(valkey, hangs.getsockname()[1])
        with Tier(tmp_path / "near", client, bound=1.0, timeout=4.0, capacity="8MiB") as tier:
            until(lambda: is_heard(tier))
            tier.set("k", 1)
            assert near(tier, "k") == 1


def test_without_sentinels_what_is_connected_stays(group: Group, tmp_path: Path) -> None:
    client = group.client(redis)
    with Tier(tmp_path / "near", client, bound=1.0, timeout=5.0, capacity="8MiB") as tier:
        until(lambda: is_heard(tier))
        tier.set("k", 1)
        assert near(tier, "k") == 1
        group.sentinel.kill()
        for _ in range(3):
            heard(tier)
        assert tier.listens
        assert near(tier, "k") == 1
        tier._remote.wire.idle.close()
        with pytest.raises(RemoteError, match="no sentinel names the primary"):
            tier.set("k", 2)
