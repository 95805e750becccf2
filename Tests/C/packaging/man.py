"""Checks shale.3 against shale.h: every function with its parameters, every error. Both manual pages have no fault that
mandoc finds, where it is installed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MANUAL = ROOT / "Documentation/man"


def spaced(text: str) -> str:
    text = re.sub(r"SHALE_(NON|)NULL(ABLE|) ?", "", text)
    return re.sub(r"\s+", " ", text).strip()


def main() -> int:
    header = (ROOT / "Include/shale.h").read_text()
    page = (MANUAL / "shale.3").read_text()
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    declared = {
        (spaced(result), name, *(spaced(each) for each in parameters.split(",")))
        for result, name, parameters in re.findall(
            r"^((?:const )?\w+ [*]?(?:SHALE_NONNULL )?)(shale_\w+)\(([^)]*)\);", header, re.MULTILINE
        )
    }
    shown = {
        (spaced(result), name, *re.findall(r'"([^"]*)"', parameters))
        for result, name, parameters in re.findall(r"^\.Ft (.*)\n\.Fn (\w+) (.*)$", page, re.MULTILINE)
    }
    wrong = [f"shale.3 lacks, or has otherwise: {each}" for each in sorted(declared - shown)]
    wrong += [f"shale.h lacks, or has otherwise: {each}" for each in sorted(shown - declared)]
    described = re.findall(r"^\.It Fn (\w+)$", page, re.MULTILINE)
    wrong += [f"shale.3 does not describe {name}" for _, name, *_ in declared if name not in described]
    errors = set(re.findall(r"\b(SHALE_E_\w+) = -", header))
    if errors != set(re.findall(r"^\.It Dv (SHALE_E_\w+)$", page, re.MULTILINE)):
        wrong.append("shale.3 lists other errors than shale.h")
    if not declared or not errors:
        wrong.append("nothing was found in shale.h")
    if shutil.which("mandoc"):
        for each in sorted(MANUAL.iterdir()):
            linted = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", each], capture_output=True, text=True)
            wrong += linted.stdout.splitlines()
    print("\n".join(wrong) or f"{len(declared)} functions and {len(errors)} errors")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
