"""The guarantees of a tier, one by one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
import shale
import valkey
from loaders import in_thread
from near import Machines, heard, names_in, near, remote_key
from proxy import DATA, LISTENER
from servers import PATIENCE, RedisServer, free_port, until
from shale._loading.attempts import LoadAttempt
from shale.tier import AsyncTier, RemoteError, Tier
from shale.tier._format import READ, Near
from shale.tier._near import EPOCH_TAG, STATE, now
from support import child_environment

HERE = Path(__file__).resolve().parent


class Child:
    """Another process of a machine, which evaluates each line that it gets (child.py)."""

    def __init__(self, tier: Tier, **options: Any) -> None:
        arguments = {"directory": tier._cache.directory, "port": port_of(tier), **options}
        self.process = subprocess.Popen(
            [sys.executable, HERE / "child.py", repr(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
            text=True,
        )

    def begin(self, expression: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{expression}\n")
        self.process.stdin.flush()

    def end(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the child has ended"
        return eval(line)

    def ask(self, expression: str) -> Any:
        self.begin(expression)
        return self.end()

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


def port_of(tier: Any) -> int:
    port: int = tier.proxy.port
    return port


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for child in started:
        child.stop()


# Values


VALUES = [
    b"bytes",
    b"\xffS1v looks like a form",
    "text",
    7,
    None,
    {"a": [1, 2.5, None]},
    ("a", {1, 2}),
    datetime(2026, 1, 1, tzinfo=UTC),
]


@pytest.mark.parametrize("tags", [[], ["a", b"b"]])
def test_values_come_back(machine: Machines, tags: list[Any]) -> None:
    one, two = machine("one"), machine("two")
    for number, value in enumerate(VALUES):
        one.set(("k", number), value, tags=tags)
    for number, value in enumerate(VALUES):
        assert near(two, ("k", number)) == value


def test_what_other_programs_store(machine: Machines, server: RedisServer) -> None:
    tier = machine()
    server.client().set("shale:k:plain", "5")
    assert near(tier, b"plain") == b"5"
    tier.set(b"plain", b"6")
    assert server.client().get("shale:k:plain") == b"6"


def test_a_hit_asks_no_remote(machine: Machines, server: RedisServer) -> None:
    tier = machine()
    tier.set("k", 1)
    assert near(tier, "k") == 1
    assert tier.get("nothing") is None
    assert near(tier, "nothing") is None
    reads = server.reads()
    for _ in range(100):
        assert tier.get("k") == 1
        assert tier.get("nothing", "default") == "default"
    # The bound may have ended, on a machine that did not let the listener run.
    assert server.reads() <= reads + 10


def test_an_end_of_life_is_a_change(machine: Machines, server: RedisServer) -> None:
    tier = machine()
    # The server announces it when it finds it, which may take long.
    server.client().execute_command("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    server.client().set(remote_key("k"), b"1", px=700)
    heard(tier)
    assert tier.get("k") in (b"1", None)
    until(lambda: tier.get("k") is None)
    tier.set("k", 2, max_age=1000)
    assert near(tier, "k") == 2
    entry = tier._cache.entry("k")
    assert entry is not None
    assert entry.ttl is not None and entry.ttl <= 300


# 1. No hit is older than the bound


@pytest.mark.parametrize("up", [True, False])
def test_half_open_listening_ends_what_is_near(machine: Machines, server: RedisServer, up: bool) -> None:
    tier = machine()
    tier.set("k", 1)
    assert near(tier, "k") == 1
    tier.proxy.hold(LISTENER, up)
    server.client().set(remote_key("k"), b"2")
    changed = now()
    while True:
        began = now()
        if tier.get("k") == b"2":
            break
        assert began < changed + tier._near.bound


def test_trust_is_counted_from_the_ping(machine: Machines) -> None:
    """A late answer says nothing about changes after its request."""
    tier = machine()
    tier.set("k", 1)
    assert near(tier, "k") == 1
    proxy = tier.proxy
    proxy.hold(LISTENER, False)
    proxy.wait_held(LISTENER, False)
    state = tier._near.state()
    assert state is not None
    began = now()
    until(lambda: now() > began + tier._near.bound)
    proxy.go()
    told = until(lambda: (found := tier._near.state()).heard > state.heard and found)
    assert told.heard <= began or told.epoch > state.epoch


def test_what_is_heard_later_does_not_vouch_for_what_was_seen(
    machine: Machines, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = machine()
    tier._listener.stop()
    near_cache = tier._near
    epoch = near_cache.take_over(b"")
    server.client().set(remote_key("k"), b"2")
    # Another process has stored a value that it read long ago; then the change arrives.
    old = Near(READ, now() - 10 * near_cache.bound, b"1").encode()
    look = LoadAttempt.look

    def look_and_hear(attempt: LoadAttempt) -> Any:
        monkeypatch.undo()
        tier._cache.set("k", old, tag=EPOCH_TAG)
        found = look(attempt)
        tier._cache.remove("k")
        assert near_cache.publish(epoch, now())
        return found

    monkeypatch.setattr(LoadAttempt, "look", look_and_hear)
    assert tier.get("k") == b"2"


def test_times_of_another_boot_are_not_believed(
    machine: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = machine()
    tier.set("k", 1)
    assert near(tier, "k") == 1
    # As if it had been killed.
    monkeypatch.setattr("shale.tier._listener.Listener._end_hearing", lambda self: None)
    tier.close()
    with shale.Cache(tmp_path / "one") as cache:
        state = cache[STATE]
        boot = slice(17, 33)
        assert state[boot] != bytes(16)
        later = now()
        cache.set(STATE, state[:9] + later.to_bytes(8, "little") + bytes(16) + state[33:], pinned=True)
    tier.proxy.refuse()
    again = machine(waits=False, bound=3600.0)
    with pytest.raises(RemoteError):
        again.get("k")
    assert again.lookup("k", stale=True)[:4] == (1, "near", False, True)


# 2. No fill brings back an invalidated value


def test_the_reply_comes_after_the_invalidation(machine: Machines, server: RedisServer) -> None:
    """The race that was reported for the near caches of lettuce and FusionCache."""
    tier = machine()
    proxy = tier.proxy
    tier.get("other")  # so that there is a connection
    server.client().set(remote_key("k"), b"1")
    heard(tier)
    proxy.hold(DATA, False)
    result = in_thread(lambda: tier.get("k"))
    proxy.wait_held(DATA, False)
    server.client().set(remote_key("k"), b"2")
    heard(tier)
    proxy.go()
    assert result() == b"1"  # the key was so when it was read
    assert tier.get("k") == b"2"


def test_the_invalidation_comes_after_the_reply(machine: Machines, server: RedisServer) -> None:
    tier = machine(bound=5.0)
    proxy = tier.proxy
    server.client().set(remote_key("k"), b"1")
    assert near(tier, "k") == b"1"
    proxy.hold(LISTENER, False)
    server.client().set(remote_key("k"), b"2")
    proxy.wait_held(LISTENER, False)
    proxy.go()
    heard(tier)
    assert tier.get("k") == b"2"


def test_a_tag_is_invalidated_during_a_fill(machine: Machines) -> None:
    tier, other = machine("one"), machine("two")
    proxy = tier.proxy
    other.set("k", 1, tags=["t"])
    heard(tier)
    proxy.hold(DATA, False)
    result = in_thread(lambda: tier.get("k"))
    proxy.wait_held(DATA, False)
    other.invalidate("t")
    heard(tier)
    proxy.go()
    assert result() in (1, None)
    assert tier.get("k") is None


def test_the_listening_begins_anew_during_a_fill(machine: Machines, server: RedisServer) -> None:
    tier = machine(near_age=1000)
    proxy = tier.proxy
    server.client().set(remote_key("k"), b"1")
    tier.get("other")
    heard(tier)
    proxy.hold(DATA, False)
    result = in_thread(lambda: tier.get("k"))
    proxy.wait_held(DATA, False)
    # The change falls into the gap.
    proxy.refuse()
    proxy.cut(LISTENER)
    server.client().set(remote_key("k"), b"2")
    proxy._refuses = False
    heard(tier)
    proxy.go()
    assert result() == b"1"
    assert tier.get("k") == b"2"


def test_a_load_does_not_overwrite_what_was_written_meanwhile(machine: Machines) -> None:
    one, two = machine("one"), machine("two")

    def load() -> int:
        two.set("k", 2)
        return 1

    assert one.get_or_load("k", load) == 1
    assert two.get("k") == 2
    heard(one)
    assert one.get("k") == 2


def test_a_load_does_not_outlive_a_removal(machine: Machines) -> None:
    one, two = machine("one"), machine("two")

    def load() -> int:
        two.remove("k")
        return 1

    assert one.get_or_load("k", load) == 1
    heard(one)
    assert one.get("k") is None


def test_a_load_does_not_outlive_its_tag(machine: Machines) -> None:
    one, two = machine("one"), machine("two")

    def load() -> int:
        two.invalidate("t")
        return 1

    assert one.get_or_load("k", load, tags=["t"]) == 1
    heard(one)
    assert one.get("k") is None
    assert two.get("k") is None


# 3. A writer reads its own write


@pytest.mark.parametrize("way", ["set", "remove", "invalidate"])
def test_all_processes_read_what_one_wrote(machine: Machines, children: list[Child], way: str) -> None:
    tier = machine(bound=30.0)
    children.append(Child(tier, bound=30.0))
    tier.set("k", 1, tags=["t"])
    assert near(tier, "k") == 1
    tier.proxy.hold(LISTENER, False)
    assert children[0].ask("tier.lookup('k')")[:2] == (1, "near")
    if way == "set":
        tier.set("k", 2)
    elif way == "remove":
        assert tier.remove("k")
    else:
        tier.invalidate("t")
    assert children[0].ask("tier.get('k')") == (2 if way == "set" else None)


def test_a_fill_that_began_before_a_write_is_not_kept(machine: Machines) -> None:
    tier = machine(bound=30.0)
    proxy = tier.proxy
    tier.set("k", 1)
    heard(tier)
    proxy.hold(LISTENER, False)
    proxy.hold(DATA, False)
    fill = in_thread(lambda: tier.get("k"))
    proxy.wait_held(DATA, False)
    write = in_thread(lambda: tier.set("k", 2))
    until(lambda: proxy._waiting.get((DATA, False)) == 2)
    with proxy.changed:
        proxy._held.discard((DATA, False))
        proxy.changed.notify_all()
    assert fill() in (1, 2)
    write()
    assert tier.get("k") == 2


# 4. One remote read


def test_many_processes_miss_at_once(machine: Machines, server: RedisServer, children: list[Child]) -> None:
    tier = machine(bound=30.0)
    proxy = tier.proxy
    server.client().set(remote_key("k"), b"1")
    heard(tier)
    children += [Child(tier, bound=30.0, threads=10) for _ in range(5)]
    for child in children:
        assert child.ask("'ready'") == "ready"
    reads = server.reads()
    proxy.hold(DATA, False)
    for child in children:
        child.begin("together(lambda: tier.get('k'))")
    proxy.wait_held(DATA, False)
    # Each of them waits, or begins later and finds it.
    time.sleep(0.2)
    proxy.go()
    for child in children:
        assert child.end() == [b"1"] * 10
    assert server.reads() == reads + 1


# 5. Gaps


def test_a_lost_connection_makes_all_stale(machine: Machines, server: RedisServer) -> None:
    tier = machine(bound=30.0, near_age=1000)
    tier.set("k", 1)
    assert near(tier, "k") == 1
    proxy = tier.proxy
    proxy.refuse()
    client = server.client()
    assert client.execute_command("CLIENT", "KILL", "TYPE", "pubsub") == 1
    until(lambda: not tier.listens)
    # It is known at once, before a new listener and before the bound.
    proxy.cut(DATA)
    with pytest.raises(RemoteError):
        tier.get("k")
    assert tier.lookup("k", stale=True)[:4] == (1, "near", False, True)
    client.set(remote_key("k"), b"2")
    proxy.go()
    until(lambda: tier.listens)
    assert until(lambda: tier.get("k", stale=True)) == b"2"


def test_a_flush_empties_the_near_cache(machine: Machines, server: RedisServer) -> None:
    """In RESP2 its message names no keys."""
    tier = machine(bound=30.0)
    tier.set("k", 1)
    assert near(tier, "k") == 1
    server.client().flushall()
    heard(tier)
    proxy = tier.proxy
    proxy.refuse()
    proxy.cut()
    with pytest.raises(RemoteError):
        tier.lookup("k", stale=True)


def test_a_remote_that_begins_anew(machine: Machines, server: RedisServer) -> None:
    tier = machine()
    tier.set("k", 1)
    assert near(tier, "k") == 1
    server.kill()
    server.start()
    heard(tier)
    assert until(lambda: tier.get("k", "none", stale=True) == "none")
    tier.set("k", 2)
    assert near(tier, "k") == 2


def test_another_primary(machine: Machines, server: RedisServer, tmp_path: Path) -> None:
    """After a failover the listener continues at the new primary; values from connections to the old
    one are not kept."""
    tier = machine(near_age=1000)
    proxy = tier.proxy
    server.client().set(remote_key("k"), b"old")
    tier.get("other")
    second = RedisServer(tmp_path / "second")
    try:
        second.client().set(remote_key("k"), b"new")
        proxy.target = second.port
        epoch = tier._near.state().epoch
        proxy.cut(LISTENER)
        until(lambda: tier._near.state().epoch > epoch)
        heard(tier)
        # There is a connection to the old one, and it is open.
        assert tier._remote.wire.idle._all
        assert near(tier, "k") == b"new"
        second.client().set(remote_key("k"), b"newer")
        heard(tier)
        assert tier.get("k") == b"newer"
    finally:
        second.stop()


def test_restarted_processes_do_not_trust_what_is_near(machine: Machines, server: RedisServer) -> None:
    tier = machine(bound=30.0, near_age=1000)
    tier.set("k", 1)
    assert near(tier, "k") == 1
    tier.close()
    server.client().set(remote_key("k"), b"2")
    again = machine(bound=30.0)
    assert again.get("k") == b"2"


# 6. The remote is down


def test_a_remote_that_hangs(machine: Machines, server: RedisServer) -> None:
    calm, tier = machine(), machine(timeout=0.2)
    calm.set("k", 1)
    assert near(calm, "k") == 1
    until(lambda: answers(tier))  # so that it has a connection
    server.signal(signal.SIGSTOP)
    try:
        with pytest.raises(RemoteError):
            in_thread(lambda: tier.get("new"))()
        stale = until(lambda: (found := tier.lookup("k", stale=True)).stale and found)
        assert stale.value == 1
        assert isinstance(stale.error, RemoteError)
        assert tier.lookup_or_load("new", lambda: 5)[:2] == (5, "loaded")
        writes: list[Callable[[], Any]] = [lambda: tier.set("w", 1), lambda: tier.remove("w")]
        for write in writes:
            with pytest.raises(RemoteError):
                write()
    finally:
        server.signal(signal.SIGCONT)
    # No process reacts to it.
    until(lambda: tier.get("k", stale=True) == 1 and not tier.lookup("k", stale=True).stale)
    until(lambda: not names_in(tier._near.journal))


def answers(tier: Tier) -> bool:
    try:
        tier.get("answers")
    except RemoteError:
        return False
    return bool(tier._remote.wire.idle._all)


def test_many_who_wait_for_a_remote_that_hangs(machine: Machines, server: RedisServer) -> None:
    """Each call returns after its own limit, and not one after the other."""
    tier = machine(timeout=0.3)
    server.signal(signal.SIGSTOP)
    began = time.monotonic()

    def ask() -> float:
        with pytest.raises(RemoteError):
            tier.get("k")
        return time.monotonic() - began

    try:
        results = [in_thread(ask) for _ in range(100)]
        took = max(result() for result in results)
    finally:
        server.signal(signal.SIGCONT)
    # One after the other would take 30 seconds; the rest is for a busy machine.
    assert took < 15


def test_what_could_not_be_written_is_removed_later(machine: Machines, server: RedisServer) -> None:
    one, two = machine("one"), machine("two")
    for key in ("set", "removed"):
        one.set(key, 1)
    one.set("tagged", 1, tags=["t"])
    for key in ("set", "removed", "tagged"):
        assert near(one, key) == near(two, key) == 1
    proxy = one.proxy
    proxy.refuse()
    proxy.cut()
    writes: list[Callable[[], Any]] = [
        lambda: one.set("set", 2),
        lambda: one.remove("removed"),
        lambda: one.invalidate("t"),
    ]
    for write in writes:
        with pytest.raises(RemoteError):
            write()
    for key in ("set", "removed", "tagged"):
        with pytest.raises(RemoteError):
            one.lookup(key, stale=True)
    proxy.go()
    until(lambda: not names_in(one._near.journal))
    heard(two)
    for key in ("set", "removed", "tagged"):
        assert two.get(key) is None


def test_what_was_written_since_is_not_removed(machine: Machines, server: RedisServer) -> None:
    calm, tier = machine(), machine(timeout=0.3)
    proxy = tier.proxy
    proxy.refuse()
    proxy.cut()
    with pytest.raises(RemoteError):
        tier.set("k", 1)
    until(lambda: not calm.listens and not tier.listens)
    proxy._refuses = False
    proxy.hold(LISTENER, True)  # data goes first

    def written() -> bool:
        try:
            tier.set("k", 2)
        except RemoteError:
            return False
        return True

    until(written)
    proxy.go()
    heard(tier)
    assert until(lambda: calm.get("k", stale=True)) == 2


def test_what_is_noted_again_is_not_forgotten(machine: Machines) -> None:
    """A write failed again while the first failure was repaired."""
    tier = machine()
    tier._listener.stop()
    journal = tier._near.journal
    journal.note(b"tt", now())
    (bucket,) = journal.buckets()
    first = journal.names(bucket)
    journal.note(b"tt", now())
    names = journal.names(bucket)
    journal.end(bucket, first)
    assert names_in(journal) == names
    journal.end(bucket, names)
    assert not names_in(journal)


def test_what_is_removed_later_may_be_of_any_kind(machine: Machines, server: RedisServer) -> None:
    calm, tier = machine(), machine(timeout=0.3)
    proxy = tier.proxy
    proxy.refuse()
    proxy.cut()
    for key in ("hash", "text"):
        with pytest.raises(RemoteError):
            tier.set(key, 1)
    server.client().hset(remote_key("hash"), "field", "1")
    server.client().set(remote_key("text"), "1")
    proxy.go()
    until(lambda: not names_in(calm._near.journal))
    assert server.client().keys("*") == []


@pytest.mark.parametrize("way", ["set", "remove", "invalidate"])
def test_a_write_that_arrives_late_is_refused(machine: Machines, server: RedisServer, way: str) -> None:
    tier = machine(timeout=1.0)
    proxy = tier.proxy
    heard(tier)
    # There is a connection, so that a busy machine, too, sends the command in time.
    until(lambda: answers(tier))
    proxy.hold(DATA, True)
    writes: dict[str, Callable[[], Any]] = {
        "set": lambda: tier.set("k", 1),
        "remove": lambda: tier.remove("k"),
        "invalidate": lambda: tier.invalidate("t"),
    }
    with pytest.raises(RemoteError):
        writes[way]()
    client = server.client()
    name = b"shale:t:t" if way == "invalidate" else remote_key("k")
    client.set(name, b"newer")
    calls = client.info("commandstats").get("cmdstat_eval", {"calls": 0})["calls"]
    (noted,) = names_in(tier._near.journal)
    assert tier._near.journal.take(noted, now())
    proxy.go()

    # The command was held: the server gets it now, unless the proxy lost it with the connection.
    def arrived() -> bool:
        found = client.info("commandstats").get("cmdstat_eval", {"calls": 0})
        return bool(found["calls"] > calls)

    until(arrived)
    assert client.get(name) == b"newer"


def test_more_than_the_journal_holds(machine: Machines, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shale.tier._redis.Redis.most_noted", 2)
    monkeypatch.setattr("shale.tier._journal.BUCKETS", 16)
    calm = machine(prefix=b"a[*]:")
    calm.set("other", 1)
    tier = machine(prefix=b"a[*]:")
    server.client().set("other", 1)
    tier.proxy.refuse()
    tier.proxy.cut()
    for number in range(100):
        with pytest.raises(RemoteError):
            tier.set(number, 1)
    tier.proxy.go()
    until(lambda: not names_in(tier._near.journal))
    assert server.client().keys("*") == [b"other"]


# 7. One listener


def subscribed(server: RedisServer) -> int:
    return len(server.client().client_list("pubsub"))


def test_one_process_listens(machine: Machines, server: RedisServer, children: list[Child]) -> None:
    tier = machine(bound=2.0)
    children += [Child(tier, bound=2.0) for _ in range(3)]
    for child in children:
        assert child.ask("tier.listens") is False
    assert subscribed(server) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_another_takes_over(
    machine: Machines, server: RedisServer, children: list[Child], number: signal.Signals
) -> None:
    tier = machine(bound=1.0)
    children.append(Child(tier, bound=1.0))
    child = children[0]
    child.ask("'ready'")
    until(lambda: tier.listens)
    # The child is to be the listener.
    tier._listener.stop()
    until(lambda: child.ask("tier.listens"))
    epoch = tier._near.state().epoch
    tier.set("k", 1)
    assert near(tier, "k") == 1
    os.kill(child.process.pid, number)
    server.client().set(remote_key("k"), b"2")
    children.append(Child(tier, bound=1.0))
    until(lambda: tier._near.state().epoch > epoch)
    heard(tier)
    assert tier.get("k") == b"2"
    if number == signal.SIGSTOP:
        os.kill(child.process.pid, signal.SIGCONT)
        until(lambda: subscribed(server) == 1 and not child.ask("tier.listens"))
        assert children[1].ask("tier.listens")
    assert subscribed(server) == 1


def test_an_old_epoch_tells_nothing(machine: Machines) -> None:
    tier = machine()
    tier._listener.stop()
    near_cache = tier._near
    first = near_cache.take_over(b"s")
    assert near_cache.publish(first, now())
    second = near_cache.take_over(b"s")
    state = near_cache.state()
    assert not near_cache.publish(first, now())
    assert near_cache.state() == state
    assert near_cache.publish(second, now())


# 8. Tags


def test_a_tag_reaches_all_machines(machine: Machines, server: RedisServer) -> None:
    one, two = machine("one"), machine("two")
    one.set("a", 1, tags=["t", "u"])
    one.set("b", 1, tags=["u"])
    assert [near(two, key) for key in ("a", "b")] == [1, 1]
    one.invalidate("t")
    heard(two)
    assert two.get("a") is None
    assert two.get("b") == 1
    # A value that is written after that has the tag, and is valid.
    one.set("a", 2, tags=["t"])
    assert near(two, "a") == 2
    one.invalidate("t")
    heard(two)
    assert two.get("a") is None


def test_readers_of_a_tag_invalidate_nothing(machine: Machines, server: RedisServer) -> None:
    """Reading a tag emits no change."""
    one, two = machine("one"), machine("two")
    one.invalidate("t")
    one.set("k", 1, tags=["t"])
    assert near(one, "k") == 1
    heard(one)
    reads = server.reads()
    assert near(two, "k") == 1
    found = one.lookup("k")
    assert found.source == "near" or server.reads() > reads


def test_a_tag_whose_version_is_lost(machine: Machines, server: RedisServer) -> None:
    """The remote may evict it: then its values are no longer valid, and do not come back."""
    tier = machine()
    tier.set("old", 1, tags=["t"])
    server.client().delete("shale:t:t")
    heard(tier)
    assert tier.get("old") is None
    tier.set("new", 1, tags=["t"])
    assert near(tier, "new") == 1
    assert tier.get("old") is None
    server.client().set("shale:t:odd", "5")
    with pytest.raises(RemoteError, match="version of a tag"):
        tier.set("new", 2, tags=["odd"])


# 9. With the client's options


def test_users_passwords_databases_and_sockets(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    # She may not ask for the server's INFO.
    ada = ("--user", "ada", "on", ">pass-Word", "~app:*", "&*", "+@all", "-@dangerous")
    server = RedisServer(tmp_path / "server", "--unixsocket", str(path), *ada)
    try:
        options: dict[str, Any] = {"username": "ada", "password": "pass-Word", "db": 3}
        client = redis.Redis(unix_socket_path=str(path), **options)
        with Tier(tmp_path / "near", client, prefix=b"app:", bound=0.5, timeout=5.0) as tier:
            until(lambda: tier.listens)
            tier.set("k", 1)
            assert near(tier, "k") == 1
            client.set(remote_key("k", b"app:"), b"2")
            heard(tier)
            assert tier.get("k") == b"2"
    finally:
        server.stop()


def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    port = free_port()
    files = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    server = RedisServer(
        *(tmp_path / "server", "--tls-port", str(port), *files),
        *("--tls-auth-clients", "no", "--tls-ca-cert-file", str(certificate)),
    )
    try:
        client = redis.Redis("localhost", port, ssl=True, ssl_ca_certs=str(certificate))
        with Tier(tmp_path / "near", client, bound=0.5, timeout=5.0) as tier:
            until(lambda: tier.listens)
            tier.set("k", 1)
            assert near(tier, "k") == 1
            server.client().set(remote_key("k"), b"2")
            heard(tier)
            assert tier.get("k") == b"2"
            asyncio.run(AsyncTier(tier).set("k", 3))
            assert tier.get("k") == 3
    finally:
        server.stop()


def test_valkey_py(tmp_path: Path, server: RedisServer) -> None:
    client = valkey.Valkey(port=server.port)
    with Tier(tmp_path / "near", client, bound=0.5, timeout=5.0, capacity="8MiB") as tier:
        until(lambda: tier.listens)
        tier.set("k", 1, tags=["t"])
        assert near(tier, "k") == 1
        client.set(remote_key("k"), b"2")
        heard(tier)
        assert tier.get("k") == b"2"
        server.kill()
        with pytest.raises(RemoteError):
            tier.set("k", 3)


def test_a_read_that_is_refused_leaves_nothing_behind(machine: Machines, server: RedisServer) -> None:
    """A near cache that marks what is being read, and not that it failed, would hang here."""
    tier = machine()
    server.client().hset(remote_key("k"), "field", "1")
    for _ in range(3):
        with pytest.raises(RemoteError, match="WRONGTYPE"):
            tier.get("k")
        assert tier.get("other") is None
    server.client().set(remote_key("k"), b"1")
    heard(tier)
    assert near(tier, "k") == b"1"


def test_nothing_in_clear(tmp_path: Path, server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    server.client().config_set("requirepass", "right-Secret")
    client = redis.Redis(port=server.port, password="wrong-Secret")
    with Tier(tmp_path / "near", client, timeout=5.0) as tier:
        with pytest.raises(RemoteError) as raised:
            tier.set("key-Secret", "value-Secret")
        until(lambda: caplog.records)
    assert "Secret" not in str(raised.value) + caplog.text
    server.client(password="right-Secret").config_set("requirepass", "")


def test_bad_input(tmp_path: Path, server: RedisServer, machine: Machines) -> None:
    client = server.client()
    tier = machine("one", waits=False)
    for wrong, text in (
        (lambda: Tier(tmp_path / "x", object()), "redis-py"),
        (lambda: Tier(tmp_path / "x", redis.asyncio.Redis()), "AsyncTier"),
        (lambda: Tier(tmp_path / "x", client, prefix=""), "prefix"),
        (lambda: Tier(tmp_path / "x", client, bound=0), "bound"),
        (lambda: Tier(tmp_path / "x", client, timeout=0), "timeout"),
        (lambda: Tier(tmp_path / "one", client, prefix="other:"), "one directory for each"),
        (lambda: tier.set("k", 1, tags=list("abcdefgh")), "tags"),
        (lambda: tier.set("k", 1, max_age=0), "max_age"),
        (lambda: tier.get_or_load("n", lambda: shale.Loaded(1, tags=["t"])), "give tags= to the call"),
    ):
        with pytest.raises(shale.InvalidError, match=text):
            wrong()
    with pytest.raises(TypeError):
        tier.set("k", object())


# The rest


def test_loaders(machine: Machines) -> None:
    tier = machine()
    # The near cache knows that there is no value; it is loaded all the same.
    assert near(tier, "k") is None
    assert tier.lookup_or_load("k", lambda: 1)[:3] == (1, "loaded", False)
    assert near(tier, "k") == 1
    assert tier.get_or_load("none", shale.Missing, default="d") == "d"
    assert tier.get_or_load("none", lambda: 1 // 0, default="d") == "d"
    assert tier.get("none") is None
    with pytest.raises(ZeroDivisionError):
        tier.get_or_load("fails", lambda: 1 // 0)
    assert tier.get_or_load("fails", lambda: 3) in (3,)
    until(lambda: tier._near.heard())
    assert tier.get_or_load("short", lambda: shale.Loaded(4, 0.2)) == 4
    until(lambda: tier.get("short") is None)


@pytest.mark.parametrize("first", ["get", "set", "remove", "invalidate"])
def test_a_child_of_fork(machine: Machines, first: str) -> None:
    tier = machine(bound=1.0)
    tier.set("k", 1)
    assert near(tier, "k") == 1
    tier.get("other")
    # Kept, so that none of the child's own has their journal_key.
    parents = list(tier._remote.wire.idle._all)
    assert parents
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            assert tier.get("k") == 1
            {
                "get": lambda: tier.get("new"),
                "set": lambda: tier.set("forked", 1),
                "remove": lambda: tier.remove("k"),
                "invalidate": lambda: tier.invalidate("t"),
            }[first]()
            idle = tier._remote.wire.idle._all
            assert idle and not any(each in parents for each in idle)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert tier.get("forked") == (1 if first == "set" else None)


def test_a_full_near_cache(machine: Machines) -> None:
    tier = machine(capacity="1MiB")
    for number in range(200):
        tier.set(number, bytes([number]) * 20_000)
    for number in range(200):
        assert tier.get(number) == bytes([number]) * 20_000
    assert tier.get("large") is None
    tier.set("large", b"x" * 1_000_000)  # more than the near cache takes
    assert tier.get("large") == tier.get("large") == b"x" * 1_000_000


def test_threads(machine: Machines) -> None:
    tier = machine()
    failures: list[BaseException] = []

    def work(own: int) -> None:
        try:
            for number in range(50):
                tier.set(("k", own), number)
                assert tier.get(("k", own)) == number
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not failures
