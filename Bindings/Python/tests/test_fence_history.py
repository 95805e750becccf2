"""Random loads and changes, in threads and coroutines of two processes."""

from __future__ import annotations

import functools
from pathlib import Path

import history
from support import start_child

PROCESSES = 2

CHILD = """
    import asyncio, random, time
    import shale
    from history import KEYS, History

    history = History()
    cache = history.cache

    def change(chance, key, number):
        way = chance.randrange(12)
        if way < 4:
            cache.invalidate(f"tag {key}")
        elif way < 8:
            cache.remove(key)
        elif way < 10:
            cache.set(key, number, max_age=0.003, stale=10, tag=f"tag {key}")
        elif way < 11:
            history.clear()
        else:
            cache.remove_many([key])
        if chance.randrange(20) == 0:
            cache.evict(2)

    def write(chance):
        history.write(chance, change)

    def options(chance, key):
        return {
            "tag": chance.choice([f"tag {key}", None]),
            "max_age": chance.choice([0.003, 10]),
            "stale": chance.choice([0, 10]),
            "lease": chance.choice([0.002, 1]),
            "wait": chance.choice([0, 0.002, 10]),
            "refresh_ahead": chance.choice([0, 100]),
            "soft_timeout": chance.choice([0, 0.001, 1]),
        }

    def answer(key, number, previous):
        if previous is not None and previous.value == number:
            return shale.NotModified()
        return shale.Loaded(number, tags=[f"tag {key}"])

    def read(chance):
        while history.going():
            key = chance.randrange(KEYS)
            least = history.noted[key]

            # It may run on while this thread asks for the next key.
            def load(previous, key=key):
                number = history.truth[key]
                time.sleep(history.pause(chance))
                return answer(key, number, previous)

            history.evaluate(key, least, cache.entry_or_load(key, load, **options(chance, key)))

    async def read_async(chance):
        coroutines = shale.AsyncCache(cache)

        while history.going():
            key = chance.randrange(KEYS)
            least = history.noted[key]

            async def load(previous, key=key):
                number = history.truth[key]
                await asyncio.sleep(history.pause(chance))
                return answer(key, number, previous)

            found = await coroutines.entry_or_load(key, load, **options(chance, key))
            history.evaluate(key, least, found)

    def read_in_coroutines(chance):
        async def both():
            await asyncio.gather(read_async(chance), read_async(chance))

        asyncio.run(both())

    history.run(write, read, read, read_in_coroutines)
"""


def test_nobody_is_given_what_was_loaded_before_a_change_that_had_returned(
    directory: Path, tmp_path: Path
) -> None:
    child = functools.partial(start_child, CHILD)
    history.run(directory, tmp_path / "numbers", [("Python", child)] * PROCESSES, killed=1)
