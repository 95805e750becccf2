"""Loads beside changes, at random, in several processes; for the tests of fences.

The truth of each key is a number in a shared file, and only grows. Who raises it says so to the
cache, and notes in the file that this has returned. Whoever reads takes that note first: what it
is given must not be less.
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

import shale

KEYS = 8
LEAST = 30
"""Loads that are not to be stored, in each process: so that there is something to be seen."""


def run(directory: Path, numbers: Path, programs: Sequence[tuple[str, Callable[..., Any]]]) -> None:
    """Runs the programs, each a name and what starts it, on one new cache, and judges them all.

    Each is given what `History` takes, and prints what that prints.
    """
    seed = int(os.environ.get("SHALE_SEED", random.randrange(1 << 30)))
    print(f"SHALE_SEED={seed}")
    numbers.write_bytes(bytes(4096))
    shale.Cache(directory, capacity="8MiB").close()
    children: list[subprocess.Popen[str]] = []
    try:
        for first, (_, start) in enumerate(programs):
            children.append(start(directory, numbers, first, len(programs), seed + 10 * first))
        outputs = [child.communicate(timeout=90)[0] for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait(30)
    for (name, _), child, output in zip(programs, children, outputs):
        assert child.returncode == 0, name
        reads, conflicts, wrong, examples = output.split(maxsplit=3)
        print(f"{name}: {reads} reads, {conflicts} loads not stored")
        assert int(wrong) == 0, f"{name}, (key, least, found): {examples}"
        assert int(conflicts) >= LEAST, name
        assert int(reads) > 100, name


class History:
    """One of the processes. It changes each `processes`-th key from `first` on, and reads all."""

    def __init__(self) -> None:
        directory, path, *rest = sys.argv[1:]
        self._first, self._processes, self._seed = map(int, rest)
        with open(path, "r+b") as file:
            shared = mmap.mmap(file.fileno(), 16 * KEYS)
        self.truth = (ctypes.c_int64 * KEYS).from_buffer(shared)
        self.noted = (ctypes.c_int64 * KEYS).from_buffer(shared, 8 * KEYS)
        self.cache = shale.Cache(directory)
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

    def judge(self, key: int, least: int, found: shale.LoadResult) -> None:
        self._reads += 1
        if int(found.value) < least:
            self._wrong.append((key, least, tuple(found)))

    def run(self, *works: Callable[[random.Random], object]) -> None:
        """A thread for each, until it is over."""
        threads = [
            threading.Thread(target=work, args=(random.Random(self._seed + number),))
            for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        conflicts = self.cache.stats().own.conflicts
        print(self._reads, conflicts, len(self._wrong), self._wrong[:3])
