"""Runs a test and ends it when it hangs: by its processor time and by the time in which it only waits, neither of which
grows because the machine is busy."""

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "Scripts"))
from session import end_session

TICK = 1 / os.sysconf("SC_CLK_TCK")
INTERVAL = 0.25  # seconds between two checks
WALL = 1800.0  # seconds: longer runs are not decided
WATCHDOG = "watchdog: the test hangs"  # Tests/C/support/check.h, by the wall clock

stopping = threading.Event()  # ends all tests


@dataclass(frozen=True)
class Limits:
    processor: float = 600.0
    idle: float = 300.0


@dataclass(frozen=True)
class Ended:
    status: int
    reason: str  # why it was ended: "" if it ended by itself
    processor: float
    idle: float
    output: str

    @property
    def has_hung(self) -> bool:
        return self.reason in ("processor time", "idle")

    @property
    def is_undecided(self) -> bool:
        return self.reason == "wall clock"

    @property
    def by_watchdog(self) -> bool:
        return WATCHDOG in self.output


def look(session: int) -> tuple[int, bool]:
    """The ticks that a session's processes have used, and whether a thread of theirs runs, or wants to."""
    ticks, is_busy = 0, False
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) != session:
                continue
            ticks += sum(map(int, fields[11:15]))  # with those of its children that have ended
            for thread in (process / "task").iterdir():
                is_busy |= (thread / "stat").read_text().rpartition(")")[2].split()[0] in "RD"
        except (OSError, ValueError):
            is_busy = True  # it has just ended
    return ticks, is_busy


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str], said: Path, limits: Limits) -> Ended:
    began, idle, ticks, reason = time.monotonic(), 0.0, 0, ""
    with open(said, "wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    ended = os.pidfd_open(process.pid)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    looked = began
    try:
        while not poll.poll(INTERVAL * 1000):
            before, (ticks, is_busy) = ticks, look(process.pid)
            now = time.monotonic()
            if ticks == before and not is_busy:
                idle += min(now - looked, 2 * INTERVAL)  # no more was seen, and the cause may be the machine
            looked = now
            if ticks * TICK > limits.processor:
                reason = "processor time"
            elif idle > limits.idle:
                reason = "idle"
            elif now - began > WALL:
                reason = "wall clock"
            elif stopping.is_set():
                reason = "stopped"
            if reason:
                break
    finally:
        end_session(process.pid)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    os.close(ended)
    processor = max(usage.ru_utime + usage.ru_stime, ticks * TICK)
    return Ended(process.returncode, reason, processor, idle, said.read_text(errors="replace"))
