"""Common parts of the tests: a clock that is set by hand, and children."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from hypothesis import settings
from loaders import PATIENCE

import shale

SMALL = "8MiB"

PYTHON_ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = PYTHON_ROOT.parents[1]


class Tolerances:
    """Counts results that a model tolerates although a dict would differ. Each use cites the
    heading of the documents that allows it; conftest.py prints the counts."""

    looks = 0
    used: ClassVar[Counter[str]] = Counter()


def look() -> None:
    Tolerances.looks += 1


def tolerated(why: str) -> bool:
    Tolerances.used[why] += 1
    return True


class Clock:
    """Seconds since 1970, which only the test moves."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self.seconds = start

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


def examples(count: int) -> settings:
    """Settings of a state machine; SHALE_EXAMPLES=50 runs fifty times as many examples."""
    factor = float(os.environ.get("SHALE_EXAMPLES", "1"))
    return settings(max_examples=max(1, int(count * factor)), stateful_step_count=40, deadline=None)


def child_environment(**more: str) -> dict[str, str]:
    source, tests = Path(shale.__file__).resolve().parents[1], Path(__file__).resolve().parent
    path = os.pathsep.join(filter(None, [f"{source}", f"{tests}", os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **more}


def start_child(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process that runs `script`, with pipes for input and output."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_environment(),
        text=True,
    )


def let_go(children: Iterable[subprocess.Popen[str]]) -> None:
    """Sends a line to each waiting child, and waits until all have ended without an error."""
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=PATIENCE)
        assert child.returncode == 0


def run_child(script: str, *arguments: object, environment: dict[str, str] | None = None) -> str:
    """Runs `script` in a process of its own and returns its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        env=environment or child_environment(),
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
