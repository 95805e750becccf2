"""The wheel contains the library and names its platform."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from support import PYTHON_ROOT, REPOSITORY

import shale
from shale._native import library
from shale._native.extension import speed

# The tags of a wheel with the extension. Without the GIL, CPython has no stable ABI.
PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"
FAST = (PYTHON, f"{PYTHON}t") if sysconfig.get_config_var("Py_GIL_DISABLED") else ("cp311", "abi3")


def copy_sources(tmp_path: Path) -> Path:
    """Copies the sources, and the header with the version, as in a checkout."""
    source = tmp_path / "repository" / "Bindings" / "Python"
    kept = shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__", ".*", "*.so")
    shutil.copytree(PYTHON_ROOT, source, ignore=kept)
    include = tmp_path / "repository" / "Include"
    include.mkdir()
    shutil.copy(REPOSITORY / "Include" / "shale.h", include)
    return source


def build(tmp_path: Path, source: Path, library: Path | None) -> Path:
    """Builds a wheel from a folder of sources, or from an sdist."""
    environment = dict(os.environ)
    environment.pop("SHALE_LIBRARY", None)
    if library is not None:
        environment["SHALE_LIBRARY"] = str(library)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps"]
    command = [*pip, "--disable-pip-version-check", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    return wheel


@pytest.fixture(autouse=True)
def needs_setuptools() -> None:
    pytest.importorskip("setuptools.command.bdist_wheel", reason="needs a newer setuptools")
    pytest.importorskip("pip")


def test_with_the_library(tmp_path: Path) -> None:
    wheel = build(tmp_path, copy_sources(tmp_path), library.library_path())
    name, version, python, abi, platform = wheel.stem.split("-")
    assert version == shale.library_version()
    assert name == "shale_cache"
    assert (python, abi) in (FAST, ("py3", "none"))
    assert platform != "any"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        built = any(each.startswith("shale/_native/speed.") for each in names)
        assert built == ((python, abi) == FAST)
        assert built or speed is None
        assert "shale/py.typed" in names
        licenses = {
            each.rpartition("/")[2]: archive.read(each).decode()
            for each in names
            if ".dist-info/licenses/" in each
        }
        assert licenses["LICENSE"] == (REPOSITORY / "LICENSE").read_text()
        # The licenses of the libraries that it contains.
        for notice in ("LZ4 Library", "xxHash Library"):
            assert notice in licenses["NOTICE"]
        assert licenses["NOTICE"].count("Yann Collet") == 2
        assert licenses["NOTICE"].count("Redistributions in binary form must reproduce") == 2
        assert archive.read("shale/libshale.so") == library.library_path().read_bytes()
        metadata = archive.read(f"{name}-{version}.dist-info/METADATA").decode()
        required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist")]
        assert all("extra ==" in line for line in required)
        assert (
            "Root-Is-Purelib: false" in archive.read(f"{name}-{version}.dist-info/WHEEL").decode()
        )
        archive.extractall(tmp_path / "installed")
    script = (
        "import shale; c = shale.Cache(None, capacity='8MiB'); c['k'] = (1, b'2'); "
        "print(c['k'], shale.__version__, shale.__file__)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    environment.pop("SHALE_LIBRARY", None)
    done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=tmp_path,
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.startswith(f"(1, b'2') {version} ")
    assert str(tmp_path / "installed") in done.stdout


def test_without_the_extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHALE_SPEED", "0")
    wheel = build(tmp_path, copy_sources(tmp_path), library.library_path())
    assert "-py3-none-" in wheel.stem
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert "shale/libshale.so" in names
        assert not any(name.startswith("shale/_native/speed.") for name in names)


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip prints one line about the extension, with -v, and builds the wheel without it."""
    monkeypatch.setenv("CC", "/nonexistent/cc")
    monkeypatch.delenv("SHALE_SPEED", raising=False)
    monkeypatch.setenv("PIP_VERBOSE", "1")
    log = tmp_path / "log"
    monkeypatch.setenv("PIP_LOG", str(log))
    wheel = build(tmp_path, copy_sources(tmp_path), library.library_path())
    assert "-py3-none-" in wheel.stem
    if sys.implementation.name == "cpython" and sys.version_info >= (3, 11):
        [line] = [each for each in log.read_text().splitlines() if "extension, and is slow" in each]
        assert "/nonexistent/cc" in line


def printed_by_failing_build(tmp_path: Path, library: Path | None) -> list[str]:
    """What the build of the wheel prints between pip's own lines."""
    with pytest.raises(subprocess.CalledProcessError) as raised:
        build(tmp_path, copy_sources(tmp_path), library)
    assert list(tmp_path.glob("*.whl")) == []
    lines = (raised.value.stdout + raised.value.stderr).decode().splitlines()
    assert len(lines) < 36  # with those of pip
    start = next(number for number, line in enumerate(lines) if "lines of output]" in line)
    end = next(number for number, line in enumerate(lines) if "[end of output]" in line)
    return [line for line in lines[start + 1 : end] if not line.strip().startswith("running ")]


def test_without_library_and_toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip fails with instructions, instead of installing a package that cannot be imported."""
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "CMakeLists.txt").touch()
    monkeypatch.setenv("PATH", "/nonexistent")
    printed = printed_by_failing_build(tmp_path, None)
    assert len(printed) <= 8
    output = "\n".join(printed)
    assert "missing: Swift, CMake, Ninja, a C compiler" in output
    assert "install a wheel" in output
    assert "apt install cmake ninja-build gcc" in output


def test_without_the_sources_of_the_library(tmp_path: Path) -> None:
    printed = printed_by_failing_build(tmp_path, None)
    assert len(printed) <= 8
    assert "missing: the sources of the library" in "\n".join(printed)


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        (["CMake Error at 42 (find_path):", "  no xxhash.h", *["more"] * 50], "no xxhash.h"),
        (["a.c:1:1: fatal error: no lz4.h", *["more"] * 50], "no lz4.h"),
        (["more", "the last line"], "the last line"),
    ],
)
def test_a_header_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: list[str], reason: str
) -> None:
    """Of a long output of CMake, the reason is printed."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("swiftc", "ninja", "cc", "cmake"):
        lines = [*(f"-- line {number}" for number in range(200)), *errors]
        echoes = "".join(f"echo '{line}' >&2\n" for line in lines)
        (tools / name).write_text(f"#!/bin/sh\n{echoes}exit 1\n")
        (tools / name).chmod(0o755)
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "CMakeLists.txt").touch()
    monkeypatch.setenv("PATH", str(tools))
    printed = printed_by_failing_build(tmp_path, None)
    assert len(printed) <= 14
    output = "\n".join(printed)
    assert reason in output
    assert "install a wheel" in output


def test_a_library_that_is_not_there(tmp_path: Path) -> None:
    [line] = printed_by_failing_build(tmp_path, tmp_path / "no.so")
    assert "no.so', which is not a file" in line


def test_from_an_sdist(tmp_path: Path) -> None:
    source = copy_sources(tmp_path)
    script = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    subprocess.run(
        [sys.executable, "-c", script], cwd=source, check=True, capture_output=True, timeout=300
    )
    shutil.rmtree(tmp_path / "repository")
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"Library/Include/shale.h", "tests/conftest.py"} <= names
    wheel = build(tmp_path, sdist, library.library_path())
    assert wheel.name.startswith(f"shale_cache-{shale.library_version()}-")
    assert f"-{'-'.join(FAST)}-" in wheel.name or speed is None
