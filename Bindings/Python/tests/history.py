"""Loads beside changes, at random, in several processes; for the tests of fences.

The truth of each key is a number in a shared file, and only grows. Who raises it says so to the
cache, and notes in the file that this has returned. Whoever reads takes that note first: what it
is given must not be less.

Beside that, things get done. Each process in Python also loads keys that nothing but a clear of the
cache touches, which are to be stored, and writes down which loads ran when, so that two loads of
one key at once are seen. One process is killed again and again. After each kill and at the end, a
set, a removal, an eviction, an invalidation and a load succeed.
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
from progress import Share, check_progress

import shale

KEYS = 8
LEAST = 30
"""Loads that are not to be stored, in each process: so that there is something to be seen."""
KILLS = 3
STEPS = 20
"""Changes that a process has made before it is killed."""
MOST_REFUSED = 0.05
"""None is, but on a machine so busy that more keys change during a load than the cache notes."""
TRIES = 1000
"""To get something done beside processes that clear the cache hundreds of times a second."""


def run(
    directory: Path,
    numbers: Path,
    programs: Sequence[tuple[str, Callable[..., Any]]],
    *,
    killed: int,
) -> None:
    """Runs the programs, each a name and what starts it, on one new cache, and judges them all.

    Each is given what `History` takes, and prints what that prints. killed: which of them is
    killed, and started again.
    """
    seed = int(os.environ.get("SHALE_SEED", random.randrange(1 << 30)))
    print(f"SHALE_SEED={seed}")
    numbers.write_bytes(bytes(4096))
    refused = Share("loads of untouched keys refused", MOST_REFUSED)
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
                # It may have been killed in a clear, which the next write in the shard finishes
                # (limits.md, "Not atomic").
                cache.set("written", 1)
                words.clears[2 * killed + 1] = words.clears[2 * killed]
                check_progress(cache, tries=TRIES, refused=refused, changes=words.changes)
                children[killed] = start(killed)
            outputs = [child.communicate(timeout=90)[0] for child in children]
        finally:
            for child in children:
                child.kill()
                child.wait(30)
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
    """What the processes share: words of a file."""

    def __init__(self, path: Path) -> None:
        with open(path, "r+b") as file:
            shared = mmap.mmap(file.fileno(), 4096)
        self.truth = (ctypes.c_int64 * KEYS).from_buffer(shared)
        self.noted = (ctypes.c_int64 * KEYS).from_buffer(shared, 8 * KEYS)
        # How many each process has begun, and how many have returned.
        self.clears = (ctypes.c_int64 * 32).from_buffer(shared, 16 * KEYS)

    def made(self, first: int, processes: int) -> int:
        """How many changes a process has begun."""
        return sum(self.truth[first::processes])

    def changes(self) -> tuple[int, ...] | None:
        """The clears until now; None while one is under way."""
        returned, begun = self.clears[1::2], self.clears[::2]
        return tuple(begun) if begun == returned else None


class History:
    """One of the processes. It changes each `processes`-th key from `first` on, and reads all."""

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
        """Not over before there was something to see."""
        now = time.monotonic()
        seen = self._wrong or self.cache.stats().own.conflicts >= LEAST
        return now < self._end or (not seen and now < self._limit)

    def pause(self, chance: random.Random) -> float:
        return chance.choice([0, 0, 0.0003, 0.001, 0.004])

    def write(
        self, chance: random.Random, change: Callable[[random.Random, int, int], object]
    ) -> None:
        """``change(chance, key, number)`` tells the cache of a number."""
        while self.going():
            key = chance.randrange(KEYS // self._processes) * self._processes + self._first
            number = self.truth[key] + 1
            self.truth[key] = number
            time.sleep(self.pause(chance))
            change(chance, key, number)
            self.noted[key] = number
            time.sleep(self.pause(chance))

    def clear(self) -> None:
        """Clears the cache, and says so to those who load what nothing else touches."""
        clears = self._words.clears
        clears[2 * self._first] += 1
        self.cache.clear()
        clears[2 * self._first + 1] += 1

    def probe(self, chance: random.Random) -> None:
        """Loads keys that nothing but a clear touches."""
        number = 0
        while self.going():
            number += 1
            before = self._words.changes()
            with self.cache.lease(("untouched", os.getpid(), number)) as lease:
                time.sleep(self.pause(chance))
                stored = lease.set(b"x", max_age=10)
            if None is not before == self._words.changes():
                self._log.write("P", "stored" if stored else "refused")
            time.sleep(self.pause(chance))

    def judge(self, key: int, least: int, found: shale.LoadResult) -> None:
        self._reads += 1
        if int(found.value) < least:
            self._wrong.append((key, least, tuple(found)))

    def run(self, *works: Callable[[random.Random], object]) -> None:
        """A thread for each, until it is over."""
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
