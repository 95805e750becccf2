#!/usr/bin/env python3
"""Checks that every heading that a comment cites is on the page that it names.

A test that accepts an answer cites what allows it: PAGE, "HEADING", where PAGE is a Markdown file of Documentation or
of the root; or shale.h, NAME, where NAME is a function or a constant of that header. Sentences are not quoted, so that
they can change: in the tests, a quote of five words or more is a heading. A file that tolerates an answer has a
citation. In the documents, every link to a section leads to one. Exits with 1 and what is wrong; with 77 if git does
not list the files.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HEADER = "shale.h"
SKIPPED = ("Tests/Fuzz/corpus/", "Tests/Fuzz/found/")
TESTS = ("Tests/", "Bindings/Python/tests/")
# Strings (skipped) and comments; in Python also docstrings.
STRING = r'"(?:\\.|[^"\\\n])*"'
C_COMMENT = re.compile(rf"{STRING}|'(?:\\.|[^'\\\n])+'|(?P<text>/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*)", re.DOTALL)
SWIFT_COMMENT = re.compile(rf'""".*?"""|{STRING}|(?P<text>/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*)', re.DOTALL)
HASH_COMMENT = re.compile(
    rf"(?P<text>\"\"\".*?\"\"\"|#[^\n]*(?:\n[ \t]*#[^\n]*)*)|{STRING}|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
COMMENTS = {".c": C_COMMENT, ".h": C_COMMENT, ".cpp": C_COMMENT, ".swift": SWIFT_COMMENT, ".py": HASH_COMMENT}
CITATION = re.compile(r'(?<![\w/.-])(?:([\w-]+\.md)[,:] "([^"]+)"|(shale\.h)[,:] ((?:shale|SHALE)_\w+|"[^"]*"))')
QUOTE = re.compile(r'"([^"]*)"')
TOLERANCE = re.compile(r"\b(?:excused|tolerated)\((?:\d|by_|\")")
LINK = re.compile(r"\]\(([\w./-]*)#([\w-]+)\)")


def plain(text: str) -> str:
    """A comment without its marks, in one line."""
    text = re.sub(r'^[ \t]*(?:/\*+|\*/|\*|///?|#|""")?', "", text, flags=re.MULTILINE)
    return re.sub(r"\s+", " ", re.sub(r'\*+/?|"""', "", text)).strip()


def headings(text: str) -> "set[str]":
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return {heading.strip() for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def check(name: str, comment: str, pages: "dict[str, set[str]]") -> "tuple[int, list[str]]":
    """The number of citations in a comment, and what is wrong with them."""
    wrong = []
    cited = [(m[1] or m[3], m[2] or m[4]) for m in CITATION.finditer(comment)]
    for page, place in cited:
        if page not in pages:
            wrong.append(f"{name}: there is no page {page}")
        elif place not in pages[page]:
            wrong.append(f'{name}: {page} does not have "{place}"')
    if name.startswith(TESTS):
        rest = CITATION.sub("", comment)
        wrong += [f'{name}: cite page and heading instead of "{q}"' for q in QUOTE.findall(rest) if len(q.split()) >= 5]
    return len(cited), wrong


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE)
    files = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    if not files:
        print("git does not list any file here")
        return 77
    documents = [*ROOT.glob("*.md"), *(ROOT / "Documentation").rglob("*.md")]
    # Of pages with the same name the one nearest to the root is cited.
    pages = {path.name: headings(path.read_text()) for path in sorted(documents, key=lambda p: -len(p.parts))}
    pages[HEADER] = set(re.findall(r"\w+", (ROOT / "Include" / HEADER).read_text()))

    citations = links = 0
    wrong: list[str] = []
    for name in files:
        path = ROOT / name
        comments = COMMENTS.get(path.suffix)
        if comments is None and path.suffix == "" and path.read_bytes().startswith(b"#!/usr/bin/env python3"):
            comments = HASH_COMMENT
        if comments is None or name.startswith(SKIPPED):
            continue
        text, before = path.read_text(), citations
        for match in comments.finditer(text):
            if match["text"]:
                looked, found = check(name, plain(match["text"]), pages)
                citations += looked
                wrong += found
        if citations == before and TOLERANCE.search(text):
            wrong.append(f"{name}: cite the heading that allows the answers that it tolerates")
    for path in documents:
        for target, section in LINK.findall(path.read_text()):
            to = (path.parent / target).resolve() if target else path
            links += 1
            found_headings = headings(to.read_text()) if to.suffix == ".md" and to.is_file() else set()
            if found_headings and section not in {anchor(heading) for heading in found_headings}:
                wrong.append(f"{path.name}: {to.name} has no section #{section}")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{citations} citations, {links} links to sections, {len(wrong)} of them wrong")
    return 1 if wrong or not citations else 0


if __name__ == "__main__":
    sys.exit(main())
