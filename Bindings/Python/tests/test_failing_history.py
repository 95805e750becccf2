"""Random histories of loads that raise, hang, are cancelled, stopped and killed: in threads,
coroutines and greenlets of several processes at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import call_log
from call_oracle import Oracle
from callers import SHORT, SHORT_KEYS, VALUE, Callers
from progress import Share, check_progress
from support import start_child

import shale

SECONDS = float(os.environ.get("SHALE_HISTORY_SECONDS", "6"))
"""The length of a history."""
KILLS = 2
"""The least number of kills."""
HANG = 120
"""Seconds after which a call that has not returned hangs."""

THREADS = "import callers; callers.main()"
GEVENT = """
    import gevent.monkey
    gevent.monkey.patch_all()
    import callers

    callers.main(gevent.spawn, lambda greenlet: greenlet.join(), lambda greenlet: greenlet.kill())
"""
EVENTLET = """
    import eventlet
    eventlet.monkey_patch()
    import callers

    ended = eventlet.greenlet.GreenletExit

    def join(thread):
        try:
            thread.wait()
        except ended:
            pass

    callers.main(eventlet.spawn, join, lambda thread: thread.kill())
"""


class Run:
    """A history under way."""

    def __init__(self, directory: Path, logs: Path, seed: int) -> None:
        self._directory = directory
        self._logs = logs
        self._chance = random.Random(seed)
        self._end = time.monotonic() + SECONDS
        self._starts = 0
        self.children: list[subprocess.Popen[str]] = []
        self.killed = self.stopped = 0

    def start(self, name: str, script: str) -> subprocess.Popen[str]:
        self._starts += 1
        left = max(0.1, self._end - time.monotonic())
        child = start_child(
            script,
            self._directory,
            self._logs,
            f"{name} {self._starts}",
            left,
            self._chance.randrange(1 << 30),
        )
        self.children.append(child)
        return child

    def run(self) -> None:
        callers = Callers(self._directory, self._logs, "test")
        others = [
            self.start("threads", THREADS),
            self.start("gevent", GEVENT),
            self.start("eventlet", EVENTLET),
        ]
        victim = self.start("killed", THREADS)
        name = f"killed {self._starts}"
        while time.monotonic() < self._end or self.killed < KILLS:
            time.sleep(self._chance.uniform(0.3, 1))
            at = time.monotonic()
            victim.kill()
            victim.communicate()
            callers.log.killed(name, at)
            self.killed += 1
            if self._chance.randrange(2):
                self._stop(self._chance.choice(others), callers)
            victim = self.start("killed", THREADS)
            name = f"killed {self._starts}"
        time.sleep(0.3)
        at = time.monotonic()
        victim.kill()
        victim.communicate()
        callers.log.killed(name, at)
        for child in others:
            output = child.communicate(timeout=HANG)[0]
            assert (child.returncode, output) == (0, "ended\n")
        callers.cache.close()

    def _stop(self, child: subprocess.Popen[str], callers: Callers) -> None:
        """Stops a process until others have loaded the keys whose short leases it may hold."""
        child.send_signal(signal.SIGSTOP)
        try:
            if not self._has_stopped_between_calls():
                return
            self.stopped += 1
            probes = [
                threading.Thread(
                    target=callers.call, args=(key, {"lease": SHORT, "tag": key}, VALUE, [])
                )
                for key in SHORT_KEYS
            ]
            for probe in probes:
                probe.start()
            for probe in probes:
                probe.join(HANG)
            assert not any(probe.is_alive() for probe in probes)
        finally:
            child.send_signal(signal.SIGCONT)

    def _has_stopped_between_calls(self) -> bool:
        """A process that is stopped with a lock of the cache keeps it (limits.md, "Processes")."""
        try:
            with shale.Cache(self._directory, lock_timeout=1) as cache:
                cache.set("lock", 1)
        except shale.BusyError:
            return False
        return True


def test_a_history_of_failures(directory: Path, tmp_path: Path) -> None:
    seed = int(os.environ.get("SHALE_SEED", random.randrange(1 << 30)))
    print(f"SHALE_SEED={seed}")
    logs = tmp_path / "logs"
    logs.mkdir()
    with shale.Cache(directory, capacity="64MiB") as cache:
        run = Run(directory, logs, seed)
        try:
            run.run()
        finally:
            for child in run.children:
                child.kill()
                child.communicate()
        check_progress(cache)
    events = call_log.read(logs.iterdir())
    oracle = Oracle(events)
    print(f"{len(events.runs)} loads, {run.killed} kills, {run.stopped} stops, {oracle.kinds}")
    for what, count, of, limit in oracle.shares():
        share = Share(what, limit)
        share.all, share.failed = of, count
        print(share)
        share.check()
    assert not oracle.wrong, "\n".join([f"{len(oracle.wrong)} wrong:", *oracle.wrong[:5]])
    for kind in ("value", "failure", "cancelled", "LoadFailed"):
        assert oracle.kinds[kind] > 20, kind
