"""Measures the gain of the extension in C: microseconds of single calls, beside ctypes alone and alternatives.

    python Benchmarks/python/extension.py [--cpu-time]     with SHALE_LIBRARY, and the extension built in place

Each figure is the least of some rounds, in which all stores take turns, in a process of their own each time.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

ENTRIES = 5_000
ROUNDS = 5
KEYS = [f"key {number}".encode() for number in range(ENTRIES)]
TUPLES = [(number, str(number), number * 1.5) for number in range(1_000)]
INTS = list(range(10_000))

clock = time.perf_counter


def microseconds(work: Callable[[], object], calls: int, times: int = 1) -> float:
    """Of one of the calls that the work makes; the least of three."""
    least = float("inf")
    for _ in range(3):
        begin = clock()
        for _ in range(times):
            work()
        least = min(least, clock() - begin)
    return least / calls / times * 1e6


def each(function: Callable[..., object], *more: Any) -> Callable[[], None]:
    def run() -> None:
        for key in KEYS:
            function(key, *more)

    return run


def shale(directory: str) -> dict[str, float]:
    import shale

    value = os.urandom(1024)
    cache = shale.Cache(directory, capacity="256MiB", compression="none", sync_on_close=False)
    found = {"set 1 KiB": microseconds(each(cache.set, value), ENTRIES)}
    found["get 1 KiB"] = microseconds(each(cache.get), ENTRIES)
    found["get_many of 64, a key"] = microseconds(lambda: cache.get_many(KEYS[:64]), 64, 200)
    for name, items in (("1,000 tuples", TUPLES), ("10,000 ints", INTS)):
        meta, data = cache._codec.encode(items)
        assert cache._codec.decode(meta, data) == items
        found[f"pack {name}"] = microseconds(lambda items=items: cache._codec.encode(items), 1, 20)  # type: ignore[misc]
        found[f"unpack {name}"] = microseconds(
            lambda meta=meta, data=data: cache._codec.decode(meta, data),  # type: ignore[misc]
            1,
            20,
        )

    def number(number: int, other: int = 2) -> int:
        return number

    plain = cache.memoize(number, name="plain")
    spaced = cache.namespace("n").memoize(number, name="plain", tag="tag")
    ahead = cache.memoize(number, name="ahead", max_age=300, refresh_ahead=2)
    for name, call in (
        ("", lambda: plain(1, 2)),
        (", default omitted", lambda: plain(1)),
        (", keyword", lambda: plain(1, other=2)),
        (", namespace and tag", lambda: spaced(1, 2)),
        (", refresh_ahead", lambda: ahead(1, 2)),
    ):
        call()
        found[f"memoize, a hit{name}"] = microseconds(call, 1, 5_000)
    return found


def with_pickle(_directory: str) -> dict[str, float]:
    found = {}
    for name, items in (("1,000 tuples", TUPLES), ("10,000 ints", INTS)):
        data = pickle.dumps(items, pickle.HIGHEST_PROTOCOL)
        found[f"pack {name}"] = microseconds(
            lambda items=items: pickle.dumps(items, pickle.HIGHEST_PROTOCOL),  # type: ignore[misc]
            1,
            20,
        )
        found[f"unpack {name}"] = microseconds(lambda data=data: pickle.loads(data), 1, 20)  # type: ignore[misc]
    return found


def with_lmdb(directory: str) -> dict[str, float]:
    import lmdb

    value = os.urandom(1024)
    environment = lmdb.open(directory, map_size=1 << 28, writemap=True, sync=False, metasync=False)
    begin = environment.begin

    def put(key: bytes) -> None:
        with begin(write=True) as transaction:
            transaction.put(key, value)

    def get(key: bytes) -> object:
        with begin() as transaction:
            return transaction.get(key)

    found = {"set 1 KiB": microseconds(each(put), ENTRIES), "get 1 KiB": microseconds(each(get), ENTRIES)}
    with begin() as transaction:
        found["get 1 KiB, in one transaction"] = microseconds(each(transaction.get), ENTRIES)
    with begin(write=True) as transaction:
        found["set 1 KiB, in one transaction"] = microseconds(each(transaction.put, value), ENTRIES)
    return found


def with_diskcache(directory: str) -> dict[str, float]:
    import diskcache

    value = os.urandom(1024)
    cache = diskcache.Cache(directory, sqlite_synchronous=0, sqlite_mmap_size=1 << 28)
    return {
        "set 1 KiB": microseconds(each(cache.set, value), ENTRIES),
        "get 1 KiB": microseconds(each(cache.get), ENTRIES),
    }


STORES = {
    "Shale": shale,
    "Shale, ctypes alone": shale,
    "pickle": with_pickle,
    "python-lmdb": with_lmdb,
    "diskcache, tuned": with_diskcache,
}


def measured(store: str, cpu_time: bool) -> dict[str, float]:
    environment = {**os.environ, "SHALE_SPEED": "0" if store.endswith("alone") else "1"}
    command = [sys.executable, __file__, "--store", store, *(["--cpu-time"] if cpu_time else [])]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    global clock
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cpu-time", action="store_true", help="count processor time, where the machine is busy")
    parser.add_argument("--store", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.store:
        if given.cpu_time:
            clock = time.process_time
        with tempfile.TemporaryDirectory() as directory:
            print(json.dumps(STORES[given.store](directory)))
        return 0
    least: dict[str, dict[str, float]] = {store: {} for store in STORES}
    for _ in range(ROUNDS):
        for store in STORES:
            for work, figure in measured(store, given.cpu_time).items():
                least[store][work] = min(figure, least[store].get(work, figure))
    works = sorted({work for found in least.values() for work in found})
    print("| µs | " + " | ".join(STORES) + " |")
    print("|---|" + len(STORES) * "---|")
    for work in works:
        figures = [f"{least[store][work]:.3g}" if work in least[store] else "" for store in STORES]
        print(f"| {work} | " + " | ".join(figures) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
