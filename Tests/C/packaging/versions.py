#!/usr/bin/env python3
"""The versions of both files that the documents, the tests and the tool name are those of the engine. Exits with 1 and
what is wrong."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DATA = ("Sources/ShaleCore/Format/Superblock.swift", r"formatVersion: UInt32 = (\d+)")
INDEX = ("Sources/ShaleCore/Index/IndexHead.swift", r"versionValue: UInt64 = (\d+)")
NAMED = {
    DATA: [
        ("Documentation/format.md", r"\| 8 \| 4 \| format version, (\d+) \|"),
        ("Documentation/format.md", r"The format version is in the superblock\. It is (\d+)\."),
        ("Documentation/stability.md", r"\| `shale\.data` \| (\d+) \|"),
    ],
    INDEX: [
        ("Documentation/format.md", r"\| 8 \| 8 \| version, (\d+) \|"),
        ("Documentation/stability.md", r"\| `shale\.index` \| (\d+) \|"),
        ("Tests/C/support/layout.h", r"\bindex_version = (\d+)"),
        ("Tools/Sources/ShaleTool/Layout.swift", r"indexVersion: UInt64 = (\d+)"),
    ],
}


def number(file: str, pattern: str) -> str:
    found = re.search(pattern, (ROOT / file).read_text())
    return found.group(1) if found else "nothing"


def main() -> int:
    wrong = 0
    for engine, places in NAMED.items():
        expected = number(*engine)
        for place in [engine, *places]:
            if number(*place) != expected or expected == "nothing":
                print(f"{place[0]}: {number(*place)} for {place[1]}; the engine says {expected}")
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
