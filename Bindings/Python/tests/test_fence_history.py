"""Loads beside changes, at random, in threads and coroutines of two processes.

The truth of each key is a number in a shared file, and only grows. Who raises it says so to the
cache, and notes in the file that this has returned. Whoever reads takes that note first: what it
is given must not be less.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from support import SMALL, start_child

import shale

PROCESSES = 2

CHILD = """
    import asyncio, ctypes, mmap, random, sys, threading, time
    import shale
    from shale import _load

    directory, path, name, processes, seed = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    KEYS, LEAST, END, LIMIT = 6, 30, time.monotonic() + 2.5, time.monotonic() + 50
    file = open(path, "r+b")
    shared = mmap.mmap(file.fileno(), 16 * KEYS)
    truth = (ctypes.c_int64 * KEYS).from_buffer(shared)
    noted = (ctypes.c_int64 * KEYS).from_buffer(shared, 8 * KEYS)
    cache = shale.Cache(directory)
    reads, wrong, unstored = [0], [], [0]
    store = _load.Load._set

    def counted(load, *arguments):
        store(load, *arguments)
        unstored[0] += load._link.unstored is not None

    _load.Load._set = counted

    def going():
        # Not before there was something to see.
        now = time.monotonic()
        return now < END or (unstored[0] < LEAST and now < LIMIT)

    def pause(chance):
        return chance.choice([0, 0, 0.0003, 0.001, 0.004])

    def write(seed):
        chance = random.Random(seed)
        while going():
            key = chance.randrange(KEYS // processes) * processes + name
            number = truth[key] + 1
            truth[key] = number
            time.sleep(pause(chance))
            way = chance.randrange(12)
            if way < 4:
                cache.invalidate(f"tag {key}")
            elif way < 8:
                cache.remove(key)
            elif way < 10:
                cache.set(key, number, max_age=0.003, stale=10, tag=f"tag {key}")
            elif way < 11:
                cache.clear()
            else:
                cache.remove_many([key])
            noted[key] = number
            if chance.randrange(20) == 0:
                cache.evict(2)
            time.sleep(pause(chance))

    def options(chance, key):
        return {
            "tag": chance.choice([f"tag {key}", None]),
            "max_age": chance.choice([0.003, 10]),
            "stale": chance.choice([0, 10]),
            "lease": chance.choice([0.002, 30]),
            "wait": chance.choice([0, 0.002, 10]),
            "refresh_ahead": chance.choice([0, 100]),
            "soft_timeout": chance.choice([0, 0.001, 1]),
        }

    def answer(key, number, previous):
        if previous is not None and previous.value == number:
            return shale.NotModified()
        return shale.Loaded(number, tags=[f"tag {key}"])

    def judge(key, least, found):
        reads[0] += 1
        if found.value < least:
            wrong.append((key, least, tuple(found)))

    def read(seed):
        chance = random.Random(seed)
        while going():
            key = chance.randrange(KEYS)
            least = noted[key]

            # It may run on while this thread asks for the next key.
            def load(previous, key=key):
                number = truth[key]
                time.sleep(pause(chance))
                return answer(key, number, previous)

            judge(key, least, cache.entry_or_load(key, load, **options(chance, key)))

    async def read_async(seed):
        chance = random.Random(seed)
        coroutines = shale.AsyncCache(cache)

        while going():
            key = chance.randrange(KEYS)
            least = noted[key]

            async def load(previous, key=key):
                number = truth[key]
                await asyncio.sleep(pause(chance))
                return answer(key, number, previous)

            found = await coroutines.entry_or_load(key, load, **options(chance, key))
            judge(key, least, found)

    async def read_in_coroutines():
        await asyncio.gather(read_async(seed + 3), read_async(seed + 4))

    threads = [
        threading.Thread(target=write, args=(seed,)),
        threading.Thread(target=read, args=(seed + 1,)),
        threading.Thread(target=read, args=(seed + 2,)),
        threading.Thread(target=asyncio.run, args=(read_in_coroutines(),)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(reads[0], unstored[0], len(wrong), wrong[:3])
"""


def test_nobody_is_given_what_was_loaded_before_a_change_that_had_returned(
    directory: Path, tmp_path: Path
) -> None:
    seed = int(os.environ.get("SHALE_SEED", random.randrange(1 << 30)))
    print(f"SHALE_SEED={seed}")
    numbers = tmp_path / "numbers"
    numbers.write_bytes(bytes(4096))
    shale.Cache(directory, capacity=SMALL).close()
    children = [
        start_child(CHILD, directory, numbers, name, PROCESSES, seed + 10 * name)
        for name in range(PROCESSES)
    ]
    try:
        outputs = [child.communicate(timeout=90)[0] for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait(30)
    for child, output in zip(children, outputs):
        assert child.returncode == 0
        reads, unstored, wrong, examples = output.split(maxsplit=3)
        print(f"{reads} reads, {unstored} loads not stored")
        assert int(wrong) == 0, f"(key, least, found): {examples}"
        # So that there was something to be seen.
        assert int(unstored) >= 30
        assert int(reads) > 100
