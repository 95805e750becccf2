"""The time limit of a call, however many waits it has (histories_waits.py)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import histories_waits
import pytest
import redis
from near import Machines, names_in
from proxy import DATA, NEW
from servers import RedisServer, until
from shale.tier import RemoteError

LIMIT = 0.4


@pytest.fixture(autouse=True)
def counts(monkeypatch: pytest.MonkeyPatch) -> None:
    histories_waits.install(monkeypatch.setattr)


def waited(call: Callable[[], object]) -> float:
    """How long it waited, in time limits."""
    with histories_waits.counted() as account:
        call()
    return account.remote / LIMIT


def fails(call: Callable[[], object]) -> Callable[[], None]:
    def failing() -> None:
        with pytest.raises(RemoteError):
            call()

    return failing


def delay(tier: Any, kind: str, limits: float) -> None:
    """Each message takes so many time limits."""
    tier.proxy.random.uniform = lambda _low, high: high
    tier.proxy.delays[kind] = limits * LIMIT


def test_a_value_in_many_parts(machine: Machines, server: RedisServer) -> None:
    """Each part is there in time, and the whole value is not."""
    tier = machine(timeout=LIMIT)
    server.client().set("shale:k:k", bytes(3_000_000))
    tier.proxy.rate = 1e6
    assert waited(fails(lambda: tier.get(b"k"))) <= 1.1
    assert waited(fails(lambda: tier.set(b"k", bytes(30_000_000)))) <= 1.1


def test_an_address_that_does_not_answer(
    machine: Machines, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next address of the name is tried in time."""
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    waiting = []
    for _ in range(3):
        waiting.append(socket.socket())
        waiting[-1].setblocking(False)
        waiting[-1].connect_ex(full.getsockname())
    resolve = socket.getaddrinfo

    def addresses(host: Any, *arguments: Any, **options: Any) -> Any:
        if host != "cache.test":
            return resolve(host, *arguments, **options)
        ports = full.getsockname()[1], server.port
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    tier = machine(remote=lambda _port: redis.Redis(host="cache.test"), waits=False, timeout=4.0)
    tier.set("k", 1)
    for each in (full, *waiting):
        each.close()


def test_a_connection_that_begins_slowly(machine: Machines) -> None:
    """Each of its first answers is there in time."""
    tier = machine(timeout=LIMIT)
    tier._remote.close()
    delay(tier, NEW, 0.3)
    assert waited(fails(lambda: tier.get(b"k"))) <= 1.1


def load() -> bytes:
    with histories_waits.not_counted():
        time.sleep(LIMIT)
    return b"v"


def test_a_load(machine: Machines) -> None:
    """Reading, marking and storing have one time limit."""
    tier = machine(timeout=LIMIT)
    tier.get(b"another")
    delay(tier, DATA, 0.2)
    found = []
    assert waited(lambda: found.append(tier.lookup_or_load(b"k", load))) <= 1.1
    assert found[0].value == b"v"
    assert found[0].error is not None


def test_the_time_of_a_loader_is_its_own(machine: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = machine(timeout=60.0)
    deadlines: list[float] = []

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            deadlines.append(arguments[-1])
            return function(*arguments)

        return call

    for name in ("begin_load", "end_load"):
        monkeypatch.setattr(tier._remote, name, noted(getattr(tier._remote, name)))
    assert tier.get_or_load(b"k", load) == b"v"
    begin, end = deadlines
    assert end - begin >= LIMIT


def test_a_call_without_time_to_connect_is_no_failure_of_the_remote(machine: Machines) -> None:
    tier = machine(timeout=60.0)
    tier._remote.close()
    wire = tier._remote.wire
    with pytest.raises(RemoteError, match="no time is left"), wire.connection(time.monotonic() - 1):
        pass
    with wire.connection(time.monotonic() + 60):
        pass


def test_late_removals_over_a_slow_link(machine: Machines) -> None:
    """A connection takes longer than the listener waits between two rounds."""
    tier = machine(timeout=30.0, bound=0.5)
    tier.proxy.refuse()
    tier.proxy.cut(DATA)
    fails(lambda: tier.set(b"k", b"v"))()
    delay(tier, NEW, 0.3)
    tier.proxy.accept()
    until(lambda: not names_in(tier._near.journal))
