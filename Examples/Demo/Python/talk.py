"""The lines that this program sends to the orchestrator; demo/worker.py lists them."""

from __future__ import annotations

import json
import time
from array import array

PROGRESS_SECONDS = 0.1
PROGRESS_STEP = 64
NAMED_DIFFERENCES = 10

_last_progress = 0.0
_differences = 0


def say(kind: str, text: str) -> None:
    print(kind, text, flush=True)


def say_progress(done: int, total: int) -> None:
    """Sends at most ten lines a second; cheap enough to be called for every entry."""
    global _last_progress
    if done % PROGRESS_STEP == 0 and time.monotonic() - _last_progress > PROGRESS_SECONDS:
        _last_progress = time.monotonic()
        say("progress", f"{done} {total}")


def say_difference(key: bytes, what: str) -> None:
    """Reports a wrong result of the cache for this key. Only the first ten keys are named."""
    global _differences
    _differences += 1
    if _differences <= NAMED_DIFFERENCES:
        say("difference", f"{key.decode('ascii', 'backslashreplace')}: {what}")
    elif _differences == NAMED_DIFFERENCES + 1:
        say("difference", "and more")


def say_result(**numbers: int) -> None:
    say("result", json.dumps(numbers))


def say_measured(nanoseconds: array) -> None:
    ordered = sorted(nanoseconds)
    say_result(
        calls=len(ordered), total_ns=sum(ordered), p50_ns=percentile(ordered, 0.5), p99_ns=percentile(ordered, 0.99)
    )


def percentile(ordered: list[int], share: float) -> int:
    """The percentile of `share` (0 to 1); 0 without samples."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0
