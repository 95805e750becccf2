"""``python -m shale audit``: what a directory of diskcache holds, without unpickling."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ..adapters.diskcache._audit import audit_directory
from ..adapters.diskcache._source import printable
from ._progress import Progress


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command's parser."""
    parser = commands.add_parser(
        "audit",
        help="say what a directory of diskcache holds",
        description="Reads the entries of diskcache's Cache, FanoutCache, DjangoCache, Deque or "
        "Index in DIR without unpickling, and says what they are, whose code unpickling would run, "
        "and what `convert` moves. Writes nothing to DIR, which may be damaged or in use.",
        epilog="Exit status: 0 if `convert` moves all entries that have not expired, 1 if not, 2 "
        "if DIR could not be read.",
    )
    parser.add_argument("directory", metavar="DIR", help="the directory of diskcache")
    add_output_options(parser)
    parser.set_defaults(run=run)


def add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--examples",
        type=int,
        default=3,
        metavar="N",
        help="for each reason, print up to N keys of entries that are left out (3)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(parsed: argparse.Namespace) -> int:
    """1 if entries do not move, 2 if it failed."""
    try:
        audit = audit_directory(parsed.directory, parsed.examples, Progress())
    except (OSError, ValueError) as error:
        print(f"shale audit: {printable(str(error))}", file=sys.stderr)
        return 2
    print(json.dumps(audit.as_json(), indent=2) if parsed.json else "\n".join(audit.lines()))
    return 0 if audit.complete else 1
