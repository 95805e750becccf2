"""What both runners of tests need: a test that hangs ends whole."""

import os
import signal
from pathlib import Path


def end_session(session: int) -> None:
    """Ends every process of a session, also one that a test left behind in a process group of its own."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[3]) == session:
                os.kill(int(stat.parent.name), signal.SIGKILL)
        except (OSError, ValueError):
            pass  # it has ended meanwhile
