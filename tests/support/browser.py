"""A page in headless Chromium: what its elements measure on a screen of a given size."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
"""The browser's path; None if there is none."""

_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


def measure(page: str, folder: Path, width: int, height: int, expression: str) -> Any:
    """The value of a JavaScript ``expression`` of the document ``d``, on a screen of ``width`` x ``height`` CSS pixels.

    The page is shown in a frame of that size, because a window of Chromium cannot be as narrow as a phone. Nothing is
    added to the page itself.
    """
    frame = (
        f'<body><iframe style="border:0" width="{width}" height="{height}" srcdoc="{html.escape(page)}"></iframe>'
        "<script>onload = () => {const frame = document.querySelector('iframe'), d = frame.contentDocument;"
        f"const found = JSON.stringify({expression});"
        "document.body.textContent = `MEASURED${found}MEASURED`;}</script>"
    )
    shown = _shown(frame, folder, ["--dump-dom", "--virtual-time-budget=5000"])
    found = re.search("MEASURED(.*)MEASURED", shown, flags=re.S)
    assert found, "the browser has not loaded the page"
    return json.loads(html.unescape(found.group(1)))


def printed_pages(page: str, folder: Path) -> int:
    """The number of pages on paper."""
    _shown(page, folder, ["--no-pdf-header-footer", f"--print-to-pdf={folder / 'page.pdf'}"])
    return len(re.findall(rb"/Type\s*/Page\b", (folder / "page.pdf").read_bytes()))


def _shown(page: str, folder: Path, options: list[str]) -> str:
    path = folder / "shown.html"
    path.write_text(f"<!DOCTYPE html>{page}")
    assert CHROMIUM is not None  # the caller skips its test
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [CHROMIUM, *_OPTIONS, profile, *options, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
