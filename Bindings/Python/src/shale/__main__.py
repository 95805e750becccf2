"""``python -m shale``: commands on directories of caches."""

from __future__ import annotations

import argparse
import sys

from ._commands import audit, bench, convert, demo

_COMMANDS = (demo, bench, audit, convert)


def main(arguments: list[str] | None = None) -> int:
    """Runs a command, and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m shale", description="Shale's commands.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_to(commands)
    parsed = parser.parse_args(arguments)
    status: int = parsed.run(parsed)
    return status


if __name__ == "__main__":
    sys.exit(main())
