"""What failed writes leave in the remote, once that can be reached again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import shale
from loaders import in_thread
from near import Machines, heard, names_in, near, remote_key
from proxy import DATA, KINDS, LISTENER
from servers import RedisServer, until
from shale._data.keys import encode_key
from shale.tier import RemoteError, Tier
from shale.tier._format import VALUE
from shale.tier._journal import Journal
from shale.tier._near import now
from test_tier_loads import PATIENCE, Loader


def fails(write: Callable[[], object]) -> None:
    with pytest.raises(RemoteError):
        write()


def recovers(tier: Any) -> None:
    tier.proxy.go()
    until(lambda: not names_in(tier._near.journal))


def part(tier: Any) -> None:
    """The machine cannot reach the remote until `recovers`."""
    tier.proxy.refuse()
    tier.proxy.cut()


TRIES = 20
"""A newer value may be removed if a call of the recovery takes longer than the time between the two
writes, which it does on a busy machine, but not each time."""


@pytest.mark.parametrize("write", ["set", "remove", "executed"])
@pytest.mark.parametrize("known", [True, False])
def test_what_another_machine_has_written_since_stays(machine: Machines, write: str, known: bool) -> None:
    one, two = machine("one", timeout=0.3), machine("two")

    def stays(number: int) -> bool:
        two.set("k", number)
        if known:
            assert near(one, "k") == number
        if write == "executed":
            # The answer is lost. The other machine writes before the call has failed.
            until(lambda: answers(one))
            one.proxy.hold(DATA, False)
            failed = in_thread(lambda: fails(lambda: one.set("k", "failed")))
            until(lambda: two.get("k") == "failed")
            two.set("k", "newer")
            failed()
        else:
            part(one)
            fails(lambda: one.set("k", "failed") if write == "set" else one.remove("k"))
            two.set("k", "newer")
        recovers(one)
        heard(two)
        assert two.get("k") in ("newer", None)
        return bool(two.get("k") == "newer")

    assert any(stays(number) for number in range(TRIES))


def answers(tier: Tier) -> bool:
    """Whether the tier has an idle connection."""
    try:
        tier.get("answers")
    except RemoteError:
        return False
    return True


@pytest.mark.parametrize("known", [True, False])
def test_what_another_machine_has_written_before_goes(machine: Machines, known: bool) -> None:
    """Its message is lost, or arrives after the write has failed."""
    one, two = machine("one"), machine("two")
    for lost in (True, False):
        two.set("k", 1)
        if known:
            assert near(one, "k") == 1
        one.proxy.hold(LISTENER, False)
        two.set("k", 2)
        one.proxy.wait_held(LISTENER, False)
        one.proxy.refuse()
        one.proxy.cut(DATA)
        fails(lambda: one.set("k", 3))
        if lost:
            one.proxy.cut()
        recovers(one)
        heard(two)
        assert two.get("k") is None


def test_a_value_whose_answer_was_lost_goes(machine: Machines) -> None:
    one, two = machine("one", timeout=0.3), machine("two")
    until(lambda: answers(one))
    one.proxy.hold(DATA, False)
    fails(lambda: one.set("k", 1))
    assert two.get("k") == 1
    recovers(one)
    heard(two)
    assert two.get("k") is None


@pytest.mark.parametrize("ends", ["before the recovery", "after it"])
def test_what_a_load_has_read_before_a_failed_write_goes(machine: Machines, server: RedisServer, ends: str) -> None:
    """The listener hears of its end after the failure."""
    one, two = machine("one", timeout=0.3), machine("two")
    load = Loader()
    loading = in_thread(lambda: two.get_or_load("k", load))
    assert load.begun.wait(PATIENCE)
    part(one)
    fails(lambda: one.set("k", "new"))
    if ends == "before the recovery":
        load.go.set()
        loading()
        assert server.client().get(remote_key("k"))
        recovers(one)
    else:
        recovers(one)
        load.go.set()
        loading()
    assert server.client().get(remote_key("k")) is None


def test_what_changes_while_it_is_removed_is_looked_at_again(
    machine: Machines, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that began before the failure may store its value between the two calls of the recovery."""
    tier = machine()
    fetch = tier._remote.fetch
    changed: list[bytes] = []

    def fetch_and_change(key: bytes, *arguments: Any, **options: Any) -> Any:
        found = yield from fetch(key, *arguments, **options)
        if not changed:
            changed.append(key)
            server.client().set(remote_key("k"), b"loaded")
        return found

    part(tier)
    fails(lambda: tier.set("k", 1))
    server.client().set(remote_key("k"), b"marker")
    monkeypatch.setattr(tier._remote, "fetch", fetch_and_change)
    recovers(tier)
    assert changed == [encode_key("k")]
    assert server.client().get(remote_key("k")) is None


def test_what_this_machine_writes_while_it_recovers_stays(
    machine: Machines, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also plain bytes, which do not have the time of their set."""
    tier = machine(timeout=PATIENCE)
    fetch = tier._remote.fetch
    written: list[bytes] = []

    def write_and_fetch(key: bytes, *arguments: Any, **options: Any) -> Any:
        if not written:
            written.append(key)
            tier.set("k", b"newer")
        return (yield from fetch(key, *arguments, **options))

    monkeypatch.setattr(tier._remote, "fetch", write_and_fetch)
    tier._near.journal.note(b"k" + encode_key("k"), now())
    until(lambda: written and not names_in(tier._near.journal))
    heard(tier)
    assert server.client().get(remote_key("k")) == b"newer"


def test_a_name_stays_while_its_write_may_be_executed(machine: Machines, server: RedisServer) -> None:
    tier = machine(timeout=0.3)
    journal, name = tier._near.journal, b"k" + encode_key("k")
    tier.set("k", 1)
    journal.note(name, now() + 3600 * 10**9)
    # A later failure does not shorten that.
    part(tier)
    fails(lambda: tier.set("k", 2))
    tier.proxy.go()
    for _ in range(3):
        heard(tier)
    assert server.client().get(remote_key("k"))
    writes: list[Callable[[], Any]] = [lambda: tier.set("k", 2), lambda: tier.remove("k")]
    for write in writes:
        with pytest.raises(RemoteError, match="interrupted set"):
            write()
    assert journal.take(name, now()) is None
    assert journal.take(name, now() + 3601 * 10**9)


def test_times_of_another_boot_vouch_for_nothing(machine: Machines) -> None:
    tier, two = machine(timeout=0.3), machine("two")
    journal = tier._near.journal
    tier._listener.stop()
    journal._boot = b"else"
    journal.note(b"k" + encode_key("k"), now())
    two.set("k", 2)
    machine()
    until(lambda: not names_in(tier._near.journal))
    heard(two)
    assert two.get("k") is None


def test_a_user_without_the_clock(tmp_path: Path) -> None:
    """Values do not have the time of their set."""
    ada = ("--user", "ada", "on", ">word", "~*", "&*", "+@all", "-time", "-info")
    server = RedisServer(tmp_path / "server", *ada)
    try:
        client = server.client(username="ada", password="word")
        with Tier(tmp_path / "near", client, bound=0.5, timeout=5.0, capacity="8MiB") as tier:
            tier.set("k", 1, tags=["t"])
            assert tier.get("k") == 1
            assert server.client().get(remote_key("k")).startswith(VALUE)
            tier._near.journal.note(b"k" + encode_key("k"), now())
            until(lambda: not names_in(tier._near.journal))
            assert tier.get("k") is None
            assert not tier.remove("k")
            tier.invalidate("t")
    finally:
        server.stop()


# Refusals


def full(server: RedisServer) -> None:
    server.client().config_set("maxmemory-policy", "noeviction")
    server.client().config_set("maxmemory", "1")


def replica(server: RedisServer) -> None:
    server.client().replicaof("127.0.0.1", "1")


def reader(server: RedisServer) -> None:
    server.client().execute_command("ACL", "SETUSER", "default", "-@write", "-eval")


@pytest.mark.parametrize("refuse", [full, replica, reader])
@pytest.mark.parametrize("tags", [(), ("t",)])
def test_a_refused_set_changes_nothing(machine: Machines, server: RedisServer, refuse: Any, tags: Any) -> None:
    tier = machine(bound=600, near_age=1000)
    tier.set("k", 1, max_age=1000)
    assert near(tier, "k") == 1
    stored = server.client().get(remote_key("k"))
    refuse(server)
    with pytest.raises(RemoteError):
        tier.set("k", 2, tags=tags)
    assert not names_in(tier._near.journal)
    assert server.client().get(remote_key("k")) == stored
    if refuse is not replica:  # which makes all near entries stale
        assert tier.lookup("k")[:2] == (1, "near")


def test_a_late_set_changes_nothing(machine: Machines, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = machine()
    tier.set("k", 1)
    monkeypatch.setattr("shale.tier._resp.Connection.server_time", lambda self, local: 1)
    with pytest.raises(RemoteError, match="time limit"):
        tier.set("k", 2)
    assert not names_in(tier._near.journal)
    assert tier.get("k") == 1


def test_a_refused_set_ends_no_recovery(machine: Machines, server: RedisServer) -> None:
    """An earlier set of the key has failed, and the value before it is still there."""
    tier = machine()
    tier.set("k", 1)
    tier._listener.stop()
    journal, name = tier._near.journal, b"k" + encode_key("k")
    journal.note(name, now())
    noted = names_in(journal)
    full(server)
    with pytest.raises(RemoteError):
        tier.set("k", 2)
    assert names_in(journal) == noted
    server.client().config_set("maxmemory", "0")
    tier.set("k", 3)
    assert not names_in(journal)


@pytest.mark.parametrize("way", ["remove", "invalidate"])
def test_a_refused_removal_is_done_later(machine: Machines, server: RedisServer, way: str) -> None:
    tier = machine()
    tier.set("k", 1, tags=["t"])
    reader(server)
    with pytest.raises(RemoteError):
        tier.remove("k") if way == "remove" else tier.invalidate("t")
    assert names_in(tier._near.journal)
    server.client().execute_command("ACL", "SETUSER", "default", "+@all")
    until(lambda: not names_in(tier._near.journal))
    heard(tier)
    assert tier.get("k") is None


def test_refused_names_keep_no_other_from_its_turn(
    machine: Machines, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = machine(timeout=0.3)
    invalidate = tier._remote.invalidate
    part(tier)
    for number in range(200):
        fails(lambda: tier.invalidate(f"t{number}"))  # noqa: B023

    def refuse_first(tag: bytes, deadline: float) -> Any:
        if tag < b"t10":
            raise shale.tier._errors.RefusedError("refused")
        yield from invalidate(tag, deadline)

    monkeypatch.setattr(tier._remote, "invalidate", refuse_first)
    tier.proxy.go()
    until(lambda: sorted(names_in(tier._near.journal)) == [b"tt0", b"tt1"])
    monkeypatch.undo()
    until(lambda: not names_in(tier._near.journal))


# The listener


def test_long_round_trips_end_no_listening(machine: Machines) -> None:
    """While a listener connects or waits for an answer, another one could take its place."""
    tier, *_ = [machine(bound=0.1) for _ in range(4)]
    tier.proxy.delays = dict.fromkeys(KINDS, 0.16)

    def is_calm() -> bool:
        heard(tier)
        epoch = tier._near.state().epoch
        for _ in range(12):
            heard(tier)
        return bool(tier._near.state().epoch == epoch)

    # A process that gets no time for as long as the lease lasts loses it.
    assert any(is_calm() for _ in range(6))


def test_long_round_trips_end_no_recovery(machine: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer than the bound, and less than the time limit."""
    tier = machine(bound=0.1, timeout=PATIENCE)
    monkeypatch.setattr(tier.proxy.random, "uniform", lambda least, most: most)
    tier.proxy.delays = dict.fromkeys(KINDS, 0.06)
    tier.proxy.cut(DATA)
    for name in (b"k" + encode_key("k"), b"tt"):
        tier._near.journal.note(name, now())
    until(lambda: not names_in(tier._near.journal))
    tier.get("k")


def test_a_failed_recovery_pauses_no_calls(machine: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = machine()
    failures: list[float] = []

    def fail(deadline: float) -> None:
        failures.append(deadline)
        raise ConnectionRefusedError

    monkeypatch.setattr(tier._listener._wire, "connect", fail)
    tier._near.journal.note(b"tt", now())
    until(lambda: len(failures) > 2)
    assert not tier._remote.wire.back_off._failures
    monkeypatch.undo()
    until(lambda: not names_in(tier._near.journal))


# The journal


def journal_of(cache: Any, most: float = 32) -> Journal:
    return Journal(cache, most, b"boot", b"machine")


def test_names_come_back(tmp_path: Path) -> None:
    with shale.Cache(tmp_path / "near", capacity="8MiB") as cache:
        journal = journal_of(cache)
        names = [b"k" + b"x" * size for size in (0, 1, 127, 128, 65_535)] + [b"t\xff\x00"]
        for name in names:
            journal.note(name, now(), b"value")
        assert set(names_in(journal)) == set(names)
        for name in names:
            taken = journal.take(name, now())
            assert taken is not None
            assert journal.take(name, now()) is None
            journal.put_back(name, taken)
            assert names_in(journal)[name] == taken
        found = list(journal.buckets())
        for bucket in found:
            journal.end(bucket, journal.names(bucket))
        assert not names_in(journal) and not journal.buckets() and not journal.buckets(every=True)


def test_a_killed_process_loses_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two changes of the journal."""
    with shale.Cache(tmp_path / "near", capacity="8MiB") as cache:
        journal = journal_of(cache)
        monkeypatch.setattr(journal, "_mark", lambda bucket, full=False: None)
        journal.note(b"kk", now())
        (bucket,) = journal.buckets(every=True)
        assert list(journal.names(bucket)) == [b"kk"]


def test_a_full_near_cache_removes_everything(tmp_path: Path) -> None:
    with shale.Cache(tmp_path / "near", capacity="1MiB") as cache:
        journal = journal_of(cache)
        number = 0
        while journal.everything() is None:
            journal.note(os.urandom(20_000), now())
            number += 1
        assert 10 < number < 100
        mark = journal.everything()
        assert mark is not None
        journal.remove_names()
        journal.note(b"kmeanwhile", now())
        journal.end_everything(mark)
        mark = journal.everything()
        assert mark is not None
        journal.remove_names()
        journal.end_everything(mark)
        assert not names_in(journal)
        journal.note(b"kafter", now())
        assert list(names_in(journal)) == [b"kafter"]


def test_failed_writes_cost_the_same_for_any_number(tmp_path: Path) -> None:
    with shale.Cache(tmp_path / "one") as one, shale.Cache(tmp_path / "two") as two:
        few, many = journal_of(one), journal_of(two)
        for number in range(20_000):
            many.note(b"kbefore%d" % number, now())

        def cost(journal: Journal, number: int) -> float:
            name = b"k%d" % number
            began = time.perf_counter()
            for _ in range(10):
                journal.take(name, now())
                journal.note(name, now())
            return time.perf_counter() - began

        costs = [(cost(few, number), cost(many, number)) for number in range(100)]
        assert many.everything() is None
        assert median(b / a for a, b in costs) < 5
