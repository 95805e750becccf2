"""A proxy between a machine and its remote, which delays, holds and drops what it carries: each
kind of connection by itself."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
import time

LISTENER = "listener"
DATA = "data"
NEW = "new"
KINDS = (LISTENER, DATA, NEW)


_ASKS = re.compile(rb"\r\n(GET|SET|DEL|EVAL|SCAN)\r\n|^(mg|ms|get|set|delete) ")


def kind_of(data: bytes) -> str:
    """By what a client sends. What it sends first says nothing yet."""
    if b"TRACKING" in data:
        return LISTENER
    return DATA if _ASKS.search(data) else NEW


class Link:
    """A connection that it carries."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.kind = NEW
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
                delay = proxy.delays[self.kind]
                if delay:
                    time.sleep(proxy.random.uniform(0, delay))
                proxy.pass_through(self.kind, up)
                target.sendall(data)
        except OSError:
            pass
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
        """Seconds that a piece is delayed at most."""
        self.changed = threading.Condition()
        self.links: set[Link] = set()
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

    def pass_through(self, kind: str, up: bool) -> None:
        """Waits while this way is held."""
        way = kind, up
        with self.changed:
            self._waiting[way] = self._waiting.get(way, 0) + 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: way not in self._held)
            self._waiting[way] -= 1

    # What a test does

    def hold(self, kind: str, up: bool) -> None:
        """Carries nothing of this way until `go`: the connection seems to be open."""
        with self.changed:
            self._held.add((kind, up))

    def wait_held(self, kind: str, up: bool) -> None:
        """Waits until something is held there."""
        with self.changed:
            assert self.changed.wait_for(lambda: self._waiting.get((kind, up), 0) > 0, 60)

    def go(self) -> None:
        """Carries all again."""
        with self.changed:
            self._held.clear()
            self.delays = dict.fromkeys(KINDS, 0.0)
            self._refuses = False
            self.changed.notify_all()

    def cut(self, *kinds: str) -> None:
        """Closes the connections of these kinds, both where none is given."""
        with self.changed:
            links = [each for each in self.links if not kinds or each.kind in kinds]
        for each in links:
            each.close()

    def refuse(self) -> None:
        """Takes no new connections until `go`."""
        self._refuses = True

    def close(self) -> None:
        self.go()
        self._socket.close()
        self.cut()
