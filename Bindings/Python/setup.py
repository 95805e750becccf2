"""Puts the library into the wheel and names the wheel's platform.

With SHALE_LIBRARY set to a libshale.so, `pip wheel .` or `python -m build` gives a
wheel with that file inside. Where there is a compiler, and CPython 3.11 or later
that has the stable ABI, it has the extension `shale._speed` as well, and is
`cp311-abi3-<platform>`; else, and with SHALE_SPEED=0, it is `py3-none-<platform>`.
Without SHALE_LIBRARY the wheel is pure and its user has to set that.

`python setup.py build_ext --inplace` builds the extension where a checkout is used
as it is.

The version is that of the repository's shale.h; an sdist, which comes without
it, has it in its PKG-INFO.
"""

import os
import re
import shutil
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
# An sdist has a copy.
INCLUDE = next((each for each in (HERE / "Include", HERE / "../../Include") if each.is_dir()), None)
SPEED = (
    INCLUDE is not None
    and sys.implementation.name == "cpython"
    and sys.version_info >= (3, 11)
    and not sysconfig.get_config_var("Py_GIL_DISABLED")
    and os.environ.get("SHALE_SPEED") != "0"
)
LIBRARY = os.environ.get("SHALE_LIBRARY")
NAME = "libshale.dylib" if sys.platform == "darwin" else "libshale.so"


def version() -> str:
    information = HERE / "PKG-INFO"
    if information.is_file():
        return str(BytesParser().parsebytes(information.read_bytes())["Version"])
    header = (HERE / "../../Include/shale.h").read_text()
    numbers = dict(re.findall(r"^#define SHALE_VERSION_(\w+) (\d+)$", header, re.MULTILINE))
    return "{MAJOR}.{MINOR}.{PATCH}".format(**numbers)


class BuildWithLibrary(build_py):
    def run(self) -> None:
        super().run()
        target = Path(self.build_lib, "shale", NAME)
        if LIBRARY is None or self.editable_mode:
            # A library that an earlier build left there.
            target.unlink(missing_ok=True)
            if LIBRARY is None:
                self.warn("SHALE_LIBRARY is not set: the wheel will not carry the library")
            return
        if not Path(LIBRARY).is_file():
            raise SystemExit(f"SHALE_LIBRARY names {LIBRARY!r}, which is not a file")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(LIBRARY, target)
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


class SdistWithHeader(sdist):
    def make_release_tree(self, base_dir: str, files: "list[str]") -> None:
        super().make_release_tree(base_dir, files)
        if INCLUDE is not None:
            shutil.copytree(INCLUDE, Path(base_dir, "Include"), dirs_exist_ok=True)


class PlatformWheel(bdist_wheel):
    def get_tag(self) -> "tuple[str, str, str]":
        python, abi, platform = super().get_tag()
        if not LIBRARY:
            return python, abi, platform
        # The library is loaded by ctypes: any Python 3 of the platform will do.
        command = self.get_finalized_command("build_ext")
        built = isinstance(command, BuildSpeed) and command.built
        return ("cp311", "abi3", platform) if built else ("py3", "none", platform)


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return bool(LIBRARY)


setup(
    version=version(),
    cmdclass={
        "build_py": BuildWithLibrary,
        "build_ext": BuildSpeed,
        "sdist": SdistWithHeader,
        "bdist_wheel": PlatformWheel,
    },
    ext_modules=[
        Extension(
            "shale._speed",
            ["src/shale/_speed.c"],
            include_dirs=[str(INCLUDE)],
            py_limited_api=True,
        )
    ]
    if SPEED and (LIBRARY or "build_ext" in sys.argv)
    else [],
    distclass=PlatformDistribution,
)
