"""Asks every web address in the documentation whether it answers.

    python scripts/links.py

Prints those that do not and fails if there are any. Links within the repository are tests/repository/test_docs.py's.
"""

from __future__ import annotations

import re
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 20


def addresses() -> dict[str, str]:
    """Each address that a page links to, and the page."""
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
    return {address: page.name for page in pages for address in re.findall(r"\]\((https?:[^)#]+)", page.read_text())}


def failure(address: str) -> str | None:
    """Why an address does not answer; None if it does, or if it asks robots to stay away."""
    request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0 (link check)"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):
            return None
    except urllib.error.HTTPError as error:
        return None if error.code in (403, 429) else str(error)
    except OSError as error:
        return str(error)


def main() -> int:
    """Check all addresses."""
    found = addresses()
    with ThreadPoolExecutor(8) as pool:
        failures = dict(zip(found, pool.map(failure, found), strict=True))
    broken = {address: reason for address, reason in failures.items() if reason}
    for address, reason in broken.items():
        print(f"{found[address]}: {address}: {reason}")
    print(f"{len(found)} addresses, {len(broken)} broken")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
