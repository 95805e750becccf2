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
from pymemcache import Client

from shale.tier import RemoteError, Tier
from shale.tier._near import now

Work = Callable[[Tier, dict[str, Any], random.Random, threading.Event], None]
_file = 0


def record(*what: object) -> None:
    os.write(_file, (" ".join(map(str, what)) + "\n").encode())


def client_of(options: dict[str, Any]) -> Any:
    if options["memcached"]:
        return Client(("127.0.0.1", options["port"]))
    # Its listener's connection has its name.
    return redis.Redis(port=options["port"], client_name=str(os.getpid()))


def read(
    tier: Tier, options: dict[str, Any], chance: random.Random, ended: threading.Event
) -> None:
    keys = options["keys"]
    while not ended.is_set():
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
    work = write if options["own"] else read
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
