"""The lock of the sole writer, among all threads and processes.

It is a lock on a file, which the kernel releases when a process is killed, combined with a lock
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


class WriterLock:
    def __init__(self, path: str) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self.threads = threading.RLock()
        """Held by the writing thread of this process."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.depth = 0
        """How often its thread holds it."""

    def acquire(self, timeout: float | None) -> bool:
        """Waits for the lock, up to ``timeout`` seconds; None: no limit. Whether it is held now."""
        if self._process != os.getpid():
            # A child of fork has its own lock, independent of its parent's threads.
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
        # If __init__ failed, there is no file.
        file = getattr(self, "_file", None)
        if file is not None:
            os.close(file)
