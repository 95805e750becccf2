"""The measurements: each work on one store, with every answer checked."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from typing import Any, Callable

from .data import Data
from .stores import Store

WORKS = {
    "get": "gets of present keys, by Zipf's law",
    "miss": "gets of missing keys",
    "set": "sets of new keys",
    "overwrite": "sets of present keys, in random order",
    "mixed": "nine gets and a set, by Zipf's law",
    "call": "calls of a memoized function whose results are there, by Zipf's law",
}

BATCH = 128
"""Calls between two readings of the clock. Their results are checked outside of that time."""

Clock = Callable[[], float]


class WrongAnswer(Exception):
    pass


def _gets(
    function: Callable[[Any], Any], keys: Sequence[Any], expected: Sequence[Any],
    unwrap: Callable[[Any], Any], clock: Clock,
) -> float:  # fmt: skip
    """Calls a second."""
    seconds = 0.0
    for start in range(0, len(keys), BATCH):
        batch = keys[start : start + BATCH]
        begin = clock()
        found = [function(key) for key in batch]
        seconds += clock() - begin
        if list(map(unwrap, found)) != expected[start : start + BATCH]:
            raise WrongAnswer("a value differs from the one that was stored")
        del found
    return len(keys) / seconds


def _sets(store: Store, pairs: Sequence[tuple[Any, bytes]], clock: Clock) -> float:
    function = store.set
    begin = clock()
    for key, value in pairs:
        function(key, value)
    return len(pairs) / (clock() - begin)


def _mixed(store: Store, steps: Sequence[tuple[Any, Any]], clock: Clock) -> float:
    get, put = store.get, store.set
    begin = clock()
    for key, value in steps:
        if value is None:
            get(key)
        else:
            put(key, value)
    return len(steps) / (clock() - begin)


def _calls(store: Store, data: Data, popular: Sequence[int], clock: Clock) -> dict[str, float]:
    numbers = {key: number for number, key in enumerate(data.keys)}
    loaded = []

    def load(key: str) -> bytes:
        loaded.append(key)
        return data.values[numbers[key]]

    function = store.memoize(load)
    if function is None:
        return {}
    for key in data.keys:
        function(key)
    loads = len(loaded)
    keys = [data.keys[number] for number in popular]
    expected = [data.values[number] for number in popular]
    rate = _gets(function, keys, expected, lambda found: found, clock)
    if len(loaded) != loads:
        raise WrongAnswer("a result was computed again")
    return {"call": rate}


def measure(
    kind: type[Store], data: Data, directory: str, seed: int, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """Calls a second of each work, in a new store in an empty directory."""
    entries = len(data.keys)
    popular = data.by_popularity(seed)
    store = kind(directory, 4 * entries * (data.size + 400) + (32 << 20), 4 * entries)
    rates: dict[str, float] = {}
    try:
        gc.collect()
        gc.disable()
        if kind.calls:
            rates.update(_accesses(store, data, popular, seed, clock))
        rates.update(_calls(store, data, popular, clock))
        return rates
    finally:
        gc.enable()
        store.close()


def _accesses(
    store: Store, data: Data, popular: Sequence[int], seed: int, clock: Clock
) -> dict[str, float]:
    keys = [store.key(key) for key in data.keys]
    for number in range(min(100, len(keys))):  # warm up
        key = store.key(f"warm:{number}")
        store.set(key, data.values[number])
        store.get(key)
    rates = {"set": _sets(store, list(zip(keys, data.values)), clock)}
    rates["get"] = _gets(
        store.get, [keys[number] for number in popular],
        [data.values[number] for number in popular], store.unwrap, clock,
    )  # fmt: skip
    missing = [store.key(key) for key in data.missing]
    rates["miss"] = _gets(store.get, missing, [None] * len(missing), store.unwrap, clock)
    order = data.shuffled(seed)
    pairs = [(keys[number], data.others[number]) for number in order]
    rates["overwrite"] = _sets(store, pairs, clock)
    expected = list(data.others)
    steps = []
    for at, number in enumerate(popular):
        value = data.values[number] if at % 10 == 9 else None
        steps.append((keys[number], value))
        expected[number] = value or expected[number]
    rates["mixed"] = _mixed(store, steps, clock)
    _gets(store.get, keys, expected, store.unwrap, clock)  # checks them
    return rates
