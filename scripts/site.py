"""MkDocs' hooks (mkdocs.yml): the pages outside of docs/, the API reference, and the reports of published experiments.

Links are written for the repository, where GitHub shows them. Those between pages are changed to the site's paths; one
to a file that is no page, such as LICENSE, becomes its text.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = sorted(folder.parent.name for folder in (ROOT / "src" / "srpo").glob("*/__init__.py"))
REPORTS = {path.parent.name: path for path in sorted((ROOT / "results" / "published").glob("*/report.html"))}
"""Those that ``make published`` has made."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\]\([^)]*\))*)\]\((?!https?:|#)([^)#]*)(#[^)]*)?\)")

PICTURE = re.compile(r'(src|srcset)="(?:docs/)?([^"/]+\.svg)"')


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the API reference to the navigation."""
    config.nav.append({"API": [{f"srpo.{name}": f"api/{name}.md"} for name in REFERENCE]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the repository's pages and one page per part of the API reference."""
    for page in sorted(ROOT.glob("*.md")):
        name = "index.md" if page.name == "README.md" else page.name
        text = page.read_text()
        if page.name == "README.md" and REPORTS:
            links = ", ".join(f"[{name}](reports/{name}.html)" for name in REPORTS)
            text = text.replace("## Try it", f"Published reports: {links}.\n\n## Try it", 1)
        files.append(File.generated(config, name, content=text))
    for name in REFERENCE:
        files.append(File.generated(config, f"api/{name}.md", content=f"::: srpo.{name}\n"))
    files.append(File.generated(config, "reports/method.svg", abs_src_path=str(ROOT / "reports" / "method.svg")))
    for name, report in REPORTS.items():
        files.append(File.generated(config, f"reports/{name}.html", abs_src_path=str(report)))
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

    markdown = PICTURE.sub(lambda found: f'{found[1]}="{get_relative_url(found[2], page.url)}"', markdown)
    return LINK.sub(changed, markdown)
