"""A child program. It reads commands from stdin, one per line, and answers with lines on stdout:

ready {"open_ns": ...}     once, after it has opened the cache
progress DONE TOTAL        at most ten times a second
difference TEXT            the cache gave a wrong result; TEXT begins with the key
result {...}               the command has finished
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

QUIT_SECONDS = 10


class Worker:
    def __init__(
        self, name: str, command: list[str], environment: dict[str, str], log: Path, differences: list[str]
    ) -> None:
        self.name = name
        self.open_ns: int | None = None
        self.result: dict[str, int] | None = None
        self.progress = (0, 0)
        self._differences = differences  # shared by all workers
        self._log = log
        self._text = b""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
            )
        assert self._process.stdin and self._process.stdout
        self._input, self._output = self._process.stdin, self._process.stdout
        os.set_blocking(self._output.fileno(), False)

    def fileno(self) -> int:
        return self._output.fileno()

    def send(self, command: str) -> None:
        self.result = None
        self.progress = (0, 0)
        self._input.write(command.encode() + b"\n")

    def receive(self) -> bool:
        """Reads the child's output; returns False if it has ended."""
        chunk = self._output.read(1 << 16)
        if chunk is None:
            return True
        *lines, self._text = (self._text + chunk).split(b"\n")
        for line in lines:
            self._take(line.decode(errors="replace"))
        return bool(chunk)

    def _take(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if kind == "ready":
            self.open_ns = json.loads(rest)["open_ns"]
        elif kind == "progress":
            done, total = rest.split()
            self.progress = (int(done), int(total))
        elif kind == "difference":
            self._note(rest)
        elif kind == "result":
            self.result = json.loads(rest)
        else:
            self._note(f"unexpected output: {line}")

    def _note(self, difference: str) -> None:
        """Reports each difference once, even if several steps find it."""
        text = f"{self.name}: {difference}"
        if text not in self._differences:
            self._differences.append(text)

    def kill(self) -> None:
        """kill -9, by pid."""
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
        self._release()

    def quit(self) -> int:
        """Lets the child close its cache and end; returns its exit status."""
        self._input.close()
        try:
            return self._process.wait(QUIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL
        finally:
            self._release()

    def end_in_words(self) -> str:
        """The reason for the child's end, for a message."""
        status = self._process.wait(QUIT_SECONDS)
        how = f"signal {-status}" if status < 0 else f"status {status}"
        tail = self._log.read_text(errors="replace").strip().splitlines()[-5:]
        return f"{self.name}: ended unexpectedly with {how}" + "".join(f"\n        {line}" for line in tail)

    def _release(self) -> None:
        self._input.close()
        self._output.close()
        self._process.wait()
