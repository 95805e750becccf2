"""A proxy between a machine and its remote, which delays, holds and drops messages, separately for
each kind of connection, and for the answers with one key."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading

LISTENER = "listener"
DATA = "data"
NEW = "new"
KINDS = (LISTENER, DATA, NEW)

LARGE = 1 << 15
"""Bytes of a message that a slow link delays."""


_ASKS = re.compile(rb"\r\n(GET|SET|DEL|EVAL|SCAN)\r\n|^(mg|ms|get|set|delete) ")


def kind_of(data: bytes) -> str:
    """The kind of a connection, by the client's messages. The first ones do not show it."""
    if b"TRACKING" in data:
        return LISTENER
    return DATA if _ASKS.search(data) else NEW


class Link:
    """A connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.kind = NEW
        self.dead = False
        """Whether it is half-open: it drops all messages."""
        self.slow = 0.0
        """Seconds by which the next answer is late."""
        self.client, self.server = client, server
        for source, target, up in ((client, server, True), (server, client, False)):
            work = threading.Thread(target=self._pump, args=(source, target, up), daemon=True)
            work.start()

    def _pump(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        proxy = self.proxy
        try:
            while True:
                data = source.recv(1 << 16)
                if not data:
                    break
                if up and self.kind == NEW:
                    self.kind = kind_of(data)
                delay = proxy.random.uniform(0, proxy.delays[self.kind])
                if up and proxy.slow_name and proxy.slow_name in data:
                    self.slow = proxy.slow
                elif not up and self.slow:
                    delay, self.slow = self.slow, 0.0
                if len(data) >= LARGE:
                    delay += len(data) / proxy.rate
                proxy.pass_through(self.kind, up, delay)
                if not self.dead:
                    target.sendall(data)
        except OSError:
            pass
        # The client of a half-open connection does not hear that the server has closed it.
        if up or not self.dead:
            self.close()

    def close(self) -> None:
        for each in (self.client, self.server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        with self.proxy.changed:
            self.proxy.links.discard(self)


class Proxy:
    def __init__(self, target: int, seed: int = 0) -> None:
        self.target = target
        """The port that new connections lead to."""
        self.random = random.Random(seed)
        self.delays = dict.fromkeys(KINDS, 0.0)
        """The longest delay of a message, seconds."""
        self.changed = threading.Condition()
        self.links: set[Link] = set()
        self.slow_name = b""
        """Part of the name of the keys whose answers are late."""
        self.slow = 0.0
        """By so many seconds."""
        self.rate = float("inf")
        """Bytes of large values per second, in each direction of a connection."""
        self._released = 0
        """The number of calls of `go`."""
        self._held: set[tuple[str, bool]] = set()
        self._waiting: dict[tuple[str, bool], int] = {}
        self._refuses = False
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            try:
                if self._refuses:
                    raise OSError
                server = socket.create_connection(("127.0.0.1", self.target), 5)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(self, client, server)
            with self.changed:
                self.links.add(link)

    def pass_through(self, kind: str, up: bool, delay: float = 0.0) -> None:
        """Waits for the delay, and while this direction is held; until `go` at most."""
        way = kind, up
        with self.changed:
            released = self._released
            if delay:
                self.changed.wait_for(lambda: released != self._released, delay)
            self._waiting[way] = self._waiting.get(way, 0) + 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: way not in self._held)
            self._waiting[way] -= 1

    # For the tests

    def hold(self, kind: str, up: bool) -> None:
        """Holds all messages in this direction until `go`: the connection seems to be open."""
        with self.changed:
            self._held.add((kind, up))

    def wait_held(self, kind: str, up: bool) -> None:
        """Waits until a message is held."""
        with self.changed:
            assert self.changed.wait_for(lambda: self._waiting.get((kind, up), 0) > 0, 60)

    def go(self) -> None:
        """Passes on all messages again."""
        with self.changed:
            self._held.clear()
            self.delays = dict.fromkeys(KINDS, 0.0)
            self.slow_name, self.slow, self.rate = b"", 0.0, float("inf")
            self._refuses = False
            self._released += 1
            self.changed.notify_all()

    def cut(self, *kinds: str) -> None:
        """Closes the connections of these kinds; without kinds, all."""
        with self.changed:
            links = [each for each in self.links if not kinds or each.kind in kinds]
        for each in links:
            each.close()

    def drop(self) -> set[int]:
        """Makes all connections half-open: from now on they drop messages, in both directions, and
        new ones work. The ports of their clients."""
        ports = set()
        with self.changed:
            for each in self.links:
                each.dead = True
                with contextlib.suppress(OSError):
                    ports.add(each.client.getpeername()[1])
        return ports

    def refuse(self) -> None:
        """Takes no new connections until `go`."""
        self._refuses = True

    def accept(self) -> None:
        """Ends `refuse`, and nothing else."""
        self._refuses = False

    def close(self) -> None:
        self.go()
        self._socket.close()
        self.cut()
