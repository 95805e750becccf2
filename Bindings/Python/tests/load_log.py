"""Logs when the loads of a process ran, and when their leases were valid: so that two concurrent
loads of one key are found, in all processes, on a machine of any load.

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

from shale._loading.load import Load
from shale._store import leases


class LoadLog:
    """Logs the loads of this process from now on. The log survives a kill."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        look, renew = leases.look, leases.HeldLease.renew
        enter, leave = Load.__enter__, Load.__exit__

        def look_noted(*arguments: Any) -> leases.LookupResult:
            before = time.monotonic()
            lookup = look(*arguments)
            if lookup.lease:
                self.write("R", lookup.lease, before)
            return lookup

        def renew_noted(lease: leases.HeldLease) -> bool:
            before = time.monotonic()
            renewed = renew(lease)
            if renewed:
                self.write("R", lease.token, before)
            return renewed

        def enter_noted(load: Load) -> Load:
            enter(load)
            lease = load._lease
            if lease is not None:
                key = load.load_key[1].hex()
                self.write("B", key, lease.token, lease.milliseconds, time.monotonic())
            return load

        def exit_noted(load: Load, *exception: Any) -> None:
            if load._lease is not None:
                self.write("E", load._lease.token, time.monotonic())
            leave(load, *exception)

        replaced: list[tuple[Any, str, Callable[..., Any]]] = [
            (leases, "look", look_noted),
            (leases.HeldLease, "renew", renew_noted),
            (Load, "__enter__", enter_noted),
            (Load, "__exit__", exit_noted),
        ]
        for owner, name, noted in replaced:
            setattr(owner, name, noted)
        atexit.register(lambda: self.write("X", time.monotonic()))

    def write(self, *what: object) -> None:
        os.write(self._file, (" ".join(map(str, what)) + "\n").encode())


class Ran(NamedTuple):
    token: int
    lease: float
    """The least time of the lease, seconds: the engine counts whole milliseconds."""
    began: float
    ended: float


def duplicates(logs: Mapping[int, Path], ends: Mapping[int, float]) -> tuple[int, list[str]]:
    """The number of loads, and the loads that began while another one of the key ran with a valid
    lease.

    logs: of each process, by its number. ends: the latest time at which a process was killed.
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
                # A renewal succeeds only while the lease is valid. So it was valid since its grant.
                stood = max((at for at in granted[first.token] if at <= second.began), default=0)
                if (
                    max(first.began, second.began) < min(first.ended, second.ended)
                    and second.began < stood + first.lease
                ):
                    found.append(f"{bytes.fromhex(key)!r}: {second} beside {first}")
    return sum(map(len, loads.values())), found
