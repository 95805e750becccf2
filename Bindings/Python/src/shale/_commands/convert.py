"""``python -m shale convert``: a cache of Shale from a directory of diskcache."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from .._native.errors import Error
from ..adapters.diskcache._convert import convert_directory
from ..adapters.diskcache._source import printable
from ._progress import Progress
from .audit import add_output_options


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command's parser."""
    parser = commands.add_parser(
        "convert",
        help="make a Shale cache of a directory of diskcache",
        description="Reads the entries of diskcache's Cache, FanoutCache, DjangoCache, Deque or "
        "Index in OLD, and stores them in NEW, for the classes of shale.adapters.diskcache. OLD "
        "does not change; no program may write to it meanwhile. Expired entries are left out.",
        epilog="Exit status: 0 if it converted all entries that have not expired, 1 if not, 2 if "
        "it failed.",
    )
    parser.add_argument("old", metavar="OLD", help="the directory of diskcache")
    parser.add_argument("new", metavar="NEW", help="an empty or a new directory")
    parser.add_argument(
        "--unpickle",
        choices=("plain", "any"),
        default="plain",
        help="how to read what diskcache has pickled. plain, the default: without unpickling, "
        "None, numbers, str, bytes, collections, dates and times, Decimal and UUID. any: unpickle "
        "what that leaves out, which runs the code that the bytes choose: only for a directory "
        "that others could not write to. Then open NEW with disk=PickleDisk.",
    )
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """1 if it left entries out, 2 if it failed."""
    try:
        result = convert_directory(
            parsed.old, parsed.new, parsed.unpickle == "any", parsed.examples, Progress()
        )
    except (Error, OSError, ValueError) as error:
        print(f"shale convert: {printable(str(error))}", file=sys.stderr)
        return 2
    print(json.dumps(result.as_json(), indent=2) if parsed.json else "\n".join(result.lines()))
    return 0 if result.complete else 1
