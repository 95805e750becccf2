"""Puts the library into the wheel and names the wheel's platform.

SHALE_LIBRARY names the file of the library. If it is not set, the library is built from the
sources of a checkout or an sdist, with Swift, CMake and Ninja; without these the build fails with
instructions.

With a compiler, and CPython 3.11 or later with the stable ABI, the wheel also has the
extension `shale._native.speed`, and is `cp311-abi3-<platform>`, or for CPython without the GIL,
which has no stable ABI, `cp313-cp313t-<platform>`; otherwise, and with SHALE_SPEED=0, it is
`py3-none-<platform>`.

`python setup.py build_ext --inplace` builds the extension for use in a checkout. An editable
install contains no library: set SHALE_LIBRARY.

The version is that of the repository's shale.h, or in an sdist that of its PKG-INFO.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from email.parser import BytesParser
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.errors import CCompilerError, ExecError, PlatformError

HERE = Path(__file__).resolve().parent
# An sdist has a copy of the library's sources.
ROOT = next(
    (each for each in (HERE / "Library", HERE / "../..") if (each / "Include").is_dir()), HERE
)
INCLUDE = ROOT / "Include"
MADE_OF = ("CMakeLists.txt", "CMake", "Include", "Sources", "LICENSE")
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
SPEED = (
    INCLUDE.is_dir()
    and sys.implementation.name == "cpython"
    and sys.version_info >= (3, 11)
    and os.environ.get("SHALE_SPEED") != "0"
)
TOOLS = {
    "Swift": ("swiftc",),
    "CMake": ("cmake",),
    "Ninja": ("ninja", "ninja-build"),
    "a C compiler": ("cc", "gcc", "clang", os.environ.get("CC", "")),
}
NAME = "libshale.dylib" if sys.platform == "darwin" else "libshale.so"


def version() -> str:
    information = HERE / "PKG-INFO"
    if information.is_file():
        return str(BytesParser().parsebytes(information.read_bytes())["Version"])
    header = (INCLUDE / "shale.h").read_text()
    numbers = dict(re.findall(r"^#define SHALE_VERSION_(\w+) (\d+)$", header, re.MULTILINE))
    return "{MAJOR}.{MINOR}.{PATCH}".format(**numbers)


def library() -> Path:
    """The file of the library, which is built if necessary."""
    named = os.environ.get("SHALE_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise SystemExit(f"SHALE_LIBRARY names {named!r}, which is not a file")
        return Path(named)
    missing = [each for each, names in TOOLS.items() if not any(map(shutil.which, names))]
    if not (ROOT / "CMakeLists.txt").is_file():
        missing = ["the sources of the library"]
    if missing:
        raise SystemExit(cannot_build(f"missing: {', '.join(missing)}"))
    build = HERE / "build" / "library"
    options = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF"]
    run("cmake", "-S", str(ROOT), "-B", str(build), *options)
    run("cmake", "--build", str(build), "--target", "shale")
    return build / NAME


def run(*command: str) -> None:
    """Prints the output only of a command that fails, and of that the reason."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        lines = [each for each in done.stdout.decode(errors="replace").splitlines() if each.strip()]
        # CMake goes on after an error.
        errors = (at for at, line in enumerate(lines) if re.search(r"\berror\b", line, re.I))
        start = next(errors, len(lines) - 6)
        reason = lines[max(0, start) :][:6]
        raise SystemExit(cannot_build(f"{' '.join(command)} failed:", *reason))


def cannot_build(*reason: str) -> str:
    facts = "\n  ".join(reason)
    return f"""shale-cache cannot be built here; {facts}
Do one of these:
- install a wheel, which has the library inside
- set SHALE_LIBRARY to the path of a libshale.so
- install Swift 6.3, CMake, Ninja, a C compiler and binutils, and the headers of LZ4 and xxHash
  (on Debian: apt install cmake ninja-build gcc binutils liblz4-dev libxxhash-dev)"""


class BuildWithLibrary(build_py):
    def run(self) -> None:
        # First: if it fails, nothing else is printed.
        built = None if self.editable_mode else library()
        super().run()
        if built is not None:
            target = Path(self.build_lib, "shale", NAME)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(built, target)
            target.chmod(0o755)


class BuildSpeed(build_ext):
    built = False

    def build_extension(self, extension: Extension) -> None:
        try:
            super().build_extension(extension)
            self.built = True
        except (CCompilerError, ExecError, PlatformError) as error:
            reason = " ".join(str(error).split())
            self.warn(f"shale is built without its extension, and is slower: {reason}")

    def copy_extensions_to_source(self) -> None:
        if self.built:
            super().copy_extensions_to_source()


class SdistWithLibrary(sdist):
    """Adds the sources of the library and the tests."""

    def make_release_tree(self, base_dir: str, files: "list[str]") -> None:
        super().make_release_tree(base_dir, files)
        for name in MADE_OF:
            source, target = ROOT / name, Path(base_dir, "Library", name)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            elif source.is_file():
                target.parent.mkdir(exist_ok=True)
                shutil.copy(source, target)
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(HERE / "tests", Path(base_dir, "tests"), dirs_exist_ok=True, ignore=ignored)


class PlatformWheel(bdist_wheel):
    def get_tag(self) -> "tuple[str, str, str]":
        python, abi, platform = super().get_tag()
        # ctypes loads the library: every Python 3 of the platform works.
        command = self.get_finalized_command("build_ext")
        built = isinstance(command, BuildSpeed) and command.built
        if not built:
            return "py3", "none", platform
        return (python, abi, platform) if FREE_THREADED else ("cp311", "abi3", platform)


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    version=version(),
    cmdclass={
        "build_py": BuildWithLibrary,
        "build_ext": BuildSpeed,
        "sdist": SdistWithLibrary,
        "bdist_wheel": PlatformWheel,
    },
    ext_modules=[
        Extension(
            "shale._native.speed",
            ["src/shale/_native/speed.c"],
            include_dirs=[str(INCLUDE)],
            extra_compile_args=["-g0"],  # debug information names the folder of the build
            py_limited_api=not FREE_THREADED,
        )
    ]
    if SPEED
    else [],
    distclass=PlatformDistribution,
)
