"""MkDocs' hooks (mkdocs.yml): the pages outside of docs/, the API reference, and the report if it is there.

Links are written for the repository, where GitHub shows them. Those between pages are changed to the site's paths; one
to a file that is no page, such as LICENSE, becomes its text.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ["functional", *sorted(folder.parent.name for folder in (ROOT / "src" / "srpo").glob("*/__init__.py"))]
REPORT = ROOT / "results" / "embedded" / "report.html"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\]\([^)]*\))*)\]\((?!https?:|#)([^)#]*)(#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the API reference, and the report if it was made, to the navigation."""
    config.nav.append({"API": [{f"srpo.{name}": f"api/{name}.md"} for name in REFERENCE]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the repository's pages and one page per part of the API reference."""
    for page in sorted(ROOT.glob("*.md")):
        name = "index.md" if page.name == "README.md" else page.name
        text = page.read_text()
        if page.name == "README.md" and REPORT.exists():
            text = text.replace("## Try it", "[The report of the toy experiment](report.html)\n\n## Try it", 1)
        files.append(File.generated(config, name, content=text))
    for name in REFERENCE:
        files.append(File.generated(config, f"api/{name}.md", content=f"::: srpo.{name}\n"))
    if REPORT.exists():
        files.append(File.generated(config, "report.html", abs_src_path=str(REPORT)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of the repository as links of the site."""

    def changed(link: re.Match[str]) -> str:
        mark, text, target, anchor = link[1], link[2], link[3], link[4] or ""
        path = target.removeprefix("docs/").removeprefix("../")
        path = "index.md" if path == "README.md" else path
        if files.get_file_from_path(path):
            return f"{mark}[{LINK.sub(changed, text)}]({path}{anchor})"
        return LINK.sub(changed, text)

    return LINK.sub(changed, markdown)
