"""The progress of a history: what its calls waited for, loaded and failed of, and what excuses that.

Verdicts compare times that the processes recorded, and none of them depends on how long anything
took on this machine (histories_waits.py). Three promises of tier.md:

* A call waits one time limit for the remote and a tenth at most (the child reports that itself),
  and another tenth at most for a load that runs no more.
* A key is loaded once for each machine and change (`check_loads`).
* A failure outlives its cause by the bound at most (`check_failures`). The causes are the faults,
  and calls of the process that connect, which others do not wait for, and whose time may pass on a
  slow machine. Calls whose time passed are not judged, unless they used a connection that their
  process knew was dead.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

NEVER = 1 << 62
MARKED = 30 * 10**9
"""Nanoseconds for which other machines do not store what they load, after a loader was killed."""


class Cause(NamedTuple):
    """A fault. Times in this module are nanoseconds of one clock."""

    machine: str
    """Empty: of all."""
    began: int
    ended: int
    key: str = ""
    """How the keys begin whose calls may fail."""


class HalfOpen(NamedTuple):
    machine: str
    at: int
    ports: set[int]


class Failure(NamedTuple):
    machine: str
    process: str
    what: str
    key: str
    began: int
    ended: int
    passed: bool
    """Whether its time may have passed: then it is not the failure of an earlier call."""
    ports: set[int]
    why: str


class Connected(NamedTuple):
    """A call that connected, or tried to: meanwhile others may fail."""

    machine: str
    process: str
    began: int
    ended: int
    passed: bool
    """Whether its time may have passed: then there is a pause."""


class Loaded(NamedTuple):
    """A call of the loader."""

    machine: str
    process: str
    key: str
    called: int
    began: int
    """When the loader began, its end, and that of the call."""
    ended: int
    call_ended: int
    outcome: str
    """"value", "failed", "cancelled" or "killed"."""
    error: bool
    """Whether the call got on without the remote (known if it has a value), or its time may have
    passed."""
    waited_since: int
    """When the call began to wait for others; 0: never."""


class Change(NamedTuple):
    """Of a key, or of all. In the remote (machine: empty), or in the near cache of a machine."""

    machine: str
    key: str
    began: int
    ended: int


class Run(NamedTuple):
    """A call that reads the remote or loads, and for which others wait."""

    machine: str
    process: str
    key: str
    began: int
    ended: int


class Stop(NamedTuple):
    process: str
    began: int
    ended: int


class Waited(NamedTuple):
    """A call that waited for others' loads."""

    machine: str
    key: str
    began: int
    ended: int
    seconds: float


class Progress:
    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.connected: list[Connected] = []
        self.loads: list[Loaded] = []
        self.changes: list[Change] = []
        self.waits: list[Waited] = []
        self.runs: list[Run] = []
        self.stops: list[Stop] = []
        self.loaders: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        """When a process was in its loader of a key."""
        self.causes: list[Cause] = []
        self.half_open: list[HalfOpen] = []
        self._open: dict[tuple[str, str, int], Loaded | Run] = {}
        """What has no end so far, by process, key and beginning."""
        self.most = 0.0
        """The longest wait of a call, in time limits."""

    def add(self, machine: str, process: str, kind: str, rest: list[str]) -> None:
        if kind == "F":
            what, key, began, ended, passed, connects, ports, *why = rest
            numbers = set() if ports == "-" else set(map(int, ports.split(",")))
            times = int(began), int(ended)
            text = " ".join(why)
            self.failures.append(Failure(machine, process, what, key, *times, passed == "1", numbers, text))
            if connects == "1":
                self.connected.append(Connected(machine, process, *times, passed == "1"))
        elif kind == "O":
            times = int(rest[0]), int(rest[1])
            self.connected.append(Connected(machine, process, *times, rest[2] == "1"))
        elif kind == "b":
            key, called, began = rest
            load = Loaded(machine, process, key, int(called), int(began), NEVER, NEVER, "killed", False, 0)
            self._open[process, key, int(began)] = load
        elif kind == "C":
            key, called, began, ended, call_ended, outcome, error, since = rest
            del self._open[process, key, int(began)]
            at = int(called), int(began), int(ended), int(call_ended)
            load = Loaded(machine, process, key, *at, outcome, error == "1", int(since))
            self.loads.append(load)
            self.loaders[process, key].append((load.began, load.ended))
        elif kind == "l":
            self.loaders[process, rest[0]].append((int(rest[1]), int(rest[2])))
        elif kind == "M":
            self.changes.append(Change(machine, rest[0], int(rest[1]), int(rest[2])))
        elif kind == "G":
            self.changes.append(Change(machine, "", int(rest[0]), int(rest[1])))
        elif kind == "D":
            self.changes.append(Change("", rest[0], int(rest[1]), int(rest[2])))
        elif kind == "Q":
            self.waits.append(Waited(machine, rest[0], int(rest[1]), int(rest[2]), float(rest[3])))
        elif kind == "a":
            run = Run(machine, process, rest[0], int(rest[1]), NEVER)
            self._open["run " + process, run.key, run.began] = run
        elif kind == "A":
            key, began, ended = rest
            del self._open["run " + process, key, int(began)]
            self.runs.append(Run(machine, process, key, int(began), int(ended)))
        elif kind == "T":
            self.most = max(self.most, float(rest[0]))

    def __str__(self) -> str:
        judged = sum(not each.passed for each in self.failures)
        causes = sum(each.outcome != "value" for each in self.loads)
        return (
            f"{len(self.failures)} calls failed, {judged} of them before their time was over; "
            f"{len(self.loads)} loads, of which {causes} failed; {len(self.waits)} long waits for "
            f"others; the longest call waited {self.most:.2f} time limits"
        )

    def end(self, process: str, at: int) -> None:
        """The process was killed, or ended: so did what it was doing."""
        for name, done in list(self._open.items()):
            if name[0] in (process, "run " + process):
                del self._open[name]
                if isinstance(done, Run):
                    self.runs.append(done._replace(ended=at))
                else:
                    self.loads.append(done._replace(ended=at, call_ended=at))
                    self.loaders[process, done.key].append((done.began, at))


def _overlap(began: int, ended: int, other_began: int, other_ended: int) -> bool:
    return began <= other_ended and other_began <= ended


# Failures


def check_failures(progress: Progress, bound: int) -> list[str]:
    """The failures that have outlived their cause by more than the bound."""
    faults = _dead_connections(progress)
    for failure in progress.failures:
        if not failure.passed and not _is_excused(failure, failure.ended, progress, bound):
            faults.append(f"a failure without a cause in the last {bound / 1e9} s: {_named(failure)}")
    return faults


def _is_excused(call: Failure | Loaded, ended: int, progress: Progress, bound: int) -> bool:
    """Whether the remote may have failed for a call."""
    return any(
        _overlap(call.began, ended, each.began, each.ended + bound)
        for each in progress.causes
        if each.machine in ("", call.machine) and call.key.startswith(each.key)
    ) or any(
        _overlap(call.began, ended, each.began, each.ended + each.passed * bound)
        for each in progress.connected
        if (each.machine, each.process) == (call.machine, call.process)
    )


def _named(failure: Failure) -> str:
    took = (failure.ended - failure.began) / 1e9
    where = f"{failure.what} of {failure.key} in {failure.process} of machine {failure.machine}"
    return f"{where} at {failure.began}, after {took:.3f} s: {failure.why}"


def _dead_connections(progress: Progress) -> list[str]:
    """A call that fails over a half-open connection closes the idle ones: later calls use none."""
    faults = []
    for event in progress.half_open:
        groups: dict[str, list[Failure]] = defaultdict(list)
        for failure in progress.failures:
            # (Ports are used again.)
            is_over = failure.ended >= event.at and failure.passed
            if failure.machine == event.machine and is_over and failure.ports & event.ports:
                groups[failure.process].append(failure)
        for group in groups.values():
            first = min(each.ended for each in group)
            faults += [
                f"a dead connection that its process had to know: {_named(each)}"
                for each in group
                if each.began > first and each.began < event.at + MARKED
            ]
    return faults


# Loads


def check_loads(progress: Progress, bound: int, evicts: Iterable[str]) -> list[str]:
    """The loads of a key without a change since the last one of their machine.

    Loads at a time are not judged here (load_log.py). evicts: machines whose near cache evicts what
    the remote does not have.
    """
    faults = []
    groups: dict[tuple[str, str], list[Loaded]] = defaultdict(list)
    for load in progress.loads:
        groups[load.machine, load.key].append(load)
    for (machine, key), loads in groups.items():
        loads.sort(key=lambda each: each.began)
        remote = [each for each in progress.changes if not each.machine and each.key in ("", key)]
        near = [each for each in progress.changes if each.machine == machine and each.key in ("", key)]
        others = [each for each in progress.loads if each.key == key and each.machine != machine]
        for first, second in itertools.pairwise(loads):
            span = first.called, second.began
            if first.process == second.process and second.began < first.ended:
                faults.append(f"two loads of a process at a time: {second} beside {first}")
            if second.called < first.call_ended and first.outcome != "failed":
                continue  # at a time, or waited for the first
            if first.outcome == "failed":
                waited = first.began <= second.waited_since < first.ended
                # (The record for other processes may be evicted.)
                if waited and (first.process == second.process or machine not in evicts):
                    faults.append(f"a load of a caller that waited for one that failed: {second} after {first}")
            elif any(_overlap(*span, each.began, each.ended) for each in remote):
                continue
            elif first.outcome == "value":
                reached = not first.error and not second.error and second.outcome == "value"
                if reached and not _marked(first, others, progress, bound):
                    faults.append(f"a load of a value that the remote had: {second} after {first}")
                elif (
                    machine not in evicts
                    and second.began < first.called + bound
                    # What is loaded beside another machine is kept if the primary is known.
                    and (first.error or not _is_excused(first, first.call_ended, progress, bound))
                    and not any(_overlap(*span, each.began, each.ended) for each in near)
                ):
                    faults.append(f"a load of a value that the near cache had: {second} after {first}")
    return faults


def _marked(load: Loaded, others: list[Loaded], progress: Progress, bound: int) -> bool:
    """Whether another machine's marker may have kept the value of a load from the remote: a load at
    a time, or one of the last half minute that left its marker, because it was killed or the remote
    could not be reached."""
    for other in others:
        if _overlap(other.called, other.call_ended, load.called, load.call_ended):
            return True
        left = _leaves_marker(other, progress, bound)
        if left and load.called - MARKED < other.call_ended <= load.call_ended:
            return True
    return False


def _leaves_marker(load: Loaded, progress: Progress, bound: int) -> bool:
    return (
        load.error
        or load.outcome == "killed"
        or _is_excused(load._replace(began=load.called), load.call_ended, progress, bound)
    )


def check_markers(progress: Progress, bound: int, marked: Iterable[str], now: int) -> list[str]:
    """marked: the keys that have a marker now, with no load running."""
    return [
        f"a marker of {key} that no load has left for a reason"
        for key in marked
        if not any(
            _leaves_marker(each, progress, bound) and each.call_ended > now - MARKED
            for each in progress.loads
            if each.key == key
        )
    ]


# Waits


def check_waits(progress: Progress, limit: float) -> list[str]:
    """The calls that waited longer than the limit, in seconds, for loads that did not run."""
    faults = []
    for wait in progress.waits:
        runs = (
            part
            for run in progress.runs
            if (run.machine, run.key) == (wait.machine, wait.key)
            for part in _parts(run, progress)
        )
        ran, last = 0, wait.began
        for began, ended in sorted(runs):
            began, ended = max(began, last), min(ended, wait.ended)
            if began < ended:
                ran += ended - began
                last = ended
        idle = wait.seconds - ran / 1e9
        if idle > limit:
            faults.append(f"a wait of {idle:.3f} s for a load that does not run: {wait}")
    return faults


def _parts(run: Run, progress: Progress) -> list[tuple[int, int]]:
    """A run, without the times at which its process was stopped outside of its loader."""
    parts = [(run.began, run.ended)]
    for stop in progress.stops:
        if stop.process != run.process or any(
            _overlap(stop.began, stop.ended, *each) for each in progress.loaders[run.process, run.key]
        ):
            continue
        parts = [
            part
            for began, ended in parts
            for part in ((began, min(ended, stop.began)), (max(began, stop.ended), ended))
            if part[0] < part[1]
        ]
    return parts
