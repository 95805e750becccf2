"""Logs the calls, loads and changes of a process, for the oracle in `call_oracle`.

Each event is a line of JSON, written at once: so the log survives a kill. Times are of
CLOCK_MONOTONIC, which all processes share. A call and a change begin before and end after the times
that are logged; a loader runs at both of its times.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NEVER = float("inf")


@dataclass
class Run:
    """One run of a loader."""

    name: str
    call: Call
    began: float
    ended: float = NEVER
    outcome: str = "unfinished"
    """``value``, ``unstorable``, ``failure``, ``cancelled`` or ``killed``."""

    @property
    def process(self) -> str:
        return self.call.process


@dataclass
class Call:
    """One call of ``entry_or_load``."""

    name: str
    process: str
    key: str
    began: float
    options: dict[str, Any]
    ended: float = NEVER
    kind: str = "unfinished"
    """``value``, ``failure`` (the load's exception), ``LoadFailed``, ``timeout``, ``cancelled``, or
    the name of another exception."""
    origin: str | None = None
    """The run or the change whose value or failure is the answer."""
    stale: bool = False
    intact: bool = True
    """A failure is the exception that the loader raised, with its traceback; a LoadFailed has its
    key, type and message."""
    cancelled: bool = False
    """A cancellation was requested."""
    runs: list[Run] = field(default_factory=list, repr=False)

    @property
    def limited(self) -> bool:
        return bool(self.options.keys() & {"wait", "timeout", "soft_timeout"})


@dataclass
class Change:
    """A removal, an invalidation, an expiry, a clear or a set."""

    name: str
    key: str | None
    """None: all keys."""
    what: str
    began: float
    ended: float = NEVER


@dataclass
class Pause:
    """A time in which a process, or all of it but one call, did not run."""

    process: str
    began: float
    ended: float


@dataclass
class Events:
    """The events of all processes."""

    calls: dict[str, Call] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    changes: dict[str, Change] = field(default_factory=dict)
    pauses: list[Pause] = field(default_factory=list)
    killed: dict[str, float] = field(default_factory=dict)
    """When the processes were killed, by name."""


class CallLog:
    """Writes the events of one process."""

    def __init__(self, folder: Path, process: str) -> None:
        self.process = process
        self._file = os.open(folder / process, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._numbers = itertools.count()

    def call(self, key: str, options: dict[str, Any]) -> str:
        return self._begin("call", key, options)

    def answer(
        self, call: str, kind: str, origin: str | None, *, stale: bool = False, intact: bool = True
    ) -> None:
        self._write("answer", call, time.monotonic(), kind, origin, stale, intact)

    def cancel(self, call: str) -> None:
        self._write("cancel", call)

    def run(self, call: str) -> str:
        return self._begin("run", call)

    def end(self, run: str, outcome: str) -> None:
        self._write("end", run, time.monotonic(), outcome)

    def change(self, key: str | None, what: str) -> str:
        return self._begin("change", key, what)

    def changed(self, change: str) -> None:
        self._write("changed", change, time.monotonic())

    def pause(self, began: float) -> None:
        self._write("pause", began, time.monotonic())

    def killed(self, process: str, at: float) -> None:
        self._write("killed", process, at)

    def _begin(self, kind: str, *what: Any) -> str:
        name = f"{self.process}.{next(self._numbers)}"
        self._write(kind, name, time.monotonic(), *what)
        return name

    def _write(self, *event: Any) -> None:
        os.write(self._file, json.dumps(event).encode() + b"\n")


def read(logs: Iterable[Path]) -> Events:
    """The events of the processes whose logs these are."""
    events = Events()
    for path in logs:
        for line in path.read_bytes().splitlines(keepends=True):
            # A kill may cut off the last line.
            if line.endswith(b"\n"):
                add(events, path.name, json.loads(line))
    for run in events.runs.values():
        if run.ended == NEVER and run.process in events.killed:
            run.ended, run.outcome = events.killed[run.process], "killed"
    return events


def add(events: Events, process: str, event: list[Any]) -> None:
    kind, name, *rest = event
    if kind == "call":
        at, key, options = rest
        events.calls[name] = Call(name, process, key, at, options)
    elif kind == "answer":
        call = events.calls[name]
        call.ended, call.kind, call.origin, call.stale, call.intact = rest
    elif kind == "cancel":
        events.calls[name].cancelled = True
    elif kind == "run":
        at, call_name = rest
        call = events.calls[call_name]
        run = events.runs[name] = Run(name, call, at)
        call.runs.append(run)
    elif kind == "end":
        run = events.runs[name]
        run.ended, run.outcome = rest
    elif kind == "change":
        at, key, what = rest
        events.changes[name] = Change(name, key, what, at)
    elif kind == "changed":
        (events.changes[name].ended,) = rest
    elif kind == "pause":
        events.pauses.append(Pause(process, name, *rest))
    else:
        assert kind == "killed", event
        (events.killed[name],) = rest
