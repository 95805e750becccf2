#!/usr/bin/env python3
"""Checks that every file that a text of the repository names exists, and every function that design.md names.

Reads links and file names in backticks in the documents, and in all files each path that begins with one of the top
folders; in Documentation/internals/design.md, each row's function in its file of the core. Exits with 1 and the dead
paths; with 77 if git does not list the files.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SKIPPED = ("Tests/Fuzz/corpus/", "Tests/Fuzz/found/")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
NAME = re.compile(r"`([\w./-]+\.(?:c|h|cpp|hpp|swift|py|sh|md|json|toml|txt|map|in))`")

listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE)
files = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
if not files:
    print("git does not list any file here")
    sys.exit(77)
# Each file and folder, and each suffix of its path: documents name the files of a folder without it.
paths = {str(parent) for name in files for parent in [Path(name), *Path(name).parents]}
ends = {"/".join(parts[i:]) for parts in (path.split("/") for path in paths) for i in range(len(parts))}
tops = "|".join(
    sorted({re.escape(path) for path in paths if "/" not in path and (ROOT / path).is_dir() and path != "."})
)
ROOTED = re.compile(rf"(?<![\w/.$}}-])((?:{tops})/[\w./-]*\w)")

dead = looked = 0
for name in files:
    if name.startswith(SKIPPED):
        continue
    try:
        text = (ROOT / name).read_text()
    except UnicodeDecodeError:
        continue
    folder = (ROOT / name).parent
    named = {(found, (folder / found).exists()) for found in LINK.findall(text)} if name.endswith(".md") else set()
    if name.endswith(".md"):
        named |= {(found, found in ends) for found in NAME.findall(text)}
    named |= {
        (found, found in paths or (folder / found).exists()) for found in ROOTED.findall(text) if "/.build" not in found
    }
    looked += len(named)
    for found, exists in sorted(named):
        if not exists:
            print(f"{name}: {found} does not exist")
            dead += 1
DESIGN = "Documentation/internals/design.md"
hops = re.findall(r"^\| `(\w+)` \| `([\w/.]+)` \|", (ROOT / DESIGN).read_text(), re.MULTILINE)
for function, name in hops:
    file = ROOT / "Sources/ShaleCore" / name
    if not file.is_file() or not re.search(rf"\bfunc {function}[(<]", file.read_text()):
        print(f"{DESIGN}: {name} has no function {function}")
        dead += 1
looked += len(hops)
print(f"{looked} paths and functions in {len(files)} files, {dead} of them dead")
sys.exit(dead > 0 or not hops)
