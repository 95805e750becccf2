"""Puts the library into the wheel and names the wheel's platform.

With SHALE_LIBRARY set to a libshale.so, `pip wheel .` or `python -m build`
gives `py3-none-<platform>` with that file inside. Without it the wheel is pure
and its user has to set SHALE_LIBRARY.

The version is that of the repository's shale.h; an sdist, which comes without
it, has it in its PKG-INFO.
"""

import os
import re
import shutil
import sys
from email.parser import BytesParser
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

LIBRARY = os.environ.get("SHALE_LIBRARY")
NAME = "libshale.dylib" if sys.platform == "darwin" else "libshale.so"


def version() -> str:
    here = Path(__file__).resolve().parent
    information = here / "PKG-INFO"
    if information.is_file():
        return str(BytesParser().parsebytes(information.read_bytes())["Version"])
    header = (here / "../../Include/shale.h").read_text()
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


class PlatformWheel(bdist_wheel):
    def get_tag(self) -> "tuple[str, str, str]":
        python, abi, platform = super().get_tag()
        # The library is loaded by ctypes: any Python 3 of the platform will do.
        return ("py3", "none", platform) if LIBRARY else (python, abi, platform)


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return bool(LIBRARY)


setup(
    version=version(),
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel},
    distclass=PlatformDistribution,
)
