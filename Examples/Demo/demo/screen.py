"""The progress display: on a terminal one live line for each phase, otherwise plain lines."""

from __future__ import annotations

import shutil
import sys
import time

LIVE_SECONDS = 0.1
PLAIN_SECONDS = 5.0
BAR_WIDTH = 24


class Screen:
    def __init__(self) -> None:
        self._stream = sys.stdout
        self._live = self._stream.isatty()
        self._title = ""
        self._started = self._shown = 0.0

    def phase(self, title: str) -> None:
        self._title = title
        self._started = time.monotonic()
        self._shown = 0.0 if self._live else self._started
        self.update("")

    def update(self, detail: str, fraction: float = 0.0) -> None:
        now = time.monotonic()
        if now - self._shown < (LIVE_SECONDS if self._live else PLAIN_SECONDS):
            return
        self._shown = now
        if self._live:
            self._rewrite(f"  {bar(fraction)} {self._title}  {detail}")
        else:
            self._print(f"    {self._title}: {fraction:.0%} {detail}")

    def done(self, summary: str) -> None:
        self._finish("ok  ", summary)

    def failed(self) -> None:
        self._finish("FAIL", "")

    def note(self, text: str) -> None:
        self._clear()
        self._print(f"      {text}")

    def _finish(self, mark: str, summary: str) -> None:
        self._clear()
        seconds = time.monotonic() - self._started
        self._print(f"{mark}  {self._title:<12} {seconds:5.1f} s  {summary}".rstrip())
        self._title = ""

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def _clear(self) -> None:
        if self._live:
            self._rewrite("")

    def _rewrite(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        print("\r\x1b[K" + line[:width], end="", file=self._stream, flush=True)


def bar(fraction: float) -> str:
    filled = round(max(0.0, min(1.0, fraction)) * BAR_WIDTH)
    return "█" * filled + "░" * (BAR_WIDTH - filled)
