"""Python environments for tools that are not part of the repository."""

import subprocess
import sys
from pathlib import Path


def environment(folder: Path, requirements: Path) -> Path:
    """Returns the Python of an environment with these requirements; creates it again if the file has changed."""
    python = folder / "bin" / "python"
    installed = folder / requirements.name
    if not installed.is_file() or installed.read_bytes() != requirements.read_bytes():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", requirements], check=True
        )
        installed.write_bytes(requirements.read_bytes())
    return python
