"""A process of a history: reads or writes until its input ends, and records what it saw."""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import redis
from load_log import LoadLog
from pymemcache import Client
from servers import until

from shale.tier import RemoteError, Tier
from shale.tier._near import EPOCH_TAG, now

LOADED = [b"l%d" % number for number in range(4)]
"""What readers load, and nobody writes."""

Work = Callable[[Tier, dict[str, Any], random.Random, threading.Event], None]
_file = 0


def record(*what: object) -> None:
    os.write(_file, (" ".join(map(str, what)) + "\n").encode())


def client_of(options: dict[str, Any]) -> Any:
    if options["memcached"]:
        return Client(("127.0.0.1", options["port"]))
    # Its listener's connection has its name.
    return redis.Redis(port=options["port"], client_name=str(os.getpid()))


def not_done(tier: Tier, name: str) -> list[str]:
    """What of all that a tier owes does not get done, on keys of its own.

    A call may fail where the remote does not answer: tier.md, "Promises, and why they hold": "The
    remote's death costs no request more than its time limit." But this is for when the remote is
    there, and with a time limit that no machine is too busy for; so each call succeeds at once. A
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
        # After a restart nothing is kept until the listener is back. tier.md, "Promises, and why
        # they hold": "A fill compares the server that it has read from (`run_id`) with the one that
        # the listener has published; if they differ, [...] it stores nothing."
        tier.get(key)
        return tier._cache.get(key, stale=True, peek=True) is not None

    undone = [each.__name__ for each in (set_, remove, invalidate, load) if not each()]
    tier.set(key, b"x")
    until(is_kept)
    tier.remove(key)
    return undone


def go_on(
    tier: Tier, options: dict[str, Any], _chance: random.Random, _ended: threading.Event
) -> None:
    for what in not_done(tier, str(os.getpid())):
        record("X", "not done:", what)


def read_untouched(tier: Tier, number: int) -> None:
    """Reads a key that the remote has not, and notes whether that is kept near."""
    cache, process = tier._cache, os.getpid()
    # Gone or stale where the epoch's tag was invalidated or expired. tier.md, "Promises, and why
    # they hold": "if its key was removed, one of its tags invalidated or the epoch's tag expired
    # since then, nothing is stored".
    cache.set(f"witness {process}", b"", tag=EPOCH_TAG)
    conflicts = cache.stats().own.conflicts
    found = tier.lookup(f"untouched {process} {number}")
    refused = cache.stats().own.conflicts > conflicts
    if found.source == "remote" and cache.get(f"witness {process}") is not None:
        record("P", int(refused))


def read(
    tier: Tier, options: dict[str, Any], chance: random.Random, ended: threading.Event
) -> None:
    keys = options["keys"]
    number = 0
    while not ended.is_set():
        number += 1
        try:
            if chance.random() < 0.05:
                read_untouched(tier, number)
            if chance.random() < 0.05:
                # It ends often, so it is loaded often.
                load = chance.choice(LOADED)
                tier.get_or_load(load, lambda: number, max_age=0.02)  # noqa: B023
        except RemoteError:
            pass
        # A few keys are popular.
        key = keys[int(len(keys) * chance.random() ** 3)]
        name = key.decode()
        stale = chance.random() < 0.2
        began = now()
        try:
            found = tier.lookup(key, stale=stale)
        except RemoteError:
            record("F", name, began, now())
            time.sleep(0.002)
            continue
        value = 0 if found.missing else int(found.value)
        record("R", name, value, began, now(), found.source, int(found.stale))
        if chance.random() < 0.2:
            time.sleep(chance.uniform(0, 0.004))


def write(
    tier: Tier, options: dict[str, Any], chance: random.Random, ended: threading.Event
) -> None:
    numbers = dict.fromkeys(options["own"], 0)
    tag = options["tag"]
    while not ended.is_set():
        began = now()
        try:
            if chance.random() < 0.02:
                tier.invalidate(tag)
                record("I", tag, began, now())
            else:
                key = chance.choice(options["own"])
                numbers[key] += 1
                tagged = chance.random() < 0.3
                record("B", key.decode(), numbers[key], began)
                tier.set(key, numbers[key], tags=[tag] if tagged else [])
                record("W", key.decode(), numbers[key], began, now(), tag if tagged else "")
        except RemoteError:
            pass
        time.sleep(chance.uniform(0, 0.03))


def main() -> None:
    options = eval(sys.argv[1])
    global _file
    _file = os.open(options["file"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    # It is there to be disturbed.
    logging.getLogger("shale").setLevel(logging.ERROR)
    client = client_of(options)
    ended = threading.Event()
    LoadLog(f"{options['file']}.{os.getpid()}")
    works: dict[str, Work] = {"read": read, "write": write, "go on": go_on}
    work = works[options["work"]]
    chance = random.Random(f"{options['seed']} {options['file']}")
    tier = Tier(options["directory"], client, **options["tier"])
    thread = threading.Thread(target=lambda: run(work, tier, options, chance, ended))
    thread.start()
    sys.stdin.read()
    ended.set()
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
        record("X", type(error).__name__, str(error).replace("\n", " "))
        raise


if __name__ == "__main__":
    main()
