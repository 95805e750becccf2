"""The progress of commands that read many entries."""

from __future__ import annotations

import sys
import time


class Progress:
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
