"""Histories: processes of several machines read and write while faults happen, and what they saw is
checked by the times that they recorded.

    python histories.py --rounds 60 --seed 1 --bound 0.1 [--memcached]

Each round is a fault, drawn from the seed. Nothing is judged by how long it took: a read that began
at some time must not return less than what was acknowledged a bound before, whenever it ended.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Callable, NamedTuple

from histories_child import client_of, not_done
from load_log import duplicates
from progress import Share
from proxy import DATA, LISTENER, Proxy
from pymemcache import Client
from servers import MemcachedServer, RedisServer, Server, until
from support import child_environment

from shale.tier import RemoteError, Tier
from shale.tier._near import now

HERE = Path(__file__).resolve().parent
KEYS = 24
READERS = 2
SUITE = "tier_histories"
MOST_REFUSED = 0.0
"""No fill of a key that nothing happened to."""
PATIENT = 60.0
"""A time limit, seconds, that no machine is too busy for."""


class Read(NamedTuple):
    machine: str
    key: str
    value: int
    began: int
    ended: int
    source: str
    stale: bool


class Write(NamedTuple):
    value: int
    began: int
    ended: int
    """Of one that was not acknowledged: never."""
    tag: str
    machine: str


NEVER = 1 << 62


class Record:
    """What all processes saw."""

    def __init__(self) -> None:
        self.reads: list[Read] = []
        self.writes: dict[str, dict[int, Write]] = defaultdict(dict)
        self.invalidations: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        self.errors: list[str] = []
        self.failed = 0
        self.refused = Share("near fills refused", MOST_REFUSED)
        self.beside = Share("reads beside another's lease", 0)

    def add(self, machine: str, file: Path) -> None:
        for line in file.read_text().splitlines():
            kind, *rest = line.split(" ")
            if kind == "R":
                key, value, began, ended, source, stale = rest
                times = int(value), int(began), int(ended)
                self.reads.append(Read(machine, key, *times, source, stale == "1"))
            elif kind == "B":
                key, value, began = rest
                self.writes[key][int(value)] = Write(int(value), int(began), NEVER, "", machine)
            elif kind == "W":
                key, value, began, ended, tag = rest
                written = Write(int(value), int(began), int(ended), tag, machine)
                self.writes[key][int(value)] = written
            elif kind == "I":
                self.invalidations[rest[0]].append((int(rest[1]), int(rest[2]), machine))
            elif kind == "P":
                self.refused.count(rest[0] == "1")
            elif kind == "F":
                self.failed += 1
            elif kind == "X":
                self.errors.append(line)

    def add_loads(self, machine: Machine) -> None:
        """Of reads and loads of a machine, one at a time for each key."""
        paths = [path for file in machine.files for path in file.parent.glob(f"{file.name}.*")]
        logs = {int(path.suffix[1:]): path for path in paths}
        loads, found = duplicates(logs, machine.ends)
        for number in range(loads):
            self.beside.count(number < len(found))
        self.errors += [f"4: on machine {machine.name}, {each}" for each in found]


def check(record: Record, bound: int) -> list[str]:
    """What contradicts the promises. bound: nanoseconds."""
    faults = list(record.errors)
    acknowledged: dict[str, tuple[list[int], list[int]]] = {}
    own: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for key, writes in record.writes.items():
        done = [each for each in writes.values() if each.ended != NEVER]
        # One writer has a key, so both grow.
        acknowledged[key] = [each.ended for each in done], [each.value for each in done]
        for machine in {each.machine for each in done}:
            own[machine, key] = acknowledged[key]
    for read in record.reads:
        if not read.value:
            continue  # flushed, invalidated, removed after a failure, or not yet written
        written = record.writes[read.key].get(read.value)
        if written is None or written.began > read.ended:
            faults.append(f"a value that nobody has written: {read}")
            continue
        least = _latest(own.get((read.machine, read.key)), read.began)
        if read.value < least:
            faults.append(f"3: {read} after this machine wrote {least}")
        if read.stale:
            continue
        slack = bound if read.source == "near" else 0
        least = _latest(acknowledged[read.key], read.began - slack)
        if read.value < least:
            faults.append(f"1, 2: {read} after {least} was acknowledged")
        for began, ended, machine in record.invalidations.get(written.tag, ()):
            own_slack = 0 if machine == read.machine else slack
            if written.ended <= began and ended <= read.began - own_slack:
                faults.append(f"8: {read} after its tag was invalidated at {began}")
    faults += _backwards(record)
    return faults


def _latest(writes: tuple[list[int], list[int]] | None, time: int) -> int:
    """The last value that was acknowledged by then."""
    if writes is None:
        return 0
    at = bisect_right(writes[0], time)
    return writes[1][at - 1] if at else 0


def _backwards(record: Record) -> list[str]:
    """A machine's reads of a key go forward: one that begins after another has ended."""
    faults = []
    groups: dict[tuple[str, str], list[Read]] = defaultdict(list)
    for read in record.reads:
        if read.value and not read.stale:
            groups[read.machine, read.key].append(read)
    for reads in groups.values():
        by_end = sorted(reads, key=lambda each: each.ended)
        at = highest = 0
        for read in sorted(reads, key=lambda each: each.began):
            while by_end[at].ended < read.began:
                highest = max(highest, by_end[at].value)
                at += 1
            if read.value < highest:
                faults.append(f"backwards: {read} after {highest} was read")
    return faults


class Machine:
    def __init__(self, name: str, folder: Path, server: Server, options: dict[str, Any]) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.proxy = Proxy(server.port, options["seed"])
        self.options = {**options, "directory": str(self.folder / "near"), "port": self.proxy.port}
        self.files: list[Path] = []
        self.ends: dict[int, float] = {}
        """Before when processes were killed, of time.monotonic()."""
        self.readers: list[subprocess.Popen[str]] = [self.start("read") for _ in range(READERS)]
        own = options["keys"][::3] if name == "one" else options["keys"][1::3]
        self.writer = self.start("write", own=own)

    def start(self, work: str, **more: Any) -> subprocess.Popen[str]:
        file = self.folder / f"record{len(self.files)}"
        file.touch()
        self.files.append(file)
        options = {**self.options, "work": work, "tag": f"t-{self.name}", "file": str(file), **more}
        return subprocess.Popen(
            [sys.executable, HERE / "histories_child.py", repr(options)],
            stdin=subprocess.PIPE,
            env=child_environment(),
            text=True,
        )

    @property
    def processes(self) -> list[subprocess.Popen[str]]:
        return [*self.readers, self.writer]

    def go_on(self) -> None:
        """After a kill: in a process of its own, everything that a tier owes gets done."""
        tier = {**self.options["tier"], "timeout": PATIENT}
        process = self.start("go on", tier=tier)
        process.communicate(timeout=4 * PATIENT)
        assert process.returncode == 0

    def end(self) -> None:
        """Ends them in an orderly way."""
        self.proxy.go()
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.communicate(timeout=120)

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        self.proxy.close()


class History:
    def __init__(self, folder: Path, seed: int, bound: float, memcached: bool) -> None:
        self.seed = seed
        self.memcached = memcached
        self.bound = bound
        self.chance = random.Random(seed)
        self.server: Any = (MemcachedServer if memcached else RedisServer)(folder / "server")
        keys = [f"k{number}" for number in range(KEYS)]
        tier = {"bound": bound, "timeout": 0.3, "near_age": 30.0}
        options: dict[str, Any] = {
            "memcached": memcached,
            "seed": seed,
            "keys": [key.encode() for key in keys],
        }
        small = {"capacity": "2MiB"}
        # One of them is always full.
        full = {**small, "max_entries": 40}
        self.machines: list[Machine] = []
        self.faults: Counter[str] = Counter()
        self.undone: list[str] = []
        self.plain = folder / "plain"
        self._foreign = options["keys"][2::3]
        self._ended = threading.Event()
        try:
            for name, more in (("one", small), ("two", full)):
                self.machines.append(
                    Machine(name, folder, self.server, {**options, "tier": {**tier, **more}})
                )
        except BaseException:
            self.close()
            raise
        self._writer = threading.Thread(target=self._write_plain)
        self._writer.start()

    def _write_plain(self) -> None:
        """Another program, which knows nothing of tiers."""
        chance = random.Random(self.seed + 1)
        numbers = dict.fromkeys(self._foreign, 0)
        client = self.client(timeout=0.5)
        with open(self.plain, "w") as record:
            while not self._ended.is_set():
                key = chance.choice(self._foreign)
                numbers[key] += 1
                began = now()
                name = key.decode()
                print("B", name, numbers[key], began, file=record)
                try:
                    # By a connection of its own: one that fails is not used, nor sent again.
                    client.set(b"shale:k:" + key, b"%d" % numbers[key])
                    print("W", name, numbers[key], began, now(), "", file=record)
                except Exception:
                    # It may be on its way until the server has closed the connection.
                    client.close()
                    client = self.client(timeout=0.5)
                    time.sleep(1)
                time.sleep(chance.uniform(0, 0.02))

    def client(self, timeout: float = 60.0) -> Any:
        """A plain one. What it sends, it sends once."""
        if self.memcached:
            address = "127.0.0.1", self.server.port
            return Client(address, connect_timeout=timeout, timeout=timeout, default_noreply=False)
        client = self.server.client(socket_timeout=timeout)
        client.connection_pool.connection_kwargs.pop("retry", None)
        return client

    # Faults

    def round(self) -> None:
        chance = self.chance
        machine = chance.choice(self.machines)
        faults: list[Callable[[Machine], None]] = [
            self.delays,
            self.delays,
            self.held,
            self.held,
            self.cut,
            self.refused,
            self.killed_reader,
            self.stopped_server,
            self.restarted_server,
        ]
        if not self.memcached:
            faults += [
                self.stopped_listener,
                self.killed_listener,
                self.client_kill,
                self.flush,
                self.sleep,
            ]
        fault = chance.choice(faults)
        self.faults[fault.__name__] += 1
        fault(machine)
        machine.proxy.go()
        time.sleep(chance.uniform(0, 4 * self.bound))

    def pause(self) -> None:
        time.sleep(self.chance.uniform(0.2, 4) * self.bound)

    def delays(self, machine: Machine) -> None:
        for kind in (LISTENER, DATA):
            machine.proxy.delays[kind] = self.chance.choice([0, 0.01, 0.1, 1]) * self.bound
        self.pause()

    def held(self, machine: Machine) -> None:
        machine.proxy.hold(self.chance.choice([LISTENER, DATA]), self.chance.random() < 0.5)
        self.pause()

    def cut(self, machine: Machine) -> None:
        machine.proxy.cut(self.chance.choice([LISTENER, DATA]))

    def refused(self, machine: Machine) -> None:
        machine.proxy.refuse()
        machine.proxy.cut()
        self.pause()

    def killed_reader(self, machine: Machine) -> None:
        self._kill(machine, self.chance.randrange(READERS))

    def _kill(self, machine: Machine, index: int) -> None:
        process = machine.readers[index]
        machine.ends[process.pid] = time.monotonic()
        process.kill()
        process.communicate()
        machine.go_on()
        machine.readers[index] = machine.start("read")

    def _listeners(self) -> list[int]:
        clients = self.server.client().client_list("pubsub")
        return [int(each["name"]) for each in clients if each["name"]]

    def stopped_listener(self, machine: Machine) -> None:
        pids = {process.pid for process in machine.processes} & set(self._listeners())
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.pause()
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    def killed_listener(self, machine: Machine) -> None:
        pids = self._listeners()
        for index, process in enumerate(machine.readers):
            if process.pid in pids:
                self._kill(machine, index)

    def stopped_server(self, _machine: Machine) -> None:
        self.server.signal(signal.SIGSTOP)
        self.pause()
        self.server.signal(signal.SIGCONT)

    def client_kill(self, _machine: Machine) -> None:
        kind = self.chance.choice(["pubsub", "normal"])
        self.server.client().execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")

    def flush(self, _machine: Machine) -> None:
        self.server.client().flushall()

    def sleep(self, _machine: Machine) -> None:
        self.server.client().execute_command("DEBUG", "SLEEP", str(2 * self.bound))

    def restarted_server(self, machine: Machine) -> None:
        self.server.kill()
        self.pause()
        self.server.start()
        machine.go_on()

    # The end

    def converged(self) -> float:
        """Seconds until all machines read what the remote has, when nobody writes any more."""
        self._ended.set()
        self._writer.join()
        for machine in self.machines:
            machine.proxy.go()
            machine.end()
        began = time.monotonic()
        client = self.client()
        for machine in self.machines:
            options = machine.options
            with Tier(options["directory"], client_of(options), **options["tier"]) as tier:
                # Late removals change what the remote has.
                until(lambda: not tier._near.noted())
                for key in options["keys"]:

                    def same() -> bool:
                        raw = client.get(b"shale:k:" + key) or None  # noqa: B023
                        try:
                            found = tier.lookup(key)  # noqa: B023
                        except RemoteError:
                            return False
                        if raw is None or found.missing:
                            # Its tag may have been invalidated.
                            return found.missing and (raw is None or raw.startswith(b"\xffS1"))
                        return bool(raw.endswith(tier._codec.encode(found.value)[1]))

                    until(same)
            with Tier(
                options["directory"],
                client_of(options),
                **{**options["tier"], "timeout": PATIENT},
            ) as tier:
                self.undone += not_done(tier, "at the end")
        return time.monotonic() - began

    def record(self) -> Record:
        record = Record()
        for machine in self.machines:
            for file in machine.files:
                record.add(machine.name, file)
            record.add_loads(machine)
        record.add("nobody's", self.plain)
        record.errors += [f"not done at the end: {each}" for each in self.undone]
        return record

    def close(self) -> None:
        self._ended.set()
        for machine in self.machines:
            machine.kill()
        self.server.kill()


def run(folder: Path, seed: int, rounds: int, bound: float, memcached: bool = False) -> list[str]:
    """Prints what happened, and gives what contradicts the promises."""
    history = History(folder, seed, bound, memcached)
    try:
        for _ in range(rounds):
            history.round()
        converged = history.converged()
        record = history.record()
    finally:
        history.close()
    faults = check(record, round(bound * 1e9))
    sources = Counter("stale" if each.stale else each.source for each in record.reads)
    acknowledged = sum(
        each.ended != NEVER for writes in record.writes.values() for each in writes.values()
    )
    print(
        f"seed {seed}: {rounds} rounds ({dict(history.faults)}); {acknowledged} acknowledged "
        f"writes; reads {dict(sources)}, {record.failed} refused; {record.refused}; "
        f"{record.beside}; converged in {converged:.2f} s; {len(faults)} faults",
        flush=True,
    )
    for share in (record.refused, record.beside):
        try:
            share.check()
        except AssertionError as error:
            faults.append(str(error))
    if not faults and sources["near"] < 100:
        faults = ["hardly anything was read near: the history shows nothing"]
    if not faults and (record.refused.all < 20 or record.beside.all < 100):
        faults = ["hardly anything was read from the remote: the history shows nothing"]
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--bound", type=float, default=0.1)
    parser.add_argument("--memcached", action="store_true")
    arguments = parser.parse_args()
    failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        with tempfile.TemporaryDirectory(prefix="history-") as folder:
            faults = run(Path(folder), seed, arguments.rounds, arguments.bound, arguments.memcached)
        for fault in faults[:10]:
            print(fault)
        failed += bool(faults)
    print(f"{arguments.runs - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
