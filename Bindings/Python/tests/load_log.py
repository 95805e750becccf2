"""Which loads of a process ran when, and since when their leases stood: so that two loads of one
key at once are seen, in all processes, however busy the machine is.

A line each: "B" key token milliseconds time: a load that has a lease has begun; "R" token time: the
lease was granted or renewed by a call that began then; "E" token time: the load ends; "X" time: the
process ends, and with it the loads that it still runs and their leases.
"""

from __future__ import annotations

import atexit
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shale import _lease, _load


class LoadLog:
    """Notes the loads of this process from now on. What is written survives a kill."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        look, renew = _lease.look, _lease.HeldLease.renew
        enter, leave = _load.Load.__enter__, _load.Load.__exit__

        def look_noted(*arguments: Any) -> _lease.Looked:
            before = time.monotonic()
            looked = look(*arguments)
            if looked.lease:
                self.write("R", looked.lease, before)
            return looked

        def renew_noted(lease: _lease.HeldLease) -> bool:
            before = time.monotonic()
            renewed = renew(lease)
            if renewed:
                self.write("R", lease.token, before)
            return renewed

        def enter_noted(load: _load.Load) -> _load.Load:
            enter(load)
            lease = load._lease
            if lease is not None:
                key = load._place[1].hex()
                self.write("B", key, lease.token, lease.milliseconds, time.monotonic())
            return load

        def exit_noted(load: _load.Load, *exception: Any) -> None:
            if load._lease is not None:
                self.write("E", load._lease.token, time.monotonic())
            leave(load, *exception)

        replaced: list[tuple[Any, str, Callable[..., Any]]] = [
            (_lease, "look", look_noted),
            (_lease.HeldLease, "renew", renew_noted),
            (_load.Load, "__enter__", enter_noted),
            (_load.Load, "__exit__", exit_noted),
        ]
        for owner, name, noted in replaced:
            setattr(owner, name, noted)
        atexit.register(lambda: self.write("X", time.monotonic()))

    def write(self, *what: object) -> None:
        os.write(self._file, (" ".join(map(str, what)) + "\n").encode())


class Ran(NamedTuple):
    token: int
    lease: float
    """Seconds that it lasts at least: the engine counts whole milliseconds."""
    began: float
    ended: float


def duplicates(logs: Mapping[int, Path], ends: Mapping[int, float]) -> tuple[int, list[str]]:
    """How many loads there were, and those that began while another of the key ran and its lease
    stood.

    logs: of each process, by its number. ends: before when a process was killed.
    """
    loads: dict[str, list[Ran]] = defaultdict(list)
    granted: dict[int, list[float]] = defaultdict(list)
    for process, path in logs.items():
        lines = [line.split(" ") for line in path.read_text().splitlines()]
        last = ends.get(process, float("inf"))
        last = min([last, *(float(line[1]) for line in lines if line[0] == "X")])
        ended = {token: float(at) for kind, token, at in (x for x in lines if x[0] == "E")}
        for kind, *rest in lines:
            if kind == "B":
                key, token, milliseconds, began = rest
                ran = Ran(
                    int(token),
                    int(milliseconds) / 1000 - 0.001,
                    float(began),
                    ended.get(token, last),
                )
                loads[key].append(ran)
            elif kind == "R":
                granted[int(rest[0])].append(float(rest[1]))
    found = []
    for key, of_key in loads.items():
        # In the order in which their leases were granted.
        of_key.sort()
        for number, first in enumerate(of_key):
            for second in of_key[number + 1 :]:
                # A renewal succeeds only while the lease stands. So it stood from its grant on.
                stood = max((at for at in granted[first.token] if at <= second.began), default=0)
                if (
                    max(first.began, second.began) < min(first.ended, second.ended)
                    and second.began < stood + first.lease
                ):
                    found.append(f"{bytes.fromhex(key)!r}: {second} beside {first}")
    return sum(map(len, loads.values())), found
