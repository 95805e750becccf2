"""Loads beside changes, at random, in processes of Python and of Swift.

The words are those of test_fence_history.py.

The Swift half is Tests/HistoryLoader, which the Swift package's tests build. Both write what they
load and what they set under the keys and tags of a Swift ``Cache<String, String>`` without a name.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from support import REPOSITORY, SMALL, start_child

import shale

LOADER = Path(
    os.environ.get("SHALE_HISTORY_LOADER", REPOSITORY / ".build" / "debug" / "HistoryLoader")
)
# As many of each.
PROCESSES = 2
LEAST = 30

CHILD = """
    import ctypes, mmap, random, sys, threading, time
    import shale

    directory, path, first, processes, seed = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    KEYS, LEAST, END, LIMIT = 8, 30, time.monotonic() + 2.5, time.monotonic() + 50
    file = open(path, "r+b")
    shared = mmap.mmap(file.fileno(), 16 * KEYS)
    truth = (ctypes.c_int64 * KEYS).from_buffer(shared)
    noted = (ctypes.c_int64 * KEYS).from_buffer(shared, 8 * KEYS)
    cache = shale.Cache(directory)
    reads, wrong = [0], []

    def going():
        # Not before there was something to see.
        now = time.monotonic()
        return now < END or (cache.stats().own.conflicts < LEAST and not wrong and now < LIMIT)

    def stored(key):
        return b"\\x00s" + str(key).encode()

    def tags(key):
        return ["0:", f"0:tag {key}"]

    def value(number):
        return str(number).encode()

    def pause(chance):
        return chance.choice([0, 0, 0.0003, 0.001, 0.004])

    def write(seed):
        chance = random.Random(seed)
        while going():
            key = chance.randrange(KEYS // processes) * processes + first
            number = truth[key] + 1
            truth[key] = number
            time.sleep(pause(chance))
            way = chance.randrange(10)
            if way < 3:
                cache.invalidate(f"0:tag {key}")
            elif way < 6:
                cache.remove(stored(key))
            elif way < 9:
                cache.set(stored(key), value(number), max_age=0.003, stale=10, tags=tags(key))
            else:
                cache.clear()
            noted[key] = number
            time.sleep(pause(chance))

    def read(seed):
        chance = random.Random(seed)
        while going():
            key = chance.randrange(KEYS)
            least = noted[key]

            def load(previous, key=key):
                number = truth[key]
                time.sleep(pause(chance))
                return value(number)

            found = cache.entry_or_load(
                stored(key),
                load,
                tags=tags(key),
                max_age=chance.choice([0.003, 10]),
                stale=chance.choice([0, 10]),
                soft_timeout=chance.choice([0, 0.001, 1]),
            )
            reads[0] += 1
            if int(found.value) < least:
                wrong.append((key, least, tuple(found)))

    threads = [threading.Thread(target=write, args=(seed,))]
    threads += [threading.Thread(target=read, args=(seed + n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(reads[0], cache.stats().own.conflicts, len(wrong), wrong[:3])
"""


@pytest.mark.skipif(
    not LOADER.exists(), reason=f"{LOADER} is not there: swift build --product HistoryLoader"
)
def test_neither_language_is_given_what_was_loaded_before_a_change(
    directory: Path, tmp_path: Path
) -> None:
    seed = int(os.environ.get("SHALE_SEED", random.randrange(1 << 30)))
    print(f"SHALE_SEED={seed}")
    numbers = tmp_path / "numbers"
    numbers.write_bytes(bytes(4096))
    shale.Cache(directory, capacity=SMALL).close()
    arguments = [
        (str(directory), str(numbers), str(name), str(2 * PROCESSES), str(seed + 10 * name))
        for name in range(2 * PROCESSES)
    ]
    children = [
        start_child(CHILD, *arguments[name])
        if name % 2
        else subprocess.Popen(
            [str(LOADER), *arguments[name]],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )
        for name in range(2 * PROCESSES)
    ]
    try:
        outputs = [child.communicate(timeout=90)[0] for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait(30)
    for name, (child, output) in enumerate(zip(children, outputs)):
        language = "Python" if name % 2 else "Swift"
        assert child.returncode == 0, language
        reads, conflicts, wrong, examples = output.split(maxsplit=3)
        print(f"{language}: {reads} reads, {conflicts} loads not stored")
        assert int(wrong) == 0, f"{language}, (key, least, found): {examples}"
        # So that there was something to be seen.
        assert int(conflicts) >= LEAST, language
        assert int(reads) > 100, language
