"""Histories: processes of several machines read and write during faults, and their results are
checked by the times that they recorded.

    python histories.py --rounds 60 --seed 1 [--memcached]
    python histories.py --flaws

--flaws: breaks the tier in each known way, and checks that a history reports it.

Each round is a fault, drawn from the seed: delays, connections that are held in one direction, cut,
refused or half-open; one slow key, large values over a slow link, loaders that are killed; SIGKILL
and SIGSTOP of readers and listeners; SIGSTOP, a restart, DEBUG SLEEP, FLUSHALL and CLIENT KILL of
the remote, and its refusal of writes. (With memcached, some mean nothing.) Two machines, each
behind a proxy, read, load and write, another program writes to the remote, and one near cache is
always full. Nothing depends on how long a call took:

* A read must not return less than what was acknowledged a bound before it began, or by its own
  machine at all before it; nor a value whose tag was invalidated; and each machine's reads of a key
  go forward. Reads beside another's under a standing lease, and refused fills of unchanged keys,
  are counted and have a limit.
* Calls wait no longer than promised, load no key more often, and fail no longer after a fault
  (histories_progress.py; histories_waits.py says how long a call waits). After each kill and at the
  end, a new process sets, removes, invalidates and loads keys of its own.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from histories_child import COUNTED, FAILING, FLAWS, LARGE, SLOW, client_of, not_done
from histories_progress import (
    Cause,
    Change,
    HalfOpen,
    Progress,
    Stop,
    check_failures,
    check_loads,
    check_markers,
    check_waits,
)
from load_log import duplicates
from near import names_in
from progress import Share
from proxy import DATA, LISTENER, NEW, Proxy
from pymemcache import Client
from servers import MemcachedServer, RedisServer, Server, until
from shale.tier import RemoteError, Tier
from shale.tier._format import LOADING
from shale.tier._near import now
from support import child_environment

HERE = Path(__file__).resolve().parent
KEYS = 24
READERS = 2
SUITE = "tier_histories"
MOST_REFUSED = 0.0
"""No fill of an unchanged key."""
TIMEOUT = 0.2
"""Of the tiers, seconds."""
EVICTS = "two"
"""The machine whose near cache is always full."""
PATIENT = 60.0
"""A time limit, seconds, that suffices on a machine of any load."""


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
    """The end of a write that was not acknowledged: never."""
    tag: str
    machine: str


NEVER = 1 << 62


class Record:
    """The records of all processes."""

    def __init__(self) -> None:
        self.reads: list[Read] = []
        self.writes: dict[str, dict[int, Write]] = defaultdict(dict)
        self.invalidations: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        self.errors: list[str] = []
        self.progress = Progress()
        self.refused = Share("near fills refused", MOST_REFUSED)
        self.beside = Share("reads beside another's lease", 0)

    def add(self, machine: str, file: Path) -> None:
        # A process may be killed in the midst of a line.
        for line in file.read_text().split("\n")[:-1]:
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
            elif kind == "X":
                self.errors.append(line)
            else:
                self.progress.add(machine, f"{machine}/{file.name}", kind, rest)

    def add_loads(self, machine: Machine) -> None:
        """The reads and loads of a machine, one at a time for each key."""
        paths = [path for file in machine.files for path in file.parent.glob(f"{file.name}.*")]
        logs = {int(path.suffix[1:]): path for path in paths}
        loads, found = duplicates(logs, machine.ends)
        for number in range(loads):
            self.beside.count(number < len(found))
        self.errors += [f"4: on machine {machine.name}, {each}" for each in found]


def check(record: Record, bound: int) -> list[str]:
    """The contradictions of the guarantees. bound: nanoseconds."""
    faults = list(record.errors)
    acknowledged: dict[str, tuple[list[int], list[int]]] = {}
    own: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for key, writes in record.writes.items():
        done = [each for each in writes.values() if each.ended != NEVER]
        # A key has one writer, so both grow.
        acknowledged[key] = [each.ended for each in done], [each.value for each in done]
        for machine in {each.machine for each in done}:
            own[machine, key] = acknowledged[key]
    for read in record.reads:
        if not read.value:
            continue  # flushed, invalidated, removed after a failure, or not yet written
        written = record.writes[read.key].get(read.value)
        if written is None or written.began > read.ended:
            faults.append(f"a value that no process has written: {read}")
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
    faults += check_failures(record.progress, bound)
    faults += check_loads(record.progress, bound, [EVICTS])
    faults += check_waits(record.progress, 1.1 * TIMEOUT)
    return faults


def _latest(writes: tuple[list[int], list[int]] | None, time: int) -> int:
    """The last value that was acknowledged by that time."""
    if writes is None:
        return 0
    at = bisect_right(writes[0], time)
    return writes[1][at - 1] if at else 0


def _backwards(record: Record) -> list[str]:
    """The reads of a key by a machine never go back: a read begins after the last one has ended."""
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


FAULTS = (
    *("delays", "held", "cut", "refused", "unanswered", "half_open_connections", "slow_key"),
    *("large_values", "killed_reader", "killed_loader", "stopped_reader", "stopped_server", "restarted_server"),
)
"""Names of methods of `History`."""
FAULTS_OF_REDIS = (*("stopped_listener", "killed_listener", "client_kill", "flush", "sleep", "refused_writes"),)
REFUSALS = [
    ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    ("ACL SETUSER default -@write", "ACL SETUSER default +@all"),
]


class Machine:
    def __init__(self, name: str, folder: Path, server: Server, options: dict[str, Any]) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.proxy = Proxy(server.port, options["seed"])
        self.options = {**options, "directory": str(self.folder / "near"), "port": self.proxy.port}
        self.files: list[Path] = []
        self.ends: dict[int, float] = {}
        """The latest times at which processes were killed, of time.monotonic()."""
        self.names: dict[int, str] = {}
        """Of processes."""
        self.readers: list[subprocess.Popen[str]] = [self.start("read") for _ in range(READERS)]
        own = options["keys"][::3] if name == "one" else options["keys"][1::3]
        self.writer = self.start("write", own=own)

    def start(self, work: str, **more: Any) -> subprocess.Popen[str]:
        file = self.folder / f"record{len(self.files)}"
        file.touch()
        self.files.append(file)
        options = {**self.options, "work": work, "tag": f"t-{self.name}", "file": str(file), **more}
        process = subprocess.Popen(
            [sys.executable, HERE / "histories_child.py", repr(options)],
            stdin=subprocess.PIPE,
            env=child_environment(),
            text=True,
        )
        self.names[process.pid] = f"{self.name}/{file.name}"
        return process

    @property
    def processes(self) -> list[subprocess.Popen[str]]:
        return [*self.readers, self.writer]

    def go_on(self) -> None:
        """After a kill: all operations of a tier succeed, in a new process."""
        tier = {**self.options["tier"], "timeout": PATIENT}
        process = self.start("go on", tier=tier)
        process.communicate(timeout=4 * PATIENT)
        assert process.returncode == 0

    def end(self) -> None:
        """Ends the processes without killing them."""
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
    def __init__(self, folder: Path, seed: int, bound: float, memcached: bool = False, flaw: str = "") -> None:
        """flaw: breaks the tier, to see that the history reports it."""
        self.seed = seed
        self.memcached = memcached
        self.bound = bound
        self.chance = random.Random(seed)
        self.server: Any = (MemcachedServer if memcached else RedisServer)(folder / "server")
        keys = [f"k{number}" for number in range(KEYS)]
        tier = {"bound": bound, "timeout": TIMEOUT, "near_age": 30.0}
        options: dict[str, Any] = {
            "memcached": memcached,
            "seed": seed,
            "flaw": flaw,
            "keys": [key.encode() for key in keys],
        }
        small = {"capacity": "2MiB"}
        # One of them is always full.
        full = {**small, "max_entries": 40}
        self.machines: list[Machine] = []
        self.faults: Counter[str] = Counter()
        self.undone: list[str] = []
        self.marked: list[str] = []
        """The keys that have markers of loads at the end."""
        self.causes: list[Cause] = []
        self.half_open: list[HalfOpen] = []
        self.stops: list[Stop] = []
        self.changes: list[Change] = []
        self.killed: list[tuple[Machine, str, int]] = []
        self.plain = folder / "plain"
        self._foreign = options["keys"][2::3]
        self._ended = threading.Event()
        try:
            for name, more in (("one", small), (EVICTS, full)):
                self.machines.append(Machine(name, folder, self.server, {**options, "tier": {**tier, **more}}))
            for machine in self.machines:
                until(lambda: all(file.stat().st_size for file in machine.files))  # noqa: B023
        except BaseException:
            self.close()
            raise
        self._writer = threading.Thread(target=self._write_plain)
        self._writer.start()

    def _write_plain(self) -> None:
        """A program without tiers."""
        chance = random.Random(self.seed + 1)
        numbers = dict.fromkeys(self._foreign, 0)
        client = self.client(timeout=0.5)
        with open(self.plain, "w") as record:
            while not self._ended.is_set():
                if chance.random() < 0.3:
                    client = self._remove_counted(client, chance.choice(COUNTED), record)
                key = chance.choice(self._foreign)
                numbers[key] += 1
                began = now()
                name = key.decode()
                print("B", name, numbers[key], began, file=record)
                try:
                    # Over its own connection: after a failure the connection is not used, and nothing is resent.
                    client.set(b"shale:k:" + key, b"%d" % numbers[key])
                    print("W", name, numbers[key], began, now(), "", file=record)
                except Exception:
                    # The server may execute it until it has closed the connection.
                    client.close()
                    client = self.client(timeout=0.5)
                    time.sleep(1)
                time.sleep(chance.uniform(0, 0.02))

    def _remove_counted(self, client: Any, key: bytes, record: Any) -> Any:
        """Removes a key that readers load, and returns a client for the next call."""
        began = now()
        try:
            client.delete(b"shale:k:" + key)
        except Exception:
            client.close()
            client = self.client(timeout=0.5)
            # The server executes it before its second answer over another connection.
            answers = 0
            while answers < 2 and not self._ended.is_set():
                try:
                    client.get(b"none")
                    answers += 1
                except Exception:
                    answers = 0
                    client.close()
                    client = self.client(timeout=0.5)
                    time.sleep(0.02)
        print("D", key.decode(), began, now(), file=record)
        return client

    def client(self, timeout: float = 60.0) -> Any:
        """A plain connection, which sends each command once."""
        if self.memcached:
            address = "127.0.0.1", self.server.port
            return Client(address, connect_timeout=timeout, timeout=timeout, default_noreply=False)
        client = self.server.client(socket_timeout=timeout)
        client.connection_pool.connection_kwargs.pop("retry", None)
        return client

    # Faults

    def round(self, faults: Sequence[str] = ()) -> None:
        """faults: the names of those from which it is drawn; otherwise all."""
        chance = self.chance
        machine = chance.choice(self.machines)
        fault = chance.choice(faults or (FAULTS if self.memcached else FAULTS + FAULTS_OF_REDIS))
        self.faults[fault] += 1
        getattr(self, fault)(machine)
        time.sleep(chance.uniform(0, 4 * self.bound))

    def pause(self) -> None:
        time.sleep(self.chance.uniform(0.2, 4) * max(self.bound, 0.75 * TIMEOUT))

    @contextmanager
    def cause(self, machine: Machine | None = None, key: bytes = b"") -> Iterator[None]:
        """Around a fault because of which calls fail, of this machine or all, for keys that begin
        so."""
        began = now()
        try:
            yield
        finally:
            if machine is not None:
                machine.proxy.go()
            name = "" if machine is None else machine.name
            self.causes.append(Cause(name, began, now(), key.decode()))

    @contextmanager
    def change(self) -> Iterator[None]:
        """Around a loss of values in the remote."""
        began = now()
        yield
        self.changes.append(Change("", "", began, now()))

    def delays(self, machine: Machine) -> None:
        with self.cause(machine):
            for kind in (LISTENER, DATA):
                machine.proxy.delays[kind] = self.chance.choice([0, 0.01, 0.1, 1]) * self.bound
            self.pause()

    def held(self, machine: Machine) -> None:
        with self.cause(machine):
            machine.proxy.hold(self.chance.choice([LISTENER, DATA, NEW]), self.chance.random() < 0.5)
            self.pause()

    def cut(self, machine: Machine) -> None:
        with self.cause(machine):
            machine.proxy.cut(self.chance.choice([LISTENER, DATA]))

    def refused(self, machine: Machine) -> None:
        with self.cause(machine):
            machine.proxy.refuse()
            machine.proxy.cut()
            self.pause()

    def unanswered(self, machine: Machine) -> None:
        """New connections are not answered."""
        with self.cause(machine):
            machine.proxy.hold(NEW, self.chance.random() < 0.5)
            machine.proxy.cut()
            self.pause()

    def half_open_connections(self, machine: Machine) -> None:
        ports = machine.proxy.drop()
        self.half_open.append(HalfOpen(machine.name, now(), ports))
        self.pause()

    def slow_key(self, machine: Machine) -> None:
        with self.cause(machine, SLOW):
            machine.proxy.slow = self.chance.choice([0.5, 2, 4]) * TIMEOUT
            machine.proxy.slow_name = SLOW
            self.pause()

    def large_values(self, machine: Machine) -> None:
        """Over a slow link, beside small ones."""
        (machine.folder / "large").touch()
        with self.cause(machine, LARGE):
            machine.proxy.rate = self.chance.choice([5e6, 50e6])
            self.pause()
            (machine.folder / "large").unlink()

    def killed_reader(self, machine: Machine) -> None:
        self._kill(machine, self.chance.randrange(READERS))

    def killed_loader(self, machine: Machine) -> None:
        """One that others wait for."""
        (machine.folder / "hang").touch()
        hanging: Path = until(lambda: next(machine.folder.glob("hanging-*"), None))
        pid = int(hanging.name.partition("-")[2])
        self.pause()
        self._kill(machine, [each.pid for each in machine.readers].index(pid))
        hanging.unlink()

    def _kill(self, machine: Machine, index: int) -> None:
        process = machine.readers[index]
        machine.ends[process.pid] = time.monotonic()
        process.kill()
        process.communicate()
        self.killed.append((machine, machine.names[process.pid], now()))
        machine.go_on()
        machine.readers[index] = machine.start("read")

    def _listeners(self) -> list[int]:
        clients = self.server.client().client_list("pubsub")
        return [int(each["name"]) for each in clients if each["name"]]

    def stopped_listener(self, machine: Machine) -> None:
        pids = {process.pid for process in machine.processes} & set(self._listeners())
        began = now()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.pause()
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
            self.stops.append(Stop(machine.names[pid], began, now()))

    def stopped_reader(self, machine: Machine) -> None:
        """While it reads the remote."""
        process = self.chance.choice(machine.readers)
        with self.cause(machine):
            machine.proxy.hold(DATA, False)
            time.sleep(TIMEOUT / 4)
            began = now()
            process.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(2, 4) * TIMEOUT)
        process.send_signal(signal.SIGCONT)
        self.stops.append(Stop(machine.names[process.pid], began, now()))

    def killed_listener(self, machine: Machine) -> None:
        pids = self._listeners()
        for index, process in enumerate(machine.readers):
            if process.pid in pids:
                self._kill(machine, index)

    def stopped_server(self, _machine: Machine) -> None:
        with self.cause():
            self.server.signal(signal.SIGSTOP)
            self.pause()
            self.server.signal(signal.SIGCONT)

    def client_kill(self, _machine: Machine) -> None:
        kind = self.chance.choice(["pubsub", "normal"])
        with self.cause():
            self.server.client().execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")

    def flush(self, _machine: Machine) -> None:
        with self.change():
            self.server.client().flushall()

    def sleep(self, _machine: Machine) -> None:
        with self.cause():
            self.server.client().execute_command("DEBUG", "SLEEP", str(2 * self.bound))

    def restarted_server(self, machine: Machine) -> None:
        with self.cause(), self.change():
            self.server.kill()
            self.pause()
            self.server.start()
        machine.go_on()

    def refused_writes(self, _machine: Machine) -> None:
        """The remote is full, a replica, without replicas, or read-only for its user."""
        begin, end = self.chance.choice(REFUSALS)
        client = self.server.client()
        with self.cause():
            client.execute_command(*begin.split())
            self.pause()
            client.execute_command(*end.split())

    # The end

    def converged(self) -> float:
        """Seconds after the last write until all machines read the values of the remote."""
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
                # Late removals change the remote.
                until(lambda: not names_in(tier._near.journal))
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
        if not self.memcached:
            self.marked = [
                name.partition(b"k:")[2].decode()
                for begin in (COUNTED[0][:1], FAILING)
                for name in client.scan_iter(b"shale:k:" + begin + b"*", count=1000)
                if (client.get(name) or b"").startswith(LOADING)
            ]
        return time.monotonic() - began

    def record(self) -> Record:
        record = Record()
        for machine in self.machines:
            for file in machine.files:
                record.add(machine.name, file)
            record.add_loads(machine)
        record.add("plain client", self.plain)
        progress = record.progress
        progress.causes, progress.half_open = self.causes, self.half_open
        progress.stops = self.stops
        progress.changes += self.changes
        for machine, process, at in self.killed:
            progress.end(process, at)
            # It may have changed the near cache without a record.
            progress.changes.append(Change(machine.name, "", at - 10**9, at))
        record.errors += check_markers(progress, round(self.bound * 1e9), self.marked, now())
        record.errors += [f"not done at the end: {each}" for each in self.undone]
        return record

    def close(self) -> None:
        self._ended.set()
        for machine in self.machines:
            machine.kill()
        self.server.kill()


def run(
    folder: Path,
    seed: int,
    rounds: int,
    bound: float,
    memcached: bool = False,
    flaw: str = "",
    of: Sequence[str] = (),
) -> list[str]:
    """Prints the counts, and returns the contradictions of the guarantees. flaw: as in `History`.
    of: the faults, as in `History.round`."""
    folder.mkdir(exist_ok=True)
    history = History(folder, seed, bound, memcached, flaw)
    try:
        for _ in range(rounds):
            history.round(of)
        converged = history.converged()
        record = history.record()
    finally:
        history.close()
    faults = check(record, round(bound * 1e9))
    sources = Counter("stale" if each.stale else each.source for each in record.reads)
    acknowledged = sum(each.ended != NEVER for writes in record.writes.values() for each in writes.values())
    print(
        f"seed {seed}: {rounds} rounds ({dict(history.faults)}); {acknowledged} acknowledged "
        f"writes; reads {dict(sources)}; {record.progress}; {record.refused}; "
        f"{record.beside}; converged in {converged:.2f} s; {len(faults)} faults",
        flush=True,
    )
    for share in (record.refused, record.beside):
        try:
            share.check()
        except AssertionError as error:
            faults.append(str(error))
    if flaw:
        return faults
    if not faults and sources["near"] < 100:
        faults = ["hardly anything was read near: the history shows nothing"]
    if not faults and (record.refused.all < 20 or record.beside.all < 100):
        faults = ["hardly anything was read from the remote: the history shows nothing"]
    return faults


def bound_of(seed: int) -> float:
    return 0.1 if seed % 2 else 0.2


def shows(folder: Path, flaw: Callable[[Any], None], rounds: int = 4, seeds: int = 3) -> bool:
    """Whether one of so many histories reports the flaw."""
    return any(
        run(folder / str(seed), seed, rounds, 0.1, flaw=flaw.__name__, of=FLAWS[flaw]) for seed in range(1, seeds + 1)
    )


def check_flaws() -> int:
    hidden = []
    for flaw in FLAWS:
        with tempfile.TemporaryDirectory(prefix="history-") as folder:
            if not shows(Path(folder), flaw):
                hidden.append(flaw.__name__)
    print(f"{len(FLAWS)} flaws, not reported: {', '.join(hidden) or 'none'}")
    return 1 if hidden else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--bound", type=float)
    parser.add_argument("--memcached", action="store_true")
    parser.add_argument("--flaw", default="", help="breaks the tier: a name in histories_child.py")
    parser.add_argument("--faults", nargs="*", default=(), help="draws from these: methods of History")
    parser.add_argument("--flaws", action="store_true")
    arguments = parser.parse_args()
    if arguments.flaws:
        return check_flaws()
    failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        with tempfile.TemporaryDirectory(prefix="history-") as folder:
            faults = run(
                Path(folder),
                seed,
                arguments.rounds,
                arguments.bound or bound_of(seed),
                arguments.memcached,
                arguments.flaw,
                arguments.faults,
            )
        for fault in faults[:10]:
            print(fault)
        failed += bool(faults)
    print(f"{arguments.runs - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
