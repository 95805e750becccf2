"""A tier in front of memcached."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import shale
from loaders import in_thread
from near import Machines, machines, names_in
from proxy import DATA
from pymemcache import Client, HashClient, PooledClient
from pymemcache.client.retrying import RetryingClient
from pymemcache.exceptions import MemcacheServerError
from servers import MemcachedServer, until
from shale import InvalidError
from shale._data.keys import encode_key
from shale.tier import RemoteError, Tier
from shale.tier._format import ABOUT_TO_SET, loading
from shale.tier._memcached import Connection
from shale.tier._near import now
from shale.tier._redis import LOAD_MS
from test_tier_loads import PATIENCE, Failure, Loader, twenty


@pytest.fixture
def memcached(tmp_path: Path) -> Iterator[MemcachedServer]:
    started = MemcachedServer(tmp_path / "server")
    yield started
    started.stop()


def connect(port: int, kind: Any = Client) -> Any:
    return kind(("127.0.0.1", port))


@pytest.fixture
def machine(memcached: MemcachedServer, tmp_path: Path) -> Iterator[Machines]:
    with machines(tmp_path, memcached.port, connect, False) as make:
        yield make


def reads(memcached: MemcachedServer) -> int:
    found: int = Client(("127.0.0.1", memcached.port)).stats()[b"cmd_get"]
    return found


@pytest.mark.parametrize("kind", [Client, PooledClient])
def test_values_come_back(machine: Machines, kind: Any) -> None:
    remote = partial(connect, kind=kind)
    one, two = machine("one", remote), machine("two", remote)
    keys: list[Any] = [b"plain", "text", ("a", 1), b"with space\r\n", b"x" * 1000, "é" * 300]
    for number, key in enumerate(keys):
        one.set(key, {"n": number}, tags=["t"] * (number % 2), max_age=10**8)
    for number, key in enumerate(keys):
        assert two.get(key) == one.get(key) == {"n": number}
        assert two.remove(key)
        assert not two.remove(key)
        assert two.get(key) is None


@pytest.mark.parametrize("years", [5, 20, 100, 10_000])
def test_long_ages(machine: Machines, years: int) -> None:
    tier = machine()
    tier.set("k", 1, max_age=years * 365 * 86_400)
    assert tier.get("k") == 1
    tier.remove("k")
    assert tier.get_or_load("k", lambda: 2, max_age=years * 365 * 86_400) == 2
    assert machine("two").get("k") == 2


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
    """Other callers load too, and do not store the value."""
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
    # A value with an invalidated tag is loaded again.
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
    until(lambda: not names_in(tier._near.journal))
    until(lambda: [other.get(key) for key in ("k", "w", "removed")] == [None] * 3)


@pytest.mark.parametrize("command", [b"ms", b"md"])
def test_a_write_that_arrives_late_is_refused(
    machine: Machines, monkeypatch: pytest.MonkeyPatch, command: bytes
) -> None:
    tier, other = machine(), machine("two")
    other.set("k", 1)
    call = Connection.call

    def late(connection: Connection, name: bytes, *arguments: Any) -> Any:
        if name == command:
            tier.proxy.hold(DATA, True)
        return call(connection, name, *arguments)

    monkeypatch.setattr(Connection, "call", late)
    with pytest.raises(RemoteError):
        if command == b"ms":
            tier._run(tier._remote.store(encode_key("k"), b"late", None, time.monotonic() + 0.3))
        else:
            tier._run(tier._remote.remove(encode_key("k"), time.monotonic() + 0.3))
    monkeypatch.undo()
    other.set("k", 2)
    tier.proxy.go()
    until(lambda: not tier.proxy.links)
    assert machine("three").get("k") == 2


@pytest.mark.parametrize("meanwhile", ["set and remove", "recovery"])
def test_a_late_set_of_an_absent_key_stores_nothing(
    machine: Machines, memcached: MemcachedServer, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    tier, other = machine(), machine("two")
    call = Connection.call

    def late(connection: Connection, *arguments: Any) -> Any:
        if arguments[-1] == b"late":
            tier.proxy.hold(DATA, True)
        return call(connection, *arguments)

    monkeypatch.setattr(Connection, "call", late)
    with pytest.raises(RemoteError):
        tier._run(tier._remote.store(b"k", b"late", None, time.monotonic() + 1))
    monkeypatch.undo()
    if meanwhile == "recovery":
        deadline = time.monotonic() + PATIENCE
        found = other._run(other._remote.fetch(b"k", deadline))
        other._run(other._remote.discard(b"k", found, deadline))
    else:
        other.set(b"k", b"newer")
        assert other.remove(b"k")
    tier.proxy.go()
    until(lambda: not tier.proxy.links)
    assert stored(memcached, b"k") is None


def test_what_is_about_to_be_set_is_no_value(
    machine: Machines, memcached: MemcachedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier, other = machine(), machine("two")
    call = Connection.call

    def read_first(connection: Connection, *arguments: Any) -> Any:
        if arguments[-1] == b"value":
            monkeypatch.undo()
            assert stored(memcached, b"k") == ABOUT_TO_SET
            assert other.get(b"k") is None
            assert other.get_or_load(b"k", lambda: b"loaded") == b"loaded"
        return call(connection, *arguments)

    monkeypatch.setattr(Connection, "call", read_first)
    tier.set(b"k", b"value")
    assert machine("three").get(b"k") == b"value"
    other.remove(b"k")
    Client(("127.0.0.1", memcached.port), default_noreply=False).set("shale:k:k", ABOUT_TO_SET)
    assert not other.remove(b"k")
    assert stored(memcached, b"k") is None


def restart(memcached: MemcachedServer) -> None:
    memcached.stop()
    memcached.start()


@pytest.mark.parametrize("way", ["load", "failure", "late removal"])
def test_a_restart(machine: Machines, memcached: MemcachedServer, way: str) -> None:
    """The restarted server gives the same numbers (cas) to other values."""
    tier, other = machine(), machine("two")

    def change() -> None:
        restart(memcached)
        other.set("k", "new")

    def load() -> str:
        change()
        if way == "failure":
            raise Failure
        return "old"

    if way == "late removal":
        other.set("k", "old")
        found = tier._run(tier._remote.fetch(encode_key("k"), time.monotonic() + PATIENCE))
        change()
        again = tier._run(tier._remote.fetch(encode_key("k"), time.monotonic() + PATIENCE))
        assert again.seen == found.seen
        tier._run(tier._remote.discard(encode_key("k"), found, time.monotonic() + PATIENCE))
    elif way == "failure":
        with pytest.raises(Failure):
            tier.get_or_load("k", load)
    else:
        assert tier.get_or_load("k", load) == "old"
    assert machine("three").get("k") == "new"


def test_keys_and_tags_of_any_length(machine: Machines) -> None:
    one, two = machine("one", bound=0.05), machine("two", bound=0.05)
    lengths = [1, 100, *range(165, 260), 1000]
    for length in lengths:
        text = "x" * length
        keys: list[Any] = [text, text.encode(), b"\xff" * length, (text, 1), 1 << 8 * length]
        for key in keys:
            one.set(key, length, tags=[text, b"\xff" * length])
            assert two.get(key) == length
        assert two.remove(keys[0])
        assert machine("three").get(keys[0]) is None
        one.invalidate([text, b"\xff" * length][length % 2])
        assert [one.get(key) for key in keys] == [None] * len(keys)


@pytest.mark.parametrize("byte", ["p", "\xff"])
def test_the_longest_prefix(machine: Machines, byte: str) -> None:
    longest = byte.encode("latin-1") * 151
    tier = machine(prefix=longest)
    for key in ("k", "k" * 1000):
        tier.set(key, 1, tags=[key])
        assert tier.get(key) == 1
    with pytest.raises(InvalidError, match="at most 151 bytes, not 152"):
        machine("two", prefix=longest + b"p")


@pytest.mark.parametrize(
    "client",
    [
        HashClient([("127.0.0.1", 1)]),
        RetryingClient(Client(("127.0.0.1", 1))),
        object(),
    ],
)
def test_other_clients_are_refused(client: Any, tmp_path: Path) -> None:
    name = type(client).__name__
    with pytest.raises(InvalidError, match=f"not {name}; a cluster's client is none of them"):
        Tier(tmp_path / "near", client)


def test_a_client_of_a_derived_class(machine: Machines) -> None:
    class Derived(Client):  # type: ignore[misc]
        pass

    tier = machine(remote=partial(connect, kind=Derived))
    tier.set("k", 1)
    assert tier.get("k") == 1


# Loads


def stored(memcached: MemcachedServer, key: bytes) -> Any:
    return Client(("127.0.0.1", memcached.port)).get(b"shale:k:" + key)


def test_a_failure_goes_to_all_that_wait_and_leaves_no_marker(machine: Machines, memcached: MemcachedServer) -> None:
    tier, error = machine(), Failure()
    load = Loader(error)
    assert [each is error for each in twenty(tier, load, b"k")] == [True] * 20
    assert load.calls == 1
    assert stored(memcached, b"k") is None
    # Another machine stores what it loads.
    assert machine("two").get_or_load(b"k", lambda: b"loaded") == b"loaded"
    assert stored(memcached, b"k") == b"loaded"


@pytest.mark.parametrize("invalid", [False, True])
def test_the_marker_of_a_killed_process_is_taken_over_by_its_machine(
    machine: Machines, memcached: MemcachedServer, invalid: bool
) -> None:
    tier, other = machine(), machine("two")
    deadline = time.monotonic() + PATIENCE
    if invalid:
        other.set(b"k", 1, tags=["t"])
        other.invalidate("t")
    found = tier._run(tier._remote.fetch(b"k", deadline))
    marker = loading(tier._near.machine)
    assert tier._run(tier._remote.begin_load(b"k", marker, found, deadline))
    assert 0 < tier._run(tier._remote.fetch(b"k", deadline)).ttl <= LOAD_MS
    # To other machines a load runs.
    assert other.get_or_load(b"k", lambda: b"beside") == b"beside"
    assert stored(memcached, b"k") == marker
    assert tier.get_or_load(b"k", lambda: b"loaded") == b"loaded"
    assert stored(memcached, b"k") == b"loaded"


def test_a_change_between_a_read_and_what_follows_it(machine: Machines, memcached: MemcachedServer) -> None:
    """Also one that stores the same bytes again."""
    tier, other = machine(), machine("two")
    deadline = time.monotonic() + PATIENCE
    found = tier._run(tier._remote.fetch(b"k", deadline))
    other.set(b"k", b"same")
    assert not tier._run(tier._remote.begin_load(b"k", loading(tier._near.machine), found, deadline))
    found = tier._run(tier._remote.fetch(b"k", deadline))
    other.set(b"k", b"same")
    tier._run(tier._remote.discard(b"k", found, deadline))
    assert not tier._run(tier._remote.begin_load(b"k", loading(tier._near.machine), found, deadline))
    assert stored(memcached, b"k") == b"same"


def test_what_is_read_during_a_load_does_not_outlast_it(machine: Machines) -> None:
    tier, load = machine(bound=600.0, timeout=2.0), Loader()
    loading = in_thread(lambda: tier.get_or_load("k", load))
    assert load.begun.wait(PATIENCE)
    assert tier.lookup("k").missing
    load.go.set()
    loading()
    assert tier.get("k") == 1


def test_callers_share_a_load_beside_that_of_another_machine(machine: Machines) -> None:
    tier, other = machine(bound=600.0), machine("two")
    long_load, load = Loader(), Loader()
    first = in_thread(lambda: other.get_or_load(b"k", long_load))
    assert long_load.begun.wait(PATIENCE)
    assert {each.value for each in twenty(tier, load, b"k")} == {1}
    assert load.calls == 1
    assert tier.lookup(b"k").source == "near"
    long_load.go.set()
    first()


class Large(Loader):
    def __call__(self) -> Any:
        super().__call__()
        return b"x" * 2_000_000


def loads_once(tier: Any, load: Loader, cause: str, caplog: pytest.LogCaptureFixture) -> None:
    results = twenty(tier, load, b"k")
    for _ in range(180):
        assert tier.get_or_load(b"k", load) == results[0].value
    assert load.calls == 1
    (told,) = [each for each in results if each.source == "loaded"]
    assert cause in str(told.error)
    assert len([each for each in caplog.records if cause in each.getMessage()]) == 1


def test_a_value_that_is_too_large(
    machine: Machines, memcached: MemcachedServer, caplog: pytest.LogCaptureFixture
) -> None:
    tier = machine(bound=600.0)
    loads_once(tier, Large(), "too large", caplog)
    assert stored(memcached, b"k") is None
    with pytest.raises(RemoteError, match="too large"):
        tier.set(b"k", b"x" * 2_000_000)
    # Its connections are not out of step.
    tier.set(b"k", b"small")
    assert tier.get(b"k") == stored(memcached, b"k") == b"small"


def test_a_server_without_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = MemcachedServer(tmp_path / "server", "-M", "-m", "2")
    try:
        with machines(tmp_path, server.port, connect, False) as machine:
            tier, other = machine(bound=600.0), machine("two")
            for key in (b"valid", b"invalid"):
                other.set(key, 1, tags=[key])
            fill(server)
            loads_once(tier, Loader(), "out of memory", caplog)
            assert stored(server, b"k") is None
            assert tier.lookup_or_load(b"t", lambda: 1, tags=[b"valid"]).error is not None
            tier.invalidate(b"invalid")
            assert machine("three").get(b"valid") == 1
            assert machine("three").get(b"invalid") is None
    finally:
        server.stop()


def fill(server: MemcachedServer) -> None:
    """Until it takes no value of any size."""
    client = Client(("127.0.0.1", server.port), default_noreply=False)
    for size in (500_000, 100_000, 10_000, 1000, 300, 100, 50, 20, 0):
        with pytest.raises(MemcacheServerError):
            for number in count():
                client.set(f"{size}-{number}", b"x" * size)


def clock(memcached: MemcachedServer) -> int:
    found: int = Client(("127.0.0.1", memcached.port)).stats()[b"time"]
    return found


def recovers(tier: Any) -> None:
    tier.proxy.go()
    until(lambda: not names_in(tier._near.journal))


def fails_to_set(tier: Any, key: Any, value: Any) -> None:
    tier.proxy.refuse()
    tier.proxy.cut()
    with pytest.raises(RemoteError):
        tier.set(key, value)


def test_what_another_machine_has_written_since_stays(machine: Machines, memcached: MemcachedServer) -> None:
    """The server tells whole seconds."""
    one, two = machine("one", timeout=0.3), machine("two")

    def stays() -> bool:
        two.set("k", "older")
        two.set(b"bytes", b"older")
        fails_to_set(one, "k", "failed")
        with pytest.raises(RemoteError):
            one.set(b"bytes", b"failed")
        failed = clock(memcached)
        until(lambda: clock(memcached) > failed + 4)
        two.set("k", "newer")
        two.set(b"bytes", b"newer")
        recovers(one)
        assert machine("three").get(b"bytes") is None
        return bool(machine("three").get("k") == "newer")

    # A busy machine may take seconds for a call.
    assert stays() or stays() or stays()


def test_what_another_machine_has_written_before_goes(machine: Machines) -> None:
    one, two = machine("one", timeout=0.3), machine("two")
    two.set("k", 1)
    assert one.get("k") == 1
    two.set("k", 2)
    fails_to_set(one, "k", 3)
    recovers(one)
    assert machine("three").get("k") is None


def test_a_refused_set_changes_nothing(machine: Machines) -> None:
    tier = machine()
    with pytest.raises(RemoteError, match="too large"):
        tier.set("k", b"x" * 2_000_000)
    assert not names_in(tier._near.journal)


def test_a_server_that_does_not_tell_its_time(machine: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shale.tier._memcached._STATISTICS", b"unknown\r\n")
    tier = machine()
    tier.set("k", 1)
    assert tier.get("k") == 1
    tier._near.journal.note(b"k" + encode_key("k"), now())
    until(lambda: not names_in(tier._near.journal))
    assert machine("two").get("k") is None
