"""Archives that depend on what is in them alone, and on SOURCE_DATE_EPOCH where that is set."""

import os
import subprocess
import time
from pathlib import Path


def pack(folder: Path, target: Path) -> None:
    """Packs a folder, under its name, into a .tar.gz."""
    when = os.environ.get("SOURCE_DATE_EPOCH") or int(time.time())
    owner = ["--owner=0", "--group=0", "--numeric-owner", "--mode=u+rw,go=rX"]
    command = ["tar", "--sort=name", f"--mtime=@{when}", *owner, "--use-compress-program=gzip -n9"]
    subprocess.run([*command, "-cf", target, "-C", folder.parent, folder.name], check=True)
