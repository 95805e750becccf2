"""A process of a history: reads or writes until its input ends, and records what it saw.

A line is a kind and its fields (`Record.add` and `Progress.add`). The times are those of `now`.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import histories_waits
import redis
from load_log import LoadLog
from pymemcache import Client
from servers import until
from shale import LoadFailed
from shale._loading import in_flight
from shale._loading.attempts import LoadAttempt
from shale._loading.load import Load
from shale.tier import RemoteError, Tier, _wire
from shale.tier._listener import Listener
from shale.tier._near import EPOCH_TAG, NearCache, now

LOADED = [b"l%d" % number for number in range(4)]
"""Keys that readers load and no process writes."""
COUNTED = [b"c%d" % number for number in range(4)]
"""Keys that readers load, and only a program without tiers removes."""
SLOW = b"slow"
"""How keys begin whose answers the proxy may delay."""
LARGE = b"large"
FAILING = b"fails"
"""How keys begin whose only loader raises."""
CALLERS = 3
"""Threads of a reader that check progress."""
AT_ONCE = 8
LARGE_SIZE = 3_000_000

Work = Callable[[Tier, dict[str, Any], random.Random, threading.Event], None]
_file = 0


def record(*what: object) -> None:
    os.write(_file, (" ".join(map(str, what)) + "\n").encode())


class LoaderFailed(Exception):
    """Of a loader."""


class Cancelled(BaseException):
    """Of a loader, as a task's or Ctrl-C."""


class Call:
    """A call of a tier."""

    def __init__(self, what: str, key: bytes, account: histories_waits.Account) -> None:
        self.what = what
        self.key = key.decode()
        self.account = account
        self.began = now()
        self.error: Exception | None = None
        """With which it got on without the remote."""

    def passed(self, took: int, tier: Tier) -> bool:
        """Whether its time may have passed. took: nanoseconds."""
        return self.account.passed or took >= tier._timeout * 5e8

    def end(self, tier: Tier) -> None:
        ended, account, error, timeout = now(), self.account, self.error, tier._timeout
        # The server's clock may say so, too.
        passed = self.passed(ended - self.began, tier) or "time limit" in str(error)
        if error is not None:
            ports = ",".join(map(str, account.ports)) or "-"
            why = str(error).replace("\n", " ")
            # Its time may end between its turn to connect and connecting.
            connects = account.connects or "no time is left to connect" in why
            flags = int(passed), int(connects)
            record("F", self.what, self.key, self.began, ended, *flags, ports, why)
        elif account.connects:
            record("O", self.began, ended, int(passed))
        loads = self.what == "load"
        waited = account.remote if loads else account.remote + account.others
        if waited > timeout / 2:
            record("T", waited / timeout)
        if waited > 1.1 * timeout:
            record("X", f"a call waited {waited / timeout:.2f} time limits: {self.what} of {self.key}")
        if loads and account.others > timeout:
            record("Q", self.key, self.began, ended, account.others)


@contextmanager
def called(what: str, key: bytes, tier: Tier) -> Iterator[Call]:
    """Around a call: RemoteError ends it."""
    with histories_waits.counted() as account:
        call = Call(what, key, account)
        try:
            yield call
        except RemoteError as error:
            call.error = error
        finally:
            call.end(tier)


def note_runs() -> None:
    """Records the loads, the changes of the near cache, and how long the journal takes."""
    look, end, flush = LoadAttempt.look, Load.end, Listener._flush
    began: dict[int, tuple[str, int]] = {}

    def look_noted(attempt: LoadAttempt) -> Any:
        before = now()
        found = look(attempt)
        if isinstance(found, Load):
            began[id(found)] = name_of(attempt.load_key[1]), before
            record("a", *began[id(found)])
        return found

    def end_noted(load: Load) -> None:
        end(load)
        run = began.pop(id(load), None)
        if run is not None:
            record("A", *run, now())

    def flush_noted(listener: Listener) -> None:
        before = now()
        with histories_waits.counted() as account:
            flush(listener)
        if account.connects:
            ended = now()
            passed = account.passed or ended - before >= listener._remote.timeout * 5e8
            record("O", before, ended, int(passed))

    setattr(LoadAttempt, "look", look_noted)  # noqa: B010
    setattr(Load, "end", end_noted)  # noqa: B010
    setattr(Listener, "_flush", flush_noted)  # noqa: B010
    for name in ("gap", "flushed"):
        _note_change(name, lambda _keys: ["G"])
    _note_change("removed", lambda keys: [f"M {name_of(key)}" for key in keys if key in COUNTED])


def _note_change(name: str, lines: Callable[[list[bytes]], list[str]]) -> None:
    change = getattr(NearCache, name)

    def noted(near: NearCache, *arguments: Any) -> None:
        before = now()
        keys = [list(each) for each in arguments]
        change(near, *keys)
        for line in lines(*keys or [[]]):
            record(line, before, now())

    setattr(NearCache, name, noted)


def name_of(stored_key: bytes) -> str:
    return stored_key.decode(errors="replace").replace(" ", "_")


def client_of(options: dict[str, Any]) -> Any:
    if options["memcached"]:
        return Client(("127.0.0.1", options["port"]))
    # The connection of its listener has its name.
    return redis.Redis(port=options["port"], client_name=str(os.getpid()))


def not_done(tier: Tier, name: str) -> list[str]:
    """The operations of a tier that do not succeed, on keys of its own.

    A call may fail if the remote does not answer: tier.md, "Promises". But here the remote is
    reachable, with a time limit that no machine is too busy for, so each call succeeds at once. A
    tier has no eviction.
    """
    key, tag = f"progress {name}", f"progress {name}"

    def set_() -> bool:
        tier.set(key, b"x")
        return bool(tier.get(key) == b"x")

    def remove() -> bool:
        tier.set(key, b"x")
        return tier.remove(key) and tier.get(key) is None

    def invalidate() -> bool:
        tier.set(key, b"x", tags=[tag])
        tier.invalidate(tag)
        return tier.get(key) is None

    def load() -> bool:
        tier.remove(key)
        found = tier.lookup_or_load(key, lambda: b"x", tags=[tag])
        return found.source == "loaded" and bool(tier.get(key) == b"x")

    def is_kept() -> bool:
        # After a restart nothing is stored until the listener is back, because the server is
        # another than the listener has published: tier.md, "Promises".
        tier.get(key)
        return tier._cache.get(key, stale=True, peek=True) is not None

    undone = [each.__name__ for each in (set_, remove, invalidate, load) if not each()]
    tier.set(key, b"x")
    until(is_kept)
    tier.remove(key)
    return undone


def go_on(tier: Tier, options: dict[str, Any], _chance: random.Random, _ended: threading.Event) -> None:
    for what in not_done(tier, str(os.getpid())):
        record("X", "not done:", what)


def read_unchanged(tier: Tier, number: int) -> None:
    """Reads a key that the remote does not have, and records whether the near cache keeps that."""
    cache, process = tier._cache, os.getpid()
    # Dead or stale if the epoch's tag was invalidated or expired; then nothing is stored either:
    # tier.md, "Promises".
    cache.set(f"witness {process}", b"", tag=EPOCH_TAG)
    conflicts: list[object] = []
    key = f"unchanged {process} {number}"
    stop = cache.on("conflict", lambda event: conflicts.append(event.key))
    try:
        found = tier.lookup(key)
    finally:
        stop()
    refused = key in conflicts
    if found.source == "remote" and cache.get(f"witness {process}") is not None:
        record("P", int(refused))


def read(tier: Tier, options: dict[str, Any], chance: random.Random, ended: threading.Event) -> None:
    keys = options["keys"]
    number = 0
    while not ended.is_set():
        number += 1
        if chance.random() < 0.05:
            with called("lookup", b"unchanged", tier):
                read_unchanged(tier, number)
        if chance.random() < 0.05:
            # It expires often, so it is loaded often.
            load_expiring(tier, chance.choice(LOADED), number)
        # A few keys are popular.
        key = keys[int(len(keys) * chance.random() ** 3)]
        name = key.decode()
        stale = chance.random() < 0.2
        began = now()
        result = None
        with called("lookup", key, tier) as call:
            result = tier.lookup(key, stale=stale)
            call.error = result.error
        if result is None:
            time.sleep(0.002)
            continue
        value = 0 if result.missing else int(result.value)
        record("R", name, value, began, now(), result.source, int(result.stale))
        if chance.random() < 0.2:
            time.sleep(chance.uniform(0, 0.004))


def call_at_random(tier: Tier, options: dict[str, Any], chance: random.Random, ended: threading.Event) -> None:
    """Calls whose progress counts, beside the reads of this process."""
    folder = Path(options["file"]).parent
    number = 0
    while not ended.is_set():
        number += 1
        time.sleep(chance.uniform(0, 0.02))
        which = chance.random()
        if which < 0.4:
            load_counted(tier, chance.choice(COUNTED), chance, folder)
        elif which < 0.42:
            load_counted(tier, FAILING + b"%d-%d" % (threading.get_ident(), number), chance, folder, 1)
        elif which < 0.5:
            load_expiring(tier, chance.choice(LOADED), number)
        elif which < 0.6:
            # Each of these keys, which the remote does not have, is read once.
            look_up(tier, SLOW + b"%d-%d" % (threading.get_ident(), number))
        elif which < 0.62:
            look_up_at_once(tier, number)
        elif which < 0.9:
            look_up(tier, b"other%d-%d" % (threading.get_ident(), number))
        elif (folder / "large").exists():
            if chance.random() < 0.5:
                with called("set", LARGE, tier):
                    tier.set(LARGE, chance.randbytes(LARGE_SIZE))
            else:
                look_up(tier, LARGE)


def load_expiring(tier: Tier, key: bytes, number: int) -> None:
    def load() -> int:
        began = now()
        record("l", key.decode(), began, now())
        return number

    with called("load", key, tier) as call:
        call.error = tier.lookup_or_load(key, load, max_age=0.02).error


def look_up_at_once(tier: Tier, number: int) -> None:
    """Leaves idle connections."""
    threads = [
        threading.Thread(target=look_up, args=(tier, b"other%d-%d-%d" % (threading.get_ident(), number, each)))
        for each in range(AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def look_up(tier: Tier, key: bytes) -> None:
    with called("lookup", key, tier):
        tier.lookup(key)


def load_counted(tier: Tier, key: bytes, chance: random.Random, folder: Path, failing: float = 0.1) -> None:
    """folder: a file `hang` in it keeps one loader from returning. failing: so often it raises."""
    name = key.decode()
    began, ended, outcome = 0, 0, "value"

    def load() -> bytes:
        nonlocal began, ended, outcome
        began = now()
        record("b", name, call.began, began)
        with suppress(OSError):
            (folder / "hang").rename(folder / f"hanging-{os.getpid()}")
            threading.Event().wait()
        with histories_waits.not_counted():
            time.sleep(chance.choice([0, chance.uniform(0, 0.02)]))
        ended = now()
        fate = chance.random()
        if fate < failing:
            outcome = "failed"
            raise LoaderFailed(name)
        if fate < failing + 0.03:
            outcome = "cancelled"
            raise Cancelled
        return b"%d" % began

    found = None
    with suppress(LoaderFailed, LoadFailed, Cancelled), called("load", key, tier) as call:
        found = tier.lookup_or_load(key, load)
        call.error = found.error
    if began:
        call_ended = now()
        # A marker may be left without a result that says so.
        own_time = call_ended - call.began - (ended - began)
        error = (found is not None and found.error is not None) or call.passed(own_time, tier)
        since = call.account.waited_since
        record("C", name, call.began, began, ended, call_ended, outcome, int(error), since)


def write(tier: Tier, options: dict[str, Any], chance: random.Random, ended: threading.Event) -> None:
    numbers = dict.fromkeys(options["own"], 0)
    tag = options["tag"]
    while not ended.is_set():
        if chance.random() < 0.02:
            with called("invalidate", tag.encode(), tier) as call:
                tier.invalidate(tag)
                record("I", tag, call.began, now())
        else:
            key = chance.choice(options["own"])
            numbers[key] += 1
            tagged = chance.random() < 0.3
            with called("set", key, tier) as call:
                record("B", key.decode(), numbers[key], call.began)
                tier.set(key, numbers[key], tags=[tag] if tagged else [])
                record("W", key.decode(), numbers[key], call.began, now(), tag if tagged else "")
        time.sleep(chance.uniform(0, 0.03))


def no_back_off_limit(tier: Any) -> None:
    _wire._FIRST_BACK_OFF = 30.0  # type: ignore[misc]
    wire = tier._remote.wire
    getattr(wire, "back_off", wire)._retry = 30.0


def no_limit_to_connect(tier: Any) -> None:
    wire = tier._remote.wire
    connect = wire.connect
    wire.connect = lambda deadline: connect(deadline + 30)


def idle_connections_are_kept(tier: Any) -> None:
    wire = tier._remote.wire
    getattr(wire, "idle", wire).close = wire.close_idle = lambda: None


def no_single_flight(tier: Any) -> None:
    in_flight.running = lambda load_key: None
    tier._load_policy.wait = 0.0


def failures_are_kept(_tier: Any) -> None:
    setattr(Load, "_hand_failure", lambda _load, _error: None)  # noqa: B010


def no_value_is_kept_without_the_remote(tier: Any) -> None:
    tier._keep_alone = lambda *_arguments: None


def long_leases(tier: Any) -> None:
    for policy in (tier._policy, tier._load_policy):
        policy.lease, policy.lease_ms = 30.0, 30_000


def markers_are_left(tier: Any) -> None:
    tier._remote.cancel_load = lambda *_arguments: ()


FLAWS: dict[Callable[[Any], None], list[str]] = {
    no_back_off_limit: ["refused"],
    no_limit_to_connect: ["unanswered"],
    idle_connections_are_kept: ["half_open_connections"],
    no_single_flight: ["delays"],
    failures_are_kept: ["delays"],
    no_value_is_kept_without_the_remote: ["stopped_server", "refused_writes"],
    long_leases: ["stopped_reader"],
    markers_are_left: ["flush"],
}
"""What breaks a tier, with the faults in which a history shows it."""


def main() -> None:
    options = eval(sys.argv[1])
    global _file
    _file = os.open(options["file"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    # A key for other processes to change.
    logging.getLogger("shale").setLevel(logging.ERROR)
    client = client_of(options)
    ended = threading.Event()
    LoadLog(f"{options['file']}.{os.getpid()}")
    histories_waits.install()
    note_runs()
    works: dict[str, Work] = {"read": read, "write": write, "go on": go_on}
    work = works[options["work"]]
    chance = random.Random(f"{options['seed']} {options['file']}")
    tier = Tier(options["directory"], client, **options["tier"])
    if options["flaw"]:
        next(each for each in FLAWS if each.__name__ == options["flaw"])(tier)
    works_of = [work, *([call_at_random] * CALLERS if work is read else [])]
    threads = [
        threading.Thread(target=run, args=(each, tier, options, random.Random(chance.random()), ended))
        for each in works_of
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
    record("S", tier.counts.near, tier.counts.remote, tier.counts.stale)
    tier.close()


def run(
    work: Work,
    tier: Tier,
    options: dict[str, Any],
    chance: random.Random,
    ended: threading.Event,
) -> None:
    try:
        work(tier, options, chance, ended)
    except BaseException as error:
        record("X", " ".join(traceback.format_exception(error)).replace("\n", " "))
        raise


if __name__ == "__main__":
    main()
