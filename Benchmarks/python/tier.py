"""Measures the near tier with a Redis that it starts on loopback. Processor time is counted, of this process and of the
server, so that other load on the machine matters little.

usage: SHALE_LIBRARY=build/libshale.so PYTHONPATH=Bindings/Python/src:Bindings/Python/tests \\
           build/venv-tier/bin/python Benchmarks/python/tier.py
"""

import random
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import redis

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "Tests" / "Tier"))

from near import is_heard, remote_key  # noqa: E402
from servers import RedisServer, until  # noqa: E402
from shale.tier import Tier  # noqa: E402

KEYS = 10_000
READS = 100_000
VALUE = b"x" * 1024


def zipf(count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    weights = list(accumulate(1 / rank for rank in range(1, KEYS + 1)))
    return [b"%d" % number for number in chance.choices(range(KEYS), cum_weights=weights, k=count)]


def server_seconds(client: Any) -> float:
    found = client.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def fill(client: Any) -> None:
    pipeline = client.pipeline(transaction=False)
    for number in range(KEYS):
        pipeline.set(remote_key(b"%d" % number), VALUE)
    pipeline.execute()


def reading(name: str, get: Callable[[bytes], Any], client: Any) -> None:
    keys = zipf(READS, 1)
    for key in keys[: READS // 4]:
        get(key)
    times = []
    remote, own = server_seconds(client), time.process_time()
    for key in keys:
        began = time.perf_counter_ns()
        get(key)
        times.append(time.perf_counter_ns() - began)
    own, remote = time.process_time() - own, server_seconds(client) - remote
    times.sort()
    print(
        f"| {name} | {own / READS * 1e6:.1f} | {remote / READS * 1e6:.2f} | {times[READS // 2] / 1e3:.1f} "
        f"| {times[READS * 99 // 100] / 1e3:.1f} |",
        flush=True,
    )


def sizes(folder: Path, server: RedisServer) -> None:
    print("\n| near entries, of the keys | reads that the remote was spared |\n|---|---|")
    for share in (0.01, 0.05, 0.2, 1.0):
        options: dict[str, Any] = {"max_entries": 24 + int(KEYS * share * 1.05), "shards": 1}
        with Tier(folder / f"near{share}", server.client(), capacity="64MiB", timeout=5, **options) as tier:
            until(lambda: is_heard(tier))
            for key in zipf(READS // 4, 2):
                tier.get(key)
            before = server.reads()
            for key in zipf(READS, 3):
                tier.get(key)
            print(f"| {share:.0%} | {1 - (server.reads() - before) / READS:.1%} |", flush=True)


def listen(port: int, count: int, each_key: bool, ended: threading.Event) -> threading.Thread:
    """Connections that receive invalidations, of all keys under the prefix or of each key that they have read."""
    selector = selectors.DefaultSelector()
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(b"CLIENT ID\r\n")
        own = connection.recv(100)[1:-2]
        mode = b"" if each_key else b" BCAST PREFIX shale:"
        connection.sendall(b"CLIENT TRACKING ON REDIRECT " + own + mode + b"\r\n")
        connection.recv(100)
        if each_key:
            connection.sendall(b"".join(b"GETRANGE shale:k:%d 0 0\r\n" % key for key in range(KEYS)))
            got = 0
            while got < 7 * KEYS:
                got += len(connection.recv(1 << 16))
        connection.sendall(b"SUBSCRIBE __redis__:invalidate\r\n")
        connection.recv(1000)
        selector.register(connection, selectors.EVENT_READ)

    def drain() -> None:
        while not ended.is_set():
            for key, _ in selector.select(0.1):
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.recv(1 << 20)
        for key in list(selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()

    thread = threading.Thread(target=drain)
    thread.start()
    return thread


def invalidations(server: RedisServer) -> None:
    print("\n| machines | by prefix, µs of the server a write | by key |\n|---|---|---|")
    client = server.client()
    for count in (0, 1, 10, 50):
        costs = []
        for each_key in (False, True):
            ended = threading.Event()
            thread = listen(server.port, count, each_key, ended)
            time.sleep(0.2)
            before = server_seconds(client)
            # Each key once: the server forgets a key once it has sent an invalidation for it.
            for number in range(KEYS):
                client.set(b"shale:k:%d" % number, b"y")
            costs.append((server_seconds(client) - before) / KEYS * 1e6)
            ended.set()
            thread.join()
        print(f"| {count} | {costs[0]:.0f} | {costs[1]:.0f} |", flush=True)


def processes(folder: Path, server: RedisServer) -> None:
    print("\n| processes | the server's seconds for 20,000 reads of each: plain | with the tier |\n|---|---|---|")
    for count in (1, 10, 50):
        costs = []
        for kind in ("plain", "tier"):
            directory = folder / f"shared{count}"
            before = server_seconds(server.client())
            children = [
                subprocess.Popen([sys.executable, __file__, kind, str(server.port), str(directory), str(seed)])
                for seed in range(count)
            ]
            for child in children:
                assert child.wait() == 0
            costs.append(server_seconds(server.client()) - before)
        print(f"| {count} | {costs[0]:.2f} | {costs[1]:.2f} |", flush=True)


def child(kind: str, port: int, directory: Path, seed: int) -> None:
    client = redis.Redis(port=port)
    keys = zipf(20_000, seed)
    if kind == "plain":
        for key in keys:
            client.get(remote_key(key))
        return
    with Tier(directory, client, capacity="64MiB", timeout=5) as tier:
        for key in keys:
            tier.get(key)


def main() -> None:
    if len(sys.argv) > 1:
        kind, port, directory, seed = sys.argv[1:]
        child(kind, int(port), Path(directory), int(seed))
        return
    with tempfile.TemporaryDirectory(prefix="tier-") as name:
        folder = Path(name)
        server = RedisServer(folder / "server")
        try:
            client = server.client()
            fill(client)
            print("| read by | µs of the process | µs of the server | median, µs | p99, µs |\n|---|---|---|---|---|")
            reading("redis-py", lambda key: client.get(remote_key(key)), client)
            with Tier(folder / "near", client, capacity="64MiB", timeout=5) as tier:
                until(lambda: is_heard(tier))
                reading("the tier", tier.get, client)
            sizes(folder, server)
            processes(folder, server)
            invalidations(server)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
