"""The board: a small mapped file with the number of entries that the writer has completed.

The writer counts an entry after its set has returned; the file outlives the writer. A reader that loads the count and
then gets an entry below it must find that entry, even if the writer has been killed in the meantime.
"""

from __future__ import annotations

import mmap
from pathlib import Path

BOARD_BYTES = 64


def create_board(path: Path) -> None:
    path.write_bytes(bytes(BOARD_BYTES))


class Board:
    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), BOARD_BYTES)).cast("Q")

    @property
    def completed(self) -> int:
        return self._words[0]

    @completed.setter
    def completed(self, count: int) -> None:
        self._words[0] = count
