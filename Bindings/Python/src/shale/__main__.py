"""``python -m shale``: commands on directories of caches."""

from __future__ import annotations

import argparse
import sys
import time

from ._errors import Error


class _Progress:
    """A line on standard error, now and then; on a terminal, always the same one."""

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


def main(arguments: list[str] | None = None) -> int:
    """Runs a command. Its exit status: 1 where it left something out, 2 where it failed."""
    parser = argparse.ArgumentParser(prog="python -m shale", description="Shale's commands.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    convert = commands.add_parser(
        "convert",
        help="make a Shale cache of a directory of diskcache",
        description="Reads what diskcache's Cache, FanoutCache, Deque or Index has stored in OLD, "
        "and stores it in NEW, where the classes of shale.compat.diskcache find it. OLD stays as "
        "it is; nobody should write to it meanwhile. What is past its age is left out.",
    )
    convert.add_argument("old", metavar="OLD", help="the directory of diskcache")
    convert.add_argument("new", metavar="NEW", help="a directory that is empty, or not there")
    convert.add_argument(
        "--unpickle",
        choices=("plain", "any"),
        help="read what diskcache has pickled, which is left out otherwise. plain: None, numbers, "
        "str, bytes, and tuples, lists, sets and dicts of them, such as the keys of memoize; that "
        "runs no code. any: every type, which runs the code that the bytes choose: for a "
        "directory alone that nobody else could write to. Then open NEW with disk=PickleDisk.",
    )
    parsed = parser.parse_args(arguments)
    from .compat.diskcache._convert import convert_directory

    try:
        counts = convert_directory(parsed.old, parsed.new, parsed.unpickle, _Progress())
    except (Error, OSError, ValueError) as error:
        print(f"shale convert: {error}", file=sys.stderr)
        return 2
    print(counts)
    return 0 if counts.complete else 1


if __name__ == "__main__":
    sys.exit(main())
