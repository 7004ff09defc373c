"""The notes of a release, if its tag, the package and the changelog agree.

python scripts/release.py vX.Y.Z

Prints the changelog's section of the version. Ends with one line if the tag is not the package's version, if the
changelog has no section of it, or if changes still stand under "Unreleased".
"""

import re
import sys
from pathlib import Path

import srpo

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"


def notes(tag: str, version: str, changelog: str) -> str:
    """The changelog's section of a version.

    Raises:
        ValueError: if tag, version and changelog do not agree.
    """
    if tag != f"v{version}":
        raise ValueError(f"the tag is {tag or 'missing'}, the package's version {version}: tag v{version}")
    sections = dict(re.findall(r"^## (\S+).*?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL))
    if sections.get("Unreleased", "").strip():
        raise ValueError(f"CHANGELOG.md: changes under Unreleased; move them below ## {version}")
    if not sections.get(version, "").strip():
        raise ValueError(f"CHANGELOG.md: nothing below ## {version}")
    return sections[version].strip() + "\n"


if __name__ == "__main__":
    try:
        print(notes("".join(sys.argv[1:]), srpo.__version__, CHANGELOG.read_text()), end="")
    except ValueError as error:
        sys.exit(f"release: {error}")
