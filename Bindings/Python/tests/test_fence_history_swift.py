"""Random loads and changes, in processes of Python and of Swift.

The Swift half is Tests/HistoryLoader, which the Swift package's tests build. Both store their
values under the keys and tags of a Swift ``Cache<String, String>`` without a name.
"""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import Any, Callable

import history
import pytest
from support import REPOSITORY, start_child

LOADER = Path(
    os.environ.get("SHALE_HISTORY_LOADER", REPOSITORY / ".build" / "debug" / "HistoryLoader")
)
# As many of each.
PROCESSES = 2

CHILD = """
    import time
    from history import KEYS, History

    history = History()
    cache = history.cache

    def stored(key):
        return b"\\x00s" + str(key).encode()

    def tags(key):
        return ["0:", f"0:tag {key}"]

    def value(number):
        return str(number).encode()

    def change(chance, key, number):
        way = chance.randrange(10)
        if way < 3:
            cache.invalidate(f"0:tag {key}")
        elif way < 6:
            cache.remove(stored(key))
        elif way < 9:
            cache.set(stored(key), value(number), max_age=0.003, stale=10, tags=tags(key))
        else:
            history.clear()

    def write(chance):
        history.write(chance, change)

    def read(chance):
        while history.going():
            key = chance.randrange(KEYS)
            least = history.noted[key]

            def load(previous, key=key):
                number = history.truth[key]
                time.sleep(history.pause(chance))
                return value(number)

            found = cache.entry_or_load(
                stored(key),
                load,
                tags=tags(key),
                max_age=chance.choice([0.003, 10]),
                lease=1,
                stale=chance.choice([0, 10]),
                soft_timeout=chance.choice([0, 0.001, 1]),
            )
            history.evaluate(key, least, found)

    history.run(write, read, read)
"""


def start_loader(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(LOADER), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(
    not LOADER.exists(), reason=f"{LOADER} is not there: swift build --product HistoryLoader"
)
def test_neither_language_is_given_what_was_loaded_before_a_change(
    directory: Path, tmp_path: Path
) -> None:
    child = functools.partial(start_child, CHILD)
    both: list[tuple[str, Callable[..., Any]]] = [("Swift", start_loader), ("Python", child)]
    history.run(directory, tmp_path / "numbers", both * PROCESSES, killed=1)
