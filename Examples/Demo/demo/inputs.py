"""The source of the data: this machine's package records and documentation.

A record's key is `name version architecture`, its value the paragraph as it
stands in the file. The same paragraph met again is skipped; another paragraph
under a known key gets the suffix ` #2`, ` #3` and so on. A document's key is
its path. Files are read in sorted order, so a machine gives the same keys
every time.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

DPKG_STATUS = Path("/var/lib/dpkg/status")
APT_LISTS = Path("/var/lib/apt/lists")
APT_HELPER = Path("/usr/lib/apt/apt-helper")
DOCUMENTS = Path("/usr/share/doc")

MAX_DOCUMENTS = 20_000
MAX_DOCUMENT_BYTES = 256 << 20  # in total; at most half of the cache, so that no entry is evicted
HELPER_SECONDS = 30
UPDATE_SECONDS = 60

_PACKAGES_FILE = re.compile(r"_Packages(\.(lz4|xz|gz|bz2|zst))?$")
_FIELD = re.compile(rb"^(Package|Version|Architecture|Section): *(.*)$", re.MULTILINE)


@dataclass
class Inputs:
    """All data read, in memory, before it is written to the corpus."""

    values: dict[bytes, bytes] = field(default_factory=dict)
    sections: dict[bytes, bytes] = field(default_factory=dict)  # of package records
    records: int = 0
    documents: int = 0
    repeated: int = 0  # identical paragraphs, skipped
    renamed: int = 0  # different paragraphs with the same key, which gets a suffix
    unreadable: int = 0
    notes: list[str] = field(default_factory=list)


def read_inputs(update: bool, show: Callable[[str], None]) -> Inputs:
    inputs = Inputs()
    if update and not package_files():
        show("apt-get update")
        note = update_lists()
        if note:
            inputs.notes.append(note)
    for path in [DPKG_STATUS, *package_files()]:
        show(path.name)
        read_records(path, inputs)
    show(str(DOCUMENTS))
    read_documents(DOCUMENTS, inputs)
    return inputs


def package_files() -> list[Path]:
    if not APT_LISTS.is_dir():
        return []
    return sorted(path for path in APT_LISTS.iterdir() if _PACKAGES_FILE.search(path.name))


def update_lists() -> str | None:
    """Fetches the lists; returns an error message or None. The demonstration continues in either case."""
    try:
        subprocess.run(
            ["apt-get", "update", "-qq"],
            check=True,
            timeout=UPDATE_SECONDS,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"apt-get update: {error}; going on with the installed packages alone"
    return None


def read_records(path: Path, inputs: Inputs) -> None:
    try:
        text = uncompressed(path)
    except (OSError, subprocess.SubprocessError) as error:
        inputs.notes.append(f"{path}: {error}")
        return
    for paragraph in text.split(b"\n\n"):
        paragraph = paragraph.strip(b"\n")
        if paragraph:
            add_record(paragraph + b"\n", inputs)


def uncompressed(path: Path) -> bytes:
    if not path.suffix and "_Packages." not in path.name:
        return path.read_bytes()
    done = subprocess.run(
        [str(APT_HELPER), "cat-file", str(path)],
        check=True,
        timeout=HELPER_SECONDS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return done.stdout


def add_record(paragraph: bytes, inputs: Inputs) -> None:
    fields = dict(_FIELD.findall(paragraph))
    if b"Package" not in fields:
        inputs.unreadable += 1
        return
    name = b" ".join(fields[key] for key in (b"Package", b"Version", b"Architecture") if key in fields)
    key, copy = name, 1
    while key in inputs.values:
        if inputs.values[key] == paragraph:
            inputs.repeated += 1
            return
        copy += 1
        key = name + b" #%d" % copy
    inputs.renamed += copy > 1
    inputs.values[key] = paragraph
    inputs.sections[key] = fields.get(b"Section", b"unknown")
    inputs.records += 1


def read_documents(top: Path, inputs: Inputs) -> None:
    total = 0
    for path in files_below(top):
        if inputs.documents == MAX_DOCUMENTS:
            inputs.notes.append(f"{top}: stopped at {MAX_DOCUMENTS:,} files")
            return
        try:
            with open(path, "rb") as file:
                value = file.read()
        except OSError:
            inputs.unreadable += 1
            continue
        if total + len(value) > MAX_DOCUMENT_BYTES:
            inputs.notes.append(f"{top}: stopped at {MAX_DOCUMENT_BYTES >> 20} MiB")
            return
        total += len(value)
        inputs.values[path] = value
        inputs.documents += 1


def files_below(top: Path) -> Iterator[bytes]:
    """Regular files in sorted order, without links. Paths are bytes of any encoding."""
    for folder, folders, names in os.walk(os.fsencode(top)):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                yield path
