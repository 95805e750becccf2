"""Random loads and changes in several processes; for the tests of fences.

The true value of each key is a number in a shared file, which only grows. A writer raises it,
changes the cache, and then records in the file that the change has returned. A reader first reads
that record: the value that it gets must not be less.

Progress is checked too. Each process in Python also loads keys that only a clear of the cache
changes, which have to be stored, and logs when its loads ran, so that two concurrent loads of one
key are found. One process is killed repeatedly. After each kill and at the end, a set, a removal,
an eviction, an invalidation and a load succeed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

from load_log import LoadLog, duplicates
from loaders import PATIENCE
from progress import Share, check_progress

import shale

KEYS = 8
LEAST = 30
"""The least number of loads in each process that must not be stored."""
KILLS = 3
STEPS = 20
"""The number of changes that a process makes before it is killed."""
MOST_REFUSED = 0.05
"""None is refused, unless more keys change during a load than the cache records, on a busy
machine."""
TRIES = 1000
"""Enough to succeed beside processes that clear the cache hundreds of times a second."""


def run(
    directory: Path,
    numbers: Path,
    programs: Sequence[tuple[str, Callable[..., Any]]],
    *,
    killed: int,
) -> None:
    """Runs the programs, each a name and a command, on one new cache, and checks their results.

    Each gets the arguments of `History`, and prints its output. killed: the program that is
    killed and restarted.
    """
    seed = int(os.environ.get("SHALE_SEED", random.randrange(1 << 30)))
    print(f"SHALE_SEED={seed}")
    numbers.write_bytes(bytes(4096))
    refused = Share("loads of unchanged keys refused", MOST_REFUSED)
    beside = Share("loads beside another's lease", 0)
    words = Words(numbers)
    ends: dict[int, float] = {}
    children: list[subprocess.Popen[str]] = []

    def start(first: int) -> subprocess.Popen[str]:
        chance = seed + 10 * first + 1000 * len(ends)
        child: subprocess.Popen[str] = programs[first][1](
            directory, numbers, first, len(programs), chance
        )
        return child

    with shale.Cache(directory, capacity="8MiB") as cache:
        try:
            children += map(start, range(len(programs)))
            for _ in range(KILLS):
                child = children[killed]
                goal = words.made(killed, len(programs)) + STEPS
                while words.made(killed, len(programs)) < goal:
                    assert child.poll() is None, programs[killed][0]
                    time.sleep(0.001)
                ends[child.pid] = time.monotonic()
                child.kill()
                child.communicate()
                # It may have been killed during a clear, which the next write in the shard
                # completes (limits.md, "Not atomic").
                cache.set("written", 1)
                words.clears[2 * killed + 1] = words.clears[2 * killed]
                check_progress(cache, tries=TRIES, refused=refused, changes=words.changes)
                children[killed] = start(killed)
            outputs = [child.communicate(timeout=PATIENCE)[0] for child in children]
        finally:
            for child in children:
                child.kill()
                child.wait(PATIENCE)
        check_progress(cache, refused=refused)
    with shale.Cache(directory) as cache:
        check_progress(cache, refused=refused)
    for (name, _), child, output in zip(programs, children, outputs):
        assert child.returncode == 0, name
        reads, conflicts, wrong, examples = output.split(maxsplit=3)
        print(f"{name}: {reads} reads, {conflicts} loads not stored")
        assert int(wrong) == 0, f"{name}, (key, least, found): {examples}"
        assert int(conflicts) >= LEAST, name
        assert int(reads) > 100, name
    logs = {int(path.suffix[1:]): path for path in numbers.parent.glob(f"{numbers.name}.*")}
    loads, found = duplicates(logs, ends)
    for number in range(loads):
        beside.count(number < len(found))
    for path in logs.values():
        for line in path.read_text().splitlines():
            if line.startswith("P "):
                refused.count(line == "P refused")
    print(refused, beside, sep="\n")
    assert loads > 100
    assert refused.all > 100
    assert not found, found[:3]
    refused.check()
    beside.check()


class Words:
    """The numbers that the processes share, in a file."""

    def __init__(self, path: Path) -> None:
        with open(path, "r+b") as file:
            shared = mmap.mmap(file.fileno(), 4096)
        self.truth = (ctypes.c_int64 * KEYS).from_buffer(shared)
        self.noted = (ctypes.c_int64 * KEYS).from_buffer(shared, 8 * KEYS)
        # The numbers of changes that each process has begun, and of those that have returned.
        self.clears = (ctypes.c_int64 * 32).from_buffer(shared, 16 * KEYS)

    def made(self, first: int, processes: int) -> int:
        """The number of changes that a process has begun."""
        return sum(self.truth[first::processes])

    def changes(self) -> tuple[int, ...] | None:
        """The number of clears; None during one."""
        returned, begun = self.clears[1::2], self.clears[::2]
        return tuple(begun) if begun == returned else None


class History:
    """One of the processes. It changes every `processes`-th key from `first` on, and reads all."""

    def __init__(self) -> None:
        directory, path, *rest = sys.argv[1:]
        self._first, self._processes, self._seed = map(int, rest)
        self._words = Words(Path(path))
        self.truth, self.noted = self._words.truth, self._words.noted
        self.cache = shale.Cache(directory)
        self._log = LoadLog(f"{path}.{os.getpid()}")
        self._reads = 0
        self._wrong: list[Any] = []
        now = time.monotonic()
        self._end, self._limit = now + 2.5, now + 50

    def going(self) -> bool:
        """Runs until enough has been observed."""
        now = time.monotonic()
        seen = self._wrong or self.cache.stats().own.conflicts >= LEAST
        return now < self._end or (not seen and now < self._limit)

    def pause(self, chance: random.Random) -> float:
        return chance.choice([0, 0, 0.0003, 0.001, 0.004])

    def write(
        self, chance: random.Random, change: Callable[[random.Random, int, int], object]
    ) -> None:
        """``change(chance, key, number)`` changes the cache for a new number."""
        while self.going():
            key = chance.randrange(KEYS // self._processes) * self._processes + self._first
            number = self.truth[key] + 1
            self.truth[key] = number
            time.sleep(self.pause(chance))
            change(chance, key, number)
            self.noted[key] = number
            time.sleep(self.pause(chance))

    def clear(self) -> None:
        """Clears the cache, and records that for loads of keys that only a clear changes."""
        clears = self._words.clears
        clears[2 * self._first] += 1
        self.cache.clear()
        clears[2 * self._first + 1] += 1

    def probe(self, chance: random.Random) -> None:
        """Loads keys that only a clear changes."""
        number = 0
        while self.going():
            number += 1
            before = self._words.changes()
            with self.cache.lease(("unchanged", os.getpid(), number)) as lease:
                time.sleep(self.pause(chance))
                stored = lease.set(b"x", max_age=10)
            if None is not before == self._words.changes():
                self._log.write("P", "stored" if stored else "refused")
            time.sleep(self.pause(chance))

    def evaluate(self, key: int, least: int, found: shale.LoadResult) -> None:
        self._reads += 1
        if int(found.value) < least:
            self._wrong.append((key, least, tuple(found)))

    def run(self, *works: Callable[[random.Random], object]) -> None:
        """Runs each in a thread, until all end."""
        threads = [
            threading.Thread(target=work, args=(random.Random(self._seed + number),))
            for number, work in enumerate((*works, self.probe))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        conflicts = self.cache.stats().own.conflicts
        print(self._reads, conflicts, len(self._wrong), self._wrong[:3])
