"""The wheel carries the library and says for which platform."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support import PYTHON_ROOT, REPOSITORY

import shale
from shale import _library
from shale._extension import speed


def copy_sources(tmp_path: Path) -> Path:
    """The sources, and the header with the version where a checkout has it."""
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
    wheel = build(tmp_path, copy_sources(tmp_path), _library.library_path())
    name, version, python, abi, platform = wheel.stem.split("-")
    assert version == shale.library_version()
    assert name == "shale_cache"
    assert (python, abi) in (("cp311", "abi3"), ("py3", "none"))
    assert platform != "any"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert ("shale/_speed.abi3.so" in names) == (abi == "abi3")
        assert abi == "abi3" or speed is None
        assert "shale/py.typed" in names
        licenses = {
            each.rpartition("/")[2]: archive.read(each).decode()
            for each in names
            if ".dist-info/licenses/" in each
        }
        assert licenses["LICENSE"] == (REPOSITORY / "LICENSE").read_text()
        # What the library contains.
        for notice in ("LZ4 Library", "xxHash Library"):
            assert notice in licenses["NOTICE"]
        assert licenses["NOTICE"].count("Yann Collet") == 2
        assert licenses["NOTICE"].count("Redistributions in binary form must reproduce") == 2
        assert archive.read("shale/libshale.so") == _library.library_path().read_bytes()
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
    wheel = build(tmp_path, copy_sources(tmp_path), _library.library_path())
    assert "-py3-none-" in wheel.stem
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert "shale/libshale.so" in names
        assert not any(name.endswith("abi3.so") for name in names)


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")
    wheel = build(tmp_path, copy_sources(tmp_path), _library.library_path())
    assert "-py3-none-" in wheel.stem


def test_without_library_and_toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's user is told what to do, instead of installing what cannot be imported."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        build(tmp_path, copy_sources(tmp_path), None)
    output = raised.value.stdout + raised.value.stderr
    assert b"shale-cache cannot be built here" in output
    assert b"Install a wheel" in output
    assert list(tmp_path.glob("*.whl")) == []


def test_a_library_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as raised:
        build(tmp_path, copy_sources(tmp_path), tmp_path / "no.so")
    assert b"which is not a file" in raised.value.stdout + raised.value.stderr


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
    assert {"Library/Include/shale.h", "tests/conftest.py", "adapters/conftest.py"} <= names
    wheel = build(tmp_path, sdist, _library.library_path())
    assert wheel.name.startswith(f"shale_cache-{shale.library_version()}-")
    assert ("-cp311-abi3-" in wheel.name) or speed is None
