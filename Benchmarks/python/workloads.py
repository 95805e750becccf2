"""The measurements: each work on one store, with every answer checked."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from data import SETS, Data, uniform, zipf
from stores import BY_NAME, Store

BATCH = 128
"""Calls between two readings of the clock. Their results are checked outside of that time."""


clock = time.perf_counter
"""Seconds. `bench.py --cpu-time` sets another one, for this process alone."""


class WrongAnswer(Exception):
    pass


def _timed_gets(store: Store, keys: Sequence[bytes], expected: Sequence[Any]) -> float:
    """Seconds that the gets took."""
    get = store.get
    asked = store.keys(list(keys))
    seconds = 0.0
    for start in range(0, len(asked), BATCH):
        batch = asked[start : start + BATCH]
        wanted = expected[start : start + BATCH]
        begin = clock()
        found = [get(key) for key in batch]
        seconds += clock() - begin
        if found != wanted:
            raise WrongAnswer(f"{store.name}: a get gave another value than was set")
        del found
    return seconds


def _timed_sets(store: Store, keys: Sequence[bytes], values: Sequence[Any]) -> float:
    set_one = store.set
    begin = clock()
    for key, value in zip(keys, values):
        set_one(key, value)
    store.settle()
    return clock() - begin


def _timed_deletes(store: Store, keys: Sequence[bytes]) -> float:
    delete = store.delete
    begin = clock()
    for key in keys:
        delete(key)
    store.settle()
    return clock() - begin


def _check(store: Store, data: Data, numbers: Sequence[int], expected: Sequence[Any]) -> None:
    for number in numbers:
        if store.get(data.keys[number]) != expected[number]:
            raise WrongAnswer(f"{store.name}: entry {number} differs from the value stored last")


def _of(items: Sequence[Any], numbers: Sequence[int]) -> list[Any]:
    return [items[number] for number in numbers]


def measure(kind: type[Store], data: Data, directory: Path, seed: int, pair: Pair | None) -> dict[str, float]:
    """Calls a second of each work, on a new store in an empty directory."""
    entries = data.entries
    at_random = uniform(entries, entries, seed)
    popular = zipf(entries, entries, seed + 1)
    before, after = data.values, data.others
    rates: dict[str, float] = {}

    store = kind(directory, data.kind, data)
    try:
        gc.collect()
        gc.disable()
        if not kind.gets_only:
            rates["fill"] = entries / _timed_sets(store, data.keys, before)
        for work, numbers in (("get_uniform", at_random), ("get_zipf", popular)):
            seconds = _timed_gets(store, _of(data.keys, numbers), _of(before, numbers))
            rates[work] = entries / seconds
        if kind.gets_only:
            return rates
        seconds = _timed_gets(store, data.missing, [None] * entries)
        rates["miss"] = entries / seconds

        if pair is not None and kind.processes:
            store.close()
            rates["get_zipf@2p"] = pair.run("get", kind, directory, seed)
            rates["overwrite@2p"] = pair.run("overwrite", kind, directory, seed)
            store = kind(directory, data.kind, data)
            before, after = after, before
            _check(store, data, popular, before)

        some = at_random[: entries // 2]
        seconds = _timed_sets(store, _of(data.keys, some), _of(after, some))
        rates["overwrite"] = len(some) / seconds
        expected = list(before)
        for number in some:
            expected[number] = after[number]
        deleted = list(range(0, entries, 2))
        rates["delete"] = len(deleted) / _timed_deletes(store, _of(data.keys, deleted))
        for number in deleted:
            expected[number] = None
        _check(store, data, range(entries), expected)
        return rates
    finally:
        gc.enable()
        store.close()


class Pair:
    """Two processes that open one store and work on it at the same time."""

    def __init__(self, set_name: str, entries: int, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connections: list[Connection] = []
        self._processes = []
        for number in range(2):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, set_name, entries, seed, number), daemon=True)
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)
        self._answers()

    def run(self, work: str, kind: type[Store], directory: Path, seed: int) -> float:
        """Calls a second, of both together."""
        for connection in self._connections:
            connection.send((work, kind.name, directory, seed))
        self._answers()
        for connection in self._connections:
            connection.send("go")
        answers: list[tuple[int, float]] = self._answers()
        return sum(calls for calls, _ in answers) / max(seconds for _, seconds in answers)

    def _answers(self) -> list[Any]:
        answers = [connection.recv() for connection in self._connections]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def close(self) -> None:
        for connection in self._connections:
            connection.send(None)
        for process in self._processes:
            process.join()


def _serve(connection: Connection, set_name: str, entries: int, seed: int, number: int) -> None:
    """The life of one of the two processes."""
    data = Data(next(kind for kind in SETS if kind.name == set_name), entries, seed)
    gc.disable()
    connection.send("ready")
    while True:
        order = connection.recv()
        if order is None:
            return
        try:
            connection.send(_serve_one(connection, data, number, *order))
        except Exception as error:
            connection.send(error)


def _serve_one(
    connection: Connection,
    data: Data,
    number: int,
    work: str,
    name: str,
    directory: Path,
    seed: int,
) -> tuple[int, float]:
    """(calls, seconds)."""
    store = BY_NAME[name](directory, data.kind, None)
    try:
        if work == "get":
            numbers = zipf(data.entries, data.entries, seed + 2 + number)
        else:
            numbers = list(range(number, data.entries, 2))
        keys = _of(data.keys, numbers)
        expected = _of(data.values if work == "get" else data.others, numbers)
        connection.send("ready")
        connection.recv()
        timed = _timed_gets if work == "get" else _timed_sets
        return len(keys), timed(store, keys, expected)
    finally:
        store.close()
