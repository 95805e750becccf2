#!/usr/bin/env python3
"""Every sentence that a comment quotes from a document is there, word for word.

A test that accepts an answer names the sentence that allows it: PAGE, "SECTION": "SENTENCE", where PAGE is a Markdown
file of Documentation or of the root, or shale.h. The section or the sentence may be left out; "..." and "[...]" stand
for words that are left out. In the tests a quote of five words or more has to name its page, and a file that excuses an
answer names a sentence or a section. In the documents, every link to a section leads to one. Exits with 1 and what is
wrong; with 77 where git does not say which files there are.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SKIPPED = ("Tests/Fuzz/corpus/", "Tests/Fuzz/found/")
TESTS = ("Tests/", "Bindings/Python/tests/")
# Strings, which are skipped, and comments; in Python also docstrings.
STRING = r'"(?:\\.|[^"\\\n])*"'
C_COMMENT = re.compile(rf"{STRING}|'(?:\\.|[^'\\\n])+'|(?P<text>/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*)", re.DOTALL)
SWIFT_COMMENT = re.compile(rf'""".*?"""|{STRING}|(?P<text>/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*)', re.DOTALL)
HASH_COMMENT = re.compile(
    rf"(?P<text>\"\"\".*?\"\"\"|#[^\n]*(?:\n[ \t]*#[^\n]*)*)|{STRING}|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
COMMENTS = {".c": C_COMMENT, ".h": C_COMMENT, ".cpp": C_COMMENT, ".swift": SWIFT_COMMENT, ".py": HASH_COMMENT}
REFERENCE = re.compile(r'(?<![\w/.-])([\w-]+\.md|shale\.h)(?:, "([^"]+)")?(?:: "([^"]+)")?')
QUOTE = re.compile(r'"([^"]*)"')
LEFT_OUT = re.compile(r"\[\.\.\.\]|\.\.\.|…")
EXCUSE = re.compile(r"\bexcused\((?:\d|by_|\")")
LINK = re.compile(r"\]\(([\w./-]*)#([\w-]+)\)")


def plain(text: str) -> str:
    """Without marks of comments and of Markdown, and in one line."""
    text = re.sub(r'^[ \t]*(?:/\*+|\*/|\*|///?|#|""")?', "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\s+", " ", re.sub(r'\*+/?|"""', "", text)).strip()


def sections(text: str) -> "dict[str, str]":
    """What is below each heading, deeper ones included; "" is the whole page."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    found = {"": plain(text)}
    heads = list(re.finditer(r"^(#+) (.+)$", text, re.MULTILINE))
    for i, head in enumerate(heads):
        end = next((h.start() for h in heads[i + 1 :] if len(h[1]) <= len(head[1])), len(text))
        found[head[2].strip()] = plain(text[head.end() : end])
    return found


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def has(text: str, quote: str) -> bool:
    at = 0
    for piece in LEFT_OUT.split(quote):
        at = text.find(piece.strip(), at)
        if at < 0:
            return False
        at += len(piece.strip())
    return True


def check(name: str, comment: str, pages: "dict[str, dict[str, str]]") -> "tuple[int, list[str]]":
    wrong = []
    looked = 0
    for reference in REFERENCE.finditer(comment):
        page, section, quote = reference.groups()
        if section is None and quote is None:
            continue
        looked += 1
        if page not in pages:
            wrong.append(f"{name}: there is no page {page}")
        elif (section or "") not in pages[page]:
            wrong.append(f'{name}: {page} has no section "{section}"')
        elif quote is not None and not has(pages[page][section or ""], quote):
            wrong.append(f'{name}: {page}{f", {section}" if section else ""} does not say "{quote}"')
    if name.startswith(TESTS):
        rest = REFERENCE.sub("", comment)
        wrong += [f'{name}: where is this from? "{q}"' for q in QUOTE.findall(rest) if len(q.split()) >= 5]
    return looked, wrong


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE)
    files = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    if not files:
        print("git does not list any file here")
        return 77
    documents = [*ROOT.glob("*.md"), *(ROOT / "Documentation").glob("*.md")]
    pages = {path.name: sections(path.read_text()) for path in documents}
    pages["shale.h"] = {"": plain((ROOT / "Include" / "shale.h").read_text())}

    quotes = links = 0
    wrong: list[str] = []
    for name in files:
        path = ROOT / name
        comments = COMMENTS.get(path.suffix)
        if comments is None and path.suffix == "" and path.read_bytes().startswith(b"#!/usr/bin/env python3"):
            comments = HASH_COMMENT
        if comments is None or name.startswith(SKIPPED):
            continue
        text, before = path.read_text(), quotes
        for match in comments.finditer(text):
            if match["text"]:
                looked, found = check(name, plain(match["text"]), pages)
                quotes += looked
                wrong += found
        if quotes == before and EXCUSE.search(text):
            wrong.append(f"{name}: by which sentence are its answers excused?")
    for path in documents:
        for target, section in LINK.findall(path.read_text()):
            to = (path.parent / target).resolve() if target else path
            links += 1
            headings = sections(to.read_text()) if to.suffix == ".md" and to.is_file() else {}
            if headings and section not in {anchor(heading) for heading in headings}:
                wrong.append(f"{path.name}: {to.name} has no section #{section}")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{quotes} quotes and names of sections, {links} links to sections, {len(wrong)} of them wrong")
    return 1 if wrong or not quotes else 0


if __name__ == "__main__":
    sys.exit(main())
