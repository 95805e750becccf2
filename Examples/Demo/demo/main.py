"""The command line: build, prepare, run, print, clean up."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from .board import Board, create_board
from .build import Places, build, environment, programs
from .crew import Crew, Failure
from .prepare import Prepared, prepare
from .screen import Screen
from .story import Figures, Story
from .table import print_table

DEFAULT_CAPACITY = 1 << 30


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # cleans up children and files
    try:
        return build_and_demonstrate(options)
    except KeyboardInterrupt:
        return 130


def build_and_demonstrate(options: argparse.Namespace) -> int:
    screen = Screen()
    build_programs(screen)
    if options.build_only:
        return 0
    work = Path(tempfile.mkdtemp(prefix="shale-demo-", dir=options.directory))
    try:
        return demonstrate(work, options, screen)
    finally:
        if options.keep:
            print(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run", description="Three languages, one cache directory, real data.")
    parser.add_argument(
        "--directory",
        help="where the corpus and the cache go: a local file system "
        "with about 1 GiB free (default: the system's temporary directory)",
    )
    parser.add_argument("--capacity", type=int, default=DEFAULT_CAPACITY, metavar="BYTES")
    parser.add_argument("--keep", action="store_true", help="leave corpus, cache and logs where they are")
    parser.add_argument("--no-update", action="store_true", help="never run apt-get update")
    parser.add_argument("--build-only", action="store_true")
    return parser.parse_args()


def build_programs(screen: Screen) -> None:
    screen.phase("build")
    build(screen.update)
    screen.done("the C and the Swift program")


def demonstrate(work: Path, options: argparse.Namespace, screen: Screen) -> int:
    started = time.monotonic()
    prepared = read_corpus(work / "corpus", screen, update=not options.no_update)
    figures = run_story(work, prepared, screen, options.capacity)
    if figures is None:
        return 1
    print_table(prepared, figures)
    print(f"No difference. {time.monotonic() - started:.0f} seconds.")
    return 0


def read_corpus(path: Path, screen: Screen, update: bool) -> Prepared:
    screen.phase("prepare")
    prepared = prepare(path, update, screen.update)
    inputs = prepared.inputs
    screen.done(
        f"{inputs.records:,} package records and {inputs.documents:,} documents, "
        f"{prepared.raw_bytes / (1 << 20):,.1f} MiB"
    )
    screen.note(
        f"{inputs.repeated:,} paragraphs came twice (skipped), {inputs.renamed:,} others share a key "
        f"(suffixed), {inputs.unreadable:,} could not be read"
    )
    for note in inputs.notes:
        screen.note(note)
    return prepared


def run_story(work: Path, prepared: Prepared, screen: Screen, capacity: int) -> Figures | None:
    """Returns the figures; prints a failure and returns None."""
    places = Places(prepared.path, work / "board", work / "cache", capacity)
    create_board(places.board)
    crew = Crew(programs(sys.executable, places), environment(), work)
    try:
        return Story(crew, Board(places.board), places.cache, prepared, screen).run()
    except Failure as failure:
        screen.failed()
        print(f"\n{failure}", file=sys.stderr)
        return None
    finally:
        crew.kill_all()
