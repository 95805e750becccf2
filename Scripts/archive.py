"""Reproducible archives: the bytes depend only on the contents and on SOURCE_DATE_EPOCH, if set."""

import os
import subprocess
import time
from pathlib import Path


def pack(folder: Path, target: Path) -> None:
    """Packs a folder into a .tar.gz that contains it under its own name."""
    when = os.environ.get("SOURCE_DATE_EPOCH") or int(time.time())
    owner = ["--owner=0", "--group=0", "--numeric-owner", "--mode=u+rw,go=rX"]
    command = ["tar", "--sort=name", f"--mtime=@{when}", *owner, "--use-compress-program=gzip -n9"]
    subprocess.run([*command, "-cf", target, "-C", folder.parent, folder.name], check=True)
