"""The cache for Triton, whose compiler needs no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import shale
from shale.adapters.triton import ShaleBackend
from triton.runtime.cache import RemoteCacheManager

KERNEL = """
import json, os, sys
import triton, triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def add(x, y, n, SIZE: tl.constexpr):
    index = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + index, tl.load(x + index, mask=index < n) + 1, mask=index < n)

hits = []
knobs.compilation.listener = lambda **found: hits.append(found["cache_hit"])
types = {"x": "*fp32", "y": "*fp32", "n": "i32", "SIZE": "constexpr"}
kernel = None
for size in map(int, sys.argv[1:]):
    source = ASTSource(fn=add, signature=types, constexprs={"SIZE": size})
    kernel = triton.compile(source, target=GPUTarget("cuda", 80, 32))
print(json.dumps([hits, kernel.asm["ptx"], kernel.asm["cubin"].hex()]))
"""


def environment(directory: Path, files: Path) -> dict[str, str]:
    return {
        **os.environ,
        "TRITON_CACHE_MANAGER": "triton.runtime.cache:RemoteCacheManager",
        "TRITON_REMOTE_CACHE_BACKEND": "shale.adapters.triton:ShaleBackend",
        "TRITON_CACHE_DIR": str(files),
        "SHALE_TRITON_DIRECTORY": str(directory),
        "SHALE_TRITON_CAPACITY": "16MiB",
    }


def compiled(directory: Path, files: Path, *sizes: int) -> Any:
    script = files.parent / "kernel.py"
    script.write_text(KERNEL)
    command = [sys.executable, str(script), *map(str, sizes)]
    done = subprocess.run(command, env=environment(directory, files), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture
def backend(directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ShaleBackend:
    for name, value in environment(directory, tmp_path / "files").items():
        monkeypatch.setenv(name, value)
    return ShaleBackend("KEY")


def test_a_process_compiles_for_all(directory: Path, tmp_path: Path) -> None:
    # Each has empty files of its own, as containers have.
    (first,), *code = compiled(directory, tmp_path / "one", 128)
    (second,), *same = compiled(directory, tmp_path / "two", 128)
    assert (first, second) == (False, True)
    assert code == same
    assert bytes.fromhex(code[1]).startswith(b"\x7fELF")
    (other,), *_ = compiled(directory, tmp_path / "two", 256)
    assert other is False
    with shale.Cache(directory) as cache:
        keys: list[Any] = list(cache)
        assert {key[0] for key in keys} == {"triton"}
        assert cache.stats().capacity == 16 << 20


def test_what_was_evicted_is_compiled_again(directory: Path, tmp_path: Path) -> None:
    compiled(directory, tmp_path / "one", 128)
    with shale.Cache(directory) as cache:
        keys: list[Any] = list(cache)
        (cubin,) = (key for key in keys if key[1][1].endswith(".cubin"))
        del cache[cubin]
    # The files that a process uses stay.
    assert list((tmp_path / "one").glob("*/add.cubin"))
    assert compiled(directory, tmp_path / "two", 128)[0] == [False]
    assert compiled(directory, tmp_path / "three", 128)[0] == [True]


def test_files_outlive_their_entries(backend: ShaleBackend) -> None:
    manager = RemoteCacheManager("KEY")
    path = manager.put(b"code", "add.cubin")
    assert manager.get_file("add.cubin") == path
    backend._answers.cache.clear()
    assert manager.get_file("add.cubin") is None
    assert Path(path).read_bytes() == b"code"


def test_the_bound_holds(backend: ShaleBackend) -> None:
    for number in range(100):
        backend.put(f"{number}.cubin", os.urandom(1 << 20))
    assert list(backend.get(["99.cubin", "0.cubin"])) == ["99.cubin"]
    stats = backend._answers.cache.stats()
    assert 5 < stats.entries < 16


def test_keys_are_apart(backend: ShaleBackend) -> None:
    backend.put("a", b"1")
    assert ShaleBackend("OTHER").get(["a"]) == {}
    assert ShaleBackend("KEY").get(["a", "b"]) == {"a": b"1"}


def test_a_kernel_that_is_too_large_is_still_used(backend: ShaleBackend, caplog: pytest.LogCaptureFixture) -> None:
    manager = RemoteCacheManager("KEY")
    for _ in range(2):
        path = manager.put(os.urandom(5 << 20), "add.cubin")
        assert Path(path).stat().st_size == 5 << 20
    assert len(caplog.records) == 1
    assert manager.get_file("add.cubin") is None


def test_a_missing_directory_is_named(backend: ShaleBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHALE_TRITON_DIRECTORY")
    with pytest.raises(ValueError, match="set SHALE_TRITON_DIRECTORY to the directory of the cache"):
        ShaleBackend("KEY")
