"""The connections of a tier: what a failure costs."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from loaders import in_thread
from near import Machines
from proxy import NEW
from servers import RedisServer, until
from shale.tier import RemoteError, Tier
from shale.tier._errors import NoTimeError
from shale.tier._wire import Wire


class Connection:
    """Of a pool."""

    is_idle = True

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Remote:
    """Makes connections, as long as it is up."""

    def __init__(self) -> None:
        self.up = True
        self.made: list[Connection] = []
        self.tries = 0

    def __call__(self, deadline: float) -> Connection:
        self.tries += 1
        if not self.up:
            raise ConnectionError("down")
        self.made.append(Connection())
        return self.made[-1]


def soon() -> float:
    return time.monotonic() + 60


def test_a_failure_closes_the_idle_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote()
    wire = Wire(remote, 60, 60)
    with wire.connection(soon()), wire.connection(soon()), wire.connection(soon()):
        pass
    assert len(remote.made) == 3
    with pytest.raises(RemoteError, match="half-open"), wire.connection(soon()):
        raise TimeoutError("half-open")
    assert all(each.closed for each in remote.made)
    # The remote answers: other calls go on.
    with wire.connection(soon()):
        pass
    assert len(remote.made) == 4


def test_the_pause_begins_short_and_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    remote = Remote()
    remote.up = False
    wire = Wire(remote, 60, 0.5)
    for pause in (0.05, 0.1, 0.2, 0.4, 0.5, 0.5):
        before = remote.tries
        with pytest.raises(RemoteError, match="did not answer"), wire.connection(soon()):
            pass
        now += pause - 0.001
        with pytest.raises(RemoteError, match=r"not called for another 0\.00 s: down"), wire.connection(soon()):
            pass
        assert remote.tries == before + 1
        now += 0.002
    remote.up = True
    with wire.connection(soon()):
        pass
    remote.up = False
    with pytest.raises(RemoteError, match="did not answer"), wire.connection(soon(), fresh=True):
        pass
    assert wire.back_off._down_until == now + 0.05


def test_a_call_that_runs_out_of_time_begins_no_pause() -> None:
    remote = Remote()

    def connect(deadline: float) -> Connection:
        if not remote.tries:
            remote.tries += 1
            raise NoTimeError
        return remote(deadline)

    wire = Wire(connect, 60, 60)
    with pytest.raises(RemoteError, match="no time is left"), wire.connection(soon()):
        pass
    with wire.connection(soon()):
        pass


def test_after_the_pause_one_call_connects() -> None:
    begun, go = threading.Event(), threading.Event()
    remote = Remote()
    remote.up = False

    def connect(deadline: float) -> Connection:
        if remote.tries:
            begun.set()
            assert go.wait(60)
        return remote(deadline)

    wire = Wire(connect, 60, 60)
    with pytest.raises(RemoteError), wire.connection(soon()):
        pass
    until(lambda: wire.back_off._down_until < time.monotonic())
    remote.up = True

    def call() -> None:
        with wire.connection(soon()):
            pass

    first = in_thread(call)
    assert begun.wait(60)
    with pytest.raises(RemoteError, match="not called"), wire.connection(soon()):
        pass
    go.set()
    first()
    assert remote.tries == 2


class Interrupted:
    """A lock. Ctrl-C comes when it is released first."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._interrupts = True

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._lock.__exit__(*exception)
        if self._interrupts:
            self._interrupts = False
            raise KeyboardInterrupt

    def notify(self) -> None:
        self._lock.notify()


def test_an_interrupted_call_keeps_no_other_from_connecting() -> None:
    remote = Remote()
    remote.up = False
    wire: Any = Wire(remote, 60, 60, most=1)
    with pytest.raises(RemoteError), wire.connection(soon()):
        pass
    until(lambda: wire.back_off._down_until < time.monotonic())
    remote.up = True
    for each, lock in ((wire, "_freed"), (wire.back_off, "_lock")):
        setattr(each, lock, Interrupted(getattr(each, lock)))
        with pytest.raises(KeyboardInterrupt), wire.connection(soon()):
            pass
    with wire.connection(soon()):
        pass


def test_connections_that_were_idle_for_long_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    remote = Remote()
    wire = Wire(remote, 60, 60)
    with wire.connection(soon()), wire.connection(soon()):
        pass
    now += 61
    with wire.connection(soon()):
        pass
    assert [each.closed for each in remote.made] == [True, True, False]


def test_the_client_limits_the_connections(server: RedisServer, tmp_path: Path) -> None:
    client = redis.Redis(connection_pool=redis.ConnectionPool(port=server.port, max_connections=2))
    with Tier(tmp_path / "near", client, timeout=60, bound=600, capacity="8MiB") as tier:
        wire = tier._remote.wire
        with wire.connection(soon()), wire.connection(soon()):
            with (
                pytest.raises(RemoteError, match="all 2 connections that the client allows are in use"),
                wire.connection(time.monotonic() + 0.01),
            ):
                pass
            waits = in_thread(lambda: tier.get("k"))
        # It gets a connection that is no longer in use.
        assert waits() is None


def test_a_slow_key_takes_no_other_down(machine: Machines) -> None:
    tier = machine(timeout=0.5, bound=600)
    tier.set("k", 1)
    with pytest.raises(RemoteError, match="did not answer"), tier._remote.wire.connection(soon()):
        raise TimeoutError("a large value")
    assert tier.get("k") == 1


def test_closing_waits_for_no_listener_that_connects(machine: Machines) -> None:
    tier = machine(timeout=0.1, bound=600)
    tier.proxy.hold(NEW, False)
    tier.proxy.cut()
    tier.proxy.wait_held(NEW, False)
    began = time.monotonic()
    tier.close()
    # A listener may connect for 1,200 seconds.
    assert time.monotonic() - began < 60
