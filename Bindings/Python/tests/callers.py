"""Calls that load, with loaders that raise, hang and are cancelled, in threads, coroutines and
greenlets of one process; all logged. A program of `test_failing_history`.

A loaded value is the name of the run of its loader, and so is the text of a loader's exception.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from call_log import CallLog

import shale
from shale._store import heartbeat

LONG = 600
"""Seconds: a caller that waits until such a lease is over hangs."""
SHORT = 1.5
"""The lease of the keys that are loaded by a process that is stopped, seconds."""
RETRY = 0.5
SHORT_KEYS = ["short 0", "short 1"]
RETRY_KEYS = ["retry 0", "retry 1"]
CHANGED_KEYS = ["plain 0", "plain 1", *SHORT_KEYS, *RETRY_KEYS, "limited 0", "limited 1"]
FAILING_KEYS = ["failing 0", "failing 1"]
"""They never have a value, and never change: so nothing explains a wait for a second load."""

# A pause of a process that the oracle knows of, seconds.
_NOTABLE = 0.25


class Failure(Exception):
    """A loader's."""


class Interrupt(BaseException):
    """Ends a load as KeyboardInterrupt and GreenletExit do."""


class Unstorable:
    """A value of a type that no cache stores."""

    def __init__(self, name: str) -> None:
        self.name = name


class Plan(NamedTuple):
    outcome: str
    seconds: float


VALUE = Plan("value", 0)


class Callers:
    """The callers of one process."""

    def __init__(self, directory: Path, logs: Path, process: str) -> None:
        self.cache: Any = shale.Cache(directory)
        self.log = CallLog(logs, process)
        self.hang = 0.7
        """Seconds."""
        self._raised: dict[str, Failure] = {}
        self._coroutines: Any = shale.AsyncCache(self.cache)

    # One call. `slot` gets its name, for its cancellation.

    def call(self, key: str, options: Any, plan: Plan, slot: list[str]) -> None:
        call = self.log.call(key, options)
        slot[:] = [call]

        def load(_previous: object) -> Any:
            run = self.log.run(call)
            try:
                time.sleep(self._seconds(plan, key))
            except BaseException:
                self.log.end(run, "cancelled")
                raise
            return self._end_load(run, plan)

        try:
            found = self.cache.entry_or_load(key, load, **options)
        except BaseException as error:
            self._log_error(call, key, error)
        else:
            self._log_value(call, found)

    async def call_async(self, key: str, options: Any, plan: Plan, slot: list[str]) -> None:
        call = self.log.call(key, options)
        slot[:] = [call]

        async def load(_previous: object) -> Any:
            run = self.log.run(call)
            try:
                # A load that hangs is cancelled.
                await asyncio.sleep(LONG if plan.outcome == "hang" else plan.seconds)
            except BaseException:
                self.log.end(run, "cancelled")
                raise
            return self._end_load(run, plan)

        try:
            found = await self._coroutines.entry_or_load(key, load, **options)
        except BaseException as error:
            self._log_error(call, key, error)
        else:
            self._log_value(call, found)

    def _seconds(self, plan: Plan, key: str) -> float:
        if plan.outcome != "hang":
            return plan.seconds
        return min(self.hang, 0.3) if key in SHORT_KEYS else self.hang

    def _end_load(self, run: str, plan: Plan) -> Any:
        if plan.outcome == "failure":
            error = self._raised[run] = Failure(run)
            self.log.end(run, "failure")
            raise error
        if plan.outcome == "interrupt":
            self.log.end(run, "cancelled")
            raise Interrupt(run)
        if plan.outcome == "unstorable":
            self.log.end(run, "unstorable")
            return Unstorable(run)
        self.log.end(run, "value")
        return run

    def _log_value(self, call: str, found: shale.LoadResult) -> None:
        value = found.value
        name = value.name if isinstance(value, Unstorable) else value
        self.log.answer(call, "value", name, stale=found.stale)

    def _log_error(self, call: str, key: str, error: BaseException) -> None:
        name = type(error).__name__
        if isinstance(error, Failure):
            origin = str(error)
            trace = error.__traceback__
            places = set()
            while trace is not None:
                places.add(trace.tb_frame.f_code.co_name)
                trace = trace.tb_next
            intact = error is self._raised.get(origin) and "_end_load" in places
            self.log.answer(call, "failure", origin, intact=intact)
        elif name == "LoadFailed":
            failed: Any = error
            intact = failed.key == key and failed.type == f"{Failure.__module__}.Failure"
            self.log.answer(call, name, failed.message, intact=intact)
        elif name in ("CancelledError", "GreenletExit"):
            self.log.answer(call, "cancelled", None)
        elif isinstance(error, shale.LoadTimeoutError):
            self.log.answer(call, "timeout", None)
        else:
            self.log.answer(call, name, str(error))

    # Changes

    def change(self, chance: random.Random) -> None:
        key: str | None = chance.choice(CHANGED_KEYS)
        what = chance.choice(["remove", "pop", "set", "invalidate", "expire", "remove_many"])
        if chance.randrange(40) == 0:
            key, what = None, "clear"
        change = self.log.change(key, what)
        if what == "clear":
            self.cache.clear()
        elif what == "set":
            self.cache.set(key, change, tag=key)
        elif what == "remove_many":
            self.cache.remove_many([key])
        else:
            getattr(self.cache, what)(key)
        self.log.changed(change)


def choose(chance: random.Random) -> tuple[str, dict[str, Any], Plan]:
    """The key and options of a call, and what its loader does."""
    key = chance.choice(CHANGED_KEYS + 2 * FAILING_KEYS)
    options: dict[str, Any] = {"lease": SHORT if key in SHORT_KEYS else LONG, "tag": key}
    if key in RETRY_KEYS:
        options["retry_after"] = RETRY
    elif key.startswith("limited"):
        more: list[dict[str, Any]] = [
            {"wait": 0.01},
            {"timeout": 0.02},
            {"soft_timeout": 0.005},
            {"stale_if_error": True},
            {"stale_if_error": True, "retry_after": 0.02},
            {"refresh_ahead": 0.01},
        ]
        options.update(chance.choice(more), max_age=0.02, stale=LONG)
    outcome = chance.choices(
        ["value", "failure", "interrupt", "unstorable", "hang"],
        [0, 90, 5, 4, 1] if key in FAILING_KEYS else [60, 28, 5, 5, 2],
    )[0]
    # Other processes look each 16 ms whether it has ended.
    seconds = [0.03, 0.05] if key in FAILING_KEYS else [0, 0.002, 0.005, 0.02, 0.04]
    return key, options, Plan(outcome, chance.choice(seconds))


class Program:
    """All callers of a process, until its time is over."""

    def __init__(self, callers: Callers, seconds: float, seed: int) -> None:
        self._callers = callers
        self._seed = seed
        self._end = time.monotonic() + seconds
        self._working = True

    def going(self) -> bool:
        return time.monotonic() < self._end

    def run(self, *works: Callable[[random.Random], object]) -> None:
        chances = (random.Random(self._seed + number) for number in range(100))
        pulse = threading.Thread(target=self.pulse, daemon=True)
        pulse.start()
        workers = [threading.Thread(target=work, args=(next(chances),)) for work in works]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self._working = False
        pulse.join()

    def pulse(self) -> None:
        """Logs when this process could not run, or not use the cache."""
        last = time.monotonic()
        while self._working:
            time.sleep(0.02)
            self._callers.cache.set(("pulse", self._callers.log.process), 1)
            now = time.monotonic()
            if now - last > _NOTABLE:
                self._callers.log.pause(last)
            last = now

    def call(self, chance: random.Random) -> None:
        while self.going():
            self._callers.call(*choose(chance), [])
            time.sleep(chance.choice([0, 0, 0.002, 0.01]))

    def change(self, chance: random.Random) -> None:
        while self.going():
            self._callers.change(chance)
            time.sleep(chance.choice([0, 0.002, 0.01]))

    # Coroutines

    def call_in_coroutines(self, chance: random.Random) -> None:
        asyncio.run(self._call_in_coroutines(chance))

    async def _call_in_coroutines(self, chance: random.Random) -> None:
        running: dict[asyncio.Task[None], list[str]] = {}

        async def work() -> None:
            while self.going():
                slot: list[str] = []
                task = asyncio.create_task(self._callers.call_async(*choose(chance), slot))
                running[task] = slot
                await asyncio.wait([task])
                del running[task]
                task.result()
                await asyncio.sleep(chance.choice([0, 0, 0.002, 0.01]))

        workers = [asyncio.create_task(work()) for _ in range(6)]
        while not all(worker.done() for worker in workers):
            await asyncio.sleep(0.02)
            if running:
                task = chance.choice(list(running))
                # Before its first step it has logged no call.
                if running[task]:
                    self._callers.log.cancel(running[task][0])
                    task.cancel()
        for worker in workers:
            worker.result()

    # Greenlets

    def call_in_greenlets(self, spawn: Any, join: Any, kill: Any) -> Callable[[Any], None]:
        """In 6 greenlets, which are killed; spawn, join, kill: the library's."""

        def work(chance: random.Random) -> None:
            running: dict[int, tuple[Any, list[str]]] = {}

            def calls(number: int) -> None:
                while self.going():
                    slot: list[str] = []
                    greenlet = spawn(self._callers.call, *choose(chance), slot)
                    running[number] = greenlet, slot
                    join(greenlet)
                    del running[number]
                    time.sleep(chance.choice([0, 0, 0.002, 0.01]))

            workers = [threading.Thread(target=calls, args=(number,)) for number in range(6)]
            for worker in workers:
                worker.start()
            while any(worker.is_alive() for worker in workers):
                time.sleep(0.02)
                if running:
                    greenlet, slot = chance.choice(list(running.values()))
                    if slot:
                        self._callers.log.cancel(slot[0])
                        kill(greenlet)
            for worker in workers:
                worker.join()

        return work


def main(spawn: Any = None, join: Any = None, kill: Any = None) -> None:
    """With a library of greenlets, which has replaced threads: spawn, join and kill are its."""
    logging.getLogger("shale").setLevel(logging.CRITICAL)
    directory, logs, process, seconds, seed = sys.argv[1:]
    callers = Callers(Path(directory), Path(logs), process)
    if process.startswith("killed"):
        callers.hang = LONG
    program = Program(callers, float(seconds), int(seed))
    calls = [program.call] * 4
    if spawn is None:
        program.run(*calls, program.change, program.call_in_coroutines)
    else:
        program.run(*calls, program.change, program.call_in_greenlets(spawn, join, kill))
    # Loads that outlast their callers' limits end, and with them the renewal of their leases.
    while any(thread.name == "shale load" for thread in threading.enumerate()):
        time.sleep(0.01)
    assert heartbeat._heartbeat._due == {}
    callers.cache.close()
    print("ended")
