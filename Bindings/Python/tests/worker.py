"""A second process, which makes calls on its own handle of a cache."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

from loaders import PATIENCE
from support import Clock

import shale

_STARTED = "started"


class Worker:
    """Starts at the first call, and again after it was killed."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._process: Any = None
        self._pipe: Any = None

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Calls the method of the cache there; raises its exception."""
        self.begin(name, *arguments, **named)
        result, error = self._pipe.recv()
        if error is not None:
            raise error
        return result

    def begin(self, name: str, *arguments: Any, **named: Any) -> None:
        """Returns when the other process has started."""
        if self._process is None:
            context = multiprocessing.get_context("fork")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(
                target=_serve, args=(theirs, self._pipe, self._directory)
            )
            self._process.start()
            theirs.close()
        self._pipe.send((self._clock(), name, arguments, named))
        assert self._pipe.recv() == _STARTED

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._pipe.close()
            self._process = None

    def close(self) -> None:
        """Makes it close the cache and end."""
        if self._process is not None:
            self._pipe.close()
            self._process.join(PATIENCE)
            assert self._process.exitcode == 0
            self._process.close()
            self._process = None


def _serve(pipe: Connection, other_end: Connection, directory: str) -> None:
    other_end.close()  # Inherited: it would hide that the other process has closed its end.
    clock = Clock()
    with shale.Cache(directory, now=clock) as cache:
        while True:
            try:
                clock.seconds, name, arguments, named = pipe.recv()
            except EOFError:
                return
            pipe.send(_STARTED)
            try:
                result = getattr(cache, name)(*arguments, **named)
                if name in ("items", "keys"):
                    result = list(result)
                pipe.send((result, None))
            except Exception as error:
                pipe.send((None, error))


def spin(seconds: float) -> None:
    """Gives the other process time, without yielding the processor."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
