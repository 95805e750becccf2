"""The table "To look at": what a run has seen that does not decide about it.

Each step appends to one file, which the first of them makes and shows at the end.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

VARIABLE = "SHALE_NOTES"

_is_first = False  # this process made the file

# A single unstable test may be chance; this many are a fault of the tests or of the product.
MOST_UNSTABLE = 2


class Note(NamedTuple):
    kind: str  # unstable, informing
    what: str
    details: str = ""  # such as the output of both runs


def add(kind: str, what: str, details: str = "") -> None:
    with open(os.environ[VARIABLE], "a") as file:
        file.write(json.dumps(Note(kind, what, details)) + "\n")


def begin() -> bool:
    """Whether this process is the first step, which shows the table."""
    global _is_first
    if VARIABLE in os.environ:
        return False
    descriptor, os.environ[VARIABLE] = tempfile.mkstemp(prefix="shale-notes-")
    os.close(descriptor)
    _is_first = True
    return True


def forget() -> None:
    if _is_first and VARIABLE in os.environ:
        Path(os.environ.pop(VARIABLE)).unlink(missing_ok=True)


def show() -> int:
    """Prints the table and removes the file. Returns 1 if more tests are unstable than a run may have, or else 0."""
    notes = [Note(*json.loads(line)) for line in Path(os.environ[VARIABLE]).read_text().splitlines()]
    forget()
    unstable = len({note.what for note in notes if note.kind == "unstable"})
    print("To look at:" if notes else "To look at: nothing")
    for note in notes:
        print(f"  {note.kind:10} {note.what}")
        for line in note.details.splitlines():
            print(f"             {line}")
    if unstable > MOST_UNSTABLE:
        print(f"  {unstable} tests are unstable: {MOST_UNSTABLE + 1} or more fail a run")
    return int(unstable > MOST_UNSTABLE)
