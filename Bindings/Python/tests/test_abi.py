"""The ctypes declarations are those of shale.h, offset by offset."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support import REPOSITORY

from shale._native import abi

HEADER = REPOSITORY / "Include" / "shale.h"

STRUCTS: dict[str, type[ctypes.Structure]] = {
    "shale_bytes": abi.Bytes,
    "shale_options": abi.Options,
    "shale_set_options": abi.SetOptions,
    "shale_value": abi.Value,
    "shale_stats": abi.Stats,
    "shale_lease_options": abi.LeaseOptions,
    "shale_report": abi.Report,
}

# The header's name of a constant, where it isn't SHALE_ and ours.
RENAMED = {"NEVER_MS": "SHALE_NEVER", "NONE_MS": "SHALE_NONE"}

compiler = shutil.which("cc")
needs_header = pytest.mark.skipif(
    compiler is None or not HEADER.exists(), reason="needs a C compiler and the header"
)


def measure(tmp_path: Path, expressions: list[str]) -> list[int]:
    source = tmp_path / "measure.c"
    lines = "\n".join(f'printf("%lld\\n", (long long)({each}));' for each in expressions)
    source.write_text(
        f'#include <stdio.h>\n#include "shale.h"\nint main(void) {{\n{lines}\nreturn 0;\n}}\n'
    )
    program = tmp_path / "measure"
    assert compiler is not None
    subprocess.run([compiler, "-I", HEADER.parent, source, "-o", program], check=True)
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return [int(line) for line in output.split()]


@needs_header
@pytest.mark.parametrize("name", STRUCTS)
def test_struct_has_the_headers_layout(tmp_path: Path, name: str) -> None:
    struct = STRUCTS[name]
    fields = [field[0] for field in struct._fields_]
    expressions = [f"sizeof({name})"]
    for field in fields:
        expressions += [f"offsetof({name}, {field})", f"sizeof((({name} *)0)->{field})"]
    ours = [ctypes.sizeof(struct)]
    for field in fields:
        descriptor = getattr(struct, field)
        ours += [descriptor.offset, descriptor.size]
    assert ours == measure(tmp_path, expressions)


def constants() -> dict[str, int]:
    pattern = re.compile(
        r"(OK|MISS|STALE|CONFLICT|END|E_.*|OPEN_.*|SET_IF_.*|SET_PINNED|.*_MS|"
        r"SET_UNCOMPRESSED|GET_.*|LEASE_RECORDED|VALUE_(STALE|PINNED)|COMPRESSION_.*|EVICTION_.*)"
    )
    return {
        RENAMED.get(name, "SHALE_" + name): value
        for name, value in vars(abi).items()
        if pattern.fullmatch(name)
    }


@needs_header
def test_constants_are_the_headers(tmp_path: Path) -> None:
    ours = constants()
    assert len(ours) == 39
    assert list(ours.values()) == measure(tmp_path, list(ours))
