#!/usr/bin/env python3
"""Checks that the versions of both files in the documents, the tests and the tool are those of the engine. Exits with 1
and the wrong ones."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DATA = ("Sources/ShaleCore/Format/Superblock.swift", r"formatVersion: UInt32 = (\d+)")
INDEX = ("Sources/ShaleCore/Index/IndexHead.swift", r"versionValue: UInt64 = (\d+)")
NAMED = {
    DATA: [
        ("Documentation/internals/format.md", r"\n8 +4  format version, (\d+)\n"),
        ("Documentation/internals/format.md", r"The format version is in the superblock\. It is (\d+)\."),
        ("Documentation/guide/compatibility.md", r"\| `shale\.data` \| (\d+) \|"),
    ],
    INDEX: [
        ("Documentation/internals/format.md", r"\n8 +8 +version, (\d+)\n"),
        ("Documentation/guide/compatibility.md", r"\| `shale\.index` \| (\d+) \|"),
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
