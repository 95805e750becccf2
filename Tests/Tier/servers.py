"""Servers that a test starts on a port of loopback, and stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PATIENCE = 60
"""Seconds after which a waiting test fails."""


def until(condition: Any, patience: float = PATIENCE) -> Any:
    """Waits until it is true, and returns its value."""
    end = time.monotonic() + patience
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.002)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A process that listens on a port, and ends with `stop`."""

    def __init__(self, command: list[str], port: int, log: Path) -> None:
        self.command = command
        self.port = port
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log)
        until(self.is_up)

    def is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    stop = kill


class RedisServer(Server):
    def __init__(
        self,
        folder: Path,
        *options: str,
        configuration: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """configuration: of a sentinel. variables: of the environment."""
        port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        program = os.environ.get("SHALE_TIER_SERVER", "redis-server")
        common = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder))
        if configuration is None:
            files = ("--save", "", "--appendonly", "no", "--enable-debug-command", "yes")
            command = [program, *common, *files, *options]
        else:
            command = [program, str(configuration), "--sentinel", *common]
        if variables:
            command = ["env", *(f"{name}={value}" for name, value in variables.items()), *command]
        super().__init__(command, port, folder / "redis.log")

    def client(self, **options: Any) -> Any:
        import redis

        return redis.Redis(port=self.port, **options)

    def reads(self) -> int:
        """The number of GETs that it has executed."""
        found = self.client().info("commandstats").get("cmdstat_get", {"calls": 0})
        return int(found["calls"])


class MemcachedServer(Server):
    def __init__(self, folder: Path, *options: str) -> None:
        port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        user = ["-u", "root"] if os.getuid() == 0 else []
        command = ["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", *user, *options]
        super().__init__(command, port, folder / "memcached.log")
