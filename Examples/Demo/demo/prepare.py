"""Turns the inputs into the corpus: assigns tags and roles to the entries, and shuffles them.

The order is random, from a fixed seed: records and documents, small and large,
come mixed, and any stretch of the corpus is a fair sample of the whole.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .corpus import Entry, Role, write_corpus
from .inputs import Inputs, read_inputs

PREFERRED = {b"doc": Role.REFRESHED, b"games": Role.INVALIDATED, b"vcs": Role.SHORT_LIVED}
SEED = 20


@dataclass
class Prepared:
    path: Path
    inputs: Inputs
    count: int
    raw_bytes: int
    sections: dict[Role, bytes]  # the section with each role
    members: Counter  # number of entries with each role

    def tag(self, role: Role) -> str:
        return section_tag(self.sections[role]).decode()


def prepare(path: Path, update: bool, show: Callable[[str], None]) -> Prepared:
    inputs = read_inputs(update, show)
    sections = choose_sections(Counter(inputs.sections.values()))
    roles = {section: role for role, section in sections.items()}
    keys = sorted(inputs.values)
    random.Random(SEED).shuffle(keys)
    entries = [make_entry(key, inputs, roles) for key in keys]
    show(f"writing {path.name}")
    write_corpus(path, entries)
    inputs.values.clear()  # they are now in the corpus
    return Prepared(
        path=path,
        inputs=inputs,
        count=len(entries),
        raw_bytes=sum(len(entry.value) for entry in entries),
        sections=sections,
        members=Counter(entry.role for entry in entries),
    )


def make_entry(key: bytes, inputs: Inputs, roles: dict[bytes, Role]) -> Entry:
    section = inputs.sections.get(key)
    if section is None:
        return Entry(key, b"documents", Role.PLAIN, inputs.values[key])
    return Entry(key, section_tag(section), roles.get(section, Role.PLAIN), inputs.values[key])


def section_tag(section: bytes) -> bytes:
    return b"section:" + section


def choose_sections(sizes: Counter) -> dict[Role, bytes]:
    """The preferred sections; replaces missing ones by the largest of the others."""
    chosen = {role: section for section, role in PREFERRED.items() if section in sizes}
    others = [
        section
        for section, _ in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
        if section not in chosen.values()
    ]
    for role in PREFERRED.values():
        if role not in chosen:
            if not others:
                raise SystemExit("There are too few package records on this machine for the demonstration.")
            chosen[role] = others.pop(0)
    return chosen
