"""One writer at a time, of all threads and processes.

It is a lock on a file, which the kernel takes back from a process that is killed, and before it one
among the process's threads. It is reentrant.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from typing import Final

_FIRST_PAUSE: Final = 0.0001
_LONGEST_PAUSE: Final = 0.008


class Turn:
    def __init__(self, path: str) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self.threads = threading.RLock()
        """Of the process's threads, the one that writes has it."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.depth = 0
        """How often it is held, by the one thread that holds it."""

    def acquire(self, timeout: float | None) -> bool:
        """Waits for it, as long as timeout says, seconds; None: without end. Whether it is had."""
        if self._process != os.getpid():
            # A child of fork has a lock of its own, whatever its parent's threads held.
            os.close(self._file)
            self._begin()
        end = None if timeout is None else time.monotonic() + timeout
        if not self.threads.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            return False
        try:
            if self.depth == 0 and not self._lock(end):
                self.threads.release()
                return False
        except BaseException:
            self.threads.release()
            raise
        self.depth += 1
        return True

    def release(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self.threads.release()

    def _lock(self, end: float | None) -> bool:
        if end is None:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            return True
        pause = _FIRST_PAUSE
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                time.sleep(min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def __del__(self) -> None:
        # Where __init__ failed, there is none.
        file = getattr(self, "_file", None)
        if file is not None:
            os.close(file)
