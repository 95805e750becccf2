"""Starts the three programs, sends commands to them, and waits for their results with a time limit."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from .worker import Worker

STEP_SECONDS = 60.0


class Failure(Exception):
    """The demonstration failed. The message names the keys."""


class Crew:
    def __init__(self, programs: dict[str, list[str]], environment: dict[str, str], logs: Path) -> None:
        self.workers: dict[str, Worker] = {}
        self._programs = programs
        self._environment = environment
        self._logs = logs
        self._differences: list[str] = []

    def start(self, names: Iterable[str]) -> None:
        """Starts the programs concurrently and waits until each has opened the cache."""
        started = [self._launch(name) for name in names]
        self._wait(lambda: all(worker.open_ns is not None for worker in started), "to open the cache")

    def together(
        self, commands: dict[str, str], tick: Callable[[], None] | None = None, tick_seconds: float = 0.05
    ) -> dict[str, dict[str, int]]:
        """Sends each program its command and returns all results. Calls `tick` while waiting."""
        for name, command in commands.items():
            self.workers[name].send(command)
        self._wait(
            lambda: all(self.workers[name].result is not None for name in commands),
            "for " + ", ".join(f"{name}: {command}" for name, command in commands.items()),
            tick,
            tick_seconds,
        )
        results = {}
        for name in commands:
            result = self.workers[name].result
            assert result is not None
            results[name] = result
        return results

    def replace(self, name: str, command: str) -> None:
        """Kills a program with kill -9, starts it again, and sends it the command when it is ready."""
        self.workers.pop(name).kill()
        self._launch(name).send(command)

    def quit(self) -> None:
        """Lets every program close its cache and end."""
        while self.workers:
            name, worker = self.workers.popitem()
            status = worker.quit()
            if status != 0:
                raise Failure(f"{name}: closing the cache ended with status {status}")

    def kill_all(self) -> None:
        while self.workers:
            self.workers.popitem()[1].kill()

    def fraction(self, names: Iterable[str]) -> float:
        """The progress of the slowest of the named programs."""
        shares = [
            done / total if total else 0.0
            for done, total in (self.workers[name].progress for name in names if name in self.workers)
        ]
        return min(shares, default=0.0)

    def _launch(self, name: str) -> Worker:
        log = self._logs / f"{name}.log"
        self.workers[name] = Worker(name, self._programs[name], self._environment, log, self._differences)
        return self.workers[name]

    def _wait(
        self,
        finished: Callable[[], bool],
        what: str,
        tick: Callable[[], None] | None = None,
        tick_seconds: float = 0.05,
    ) -> None:
        deadline = time.monotonic() + STEP_SECONDS
        while not finished():
            if time.monotonic() > deadline:
                raise Failure(f"waited {STEP_SECONDS:.0f} seconds in vain {what}" + self._found())
            readable, _, _ = select.select(list(self.workers.values()), [], [], tick_seconds)
            for worker in readable:
                if not worker.receive():
                    raise Failure(worker.end_in_words() + self._found())
            if tick:
                tick()
        if self._differences:
            raise Failure("the cache and the source differ:" + self._found())

    def _found(self) -> str:
        return "".join(f"\n      {line}" for line in self._differences)
