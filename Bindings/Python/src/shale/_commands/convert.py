"""``python -m shale convert``: a cache of Shale from a directory of diskcache."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from .._native.errors import Error
from ..adapters.diskcache._convert import convert_directory


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command's parser."""
    parser = commands.add_parser(
        "convert",
        help="make a Shale cache of a directory of diskcache",
        description="Reads the entries of diskcache's Cache, FanoutCache, Deque or Index in OLD, "
        "and stores them in NEW, for the classes of shale.adapters.diskcache. OLD does not change; "
        "no program may write to it meanwhile. Expired entries are left out.",
    )
    parser.add_argument("old", metavar="OLD", help="the directory of diskcache")
    parser.add_argument("new", metavar="NEW", help="an empty or a new directory")
    parser.add_argument(
        "--unpickle",
        choices=("plain", "any"),
        help="read entries that diskcache has pickled, which are left out otherwise. plain: None, "
        "numbers, str, bytes, and tuples, lists, sets and dicts of them, such as the keys of "
        "memoize; that runs no code. any: every type, which runs the code that the bytes choose: "
        "only for a directory that others could not write to. Then open NEW with disk=PickleDisk.",
    )
    parser.set_defaults(run=run)


class _Progress:
    """Prints the progress to standard error once a second; on a terminal, on one line."""

    def __init__(self) -> None:
        self._shown = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done < total and now - self._shown < 1:
            return
        self._shown = now
        share = 100 * done // total if total else 100
        end = "\r" if sys.stderr.isatty() and done < total else "\n"
        print(f"{done:,} of {total:,} entries ({share} %)", end=end, file=sys.stderr, flush=True)


def run(parsed: argparse.Namespace) -> int:
    """1 if it left entries out, 2 if it failed."""
    try:
        counts = convert_directory(parsed.old, parsed.new, parsed.unpickle, _Progress())
    except (Error, OSError, ValueError) as error:
        print(f"shale convert: {error}", file=sys.stderr)
        return 2
    print(counts)
    return 0 if counts.complete else 1
