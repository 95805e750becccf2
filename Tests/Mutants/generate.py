"""Puts all mutants into one copy of the sources: each function that a mutant changes becomes a switch over whole copies
of its body, and SHALE_MUTANT chooses one of them when a program runs (mutant.c)."""

import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# Files that the builds and the tests read.
COPIED = [
    "CMakeLists.txt",
    "CMake",
    "Package.swift",
    "LICENSE",
    "README.md",
    "Sources",
    "Include",
    "Scripts",
    "Tests",
    "Bindings",
    "Examples",
    "Benchmarks",
    "Documentation",
]

PLATFORM = "Sources/CShalePlatform/"
OWN_FILES = {f"{PLATFORM}mutant.c": HERE / "mutant.c", f"{PLATFORM}include/mutant.h": HERE / "mutant.h"}

# Strings and comments, which may hold braces and words that look like code.
NOT_CODE = re.compile(r'"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*[\s\S]*?\*/')
MODIFIERS = r"^[ ]*(?:(?:@\w+(?:\([^()]*\))?|[a-z]\w*(?:\(set\))?)[ \n]+)*?"
SWIFT_FUNCTION = re.compile(
    MODIFIERS + r"(?P<kind>func|init|subscript|var|deinit|get|set|willSet|didSet)\b(?=[ (<{?!])", re.MULTILINE
)
C_FUNCTION = re.compile(r"^(?P<kind>)[a-z_][^;={}#]*\)\s*(?=\{)", re.MULTILINE)
ACCESSOR = re.compile(r"\s*(?:(?:non)?mutating\s+)?(?:get|set|willSet|didSet|_read|_modify)\b\s*[({a-z]")


@dataclass(frozen=True)
class Mutant:
    name: str
    promise: str
    file: str
    find: str
    replace: str
    test: str
    slow: bool = False  # built by itself
    survives: str = ""  # why no test notices it, if none is known to

    def edit(self, text: str) -> tuple[int, int, str]:
        """Begin and end of the replaced text, and its replacement, without equal text around it."""
        start = text.index(self.find)
        before = common(self.find, self.replace)
        after = common(self.find[before:][::-1], self.replace[before:][::-1])
        return start + before, start + len(self.find) - after, self.replace[before : len(self.replace) - after]


@dataclass(frozen=True)
class Body:
    """A function's body: the text between its braces."""

    start: int
    end: int
    has_result: bool
    is_c: bool


@dataclass(frozen=True)
class Generated:
    """The files that differ from the sources, the number of each mutant, and that of its function's switch."""

    files: Mapping[str, str]
    numbers: Mapping[str, int]
    switches: Mapping[str, int]


def load() -> list[Mutant]:
    return [Mutant(**each) for each in tomllib.loads((HERE / "mutants.toml").read_text())["mutant"]]


def common(one: str, other: str) -> int:
    """The length of the common prefix."""
    return next((n for n, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def code(text: str) -> str:
    """The text with blanks for strings and comments."""
    return NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def matching(blanked: str, opening: int) -> int:
    """The position of the closing brace."""
    depth = 0
    for brace in re.compile(r"[{}]").finditer(blanked, opening):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return brace.start()
    raise ValueError("a brace is not closed")


def opening_brace(blanked: str, start: int) -> int | None:
    """The beginning of the declaration's body, if it has one."""
    depth = 0
    for mark in re.compile(r"[()\[\]{}=]|->|\n(?=\s*(?:\n|func|var|let|case|init)\b)").finditer(blanked, start):
        match mark.group():
            case "(" | "[":
                depth += 1
            case ")" | "]":
                depth -= 1
            case "{" if depth == 0:
                return mark.start()
            case "}" | "=" | "\n" if depth == 0:
                return None
    return None


def bodies(text: str, file: str) -> Iterator[Body]:
    """The bodies of a file's functions, without those inside other functions."""
    is_c = not file.endswith(".swift")
    blanked, after = code(text), 0
    for declared in (C_FUNCTION if is_c else SWIFT_FUNCTION).finditer(blanked):
        opening = opening_brace(blanked, declared.end())
        if declared.start() < after or opening is None:
            continue
        if ACCESSOR.match(blanked, opening + 1):
            continue  # they are the functions
        after = matching(blanked, opening)
        header = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "", blanked[declared.start() : opening]))
        has_result = declared["kind"] in ("var", "get") or "->" in header
        yield Body(opening + 1, after, has_result, is_c)


def find_body(mutant: Mutant, text: str) -> Body | None:
    """The function that the mutant changes."""
    start, end, _ = mutant.edit(text)
    return next((each for each in bodies(text, mutant.file) if each.start <= start and end <= each.end), None)


def statements(body: Body, text: str) -> str:
    """A case of the switch. A body that is only an expression gets a `return`, as it is not the result there."""
    blanked = code(text)
    first = re.search(r"\S", blanked)
    if first is None:
        return "break"
    if not body.has_result or re.search(r"\breturn\b", blanked) or blanked.startswith("throw ", first.start()):
        return text
    return f"{text[: first.start()]}return {text[first.start() :]}"


def switch(body: Body, text: str, number: int, mutants: list[tuple[int, Mutant]]) -> str:
    """The body of the function as a switch over the mutants' bodies and its own."""
    copies = []
    for n, mutant in mutants:
        start, end, new = mutant.edit(text)
        copies.append((f"case {n}: // {mutant.name}", text[body.start : start] + new + text[end : body.end]))
    copies.append(("default:", text[body.start : body.end]))
    if body.is_c:
        cases = "".join(f"{label}\n{{{copy}}} break;\n" for label, copy in copies)
        return f"\nswitch (shim_mutant({number})) {{\n{cases}}}\n"
    cases = "".join(f"{label}\n{statements(body, copy)}\n" for label, copy in copies)
    return f"\nswitch shim_mutant({number}) {{\n{cases}}}\n"


def generate(mutants: list[Mutant], left_out: set[str]) -> Generated:
    """The copy's files with all mutants but the slow and the omitted ones. Their numbers are not reused."""
    groups: dict[tuple[str, int], tuple[Body, list[tuple[int, Mutant]]]] = {}
    texts = {file: (ROOT / file).read_text() for file in {m.file for m in mutants} if (ROOT / file).is_file()}
    for number, mutant in enumerate(mutants, 1):
        text = texts.get(mutant.file, "")
        if mutant.slow or mutant.name in left_out or text.count(mutant.find) != 1:
            continue
        if body := find_body(mutant, text):
            groups.setdefault((mutant.file, body.start), (body, []))[1].append((number, mutant))
    files: dict[str, str] = {}
    numbers: dict[str, int] = {}
    switches: dict[str, int] = {}
    for place, (_, (_, changes)) in enumerate(sorted(groups.items())):
        for number, mutant in changes:
            numbers[mutant.name], switches[mutant.name] = number, place
    for place, ((file, _), (body, changes)) in reversed(list(enumerate(sorted(groups.items())))):
        text = files.get(file, texts[file])
        files[file] = text[: body.start] + switch(body, texts[file], place, changes) + text[body.end :]
    for file, text in files.items():
        if file.endswith(".swift") and not re.search(r"^import CShalePlatform$", text, re.MULTILINE):
            files[file] = f"import CShalePlatform\n{text}"
    header = f"{PLATFORM}include/platform.h"
    files[header] = files.get(header, (ROOT / header).read_text()).replace(
        "#include <dirent.h>", '#include "mutant.h"\n#include <dirent.h>', 1
    )
    files |= package() | {file: source.read_text() for file, source in OWN_FILES.items()}
    return Generated(files, numbers, switches)


def package() -> dict[str, str]:
    """The Swift package with an optimised core, as its tests are long; they themselves compile faster as they are."""
    text = (ROOT / "Package.swift").read_text()
    core = '.target(name: "ShaleCore", dependencies: ["CShalePlatform"]'
    if text.count(core) != 1:
        raise ValueError("Package.swift does not declare the core as expected")
    return {"Package.swift": text.replace(core, core + ', swiftSettings: [.unsafeFlags(["-O"])]')}


def named_at(text: str, line: int) -> str | None:
    """The mutant whose body contains that line of a generated file."""
    for each in reversed(text.splitlines()[:line]):
        if found := re.fullmatch(r"case \d+: // (\S+)", each):
            return found[1]
        if each == "default:":
            return None
    return None


def lay_out(folder: Path, changed: Mapping[str, str]) -> None:
    """A copy of the sources. Files that are up to date keep their times, so that builds do not repeat work."""
    wanted = {
        str(path.relative_to(ROOT))
        for name in COPIED
        for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))
        if path.is_file() and not any(part in ("__pycache__", ".build") for part in path.parts)
    }
    for name in sorted(wanted | set(changed)):
        target = folder / name
        content = changed[name].encode() if name in changed else (ROOT / name).read_bytes()
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        if name in wanted:
            shutil.copymode(ROOT / name, target)
    for target in folder.rglob("*"):
        if target.is_file() and str(target.relative_to(folder)) not in wanted | set(changed):
            target.unlink()
