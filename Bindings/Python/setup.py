"""Puts the library into the wheel and names the wheel's platform.

The library is the file that SHALE_LIBRARY names. Where that is not set, it is built of the sources,
those of a checkout or those in an sdist, which takes Swift, CMake and Ninja; without them the build
ends with a sentence that says what to do.

Where there is a compiler, and CPython 3.11 or later that has the stable ABI, the wheel has the
extension `shale._speed` as well, and is `cp311-abi3-<platform>`; else, and with SHALE_SPEED=0, it
is `py3-none-<platform>`.

`python setup.py build_ext --inplace` builds the extension where a checkout is used
as it is. An editable install has no library: its user sets SHALE_LIBRARY.

The version is that of the repository's shale.h; an sdist, which comes without
it, has it in its PKG-INFO.
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
# An sdist has a copy of what the library is made of.
ROOT = next(
    (each for each in (HERE / "Library", HERE / "../..") if (each / "Include").is_dir()), HERE
)
INCLUDE = ROOT / "Include"
MADE_OF = ("CMakeLists.txt", "CMake", "Include", "Sources", "LICENSE")
SPEED = (
    INCLUDE.is_dir()
    and sys.implementation.name == "cpython"
    and sys.version_info >= (3, 11)
    and not sysconfig.get_config_var("Py_GIL_DISABLED")
    and os.environ.get("SHALE_SPEED") != "0"
)
NAME = "libshale.dylib" if sys.platform == "darwin" else "libshale.so"


def version() -> str:
    information = HERE / "PKG-INFO"
    if information.is_file():
        return str(BytesParser().parsebytes(information.read_bytes())["Version"])
    header = (INCLUDE / "shale.h").read_text()
    numbers = dict(re.findall(r"^#define SHALE_VERSION_(\w+) (\d+)$", header, re.MULTILINE))
    return "{MAJOR}.{MINOR}.{PATCH}".format(**numbers)


def library() -> Path:
    """The file of the library, built if it has to be."""
    named = os.environ.get("SHALE_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise SystemExit(f"SHALE_LIBRARY names {named!r}, which is not a file")
        return Path(named)
    missing = [tool for tool in ("swiftc", "cmake", "ninja") if shutil.which(tool) is None]
    if missing or not (ROOT / "CMakeLists.txt").is_file():
        lacks = " and ".join(missing) or "the sources of the library"
        raise SystemExit(
            "shale-cache cannot be built here: SHALE_LIBRARY is not set, and to build the library "
            f"{lacks} would be needed. Install a wheel, which has the library inside, or set "
            "SHALE_LIBRARY to the path of a libshale.so, or install Swift 6.3, CMake and Ninja."
        )
    build = HERE / "build" / "library"
    options = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF"]
    subprocess.run(["cmake", "-S", ROOT, "-B", build, *options], check=True)
    subprocess.run(["cmake", "--build", build, "--target", "shale"], check=True)
    return build / NAME


class BuildWithLibrary(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "shale", NAME)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library(), target)
        target.chmod(0o755)


class BuildSpeed(build_ext):
    built = False

    def build_extension(self, extension: Extension) -> None:
        try:
            super().build_extension(extension)
            self.built = True
        except (CCompilerError, ExecError, PlatformError) as error:
            self.warn(f"shale does without its extension, and is slower: {error}")

    def copy_extensions_to_source(self) -> None:
        if self.built:
            super().copy_extensions_to_source()


class SdistWithLibrary(sdist):
    """With what the library is made of, and the tests."""

    def make_release_tree(self, base_dir: str, files: "list[str]") -> None:
        super().make_release_tree(base_dir, files)
        for name in MADE_OF:
            source, target = ROOT / name, Path(base_dir, "Library", name)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            elif source.is_file():
                target.parent.mkdir(exist_ok=True)
                shutil.copy(source, target)
        for name in ("tests", "adapters", "tier", "examples"):
            ignored = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(HERE / name, Path(base_dir, name), dirs_exist_ok=True, ignore=ignored)


class PlatformWheel(bdist_wheel):
    def get_tag(self) -> "tuple[str, str, str]":
        _, _, platform = super().get_tag()
        # The library is loaded by ctypes: any Python 3 of the platform will do.
        command = self.get_finalized_command("build_ext")
        built = isinstance(command, BuildSpeed) and command.built
        return ("cp311", "abi3", platform) if built else ("py3", "none", platform)


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
            "shale._speed",
            ["src/shale/_speed.c"],
            include_dirs=[str(INCLUDE)],
            extra_compile_args=["-g0"],  # debug information names the folder of the build
            py_limited_api=True,
        )
    ]
    if SPEED
    else [],
    distclass=PlatformDistribution,
)
