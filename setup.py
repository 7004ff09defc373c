"""What ``pyproject.toml`` cannot say: the data folders of a built package, and the page that a package index shows.

An editable installation needs no copy of the folders: :mod:`srpo.ground.repository` finds them in the checkout.
"""

import os
import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
FOLDERS = ("configs", "reports")  # as srpo.ground.repository.DATA_FOLDERS, which has a test
IN_THE_CLONE = ("stored",)  # base models: who trains works in a clone


class BuildWithData(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for name in FOLDERS:
            target = Path(self.build_lib) / "srpo" / name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns(*IN_THE_CLONE))


def index_page(readme: str, repository: str) -> str:
    """README with links into the repository, for a place that has not its files; only their words, if it has no URL.

    Args:
        repository: its URL, as GitHub writes it; the release workflow gives it.
    """

    def absolute(match: re.Match[str]) -> str:
        is_image, words, target = match.groups()
        if "://" in target or target.startswith("#"):
            return match[0]
        if not repository:
            return "" if is_image else words
        return f"{is_image}[{words}]({repository}/{'raw' if is_image else 'blob'}/HEAD/{target})"

    page = re.sub(r"(!?)\[((?:!\[[^][]*\]\([^()]*\)|[^][])*)\]\(([^()\s]+)\)", absolute, readme)
    return page.replace("URL_OF_THIS_REPOSITORY", repository) if repository else page


repository = os.environ.get("REPOSITORY", "")
setup(
    cmdclass={"build_py": BuildWithData},
    long_description=index_page((ROOT / "README.md").read_text(encoding="utf-8"), repository),
    long_description_content_type="text/markdown",
    project_urls={"Paper": "https://arxiv.org/abs/2604.02288"} | ({"Source": repository} if repository else {}),
)
